"""What a peer needs before it trains, looked at one by one: group, keys, data, port, and the others, both ways.

The others are asked as a peer asks them, and answer as they will: those that run, and those that are being examined at
the same time. Nothing is trained or written.
"""

import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.peers.config import PeerConfig, Timeouts
from gossamer.peers.counters import Counters
from gossamer.peers.data import PeerData, prepare
from gossamer.peers.grpc.transport import CLOCK_SKEW_SECONDS, GrpcTransport
from gossamer.peers.grpc.ways import no_way
from gossamer.peers.identity import group, keys
from gossamer.peers.identity.greeting import greeting
from gossamer.peers.identity.group import Group, Member
from gossamer.peers.identity.keys import Credentials
from gossamer.peers.logs import Log
from gossamer.peers.rounds import Node
from gossamer.training.privacy import seeded
from gossamer.wire import WireError

LEAST_DAYS = 3.0  # of a certificate
STAY_SECONDS = 3.0  # after all is well: the others are to find this one, too


class Check(NamedTuple):
    what: str
    ok: bool
    told: str

    def __str__(self) -> str:
        return f"{'ok    ' if self.ok else 'WRONG '} {self.what}: {self.told}"


def examine_peer(
    experiment: Experiment,
    config: PeerConfig,
    seconds: float = 60.0,
    tell: Callable[[Check], None] = lambda check: None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Check]:
    """Look at all that a peer needs before it trains, as `gossamer doctor` does: what was found, each told as soon as
    it is known (`tell=print` shows it). Waits so many seconds for others that are not there yet."""
    checks: list[Check] = []

    def found(what: str, ok: bool, told: str) -> None:
        checks.append(Check(what, ok, told))
        tell(checks[-1])

    try:
        what = "group"
        members = group.load(config.peers, experiment.nodes)
        me = members.member(config.name)
        found(what, True, f'run "{members.run}", {len(members.members)} peers, {me.name} is node {me.node}')
        what = "keys"
        credentials = keys.load(config.certificates, config.name)
        days = keys.seconds_left(credentials) / 86400
        renew = "" if days > LEAST_DAYS else "; renew it before you begin"
        found(what, days > LEAST_DAYS, f"the certificate of {me.name} is good for {days:.1f} days{renew}")
        what = "data and model"
        inputs = prepare(experiment.with_digests(), me.node, config.data, config.own_data)
        parameters = sum(inputs.task.layer_sizes)
        found(what, len(inputs.samples) > 0, f"{len(inputs.samples)} samples, {parameters} parameters")
        what = "port"
        transport = _transport(experiment.with_digests(), config, inputs, members, me, credentials)
    except ExperimentError as error:
        found(what, False, str(error))
        return checks
    try:
        found(what, True, f"listening on {config.bind or me.address}" if config.bind or me.address else
              "this peer has no address in the group's file, and opens all connections itself")  # fmt: skip
        others = [member for node, member in sorted(members.nodes.items()) if node != me.node]
        _wait(transport, others, seconds, progress)
        for member in others:
            found(member.name, *_other(transport, member))
        if all(check.ok for check in checks):
            time.sleep(min(STAY_SECONDS, seconds))
    finally:
        transport.close(time.monotonic())
    return checks


def _transport(
    experiment: Experiment,
    config: PeerConfig,
    inputs: PeerData,
    members: Group,
    me: Member,
    credentials: Credentials,
) -> GrpcTransport:
    timeouts, counters, log = Timeouts(), Counters(), Log(descriptor=None)
    node = Node(inputs, me.node, group.run_id(members, experiment), timeouts, counters, log, seeded)

    def refuse(content: bytes, sender: int, round: int) -> NoReturn:
        raise WireError("This peer is only being examined, and does not train.")

    return GrpcTransport(
        me, members, credentials, timeouts, counters, log,
        rounds=experiment.rounds, exchanges=inputs.experiment.exchanges, asynchronous=experiment.asynchronous,
        check=refuse, max_delivery_bytes=1, max_state_bytes=1, state=lambda receiver, exchange: None, bind=config.bind,
        greeting=greeting(
            members, experiment, sum(node.task.layer_sizes), node.endpoint.schema, node.task.layer_shapes
        ),
    )  # fmt: skip


def _wait(transport: GrpcTransport, others: list[Member], seconds: float, progress: Callable[[str], None]) -> None:
    """Until all were reached and have called, or have said that they differ, or the time is over."""
    transport.watch([member.node for member in others])
    began = told = time.monotonic()
    while time.monotonic() < began + seconds:
        missing = [member.name for member in others if not _is_known(transport, member.node)]
        if not missing:
            return
        if time.monotonic() > told + 5:
            told = time.monotonic()
            progress(f"waiting for {', '.join(missing)}, {seconds - (told - began):.0f} s at most")
        time.sleep(0.1)


def _is_known(transport: GrpcTransport, node: int) -> bool:
    both_ways = transport.ways.reached.get(node) == "" and node in transport.callers
    return both_ways or node in transport.differences or not transport.me.can_meet(transport.group.nodes[node])


def _other(transport: GrpcTransport, member: Member) -> tuple[bool, str]:
    """Whether all is well between this peer and another, and what is known."""
    node = member.node
    if not transport.me.can_meet(member):
        return False, no_way(transport.me, member)
    if node in transport.differences:
        return (
            False,
            f"it differs in {transport.differences[node]}; give all peers the same experiment, run and version",
        )
    reason, called = transport.ways.reached.get(node, "it was not asked"), node in transport.callers
    reason = reason and (transport.outbox.trouble(node) or reason)
    where = member.address or (f"its relay {member.relay}" if member.relay else "a peer without an address")
    if reason and not called:
        return False, f"not there: {where} gave {reason}, and it did not call; is it running, or its doctor?"
    if reason:
        return False, f"it calls, but {where} cannot be reached ({reason}); see its firewall, port and address"
    if not called:
        return False, "it answers, but does not call: it cannot reach this peer; see the firewall and address here"
    if (skew := transport.skews.get(node, 0.0)) > CLOCK_SKEW_SECONDS:
        return False, f"its clock and this one's differ by {skew:.0f} s; set them, for certificates depend on it"
    release, own = transport.releases.get(node), transport.greeting.release if transport.greeting else None
    runs = f"; it runs Gossamer {release}, and this is {own}, which work together" if release != own else ""
    return True, f"reached {transport.outbox.way(node)}, and it reaches this peer; same experiment{runs}"
