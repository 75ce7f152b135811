"""The report in a real browser: what it shows, says and hides, on a desk and on a phone, with scripts and without."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import Browser
from gossamer.algorithms import Jwins
from gossamer.experiments.experiment import Evaluation
from gossamer.experiments.recipes import RECIPES
from gossamer.graphs.faults import Faults
from gossamer.runs.report.text import percent
from gossamer.runs.run import Run, write_report
from gossamer.simulator.simulate import simulate

# Where on the screen every point of the lines of a chart is drawn, by label.
PLACES = """
const svg = document.querySelectorAll("svg.chart")[arguments[0]], matrix = svg.getScreenCTM();
const place = (x, y) => { const p = new DOMPoint(x, y).matrixTransform(matrix); return [p.x, p.y] };
const places = (line) => line.getAttribute("d").replace("h0", "").slice(1).split("L");
const points = (line) => places(line).map((at) => place(...at.split(" ")));
return Object.fromEntries([...svg.querySelectorAll("g.k")].map((group) =>
  [group.dataset.name, [...group.querySelectorAll("path.line")].flatMap(points)]));
"""
# What reaches beyond the right edge, except in boxes that scroll.
OVERFLOWING = """
const scrolls = ".scroll:not(.wide), svg, thead, legend, [hidden]";
return [...document.querySelectorAll("body *")].filter((one) => !one.closest(scrolls)
  && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 90));
"""
CENTRE = "const b = arguments[0].getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]"


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    digits = replace(RECIPES["jwins-digits"](), nodes=8, rounds=12, settle=2, evaluation=Evaluation(every=2))
    lossy = Faults(drop=0.1)
    return [simulate(replace(digits, algorithm=Jwins(budget=share), faults=lossy), workers=1) for share in (0.1, 0.4)]


@pytest.fixture(scope="module")
def page(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, runs)
    return path.as_uri()


def move(browser: Browser, x: float, y: float) -> None:
    browser.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


def test_curves_are_there_and_nothing_is_amiss(browser: Browser, page: str, runs: list[Run]) -> None:
    browser.open(page)
    lengths = browser.run(
        'return [...document.querySelectorAll("svg.chart")].map((svg) => '
        '[...svg.querySelectorAll("path.line")].map((line) => line.getTotalLength()))'
    )
    assert len(lengths) >= 6
    assert all(len(lines) == 2 for lines in lengths)
    assert sum(length > 50 for lines in lengths for length in lines) >= 12
    assert browser.text("h1") == "jwins on digits by budget"
    assert browser.complaints() == []
    assert browser.requests() == [page]


def test_the_pointer_shows_every_value_of_the_metrics(browser: Browser, page: str, runs: list[Run]) -> None:
    browser.open(page)
    measured = [{row["round"]: row["accuracy_mean"] for row in run.metrics if "accuracy_mean" in row} for run in runs]
    places: dict[str, Any] = browser.run(PLACES, 0)
    assert list(places) == ["jwins, budget 0.1", "jwins, budget 0.4"]
    for number, (x, y) in zip(measured[0], places["jwins, budget 0.1"], strict=True):
        move(browser, x, y)
        told = browser.text("#tip")
        assert told.splitlines()[0] == f"round {number}"
        for label, values in zip(places, measured, strict=True):
            assert f"{label}\n{percent(values[number])}" in told
    move(browser, 2, 2)
    assert not browser.driver.find_element("id", "tip").is_displayed()


def test_arrow_keys_show_values_too(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.run('document.querySelector("svg.chart").focus()')
    for number in (2, 4, 6):
        for kind in ("rawKeyDown", "keyUp"):
            browser.command(
                "Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39
            )
        assert browser.text("#tip").splitlines()[0] == f"round {number}"


def test_a_label_that_is_hidden_is_nowhere(browser: Browser, page: str) -> None:
    browser.open(page)
    x, y = browser.run(PLACES, 0)["jwins, budget 0.1"][0]
    browser.click("#c1")
    assert not any(group.is_displayed() for group in browser.driver.find_elements("css selector", "svg .k1"))
    assert any(group.is_displayed() for group in browser.driver.find_elements("css selector", "svg .k0"))
    move(browser, x, y)
    assert "budget 0.4" not in browser.text("#tip")


def test_on_a_phone_nothing_overflows_and_bytes_are_in_sight(browser: Browser, page: str) -> None:
    browser.open(page, width=390, height=844)
    assert browser.run("return document.documentElement.scrollWidth") == 390
    assert browser.run(OVERFLOWING) == []
    for head in ("values sent", "metadata sent", "total sent", "of full sharing"):
        box = browser.driver.find_element("css selector", f'td[data-head="{head}"]').rect
        assert box["x"] >= 0
        assert box["width"] > 20
        assert box["x"] + box["width"] <= 390
    browser.run('document.querySelector("svg.chart").scrollIntoView()')
    x, y = browser.run(PLACES, 0)["jwins, budget 0.4"][2]
    browser.command("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    browser.command("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert browser.text("#tip").splitlines()[0] == "round 6"


def test_without_scripts_labels_can_be_hidden_and_numbers_read(browser: Browser, page: str, runs: list[Run]) -> None:
    browser.open(page, scripts=False)
    assert browser.driver.find_element("css selector", "svg .k1").is_displayed()
    browser.click("#c1")
    assert not browser.driver.find_element("css selector", "svg .k1").is_displayed()
    browser.click(".numbers summary")
    assert percent(runs[0].result["accuracy_mean"]) in browser.text(".numbers")
    assert not browser.driver.find_element("id", "tip").is_displayed()


def test_nodes_tell_their_accuracy_and_data(browser: Browser, page: str, runs: list[Run]) -> None:
    browser.open(page)
    found = runs[0].metrics[-1]["accuracy_by_node"]
    assert len(found) == runs[0].result["tested_nodes"]
    for node, accuracy in list(found.items())[:2]:
        drawn = browser.driver.find_elements("css selector", "svg.graph .node")[int(node)]
        browser.run("arguments[0].scrollIntoView({block: 'center'})", drawn)
        for _ in range(50):  # on a busy machine the page scrolls, and shows the tip, later
            move(browser, *browser.run(CENTRE, drawn))
            if (told := browser.text("#tip")).startswith(f"node {node}: "):
                break
            time.sleep(0.1)
        assert told.startswith(f"node {node}: {percent(accuracy)}")
