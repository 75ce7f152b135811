"""The raw words of NumPy's Philox generator (Philox4x64-10), for many streams in one call.

Making a generator object takes NumPy longer than a small model's whole step; these are the same words.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

u64: Any = np.uint64
Words = NDArray[np.uint64]

_MULTIPLIERS = (u64(0xD2E7470EE14C6C93), u64(0xCA5A826395121157))
_KEY_STEPS = (u64(0x9E3779B97F4A7C15), u64(0xBB67AE8584CAA73B))
_ROUNDS = 10
_LOW = u64(0xFFFFFFFF)
_HALF = u64(32)


@njit(cache=True)
def _high(a: Any, b: Any) -> Any:
    """The upper 64 bits of a product of 128."""
    a_low, a_high, b_low, b_high = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a_high * b_low + (a_low * b_low >> _HALF)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _HALF) + (other >> _HALF)


@njit(cache=True)
def fill_words(seed: Any, purpose: Any, step: Any, round: Any, node: Any, words: Words) -> None:
    """The first words of the stream with key (seed, purpose) and counter (0, step, round, node)."""
    width = len(words)
    for block in range((width + 3) >> 2):
        a, b, c, d = u64(block + 1), u64(step), u64(round), u64(node)
        key_a, key_b = u64(seed), u64(purpose)
        for _ in range(_ROUNDS):
            high_a, low_a = _high(_MULTIPLIERS[0], a), _MULTIPLIERS[0] * a
            high_c, low_c = _high(_MULTIPLIERS[1], c), _MULTIPLIERS[1] * c
            a, b, c, d = high_c ^ b ^ key_a, low_c, high_a ^ d ^ key_b, low_a
            key_a, key_b = key_a + _KEY_STEPS[0], key_b + _KEY_STEPS[1]
        for place, word in enumerate((a, b, c, d)):
            if 4 * block + place < width:
                words[4 * block + place] = word


@njit(cache=True)
def philox_words(seed: Any, purpose: Any, counters: Words, width: int) -> Words:
    """(m, width): the first words of the streams with key (seed, purpose) and each counter (0, *counters[i]), the
    three words of which are step, round and node."""
    words = np.empty((counters.shape[0], width), np.uint64)
    for row in range(counters.shape[0]):
        fill_words(seed, purpose, counters[row, 0], counters[row, 1], counters[row, 2], words[row])
    return words
