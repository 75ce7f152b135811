"""What to call runs that stand side by side: by what differs between their experiments."""

from collections.abc import Sequence
from typing import Any

from gossamer.experiments import toml

SAME = ("seed", "name", "note")  # what does not make another experiment: names and notes only say what settings are
LONGEST = 60  # a label of more characters than these is no better than the experiment's name


def labels(documents: Sequence[toml.Document]) -> list[str]:
    """A label per experiment: the algorithm, if that tells them apart; else with the settings that differ, or, where
    these are many, the experiment's name. Equal labels are equal experiments, apart from seed and note."""
    unseeded = [document | {"seed": 0, "note": ""} for document in documents]
    algorithms = [document["algorithm"]["name"] for document in documents]
    names = [str(document["name"]) for document in documents]
    keys = differing(documents)
    full = [_described(algorithm, document, keys) for algorithm, document in zip(algorithms, documents, strict=True)]
    candidates = [algorithms, *[full] * (max(map(len, full), default=0) <= LONGEST), names, full]
    apart = next((of for of in candidates if _tells_apart(of, unseeded)), None)
    return apart or [f"{name}: {label}" for name, label in zip(names, full, strict=True)]


def title(documents: Sequence[toml.Document]) -> str:
    """An experiment's name, or what is compared: "jwins and lace on digits", "jwins on digits by budget"."""
    keys = differing(documents)
    if not keys:
        return _listed(dict.fromkeys(str(document["name"]) for document in documents))
    algorithms = dict.fromkeys(document["algorithm"]["name"] for document in documents)
    tasks = dict.fromkeys(document["task"]["name"] for document in documents)
    by = [name for key, name in _names(keys).items() if key not in ("algorithm.name", "task.name")]
    told = f" by {_listed(by)}" if 0 < len(by) <= 3 else " in several settings" if by else ""
    compared = _listed(algorithms) if len(algorithms) <= 4 else f"{len(algorithms)} algorithms"
    return f"{compared} on {_listed(tasks)}{told}"


def differing(documents: Sequence[toml.Document]) -> list[str]:
    """The settings in which experiments differ, seed, name and note apart; not those that only go with another
    algorithm, topology or task."""
    first, *others = documents
    found = {key for other in others for key in toml.differences(first, other)}
    return sorted(key for key in found if key not in SAME and _is_chosen(key, documents))


def _is_chosen(key: str, documents: Sequence[toml.Document]) -> bool:
    """Does the setting differ where the names of the parts that it belongs to are the same?"""
    values: dict[str, str] = {}
    for document in documents:
        sections = [key.rpartition(".")[0].rsplit(".", up)[0] for up in range(key.count("."))]
        names = [toml.look_up(document, f"{section}.name") for section in sections if f"{section}.name" != key]
        value = repr(toml.look_up(document, key))
        if values.setdefault(repr(names), value) != value:
            return True
    return False


def _tells_apart(candidates: Sequence[str], documents: Sequence[toml.Document]) -> bool:
    """Have different experiments different names?"""
    first: dict[str, toml.Document] = {}
    return not any(
        toml.differences(first.setdefault(name, document), document)
        for name, document in zip(candidates, documents, strict=True)
    )


def _described(algorithm: str, document: toml.Document, keys: Sequence[str]) -> str:
    """The algorithm and the settings that differ: "jwins, budget 0.1, degree 4"."""
    given = ((name, toml.look_up(document, key)) for key, name in _names(keys).items() if key != "algorithm.name")
    return ", ".join([algorithm, *(f"{name} {_value(value)}" for name, value in given if value not in (None, ""))])


def _names(keys: Sequence[str]) -> dict[str, str]:
    """What to call settings: by the last word of a key, or by two where two keys end alike; a part by its section."""
    shorter = {key: key.removesuffix(".name").split(".") for key in keys}
    last = [words[-1] for words in shorter.values()]
    return {
        key: " ".join(words[-1:] if last.count(words[-1]) == 1 else words[-2:]).replace("_", " ")
        for key, words in shorter.items()
    }


def _value(value: Any) -> str:
    if isinstance(value, dict):  # a whole section that others do not have
        return _value(value.get("name", "other"))
    if isinstance(value, list):
        return " ".join(map(_value, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(names: Any) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else str(last)
