"""The numbers of the variance of steps, from left-out errors."""

from __future__ import annotations

import dataclasses
import tomllib

import numpy as np
import pytest

from mofa_lab.fitting import spreads
from mofa_model.bands.variance import Variance, shipped

TRUE = {
    "noise": np.array(0.03),
    "system": np.array(0.08),
    "mixture": np.array(0.05),
    "layout": np.array(0.03),
    "told": np.array(0.5),
    "slopes": np.array([0.01, 0.04, 0.01, 0.02, 0.01]),
}


@pytest.fixture(scope="module")
def groups():
    """300 groups of 12 runs, whose errors are drawn by the law with the numbers above."""
    rng = np.random.default_rng(7)
    made = []
    for place in range(300):
        runs = 12
        one = spreads.LeftGroup(
            by="system" if place % 2 else "group",
            publisher=f"{place % 3}",
            errors=np.zeros(runs),
            logs=rng.integers(0, 4, (runs, len(spreads.SLOPES))).astype(float),
            distance=np.full(runs, float(rng.integers(0, 3)) ** 2),
            shared=np.zeros(runs),
            related=np.full(runs, rng.uniform(0, 3)),
            mixture=np.full(runs, float(place % 3 == 0)),
        )
        noise, system, distance = one.variance(TRUE)
        alike = np.sqrt((system + distance)[0]) * rng.standard_t(3)
        errors = alike + np.sqrt(noise) * rng.standard_t(3, runs)
        made.append(dataclasses.replace(one, errors=errors, shared=one.distance))  # fmt: skip
    return made


@pytest.fixture(scope="module")
def likeliest(groups):
    return spreads.likeliest(groups)


def test_the_numbers_that_errors_were_drawn_with_are_found(likeliest):
    found = likeliest
    assert float(found["noise"]) == pytest.approx(0.03, rel=0.5)
    assert float(found["system"]) == pytest.approx(0.08, rel=0.5)
    assert float(found["slopes"][1]) == pytest.approx(0.04, rel=0.4)
    assert float(found["slopes"][1]) == max(found["slopes"].tolist())


def test_bands_of_what_was_left_out_hold_their_share_after_widening(groups, likeliest):
    found = spreads.widened(groups, likeliest)
    numbers = spreads.arrays_of(found)
    held = [one.ends(numbers) <= 1.0 for one in groups if one.by == "system"]
    assert np.mean(held) == pytest.approx(0.8, abs=0.005)


def test_numbers_that_saw_no_error_of_a_publisher_hold_about_the_share_of_its_groups(groups):
    """Errors of one law: whose numbers hold them makes no difference beyond chance, 0.02 of
    150 groups.
    """
    count, share = spreads.held_by_others(groups[:120])
    assert count == 60
    assert share == pytest.approx(0.8, abs=0.08)


def test_what_is_shipped_reads_as_numbers_above_zero():
    known = shipped()
    assert isinstance(known, Variance)
    assert set(known.slopes) == set(spreads.SLOPES)
    assert all(getattr(known, name) > 0 for name in (*spreads.SCALES, "told"))


def test_the_parts_at_unit_numbers_are_what_the_product_says(calibrated):
    for one in spreads.groups_left_out(calibrated):
        assert np.all(one.related >= 0.0)
        assert np.all(one.logs >= 0.0)
        assert np.all(one.distance >= one.shared - 1e-9)
    text = spreads.as_toml(shipped(), calibrated)
    assert tomllib.loads(text)["system"] == pytest.approx(shipped().system, rel=0.01)


def test_a_mixture_on_a_system_that_nobody_measured_has_all_scales_together():
    """0.03, 0.04 and 0.12 make 0.13; a fit of the same runs writes no narrower numbers over the
    shipped ones.
    """
    numbers = dataclasses.replace(shipped(), noise=0.03, system=0.04, mixture=0.12)
    assert spreads.unseen_scale(numbers) == pytest.approx(0.13)
