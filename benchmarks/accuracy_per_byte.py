"""Accuracy against bytes, method by method, with the same last phase, seeds, tests and effort of tuning for each.

    GOSSAMER_DATA=DIR python benchmarks/accuracy_per_byte.py --out RUNS --tune
    GOSSAMER_DATA=DIR python benchmarks/accuracy_per_byte.py --out RUNS [--task cifar10] [--nodes 16] [--json]
    GOSSAMER_DATA=DIR python benchmarks/accuracy_per_byte.py --out RUNS --split
    python benchmarks/accuracy_per_byte.py --out RUNS --markdown

--rounds counts the rounds with training; --settle more, without, follow them for every method. Nodes are tested before
those and at the end, all of them on all test samples unless the table says otherwise. "Times fewer" is the bytes of
full sharing on a random graph, by default static and 4-regular (--graph), with the same seed, rounds and last phase, by
those of the method; bytes are those of encoded frames.

--methods takes names of rows, or a family with settings of its own, such as lace:kept=0.01,exchanges=3 (the families
are in accuracy_per_byte_methods.py). A learning rate other than the task's follows an @: full@0.04. The first full
sharing among the methods is what the others are compared with. --split takes Lace apart. --tune tries as many settings
for every family, or the methods that --methods spells out, on training samples that are held out, and writes what it
chose to RUNS: the setting with the fewest bytes among those that come within --within of full sharing's accuracy, or
else the most accurate. Later runs take the choice from there.

Every run is kept in RUNS and not done twice; Ctrl-C stops after the round that is under way, and the same command
goes on from there. Several processes can share RUNS if each has seeds of its own; --markdown then shows them together.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import cifar10
from accuracy_per_byte_methods import GRAPHS, GRIDS, ROWS, SPLIT, TASKS, TUNED_ONLY, Counted, Method, setting

from gossamer import Experiment, ExperimentError, Run, StopRequest, open_run, resume, simulate
from gossamer.runs import checkpoint
from gossamer.training.block import NodeError
from gossamer.wire import Codec

Outcome = dict[str, Any]  # of a run
Row = dict[str, Any]  # of a table: a method, over the seeds
BASELINE = Method.parse("full")


# -- runs --------------------------------------------------------------------------------------------------------------


def task_of(options: argparse.Namespace) -> str:
    """The task, and the graph if it is not the usual one; names directories and files."""
    return str(options.task) if options.graph == "regular" else f"{options.task}-{options.graph}"


def directory_of(method: Method, base: Experiment, options: argparse.Namespace, seed: int) -> Path:
    held_out = "-held-out" if base.evaluation.validation else ""
    momentum = f"-momentum-{base.optimizer.momentum:g}" if base.optimizer.momentum else ""
    place = (
        f"{task_of(options)}-{base.nodes}-nodes-{base.rounds - base.settle}+{base.settle}-rounds{momentum}{held_out}"
    )
    if (tested := (base.evaluation.nodes, base.evaluation.samples)) != ("all", "all"):
        place += "-{}-by-{}-tested".format(*tested)
    return options.out / place / method.name / f"seed-{seed}"


def outcome_of(method: Method, base: Experiment, options: argparse.Namespace, seed: int) -> Outcome | None:
    """What came of a method with a seed, carried out or on as far as need be; None if it is not there to be read."""
    directory = directory_of(method, base, options, seed)
    experiment = replace(method.on(base), seed=seed)
    if (directory / "diverged").exists():
        return {"diverged": (directory / "diverged").read_text()}
    if (directory / "result.json").exists():
        return measured(method, open_run(directory, experiment))
    if options.markdown:
        return None
    Counted.notes = directory / "levels.txt"
    follow = {"workers": options.workers, "on_round": progress(f"seed {seed}, {method.label}", experiment.rounds)}
    try:
        run = (
            resume(directory, experiment, **follow) if directory.exists() else simulate(experiment, directory, **follow)
        )
    except NodeError as error:  # too high a rate
        (directory / "diverged").write_text(str(error))
        return {"diverged": str(error)}
    (directory / checkpoint.NAME).unlink(missing_ok=True)  # the models of a table would fill a disk
    return measured(method, run)


def progress(what: str, rounds: int) -> Callable[[dict[str, Any]], None]:
    """Says on standard error how far a run is."""
    live = sys.stderr.isatty()

    def show(metrics: dict[str, Any]) -> None:
        done = metrics["round"]
        if live or done % 100 == 0 or done == rounds:
            print(f"\r{what}: round {done} of {rounds} ", end="" if live and done < rounds else "\n", file=sys.stderr)

    return show


def measured(method: Method, run: Run) -> Outcome:
    assert run.experiment is not None
    result: Any = run.result
    metric, training = result["metric"], run.experiment.training_rounds
    before = run.metrics[training - 1]
    outcome = {
        "before": before[f"{metric}_mean"],
        "after": result[f"{metric}_mean"],
        "mean_model": result[f"{metric}_of_mean_model"],
        "worst_before": before[f"{metric}_min"],
        "worst": result[f"{metric}_min"],
        "loss": result["test_loss"],
        "bytes": result["bytes_total"],
        "training_bytes": sum(metrics["bytes_total"] for metrics in run.metrics[:training]),
        **{key: result[key] for key in ("nodes", "rounds", "tested_nodes", "tested_samples", "seconds")},
    }
    if method.family == "lace-counted":
        assert run.directory is not None
        outcome["codings"] = codings(run.directory / "levels.txt", training)
    return outcome


def codings(notes: Path, training: int) -> dict[str, tuple[int, int]]:
    """Bytes of all rounds, and of those with training, by coding: what messages take but for 36 bytes of frame."""
    found: dict[str, tuple[int, int]] = {}
    messages = Counted.read(notes)
    for coding, payload in (
        ("levels at their order-0 entropy", lambda entries, bits: bits / 8),
        ("three bytes for an entry that is sent", lambda entries, bits: 3 * entries),
    ):
        sizes = [(number < training, Codec.frame_bytes + payload(entries, bits)) for number, entries, bits in messages]
        found[coding] = round(sum(size for _, size in sizes)), round(sum(size for trained, size in sizes if trained))
    return found


# -- rows --------------------------------------------------------------------------------------------------------------


def row_of(method: Method, own: dict[int, Outcome], full: dict[int, Outcome], tuned: bool) -> Row:
    """A method over the seeds that it and full sharing have both."""
    row: Row = {"method": method.label, "settings": method.settings, "text": method.text, "tuned": tuned}
    if diverged := [seed for seed, outcome in own.items() if "diverged" in outcome]:
        return row | {"diverged": diverged}
    seeds = sorted(own.keys() & full.keys())
    pairs = [(own[seed], full[seed]) for seed in seeds]
    row["seeds"] = seeds
    for key in ("before", "after", "mean_model", "worst_before", "worst", "loss"):
        row[key], row[f"{key}_deviation"] = spread([outcome[key] for outcome, _ in pairs])
    row["against_full"], row["against_full_deviation"] = spread([a["after"] - b["after"] for a, b in pairs])
    row["bytes_per_node_and_round"] = round(mean(a["bytes"] / a["nodes"] / a["rounds"] for a, _ in pairs))
    row["times_fewer"], row["times_fewer_deviation"] = spread([b["bytes"] / a["bytes"] for a, b in pairs], 2)
    row["times_fewer_in_training"] = round(mean(b["training_bytes"] / a["training_bytes"] for a, b in pairs), 2)
    last = pairs[-1][0]
    row["seconds"] = round(mean(a["seconds"] for a, _ in pairs), 1)
    return row | {key: last[key] for key in ("nodes", "tested_nodes", "tested_samples")}


def spread(values: Sequence[float], digits: int = 5) -> tuple[float, float | None]:
    return round(mean(values), digits), round(stdev(values), digits) if len(values) > 1 else None


def rows_of(method: Method, own: dict[int, Outcome], full: dict[int, Outcome], tuned: bool = False) -> list[Row]:
    """One row; of a method whose messages were counted in other codings, a row for each of those."""
    kinds = next(iter(own.values())).get("codings")
    if kinds is None:
        return [row_of(method, own, full, tuned)]
    found = []
    for kind in kinds:
        changed = {
            seed: outcome | dict(zip(("bytes", "training_bytes"), outcome["codings"][kind], strict=True))
            for seed, outcome in own.items()
        }
        row = row_of(method, changed, full, tuned)
        found.append(row | {"method": row["method"].replace("counted", kind)})
    return found


def percent(row: Row, key: str, sign: str = "") -> str:
    deviation = row[f"{key}_deviation"]
    spread = "" if deviation is None else f" ± {100 * deviation:.1f}"
    return f"{100 * row[key]:{sign}.1f}{spread} %"


COLUMNS: dict[str, Callable[[Row], str]] = {
    "method": lambda row: row["method"],
    "nodes before": lambda row: percent(row, "before"),
    "nodes after": lambda row: percent(row, "after"),
    "against full sharing": lambda row: percent(row, "against_full", "+"),
    "mean model": lambda row: percent(row, "mean_model"),
    "worst node": lambda row: percent(row, "worst"),
    "test loss": lambda row: f"{row['loss']:.3f}",
    "bytes per node and round": lambda row: f"{row['bytes_per_node_and_round']:,}",
    "times fewer": lambda row: f"{row['times_fewer']:.3g}",
    "without the last phase": lambda row: f"{row['times_fewer_in_training']:.3g}",
}


def drawn(row: Row) -> Row:
    """What the picture needs of a row; of its method, the words before its settings."""
    name = row["method"].partition(",")[0]
    settings = row["settings"]
    own = f" {settings['budget']:.0%}" if name == "JWINS" else ""
    return {
        "case": name + own,
        "accuracy": row["after"],
        "deviation": row["after_deviation"],
        "accuracy_of_mean_model": row["mean_model"],
        "bytes_share_of_full": 1 / row["times_fewer"],
    }


def lines_of(rows: Sequence[Row], markdown: bool) -> Iterable[str]:
    """The table, and what is to be known about it."""
    cells = [list(COLUMNS)]
    for row in rows:
        told = [row["method"], f"diverged: seeds {row['diverged']}"] if "diverged" in row else []
        cells.append(told + [""] * (len(COLUMNS) - 2) if told else [cell(row) for cell in COLUMNS.values()])
    if markdown:
        cells.insert(1, ["---"] * len(COLUMNS))
        yield from (f"| {' | '.join(line)} |" for line in cells)
    else:
        widths = [max(len(line[at]) for line in cells) for at in range(len(COLUMNS))]
        for line in cells:
            yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
    yield ""
    yield from notes_on([row for row in rows if "diverged" not in row])


def notes_on(rows: Sequence[Row]) -> Iterable[str]:
    """What was tested, which seeds, and which settings were chosen rather than given."""
    for first in rows[:1]:
        tested = f"{first['tested_nodes']} of {first['nodes']} nodes, {first['tested_samples']:,} test samples"
        yield f"{tested}, seeds {', '.join(map(str, first['seeds']))}; ± is the standard deviation over the seeds."
    for row in rows:
        if row["seeds"] != rows[0]["seeds"]:
            yield f"Seeds {', '.join(map(str, row['seeds']))} only: {row['method']}."
    if tuned := [row["method"] for row in rows if row["tuned"]]:
        yield f"Tuned: {'; '.join(tuned)}."


# -- tables ------------------------------------------------------------------------------------------------------------


def compare(methods: Sequence[Method], base: Experiment, options: argparse.Namespace) -> dict[str, dict[int, Outcome]]:
    """Outcomes by method's name and seed. Seed after seed, so that there is a table after the first."""
    found: dict[str, dict[int, Outcome]] = {method.name: {} for method in methods}
    for seed in options.seeds:
        for method in methods:
            outcome = outcome_of(method, base, options, seed)
            if outcome is None:
                print(f"{method.label}, seed {seed}: no run yet", file=sys.stderr)
            else:
                found[method.name][seed] = outcome
    return found


def stable(outcomes: dict[int, Outcome]) -> dict[int, Outcome]:
    """Those that did not diverge."""
    return {seed: outcome for seed, outcome in outcomes.items() if "diverged" not in outcome}


def choice_file(options: argparse.Namespace) -> Path:
    momentum = f"-momentum-{options.momentum:g}" if options.momentum else ""
    chosen: Path = options.out / f"tuned-{task_of(options)}{momentum}.json"
    return chosen


def tune(options: argparse.Namespace) -> list[Row]:
    """Try every setting of every family, print what came of it, and keep what was chosen."""
    counts = 16, options.rounds, options.settle, options.momentum
    tested: Any = {"validation": 0.1, "test_samples": options.test_samples or "all", "graph": options.graph}
    base = setting(options.task, *counts, **tested)
    grid: dict[str, list[Method]] = {}
    for text in options.methods or GRIDS:
        own = [Method.of(text, settings) for settings in GRIDS[text]] if text in GRIDS else [Method.parse(text)]
        grid.setdefault(own[0].family, []).extend(own)
    methods = list({m.name: m for m in [BASELINE, *(method for own in grid.values() for method in own)]}.values())
    found = compare(methods, base, options)
    full = stable(found[BASELINE.name])
    tried = [method for method in methods if found[method.name].keys() & full.keys()]
    rows = {method.name: row_of(method, found[method.name], full, tuned=False) for method in tried}
    known = json.loads(choice_file(options).read_text()) if choice_file(options).exists() else {"chosen": {}}
    for family, own in grid.items():
        if best := choose([rows[m.name] for m in own if m.name in rows], -options.within):
            known["chosen"][family] = best["text"]
    known["rule"] = f"fewest bytes within {options.within} of full sharing on held-out samples, else most accurate"
    known["tried"] = [
        row for row in known.get("tried", []) if row["method"] not in {r["method"] for r in rows.values()}
    ]
    known["tried"] += rows.values()
    if not options.markdown:
        choice_file(options).write_text(json.dumps(known, indent=1) + "\n")
    print(f"chosen: {json.dumps(known['chosen'])}", file=sys.stderr)
    return list(rows.values())


def choose(rows: Sequence[Row], least: float) -> Row | None:
    """The row with the fewest bytes among those that are good enough, or else the most accurate."""
    complete = [row for row in rows if "diverged" not in row]
    good = [row for row in complete if row["against_full"] >= least]
    if good:
        return max(good, key=lambda row: row["times_fewer"])
    return max(complete, key=lambda row: row["after"], default=None)


def chosen_methods(options: argparse.Namespace) -> tuple[list[Method], list[str]]:
    """The rows of the table, with what was tuned in its place or after it; and the names of those."""
    path = choice_file(options)
    chosen = json.loads(path.read_text())["chosen"] if path.exists() else {}
    tuned = {family: Method.parse(text) for family, text in chosen.items()}
    methods = [] if any(text.partition("@")[0] == BASELINE.family for text in options.methods or ()) else [BASELINE]
    for text in options.methods or (SPLIT if options.split else ROWS):
        method = Method.parse(text)
        methods.append(tuned.get(text, method) if text in TUNED_ONLY else method)
    if not options.methods and not options.split:
        methods += [method for family, method in tuned.items() if family not in TUNED_ONLY]
    by_name = {method.name: method for method in methods}
    return list(by_name.values()), [method.name for method in tuned.values()]


def table(options: argparse.Namespace) -> list[Row]:
    counts = options.nodes, options.rounds, options.settle, options.momentum
    tested = {"test_nodes": options.test_nodes or "all", "test_samples": options.test_samples or "all"}
    base = setting(options.task, *counts, **tested, graph=options.graph)
    methods, tuned = chosen_methods(options)
    found = compare(methods, base, options)
    full = stable(found[next(method.name for method in methods if method.family == BASELINE.family)])
    return [
        row
        for method in methods
        if found[method.name].keys() & full.keys()
        for row in rows_of(method, found[method.name], full, method.name in tuned)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the runs are kept")
    parser.add_argument("--task", choices=TASKS, default="cifar10")
    parser.add_argument("--graph", choices=GRAPHS, default="regular", help="of all methods but those that make pairs")
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--seeds", type=int, nargs="+", help="2000 2001 2002, or 100 101 102 with --tune")
    parser.add_argument("--rounds", type=int, help="with training; by default the task's")
    parser.add_argument("--settle", type=int, default=8, help="rounds without training that follow")
    parser.add_argument("--momentum", type=float, default=0.0, help="quasi-global, of every method")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="or FAMILY:KEY=VALUE,...; families with --tune")
    parser.add_argument("--test-nodes", type=int, help="a random choice of so many; by default all")
    parser.add_argument("--test-samples", type=int, help="the same; by default all, 2,000 of Shakespeare's")
    parser.add_argument("--tune", action="store_true", help="choose settings on 16 nodes")
    parser.add_argument("--within", type=float, default=0.01, help="what --tune may lose against full sharing")
    parser.add_argument("--split", action="store_true", help="take Lace's gain apart")
    parser.add_argument("--workers", type=int, help="processes of a run; by default one per core")
    parser.add_argument("--json", action="store_true", help="one row per line")
    parser.add_argument("--plot", type=Path, help="where to draw accuracy by bytes")
    parser.add_argument("--markdown", action="store_true", help="the table of what is in RUNS; runs nothing")
    options = parser.parse_args()
    options.seeds = options.seeds or ([100, 101, 102] if options.tune else [2000, 2001, 2002])
    try:
        rows = tune(options) if options.tune else table(options)
    except StopRequest as stop:
        sys.exit(f"{stop}; the same command continues")
    except (ExperimentError, ValueError) as error:
        sys.exit(str(error))
    if options.plot:
        options.plot.write_text(cifar10.plot([drawn(row) for row in rows if "diverged" not in row]))
    for line in map(json.dumps, rows) if options.json else lines_of(rows, options.markdown):
        print(line)


if __name__ == "__main__":
    main()
