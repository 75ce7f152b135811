"""Privacy on real peers: noise that nobody can draw again, and an account that restarts do not forget."""

from dataclasses import replace
from pathlib import Path

import pytest
from harness import DIGITS, PATIENT, events, results

from gossamer.experiments.experiment import ExperimentError
from gossamer.graphs.topologies import Ring
from gossamer.peers.local.dashboard import compare
from gossamer.peers.local.local_group import LocalGroup
from gossamer.peers.privacy_ledger import PrivacyLedger
from gossamer.training.privacy import Privacy

MILD = Privacy(clip=1.0, noise=0.05)
PRIVATE = replace(DIGITS, nodes=3, rounds=5, topology=Ring(), local_steps=2, privacy=MILD)


@pytest.mark.slow
@pytest.mark.parametrize("seeded", [True, False])
def test_seeded_noise_is_the_simulators_and_that_of_real_peers_is_not(seeded: bool, tmp_path: Path) -> None:
    with LocalGroup(PRIVATE, tmp_path / "up", PATIENT, seeded_noise=seeded) as peers:
        peers.start()
        peers.wait(120)
        found = results(peers)
        assert compare(PRIVATE, {"peers": found})["verified"] == seeded
        assert [len(events(peers, name, "noise is not secret")) for name in peers.names] == [int(seeded)] * 3
    assert [peer["releases"] for peer in found] == [5] * 3
    if seeded:
        assert all(peer["privacy"].startswith("none: ") and "epsilon" not in peer for peer in found)
    else:
        assert [peer["epsilon"] for peer in found] == [round(MILD.epsilon(5), 4)] * 3


def test_releases_are_noted_before_they_are_made_and_rounds_that_run_again_count_again(tmp_path: Path) -> None:
    first = PrivacyLedger(MILD, tmp_path, 0)
    for _ in range(7):
        first.add()
    again = PrivacyLedger(MILD, tmp_path, 5)  # killed in round 7, and back at what was saved after round 5
    again.add()
    assert again.report() == {"releases": 8, "epsilon": round(MILD.epsilon(8), 4), "delta": 1e-5}
    assert PrivacyLedger(Privacy(), tmp_path, 5).report() == {}


def test_once_noise_came_from_the_seed_there_is_no_epsilon_to_report(tmp_path: Path) -> None:
    trial = PrivacyLedger(MILD, tmp_path, 0, seeded=True)
    trial.add()
    again = PrivacyLedger(MILD, tmp_path, 1)
    again.add()
    hidden = "none: noise from the seed (--seeded-noise) hides nothing"
    assert again.report() == {"releases": 2, "privacy": hidden}


def test_a_peer_that_only_took_anothers_state_has_spent_nothing_and_may_come_back(tmp_path: Path) -> None:
    PrivacyLedger(MILD, tmp_path, 0)
    assert PrivacyLedger(MILD, tmp_path, 5).number == 0


def test_a_peer_that_cannot_tell_what_it_has_spent_does_not_go_on(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"privacy\.json is missing.*first 5 rounds"):
        PrivacyLedger(MILD, tmp_path, 5)
    (tmp_path / "privacy.json").write_text('{"releases": -1}')
    with pytest.raises(ExperimentError, match="is damaged"):
        PrivacyLedger(MILD, tmp_path, 5)
