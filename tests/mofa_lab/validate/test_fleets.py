"""Bands of forecasts on three real fleets, by the command that the documents name."""

from pathlib import Path

import pytest

from mofa_lab.validate.fleets import fleet_scores
from mofa_lab.validate.promises import fleet_years, promise
from mofa_model.errors import BadFile

FLEETS = Path(__file__).resolve().parents[3] / "lab" / "data" / "fleets"


def test_bands_hold_on_real_fleets_and_are_no_wider_than_plain_ones():
    better = {}
    for one in fleet_scores(str(FLEETS)):
        assert 0.85 <= one.covered <= 0.97, one
        assert one.width <= one.plain_width, one
        better.setdefault(one.fleet, []).append(one.log_score > one.plain_log_score)
    assert sum(all(all_days) for all_days in better.values()) >= 2, better


def test_a_folder_that_does_not_agree_with_itself_is_one_line(tmp_path):
    (tmp_path / "fleets.toml").write_text(
        "[a]\nspan_days = 1\nsystems.b = { nodes = 4, days = 40 }\n"
    )
    (tmp_path / "failures.csv").write_text("fleet,system,day,failures\n")
    with pytest.raises(BadFile, match="must agree"):
        fleet_scores(str(tmp_path))


def test_years_of_lanl_at_their_own_mean_are_not_called_wrong():
    """52 % were, when only days told how much counts scatter."""
    years = {one.fleet: one for one in fleet_years(str(FLEETS))}
    assert years["lanl"].years >= 80
    assert years["lanl"].false_verdicts <= 0.05
    assert years["lanl"].said_to_drift >= 0.3


def test_a_few_simulated_pools_keep_the_promise_of_the_check():
    found = promise(256, pools=20, looks=4)
    assert found.false_verdicts <= 0.15
    assert found.doubled_median <= 25
