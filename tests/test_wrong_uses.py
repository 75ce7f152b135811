"""What goes wrong when one brings one's own model, data, optimizer or metric: each is told in one sentence, before a
round is run, with what would work."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import gossamer as gs

POINTS, CLASSES = torch.randn(24, 4), torch.arange(24) % 3
PAIR = POINTS, CLASSES


def run(model: Any = None, train: Any = PAIR, test: Any = PAIR, callbacks: Any = (), **more: Any) -> gs.Run:
    fields = {key: more.pop(key) for key in list(more) if key in gs.Supervised.__dataclass_fields__}
    task = gs.Supervised(model or (lambda: nn.Linear(4, 3)), train, test, **fields)
    settings = {"nodes": 3, "rounds": 2, "topology": gs.Ring(), "task": task} | more
    return gs.simulate(gs.Experiment(**settings), workers=1, callbacks=callbacks)


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        return iter([(POINTS[0], 0)])


class Empty(Dataset):
    def __len__(self) -> int:
        return 0

    def __getitem__(self, i: int) -> Any:
        raise IndexError(i)


class NoLoss(nn.Linear):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x)


class SharesMemory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        both = torch.randn(7, 4)
        self.weight, self.twin = nn.Parameter(both[:3]), nn.Parameter(both[3:])

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


def fails(outputs: Tensor, targets: Tensor) -> float:
    raise ZeroDivisionError("nothing was found")


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no loss": (
        lambda: run(lambda: NoLoss(4, 3), {"x": POINTS}, {"x": POINTS}),
        "the model returned no loss, and a batch has no 'labels' to compute one with",
    ),
    "a metric that fails": (lambda: run(metrics={"f1": fails}), r"metrics\['f1'\] failed .* nothing was found"),
    "a metric that is no number": (lambda: run(metrics={"f1": lambda o, y: o}), r"metrics\['f1'\] failed on outputs"),
    "a metric that is no function": (lambda: run(metrics={"f1": 0.5}), "must be a function of outputs and targets"),
    "a metric with the score's name": (lambda: run(metrics={"accuracy": fails}), "which is that of the score"),
    "neither score nor metrics": (lambda: run(score=None), "score is None and there are no metrics"),
    "a score of the whole batch": (lambda: run(score=lambda o, y: o.mean()), "score must give one number per sample"),
    "parameters that share memory": (lambda: run(SharesMemory), "'weight' and 'twin' share memory; to tie them"),
    "parameters without a shape": (lambda: run(lambda: nn.LazyLinear(3)), "has no shape yet; call the model once"),
    "a model in half precision": (lambda: run(lambda: nn.Linear(4, 3).half()), r"call \.float\(\) on the model"),
    "a model with nothing to train": (
        lambda: run(nn.Linear(4, 3).requires_grad_(False)),
        "no parameter that requires a gradient",
    ),
    "no model": (lambda: run("resnet"), "model must be a torch module, or a function that makes one, 'resnet'"),
    "a model for other inputs": (lambda: run(lambda: nn.Linear(5, 3)), "the model does not take the data: Runtime"),
    "too few outputs": (lambda: run(lambda: nn.Linear(4, 2)), "train targets go up to 2 and the model has 2 outputs"),
    "an empty dataset": (lambda: run(train=Empty()), "train has no samples"),
    "an iterable dataset": (lambda: run(train=Endless()), "give a map-style one, with __len__ and __getitem__"),
    "a data loader": (lambda: run(train=DataLoader(TensorDataset(*PAIR))), "train is a DataLoader; give its dataset"),
    "no data at all": (lambda: run(train=7), r"train must be \(inputs, targets\), .* int was given"),
    "columns of different lengths": (
        lambda: run(train={"x": POINTS, "labels": CLASSES[:5]}),
        "the columns of train must be of the same length",
    ),
    "a table of words": (
        lambda: run(train=pd.DataFrame({"x": ["a", "b"], "labels": [0, 1]})),
        "turn them into numbers first",
    ),
    "a table without its target": (
        lambda: run(train=pd.DataFrame({"x": [1.0], "y": [0]})),
        "train has no column 'labels'; name the one to predict with target=",
    ),
    "a list of tensors": (lambda: run(train=[POINTS, CLASSES]), r"a list is one dataset per node; write \(inputs"),
    "data of too few nodes": (lambda: run(train=[PAIR, PAIR]), "train has the data of 2 nodes, and there are 3"),
    "a partition of data that are divided": (
        lambda: run(train=[PAIR] * 3, partition=gs.LabelShards()),
        "label-shards was given, and train came divided by node; leave it out",
    ),
    "an optimizer of torch": (
        lambda: run(optimizer=torch.optim.Adam(nn.Linear(4, 3).parameters())),
        r"optimizer must be an instance such as gs.SGD\(\), gs.Adam\(\) or gs.AdamW\(\).*torch.optim",
    ),
    "an optimizer with closures": (
        lambda: run(optimizer=torch.optim.LBFGS),
        r"optimizer must be an instance such as gs.SGD\(\).*torch.optim",
    ),
    "a schedule of torch": (
        lambda: run(optimizer=gs.SGD(schedule=torch.optim.lr_scheduler.ExponentialLR)),
        r"schedule must be an instance such as Cosine\(\)",
    ),
    "a callback that is none": (lambda: run(callbacks=[0.1]), "callbacks must be a list of functions of the run"),
    "early stopping by what is not measured": (
        lambda: run(callbacks=[gs.EarlyStopping("f1_mean")]),
        "the metrics have no number 'f1_mean'; they have ",
    ),
    "a table with missing values": (
        lambda: run(train=pd.DataFrame({"a": [1.0, np.nan], "labels": [0, 1]})),
        r"column 'a' of train has missing values \(NaN\); fill them in",
    ),
    "a table with words": (
        lambda: run(train=pd.DataFrame({"a": [1.0, 2.0], "name": ["x", "y"], "labels": [0, 1]})),
        "column 'name' of train holds .* values; turn them into numbers first",
    ),
    "regression with the score for classes": (
        lambda: run(lambda: nn.Linear(4, 1), (POINTS, POINTS[:, :1]), (POINTS, POINTS[:, :1]), loss=nn.MSELoss()),
        "score must give one number per sample.*; the default is for classes",
    ),
    "samples for nobody": (
        lambda: run(clients=np.zeros(3, np.int64)),
        "clients has 3 entries and train 24 samples",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_use_is_told_in_one_sentence(what: str) -> None:
    use, words = WRONG[what]
    with pytest.raises(ValueError, match=words) as raised:
        use()
    told = str(raised.value)
    assert "\n" not in told
    assert not told.endswith(".")
