"""What a page says of one advice, as plain values: it crosses from a worker process, and tests read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from mofa_model.advice import Advice, Request
from mofa_model.advice.finalists import priced
from mofa_model.advice.reasons import NAMES, gained, terms_of
from mofa_model.advice.saves import best_interval, job_of
from mofa_model.estimate.footprint import Footprint
from mofa_model.explanation import MEMORY
from mofa_model.reliability.model import CurvePoint, ettr_curve
from mofa_model.search import Rejection
from mofa_model.strategy_text import format_strategy, short_strategy
from mofa_model.units import Range

LEVEL = 0.9
"""Level of the band of the failure rate. [1]"""
POINTS = 41
"""Points of the ETTR curve. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class AlternativeRow:
    """Another layout."""

    name: str
    """What it is beside the first choice."""
    fits: float
    """Chance that it fits. [1]"""
    beats: float
    """Chance that it is faster than today's layout, or than the first choice where there is none. [1]"""
    strategy: str
    """As text."""
    step: float
    """Its step. [s]"""
    memory: float
    """Its memory. [B]"""
    ettr: float
    """Its ETTR. [1]"""
    reason: str
    """Why it is not the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdviceView:
    """One advice, ready to be drawn."""

    title: str
    """Model and machines."""
    status: str
    """Recommended, LowConfidence, NoRecommendation."""
    explanation: str
    """One sentence."""
    strategy: str = ""
    """As text; empty where there is none."""
    predicted: Mapping[str, Range] = field(default_factory=dict)
    """Predictions by name."""
    fits: float = 0.0
    """Chance that it fits. [1]"""
    beats: float | None = None
    """Chance that it is faster than today's layout; None where none was given. [1]"""
    checkpoint_steps: int = 0
    """Steps between saves. [1]"""
    checkpoint_seconds: float = 0.0
    """The same as time. [s]"""
    memory_limit: float = 0.0
    """What a device has room for. [B]"""
    step_parts: Mapping[str, float] = field(default_factory=dict)
    """Terms of the step, each longer by what running jobs, or short runs, taught. [s]"""
    memory_parts: Mapping[str, float] = field(default_factory=dict)
    """Terms of the fullest stage's memory. [B]"""
    curve: tuple[CurvePoint, ...] = ()
    """ETTR over intervals."""
    alternatives: tuple[AlternativeRow, ...] = ()
    """Other layouts, and short runs to make."""
    rejected: tuple[tuple[str, int, str], ...] = ()
    """Reason, count, meaning."""
    failures: tuple[tuple[str, float, float], ...] = ()
    """Recovery class, failures of a thousand node-days, mean recovery [s]."""
    current: tuple[str, str, str] | None = None
    """Today's layout, what the advice is beside it, and why it cannot run, or does not fit."""
    nearest: tuple[str, ...] = ()
    """What would change the answer."""
    caveats: tuple[str, ...] = ()
    """What lowers confidence."""
    confidence: float = 0.0
    """Probability that the bands hold. [1]"""
    nearest_run: str = ""
    """The nearest measured run; the explanation has the grade of evidence."""
    launch: tuple[str, ...] = ()
    """Launch arguments."""
    version: str = ""
    """Of the engine."""


def view_of(request: Request, advice: Advice, launch: tuple[str, ...] = ()) -> AdviceView:
    """A page's values of an answer; what the answer does not carry is computed for its one strategy."""
    plain = AdviceView(
        title=f"{advice.model} on {advice.gpus} {advice.device}",
        status=advice.status.value,
        explanation=advice.explanation,
        rejected=tuple((name, count, Rejection(name).meaning) for name, count in advice.rejected.items()),
        failures=tuple((f.name, 1000 * float(f.per_node_day), float(f.recovery_seconds)) for f in advice.failures),
        nearest=advice.nearest,
        caveats=tuple(one for one in advice.caveats if one not in advice.doubts),
        confidence=float(advice.confidence),
        nearest_run="" if advice.basis is None else advice.basis.nearest_run,
        version=advice.model_version,
    )  # fmt: skip
    if advice.strategy is None or advice.predicted is None:
        return plain
    request = request.of(advice.trainer)
    named = (p for p in request.problems if p.workload.training.precision.name == advice.precision)
    problem = next(named, request.problems[0])
    problem = replace(
        problem,
        cluster=replace(problem.cluster, gpus=advice.nodes * int(problem.cluster.gpus_per_node)),
    )
    best = priced(problem, advice.strategy)
    p = advice.predicted
    learned = p.step_seconds.target / best.step_time if request.tried else float(request.learned)
    job = job_of(request, problem, advice.nodes, advice.strategy, best.step_time * learned)
    interval = best_interval(request, job)
    bands = {
        name: getattr(p, name)
        for name in (
            "step_seconds",
            "tokens_per_second",
            "mfu",
            "memory_bytes",
            "ettr",
            "duration_seconds",
        )
    }
    return replace(
        plain,
        strategy=format_strategy(advice.strategy),
        predicted=bands,
        fits=float(advice.odds.fits) if advice.odds else 0.0,
        beats=None
        if advice.odds is None or advice.odds.beats is None
        else float(advice.odds.beats),
        checkpoint_steps=int(advice.checkpoint_interval_steps or 0),
        checkpoint_seconds=float(advice.checkpoint_interval_seconds or 0),
        memory_limit=float(advice.memory_limit_bytes),
        step_parts={
            NAMES[name]: learned * seconds for name, seconds in terms_of(best.step).items()
        },
        memory_parts={
            name: part * p.memory_bytes.target / float(best.estimate.memory.peak)
            for name, part in _memory(best.estimate.memory).items()
        },
        curve=tuple(ettr_curve(job, interval.steps, interval.every, POINTS, LEVEL)),
        alternatives=tuple(
            AlternativeRow(
                name=one.name,
                fits=float(one.odds.fits),
                beats=float(one.odds.beats or 0.0),
                strategy=short_strategy(one.strategy),
                step=one.predicted.step_seconds.target,
                memory=one.predicted.memory_bytes.target,
                ettr=one.predicted.ettr.target,
                reason=one.reason,
            )
            for one in (*advice.alternatives, *advice.probes)
        ),
        current=None
        if advice.current is None
        else (
            advice.current.short,
            gained(advice),
            advice.current.reason or "",
        ),
        launch=launch,
    )


def _memory(footprint: Footprint) -> dict[str, float]:
    """Terms of device memory on the fullest kind of stage. [B]"""
    totals = np.atleast_1d(np.asarray(footprint.total))
    fullest = int(np.argmax(totals))
    return {
        name: float(np.broadcast_to(getattr(footprint, name), totals.shape)[fullest])
        for name in MEMORY
    }
