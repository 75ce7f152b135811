"""The page stands alone, survives whatever a run's files hold, and says every figure of the result."""

import re
import xml.etree.ElementTree as ElementTree
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from gossamer.runs.nodes import Nodes
from gossamer.runs.report import Curve, html, size, write
from gossamer.runs.report.text import plain, tags

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
        "partition": {"name": "iid"},
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
    assert len(drawings(page)) >= 6
    assert not re.search(r'="[^"]*\b(nan|inf)\b', page)
    assert not re.search(r'data-(at|is)="[^"]*nan', page)


def test_the_page_needs_nothing_but_itself() -> None:
    page = html("alone", [curve("jwins"), curve("choco")])
    assert set(re.findall(r"https?://[^\"' )]*", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<link|<img|<iframe|@import|url\(|\ssrc=|\shref=", page)


def test_no_script_runs_but_the_pages_own() -> None:
    page = html("alone", [curve("jwins"), curve("choco")])
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert page.count("<script") == len(script) == 1
    digest = b64encode(sha256(script[0].encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert f"script-src 'sha256-{digest}';" in policy[1]
    assert "connect-src 'none'" in policy[1]


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
        assert len(drawings(page)) >= 6
    assert tags.count("script") == 2  # each page's own
    assert "b" not in tags


def test_the_table_says_every_figure_of_one_run() -> None:
    run = curve()
    run.result["accuracy_of_mean_model"] = 0.834
    page = html("A run", [run])
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page.split("<tbody>")[1].split("</tbody>")[0])
    assert cells == ["81.2%", "75.0% – 87.5%", "83.4%", "48.0 MB", "12.0 MB", "60.0 MB", "37.2%", "20.0 s"]
    about = "4 nodes trained digits for 40 rounds; data spread as iid; topology regular (degree 3); seed 1."
    assert about in page


def test_what_an_experiment_says_of_itself_stands_at_the_top() -> None:
    chosen = curve("lace")
    chosen.experiment["note"] = "auto chose lace <b>"
    assert "<p>auto chose lace &lt;b&gt;.</p>" in html("one", [chosen])
    assert "<p>lace: auto chose lace &lt;b&gt;.</p>" in html("two", [chosen, curve("jwins")])


def test_bytes_that_were_told_again_have_a_column_where_there_are_any() -> None:
    plain, lossy = curve("jwins"), curve("silk")
    assert ">resent<" not in html("One", [plain])
    lossy.result["bytes_resync"] = 7_000_000
    page = html("Two", [plain, lossy])
    assert ">resent<" in page
    table = page[page.index('<table class="results"') : page.index("</table>")]
    heads, *rows = [re.findall(r"<t[dh]", row) for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)[1:]]
    assert {len(row) for row in rows} == {len(heads)}
    assert table.count(">–</td>") == 1  # of the run that had none
    assert ">7.00 MB</td>" in table


def test_every_label_is_in_the_table_and_at_its_line() -> None:
    page = html("Two", [curve("jwins"), curve("choco")])
    for label in ("jwins", "choco"):
        assert f"</span>{label}</th>" in page
        charts = [svg for svg in drawings(page) if svg.get("class") == "chart"]
        assert len(charts) == 6
        assert all(label in [text.text for text in svg.iter(f"{SVG}text")] for svg in charts)


def test_one_seed_has_a_band_over_nodes_and_its_line_says_every_value() -> None:
    page = html("One", [curve()])
    by_round, by_bytes, *_ = drawings(page)
    assert len(drawn(by_round, "band")) == len(drawn(by_round, "line")) == 1
    [line] = drawn(by_round, "line")
    assert line.get("data-at") == "5;10;15;20;25;30;35;40"
    assert str(line.get("data-is")).startswith("80.5%;85.3%;")
    assert len(str(line.get("d")).split("L")) == 8
    assert drawn(by_bytes, "line")[0].findtext(f"{SVG}title") == "jwins, 15.0 MB sent per node: 88.9%"
    assert "range over nodes" in page


def test_seeds_of_a_label_are_one_line_at_their_mean_and_one_row_with_their_deviation() -> None:
    runs = [curve(seed=seed) for seed in (10, 20, 60)]
    for shift, run in enumerate(runs):
        run.result["accuracy_mean"] = 0.80 + 0.02 * shift
    page = html("Seeds", runs)
    svg = drawings(page)[0]
    assert len(drawn(svg, "line")) == len(drawn(svg, "band")) == 1
    assert str(drawn(svg, "line")[0].get("data-is")).startswith("83.4%;")
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


def test_labels_are_cut_to_different_texts() -> None:
    long = [f"jwins, budget 0.37, learning rate 0.05, degree {degree}" for degree in range(20)]
    same = [f"{'x' * 40}{number}{'y' * 40}" for number in range(30)]
    for labels in (long, same, ["a", "b"], [long[0], "jwins"]):
        found = tags(labels)
        assert len(set(found.values())) == len(labels)
        assert all(len(tag) <= 16 for tag in found.values())
    assert tags([f"jwins, budget 0.{n}, drop 0.0" for n in (1, 2)])["jwins, budget 0.1, drop 0.0"] == "jwins 0.1 0.0"


def test_seconds_and_energy_are_axes_where_runs_have_them() -> None:
    plain, clocked = curve(), curve()
    for line in clocked.metrics:
        line |= {"clock_seconds": 2.5 * line["round"], "energy_joules_mean": 0.5 * line["round"]}
    assert "virtual time" not in html("t", [plain])
    page = html("t", [clocked])
    said = [line.get("data-at", "").split(";")[-1] for svg in drawings(page) for line in drawn(svg, "line")]
    assert {"40", "15.0 MB", "100.0 s", "20 J", "6.8 min"} <= set(said)  # the last on this machine


def test_the_unbeaten_runs_are_joined() -> None:
    cheap, dear, beaten = curve("cheap"), curve("dear"), curve("beaten")
    cheap.result.update({"bytes_total": 4e6, "accuracy_mean": 0.7})
    dear.result.update({"bytes_total": 40e6, "accuracy_mean": 0.9})
    beaten.result.update({"bytes_total": 50e6, "accuracy_mean": 0.8})
    [pareto] = [svg for svg in drawings(html("t", [dear, beaten, cheap])) if drawn(svg, "front")]
    assert str(pareto.get("aria-label")).endswith("Unbeaten: dear; cheap.")
    assert str(drawn(pareto, "front")[0].get("d")).count("L") == 1
    assert "Accuracy against bytes" not in html("t", [dear])


def test_before_and_after_settling_stand_side_by_side() -> None:
    settled = curve()
    settled.result["accuracy_mean_before_settle"] = 0.5
    assert "before and after settling" not in html("t", [curve()])
    assert "50.0% → 81.2%" in html("t", [settled])


def test_nodes_are_drawn_with_their_accuracy_and_data() -> None:
    nodes = Nodes(((0, 1), (1, 2), (2, 3), (0, 3)), samples=(10, 20, 30, 40), labels=(3, 5), counts=((10, 0),) * 4)
    run = curve()._replace(nodes=nodes)
    for line in run.metrics[4::5]:
        line["accuracy_by_node"] = {str(node): line["accuracy_mean"] + node / 100 for node in range(4)}
    page = html("t", [run])
    graph = next(svg for svg in drawings(page) if svg.get("class") == "graph")
    told = [node.findtext(f"{SVG}title") for node in drawn(graph, "node")]
    assert told == [f"node {n}: {88.9 + n:.1f}%, {10 + 10 * n} samples, labels 3 (10)" for n in range(4)]
    map = next(svg for svg in drawings(page) if svg.get("class") == "map")
    assert drawn(map, "area")[0].findtext(f"{SVG}title") == "node 0, samples by label: 3: 10"
    assert "88.9% to 91.9%, worst tenth 88.9%" in page  # the spread over nodes
    assert "jwins: the curve of each node" in page
    assert "Graph" not in html("t", [curve()])


def test_damaged_values_of_nodes_are_left_out() -> None:
    run = curve()
    run.metrics[9]["accuracy_by_node"] = {"x": 1, "0": nan, "1": "<b>", "-1": 3, "2": 0.5}
    run.metrics[14]["accuracy_by_node"] = [1, 2]
    assert html("t", [run._replace(nodes=Nodes(((0, 9),), counts=((1,),) * 3, labels=(7,)))]).endswith("</html>\n")


def test_what_faults_did_is_told_and_drawn() -> None:
    lossy = curve()
    for line in lossy.metrics:
        line |= {"messages_sent": 8, "messages_lost": 2, "messages_late": 0, "nodes_away": 1}
    lossy.result.update({"messages_sent": 320, "messages_lost": 80, "messages_late": 0, "bytes_resync": 5000})
    assert "Faults" not in html("t", [curve()])
    page = html("t", [lossy])
    assert "25.0% of 320 messages were lost, 0.0% came late, 5.00 kB were resent." in page
    assert "Messages that did not arrive" in page
    assert "Nodes away" in page


def test_twenty_runs_of_a_hundred_nodes_are_less_than_a_megabyte() -> None:
    links = tuple((node, (node + step) % 96) for node in range(96) for step in (1, 7))
    runs = []
    for number in range(20):
        run = curve(f"jwins, budget {number}", rounds=1000, every=10)
        for line in run.metrics[9::10]:
            line["accuracy_by_node"] = {str(node): line["accuracy_mean"] + node / 1000 for node in range(96)}
            line["clock_seconds"] = line["energy_joules_mean"] = line["round"] / 3
        counts = tuple(tuple((node * label + number) % 50 for label in range(10)) for node in range(96))
        runs.append(run._replace(nodes=Nodes(links, samples=(500,) * 96, labels=tuple(range(10)), counts=counts)))
    assert len(html("t", runs).encode()) < 1_000_000


def contrast(one: str, other: str) -> float:
    """As WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def test_text_and_lines_stand_out_in_light_and_dark() -> None:
    style = html("t", []).split("<style>")[1]
    for theme in style.split(":root")[1:3]:
        found = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", theme))
        assert contrast(found["ink"], found["page"]) > 7
        assert contrast(found["muted"], found["page"]) > 4.5
        assert all(contrast(found[f"s{index}"], found["page"]) > 3 for index in range(7))
