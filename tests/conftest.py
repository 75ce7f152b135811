"""What all tests have in common.

Hypothesis draws the same examples every time, so that a test that passes once passes again; HYPOTHESIS_PROFILE=explore
draws new ones. A simulation has one worker unless a test names another number: to fork two takes ten times as long as
a run of the contract's experiments, and tests run beside each other already.
"""

import os

import pytest
from hypothesis import settings

from foreign_user import foreign_user  # noqa: F401

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.simulator.simulation.default_workers", lambda: 1)
