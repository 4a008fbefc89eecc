"""Whether an assumed failure rate still stands, for one who looks all the time: evidence by days,
with one promise a year.

A change of the rate may have begun on any day. Evidence R is the likelihood ratio of a changed rate
over the assumed one, summed over the days of its beginning (Shiryaev 1963, Roberts 1966):

    R(t + d) = (R(t) + d) x L(failures, expected)
    L = q^k exp(-(q - 1) mu)    for q times the assumed rate

While the assumption holds the mean of R is the time watched, so it passes A within a year with a
chance of at most 365 / A (Doob), however often one looks. The classes of a pool, their total, and
both directions share one chance of a false verdict.

Failures that come in batches (a rack, a switch) are fewer events than failures. How large batches
are is learned from the days themselves: counts are negative binomial with variance `batch` x mean,
and the largest batch that the days leave plausible divides the evidence.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import not_negative, positive
from mofa_model.records import dataclass
from mofa_model.units import Ratio

ALARM: Final = 0.05
"""Chance of a false verdict on a pool in a year when none is asked for. [1]"""
YEAR: Final = 365.0
"""Days in which that may happen once. [d]"""
ENOUGH: Final = 1.0
"""Expected failures under the assumption below which silence says nothing. [1]"""
RATIOS: Final = np.array([[1.5, 2.0, 4.0, 16.0], [1 / 1.5, 1 / 2.0, 1 / 4.0, 1 / 16.0]])
"""Rates that are looked for, over the assumed one: higher, lower. [1]"""
BATCHES: Final = np.array([1.0, 2.0, 4.0, 8.0])
"""Failures of one event. [1]"""
PLAUSIBLE: Final = 2.0
"""Log likelihood below the best at which a size of batches is still plausible. [1]"""
MEMORY: Final = 1.5
"""Logarithm by which evidence may pass what a verdict needs, and below it at which the verdict
ends: one day does not turn it, and a rate that came back is believed soon. [1]"""
_TELLING: Final = 2
"""Spans from which on they tell the size of batches. [1]"""


class Verdict(StrEnum):
    """What data say of an assumed rate."""

    CONSISTENT = "Consistent"
    HIGHER = "HigherThanAssumed"
    LOWER = "LowerThanAssumed"
    INSUFFICIENT = "InsufficientData"


_WAYS: Final = (Verdict.HIGHER, Verdict.LOWER)


@dataclass(frozen=True, kw_only=True)
class AssumptionCheck:
    """What the days say of one assumed rate."""

    verdict: Verdict
    evidence_ratio: float
    """Evidence against the assumption over what a verdict needs. [1]"""
    since: int | None
    """Span in which the rate changed, most likely, from zero; None if it stands."""
    ratio: float | None
    """Failures since then over those expected. [1]"""


def check_assumption(
    lengths: NDArray[Any], expected: NDArray[Any], failures: NDArray[Any], *, alarm: Ratio = ALARM
) -> AssumptionCheck:
    """Whether an assumption stands, from spans of time in their order. Ours. []

    `lengths` is the length of each span [d], `expected` what the assumption expects in it [1],
    `failures` what was seen [1]. Failures where none can be expected contradict it at once.

    >>> seen = np.array([1, 0, 1, 0, 0] * 3 + [3, 2, 2, 3, 1] * 3)
    >>> found = check_assumption(np.ones(30), np.full(30, 0.5), seen)
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
    needed = needed_evidence(alarm)
    evidence, batch = replay(lengths, expected, failures, most=needed + MEMORY)
    against = counted(evidence, batch) - needed
    standing = [way for way in range(len(_WAYS)) if verdict_holds(against[:, way])[-1]]
    if not standing:
        verdict = Verdict.CONSISTENT if total >= ENOUGH else Verdict.INSUFFICIENT
        return AssumptionCheck(
            verdict=verdict, evidence_ratio=float(np.exp(against[-1].max())), since=None, ratio=None
        )
    way = max(standing, key=lambda one: float(against[-1, one]))
    gained = np.cumsum(log_ratio(expected[:, None], failures[:, None], RATIOS[way]), axis=0)
    before = np.vstack([np.zeros_like(gained[:1]), gained[:-1]])
    most_likely = int(np.argmax(gained[-1] - before.min(axis=0)))
    since = int(np.argmin(before[:, most_likely]))
    return AssumptionCheck(
        verdict=_WAYS[way],
        evidence_ratio=float(np.exp(against[-1, way])),
        since=since,
        ratio=float(np.sum(failures[since:]) / max(float(np.sum(expected[since:])), 1e-300)),
    )


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
    """Evidence after each span by batch, direction and ratio, and the batch that counts. Ours. [1]

    Evidence is a logarithm, at most `most`. The first axis of `expected` and `failures` is time;
    axes behind it are independent pools.
    """
    k, mu = (
        np.asarray(failures, dtype=float)[..., None],
        np.asarray(expected, dtype=float)[..., None],
    )
    gained = log_ratio(mu[..., None, None], k[..., None, None], RATIOS) / BATCHES[:, None, None]
    evidence = np.empty(gained.shape)
    now: Any = np.full(gained.shape[1:], -np.inf)
    for at, span in enumerate(lengths):
        begun = np.logaddexp(now, np.log(max(float(span), 1e-9)))
        now = evidence[at] = np.minimum(begun + gained[at], most)
    return evidence, plausible_batch(mu, k)


def counted(log_evidence: NDArray[Any], batch: NDArray[Any]) -> NDArray[Any]:
    """Logarithm of the evidence that counts, by direction: the mean over ratios. Ours. [1]"""
    chosen = np.take_along_axis(log_evidence, batch[..., None, None, None], axis=-3)[..., 0, :, :]
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


def plausible_batch(expected: NDArray[Any], failures: NDArray[Any]) -> NDArray[Any]:
    """Position in BATCHES of the largest plausible batch of failures, after each span. Ours. [1]

    Each batch size is judged with its best change of rate, so that a change does not look like
    batches. Both arguments end in an axis of length one, which the batch sizes fill. A few spans
    give 0, because they cannot tell.
    """
    if len(expected) < _TELLING:
        return np.zeros(expected.shape[:-1], dtype=int)
    rates = np.append(1.0, RATIOS.ravel())
    mean = np.maximum(expected, 1e-9)[..., None] * rates
    each = np.cumsum(_log_likelihood(failures[..., None], mean, BATCHES[:, None]), axis=0)
    gained = each[..., 1:] - each[..., :1]
    changed = gained - np.minimum(np.minimum.accumulate(gained, axis=0), 0.0)
    likelihood = each[..., 0] + changed.max(axis=-1)
    plausible = likelihood >= likelihood.max(axis=-1, keepdims=True) - PLAUSIBLE
    return np.asarray(len(BATCHES) - 1 - np.argmax(plausible[..., ::-1], axis=-1))


def _log_likelihood(k: NDArray[Any], mean: NDArray[Any], batch: NDArray[Any]) -> NDArray[Any]:
    """Negative binomial log likelihood up to a constant; Poisson for a batch of one. [1]"""
    from scipy.special import gammaln

    more = np.maximum(batch - 1, 1e-9)
    size = mean / more
    many = (
        gammaln(k + size)
        - gammaln(size)
        - size * np.log(batch)
        + k * np.log(more / np.maximum(batch, 1 + 1e-9))
    )
    return np.asarray(np.where(batch > 1, many, k * np.log(mean) - mean))
