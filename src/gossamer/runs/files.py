"""The files of a run's directory: JSON lines that grow, and files that are replaced as a whole."""

import json
import os
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from gossamer.experiments import toml
from gossamer.experiments.experiment import ExperimentError
from gossamer.simulator.simulation import Simulation

Row = dict[str, Any]


def lines(rows: list[Row]) -> bytes:
    return b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)


def append(path: Path, rows: list[Row]) -> None:
    with path.open("ab") as file:
        file.write(lines(rows))


def read_lines(path: Path) -> list[Row]:
    """The rows of a file of JSON lines, if there is one, without the row that was being written when a process died."""
    if not path.exists():
        return []
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    try:
        rows = [json.loads(line) for line in lines]
    except ValueError as error:
        damaged(path, error)
    if not all(isinstance(row, dict) and type(row.get("round")) is int for row in rows):
        damaged(path, "a line is not that of a round")
    return rows


def damaged(path: Path, reason: object) -> NoReturn:
    raise ExperimentError(f"{path} is damaged ({reason}); start the run again")


def replace(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    to_disk(partial)
    os.replace(partial, path)


def to_disk(path: Path) -> None:
    """Wait until what was written survives a power loss."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


class Saved(msgspec.Struct):
    """What a checkpoint holds beside tensors."""

    round: Annotated[int, msgspec.Meta(ge=0)]
    totals: dict[str, Annotated[int, msgspec.Meta(ge=0)] | float]
    experiment: toml.Document


def save_checkpoint(directory: Path, document: toml.Document, simulation: Simulation) -> None:
    saved = {"round": simulation.round, "totals": simulation.totals, "experiment": document}
    for name in ("metrics.jsonl", "ledger.jsonl"):
        if (directory / name).exists():
            to_disk(directory / name)
    path = directory / "checkpoint.safetensors"
    partial = path.with_name(path.name + ".partial")
    try:
        save_file(simulation.save(), partial, metadata={"gossamer": json.dumps(saved)})
    except SafetensorError as error:  # a full disk, for one
        raise OSError(None, str(error), str(path)) from error
    to_disk(partial)
    os.replace(partial, path)


def restore(directory: Path, document: toml.Document, num_rounds: int, simulation: Simulation) -> None:
    """Continue from the checkpoint of a run that kept so many rounds; refused if it is not whole, or not its own."""
    path = directory / "checkpoint.safetensors"
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
            saved = msgspec.json.decode((file.metadata() or {}).get("gossamer", ""), type=Saved)
    except (SafetensorError, msgspec.MsgspecError) as error:
        damaged(path, error)
    if changed := toml.differences(saved.experiment, document):
        raise ExperimentError(
            f"{', '.join(changed)} in {directory / 'experiment.toml'} changed after the checkpoint was made; "
            "change it back, or start a new run"
        )
    forms = [{name: (t.shape, t.dtype) for name, t in of.items()} for of in (tensors, simulation.save())]
    if wrong := [name for name in forms[0] | forms[1] if forms[0].get(name) != forms[1].get(name)]:
        damaged(path, f"{', '.join(wrong)} is not as this experiment has it")
    if saved.round > document["rounds"] or saved.totals.keys() != simulation.totals.keys():
        damaged(path, f"round {saved.round}, totals {saved.totals}")
    if saved.round > num_rounds:
        damaged(directory / "metrics.jsonl", f"it ends before round {saved.round}, which was saved")
    simulation.restore(tensors, saved.round, saved.totals)
