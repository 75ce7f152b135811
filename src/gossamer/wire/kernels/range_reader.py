"""The reader of what the range coder in `ranges` wrote."""

from typing import Any

import numpy as np
from numba import njit

from gossamer.wire.kernels.adaptive_counts import ROWS, STARTS, SYMBOLS
from gossamer.wire.kernels.bits import Bytes, Words, i64, load64, not_above, ones_in_all, places_of, u64
from gossamer.wire.kernels.ranges import (
    CODERS,
    HEAD,
    LEAST,
    LOW16,
    Places,
    Rows,
    expected_before,
    invert,
    mask_sizes,
    near_flags,
    share_out,
)

# of the bytes before one, for a mask and for flags, the last one's highest: where a product of eight bytes adds up
WEIGHTS = np.array([0x0202020201010101, 0x0503020201010101], np.uint64)


@njit(cache=True, inline="always")
def _get(
    buffer: Bytes, at: int, state: Any, before: Any, place: Any, next_place: Any, near: Rows, weights: Any, out: Bytes
) -> tuple[int, Any, Any, Any]:
    """Read the byte at `next_place`; `before` has the ones of the eight bytes before `place`, the last one lowest.

    Returns the byte of the buffer behind, the new state, and `before` and `place` for the next one.
    """
    skipped = u64(next_place) - place
    before = before << (skipped << u64(3)) if skipped < u64(8) else u64(0)
    place += skipped
    guess = ((before * weights) >> u64(56)) + u64(near[place >> u64(3)])
    slot = state & LOW16
    ones = not_above(STARTS, i64(guess << u64(3)), slot)
    known = ROWS[u64(9) * guess + ones]
    parts, above = (known >> u64(16)) & LOW16, slot - (known & LOW16)
    rank = (above * (known >> u64(32))) >> u64(32)  # above // parts
    out[place] = SYMBOLS[(ones << u64(7)) + rank]
    state = parts * ((state >> u64(16)) - rank) + above
    more = u64(state < LEAST)
    state = (state << (more << u64(4))) | (load64(buffer, at) & (more * LOW16))
    return at + 2 * i64(more), state, (before << u64(8)) | ones, place + u64(1)


@njit(cache=True)
def _get_several(
    buffer: Bytes,
    at: int,
    end: int,
    state: Any,
    before: Any,
    place: Any,
    places: Places,
    near: Rows,
    weights: Any,
    out: Bytes,
) -> tuple[int, Any]:
    for i in range(places.size):
        if at > end:
            break
        at, state, before, place = _get(buffer, at, state, before, place, places[i], near, weights, out)
    return at, state


@njit(cache=True)
def _first_place(words: Places, num_words: int, start: int) -> Any:
    return u64(8) * u64(words[start]) if start < num_words else u64(0)


@njit(cache=True)
def _read_mask(
    buffer: Bytes,
    at: int,
    end: int,
    states: tuple[Any, Any, Any, Any],
    flags: Words,
    words: Places,
    num_words: int,
    places: Places,
    expected: Any,
    of_mask: int,
    out: Bytes,
) -> tuple[int, tuple[Any, Any, Any, Any]]:
    """Read the bytes of a mask at their places, those of the words that are not zero; the byte behind, and the states.

    It stops behind the end, by a few bytes.
    """
    starts, ends = np.empty(CODERS + 1, np.int64), np.empty(CODERS, np.int64)
    share_out(flags.view(np.uint8), words, num_words, places.size, starts, ends)
    near, weights = near_flags(flags, of_mask), WEIGHTS[min(of_mask, 1)]
    a, b, c, d = states
    before_a, before_b, before_c, before_d = expected, expected, expected, expected
    at_a, at_b = _first_place(words, num_words, starts[0]), _first_place(words, num_words, starts[1])
    at_c, at_d = _first_place(words, num_words, starts[2]), _first_place(words, num_words, starts[3])
    second, third, fourth = ends[0], ends[1], ends[2]
    together = min(second, third - second, fourth - third, places.size - fourth)
    for i in range(together):
        if at > end:
            return at, states
        at, a, before_a, at_a = _get(buffer, at, a, before_a, at_a, places[u64(i)], near, weights, out)
        at, b, before_b, at_b = _get(buffer, at, b, before_b, at_b, places[u64(second + i)], near, weights, out)
        at, c, before_c, at_c = _get(buffer, at, c, before_c, at_c, places[u64(third + i)], near, weights, out)
        at, d, before_d, at_d = _get(buffer, at, d, before_d, at_d, places[u64(fourth + i)], near, weights, out)
    at, a = _get_several(buffer, at, end, a, before_a, at_a, places[together:second], near, weights, out)
    at, b = _get_several(buffer, at, end, b, before_b, at_b, places[second + together : third], near, weights, out)
    at, c = _get_several(buffer, at, end, c, before_c, at_c, places[third + together : fourth], near, weights, out)
    at, d = _get_several(buffer, at, end, d, before_d, at_d, places[fourth + together :], near, weights, out)
    return at, (a, b, c, d)


@njit(cache=True)
def _state(buffer: Bytes, at: int) -> Any:
    return load64(buffer, at) & u64((1 << 48) - 1)


@njit(cache=True)
def read_range(buffer: Bytes, at: int, end: int, width: int, count: int) -> tuple[Any, bool]:
    """The packed mask in the bytes from `at` up to `end`, and whether it is one with `count` ones."""
    positions, firsts = mask_sizes(width)
    masks = np.zeros(firsts[-1], np.uint64)
    words, num_flags = masks[: firsts[1]], positions.size - 1
    if end - at < HEAD:
        return words, False
    states = _state(buffer, at + 1), _state(buffer, at + 7), _state(buffer, at + 13), _state(buffer, at + 19)
    top, at, num_ones = u64(buffer[at]), at + HEAD, min(count, width - count)
    if min(states) < LEAST or top >> u64(positions[-1]) != 0:
        return words, False
    masks[firsts[num_flags]] = top
    flagged, num_flagged = np.zeros(1, np.uint32), i64(top > 0)  # the words that are not zero
    for i in range(num_flags - 1, -1, -1):
        mask, flags = masks[firsts[i] : firsts[i + 1]].view(np.uint8), masks[firsts[i + 1] : firsts[i + 2]]
        places = np.empty(ones_in_all(flags) + 8, np.uint32)
        num_places = places_of(flags, places)
        expected = expected_before(i, num_ones, width)
        at, states = _read_mask(
            buffer, at, end, states, flags, flagged, num_flagged, places[:num_places], expected, i, mask
        )
        last = positions[i] - 1
        if at > end or u64(mask[last >> 3]) >> u64((last & 7) + 1) != 0:  # no one stands behind the last position
            return words, False
        flagged, num_flagged = places, num_places
    if max(states) > LEAST or ones_in_all(words) != num_ones:
        return words, False
    if num_ones < count:
        invert(words, width)
    return words, True
