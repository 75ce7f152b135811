"""The graph and the data of nodes, as a run keeps them for its report."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gossamer.experiments.experiment import Experiment
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import DirectedRing, Matchings, Ring
from gossamer.runs import nodes
from gossamer.runs.nodes import Nodes
from gossamer.simulator.simulate import simulate


def test_the_graph_is_that_of_the_topology_each_link_once() -> None:
    ring = Nodes.linked(Experiment(nodes=5, topology=Ring()))
    assert set(ring.links) == {(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)}
    assert (ring.directed, ring.exchanges) == (False, 1)
    directed = Nodes.linked(Experiment(nodes=3, topology=DirectedRing()))
    assert directed.directed
    assert len(directed.links) == 3


def test_links_of_a_graph_that_changes_are_those_of_a_period() -> None:
    experiment = Experiment(nodes=4, topology=Matchings(), rounds=50)
    found = Nodes.linked(experiment)
    assert found.exchanges == experiment.topology.period(4, experiment.seed) > 1
    every = {
        (min(a, b), max(a, b))
        for round in range(found.exchanges)
        for mixing in [experiment.topology.at(4, experiment.seed, round)]
        for a, b in zip(mixing.senders.tolist(), mixing.receivers.tolist(), strict=True)
        if a != b
    }
    assert set(found.links) == every


def test_labels_are_counted_by_node() -> None:
    labels = np.array([7, 7, 3, 9, 3, 3])
    shards = [np.array([0, 1, 2]), np.array([3, 4, 5])]
    found = Nodes.of(Experiment(nodes=2, topology=Ring()), shards, labels)
    assert found.labels == (3, 7, 9)
    assert found.counts == ((1, 2, 0), (2, 0, 1))
    assert found.samples == (3, 3)


def test_a_run_keeps_its_nodes_and_what_each_measured(tmp_path: Path) -> None:
    experiment = Experiment(nodes=6, topology=Ring(), rounds=2, faults=Faults(drop=0.3, down=((1, 1, 1),)))
    run = simulate(experiment, tmp_path / "run", workers=1)
    kept = nodes.load(tmp_path / "run", None)
    assert sum(map(sum, kept.counts)) == sum(kept.samples) == experiment.task.load().num_samples
    last = run.metrics[-1]
    by_node = last["accuracy_by_node"]
    assert len(by_node) == last["tested_nodes"]
    assert sum(by_node.values()) / len(by_node) == pytest.approx(last["accuracy_mean"], abs=1e-12)
    assert min(by_node.values()) == last["accuracy_min"]
    assert "accuracy_by_node" not in run.result
    lost = [len(experiment.delivery.lost(exchange).senders) for exchange in range(2)]
    assert [row["messages_lost"] for row in run.metrics] == lost
    assert run.result["messages_lost"] == sum(lost) > 0
    assert [row["nodes_away"] for row in run.metrics] == [6 - int(experiment.delivery.up(t).sum()) for t in range(2)]
    assert "messages_lost" not in simulate(replace(experiment, faults=Faults(), rounds=1), workers=1).result


def test_a_damaged_file_is_a_picture_less_and_no_error(tmp_path: Path) -> None:
    experiment = Experiment(nodes=4, topology=Ring())
    for text in (
        "",
        "[",
        '{"links": [["a", 1]]}',
        '{"labels": [1, 2], "counts": [[1]]}',
        '{"links": 3}',
        '{"links": [[-1, 2]]}',
        '{"samples": [-4]}',
    ):
        (tmp_path / nodes.NAME).write_text(text)
        assert nodes.load(tmp_path, None) == Nodes()
        assert len(nodes.load(tmp_path, experiment).links) == 4
