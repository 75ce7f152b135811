"""Slow samples are fetched in a background thread while the model computes, with nothing else changed.

Minibatches are handed out in the same order, and what is fetched ahead holds no random numbers: torch's, NumPy's and
Python's generators belong to the whole process, and a thread that drew from them would change what the model draws.
Where fetching draws, it is done in place. So is whatever fails, so that errors are those of a run without the thread.
The thread lives for the local steps of one round, so that none is there when processes fork or a run ends.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import default_collate

from gossamer.core import Samples
from gossamer.data.datasets import Batch, Collate, Data, fetch

SLOW_SECONDS = 0.002  # of a minibatch; what is quicker is not worth a thread
_AHEAD = 2  # minibatches that are being fetched, or are waiting to be taken


class _DrawsError(Exception):
    """What is fetched ahead is random."""


class _NothingRandom(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """In this thread, refuse operations that draw from torch's generator, before they do."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise _DrawsError
        return func(*args, **(kwargs or {}))


class Prefetcher:
    """Fetches minibatches, ahead of their use where that helps."""

    def __init__(self, data: Data, collate: Collate | None):
        self._data, self._collate = data, collate
        self._slow = self._draws = False
        self._upcoming: Iterator[Samples] = iter(())
        self._pending: deque[tuple[Samples, Future[Batch]]] = deque()
        self._thread: ThreadPoolExecutor | None = None
        self._turns = _Turns()

    @contextmanager
    def seeding(self) -> Iterator[None]:
        """In here generators may be seeded: the thread is between two samples, and does not take it for a draw."""
        if self._thread is None:
            yield
        else:
            with self._turns.first():
                yield

    @contextmanager
    def reading_ahead(self, upcoming: Iterator[Samples]) -> Iterator[None]:
        """While in here, `get` is asked for these samples in this order, or for others now and then."""
        self._upcoming = upcoming
        try:
            yield
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._thread, self._upcoming = None, iter(())
        self._pending.clear()

    def get(self, samples: Samples) -> Batch:
        """A minibatch."""
        if self._pending and np.array_equal(self._pending[0][0], samples):
            _, future = self._pending.popleft()
            error = future.exception()
            if error is None:
                self._ask()
                return future.result()
            self._draws |= isinstance(error, _DrawsError)
            self._stop()
        else:
            self._pass(samples)
        return self._in_place(samples)

    def _pass(self, samples: Samples) -> None:
        """These were not asked for ahead: they are the next of the upcoming ones, or others."""
        wait([future for _, future in self._pending])  # a dataset need not bear two readers at once
        if self._pending:
            return
        following = next(self._upcoming, None)
        if following is not None and not np.array_equal(following, samples):
            self._upcoming = _before(following, self._upcoming)

    def _in_place(self, samples: Samples) -> Batch:
        before, begun = (None if self._draws else _states()), time.perf_counter()
        batch = fetch(self._data, samples, self._collate)
        self._slow = time.perf_counter() - begun > SLOW_SECONDS
        self._draws = before is None or not _same(before, _states())
        self._ask()
        return batch

    def _ask(self) -> None:
        """Have minibatches fetched ahead."""
        if not self._slow or self._draws:
            return
        while len(self._pending) < _AHEAD and (samples := next(self._upcoming, None)) is not None:
            if self._thread is None:  # as many threads for a sum as here, since they decide its order
                self._thread = ThreadPoolExecutor(1, "prefetch", torch.set_num_threads, (torch.get_num_threads(),))
            self._pending.append((samples, self._thread.submit(self._ahead, samples)))

    def _ahead(self, samples: Samples) -> Batch:
        with _NothingRandom():  # type: ignore[no-untyped-call]
            rows = [self._without_draws(self._data.__getitem__, int(i)) for i in samples]
            return self._without_draws(self._collate or default_collate, rows)

    def _without_draws(self, make: Callable[[Any], Any], given: Any) -> Any:
        with self._turns.second():
            before = _states()[1:]  # torch's is the model's to draw from meanwhile
            made = make(given)
            if not _same(before, _states()[1:]):
                raise _DrawsError
        return made


class _Turns:
    """A lock for two threads, the first of which has precedence. One that is merely free could be taken by the second
    again and again before the first awakes."""

    def __init__(self) -> None:
        self._lock, self._free = threading.Lock(), threading.Event()
        self._free.set()

    @contextmanager
    def first(self) -> Iterator[None]:
        self._free.clear()
        with self._lock:
            yield
        self._free.set()

    @contextmanager
    def second(self) -> Iterator[None]:
        self._free.wait()
        with self._lock:
            yield


def _before(first: Samples, rest: Iterator[Samples]) -> Iterator[Samples]:
    yield first
    yield from rest


def _states() -> tuple[Any, ...]:
    """Of the generators that a dataset may draw from."""
    _, key, *numbers = np.random.get_state()
    return torch.default_generator.get_state().numpy(), key, np.array(numbers), np.array(random.getstate()[1])


def _same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(some, others, strict=True))
