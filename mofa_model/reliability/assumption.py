"""Whether an assumed failure rate still stands, for one who looks all the time: evidence by days,
with one promise a year.

A change of the rate may have begun on any day. Evidence R is the likelihood ratio of a changed rate
over the assumed one, summed over the days of its beginning (Shiryaev 1963, Roberts 1966):

    R(t + d) = (R(t) + d) x L(failures, expected)^(1 / D)
    L = q^k exp(-(q - 1) mu)    for q times the assumed rate

While the assumption holds the mean of R is the time watched, so it passes A within a year with a
chance of at most 365 / A (Doob), however often one looks. The classes of a pool, their total, and
both directions share one chance of a false verdict.

D is the variance of counts over their mean; the evidence is divided by it. It is learned from the
pool in two ways. Failures of one event (a rack, a switch) come on one day, so the days within a
week tell how large events are, whatever rate that week had. Rates of real fleets also move from
week to week around their mean; sums of 7 and of 28 days tell by how much.

So there are two verdicts. Evidence that holds against the D of days says that the rate moved: it
*drifts*. Evidence that holds against the D of weeks says that it moved by more than such weeks do:
the assumption is wrong.

Few failures in all do not tell how large events are. While events may have several, days with any
failure are evidence of a higher rate too: however large events are, they make no more such days
than single failures would. R is then a mean of both.
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
"""Days in which that may happen once. [d]"""
ENOUGH: Final = 1.0
"""Expected failures under the assumption below which silence says nothing. [1]"""
RATIOS: Final = np.array([[1.5, 2.0, 4.0, 16.0], [1 / 1.5, 1 / 2.0, 1 / 4.0, 1 / 16.0]])
"""Rates that are looked for, over the assumed one: higher, lower. [1]"""
DISPERSIONS: Final = 2.0 ** np.arange(7)
"""Variance of counts over their mean; of days also the failures of one event. [1]"""
LARGEST_EVENT: Final = 5
"""Position in DISPERSIONS of the largest event that is looked for; it counts until a week has told.
[1]"""
WEEK: Final = 7.0
"""Days that are compared with each other, because one rate serves them. [d]"""
PLAUSIBLE: Final = 1.0
"""Log likelihood below the best at which a dispersion is still plausible. [1]"""
SLOW: Final = ((WEEK, 2 * PLAUSIBLE), (4 * WEEK, 1.5 * PLAUSIBLE))
"""Sums of days in which a rate that moves is seen, and how plausible a dispersion must be. [d,
1]
"""
MEMORY: Final = 1.5
"""Logarithm by which evidence may pass what a verdict needs, and below it at which the verdict
ends: one day does not turn it, and a rate that came back is believed soon. [1]"""
BY_DAYS: Final = 0.125
"""Weight of days with failures in the evidence; failures have the rest. [1]"""
USUAL_WANDER: Final = 0.5
"""By how much of its mean a rate is taken to move until its sums tell: of LANL's systems the
median. [1]"""
MOST_WANDER: Final = 1.0
"""The most that is believed of sums: the months of LANL's systems move by 0.2 to 1.1. [1]"""
_NEAR: Final = 0.25
"""By how much a sum of whole spans may be shorter than asked. [d]"""


class Verdict(StrEnum):
    """What data say of an assumed rate."""

    CONSISTENT = "Consistent"
    DRIFTS = "Drifts"
    HIGHER = "HigherThanAssumed"
    LOWER = "LowerThanAssumed"
    INSUFFICIENT = "InsufficientData"


_WAYS: Final = (Verdict.HIGHER, Verdict.LOWER)


@dataclass(frozen=True, kw_only=True)
class AssumptionCheck:
    """What the days say of one assumed rate."""

    verdict: Verdict
    evidence_ratio: float
    """Evidence that the assumption is wrong over what a verdict needs. [1]"""
    since: int | None
    """Span in which the rate changed, most likely, from zero; None where it did not."""
    ratio: float | None
    """Failures since then over those expected. [1]"""


def check_assumption(
    lengths: NDArray[Any], expected: NDArray[Any], failures: NDArray[Any], *, alarm: Ratio = ALARM
) -> AssumptionCheck:
    """Whether an assumption stands, from spans of time in their order. Ours. []

    `lengths` is the length of each span [d], `expected` what the assumption expects in it [1],
    `failures` what was seen [1]. Failures where none can be expected contradict it at once.

    >>> seen = np.array([1, 0, 1, 0, 0] * 3 + [3, 2, 2, 3, 1] * 5)
    >>> found = check_assumption(np.ones(40), np.full(40, 0.5), seen)
    >>> found.verdict.value, found.since, round(found.ratio, 1)
    ('HigherThanAssumed', 15, 4.4)
    """
    not_negative(expected=expected, failures=failures)
    total, some = float(np.sum(expected)), float(np.sum(failures)) > 0
    if total <= 0:
        verdict = Verdict.HIGHER if some else Verdict.INSUFFICIENT
        return AssumptionCheck(
            verdict=verdict, evidence_ratio=float(some), since=0 if some else None, ratio=None
        )
    moved, wrong = evidence_against(lengths, expected, failures, alarm)
    has_moved, is_wrong = (verdict_holds(against)[-1] for against in (moved, wrong))
    if has_moved.any():  # a rate that came back is not wrong any more
        way = max(
            np.flatnonzero(has_moved).tolist(), key=lambda one: (is_wrong[one], moved[-1, one])
        )
        since = _change(expected, failures, RATIOS[way])
        seen, foreseen = (float(np.sum(one[since:])) for one in (failures, expected))
        return AssumptionCheck(
            verdict=_WAYS[way] if is_wrong[way] else Verdict.DRIFTS,
            evidence_ratio=float(np.exp(wrong[-1, way])),
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
    """Evidence that the rate moved, and that the assumption is wrong, over what a verdict needs:
    logarithms after each span, by direction. Ours. [1]
    """
    needed = needed_evidence(alarm)
    of_failures, of_days = replay(lengths, expected, failures, most=needed + MEMORY)
    events = event_dispersion(lengths, expected, failures)
    slow = slow_dispersion(lengths, expected, failures)
    moved, wrong = verdict_evidence(of_failures, of_days, events, slow)
    return moved - needed, wrong - needed


def _change(expected: NDArray[Any], failures: NDArray[Any], ratios: NDArray[Any]) -> int:
    """Span from which one of some ratios explains the failures best. [1]"""
    gained = np.cumsum(log_ratio(expected[:, None], failures[:, None], ratios), axis=0)
    before = np.vstack([np.zeros_like(gained[:1]), gained[:-1]])
    most_likely = int(np.argmax(gained[-1] - before.min(axis=0)))
    return int(np.argmin(before[:, most_likely]))


def needed_evidence(alarm: Ratio) -> float:
    """Logarithm of the evidence that a verdict needs in one direction, which has half of the
    chance. Source: Doob's inequality. [1]

    >>> round(float(np.exp(needed_evidence(0.05))))
    14600
    """
    positive(alarm=alarm)
    return float(np.log(2 * YEAR / alarm))


def replay(
    lengths: NDArray[Any], expected: NDArray[Any], failures: NDArray[Any], *, most: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Evidence after each span by dispersion, direction and ratio: of failures, and of days with
    any, which say nothing of a lower rate. Ours. [1]

    Evidence is a logarithm, at most `most`; of days so much that one ratio alone comes to it in the
    mean. The first axis of `expected` and `failures` is time; axes behind it are independent pools.
    """
    of_failures, of_days = gained(expected, failures)
    alone = np.log(RATIOS.shape[-1] / BY_DAYS)
    return _summed(lengths, of_failures, most), _summed(lengths, of_days, most + alone)


def gained(expected: NDArray[Any], failures: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """What each span adds to the evidence, as `replay` tells it. Ours. [1]"""
    k, mu = (np.asarray(one, dtype=float)[..., None, None, None] for one in (failures, expected))
    spread = DISPERSIONS[:, None, None]
    of_days = np.where(RATIOS > 1, log_ratio_of_days(mu, k > 0, RATIOS), -np.inf)
    return log_ratio(mu, k, RATIOS) / spread, of_days / spread


def _summed(lengths: NDArray[Any], gains: NDArray[Any], most: float) -> NDArray[Any]:
    """Evidence after each span, from what each adds. Ours. [1]"""
    evidence = np.empty(gains.shape)
    now: Any = np.full(gains.shape[1:], -np.inf)
    for at, span in enumerate(lengths):
        begun = np.logaddexp(now, np.log(max(float(span), 1e-9)))
        now = evidence[at] = np.minimum(begun + gains[at], most)
    return evidence


def verdict_evidence(
    of_failures: NDArray[Any], of_days: NDArray[Any], events: NDArray[Any], slow: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logarithm of the evidence that the rate moved, and that it moved by more than its weeks do,
    by direction. Ours. [1]

    Days with failures are in it where events may be larger than one failure, and for a higher rate.
    """
    some = (events > 0)[..., None] & np.array([True, False])
    found = []
    for of_counts, of_hits in ((events, np.zeros_like(slow)), (np.maximum(events, slow), slow)):
        failed, hits = counted(of_failures, of_counts), counted(of_days, of_hits)
        mean = np.logaddexp(failed + np.log(1 - BY_DAYS), hits + np.log(BY_DAYS))
        found.append(np.where(some, mean, failed))
    return found[0], found[1]


def counted(log_evidence: NDArray[Any], dispersion: NDArray[Any]) -> NDArray[Any]:
    """Logarithm of the evidence at one dispersion, by direction: its mean over all ratios of rates.
    Ours. [1]
    """
    at = dispersion[..., None, None, None]
    chosen = np.take_along_axis(log_evidence, at, axis=-3)[..., 0, :, :]
    mean: NDArray[Any] = np.logaddexp.reduce(chosen, axis=-1) - np.log(RATIOS.shape[-1])
    return mean


def verdict_holds(against: NDArray[Any]) -> NDArray[Any]:
    """Whether a verdict holds after each span: from enough evidence until little is left. Ours. []

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
    """Logarithm of the same likelihoods, of whether anything failed: 1 - exp(-mu). Source: Poisson
    law. [1]

    >>> [round(float(log_ratio_of_days(0.1, failed, 2.0)), 2) for failed in (False, True)]
    [-0.1, 0.64]
    """
    mu = np.maximum(expected, 1e-12)
    return np.where(failed, np.log(np.expm1(-ratio * mu) / np.expm1(-mu)), -(ratio - 1) * mu)


def event_dispersion(
    lengths: NDArray[Any], expected: NDArray[Any], failures: NDArray[Any]
) -> NDArray[Any]:
    """Position in DISPERSIONS of the largest plausible event, after each span. Ours. [1]

    Judged by how the failures of a week fall on its days, so that it does not matter how many there
    were. Until a week of several spans is over, the largest counts; one span alone tells nothing.

    >>> week = np.array([3, 0, 0, 0, 3, 0, 0])
    >>> alone, threes = (np.tile(one, 8) for one in ([1, 1, 0, 1, 1, 1, 1], week))
    >>> days = np.ones(56)
    >>> [int(DISPERSIONS[event_dispersion(days, days, one)[-1]]) for one in (alone, threes)]
    [1, 8]
    """
    sizes = DISPERSIONS[: LARGEST_EVENT + 1]
    weeks = [week for week in _sums(lengths, WEEK) if week[1] - week[0] > 1]
    likelihood = np.zeros((len(weeks) + 1, *failures.shape[1:], len(sizes)))
    for at, (start, stop) in enumerate(weeks):
        week = _log_chance_of_days(expected[start:stop], failures[start:stop], sizes)
        likelihood[at + 1] = likelihood[at] + week
    several = lengths[0] < WEEK - _NEAR
    known = _largest_plausible(likelihood, PLAUSIBLE)
    known[0] = LARGEST_EVENT if several else 0
    return _at_each_span(known, [stop for _, stop in weeks], len(lengths))


def slow_dispersion(
    lengths: NDArray[Any], expected: NDArray[Any], failures: NDArray[Any]
) -> NDArray[Any]:
    """Position in DISPERSIONS of the largest plausible dispersion of weeks and of four weeks, after
    each span. Ours. [1]

    Each dispersion is judged with its best change of rate, so that a change does not look like a
    rate that moves. Until two sums are over, a usual one counts; spans without days are taken as
    they are.
    """
    rates = np.append(1.0, RATIOS.ravel())
    found = np.zeros(failures.shape, dtype=int)
    unknown = -1 if lengths[0] < WEEK - _NEAR else 0
    for length, plausible in SLOW:
        sums = _sums(lengths, length)
        likelihood = np.zeros((len(sums) + 1, *failures.shape[1:], len(DISPERSIONS)))
        if len(sums) > 1:
            mu, k = (
                np.array([one[start:stop].sum(axis=0) for start, stop in sums])[..., None, None]
                for one in (np.asarray(expected, dtype=float), failures)
            )
            by_rate = _log_likelihood(k, np.maximum(mu, 1e-9) * rates, DISPERSIONS[:, None])
            each = np.cumsum(by_rate, axis=0)
            gained = each[..., 1:] - each[..., :1]
            changed = gained - np.minimum(np.minimum.accumulate(gained, axis=0), 0.0)
            likelihood[1:] = each[..., 0] + changed.max(axis=-1)
        known = _largest_plausible(likelihood, plausible)
        known[:2] = unknown  # one sum alone does not tell
        at = _at_each_span(known, [stop for _, stop in sums], len(lengths))
        days = np.cumsum(lengths).reshape(-1, *[1] * (expected.ndim - 1))
        mean = length * np.cumsum(expected, axis=0) / np.maximum(days, 1e-9)
        usual, most = (moving_dispersion(mean, cv) for cv in (USUAL_WANDER, MOST_WANDER))
        found = np.maximum(found, np.where(at < 0, usual, np.minimum(at, most)))
    return found


def moving_dispersion(mean: NDArray[Any], wander: Ratio) -> NDArray[Any]:
    """Position in DISPERSIONS of the sums of a rate that moves by `wander` of its mean: 1 +
    wander^2 mean. Ours. [1]

    >>> [int(DISPERSIONS[moving_dispersion(np.array(12.0), one)]) for one in (0.5, 1.0)]
    [4, 16]
    """
    steps = np.log2(1 + wander**2 * np.asarray(mean, dtype=float))
    return np.asarray(np.minimum(np.rint(steps), len(DISPERSIONS) - 1).astype(int))


def _sums(lengths: NDArray[Any], length: float) -> list[tuple[int, int]]:
    """First span, and the one behind the last, of each whole stretch of so many days. []

    >>> _sums(np.array([1.0, 1.0, 1.0, 7.0, 1.0]), 3.0)
    [(0, 3), (3, 4)]
    """
    found, start, days = [], 0, 0.0
    for at, span in enumerate(lengths):
        days += float(span)
        if days >= length - _NEAR:
            found.append((start, at + 1))
            start, days = at + 1, 0.0
    return found


def _largest_plausible(likelihood: NDArray[Any], plausible: float) -> NDArray[Any]:
    """Largest position on the last axis that is hardly less likely than the best. [1]"""
    is_plausible = likelihood >= likelihood.max(axis=-1, keepdims=True) - plausible
    return np.asarray(likelihood.shape[-1] - 1 - np.argmax(is_plausible[..., ::-1], axis=-1))


def _at_each_span(known: NDArray[Any], stops: list[int], spans: int) -> NDArray[Any]:
    """What was known after each span, from what was known at first and after each stop. []"""
    return np.asarray(known[np.searchsorted(stops, np.arange(1, spans + 1), side="right")])


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
    each = events * share
    together = log_gamma(events) - log_gamma(total + events)
    many = together + (log_gamma(k + each) - log_gamma(each)).sum(axis=0)
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
