"""What an algorithm declares, be it of a user's own, and how wrappers and aliases pass it on."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from contract import QUADRATIC, SOME, simulated
from gossamer.algorithms import (
    ALGORITHMS,
    D2,
    Choco,
    DeepSqueeze,
    Dpsgd,
    EcdPsgd,
    Jwins,
    Momentum,
    PushSum,
    QuantSgp,
    QuasiGlobalMomentum,
    RelativeToInit,
    Scsp,
    Sgp,
    Silk,
    SkewScout,
    SparsePush,
    Wrapper,
)
from gossamer.compressors import TopK
from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Round
from gossamer.experiments.experiment import ExperimentError
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import DirectedRing, Ring
from gossamer.simulator.simulate import simulate
from gossamer.training.block import NodeError


class OwnState(NamedTuple):
    x: Tensor


class Own(Algorithm):
    """A user's averaging that declares nothing but its parts: all models are 1, and no gradient moves them."""

    parts = {"x": PartSpec()}

    def init(self, x0: Tensor) -> OwnState:
        return OwnState(torch.ones_like(x0))

    def local_step(self, state: OwnState, gradient: Tensor, round: Round) -> OwnState:
        return state

    def send(self, state: OwnState, round: Round) -> tuple[Message, OwnState]:
        return {"x": Part(state.x)}, state

    def receive(self, state: OwnState, inbox: Inbox, round: Round) -> OwnState:
        return OwnState(inbox.sum("x"))


class OwnMass(Own):
    on_missing = "lose_mass"


def test_an_algorithm_of_ones_own_keeps_its_models_scale_when_messages_are_lost() -> None:
    lossy = replace(QUADRATIC, topology=Ring(), faults=Faults(drop=0.3))
    models = simulated(replace(lossy, algorithm=Own()))
    torch.testing.assert_close(models, torch.ones_like(models), atol=1e-6, rtol=0)
    assert simulated(replace(lossy, algorithm=OwnMass())).max() < 0.9  # what push-sum needs, with its weights


def test_an_algorithm_of_ones_own_need_not_require_anything() -> None:
    assert Own().requires == frozenset()
    simulated(replace(QUADRATIC, algorithm=Own(), topology=DirectedRing(), rounds=1))


def test_what_is_declared_wrongly_is_refused() -> None:
    class Unknown(Own):
        on_missing = "forget"

    class Weights(Own):
        parts = {"x": PartSpec(push_sum_weight=True)}

    with pytest.raises(ExperimentError, match='it must be "keep_own" or "lose_mass"'):
        simulated(replace(QUADRATIC, algorithm=Unknown()))
    with pytest.raises(ExperimentError, match='declare on_missing = "lose_mass"'):
        simulated(replace(QUADRATIC, algorithm=Weights()))


@pytest.mark.parametrize("wrap", [Momentum, QuasiGlobalMomentum, RelativeToInit])
def test_a_wrapper_declares_what_its_inner_algorithm_declares(wrap: type[Wrapper]) -> None:
    scsp, scout = wrap(Scsp(SOME, full_rounds=4)), wrap(SkewScout())
    assert (scsp.on_missing, scsp.final_rounds, scsp.averages) == ("lose_mass", 4, True)
    assert scsp.requires == {"column_stochastic"}
    assert list(scsp.parts) == ["v", "u"]
    assert scout.tries_models
    assert (scout.on_missing, scout.final_rounds, scout.averages) == ("keep_own", 0, False)


@pytest.mark.parametrize("algorithm", [Sgp(), SparsePush(), Scsp(), QuantSgp(), Silk(), RelativeToInit(Sgp())])
def test_preparing_puts_compositions_in_the_place_of_their_names(algorithm: Algorithm) -> None:
    prepared = algorithm.prepare(Ring().at(8, 0, 0), (100,))
    assert prepared.parts.keys() == algorithm.parts.keys()
    while isinstance(prepared, Wrapper):
        prepared = prepared.inner
    assert type(prepared) in (Dpsgd, DeepSqueeze, Choco)


@pytest.mark.parametrize("inner", [Jwins(), RelativeToInit(Dpsgd()), Sgp(), Silk(), D2(), Momentum(Dpsgd())])
def test_push_sum_takes_only_what_it_can_make_right(inner: Algorithm) -> None:
    with pytest.raises(ValueError, match="inner must be an algorithm that averages and wraps no other"):
        PushSum(inner)


def test_wrapped_centralized_training_is_centralized_too() -> None:
    central = ALGORITHMS["centralized"]()
    for wrapped in (RelativeToInit(central), Momentum(central, 0.0), QuasiGlobalMomentum(central, 0.0)):
        assert wrapped.pools_data
        models = simulated(replace(QUADRATIC, algorithm=wrapped, rounds=2))
        torch.testing.assert_close(models, simulated(replace(QUADRATIC, algorithm=central, rounds=2)))


@pytest.mark.parametrize("kind", [Momentum, QuasiGlobalMomentum])
def test_weights_decay_towards_nothing_but_zero(kind: type[Momentum]) -> None:
    with pytest.raises(ValueError, match="inside RelativeToInit would decay the weights towards the initial model"):
        RelativeToInit(kind(Dpsgd(), weight_decay=0.1))
    RelativeToInit(kind(Dpsgd()))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Choco("top-k"),
            "compressor must be an instance of Compressor such as TopK(fraction=0.1), 'top-k' was given",
        ),
        (lambda: Choco(TopK), "compressor must be an instance, the class TopK was given; write TopK(...)"),
        (lambda: SparsePush(transform="wavelet"), "transform must be an instance of Transform such as Identity(), "),
        (lambda: EcdPsgd(None), "compressor must be an instance of Compressor such as Qsgd("),
        (lambda: Momentum(Dpsgd), "inner must be an instance, the class Dpsgd was given; write Dpsgd(...)"),
        (lambda: PushSum("dpsgd"), "inner must be an instance of Algorithm, 'dpsgd' was given"),
        (lambda: Jwins(budget="a"), "budget must be a number or None, 'a' was given"),
        (lambda: Choco(rate="fast"), 'rate must be over 0 and at most 1, "table" or "auto", \'fast\' was given'),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused_in_a_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(sentence)):
        make()


@pytest.mark.parametrize("workers", [1, 2])
def test_messages_and_states_that_are_none_are_told_in_a_sentence(workers: int) -> None:
    class Silent(Own):
        def send(self, state: OwnState, round: Round) -> tuple[Message, OwnState]:
            return {}, state

    class Unmarked(Own):
        parts = {"x": PartSpec(sparse=True)}

    class Bare(Own):
        def init(self, x0: Tensor) -> Tensor:
            return x0

    for algorithm, error, sentence in (
        (Silent(), NodeError, "^send returned no part 'x', which parts declares$"),
        (Unmarked(), NodeError, "^part 'x' is sparse, and its Part has no `sent`; make it with gs.sparse_part"),
        (Bare(), ValueError, "^init must return a NamedTuple, Tensor was given$"),
    ):
        with pytest.raises(error, match=sentence):
            simulate(replace(QUADRATIC, algorithm=algorithm), workers=workers)
