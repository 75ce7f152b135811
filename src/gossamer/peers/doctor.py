"""What a peer needs before it trains, looked at one by one: group, keys, data, port, and the others, both ways.

The others are asked as a peer asks them, and answer as they will: those that run, and those that are being examined at
the same time. Nothing is trained or written.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.peers.config import PeerConfig, Timeouts
from gossamer.peers.counters import Counters
from gossamer.peers.data import PeerData, prepare
from gossamer.peers.grpc.failures import ANSWERS, NOT_STARTED, advice_for
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
PROGRESS_SECONDS = 2.0  # what takes longer is announced
PROGRESS_EVERY_SECONDS = 10.0
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
    it is known (`tell=print` shows it). Waits so many seconds for others that are not there yet; `progress=print` shows
    what takes longer than two seconds."""
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
        with _announced(progress, "reading the data, and building the model"):
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
        checks += _look_at_others(transport, others, seconds, tell, progress)
        if all(check.ok for check in checks):
            progress(f"all is well; staying for {STAY_SECONDS:.0f} s, so that the others find this peer, too")
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


@contextmanager
def _announced(progress: Callable[[str], None], text: str) -> Iterator[None]:
    """Say what is waited for, if it takes longer than some seconds."""
    timer = threading.Timer(PROGRESS_SECONDS, progress, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _look_at_others(
    transport: GrpcTransport,
    others: list[Member],
    seconds: float,
    tell: Callable[[Check], None],
    progress: Callable[[str], None],
) -> list[Check]:
    """Each is told as soon as both have reached each other, or it has said that it differs, or the time is over."""
    transport.watch([member.node for member in others])
    found: dict[int, Check] = {}
    began = time.monotonic()
    told = began - PROGRESS_EVERY_SECONDS + PROGRESS_SECONDS
    while len(found) < len(others):
        over = time.monotonic() >= began + seconds
        for member in others:
            if member.node not in found and (over or _is_known(transport, member.node)):
                found[member.node] = Check(member.name, *_other(transport, member))
                tell(found[member.node])
        missing = [member for member in others if member.node not in found]
        if missing and time.monotonic() > told + PROGRESS_EVERY_SECONDS:
            told = time.monotonic()
            whom = ", ".join(f"{member.name} ({transport.why_absent(member.node)})" for member in missing)
            progress(f"waiting for {whom}, {seconds - (told - began):.0f} s at most")
        time.sleep(0.1)
    return [found[member.node] for member in others]


def _is_known(transport: GrpcTransport, node: int) -> bool:
    both_ways = transport.ways.reached.get(node) == "" and node in transport.callers
    both_ways = both_ways and node in transport.skews  # what it said has been read, too
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
    reason, called = transport.ways.trouble(node), node in transport.callers
    where = member.address or (f"its relay {member.relay}" if member.relay else "no address in peers.toml")
    if node not in transport.ways.reached and not called:
        return False, f"not there: {where} was not asked in time, and it did not call; wait for longer (--wait)"
    if reason in ANSWERS and member.address:
        return False, f"{member.name} answers at {where}, but {reason}; {advice_for(reason)}"
    if reason and called:
        return False, f"it calls, but is not reached ({where}): {reason}; {advice_for(reason)}"
    if reason:
        hint = "; its doctor, or it, must run at the same time" if reason in NOT_STARTED else ""
        return False, f"not there ({where}): {reason}; {advice_for(reason)}{hint}"
    if not called:
        return False, "it answers, but does not call: it cannot reach this peer; see the firewall and address here"
    if (skew := transport.skews.get(node, 0.0)) > CLOCK_SKEW_SECONDS:
        return False, f"its clock and this one's differ by {skew:.0f} s; set them, for certificates depend on it"
    release, own = transport.releases.get(node), transport.greeting.release if transport.greeting else None
    runs = f"; it runs Gossamer {release}, and this is {own}, which work together" if release != own else ""
    return True, f"reached {transport.outbox.way(node)}, and it reaches this peer; same experiment{runs}"
