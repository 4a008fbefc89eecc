"""Joins search, odds, replay and reliability into the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mofa_model import VERSION, units
from mofa_model.advice.answer import (
    Advice,
    Alternative,
    Counts,
    Current,
    Frontier,
    Odds,
    Predicted,
    Status,
)
from mofa_model.advice.choice import Chosen, Finalist, Standing, chosen, replayed
from mofa_model.advice.confidence import basis, confidence, failure_inputs, predicted
from mofa_model.advice.finalists import priced
from mofa_model.advice.probes import probes
from mofa_model.advice.prospects import Prospects, aside, beyond, prospects, question_of
from mofa_model.advice.reasons import (
    compared,
    differs,
    nearest_constraints,
    unoffered,
    why_not,
    why_nothing,
)
from mofa_model.advice.request import Request, Unplaced
from mofa_model.advice.saves import job_of, of_watchdog
from mofa_model.advice.verdict import asked_amiss, doubts_of, is_sure, status_of
from mofa_model.advice.weighed import Prospect, fits, known
from mofa_model.bands import coordinates
from mofa_model.estimate.footprint import overflow, room
from mofa_model.estimate.routing import fullest_rank
from mofa_model.reliability import Interval
from mofa_model.search import Ranking, Rejection, SearchCase, parse_constraint
from mofa_model.strategy import Strategy
from mofa_model.strategy_text import format_strategy
from mofa_model.units import GIB, Ratio

_CHUNKS = ("chunks=2,4,8", "chunk-layers=0,1,2,4,8,16")
"""What is asked of experts in chunks where nothing fits without."""
TRIED = 3
"""Layouts with what nobody measured that are replayed."""


def advise(request: Request, advance: Callable[[float], None] = lambda _: None) -> Advice:
    """The answer to a request. `advance` hears of the share of the search that is done."""
    found, picked, others = _best(prospects(request, advance))
    request, ranking = found.request, found.ranking
    first = request.problems[0]
    limit = float(room(first.cluster))
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
        counts=Counts(
            raw=ranking.raw,
            searched=ranking.searched,
            pruned=ranking.pruned,
            rejected=sum(ranking.rejected.values()),
        ),
        confidence=0.0,
        doubts=(amiss := asked_amiss(request)),
        caveats=(*amiss, *request.notes, *request.caveats),
        failures=failure_inputs(request),
        learned=request.learned,
        learned_memory=request.memory.ratio,
        learned_spread=request.memory.spread,
        memory_limit_bytes=limit,
        model_version=VERSION,
    )
    if picked is None:
        why = why_nothing(ranking, limit / request.memory.ratio) + _in_chunks(request, ranking)
        return replace(
            plain,
            explanation="; ".join((*amiss, why)),
            current=(_today(request) or (None, None))[0],
        )
    return _answered(found, picked, others, plain)


def _best(
    found: Sequence[Prospects],
) -> tuple[Prospects, Chosen | None, list[tuple[Request, Finalist]]]:
    """The trainer whose first choice is the best of all, what is chosen for it, and the first choices of the others: those of
    which nothing is missing for a recommendation before the others, then by what is expected.
    """
    if not found[0].prospects:
        return found[0], None, []
    picked = list(zip(found, chosen([(one.request, one.prospects) for one in found]), strict=True))
    picked.sort(key=lambda pair: (_doubted(pair[0].request, pair[1].first), pair[1].first.expected))
    (best, first), *others = picked
    return best, first, [(one.request, other.first) for one, other in others]


def _doubted(request: Request, one: Finalist) -> bool:
    """Whether something is missing for a recommendation: that it fits surely, or that runs of its stack have what it has."""
    there = one.prospect
    return request.odds and not is_sure(there.fits, there.unmeasured, own=known(request).own)


def _answered(
    found: Prospects, picked: Chosen, others: Sequence[tuple[Request, Finalist]], plain: Advice
) -> Advice:
    """The answer where something fits."""
    request, best = found.request, picked.first
    told, interval = predicted(request, best.priced, best.nodes)
    rests = basis(request, best.priced, told)
    sure, caveats = confidence(request, best.priced, rests)
    prospect = best.prospect
    base = Standing(at=prospect.at, pace=_pace(request, told, best.nodes))
    today = _today(request)
    against = base if today is None or today[1] is None else today[1]
    odds = Odds(fits=prospect.fits, beats=None if against is base else base.beats(against, request))
    doubts = doubts_of(
        request,
        odds=odds,
        unmeasured=prospect.unmeasured,
        rests=rests,
        own=known(request).own,
        sure=sure,
    )
    return replace(
        plain,
        status=status_of(doubts),
        strategy=best.priced.strategy,
        predicted=told,
        odds=odds,
        trainer=prospect.trainer,
        expected=best.expected,
        precision=best.priced.problem.workload.training.precision.name,
        checkpoint_interval_steps=interval.steps,
        checkpoint_interval_seconds=interval.steps * told.step_seconds.target,
        nodes=best.nodes,
        gpus=int(best.priced.strategy.gpus),
        explanation=_joined(*doubts, _explained(request, best, told, interval), rests.evidence),
        alternatives=_alternatives(request, picked, others, told, against),
        probes=_probes(request, found, best, told, against),
        frontier=_frontier(request, found.prospects),
        nearest=nearest_constraints(best.priced, found.ranking, float(found.limit)),
        current=today and replace(today[0], gain=_gain(today[0], told)),
        confidence=sure,
        doubts=doubts,
        basis=rests,
        caveats=(*doubts, *caveats),
    )


def _joined(*sentences: str) -> str:
    """Sentences as one text, each of them once."""
    return "; ".join(dict.fromkeys(sentences))


def _in_chunks(request: Request, ranking: Ranking) -> str:
    """What experts in chunks would do where nothing fits and the trainer has none of them; empty where they do not help."""
    asked, model = question_of(request), request.problems[0].workload.model
    said = len(ranking.axes["chunks"]) > 1 or any(one.key == "chunks" for one in asked.constraints)
    if ranking.leanest is None or model.experts is None or said:
        return ""
    chunked = (*asked.constraints, *map(parse_constraint, _CHUNKS))
    within = aside(replace(asked, constraints=chunked, built=("chunks", "chunk_layers")))
    found = [] if within is None else [one for some in within.best.values() for one in some]
    if not found:
        return ""
    best = min(found, key=lambda one: (one.score, one.nodes, one.index))
    offered = f"; no trainer offers {unoffered(best.strategy)}"
    where = f" on {int(some)} layers of a stage" if (some := best.strategy.chunk_layers) else ""
    return f"; experts in {int(best.strategy.chunks)} chunks{where} would fit, as {format_strategy(best.strategy)}{offered}"


def _alternatives(
    request: Request,
    picked: Chosen,
    others: Sequence[tuple[Request, Finalist]],
    of_best: Predicted,
    against: Standing,
) -> tuple[Alternative, ...]:
    """What is most likely best where that is another, what is worth a try, the first choices of other trainers, the best of other
    kinds.
    """
    first, named = picked.first, list[tuple[str, Request, Finalist]]()
    if picked.best is not first:
        named.append(("most likely best", request, picked.best))
    nearly = float(first.priced.estimate.step_time) * float(request.learned)
    tried = replayed(beyond(request, first.prospect, nearly)[:TRIED]) if request.top else []
    if tried and tried[0].expected < first.expected:
        named.append(("worth a try", request, tried[0]))
    kinds = {one.kind for one in (first, *(one for _, _, one in named))}
    named += [
        (f"in {one.prospect.trainer}" if one.prospect.trainer else "to be built", its, one)
        for its, one in others
    ]
    for one in picked.others:
        if one.kind not in kinds:
            kinds.add(one.kind)
            named.append((differs(one.kind, first.kind), request, one))
    return tuple(
        _alternative(its, name, one, first, of_best, against)
        for name, its, one in named[: int(request.top)]
    )


def _probes(
    request: Request, found: Prospects, first: Finalist, of_best: Predicted, against: Standing
) -> tuple[Alternative, ...]:
    """Short runs that are worth most, each with what it leaves of the doubt."""
    told = []
    for number, (one, left) in enumerate(probes(request, found, first.prospect), start=1):
        reason = f"leaves {left:.0%} of the expected loss"
        as_other = _alternative(
            request, f"probe {number}", replayed([one])[0], first, of_best, against
        )
        told.append(replace(as_other, reason=reason))
    return tuple(told)


def _alternative(
    request: Request,
    name: str,
    one: Finalist,
    best: Finalist,
    of_best: Predicted,
    against: Standing,
) -> Alternative:
    told, interval = predicted(request, one.priced, one.nodes)
    mine = Standing(at=one.prospect.at, pace=_pace(request, told, one.nodes))
    reason = why_not(
        request.objective, one.priced, told.ettr.target, best.priced, of_best.ettr.target
    )
    if one.priced.strategy == best.priced.strategy and one.nodes == best.nodes:
        reason = "the same layout"
    elif request.tried:
        slower = told.step_seconds.target - of_best.step_seconds.target
        reason = f"{units.format(abs(slower), 's', 3)} {'slower' if slower > 0 else 'faster'} a step with what ran; by estimate {reason}"
    if one.prospect.unmeasured:
        reason += f"; no measured run has {', '.join(one.prospect.unmeasured)}"
    return Alternative(
        name=name,
        trainer=one.prospect.trainer,
        odds=Odds(fits=one.prospect.fits, beats=mine.beats(against, request)),
        strategy=one.priced.strategy,
        precision=one.priced.problem.workload.training.precision.name,
        nodes=one.nodes,
        predicted=told,
        checkpoint_interval_steps=interval.steps,
        checkpoint_interval_seconds=interval.steps * told.step_seconds.target,
        terms=compared(one.priced, best.priced),
        reason=reason,
    )


def _frontier(request: Request, some: Sequence[Prospect]) -> tuple[Frontier, ...]:
    """For every number of nodes its best, where more than one was asked for: none that another beats in both numbers."""
    best: dict[int, Prospect] = {}
    for one in some:
        best.setdefault(one.candidate.nodes, one)
    found: list[Frontier] = []
    for nodes, one in sorted(best.items()) if len(best) > 1 else ():
        full = priced(one.candidate.problem, one.candidate.strategy)
        told, interval = predicted(request, full, nodes)
        there = Frontier(
            nodes=nodes,
            gpus=int(full.strategy.gpus),
            strategy=full.strategy,
            predicted=told,
            checkpoint_interval_steps=interval.steps,
        )
        if not found or _time(there.predicted) < _time(found[-1].predicted):
            found.append(there)
    return tuple(found)


def _today(request: Request) -> tuple[Current, Standing | None] | None:
    """Today's layout on the devices that it occupies, and where it stands; None where none was given."""
    first, strategy = request.problems[0], request.current
    if strategy is None:
        return None
    if isinstance(strategy, Unplaced):
        return Current(
            strategy=None, given=strategy.text, predicted=None, reason=strategy.why, gain=0.0
        ), None
    gpus = int(strategy.gpus)
    problem = replace(first, cluster=replace(first.cluster, gpus=gpus))
    reason = _cannot_run(problem, strategy)
    if reason:
        return Current(strategy=strategy, predicted=None, reason=reason, gain=0.0), None
    full = priced(problem, strategy)
    nodes = max(1, round(gpus / float(first.cluster.gpus_per_node)))
    told, _ = predicted(request, full, nodes)
    peak, limit = float(full.estimate.memory.peak), float(room(problem.cluster))
    if (needs := peak * request.memory.ratio) > limit:
        reason = f"by the model it needs {needs / GIB:.1f} GiB of {limit / GIB:.1f} GiB"
    at = coordinates(problem.workload, problem.cluster, strategy)
    odds = Odds(fits=fits(request, problem, at, peak))
    today = Current(strategy=strategy, predicted=told, odds=odds, reason=reason, gain=0.0)
    return today, Standing(at=at, pace=_pace(request, told, nodes))


def _time(told: Predicted) -> float:
    """Time for the same work, failures included. [s]"""
    return told.step_seconds.target / max(told.ettr.target, 1e-12)


def _pace(request: Request, told: Predicted, nodes: int) -> float:
    """The objective: a step, the time or the node time for the same work. [s]"""
    if request.objective == "throughput":
        return told.step_seconds.target
    return _time(told) * (nodes if request.objective == "cost" else 1)


def _gain(today: Current, best: Predicted) -> Ratio:
    """How much longer the run takes with today's layout, failures included. [1]"""
    return 0.0 if today.predicted is None else _time(today.predicted) / _time(best) - 1.0


def _cannot_run(problem: SearchCase, s: Strategy) -> str:
    """Why a layout that somebody runs cannot be; empty where it can."""
    training = problem.workload.training
    if training.global_batch % s.global_micro_batch:
        return f"a global batch of {int(training.global_batch)} does not divide by dp x mbs = {int(s.global_micro_batch)}"
    if s.pp * s.vpp > problem.workload.model.layers + 2:
        return f"{int(s.pp * s.vpp)} stages for {int(problem.workload.model.layers)} layers"
    return ""


def _explained(request: Request, best: Finalist, told: Predicted, interval: Interval) -> str:
    """One sentence: what is recommended, and what it gives."""
    one = best.priced
    text = (
        f"{format_strategy(one.strategy)} on {int(one.strategy.gpus)} GPUs: {units.format(told.step_seconds.target, 's')} a step "
        f"(MFU {told.mfu.target:.0%}), {told.memory_bytes.target / GIB:.1f} GiB of a device; a checkpoint every "
        f"{interval.steps} steps keeps ETTR at {told.ettr.target:.1%}"
    )
    job = job_of(request, one.problem, best.nodes, one.strategy, told.step_seconds.target)
    text += of_watchdog(job, interval)
    factors = {"the step": float(request.learned), "device memory": request.memory.ratio}
    if taught := [f"{factor:g} on {what}" for what, factor in factors.items() if factor != 1.0]:
        text += f"; running jobs here taught a factor of {' and one of '.join(taught)}"
    if built := unoffered(one.strategy):
        text += f"; no trainer offers {built}, so it has to be built"
    load = fullest_rank(one.problem.workload, one.strategy)
    if load is not None and load.tail > load.mean:
        risk = overflow(one.problem.workload, one.problem.cluster, one.strategy)
        text += f"; by its routing a run is out of memory with a probability of {risk:.2g}"
    if request.problems[0].workload.training.tokens:
        text += f", and the tokens are done in {units.format(told.duration_seconds.target, 's', 3)}"
    return "; ".join((text, *request.notes))
