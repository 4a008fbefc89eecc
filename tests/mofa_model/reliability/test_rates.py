"""Counts into rates: against published tables, and by exact coverage."""

import numpy as np
import pytest

from mofa_model.errors import BadValue
from mofa_model.reliability import observed
from mofa_model.reliability.rates import credible_interval, garwood_interval, posterior


@pytest.mark.parametrize(
    "failures, low, high",
    [
        (0, 0.0, 3.689),
        (1, 0.0253, 5.572),
        (3, 0.619, 8.767),
        (10, 4.795, 18.390),
        (50, 37.111, 65.919),
    ],
)
def test_garwood_intervals_are_those_of_the_published_table(failures, low, high):
    assert garwood_interval(failures, 1.0, 0.95) == pytest.approx((low, high), abs=1e-3)


def test_llama_3_gives_0_0035_to_0_0041_per_node_day():
    found = posterior(419, 54 * 2048.0)
    assert credible_interval(found) == pytest.approx((0.0034938, 0.0041029), rel=1e-4)
    assert found.prior_weight == pytest.approx(0.5 / 419.5)


def test_no_failures_still_bound_the_rate():
    low, high = credible_interval(posterior(0, 500.0))
    assert 0 < low < high == pytest.approx(0.0038415, rel=1e-4)


def test_prior_of_two_failures_spans_what_fleets_span():
    low, high = credible_interval(posterior(0, 0.0, prior_failures=2.0, prior_exposure=400.0))
    assert high / low == pytest.approx(13.3, abs=0.1)  # published fleets: tenfold


def test_simulated_coverage_of_90_percent_intervals():
    # Rates log-uniform over 0.5 to 100 expected events.
    generator = np.random.default_rng(11)
    expected = np.exp(generator.uniform(np.log(0.5), np.log(100), 200_000))
    counts, each = np.unique(generator.poisson(expected), return_inverse=True)
    low, high = (bound[each] for bound in credible_interval(posterior(counts, 1.0)))
    assert 0.88 <= np.mean((low <= expected) & (expected <= high)) <= 0.92


def test_exact_coverage_of_garwood_is_never_below_its_level():
    from scipy.stats import poisson  # takes a second, and nobody else needs it

    counts = np.arange(250)  # 12 standard deviations above the largest that is expected
    low, high = garwood_interval(counts, 1.0)
    for expected in np.geomspace(0.5, 100, 120):
        assert np.sum(poisson.pmf(counts, expected)[(low <= expected) & (expected <= high)]) >= 0.9


def test_counts_that_cannot_be_are_refused():
    with pytest.raises(BadValue, match="exposure"):
        posterior(3, 0.0)
    with pytest.raises(BadValue, match="failures"):
        posterior(-1, 10.0)
    with pytest.raises(BadValue, match="level"):
        credible_interval(posterior(1, 1.0), 1.0)
    with pytest.raises(BadValue, match="failures"):
        posterior(np.nan, 10.0)


def test_class_shares_are_those_of_a_beta_law():
    shares = observed.class_shares({"process": 30, "pod": 60, "job": 10})
    assert sum(s.target for s in shares.values()) == pytest.approx(1)
    assert shares["job"].lower < 0.1 < shares["job"].upper
    assert observed.class_shares({"all": 3})["all"].target == 1


def test_leaving_open_recoveries_out_would_bias_the_mean_low():
    generator = np.random.default_rng(2)
    times = generator.lognormal(np.log(300) - 0.5, 1.0, 400)
    cut = 250.0
    done, still = times[times <= cut], np.full(np.sum(times > cut), cut)
    law = observed.RecoveryTime(mean=300.0, cv=1.0)
    found = observed.recovery_posterior(done, still, prior_law=law)
    blind = observed.recovery_posterior(done, prior_law=law)
    assert found.mean.lower < 300 < found.mean.upper
    assert blind.mean.upper < 200


def test_three_lemons_of_63_nodes_are_named():
    exposure = {f"n{i:02}": 55.0 for i in range(63)}
    found = observed.dispersion({"n07": 3, "n21": 3, "n40": 2, "n50": 1, "n60": 1}, exposure)
    assert found.p_value < 1e-3
    assert [name for name, _, _ in found.worst[:2]] == ["n07", "n21"]
    assert found.worst[0][2] < 0.05 < found.worst[3][2]
    alike = observed.dispersion({f"n{i:02}": 1 for i in range(0, 60, 6)}, exposure)
    assert alike.p_value > 0.05


def test_a_trend_is_told_from_none():
    assert observed.laplace_trend([10, 30, 50, 70, 90], 100.0)[1] > 0.9
    score, p = observed.laplace_trend([70, 80, 85, 90, 95, 99], 100.0)
    assert score > 0
    assert p < 0.01
    assert observed.laplace_trend([], 100.0) == (0.0, 1.0)
