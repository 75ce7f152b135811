"""Results are those that were recorded, to the last bit: `record.py` says how to record them anew."""

import pytest
import record

RECORDS, MADE_WITH = record.kept("simulator.json")
EXPERIMENTS = dict(record.experiments())


def test_the_record_is_of_these_runs() -> None:
    assert RECORDS.keys() == EXPERIMENTS.keys()


@pytest.mark.parametrize("label", EXPERIMENTS)
def test_a_run_gives_the_models_bytes_and_metrics_that_were_recorded(label: str) -> None:
    if label.startswith(("digits", "images")) and record.made_with() != MADE_WITH:
        pytest.skip(f"recorded with {MADE_WITH}")
    assert record.simulated(EXPERIMENTS[label]) == RECORDS[label]
