"""How short and how fast the wire format is, and how much faster than the papers' coders.

    python benchmarks/wire.py [--snapshot FILE.npz ...] [--sizes 90000 1000000 10000000] [--json]

A snapshot holds the coefficients `w` that JWINS would send and the scores `V` by which it chooses. Vectors of the given
sizes are made up besides. One JSON object per line:

    index_bits, value_bits            per sent entry, tags excluded
    *_indices_per_second              mask to coded indices and back to positions, choosing the coder included
    *_megabytes_per_second            of float32, sent values to coded bytes and back, histogram included
    times_reference                   whole messages, encoded and decoded, against Elias-gamma in NumPy and fpzip
    num_bytes_times_faster            the sizes of the messages of a simulation's block, against encoding each of them

After those of a snapshot, one object is of a block of JWINS whose rows have the cut-offs of its distribution in turn:
bits, and the last ratio.

Every time is the best of several, taken in turn, on one core: on a shared machine trust the ratios.
"""

import argparse
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from gossamer.algorithms.jwins import PAPER_CUTOFF
from gossamer.core import Part, PartSpec, Quantized, row_of, sparse_part
from gossamer.simulator.worker_pool import BLOCK_BYTES
from gossamer.wire import Codec, indices, precompile
from gossamer.wire.bits import PADDING

MADE_UP = "made up"
SLOW = 0.002  # seconds; a reference that takes longer is timed three times in all
KEPT = (0.01, 0.1, 0.25, 0.37, 0.5, 1.0)


# -- the papers' coder, from its description: slow in the same way, not the same code ----------------------------------


def elias_encode(positions: np.ndarray) -> tuple[int, np.ndarray, int]:
    """First position, Elias-gamma of the differences with the highest bit first, number of bits."""
    gaps = np.diff(positions)
    lengths = np.log2(gaps).astype(np.int64)
    ends = np.cumsum(2 * lengths + 1)
    bits = np.zeros(ends[-1] if ends.size else 0, np.uint8)
    for place in range(lengths.max(initial=0) + 1):
        longer = lengths >= place
        bits[ends[longer] - 1 - place] = gaps[longer] >> place & 1
    return int(positions[0]), np.packbits(bits), bits.size


def elias_decode(first: int, packed: np.ndarray, num_bits: int) -> np.ndarray:
    bits = np.unpackbits(packed, count=num_bits)
    ones = np.flatnonzero(bits)
    next_one = np.repeat(ones, np.diff(ones, prepend=-1)).tolist()
    starts, at = [], 0
    while at < num_bits:
        starts.append(at)
        at = 2 * next_one[at] - at + 1
    begin = np.array(starts, np.int64)
    ends = np.append(begin[1:], num_bits)
    lengths = (ends - begin) // 2
    gaps = np.zeros(begin.size, np.int64)
    for place in range(lengths.max(initial=0) + 1):
        longer = lengths >= place
        gaps[longer] += bits[ends[longer] - 1 - place].astype(np.int64) << place
    return np.cumsum(np.append(first, gaps))


def reference(mask: np.ndarray, values: np.ndarray) -> Callable[[], Any] | None:
    try:
        import fpzip
    except ModuleNotFoundError:
        return None

    def there_and_back() -> None:
        positions = np.flatnonzero(mask)
        indices = elias_encode(positions)
        sent = fpzip.compress(values[positions], precision=0, order="C")
        found = elias_decode(*indices)
        out = np.zeros(mask.size, np.float32)
        out[found] = fpzip.decompress(sent, order="C").ravel()
        assert found.size == positions.size

    return there_and_back


# -- cases -------------------------------------------------------------------------------------------------------------


def made_up(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and scores whose size differs from stretch to stretch, as those of layers and wavelet bands do."""
    random = np.random.default_rng(size)
    stretch = np.repeat(random.lognormal(0, 1, size // 500 + 1), 500)[:size]
    values = (random.standard_normal(size) * stretch * 0.05).astype(np.float32)
    return values, (random.laplace(size=size) * stretch).astype(np.float32)


def snapshot(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Values and scores."""
    with np.load(path) as data:
        return data["w"], data["V"]


def largest(scores: np.ndarray, kept: float) -> np.ndarray:
    mask = np.zeros(scores.size, np.bool_)
    mask[np.argsort(-np.abs(scores), kind="stable")[: round(kept * scores.size)]] = True
    return mask


def quantized(values: np.ndarray, mask: np.ndarray, bucket: int = 512) -> Part:
    """8-bit integers, the largest of each bucket 127."""
    sent = values[mask]
    buckets = np.zeros(-(-sent.size // bucket) * bucket, np.float32)
    buckets[: sent.size] = sent
    scales = np.abs(buckets.reshape(-1, bucket)).max(1) / np.float32(127)
    each = scales.repeat(bucket)[: sent.size]
    levels = np.zeros((1, values.size), np.int16)
    levels[0, mask] = np.round(sent / np.where(each == 0, 1, each))
    numbers = np.zeros((1, values.size), np.float32)
    numbers[0, mask] = levels[0, mask] * each
    whole = Quantized(torch.from_numpy(levels), torch.from_numpy(scales)[None], bucket)
    return Part(torch.from_numpy(numbers), torch.from_numpy(mask)[None], whole)


def rows_of(part: Part, rows: list[int]) -> Part:
    q = part.quantized
    return Part(
        part.values[rows],
        None if part.sent is None else part.sent[rows],
        None if q is None else Quantized(q.levels[rows], q.scales[rows], q.bucket),
    )


def best_seconds(works: dict[str, Callable[[], Any] | None], budget: float) -> dict[str, float]:
    """The best time of each, all taken in turn so that a busy moment does not favour one of them, and thrice in a turn,
    so that it does not matter what was done before."""
    best = dict.fromkeys(works, float("inf"))
    deadline = perf_counter() + budget * len(works)
    for turn in range(100):
        for name, work in works.items():
            seldom = name == "reference" and best[name] > SLOW
            for _ in range(1 if seldom else 3):
                if work is not None and (turn < 3 or not seldom):
                    start = perf_counter()
                    work()
                    best[name] = min(best[name], perf_counter() - start)
        if turn >= 4 and perf_counter() > deadline:
            break
    return best


def measure(case: str, kept: float, part: Part, spec: PartSpec, budget: float) -> dict[str, Any]:
    assert part.sent is not None
    width = part.values.shape[1]
    codec = Codec({"x": spec}, width, seed=0)
    message = {"x": part}
    num_rows = max(1, BLOCK_BYTES // (4 * width))
    block = {"x": rows_of(part, [0] * num_rows)}
    rows = [row_of(block, row) for row in range(num_rows)]  # the same memory
    frame = codec.encode(message, 0, 0)
    sizes = codec.num_bytes(message)["x"]
    given = codec._rows(message)["x"]
    assert given.marks is not None
    marks, coding, numbers = given.marks[0], given.part, part.values[0].numpy()
    plan = indices.plan(marks)
    positions = plan.positions
    num_sent = width if positions is None else positions.size
    out = np.zeros(len(frame) + 4 * width + PADDING, np.uint8)

    def write_indices() -> int:
        return indices.write(indices.plan(marks), width, out, 0)

    def write_values() -> int:
        return coding.values.write(coding.values.plan(given.values, 0, positions), out, end)

    end = write_indices()
    behind = write_values()
    seconds = best_seconds(
        {
            "write_indices": write_indices,
            "read_indices": lambda: indices.read(out, 0, end, width),
            "write_values": write_values,
            "read_values": lambda: coding.values.read(out, end, behind, positions, width),
            "encode": lambda: codec.encode(message, 0, 0),
            "decode": lambda: codec.decode(frame),
            "encode_rows": lambda: [codec.encode(row, 0, 0) for row in rows],
            "num_bytes": lambda: codec.num_bytes(block),
            "reference": reference(marks, numbers),
        },
        budget,
    )
    times = seconds["reference"] / (seconds["encode"] + seconds["decode"])
    return {
        "case": case,
        "kept": kept,
        "index_bits": round(8 * int(sizes.indices[0]) / num_sent, 4),
        "value_bits": round(8 * int(sizes.values[0]) / num_sent, 4),
        "encode_indices_per_second": round(num_sent / seconds["write_indices"]),
        "decode_indices_per_second": round(num_sent / seconds["read_indices"]),
        "encode_megabytes_per_second": round(4e-6 * num_sent / seconds["write_values"], 1),
        "decode_megabytes_per_second": round(4e-6 * num_sent / seconds["read_values"], 1),
        "times_reference": round(times, 1) if np.isfinite(times) else None,
        "num_bytes_times_faster": round(seconds["encode_rows"] / seconds["num_bytes"], 2),
    }


def round_of_jwins(case: str, values: np.ndarray, scores: np.ndarray, budget: float) -> dict[str, Any]:
    masks = np.stack([largest(scores, float(kept)) for kept in PAPER_CUTOFF.fractions])
    part = sparse_part(torch.from_numpy(values).repeat(len(masks), 1), torch.from_numpy(masks))
    codec = Codec({"x": PartSpec(sparse=True)}, values.size, seed=0)
    rows = [row_of({"x": part}, row) for row in range(len(masks))]
    works: dict[str, Callable[[], Any] | None] = {
        "encode_rows": lambda: [codec.encode(row, 0, 0) for row in rows],
        "num_bytes": lambda: codec.num_bytes({"x": part}),
    }
    seconds = best_seconds(works, budget)
    faster = round(seconds["encode_rows"] / seconds["num_bytes"], 2)
    sizes, num_sent = codec.num_bytes({"x": part})["x"], int(masks.sum())
    return {
        "case": f"{case}, a round of JWINS",
        "kept": round(float(masks.mean()), 3),
        "index_bits": round(8 * int(sizes.indices.sum()) / num_sent, 4),
        "value_bits": round(8 * int(sizes.values.sum()) / num_sent, 4),
        "encode_indices_per_second": None,
        "decode_indices_per_second": None,
        "encode_megabytes_per_second": None,
        "decode_megabytes_per_second": None,
        "times_reference": None,
        "num_bytes_times_faster": faster,
    }


def run(snapshots: list[Path], sizes: list[int], budget: float) -> Iterator[dict[str, Any]]:
    float32, int8 = PartSpec(sparse=True), PartSpec(sparse=True, values="int8", bucket=512)
    cases: list[tuple[str, Any]] = [(path.stem, lambda path=path: snapshot(path)) for path in snapshots]
    cases += [(f"{MADE_UP} {size}", lambda size=size: made_up(size)) for size in sizes]
    for case, load in cases:
        values, scores = load()
        for kept in KEPT if values.size < 2_000_000 else (0.1, 0.37):
            mask = largest(scores, kept)
            part = sparse_part(torch.from_numpy(values)[None], torch.from_numpy(mask)[None])
            yield measure(case, kept, part, float32, budget)
            yield measure(f"{case} int8", kept, quantized(values, mask), int8, budget)
        if not case.startswith(MADE_UP):
            yield round_of_jwins(case, values, scores, budget)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--snapshot", type=Path, nargs="*", default=[], help="npz files with w and V")
    parser.add_argument("--sizes", type=int, nargs="*", default=[90_000, 1_000_000, 10_000_000])
    parser.add_argument("--seconds", type=float, default=0.6, help="time to spend on each measurement, about")
    parser.add_argument("--json", action="store_true", help="one JSON object per line in place of a table")
    chosen_options = parser.parse_args()
    for path in chosen_options.snapshot:
        if not zipfile.is_zipfile(path) or not {"w.npy", "V.npy"} <= {*zipfile.ZipFile(path).namelist()}:
            parser.error(f"{path} is no npz file with w and V")
    torch.set_num_threads(1)
    precompile()
    if reference(np.ones(2, np.bool_), np.ones(2, np.float32)) is None:
        print("fpzip is not installed: times_reference is left out (pip install fpzip)", file=sys.stderr)
    for number, row in enumerate(run(chosen_options.snapshot, chosen_options.sizes, chosen_options.seconds)):
        if chosen_options.json:
            print(json.dumps(row), flush=True)
            continue
        if number == 0:
            print("case                            kept  index  value   M indices/s        MB/s  reference sizes")
        row = {key: 0 if value is None else value for key, value in row.items()}
        print(
            f"{row['case']:30} {row['kept']:5}"
            f" {row['index_bits']:6.3f} {row['value_bits']:6.2f}"
            f" {row['encode_indices_per_second'] / 1e6:6.0f}/{row['decode_indices_per_second'] / 1e6:6.0f}"
            f" {row['encode_megabytes_per_second']:5.0f}/{row['decode_megabytes_per_second']:5.0f}"
            f" {row['times_reference']:6.0f}x {row['num_bytes_times_faster']:5.1f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
