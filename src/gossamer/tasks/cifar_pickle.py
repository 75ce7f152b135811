"""A reader for the pickles that CIFAR is published as, which runs nothing.

Unpickling can run any program, so it is not done. The few instructions that these files consist of are carried out
here one by one, and can build nothing but numbers, texts, lists, dictionaries and inert records of what NumPy's arrays
were made from. Whatever else a file asks for is refused.
"""

import pickletools
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LITERALS = {"BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "BINBYTES", "SHORT_BINBYTES"}
_EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_ARRAY = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_NAMES = _ARRAY | {"numpy ndarray", "numpy dtype"}


class Record:
    """What the file says of an array or its type: nothing is called."""

    def __init__(self, name: str):
        self.name = name
        self.arguments: tuple[Any, ...] = ()
        self.state: tuple[Any, ...] = ()


class _Mark:
    """Where the items of a list, tuple or dictionary begin."""


def read_pickle(data: bytes | mmap) -> Any:
    """What the file holds; ValueError if it asks for anything that CIFAR's files do not."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for opcode, argument, _ in pickletools.genops(data):  # type: ignore[arg-type]  # a map can be read like a file
        if opcode.name == "STOP":
            return stack.pop()
        _carry_out(opcode.name, argument, stack, memo)
    raise ValueError("it ends too early")


def _carry_out(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    if name in _LITERALS:
        stack.append(argument)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in _EMPTY:
        stack.append(_EMPTY[name]())
    elif name in ("BINPUT", "LONG_BINPUT"):
        memo[argument] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET"):
        stack.append(memo[argument])
    elif name == "MARK":
        stack.append(_Mark)
    elif name in _TUPLES:
        stack.append(tuple([stack.pop() for _ in range(_TUPLES[name])][::-1]))
    elif name == "TUPLE":
        stack.append(tuple(_since_mark(stack)))
    elif name in ("APPEND", "APPENDS"):
        items = _since_mark(stack) if name == "APPENDS" else [stack.pop()]
        _as(list, stack[-1]).extend(items)
    elif name in ("SETITEM", "SETITEMS"):
        items = _since_mark(stack) if name == "SETITEMS" else [stack.pop(), stack.pop()][::-1]
        _as(dict, stack[-1]).update(zip(items[::2], items[1::2], strict=True))
    elif name == "GLOBAL":
        if argument not in _NAMES:
            raise ValueError(f"it asks for {argument!r}, which is no part of this data set")
        stack.append(Record(argument))
    elif name == "REDUCE":
        arguments, made = _as(tuple, stack.pop()), Record(_as(Record, stack.pop()).name)
        made.arguments = arguments
        stack.append(made)
    elif name == "BUILD":
        state = _as(tuple, stack.pop())
        _as(Record, stack[-1]).state = state
    elif name != "PROTO":
        raise ValueError(f"it has the instruction {name}, which is no part of this data set")


def _since_mark(stack: list[Any]) -> list[Any]:
    items: list[Any] = []
    while (item := stack.pop()) is not _Mark:
        items.append(item)
    return items[::-1]


def _as(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"it has a {type(value).__name__} in place of a {kind.__name__}")
    return value


def array_of_bytes(record: Any) -> NDArray[np.uint8]:
    """The array of unsigned bytes that a record tells of, not to be written to."""
    if _as(Record, record).name not in _ARRAY or len(record.state) != 5:
        raise ValueError("it has no array where its pixels should be")
    _, shape, kind, by_columns, data = record.state
    if _as(Record, kind).name != "numpy dtype" or kind.arguments[:1] not in (("u1",), (b"u1",)):
        raise ValueError("its pixels are not unsigned bytes")
    flat = np.frombuffer(data.encode("latin-1") if isinstance(data, str) else _as(bytes, data), np.uint8)
    return flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)
