"""The command line as a user meets it, in processes of its own where signals and exit codes matter."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.box import SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

import gossamer as library
from gossamer.algorithms import PAPERS
from gossamer.cli import console
from gossamer.cli import main as cli
from gossamer.experiments import toml
from gossamer.experiments.recipes import RECIPES
from gossamer.runs.sweep import PlannedRun
from gossamer.simulator.run_pool import News
from gossamer.simulator.worker_pool import WorkerError
from gossamer.training.block import NodeError

QUICK = ["--set", "task.hidden=4"]


def gossamer(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from gossamer.cli.main import main; main()", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """As `gossamer`, without the seconds that another interpreter takes to load PyTorch."""

    def run(*words: str, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["gossamer", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        said = capsys.readouterr()
        code = stopped.value.code
        return subprocess.CompletedProcess(words, code if isinstance(code, int) else 0, said.out, said.err)

    return run


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli.cli, words, catch_exceptions=False)


def without_times(result: dict) -> dict:
    return {key: value for key, value in result.items() if key != "seconds"}


def test_a_run_prints_one_json_object_the_same_for_the_same_seed_and_any_workers(
    tmp_path: Path, in_process: Run
) -> None:
    words = ["run", "jwins-digits", "--rounds", "4", "--json", *QUICK]
    runs = [
        gossamer(*words, "--workers", "1", cwd=tmp_path),
        in_process(*words, "--workers", "2"),
        in_process(*words, "--workers", "2", "--seed", "1"),
    ]
    results = [json.loads(run.stdout) for run in runs]
    assert [run.stdout.count("\n") for run in runs] == [1, 1, 1]
    assert without_times(results[0]) == without_times(results[1])
    assert results[1]["accuracy_mean"] != results[2]["accuracy_mean"]
    needed = "algorithm nodes rounds accuracy_mean accuracy_min accuracy_max bytes_total bytes_values bytes_metadata"
    for key in [*needed.split(), "bytes_share_of_full", "seconds", "seed"]:
        assert key in results[0], key
    assert results[0]["bytes_total"] == results[0]["bytes_values"] + results[0]["bytes_metadata"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "jwins-digits",
        "jwins-digits-2",
        "jwins-digits-3",
    ]
    kept = sorted(path.name for path in (tmp_path / "runs" / "jwins-digits").iterdir())
    files = "checkpoint.safetensors experiment.toml lock metrics.jsonl nodes.json report.html result.json"
    assert kept == files.split()


MISTAKES = {
    "run nothing": "nothing is neither a file nor a recipe; gossamer list recipes has their names",
    "run sparse-push-table2": "a table of a paper, not one experiment; carry it out with: gossamer reproduce",
    "run jwins-digit": "jwins-digit is neither a file nor a recipe (did you mean jwins-digits?)",
    "run jwins-digits --set nodes=3": "another topology such as ring (--set topology.name=ring, in",
    "export nowhere": "nowhere is not a run",
    "export there --node first": "--node first: take mean, or the number of a node, from 0",
    "run jwins-digits --set algorithm.budget=2": "algorithm.budget must be over 0 and at most 1",
    "run jwins-digits --rounds 0": "rounds must be at least 1, 0 was given",
    "run jwins-digits --set topology.name=directed-ring": "jwins needs a symmetric graph and directed-ring is directed",
    "run jwins-digits --set nodes=5 --set topology.degree=3": "degree * nodes must be even",
    "run jwins-digits --set nodes=5000 --set topology=ring": "5000 nodes cannot share 1437 samples",
    "run jwins-digits --out there": "there exists already; name another directory, or continue it with gossamer resume",
    "demo --out there": "there exists already",
    "resume there": "there is not a run: it has no experiment.toml",
    "resume nowhere": "nowhere is not a run",
    "report nowhere": "nowhere is not a run",
    "run broken.toml": "broken.toml is not a TOML file",
    "run binary.toml": "binary.toml cannot be read",
    "init broken.toml": "broken.toml exists already",
    "init new.toml --from jwins-digit": "--from jwins-digit: there is no such recipe (did you mean jwins-digits?)",
    "show jwins-digit": "jwins-digit is neither a file nor a recipe (did you mean jwins-digits?)",
    "show broken.toml": "broken.toml is not a TOML file",
    "run jwins-digits --set budget=0.2": "budget: there is no such key (did you mean algorithm.budget?); an experiment",
    "run jwins-digits --set algorithm.name=jwin": "algorithm.name: there is no 'jwin' (did you mean jwins?)",
    "run jwins-digits --set task.name=digit": "task.name: there is no 'digit' (did you mean digits?)",
    "run jwins-digits --set algorithm.buget=1": "algorithm.buget: there is no such key (did you mean budget?)",
    "cost mlp --algorithm choko": "--algorithm choko: there is none (did you mean choco?)",
    "completion tcsh": "'tcsh' is not one of 'bash', 'zsh', 'fish'",
    "init no/where.toml": "no/where.toml cannot be written: No such file or directory",
    "list things": "'things' is not one of 'algorithms'",
    "run jwins-digits --workers 0": "0 is not in the range",
    "run jwins-digits --set topology={name='edge-list',path='none.edges'}": "none.edges",
    "run jwins-digits --out /proc/nope": "/proc/nope cannot be made: No such file or directory; name another directory",
    "run jwins-digits --out broken.toml/run": "broken.toml/run cannot be made: Not a directory; name another directory",
    f"run jwins-digits --out {'a' * 300}": "cannot be made: File name too long; name another directory",
    "demo --out broken.toml/demo": "cannot be made: Not a directory; name another directory",
    "run jwins-digits --set name=../up": "name must be 1 to 100 letters, digits",
    f"run jwins-digits --set nodes={10**24}": f"{10**24} nodes cannot share 1437 samples",
    f"run jwins-digits --set batch_size={10**24}": f"batch_size must be under 2^31, {10**24} was given",
    f"run jwins-digits --set local_steps={10**21}": f"local_steps must be under 2^31, {10**21} was given",
    f"run jwins-digits --set exchanges={10**24}": f"exchanges must be under 2^31, {10**24} was given",
    f"run jwins-digits --rounds {10**18}": f"rounds must be under 2^31, {10**18} was given",
    f"run jwins-digits --set task.hidden={10**13}": "more memory than there is",
    f"run jwins-digits --set task.hidden={10**18}": "more memory than there is",
    f"run jwins-digits --set task.hidden={10**30}": "more memory than there is",
    "run dpsgd-digits --set task={name='quadratic',num_samples=100000000000000}": "more memory than there is",
    "run dpsgd-digits --set task={name='quadratic',dimension=100000000000000}": "more memory than there is",
    f"cost mlp --batch {10**27}": "is not in the range",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    Path("broken.toml").write_text("nodes = = 3")
    Path("binary.toml").write_bytes(b"\xff\xfe\x00")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["gossamer", *words.split()])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    said = capsys.readouterr()
    assert stopped.value.code == 2
    assert MISTAKES[words] in said.err
    assert "Traceback" not in said.err
    assert said.out == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_an_interrupt_while_the_command_line_is_imported_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")  # as if Ctrl-C came at that moment
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "gossamer", "list"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.slow
def test_precompile_compiles_every_kernel_and_tells_where_it_is_kept(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "gossamer", "precompile"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert f"kept in {tmp_path}" in done.stderr
    found = subprocess.run(
        [sys.executable, "-c", NOT_KEPT], env=environment, capture_output=True, text=True, timeout=60
    )
    assert found.stdout == "put_gap\n", found.stderr  # which is inlined in others


NOT_KEPT = """
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from numba.core.dispatcher import Dispatcher
import gossamer
for module in walk_packages(gossamer.__path__, "gossamer."):
    for name, kernel in vars(import_module(module.name)).items():
        if isinstance(kernel, Dispatcher) and kernel.__module__ == module.name:
            files = Path(kernel.stats.cache_path).glob(f"*.{kernel.py_func.__qualname__}-*.nbi")
            if not list(files):
                print(name)
"""


def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_its_metrics(tmp_path: Path, in_process: Run) -> None:
    words = ["run", "dpsgd-digits", "--set", "optimizer.learning_rate=1e30", "--out", "run", "--workers", "2"]
    done = in_process(*words)
    assert done.returncode == 1
    assert "node" in done.stderr
    assert "became nan in round" in done.stderr or "became inf in round" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "run" / "metrics.jsonl").exists()


def said_by_main(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple:
    """The exit code of the program in this process, and what it wrote to standard error."""
    monkeypatch.setattr(sys, "argv", ["gossamer", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (NodeError("no graph in round 7"), 1, "gossamer: no graph in round 7\n"),
        (WorkerError("a worker died"), 1, "gossamer: a worker died\n"),
        (OSError(None, "No space left", "run/metrics"), 1, "gossamer: run/metrics: No space left\n"),
        (
            KeyboardInterrupt(),
            130,
            "\ngossamer: stopped; a run that had begun can be continued with: gossamer resume RUN\n",
        ),
    ],
)
def test_what_stops_a_run_is_one_sentence(
    error: BaseException,
    code: int,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gossamer.simulator.simulate.simulate", stop)
    assert said_by_main(["run", "jwins-digits"], monkeypatch, capsys) == (code, sentence)


def test_a_file_without_a_section_has_the_default_one_to_change(tmp_path: Path, in_process: Run) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\nrounds = 1')
    done = in_process("run", "mine.toml", "--set", "task.hidden=2", "--set", "topology.degree=2", "--json")
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "runs" / "mine" / "experiment.toml").read_text()
    assert "hidden = 2" in written
    assert "degree = 2" in written


@pytest.mark.slow
@pytest.mark.parametrize("words", [["list"], ["run", "dpsgd-digits", "--rounds", "1", "--json"]])
def test_a_reader_that_leaves_early_is_no_error(words: list[str], tmp_path: Path) -> None:
    process = start(*words, cwd=tmp_path)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 0
    assert "Broken" not in errors
    assert "Traceback" not in errors


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from gossamer.cli.main import main; main()", *words]
    return subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_rounds(metrics: Path, number: int) -> None:
    deadline = time.monotonic() + 60
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < number:
        assert time.monotonic() < deadline
        time.sleep(0.02)


LONG = ["run", "jwins-digits", "--rounds", "120", "--workers", "2", "--out", "run", *QUICK, "--set", "strategy=rows"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("undisturbed")
    assert gossamer(*LONG, cwd=directory).returncode == 0
    return directory / "run"


def same_run(a: Path, b: Path) -> bool:
    results = [json.loads((run / "result.json").read_text()) for run in (a, b)]
    lines = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (a, b)]
    rounds = [[without_times(metrics) for metrics in each] for each in lines]
    states = [(run / "checkpoint.safetensors").read_bytes() for run in (a, b)]
    return without_times(results[0]) == without_times(results[1]) and rounds[0] == rounds[1] and states[0] == states[1]


@pytest.mark.parametrize(
    ("send", "number"),
    [
        (os.killpg, signal.SIGINT),  # as a terminal does
        pytest.param(os.kill, signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(os.killpg, signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_and_says_how_to_resume_to_the_same_result(
    send: Callable, number: int, tmp_path: Path, undisturbed: Path, in_process: Run
) -> None:
    process = start(*LONG, cwd=tmp_path)
    wait_for_rounds(tmp_path / "run" / "metrics.jsonl", 5)
    send(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "continue with: gossamer resume run" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run" / "result.json").exists()
    resumed = in_process("resume", "run", "--workers", "1")
    assert resumed.returncode == 0, resumed.stderr
    assert same_run(tmp_path / "run", undisturbed)


@pytest.mark.slow
def test_a_killed_run_resumes_from_its_last_checkpoint_to_the_same_result(
    tmp_path: Path, undisturbed: Path, in_process: Run
) -> None:
    process = start(*LONG, "--checkpoint-every", "7", cwd=tmp_path)
    wait_for_rounds(tmp_path / "run" / "metrics.jsonl", 9)
    process.kill()
    process.communicate()
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"round": 1')  # it died while it wrote
    assert in_process("resume", "run").returncode == 0
    assert same_run(tmp_path / "run", undisturbed)


@pytest.mark.slow
def test_a_killed_run_leaves_no_worker_behind(tmp_path: Path) -> None:
    process = start(*LONG, cwd=tmp_path)
    wait_for_rounds(tmp_path / "run" / "metrics.jsonl", 2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_worker_that_dies_is_named_with_its_nodes_and_round(tmp_path: Path) -> None:
    process = start(*LONG, cwd=tmp_path)
    wait_for_rounds(tmp_path / "run" / "metrics.jsonl", 2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[1]), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert re.search(r"a worker died in round \d+, \w+, at (nodes 8 to 15|item \d+ of \d+) \(exit code -9\)", errors)
    assert "Traceback" not in errors


def test_a_changed_experiment_is_not_resumed(tmp_path: Path, in_process: Run) -> None:
    process = start(*LONG, "--checkpoint-every", "5", cwd=tmp_path)
    wait_for_rounds(tmp_path / "run" / "metrics.jsonl", 7)
    process.kill()
    process.communicate()
    experiment = tmp_path / "run" / "experiment.toml"
    experiment.write_text(experiment.read_text().replace("learning_rate = 0.1", "learning_rate = 0.2"))
    resumed = in_process("resume", "run")
    assert resumed.returncode == 2
    assert "optimizer.learning_rate in run/experiment.toml changed after the checkpoint was made" in resumed.stderr


def test_a_damaged_checkpoint_is_refused_in_a_sentence(tmp_path: Path, undisturbed: Path, in_process: Run) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("experiment.toml", "metrics.jsonl"):
        (run / name).write_bytes((undisturbed / name).read_bytes())
    (run / "checkpoint.safetensors").write_bytes((undisturbed / "checkpoint.safetensors").read_bytes()[:-50])
    resumed = in_process("resume", "run")
    assert resumed.returncode == 2
    assert "is damaged" in resumed.stderr


def test_a_finished_run_is_not_run_again(undisturbed: Path, in_process: Run) -> None:
    before = {path.name: path.read_bytes() for path in undisturbed.iterdir()}
    assert in_process("resume", "run", cwd=undisturbed.parent).returncode == 0
    assert {path.name: path.read_bytes() for path in undisturbed.iterdir()} == before


def test_init_writes_an_experiment_that_runs(in_process: Run) -> None:
    assert in_process("init").returncode == 0
    done = in_process("run", "experiment.toml", "--rounds", "2", "--json", *QUICK)
    assert json.loads(done.stdout)["rounds"] == 2


def test_the_demo_shows_three_algorithms_and_writes_a_report(tmp_path: Path, in_process: Run) -> None:
    done = in_process("demo", "--rounds", "3", "--seeds", "2")
    assert done.returncode == 0, done.stderr
    for name in ("dpsgd", "jwins", "lace", "mean of 2 seeds"):
        assert name in done.stdout
    assert re.search(r"lace sends \d+(\.\d)? times fewer bytes than dpsgd", done.stdout)
    assert "jwins" in (tmp_path / "runs" / "demo" / "report.html").read_text()


def test_a_report_compares_runs(undisturbed: Path, tmp_path: Path, in_process: Run) -> None:
    done = in_process("report", str(undisturbed), str(undisturbed))
    assert done.returncode == 0, done.stderr
    assert "<svg" in (tmp_path / "report.html").read_text()
    for out in ("report.html", "report.html/below", "/proc/nope"):  # the first exists now
        assert invoke("report", str(undisturbed), "--out", str(tmp_path / out)).exit_code == 2


@dataclass(frozen=True)
class Mine(library.Dpsgd):
    pass


def test_a_run_of_ones_own_class_is_reported_and_resumed_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    library.simulate(replace(RECIPES["dpsgd-digits"](), algorithm=Mine(), rounds=1), "run", workers=1)
    assert "Mine" in invoke("report", "run").output
    (tmp_path / "run" / "result.json").unlink()
    code, said = said_by_main(["resume", "run"], monkeypatch, capsys)
    assert code == 2
    assert "own; resume it from Python with gossamer.resume(directory, experiment)" in said


def terminal(width: int) -> Console:
    return Console(file=StringIO(), force_terminal=True, width=width, markup=False, emoji=False, color_system=None)


@pytest.mark.parametrize(("seeds", "told"), [((0, 1), "mean of 2 seeds"), ((0, 0), "mean of 2 runs")])
def test_a_run_that_was_made_twice_is_not_told_as_two_seeds(seeds: tuple[int, ...], told: str) -> None:
    runs = [library.simulate(replace(RECIPES["dpsgd-digits"](), rounds=1, seed=seed), workers=1) for seed in seeds]
    assert str(console.results_table(runs).caption).startswith(told)


def test_results_can_be_read_on_80_columns() -> None:
    recipes = [RECIPES[name]() for name in ("dpsgd-digits", "random-sampling-digits", "jwins-digits")]
    runs = [library.simulate(replace(recipe, rounds=1), workers=1) for recipe in recipes]
    for run in runs:  # as wide as figures get
        last = run.metrics[-1]
        last.update(accuracy_mean=1.0, accuracy_max=1.0, bytes_values=123_456_789, seconds=12345.6)
    for resent in ([], ["resent"]):
        screen = terminal(80)
        screen.print(console.results_table(runs))
        lines = [line.rstrip() for line in screen.file.getvalue().splitlines()]
        assert "…" not in screen.file.getvalue()
        names = [line.split()[0] for line in lines if "%" in line]
        assert names == ["dpsgd", "random-sa" if resent else "random-sampling", "jwins"]  # a long one may be folded
        heads = ["algorithm", "accuracy", "range", "values", "metadata", *resent, "total", "of", "full", "s"]
        assert lines[1].split() == heads
        assert "metadata: headers and indices; of full: share of full sharing" in " ".join(" ".join(lines).split())
        runs[-1].metrics[-1]["bytes_resync"] = 123_456_789  # and now with a column more


@pytest.mark.parametrize("width", [40, 60, 200])
@pytest.mark.parametrize(
    "name", ["a-rather-long-name", "名前がとても長いアルゴリズム", "two words of a name that is folded"]
)
@pytest.mark.parametrize("box", [None, SIMPLE_HEAD])
def test_a_table_too_wide_for_the_terminal_is_printed_in_parts_and_no_figure_is_cut(
    width: int, name: str, box: Box | None
) -> None:
    table = Table(title="Title", caption="Caption", box=box)
    table.add_column("name", overflow="fold")
    for number in range(8):
        table.add_column(f"column {number}", justify="right", no_wrap=True)
    for row in (name, "short"):
        table.add_row(row, *(f"{row[0]}-{number}-00" for number in range(8)))
    screen = terminal(width)
    screen.print(console.in_parts(table, width))
    shown = screen.file.getvalue()
    assert all(f"{row[0]}-{number}-00" in shown for row in (name, "short") for number in range(8))
    assert "…" not in shown
    assert max(map(cell_len, shown.splitlines())) <= width
    assert (shown.count("short") > 1) == (width < 200)
    assert (shown.count("Title"), shown.count("Caption")) == (1, 1)


def test_progress_shows_the_seed_without_a_thread_that_a_fork_would_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(80)
    monkeypatch.setattr(console, "console", lambda: screen)
    before = threading.active_count()
    with console.Progress({"random-sampling": 750, "[bold]:bug:": 1}) as progress:
        assert threading.active_count() == before
        on_round = progress.of("random-sampling", 300, "seed 3/5")
        on_round({"round": 150, "accuracy_mean": 0.9, "accuracy_min": 0.8, "bytes_sent": 12_300_000})
    last = screen.file.getvalue().splitlines()[-3:]
    assert "random-sampling" in "".join(last)
    assert "450/750 seed 3/5  accuracy 90.0%  12.3 MB" in "".join(last)
    assert "[bold]:bug:" in "".join(last)


@pytest.mark.parametrize("in_terminal", [True, False])
def test_what_a_sweep_prepares_is_shown_and_is_not_training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_terminal: bool
) -> None:
    screen, clock = Console(file=StringIO(), force_terminal=in_terminal, width=80), [0.0]
    monkeypatch.setattr(console, "console", lambda: screen)
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    run = PlannedRun("full sharing", replace(RECIPES["dpsgd-digits"](), rounds=150), tmp_path)
    with console.SweepProgress() as progress:
        for what, seconds in (("waiting", 0.01), ("preparing", 120), ("started", 6)):
            progress.tell(News(run, what))  # type: ignore[arg-type]
            clock[0] += seconds
        progress.tell(News(run, "round", {"round": 15, "bytes_sent": 1.0}))
        assert "about 54.0 s left" in progress._under_way(15)
    assert "preparing full sharing" in screen.file.getvalue()


def test_brackets_and_colons_in_names_are_shown_as_they_are(in_process: Run) -> None:
    done = in_process("run", "dpsgd-digits", "--rounds", "1", *QUICK, "--out", "[red]:bug:")
    assert "kept in [red]:bug:" in done.stderr


def test_lists_name_and_describe_everything() -> None:
    plain, machine = invoke("list").output, json.loads(invoke("list", "--json").output)
    for row in machine:
        assert row["name"] in plain
        assert row["description"]
    assert {row["name"] for row in machine if row["kind"] == "recipes"} == set(RECIPES)
    assert "jwins" in invoke("list", "algorithms").output
    about = {row["name"]: row for row in machine if row["kind"] == "algorithms"}
    assert about["jwins"]["needs"] == ["symmetric"]
    assert about["jwins"]["memory"] == 3
    assert about["jwins"]["sends"] == ["coefficients: chosen entries, float32"]
    assert about["random-sampling"]["sends"] == ["x: entries drawn from a shared seed, float32"]
    assert set(PAPERS) <= set(about)
    assert {name for name in about if not about[name]["paper"]} == {"all-reduce", "centralized", "local-only"}
    assert "\n\ntopologies" in "\n".join(line.rstrip() for line in plain.splitlines())


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_that_is_shown_is_the_recipe(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = invoke("show", name).output
    assert shown.startswith(f"# The recipe {name}: ")
    assert toml.read(tomllib.loads(shown)) == RECIPES[name]()
    assert invoke("init", "mine.toml", "--from", name).exit_code == 0
    assert Path("mine.toml").read_text() == shown


def test_show_applies_settings_and_writes_defaults_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text("nodes = 8")
    shown = invoke("show", "mine.toml", "--set", "algorithm.name=jwins", "--seed", "3").output
    assert toml.read(tomllib.loads(shown)) == library.Experiment(nodes=8, seed=3, algorithm=library.Jwins())


def test_init_names_the_schema_that_is_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    invoke("init", "without.toml")
    Path("experiment.schema.json").write_text(invoke("schema").output)
    invoke("init", "with.toml")
    line = "#:schema ./experiment.schema.json\n"
    assert Path("with.toml").read_text() == line + Path("without.toml").read_text()


def test_help_and_init_do_not_wait_for_torch(tmp_path: Path) -> None:
    for words in (["--help"], ["run", "--help"], ["--version"], ["init"]):
        program = (
            f"import sys; sys.argv[1:] = {words}; from gossamer.cli.main import main\n"
            "try: main()\nfinally: assert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True)


def test_ctrl_c_while_modules_are_imported_is_one_sentence(tmp_path: Path) -> None:
    program = """
import builtins, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has its children ignore it
from gossamer.cli.main import main
imported = builtins.__import__
def interrupted(name, *rest):
    if name == "torch":
        signal.raise_signal(signal.SIGINT)
    return imported(name, *rest)
builtins.__import__ = interrupted
sys.argv[1:] = ["list"]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr.strip().startswith("gossamer: stopped; ")
    assert "Traceback" not in done.stderr


def test_plan_tells_what_a_run_would_take(in_process: Run, tmp_path: Path) -> None:
    words = ("plan", "lace-digits", *QUICK, "--rounds", "20", "--workers", "1", "--set", "clock.network=lora")
    told = in_process(*words, "--html", "plan.html")
    assert told.returncode == 0, told.stderr
    for expected in ("parameters", "bytes in all", "spectral gap", "time by the clock", "90 samples", "▒"):
        assert expected in told.stdout
    page = (tmp_path / "plan.html").read_text()
    assert "<th>bytes in all</th>" in page
    assert "http" not in page
    found = json.loads(in_process(*words, "--json").stdout)
    assert found["bytes_total"] == found["bytes_values"] + found["bytes_metadata"]
    assert found["clock_seconds"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["plan.html"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lace-digit"], "did you mean lace-digits?"),
        (["lace-digits", "--set", "clock.network=5g"], "it must be"),
        (["lace-digits", "--set", "clock.step_seconds=[1]"], "there are 16 nodes; give one for each"),
        (["lace-digits", "--set", "topology.name=ring"], "needs a graph that changes"),
        (["dpsgd-digits", *QUICK, "--rounds", "2", "--html", "none/plan.html"], "cannot be written"),
        (["lace-digits", "--html", "."], "exists already"),
    ],
)
def test_a_plan_of_what_cannot_run_is_refused_in_a_sentence(in_process: Run, words: list[str], told: str) -> None:
    done = in_process("plan", *words)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
