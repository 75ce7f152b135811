"""The page stands alone, survives whatever a run's files hold, and says every figure of the result."""

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from gossamer.runs.report import Curve, html, size, write
from gossamer.runs.report.text import plain

HOSTILE = '</svg></style><script>alert("1")</script>\'&\x00\ud800'
SVG = "{http://www.w3.org/2000/svg}"


def curve(label: str = "jwins", seed: int = 1, rounds: int = 40, every: int = 5, metric: str = "accuracy") -> Curve:
    """A run of 4 nodes that learns; the seed shifts it a little."""
    metrics: list[dict[str, Any]] = []
    for number in range(1, rounds + 1):
        line = {"round": number, "train_loss": 2 / number, "seconds": number / 2, "bytes_sent": 1500_000 * number}
        line |= {"bytes_values": 1200_000, "bytes_indices": 290_000, "bytes_header": 10_000, "bytes_total": 1500_000}
        if every and number % every == 0:
            mean = 0.9 - 0.48 / number + seed / 1000
            line |= {f"{metric}_mean": mean, f"{metric}_min": mean - 0.05, f"{metric}_max": mean + 0.04}
            line |= {"test_loss": 1.0, "divergence": 1 / number**3}
        metrics.append(line)
    experiment = {
        "name": "demo",
        "nodes": 4,
        "rounds": rounds,
        "seed": seed,
        "task": {"name": "digits"},
        "topology": {"name": "regular", "degree": 3},
        "algorithm": {"name": label, "cutoff": {"fractions": [0.1, 1.0]}},
    }
    result = {"algorithm": label, "task": "digits", "nodes": 4, "rounds": rounds, "seed": seed, "metric": metric}
    result |= {f"{metric}_mean": 0.8125, f"{metric}_min": 0.75, f"{metric}_max": 0.875, "divergence": 0.1}
    result |= {"bytes_total": 60_000_000, "bytes_values": 48_000_000, "bytes_metadata": 12_000_000}
    result |= {"bytes_share_of_full": 0.372, "train_loss": 0.05, "seconds": 20.04}
    return Curve(label, metrics, experiment, result)


def drawings(page: str) -> list[ElementTree.Element]:
    """The page's SVGs, which must be well-formed XML."""
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def drawn(svg: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [element for element in svg.iter() if element.get("class") == kind]


def edge_cases() -> dict[str, list[Curve]]:
    broken = {"round": 2, "train_loss": nan, "accuracy_mean": inf, "divergence": None, "bytes_sent": "many"}
    huge = {"round": 3, "train_loss": 1e308, "accuracy_mean": 10**400, "divergence": 5e-324, "bytes_sent": 0}
    return {
        "no curves": [],
        "empty run": [Curve("a", [], {}, {})],
        "no evaluations": [curve(every=0)],
        "single point": [curve(rounds=1, every=1)],
        "not finite": [Curve("a", [broken], {"nodes": 4}, {"accuracy_mean": nan, "bytes_total": inf})],
        "gap": [Curve("a", [*curve(rounds=1).metrics, broken, huge, {"round": 4, "train_loss": 1}], {"nodes": 2}, {})],
        "no nodes": [Curve("a", curve().metrics, {}, {"nodes": 0})],
        "no round": [Curve("a", [{"train_loss": 1.0}], {}, {})],
        "constant": [Curve("a", [{"round": i, "train_loss": 0.0, "divergence": -1.0} for i in range(9)], {}, {})],
        "seeds of unequal length": [curve(seed=1), curve(seed=2, rounds=10)],
        "a seed without metrics": [curve(seed=1), Curve("jwins", [], {}, {})],
        "thirty labels": [curve(label=f"a{i}") for i in range(30)],
        "odd settings": [Curve("a", [], {"task": "t", "topology": {}, "x": None, "y": [{"z": {1: nan}}]}, {})],
    }


@pytest.mark.parametrize("name", edge_cases())
def test_whatever_a_run_holds_the_page_is_complete_and_its_drawings_are_well_formed(name: str) -> None:
    page = html("edge", edge_cases()[name])
    assert page.endswith("</html>\n")
    assert len(drawings(page)) == 6
    assert not re.search(r'="[^"]*\b(nan|inf)\b', page)


def test_the_page_needs_nothing_but_itself() -> None:
    page = html("alone", [curve("jwins"), curve("choco")])
    assert set(re.findall(r"https?://[^\"' )]*", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(|\ssrc=|\shref=", page)


def test_hostile_text_from_a_run_stays_text() -> None:
    run = curve(HOSTILE)
    run = run._replace(experiment={HOSTILE: {HOSTILE: HOSTILE}, "topology": HOSTILE, "seed": HOSTILE})
    run = run._replace(result=run.result | {"metric": HOSTILE, "task": HOSTILE, f"{HOSTILE}_mean": 1, "seconds": "<b>"})
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    for page in (html(HOSTILE, [run]), html(HOSTILE, [run, curve("choco")])):
        parser.feed(page)
        page.encode()  # the lone surrogate is gone
        assert "\x00" not in page
        assert "&lt;script&gt;alert(&quot;1&quot;)" in page
        assert len(drawings(page)) == 6
    assert "script" not in tags
    assert "b" not in tags


def test_the_table_says_every_figure_of_one_run() -> None:
    run = curve()
    run.result["accuracy_of_mean_model"] = 0.834
    page = html("A run", [run])
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page.split("<tbody>")[1].split("</tbody>")[0])
    assert cells == ["81.2%", "75.0% – 87.5%", "83.4%", "48.0 MB", "12.0 MB", "60.0 MB", "37.2%", "20.0 s"]
    assert "4 nodes trained digits for 40 rounds; topology regular (degree 3); seed 1." in page


def test_bytes_that_were_told_again_have_a_column_where_there_are_any() -> None:
    plain, lossy = curve("jwins"), curve("silk")
    assert "resent" not in html("One", [plain])
    lossy.result["bytes_resync"] = 7_000_000
    page = html("Two", [plain, lossy])
    assert ">resent<" in page
    table = page[page.index('<table class="results">') : page.index("</table>")]
    heads, *rows = [re.findall(r"<t[dh]", row) for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)[1:]]
    assert {len(row) for row in rows} == {len(heads)}
    assert table.count("<td>–</td>") == 1  # of the run that had none
    assert "<td>7.00 MB</td>" in table


def test_every_label_is_in_the_table_and_at_its_line() -> None:
    page = html("Two", [curve("jwins"), curve("choco")])
    for label in ("jwins", "choco"):
        assert f"</span>{label}</th>" in page
        assert all(label in [text.text for text in svg.iter(f"{SVG}text")] for svg in drawings(page))


def test_one_seed_has_a_band_over_nodes_and_a_title_on_its_points() -> None:
    page = html("One", [curve()])
    by_round, by_bytes, *_ = drawings(page)
    assert len(drawn(by_round, "band")) == len(drawn(by_round, "line")) == 1
    titles = [point.findtext(f"{SVG}title") for point in drawn(by_round, "hit")]
    assert len(titles) == 8
    assert titles[0] == "jwins, round 5: 80.5%"
    assert drawn(by_bytes, "hit")[-1].findtext(f"{SVG}title") == "jwins, 15.0 MB sent per node: 88.9%"
    assert "range over nodes" in page


def test_seeds_of_a_label_are_one_line_at_their_mean_and_one_row_with_their_deviation() -> None:
    runs = [curve(seed=seed) for seed in (10, 20, 60)]
    for shift, run in enumerate(runs):
        run.result["accuracy_mean"] = 0.80 + 0.02 * shift
    page = html("Seeds", runs)
    svg = drawings(page)[0]
    assert len(drawn(svg, "line")) == len(drawn(svg, "band")) == 1
    assert drawn(svg, "hit")[0].findtext(f"{SVG}title") == "jwins, round 5: 83.4%"
    assert "82.0% ± 2.0" in page
    assert "seeds 10, 20, 60." in page
    assert "range over seeds" in page


def test_a_round_in_which_a_seed_failed_breaks_the_line() -> None:
    runs = [curve(seed=1), curve(seed=2)]
    runs[1].metrics[19]["accuracy_mean"] = nan
    assert len(drawn(drawings(html("Gap", runs))[0], "line")) == 2


def test_a_metric_other_than_accuracy_is_not_a_percentage() -> None:
    page = html("Distance", [curve(metric="distance")])
    assert "0.8125" in page
    assert "Distance by round" in page
    assert "accuracy" not in page.lower()


def test_bytes_are_on_a_logarithmic_axis_with_round_ticks() -> None:
    ticks = [text.text for text in drawn(drawings(html("Ticks", [curve(every=1, rounds=1000)]))[1], "tick")]
    assert {"1 MB", "10 MB", "100 MB"} <= set(ticks)


def test_settings_that_runs_share_stand_once_and_the_others_by_run() -> None:
    page = html("Settings", [curve("jwins", seed=1), curve("choco", seed=1)]).split("<h2>Settings</h2>")[1]
    differing, shared = page.split("What they share")
    assert '<th scope="row">algorithm · name</th><td>jwins</td><td>choco</td>' in differing
    assert '<th scope="row">cutoff · fractions</th><td>0.1, 1.0</td>' in shared
    assert "degree" in shared
    assert "degree" not in differing


def test_numbers_are_written_for_people() -> None:
    assert [size(n) for n in (0, 7, 999, 999.6, 1234, 12_345_678, 5e14)] == [
        *("0 B", "7 B", "999 B", "1.00 kB", "1.23 kB", "12.3 MB", "500 TB"),
    ]
    assert [plain(x) for x in (0, 0.25, -1.5, 3000, 1e-5, 2.5e7)] == ["0", "0.25", "−1.5", "3000", "10⁻⁵", "2.5·10⁷"]


def test_writing_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write(path, "New", [curve()])
    assert path.read_text(encoding="utf-8") == html("New", [curve()])
    assert list(tmp_path.iterdir()) == [path]


def test_the_page_says_what_was_tested_where_all_runs_agree() -> None:
    runs = [curve(seed=seed) for seed in (1, 2)]
    assert "Tested on" not in html("t", runs)
    for run in runs:
        run.result.update(nodes=96, tested_nodes=5, tested_samples=1152, test_samples=10_000)
    assert "Tested on 5 of 96 nodes and 1,152 of 10,000 samples." in html("t", runs)
    runs[0].result.update(tested_samples=HOSTILE)
    assert "Tested on" not in html("t", runs)
    assert "Tested on" not in html("t", runs[:1])
