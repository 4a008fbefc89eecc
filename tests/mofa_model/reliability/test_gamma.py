"""Special functions of the reliability models, held against scipy's."""

import numpy as np
import pytest
from scipy import special

from mofa_model.reliability.special import (
    beta_below,
    beta_quantile,
    gamma_above,
    gamma_below,
    gamma_quantile,
    log_gamma,
    log_normal_below,
)


@pytest.mark.parametrize("shape", [0.01, 0.5, 1.0, 2.0, 5.0, 150.0, 1e4])
@pytest.mark.parametrize("probability", [0.025, 0.05, 0.5, 0.95, 0.975])
def test_quantiles_equal_scipys(shape, probability):
    assert gamma_quantile(shape, probability) == pytest.approx(
        special.gammaincinv(shape, probability), rel=1e-9
    )


def test_a_quantile_inverts_the_share():
    assert gamma_below(3.7, gamma_quantile(3.7, 0.3)) == pytest.approx(0.3, rel=1e-12)


def test_nothing_is_below_zero():
    assert gamma_below(2.0, 0.0) == 0.0


@pytest.fixture
def drawn():
    return np.random.default_rng(48)


def test_logarithms_equal_scipys_to_twelve_digits_over_ten_decades(drawn):
    x = np.exp(drawn.uniform(-10, 16, 20_000))
    true = special.gammaln(x)
    assert np.max(np.abs(log_gamma(x) - true) / np.maximum(1, np.abs(true))) < 1e-13
    z = drawn.normal(size=20_000) * np.exp(drawn.uniform(-3, 4, 20_000))
    assert log_normal_below(z) == pytest.approx(special.log_ndtr(z), rel=1e-12)


def test_chances_equal_scipys_far_into_both_tails(drawn):
    shape = np.exp(drawn.uniform(-6, 8, 400))
    x = shape * np.exp(3 * drawn.normal(size=400) / np.sqrt(1 + shape))
    tiny = 1e-280
    assert gamma_below(shape, x) == pytest.approx(special.gammainc(shape, x), rel=1e-11, abs=tiny)
    assert gamma_above(shape, x) == pytest.approx(special.gammaincc(shape, x), rel=1e-11, abs=tiny)
    a, b = np.exp(drawn.uniform(-3, 8, (2, 400)))
    at = drawn.beta(a, b).clip(1e-12, 1 - 1e-12)
    assert beta_below(a, b, at) == pytest.approx(special.betainc(a, b, at), rel=1e-10, abs=tiny)


@pytest.mark.parametrize("shape", [0.9e8, 1.1e8, 9.9e8, 1e11, 1e15])
def test_chances_of_vast_shapes_equal_scipys_and_are_not_cut_short(shape):
    """At 9.9e8 a series of 100,000 terms ended early, and the median was 0.0007 off."""
    for chance in (1e-4, 0.05, 0.5, 0.95):
        found = gamma_quantile(shape, chance)
        assert found == pytest.approx(special.gammaincinv(shape, chance), rel=1e-12)
        assert gamma_below(shape, found) == pytest.approx(chance, abs=1e-9)
    assert gamma_quantile(1e300, 0.05) == pytest.approx(1e300)


def test_a_share_at_the_border_between_both_forms_has_one():
    """1 / 4 is beyond the border of (1/3, 3), and by rounding 3 / 4 is beyond that of (3, 1/3)."""
    a, b = np.meshgrid(np.arange(1, 60) / 3, np.arange(1, 60) / 7)
    at = (a + 1) / (a + b + 2)
    assert beta_below(a, b, at) == pytest.approx(special.betainc(a, b, at), rel=1e-10)
    assert beta_below(1 / 3, 3.0, 0.25) == pytest.approx(0.8661957218)


def test_quantiles_of_shares_equal_scipys(drawn):
    a, b = np.exp(drawn.uniform(-1, 6, (2, 60)))
    chance = drawn.uniform(0.001, 0.999, 60)
    assert beta_quantile(a, b, chance) == pytest.approx(special.betaincinv(a, b, chance), rel=1e-11)
    assert [beta_quantile(2.0, 3.0, end) for end in (0.0, 1.0)] == [0.0, 1.0]
    assert [gamma_quantile(2.0, end) for end in (0.0, 1.0)] == [0.0, np.inf]
