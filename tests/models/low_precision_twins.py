"""The kernels of eight-bit layers once more, in plain NumPy, an entry at a time where that matters."""

import numpy as np

F = np.float32


def inverse_of(size, top):
    if np.isnan(size):
        return F(np.nan)
    return F(top) / F(size) if size > F(1e-30) else F(0)


def affine(rows):
    """(level - zero, levels, scales, zeros)"""
    numbers, levels = np.empty_like(rows), np.empty(rows.shape, np.uint8)
    scales, zeros = np.empty(len(rows), F), np.empty(len(rows), np.uint8)
    for r, row in enumerate(rows):
        low, high = min(F(0), row.min()), max(F(0), row.max())
        scales[r] = (high - low) / F(255)
        inverse = F(1) / scales[r] if high - low > F(1e-30) else F(0)
        zero = np.rint(-low * inverse)
        level = np.clip(np.rint(row * inverse) + zero, 0, 255)
        levels[r], zeros[r], numbers[r] = level, zero, level - zero
    return numbers, levels, scales, zeros


def symmetric(rows):
    numbers, scales = np.empty_like(rows), np.empty(len(rows), F)
    for r, row in enumerate(rows):
        size = np.abs(row).max(initial=0)
        scales[r] = size / F(127)
        numbers[r] = np.clip(np.rint(row * inverse_of(size, 127)), -127, 127)
    return numbers, scales


def mixed(word):
    word = (word ^ (word >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    word = (word ^ (word >> 15)) * 0x846CA68B & 0xFFFFFFFF
    return word ^ (word >> 16)


def stochastic(rows, key):
    numbers, scales = np.empty_like(rows), np.empty(len(rows), F)
    for r, row in enumerate(rows):
        size = np.abs(row).max(initial=0)
        scales[r] = size / F(127)
        start = mixed(key ^ ((r + 1) * 0x9E3779B9 & 0xFFFFFFFF))
        for c, x in enumerate(row):
            chance = F(mixed((start + c) & 0xFFFFFFFF) >> 8) * F(2.0**-24)
            numbers[r, c] = np.clip(np.floor(x * inverse_of(size, 127) + chance), -127, 127)
    return numbers, scales
