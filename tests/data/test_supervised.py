import copy
import random
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

from gossamer import Experiment, resume, simulate
from gossamer.data import Digits, Quadratic, Supervised
from gossamer.experiments.experiment import Evaluation
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import Ring
from gossamer.simulator.simulation import Simulation


def small_task(model: object = None, **changes: object) -> Supervised:
    """Forty points of six numbers in three classes."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 6, generator=generator), torch.arange(40) % 3
    net = model or (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)))
    return Supervised(**({"model": net, "train": (x, y), "test": (x[:10], y[:10])} | changes))


def test_rows_are_trained_as_separate_modules_would_be_to_the_last_bit() -> None:
    task = small_task()
    modules = [task.model() for _ in range(4)]
    rows = torch.stack([nn.utils.parameters_to_vector(m.parameters()).detach() for m in modules])
    batches = [np.arange(i, i + 8) for i in range(4)]
    losses, gradients = task.gradient(rows, batches, [0] * 4)
    for i, module in enumerate(modules):
        inputs, targets = task.train
        loss = nn.functional.cross_entropy(module(inputs[batches[i]]), targets[batches[i]])
        loss.backward()
        assert losses[i] == loss
        assert torch.equal(gradients[i], torch.cat([p.grad.reshape(-1) for p in module.parameters()]))


def test_the_gradient_leaves_the_models_as_they_are() -> None:
    task, rows = small_task(), torch.randn(2, 53)
    before = rows.clone()
    task.gradient(rows, [np.arange(4)] * 2, [0, 0])
    assert torch.equal(rows, before)


def test_a_layer_left_in_eval_trains_the_same_before_and_after_a_test() -> None:
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
    data = x, torch.arange(8) % 2
    task = Supervised(nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5).eval(), nn.Linear(64, 2)), data, data)
    row, samples = task.initial_model(0), np.arange(8)
    before = task.gradient(row[None], [samples], [5])[1]
    task.evaluate(row, samples)
    assert torch.equal(before, task.gradient(row[None], [samples], [5])[1])


def test_dropout_is_drawn_from_the_nodes_seed() -> None:
    task = small_task(lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)))
    rows = task.initial_model(0).repeat(3, 1)
    losses, _ = task.gradient(rows, [np.arange(8)] * 3, [1, 2, 1])
    assert losses[0] == losses[2] != losses[1]
    assert task.evaluate(rows[0], np.arange(10)) == task.evaluate(rows[0], np.arange(10))


def test_a_factory_is_called_under_the_seed_and_a_module_is_taken_as_it_is() -> None:
    task = small_task()
    assert torch.equal(task.initial_model(1), task.initial_model(1))
    assert not torch.equal(task.initial_model(1), task.initial_model(2))
    module = nn.Linear(6, 3)
    start = nn.utils.parameters_to_vector(copy.deepcopy(module).parameters())
    assert torch.equal(small_task(module).initial_model(1), start)


class Pairs(Dataset):
    """A map-style data set that tells nothing but its samples."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.x[i], int(self.y[i])


@pytest.mark.parametrize("kind", [TensorDataset, Pairs])
def test_data_sets_and_tensors_give_the_same(kind: type) -> None:
    tensors = small_task()
    data = small_task(train=kind(*tensors.train), test=kind(*tensors.test))
    rows = tensors.initial_model(0)[None]
    for a, b in zip(tensors.gradient(rows, [np.arange(5)], [0]), data.gradient(rows, [np.arange(5)], [0]), strict=True):
        assert torch.equal(a, b)
    assert tensors.evaluate(rows[0], np.arange(10)) == data.evaluate(rows[0], np.arange(10))
    assert data.labels.tolist() == tensors.labels.tolist()
    assert (data.num_samples, data.num_test_samples) == (40, 10)


def test_accuracy_is_the_share_of_right_answers() -> None:
    task = small_task(lambda: nn.Linear(6, 3))
    w = torch.randn(3, 6)
    model = torch.cat([w.reshape(-1), torch.zeros(3)])
    right = (task.test[0] @ w.T).argmax(1) == task.test[1]
    _, accuracy = task.evaluate(model, np.arange(10))
    assert accuracy == pytest.approx(right.float().mean().item())
    assert task.evaluate(model, np.array([3]))[1] == float(right[3])


def test_frozen_parameters_are_neither_trained_nor_shared() -> None:
    net = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    net[0].requires_grad_(False)
    assert sum(small_task(net).layer_sizes) == 18


class Counting(nn.Linear):
    """Counts its calls in a whole number."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return super().forward(x)


class Replacing(nn.Linear):
    """Puts a new tensor in its buffer's place."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        return super().forward(x - self.mean)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, momentum=None), nn.Linear(5, 3))}, "momentum=None"),
        ({"model": lambda: Counting()}, "buffer 'seen' changes in training"),
        ({"model": lambda: Replacing()}, "buffer 'mean' changes in training"),
        ({"model": nn.Linear(6, 3).double()}, r"call .float\(\)"),
        ({"model": nn.Flatten()}, "nothing to train"),
        ({"model": nn.Linear(7, 3)}, "the model does not take the data: RuntimeError"),
        ({"score": lambda output, target: (output.argmax(-1) == target).float().mean()}, "one number per sample"),
        ({"train": (torch.randn(4, 6), torch.zeros(3).long())}, r"Tensor \(4, 6\) and Tensor \(3,\) were given"),
        (
            {"train": (torch.randn(4, 6), torch.tensor([0, 1, 2, 3]))},
            "train targets go up to 3 and the model has 3",
        ),
        ({"test": (torch.randn(0, 6), torch.zeros(0).long())}, "test has no samples"),
        ({"train": (torch.zeros(4, 6), "words")}, "train must be two tensors of the same length.*; Tensor .* and str "),
        ({"clients": np.zeros(3)}, "clients has 3 entries and train 40 samples"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_run_with_what_would(changes: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        small_task(**changes).load()


def test_batch_statistics_stay_with_their_node_and_are_those_of_separate_modules() -> None:
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    task = small_task(net).load()
    rows, buffers = task.initial_model(0).repeat(2, 1), task.buffers.repeat(2, 1)
    alone = [copy.deepcopy(net).train() for _ in range(2)]
    for step in range(3):
        batches = [np.arange(4) + 8 * step, np.arange(4, 8) + 8 * step]
        task.gradient(rows, batches, [0, 0], buffers)
        for module, batch in zip(alone, batches, strict=True):
            module(task.train[0][batch])
    for row, module in zip(buffers, alone, strict=True):
        assert torch.equal(row, torch.cat([module[1].running_mean, module[1].running_var]))
        expected = module.eval()(task.test[0])
        loss, _ = task.evaluate(rows[0], np.arange(10), row)
        torch.testing.assert_close(torch.tensor(loss), nn.functional.cross_entropy(expected, task.test[1]))
    assert not torch.equal(buffers[0], buffers[1])


def test_batch_statistics_survive_a_resume_and_are_the_same_in_any_number_of_workers(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    experiment = Experiment(nodes=4, rounds=4, topology=Ring(), task=small_task(net), evaluation=Evaluation(every=1))
    whole, split = simulate(experiment, workers=1), simulate(experiment, workers=2)
    seen = []

    def stop_after_two(metrics: dict) -> None:
        seen.append(metrics)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(experiment, tmp_path / "run", workers=1, checkpoint_every=2, on_round=stop_after_two)
    again = resume(tmp_path / "run", experiment, workers=1)
    for other in (split, again):
        assert torch.equal(other.models, whole.models)
        assert [m["test_loss"] for m in other.metrics] == [m["test_loss"] for m in whole.metrics]


def test_a_node_that_is_down_keeps_its_batch_statistics() -> None:
    net = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
    faults = Faults(down=((0, 1, 2),))
    experiment = Experiment(nodes=4, rounds=2, topology=Ring(), task=small_task(net), faults=faults)
    with Simulation(experiment, workers=1) as simulation:
        simulation.step()
        buffers = simulation.save()["buffers"]
    assert torch.equal(buffers[0], small_task(net).buffers)
    assert not torch.equal(buffers[1], buffers[0])


def test_held_out_samples_are_neither_trained_on_nor_those_of_the_test() -> None:
    inputs = torch.arange(40.0)[:, None].repeat(1, 6)
    targets = torch.arange(40) % 3
    clients = np.arange(40) // 4
    task = small_task(train=(inputs, targets), clients=clients)
    for data in (task, replace(task, train=TensorDataset(inputs, targets))):
        part = data.with_validation_split(0.25)
        test = [int(part.test[i][0][0]) for i in range(10)] if isinstance(part.test, Subset) else part.test[0][:, 0]
        train = part.train[0][:, 0] if isinstance(part.train, tuple) else [int(x[0]) for x, _ in part.train]
        assert sorted([*map(int, test), *map(int, train)]) == list(range(40))
        assert len(test) == 10
        assert part.labels.tolist() == [int(i) % 3 for i in train]
        assert part.clients.tolist() == [int(i) // 4 for i in train]


def test_augmentation_is_of_training_only_and_preparation_of_both() -> None:
    task = small_task(augment=lambda x: x + torch.rand(()), prepare=lambda x: 2 * x)
    plain, batch = small_task(), np.arange(8)
    row = task.initial_model(0)[None]
    one, other = (task.gradient(row, [batch], [seed])[0] for seed in (1, 2))
    assert one != other
    assert torch.equal(one, task.gradient(row, [batch], [1])[0])
    doubled = replace(plain, test=(2 * plain.test[0], plain.test[1]))
    assert task.evaluate(row[0], np.arange(10)) == doubled.evaluate(row[0], np.arange(10))


def test_a_users_module_is_left_alone_and_two_runs_of_it_are_the_same() -> None:
    module = nn.Linear(6, 3)
    before = copy.deepcopy(module.state_dict())
    experiment = Experiment(nodes=4, rounds=3, topology=Ring(), task=small_task(module))
    first, second = simulate(experiment, workers=1), simulate(experiment, workers=1)
    assert torch.equal(first.models, second.models)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_what_is_frozen_does_not_depend_on_torchs_own_stream() -> None:
    def make() -> nn.Module:
        net = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
        net[0].requires_grad_(False)
        return net

    torch.manual_seed(1)
    one = small_task(make).module
    torch.manual_seed(2)
    assert torch.equal(one[0].weight, small_task(make).module[0].weight)


class Noisy(Pairs):
    """Augmented by whatever people use."""

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        noise = torch.rand(()).item() + np.random.rand() + random.random()
        return self.x[i] + noise, int(self.y[i])


def test_augmentation_is_the_same_in_any_number_of_workers() -> None:
    tensors = small_task()
    task = small_task(train=Noisy(*tensors.train), test=Noisy(*tensors.test))
    experiment = Experiment(nodes=4, rounds=2, topology=Ring(), task=task)
    one, two = simulate(experiment, workers=1), simulate(experiment, workers=2)
    assert torch.equal(one.models, two.models)
    assert one.result["test_loss"] == two.result["test_loss"]


def test_labels_that_are_words_leave_a_task_without_labels() -> None:
    class Words(Pairs):
        def __getitem__(self, i: int) -> tuple[Tensor, str]:
            return self.x[i], "word"

    assert small_task(train=Words(*small_task().train)).labels is None


def test_regression_has_no_labels() -> None:
    assert small_task(train=(torch.randn(4, 6), torch.randn(4))).labels is None


def test_digits_are_the_official_ones_split_once_for_all_seeds() -> None:
    task = Digits().load()
    assert (task.num_samples, task.num_test_samples, task.layer_sizes) == (1437, 360, [64 * 64, 64, 640, 10])
    assert 0 <= task.train[0].min() < task.train[0].max() == 1
    assert sorted(set(task.labels.tolist())) == list(range(10))
    both = torch.cat([task.train[0], task.test[0]])
    assert torch.equal(both.sum(), torch.tensor(561718 / 16))  # the sum of all pixels
    assert Digits(hidden=0).load().layer_sizes == [640, 10]


def test_a_quadratics_gradient_is_that_of_its_loss() -> None:
    task = Quadratic(dimension=5, num_samples=20)
    x = torch.randn(1, 5, requires_grad=True)
    batch = np.array([3, 4, 9])
    loss = (task.curvature * (x - task.points[batch]) ** 2).sum(1).mean() / 2
    loss.backward()
    losses, gradients = task.gradient(x.detach(), [batch], [0])
    torch.testing.assert_close(losses[0], loss.detach())
    torch.testing.assert_close(gradients, x.grad)
    assert task.evaluate(task.optimum, np.arange(20))[1] == 0


class Watching(nn.Linear):
    """Notes where it is computed."""

    seen: ClassVar[list] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append((x.device.type, self.weight.device.type))
        return super().forward(x)


def test_gradients_are_computed_on_the_device_and_brought_back() -> None:
    """On torch's device without memory, where all is computed but nothing can be fetched from at the end."""
    Watching.seen.clear()
    net = nn.Sequential(Watching(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    task = small_task(net).on("meta")
    rows, buffers = small_task(net).initial_model(0).repeat(2, 1), small_task(net).buffers.repeat(2, 1)
    with pytest.raises(NotImplementedError, match="out of meta tensor"):
        task.gradient(rows, [np.arange(4)] * 2, [0, 0], buffers)
    assert Watching.seen == [("meta", "meta")] * 2
    with pytest.raises(ValueError, match="cannot use here"):
        task.on("nowhere")


class Stored(Dataset):
    """As torchvision has them: all targets stand beside the samples."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets.tolist()
        self.target_transform = None

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.inputs[i], self.targets[i]


@pytest.mark.parametrize("which", ["train", "test"])
@pytest.mark.parametrize(("label", "extent"), [(3, "up to 3"), (-1, "down to -1")])
@pytest.mark.parametrize(
    "kind", [lambda *pair: pair, TensorDataset, Stored, lambda *p: Subset(Stored(*p), range(5, 40))]
)
def test_a_label_out_of_range_is_told_at_once_wherever_it_stands(
    kind: object, label: int, extent: str, which: str
) -> None:
    inputs, targets = torch.randn(40, 6), torch.arange(40) % 3
    targets[-2] = label
    sentence = f"{which} targets go {extent} and the model has 3 outputs, 0 to 2"
    with pytest.raises(ValueError, match=sentence):
        small_task(**{which: kind(inputs, targets)}).load()


def test_what_cross_entropy_passes_over_is_no_label_out_of_range() -> None:
    targets = torch.arange(40) % 3
    targets[7] = -100
    assert small_task(train=(torch.randn(40, 6), targets)).load().num_samples == 40
