"""What was observed of a pool, whatever it came from, and what it says of the assumptions.

`ObservedFailures` is what a source hands over: counts on a command line, a CSV file, a live server (entry-point group
`mofa.sources`), the operator's history. `assess` turns it into one report.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mofa_model.checks import not_negative, share
from mofa_model.errors import BadValue
from mofa_model.reliability import fleet, rates
from mofa_model.reliability.rates import Verdict
from mofa_model.spec.reliability import RecoveryTime
from mofa_model.units import Seconds

TOTAL = "total"
"""Name of the row over all classes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedFailures:
    """Failures and exposure of a pool over a window."""

    failures: dict[str, int]
    """Failures by recovery class. [1]"""
    node_days: float
    """Node-days in which a failure would have been seen. [node d]"""
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
    """What the source has to say about its gaps, in sentences."""

    def __post_init__(self) -> None:
        for count in self.failures.values():
            not_negative(failures=count)
        not_negative(node_days=self.node_days)
        if self.possible is not None and self.possible < self.node_days:
            raise BadValue(
                "possible_node_days", self.possible, "give at least the node-days that were watched"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RateReport:
    """One class: what was assumed, what was seen, what that says."""

    name: str
    """Recovery class, or the total."""
    failures: int
    """Failures seen. [1]"""
    assumed: float
    """Assumed failures per node-day. [1/d]"""
    expected: float
    """Failures that the assumption expects. [1]"""
    lower: float | None
    """Lower end of the credible interval, the assumption's weight included; None without any data. [1/d]"""
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
    p_value: float
    """Exact two-sided mid-p value against the assumption. [1]"""
    e_value: float
    """Evidence against the assumption that may be looked at all the time. [1]"""
    verdict: Verdict
    """What it comes to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assessment:
    """The whole check of a pool's assumptions."""

    node_days: float
    """Exposure. [node d]"""
    coverage: float | None
    """Exposure over the node-days of the window, where known. [1]"""
    rates: tuple[RateReport, ...]
    """One for each class, and the total."""
    shares: dict[str, fleet.ClassShare]
    """Class shares of the failures."""
    recoveries: dict[str, fleet.RecoveryPosterior]
    """Recovery times, for classes with any."""
    dispersion: fleet.Dispersion | None
    """Whether nodes fail alike, where nodes are known."""
    trend: tuple[float, float] | None
    """Laplace's statistic and its p-value, where times are known. [1]"""
    notes: tuple[str, ...] = ()
    """What the source said about its gaps, in sentences."""

    @property
    def contradicted(self) -> bool:
        """Whether any assumption does not stand."""
        return any(r.verdict in {Verdict.HIGHER, Verdict.LOWER} for r in self.rates)


def assess(
    observed: ObservedFailures,
    assumed: dict[str, float],
    *,
    prior_weight: float = 0.0,
    level: float = rates.LEVEL,
    alarm: float = rates.ALARM,
    live: bool = False,
    recovery: dict[str, RecoveryTime] | None = None,
) -> Assessment:
    """Check assumed failures per node-day by class against what was observed. Ours. []

    The posterior starts at Jeffreys' prior, or at the assumption worth `prior_weight` failures in all [1]. `live` judges
    by the e-value, for a panel that looks all the time; else by the exact mid-p test. Without exposure nothing is judged:
    failures that nobody could have seen are no evidence.

    >>> found = assess(ObservedFailures(failures={"pod": 419}, node_days=110592.0), {"pod": 0.005})
    >>> found.rates[0].verdict.value, round(found.rates[0].mean, 6)
    ('LowerThanAssumed', 0.003793)
    """
    share(level=level, alarm=alarm)
    names = [*assumed, *(name for name in observed.failures if name not in assumed)]
    total = sum(assumed.values())
    parts = [(name, observed.failures.get(name, 0), assumed.get(name, 0.0)) for name in names]
    if len(parts) > 1:
        parts.append((TOTAL, sum(observed.failures.values()), total))
    weights = {name: prior_weight * rate / total if total > 0 else 0.0 for name, _, rate in parts}
    known = recovery or {}
    return Assessment(
        node_days=observed.node_days,
        coverage=None if not observed.possible else observed.node_days / observed.possible,
        rates=tuple(
            _report(name, count, rate, observed.node_days, weights[name], level, alarm, live=live)
            for name, count, rate in parts
        ),
        shares=fleet.class_shares({name: float(observed.failures.get(name, 0)) for name in names}, level),
        recoveries={
            name: fleet.recovery_posterior(
                observed.recoveries.get(name, ()),
                observed.open_recoveries.get(name, ()),
                assumed=known.get(name, RecoveryTime(mean=300.0, cv=1.0)),
                level=level,
            )
            for name in names
            if observed.recoveries.get(name) or observed.open_recoveries.get(name)
        },
        dispersion=fleet.dispersion(observed.by_node, observed.node_days_by_node)
        if observed.node_days_by_node
        else None,
        trend=fleet.laplace_trend([float(t) for t in observed.times], observed.window)
        if observed.window
        else None,
        notes=observed.notes,
    )


def _report(
    name: str, count: int, rate: float, days: float, weight: float, level: float, alarm: float, *, live: bool
) -> RateReport:
    expected = rate * days
    judge = rates.live_verdict if live else rates.verdict
    some = days > 0
    prior = (weight, weight / rate) if weight > 0 and rate > 0 else (rates.JEFFREYS, 0.0)
    found = (
        rates.posterior(count, days, prior_failures=prior[0], prior_exposure=prior[1])
        if some or prior[1]
        else None
    )
    lower, upper = rates.credible_interval(found, level) if found else (None, None)
    exact = rates.garwood_interval(count, days, level) if some else (None, None)
    return RateReport(
        name=name,
        failures=count,
        assumed=rate,
        expected=expected,
        lower=None if lower is None else float(lower),
        mean=None if found is None else float(found.mean),
        upper=None if upper is None else float(upper),
        exact_lower=None if exact[0] is None else float(exact[0]),
        exact_upper=None if exact[1] is None else float(exact[1]),
        prior_weight=1.0 if found is None else float(found.prior_weight),
        p_value=float(rates.mid_p(count, expected)) if some else 1.0,
        e_value=float(rates.e_value(count, expected)) if some else 1.0,
        verdict=judge(count, expected, alarm=alarm) if some else rates.Verdict.INSUFFICIENT,
    )
