"""A peer's state on disk: written whole under another name, then renamed, so that none is ever half there.

Random streams are functions of seed, node and round, so the round is all that is kept of them.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gossamer.runs import files

NAME = "checkpoint.safetensors"


class Saved(msgspec.Struct):
    """What is kept beside tensors."""

    run: int  # the run's number
    node: int
    round: Annotated[int, msgspec.Meta(ge=0)]  # rounds that are complete
    totals: dict[str, float]


def save(directory: Path, saved: Saved, tensors: dict[str, Tensor]) -> None:
    """OSError if it cannot be written; what was saved before stays."""
    partial = directory / f"{NAME}.partial"
    try:
        separate = {name: tensor.clone() for name, tensor in tensors.items()}  # a state may hold one tensor twice
        save_file(separate, partial, metadata={"gossamer": json.dumps(msgspec.to_builtins(saved))})
        files.to_disk(partial)
        os.replace(partial, directory / NAME)
    except SafetensorError as error:  # a full disk, for one
        raise OSError(None, str(error), str(directory / NAME)) from error
    finally:
        partial.unlink(missing_ok=True)


def load(directory: Path, run: int, node: int, like: dict[str, Tensor]) -> tuple[Saved, dict[str, Tensor]] | None:
    """What was saved of this run and node, if anything was; ExperimentError if it is damaged or another's."""
    path = directory / NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
            saved = msgspec.json.decode((file.metadata() or {}).get("gossamer", ""), type=Saved)
    except (SafetensorError, msgspec.MsgspecError) as error:
        files.damaged(path, error)
    if (saved.run, saved.node) != (run, node):
        files.damaged(path, "it is of another run, experiment or node")
    forms: list[dict[str, Any]] = [{name: (t.shape, t.dtype) for name, t in of.items()} for of in (tensors, like)]
    if forms[0] != forms[1]:
        files.damaged(path, "its tensors are not those of this experiment")
    return saved, tensors
