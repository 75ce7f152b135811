"""What the range coder takes for likely, in whole numbers, so that every machine takes the same.

It codes bytes that are not zero. Of a *guess* of 0 .. 128 the ones of a byte are as if drawn from an urn of
2 * guess + 1 white and 257 - 2 * guess black balls, to which a few of the same colour are added after each draw
(Polya's urn): a one makes another likelier, and bytes with as many ones are equally likely. Each byte has a range of so
many parts of 65536; the ranges follow each other in the order of ones, then of bytes.
"""

from math import comb, prod

import numpy as np

GUESSES = 129
ADDED = (16, 32)  # balls, to the urn of a mask and to that of flags
UNIT = 1 << 16  # parts of a bit, in which costs are counted


def _parts(guess: int, added: int) -> list[int]:
    """How many of 65536 parts a byte with 0 .. 8 ones has: 2 at least, but for 0."""
    white, black = 2 * guess + 1, 257 - 2 * guess
    ways = [0] + [
        prod(white + added * i for i in range(ones)) * prod(black + added * i for i in range(8 - ones))
        for ones in range(1, 9)
    ]
    total = sum(comb(8, ones) * ways[ones] for ones in range(9))
    parts = [0] + [max(2, 65536 * way // total) for way in ways[1:]]
    left = 65536 - sum(comb(8, ones) * parts[ones] for ones in range(9))
    if white < black:
        parts[1] += left // 8
        left %= 8
    parts[8] += left
    return parts


_all_parts = np.array([_parts(guess, added) for added in ADDED for guess in range(GUESSES)])
_all_ranges = _all_parts * [comb(8, ones) for ones in range(9)]
_all_starts = np.cumsum(_all_ranges, axis=1) - _all_ranges
_nonzero = np.maximum(_all_parts, 2)
# a row for each guess, those of flags behind, and each number of ones: 2^32 / parts, parts, start
ROWS = ((-(-(1 << 32) // _nonzero) << 32) | _all_parts << 16 | _all_starts).astype(np.uint64).ravel()
RECIPROCALS = np.array([-(-(1 << 64) // int(parts)) for parts in _nonzero.ravel()], np.uint64)
# in parts of a bit, rounded up, and 2 more: rounding makes a state grow by less. 1e-4 is more than a logarithm
# is off on any machine, and less than what those that are not whole have above a whole number.
COSTS = np.where(_all_parts > 0, np.ceil(UNIT * np.log2(65536 / _nonzero) - 1e-4) + 2, 0).astype(np.uint32).ravel()
STARTS = _all_starts[:, 1:].astype(np.uint16).ravel()  # of bytes with 1 .. 8 ones
SYMBOLS = np.zeros(9 << 7, np.uint8)  # the bytes with so many ones, in order
RANKS = np.zeros(256, np.uint64)  # of a byte among those
for _ones in range(9):
    _same = [symbol for symbol in range(256) if symbol.bit_count() == _ones]
    SYMBOLS[_ones << 7 : (_ones << 7) + len(_same)] = _same
    RANKS[_same] = range(len(_same))
