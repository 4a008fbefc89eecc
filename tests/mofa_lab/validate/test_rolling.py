"""Bands of 80 % of weekly ETTR and of finish dates hold 75 to 88 % of the time on lives that the
forecast has not seen.
"""

import pytest

from mofa_lab.validate.rolling import POOLS, rolling_scores

DISCRETE = ("seldom", "small")
"""Pools in which many weeks have no stop: an ETTR of one is the upper end of the band and what
comes, so more bands hold.
"""


def shares(scores, what, names):
    """Share of all bands of these pools that held."""
    chosen = [getattr(one, what) for one in scores if one.pool in names]
    return sum(one.inside for one in chosen) / sum(one.bands for one in chosen)


def hold(scores, slack):
    usual = set(POOLS) - set(DISCRETE)
    assert 0.75 - slack <= shares(scores, "weeks", usual) <= 0.88 + slack
    assert 0.75 - slack <= shares(scores, "weeks", DISCRETE) <= 0.96 + slack
    assert 0.75 - slack <= shares(scores, "finishes", POOLS) <= 0.88 + slack


def test_bands_hold_about_four_times_of_five_in_one_life_of_each_pool():
    hold(list(rolling_scores([11], days=180.0)), slack=0.08)


@pytest.mark.soak
def test_bands_hold_75_to_88_percent_in_ten_lives_of_each_pool():
    hold(list(rolling_scores(range(10))), slack=0.0)
