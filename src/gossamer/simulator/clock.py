"""A run's virtual clock and battery: what its rounds would take on the nodes and the network of `[clock]`."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core import Task
from gossamer.experiments.experiment import Experiment
from gossamer.graphs.clock import Times
from gossamer.graphs.delivery import Links
from gossamer.training.cost import step_joules

SECONDS_PER_HOUR = 3600.0


class RunClock:
    """Seconds and joules of every node so far, from the bytes that were really counted. Off, it has no metrics."""

    def __init__(self, experiment: Experiment, task: Task):
        self._experiment, self._settings, self._delivery = experiment, experiment.clock, experiment.delivery
        self.on = experiment.clock.on
        self._speeds = experiment.clock.speeds(experiment.nodes, experiment.seed)
        self._step_joules = step_joules(task, experiment.batch_size) if self.on else 0.0
        self._table = np.zeros((experiment.nodes, 4))  # ready, uplink, joules of computing, joules of the radio

    @property
    def saved(self) -> dict[str, Tensor]:
        """What the next round depends on and changes; to be restored, it is written to."""
        return {"clock": torch.from_numpy(self._table)} if self.on else {}

    def exchange(self, exchange: int, sent: Links, arrives: NDArray[np.bool_], num_bytes: NDArray[np.int64]) -> None:
        """Advance by an exchange, and by the local steps before it, if it is a round's first."""
        round, index = divmod(exchange, self._experiment.exchanges)
        times = Times(self._table[:, 0], self._table[:, 1])
        if index == 0 and round < self._experiment.training_rounds:
            minibatches = self._experiment.local_steps * self._experiment.optimizer.accumulate
            steps = minibatches * self._delivery.up(exchange)
            times = times.computed(steps * self._settings.step_seconds_in(self._speeds, round))
            self._table[:, 2] += steps * self._step_joules
        latencies, rates = self._settings.links_in(self._speeds, sent.senders, sent.receivers, round)
        waited = arrives & (num_bytes > 0) & (self._delivery.lateness[sent.senders] == 0)
        waited &= not self._delivery.is_asynchronous(round)
        times = times.exchanged(sent.senders, sent.receivers, 8 * num_bytes / rates, latencies, waited)
        self._table[:, :2] = np.stack(self._with_those_down(times, round), axis=1)
        np.add.at(self._table[:, 3], sent.senders, num_bytes * self._speeds.joules_sent[sent.senders])
        reached, taken = sent.receivers[arrives], num_bytes[arrives]
        np.add.at(self._table[:, 3], reached, taken * self._speeds.joules_received[reached])

    def _with_those_down(self, times: Times, round: int) -> Times:
        """A node that is down stands still, and comes back no earlier than where the one furthest behind is."""
        up = self._experiment.faults.up(self._experiment.nodes, round)
        if up.all() or not up.any():
            return times
        return times._replace(ready=np.where(up, times.ready, np.maximum(times.ready, times.ready[up].min())))

    def metrics(self) -> dict[str, float]:
        """So far: the last node's time and the mean one, and energy per node."""
        if not self.on:
            return {}
        ready, _, compute, radio = self._table.T
        joules = compute + radio
        share = 1 / (self._settings.battery_wh * SECONDS_PER_HOUR)
        return {
            "clock_seconds": float(ready.max()),
            "clock_seconds_mean": float(ready.mean()),
            "energy_joules_mean": float(joules.mean()),
            "energy_joules_radio_mean": float(radio.mean()),
            "battery_share_mean": float(joules.mean() * share),
            "battery_share_max": float(joules.max() * share),
        }
