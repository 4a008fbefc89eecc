"""Observed failures of a pool of nodes, and what they say of its assumed failure rates and recovery
times.

Every source gives `ObservedFailures`: counts on a command line, a CSV file, a live server
(entry-point group `mofa.sources`) or the operator's history. `assess` turns them into one report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import not_negative, positive, share
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.reliability import rates
from mofa_model.reliability.assumption import (
    ALARM,
    YEAR,
    AssumptionCheck,
    Verdict,
    check_assumption,
)
from mofa_model.reliability.forecast import Outlook, mixture, outlook, present_evidence
from mofa_model.reliability.rates import LEVEL
from mofa_model.reliability.special import beta_quantile, gamma_above, gamma_below, log_normal_below
from mofa_model.spec.evidence import ByClass, DatedEvidence, FailureEvidence
from mofa_model.spec.reliability import RecoveryTime
from mofa_model.units import Range, Ratio, Seconds

TOTAL: Final = "total"
"""Name of the row over all classes."""
AHEAD: Final = (7.0, 14.0, 30.0)
"""Lengths of the forecasts; current rates are those of the longest. [d]"""
_LATELY: Final = 7.01
"""Last days of the past, whose exposure the next days are taken to have. [d]"""
_USUAL: Final = RecoveryTime(mean=300.0, cv=1.0)
"""Recovery time that is assumed for a class of failures where nobody states one. Ours."""
_NOTHING: Final = FailureEvidence()


@dataclass(frozen=True, kw_only=True)
class ObservedFailures:
    """Failures and exposure of a pool over a window."""

    classes: ByClass
    """Counts of each recovery class."""
    past: tuple[DatedEvidence, ...] = ()
    """The same by days, older time by weeks, in order; empty = days are not known."""
    present: ByClass = field(default_factory=dict)
    """Evidence of the next 30 days, where it is remembered; else it follows from `past`."""
    possible: float | None = None
    """Node-days of the whole window; exposure over it is the coverage. [node d]"""
    by_node: dict[str, int] = field(default_factory=dict)
    """Failures by node, where known. [1]"""
    node_days_by_node: dict[str, float] = field(default_factory=dict)
    """Exposure by node, where known. [d]"""
    times: tuple[Seconds, ...] = ()
    """Times of failures since the start of the window, where known. [s]"""
    window: Seconds = 0.0
    """Length of the window, where known. [s]"""
    recoveries: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Finished recovery times by class. [s]"""
    open_recoveries: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Time so far of recoveries that were not finished, by class. [s]"""
    notes: tuple[str, ...] = ()
    """Gaps of the source, in sentences."""

    def __post_init__(self) -> None:
        for evidence in self.classes.values():
            not_negative(failures=evidence.failures, node_days=evidence.node_days)
        if self.possible is not None and self.possible < self.node_days:
            raise BadValue(
                "possible_node_days", self.possible, "give at least the node-days that were watched"
            )

    @property
    def node_days(self) -> float:
        """Node-days in which a failure is seen: the largest of any class. [node d]"""
        return max((evidence.node_days for evidence in self.classes.values()), default=0.0)


@dataclass(frozen=True, kw_only=True)
class RateReport:
    """One class: what was assumed, what was seen, what that says."""

    name: str
    """Recovery class, or the total."""
    failures: int
    assumed: float
    """Assumed failures per node-day. [1/d]"""
    expected: float
    """Failures that the assumption expects. [1]"""
    lower: float | None
    """Lower end of the credible interval; None without any data. [1/d]"""
    mean: float | None
    """Posterior mean. [1/d]"""
    upper: float | None
    """Upper end. [1/d]"""
    exact_lower: float | None
    """Lower end of the exact (Garwood) interval of the data alone. [1/d]"""
    exact_upper: float | None
    """Upper end. [1/d]"""
    prior_weight: float
    """Share of the posterior that is prior. [1]"""
    verdict: Verdict
    evidence: float
    """Evidence against the assumption over what a verdict needs. [1]"""
    since: str | None = None
    """Day from which the rate differs, most likely; None where it stands or is undated."""
    ratio: float | None = None
    """Failures since then over those expected; None where the assumption stands. [1]"""
    present: FailureEvidence = _NOTHING
    """Evidence of the next 30 days, by days if known; else all that was counted."""


@dataclass(frozen=True, kw_only=True)
class RecoveryPosterior:
    """The posterior of a mean recovery time, from observed recoveries."""

    mean: Range
    """Posterior median of the mean recovery time, with its credible interval. [s]"""
    recovery_law: RecoveryTime
    """A lognormal law with the fitted mean and spread."""


@dataclass(frozen=True, kw_only=True)
class Dispersion:
    """Whether nodes fail equally often."""

    index: Ratio
    """Variance over mean of counts against exposure; 1 if nodes fail equally often. [1]"""
    p_value: Ratio
    """Chance of at least this index if nodes fail equally often. [1]"""
    worst: tuple[tuple[str, int, Ratio], ...]
    """Nodes by failures: name, failures, chance that any node of the fleet shows as many."""


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """The check of a pool's assumptions."""

    node_days: float
    """Exposure. [node d]"""
    coverage: float | None
    """Exposure over the node-days of the window, where known. [1]"""
    rates: tuple[RateReport, ...]
    """One for each class, and the total."""
    shares: dict[str, Range]
    recoveries: dict[str, RecoveryPosterior]
    """Recovery times, for classes with any."""
    dispersion: Dispersion | None
    """Whether nodes fail equally often, where nodes are known."""
    trend: tuple[float, float] | None
    """Laplace's statistic and its p-value, where times are known. [1]"""
    outlooks: tuple[Outlook, ...] = ()
    """Failures of all classes in the next days, where days are known."""
    notes: tuple[str, ...] = ()
    """Gaps of the source, in sentences."""

    @property
    def contradicted(self) -> bool:
        """Whether any assumption does not stand."""
        return any(report.verdict in {Verdict.HIGHER, Verdict.LOWER} for report in self.rates)


def assess(
    observed_failures: ObservedFailures,
    assumed: dict[str, float],
    *,
    prior_weight: float = 0.0,
    level: float = rates.LEVEL,
    alarm: float = ALARM,
    recovery_law: dict[str, RecoveryTime] | None = None,
) -> Assessment:
    """All that observed failures say of a pool: its failure rates (`rate_reports`), recovery times,
    differences between nodes, its trend and the failures of the next days. Ours. []

    >>> seen = {"pod": FailureEvidence(failures=419, node_days=110592.0)}
    >>> pool = assess(ObservedFailures(classes=seen), {"pod": 0.005})
    >>> pool.node_days, pool.shares["pod"].target
    (110592.0, 1.0)
    """
    reports = rate_reports(
        observed_failures, assumed, prior_weight=prior_weight, level=level, alarm=alarm
    )
    counted = observed_failures.classes
    assumed_rates = _all_assumed(counted, assumed)
    assumed_laws = recovery_law or {}
    return Assessment(
        node_days=observed_failures.node_days,
        coverage=None
        if not observed_failures.possible
        else observed_failures.node_days / observed_failures.possible,
        rates=reports,
        shares=class_shares(
            {name: float(counted.get(name, _NOTHING).failures) for name in assumed_rates}, level
        ),
        recoveries={
            name: recovery_posterior(
                observed_failures.recoveries.get(name, ()),
                observed_failures.open_recoveries.get(name, ()),
                prior_law=assumed_laws.get(name, _USUAL),
                level=level,
            )
            for name in assumed_rates
            if observed_failures.recoveries.get(name) or observed_failures.open_recoveries.get(name)
        },
        dispersion=dispersion(observed_failures.by_node, observed_failures.node_days_by_node)
        if observed_failures.node_days_by_node
        else None,
        trend=laplace_trend([float(t) for t in observed_failures.times], observed_failures.window)
        if observed_failures.window
        else None,
        outlooks=_outlooks(observed_failures.past, assumed_rates, level)
        if observed_failures.past and observed_failures.node_days > 0
        else (),
        notes=observed_failures.notes,
    )


def rate_reports(
    observed_failures: ObservedFailures,
    assumed: dict[str, float],
    *,
    prior_weight: float = 0.0,
    level: float = rates.LEVEL,
    alarm: float = ALARM,
) -> tuple[RateReport, ...]:
    """Check assumed failures per node-day by class against observed failures. Ours. []

    The prior is Jeffreys', or the assumption worth `prior_weight` failures in all [1]. `alarm` is
    the chance of any false verdict on the pool in a year [1], or in one look where days are not
    known: half of it is the total's, the classes share the rest. Without exposure nothing is
    judged: failures that nobody could have seen are no evidence. Where a class was not counted,
    there is no report of the total.

    >>> seen = {"pod": FailureEvidence(failures=419, node_days=110592.0)}
    >>> (report,) = rate_reports(ObservedFailures(classes=seen), {"pod": 0.005})
    >>> report.verdict.value, round(report.mean, 6)
    ('LowerThanAssumed', 0.003793)
    """
    share(level=level, alarm=alarm)
    counted = observed_failures.classes
    assumed_rates = _all_assumed(counted, assumed)
    total = sum(assumed_rates.values())
    class_alarm = alarm if len(assumed_rates) == 1 else alarm / 2 / len(assumed_rates)
    parts = [({name: rate}, name, class_alarm) for name, rate in assumed_rates.items()]
    if len(assumed_rates) > 1 and (not counted or set(assumed_rates) <= set(counted)):
        parts.append((assumed_rates, TOTAL, alarm / 2))
    past = observed_failures.past or (DatedEvidence(date="", days=YEAR, classes=counted),)
    prior_days = prior_weight / total if total > 0 else 0.0
    return tuple(
        _report(
            name,
            counted,
            part,
            prior_days,
            level,
            _check(past, part, chance),
            past,
            observed_failures.present,
        )
        for part, name, chance in parts
    )


def _all_assumed(counted: ByClass, assumed: dict[str, float]) -> dict[str, float]:
    """Assumed rates of all classes, zero for those that were counted but not assumed. [1/d]"""
    return {**assumed, **{name: 0.0 for name in counted if name not in assumed}}


def _report(
    name: str,
    counted: ByClass,
    assumed: dict[str, float],
    prior_days: float,
    level: float,
    check: AssumptionCheck,
    past: tuple[DatedEvidence, ...],
    current: ByClass,
) -> RateReport:
    """The report of some classes together; their assumed rates are worth `prior_days` node-days."""
    days, count = _counted_together(counted, assumed)
    rate = sum(assumed.values())
    present = _current_evidence(past, assumed, current) or FailureEvidence(
        node_days=days, failures=count
    )
    prior = (prior_days * rate, prior_days) if prior_days * rate > 0 else (rates.JEFFREYS, 0.0)
    mean = lower = upper = exact_lower = exact_upper = None
    prior_weight = 1.0
    if days > 0 or prior[1]:
        posterior = rates.posterior(
            present.failures, present.node_days, prior_failures=prior[0], prior_exposure=prior[1]
        )
        mean, prior_weight = float(posterior.mean), float(posterior.prior_weight)
        lower, upper = map(float, rates.credible_interval(posterior, level))
    if days > 0:
        exact_lower, exact_upper = map(float, rates.garwood_interval(count, days, level))
    return RateReport(
        name=name,
        failures=int(count),
        assumed=rate,
        expected=rate * days,
        lower=lower,
        mean=mean,
        upper=upper,
        exact_lower=exact_lower,
        exact_upper=exact_upper,
        prior_weight=prior_weight,
        verdict=check.verdict,
        evidence=check.evidence_ratio,
        since=None if check.since is None else past[check.since].date or None,
        ratio=check.ratio,
        present=present,
    )


def _current_evidence(
    past: tuple[DatedEvidence, ...], assumed: dict[str, float], current: ByClass
) -> FailureEvidence | None:
    """Evidence of some classes together for the next 30 days: what is remembered of it, or else
    what follows from the past; None without days or exposure.
    """
    if set(assumed) <= set(current):
        exposure = rates.total_exposure(
            assumed, {name: current[name].node_days for name in assumed}
        )
        return FailureEvidence(
            failures=sum(current[name].failures for name in assumed), node_days=exposure
        )
    spans = _spans(past, assumed)
    if not past[0].date or spans[1].sum() <= 0:
        return None
    failures, exposure = present_evidence(mixture(*spans, ahead=AHEAD[-1]))
    kept = min(1.0, float(spans[1].sum()) / exposure)  # never worth more than what was watched
    return FailureEvidence(failures=round(kept * failures, 4), node_days=round(kept * exposure, 4))


def _check(
    past: tuple[DatedEvidence, ...], assumed: dict[str, float], alarm: float
) -> AssumptionCheck:
    """Whether the assumed rates of some classes stand, taken together."""
    days, exposure, failures = _spans(past, assumed)
    return check_assumption(days, sum(assumed.values()) * exposure, failures, alarm=alarm)


def _spans(
    past: tuple[DatedEvidence, ...], assumed: dict[str, float]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Length [d], exposure [node d] and failures [1] of each span, for some classes together."""
    days = np.array([span.days for span in past])
    counted = [_counted_together(span.classes, assumed) for span in past]
    exposure, failures = (np.array(column, dtype=float) for column in zip(*counted, strict=True))
    return days, exposure, failures


def _counted_together(counted: ByClass, assumed: dict[str, float]) -> tuple[float, float]:
    """Exposure and failures of some classes together. [node d, 1]"""
    classes = {name: counted.get(name, _NOTHING) for name in assumed}
    exposure = {name: evidence.node_days for name, evidence in classes.items()}
    failures = sum(evidence.failures for evidence in classes.values() if evidence.node_days > 0)
    return rates.total_exposure(assumed, exposure), failures


def _outlooks(
    past: tuple[DatedEvidence, ...], assumed: dict[str, float], level: float
) -> tuple[Outlook, ...]:
    """Failures of the next days, if their exposure is that of the last week."""
    days, exposure, failures = _spans(past, assumed)
    lately = np.cumsum(days[::-1])[::-1] <= _LATELY
    daily = (
        float(exposure[lately].sum() / days[lately].sum())
        if lately.any()
        else float(exposure[-1] / days[-1])
    )
    return tuple(
        outlook(mixture(days, exposure, failures, ahead=ahead), ahead, daily * ahead, level)
        for ahead in AHEAD
    )


def class_shares(counts: dict[str, float], level: Ratio = LEVEL) -> dict[str, Range]:
    """Posterior shares of classes, Dirichlet with 1/2 for each. Source: Dirichlet-multinomial
    conjugacy. [1]

    >>> round(class_shares({"process": 30, "pod": 60, "job": 10})["pod"].target, 3)
    0.596
    """
    not_negative(counts=np.array(list(counts.values()), dtype=float))
    total = sum(counts.values()) + 0.5 * len(counts)
    ends = (1 - level) / 2, (1 + level) / 2

    def share(count: float) -> Range:
        a, b = count + 0.5, total - count - 0.5
        if b <= 0:
            return Range(lower=1.0, target=1.0, upper=1.0)
        low, high = (float(beta_quantile(a, b, end)) for end in ends)
        return Range(lower=low, target=a / total, upper=high)

    return {name: share(count) for name, count in counts.items()}


def recovery_posterior(
    finished: Sequence[float],
    still_open: Sequence[float] = (),
    *,
    prior_law: RecoveryTime,
    level: Ratio = LEVEL,
) -> RecoveryPosterior:
    """Posterior of a mean recovery time that is lognormal; recoveries that are still open count as
    right-censored. Ours. [s]

    It is computed on a grid of log median and log spread; the prior is an assumed law, worth one
    observation. Without the open recoveries the mean would come out too short, because long ones
    are more often still open.

    >>> law = RecoveryTime(mean=300.0, cv=1.0)
    >>> closed = recovery_posterior([200.0] * 20, prior_law=law)
    >>> with_open = recovery_posterior([200.0] * 20, [900.0] * 5, prior_law=law)
    >>> bool(with_open.mean.target > closed.mean.target)
    True
    """
    closed, opened = np.asarray(finished, dtype=float), np.asarray(still_open, dtype=float)
    positive(recovery=np.append(closed, 1.0))
    not_negative(open_recovery=np.append(opened, 0.0))
    spread0 = np.sqrt(np.log1p(max(prior_law.cv, 0.1) ** 2))
    center0 = np.log(max(prior_law.mean, 1e-9)) - spread0 * spread0 / 2
    logs, open_logs = np.log(closed), np.log(np.maximum(opened, 1e-9))
    near = np.append(np.append(logs, open_logs), center0)
    m = np.linspace(near.min() - 3 * spread0, near.max() + 3 * spread0, 241)[:, None]
    s = np.geomspace(0.05, 4.0, 121)[None, :]
    # The prior: medians within two assumed spreads, spreads within a factor of two of it.
    log_weight = (
        -0.5 * ((m - center0) / (2 * spread0)) ** 2 - 0.5 * (np.log(s / spread0) / 0.7) ** 2
    )
    log_weight = log_weight - len(logs) * np.log(s) - 0.5 * (_squares(logs, m)) / (s * s)
    for time in open_logs:
        log_weight = log_weight + log_normal_below((m - time) / s)
    weight = np.exp(log_weight - log_weight.max())
    means = np.exp(m + s * s / 2).ravel()
    order = np.argsort(means)
    chance = np.cumsum(weight.ravel()[order]) / weight.sum()
    low, middle, high = (
        float(means[order][np.searchsorted(chance, x)])
        for x in ((1 - level) / 2, 0.5, (1 + level) / 2)
    )
    spread = float(np.sum(weight * s) / weight.sum())
    return RecoveryPosterior(
        mean=Range(lower=low, target=middle, upper=high),
        recovery_law=RecoveryTime(
            mean=middle, law="lognormal", cv=float(np.sqrt(np.expm1(spread * spread)))
        ),
    )


WORST: Final = 5
"""Nodes that are named for their failures. [1]"""


def dispersion(failures: dict[str, int], exposure: dict[str, float]) -> Dispersion:
    """Chi-square dispersion of failures over nodes, and the worst nodes. Source: Fisher 1950. [1]

    >>> uneven = dispersion({"a": 6, "b": 0, "c": 0}, {"a": 10.0, "b": 10.0, "c": 10.0})
    >>> uneven.index, uneven.worst[0][0]
    (6.0, 'a')
    """
    names = sorted(exposure)
    for name in failures:
        if name not in exposure:
            raise BadValue(
                "node", name, "give node-days (an exposure) for every node with failures"
            )
    k = np.array([failures.get(name, 0) for name in names], dtype=float)
    time = np.array([exposure[name] for name in names], dtype=float)
    positive(exposure=time)
    expected = k.sum() * time / time.sum()
    degrees = len(names) - 1
    if k.sum() == 0 or degrees == 0:
        return Dispersion(index=1.0, p_value=1.0, worst=())
    square = float(np.sum((k - expected) ** 2 / expected))
    order = sorted(range(len(names)), key=lambda i: (-k[i], names[i]))[:WORST]
    worst = tuple(
        (
            names[i],
            int(k[i]),
            float(min(1.0, len(names) * gamma_below(k[i], expected[i]))),
        )
        for i in order
        if k[i] > 0
    )
    return Dispersion(
        index=square / degrees, p_value=float(gamma_above(degrees / 2, square / 2)), worst=worst
    )


def laplace_trend(times: Sequence[float], duration: Seconds) -> tuple[float, float]:
    """Laplace's trend statistic and its two-sided p-value; above zero failures grow more frequent.
    Source: Laplace 1773. [1]

    >>> round(laplace_trend([80.0, 90.0, 95.0, 99.0], 100.0)[0], 2)
    2.84
    """
    from math import erfc, sqrt

    positive(duration=duration)
    moments = np.asarray(times, dtype=float)
    if not np.all((moments >= 0) & (moments <= duration)):
        raise BadValue("times", times, "give times of failures within the window")
    if len(moments) == 0:
        return 0.0, 1.0
    score = float((moments.mean() / duration - 0.5) * sqrt(12 * len(moments)))
    return score, erfc(abs(score) / sqrt(2))


def _squares(values: NDArray[Any], center: NDArray[Any]) -> NDArray[Any]:
    """Sum of squared distances of values to each center. [1]"""
    count = len(values)
    if count == 0:
        return np.zeros_like(center)
    mean = values.mean()
    total: NDArray[Any] = np.sum((values - mean) ** 2) + count * (center - mean) ** 2
    return total
