"""Messages to bytes and back, without loss: the one encoder of simulation and network."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
import xxhash
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core import Message, Part, PartSpec
from gossamer.core.rng import Streams
from gossamer.wire import frame as frames
from gossamer.wire import indices
from gossamer.wire.bits import Bytes, Positions, pack, positions_of, unpack
from gossamer.wire.frame import WireError
from gossamer.wire.quantized import LevelCoder
from gossamer.wire.values import DoubleCoder, FloatCoder, Rows, ValueCoder, ValuePlan, num_float_bytes

ByteCounts = NDArray[np.int64]
MAX_WIDTH = 2**31 - 1
BOOL, BYTE = np.dtype(np.bool_), np.dtype(np.uint8)
NO_MARKS = np.empty((0, 0), BYTE)


class Sizes(NamedTuple):
    """Bytes of a part on the wire, (B,): of every row of a message."""

    header: ByteCounts  # the tags that say how indices and values are coded
    indices: ByteCounts
    values: ByteCounts

    @property
    def total(self) -> ByteCounts:
        return self.header + self.indices + self.values


class _Plan(NamedTuple):
    """How a row of a part will be written: enough to know its size."""

    indices: indices.IndexPlan | None
    values: ValuePlan

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Bytes of tags, indices and values."""
        num_tags, index_bytes = (0, 0) if self.indices is None else (1, self.indices.num_bytes)
        return num_tags + self.values.num_tags, index_bytes, self.values.num_bytes


class _Coding(NamedTuple):
    """What both ends know of a part."""

    spec: PartSpec
    width: int
    values: ValueCoder


class _Given(NamedTuple):
    """A part of a message, as arrays of (B, width)."""

    part: _Coding
    marks: Bytes | None  # 1: sent
    values: Rows


class Codec:
    """The messages of one run to frames and back.

    parts, num_parameters and seed must be the same at both ends, and are checked by every frame; run_id tells runs
    apart.
    """

    frame_bytes = frames.OVERHEAD  # what a frame has besides its parts

    def __init__(self, parts: Mapping[str, PartSpec], num_parameters: int, seed: int, run_id: int = 0):
        if not 0 <= run_id < 2**64:
            raise ValueError(f"run_id must be from 0 to 2^64 - 1, {run_id} was given")
        self.seed = seed
        self.run_id = run_id
        self._parts: dict[str, _Coding] = {}
        for name, spec in parts.items():
            self._parts[name] = _coding(name, spec, num_parameters)
            earlier = self._parts.get(spec.same_indices_as or name)
            if spec.same_indices_as == name or earlier is None or earlier.width != self._parts[name].width:
                raise ValueError(
                    f"part {name!r} has the indices of {spec.same_indices_as!r}, which is no earlier part of its width"
                )
        self.schema = _fingerprint(self._parts, seed)

    @property
    def max_bytes(self) -> int:
        """No frame is longer: raw values, a bitmap and their tags, with room to spare."""
        return frames.OVERHEAD + sum(256 + 10 * part.width for part in self._parts.values())

    def num_bytes(self, message: Message) -> dict[str, Sizes]:
        """The bytes of each part, of every row of a message, exactly, without encoding it.

        A frame has `frame_bytes` more.
        """
        return {name: self._sizes(given) for name, given in self._rows(message).items()}

    def encode(self, message: Message, sender: int, round: int) -> bytes:
        """The frame of a one-row message."""
        plans: dict[str, _Plan] = {}
        num_payload = 0
        for name, given in self._rows(message).items():
            if len(given.values.numbers) != 1:
                raise ValueError("a frame holds the message of one node: give a message of one row")
            plans[name] = self._plan(given, 0)
            num_payload += sum(plans[name].sizes)
        out = frames.start_frame(num_payload, self.run_id, self.schema, sender, round)
        at = frames.HEADER.size
        for name, plan in plans.items():
            if plan.indices is not None:
                at = indices.write(plan.indices, self._parts[name].width, out, at)
            at = self._parts[name].values.write(plan.values, out, at)
        assert at == frames.HEADER.size + num_payload, "the size of a message was not what was planned"
        return frames.finish_frame(out, num_payload)

    def decode(self, frame: bytes) -> tuple[int, int, Message]:
        """Sender, round and one-row message of a frame. Raises WireError for all that is not one, and nothing else."""
        checked = frames.check_frame(frame, self.run_id, {self.schema})
        return checked.sender, checked.round, self.decode_checked(checked)

    def decode_checked(self, frame: frames.Frame) -> Message:
        """The one-row message of a frame of this codec's schema."""
        payload = frame.payload()
        at, end = 0, len(frame.content) - frames.OVERHEAD
        message: Message = {}
        entries: dict[str, tuple[Positions | None, Tensor | None]] = {}  # what was sent of each part
        for name, part in self._parts.items():
            if part.spec.same_indices_as is not None:
                positions, sent = entries[part.spec.same_indices_as]
            else:
                positions, sent, at = self._read_sent(part, frame, payload, at, end)
            entries[name] = positions, sent
            values, quantized, at = part.values.read(payload, at, end, positions, part.width)
            message[name] = Part(values, sent, quantized)
        if at < end and frame.minor <= frames.MINOR:  # a newer version may have more to say
            raise WireError(f"{end - at} bytes are left over behind the last part.")
        return message

    def _rows(self, message: Message) -> dict[str, _Given]:
        """The parts of a message as arrays, once they fit what the codec is for."""
        if message.keys() != self._parts.keys():
            raise ValueError(f"a message of parts {[*message]} was given, and the codec is for {[*self._parts]}")
        rows: dict[str, _Given] = {}
        for name, part in self._parts.items():
            values = part.values.rows(message[name])
            shape = values.numbers.shape
            if len(shape) != 2 or shape[1] != part.width:
                raise ValueError(f"part {name!r} is {shape}, its PartSpec says (rows, {part.width})")
            rows[name] = _Given(part, self._marks(name, part.spec, message, shape), values)
        if len(rows) > 1 and len({len(given.values.numbers) for given in rows.values()}) > 1:
            raise ValueError("the parts of a message must have the same number of rows")
        return rows

    def _marks(self, name: str, spec: PartSpec, message: Message, shape: tuple[int, ...]) -> Bytes | None:
        """What a part marks as sent; None: everything."""
        sent = message[name].sent
        if spec.same_indices_as is not None and not _same_entries(sent, message[spec.same_indices_as].sent):
            raise ValueError(f"part {name!r} must send the same entries as part {spec.same_indices_as!r}")
        if sent is None:
            if spec.seeded:
                raise ValueError(f"part {name!r} does not mark what is sent, and its PartSpec says that it is seeded")
            return None
        if not (spec.sparse or spec.seeded or spec.same_indices_as):
            raise ValueError(f"part {name!r} marks what is sent, and its PartSpec says that everything is")
        marks = sent.numpy()
        if marks.shape != shape or marks.dtype != BOOL:
            raise ValueError(f"part {name!r} must mark what is sent by {shape} bool")
        return np.ascontiguousarray(marks).view(BYTE)

    def _sizes(self, given: _Given) -> Sizes:
        coder, sparse = given.part.values, given.part.spec.sparse
        if isinstance(coder, FloatCoder):  # all rows in one call: of thousands of small models it is most of the time
            marks = NO_MARKS if given.marks is None else given.marks
            index_bytes, value_bytes = _num_bytes(given.values.numbers, marks, sparse, coder.num_bits)
            return Sizes(np.full_like(value_bytes, 2 if sparse else 1), index_bytes, value_bytes)
        sizes = [self._plan(given, row).sizes for row in range(len(given.values.numbers))]
        return Sizes(*np.array(sizes, np.int64).reshape(-1, 3).T)

    def _plan(self, given: _Given, row: int) -> _Plan:
        part = given.part
        if part.spec.sparse:
            adaptive = isinstance(part.values, LevelCoder) and part.values.few_levels
            index_plan = indices.EVERYTHING if given.marks is None else indices.plan(given.marks[row], adaptive)
            return _Plan(index_plan, part.values.plan(given.values, row, index_plan.positions))
        positions = None if given.marks is None else positions_of(given.marks[row])
        return _Plan(None, part.values.plan(given.values, row, positions))

    def _read_sent(
        self, part: _Coding, frame: frames.Frame, payload: Bytes, at: int, end: int
    ) -> tuple[Positions | None, Tensor | None, int]:
        """The positions of what was sent (None: all), the mask of them (None: not marked), the byte behind."""
        if part.spec.seeded is not None:
            sent = part.spec.seeded(Streams(self.seed, [frame.sender], frame.round), part.width)
            assert sent.shape == (1, part.width), "the mask of a seeded part must be (rows, width)"
            return positions_of(sent[0].contiguous().numpy().view(BYTE)), sent, at
        if not part.spec.sparse:
            return None, None, at
        positions, row, at = indices.read(payload, at, end, part.width)
        return positions, torch.from_numpy(row), at


@njit(cache=True)
def _num_bytes(rows: NDArray[np.uint32], marks: Bytes, sparse: bool, num_bits: int) -> ByteCounts:
    """(2, B): bytes of the indices and of the floats of every row, as they are planned; NO_MARKS: all are sent."""
    sizes = np.zeros((2, len(rows)), np.int64)
    everything, positions = len(marks) == 0, np.empty(0, np.uint32)
    for row in range(len(rows)):
        if not everything:
            words = pack(marks[row])
            positions = unpack(words)
            if sparse:
                sizes[0, row] = indices.shortest(words, positions, rows.shape[1])[1]
        sizes[1, row] = num_float_bytes(rows[row], positions, everything, num_bits)
    return sizes


def _same_entries(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))


def _coding(name: str, spec: PartSpec, num_parameters: int) -> _Coding:
    width = num_parameters if spec.width is None else spec.width
    if not 1 <= width <= MAX_WIDTH:
        raise ValueError(f"part {name!r} is {width} numbers wide; from 1 to 2^31 - 1 can be sent")
    if (spec.sparse, spec.seeded is not None, spec.same_indices_as is not None).count(True) > 1:
        raise ValueError(
            f"part {name!r} may be sparse, seeded or have the indices of another part, and not two of them"
        )
    return _Coding(spec, width, _value_coder(name, spec))


def _value_coder(name: str, spec: PartSpec) -> ValueCoder:
    if spec.values in ("float32", "bfloat16", "float16"):
        return FloatCoder(spec.values)
    if spec.values == "float64":
        return DoubleCoder()
    if spec.values in {f"int{num_bits}" for num_bits in range(1, 9)}:
        return LevelCoder(int(spec.values[3:]), spec.bucket, spec.sparse)
    raise ValueError(
        f"part {name!r} travels as {spec.values!r}; take float32, float64, bfloat16, float16 or int1 .. int8"
    )


def _fingerprint(parts: Mapping[str, _Coding], seed: int) -> int:
    """32 bits that differ, as good as surely, if two ends do not mean the same by a frame.

    The words of this text are part of the format: they stay as they are, whatever the fields of PartSpec are called.
    """
    lines = [f"seed {seed}\n"]
    for name, part in parts.items():
        spec = part.spec
        if spec.seeded:
            kind = "drawn"
        elif spec.sparse:
            kind = "indexed"
        else:
            kind = f"like:{spec.same_indices_as}" if spec.same_indices_as else "dense"
        cumulative = " running" if spec.cumulative else ""
        cumulative += f" {spec.channels}" if spec.channels > 1 else ""
        lines.append(f"{name} {part.width} {kind} {spec.values} {spec.bucket}{cumulative}\n")
    return xxhash.xxh3_64_intdigest("".join(lines).encode()) & 0xFFFFFFFF
