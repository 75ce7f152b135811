"""The coders of the wire format again, in plain Python and NumPy, slowly and without tricks.

Written from docs/wire-format.md and not from the kernels. Streams are lists of bits, the first one first.
"""

import heapq
import itertools

import numpy as np

BLOCK = 512


def to_bytes(bits):
    return np.packbits(np.array(bits, np.uint8), bitorder="little").tobytes()


def to_bits(data):
    return np.unpackbits(np.frombuffer(bytes(data), np.uint8), bitorder="little").tolist()


def number_bits(number, length):
    """Lowest bit first."""
    return [number >> i & 1 for i in range(length)]


def gaps_of(positions, start=0):
    return [b - a - 1 for a, b in zip([start - 1, *positions[:-1]], positions, strict=True)] if len(positions) else []


def gamma(gap):
    length = (gap + 1).bit_length() - 1
    return [0] * length + [1] + number_bits(gap + 1 - (1 << length), length)


def rice(gap, r):
    return [0] * (gap >> r) + [1] + number_bits(gap & ((1 << r) - 1), r)


def gamma_coding(positions):
    return [bit for gap in gaps_of(positions) for bit in gamma(gap)]


def rice_coding(positions, r):
    return [bit for gap in gaps_of(positions) for bit in rice(gap, r)]


class Reader:
    """Takes bits off a stream; IndexError at its end."""

    def __init__(self, bits):
        self.bits, self.at = bits, 0

    def take(self, length):
        if self.at + length > len(self.bits):
            raise IndexError
        self.at += length
        return sum(bit << i for i, bit in enumerate(self.bits[self.at - length : self.at]))

    def zeros(self):
        count = 0
        while self.take(1) == 0:
            count += 1
        return count

    def gamma(self):
        length = self.zeros()
        return (1 << length) + self.take(length) - 1

    def rice(self, r):
        return (self.zeros() << r) + self.take(r)

    def gap(self, r):
        return self.gamma() if r is None else self.rice(r)


def read_gaps(bits, count, width, r=None):
    """Positions and how many bits they took; None if they are not right."""
    reader, position, positions = Reader(bits), -1, []
    try:
        for _ in range(count):
            position += reader.gap(r) + 1
            if position >= width:
                return None
            positions.append(position)
    except IndexError:
        return None
    return positions, reader.at


def mode_of(mode):
    """Whether the zeros are listed, and the Rice parameter (None: Elias-gamma), of modes from 3 on."""
    inverted = mode >= 10
    r = mode - (10 if inverted else 3)
    return inverted, r or None


def block_coding(block, mode):
    length = len(block)
    if mode < 2:
        assert sum(block) == (0, length)[mode]
        return []
    if mode == 2:
        return list(block)
    inverted, r = mode_of(mode)
    listed = [i for i, bit in enumerate(block) if bit != inverted] + [length]
    return [bit for gap in gaps_of(listed) for bit in (gamma(gap) if r is None else rice(gap, r))]


def blocks_coding(mask):
    """Bits of a mask, each block in the mode that is shortest with its own bits, of equals the lowest."""
    bits, before, modes = [], 0, []
    for start in range(0, len(mask), BLOCK):
        block = [int(bit) for bit in mask[start : start + BLOCK]]
        length, ones = len(block), sum(block)
        if ones in (0, length):
            allowed = [0 if ones == 0 else 1]
        else:
            allowed = [2, *(range(10, 16) if 2 * ones > length else range(3, 10))]
        coded = {mode: block_coding(block, mode) for mode in allowed}
        mode = min(allowed, key=lambda mode: (len(coded[mode]) + (1 if mode == before else 5), mode))
        bits += ([1] if mode == before else [0, *number_bits(mode, 4)]) + coded[mode]
        before = mode
        modes.append(mode)
    return bits, modes


def read_blocks(bits, width):
    """A mask and how many bits it took; None if they are not right."""
    reader, mode, mask = Reader(bits), 0, []
    try:
        for start in range(0, width, BLOCK):
            length = min(BLOCK, width - start)
            if not reader.take(1):
                mode = reader.take(4)
            if mode < 2:
                mask += [mode] * length
            elif mode == 2:
                mask += [reader.take(1) for _ in range(length)]
            else:
                inverted, r = mode_of(mode)
                block, position = [int(inverted)] * length, -1
                while (position := position + reader.gap(r) + 1) < length:
                    block[position] = int(not inverted)
                if position > length:
                    return None
                mask += block
    except IndexError:
        return None
    return mask, reader.at


def code_lengths(counts):
    """Huffman code lengths: the two lightest are joined, leaves before nodes and older before newer ones."""
    weights = {symbol: int(count) for symbol, count in enumerate(counts) if count}
    lengths = [0] * 256
    if len(weights) < 2:
        return lengths
    order = sorted(weights, key=lambda symbol: (weights[symbol], symbol))
    heap = [(weights[symbol], 0, i, [symbol]) for i, symbol in enumerate(order)]
    heapq.heapify(heap)
    made = 0
    while len(heap) > 1:
        a, b = heapq.heappop(heap), heapq.heappop(heap)
        for symbol in a[3] + b[3]:
            lengths[symbol] += 1
        made += 1
        heapq.heappush(heap, (a[0] + b[0], 1, made, a[3] + b[3]))
    found = sorted((min(lengths[symbol], 12) for symbol in order), reverse=True)  # the rarest get the longest
    while sum(2.0**-length for length in found) > 1:
        found.remove(12)
        longest = max(length for length in found if length < 12)
        found.remove(longest)
        found = sorted([*found, longest + 1, longest + 1], reverse=True)
    for symbol, length in zip(order, found, strict=True):
        lengths[symbol] = length
    return lengths


def averages(counts):
    """Each count from the lowest to the highest symbol that occurs replaced by about 16 times the mean around it."""
    counts = [int(count) for count in counts]
    low, *_, high = [symbol for symbol in range(256) if counts[symbol]]
    means = [0] * 256
    for symbol in range(low, high + 1):
        both = 0
        for side in (range(symbol, low - 1, -1), range(symbol, high + 1)):
            total, number = 0, 0
            for neighbour in side:
                total, number = total + counts[neighbour], number + 1
                if total >= 32:
                    break
            both += total * (2**20 // number) // 2**16
        means[symbol] = max(1, both // 2)
    return means


def number_lengths(counts):
    """Code lengths of symbols that are numbers: of two sets the one with which less is written in all."""
    plain = code_lengths(counts)
    if np.count_nonzero(counts) < 2 or sum(counts) >= 2**14:
        return plain
    smooth = code_lengths(averages(counts))
    return smooth if coded_size(counts, smooth) < coded_size(counts, plain) else plain


def coded_size(counts, lengths):
    num_bits = sum(int(count) * length for count, length in zip(counts, lengths, strict=True))
    return len(table_coding(counts, lengths)) + -(-num_bits // 8)


def table_coding(counts, lengths):
    """The bytes of a table of code lengths."""
    present = [symbol for symbol in range(256) if counts[symbol]] or [255]
    low, high = present[0], present[-1]
    bits, before = [], 8
    if low < high:
        for length, run in itertools.groupby(lengths[low : high + 1]):
            bits += {-1: [0, 0], 1: [0, 1]}.get(length - before, [1, *number_bits(length, 4)])
            bits += gamma(len(list(run)) - 1)
            before = length
    return bytes([low, high]) + to_bytes(bits)


def codes_of(lengths):
    """Each symbol's code as bits in the order in which they are written."""
    code, before, codes = 0, 0, {}
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths) if length):
        code <<= length - before
        codes[symbol] = number_bits(code, length)[::-1]
        code, before = code + 1, length
    return codes


def symbols_coding(symbols, lengths):
    codes = codes_of(lengths)
    return [bit for symbol in symbols for bit in codes.get(symbol, [])]


def float_symbol(word, num_bits):
    return word >> (num_bits - 9) & 255


def float_rest(word, num_bits):
    sign, fraction = word >> (num_bits - 1), word & ((1 << (num_bits - 9)) - 1)
    return (sign << (num_bits - 9) | fraction).to_bytes((num_bits - 8) // 8, "little")


def level_symbols(levels, num_bits):
    group = 8 // num_bits
    digits = [(level + 1) // 2 if num_bits == 1 else level + 2 ** (num_bits - 1) for level in map(int, levels)]
    return [
        sum(digit << (num_bits * i) for i, digit in enumerate(digits[start : start + group]))
        for start in range(0, len(digits), group)
    ]


class Encoder:
    """Adaptive coding with numbers of any length, so that a carry is nothing special."""

    def __init__(self):
        self.low, self.span, self.num_bytes = 0, 2**32, 0

    def decide(self, p, yes):
        bound = (self.span >> 16) * p
        self.low, self.span = (self.low, bound) if yes else (self.low + bound, self.span - bound)
        while self.span < 2**24:
            self.low, self.span, self.num_bytes = self.low << 8, self.span << 8, self.num_bytes + 1
        return yes

    def finish(self):
        return (-(-self.low >> 16)).to_bytes(self.num_bytes + 2, "big")


class Decoder:
    """IndexError behind the end of the stream, but for two bytes that may follow."""

    def __init__(self, data):
        self.data, self.at = [*data, 0xA5, 0xA5], 4
        self.code, self.span = int.from_bytes(bytes([*data, *[0xA5] * 4][:4]), "big"), 2**32

    def decide(self, p, _):
        bound = (self.span >> 16) * p
        yes = self.code < bound
        self.code, self.span = (self.code, bound) if yes else (self.code - bound, self.span - bound)
        while self.span < 2**24:
            self.code, self.span, self.at = self.code << 8 | self.data[self.at], self.span << 8, self.at + 1
        return int(yes)


class Contexts:
    def __init__(self, weight, limit):
        self.weight, self.limit, self.known = weight, limit, {}

    def probability(self, key, first):
        return self.known.setdefault(key, (first, self.weight))[0]

    def learn(self, key, yes):
        c, n = self.known[key]
        self.known[key] = c + (((2**22 if yes else 0) - c) * (2**16 // n) >> 16), min(n + 1, self.limit)


def usable(p):
    return min(max(p, 1), 65535)


def adaptive_marks(coder, width, mask=None):
    """Code a mask, or read one."""
    averages, contexts, marks = [2**17, 2**17], Contexts(50, 1024), []
    for i in range(width):
        keys = []
        for which, average in enumerate(averages):
            digits = f"{average | 2**11:b}"
            keys.append((which, len(digits), int(digits[1]), marks[-1] if marks else 0))
        both = sum(contexts.probability(key, max((2 + key[2]) * 2 ** (key[1] - 2), 2**14)) for key in keys)
        marks.append(coder.decide(usable(both >> 7), None if mask is None else int(mask[i])))
        for key in keys:
            contexts.learn(key, marks[-1])
        averages = [a + ((marks[-1] * 2**22 - a) >> shift) for a, shift in zip(averages, (4, 7), strict=True)]
    return marks


def adaptive_levels(coder, count, num_bits, levels=None):
    """Code levels, or read them; ValueError if one is too large."""
    contexts, found = Contexts(4, 64), [1, 1]

    def decide(key, first, yes):
        yes = coder.decide(usable(contexts.probability(key, first) >> 6), yes)
        contexts.learn(key, yes)
        return yes

    for i in range(count):
        level = None if levels is None else int(levels[i])
        positive = decide(("sign", found[-2] > 0, found[-1] > 0), 2**21, level and int(level > 0))
        largest = 2 ** (num_bits - 1) - positive if num_bits > 1 else 1
        around, size = min(abs(found[-2]) + abs(found[-1]) - 2, 3), 1
        while size < largest and size < 16:
            if not decide(("size", size, around if size < 3 else None), 2**19, level and int(abs(level) > size)):
                break
            size += 1
        if size == 16 and largest > 16:
            rest = [coder.decide(2**15, level and abs(level) - 16 >> bit & 1) for bit in range(num_bits - 2, -1, -1)]
            size += int("".join(map(str, rest)), 2)
        if size > largest:
            raise ValueError
        found.append(size if positive else -size)
    return found[2:]
