"""A task of one's own: what must be defined, and what need not be."""

from dataclasses import replace

import pytest
import torch

import gossamer as gs
from contract import QUADRATIC
from gossamer.data import Quadratic


class Bare(gs.Task):
    """A user's task that defines nothing yet."""

    def load(self) -> gs.Task:
        return self


def test_what_is_not_defined_has_a_default_or_is_named() -> None:
    assert Bare().labels is None
    assert Bare().clients is None
    assert Bare().buffers.shape == (0,)
    for name in ("metric", "layer_sizes", "num_samples", "num_test_samples"):
        with pytest.raises(NotImplementedError, match=f"^Bare must define {name}$"):
            getattr(Bare(), name)
    for name, arguments in (("initial_model", [0]), ("gradient", [None] * 4), ("evaluate", [None] * 3)):
        with pytest.raises(NotImplementedError, match=f"^Bare must define {name}$"):
            getattr(Bare(), name)(*arguments)


def test_a_task_that_defines_what_it_must_runs() -> None:
    class Least(Bare):
        metric, layer_sizes, num_samples, num_test_samples = "distance", (50,), 960, 960
        initial_model, gradient, evaluate = (
            getattr(Quadratic(), name) for name in ("initial_model", "gradient", "evaluate")
        )

    experiment = replace(QUADRATIC, partition=gs.Iid(), rounds=2)
    models = [gs.simulate(replace(experiment, task=task), workers=1).models for task in (Least(), Quadratic())]
    assert torch.equal(*models)


def test_what_is_no_task_and_no_experiment_is_refused_in_a_sentence() -> None:
    class Three:
        def load(self) -> int:
            return 3

    with pytest.raises(gs.ExperimentError, match=r"^task: Three.load\(\) must return a gs.Task, 3 was given$"):
        gs.simulate(replace(QUADRATIC, task=Three()))
    with pytest.raises(gs.ExperimentError, match=r"^simulate takes an Experiment, 'jwins-digits' was given; recipes"):
        gs.simulate("jwins-digits")
