"""The ways to other peers: at their address, over a connection that they have opened, or through their relay."""

import time
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any

from gossamer.peers.grpc.failures import ANSWERS, NOT_STARTED, REFUSED, advice_for
from gossamer.peers.grpc.listener import Listener
from gossamer.peers.grpc.reachability import UNREACHED_SECONDS
from gossamer.peers.grpc.tunnels import MOST_PER_PAIR
from gossamer.peers.identity.group import Member

if TYPE_CHECKING:
    from gossamer.peers.grpc.transport import GrpcTransport

MOST_LISTENING = 3  # calls at one peer: one is used, one waits, one ends


class Ways:
    """Changes the way to a peer that cannot be reached, and listens where this peer cannot be reached itself."""

    def __init__(self, transport: "GrpcTransport"):
        self._transport = transport
        self.reached: dict[int, str] = {}  # whom this peer asked, and why there was no answer; "" if there was one
        self._changed: dict[int, float] = {}  # when another way to each was last tried
        self._listeners: dict[int, Listener] = {}

    def succeeded(self, node: int) -> None:
        self.reached[node] = ""
        self._transport.reachability.succeeded(node)

    def failed(self, node: int, refused: bool, reason: str) -> None:
        """A call did not get there; `refused`: the network said so, it was not just slow. That there is no tunnel at
        the moment does not say that nobody is there. Nor does it if a connection broke that serves both directions, of
        which no other sign of life can come; that nothing listens at the address does."""
        transport = self._transport
        broken = node in self._listeners and reason != REFUSED
        refused = refused and not broken and not transport.outbox.is_tunnelled(node)
        transport.liveness.silent(node, refused)
        transport.reachability.failed(node, refused, transport.outbox.trouble(node) or reason)
        if transport.reachability.blocked(node):
            self._try_another(node)

    def on_listen(self, node: int) -> None:
        """It lets this peer call over a connection that it has opened."""
        if self._transport.reachability.blocked(node):
            self._change(node, tunnelled=True)
            self._transport.reachability.try_anew(node)
            self._transport.called.pop(node, None)

    def _try_another(self, node: int) -> None:
        member = self._transport.group.nodes.get(node)
        recently = time.monotonic() < self._changed.get(node, -inf) + UNREACHED_SECONDS
        if member is None or not member.address or recently:
            return
        if self._transport.outbox.is_tunnelled(node):
            self._change(node, tunnelled=False)
        elif member.relay not in ("", self._transport.me.name) or self._transport.tunnels.listens(node):
            self._change(node, tunnelled=True)

    def _change(self, node: int, tunnelled: bool) -> None:
        self._changed[node] = time.monotonic()
        self._transport.outbox.change_way(node, tunnelled)

    def listen_where_needed(self, watched: frozenset[int]) -> None:
        """At this peer's relay; and at those that cannot open a connection to this peer, and to whom it has one."""
        group, me = self._transport.group, self._transport.me
        relay = group.members.get(me.relay)
        for node in sorted(watched | (frozenset() if relay is None else {relay.node})):
            member = group.nodes.get(node)
            if member is None or node in self._listeners or not me.can_meet(member):
                continue
            hidden = not me.address or node in self._transport.cut_off
            both_through_relays = bool(me.relay) and self._transport.outbox.is_tunnelled(node)
            if member == relay or (hidden and not both_through_relays):
                most = MOST_LISTENING + (MOST_PER_PAIR * len(group.members) if member == relay else 0)
                self._listeners[node] = self._listener(member, most)

    def _listener(self, member: Member, most: int) -> Listener:
        def call(outgoing: Iterator[bytes]) -> Any:
            return self._transport.outbox.listen(member.node, outgoing)

        return Listener(member.name, call, self._transport.server.connection, most)

    def trouble(self, node: int) -> str:
        """Why this peer's calls do not get to another; "" if they do, or if nothing is known yet."""
        reason = self.reached.get(node, "")
        return reason and (self._transport.outbox.trouble(node) or reason)

    def why_absent(self, node: int) -> str:
        if reason := self.trouble(node):
            called = "it calls, but is not reached: " if node in self._transport.callers else ""
            return called + reason
        return "it answers, but has not called yet" if node in self.reached else "it was not asked yet"

    def tell(self, node: int, reason: str) -> None:
        """Log that a node cannot be reached, or can again."""
        transport = self._transport
        transport.mailbox.wake()
        member = transport.group.nodes.get(node)
        if transport.round >= transport.exchanges_in_all or member is None or node in transport.differences:
            return  # it has left, or why it cannot be worked with is known
        if not reason:
            transport.log("reached again", neighbour=member.name)
            return
        advice = advice_for(reason)
        if reason not in (*ANSWERS, *NOT_STARTED):
            advice += (
                "; if it reaches this peer, its connection is used, and if it does not, relay in peers.toml names a way"
            )
        transport.log("cannot reach", neighbour=member.name, address=member.address, reason=reason, advice=advice)

    def note_cut_off(self, node: int, gets_through: bool) -> None:
        cut_off = self._transport.cut_off
        if gets_through:
            cut_off.discard(node)
        elif node not in cut_off:
            cut_off.add(node)
            self._transport.log.rate_limited(
                "not reached by", neighbour=self._transport.name_of(node),
                advice="it cannot open connections to this peer, which opens one for it; if this peer should be "
                "reached: see its log, the firewall, the port and the address in its peers.toml",
            )  # fmt: skip

    def tell_who_cannot_meet(self) -> None:
        me = self._transport.me
        for member in self._transport.group.members.values():
            if member != me and not me.can_meet(member):
                self._transport.log("no way to", neighbour=member.name, advice=no_way(me, member))

    def forget(self, node: int) -> None:
        """It was struck from the group, or is another one now."""
        self._transport.tunnels.forget(node)
        self._transport.outbox.change_way(node, tunnelled=False)
        self.reached.pop(node, None)
        if listener := self._listeners.pop(node, None):
            listener.close()

    def close(self) -> None:
        for listener in list(self._listeners.values()):
            listener.close()


def no_way(one: Member, other: Member) -> str:
    """What to do about two peers neither of which can be reached."""
    return (
        f"neither {one.name} nor {other.name} has an address in peers.toml, so they exchange nothing; give one of them "
        'an address, or name a peer that both reach in the entry of one of them, as relay = "NAME"'
    )
