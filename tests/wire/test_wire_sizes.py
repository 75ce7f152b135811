"""How short messages must be, on coefficients of a real JWINS run. Every bound is 2 % above what is reached."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gossamer.core import Part, PartSpec, Quantized, sparse_part
from gossamer.wire import Codec, indices

ROOT = Path(__file__).parents[2]
KEPT = [0.01, 0.1, 0.25, 0.37, 0.5]


@pytest.fixture(scope="module")
def jwins_round():
    """Wavelet coefficients of GN-LeNet on CIFAR-10 in one round.

    The file has, for each of them, which of the shares KEPT is the least in which its score is among the largest, and
    the upper half of the bits of those in the first four. The lower half is as good as random, and is drawn here.
    """
    with np.load(Path(__file__).parent / "jwins_round.npz") as data:
        ranks, halves = data["ranks"], data["halves"].astype(np.uint32)
    words = np.zeros(ranks.size, np.uint32)
    words[ranks < 4] = halves << 16 | np.random.default_rng(0).integers(0, 2**16, halves.size, dtype=np.uint32)
    return words.view(np.float32), ranks


def message_of(jwins_round, kept):
    values, ranks = jwins_round
    sent = torch.from_numpy(ranks <= KEPT.index(kept))
    return {"x": sparse_part(torch.from_numpy(values)[None], sent[None])}


@pytest.mark.parametrize(("kept", "most"), [(0.01, 4.67), (0.1, 3.69), (0.25, 2.95), (0.37, 2.43), (0.5, 1.93)])
def test_bits_per_index(jwins_round, kept, most):
    message = message_of(jwins_round, kept)
    codec = Codec({"x": PartSpec(sparse=True)}, message["x"].sent.shape[1], seed=0)
    assert 8 * codec.num_bytes(message)["x"].indices[0] / int(message["x"].sent.sum()) <= most


@pytest.mark.parametrize(("kind", "most"), [("float32", 2.71), ("bfloat16", 2.71)])
def test_bits_of_an_exponent(jwins_round, kind, most):
    message = message_of(jwins_round, 0.37)
    if kind == "bfloat16":
        message = {"x": Part(message["x"].values.bfloat16().float(), message["x"].sent)}
    codec = Codec({"x": PartSpec(sparse=True, values=kind)}, message["x"].sent.shape[1], seed=0)
    raw_bits = 24 if kind == "float32" else 8  # the sign and the fraction
    num_bits = 8 * codec.num_bytes(message)["x"].values[0] / int(message["x"].sent.sum())
    assert num_bits - raw_bits <= most


@pytest.mark.parametrize("kept", [0.1, 0.25, 0.37])
def test_eight_bit_numbers_take_their_entropy_and_two_percent(jwins_round, kept):
    part = message_of(jwins_round, kept)["x"]
    sent = part.values[part.sent]
    scales = torch.stack([bucket.abs().max() / 127 for bucket in sent.split(512)])
    each = scales.repeat_interleave(512)[: sent.numel()]
    levels = torch.zeros(part.values.shape, dtype=torch.int16)
    levels[part.sent] = (sent / each).round().to(torch.int16)
    values = torch.zeros(part.values.shape)
    values[part.sent] = levels[part.sent] * each
    spec = PartSpec(sparse=True, values="int8", bucket=512)
    message = {"x": Part(values, part.sent, Quantized(levels, scales[None], 512))}
    shares = levels[part.sent].unique(return_counts=True)[1] / sent.numel()
    entropy = -(shares * shares.log2()).sum().item()
    sizes = Codec({"x": spec}, values.shape[1], seed=0).num_bytes(message)["x"]
    assert 8 * sizes.values / sent.numel() <= 1.02 * entropy  # the scales are in it


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99])
def test_the_choice_of_a_coder_costs_one_byte(share):
    random = np.random.default_rng(0)
    mask = (random.random(5000) < share * np.linspace(0.5, 1.5, 5000)).astype(np.uint8)
    plan = indices.plan(mask)
    positions = np.flatnonzero(mask)
    gaps = np.diff(positions, prepend=-1) - 1
    single = [2 * np.floor(np.log2(gaps + 1)).sum() + gaps.size]
    single += [(gaps >> r).sum() + gaps.size * (1 + r) for r in range(20)]
    assert 1 + plan.num_bytes <= min(single) / 8 + 5  # tag, count and the filling of the last byte


@pytest.mark.slow
def test_the_benchmark_prints_what_is_asked_for():
    command = [sys.executable, "benchmarks/wire.py", "--sizes", "3000", "--seconds", "0", "--json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert {row["kept"] for row in rows} == {0.01, 0.1, 0.25, 0.37, 0.5, 1.0}
    assert [*rows[0]][:9] == [
        "case",
        "kept",
        "index_bits",
        "value_bits",
        "encode_indices_per_second",
        "decode_indices_per_second",
        "encode_megabytes_per_second",
        "decode_megabytes_per_second",
        "times_reference",
    ]
