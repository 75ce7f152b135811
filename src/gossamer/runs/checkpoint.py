"""A checkpoint: the tensors that the next round depends on, and what is noted beside them, in one safetensors file.

Random streams are functions of seed, node and round, so the round is all that is kept of them. A checkpoint takes the
place of the one before only when it is whole and on the disk.

A checksum over notes, names, types, shapes and numbers finds what a disk or a copy has changed since. It is that of the
wire's frames, xxh3, ten times quicker than sha256: it is against accidents, and nobody is kept from changing both.
"""

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
_NOTES, _CHECKSUM = "notes", "checksum"  # in the file's metadata
_OLD_NOTES = "gossamer"  # of versions without a checksum; no flipped bit makes one of these names of another


class Saved(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is noted beside the tensors, which have one row per node."""

    round: Annotated[int, msgspec.Meta(ge=0)]  # rounds that are complete
    totals: dict[str, Annotated[int, msgspec.Meta(ge=0)] | float]
    experiment: toml.Document | None = None  # of a simulation
    run: int | None = None  # of a peer: the run's number
    node: int | None = None  # of a peer: its own


def save(directory: Path, saved: Saved, tensors: Mapping[str, Tensor]) -> None:
    """OSError if it cannot be written; what was saved before stays."""
    path, notes = directory / NAME, msgspec.json.encode(saved).decode()
    with files.replacing(path) as partial:
        try:
            save_file(dict(tensors), partial, metadata={_NOTES: notes, _CHECKSUM: _checksum(notes, tensors)})
        except SafetensorError as error:  # a full disk, for one
            raise OSError(None, str(error), str(path)) from error


def load(directory: Path) -> tuple[Saved, dict[str, Tensor]] | None:
    """What was saved, if anything was; ExperimentError if it is damaged."""
    path = directory / NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
        if _OLD_NOTES in metadata:
            notes = metadata[_OLD_NOTES]
        else:
            notes = metadata.get(_NOTES, "")
            if metadata.get(_CHECKSUM) != _checksum(notes, tensors):
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
