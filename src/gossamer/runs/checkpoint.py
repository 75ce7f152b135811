"""A checkpoint: the tensors that the next round depends on, and what is noted beside them, in one safetensors file.

Random streams are functions of seed, node and round, so the round is all that is kept of them. A checkpoint takes the
place of the one before only when it is whole and on the disk.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gossamer.experiments import toml
from gossamer.runs import files

NAME = "checkpoint.safetensors"
_KEY = "gossamer"  # of the notes, in the file's metadata


class Saved(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is noted beside the tensors, which have one row per node."""

    round: Annotated[int, msgspec.Meta(ge=0)]  # rounds that are complete
    totals: dict[str, Annotated[int, msgspec.Meta(ge=0)] | float]
    experiment: toml.Document | None = None  # of a simulation
    run: int | None = None  # of a peer: the run's number
    node: int | None = None  # of a peer: its own


def save(directory: Path, saved: Saved, tensors: Mapping[str, Tensor]) -> None:
    """OSError if it cannot be written; what was saved before stays."""
    path = directory / NAME
    with files.replacing(path) as partial:
        try:
            save_file(dict(tensors), partial, metadata={_KEY: msgspec.json.encode(saved).decode()})
        except SafetensorError as error:  # a full disk, for one
            raise OSError(None, str(error), str(path)) from error


def load(directory: Path) -> tuple[Saved, dict[str, Tensor]] | None:
    """What was saved, if anything was; ExperimentError if it is damaged."""
    path = directory / NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
            return msgspec.json.decode((file.metadata() or {}).get(_KEY, ""), type=Saved), tensors
    except (SafetensorError, msgspec.MsgspecError) as error:
        files.damaged(path, error)


def check_tensors(directory: Path, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> None:
    """ExperimentError unless names, shapes and types are the same."""
    found, needed = ({name: (t.shape, t.dtype) for name, t in of.items()} for of in (tensors, like))
    if wrong := [name for name in found | needed if found.get(name) != needed.get(name)]:
        files.damaged(directory / NAME, f"{', '.join(wrong)} is not as this experiment has it")
