"""Rates that move: what the past is worth, and whether bands of what comes hold."""

import numpy as np
import pytest

from mofa_model.reliability.forecast import log_chance, mixture, outlook, present_evidence
from mofa_model.reliability.observed import ObservedFailures, assess
from mofa_model.spec.evidence import DatedEvidence, FailureEvidence


def lived(rates, generator, nodes=256.0):
    """Days of a pool whose failures a day are Poisson with these means."""
    return np.ones(len(rates)), np.full(len(rates), nodes), generator.poisson(rates).astype(float)


def test_a_steady_rate_is_known_better_the_longer_it_was_watched():
    generator = np.random.default_rng(1)
    worth = [
        present_evidence(mixture(*lived(np.full(days, 1.28), generator), ahead=30.0))
        for days in (20, 80, 320)
    ]
    assert worth[0][0] < worth[1][0] < worth[2][0]
    assert worth[2][0] / worth[2][1] == pytest.approx(0.005, rel=0.15)


def test_a_rate_that_trebled_is_followed():
    days = lived(np.append(np.full(200, 1.0), np.full(40, 3.0)), np.random.default_rng(2))
    failures, exposure = present_evidence(mixture(*days, ahead=30.0))
    assert 256 * failures / exposure == pytest.approx(3.0, rel=0.3)
    assert failures < days[2].sum() / 2, "the old days say little of it"


@pytest.mark.parametrize("ahead", [7, 14, 28])
def test_bands_hold_where_rates_wander_and_where_they_stand(ahead):
    generator, held = np.random.default_rng(3), []
    for pool in range(60):
        steps = generator.normal(0.0, 0.08 * (pool % 2), 150)
        days = lived(1.5 * np.exp(np.cumsum(steps) - steps.sum() / 2), generator)
        said = mixture(*(one[: 150 - ahead] for one in days), ahead=ahead)
        band = outlook(said, ahead, 256.0 * ahead)
        held.append(band.lower <= days[2][150 - ahead :].sum() <= band.upper)
    assert np.mean(held) >= 0.85


def test_chances_of_all_counts_add_to_one():
    said = mixture(*lived(np.full(60, 1.0), np.random.default_rng(4)), ahead=7.0)
    chances = np.exp(
        log_chance(np.arange(4000)[:, None], 1792.0, said.shape, said.scale, said.spread)
    )
    assert chances.sum(axis=0) == pytest.approx(1.0, abs=1e-3)


def test_the_posterior_of_a_pool_with_days_is_of_what_they_are_worth():
    """Sixty days, the last twenty at three times the rate: what they are worth is nearer to it, and
    the band is wider.
    """
    counts = [int(n % 2) for n in range(40)] + [2, 1] * 10
    days = tuple(
        DatedEvidence(
            date=f"2026-{1 + n // 28:02}-{1 + n % 28:02}",
            days=1.0,
            classes={"pod": FailureEvidence(node_days=256.0, failures=count)},
        )
        for n, count in enumerate(counts)
    )
    whole = {"pod": FailureEvidence(node_days=256.0 * 60, failures=sum(counts))}
    (dated,) = assess(
        ObservedFailures(classes=whole, past=days), {"pod": 0.002}, prior_weight=2.0
    ).rates
    (plain,) = assess(ObservedFailures(classes=whole), {"pod": 0.002}, prior_weight=2.0).rates
    assert dated.present.failures / dated.present.node_days > 50 / 15360
    assert dated.upper / dated.lower > plain.upper / plain.lower
    assert dated.mean == pytest.approx(
        (2 + dated.present.failures) / (1000 + dated.present.node_days), rel=1e-9
    )
    assert plain.present == FailureEvidence(failures=50, node_days=15360.0)


def test_the_next_days_are_said_with_the_exposure_of_the_last_week():
    days = tuple(
        DatedEvidence(
            date=f"2026-01-{1 + n:02}",
            days=1.0,
            classes={"pod": FailureEvidence(node_days=100.0, failures=1)},
        )
        for n in range(28)
    )
    whole = {"pod": FailureEvidence(node_days=2800.0, failures=28)}
    found = assess(ObservedFailures(classes=whole, past=days), {"pod": 0.01}).outlooks
    assert [one.days for one in found] == [7, 14, 30]
    assert [one.mean for one in found] == pytest.approx([7, 14, 30], rel=0.1)
    assert all(one.lower < one.mean < one.upper for one in found)


def test_a_forecast_of_millions_is_as_quick_as_one_of_ten():
    """Two failures in two seconds of one node, and a week of a thousand nodes to come: mean and
    band are in the billions.
    """
    said = mixture(np.array([1.0]), np.array([2 / 86400]), np.array([2.0]), ahead=7.0)
    band = outlook(said, 7.0, 7000.0)
    assert band.mean > 1e8
    assert band.lower < band.mean < band.upper
