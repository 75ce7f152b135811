"""A short turn of the attack from inside the group; fuzz/fuzz_peers.py takes longer ones."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))

from fuzz_peers import fuzz


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "hidden"), [("jwins", False), ("silk", False), ("clipped-gossip", False), ("jwins", True)]
)
def test_what_a_listed_peer_says_and_answers_harms_nobody(algorithm: str, hidden: bool, tmp_path: Path) -> None:
    found = fuzz(30, 1, algorithm, tmp_path / "up", hidden)
    assert not found["wrong"]
    assert found["calls"] > 100
