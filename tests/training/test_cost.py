"""What training costs: formulas worked out by hand for a tiny net, the papers' figures, and the command."""

import json
from collections import OrderedDict

import pytest
import torch
from click.testing import CliRunner, Result
from test_models import SMALL, built
from torch import nn

from gossamer.cli.cost import COMPARED
from gossamer.cli.main import cli
from gossamer.experiments.experiment import ExperimentError
from gossamer.models import MODELS, GnLeNet, Mlp, ResNet20, StackedLstm
from gossamer.models.norms import RangeBatchNorm, RangeEvoNorm
from gossamer.models.resnet import Sum
from gossamer.training.cost import FLOAT, INT8, Cost, Operations, layers_of, message_bytes, peak_bytes
from gossamer.wire import Codec


class Tiny(nn.Module):
    """A convolution of 2 channels to 4 on 6x6 pixels, with all the layers that have a formula."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=1)  # 3x3 pixels out
        self.evonorm = RangeEvoNorm(4)
        self.norm = RangeBatchNorm(4)
        self.sum = Sum()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.evonorm(self.conv(x))
        return self.linear(self.pool(self.sum(x, self.norm(x))).flatten(1))


def test_operations_of_a_tiny_net_are_those_worked_out_by_hand() -> None:
    b = 10
    found = {layer.name: layer for layer in layers_of(Tiny(), torch.randn(1, 2, 6, 6), b)}
    # 10 samples * 4 outputs * 2 channels * 9 places of the kernel * 9 pixels out = 6,480, three times in training
    assert found["conv"].inference == Operations(6_480, 6_480)
    assert found["conv"].training == Operations(19_440, 19_440)
    # in: 10 * 2 * 36 = 720 numbers; 4 * 2 * 9 = 72 weights
    assert found["conv"].rounding == Operations(2 * 720 + 2 * 72, 4 * 720 + 4 * 72) == Operations(1_584, 3_168)
    assert found["conv"].rounding_inference == Operations(1_440, 2_880)
    # in: 10 * 4 * 9 = 360 numbers
    assert found["evonorm"].training == Operations(2_160, 3_620)
    assert found["evonorm"].inference == Operations(720, 1_448)
    assert found["norm"].training == Operations(3_240, 2_188)
    assert found["norm"].inference == Operations(1_080, 732)
    assert found["sum"].training == Operations(720, 0)
    assert found["sum"].inference == Operations(720, 0)
    assert found["pool"].training == Operations(360, 80)
    assert found["pool"].inference == Operations(360, 40)
    assert found["linear"].training == Operations(600, 600)
    assert found["linear"].rounding == Operations(2 * 40 + 2 * 20, 4 * 40 + 4 * 20)
    assert sum(layer.num_parameters for layer in found.values()) == 76 + 12 + 8 + 25


def test_energy_and_memory_of_a_tiny_net_are_those_worked_out_by_hand() -> None:
    module = Tiny()
    cost = Cost(layers_of(module, torch.randn(1, 2, 6, 6), 10), 121, num_copies=3)
    adds = 19_440 + 2_160 + 3_240 + 720 + 360 + 600  # 26,520
    mults = 19_440 + 3_620 + 2_188 + 0 + 80 + 600  # 25,928
    assert cost.operations(lambda layer: layer.training) == (adds, mults)
    assert cost.energy_mj(int8=False) == pytest.approx((0.9 * adds + 3.7 * mults) * 1e-9)
    rounding = (1_584 + 120, 3_168 + 240)
    in_all = (adds + rounding[0], mults + rounding[1])
    assert cost.energy_mj(int8=True) == pytest.approx((0.03 * in_all[0] + 0.2 * in_all[1]) * 1e-9)
    in_float = (0.03 * adds + 0.2 * mults + 0.9 * rounding[0] + 3.7 * rounding[1]) * 1e-9
    assert cost.ratio_with_rounding_in_float == pytest.approx(cost.energy_mj(False) / in_float)
    # remembered: 720 of the convolution, 360 and 360 of the norms, 40 of the linear layer; 720 + 360 in and out of the
    # convolution, which is the most of all layers; 3 copies, gradient and momentum of 121 parameters
    assert cost.training_bytes(int8=False) == 4 * (5 * 121 + 1_480 + 1_080)
    assert cost.training_bytes(int8=True) == 4 * 5 * 121 + 121 + 1_480 + 1_080
    assert cost.inference_bytes(int8=False) == 4 * (121 + 1_080)
    assert cost.inference_bytes(int8=True) == 121 + 1_080
    assert (FLOAT, INT8) == ((0.9, 3.7), (0.03, 0.2))


def test_counting_leaves_the_module_as_it_was() -> None:
    module = Tiny().train()
    before = OrderedDict((key, tensor.clone()) for key, tensor in module.state_dict().items())
    layers_of(module, torch.randn(1, 2, 6, 6), 3)
    assert module.training
    assert all(torch.equal(before[key], tensor) for key, tensor in module.state_dict().items())
    assert not any(layer._forward_hooks for layer in module.modules())


def test_what_stays_in_float_is_paid_as_float() -> None:
    layers = layers_of(StackedLstm(embedding=4, hidden=8, layers=1).build((9, 6), 9), torch.zeros(1, 6).long(), 2)
    lstm = next(layer for layer in layers if layer.kind == "LSTM")
    # 2 samples * 6 steps * 4 gates * 8 units * (4 + 8) inputs, three times
    assert lstm.training == Operations(3 * 4_608, 3 * 4_608)
    assert lstm.energy_mj(int8=True) == lstm.energy_mj(int8=False) == pytest.approx(4.6e-9 * 3 * 4_608)
    batch = layers_of(GnLeNet("batch").build((3, 8, 8), 4), torch.randn(1, 3, 8, 8), 2)
    assert [layer.stays_float for layer in batch if layer.kind in ("BatchNorm2d", "Conv2d")] == [False, True] * 3


@pytest.mark.parametrize("name", SMALL)
def test_every_model_of_the_zoo_can_be_counted(name: str) -> None:
    module, x = built(name)
    found = layers_of(module, x[:1], 4)
    by_layers = sum(layer.num_parameters for layer in found)
    own = sum(p.numel() for p in module.parameters(recurse=False))  # such as a transformer's places
    assert by_layers + own == sum(p.numel() for p in module.parameters())


# The papers' figures.


def test_resnet20_has_the_papers_ratio_and_bytes() -> None:
    layers = layers_of(ResNet20("range-evonorm").build((3, 32, 32), 10), torch.randn(1, 3, 32, 32), 32)
    cost = Cost(layers, sum(layer.num_parameters for layer in layers), 3)
    assert cost.num_parameters == 273_258
    convolutions = [layer.training.mults for layer in layers if layer.kind == "Conv2d"]
    shortcuts = [layer.training.mults for layer in layers if "shortcut.0" in layer.name]
    assert (sum(convolutions) - sum(shortcuts)) / 1e9 == pytest.approx(3.89, abs=0.005)
    assert cost.energy_mj(False) / cost.energy_mj(True) == pytest.approx(19.9, abs=0.1)
    assert cost.weight_bytes(False) / 2**20 == pytest.approx(1.04, abs=0.005)
    assert cost.weight_bytes(True) / 2**20 == pytest.approx(0.26, abs=0.005)
    assert cost.training_bytes(False) / cost.training_bytes(True) > 3


def test_the_measured_peak_is_what_a_step_holds_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    def step() -> None:
        held = [torch.ones(2_000_000) for _ in range(4)]
        held.clear()
        torch.ones(1_000_000)

    assert peak_bytes(step) == 32_000_000
    assert capfd.readouterr().err == ""


def test_message_lengths_are_those_of_the_encoder() -> None:
    module = Mlp((8,)).build((16,), 4)
    size = message_bytes("dpsgd", module, 8)
    assert 0.6 < (size - Codec.frame_bytes) / (4 * 172) < 1.1
    assert message_bytes("choco", module, 8) < 0.6 * size
    assert message_bytes("deep-squeeze-int8", module, 8) < 0.6 * size


# The command.


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, ["cost", *words])


def test_the_command_tells_the_papers_figures_as_json() -> None:
    told = json.loads(invoke("resnet20", "--batch", "32", "--json", "--algorithm", "dpsgd").output)
    assert told["parameters"] == 273_258
    assert told["iterations"] == 39_200
    assert told["gb_float"] == pytest.approx(42.85, abs=0.005)
    assert told["gb_int8"] == pytest.approx(10.71, abs=0.005)
    assert told["energy_ratio"] == pytest.approx(19.9, abs=0.3)
    assert told["energy_mj_float"] == pytest.approx(19.9 * told["energy_mj_int8"], rel=0.02)
    assert told["memory_mb_float"] > 3 * told["memory_mb_int8"]
    assert sum(layer["energy_mj_int8"] for layer in told["layers"]) == pytest.approx(told["energy_mj_int8"])
    assert list(told["message_bytes"]) == ["dpsgd"]
    assert told["measured_memory_mb_float"] > 3 * told["measured_memory_mb_int8"]
    assert 0.5 < told["measured_memory_mb_float"] / told["memory_mb_float"] < 2.2
    assert 0.5 < told["measured_memory_mb_int8"] / told["memory_mb_int8"] < 2


def test_the_command_shows_tables_for_people() -> None:
    both = invoke("mlp", "--set", "hidden=[8]", "--inputs", "4,4", "--outputs", "3", "--batch", "2", "--nodes", "4")
    assert both.exit_code == 0, both.output
    for word in ("Linear", "energy of a step", "measured", "ratio", *COMPARED):
        assert word in both.output
    assert "163" in both.output  # parameters: 16 * 8 + 8 + 8 * 3 + 3
    one = invoke("mlp", "--precision", "int8", "--algorithm", "jwins").output
    assert "mJ int8" in one
    assert "mJ float" not in one


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["resnet21"], "model.name: there is no 'resnet21' (did you mean resnet20?)"),
        (["resnet20", "--set", "norm=layer"], "model.norm: 'layer' was given"),
        (["resnet20", "--inputs", "3,x"], "--inputs 3,x: write a shape such as 3,32,32"),
        (["resnet20", "--inputs", "32"], "model: inputs must be an image's"),
        (["mlp", "--algorithm", "push-sum"], "--algorithm push-sum: it has no messages; take one such as dpsgd"),
        (["mlp", "--algorithm", "all-reduce"], "--algorithm: all-reduce needs a link between any two nodes"),
        (["distilbert", "--set", "path=nowhere"], "model: path must be a folder with DistilBERT's config.json"),
    ],
)
def test_mistakes_are_told_in_a_sentence(words: list[str], sentence: str) -> None:
    error = invoke(*words).exception
    assert isinstance(error, ExperimentError)
    assert str(error).startswith(sentence)


def test_the_command_has_sizes_for_every_model() -> None:
    from gossamer.cli.cost import _built, _sample, _sizes

    for name in set(MODELS) - {"distilbert", "resnet18", "resnet110", "vgg11", "femnist-cnn"}:  # not the large
        shape, classes = _sizes(name, None, None)
        module = _built(name, (), shape, classes)
        assert layers_of(module, _sample(name, shape, 1), 2)
