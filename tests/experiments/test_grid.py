"""Many experiments from one: grids of settings, from options, from a sweep file, and in Python."""

from pathlib import Path

import pytest

import gossamer as gs
from gossamer import ExperimentError
from gossamer.experiments import grid, recipes, sweep_file, toml

BASE = recipes.jwins_digits()


def test_a_grid_is_every_combination_under_a_name_that_tells_what_is_special() -> None:
    found = gs.grid(BASE, {"algorithm.name": ["jwins", "silk"], "optimizer.learning_rate": [0.1, 0.2]})
    assert list(found) == [
        "jwins, learning_rate=0.1",
        "jwins, learning_rate=0.2",
        "silk, learning_rate=0.1",
        "silk, learning_rate=0.2",
    ]
    last = found["silk, learning_rate=0.2"]
    assert (last.algorithm, last.optimizer.learning_rate, last.nodes) == (gs.Silk(), 0.2, 16)


def test_names_are_set_first_in_whatever_order_keys_stand() -> None:
    axes = {"algorithm.compressor.fraction": [0.1], "algorithm.compressor.name": ["top-k"], "algorithm.name": ["choco"]}
    (found,) = gs.grid(BASE, axes).values()
    assert found.algorithm == gs.Choco(gs.TopK(0.1))


def test_of_several_grids_all_are_taken() -> None:
    first = {"algorithm.budget": [0.1, 0.2]}
    found = gs.grid(BASE, [first, {"algorithm.name": ["silk"], "algorithm.kept": [0.3]}])
    assert list(found) == ["budget=0.1", "budget=0.2", "silk, kept=0.3"]


def test_a_whole_section_is_a_value_too() -> None:
    key, values = grid.parse('algorithm={name="jwins", budget=0.1},silk')
    found = gs.grid(BASE, {key: values})
    assert list(found) == ["jwins(budget=0.1)", "silk"]
    assert [e.algorithm for e in found.values()] == [gs.Jwins(budget=0.1), gs.Silk()]


def test_values_of_an_option_are_toml_or_bare_words_between_commas() -> None:
    assert grid.parse("a.b=1, 0.5,jwins,true") == ("a.b", [1, 0.5, "jwins", True])
    assert grid.parse("""a=[1,2],"x,y",{b=1,c=[2]}""") == ("a", [[1, 2], "x,y", {"b": 1, "c": [2]}])


@pytest.mark.parametrize("option", ["a", "=1", "a=", "a=1,,2", "a..b=1", "a=1\nb=2"])
def test_an_option_that_is_no_grid_is_refused(option: str) -> None:
    with pytest.raises(ExperimentError, match=r"^--grid .*: write it as key=value,value,\.\.\. such as"):
        grid.parse(option)


REFUSED = {
    "a key of another algorithm": (
        {"algorithm.budget": [0.1], "algorithm.name": ["silk"]},
        "^algorithm.budget=0.1, algorithm.name=silk: algorithm.budget: there is no such key; 'silk' takes .*"
        "; --skip-invalid leaves such settings out$",
    ),
    "a value that cannot be": ({"nodes": [0, 8]}, "^nodes=0: nodes must be at least 1, 0 was given"),
    "the same twice": ({"nodes": [8, 8]}, "^nodes=8: it is the same experiment as nodes=8;"),
    "seeds": ({"seed": [1, 2]}, "^seed: a grid has none, since the seeds of a sweep are given apart, by --seeds$"),
    "no list": ({"nodes": 8}, "^nodes: 8 was given, a list of values is needed$"),
    "no values": ({"nodes": []}, r"^nodes: \[\] was given, a list of values is needed$"),
    "no section": ({"nodes.x": [1]}, "^nodes.x=1: nodes.x: nodes is a value, not a section"),
}


@pytest.mark.parametrize(("axes", "told"), REFUSED.values(), ids=REFUSED)
def test_a_combination_that_cannot_work_is_named(axes: dict, told: str) -> None:
    with pytest.raises(ExperimentError, match=told):
        gs.grid(BASE, axes)


def test_combinations_that_cannot_work_can_be_left_out() -> None:
    axes = {"algorithm.name": ["jwins", "silk"], "algorithm.budget": [0.1, 0.2]}
    assert list(gs.grid(BASE, axes, skip_invalid=True)) == ["jwins, budget=0.1", "jwins, budget=0.2"]
    with pytest.raises(ExperimentError, match="no combination of the grid is left"):
        gs.grid(BASE, {"nodes": [0]}, skip_invalid=True)


def test_an_experiment_with_classes_of_the_users_own_has_no_grid() -> None:
    class Own(gs.Dpsgd):
        pass

    with pytest.raises(ExperimentError, match="this one has classes of your own"):
        gs.grid(gs.Experiment(algorithm=Own()), {"nodes": [4]})


def test_a_sweep_file_has_a_base_settings_of_all_and_grids(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        'base = "jwins-digits"\nseeds = [3, 4]\nset.algorithm.budget = 0.5\nset.algorithm.name = "jwins"\n'
        'set.rounds = 7\n[[grid]]\nalgorithm.budget = [0.1, 0.2]\n[[grid]]\n"algorithm.name" = "silk"\nnodes = [8]\n'
    )
    file = sweep_file.load(path)
    document = toml.write(BASE)
    file.apply_settings(document)
    assert (document["rounds"], document["algorithm"]["budget"], file.seeds) == (7, 0.5, [3, 4])
    assert list(grid.experiments(document, file.grids)) == ["budget=0.1", "budget=0.2", "silk, nodes=8"]
    file = sweep_file.SweepFile("choco", {"algorithm": {"compressor": {"name": "sign"}, "name": "choco"}})
    file.apply_settings(document)
    assert document["algorithm"]["compressor"]["name"] == "sign", "an outer name is set before inner ones"
    assert sweep_file.is_sweep_file(toml.load(path))
    assert not sweep_file.is_sweep_file(toml.write(BASE))


@pytest.mark.parametrize("text", ["grid.nodes = [1]", 'base = "x"\nseed = 3', 'base = "x"\nseeds = "many"'])
def test_a_sweep_file_that_is_none_is_refused_with_what_it_may_have(text: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises(ExperimentError, match=r"; a sweep file has base, set, grid, seeds and baseline$"):
        sweep_file.load(path)
