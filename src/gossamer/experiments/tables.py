"""What an experiment file can name, and how its mistakes are told."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import UnionType
from typing import Any, Literal, Protocol, Union, get_args, get_origin, runtime_checkable

from gossamer.algorithms import ALGORITHMS
from gossamer.compressors import COMPRESSORS, Compressor
from gossamer.core import Algorithm, Task
from gossamer.data import TASKS
from gossamer.data.partition import PARTITIONS, Partition
from gossamer.experiments.auto import Auto
from gossamer.experiments.plugins import with_plugins
from gossamer.graphs.clock import DISTRIBUTIONS, Distribution
from gossamer.graphs.topologies import TOPOLOGIES, Topology
from gossamer.models import MODELS, Architecture
from gossamer.training.optimizer import OPTIMIZERS, LocalOptimizer
from gossamer.training.schedules import SCHEDULES, Schedule
from gossamer.transforms import TRANSFORMS, Transform


class ExperimentError(ValueError):
    """A setting that cannot work; the message names it, what was given and what would work."""


@runtime_checkable
class TaskSource(Protocol):
    """Something that gives a task: one of `TASKS`, or a `Supervised` with your own model and data."""

    def load(self) -> Task: ...


def _subclass_of(kind: type) -> Callable[[type], bool]:
    return lambda given: issubclass(given, kind)


TABLES: dict[type, dict[str, type]] = {
    TaskSource: with_plugins("tasks", TASKS, lambda given: callable(getattr(given, "load", None))),
    Partition: with_plugins("partitions", PARTITIONS, _subclass_of(Partition)),
    Topology: with_plugins("topologies", dict(TOPOLOGIES), _subclass_of(Topology)),
    Algorithm: with_plugins("algorithms", {**ALGORITHMS, "auto": Auto}, _subclass_of(Algorithm)),
    LocalOptimizer: dict(OPTIMIZERS),
    Schedule: dict(SCHEDULES),
    Compressor: with_plugins("compressors", dict(COMPRESSORS), _subclass_of(Compressor)),
    Transform: with_plugins("transforms", dict(TRANSFORMS), _subclass_of(Transform)),
    Architecture: with_plugins("models", dict(MODELS), _subclass_of(Architecture)),
    Distribution: dict(DISTRIBUTIONS),
}
"""What an experiment file can name, by the type of the setting."""

DEFAULT_NAMES: dict[type, str] = {LocalOptimizer: "sgd"}
"""What a section stands for that has settings and no name."""

OLD_NAMES = {"from-start": "relative-to-init", "everything": "none"}
"""What files of earlier versions call something in these tables."""


def named(value: object) -> str:
    """The name of a task, topology, algorithm, ... in an experiment file; of a class of the user's own, its name."""
    for table in TABLES.values():
        for name, kind in table.items():
            if type(value) is kind:
                return name
    return type(value).__qualname__


def words(hint: Any) -> str:
    """A type in words."""
    if hint in TABLES:
        return f"one of {', '.join(TABLES[hint])}"
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(words(a) for a in arguments if a is not type(None))
    if origin is Literal:
        return " or ".join(f'"{a}"' if isinstance(a, str) else str(a) for a in arguments)
    if origin is tuple and arguments[-1] is not ...:
        return f"[{', '.join(words(a) for a in arguments)}]"
    if origin is tuple:
        return f"a list, each {words(arguments[0])}"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(hint, str(hint))


@contextmanager
def section(path: str) -> Iterator[None]:
    """Errors from inside name this part of the experiment."""
    try:
        yield
    except ExperimentError:
        raise
    except ValueError as error:
        raise ExperimentError(f"{path}: {error}") from error
