"""Whether an assumed failure rate still stands: evidence that may be looked at every day, with one
small chance of a false verdict in a year.

A rate may have changed on any day. Evidence R is the likelihood ratio of a changed rate over the
assumed one, summed over the days on which the change may have begun (Shiryaev 1963, Roberts 1966):

    R(t + d) = (R(t) + d) x L(failures, expected)^(1 / D)
    L = q^k exp(-(q - 1) mu)    for q times the assumed rate

While the assumption holds, the mean of R is the number of days watched. So R passes A within a year
with a chance of at most 365 / A (Doob), however often one looks. The classes of a pool, their
total, and both directions share one chance of a false verdict.

D is the dispersion: the variance of counts over their mean. The pool itself tells it in two ways.
Failures of one event (a rack, a switch) come on one day, so the days within a week tell how large
events are, whatever rate that week had. Rates of real fleets also move from week to week around
their mean; sums of 7 and of 28 days tell by how much.

So there are two verdicts. With the D of days, enough evidence says that the rate moved: it
*drifts*. With the D of weeks, it says that the rate moved by more than from week to week: the
assumption is wrong.

A few failures do not tell how large events are. While events may hold several failures, days with
any failure are evidence of a higher rate as well: large events make no more such days than single
failures would. R is then a mean of both kinds of evidence.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import not_negative, positive
from mofa_model.records import dataclass
from mofa_model.reliability.special import log_gamma
from mofa_model.units import Ratio

ALARM: Final = 0.05
"""Chance of a false verdict on a pool in a year when none is asked for. [1]"""
YEAR: Final = 365.0
"""Days to which that chance applies. [d]"""
ENOUGH: Final = 1.0
"""Expected failures under the assumption below which silence says nothing. [1]"""
RATIOS: Final = np.array([[1.5, 2.0, 4.0, 16.0], [1 / 1.5, 1 / 2.0, 1 / 4.0, 1 / 16.0]])
"""Changed rates that are tried, over the assumed rate: the higher ones, the lower ones. [1]"""
DISPERSIONS: Final = 2.0 ** np.arange(7)
"""Dispersions that are tried; for the days of a week also the failures of one event. [1]"""
LARGEST_EVENT: Final = 5
"""Position in DISPERSIONS of the largest event that is tried; assumed until a week is over. [1]"""
WEEK: Final = 7.0
"""Days that are compared with each other, because they have one rate. [d]"""
PLAUSIBLE: Final = 1.0
"""How far below the best log likelihood a dispersion is still plausible. [1]"""
SLOW: Final = ((WEEK, 2 * PLAUSIBLE), (4 * WEEK, 1.5 * PLAUSIBLE))
"""Lengths of the sums that show a moving rate, each with its own `PLAUSIBLE`. [d, 1]"""
MEMORY: Final = 1.5
"""How far the logarithm of evidence may rise above what a verdict needs, and must fall below it
before the verdict ends: one day does not turn it, and a rate that came back is believed soon. [1]
"""
BY_DAYS: Final = 0.125
"""Weight of the evidence from days with failures; that from counts of failures has the rest. [1]"""
USUAL_WANDER: Final = 0.5
"""How far a rate moves from week to week, over its mean, until its own weeks tell: the median of
LANL's systems. [1]"""
MOST_WANDER: Final = 1.0
"""The widest such move that is believed: the months of LANL's systems move by 0.2 to 1.1. [1]"""
_NEAR: Final = 0.25
"""How much shorter than asked a sum of whole spans may be. [d]"""


class Verdict(StrEnum):
    """The verdict on an assumed rate."""

    CONSISTENT = "Consistent"
    DRIFTS = "Drifts"
    HIGHER = "HigherThanAssumed"
    LOWER = "LowerThanAssumed"
    INSUFFICIENT = "InsufficientData"


_DIRECTIONS: Final = (Verdict.HIGHER, Verdict.LOWER)


@dataclass(frozen=True, kw_only=True)
class AssumptionCheck:
    """The check of one assumed rate against the failures of its days."""

    verdict: Verdict
    evidence_ratio: float
    """Evidence that the assumption is wrong over what a verdict needs. [1]"""
    since: int | None
    """Number of the span in which the rate most likely changed; None where it did not."""
    ratio: float | None
    """Failures since then over those expected. [1]"""


def check_assumption(
    lengths: NDArray[Any], expected: NDArray[Any], failures: NDArray[Any], *, alarm: Ratio = ALARM
) -> AssumptionCheck:
    """Whether an assumed rate stands, from the failures in spans of time, in order. Ours. []

    `lengths` is the length of each span [d], `expected` the failures that the assumption expects in
    it [1], `failures` those that came [1]. Failures where none are expected contradict it at once.

    >>> seen = np.array([1, 0, 1, 0, 0] * 3 + [3, 2, 2, 3, 1] * 5)
    >>> check = check_assumption(np.ones(40), np.full(40, 0.5), seen)
    >>> check.verdict.value, check.since, round(check.ratio, 1)
    ('HigherThanAssumed', 15, 4.4)
    """
    not_negative(expected=expected, failures=failures)
    total, failed = float(np.sum(expected)), float(np.sum(failures)) > 0
    if total <= 0:
        verdict = Verdict.HIGHER if failed else Verdict.INSUFFICIENT
        return AssumptionCheck(
            verdict=verdict,
            evidence_ratio=float(failed),
            since=0 if failed else None,
            ratio=None,
        )
    moved, wrong = evidence_against(lengths, expected, failures, alarm)
    has_moved, is_wrong = (verdict_holds(against)[-1] for against in (moved, wrong))
    if has_moved.any():  # a rate that came back is not wrong any more
        direction = max(np.flatnonzero(has_moved), key=lambda row: (is_wrong[row], moved[-1, row]))
        since = _change(expected, failures, RATIOS[direction])
        seen, foreseen = (float(np.sum(counts[since:])) for counts in (failures, expected))
        return AssumptionCheck(
            verdict=_DIRECTIONS[direction] if is_wrong[direction] else Verdict.DRIFTS,
            evidence_ratio=float(np.exp(wrong[-1, direction])),
            since=since,
            ratio=seen / max(foreseen, 1e-300),
        )
    verdict = Verdict.CONSISTENT if total >= ENOUGH else Verdict.INSUFFICIENT
    return AssumptionCheck(
        verdict=verdict, evidence_ratio=float(np.exp(wrong[-1].max())), since=None, ratio=None
    )


def evidence_against(
    lengths: NDArray[Any], expected: NDArray[Any], failures: NDArray[Any], alarm: Ratio
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logarithms of two kinds of evidence over what a verdict needs, after each span, by direction:
    that the rate moved, and that the assumption is wrong. Ours. [1]
    """
    needed = needed_evidence(alarm)
    of_failures, of_days = evidence_after_spans(lengths, expected, failures, most=needed + MEMORY)
    events = event_dispersion(lengths, expected, failures)
    slow = slow_dispersion(lengths, expected, failures)
    moved, wrong = verdict_evidence(of_failures, of_days, events, slow)
    return moved - needed, wrong - needed


def _change(expected: NDArray[Any], failures: NDArray[Any], ratios: NDArray[Any]) -> int:
    """Number of the span from which a changed rate explains the failures best. [1]"""
    gained = np.cumsum(log_ratio(expected[:, None], failures[:, None], ratios), axis=0)
    before = np.vstack([np.zeros_like(gained[:1]), gained[:-1]])
    most_likely = int(np.argmax(gained[-1] - before.min(axis=0)))
    return int(np.argmin(before[:, most_likely]))


def needed_evidence(alarm: Ratio) -> float:
    """Logarithm of the evidence that a verdict needs; each direction has half of the chance of a
    false alarm. Source: Doob's inequality. [1]

    >>> round(float(np.exp(needed_evidence(0.05))))
    14600
    """
    positive(alarm=alarm)
    return float(np.log(2 * YEAR / alarm))


def evidence_after_spans(
    lengths: NDArray[Any], expected: NDArray[Any], failures: NDArray[Any], *, most: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logarithm of evidence after each span, by dispersion, direction and ratio: from counts of
    failures, and from days with failures, which say nothing of a lower rate. Ours. [1]

    It stays at or below `most`. From days it may be as high as a single ratio needs to bring the
    mean over all ratios to `most`. The first axis of `expected` and `failures` is time; the other
    axes are independent pools.
    """
    of_failures, of_days = evidence_gains(expected, failures)
    alone = np.log(RATIOS.shape[-1] / BY_DAYS)
    return _summed(lengths, of_failures, most), _summed(lengths, of_days, most + alone)


def evidence_gains(
    expected: NDArray[Any], failures: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """What each span adds to the two kinds of evidence of `evidence_after_spans`. Ours. [1]"""
    k, mu = (
        np.asarray(counts, dtype=float)[..., None, None, None] for counts in (failures, expected)
    )
    spread = DISPERSIONS[:, None, None]
    of_days = np.where(RATIOS > 1, log_ratio_of_days(mu, k > 0, RATIOS), -np.inf)
    return log_ratio(mu, k, RATIOS) / spread, of_days / spread


def _summed(lengths: NDArray[Any], gains: NDArray[Any], most: float) -> NDArray[Any]:
    """Logarithm of evidence after each span, from what each adds. Ours. [1]

    The rate may have moved on any day. So a span adds its days to the evidence so far, before its
    own gain counts for all of it.
    """
    evidence = np.empty(gains.shape)
    evidence_now: Any = np.full(gains.shape[1:], -np.inf)
    for row, span in enumerate(lengths):
        with_new_days = np.logaddexp(evidence_now, np.log(max(float(span), 1e-9)))
        evidence_now = evidence[row] = np.minimum(with_new_days + gains[row], most)
    return evidence


def verdict_evidence(
    of_failures: NDArray[Any], of_days: NDArray[Any], events: NDArray[Any], slow: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logarithm of the evidence that the rate moved, and that it moved by more than from week to
    week, by direction. Ours. [1]

    Days with failures count only for a higher rate, and only where one event may hold several
    failures.
    """
    counts_days = (events > 0)[..., None] & np.array([True, False])

    def evidence(of_counts: NDArray[Any], of_hits: NDArray[Any]) -> NDArray[Any]:
        """The evidence at one dispersion of counts and one of days with failures."""
        counts, days = mean_evidence(of_failures, of_counts), mean_evidence(of_days, of_hits)
        both = np.logaddexp(counts + np.log(1 - BY_DAYS), days + np.log(BY_DAYS))
        return np.where(counts_days, both, counts)

    return evidence(events, np.zeros_like(slow)), evidence(np.maximum(events, slow), slow)


def mean_evidence(log_evidence: NDArray[Any], dispersion: NDArray[Any]) -> NDArray[Any]:
    """Logarithm of the mean evidence over all ratios, at a dispersion, by direction. Ours. [1]"""
    position = dispersion[..., None, None, None]
    chosen = np.take_along_axis(log_evidence, position, axis=-3)[..., 0, :, :]
    mean: NDArray[Any] = np.logaddexp.reduce(chosen, axis=-1) - np.log(RATIOS.shape[-1])
    return mean


def verdict_holds(against: NDArray[Any]) -> NDArray[Any]:
    """Whether a verdict holds after each span: from enough evidence until `MEMORY` below it. Ours.
    []

    >>> verdict_holds(np.array([-1.0, 0.5, -1.0, -4.0, -1.0])).tolist()
    [False, True, True, False, False]
    """
    time = np.arange(len(against)).reshape(-1, *[1] * (against.ndim - 1))
    begun = np.maximum.accumulate(np.where(against >= 0, time, -1), axis=0)
    ended = np.maximum.accumulate(np.where(against < -MEMORY, time, -1), axis=0)
    return np.asarray(begun > ended)


def log_ratio(expected: Any, failures: Any, ratio: Any) -> Any:
    """Logarithm of the likelihood of `ratio` times a rate over that of the rate itself: k ln q - (q
    - 1) mu. Source: Poisson law. [1]

    >>> round(float(log_ratio(1.0, 2.0, 2.0)), 3)
    0.386
    """
    return failures * np.log(ratio) - (ratio - 1) * expected


def log_ratio_of_days(expected: Any, failed: Any, ratio: Any) -> Any:
    """As `log_ratio`, where only `failed` is known, whether there was any failure: 1 - exp(-mu).
    Source: Poisson law. [1]

    >>> [round(float(log_ratio_of_days(0.1, failed, 2.0)), 2) for failed in (False, True)]
    [-0.1, 0.64]
    """
    mu = np.maximum(expected, 1e-12)
    return np.where(failed, np.log(np.expm1(-ratio * mu) / np.expm1(-mu)), -(ratio - 1) * mu)


def event_dispersion(
    lengths: NDArray[Any], expected: NDArray[Any], failures: NDArray[Any]
) -> NDArray[Any]:
    """Position in DISPERSIONS of the largest plausible event, after each span. Ours. [1]

    It follows from how the failures of a week fall on its days, whatever their number. Until the
    first week of several spans is over it is the largest event; where each span is a week or more,
    it stays at single failures.

    >>> days = np.ones(56)
    >>> single, triple = np.tile([1, 1, 0, 1, 1, 1, 1], 8), np.tile([3, 0, 0, 0, 3, 0, 0], 8)
    >>> [int(DISPERSIONS[event_dispersion(days, days, week)[-1]]) for week in (single, triple)]
    [1, 8]
    """
    sizes = DISPERSIONS[: LARGEST_EVENT + 1]
    weeks = [week for week in _sums(lengths, WEEK) if week[1] - week[0] > 1]
    likelihood = np.zeros((len(weeks) + 1, *failures.shape[1:], len(sizes)))
    for number, (start, stop) in enumerate(weeks):
        week = _log_chance_of_days(expected[start:stop], failures[start:stop], sizes)
        likelihood[number + 1] = likelihood[number] + week
    several = lengths[0] < WEEK - _NEAR
    largest = _largest_plausible(likelihood, PLAUSIBLE)
    largest[0] = LARGEST_EVENT if several else 0
    return _at_each_span(largest, [stop for _, stop in weeks], len(lengths))


def slow_dispersion(
    lengths: NDArray[Any], expected: NDArray[Any], failures: NDArray[Any]
) -> NDArray[Any]:
    """Position in DISPERSIONS of the largest plausible dispersion of weeks and of four weeks, after
    each span. Ours. [1]

    Each dispersion is judged with its best single change of rate, so that such a change is not
    taken for a rate that moves all the time. Until two sums are over, `USUAL_WANDER` gives it; for
    spans of a week or longer it is then 1.
    """
    rates = np.append(1.0, RATIOS.ravel())
    largest = np.zeros(failures.shape, dtype=int)
    unknown = -1 if lengths[0] < WEEK - _NEAR else 0
    for length, plausible in SLOW:
        sums = _sums(lengths, length)
        likelihood = np.zeros((len(sums) + 1, *failures.shape[1:], len(DISPERSIONS)))
        if len(sums) > 1:
            mu, k = (
                np.array([counts[start:stop].sum(axis=0) for start, stop in sums])[..., None, None]
                for counts in (np.asarray(expected, dtype=float), failures)
            )
            by_rate = _log_likelihood(k, np.maximum(mu, 1e-9) * rates, DISPERSIONS[:, None])
            at_each_rate = np.cumsum(by_rate, axis=0)
            gained = at_each_rate[..., 1:] - at_each_rate[..., :1]
            changed = gained - np.minimum(np.minimum.accumulate(gained, axis=0), 0.0)
            likelihood[1:] = at_each_rate[..., 0] + changed.max(axis=-1)
        plausible_positions = _largest_plausible(likelihood, plausible)
        plausible_positions[:2] = unknown  # one sum alone does not tell
        position = _at_each_span(plausible_positions, [stop for _, stop in sums], len(lengths))
        days = np.cumsum(lengths).reshape(-1, *[1] * (expected.ndim - 1))
        mean = length * np.cumsum(expected, axis=0) / np.maximum(days, 1e-9)
        usual, most = (moving_dispersion(mean, cv) for cv in (USUAL_WANDER, MOST_WANDER))
        largest = np.maximum(largest, np.where(position < 0, usual, np.minimum(position, most)))
    return largest


def moving_dispersion(mean: NDArray[Any], wander: Ratio) -> NDArray[Any]:
    """Position in DISPERSIONS of counts whose rate moves by `wander` of its mean: 1 + wander^2
    mean. Ours. [1]

    >>> [int(DISPERSIONS[moving_dispersion(np.array(12.0), wander)]) for wander in (0.5, 1.0)]
    [4, 16]
    """
    steps = np.log2(1 + wander**2 * np.asarray(mean, dtype=float))
    return np.asarray(np.minimum(np.rint(steps), len(DISPERSIONS) - 1).astype(int))


def _sums(lengths: NDArray[Any], length: float) -> list[tuple[int, int]]:
    """Start and stop, as numbers of spans, of each stretch in a row of `length` days. []

    >>> _sums(np.array([1.0, 1.0, 1.0, 7.0, 1.0]), 3.0)
    [(0, 3), (3, 4)]
    """
    stretches, start, days = [], 0, 0.0
    for number, span in enumerate(lengths):
        days += float(span)
        if days >= length - _NEAR:
            stretches.append((start, number + 1))
            start, days = number + 1, 0.0
    return stretches


def _largest_plausible(likelihood: NDArray[Any], plausible: float) -> NDArray[Any]:
    """Largest position on the last axis whose log likelihood is nearly the best. [1]"""
    is_plausible = likelihood >= likelihood.max(axis=-1, keepdims=True) - plausible
    return np.asarray(likelihood.shape[-1] - 1 - np.argmax(is_plausible[..., ::-1], axis=-1))


def _at_each_span(positions: NDArray[Any], stops: list[int], spans: int) -> NDArray[Any]:
    """Positions as they stand after each span, from those at first and after each stop. []"""
    return np.asarray(positions[np.searchsorted(stops, np.arange(1, spans + 1), side="right")])


def _log_chance_of_days(
    expected: NDArray[Any], failures: NDArray[Any], sizes: NDArray[Any]
) -> NDArray[Any]:
    """Log chance of how failures fall on spans, given their sum, by size of events: Dirichlet and
    multinomial, up to a constant. [1]
    """
    k = np.asarray(failures, dtype=float)[..., None]
    mean = np.maximum(np.asarray(expected, dtype=float), 1e-9)[..., None]
    share, total = mean / mean.sum(axis=0), k.sum(axis=0)
    events = np.maximum(total, 1.0) / np.maximum(sizes - 1, 1e-9)
    share_events = events * share
    together = log_gamma(events) - log_gamma(total + events)
    many = together + (log_gamma(k + share_events) - log_gamma(share_events)).sum(axis=0)
    alone = (k * np.log(share)).sum(axis=0)
    return np.asarray(np.where(sizes > 1, many, alone))


def _log_likelihood(k: NDArray[Any], mean: NDArray[Any], dispersion: NDArray[Any]) -> NDArray[Any]:
    """Negative binomial log likelihood up to a constant; Poisson for a dispersion of one. [1]"""
    more = np.maximum(dispersion - 1, 1e-9)
    size = mean / more
    many = (
        log_gamma(k + size)
        - log_gamma(size)
        - size * np.log(dispersion)
        + k * np.log(more / np.maximum(dispersion, 1 + 1e-9))
    )
    return np.asarray(np.where(dispersion > 1, many, k * np.log(mean) - mean))
