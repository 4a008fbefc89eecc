"""Exposure from samples: gaps, reboots, drains."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_lab.validate.exposure import ScrapeSample, exposure_of
from mofa_model.errors import BadValue

HOURS = {"scrape": 60.0, "stale": 300.0}


def samples(*rows):
    return [ScrapeSample(time=t, up=bool(up), boot=boot) for t, up, boot in rows]


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
    up = [
        ScrapeSample(time=60.0 * i, up=True, boot=-9, serving=i not in {2, 3, 4}) for i in range(8)
    ]
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
    st.lists(
        st.tuples(st.floats(0, 1e6), st.booleans(), st.floats(-1e6, 1e6), st.booleans()),
        max_size=30,
    )
)
def test_no_samples_give_less_than_nothing(rows):
    given_samples = [
        ScrapeSample(time=t, up=up, boot=min(boot, t), serving=serving)
        for t, up, boot, serving in sorted(rows)
    ]
    found = exposure_of(given_samples, **HOURS)
    assert 0 <= found.seconds <= found.window
    assert 0 <= found.coverage <= 1
    assert found.failures + len(found.gaps) <= len(rows)
