"""One tier, exactly: the closed form, its optimum, its scatter, and any law of failures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import lambertw

from mofa_model.reliability import laws, model, renewal
from mofa_model.spec.reliability import FailureLaw, RecoveryTime

RATES = st.floats(1e-9, 1e-2)
TIMES = st.floats(0, 1e4)
SLOW = st.floats(0, 0.5)


def by_summing(rate, survived, work, blocking, background, slowdown):
    """The same, save by save: w / E[X] times the sum of P(X > R + a + n u)."""
    u = renewal.time_between_saves(work, blocking, background, slowdown)
    n = np.arange(400_000)
    return rate * work * survived * np.sum(np.exp(-rate * (work + blocking + background + n * u)))


def test_a_save_every_1000_s_with_one_failure_in_10000_s_gives_86_percent():
    # 0.1 / (exp(0.1 x 1.05) - 1) = 0.903; times exp(-0.03) for a recovery of 300 s
    assert renewal.ettr(1e-4, np.exp(-0.03), 1000.0, 50.0) == pytest.approx(
        0.1 * np.exp(-0.03) / np.expm1(0.105)
    )


@given(RATES, st.floats(0.1, 1), st.floats(1, 1e4), TIMES, TIMES, SLOW)
def test_the_closed_form_is_the_sum_over_saves(rate, phi, work, blocking, background, slowdown):
    rate = max(rate, 1e-4)  # so that 400,000 terms are all
    exact = renewal.ettr(rate, phi, work, blocking, background, slowdown)
    assert exact == pytest.approx(
        by_summing(rate, phi, work, blocking, background, slowdown), abs=1e-9
    )


@given(RATES, st.floats(0.1, 1e4), TIMES, TIMES, SLOW)
def test_a_row_is_the_same_alone_and_in_an_array(rate, work, blocking, background, slowdown):
    row = (rate, 0.9, work, blocking, background, slowdown)
    many = [np.full(7, x) for x in row]
    assert np.all(renewal.ettr(*many) == renewal.ettr(*row))
    assert np.all(
        renewal.best_work(many[0], many[3], many[4], many[5])
        == renewal.best_work(rate, blocking, background, slowdown)
    )


@given(RATES, st.floats(0.1, 1e4), TIMES, TIMES, SLOW)
def test_four_times_slower_clocks_change_nothing_to_the_last_bit(
    rate, work, blocking, background, slowdown
):
    slow = renewal.ettr(rate / 4, 0.9, 4 * work, 4 * blocking, 4 * background, slowdown)
    assert slow == renewal.ettr(rate, 0.9, work, blocking, background, slowdown)
    wait = renewal.best_work(rate / 4, 4 * blocking, 4 * background, slowdown)
    assert wait == 4 * renewal.best_work(rate, blocking, background, slowdown)


@pytest.mark.parametrize("x", [1e-12, 1e-7, 1e-3, 0.1, 1.0, 10.0, 500.0])
def test_the_optimum_is_the_lambert_function_of_scipy(x):
    series = np.sqrt(2 * x) - 2 * x / 3  # scipy cancels for small x
    known = series if x < 1e-6 else 1 + lambertw(-np.exp(-1 - x)).real
    assert renewal.one_plus_lambert(x) == pytest.approx(known, rel=1e-6)


@given(st.floats(1e-7, 1e-2), st.floats(0.1, 1e3), st.floats(0, 1e3), SLOW)
def test_no_interval_beats_the_closed_optimum(rate, blocking, background, slowdown):
    best = renewal.best_work(rate, blocking, background, slowdown)
    tried = np.append(best * np.geomspace(0.01, 100, 801), best)
    ettr = renewal.ettr(rate, 1.0, tried, blocking, background, slowdown)
    assert np.max(ettr) <= ettr[-1] * (1 + 1e-12)


def test_recovery_does_not_move_the_optimum_at_mtbf_1064_s():
    assert renewal.best_work(1 / 1064, 30.0) == pytest.approx(233.0, abs=0.1)


def test_scatter_of_a_week_is_that_of_the_simulated_runs():
    # 2,048 nodes at 0.00379 per node-day: 0.0252, 0.0094, 0.0034 were simulated for 1, 7, 54 days
    rate = 2048 * 0.00379 / 86400
    law = RecoveryTime(mean=420.0, cv=1.0)
    phi, slope = laws.laplace_of(law, rate), laws.laplace_slope(law, rate)
    for days, seen in ((1, 0.0252), (7, 0.0094), (54, 0.0034)):
        sd = renewal.deviation(rate, phi, slope, 600.0, 20.0, 0.0, 0.0, days * 86400.0)
        assert sd == pytest.approx(seen, rel=0.02)


def test_failures_that_spare_recoveries_cost_less():
    rate, mean = 1.5407e-4, 900.0
    idle = renewal.survived_when_idle(rate, mean)
    assert renewal.ettr(rate, idle, 900.0, 30.0) == pytest.approx(0.7906, abs=2e-4)
    assert idle > np.exp(-rate * mean)


@pytest.mark.parametrize(
    "law, ettr",
    [
        (FailureLaw(), 0.8611),
        (FailureLaw(kind="weibull", shape=1.0), 0.8611),
        (FailureLaw(kind="weibull", shape=0.7), 0.8711),
        (FailureLaw(kind="weibull", shape=1.5), 0.8557),
        (FailureLaw(kind="mixture", short_share=0.5, short_mean=1500 / 9000), 0.8733),
    ],
)
def test_clustered_failures_raise_ettr_at_the_same_mean(plain_job, law, ettr):
    job = plain_job(1 / 9000, 600.0, law=law)
    lognormal = RecoveryTime(mean=600.0, cv=1.0)
    one = job.reliability.classes[0]
    object.__setattr__(one, "recovery", lognormal)
    assert model.ettr(job, 90) == pytest.approx(ettr, abs=1e-4)


@pytest.mark.parametrize("shape", [0.7, 1.5, 3.0])
@pytest.mark.parametrize("period", [5.0, 200.0, 4000.0])
def test_lattice_sums_are_sums(shape, period):
    rate, law = 1e-3, RecoveryTime(mean=300.0, cv=1.0)
    source = (laws.FailureSource(name="job", share=1.0, recovery_laws=(law,), tier=0),)
    run = laws.run_after(
        source, rate, FailureLaw(kind="weibull", shape=shape), during_recovery=True
    )
    values, weights = laws.nodes_of(law)
    times = 50.0 + period * np.arange(int(60_000 / period) + 60)
    direct = np.sum(laws.weibull_survival(np.add.outer(times, values), rate, shape) @ weights)
    assert run.lattice(50.0, period) == pytest.approx(direct, rel=2e-6)
    assert run.lattice_of(period, 1e4)(np.array([50.0]))[0] == pytest.approx(direct, rel=1e-5)


@pytest.mark.parametrize("law", ["deterministic", "exponential", "lognormal"])
def test_recovery_quadrature_keeps_mean_and_transform(law):
    back = RecoveryTime(mean=600.0, law=law, cv=1.5)
    values, weights = laws.nodes_of(back)
    assert np.sum(values * weights) == pytest.approx(600.0, rel=1e-6)
    for rate in (1e-6, 1e-3, 0.1):
        assert np.sum(weights * np.exp(-rate * values)) == pytest.approx(
            laws.laplace_of(back, rate), abs=1e-9
        )
