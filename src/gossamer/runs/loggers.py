"""The metrics of a run where one already looks at them: in TensorBoard, MLflow, or Weights & Biases.

A logger is called after every round, with the metrics that a line of metrics.jsonl has:

    gs.simulate(experiment, on_round=gs.TensorBoardLogger("events"))

It begins with the first round that it is told of. By then the simulator's workers have been forked, which must not
happen to a process with the threads that these libraries start.
"""

import os
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError


class TensorBoardLogger:
    """Writes the metrics of every round to event files in a directory; needs the extra gossamer[tensorboard]."""

    def __init__(self, directory: str | os.PathLike[str]):
        _need("tensorboard", "tensorboard")
        self.directory = directory
        self._writer: Any = None

    def __call__(self, metrics: Mapping[str, Any]) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.directory), purge_step=metrics["round"])  # not again after a resume
        for name, number in numbers(metrics):
            self._writer.add_scalar(name, number, metrics["round"])
        if "test_loss" in metrics:  # so the last round is among them
            self._writer.flush()

    def close(self) -> None:
        """End the file; what was told until then is in it."""
        if self._writer is not None:
            self._writer.close()


class MLflowLogger:
    """Logs the experiment's settings and the metrics of every round to MLflow; needs the extra gossamer[mlflow].

    `name` is that of the experiment in MLflow, to which the run is added; `tracking_uri` where it is kept, by default
    what MLFLOW_TRACKING_URI names. After the last round the run is marked as finished; of a run that a callback ends
    early, `close()` does so.
    """

    def __init__(self, experiment: Experiment, name: str = "gossamer", tracking_uri: str | None = None):
        _need("mlflow", "mlflow")
        self.experiment, self.name, self.tracking_uri = experiment, name, tracking_uri
        self.run_id: str | None = None  # MLflow's, from the first round on
        self._client: Any = None

    def __call__(self, metrics: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric

        if self.run_id is None:
            self._begin()
        now = int(time.time() * 1000)
        told = [Metric(name, float(number), now, metrics["round"]) for name, number in numbers(metrics)]
        self._client.log_batch(self.run_id, metrics=told)
        if metrics["round"] == self.experiment.rounds:
            self.close()

    def close(self) -> None:
        """Mark the run as finished, if it ended before its last round."""
        if self.run_id is not None:
            self._client.set_terminated(self.run_id)

    def _begin(self) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient(tracking_uri=self.tracking_uri)
        known = self._client.get_experiment_by_name(self.name)
        group = self._client.create_experiment(self.name) if known is None else known.experiment_id
        self.run_id = self._client.create_run(group, run_name=self.experiment.name).info.run_id
        settings = [Param(key, str(value)) for key, value in _flat(toml.write(self.experiment), ".")]
        self._client.log_batch(self.run_id, params=settings)


class WandbLogger:
    """Logs the experiment's settings and the metrics of every round to Weights & Biases; needs gossamer[wandb].

    `options` go to wandb.init, such as mode="offline". After the last round the run is finished; one that a callback
    ends early, by `close()`.
    """

    def __init__(self, experiment: Experiment, project: str = "gossamer", **options: Any):
        _need("wandb", "wandb")
        self.experiment, self.project, self.options = experiment, project, options
        self.run: Any = None  # wandb's, from the first round on

    def __call__(self, metrics: Mapping[str, Any]) -> None:
        if self.run is None:
            import wandb

            about = {"project": self.project, "name": self.experiment.name, "config": toml.write(self.experiment)}
            self.run = wandb.init(**about | self.options)
        self.run.log(dict(numbers(metrics)), step=metrics["round"])
        if metrics["round"] == self.experiment.rounds:
            self.close()

    def close(self) -> None:
        """Finish the run, if it ended before its last round."""
        if self.run is not None:
            self.run.finish()


def numbers(metrics: Mapping[str, Any]) -> Iterator[tuple[str, int | float]]:
    """The numbers in a round's metrics, those inside a table with its name in front; of single nodes none."""
    shared = {key: value for key, value in metrics.items() if key != "round" and not key.endswith("_by_node")}
    flat = _flat(shared, "/")
    return ((key, value) for key, value in flat if isinstance(value, int | float) and not isinstance(value, bool))


def _flat(table: Mapping[str, Any], separator: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, separator, f"{prefix}{key}{separator}")
        else:
            yield prefix + key, value


def _need(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise ExperimentError(f"{package} is needed to log to it; install it with: pip install 'gossamer[{extra}]'")
