"""The walk through the code in ARCHITECTURE.md is the one that a message takes."""

import os
import re
import sys
from pathlib import Path
from types import FrameType

import pytest

import gossamer
from contract import of
from gossamer.simulator.simulation import Simulation
from gossamer.training.block import Block

ROOT = Path(gossamer.__file__).parent
# What is asked on the way and does nothing to the message: settings, graphs, random streams, shared memory, bit fields.
ASKED = {
    "core/algorithm.py", "core/rng.py", "core/state.py", "core/task.py", "data/toy.py",
    "experiments/experiment.py", "graphs/base.py", "graphs/families.py",
    "graphs/faults.py", "graphs/mixing_matrix.py", "graphs/topologies.py",
    "simulator/clock.py", "simulator/crossing.py", "simulator/ranks.py", "simulator/shared_state.py",
    "training/optimizer.py", "training/privacy.py", "training/schedules.py", "wire/bits.py", "wire/resync.py",
}  # fmt: skip
COMPILED = {"wire/huffman.py", "wire/indices.py"}  # called from compiled code, which a profiler does not see


def walks() -> list[list[str]]:
    """The files of the two tables: in the simulator, and on a peer."""
    text = (ROOT.parents[1] / "ARCHITECTURE.md").read_text().split("## One JWINS message, file by file")[1]
    tables = text.split("On a peer")
    rows = [[line.split("|")[1] for line in table.splitlines() if line.startswith("| `")] for table in tables]
    return [re.findall(r"`([\w/]+\.py)`", "".join(cells)) for cells in rows]


def test_a_message_goes_through_few_files_and_they_exist() -> None:
    simulator, peer = walks()
    assert len(simulator) == len(set(simulator)) <= 15
    assert len(peer) == len(set(peer)) <= 18
    for name in (*simulator, *peer):
        assert (ROOT / name).is_file(), name


def test_a_message_in_the_simulator_goes_through_the_files_that_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            seen.add(os.path.relpath(frame.f_code.co_filename, ROOT))

    train = Block.train

    def unseen(self: Block, *arguments: object) -> object:
        sys.setprofile(None)  # local steps are no part of the walk
        try:
            return train(self, *arguments)  # type: ignore[arg-type]
        finally:
            sys.setprofile(note)

    with Simulation(of("jwins"), workers=1) as simulation:
        simulation.step()  # compiles
        monkeypatch.setattr(Block, "train", unseen)
        sys.setprofile(note)
        try:
            simulation.step()
        finally:
            sys.setprofile(None)
    listed = set(walks()[0])
    assert seen - ASKED <= listed
    assert listed - COMPILED <= seen
