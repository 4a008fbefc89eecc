"""Exposure from samples: gaps, reboots, drains; and the bias of doing it otherwise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.errors import BadValue
from mofa_model.reliability.exposure import Exposure, Sample, exposure_of, rate_with_gaps

HOURS = {"scrape": 60.0, "stale": 300.0}


def samples(*rows):
    return [Sample(time=t, up=bool(up), boot=boot) for t, up, boot in rows]


def test_a_reboot_seen_between_two_scrapes_is_one_failure():
    found = exposure_of(samples((0, 1, -9), (60, 1, -9), (120, 1, 100), (180, 1, 100)), **HOURS)
    assert (found.seconds, found.failures, found.gaps) == (60 + 40 + 60, 1, ())


def test_a_gap_with_the_same_boot_time_was_survived():
    found = exposure_of(samples((0, 1, -9), (7200, 1, -9)), **HOURS)
    assert (found.seconds, found.failures, found.coverage) == (7200, 0, 1.0)


def test_a_gap_with_a_reboot_is_one_failure_at_an_unknown_time():
    found = exposure_of(samples((0, 1, -9), (60, 1, -9), (7260, 1, 5000)), **HOURS)
    assert (found.seconds, found.failures, found.gaps) == (60, 0, (7200.0,))


def test_time_in_repair_or_drained_is_no_exposure():
    up = [Sample(time=60.0 * i, up=True, boot=-9, serving=i not in {2, 3, 4}) for i in range(8)]
    assert exposure_of(up, **HOURS).seconds == 60 + 30 + 60 * 2
    assert exposure_of(up, **HOURS).failures == 0
    broken = samples((0, 1, -9), (60, 0, -9), (120, 0, -9), (600, 1, 500), (660, 1, 500))
    found = exposure_of(broken, **HOURS)
    assert (found.seconds, found.failures) == (30 + 60, 1)


def test_jitter_of_a_boot_time_is_no_reboot():
    assert exposure_of(samples((0, 1, 0.0), (60, 1, 1.2), (120, 1, 0.4)), **HOURS).failures == 0


def test_samples_out_of_order_are_refused():
    with pytest.raises(BadValue, match="order"):
        exposure_of(samples((60, 1, 0), (0, 1, 0)), **HOURS)


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.booleans(), st.floats(-1e6, 1e6), st.booleans()), max_size=30)
)
def test_no_samples_give_less_than_nothing(rows):
    given_samples = [
        Sample(time=t, up=up, boot=min(boot, t), serving=serving) for t, up, boot, serving in sorted(rows)
    ]
    found = exposure_of(given_samples, **HOURS)
    assert 0 <= found.seconds <= found.window
    assert 0 <= found.coverage <= 1
    assert found.failures + len(found.gaps) <= len(rows)


def test_without_gaps_the_rate_is_the_plain_posterior():
    found = rate_with_gaps(Exposure(seconds=1e6, failures=4))
    assert found.mean == pytest.approx(4.5e-6)


def test_gaps_that_hide_failures_do_not_bias_the_rate():
    # 200 nodes, 60 days, one failure in 40 days, three 8 h gaps of monitoring for each node.
    generator = np.random.default_rng(8)
    rate, days = 1 / 40 / 86400, 60 * 86400.0
    total, dropped = Exposure(), Exposure()
    for _ in range(400):
        starts = np.sort(generator.uniform(0, days - 30000, 3))
        at = np.arange(0.0, days, 1800.0)
        seen = at[~np.any([(at > s) & (at < s + 28800) for s in starts], axis=0)]
        fails = np.cumsum(generator.exponential(1 / rate, 20))
        boots = np.append(-1e9, fails)[np.searchsorted(fails, seen)]
        rows = [Sample(time=t, up=True, boot=b) for t, b in zip(seen, boots, strict=True)]
        one = exposure_of(rows, scrape=1800.0, stale=4000.0)
        total += one
        dropped += Exposure(seconds=one.seconds, failures=one.failures)
    count = total.failures + len(total.gaps)
    assert len(total.gaps) > 5
    assert rate_with_gaps(total).mean == pytest.approx(rate, rel=3 / np.sqrt(count))
    assert rate_with_gaps(dropped).mean < rate_with_gaps(total).mean
