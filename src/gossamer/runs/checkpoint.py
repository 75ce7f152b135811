"""A checkpoint: the tensors that the next round depends on, and what is noted beside them, in one safetensors file.

Random streams are functions of seed, node and round, so the round is all that is kept of them. A checkpoint takes the
place of the one before only when it is whole and on the disk.

A checksum over notes, names, types, shapes and numbers finds what a disk or a copy has changed since. It is that of the
wire's frames, xxh3, ten times quicker than sha256: it is against accidents, and nobody is kept from changing both.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gossamer.experiments import toml
from gossamer.runs import files

NAME = "checkpoint.safetensors"
_KEY = "checked"  # in the file's metadata, of checksum and notes; one key, because the order of several changes
_OLD_KEY = "gossamer"  # of notes without a checksum, before there were any; no flipped bit makes it of the other


class Saved(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is noted beside the tensors, which have one row per node."""

    round: Annotated[int, msgspec.Meta(ge=0)]  # rounds that are complete
    totals: dict[str, Annotated[int, msgspec.Meta(ge=0)] | float]
    experiment: toml.Document | None = None  # of a simulation
    run: int | None = None  # of a peer: the run's number
    node: int | None = None  # of a peer: its own


def save(directory: Path, saved: Saved, tensors: Mapping[str, Tensor], private: bool = False) -> None:
    """OSError if it cannot be written; what was saved before stays."""
    path, notes = directory / NAME, msgspec.json.encode(saved).decode()
    with files.replacing(path, private) as partial:
        try:
            save_file(dict(tensors), partial, metadata={_KEY: f"{_checksum(notes, tensors)} {notes}"})
        except SafetensorError as error:  # a full disk, for one
            number = re.search(r"\(os error (\d+)\)", str(error))
            raise OSError(number and int(number[1]), os.strerror(int(number[1])) if number else str(error)) from error


def load(directory: Path) -> tuple[Saved, dict[str, Tensor]] | None:
    """What was saved, if anything was; ExperimentError if it is damaged."""
    path = directory / NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
        if _OLD_KEY in metadata:
            notes = metadata[_OLD_KEY]
        else:
            checksum, _, notes = metadata.get(_KEY, "").partition(" ")
            if checksum != _checksum(notes, tensors):
                damaged(directory, "its checksum is not that of its content")
        return msgspec.json.decode(notes, type=Saved), tensors
    except (SafetensorError, msgspec.MsgspecError) as error:
        damaged(directory, error)


def _checksum(notes: str, tensors: Mapping[str, Tensor]) -> str:
    names = sorted(tensors)
    kinds = [(name, str(tensors[name].dtype), list(tensors[name].shape)) for name in names]
    digest = xxhash.xxh3_64(msgspec.json.encode((notes, kinds)))
    for name in names:
        digest.update(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_tensors(directory: Path, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> None:
    """ExperimentError unless names, shapes and types are the same."""
    found, needed = ({name: (t.shape, t.dtype) for name, t in of.items()} for of in (tensors, like))
    if wrong := [name for name in found | needed if found.get(name) != needed.get(name)]:
        damaged(directory, f"{', '.join(wrong)} is not as this experiment has it")


def damaged(directory: Path, reason: object) -> NoReturn:
    files.damaged(directory / NAME, reason, "put a copy of it back, or delete it to begin again with the first round")
