"""The settings of algorithms, compressors and transforms, which are fields of dataclasses."""

from dataclasses import MISSING, fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

_NUMBERS: dict[Any, type] = {int: Integral, float: Real}  # those of NumPy are among these
_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a text", NoneType: "None"}


def check_types(settings: Any) -> None:
    """ValueError if a field of this dataclass is not of its type. What a Literal allows is for the class to check."""
    for f in fields(settings):
        given = getattr(settings, f.name)
        kinds = get_args(f.type) if get_origin(f.type) in (Union, UnionType) else (f.type,)
        if not all(isinstance(kind, type) for kind in kinds):
            continue
        if isinstance(given, type):
            name = given.__name__
            raise ValueError(f"{f.name} must be an instance, the class {name} was given; write {name}(...)")
        if not isinstance(given, tuple(_NUMBERS.get(kind, kind) for kind in kinds)):
            example = "" if f.default is MISSING or kinds[0] in _WORDS else f" such as {f.default!r}"
            must = " or ".join(_WORDS.get(kind, f"an instance of {kind.__name__}") for kind in kinds)
            raise ValueError(f"{f.name} must be {must}{example}, {given!r} was given")
