"""The zoo: sizes that papers publish, one sample's answer whatever its neighbours, and gradients that are right."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

from gossamer.cli.main import cli
from gossamer.experiments import toml
from gossamer.experiments.tables import TABLES, ExperimentError
from gossamer.models import (
    MODELS,
    Architecture,
    CelebaCnn,
    DistilBert,
    FemnistCnn,
    GnLeNet,
    LogisticRegression,
    MatrixFactorization,
    Mlp,
    ResNet18,
    ResNet20,
    ResNet54,
    ResNet110,
    StackedLstm,
    Transformer,
    Vgg11,
)
from gossamer.models.norms import EvoNormS0, Norm, RangeBatchNorm, RangeEvoNorm, normalization

CIFAR = (3, 32, 32)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tests run side by side; small products only wait for each other's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


NORMS = get_args(Norm)

SIZES = [
    (LogisticRegression(), (64,), 10, 650),
    (Mlp((64,)), (1, 8, 8), 10, 64 * 64 + 64 + 650),
    (GnLeNet(), CIFAR, 10, 89_834),  # as JWINS's paper has it
    (FemnistCnn(), (1, 28, 28), 62, 6_603_710),
    (FemnistCnn(hidden=512), (1, 28, 28), 62, 1_690_046),
    (CelebaCnn(), (3, 84, 84), 2, 30_242),
    (StackedLstm(), (80, 80), 80, 819_920),
    (StackedLstm(every_step=True), (92, 80), 92, 2_683_708),  # as in the JWINS authors' code
    (MatrixFactorization(), (100, 50), 1, 150 * 21),
    (MatrixFactorization(biases=False), (610, 9724), 1, 206_680),  # likewise
    (ResNet20(), CIFAR, 10, 273_258),  # as in Aketi et al. 2022, with EvoNorm
    (ResNet20("batch"), CIFAR, 10, 273_258 - 784),  # no slopes for the 784 normalized channels
    (ResNet54(), CIFAR, 10, 760_458),
    (Transformer(width=16, heads=2, layers=1), (50, 12), 4, 50 * 16 + 12 * 16 + 3 * 32 + 12 * 16**2 + 9 * 16 + 68),
]


@pytest.mark.parametrize(("model", "inputs", "outputs", "count"), SIZES, ids=str)
def test_models_have_as_many_parameters_as_published_or_counted_by_hand(
    model: Architecture, inputs: tuple, outputs: int, count: int
) -> None:
    assert sum(p.numel() for p in model.build(inputs, outputs).parameters()) == count


@pytest.mark.parametrize(
    ("model", "inputs", "millions"),
    [
        (ResNet110(), CIFAR, 1.73),
        (ResNet18(), CIFAR, 11.2),
        (ResNet18(stem="7x7"), (3, 64, 64), 11.2),
        (Vgg11(), CIFAR, 9.49),
        (Vgg11(), (3, 224, 224), 9.49),
        (Vgg11(), (3, 32, 64), 9.49),
    ],
)
def test_large_models_have_the_millions_of_parameters_that_papers_round_to(
    model: Architecture, inputs: tuple, millions: float
) -> None:
    with torch.device("meta"):  # only shapes
        built = model.build(inputs, 10)
        assert built(torch.empty(2, *inputs)).shape == (2, 10)
    count = sum(p.numel() for p in built.parameters()) / 1e6
    assert count == pytest.approx(millions, abs=0.006 if millions < 10 else 0.05)


SMALL = {
    "logistic-regression": (LogisticRegression(), (6,), 3),
    "mlp": (Mlp((5, 4)), (2, 3), 3),
    "stacked-lstm": (StackedLstm(embedding=4, hidden=8), (9, 6), 9),
    "stacked-lstm every-step": (StackedLstm(embedding=4, hidden=8, every_step=True), (9, 6), 9),
    "matrix-factorization": (MatrixFactorization(3), (7, 5), 1),
    "matrix-factorization unbiased": (MatrixFactorization(3, biases=False, start=0.05), (7, 5), 1),
    "transformer": (Transformer(8, 2, 2), (9, 6), 4),
}
for norm in NORMS:
    SMALL[f"gn-lenet {norm}"] = (GnLeNet(norm), (3, 8, 9), 4)
    SMALL[f"resnet20 {norm}"] = (ResNet20(norm, width=4), (1, 8, 8), 4)
    SMALL[f"femnist-cnn {norm}"] = (FemnistCnn(8, norm), (1, 8, 8), 4)
    SMALL[f"celeba-cnn {norm}"] = (CelebaCnn(norm), (3, 16, 16), 2)
for norm in ("none", "evonorm-s0", "range-batch"):
    SMALL[f"vgg11 {norm}"] = (Vgg11(norm, hidden=8), (3, 32, 32), 4)
    SMALL[f"resnet18 {norm}"] = (ResNet18(norm, width=4, stem="7x7"), (3, 32, 32), 4)
SMALL["resnet54"] = (ResNet54(width=4), (3, 8, 8), 4)
SMALL["resnet110"] = (ResNet110(width=2), (3, 8, 8), 4)
every_model = pytest.mark.parametrize("name", SMALL)


def samples(inputs: tuple[int, ...], name: str, count: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if name.split()[0] in ("stacked-lstm", "transformer"):
        return torch.randint(0, inputs[0], (count, inputs[1]), generator=generator)
    if name.startswith("matrix-factorization"):
        return torch.randint(0, min(inputs), (count, 2), generator=generator)
    return torch.randn(count, *inputs, generator=generator)


def built(name: str) -> tuple[nn.Module, Tensor]:
    model, inputs, outputs = SMALL[name]
    torch.manual_seed(0)
    return model.build(inputs, outputs), samples(inputs, name)


@every_model
def test_a_samples_answer_does_not_depend_on_the_others(name: str) -> None:
    module, x = built(name)
    module.double().eval()
    x = x.double() if x.is_floating_point() else x
    together = module(x)
    outputs = SMALL[name][2]
    assert together.shape == ((3,) if name.startswith("matrix-factorization") else (3, outputs))
    alone = torch.cat([module(sample[None]) for sample in x])
    torch.testing.assert_close(together, alone)  # up to the order of sums, which float64 hides


@every_model
def test_every_parameter_is_reached_by_the_gradient(name: str) -> None:
    module, x = built(name)
    out = module.train()(x)
    (out * torch.randn(out.shape)).sum().backward()
    for key, parameter in module.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
    # a minibatch of three leaves 110 layers' worth of zeros, but never all of a model
    assert sum(p.grad.abs().sum() > 0 for p in module.parameters()) > len(list(module.parameters())) / 2


@every_model
def test_the_seed_of_torchs_generator_decides_the_initial_weights(name: str) -> None:
    model, inputs, outputs = SMALL[name]

    def weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(model.build(inputs, outputs).parameters())

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_every_model_of_the_table_is_tried_here() -> None:
    assert {name.split()[0] for name in SMALL} == set(MODELS) - {"distilbert"}


WRONG = [
    (lambda: GnLeNet("layer"), "norm must be one of none, batch, group"),
    (lambda: GnLeNet().build((3, 4, 4), 10), "at least 8 x 8 pixels"),
    (lambda: GnLeNet().build((64,), 10), r"\(channels, height, width\)"),
    (lambda: GnLeNet().build(CIFAR, 0), "outputs must be at least 1"),
    (lambda: FemnistCnn(hidden=0), "hidden must be at least 1"),
    (lambda: CelebaCnn().build((3, 8, 8), 2), "at least 16 x 16"),
    (lambda: StackedLstm(layers=0), "layers must be at least 1"),
    (lambda: StackedLstm().build(CIFAR, 10), r"\(number of symbols, length\)"),
    (lambda: MatrixFactorization(start=-1.0), "start must be at least 0"),
    (lambda: MatrixFactorization(0), "factors must be at least 1"),
    (lambda: MatrixFactorization().build((5,), 1), r"\(users, items\)"),
    (lambda: MatrixFactorization().build((5, 5), 3), "outputs must be 1"),
    (lambda: Mlp((8, 0)), "hidden must be numbers of units"),
    (lambda: Mlp(64), r"hidden must be numbers of units, such as \(64,\), 64 was given"),
    (lambda: Mlp().build((), 1), "shape of a sample"),
    (lambda: ResNet20(width=3), "groups must be at least 1 and divide the 3 channels, 2 was given"),
    (lambda: ResNet20(width=0), "width must be at least 1"),
    (lambda: ResNet54("none", zero_init_residual=True), "zero_init_residual is about the gains of a norm"),
    (lambda: Vgg11("group", groups=-2), "groups must be at least 1 and divide the 64 channels"),
    (lambda: GnLeNet(groups=5), "groups must be at least 1 and divide the 32 channels, 5 was given"),
    (lambda: ResNet18(stem="5x5"), 'stem must be "3x3" or "7x7"'),
    (lambda: ResNet18(stem="7x7").build((3, 16, 16), 10), "at least 32 x 32"),
    (lambda: Vgg11().build((3, 16, 16), 10), "at least 32 x 32"),
    (lambda: Transformer(width=10, heads=4), "multiple of the 4 heads"),
    (lambda: Transformer(dropout=1.0), "dropout must be"),
    (lambda: RangeEvoNorm(5), "divide the 5 channels, 2 was given"),
    (lambda: normalization("group", 5), "divide the 5 channels, 2 was given"),
    (lambda: ResNet20(groups=0).build(CIFAR, 10), "began with groups of two channels"),
    (lambda: DistilBert("nowhere").build((9, 9), 2), "'nowhere' has no config.json"),
]


@pytest.mark.parametrize(("make", "words"), WRONG)
def test_what_does_not_fit_is_refused_in_a_sentence(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_padding_changes_nothing_in_a_transformer_and_an_empty_text_is_no_error() -> None:
    module, _ = built("transformer")
    module.eval()
    text = torch.tensor([[3, 5, 2, 0, 0, 0]])
    torch.testing.assert_close(module(text), module(text[:, :3]))
    assert module(torch.zeros(1, 6, dtype=torch.long)).isfinite().all()


# Normalizations, each against its formula in float64, one sample and channel at a time.


def by_hand(layer: nn.Module, x: Tensor) -> Tensor:
    n, c = x.shape[:2]
    size = c // layer.groups
    out = torch.empty_like(x)
    for i in range(n):
        for start in range(0, c, size):
            group = x[i, start : start + size]
            if isinstance(layer, EvoNormS0):
                scale = (group.var(correction=0) + layer.epsilon).sqrt()
            else:
                scale = (group.max() - group.min()) / (2 * torch.tensor(size).double().log()).sqrt() + layer.epsilon
            for k in range(start, start + size):
                gate = layer.v[k] * x[i, k]
                gate = 1 / (1 + (-gate).exp()) if isinstance(layer, EvoNormS0) else ((gate + 3) / 6).clip(0, 1)
                out[i, k] = x[i, k] * gate / scale * layer.weight[k] + layer.bias[k]
    return out


def filled(layer: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(5)
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return layer.double()


@pytest.mark.parametrize("layer", [EvoNormS0(6), EvoNormS0(6, 3), RangeEvoNorm(6), RangeEvoNorm(6, 1)], ids=repr)
def test_evonorms_are_their_formulas(layer: nn.Module) -> None:
    filled(layer)
    x = 3 * torch.randn(4, 6, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(layer(x), by_hand(layer, x))
    x.requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,))


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_what_leaves_range_evonorm_is_as_large_as_what_leaves_evonorm_at_the_start(groups: int) -> None:
    x = torch.randn(4, 32, 16, 16, generator=torch.Generator().manual_seed(0))
    ratio = RangeEvoNorm(32, groups)(x).std() / EvoNormS0(32, groups)(x).std()
    assert 0.7 < ratio < 1.4


def test_residual_networks_with_evonorm_have_no_other_activation() -> None:
    for norm in NORMS:
        with torch.device("meta"):
            kinds = {type(layer) for layer in ResNet20(norm).build(CIFAR, 10).modules()}
        assert (nn.ReLU in kinds) == ("evonorm" not in norm)


@pytest.mark.parametrize("norm", [norm for norm in NORMS if norm != "none"])
def test_blocks_that_start_at_zero_give_what_their_shortcuts_give(norm: Norm) -> None:
    torch.manual_seed(0)
    network = ResNet20(norm, width=4, zero_init_residual=True).build((1, 8, 8), 4)
    block, x = network[3], torch.randn(2, 4, 8, 8)
    torch.testing.assert_close(block(x), block.activation(x))
    assert all(p.abs().sum() > 0 for name, p in network.named_parameters() if "norm1.weight" in name)


def test_range_batch_norm_is_its_formula_and_runs_on_its_statistics() -> None:
    layer = filled(RangeBatchNorm(3))
    x = 2 + torch.randn(5, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    out = layer(x)
    for k in range(3):
        centred = x[:, k] - x[:, k].mean()
        scale = (centred.max() - centred.min()) / (2 * torch.tensor(5.0).double().log()).sqrt()
        torch.testing.assert_close(out[:, k], centred / (scale + 1e-5) * layer.weight[k] + layer.bias[k])
        assert layer.running_mean[k].item() == pytest.approx(0.1 * x[:, k].mean().item())
        assert layer.running_scale[k].item() == pytest.approx(0.9 + 0.1 * scale.item())
    for _ in range(200):
        layer(x)
    torch.testing.assert_close(layer.eval()(x), out.detach(), rtol=1e-6, atol=1e-6)
    assert torch.autograd.gradcheck(RangeBatchNorm(3).double(), (x.requires_grad_(),))


@pytest.mark.parametrize("norm", ["evonorm-s0", "range-evonorm", "range-batch"])
def test_norms_take_constant_images_and_single_samples(norm: Norm) -> None:
    layer = normalization(norm, 4)
    for x in (torch.zeros(1, 4, 3, 3), torch.full((2, 4, 3, 3), 7.0)):
        x.requires_grad_()
        out = layer(x)
        out.sum().backward()
        assert out.isfinite().all()
        assert x.grad.isfinite().all()


# In experiment files and on the command line.


@dataclass(frozen=True)
class Holder:
    model: Architecture = field(default_factory=GnLeNet)


def test_a_task_can_have_a_model_that_a_file_names() -> None:
    document = {"model": {"name": "resnet20", "norm": "range-evonorm"}}
    read = toml._read_table(Holder, document, "task", "'holder'")
    assert read == Holder(ResNet20("range-evonorm"))
    assert toml.described(Holder, read) == {
        "model": {"name": "resnet20", "norm": "range-evonorm", "width": 16, "groups": 2, "zero_init_residual": False}
    }
    assert toml._read_table(Holder, {"model": {"name": "mlp", "hidden": [3, 4]}}, "task", "") == Holder(Mlp((3, 4)))
    with pytest.raises(ExperimentError, match=r"task\.model\.name: there is no 'resnet21' \(did you mean resnet20"):
        toml._read_table(Holder, {"model": "resnet21"}, "task", "")
    with pytest.raises(ExperimentError, match=r"task\.model\.norm: 'layer' was given, it must be \"none\" or"):
        toml._read_table(Holder, {"model": {"name": "resnet20", "norm": "layer"}}, "task", "")


def test_every_setting_of_every_model_can_be_written_in_a_file() -> None:
    for name, kind in TABLES[Architecture].items():
        arguments = {"path": "weights"} if name == "distilbert" else {}
        model = kind(**arguments)
        assert toml._read(Architecture, json.loads(json.dumps(toml.described(Architecture, model))), "") == model
        assert {f.name for f in fields(model)} == set(toml.described(Architecture, model)) - {"name"}


def test_the_command_line_lists_the_models() -> None:
    listed = json.loads(CliRunner().invoke(cli, ["list", "models", "--json"]).output)
    assert {row["name"] for row in listed} == set(MODELS)


# DistilBERT, with and without the library that brings it.


@pytest.mark.skipif(find_spec("transformers") is not None, reason="the package is installed")
def test_distilbert_without_its_library_is_refused_with_what_to_install(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=r"install gossamer\[transformers\]"):
        DistilBert(str(tmp_path)).build((100, 16), 4)


@pytest.mark.skipif(find_spec("transformers") is None, reason="needs the transformers package")
def test_distilbert_is_read_from_disk_with_a_new_classifier(tmp_path: Path) -> None:
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(vocab_size=50, dim=16, hidden_dim=32, n_layers=2, n_heads=2, max_position_embeddings=12)
    original = DistilBertModel(config)
    original.save_pretrained(tmp_path)
    module = DistilBert(str(tmp_path)).build((50, 12), 4).eval()
    tokens = torch.tensor([[2, 7, 9, 3, 0, 0], [2, 8, 3, 0, 0, 0]])
    assert module(tokens).shape == (2, 4)
    torch.testing.assert_close(module(tokens[:, :4]), module(tokens))  # padding changes nothing
    loaded = dict(module.named_parameters())
    for name, parameter in original.named_parameters():
        assert torch.equal(loaded[f"model.distilbert.{name}"], parameter)
    with pytest.raises(ValueError, match="at most 12 of 50 symbols"):
        DistilBert(str(tmp_path)).build((50, 13), 4)
