"""Who belongs to a group: a file that every peer has.

    run = "ward-7"                # tells this group's messages from another's

    [peers.alice]                 # the name in the certificate
    node = 0                      # which node of the experiment it is
    address = "10.0.0.5:7001"     # where the others reach it

    [peers.bob]                   # nobody can open a connection to it, so it has no address: it opens all of them
    node = 1
    relay = "alice"               # through whom it and others like it reach each other, if there are any

A node that no peer is listed for counts as one that is down; a peer listed later can take its place.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
import tomli_w
import xxhash

from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
AUTHORITY = "ca"  # whose files are beside the peers'
_WHAT_A_NAME_IS = "1 to 63 small letters, digits and hyphens, with no hyphen at its ends"
_SHARED = (
    *("nodes", "rounds", "seed", "local_steps", "exchanges", "settle", "asynchronous"),
    *("topology", "algorithm", "optimizer", "privacy"),
)

_ALWAYS_COMPARED = (  # though they are in toml.ADDED: peers that began before there was a rule go on
    "optimizer.schedule.warmup",
    "algorithm.compressor.count_sign",
    "algorithm.compressor.then.count_sign",
)


@dataclass(frozen=True)
class Member:
    """A peer that belongs to the group."""

    name: str
    node: int
    host: str = ""  # none: nobody can open a connection to it
    port: int = 0
    relay: str = ""  # the name of the peer through whom it is reached by those that it cannot reach either

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}" if self.host else ""

    def can_meet(self, other: "Member") -> bool:
        """Is there any way between these two, as far as the group's file says?"""
        return any(each.address or each.relay for each in (self, other))


@dataclass(frozen=True)
class Group:
    """The peers of a run. One that is not listed does not get in."""

    run: str
    members: dict[str, Member]

    @cached_property
    def nodes(self) -> dict[int, Member]:
        return {member.node: member for member in self.members.values()}

    def member(self, name: str) -> Member:
        if name not in self.members:
            raise ExperimentError(f"{name} is not in the group; its peers are {', '.join(self.members)}")
        return self.members[name]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    node: Annotated[int, msgspec.Meta(ge=0)]
    address: str | None = None
    relay: str | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    run: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    peers: dict[str, _Entry]


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ExperimentError(f"a peer's name is {_WHAT_A_NAME_IS}, {name!r} was given")
    if name == AUTHORITY:
        raise ExperimentError(f"{name} is what the authority's files are called; give the peer another name")
    return name


def address_of(text: str) -> tuple[str, int]:
    """Host and port of "host:port", "[v6 address]:port"."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise ExperimentError(f'an address is written "host:port", such as "10.0.0.5:7001", {text!r} was given')
    if int(port) >= 2**16:
        raise ExperimentError(f"a port is at most {2**16 - 1}, {text!r} was given")
    return host, int(port)


def load(path: Path, nodes: int) -> Group:
    """The group in a file, for an experiment of so many nodes."""
    try:
        file = msgspec.convert(toml.load(path), _File)
    except msgspec.ValidationError as error:
        raise ExperimentError(
            f"{path}: {error}; a peer is written [peers.NAME] with node and address, or relay if it can have none"
        ) from error
    members: dict[str, Member] = {}
    for name, entry in file.peers.items():
        try:
            address = ("", 0) if entry.address is None else address_of(entry.address)
            members[check_name(name)] = Member(name, entry.node, *address, entry.relay or "")
        except ExperimentError as error:
            raise ExperimentError(f"{path}: {error}") from None
        if entry.node >= nodes:
            raise ExperimentError(f"{path}: {name} is node {entry.node}, and the nodes are 0 to {nodes - 1}")
    for name, member in members.items():
        twins = [other for other, its in members.items() if its.node == member.node and other != name]
        if twins:
            raise ExperimentError(f"{path}: {name} and {twins[0]} are both node {member.node}; give each its own")
        if member.relay:
            _check_relay(path, member, members)
    if not members:
        raise ExperimentError(f"{path} lists no peer; write one as [peers.NAME] with node and address")
    return Group(file.run, members)


def _check_relay(path: Path, member: Member, members: dict[str, Member]) -> None:
    relay = members.get(member.relay)
    if relay is None or relay == member or not relay.address:
        able = [name for name, other in members.items() if other.address and name != member.name]
        others = f"those are {', '.join(able)}" if able else "there is none"
        raise ExperimentError(
            f"{path}: the relay of {member.name} is {member.relay!r}, and must be another with an address; {others}"
        )


def dumps(group: Group) -> str:
    def entry(member: Member) -> dict[str, object]:
        found = {"node": member.node, "address": member.address, "relay": member.relay}
        return {key: value for key, value in found.items() if value != ""}

    peers = {member.name: entry(member) for member in group.members.values()}
    return tomli_w.dumps({"run": group.run, "peers": peers})


def run_id(group: Group, experiment: Experiment) -> int:
    """64 bits that peers share only if they are in the same run of the same experiment.

    Where a peer's files are is its own affair, and so is what it evaluates.
    """
    shared = shared_settings(experiment)
    # "auto" is what index_coding was, when there was a choice: peers that began then go on.
    text = json.dumps([group.run, shared.pop("task"), "auto", shared], sort_keys=True)
    return xxhash.xxh3_64_intdigest(text.encode())


def shared_settings(experiment: Experiment) -> dict[str, object]:
    """What all peers of a run must have in common, as in an experiment's file; of the task, its name.

    A setting that earlier versions of Gossamer did not have is left out as long as it stands for what they did, so that
    peers of both can be in one group.
    """
    document = toml.write(experiment)
    shared = {key: _comparable(document[key], key) for key in _SHARED if not _is_as_before(key, document[key])}
    return {"task": document["task"]["name"], **shared}


def _comparable(value: object, path: str) -> object:
    """Without what is a peer's own affair, and what earlier versions did not have."""
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if key != "path" and not _is_as_before(f"{path}.{key}", item)}
    return {key: _comparable(item, f"{path}.{key}") for key, item in kept.items()}


def _is_as_before(path: str, value: object) -> bool:
    return path in toml.ADDED and path not in _ALWAYS_COMPARED and value == toml.ADDED[path]
