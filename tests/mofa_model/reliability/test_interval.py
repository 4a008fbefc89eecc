"""The recommended interval loses at most 0.01 points against brute force."""

import numpy as np
import pytest

from mofa_model.reliability import interval, model, renewal
from mofa_model.reliability.interval import recommend


def test_the_papers_point_is_37_steps_with_its_neighbourhood(plain_job):
    job = plain_job(32 * 0.01 / 86400, 60.0, blocking=2.0, step=27.99)
    found = recommend(job)
    assert found.steps == 37
    away = interval.departure(job, found)
    assert away.flat == (19, 75)
    for steps in away.flat:
        assert found.ettr - model.ettr(job, steps) <= interval.FLAT
    assert found.ettr - model.ettr(job, away.flat[0] - 1) > interval.FLAT
    assert found.ettr - model.ettr(job, away.flat[1] + 1) > interval.FLAT
    assert away.half == model.ettr(job, 18)
    assert away.double == model.ettr(job, 74)


def test_rounding_goes_both_ways():
    for rate in np.geomspace(1e-7, 1e-2, 60):
        steps = interval.best_steps(rate, 28.0, 5.0)
        around = np.array([max(1.0, steps - 1), steps, steps + 1])
        assert np.argmax(renewal.ettr(rate, 1.0, around * 28.0, 5.0)) == (1 if steps > 1 else 0)


def test_search_finds_what_the_closed_form_knows(plain_job):
    job = plain_job(1e-4)
    assert (
        interval.search_steps(lambda k: np.asarray(model.ettr(job, k)), 10**9)
        == recommend(job).steps
    )


def test_a_fast_tier_is_not_saved_more_often_than_its_copy_takes(tiered_job):
    job = tiered_job(background=(0.0, 60.0, 600.0))
    found = recommend(job)
    assert found.steps * found.every[-1] * 10.0 >= 600.0
    assert found.every[1] * found.steps * 10.0 >= 60.0


def test_fixed_ratios_stay_fixed(tiered_job):
    assert recommend(tiered_job(), every=(1, 5, 60)).every == (1, 5, 60)


def test_three_tiers_beat_the_best_single_tier(tiered_job):
    job = tiered_job(rate=0.00379)
    single = recommend(model.one_tier(job, 2)).ettr
    assert recommend(job).ettr > single + 0.01


def test_minimax_lies_between_and_is_youngs_of_the_mean_root():
    middle = interval.minimax_rate(1 / 36000, 1 / 4000)
    assert np.sqrt(2 * 30.0 / middle) == pytest.approx(734.8469228349534)
