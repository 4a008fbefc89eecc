"""The recommended interval loses at most 0.01 points against brute force."""

import numpy as np
import pytest

from mofa_model.reliability import interval, model, paper, recommend, renewal
from mofa_model.validate.ettr_grid import regimes

LOSS = 1e-4
GRID = regimes()
FLAT = [r for r in GRID if len(r.job.blocking) == 1]
NESTED = [r for r in GRID if len(r.job.blocking) > 1]


def best_of_all(job, points):
    """The best ETTR over a grid of intervals and tier ratios."""
    if len(job.blocking) == 1:
        steps = np.unique(np.round(np.geomspace(1, 1e5, 40 * points)))
        return float(np.max(model.ettr(job, steps)))
    rate = float(model.failure_rate(job))
    longest = max(2.0, 3 * float(renewal.best_work(rate / 10, job.blocking[-1], job.background[-1])) / 10)
    steps = np.unique(np.round(np.geomspace(1, longest, 2 * points)))
    ratios = np.unique(np.round(np.geomspace(1, 24, points)))
    return max(
        float(model.ettr(job, k, (1, int(a), int(a * b))[: len(job.blocking)]))
        for k in steps
        for a in ratios
        for b in (ratios if len(job.blocking) == 3 else ratios[:1])
        if k * a * b <= longest * 4
    )


@pytest.mark.parametrize("regime", FLAT, ids=lambda r: "-".join(r.label))
def test_no_interval_of_one_tier_is_better(regime):
    assert recommend(regime.job).ettr >= best_of_all(regime.job, 20) - LOSS


@pytest.mark.slow
@pytest.mark.parametrize("regime", NESTED[::12], ids=lambda r: "-".join(r.label))
def test_no_intervals_of_nested_tiers_are_better(regime):
    assert recommend(regime.job).ettr >= best_of_all(regime.job, 4) - LOSS


@pytest.mark.soak
@pytest.mark.parametrize("regime", NESTED, ids=lambda r: "-".join(r.label))
def test_no_intervals_of_nested_tiers_are_better_on_the_whole_grid(regime):
    assert (
        recommend(regime.job).ettr
        >= best_of_all(regime.job, 8 if len(regime.job.blocking) == 2 else 5) - LOSS
    )


@pytest.mark.slow
def test_the_search_crosses_the_ridges_that_waits_for_copies_make():
    # 2,048 nodes, copies of 24, 120 and 1,200 s: 8 x (1, 2, 16) steps looks best to single moves, 65.20 %.
    label = ("2048", "0.025", "600 s", "async", "3", "weibull")
    regime = next(r for r in NESTED if r.label == label)
    found = recommend(regime.job)
    assert (found.steps, found.every) == (13, (1, 1, 9))
    assert found.ettr == pytest.approx(0.65477, abs=1e-5)


def test_the_papers_point_is_37_steps_with_its_neighbourhood(plain_job):
    job = plain_job(32 * 0.01 / 86400, 60.0, blocking=2.0, step=27.99)
    found = recommend(job)
    assert found.steps == 37
    assert found.flat == (19, 75)
    for steps in found.flat:
        assert found.ettr - model.ettr(job, steps) <= interval.FLAT
    assert found.ettr - model.ettr(job, found.flat[0] - 1) > interval.FLAT
    assert found.ettr - model.ettr(job, found.flat[1] + 1) > interval.FLAT
    assert found.half == model.ettr(job, 18)
    assert found.double == model.ettr(job, 74)


def test_rounding_goes_both_ways():
    for rate in np.geomspace(1e-7, 1e-2, 60):
        steps = interval.best_steps(rate, 28.0, 5.0)
        around = np.array([max(1.0, steps - 1), steps, steps + 1])
        assert np.argmax(renewal.ettr(rate, 1.0, around * 28.0, 5.0)) == (1 if steps > 1 else 0)


def test_search_finds_what_the_closed_form_knows(plain_job):
    job = plain_job(1e-4)
    assert interval.search_steps(lambda k: np.asarray(model.ettr(job, k)), 10**9) == recommend(job).steps


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
    assert paper.young_interval(30.0, middle) == pytest.approx(734.8469228349534)


@pytest.mark.parametrize("ratio, loss", [(1.5, 0.021), (2.0, 0.061), (5.0, 0.342)])
def test_a_wrong_rate_costs_the_interval_little(ratio, loss):
    assert paper.excess_of_wrong_rate(ratio) == pytest.approx(loss, abs=6e-4)
    assert paper.excess_of_wrong_rate(1 / ratio) == pytest.approx(paper.excess_of_wrong_rate(ratio))
