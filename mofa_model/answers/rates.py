"""`mofa rates`: do the observed failures of a pool contradict the rates that are assumed?"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from mofa_model import output
from mofa_model.answers.failure_files import read_failures
from mofa_model.answers.given import live_profile, live_source
from mofa_model.answers.questions import RatesQuestion
from mofa_model.errors import BadValue, Missing
from mofa_model.records import dataclass
from mofa_model.reliability.observed import Assessment, ObservedFailures, assess
from mofa_model.spec.evidence import FailureEvidence
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.spec.reliability import PAPER_RATE, RecoveryTime
from mofa_model.tables import Column, Table, table_of
from mofa_model.units import Range

_CHANCE: Final = 0.05
"""Least probability with which chance alone may explain the counts. [1]"""


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """What is assumed of a pool before its failures are counted."""

    assumed_rates: dict[str, float]
    """Failures per node-day by class. [1/d]"""
    recovery_times: dict[str, RecoveryTime]
    """Recovery times by class."""
    prior_weight: float
    """What the assumption is worth, as a number of failures. [1]"""


def assessed(question: RatesQuestion) -> Assessment:
    """The check of the assumed failure rates against the observed failures."""
    for name in ("level", "alarm"):
        value = getattr(question, name)
        if not 0 < value < 1:
            raise BadValue(f"--{name}", value, "give a number between 0 and 1")
    observed = _observed(question)
    failures = sum(evidence.failures for evidence in observed.classes.values())
    if question.node_days == 0 and failures:
        raise BadValue(
            "--node-days",
            0,
            f"{failures} failures were counted; give the node-days in which they came, above 0",
        )
    assumption = _assumption(question, observed)
    if question.prometheus is None and question.slurm is None:
        # Files and counts name each class that failed: the other classes did not fail.
        none = FailureEvidence(node_days=observed.node_days)
        observed = replace(
            observed, classes=dict.fromkeys(assumption.assumed_rates, none) | dict(observed.classes)
        )
    return assess(
        observed,
        assumption.assumed_rates,
        prior_weight=assumption.prior_weight,
        level=question.level,
        alarm=question.alarm,
        recovery_law=assumption.recovery_times,
    )


def _observed(question: RatesQuestion) -> ObservedFailures:
    """Observed failures, read from the one source that the options name."""
    sources = (
        question.failures,
        question.count,
        question.events,
        question.prometheus,
        question.slurm,
    )
    if all(source is None for source in sources):
        also = "or --events and --exposure with files, --prometheus with --profile, or --slurm"
        raise Missing({"--failures": "419", "--node-days": "110592"}, also=also)
    if sum(source is not None for source in sources) != 1:
        raise BadValue(
            "observed", None, "give one of --failures, --count, --events, --prometheus, --slurm"
        )
    if question.prometheus is not None:
        return _live(question.prometheus, question.profile)
    if question.slurm is not None:
        of_site: ObservedFailures = live_source("slurm")(question.slurm, question.profile)
        return of_site
    if question.events is not None:
        return read_failures(
            question.events, question.exposure, question.node_days, question.possible_node_days
        )
    if question.node_days is None:
        raise Missing(
            {"--node-days": "110592"}, also="the node-days in which the failures were counted"
        )
    counts = {"all": float(question.failures or 0)}
    if question.count:
        counts = _pairs(question.count, "--count")
    for name, value in counts.items():
        if value != round(value):
            raise BadValue("--count", f"{name}={value}", "give whole numbers of failures")
    return ObservedFailures(
        classes={
            name: FailureEvidence(failures=round(value), node_days=question.node_days)
            for name, value in counts.items()
        },
        possible=question.possible_node_days,
    )


def _live(url: str, profile: str | None) -> ObservedFailures:
    if profile is None:
        raise BadValue("--profile", None, "name the pool's profile with --prometheus")
    observed: ObservedFailures = live_source("prometheus")(url, profile)
    return observed


def _assumption(question: RatesQuestion, observed: ObservedFailures) -> Assumption:
    """The assumption of the command line, of the profile, or of the paper.

    Classes that were not counted keep their share, by rate, of a profile's weight.
    """
    paper_times = {
        failure_class.value: RecoveryTime(mean=failure_class.seconds, cv=1.0)
        for failure_class in RecoveryClass
    }
    given_weight = question.prior_weight
    if question.profile is None or question.assumed is not None or question.shares is not None:
        return Assumption(
            assumed_rates=_assumed(question, observed),
            recovery_times=paper_times,
            prior_weight=given_weight or 0.0,
        )
    from mofa_model.manifest.failures import assumed_rates, classes_of

    profile = live_profile(question.profile)
    rates = assumed_rates(profile.spec.failures)
    times = {
        str(failure_class.name): RecoveryTime(
            mean=float(failure_class.recovery_seconds),
            cv=max(float(failure_class.recovery_spread), 0.1),
        )
        for failure_class in classes_of(profile.spec.failures)
        if failure_class.recovery_seconds
    }
    weight = float(profile.spec.failures.prior_weight) if given_weight is None else given_weight
    if set(observed.classes) == {"all"}:
        return Assumption(
            assumed_rates={"all": sum(rates.values())},
            recovery_times=paper_times,
            prior_weight=weight,
        )
    counted = {name: rate for name, rate in rates.items() if name in observed.classes}
    if given_weight is None and any(rates.values()):
        weight *= sum(counted.values()) / sum(rates.values())
    return Assumption(
        assumed_rates=counted, recovery_times=paper_times | times, prior_weight=weight
    )


def _assumed(question: RatesQuestion, observed: ObservedFailures) -> dict[str, float]:
    """The rate of --assumed, by class as --shares divides it; without them those of the paper."""
    assumed = PAPER_RATE if question.assumed is None else question.assumed
    if set(observed.classes) == {"all"}:
        return {"all": assumed}
    shares = (
        _pairs(question.shares, "--shares")
        if question.shares
        else {
            failure_class.value: failure_class.share
            for failure_class in RecoveryClass
            if failure_class.share
        }
    )
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise BadValue("--shares", question.shares, "shares of the classes must add to one")
    return {name: part * assumed for name, part in shares.items()}


def _pairs(text: str, field: str) -> dict[str, float]:
    """Numbers by class from text: `pod=0.1,job=0.02`."""
    pairs: dict[str, float] = {}
    for part in text.split(","):
        name, sign, number = part.strip().partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not (sign and name and math.isfinite(value) and value >= 0) or name in pairs:
            raise BadValue(field, text, "write CLASS=NUMBER, each class once, separated by commas")
        pairs[name] = value
    return pairs


def tables_of(assessment: Assessment) -> list[Table]:
    """Rates with their verdicts, recovery times, the worst nodes."""
    covered = "unknown" if assessment.coverage is None else f"{100 * assessment.coverage:.1f} %"
    notes = [f"Exposure {assessment.node_days:g} node-days, coverage {covered}.", *assessment.notes]
    notes += [
        f"Since {r.since} {r.name} fails {r.ratio:.2g} times as often as assumed."
        for r in assessment.rates
        if r.since is not None and r.ratio is not None
    ]
    if assessment.trend is not None:
        score, p = assessment.trend
        word = "no trend" if p >= _CHANCE else "more frequent" if score > 0 else "less frequent"
        notes.append(f"Trend: {word} (Laplace {score:.2f}, p = {p:.3g}).")
    tables = [
        table_of(
            "Failures per node-day",
            assessment.rates,
            (
                (Column("class"), lambda rate: rate.name),
                (Column("failures"), lambda rate: rate.failures),
                (Column("expected", wide=True), lambda rate: rate.expected),
                (Column("assumed"), lambda rate: rate.assumed),
                (Column("observed"), lambda rate: rate.mean),
                (Column("lower"), lambda rate: rate.lower),
                (Column("upper"), lambda rate: rate.upper),
                (Column("exact lower", wide=True), lambda rate: rate.exact_lower),
                (Column("exact upper", wide=True), lambda rate: rate.exact_upper),
                (Column("prior", unit="%", wide=True), lambda rate: rate.prior_weight),
                (Column("evidence", wide=True), lambda rate: rate.evidence),
                (Column("verdict"), lambda rate: rate.verdict.value),
                (Column("since", wide=True), lambda rate: rate.since),
            ),
            notes,
        )
    ]
    if assessment.outlooks:
        ahead = (
            (Column("days"), lambda outlook: outlook.days),
            (Column("lower"), lambda outlook: outlook.lower),
            (Column("expected"), lambda outlook: outlook.mean),
            (Column("upper"), lambda outlook: outlook.upper),
        )
        title = "Failures of all classes in the next days"
        note = "With the exposure of the last week."
        tables.append(table_of(title, assessment.outlooks, ahead, (note,)))
    if assessment.recoveries:
        means = {name: seen.mean for name, seen in assessment.recoveries.items()}
        times = (
            (Column("class"), str),
            (Column("lower", unit="s"), lambda name: means[name].lower),
            (Column("mean", unit="s"), lambda name: means[name].target),
            (Column("upper", unit="s"), lambda name: means[name].upper),
        )
        tables.append(table_of("Mean recovery time", means, times))
    if (spread := assessment.dispersion) is not None:
        is_chance = spread.p_value >= _CHANCE
        word = "nodes fail alike" if is_chance else "some nodes fail more than chance allows"
        tables.append(
            Table(
                title="Worst nodes",
                columns=(Column("node"), Column("failures"), Column("chance")),
                rows=tuple((name, count, float(chance)) for name, count, chance in spread.worst),
                notes=(f"Dispersion {spread.index:.2f}, p = {spread.p_value:.3g}: {word}.",),
            )
        )
    return tables


def document_of(assessment: Assessment) -> dict[str, Any]:
    """The answer for machines."""
    return {
        **output.as_data(assessment),
        "shares": {name: _bounds(share) for name, share in assessment.shares.items()},
        "recoveries": {
            name: _bounds(seen.mean) | {"law": output.as_data(seen.recovery_law)}
            for name, seen in assessment.recoveries.items()
        },
        "contradicted": assessment.contradicted,
    }


def _bounds(posterior: Range) -> dict[str, Any]:
    return {"mean": posterior.target, "low": posterior.lower, "high": posterior.upper}
