"""Whether an assumed rate still stands: by hand, by its promise, and by what it says of
the change.
"""

import numpy as np
import pytest

from mofa_model.reliability.assumption import (
    RATIOS,
    Verdict,
    check_assumption,
    evidence_after_spans,
    evidence_against,
    mean_evidence,
    verdict_holds,
)
from mofa_model.reliability.observed import ObservedFailures, assess
from mofa_model.spec.evidence import DatedEvidence, FailureEvidence


def looked_once(failures, expected):
    """One count of which nobody knows the days: a single look."""
    return check_assumption(np.array([365.0]), np.array([expected]), np.array([failures])).verdict


@pytest.mark.parametrize(
    "failures, expected, verdict",
    [
        (0, 0.0, Verdict.INSUFFICIENT),
        (0, 0.5, Verdict.INSUFFICIENT),
        (3, 3.0, Verdict.CONSISTENT),
        (419, 553.0, Verdict.LOWER),
        (12, 3.0, Verdict.HIGHER),
        (1, 0.0, Verdict.HIGHER),
        (4, 0.2, Verdict.HIGHER),
        (10**6, 1.0, Verdict.HIGHER),
        (0, 10.0**6, Verdict.LOWER),
    ],
)
def test_a_single_look_at_a_count(failures, expected, verdict):
    assert looked_once(failures, expected) is verdict


def test_evidence_by_hand():
    """Two failures on a day where one is expected: 2^2 exp(-1) for twice the rate, others
    beside it.
    """
    evidence, _ = evidence_after_spans(np.ones(1), np.ones(1), np.array([2]), most=50.0)
    assert np.exp(mean_evidence(evidence, np.array([0]))[0, 0]) == pytest.approx(
        (1.5**2 * np.exp(-0.5) + 2**2 * np.exp(-1) + 4**2 * np.exp(-3) + 16**2 * np.exp(-15)) / 4
    )


def test_the_mean_of_the_evidence_is_the_time_watched_while_the_assumption_holds():
    """So it passes A within a year in 365 of A pools at the most, however often one looks: Doob."""
    counts = np.random.default_rng(1).poisson(0.3, (40, 6000))
    for evidence in evidence_after_spans(
        np.ones(40), np.full(counts.shape, 0.3), counts, most=500.0
    ):
        assert np.mean(np.exp(evidence[-1, :, 0, 0, 0])) == pytest.approx(
            40, rel=0.15
        )  # 1.5 times, no batches


def verdicts(counts, expected):
    """Of many pools, each a column, and by direction: on which days they are said to have moved,
    and the assumption to be wrong.
    """
    moved, wrong = evidence_against(
        np.ones(len(counts)), np.full(counts.shape, expected), counts, 0.05
    )
    return moved >= 0, wrong >= 0


def moving(generator, shape, expected, cv=0.5):
    """Failures of days (of pools) whose rate moves each week: Gamma, around what is expected."""
    weeks = generator.gamma(cv**-2, cv**2, (-(-shape[0] // 7), shape[1]))
    return generator.poisson(expected * np.repeat(weeks, 7, axis=0)[: shape[0]])


@pytest.mark.parametrize("expected", [0.416, 1.664, 6.656])
@pytest.mark.parametrize("batch", [1, 3])
def test_false_verdicts_stay_below_five_percent_a_year_also_where_failures_come_in_threes(
    expected, batch
):
    counts = batch * np.random.default_rng(7).poisson(expected / batch, (365, 300))
    moved, _ = verdicts(counts, expected)
    assert np.mean(moved.any(axis=(0, 2))) <= 0.05


@pytest.mark.parametrize("expected", [0.416, 1.664, 6.656])
def test_a_rate_that_moves_by_half_of_itself_each_week_drifts_and_is_not_called_wrong(expected):
    """Pools of 64, 256 and 1,024 nodes at 6.5 failures in a thousand node-days. Without weeks 16,
    71 and 99.7 % were called wrong.
    """
    counts = moving(np.random.default_rng(8), (365, 300), expected)
    moved, wrong = verdicts(counts, expected)
    assert np.mean(wrong.any(axis=(0, 2))) <= 0.05
    assert np.mean(moved.any(axis=(0, 2))) >= 0.2


@pytest.mark.parametrize(
    "expected, named, wrong",
    [(0.416, 50, 140), (1.664, 20, 105), (6.656, 7, 95)],
)
def test_a_doubled_rate_is_named_soon_and_called_wrong_later_where_rates_move(
    expected, named, wrong
):
    """By the best test of weeks alone the last needs 28 days: four weeks of twice the rate come to
    1.95 times by chance in one of a thousand, and a year has 52."""
    generator = np.random.default_rng(9)
    counts = np.vstack(
        [
            moving(generator, (56, 200), expected),
            moving(generator, (4 * wrong, 200), 2 * expected),
        ]
    )
    for told, within in zip(verdicts(counts, expected), (named, wrong), strict=True):
        higher = told[56:, :, 0]
        found = np.where(higher.any(axis=0), higher.argmax(axis=0) + 1, np.inf)
        assert np.median(found) <= within


@pytest.mark.parametrize(
    "ratio, expected, within",
    [
        (2.0, 0.32, 60),
        (2.0, 1.28, 20),
        (2.0, 5.12, 7),
        (0.5, 0.32, 130),
        (0.5, 1.28, 42),
        (0.5, 5.12, 14),
    ],
)
def test_a_doubled_and_a_halved_rate_are_found_and_the_day_of_the_change(ratio, expected, within):
    """Pools of 64, 256 and 1,024 nodes at five failures in a thousand node-days, changed after
    two months.
    """
    generator, delays, off = np.random.default_rng(5), [], []
    rate = np.append(np.ones(60), np.full(4 * within, ratio)) * expected
    pools = generator.poisson(rate, (100, len(rate)))
    begun, _ = verdicts(pools.T, expected)
    for counts, enough in zip(pools, begun.transpose(1, 0, 2), strict=True):
        looks = range(62, len(rate), max(1, within // 20))
        least = next((at for at, last in enumerate(looks) if enough[:last].any()), len(looks))
        for last in looks[
            max(0, least - 1) :
        ]:  # those before have less evidence than a verdict needs
            found = check_assumption(np.ones(last), np.full(last, expected), counts[:last])
            if found.verdict not in (Verdict.CONSISTENT, Verdict.INSUFFICIENT):
                delays.append(last - 60)
                off.append(abs(found.since - 60))
                break
    assert len(delays) >= 97
    assert np.median(delays) <= within
    assert np.median(off) <= within / 2


@pytest.mark.parametrize("batch", [8, 20])
@pytest.mark.parametrize("expected", [0.012, 0.05])
def test_a_rack_that_fails_at_once_is_no_false_verdict_on_a_small_pool(expected, batch):
    """Up to 9 % were, where events were believed to have eight failures at most."""
    counts = batch * np.random.default_rng(7).poisson(expected / batch, (365, 300))
    moved, _ = verdicts(counts, expected)
    assert np.mean(moved.any(axis=(0, 2))) <= 0.05


@pytest.mark.parametrize("hour", range(24))
def test_forty_times_as_many_failures_as_assumed_are_said_at_whatever_hour_days_are_cut(hour):
    """Fifteen failures in a month where 0.36 were expected: few weeks do not tell how large events
    are, and five in a hundred said InsufficientData."""
    edges = np.unique(np.concatenate([[0.0, 30.0], np.arange(1 - hour / 24, 30, 1.0)]))
    lengths = np.diff(edges)
    for seed in range(12):
        times = np.random.default_rng(seed).uniform(0, 30, 15)
        found = check_assumption(
            lengths, 0.012 * lengths, np.histogram(times, edges)[0], alarm=0.05 / 6
        )
        assert found.verdict is Verdict.HIGHER, seed


def test_days_with_failures_are_no_more_where_events_are_large():
    """So their evidence needs no size of events: its mean stays below the time watched, whatever
    the sizes are.
    """
    generator = np.random.default_rng(3)
    for size in (1, 4, 16):
        counts = size * generator.poisson(0.4 / size, (40, 3000))
        _, of_days = evidence_after_spans(
            np.ones(40), np.full(counts.shape, 0.4), counts, most=500.0
        )
        assert np.mean(np.exp(of_days[-1, :, 0, 0, 0])) <= 40 * 1.15
        assert np.isneginf(of_days[:, :, :, 1]).all()  # and nothing of a lower rate


def test_a_rate_that_came_back_is_believed_soon():
    counts = np.concatenate([np.full(200, 3), np.full(40, 1)])
    bad, good = (check_assumption(np.ones(n), np.ones(n), counts[:n]) for n in (200, 240))
    assert (bad.verdict, good.verdict) == (Verdict.HIGHER, Verdict.CONSISTENT)


def test_a_verdict_stands_until_almost_none_of_its_evidence_is_left():
    assert verdict_holds(np.array([0.1, -1.4, -1.6, 0.0])).tolist() == [True, True, False, True]


def test_no_direction_looks_for_what_the_other_does():
    assert (RATIOS[0] > 1).all()
    assert (RATIOS[1] < 1).all()


def test_classes_share_the_promise_with_their_total_and_the_change_is_dated():
    days = [
        DatedEvidence(
            date=f"2026-{1 + n // 28:02}-{1 + n % 28:02}",
            days=1.0,
            classes={
                "process": FailureEvidence(node_days=256.0, failures=int(n % 3 == 0)),
                "pod": FailureEvidence(node_days=256.0, failures=int(n % 2) if n < 84 else 3),
            },
        )
        for n in range(112)
    ]
    whole = {
        name: FailureEvidence(
            node_days=256.0 * 112, failures=sum(day.classes[name].failures for day in days)
        )
        for name in ("process", "pod")
    }
    told = {
        one.name: one
        for one in assess(
            ObservedFailures(classes=whole, past=tuple(days)), {"process": 0.0013, "pod": 0.002}
        ).rates
    }
    assert [told[name].verdict.value for name in ("process", "pod")] == [
        "Consistent",
        "HigherThanAssumed",
    ]
    assert told["total"].verdict is Verdict.HIGHER
    assert told["pod"].since == "2026-04-01"
    assert told["pod"].ratio == pytest.approx(3 / (256 * 0.002))
