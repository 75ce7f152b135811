"""What training costs: operations, energy and memory of one step, in float and in eight bits.

Operations are counted by the formulas of Aketi, Kodge and Roy (2022), energy by the prices of Horowitz (ISSCC 2014, 45
nm). b is the batch, Ci and Co channels in and out, K the kernel, L and O the sides of input and output; b Ci L^2 is
how many numbers go into a layer. A step is one forward and one backward pass:

    convolution              3 b Co Ci K^2 O^2 adds and as many mults; inference a third
    linear                   3 b Co Ci of each; inference a third
    rounding for these two   2 adds and 4 mults for each number that goes in and, in training, for each weight
    EvoNorm                  6 b Ci L^2 adds, 10 b Ci L^2 + 5 Ci mults; inference 2, 4 and 2
    other normalization      9 b Ci L^2 adds, 6 b Ci L^2 + 7 Ci mults; inference 3, 2 and 3; ReLU included
    sum of two               2 b Ci L^2 adds; inference the same
    average pool             b Ci L^2 adds, 2 b Ci mults; inference b Ci mults

EvoNorm-S0 is counted as Range-EvoNorm, whose formula this is, and all other normalization as Range-BatchNorm: squares,
roots and exponentials have no price here. The formulas of normalization and sums are taken to hold their rounding. For
inference the paper rounds weights and not what goes in; here it is the other way round, since weights are kept rounded.
An LSTM is counted as the linear layers in it, in float. Attention's products and whatever is not a layer are not
counted.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from gossamer.algorithms import ALGORITHMS, DeepSqueeze
from gossamer.compressors import Quantize
from gossamer.core import Algorithm, Round, Task
from gossamer.core.rng import Streams
from gossamer.data import Supervised
from gossamer.graphs.topologies import DirectedRing, Ring
from gossamer.models.low_precision import LAYERS
from gossamer.models.norms import EvoNorm, RangeBatchNorm
from gossamer.models.resnet import Sum
from gossamer.wire import Codec


class Operations(NamedTuple):
    adds: int
    mults: int

    def plus(self, other: "Operations") -> "Operations":
        return Operations(self.adds + other.adds, self.mults + other.mults)


class Price(NamedTuple):
    """Of an operation, in picojoules."""

    add: float
    mult: float

    def millijoules(self, operations: Operations) -> float:
        return (operations.adds * self.add + operations.mults * self.mult) * 1e-9


FLOAT, INT8 = Price(0.9, 3.7), Price(0.03, 0.2)
NOTHING = Operations(0, 0)
CHOCOS_COPIES = 3  # of a model on each node: its own, its replica, and the sum of the neighbours' replicas

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (RangeBatchNorm, nn.GroupNorm, nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)
REMEMBERING = (*CONVOLUTIONS, nn.Linear, EvoNorm, *NORMS, nn.ReLU, nn.GELU, nn.MaxPool2d, nn.LSTM)
"""Layers whose backward pass needs what went in."""


class Layer(NamedTuple):
    """What one layer costs in one step."""

    name: str
    kind: str
    num_parameters: int
    training: Operations
    inference: Operations
    rounding: Operations  # of its input and weights, in a training step
    rounding_inference: Operations  # of its input
    num_inputs: int  # numbers that go in, of the whole batch
    num_outputs: int
    num_remembered: int  # until the backward pass
    stays_float: bool  # eight-bit training leaves it as it is

    def energy_mj(self, int8: bool, inference: bool = False) -> float:
        work = self.inference if inference else self.training
        if not int8 or self.stays_float:
            return FLOAT.millijoules(work)
        return INT8.millijoules(work.plus(self.rounding_inference if inference else self.rounding))


def layers_of(module: nn.Module, sample: Tensor, batch: int) -> list[Layer]:
    """The layers that a sample, (1, ...), goes through, in order, with what each costs for a batch of such."""
    found: list[Layer] = []
    names = {layer: name for name, layer in module.named_modules()}

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], out: Tensor | tuple[Tensor, ...]) -> None:
        if not inputs or not isinstance(inputs[0], Tensor):
            return  # of a model of the user's own: not a layer that the formulas know
        result = out if isinstance(out, Tensor) else out[0]
        found.append(_layer(names[layer], layer, inputs[0], result, batch))

    leaves = [layer for layer in module.modules() if not any(True for _ in layer.children())]
    hooks = [layer.register_forward_hook(note) for layer in leaves]
    training = module.training
    try:
        with torch.no_grad():
            module.eval()(sample)
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()
    return [layer for layer in found if layer.num_parameters or layer.training != NOTHING or layer.num_remembered]


def _layer(name: str, layer: nn.Module, x: Tensor, out: Tensor, batch: int) -> Layer:
    given, made = batch * x.numel(), batch * out.numel()
    training, inference = _operations(layer, given, made, x, batch)
    weights = [p.numel() for p in layer.parameters()]
    rounds = type(layer) in LAYERS or type(layer) in LAYERS.values()
    numbers = given if isinstance(layer, (*CONVOLUTIONS, nn.Linear)) else 0
    whole = layer.weight.numel() if isinstance(layer, (*CONVOLUTIONS, nn.Linear, nn.Embedding)) else 0
    of_inputs, of_weights = Operations(2 * numbers, 4 * numbers), Operations(2 * whole, 4 * whole)
    remembered = given if isinstance(layer, REMEMBERING) else 0
    if isinstance(layer, nn.LSTM):
        remembered += 6 * layer.hidden_size * layer.num_layers * batch * x.shape[1]  # four gates, cell and state
    stays = bool(weights) and not rounds
    return Layer(
        name, type(layer).__name__, sum(weights), training, inference, of_inputs.plus(of_weights), of_inputs,
        given, made, remembered, stays,
    )  # fmt: skip


def _operations(layer: nn.Module, given: int, made: int, x: Tensor, batch: int) -> tuple[Operations, Operations]:
    """Of training and of inference."""
    if isinstance(layer, CONVOLUTIONS):
        return _products(made * layer.weight[0].numel())
    if isinstance(layer, nn.Linear):
        return _products(made * layer.in_features)
    if isinstance(layer, nn.LSTM):
        matrices = sum(p.numel() for name, p in layer.named_parameters() if name.startswith("weight"))
        return _products(batch * x.shape[1] * matrices)
    if isinstance(layer, EvoNorm):
        channels = x.shape[1]
        return Operations(6 * given, 10 * given + 5 * channels), Operations(2 * given, 4 * given + 2 * channels)
    if isinstance(layer, NORMS):
        channels = x.shape[-1] if isinstance(layer, nn.LayerNorm) else x.shape[1]
        return Operations(9 * given, 6 * given + 7 * channels), Operations(3 * given, 2 * given + 3 * channels)
    if isinstance(layer, Sum):
        return Operations(2 * given, 0), Operations(2 * given, 0)
    if isinstance(layer, POOLS):
        return Operations(given, 2 * made), Operations(given, made)
    return NOTHING, NOTHING


def _products(count: int) -> tuple[Operations, Operations]:
    return Operations(3 * count, 3 * count), Operations(count, count)


@dataclass(frozen=True)
class Cost:
    """What a step of a model costs."""

    layers: list[Layer]
    num_parameters: int
    num_copies: int  # of the model that the algorithm keeps

    def energy_mj(self, int8: bool, inference: bool = False) -> float:
        return sum(layer.energy_mj(int8, inference) for layer in self.layers)

    @property
    def ratio_with_rounding_in_float(self) -> float:
        """Float's energy over that of eight bits if rounding itself, which is not done in integers, costs as floats."""
        rounding = sum(FLOAT.millijoules(layer.rounding) - INT8.millijoules(layer.rounding) for layer in self.layers)
        return self.energy_mj(False) / (self.energy_mj(True) + rounding)

    def operations(self, of: Callable[[Layer], Operations]) -> Operations:
        total = NOTHING
        for layer in self.layers:
            total = total.plus(of(layer))
        return total

    def training_bytes(self, int8: bool) -> int:
        """The model's copies, its gradient and momentum, in float; each layer's input until the backward pass; and the
        gradients of the layer where they are largest. In eight bits also the rounded weights."""
        state = 4 * (self.num_copies + 2) * self.num_parameters + (self.num_parameters if int8 else 0)
        remembered = sum(_width(layer, int8) * layer.num_remembered for layer in self.layers)
        moving = max(_width(layer, int8) * (layer.num_inputs + layer.num_outputs) for layer in self.layers)
        return state + remembered + moving

    def inference_bytes(self, int8: bool) -> int:
        """The weights, and input and output of the layer where these are largest."""
        moving = max(_width(layer, int8) * (layer.num_inputs + layer.num_outputs) for layer in self.layers)
        return self.weight_bytes(int8) + moving

    def weight_bytes(self, int8: bool) -> int:
        return sum(_width(layer, int8) * layer.num_parameters for layer in self.layers)


def step_joules(task: Task, batch: int) -> float:
    """The energy of one local step of a node by the formulas, in the precision of the task's model; 0 if the task has
    no module."""
    if not isinstance(task, Supervised):
        return 0.0
    module = task.module_with(task.initial_model(0), task.buffers)
    sample = task.minibatch(np.arange(1), 0)[0].cpu()
    int8 = any(type(layer) in LAYERS.values() for layer in module.modules())
    layers = layers_of(module, sample, batch)
    return Cost(layers, sum(p.numel() for p in module.parameters()), 1).energy_mj(int8) / 1000


def _width(layer: Layer, int8: bool) -> int:
    return 1 if int8 and not layer.stays_float else 4


_ROWS = 4  # nodes whose messages are measured at once
_ROUNDS = 16


def peak_bytes(step: Callable[[], object]) -> int:
    """The most that torch holds at once of what it allocates in a step. It must leave nothing behind."""
    step()  # what is made once is not the step's
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or the profiler tells of its start on standard error
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    assert profiled.profiler is not None
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    return max(held, default=0)


def message_bytes(name: str, module: nn.Module, nodes: int) -> float:
    """The mean length of a message to one neighbour, framed, by the encoder of simulation and network.

    Messages are those of the first rounds on a ring of so many nodes that start from the module's weights and take a
    random step. "deep-squeeze-int8" is DeepSqueeze whose model travels in eight bits.
    """
    algorithm: Algorithm = DeepSqueeze(Quantize(8), "auto") if name == "deep-squeeze-int8" else ALGORITHMS[name]()
    if algorithm.cross_gradients:
        raise ValueError(f"{name} has several messages per round, which gossamer plan counts; take another algorithm")
    weights = nn.utils.parameters_to_vector(module.parameters()).detach()
    sizes, shapes = zip(*((p.numel(), tuple(p.shape)) for p in module.parameters()), strict=True)
    topology = DirectedRing() if "column_stochastic" in algorithm.requires else Ring()
    algorithm = algorithm.prepare(topology.at(nodes, 0, 0), sizes)
    codec = Codec(algorithm.parts, len(weights), seed=0)
    state, gradient = algorithm.init(weights.repeat(_ROWS, 1)), _gradient(weights, _ROWS)
    lengths: list[int] = []
    for number in range(_ROUNDS):
        streams = Streams(0, range(_ROWS), number)
        round = Round(number, 0.1, streams, 10**6, 1, layer_sizes=sizes, layer_shapes=shapes)
        message, _ = algorithm.send(algorithm.local_step(state, gradient, round), round)
        parts = [part.total for part in codec.num_bytes(message).values()]
        lengths += (codec.frame_bytes + np.sum(parts, axis=0)).tolist()
        if max(lengths) < 1.05 * min(lengths):
            break  # how much is sent is not drawn, so that more messages would tell nothing new
    return sum(lengths) / len(lengths)


def _gradient(weights: Tensor, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, len(weights), generator=generator) * weights.square().mean().sqrt()
