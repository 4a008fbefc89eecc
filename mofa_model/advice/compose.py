"""The answer: what search, odds, replay and reliability say, joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Final

import numpy as np

from mofa_model import VERSION, units
from mofa_model.advice.answer import (
    Advice,
    Alternative,
    Current,
    Frontier,
    Odds,
    Predicted,
    Status,
)
from mofa_model.advice.candidates import (
    TrainerResult,
    WeighedCandidate,
    aside,
    cannot_run,
    fits,
    nodes_of,
    problem_of,
    question_of,
    searched,
)
from mofa_model.advice.choice import (
    better_by_chance,
    chosen,
    confidence,
    doubts_of,
    keep_words,
    question_doubts,
    running,
    status_of,
)
from mofa_model.advice.predictions import (
    PricedLayout,
    basis,
    best_interval,
    caveats_of,
    expected_job,
    missing_host_memory,
    predicted_figures,
    priced,
    recovery_words,
    watchdog_words,
)
from mofa_model.advice.probes import probes
from mofa_model.advice.reasons import (
    compared,
    difference,
    nearest_constraints,
    unoffered,
    why_not,
    why_nothing,
)
from mofa_model.advice.request import Request, Unplaced, measured_support, trainer_of
from mofa_model.bands.coordinates import Coordinates, coordinates
from mofa_model.bands.odds import in_percent, odds_of
from mofa_model.estimate.expert_load import uneven_load
from mofa_model.estimate.step import overflow
from mofa_model.estimate.terms import device_memory_limit
from mofa_model.reliability.interval import Interval, hang_timeout, length_of_run, restarts_of
from mofa_model.reliability.model import Job
from mofa_model.search import Ranking, Rejection, parse_constraint
from mofa_model.strategy import format_strategy
from mofa_model.units import GIB, Bytes, Ratio, Seconds

DECIDING: Final = {
    "bands.evidence": "band.NAMED band.NEAREST",
    "bands.coordinates": "band.OTHER coordinates.CHOICE coordinates.DOUBLING coordinates.FORMAT "
    "coordinates.OTHER "
    "coordinates._DOUBLINGS",
    "bands.variance": "memory.COUNTED memory.ESTIMATED memory.REPEATED",
    "bands.odds": "band.SHARE odds.END odds.PARTING odds.REPEATED probes.REPEATED",
    "bands.table": "support.BORROWED table.UNIT",
    "advice.candidates": "choice.LIKELY probes.PRESSED probes.SLOWED prospects.FEWEST "
    "prospects.KEEP prospects.WEIGHED verdict.SURELY weighed.FAILED weighed.LOOK weighed.MANY "
    "weighed.PRESSED weighed.RELAUNCH weighed.RISK weighed.SLOWED weighed.TUNED weighed.UNPROVEN "
    "weighed.UNSURE weighed.USUAL",
    "advice.choice": "choice.DECIDED choice.FINALISTS choice.SPAN choice.WORTH "
    "verdict.DOUBTED verdict.KEPT",
    "advice.probes": "probes.DRAWS probes.EVEN probes.MOST probes.SPREAD",
    "advice.request": "request.RATE request.SHARED_STORAGE request.STALL request.STORAGE",
    "search.rank": "prospects.ASIDE",
    "spec.reliability": "request.COPY_SLOWDOWN",
}
"""Constants that decide, by module. The inputs hash has these labels, so they never change."""
_CHUNKS: Final = ("chunks=2,4,8", "chunk-layers=0,1,2,4,8,16")
"""Constraints under which experts in chunks are searched where nothing fits without."""


def advise(request: Request, advance: Callable[[float], None] = lambda _: None) -> Advice:
    """The answer to a request; `advance` is called with each share of the search that is done."""
    result, *others = _ranked(searched(request, advance))
    request, ranking = result.request, result.ranking
    first = request.problems[0]
    limit = float(device_memory_limit(first.cluster))
    plain = Advice(
        status=Status.NO_RECOMMENDATION,
        model=first.workload.model.name,
        device=first.cluster.device.name,
        objective=request.objective,
        nodes=request.nodes,
        gpus=int(request.nodes * first.cluster.gpus_per_node),
        explanation="",
        rejected={
            reason.value: ranking.rejected[reason]
            for reason in Rejection
            if ranking.rejected.get(reason)
        },
        raw=ranking.raw,
        searched=ranking.searched,
        pruned=ranking.pruned,
        confidence=0.0,
        doubts=(doubted := question_doubts(request)),
        caveats=(*doubted, *request.notes, *request.caveats),
        failures=request.reliability.classes,
        learned=float(request.learned) / float(request.of_today),
        learned_memory=request.learned_memory.ratio,
        learned_spread=request.learned_memory.spread,
        memory_limit_bytes=limit,
        model_version=VERSION,
    )
    if result.first is None:
        why = _why_nothing(request, ranking, limit)
        return replace(
            plain,
            explanation="; ".join((*doubted, why)),
            current=_today(request),
        )
    return _answered(result, result.first, others, plain)


def _ranked(results: Sequence[TrainerResult]) -> list[TrainerResult]:
    """Results of trainers with their first choices, the best first; one where nothing fits has
    none. What has to be built, or was never measured, stands behind.
    """
    if not results[0].candidates:
        return list(results)
    # The second sort is stable: inside each of its two groups the best stays first.
    by_expected = sorted(chosen(results), key=lambda result: _first(result).expected)
    return sorted(by_expected, key=_is_unknown)


def _first(result: TrainerResult) -> WeighedCandidate:
    return result.first or result.finalists[0]


def _is_unknown(result: TrainerResult) -> bool:
    return result.request.odds and not measured_support(result.request).own


_ChanceToBeat = Callable[[Coordinates, Seconds], Ratio]
"""Chance that a layout with some objective is better than the one that all are compared with: than
today's if it can run, else than the first choice. [1]"""


def _chance_to_beat(request: Request, base: Coordinates, base_pace: Seconds) -> _ChanceToBeat:
    def chance(layout: Coordinates, pace: Seconds) -> Ratio:
        odds = odds_of(request.runs, (layout, base), request.tried)
        return float(odds.beats(0, np.array([pace, base_pace]))[1])

    return chance


def _answered(
    result: TrainerResult, first: WeighedCandidate, others: Sequence[TrainerResult], plain: Advice
) -> Advice:
    """The advice with its first choice, where some layout fits."""
    request, best = result.request, first.exact
    limit = float(plain.memory_limit_bytes) / request.learned_memory.ratio
    job = expected_job(request, best, first.nodes)
    interval = best_interval(request, job)
    figures = predicted_figures(request, best, job, interval, ran=first.ran)
    rests_on = basis(request, best, figures)
    sure = confidence(request, rests_on)
    pace = _pace(request, figures, first.nodes)
    runs = running(request, result.finalists)
    today = _today(request, runs)
    to_beat = _chance_to_beat_today(request, today)
    beats = to_beat and to_beat(first.coordinates, pace)
    # A planned layout may not fit, so it is compared with what memory may cost it.
    if runs is not None and runs is not first and not request.current_runs:
        beats = better_by_chance(request, first, runs)
    odds = Odds(fits=first.fits, beats=beats)
    kept = keep_words(request, result.finalists) if runs is first else ""
    if kept and today is not None and today.reason:
        kept += f", though {today.reason}"
    to_beat = to_beat or _chance_to_beat(request, first.coordinates, pace)
    doubts = doubts_of(
        request,
        odds=odds,
        unmeasured=first.unmeasured,
        rests_on=rests_on,
        own=first.ran or measured_support(request).own,
        sure=sure,
        host=missing_host_memory(best),
    )
    # A doubt about evidence says all of it; beside it nothing is said again.
    grade = rests_on.evidence if rests_on.evidence in doubts else rests_on.summary
    return replace(
        plain,
        status=status_of(doubts),
        strategy=best.strategy,
        predicted=figures,
        odds=odds,
        trainer=trainer_of(request),
        expected=first.expected,
        precision=best.problem.workload.training.precision.name,
        checkpoint_interval_steps=interval.steps,
        checkpoint_interval_seconds=interval.steps * figures.step_seconds.target,
        recovery="" if job.plan is None else job.plan.name,
        restarts=restarts_of(job, length_of_run(float(figures.duration_seconds.target))),
        hang_timeout=hang_timeout(job),
        nodes=first.nodes,
        gpus=int(best.strategy.gpus),
        explanation=_joined(
            kept, *doubts, _explained(request, first, figures, job, interval), grade
        ),
        alternatives=_alternatives(result, first, others, figures, to_beat),
        probes=_probes(result, first, figures, to_beat),
        frontier=_frontier(request, result.candidates),
        nearest=nearest_constraints(best, result.ranking, limit),
        current=today and replace(today, gain=_gain(today, figures)),
        confidence=sure,
        doubts=doubts,
        basis=rests_on,
        kept=kept,
        caveats=(*doubts, *caveats_of(request, best, rests_on)),
    )


def _joined(*sentences: str) -> str:
    """Sentences as one text, each of them once."""
    return "; ".join(filter(None, dict.fromkeys(sentences)))


def _why_nothing(request: Request, ranking: Ranking, limit: float) -> str:
    """Why no layout is recommended, in one sentence."""
    if any(ranking.best.values()):
        chance = in_percent(request.least_fits)
        return f"no layout on {_nodes(request.nodes)} fits with a probability of {chance}"
    why = why_nothing(ranking, limit / request.learned_memory.ratio)
    return why + _in_chunks(request, ranking)


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


def _in_chunks(request: Request, ranking: Ranking) -> str:
    """What experts in chunks would do, as the end of an explanation; empty if nothing."""
    question, model = question_of(request), request.problems[0].workload.model
    searched_already = len(ranking.axes["chunks"]) > 1 or any(
        constraint.key == "chunks" for constraint in question.constraints
    )
    if ranking.leanest is None or model.experts is None or searched_already:
        return ""
    constraints = (*question.constraints, *map(parse_constraint, _CHUNKS))
    chunked = aside(replace(question, constraints=constraints, built=("chunks", "chunk_layers")))
    if chunked is None or not any(chunked.best.values()):
        return ""
    best = min(chain(*chunked.best.values()), key=lambda c: (c.score, c.nodes, c.index))
    layers, chunks = int(best.strategy.chunk_layers), int(best.strategy.chunks)
    where = f" on {layers} layers of a stage" if layers else ""
    text, missing = format_strategy(best.strategy), unoffered(best.strategy)
    return f"; experts in {chunks} chunks{where} would fit, as {text}; no trainer offers {missing}"


def _alternatives(
    result: TrainerResult,
    first: WeighedCandidate,
    others: Sequence[TrainerResult],
    of_best: Predicted,
    to_beat: _ChanceToBeat,
) -> tuple[Alternative, ...]:
    """Other layouts with their names: the most likely best one where it is not the first choice,
    one worth a try, the first choices of other trainers, and the best of other kinds.
    """
    request, best = result.request, result.finalists[0]
    named: list[tuple[str, Request, WeighedCandidate]] = []
    if best is not first:
        named.append(("most likely best", request, best))
    rest = [
        finalist for finalist in result.finalists if finalist is not first and finalist is not best
    ]
    sure = next((finalist for finalist in rest if finalist.sure), None)
    if not first.sure and sure is not None:
        named.append(("surest", request, sure))
    faster = (finalist for finalist in rest if finalist.unmeasured and finalist.pace < first.pace)
    if not first.unmeasured and (worth_a_try := next(faster, None)):
        named.append(("worth a try", request, worth_a_try))
    kinds = {first.kind, *(candidate.kind for _, _, candidate in named)}
    for other in others:
        if other.first is not None:
            trainer = trainer_of(other.request)
            named.append(
                (f"in {trainer}" if trainer else "to be built", other.request, other.first)
            )
    for finalist in result.finalists:
        if finalist.kind not in kinds:
            kinds.add(finalist.kind)
            named.append((difference(finalist.kind, first.kind), request, finalist))
    return tuple(
        _alternative(asked_of, name, candidate, first, of_best, to_beat)
        for name, asked_of, candidate in named[: int(request.top)]
    )


def _probes(
    result: TrainerResult, first: WeighedCandidate, of_best: Predicted, to_beat: _ChanceToBeat
) -> tuple[Alternative, ...]:
    """Short runs that are worth most, each with the share of the expected loss that it leaves."""
    if not result.request.probe or not result.request.odds:
        return ()
    return tuple(
        replace(
            _alternative(result.request, f"probe {number}", candidate, first, of_best, to_beat),
            reason=f"leaves {left:.0%} of the expected loss",
        )
        for number, (candidate, left) in enumerate(probes(result, first), start=1)
    )


def _alternative(
    request: Request,
    name: str,
    other: WeighedCandidate,
    best: WeighedCandidate,
    of_best: Predicted,
    to_beat: _ChanceToBeat,
) -> Alternative:
    """Another layout beside the best one: its figures, why it is not advised, and its chance to
    be faster.
    """
    layout, base = other.exact, best.exact
    job = expected_job(request, layout, other.nodes)
    interval = best_interval(request, job)
    figures = predicted_figures(request, layout, job, interval, ran=other.ran)
    reason = why_not(request.objective, layout, figures.ettr.target, base, of_best.ettr.target)
    if layout.strategy == base.strategy and other.nodes == best.nodes:
        reason = "the same layout"
    elif request.timed:
        slower = figures.step_seconds.target - of_best.step_seconds.target
        way = "slower" if slower > 0 else "faster"
        difference = units.format(abs(slower), "s", 3)
        reason = f"{difference} {way} a step with what ran; by estimate {reason}"
    if other.unmeasured:
        reason += f"; no measured run has {', '.join(other.unmeasured)}"
    beats = to_beat(other.coordinates, _pace(request, figures, other.nodes))
    return Alternative(
        name=name,
        trainer=trainer_of(request),
        odds=Odds(fits=other.fits, beats=beats),
        strategy=layout.strategy,
        precision=layout.problem.workload.training.precision.name,
        nodes=other.nodes,
        predicted=figures,
        checkpoint_interval_steps=interval.steps,
        checkpoint_interval_seconds=interval.steps * figures.step_seconds.target,
        terms=compared(layout, base),
        reason=reason,
    )


def _frontier(request: Request, candidates: Sequence[WeighedCandidate]) -> tuple[Frontier, ...]:
    """The best on each number of nodes, if several were searched and fewer are slower."""
    best: dict[int, WeighedCandidate] = {}
    for candidate in candidates:
        best.setdefault(candidate.nodes, candidate)
    frontier: list[Frontier] = []
    for nodes, candidate in sorted(best.items()) if len(best) > 1 else ():
        layout = candidate.exact
        job = expected_job(request, layout, nodes)
        interval = best_interval(request, job)
        point = Frontier(
            nodes=nodes,
            gpus=int(layout.strategy.gpus),
            strategy=layout.strategy,
            predicted=predicted_figures(request, layout, job, interval, ran=candidate.ran),
            checkpoint_interval_steps=interval.steps,
        )
        if not frontier or _time(point.predicted) < _time(frontier[-1].predicted):
            frontier.append(point)
    return tuple(frontier)


def _today(request: Request, runs: WeighedCandidate | None = None) -> Current | None:
    """Today's or the planned layout on its own devices; None if not given. `runs` is the candidate
    that it is.
    """
    strategy, is_planned = request.current, not request.current_runs
    if strategy is None:
        return None
    if isinstance(strategy, Unplaced):
        return Current(
            strategy=None,
            given=strategy.text,
            predicted=None,
            reason=strategy.why,
            gain=0.0,
            is_planned=is_planned,
        )
    problem = problem_of(request, strategy)
    if reason := cannot_run(problem, strategy):
        return Current(
            strategy=strategy, predicted=None, reason=reason, gain=0.0, is_planned=is_planned
        )
    layout = priced(problem, strategy) if runs is None else runs.exact
    job = expected_job(request, layout, nodes_of(problem))
    figures = predicted_figures(request, layout, job, best_interval(request, job))
    needs, limit = _memory(request, layout)
    if needs > limit:
        reason = f"by the model it needs {needs / GIB:.1f} GiB of {limit / GIB:.1f} GiB"
    is_failed = any(run.strategy == strategy and not run.fitted for run in request.tried)
    if is_failed:
        reason = "it ran out of memory"
    likely: Ratio = 1.0  # it runs
    if is_failed:
        likely = 0.0
    elif is_planned and runs is not None:
        likely = runs.fits
    elif is_planned:
        likely = fits(request, problem, layout.coordinates, float(layout.footprint.peak))
    return Current(
        strategy=strategy,
        predicted=figures,
        odds=Odds(fits=likely),
        reason=reason,
        gain=0.0,
        is_planned=is_planned and not is_failed,
        is_failed=is_failed,
    )


def _memory(request: Request, layout: PricedLayout) -> tuple[Bytes, Bytes]:
    """What a layout needs of a device by the model, and what there is. [B]"""
    needs = float(layout.footprint.peak) * request.learned_memory.ratio
    return needs, float(device_memory_limit(layout.problem.cluster))


def memory_of_today(request: Request) -> tuple[Bytes, Bytes] | None:
    """What today's layout needs of a device by the model, and what there is; None where it cannot
    be priced. [B]
    """
    strategy = request.current
    if strategy is None or isinstance(strategy, Unplaced):
        return None
    problem = problem_of(request, strategy)
    if cannot_run(problem, strategy):
        return None
    return _memory(request, priced(problem, strategy))


def _chance_to_beat_today(request: Request, today: Current | None) -> _ChanceToBeat | None:
    """The comparison with today's layout, if it can run."""
    if today is None or today.strategy is None or today.predicted is None:
        return None
    problem = problem_of(request, today.strategy)
    base = coordinates(problem.workload, problem.cluster, today.strategy)
    faster = _chance_to_beat(request, base, _pace(request, today.predicted, nodes_of(problem)))
    fits = 1.0 if today.odds is None else today.odds.fits

    def better(layout: Coordinates, pace: Seconds) -> Ratio:
        """Chance to beat today's layout; where today's does not fit, it is beaten."""
        return 1.0 - float(fits) * (1.0 - faster(layout, pace))

    return faster if fits == 1.0 else better


def _time(figures: Predicted) -> float:
    """Time for the same work, failures included. [s]"""
    return figures.step_seconds.target / max(figures.ettr.target, 1e-12)


def _pace(request: Request, figures: Predicted, nodes: int) -> float:
    """The objective: a step, the time or the node time for the same work. [s]"""
    if request.objective == "throughput":
        return figures.step_seconds.target
    return _time(figures) * (nodes if request.objective == "cost" else 1)


def _gain(today: Current, best: Predicted) -> Ratio:
    """How much longer the run takes with today's layout, failures included. [1]"""
    return (
        0.0
        if today.predicted is None or today.is_failed
        else _time(today.predicted) / _time(best) - 1.0
    )


def _explained(
    request: Request, best: WeighedCandidate, figures: Predicted, job: Job, interval: Interval
) -> str:
    """One sentence: what is recommended, and what it gives."""
    layout = best.exact
    text = (
        f"{format_strategy(layout.strategy)} on {int(layout.strategy.gpus)} GPUs: "
        f"{units.format(figures.step_seconds.target, 's')} a step "
        f"(MFU {figures.mfu.target:.0%}), {figures.memory_bytes.target / GIB:.1f} GiB of a device; "
        "a checkpoint every "
        f"{interval.steps} steps keeps ETTR at {figures.ettr.target:.1%}"
    )
    text += watchdog_words(job, interval) + recovery_words(request, job, interval)
    of_jobs = float(request.learned) / float(request.of_today)
    factors = {"the step": of_jobs, "device memory": request.learned_memory.ratio}
    if taught := [f"{factor:g} on {what}" for what, factor in factors.items() if factor != 1.0]:
        text += f"; what ran here taught a factor of {' and one of '.join(taught)}"
    if built := unoffered(layout.strategy):
        text += f"; no trainer offers {built}, so it has to be built"
    if layout.problem.workload.model.experts is not None:
        text += _routing_words(layout)
    if request.problems[0].workload.training.tokens:
        text += (
            f", and the tokens are done in {units.format(figures.duration_seconds.target, 's', 3)}"
        )
    return "; ".join((text, *request.notes))


def _routing_words(layout: PricedLayout) -> str:
    """The chance that an uneven load of experts takes too much memory, as the end of a sentence;
    empty where the load is even.
    """
    workload, cluster = layout.problem.workload, layout.problem.cluster
    load = uneven_load(workload, layout.strategy)
    if load is None or load.tail <= load.mean:
        return ""
    risk = overflow(workload, cluster, layout.strategy)
    return f"; by its routing a run is out of memory with a probability of {risk:.2g}"


@cache
def deciding_numbers() -> Mapping[str, float]:
    """Constants that odds and the rule rest on, by the names under which the inputs hash knows
    them.

    >>> deciding_numbers()["choice.DECIDED"]
    0.75
    """
    return {
        label: float(getattr(import_module(f"mofa_model.{module}"), label.partition(".")[2]))
        for module, labels in DECIDING.items()
        for label in labels.split()
    }
