"""No bytes from outside may do harm: seeded mutations here, coverage-guided ones in tests/wire/fuzz/fuzz_wire.py."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import fuzz_wire
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.wire import frame as frames

ROOT = Path(__file__).parents[2]


def test_the_seed_corpus_is_what_this_version_of_the_format_writes():
    assert fuzz_wire.corpus() == fuzz_wire.seeds()


def test_every_seed_is_a_message():
    assert all(fuzz_wire.one_input(data) is not None for data in fuzz_wire.corpus().values())


def test_mutated_messages_are_messages_or_wire_errors():
    decoded, tried = fuzz_wire.run_mutations(40)
    assert 0 < decoded < tried


edits = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=6)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(fuzz_wire.corpus().values())), edits, st.integers(0, 40), st.binary(max_size=6))
def test_what_hypothesis_makes_of_messages_are_messages_or_wire_errors(data, edits, cut, tail):
    mutated = bytearray(data[: len(data) - cut] + tail)
    for offset, byte in edits:
        if len(mutated) > 2:
            mutated[2 + offset % (len(mutated) - 2)] = byte
    fuzz_wire.one_input(mutated)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(fuzz_wire.CODECS) - 1), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_wire_error(number, data):
    fuzz_wire.one_input(bytes([number, 0]) + data)
    fuzz_wire.one_input(bytes([number, 2]) + data)


def test_every_byte_of_a_frame_is_under_the_checksum():
    frame = fuzz_wire.corpus()["3-frame"][2:]
    codec = fuzz_wire.CODECS[3]
    for offset in range(len(frame)):
        damaged = bytes([*frame[:offset], frame[offset] ^ 16, *frame[offset + 1 :]])
        with pytest.raises(frames.WireError):
            codec.decode(damaged)


@pytest.mark.slow
def test_no_kernel_reads_or_writes_outside_of_its_buffers():
    """As plain Python every access is checked, and -W error makes an overflow an error as well."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "tests/wire/fuzz/fuzz_wire.py", "--mutations", "4"],
        cwd=ROOT,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "nothing but WireError otherwise" in run.stdout


COUNT_KERNELS = """
import numba, sys
def loaded():
    return {(module, name): len(value.signatures) for module in KERNELS
            for name, value in vars(sys.modules[module]).items() if isinstance(value, numba.core.dispatcher.Dispatcher)}
"""


def assert_runs(script: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", COUNT_KERNELS + script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_nothing_is_compiled_after_precompile():
    """Workers fork from a process that has compiled; a kernel compiled in each of them would cost seconds."""
    assert_runs("""
from gossamer import wire
wire.precompile()
KERNELS = [name for name in sys.modules if name.startswith("gossamer.wire.")]
before = loaded()
sys.path.insert(0, "tests/wire")
from fuzz import fuzz_wire
for data in fuzz_wire.corpus().values():
    assert fuzz_wire.one_input(data) is not None
assert before == loaded(), "a kernel was compiled"
""")


def test_a_run_loads_what_it_needs_beforehand_and_no_more():
    assert_runs("""
from itertools import product
from gossamer import algorithms as a
from gossamer.compressors import DeadZone, Quantize
from gossamer.simulator.simulation import Simulation
from gossamer.experiments.experiment import Experiment, Wire
from gossamer.transforms import Fourier
KERNELS = [name for name in sys.modules if name.startswith(("gossamer.wire.", "gossamer.transforms"))]
ALGORITHMS = [a.QuantizedJwins(), a.RandomSampling(), a.Dpsgd(), a.Sgp(), a.Choco(), a.Choco(transform=Fourier()),
              a.Silk(), a.QuantSgp(), a.Jwins(), a.JwinsPush(), a.Choco(Quantize(8)),
              a.Choco(DeadZone(), 0.5)]
for mode, algorithm in product(("count", "encode"), ALGORITHMS):
    experiment = Experiment(nodes=6, rounds=1, algorithm=algorithm, wire=Wire(mode))
    with Simulation(experiment, workers=1) as simulation:
        simulation._workers = simulation._start()
        before, modules = loaded(), {name for name in sys.modules if name.startswith("scipy.")}
        simulation.step()
        late = {name: (number, before[name]) for name, number in loaded().items() if number != before[name]}
        assert not late, f"{algorithm} with {mode} loaded kernels late: {late}"
        assert modules == {name for name in sys.modules if name.startswith("scipy.")}, f"{algorithm} loaded SciPy late"
    if mode == "count":
        coders = {name for (_, name), number in loaded().items() if number and name.startswith(("write", "read"))}
        assert not coders, coders
""")


def test_nothing_from_outside_is_unpickled_or_evaluated():
    forbidden = re.compile(
        r"^\s*(import|from) +(pickle|cloudpickle|dill|marshal|shelve|joblib)\b"
        r"|torch\.load\(|allow_pickle=True|(?<![.\w])(eval|exec)\(",
        re.MULTILINE,
    )
    for path in (ROOT / "src").rglob("*.py"):
        assert not forbidden.search(path.read_text()), f"{path} unpickles or evaluates something"
