"""Training in eight bits: each layer against a slow reference of its own, and whole models."""

import copy
from collections.abc import Callable, Iterator

import low_precision_twins as twins
import numpy as np
import pytest
import torch
from test_models import SMALL, built
from torch import Tensor, nn
from torch.nn import functional

from gossamer import Experiment, Supervised, simulate
from gossamer.data import Digits
from gossamer.graphs.topologies import Ring
from gossamer.models import MODELS
from gossamer.models.low_precision import LAYERS, products, to_int8
from gossamer.models.low_precision.rounding import quantize_activations, quantize_weights
from gossamer.models.norms import EvoNormS0, RangeBatchNorm, RangeEvoNorm
from gossamer.models.resnet import Sum


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tests run side by side; small products only wait for each other's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# The reference: NumPy's twins for rounding, float64 and central differences for everything else.


def coarse_activations(x: Tensor) -> Tensor:
    numbers, _, scales, _ = twins.affine(x.detach().numpy().reshape(len(x), -1))
    return torch.from_numpy(numbers.astype(np.float64) * scales[:, None]).view(x.shape)


def coarse_weights(weight: Tensor) -> Tensor:
    numbers, scales = twins.symmetric(weight.detach().numpy().reshape(1, -1))
    return torch.from_numpy(numbers.astype(np.float64) * scales[:, None]).view(weight.shape)


def coarse_gradients(gradient: Tensor, seed: int) -> Tensor:
    torch.manual_seed(seed)
    key = torch.randint(2**32, ()).item()
    numbers, scales = twins.stochastic(gradient.numpy().reshape(len(gradient), -1), key)
    return torch.from_numpy(numbers.astype(np.float64) * scales[:, None]).view(gradient.shape)


def differences(function: Callable[[], Tensor], at: Tensor, step: float = 1e-6) -> Tensor:
    """The gradient of function() by the entries of `at`, which it reads."""
    found, flat = torch.empty_like(at).view(-1), at.data.view(-1)
    with torch.no_grad():
        for i in range(flat.numel()):
            before = flat[i].item()
            flat[i] = before + step
            high = function()
            flat[i] = before - step
            found[i] = (high - function()) / (2 * step)
            flat[i] = before
    return found.view(at.shape)


def images(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


CASES = {
    "conv": (nn.Conv2d(3, 4, 3, padding=1), images(2, 3, 4, 5)),
    "strided": (nn.Conv2d(2, 3, 3, 2, 1, bias=False), images(2, 2, 6, 5)),
    "grouped and dilated": (nn.Conv2d(4, 6, 2, dilation=2, groups=2), images(2, 4, 5, 4)),
    "padding on one side": (nn.Conv2d(2, 2, (2, 3), padding="same"), images(2, 2, 4, 4)),
    "padding by reflection": (nn.Conv2d(2, 2, 3, padding=(1, 0), padding_mode="reflect"), images(2, 2, 4, 4)),
    "valid padding": (nn.Conv2d(2, 2, 3, padding="valid"), images(2, 2, 4, 4)),
    "one dimension": (nn.Conv1d(2, 3, 3, padding=1), images(2, 2, 7)),
    "three dimensions": (nn.Conv3d(1, 2, 2), images(2, 1, 3, 3, 3)),
    "linear": (nn.Linear(6, 4), images(3, 6)),
    "linear on words": (nn.Linear(6, 4, bias=False), images(3, 5, 6)),
    "evonorm-s0": (EvoNormS0(4), images(3, 4, 3, 3)),
    "range-evonorm": (RangeEvoNorm(4), images(3, 4, 3, 3)),
    "range-evonorm of one group": (RangeEvoNorm(4, 1), 3 * images(3, 4, 2, 3)),
    "range-batch": (RangeBatchNorm(3), images(4, 3, 3, 2)),
    "group": (nn.GroupNorm(2, 4), images(3, 4, 3, 2)),
    "group without gains": (nn.GroupNorm(2, 4, affine=False), images(3, 4, 3, 2)),
    "layer": (nn.LayerNorm(6), images(3, 2, 6)),
    "layer without shifts": (nn.LayerNorm(6, bias=False), images(3, 2, 6)),
}
NORMS = (EvoNormS0, RangeEvoNorm, RangeBatchNorm, nn.GroupNorm, nn.LayerNorm)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_layers_output_and_gradients_are_those_of_a_slow_reference(name: str) -> None:
    layer, x = CASES[name]
    torch.manual_seed(len(name))
    layer = copy.deepcopy(layer)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    eight = to_int8(layer)
    x = x.clone().requires_grad_()
    out = eight(x)
    gradient = torch.randn(out.shape)
    torch.manual_seed(3)
    out.backward(gradient)

    reference = copy.deepcopy(layer).double()
    with torch.no_grad():
        for key, parameter in reference.named_parameters():  # a bias is added to the sums as it is
            if isinstance(layer, NORMS) or key == "weight":
                parameter.copy_(coarse_weights(dict(layer.named_parameters())[key]))
        rounded = coarse_activations(x)
        torch.testing.assert_close(out.double(), reference(rounded), rtol=1e-5, atol=1e-5)
    for key, parameter in reference.named_parameters():
        wanted = differences(lambda: (gradient.double() * reference(rounded)).sum(), parameter)
        found = dict(eight.named_parameters())[key].grad
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}")
    back = coarse_gradients(gradient, 3)
    wanted = differences(lambda: (back * reference(rounded)).sum(), rounded)
    torch.testing.assert_close(x.grad.double(), wanted, rtol=1e-4, atol=1e-4)


def test_equal_extremes_share_the_ranges_gradient() -> None:
    eight = to_int8(RangeEvoNorm(2, 1))
    x = torch.tensor([[[[2.0, 2.0]], [[-1.0, 0.5]]]], requires_grad=True)
    eight(x)[0, 1, 0, 1].backward()  # only the fourth pixel has a gradient of its own
    assert x.grad[0, 0, 0, 0] == x.grad[0, 0, 0, 1] == -x.grad[0, 1, 0, 0] / 2 != 0


def test_an_embedding_gives_rounded_rows_and_takes_gradients_as_they_come() -> None:
    table = nn.Embedding(5, 3, padding_idx=1)
    eight = to_int8(table)
    words = torch.tensor([[0, 1, 3], [3, 3, 4]])
    out = eight(words)
    torch.testing.assert_close(out.double(), coarse_weights(table.weight)[words])
    gradient = torch.randn(out.shape)
    out.backward(gradient)
    wanted = torch.zeros(5, 3)
    for word, row in zip(words.flatten(), gradient.flatten(0, 1), strict=True):
        wanted[word] += row * (word != 1)
    torch.testing.assert_close(eight.weight.grad, wanted)


def test_a_sum_is_that_of_its_rounded_terms_and_sends_one_rounded_gradient_to_both() -> None:
    a, b = images(2, 3, 4).requires_grad_(), images(2, 3, 5)[..., :4].contiguous().requires_grad_()
    out = to_int8(Sum())(a, b)
    torch.testing.assert_close(out.double(), coarse_activations(a) + coarse_activations(b))
    gradient = torch.randn(out.shape)
    torch.manual_seed(3)
    out.backward(gradient)
    torch.testing.assert_close(a.grad.double(), coarse_gradients(gradient, 3))
    assert torch.equal(a.grad, b.grad)


def test_a_range_batch_norm_follows_the_rounded_statistics() -> None:
    eight, x = to_int8(RangeBatchNorm(3)), images(4, 3, 5, 5) + 1
    plain = RangeBatchNorm(3).double()
    for _ in range(3):
        eight(x)
        plain(coarse_activations(x))
    torch.testing.assert_close(eight.running_mean.double(), plain.running_mean)
    torch.testing.assert_close(eight.running_scale.double(), plain.running_scale)
    torch.testing.assert_close(eight.eval()(x).double(), plain.eval()(coarse_activations(x)), rtol=1e-5, atol=1e-5)


# Floats that hold whole numbers, and integers.

SHAPES = [
    # channels, outputs, kernel, stride, padding, dilation, groups, side
    (3, 5, 5, 1, 2, 1, 1, 9),
    (32, 64, 5, 1, 2, 1, 1, 8),
    (16, 32, 3, 2, 1, 1, 1, 8),
    (8, 8, 3, 1, 2, 2, 4, 7),
    (16, 32, 1, 2, 0, 1, 1, 8),
    (300, 4, 3, 1, 1, 1, 1, 3),
]


def extreme(shape: tuple[int, ...], low: float) -> Tensor:
    """Numbers most of which are near the largest, so that sums are as large as they get."""
    generator = torch.Generator().manual_seed(len(shape))
    return 1 - torch.rand(shape, generator=generator) ** 4 * (1 - low)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("large", [False, True])
def test_convolutions_in_floats_and_in_integers_are_exact_even_beyond_24_bits(shape: tuple, large: bool) -> None:
    channels, outputs, kernel, stride, padding, dilation, groups, side = shape
    settings = products.ConvSettings([stride] * 2, [padding] * 2, [dilation] * 2, groups)
    shape_of_x, shape_of_weight = (2, channels, side, side), (outputs, channels // groups, kernel, kernel)
    x = extreme(shape_of_x, 0) if large else images(*shape_of_x)
    weight = extreme(shape_of_weight, -1) if large else images(*shape_of_weight)
    numbers, levels = quantize_activations(x)
    whole, _ = quantize_weights(weight)
    wanted = functional.conv2d(numbers.double(), whole.double(), None, stride, padding, dilation, groups)
    assert torch.equal(products.convolution(numbers, whole, settings), wanted.float())
    assert torch.equal(products.int_convolution(levels, whole, settings), wanted.float())
    if channels == 300 and large:
        assert wanted.max() > 2**25  # so this was one that floats cannot sum
    gradient = quantize_weights(extreme(wanted.shape, 0) if large else images(*wanted.shape))[0]
    x = numbers.double().requires_grad_()
    functional.conv2d(x, whole.double(), None, stride, padding, dilation, groups).backward(gradient.double())
    assert torch.equal(products.convolution_backward(gradient, whole, x.shape, settings), x.grad.float())


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(3, 7, 5), (40, 64, 10), (20, 3000, 30), (33, 1, 2)])
def test_linear_layers_in_floats_and_in_integers_are_exact(rows: int, inputs: int, outputs: int, large: bool) -> None:
    x = extreme((rows, inputs), 0) if large else images(rows, inputs)
    numbers, levels = quantize_activations(x)
    whole, _ = quantize_weights(extreme((outputs, inputs), -0.5) if large else images(outputs, inputs))
    wanted = numbers.double() @ whole.double().T
    assert torch.equal(products.linear(numbers, whole), wanted.float())
    assert torch.equal(products.int_linear(levels, whole), wanted.float())
    gradient = quantize_weights(images(rows, outputs))[0]
    assert torch.equal(products.linear_backward(gradient, whole), (gradient.double() @ whole.double()).float())


@pytest.mark.parametrize("layer", [nn.Linear(600, 300), nn.Conv2d(40, 512, 3, padding=1)], ids=repr)
def test_whether_integers_or_floats_are_taken_changes_no_bit(layer: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    x = images(400, 600) if isinstance(layer, nn.Linear) else images(2, 40, 6, 6)
    found = []
    for instructions in (True, False):
        monkeypatch.setattr(products, "_has_instructions", lambda instructions=instructions: instructions)
        taken = (
            products.int_linear_pays(400, layer.weight)
            if isinstance(layer, nn.Linear)
            else products.int_convolution_pays(layer.weight, products.ConvSettings([1, 1], [1, 1], [1, 1], 1))
        )
        assert taken is instructions
        found.append(to_int8(layer)(x))
    assert torch.equal(*found)


# Whole models.


def gradients(module: nn.Module, x: Tensor, seed: int) -> Tensor:
    module.zero_grad()
    torch.manual_seed(seed)
    module.train()(x).square().sum().backward()
    return torch.cat([p.grad.flatten() for p in module.parameters()])


@pytest.mark.parametrize("name", SMALL)
def test_every_model_of_the_zoo_converts_and_keeps_its_parameters(name: str) -> None:
    module, x = built(name)
    before = copy.deepcopy(module.state_dict())
    eight = to_int8(module)
    assert [(key, p.shape) for key, p in eight.named_parameters()] == [
        (key, p.shape) for key, p in module.named_parameters()
    ]
    assert eight.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[key]) for key, tensor in eight.state_dict().items())
    first = gradients(eight, x, 1)
    assert first.isfinite().all()
    assert torch.equal(gradients(eight, x, 1), first) or "batch" in name
    assert not any(type(layer) in LAYERS for layer in eight.modules())
    assert all(torch.equal(tensor, before[key]) for key, tensor in module.state_dict().items())  # left alone
    assert all(p.grad is None for p in module.parameters())


def test_all_models_were_tried() -> None:
    assert {name.split()[0] for name in SMALL} == set(MODELS) - {"distilbert"}


def test_random_rounding_follows_torchs_generator() -> None:
    module, x = built("resnet20 range-evonorm")
    eight = to_int8(module)
    assert torch.equal(gradients(eight, x, 1), gradients(eight, x, 1))
    assert not torch.equal(gradients(eight, x, 1), gradients(eight, x, 2))


@pytest.mark.parametrize("name", ["resnet20 range-evonorm", "gn-lenet range-evonorm", "mlp"])
def test_a_samples_answer_in_eight_bits_is_the_same_to_the_last_bit_in_any_minibatch(name: str) -> None:
    module, x = built(name)
    eight = to_int8(module).eval()
    assert torch.equal(eight(x), torch.cat([eight(sample[None]) for sample in x]))


@pytest.mark.parametrize("name", ["gn-lenet group", "gn-lenet evonorm-s0", "resnet20 range-evonorm", "transformer"])
def test_gradients_in_eight_bits_point_where_those_in_float_do(name: str) -> None:
    module, x = built(name)
    exact = gradients(module, x, 1)
    mean = torch.stack([gradients(to_int8(module), x, seed) for seed in range(8)]).mean(0)
    assert functional.cosine_similarity(exact, mean, dim=0) > 0.9


def test_layers_of_a_users_own_convert_and_what_is_unknown_or_special_stays() -> None:
    class Mine(nn.Linear):
        pass

    lookup = nn.Embedding(4, 3, max_norm=1.0)
    module = nn.Sequential(lookup, nn.Linear(3, 3), Mine(3, 2), nn.LSTM(2, 2, batch_first=True))
    module[1].register_forward_hook(lambda *_: seen.append(1))
    seen: list[int] = []
    eight = to_int8(module)
    assert [type(layer) for layer in eight] == [nn.Embedding, LAYERS[nn.Linear], Mine, nn.LSTM]
    eight(torch.tensor([[0, 1]]))
    assert seen == [1]
    assert type(to_int8(nn.Linear(2, 2))) is LAYERS[nn.Linear]


def test_layers_take_single_samples_and_refuse_other_numbers_in_a_sentence() -> None:
    for layer, x in ((nn.Linear(3, 2), images(3)), (nn.Conv2d(3, 2, 3), images(3, 5, 5))):
        eight = to_int8(layer)
        torch.testing.assert_close(eight(x), eight(x[None])[0])
        with pytest.raises(ValueError, match=r"eight-bit layers take float32, torch.float64 was given; call .float"):
            to_int8(layer.double())(x.double())


def small_network(norm: nn.Module) -> nn.Module:
    layers = [nn.Conv2d(1, 16, 3, padding=1), norm, nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 10))


def digits() -> tuple[Tensor, Tensor]:
    task = Digits().load()
    inputs, targets = (torch.cat(both) for both in zip(task.train, task.test, strict=True))
    return inputs.view(-1, 1, 8, 8), targets


def test_eight_bits_learn_digits_as_well_as_floats() -> None:
    inputs, targets = digits()
    scores = {}
    for name, convert, norm in (("float", lambda m: m, EvoNormS0(16)), ("int8", to_int8, RangeEvoNorm(16))):
        torch.manual_seed(0)
        module = convert(small_network(norm))
        optimizer = torch.optim.SGD(module.parameters(), 0.05, momentum=0.9)
        for step in range(150):
            batch = torch.arange(32 * step, 32 * step + 32) % 1437
            optimizer.zero_grad()
            functional.cross_entropy(module(inputs[batch]), targets[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            scores[name] = (module.eval()(inputs[1437:]).argmax(1) == targets[1437:]).float().mean().item()
    assert min(scores.values()) > 0.87, scores
    assert scores["int8"] > scores["float"] - 0.03, scores


def test_nodes_train_in_eight_bits_with_the_same_result_in_any_number_of_workers() -> None:
    inputs, targets = digits()
    train, test = (inputs[:400], targets[:400]), (inputs[400:450], targets[400:450])
    task = Supervised(lambda: to_int8(small_network(RangeEvoNorm(16))), train, test)
    experiment = Experiment(nodes=4, rounds=2, local_steps=1, batch_size=4, topology=Ring(), task=task)
    one, two = simulate(experiment, workers=1), simulate(experiment, workers=2)
    assert torch.equal(one.models, two.models)
