"""The transport over gRPC with mutual TLS.

Three calls, all of plain bytes: Put brings a delivery in chunks, Beat asks whether a peer is there, Pull gets its
state. Who calls is known from the certificate, and checked in every call against the group. Where connections can be
opened from one end only, or from neither, they go through calls of Listen and Connect (`tunnels.py`).
"""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import grpc

from gossamer.peers.config import Timeouts
from gossamer.peers.counters import Counters
from gossamer.peers.grpc.failures import reason_of
from gossamer.peers.grpc.liveness import Liveness
from gossamer.peers.grpc.outbox import Outbox
from gossamer.peers.grpc.protocol import GREETING_KEY, Heartbeat
from gossamer.peers.grpc.queues import Mailbox
from gossamer.peers.grpc.reachability import Reachability
from gossamer.peers.grpc.server import Server
from gossamer.peers.grpc.ways import Ways
from gossamer.peers.identity.greeting import Greeting
from gossamer.peers.identity.group import Group, Member
from gossamer.peers.identity.keys import Credentials
from gossamer.peers.logs import Log
from gossamer.peers.transport import Arrived, Payload
from gossamer.wire import WireError
from gossamer.wire.frame import Frame

HEARTBEAT_TIMEOUT_SECONDS = 2.0
TICK_SECONDS = 0.1
CLOCK_SKEW_SECONDS = 60.0
CLOCK_TOLD_SECONDS = 3600.0  # a neighbour whose clock differs is told of once in so long
MEET_SECONDS = 20.0  # so long the start waits for a way in each direction to one that was heard; a tunnel takes ten
HIDDEN = "127.0.0.1:0"  # where a peer listens that nobody else can open a connection to


class GrpcTransport:
    """A peer's end of the network. `check` makes frames of a delivery or raises WireError; `state` gives this peer's
    own to one that was away, of which the exchange that it is in is known; both are called from other threads."""

    def __init__(
        self,
        me: Member,
        group: Group,
        credentials: Credentials,
        timeouts: Timeouts,
        counters: Counters,
        log: Log,
        *,
        rounds: int,
        max_delivery_bytes: int,
        max_state_bytes: int,
        check: Callable[[bytes, int, int], tuple[Frame, ...]],
        state: Callable[[int, int | None], bytes | None],
        on_outcome: Callable[[int, int, bool], None] = lambda receiver, round, taken: None,
        on_restart: Callable[[int], None] = lambda receiver: None,
        bind: str | None = None,
        exchanges: int = 1,
        asynchronous: bool = False,
        hears_again: bool = False,
        greeting: Greeting | None = None,
    ):
        self.me, self.group, self.timeouts, self.counters, self.log = me, group, timeouts, counters, log
        self.round = 0  # counted in exchanges, as all here
        self.started: float | None = None  # waiting for the others at the start
        self.incarnation = secrets.randbits(32)
        self.skews: dict[int, float] = {}
        self._clock_told: dict[int, float] = {}  # until when not to log again that a neighbour's clock differs
        kept = (inf, inf) if asynchronous else (timeouts.ahead_rounds * exchanges, timeouts.late_rounds * exchanges)
        self.mailbox = Mailbox(*kept)
        self.liveness = Liveness(timeouts.dead_seconds, self._on_change)
        self.reachability = Reachability(timeouts.dead_seconds, lambda *told: self.ways.tell(*told))
        self.greeting = greeting
        self.greeting_metadata = () if greeting is None else ((GREETING_KEY, greeting.write()),)
        self.releases: dict[int, str] = {}  # of Gossamer, that neighbours said they run
        self.differences: dict[int, str] = {}  # of those that greeted, and are of another experiment, run or version
        self.callers: set[int] = set()  # who has called
        self._messages_before = self._messages()  # of before a restart
        self.cut_off: set[int] = set()  # those that said that they cannot reach this peer
        self.credentials = credentials
        self.exchanges_in_all, self.exchanges = rounds * exchanges, exchanges  # of the run, and per round
        self._max_state_bytes = max_state_bytes
        self._watched: frozenset[int] = frozenset()
        self._asked: dict[int, float] = {}  # when each last said, or was asked, whether it is there
        self.called: dict[int, float] = {}  # when each was last asked
        self._under_way: set[int] = set()
        self._met: dict[int, float] = {}  # when each was first heard
        self._away = threading.Event()
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._on_restart, self._hears_again = on_restart, hears_again
        self.ways = Ways(self)
        self.outbox = Outbox(self, on_outcome, self._restarted)
        self.server = Server(self, max_delivery_bytes, check, state, bind or me.address or HIDDEN)
        self.tunnels = self.server.tunnels
        self.ways.tell_who_cannot_meet()
        self._heartbeats = threading.Thread(target=self._send_heartbeats, daemon=True, name="heartbeats")
        self._heartbeats.start()

    def _restarted(self, node: int) -> None:
        if self._hears_again:
            self.mailbox.forget(node)
        self._on_restart(node)

    # What a round needs.

    def begin(self, round: int) -> None:
        self.round = round
        self.counters.add(late_dropped=self.mailbox.begin(round))

    def new_incarnation(self) -> None:
        self.incarnation = secrets.randbits(32)

    def publish(self, round: int, receivers: Sequence[int], payload: Payload, until: float) -> None:
        self.outbox.publish(round, receivers, payload, until)

    def collect(self, round: int, senders: Sequence[int], until: float) -> list[Arrived]:
        def idle(sender: int) -> bool:
            """It waits for others at the start, for longer than this peer would."""
            waited = time.monotonic() - (self.started or time.monotonic())
            return waited > self.timeouts.dead_seconds and self.answered(sender) and not self.is_running(sender)

        def cannot_arrive(sender: int, of_round: int) -> bool:
            return not self._fits(sender) or self.liveness.cannot_arrive(sender, of_round) or idle(sender)

        came = self.mailbox.take(round, senders, until, cannot_arrive)
        known = [arrived for arrived in came if arrived.incarnation == self.incarnation]
        self.counters.add(late_dropped=len(came) - len(known))
        return known

    def awaited(self) -> Sequence[int]:
        return self.outbox.awaited or self.mailbox.awaited

    def _fits(self, node: int) -> bool:
        member = self.group.nodes.get(node)
        return member is not None and node not in self.differences and self.me.can_meet(member)

    def alive(self, node: int) -> bool:
        return self._fits(node) and self.liveness.alive(node)

    def can_send(self, node: int) -> bool:
        return self.alive(node) and not self.reachability.blocked(node)

    def can_take(self, node: int) -> bool:
        return self.can_send(node) and self.outbox.has_room(node)

    def answered(self, node: int) -> bool:
        """Nobody waits for one with which this peer cannot work. Until this peer begins, both must have called each
        other: what is to be sent in the first round must get there, through a tunnel if need be."""
        if not self._fits(node):
            return node in self.group.nodes
        both_ways = self.ways.reached.get(node) == "" and node in self.callers
        long_ago = time.monotonic() - self._met.get(node, inf) > max(MEET_SECONDS, self.timeouts.dead_seconds)
        return self.liveness.answered(node) and (both_ways or long_ago or self.started is not None)

    def is_running(self, node: int) -> bool:
        return self._fits(node) and self.liveness.is_running(node)

    def is_lost(self, node: int) -> bool:
        return not self._fits(node) or self.liveness.is_lost(node)

    def was_away(self) -> bool:
        away = self._away.is_set()
        if away:  # only then: what is set right after it was read is told the next time
            self._away.clear()
        return away

    def watch(self, nodes: Sequence[int]) -> None:
        self._watched = frozenset(nodes) - {self.me.node}

    def round_of(self, node: int) -> int | None:
        return self.liveness.round_of(node)

    def pull(self, node: int) -> bytes | None:
        frame = bytearray()
        try:
            call = self.outbox.channel(node).unary_stream("/gossamer.Peer/Pull")
            for chunk in call(b"", timeout=self.timeouts.deadline_seconds):
                frame += chunk
                if len(frame) > self._max_state_bytes:
                    raise ValueError("too long")
        except (grpc.RpcError, ValueError, KeyError) as error:
            self.log.rate_limited("pull failed", neighbour=self.name_of(node), reason=reason_of(error))
            return None
        self.counters.add(pulls_in=1, pull_bytes_in=len(frame))
        return bytes(frame)

    def close(self, until: float) -> None:
        self.outbox.flush(until)
        self.tunnels.drain(until - time.monotonic())
        self.closing.set()
        self._heartbeats.join(2)
        self.ways.close()
        self.outbox.stop()
        self.server.close()
        self.outbox.close()

    # What may change while it runs.

    def reload(self, group: Group, credentials: Credentials) -> None:
        """Another group, other keys: who is not listed any more is shut out at once."""
        with self._lock:
            before, self.group = self.group.nodes, group
            self.me = group.members.get(self.me.name, self.me)
            renewed, self.credentials = credentials != self.credentials, credentials
            if renewed:
                self.server.renew(credentials)
            for node, member in before.items():
                if renewed or group.nodes.get(node) != member:
                    self.outbox.disconnect(node)
                if group.nodes.get(node) != member:
                    self._forget(node)
        self.ways.tell_who_cannot_meet()
        self.mailbox.wake()

    def _forget(self, node: int) -> None:
        """It was struck from the group, or is another one now."""
        self.liveness.forget(node)
        self.reachability.forget(node)
        self.ways.forget(node)
        self.differences.pop(node, None)
        self._met.pop(node, None)
        self.callers.discard(node)

    def heartbeat_for(self, node: int) -> Heartbeat:
        round = self.round  # first: what it has to send, it has sent by then
        pending = self.outbox.oldest(node)
        settled = round if pending is None else min(round, pending)
        gets_through = not self.reachability.blocked(node)
        running = self.started is not None
        return Heartbeat(round, settled, running, time.time(), self.incarnation, gets_through)

    def take_heartbeat(self, node: int, heartbeat: Heartbeat, seconds_on_the_way: float) -> None:
        """WireError if it says what cannot be."""
        if heartbeat.round > self.exchanges_in_all:
            raise WireError(f"A heartbeat says exchange {heartbeat.round}, and the run has {self.exchanges_in_all}.")
        skew = abs(heartbeat.clock - time.time()) - seconds_on_the_way
        if skew > CLOCK_SKEW_SECONDS and time.monotonic() >= self._clock_told.get(node, 0.0):
            self._clock_told[node] = time.monotonic() + CLOCK_TOLD_SECONDS
            self.log("clocks differ", neighbour=self.name_of(node), seconds=round(skew), advice="set the clocks: only "
                     "certificates depend on them, but those end early or late")  # fmt: skip
        self.skews[node] = skew
        self._asked[node] = time.monotonic()  # this peer's own heartbeat went with it
        self.outbox.take_incarnation(node, heartbeat.incarnation)
        self.ways.note_cut_off(node, heartbeat.gets_through)
        self._met.setdefault(node, time.monotonic())
        if self.liveness.heard(node, heartbeat.round, heartbeat.settled, heartbeat.running, heartbeat.gets_through):
            self.reachability.try_anew(node)
            if self.ways.reached.get(node) and not self.outbox.is_tunnelled(node):
                self.outbox.disconnect(node)  # else it waits before it connects again
        self.mailbox.wake()

    def take_greeting(self, node: int, content: bytes | None) -> bool:
        """Does this neighbour run the same experiment, as far as it has said? If not, it counts as not there."""
        if content is None or self.greeting is None:
            difference = ""
        else:
            difference, release = _difference(self.greeting, content)
            if self.releases.get(node, self.greeting.release) != release:
                self.log.rate_limited("another release", neighbour=self.name_of(node), release=release)
            self.releases[node] = release
        before = self.differences.get(node, "")
        if not difference:
            self.differences.pop(node, None)
        elif difference != before:
            self.differences[node] = difference
            self.liveness.forget(node)
            self.mailbox.wake()
            self.log.rate_limited(
                "another experiment", neighbour=self.name_of(node), differs=difference,
                advice="give all peers the same experiment, run and version; until then it counts as not there",
            )  # fmt: skip
        return not difference

    def outcast(self) -> str | None:
        """Why this peer cannot take part, if most others are of another experiment and none is of this one's.

        Not after the first message: who has worked with this peer cannot end it by claiming something else.
        """
        if self._messages() > self._messages_before:
            return None
        others = [node for node in self.group.nodes if node != self.me.node]
        differing = {node: found for node in others if (found := self.differences.get(node))}  # it changes meanwhile
        if 2 * len(differing) <= len(others) or any(self._fits(n) and self.liveness.answered(n) for n in others):
            return None
        names = ", ".join(self.name_of(node) for node in list(differing)[:3]) + (", ..." if len(differing) > 3 else "")
        return (
            f"this peer's experiment is not that of the others: {names} differ in {next(iter(differing.values()))}; "
            "start it with the experiment, run and version of theirs"
        )

    def _messages(self) -> int:
        totals = self.counters.totals()
        return int(totals["messages_in"] + totals["messages_out"])

    # Who is there.

    def _send_heartbeats(self) -> None:
        ticked = _awake_and_asleep()
        while not self.closing.wait(TICK_SECONDS):
            now, before, ticked = time.monotonic(), ticked, _awake_and_asleep()
            stood_still = ticked - before > self.timeouts.dead_seconds
            if stood_still or (self._watched and not any(self.liveness.alive(node) for node in self._watched)):
                self._away.set()
            self.ways.listen_where_needed(self._watched)
            for node in sorted(self._watched):
                unreached = self.reachability.blocked(node) or self.ways.reached.get(node) != ""
                asked = (self.called if unreached else self._asked).get(node, 0.0)  # to be called is not enough then
                due = now - asked >= self.timeouts.heartbeat_seconds or self.liveness.suspected(node)
                if due and node in self.group.nodes and node not in self._under_way:
                    self._asked[node] = self.called[node] = now
                    self._under_way.add(node)
                    self._ask(node, now)

    def _ask(self, node: int, asked: float) -> None:
        def answered(future: Any) -> None:
            self._under_way.discard(node)
            try:
                heartbeat = Heartbeat.read(future.result())
                self.ways.succeeded(node)
                if self.take_greeting(node, dict(future.trailing_metadata() or ()).get(GREETING_KEY)):
                    self.take_heartbeat(node, heartbeat, time.monotonic() - asked)
            except (grpc.RpcError, grpc.FutureCancelledError, ValueError) as error:
                code = error.code() if isinstance(error, grpc.RpcError) else None
                self.ways.reached[node] = reason_of(error)
                if code is not None and not self.closing.is_set():
                    self.ways.failed(node, code is not grpc.StatusCode.DEADLINE_EXCEEDED, reason_of(error))
                else:
                    self.liveness.silent(node, refused=True)
                self.mailbox.wake()

        try:
            call = self.outbox.channel(node).unary_unary("/gossamer.Peer/Beat")
            told = self.heartbeat_for(node)._replace(gets_through=True).write()  # if it comes, it does
            call.future(told, timeout=HEARTBEAT_TIMEOUT_SECONDS, metadata=self.greeting_metadata).add_done_callback(
                answered
            )
        except (ValueError, KeyError):
            self._under_way.discard(node)

    def _on_change(self, node: int, alive: bool) -> None:
        self.mailbox.wake()
        if self.round >= self.exchanges_in_all:
            return  # all are done, and leave
        self.counters.add(**{"neighbours_found" if alive else "neighbours_lost": 1})
        self.log(
            "neighbour found" if alive else "neighbour lost",
            neighbour=self.name_of(node),
            round=self.round // self.exchanges,
        )

    def why_absent(self, node: int) -> str:
        return self.ways.why_absent(node)

    def name_of(self, node: int) -> str:
        member = self.group.nodes.get(node)
        return member.name if member else f"node {node}"


def _awake_and_asleep() -> float:
    """Seconds, those included in which the machine was suspended, where the system counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _difference(ours: Greeting, content: bytes) -> tuple[str, str]:
    """What differs, and the release of Gossamer that the other runs."""
    try:
        theirs = Greeting.read(content)
        return ours.differences(theirs), theirs.release[:20]
    except ValueError as error:
        return f"a greeting that cannot be read ({error})", "unknown"
