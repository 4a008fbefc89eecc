"""Joins search, replay and reliability into the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mofa_model import VERSION, units
from mofa_model.advice.answer import Advice, Alternative, Counts, Current, Frontier, Predicted, Status
from mofa_model.advice.confidence import basis, confidence, failure_inputs, predicted
from mofa_model.advice.finalists import Priced, priced, priced_together
from mofa_model.advice.reasons import compared, nearest_constraints, unoffered, why_not, why_nothing
from mofa_model.advice.request import Request, Unplaced
from mofa_model.advice.saves import job_of, of_watchdog, score_of
from mofa_model.estimate.footprint import overflow, room
from mofa_model.estimate.routing import fullest_rank
from mofa_model.reliability import Interval
from mofa_model.search import (
    Candidate,
    Ranking,
    Rejection,
    SearchCase,
    SearchQuestion,
    framework,
    parse_constraint,
    search,
)
from mofa_model.search.axes import node_counts
from mofa_model.strategy import Strategy
from mofa_model.strategy_text import format_strategy
from mofa_model.units import GIB, Ratio

FINALISTS = 12
"""Strategies that are replayed at least: what is shown, and some that the replay may lift."""
_CHUNKS = ("chunks=2,4,8", "chunk-layers=0,1,2,4,8,16")
"""What is asked of experts in chunks where nothing fits without."""
KEEP = 32
"""Shapes that the search keeps for every number of nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Finalist:
    """A replayed strategy with its figures."""

    nodes: int
    index: int
    priced: Priced
    predicted: Predicted
    interval: Interval
    score: float


def advise(request: Request, advance: Callable[[float], None] = lambda _: None) -> Advice:
    """The answer to a request. `advance` hears of the share of the search that is done."""
    ranking = search(question_of(request), advance)
    first = request.problems[0]
    limit = float(room(first.cluster))
    counts = Counts(
        raw=ranking.raw,
        searched=ranking.searched,
        pruned=ranking.pruned,
        rejected=sum(ranking.rejected.values()),
    )
    rejected = {
        reason.value: ranking.rejected[reason] for reason in Rejection if ranking.rejected.get(reason)
    }
    candidates = sorted(
        (one for some in ranking.best.values() for one in some), key=lambda c: (c.score, c.nodes, c.index)
    )
    if not candidates:
        return Advice(
            status=Status.NO_RECOMMENDATION,
            model=first.workload.model.name,
            device=first.cluster.device.name,
            objective=request.objective,
            nodes=request.nodes,
            gpus=int(request.nodes * first.cluster.gpus_per_node),
            explanation=why_nothing(ranking, limit) + _in_chunks(request, ranking),
            rejected=rejected,
            counts=counts,
            current=_current(request, None),
            confidence=0.0,
            caveats=(*request.notes, *request.caveats),
            failures=failure_inputs(request),
            learned=request.learned,
            memory_limit_bytes=limit,
            model_version=VERSION,
        )
    finalists = _finalists(request, candidates)
    best = finalists[0]
    rests = basis(best.priced)
    sure, caveats, status = confidence(request, best.priced, rests)
    return Advice(
        status=status,
        model=first.workload.model.name,
        device=first.cluster.device.name,
        objective=request.objective,
        strategy=best.priced.strategy,
        predicted=best.predicted,
        precision=best.priced.problem.workload.training.precision.name,
        checkpoint_interval_steps=best.interval.steps,
        checkpoint_interval_seconds=best.interval.steps * best.predicted.step_seconds.target,
        nodes=best.nodes,
        gpus=int(best.priced.strategy.gpus),
        explanation=_explained(request, best) + rests.doubt,
        alternatives=tuple(
            _alternative(one, best, request.objective) for one in finalists[1 : 1 + int(request.top)]
        ),
        frontier=_frontier(request, ranking),
        rejected=rejected,
        counts=counts,
        nearest=nearest_constraints(best.priced, ranking, limit),
        current=_current(request, best),
        confidence=sure,
        basis=rests,
        caveats=caveats,
        failures=failure_inputs(request),
        learned=request.learned,
        memory_limit_bytes=limit,
        model_version=VERSION,
    )


def _in_chunks(request: Request, ranking: Ranking) -> str:
    """What experts in chunks would do where nothing fits and the trainer has none of them; empty where they do not help."""
    asked, model = question_of(request), request.problems[0].workload.model
    said = len(ranking.axes["chunks"]) > 1 or any(one.key == "chunks" for one in asked.constraints)
    if ranking.leanest is None or model.experts is None or said:
        return ""
    asked = replace(asked, constraints=(*asked.constraints, *map(parse_constraint, _CHUNKS)))
    found = [one for some in search(asked).best.values() for one in some]
    if not found:
        return ""
    best = min(found, key=lambda one: (one.score, one.nodes, one.index))
    offered = f"; no trainer offers {unoffered(best.strategy)}"
    where = f" on {int(some)} layers of a stage" if (some := best.strategy.chunk_layers) else ""
    return f"; experts in {int(best.strategy.chunks)} chunks{where} would fit, as {format_strategy(best.strategy)}{offered}"


def question_of(request: Request) -> SearchQuestion:
    """What the search is asked."""
    lifted = frozenset(reason for reason in Rejection if reason.value in request.lifted)
    trainer = framework(request.framework)
    trainer.require(request.problems[0].workload.model.blocks)
    return SearchQuestion(
        problems=request.problems,
        nodes=node_counts(request.nodes) if request.fewer_nodes else (request.nodes,),
        framework=trainer,
        constraints=tuple(parse_constraint(text) for text in request.constraints),
        lifted=lifted,
        keep=KEEP,
        apart=True,
        score=lambda problem, nodes: score_of(request, problem, nodes),
    )


def _finalists(request: Request, candidates: Sequence[Candidate]) -> list[_Finalist]:
    """The best few layouts, replayed, best first; of strategies with the same layout the best one."""
    chosen: list[Candidate] = []
    seen = set()
    for one in candidates:
        if _layout(one.strategy) not in seen and len(chosen) < max(FINALISTS, int(request.top) + 1):
            seen.add(_layout(one.strategy))
            chosen.append(one)
    replayed = priced_together([(one.problem, one.strategy) for one in chosen])
    found = []
    for one, full in zip(chosen, replayed, strict=True):
        told, interval = predicted(request, full, one.nodes)
        found.append(
            _Finalist(
                nodes=one.nodes,
                index=one.index,
                priced=full,
                predicted=told,
                interval=interval,
                score=_score(request, told, one.nodes),
            )
        )
    return sorted(found, key=lambda f: (f.score, f.nodes, f.index))


def _layout(s: Strategy) -> tuple[object, ...]:
    """What makes two strategies different answers, rather than variants of one."""
    return (s.tp, s.pp, s.cp, s.dp, s.ep, s.etp, s.schedule, s.context_mode)


def _score(request: Request, told: Predicted, nodes: int) -> float:
    """The objective with the replayed step: its order is that of `saves.score_of`."""
    step = told.step_seconds.target
    if request.objective == "throughput":
        return step
    finish = step / max(told.ettr.target, 1e-12)
    return finish * nodes if request.objective == "cost" else finish


def _alternative(one: _Finalist, best: _Finalist, objective: str) -> Alternative:
    ettrs = (one.predicted.ettr.target, best.predicted.ettr.target)
    return Alternative(
        strategy=one.priced.strategy,
        precision=one.priced.problem.workload.training.precision.name,
        nodes=one.nodes,
        predicted=one.predicted,
        checkpoint_interval_steps=one.interval.steps,
        checkpoint_interval_seconds=one.interval.steps * one.predicted.step_seconds.target,
        terms=compared(one.priced, best.priced),
        reason=why_not(objective, one.priced, ettrs[0], best.priced, ettrs[1]),
    )


def _frontier(request: Request, ranking: Ranking) -> tuple[Frontier, ...]:
    """For every number of nodes its best, where more than one was asked for: none that another beats in both numbers."""
    if len(ranking.best) < 2:
        return ()
    found: list[Frontier] = []
    for nodes, some in sorted(ranking.best.items()):
        full = priced(some[0].problem, some[0].strategy)
        told, interval = predicted(request, full, nodes)
        one = Frontier(
            nodes=nodes,
            gpus=int(full.strategy.gpus),
            strategy=full.strategy,
            predicted=told,
            checkpoint_interval_steps=interval.steps,
        )
        if not found or _pace(one) < _pace(found[-1]):
            found.append(one)
    return tuple(found)


def _pace(one: Frontier) -> float:
    """Time for the same work, failures included. [s]"""
    return one.predicted.step_seconds.target / max(one.predicted.ettr.target, 1e-12)


def _current(request: Request, best: _Finalist | None) -> Current | None:
    """Today's layout beside the advice, on the devices that it occupies; None where none was given."""
    first, strategy = request.problems[0], request.current
    if strategy is None:
        return None
    if isinstance(strategy, Unplaced):
        return Current(strategy=None, given=strategy.text, predicted=None, reason=strategy.why, gain=0.0)
    gpus = int(strategy.gpus)
    problem = replace(first, cluster=replace(first.cluster, gpus=gpus))
    reason = _cannot_run(problem, strategy)
    if reason:
        return Current(strategy=strategy, predicted=None, reason=reason, gain=0.0)
    full = priced(problem, strategy)
    nodes = max(1, round(gpus / float(first.cluster.gpus_per_node)))
    told, _ = predicted(request, full, nodes)
    peak, limit = float(full.estimate.memory.peak), float(room(problem.cluster))
    if peak > limit:
        reason = f"by the model it needs {peak / GIB:.1f} GiB of {limit / GIB:.1f} GiB"
    gain = 0.0 if best is None else _gain(told, best.predicted)
    return Current(strategy=strategy, predicted=told, reason=reason, gain=gain)


def _gain(today: Predicted, best: Predicted) -> Ratio:
    """How much longer the run takes with today's layout, failures included. [1]"""
    mine = today.step_seconds.target / max(today.ettr.target, 1e-12)
    return mine / (best.step_seconds.target / max(best.ettr.target, 1e-12)) - 1.0


def _cannot_run(problem: SearchCase, s: Strategy) -> str:
    """Why a layout that somebody runs cannot be; empty where it can."""
    training = problem.workload.training
    if training.global_batch % (s.dp * s.mbs):
        return f"a global batch of {int(training.global_batch)} does not divide by dp x mbs = {int(s.dp * s.mbs)}"
    if s.pp * s.vpp > problem.workload.model.layers + 2:
        return f"{int(s.pp * s.vpp)} stages for {int(problem.workload.model.layers)} layers"
    return ""


def _explained(request: Request, best: _Finalist) -> str:
    """One sentence: what is recommended, and what it gives."""
    told, one = best.predicted, best.priced
    text = (
        f"{format_strategy(one.strategy)} on {int(one.strategy.gpus)} GPUs: {units.format(told.step_seconds.target, 's')} a step "
        f"(MFU {told.mfu.target:.0%}), {told.memory_bytes.target / GIB:.1f} GiB of a device; a checkpoint every "
        f"{best.interval.steps} steps keeps ETTR at {told.ettr.target:.1%}"
    )
    job = job_of(request, one.problem, best.nodes, one.strategy, told.step_seconds.target)
    text += of_watchdog(job, best.interval)
    if float(request.learned) != 1.0:
        text += f"; running jobs here taught a factor of {request.learned:g} on the step"
    if built := unoffered(one.strategy):
        text += f"; no trainer offers {built}, so it has to be built"
    load = fullest_rank(one.problem.workload, one.strategy)
    if load is not None and load.tail > load.mean:
        risk = overflow(one.problem.workload, one.problem.cluster, one.strategy)
        text += f"; by its routing a run is out of memory with a probability of {risk:.2g}"
    if request.problems[0].workload.training.tokens:
        text += f", and the tokens are done in {units.format(told.duration_seconds.target, 's', 3)}"
    return "; ".join((text, *request.notes))
