"""What a peer needs of a network. `grpc/transport.py` is one; another fits behind the same few calls."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from gossamer.wire.frame import Frame

Payload = Callable[[int], bytes]  # of a receiver: the frames for it, made when they are about to leave


class Arrived(NamedTuple):
    """What came from a sender in one delivery: a frame, or several if it had missed some."""

    sender: int
    round: int  # in which it was sent
    frames: tuple[Frame, ...]
    incarnation: int = 0  # of this peer, when it came: what was sent to an earlier one is forgotten


class Transport(Protocol):
    """Carries frames between this peer and its neighbours. All waiting is bounded."""

    started: float | None  # when this peer began, by time.monotonic(); None: it waits for the others, who are told so

    def begin(self, round: int) -> None:
        """This peer is in this round from now on."""

    def new_incarnation(self) -> None:
        """Let the others know that this peer has forgotten what they sent before."""

    def publish(self, round: int, receivers: Sequence[int], payload: Payload, until: float) -> None:
        """Have the round's message brought to these nodes. Waits while one of them has not taken the message before,
        until the moment `until` of time.monotonic(), and then drops that one."""

    def can_take(self, node: int) -> bool:
        """Could a message be published for this node now, without waiting and in place of none?"""

    def collect(self, round: int, senders: Sequence[int], until: float) -> list[Arrived]:
        """What came for this round and, late, for earlier ones. Waits for these senders, as long as there is hope."""

    def awaited(self) -> Sequence[int]:
        """For whom the thread in `publish` or `collect` waits now; asked by another one."""

    def alive(self, node: int) -> bool:
        """Is this node there, as far as is known?"""

    def answered(self, node: int) -> bool:
        """Has it been heard from?"""

    def is_running(self, node: int) -> bool:
        """Did it say that it has begun?"""

    def is_lost(self, node: int) -> bool:
        """Was it there, and is not any more?"""

    def was_away(self) -> bool:
        """Has this peer itself stood still since this was last asked, or been cut off from all that it watches?"""

    def why_absent(self, node: int) -> str:
        """Why one that has not been heard from is not there, as far as is known, in words."""

    def name_of(self, node: int) -> str:
        """What people call it."""

    def watch(self, nodes: Sequence[int]) -> None:
        """Find out whether these nodes are there, from now on."""

    def round_of(self, node: int) -> int | None:
        """The round that a node said it is in."""

    def pull(self, node: int) -> bytes | None:
        """The state of a node, as a frame; None if it does not give it."""

    def close(self, until: float) -> None:
        """Bring what is still to be brought, until that moment, and leave."""
