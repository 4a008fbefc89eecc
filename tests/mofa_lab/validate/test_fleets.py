"""Bands of forecasts on three real fleets, by the command that the documents name."""

from pathlib import Path

import pytest

from mofa_lab.validate.fleets import fleet_scores
from mofa_lab.validate.promises import promise
from mofa_model.errors import BadFile

FLEETS = Path(__file__).resolve().parents[3] / "lab" / "data" / "fleets"

# Width and log score of two negative binomials, one with a discounted rate, from the same origins.
PLAIN = {
    ("stepfun", 7): ((14.91, -3.007), (17.44, -3.038)),
    ("stepfun", 14): ((26.32, -4.18), (29.0, -4.317)),
    ("stepfun", 28): ((44.64, -6.588), (61.09, -7.367)),
    ("lanl", 7): ((13.04, -2.559), (13.71, -2.378)),
    ("lanl", 14): ((21.62, -3.111), (22.87, -2.866)),
    ("lanl", 28): ((37.32, -3.8), (48.49, -3.588)),
    ("titan", 7): ((31.92, -3.7), (31.18, -3.071)),
    ("titan", 14): ((56.31, -4.293), (57.01, -3.636)),
    ("titan", 28): ((100.54, -4.971), (104.44, -4.395)),
}


def test_bands_hold_on_real_fleets_and_are_no_wider_than_plain_ones():
    better = {}
    for one in fleet_scores(str(FLEETS)):
        plain = PLAIN[one.fleet, one.days]
        assert 0.85 <= one.covered <= 0.97, one
        assert one.width <= min(width for width, _ in plain), one
        better.setdefault(one.fleet, []).append(one.log_score > max(score for _, score in plain))
    assert sum(all(all_days) for all_days in better.values()) >= 2, better


def test_a_folder_that_does_not_agree_with_itself_is_one_line(tmp_path):
    (tmp_path / "fleets.toml").write_text("[a]\nspan_days = 1\nsystems.b = { nodes = 4, days = 40 }\n")
    (tmp_path / "failures.csv").write_text("fleet,system,day,failures\n")
    with pytest.raises(BadFile, match="must agree"):
        fleet_scores(str(tmp_path))


def test_a_few_simulated_pools_keep_the_promise_of_the_check():
    found = promise(256, pools=20, looks=4)
    assert found.false_verdicts <= 0.15
    assert found.doubled_median <= 25
