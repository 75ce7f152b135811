"""The watch page: a real run followed in a real browser, and a server that answers nobody else."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from conftest import Browser
from gossamer.cli import main as cli
from gossamer.data.toy import Quadratic
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.experiments.recipes import RECIPES
from gossamer.graphs.topologies import Ring
from gossamer.runs.report.text import percent
from gossamer.runs.watch import WatchServer
from gossamer.runs.watch.listing import runs_under
from gossamer.simulator.simulate import simulate
from loopback_pages import ask, serving

SMALL = Experiment(name="small", nodes=4, rounds=4, task=Quadratic(), topology=Ring(), evaluation=Evaluation(2))


def watching(root: Path) -> AbstractContextManager[WatchServer]:
    return serving(WatchServer(root, interval_seconds=0.05))


def test_the_page_follows_a_run_in_the_browser(browser: Browser, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    digits = replace(RECIPES["jwins-digits"](), nodes=8, rounds=8, evaluation=Evaluation(every=2, nodes="all"))
    wait = WebDriverWait(browser.driver, 20)
    seen = []

    def shown(told: str) -> Callable[[object], bool]:
        return lambda _: told in browser.run("return document.body.innerHTML")

    with watching(tmp_path) as server:

        def follow(metrics: dict[str, object]) -> None:
            """The run waits here until the page has what it just wrote."""
            if metrics["round"] == 2:
                browser.open(f"{server.address}report?run=live")
                browser.run('document.querySelector("details").open = true')
            if "accuracy_mean" in metrics:
                wait.until(shown(f"round {metrics['round']} of 8"))
                value = percent(metrics["accuracy_mean"])  # type: ignore[arg-type]
                line = 'return document.querySelector("svg.chart path.line").dataset.is'
                wait.until(lambda _: browser.run(line).split(";")[-1] == value)
                by_node: dict[str, float] = metrics["accuracy_by_node"]  # type: ignore[assignment]
                tip = browser.run('return document.querySelectorAll("svg.graph .node")[3].dataset.tip')
                assert tip.startswith(f"node 3: {percent(by_node['3'])}")
                seen.append(len(browser.run(line).split(";")))

        simulate(digits, tmp_path / "live", workers=1, on_round=follow)
        wait.until(shown("live: complete"))
        assert browser.run('return document.querySelector("details").open')
        assert browser.complaints() == []
        assert all(url.startswith(server.address) for url in browser.requests())
    assert seen == [1, 2, 3, 4]


def test_runs_are_found_and_shown_together(browser: Browser, tmp_path: Path) -> None:
    for name, rate in {"first": 0.1, "deeper/second": 0.2, "third": 0.1}.items():
        optimizer = replace(SMALL.optimizer, learning_rate=rate)
        simulate(replace(SMALL, optimizer=optimizer, seed=len(name)), tmp_path / name, workers=1)
    with watching(tmp_path) as server:
        browser.open(server.address)
        rows = browser.driver.find_elements("css selector", "tr[data-run]")
        assert [row.text.split()[0] for row in rows] == ["third", "deeper/second", "first"]
        browser.driver.find_element("id", "search").send_keys("dpsgd seco")
        assert [row.is_displayed() for row in rows] == [False, True, False]
        browser.driver.find_element("id", "search").clear()
        browser.driver.find_element("id", "search").send_keys(" ")
        for name in ("first", "deeper/second"):
            browser.click(f'input[value="{name}"]')
        browser.click("button")
        browser.wait_for("h1", "dpsgd on quadratic by learning rate")
        assert [box.text for box in browser.driver.find_elements("css selector", ".legend label")] == [
            "dpsgd, learning rate 0.2",
            "dpsgd, learning rate 0.1",
        ]
        browser.open(server.address, width=390)
        assert browser.run("return document.documentElement.scrollWidth") == 390
        assert browser.complaints() == []


def test_only_this_machine_by_its_own_name_is_answered(tmp_path: Path) -> None:
    simulate(SMALL, tmp_path / "runs" / "one", workers=1)
    (tmp_path / "secret.txt").write_text("secret")
    with watching(tmp_path / "runs") as server:
        assert server.server_address[0] == "127.0.0.1"
        assert ask(server, "/")[0] == 200
        assert ask(server, "/", f"localhost:{server.server_port}")[0] == 200
        for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1", "127.0.0.1:1"):
            status, text = ask(server, "/", host)
            assert status == 421
            assert "one" not in text
        for path in (
            "/report?run=..",
            "/report?run=../secret.txt",
            "/events?run=/etc",
            "/secret.txt",
            "/report",
            "//x",
        ):
            status, text = ask(server, path)
            assert status == 404
            assert "secret" not in text.replace(path, "")
        assert ask(server, "/", method="POST")[0] == 501


def test_hostile_names_of_runs_stay_text(tmp_path: Path) -> None:
    simulate(SMALL, tmp_path / "<script>alert(1)<", workers=1)
    with watching(tmp_path) as server:
        for path in ("/", "/report?run=%3Cscript%3Ealert(1)%3C"):
            status, text = ask(server, path)
            assert status == 200
            assert "<script>alert" not in text
            assert "&lt;script&gt;alert" in text


def test_what_is_no_run_is_passed_over_and_nothing_is_a_page_too(tmp_path: Path) -> None:
    with watching(tmp_path) as server:
        assert "There are no runs" in ask(server, "/")[1]
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken" / "experiment.toml").write_text("[[[")
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "experiment.toml").write_text("name = 1")
        assert runs_under(tmp_path) == []
        assert ask(server, "/")[0] == 200


def test_a_run_with_strange_rounds_is_told_and_ends_nothing(tmp_path: Path) -> None:
    simulate(SMALL, tmp_path / "one", workers=1)
    (tmp_path / "one" / "metrics.jsonl").write_text('{"round": 1}\n{"round": 2, "test_loss": 1}\n')
    no_text = tmp_path / os.fsdecode(b"\xff")
    no_text.mkdir()
    (no_text / "experiment.toml").write_bytes((tmp_path / "one" / "experiment.toml").read_bytes())
    with watching(tmp_path) as server:
        status, told = ask(server, "/report?run=one")
        assert (status, told[:23]) == (500, "one cannot be shown: St")
        assert ask(server, "/")[0] == 200


def test_a_run_without_a_round_is_waited_for(tmp_path: Path) -> None:
    simulate(SMALL, tmp_path / "one", workers=1)
    for name in ("metrics.jsonl", "result.json"):
        (tmp_path / "one" / name).unlink()
    with watching(tmp_path) as server:
        assert "No round is complete yet" in ask(server, "/report?run=one")[1]
        rows = b'{"round": 1, "train_loss": 2.5, "strategy": "rows", "seconds": 1}\n{"round": 2, "tr'
        (tmp_path / "one" / "metrics.jsonl").write_bytes(rows)  # not evaluated yet, and a line that is being written
        assert "one: round 1 of 4" in ask(server, "/report?run=one")[1]


def test_a_port_that_is_taken_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with watching(tmp_path) as server:
        refused(["--port", str(server.server_port), str(tmp_path)], "cannot be had", monkeypatch, capsys)


def test_ctrl_c_ends_the_command_though_a_page_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate(SMALL, tmp_path / "one", workers=1)
    with watching(tmp_path) as other:
        port = other.server_port  # free once that one has ended
    answers = []

    def stop() -> None:
        try:
            for _ in range(200):
                with suppress(URLError):
                    page = urlopen(f"http://127.0.0.1:{port}/events?run=one", timeout=20)  # stays open
                    break
                time.sleep(0.05)
            answers.append(page.status)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
        page.close()

    thread = threading.Thread(target=stop)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        thread.start()
        monkeypatch.setattr(sys, "argv", ["gossamer", "watch", str(tmp_path / "one"), "--port", str(port)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert answers == [200]
    assert stopped.value.code == 0
    assert f"at http://127.0.0.1:{port}/ (Ctrl-C ends it)\nstopped watching" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [(["nowhere"], "nowhere is no directory"), (["file"], "file is no directory"), (["--port", "70000"], "--port")],
)
def test_mistakes_are_told_in_a_sentence(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    refused(words, told, monkeypatch, capsys)


def refused(words: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gossamer", "watch", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err
