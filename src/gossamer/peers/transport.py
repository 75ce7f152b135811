"""What a peer needs of a network. `grpc_transport.py` is one; another fits behind the same few calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Payload = Callable[[int], bytes]  # of a receiver: the frames for it, made when they are about to leave


class Arrived(NamedTuple):
    """What came from a sender in one delivery: a frame, or several if it had missed some."""

    sender: int
    round: int  # in which it was sent
    frames: tuple[bytes, ...]
    life: int = 0  # of this peer, when it came: what it was told in an earlier one is forgotten


class Copy(NamedTuple):
    """A neighbour's whole state."""

    sender: int
    frame: bytes


@dataclass(frozen=True)
class Timeouts:
    """How patient a peer is, and how much it keeps."""

    deadline_seconds: float = 30.0  # how long a round waits for messages
    adaptive: bool = False  # wait a multiple of what recent rounds took, at most deadline_seconds
    start_seconds: float = 120.0  # how long to wait for the others at the start
    dead_seconds: float = 8.0  # a neighbour that does not answer for so long is down
    beat_seconds: float = 0.5  # how often neighbours are asked whether they are there
    late_rounds: int = 3  # a message so many rounds late is still used
    ahead_rounds: int = 1  # a message so many rounds early is kept; an earlier one waits at its sender
    away_rounds: int = 10  # a peer so far behind takes a neighbour's state instead of running the rounds it missed

    def __post_init__(self) -> None:
        for name in ("deadline_seconds", "start_seconds", "dead_seconds", "beat_seconds"):
            if not 0 < getattr(self, name) < 1e6:
                raise ValueError(f"{name} must be above 0 and under a million, {getattr(self, name)} was given")


class Transport(Protocol):
    """Carries frames between this peer and its neighbours. All waiting is bounded."""

    running: bool  # what the others are told: has this peer begun, or does it wait for them at the start?

    def begin(self, round: int) -> None:
        """This peer is in this round from now on."""

    def begin_anew(self) -> None:
        """Have the others know that this peer has forgotten what they told it before."""

    def publish(self, round: int, receivers: Sequence[int], payload: Payload, until: float) -> None:
        """Have the round's message brought to these nodes. Waits while one of them has not taken the message before,
        until the moment `until` of time.monotonic(), and then drops that one."""

    def collect(self, round: int, senders: Sequence[int], until: float) -> list[Arrived]:
        """What came for this round and, late, for earlier ones. Waits for these senders, as long as there is hope."""

    def alive(self, node: int) -> bool:
        """Is this node there, as far as is known?"""

    def answered(self, node: int) -> bool:
        """Has it been heard from?"""

    def is_running(self, node: int) -> bool:
        """Did it say that it has begun?"""

    def watch(self, nodes: Sequence[int]) -> None:
        """Find out whether these nodes are there, from now on."""

    def round_of(self, node: int) -> int | None:
        """The round that a node said it is in."""

    def pull(self, node: int) -> Copy | None:
        """The whole state of a node; None if it does not give it."""

    def close(self, until: float) -> None:
        """Bring what is still to be brought, until that moment, and leave."""
