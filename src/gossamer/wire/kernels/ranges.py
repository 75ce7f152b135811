"""An adaptive range coder of a mask, by asymmetric numeral systems; a symbol is a byte, eight positions.

Only bytes that are not zero are coded. Which they are is another mask, an eighth as long, the *flags*. It is coded
before, in the same way, and so on up to a mask of at most eight positions. How many ones a byte will have is guessed
from the eight bytes before it and, for the mask itself, from the flags around it; `urns` has what follows of a guess.

Four coders have a stretch of the bytes each and take turns: what one of them has to wait for is done while the others
go on. The guesses bound the length of the coding, so that it is known without coding; what is left over is zeros.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.wire.kernels.adaptive_counts import COSTS, GUESSES, RANKS, RECIPROCALS, ROWS, UNIT
from gossamer.wire.kernels.bits import (
    Bytes,
    Positions,
    Words,
    high_product,
    i64,
    ones_in,
    ones_in_all,
    pack64,
    places_of,
    store64,
    u64,
)

CODERS = 4  # as many states are spelt out below
STATE_BYTES = 6  # a state is from 2^32 up to 2^48
HEAD = 1 + CODERS * STATE_BYTES  # bytes before the words that states take in
LEAST = u64(1 << 32)
LOW16 = u64(0xFFFF)
EACH = u64(0x0101010101010101)  # of the eight bytes of a word
AROUND = 4  # words on both sides whose flags tell something of a byte

Rows = NDArray[np.uint16]
Places = NDArray[np.uint32]


class RangePlan(NamedTuple):
    """How a mask will be written."""

    num_bytes: int
    top: int  # the mask of at most eight positions
    symbols: Bytes  # of all masks, the longest one last
    rows: Rows  # where in the tables each of them is looked up
    ends: Positions  # (masks, CODERS): how many bytes of a mask come before the end of each coder's stretch


@njit(cache=True)
def mask_sizes(width: int) -> tuple[Positions, Positions]:
    """The positions of a mask, of its flags, of theirs and so on; and where the words of each start, one behind all."""
    num_masks, bits = 1, width
    while bits > 8:
        bits = (bits + 7) >> 3
        num_masks += 1
    positions, firsts = np.empty(num_masks, np.int64), np.zeros(num_masks + 1, np.int64)
    for i in range(num_masks):
        positions[i] = width
        firsts[i + 1] = firsts[i] + ((width + 511) >> 9 << 3)
        width = (width + 7) >> 3
    return positions, firsts


@njit(cache=True)
def invert(words: Words, width: int) -> None:
    """Ones become zeros and zeros ones in the first `width` bits of a packed mask."""
    for i in range(width >> 6):
        words[i] = ~words[i]
    if width & 63:
        words[width >> 6] ^= (u64(1) << u64(width & 63)) - u64(1)


@njit(cache=True, inline="always")
def _ones_of_bytes(word: Any) -> Any:
    """How many ones each of the eight bytes of a word has, a byte each."""
    word -= (word >> u64(1)) & u64(0x5555555555555555)
    word = (word & u64(0x3333333333333333)) + ((word >> u64(2)) & u64(0x3333333333333333))
    return (word + (word >> u64(4))) & u64(0x0F0F0F0F0F0F0F0F)


@njit(cache=True)
def expected_before(mask: int, num_ones: int, width: int) -> Any:
    """The ones of each of the eight bytes before the first one of a stretch, which are not there."""
    return u64(min(8, ((num_ones << 3 * min(mask + 1, 4)) + (width >> 1)) // width)) * EACH


@njit(cache=True)
def near_flags(flags: Words, mask: int) -> Rows:
    """What is added to the guesses of the bytes of each word: for the mask itself by the flags of the word and AROUND
    it, for flags what makes of a guess one of theirs, whose rows in the tables are the later ones."""
    near = np.empty(8 * flags.size, np.uint16)
    if mask > 0:
        near[:] = GUESSES
        return near
    ones, eights = np.zeros(near.size + 8, np.uint8), np.zeros(near.size + 8, np.uint8)
    last1, last2, last4 = u64(0), u64(0), u64(0)
    for i in range(flags.size + 1):
        one = _ones_of_bytes(flags[i]) if i < flags.size else u64(0)
        two = one + ((one << u64(8)) | (last1 >> u64(56)))
        four = two + ((two << u64(16)) | (last2 >> u64(48)))
        store64(ones, 8 * i, one)
        store64(eights, 8 * i, four + ((four << u64(32)) | (last4 >> u64(32))))
        last1, last2, last4 = one, two, four
    for word in range(near.size):
        found = eights[word + AROUND - 1] + ones[word + AROUND]
        near[word] = np.uint16(np.float32(128) / np.float32(80 - found))
    return near


@njit(cache=True)
def share_out(flags: Bytes, words: Places, num_words: int, num_bytes: int, starts: Positions, ends: Positions) -> None:
    """With which of the words that are not zero each coder begins, and how many bytes come before its end.

    It is the first word before which are as many bytes as the coders before should have.
    """
    starts[:] = num_words
    ends[:] = num_bytes
    coder, found = 0, 0
    for i in range(num_words):
        while CODERS * found >= coder * num_bytes:
            starts[coder] = i
            if coder > 0:
                ends[coder - 1] = found
            coder += 1
            if coder == CODERS:
                return
        found += ones_in(u64(flags[u64(words[u64(i)])]))


@njit(cache=True)
def _guess(
    mask: Words,
    near: Rows,
    words: Places,
    starts: Positions,
    expected: Any,
    of_flags: bool,
    guesses: Words,
    ones: Words,
) -> None:
    """Fill in the guesses for all bytes of the words that are not zero, and their ones, a byte each.

    The weighted sum of the bytes before each one is made for eight at once, of sums of one, two, four and eight: the
    weights are 2 2 2 2 1 1 1 1, the last one's first, and for flags 5 3 2 2 1 1 1 1.
    """
    for coder in range(CODERS):
        before, last1, last2, last4 = expected, expected, expected << u64(1), expected << u64(2)
        next_word = -1
        for i in range(starts[coder], starts[coder + 1]):
            word = i64(words[u64(i)])
            if word != next_word and next_word >= 0:  # words of zeros are between
                before, last1, last2, last4 = u64(0), u64(0), u64(0), u64(0)
            next_word = word + 1
            found = _ones_of_bytes(mask[u64(word)])
            one = (found << u64(8)) | (before >> u64(56))
            two = one + ((one << u64(8)) | (last1 >> u64(56)))
            four = two + ((two << u64(16)) | (last2 >> u64(48)))
            eight = four + ((four << u64(32)) | (last4 >> u64(32)))
            before, last1, last2, last4 = found, one, two, four
            more = two + one + one if of_flags else u64(near[u64(word)]) * EACH
            guesses[u64(i)] = four + eight + more
            ones[u64(i)] = found


@njit(cache=True)
def _list_symbols(
    mask: Words, words: Places, num_words: int, all_rows: Rows, ones: Bytes, symbols: Bytes, rows: Rows
) -> None:
    """The bytes that are not zero, and the rows of them, out of those of whole words."""
    at = u64(0)
    for i in range(num_words):
        word = mask[u64(words[u64(i)])]
        for j in range(8):
            symbols[at] = (word >> u64(8 * j)) & u64(255)
            rows[at] = all_rows[u64(8 * i + j)]
            at += u64(ones[u64(8 * i + j)] > 0)


@njit(cache=True)
def _masks(words: Words, width: int, firsts: Positions, inverted: bool) -> Words:
    """A mask, inverted or not, its flags, theirs and so on, each from its first word on."""
    masks = np.zeros(firsts[-1], np.uint64)
    masks[: words.size] = words
    if inverted:
        invert(masks, width)
    for i in range(firsts.size - 2):
        mask, flags = masks[firsts[i] : firsts[i + 1]], masks[firsts[i + 1] : firsts[i + 2]]
        for j in range(mask.size >> 3):
            flags[j] = pack64(mask, 8 * j)
    return masks


@njit(cache=True)
def plan_range(words: Words, width: int, count: int, keep: bool) -> RangePlan:
    """How a packed mask with `count` ones will be written; if not to keep, how many bytes it takes alone."""
    positions, firsts = mask_sizes(width)
    masks, num_flags = _masks(words, width, firsts, 2 * count > width), positions.size - 1
    num_symbols = ones_in_all(masks[firsts[1] :])  # a flag for each
    symbols = np.empty(num_symbols + 8 if keep else 0, np.uint8)
    rows = np.empty(num_symbols + 8 if keep else 0, np.uint16)
    ends, starts = np.empty((num_flags, CODERS), np.int64), np.empty(CODERS + 1, np.int64)
    places = np.zeros(words.size + 8, np.uint32)
    guesses, ones = np.empty(words.size, np.uint64), np.empty(words.size, np.uint64)
    all_rows = np.empty(8 * words.size, np.uint16)  # of the bytes that are zero too
    costs = np.zeros(CODERS, np.int64)
    at, num_ones = 0, min(count, width - count)
    for i in range(num_flags - 1, -1, -1):
        mask, flags = masks[firsts[i] : firsts[i + 1]], masks[firsts[i + 1] : firsts[i + 2]]
        num_words = 1 if i == num_flags - 1 else places_of(masks[firsts[i + 2] : firsts[i + 3]], places)
        num_bytes = ones_in_all(flags)
        share_out(flags.view(np.uint8), places, num_words, num_bytes, starts, ends[i])
        _guess(mask, near_flags(flags, i), places, starts, expected_before(i, num_ones, width), i > 0, guesses, ones)
        first, each_guess, each_ones = 9 * GUESSES * min(i, 1), guesses.view(np.uint8), ones.view(np.uint8)
        for j in range(8 * num_words):
            all_rows[j] = first + 9 * np.uint16(each_guess[j]) + each_ones[j]
        for coder in range(CODERS):
            cost = 0
            for j in range(8 * starts[coder], 8 * starts[coder + 1]):
                cost += i64(COSTS[all_rows[u64(j)]])
            costs[coder] += cost
        if keep:
            _list_symbols(mask, places, num_words, all_rows, each_ones, symbols[at:], rows[at:])
            at += num_bytes
    total = HEAD
    for coder in range(CODERS):
        total += costs[coder] // (16 * UNIT) * 2
    return RangePlan(total, i64(masks[firsts[num_flags]] & u64(255)), symbols, rows, ends)


@njit(cache=True, inline="always")
def _put(out: Bytes, end: int, state: Any, symbol: Any, row: Any) -> tuple[int, Any]:
    """Add a byte to a state, after 16 bits of it are put before byte `end`, if it would be too large."""
    known = ROWS[u64(row)]
    parts = (known >> u64(16)) & LOW16
    more = u64(state >= parts << u64(32))
    store64(out, end - 8, state << u64(48))
    state >>= more << u64(4)
    whole = high_product(state, RECIPROCALS[u64(row)])  # state // parts
    start = (known & LOW16) + RANKS[u64(symbol)] * parts
    return end - 2 * i64(more), (whole << u64(16)) + start + state - whole * parts


@njit(cache=True)
def _put_several(
    out: Bytes, end: int, state: Any, symbols: Bytes, rows: Rows, first: int, behind: int
) -> tuple[int, Any]:
    for i in range(behind - 1, first - 1, -1):
        end, state = _put(out, end, state, symbols[i], rows[i])
    return end, state


@njit(cache=True)
def write_range(plan: RangePlan, out: Bytes, at: int) -> int:
    """Write from byte `at` on; returns the byte behind. What is read first is written last, from the end."""
    behind, symbols, rows = at + plan.num_bytes, plan.symbols, plan.rows
    end, last = behind, 0
    a, b, c, d = LEAST, LEAST, LEAST, LEAST
    for i in range(plan.ends.shape[0]):
        last += plan.ends[i, CODERS - 1]
    for i in range(plan.ends.shape[0]):
        ends = plan.ends[i]
        first = last - ends[3]
        second, third, fourth = first + ends[0], first + ends[1], first + ends[2]
        together = min(second - first, third - second, fourth - third, last - fourth)
        end, d = _put_several(out, end, d, symbols, rows, fourth + together, last)
        end, c = _put_several(out, end, c, symbols, rows, third + together, fourth)
        end, b = _put_several(out, end, b, symbols, rows, second + together, third)
        end, a = _put_several(out, end, a, symbols, rows, first + together, second)
        for j in range(together - 1, -1, -1):
            end, d = _put(out, end, d, symbols[u64(fourth + j)], rows[u64(fourth + j)])
            end, c = _put(out, end, c, symbols[u64(third + j)], rows[u64(third + j)])
            end, b = _put(out, end, b, symbols[u64(second + j)], rows[u64(second + j)])
            end, a = _put(out, end, a, symbols[u64(first + j)], rows[u64(first + j)])
        last = first
    unused = end - (at + HEAD)
    if unused > 0:
        for i in range(at + HEAD, behind - unused):
            out[i] = out[i + unused]
        out[behind - unused : behind] = 0
    out[at] = plan.top
    store64(out, at + 1, a)  # two bytes too many, over which the next one is written; of the last they would stay
    store64(out, at + 7, b)
    store64(out, at + 13, c)
    for i in range(STATE_BYTES):
        out[at + 19 + i] = (d >> u64(8 * i)) & u64(255)
    return behind
