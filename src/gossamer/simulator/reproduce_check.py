"""A slice of every paper's table, compared with the values that were stored when it was last known to be right."""

import json
from importlib.resources import files
from math import isclose

import torch

from gossamer.algorithms import Centralized, LocalOnly
from gossamer.experiments.papers import TABLES
from gossamer.experiments.papers.slices import slice_of
from gossamer.simulator.simulate import simulate

Values = dict[str, float]
COMPARED = ("test_loss", "divergence", "bytes_total")
SILENT = (LocalOnly, Centralized)
TOLERANCE = {"divergence": 0.25}  # relative: other processors round otherwise, and small differences grow
OTHERS = 0.02


def check_table(name: str) -> dict[str, Values]:
    """The values of the last row of the table's small size, of those that send anything if there are any, by its label.
    Of formulas, those of every row."""
    rows = TABLES[name].rows("small")
    computed = {row.label: dict(row.computed()) for row in rows if row.computed is not None}
    if computed:
        return computed
    experiments = [row.experiment for row in rows if row.experiment]
    last = ([one for one in experiments if not isinstance(one.algorithm, SILENT)] or experiments)[-1]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        result = dict(simulate(slice_of(last), workers=1).result)
    finally:
        torch.set_num_threads(threads)
    return {last.name: {key: float(result[key]) for key in COMPARED}}  # type: ignore[arg-type]


def stored() -> dict[str, dict[str, Values]]:
    """By table and row. `gossamer reproduce --check --json` prints it anew."""
    text = files("gossamer.experiments.papers").joinpath("check.json").read_text(encoding="utf-8")
    values: dict[str, dict[str, Values]] = json.loads(text)
    return values


def differences(name: str, found: dict[str, Values], known: dict[str, dict[str, Values]]) -> list[str]:
    """What is not as it was stored, a sentence each."""
    if name not in known:
        return [f"{name}: no values are stored"]
    told = []
    for label, values in found.items():
        for key, value in values.items():
            before = known[name].get(label, {}).get(key)
            if before is None:
                told.append(f"{name}, {label}: no {key} is stored")
            elif not isclose(value, before, rel_tol=TOLERANCE.get(key, OTHERS), abs_tol=1e-6):
                told.append(f"{name}, {label}: {key} is {value:.6g}, and was {before:.6g}")
    return told
