"""How short messages must be, on coefficients of a real JWINS run where the snapshot is at hand."""

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
SNAPSHOT = ROOT.parent / "shared" / "data" / "snapshots" / "cifar10_gnlenet_jwins.npz"

needs_snapshot = pytest.mark.skipif(not SNAPSHOT.exists(), reason="the snapshot is not here")


@pytest.fixture(scope="module")
def snapshot():
    with np.load(SNAPSHOT) as data:
        return data["w"], np.abs(data["V"])


def message_of(snapshot, kept):
    values, scores = snapshot
    sent = np.zeros((1, values.size), np.bool_)
    sent[0, np.argsort(-scores, kind="stable")[: round(kept * values.size)]] = True
    return {"x": sparse_part(torch.from_numpy(values)[None], torch.from_numpy(sent))}


@needs_snapshot
@pytest.mark.parametrize(("kept", "most"), [(0.01, 5.0), (0.1, 3.75), (0.25, 2.95), (0.37, 2.43), (0.5, 1.93)])
def test_bits_an_index(snapshot, kept, most):
    message = message_of(snapshot, kept)
    num_sent = int(message["x"].sent.sum())
    codec = Codec({"x": PartSpec(sparse=True)}, message["x"].sent.shape[1], seed=0)
    assert 8 * codec.num_bytes(message)["x"].indices[0] / num_sent <= most


@needs_snapshot
def test_bits_a_float(snapshot):
    message = message_of(snapshot, 0.37)
    sizes = Codec({"x": PartSpec(sparse=True)}, message["x"].sent.shape[1], seed=0).num_bytes(message)["x"]
    assert 8 * sizes.values / int(message["x"].sent.sum()) <= 26.8


@needs_snapshot
@pytest.mark.parametrize("kept", [0.1, 0.25, 0.37, 0.5, 1.0])
def test_eight_bit_numbers_take_their_entropy_and_two_percent(snapshot, kept):
    part = message_of(snapshot, kept)["x"]
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


def test_the_benchmark_prints_what_is_asked_for():
    command = [sys.executable, "benchmarks/wire.py", "--sizes", "3000", "--snapshot", "--seconds", "0", "--json"]
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
