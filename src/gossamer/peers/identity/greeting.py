"""What peers tell each other at the first contact, so that those that cannot work together find out, and why.

Frames of another run are refused anyway, one by one. A greeting says beforehand which of the things that all must have
in common are not: by digests of the experiment's settings, and by what messages hold.

Which release of Gossamer a peer runs is said, and not compared: releases that have the same protocol work together
(docs/decisions/0012-upgrades.md).
"""

import json
import sys
from collections.abc import Sequence

import msgspec
import xxhash

from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment
from gossamer.peers.identity.group import Group, shared_settings

PROTOCOL = 1  # of calls, frames and codes between peers; whoever changes what these mean counts it up
LONGEST = 4096  # bytes
_COLUMNS = ("target", "regression", "numbers", "words", "classes")  # of a table: what a row means to the model


class Greeting(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Of one peer; another version may add fields, and must keep the first one."""

    version: int  # of the protocol
    run: str = ""  # the group's name for it
    settings: dict[str, str] = {}  # a digest of each that all peers share
    parameters: int = 0  # of the model
    schema: int = 0  # of its messages
    release: str = ""  # of Gossamer
    layers: str = ""  # a digest of the shapes of the model's tensors, in their order

    def write(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def read(cls, content: bytes) -> "Greeting":
        """ValueError if it is none."""
        if len(content) > LONGEST:
            raise ValueError(f"a greeting of {len(content)} bytes came")
        return msgspec.json.decode(content, type=cls)

    def differences(self, theirs: "Greeting") -> str:
        """What another's has that this one has not, in words; nothing if they fit."""
        if theirs.version != self.version:
            return f"protocol {_named(theirs)}, and {_named(self)} here; all peers need releases with one protocol"
        found = [] if theirs.run == self.run else [f'run "{theirs.run[:100]}", and "{self.run}" here']
        names = sorted({*self.settings, *theirs.settings})
        found += [name[:50] for name in names if self.settings.get(name) != theirs.settings.get(name)][:20]
        if theirs.parameters != self.parameters:
            found.append(f"{theirs.parameters} parameters, and {self.parameters} here")
        elif theirs.layers and self.layers and theirs.layers != self.layers:
            found.append("the shapes or the order of the model's layers")
        if theirs.schema != self.schema and not found:
            found.append("what messages hold")
        return "; ".join(found)


def greeting(
    group: Group, experiment: Experiment, parameters: int, schema: int, shapes: Sequence[tuple[int, ...]] = ()
) -> Greeting:
    task = toml.write(experiment)["task"]
    columns = {f"task.{key}": task[key] for key in _COLUMNS if task.get(key) not in (None, [], False)}
    settings = {name: _digest(value) for name, value in {**shared_settings(experiment), **columns}.items()}
    layers = _digest([list(shape) for shape in shapes]) if shapes else ""
    return Greeting(PROTOCOL, group.run, settings, parameters, schema, sys.modules["gossamer"].__version__, layers)


def _named(greeting: Greeting) -> str:
    return f"{greeting.version} (Gossamer {greeting.release[:20]})" if greeting.release else str(greeting.version)


def _digest(value: object) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(value, sort_keys=True).encode())[:8]
