"""What the papers' own encodings would have cost, to compare with their figures.

JWINS' code sorts the indices, writes the differences between them by Elias-gamma, adds 16 bytes for the first index and
the number of bits, and compresses the values by fpzip. Sparse-Push charges 6 bytes for an entry it sends, 4 for the
value and 2 for the index. Both are for float32 values; seeded parts have no indices there either.
"""

from collections.abc import Mapping
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from gossamer.core import Message, Part, PartSpec


def six_bytes(parts: Mapping[str, PartSpec], message: Message) -> list[int]:
    """Bytes of each row of a message by Sparse-Push's formula."""
    totals = np.zeros(_num_rows(message), np.int64)
    for name, spec in parts.items():
        part = message[name]
        sent = part.values.shape[1] if part.sent is None else part.sent.sum(-1).numpy()
        totals += sent * (6 if spec.sparse else 4)
    return [int(total) for total in totals]


def elias_fpzip_bytes(parts: Mapping[str, PartSpec], message: Message) -> list[int]:
    """Bytes of each row of a message as JWINS' code would encode it."""
    return [
        sum(
            (elias_bytes(_positions(message[name], row)) if spec.sparse else 0)
            + fpzip_bytes(_sent_values(message[name], row))
            for name, spec in parts.items()
        )
        for row in range(_num_rows(message))
    ]


def elias_bytes(positions: NDArray[np.int64]) -> int:
    """Bytes of ascending positions: Elias-gamma of their differences, and 16 bytes."""
    differences = np.diff(positions)
    num_bits = int((2 * np.floor(np.log2(differences)).astype(np.int64) + 1).sum())
    return 16 + (num_bits + 7) // 8


def fpzip_bytes(values: NDArray[np.float32]) -> int:
    """Bytes of values compressed without loss by fpzip, an optional dependency."""
    try:
        fpzip = import_module("fpzip")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'comparing with "elias-fpzip" needs the fpzip package: pip install "gossamer[reference]"'
        ) from error
    return len(fpzip.compress(values, precision=0, order="C")) if values.size else 0


def _num_rows(message: Message) -> int:
    return max((len(part.values) for part in message.values()), default=0)


def _positions(part: Part, row: int) -> NDArray[np.int64]:
    return np.arange(part.values.shape[1]) if part.sent is None else np.flatnonzero(part.sent[row].numpy())


def _sent_values(part: Part, row: int) -> NDArray[np.float32]:
    values = part.values[row].numpy() if part.sent is None else part.values[row][part.sent[row]].numpy()
    return values.astype(np.float32)
