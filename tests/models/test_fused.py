"""Fused layers compute what the plain ones do, but for the last bits, and the same in any number of processes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gossamer
from gossamer import Experiment
from gossamer.data import Quadratic, Supervised
from gossamer.experiments.experiment import ExperimentError
from gossamer.models import GnLeNet, ResNet20
from gossamer.models.fused.chain import Chain
from gossamer.models.fused.layers import ConvNormPool, FastEvoNormS0, to_fast
from gossamer.models.norms import EvoNormS0
from gossamer.training.trainer import FusedTrainer, loss_and_gradient, trainer_for


def group(bias: bool = True, relu_first: bool = False) -> list[nn.Module]:
    last = [nn.ReLU(), nn.MaxPool2d(2)] if relu_first else [nn.MaxPool2d(2, 2), nn.ReLU()]
    return [nn.Conv2d(3, 4, 3, padding=1, bias=bias), nn.GroupNorm(2, 4), *last]


def scrambled(module: nn.Module) -> nn.Module:
    """With parameters of either sign everywhere: gains of 1 and shifts of 0 hide mistakes."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def images(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)).to(dtype)


def output_and_gradients(module: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = module(x)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    return [out, *torch.autograd.grad((out * weights).sum(), [x, *module.parameters()])]


def task(model: object) -> Supervised:
    data = images(120, 3, 16, 16), torch.arange(120) % 10
    return Supervised(lambda: model.build((3, 16, 16), 10), data, data)


@pytest.mark.parametrize("bias", [pytest.param(True, marks=pytest.mark.slow), False])
def test_the_gradients_of_convolution_norm_and_pooling_in_one_are_right(bias: bool) -> None:
    layer = to_fast(scrambled(nn.Sequential(*group(bias))).double())
    names, parameters = zip(*layer.named_parameters(), strict=True)
    assert isinstance(layer[0], ConvNormPool)

    def run(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    given = images(2, 3, 6, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(run, (given, *(2 * p.detach().requires_grad_() for p in parameters)))


def test_the_gradients_of_the_fused_evonorm_are_right() -> None:
    layer = to_fast(EvoNormS0(4))
    assert isinstance(layer, FastEvoNormS0)
    given = [images(2, 4, 3, 3, dtype=torch.float64), *images(3, 4, dtype=torch.float64)]
    assert torch.autograd.gradcheck(layer.formula, [tensor.requires_grad_() for tensor in given])


@pytest.mark.parametrize("relu_first", [True, False])
@pytest.mark.parametrize("shape", [(5, 3, 12, 8), (2, 3, 7, 8)], ids=["even sides", "an odd side"])
def test_fused_layers_do_what_the_plain_ones_do(relu_first: bool, shape: tuple[int, ...]) -> None:
    plain = scrambled(nn.Sequential(*group(relu_first=relu_first), EvoNormS0(4)))
    for fused, plain_one in zip(
        output_and_gradients(to_fast(plain), images(*shape)), output_and_gradients(plain, images(*shape)), strict=True
    ):
        torch.testing.assert_close(fused, plain_one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        lambda layers: layers.__setitem__(2, nn.MaxPool2d(3)),
        lambda layers: layers.__setitem__(2, nn.AvgPool2d(2)),
        lambda layers: layers.__setitem__(1, nn.GroupNorm(2, 4, affine=False)),
        lambda layers: layers.__setitem__(3, nn.Tanh()),
        lambda layers: layers.__setitem__(0, nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")),
    ],
)
def test_other_layers_in_a_row_are_left_alone(change: object) -> None:
    layers = group()
    change(layers)
    assert not any(isinstance(layer, ConvNormPool) for layer in to_fast(nn.Sequential(*layers)).modules())


@pytest.mark.parametrize("model", [GnLeNet(), ResNet20()], ids=["gn-lenet", "resnet20"])
def test_a_fast_model_has_the_same_start_and_nearly_the_same_gradients(model: object) -> None:
    plain = task(model).load()
    fast = plain.with_fused_layers()
    x = plain.initial_model(0)[None]
    assert torch.equal(x, fast.initial_model(0)[None])
    samples = [np.arange(8)]
    (loss, gradient), (fused_loss, fused_gradient) = plain.gradient(x, samples, [0]), fast.gradient(x, samples, [0])
    assert not torch.equal(gradient, fused_gradient)
    torch.testing.assert_close(fused_loss, loss, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fused_gradient, gradient, rtol=1e-3, atol=1e-5 * gradient.abs().max().item())
    test = np.arange(100)
    assert fast.evaluate(x[0], test)[0] == pytest.approx(plain.evaluate(x[0], test)[0], rel=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_a_chain_by_hand_has_the_gradients_that_autograd_finds(bias: bool) -> None:
    relu = nn.ReLU()
    hidden = nn.Sequential(
        nn.Flatten(), nn.Linear(16, 5), relu, nn.Linear(5, 5), relu, nn.Linear(5, 3, bias=False)
    )  # one object twice
    module = to_fast(scrambled(nn.Sequential(*group(bias), hidden)))
    chain, parameters = Chain.of(module), list(module.parameters())
    assert chain is not None
    model = torch.cat([parameter.detach().flatten() for parameter in parameters])
    targets = torch.arange(6) % 3

    def of(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)

    def loss(outputs: Tensor) -> tuple[Tensor, Tensor]:
        return loss_and_gradient(of, outputs, targets)

    for x in (images(6, 3, 4, 4), 2 * images(6, 3, 4, 4) - 1):  # what the first leaves behind does not matter
        by_hand = torch.full_like(model, torch.nan)
        found = chain.gradient(model, x, loss, by_hand)
        value = of(module(x), targets)
        torch.testing.assert_close(found, value.detach())
        gradient = torch.cat([each.flatten() for each in torch.autograd.grad(value, parameters)])
        torch.testing.assert_close(by_hand, gradient, rtol=1e-5, atol=1e-6)
    assert chain.gradient(model, images(6, 3, 5, 4), loss, by_hand) is None


@pytest.mark.parametrize("bias", [True, False])
def test_a_dense_layer_and_cross_entropy_in_one_have_the_gradients_that_autograd_finds(bias: bool) -> None:
    module = to_fast(scrambled(nn.Sequential(*group(), nn.Flatten(), nn.Linear(16, 5, bias=bias))))
    chain, parameters = Chain.of(module), list(module.parameters())
    assert chain is not None
    model, x, targets = torch.cat([p.detach().flatten() for p in parameters]), images(6, 3, 4, 4), torch.arange(6) % 5
    by_hand = torch.full_like(model, torch.nan)
    found = chain.gradient(model, x, None, by_hand, targets)
    value = nn.functional.cross_entropy(module(x), targets)
    assert found == pytest.approx(value.item(), rel=1e-5)
    gradient = torch.cat([each.flatten() for each in torch.autograd.grad(value, parameters)])
    torch.testing.assert_close(by_hand, gradient, rtol=1e-5, atol=1e-6)
    for wrong in (-1, 5):
        with pytest.raises(IndexError, match="a target is not one of the classes"):
            chain.gradient(model, x, None, by_hand, torch.full((6,), wrong))


def test_outputs_that_are_not_finite_give_a_loss_that_is_not() -> None:
    module = to_fast(nn.Sequential(*group(), nn.Flatten(), nn.Linear(16, 5)))
    chain = Chain.of(module)
    assert chain is not None
    model = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    model[-1] = torch.inf
    assert not np.isfinite(chain.gradient(model, images(2, 3, 4, 4), None, model.clone(), torch.tensor([0, 1])))


@pytest.mark.parametrize("fast", [True, False])
def test_steps_in_place_are_those_of_the_gradient(fast: bool) -> None:
    quick = task(GnLeNet()).load()
    quick = quick.with_fused_layers() if fast else quick
    trainer, buffers = trainer_for(quick, "rows", nodes=2), torch.empty(2, 0)
    assert isinstance(trainer, FusedTrainer) == fast
    start, samples = quick.initial_model(0).repeat(2, 1), [np.arange(4), np.arange(4, 8)]
    losses, gradient = trainer.gradient(start, samples, [0, 0], buffers)
    models = start.clone()
    assert torch.equal(trainer.sgd_step_(models, samples, [0, 0], buffers, 0.1), losses)
    torch.testing.assert_close(models, start - 0.1 * gradient, rtol=0, atol=1e-7)


def test_what_is_random_in_preparing_images_belongs_to_the_node() -> None:
    def noisy(x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn(x.shape)

    experiment = Experiment(task=replace(task(GnLeNet()), prepare=noisy), nodes=5, rounds=2, batch_size=4, fast=True)
    one, three = (gossamer.simulate(experiment, workers=workers).models for workers in (1, 3))
    assert torch.equal(one, three)


def test_targets_that_cross_entropy_leaves_out_are_left_out_by_fast_models_too() -> None:
    plain = task(GnLeNet())
    plain.train[1][::3] = -100
    plain = plain.load()
    x, samples = plain.initial_model(0)[None], np.arange(6)[None]
    (loss, gradient), (fast_loss, fast) = (
        trainer_for(each, "rows", nodes=1).gradient(x, samples, [0], torch.empty(1, 0))
        for each in (plain, plain.with_fused_layers())
    )
    torch.testing.assert_close(fast_loss, loss)
    torch.testing.assert_close(fast, gradient, rtol=1e-4, atol=1e-6)


def test_only_chains_of_known_layers_are_done_by_hand() -> None:
    tied = nn.Linear(5, 5)
    assert Chain.of(to_fast(nn.Sequential(*group(), nn.Flatten(), nn.Linear(16, 5), tied, tied))) is None
    assert Chain.of(to_fast(nn.Sequential(*group(), nn.Flatten(), nn.Dropout()))) is None
    assert Chain.of(to_fast(nn.Sequential(*group(), nn.Linear(2, 5), nn.Flatten()))) is None  # a line of pixels each
    assert Chain.of(to_fast(nn.Sequential(*group(), nn.Flatten(2)))) is None
    assert Chain.of(to_fast(nn.Sequential(EvoNormS0(4)))) is None
    assert Chain.of(to_fast(nn.Sequential(*group(), nn.Flatten(), nn.Linear(16, 5)))) is not None


@pytest.mark.parametrize("model", [GnLeNet(), GnLeNet(norm="evonorm-s0")], ids=["group", "evonorm"])
def test_a_fast_run_is_the_same_in_any_number_of_workers_and_near_the_plain_one(model: object) -> None:
    experiment = Experiment(task=task(model), nodes=5, rounds=2, batch_size=4, fast=True)
    one, three = (gossamer.simulate(experiment, workers=workers).models for workers in (1, 3))
    assert torch.equal(one, three)
    plain = gossamer.simulate(replace(experiment, fast=False), workers=1).models
    assert not torch.equal(one, plain)
    torch.testing.assert_close(one, plain, rtol=1e-3, atol=1e-4)


def test_fast_is_refused_where_there_is_no_choice_of_it() -> None:
    with pytest.raises(ExperimentError, match="fast: True was given, and task Quadratic has no choice of it"):
        Experiment(task=Quadratic(), fast=True).load_task()
    experiment = Experiment(task=task(GnLeNet()), fast=True, strategy="vmap")
    fused = experiment.load_task()
    with pytest.raises(ExperimentError, match="strategy: 'vmap' was given, and for it there must be no fast layers"):
        experiment.trainer_for(fused)
