"""The exact model against the simulator on the grid of regimes: within four standard
errors everywhere.
"""

import numpy as np
import pytest

from mofa_lab.validate.ettr_grid import ENOUGH, ERROR, Compared, compare, markdown, regimes

GRID = regimes()
SAMPLE = GRID[15::41]
"""A few that have every value of every factor among them."""


def assert_holds(row):
    assert row.error <= ERROR
    assert abs(row.z) <= ENOUGH, (
        f"exact {row.exact:.5f}, simulated {row.simulated:.5f} ± {row.error:.5f}"
    )


def test_the_grid_is_as_large_and_as_even_as_it_says():
    assert len(GRID) >= 200
    for factor, count in zip(range(6), (4, 3, 4, 2, 3, 3), strict=True):
        values = [regime.label[factor] for regime in GRID]
        assert {values.count(value) for value in values} == {len(GRID) // count}


def test_the_sample_has_every_value_of_every_factor():
    for factor in range(6):
        assert {one.label[factor] for one in SAMPLE} == {one.label[factor] for one in GRID}


@pytest.mark.slow
@pytest.mark.parametrize("regime", SAMPLE, ids=lambda r: "-".join(r.label))
def test_a_sample_of_the_grid_agrees(regime):
    assert_holds(compare(regime))


@pytest.mark.soak
@pytest.mark.parametrize("regime", GRID, ids=lambda r: "-".join(r.label))
def test_the_whole_grid_agrees(regime):
    assert_holds(compare(regime))


def test_the_table_says_what_was_compared():
    row = Compared(regime=GRID[0], exact=0.95, simulated=0.9501, error=1e-4, paper=0.96)
    text = markdown([row])
    assert "| 95.01 % | 95.00 % | -1.00 | 96.00 % | +0.99 |" in text
    assert np.isclose(row.z, -1.0)
