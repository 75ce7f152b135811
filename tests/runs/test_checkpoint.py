"""Checkpoints: restored to the last bit, replaced whole or not at all, and read as older versions wrote them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gossamer import ExperimentError
from gossamer.runs import checkpoint
from gossamer.runs.checkpoint import Saved

TENSORS = {"x": torch.randn(3, 5), "inner.u": torch.rand(3, 1, dtype=torch.float64), "sent": torch.ones(3, 5).bool()}


def test_what_is_saved_is_restored_to_the_last_bit(tmp_path: Path) -> None:
    saved = Saved(round=5, totals={"bytes_out": 7, "mass_lost": 0.1}, run=2**63 + 1, node=3)
    checkpoint.save(tmp_path, saved, TENSORS)
    found = checkpoint.load(tmp_path)
    assert found is not None
    assert found[0] == saved
    assert found[1].keys() == TENSORS.keys()
    assert all(torch.equal(found[1][name], tensor) for name, tensor in TENSORS.items())
    checkpoint.check_tensors(tmp_path, found[1], TENSORS)
    with pytest.raises(ExperimentError, match=r"damaged \(x is not as this experiment has it\)"):
        checkpoint.check_tensors(tmp_path, found[1], TENSORS | {"x": torch.zeros(3, 6)})


def test_there_may_be_none_and_what_is_none_is_refused(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path) is None
    (tmp_path / checkpoint.NAME).write_bytes(b"nothing")
    with pytest.raises(ExperimentError, match="damaged"):
        checkpoint.load(tmp_path)


def test_no_flipped_bit_is_taken_wherever_it_is(tmp_path: Path) -> None:
    saved = Saved(round=5, totals={"bytes_out": 7}, experiment={"name": 'a "name"'}, run=2**63 + 1, node=3)
    checkpoint.save(tmp_path, saved, TENSORS | {"buffers": torch.empty(3, 0)})
    path = tmp_path / checkpoint.NAME
    whole = path.read_bytes()  # length, header with the checksum, tensors
    advice = "put a copy of it back, or delete it to begin again with the first round"
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(ExperimentError, match=rf"checkpoint.safetensors is damaged \(.*\); {advice}$"):
            checkpoint.load(tmp_path)
    path.write_bytes(whole)
    assert checkpoint.load(tmp_path) is not None


def test_a_state_that_cannot_be_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, Saved(round=5, totals={}), TENSORS)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gossamer.runs.files.to_disk", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, Saved(round=6, totals={}), TENSORS)
    found = checkpoint.load(tmp_path)
    assert found is not None
    assert found[0].round == 5
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.NAME], "a half-written state was left"


@pytest.mark.parametrize(
    "notes",
    [
        {"round": 4, "totals": {"sent": 10, "full": 20, "mass_lost": 0.0}, "experiment": {"name": "old", "rounds": 6}},
        {"run": 2**63 + 1, "node": 3, "round": 4, "totals": {"bytes_out": 7, "mass_lost": 0.0}},
    ],
    ids=["simulation", "peer"],
)
def test_checkpoints_of_version_0_1_are_read(notes: dict, tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "checkpoint.safetensors", metadata={"gossamer": json.dumps(notes)})
    found = checkpoint.load(tmp_path)
    assert found is not None
    assert {name: getattr(found[0], name) for name in notes} == notes
