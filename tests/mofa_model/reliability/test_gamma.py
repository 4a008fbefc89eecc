"""Quantiles of the Gamma law, held against scipy's."""

import pytest
from scipy.special import gammaincinv

from mofa_model.reliability.rates import gamma_quantile, gamma_share


@pytest.mark.parametrize("shape", [0.01, 0.5, 1.0, 2.0, 5.0, 150.0, 1e4])
@pytest.mark.parametrize("probability", [0.025, 0.05, 0.5, 0.95, 0.975])
def test_quantiles_equal_scipys(shape, probability):
    assert gamma_quantile(shape, probability) == pytest.approx(
        gammaincinv(shape, probability), rel=1e-9
    )


def test_a_quantile_inverts_the_share():
    assert gamma_share(3.7, gamma_quantile(3.7, 0.3)) == pytest.approx(0.3, rel=1e-12)


def test_nothing_is_below_zero():
    assert gamma_share(2.0, 0.0) == 0.0
