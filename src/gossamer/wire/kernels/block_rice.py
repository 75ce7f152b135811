"""Block-Rice: an index coder that suits its parameter to every 512 positions.

Each block is written in one of 16 modes: nothing or everything sent, a bitmap, or gaps by Elias-gamma or Rice, of the
ones or, in dense blocks, of the zeros. A list of gaps counts from the block's start and ends with the gap to the
block's end, as if a one stood there, so no count is needed. Before each block stands one bit: 1, its mode is that of
the block before (mode 0 before the first), or 0, and four bits give the mode.
"""

from typing import Any

from numba import njit

from gossamer.wire.kernels.bits import Bytes, Words, i64, peek, put, trailing_zeros, u64
from gossamer.wire.kernels.elias_rice import get_gamma, get_rice, put_gamma, put_rice

BLOCK = 512
EMPTY, FULL, BITMAP, GAMMA, INVERTED = 0, 1, 2, 3, 10
# 4 .. 9: Rice with r = 1 .. 6; 10: Elias-gamma of the zeros; 11 .. 15: Rice of the zeros with r = 1 .. 5
ALL_ONES = u64(0xFFFFFFFFFFFFFFFF)


@njit(cache=True)
def block_word(words: Words, i: int, end: int, inverted: bool) -> Any:
    """Word i of a packed mask, or its complement, with nothing from position `end` on."""
    word = words[i]
    if inverted:
        word = ~word
        if end - 64 * i < 64:
            word &= (u64(1) << u64(max(end - 64 * i, 0))) - u64(1)
    return word


@njit(cache=True, inline="always")
def _put_gap(out: Bytes, at: int, held: Any, num_held: int, gap: int, r: int) -> tuple[int, Any, int]:
    if r == 0:
        return put_gamma(out, at, held, num_held, gap)
    return put_rice(out, at, held, num_held, gap, r)


@njit(cache=True)
def write_blocks(words: Words, modes: Bytes, width: int, out: Bytes, at: int) -> int:
    """Write from byte `at` on; returns the byte behind."""
    before, held, num_held = EMPTY, u64(0), 0
    for block in range(modes.size):
        mode = i64(modes[block])
        start, end = block * BLOCK, min(block * BLOCK + BLOCK, width)
        same = mode == before
        before = mode
        at, held, num_held = put(out, at, held, num_held, u64(1 if same else mode << 1), 1 if same else 5)
        if mode == BITMAP:
            for half in range(start, end, 32):
                word = (words[half >> 6] >> u64(half & 32)) & u64(0xFFFFFFFF)
                at, held, num_held = put(out, at, held, num_held, word, min(32, end - half))
        elif mode >= GAMMA:
            inverted = mode >= INVERTED
            r = mode - (INVERTED if inverted else GAMMA)
            previous = start - 1
            for i in range(start >> 6, (end + 63) >> 6):
                word = block_word(words, i, end, inverted)
                while word != 0:
                    position = 64 * i + trailing_zeros(word)
                    word &= word - u64(1)
                    at, held, num_held = _put_gap(out, at, held, num_held, position - previous - 1, r)
                    previous = position
            at, held, num_held = _put_gap(out, at, held, num_held, end - previous - 1, r)
    return at + (num_held > 0)


@njit(cache=True)
def read_blocks(buffer: Bytes, bit: int, limit: int, width: int, words: Words) -> int:
    """Fill a packed mask of zeros; returns the position behind what was read, or -1 if it is damaged."""
    mode = EMPTY
    for start in range(0, width, BLOCK):
        if bit >= limit:
            return -1
        end = min(start + BLOCK, width)
        head = i64(peek(buffer, bit) & u64(31))
        if head & 1:
            bit += 1
        else:
            mode = head >> 1
            bit += 5
        inverted = mode >= INVERTED
        if mode == FULL or inverted:
            for i in range(start >> 6, (end + 63) >> 6):
                words[i] = ALL_ONES if end - 64 * i >= 64 else (u64(1) << u64(end - 64 * i)) - u64(1)
        if mode == BITMAP:
            if bit + end - start > limit:
                return -1
            for half in range(start, end, 32):
                length = min(32, end - half)
                word = peek(buffer, bit) & ((u64(1) << u64(length)) - u64(1))
                words[half >> 6] |= word << u64(half & 32)
                bit += length
        elif mode >= GAMMA:
            r = mode - (INVERTED if inverted else GAMMA)
            position = start - 1
            while True:
                if bit > limit:
                    return -1
                gap, bit = get_gamma(buffer, bit) if r == 0 else get_rice(buffer, bit, limit, r)
                position += gap + 1
                if position >= end:
                    break
                words[position >> 6] ^= u64(1) << u64(position & 63)
            if position > end:
                return -1
    return bit if bit <= limit else -1
