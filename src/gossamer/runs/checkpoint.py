"""A checkpoint: the tensors that the next round depends on, and what is noted beside them, in one safetensors file.

Random streams are functions of seed, node and round, so the round is all that is kept of them. A checkpoint takes the
place of the one before only when it is whole and on the disk.

A checksum over notes, names, types, shapes and numbers finds what a disk or a copy has changed since. It is that of the
wire's frames, xxh3, ten times quicker than sha256: it is against accidents, and nobody is kept from changing both.

Ranks of a cluster write a file each, with the rows of their nodes. They count once a manifest names them all, which is
replaced as a whole; the files of the checkpoint before go then. Any number of ranks, and one process, can read them.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gossamer.experiments import toml
from gossamer.experiments.experiment import ExperimentError
from gossamer.runs import files

NAME = "checkpoint.safetensors"
MANIFEST = "checkpoint.json"
_KEY = "checked"  # in the file's metadata, of checksum and notes; one key, because the order of several changes
_OLD_KEY = "gossamer"  # of notes without a checksum, before there were any; no flipped bit makes it of the other


class Saved(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is noted beside the tensors, which have one row per node."""

    round: Annotated[int, msgspec.Meta(ge=0)]  # rounds that are complete
    totals: dict[str, Annotated[int, msgspec.Meta(ge=0)] | float]
    experiment: toml.Document | None = None  # of a simulation
    run: int | None = None  # of a peer: the run's number
    node: int | None = None  # of a peer: its own


class Shard(msgspec.Struct):
    """A rank's file, and the nodes whose rows it has."""

    file: str
    nodes: list[int]


class Manifest(msgspec.Struct):
    """What makes files of ranks a checkpoint."""

    saved: Saved
    shards: list[Shard]
    checksum: str  # of both


def is_table(name: str) -> bool:
    """Is it an account of all nodes, which every rank has whole? The first rank's file has it; all else are rows."""
    return name == "clock" or name.startswith("told")


def exists(directory: Path) -> bool:
    return (directory / NAME).exists() or (directory / MANIFEST).exists()


def save(directory: Path, saved: Saved, tensors: Mapping[str, Tensor], private: bool = False) -> None:
    """OSError if it cannot be written; what was saved before stays."""
    _write(directory / NAME, saved, tensors, private)
    if (directory / MANIFEST).exists():
        (directory / MANIFEST).unlink()
        _remove_shards(directory, [])


def save_shard(directory: Path, saved: Saved, tensors: Mapping[str, Tensor], rank: int, number: int) -> None:
    """A rank's file, which counts when `commit` says so; OSError if it cannot be written."""
    _write(directory / _shard_name(saved.round, rank, number), saved, tensors)


def commit(directory: Path, saved: Saved, nodes: Sequence[NDArray[np.int64]]) -> None:
    """Make the files of ranks, which host these nodes, the checkpoint."""
    names = [_shard_name(saved.round, rank, len(nodes)) for rank in range(len(nodes))]
    for rank, name in enumerate(names):
        if not (directory / name).exists():
            raise ExperimentError(
                f"{directory / name} is missing, which rank {rank} wrote; name a directory that all machines share"
            )
    shards = [Shard(name, own.tolist()) for name, own in zip(names, nodes, strict=True)]
    manifest = Manifest(saved, shards, _checksum_of(saved, shards))
    files.replace(directory / MANIFEST, msgspec.json.encode(manifest))
    (directory / NAME).unlink(missing_ok=True)
    _remove_shards(directory, names)


def _shard_name(round: int, rank: int, number: int) -> str:
    return f"checkpoint-{round}-rank-{rank}-of-{number}.safetensors"


def _remove_shards(directory: Path, kept: Sequence[str]) -> None:
    for path in directory.glob("checkpoint-*-rank-*-of-*.safetensors"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def _write(path: Path, saved: Saved, tensors: Mapping[str, Tensor], private: bool = False) -> None:
    notes = msgspec.json.encode(saved).decode()
    with files.replacing(path, private) as partial:
        try:
            save_file(dict(tensors), partial, metadata={_KEY: f"{_checksum(notes, tensors)} {notes}"})
        except SafetensorError as error:  # a full disk, for one
            number = re.search(r"\(os error (\d+)\)", str(error))
            raise OSError(number and int(number[1]), os.strerror(int(number[1])) if number else str(error)) from error


def peek(directory: Path) -> Saved | None:
    """What is noted in the checkpoint, if there is one."""
    manifest = _manifest(directory)
    if not (directory / NAME).exists():
        return None if manifest is None else manifest.saved
    notes = _read(directory, NAME, numbers=False)[0]
    return manifest.saved if manifest is not None and manifest.saved.round >= notes.round else notes


def load(directory: Path, nodes: NDArray[np.int64] | None = None) -> tuple[Saved, dict[str, Tensor]] | None:
    """What was saved, if anything was, of all nodes or of these, ascending; ExperimentError if it is damaged."""
    saved, manifest = peek(directory), _manifest(directory)
    if saved is None:
        return None
    if manifest is not None and manifest.saved.round == saved.round:
        return manifest.saved, _rows_of(directory, manifest, nodes)
    saved, tensors = _read(directory, NAME)
    return saved, tensors if nodes is None else _chosen(tensors, nodes)


def _manifest(directory: Path) -> Manifest | None:
    path = directory / MANIFEST
    if not path.exists():
        return None
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.MsgspecError as error:
        damaged(directory, error, MANIFEST)
    if manifest.checksum != _checksum_of(manifest.saved, manifest.shards):
        damaged(directory, "its checksum is not that of its content", MANIFEST)
    return manifest


def _checksum_of(saved: Saved, shards: Sequence[Shard]) -> str:
    return xxhash.xxh3_64_hexdigest(msgspec.json.encode((saved, shards)))


def _rows_of(directory: Path, manifest: Manifest, nodes: NDArray[np.int64] | None) -> dict[str, Tensor]:
    """The rows of nodes, ascending, from the files of ranks, and the tables."""
    shards = [(shard.file, np.array(shard.nodes)) for shard in manifest.shards]
    nodes = np.sort(np.concatenate([own for _, own in shards])) if nodes is None else nodes
    found: dict[str, Tensor] = {}
    for number, (name, own) in enumerate(shards):
        here = np.isin(own, nodes)
        if number and not here.any():
            continue
        if Path(name).name != name or not (directory / name).exists():
            damaged(directory, f"there is no {name}, which it names", MANIFEST)
        saved, tensors = _read(directory, name)
        if saved.round != manifest.saved.round:
            damaged(directory, f"it is of round {saved.round}", name)
        places = np.searchsorted(nodes, own[here])
        for key, tensor in tensors.items():
            if is_table(key):
                found[key] = tensor
                continue
            times, rest = len(tensor) // len(own), tensor.shape[1:]  # of messages several are kept of each node
            found.setdefault(key, tensor.new_zeros(times * len(nodes), *rest))
            found[key].view(times, len(nodes), *rest)[:, places] = tensor.view(times, len(own), *rest)[:, here]
    return found


def _chosen(tensors: Mapping[str, Tensor], nodes: NDArray[np.int64]) -> dict[str, Tensor]:
    """The rows of these nodes, of a checkpoint that has all: states have a row per node, messages may have several."""
    num_nodes = min(len(tensor) for name, tensor in tensors.items() if not is_table(name))
    found = {}
    for name, tensor in tensors.items():
        rest = tensor.shape[1:]
        found[name] = tensor if is_table(name) else tensor.view(-1, num_nodes, *rest)[:, nodes].reshape(-1, *rest)
    return found


def _read(directory: Path, name: str, numbers: bool = True) -> tuple[Saved, dict[str, Tensor]]:
    """A file's notes and tensors; ExperimentError if it is damaged, as far as that is seen without the numbers."""
    try:
        with safe_open(directory / name, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()} if numbers else {}  # noqa: SIM118
        if _OLD_KEY in metadata:
            notes = metadata[_OLD_KEY]
        else:
            checksum, _, notes = metadata.get(_KEY, "").partition(" ")
            if numbers and checksum != _checksum(notes, tensors):
                damaged(directory, "its checksum is not that of its content", name)
        return msgspec.json.decode(notes, type=Saved), tensors
    except (SafetensorError, msgspec.MsgspecError) as error:
        damaged(directory, error, name)


def _checksum(notes: str, tensors: Mapping[str, Tensor]) -> str:
    names = sorted(tensors)
    kinds = [(name, str(tensors[name].dtype), list(tensors[name].shape)) for name in names]
    digest = xxhash.xxh3_64(msgspec.json.encode((notes, kinds)))
    for name in names:
        digest.update(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _shape(name: str, tensor: Tensor) -> torch.Size:
    """What is the same at any time of a run: of lists of links, without how many there are."""
    return tensor.shape[1:] if name.startswith("told") and name.endswith(".links") else tensor.shape


def check_tensors(directory: Path, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> None:
    """ExperimentError unless names, shapes and types are the same."""
    found, needed = ({name: (_shape(name, t), t.dtype) for name, t in of.items()} for of in (tensors, like))
    if wrong := [name for name in found | needed if found.get(name) != needed.get(name)]:
        damaged(directory, f"{', '.join(wrong)} is not as this experiment has it")


def damaged(directory: Path, reason: object, name: str = NAME) -> NoReturn:
    files.damaged(directory / name, reason, "put a copy of it back, or delete it to begin again with the first round")
