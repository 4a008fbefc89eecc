"""What one layout is expected to do: its step by replay, its checkpoints, and its figures with
bounds.

The search uses closed forms, which are exact for equal stages. The best few candidates differ by
little, so their pipelines are replayed, operation by operation with uneven stages as they are, and
the replay's figure is the one that an answer states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mofa_model import units
from mofa_model.advice.answer import Predicted
from mofa_model.advice.request import ROOMY, Request, layout_odds
from mofa_model.axes.axis import Scope
from mofa_model.bands.coordinates import Coordinates, coordinates
from mofa_model.bands.evidence import Basis, basis_of
from mofa_model.estimate.gradient_exchange import gradient_exchange
from mofa_model.estimate.model_states import checkpoint_replicas, checkpoint_size
from mofa_model.estimate.stage_time import StageTime
from mofa_model.estimate.step import (
    StepInputs,
    StepTime,
    exposed_hops,
    footprint,
    hop_time,
    least_step,
    micro_batches,
    pipeline_flow,
    step_time,
    tokens_per_second,
    utilisation,
)
from mofa_model.estimate.terms import Footprint, device_memory_limit, host_memory_limit
from mofa_model.placement import kind_of_stages, picked, stages_of
from mofa_model.records import dataclass, varied
from mofa_model.reliability.checkpoint import background_time, blocking_time, bytes_per_node
from mofa_model.reliability.interval import Interval, best_ettr, recommend, watchdog
from mofa_model.reliability.model import Job, ettr_band
from mofa_model.schedules.replay import makespan
from mofa_model.search import Score, SearchCase
from mofa_model.search.axes import within
from mofa_model.search.local import LocalShapes
from mofa_model.search.price import OF_STEPS, hop_times, stages_timed
from mofa_model.spec import Cluster, Transformer
from mofa_model.spec.reliability import CheckpointTier, FailureRate, Reliability
from mofa_model.strategy import DEGREES, ContextMode, Strategy
from mofa_model.units import Bytes, Numeric, Range, Seconds

if TYPE_CHECKING:
    from mofa_model.spec.recovery_plans import Replicas

T = TypeVar("T")
MOST_OPERATIONS: Final = 30_000
"""Operations of the longest pipeline that is replayed; a longer one has a small bubble."""


@dataclass(frozen=True, kw_only=True)
class PricedLayout:
    """A layout with every term of its step; its memory is priced where somebody asks."""

    strategy: Strategy
    problem: SearchCase
    step_terms: StepTime
    """Parts of the step; those of the pipeline by replay, where it was replayed."""
    replayed: bool

    @cached_property
    def footprint(self) -> Footprint:
        """Every term of its memory."""
        w, c, s = self.problem.workload, self.problem.cluster, self.strategy
        return footprint(w, c, s, stages_of(w.model, s, c.calibration.placement))

    @property
    def step_time(self) -> float:
        """One optimizer step. [s]"""
        return float(self.step_terms.total)

    @cached_property
    def coordinates(self) -> Coordinates:
        """Its coordinates among measured runs."""
        share = float(self.footprint.estimated)
        return coordinates(self.problem.workload, self.problem.cluster, self.strategy, share)


def priced(problem: SearchCase, strategy: Strategy) -> PricedLayout:
    """One layout in full, its pipeline replayed."""
    return priced_together([(problem, strategy)])[0]


def priced_together(cases: Sequence[tuple[SearchCase, Strategy]]) -> list[PricedLayout]:
    """Layouts in full; pipelines of one schedule are priced at once, and those with the same order
    of operations are replayed together.
    """
    inputs: dict[int, StepInputs] = {}
    passes: dict[int, NDArray[Any]] = {}
    for members in _alike(cases, lambda case: id(case[0])):
        problem, layouts = cases[members[0]][0], [cases[at][1] for at in members]
        every = {n: np.array([getattr(s, n) for s in layouts], dtype=float) for n in DEGREES}
        modes = np.array([_MODES.index(s.context_mode) for s in layouts])
        local = LocalShapes(problem.workload, problem.cluster, {"mode": modes, **every})
        for rows in _alike(layouts, _STEP):
            by_work = _alike([layouts[row] for row in rows], _work)
            parts = [np.array(rows)[of_one_work] for of_one_work in by_work]
            for row, row_inputs, row_passes in _priced(problem, layouts, every, local, parts):
                inputs[members[row]], passes[members[row]] = row_inputs, row_passes
    walks: dict[Hashable, list[int]] = {}
    for at, (_, s) in enumerate(cases):
        m = int(inputs[at].micro_batches)
        if s.pp > 1 and 2 * s.pp * s.vpp * m <= MOST_OPERATIONS:
            walks.setdefault((s.schedule, s.pp, m, s.vpp, s.pipeline_overlap), []).append(at)
    for walk in walks.values():
        inputs |= zip(
            walk,
            _replayed([inputs[at] for at in walk], [passes[at] for at in walk]),
            strict=True,
        )
    walked = {at for walk in walks.values() for at in walk}
    return [
        PricedLayout(
            strategy=s, problem=problem, step_terms=step_time(inputs[at]), replayed=at in walked
        )
        for at, (problem, s) in enumerate(cases)
    ]


def _alike(items: Sequence[T], key: Callable[[T], Hashable]) -> list[list[int]]:
    """Positions of items, those with one key together."""
    positions: dict[Hashable, list[int]] = {}
    for position, item in enumerate(items):
        positions.setdefault(key(item), []).append(position)
    return list(positions.values())


def _priced(
    problem: SearchCase,
    layouts: Sequence[Strategy],
    every: Mapping[str, NDArray[Any]],
    local: LocalShapes,
    parts: Sequence[NDArray[Any]],
) -> Iterator[tuple[int, StepInputs, NDArray[Any]]]:
    """Time layouts of one schedule together. Yields, for each, its index in `layouts`, what the
    closed forms of the step time take, and the times of its forward and backward passes.

    `every` has the degrees of all layouts as columns; each of `parts` holds the indices of layouts
    with equal work per device.
    """
    w, c = problem.workload, problem.cluster
    rows = np.concatenate(parts)

    def family(members: NDArray[Any]) -> Strategy:
        degrees = {name: column[members] for name, column in every.items()}
        strategy: Strategy = varied(layouts[members[0]], **degrees)
        return strategy

    s = family(rows)
    kinds, m = stages_of(w.model, s, c.calibration.placement, 1), np.asarray(micro_batches(w, s))
    by_work = [(family(part), part) for part in parts]
    stage = stages_timed(w, c, s, kinds, local, by_work)
    flow = pipeline_flow(s, stage, m)
    pipeline = s.schedule.time(flow)
    hops = exposed_hops(s, flow, pipeline, hop_times(w, c, s, by_work))
    for alike in _alike([layouts[row] for row in rows], _STATE):
        columns = np.array(alike)
        strategies, batches = family(rows[columns]), m[columns]
        family_inputs = StepInputs(
            workload=w,
            cluster=c,
            strategy=strategies,
            micro_batches=batches,
            slowest=picked(stage.slowest, columns),
            pipeline=picked(pipeline, columns),
            hops=picked(hops, columns),
            exchange=gradient_exchange(w, c, strategies, kinds.of(columns), batches),
        )
        for place, column in enumerate(alike):
            layout = layouts[rows[column]]
            yield (
                rows[column],
                _inputs_of_row(family_inputs, layout, place),
                _passes(w.model, c, layout, stage, column),
            )


def _work(s: Strategy) -> Hashable:
    """A key: layouts with the same one do the same work in a micro-batch."""
    return _FEATURES(s), s.recompute_layers > 0


def _features(*scopes: Scope) -> Callable[[Strategy], Hashable]:
    """The features of a layout that change some parts of its step, degrees aside."""
    names = (name for axis in within(*scopes) for name in axis.fields if name not in DEGREES)
    return attrgetter(*names)


_STEP: Final = attrgetter("schedule", *OF_STEPS)
_STATE: Final = _features(Scope.STATE)
_FEATURES: Final = _features(Scope.WORK, Scope.LAYER)
_MODES: Final = tuple(ContextMode)
_NUMBERS: Final = ("micro_batches", "slowest", "pipeline", "hops")


def _of_row(value: Any, row: int) -> Any:
    return value[..., row] if np.ndim(value) else value


def _inputs_of_row(family: StepInputs, s: Strategy, row: int) -> StepInputs:
    """The inputs of one layout's step, taken out of those of its family."""
    exchange = {name: _of_row(value, row) for name, value in vars(family.exchange).items()}
    return varied(
        family,
        strategy=s,
        exchange=varied(family.exchange, **exchange),
        **{name: _of_row(getattr(family, name), row) for name in _NUMBERS},
    )


def _passes(
    model: Transformer, cluster: Cluster, s: Strategy, stages: StageTime, row: int
) -> NDArray[Any]:
    """Forward, input gradients and weight gradients of every virtual stage for one micro-batch of
    one layout of a family, [passes, virtual stages]. [s]
    """
    kinds = kind_of_stages(model, s, cluster.calibration.placement)
    chunks = _of_row(stages.total, row)[kinds] / s.vpp
    line = (
        np.concatenate([chunks, chunks[::-1]]) if s.schedule.folded else np.tile(chunks, int(s.vpp))
    )
    forward, weight = (_of_row(x, row) for x in (stages.forward_share, stages.weight_share))
    return np.stack([line * forward, line * (1.0 - forward - weight), line * weight])


def _replayed(layouts: list[StepInputs], passes: list[NDArray[Any]]) -> list[StepInputs]:
    """What steps are computed from, with the replayed time of their pipelines, which all have one
    order of operations.
    """
    first = layouts[0]
    s = first.strategy
    order = s.schedule.operations(int(s.pp), int(first.micro_batches), int(s.vpp))
    # The same walk with and without hops, side by side.
    forward, inward, weight = _twice(np.stack(passes, axis=-1))
    hops = np.array([[float(hop_time(x.workload, x.cluster, x.strategy)) for x in layouts]])
    times = makespan(
        order,
        forward=forward,
        input_gradient=inward,
        weight_gradient=weight,
        hop=np.concatenate([0.0 * hops, hops], axis=1),
        blocking=not s.pipeline_overlap,
    )
    alone, with_hops = np.split(np.asarray(times), 2)
    return [
        varied(layout, pipeline=float(alone[at]), hops=float(with_hops[at] - alone[at]))
        for at, layout in enumerate(layouts)
    ]


def _twice(times: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([times, times], axis=-1)


_SOON = 1e-6
"""A step, as a share of a save, so short that rounding an interval costs nothing."""


def _job(
    request: Request,
    problem: SearchCase,
    nodes: int,
    step: Seconds,
    saved: Numeric,
    replicas: Numeric,
) -> Job:
    """The job of strategies with some step times, checkpoint sizes and ranks that hold one shard.

    A size that the request states counts in place of `saved`, the estimated one.
    """
    size = saved if request.checkpoint_bytes is None else request.checkpoint_bytes
    per_node = problem.cluster.gpus_per_node
    share = bytes_per_node(size, nodes * per_node / replicas, per_node)
    tiers = request.reliability.tiers
    # A plan rests on more of the layout; without one a job says no more than before.
    layout = _redundancy(problem, share, replicas, tiers) if request.recovery_plans else None
    return Job(
        nodes=nodes,
        step_time=step,
        blocking=tuple(blocking_time(tier, size, share) for tier in tiers),
        background=tuple(background_time(tier, size, share) for tier in tiers),
        reliability=request.reliability,
        redundancy=layout,
    )


def _redundancy(
    problem: SearchCase, state: Numeric, replicas: Numeric, tiers: Sequence[CheckpointTier]
) -> Replicas:
    """The facts of a layout that decide how it may recover: copies of its state, links, memory."""
    from mofa_model.spec.recovery_plans import Replicas

    cluster = problem.cluster
    return Replicas(
        count=replicas,
        state=state,
        link=float(cluster.scale_out.bandwidth * cluster.gpus_per_node),
        snapshot=float(max(tier.snapshot_bandwidth for tier in tiers)),
        host_memory=float(host_memory_limit(cluster)),
        unit=max(1.0, float(cluster.domain) / float(cluster.gpus_per_node)),
    )


def steps_to_finish(problem: SearchCase) -> float:
    """Optimizer steps of the run; 1 where no number of tokens is stated. [1]"""
    training = problem.workload.training
    if not training.tokens:
        return 1.0
    return float(np.ceil(training.tokens / training.step_tokens))


def score_of(request: Request, problem: SearchCase, nodes: int) -> Score:
    """The objective of the search on a number of nodes: the step, the time to finish, or the GPU
    time to finish. [s]
    """
    learned = float(request.learned)
    if request.objective == "throughput":
        return lambda step, *_: step * learned
    weight = steps_to_finish(problem)
    if request.objective == "cost":
        weight = weight * nodes * float(problem.cluster.gpus_per_node)

    def finish(modelled: NDArray[Any], saved: NDArray[Any], replicas: NDArray[Any]) -> NDArray[Any]:
        step = modelled * learned
        most = (
            np.inf
            if request.most_interval is None
            else np.maximum(1.0, np.floor(request.most_interval / step))
        )
        job = _job(request, problem, nodes, step, saved, replicas)
        most = np.minimum(most, 1e13)
        ettr = (
            most_worth(request, job, most) if request.recovery_plans else best_ettr(job, most=most)
        )
        return np.asarray(weight * step / np.maximum(ettr, 1e-12))

    return finish


def most_worth(request: Request, job: Job, most: Numeric) -> Numeric:
    """ETTR of strategies under the best recovery plan of each, over the node time that is
    paid. [1]
    """
    from mofa_model.reliability.recovery import is_possible, worth_of

    shape, layout = np.shape(job.step_time), cast("Replicas", job.redundancy)
    counts = np.broadcast_to(np.asarray(layout.count, dtype=float), shape)
    worth = np.zeros(shape)
    for count in set(counts.ravel().tolist()):
        has_count = counts == count

        def of(value: Any, has_count: NDArray[np.bool_] = has_count) -> Any:
            return value[has_count] if np.shape(value) == shape and shape else value

        redundancy = replace(layout, count=count, state=of(layout.state))
        jobs = replace(
            job,
            step_time=of(job.step_time),
            blocking=tuple(map(of, job.blocking)),
            background=tuple(map(of, job.background)),
            redundancy=redundancy,
        )
        for plan in request.recovery_plans:
            if is_possible(plan, redundancy, float(np.max(job.nodes))):
                of_plan = worth_of(jobs, plan, of(most))
                worth[has_count] = np.maximum(worth[has_count], of_plan)
    return worth[()]


def least_score(request: Request, problem: SearchCase, nodes: int, saved: Bytes) -> float:
    """Score over step time that no strategy beats, where none saves fewer bytes. [1]"""
    if request.objective == "throughput":
        return float(request.learned)
    # No strategy beats this step and this save: the interval is free, and every rank writes.
    fastest = _job(request, problem, nodes, 1.0, saved, 1.0).blocking[0]
    shortest = max(1e-9, _SOON * float(np.max(fastest)))
    if request.recovery_plans:  # no plan keeps more than all
        free = replace(request, recovery_plans=(), reliability=_never_fails(request.reliability))
        return least_score(free, problem, nodes, saved)
    score = score_of(request, problem, nodes)
    ideal = score(np.array([shortest]), np.array([saved]), np.array([1.0]))
    return float(ideal[0] / shortest)


def _never_fails(reliability: Reliability) -> Reliability:
    never = FailureRate(failures=0.0, exposure=1.0, exactly=0.0)
    classes = tuple(replace(mode, rate=never) for mode in reliability.classes)
    return replace(reliability, classes=classes, domains=(), spares=None)


def job_of(
    request: Request, problem: SearchCase, nodes: int, strategy: Strategy, step: Seconds
) -> Job:
    """The job that a strategy makes, for the reliability model."""
    saved, replicas = (
        of(problem.workload, strategy) for of in (checkpoint_size, checkpoint_replicas)
    )
    job = _job(request, problem, nodes, step, saved, replicas)
    job = replace(
        job,
        blocking=tuple(map(float, job.blocking)),
        background=tuple(map(float, job.background)),
    )
    return _under_best_plan(request, job) if request.recovery_plans else job


def _under_best_plan(request: Request, job: Job) -> Job:
    """The job with the recovery plan that is worth most to it."""
    from mofa_model.reliability.recovery import best_outcome, is_possible

    redundancy = cast("Replicas", job.redundancy)
    layout = replace(redundancy, count=float(redundancy.count), state=float(redundancy.state))
    job = replace(job, redundancy=layout)
    plans = [plan for plan in request.recovery_plans if is_possible(plan, layout, float(job.nodes))]
    if not plans:
        return job
    return replace(
        job, plan=best_outcome(job, plans, most_steps(request, float(job.step_time))).plan
    )


def recovery_words(request: Request, job: Job, advised_interval: Interval) -> str:
    """The recovery plan and its worth, as the end of a sentence on ETTR; else empty."""
    if job.plan is None or job.redundancy is None:
        return ""
    from mofa_model.reliability.recovery import cost_of
    from mofa_model.spec.recovery_plans import Others

    bare = replace(job, plan=None)
    gain = float(advised_interval.ettr) - float(best_interval(request, bare).ettr)
    worth = f"; recovery by {job.plan.name} is worth {100 * gain:.1f} points of it"
    cost = cost_of(job)
    parts = [
        f"{job.plan.spares} spares of {float(job.redundancy.unit):g} nodes" * bool(job.plan.spares),
        f"{units.format(float(cost.memory), 'B', 3)} of each node's memory" * bool(cost.memory),
        f"{float(job.redundancy.count):g} whole copies of the state"
        * (job.plan.others is not Others.STOP),
        f"steps slower by {float(cost.slower):.1%}" * bool(cost.slower),
    ]
    needs = ", ".join(filter(None, parts))
    return f"{worth} and needs {needs}" if needs else worth


def watchdog_words(job: Job, advised_interval: Interval) -> str:
    """The worth of a watchdog on steps, as the end of a sentence on ETTR; else empty."""
    best = watchdog(job, advised_interval.steps, advised_interval.every)
    if best is None:
        return ""
    timeout = units.format(float(best.timeout), "s")
    return f"; a watchdog of {timeout} is worth {100 * best.worth:.1f} points of it"


def most_steps(request: Request, step: float) -> int:
    """Most steps between saves that were allowed. [1]"""
    return 10**9 if request.most_interval is None else max(1, int(request.most_interval / step))


def best_interval(request: Request, job: Job) -> Interval:
    """The recommended checkpoint interval, within the bounds that were given."""
    step = float(job.step_time)
    most = most_steps(request, step)
    best = recommend(job, most=most)
    least = min(most, int(np.ceil(request.least_interval / step)))
    return best if best.steps >= least else replace(best, steps=least)


def expected_job(request: Request, priced_layout: PricedLayout, nodes: int) -> Job:
    """The job that a layout makes on a number of nodes. Its step is by replay, times what running
    jobs and short runs taught.
    """
    odds = layout_odds(request, (priced_layout.coordinates,))
    by_runs = math.exp(float(odds.centres["step"][0]))
    step = priced_layout.step_time * float(request.learned) * by_runs
    return job_of(request, priced_layout.problem, nodes, priced_layout.strategy, step)


def predicted_figures(
    request: Request,
    priced_layout: PricedLayout,
    job: Job,
    advised_interval: Interval,
    *,
    ran: bool = False,
) -> Predicted:
    """What the job of a layout does at a checkpoint interval, with bounds. A layout that `ran`
    needs no more memory than there is.
    """
    w, c = priced_layout.problem.workload, priced_layout.problem.cluster
    odds = layout_odds(request, (priced_layout.coordinates,))
    time, memory = odds.band("step"), odds.band("memory")
    step, room = float(job.step_time), float(device_memory_limit(c)) if ran else math.inf
    ettr = ettr_band(job, advised_interval.steps, advised_interval.every)
    # No run is faster than its devices, and none holds less than its weights and optimizer states.
    low = min(1.0, max(time.lower, float(least_step(w, c)) / step))
    peak = float(priced_layout.footprint.peak) * math.exp(float(odds.centres["memory"][0]))
    most, peak = min(peak * memory.upper, room), min(peak, room)
    least = min(peak, max(peak * memory.lower, float(priced_layout.footprint.states)))
    speed = float(tokens_per_second(w, step))
    used = float(utilisation(w, c, step))
    steps = steps_to_finish(priced_layout.problem) if w.training.tokens else 0.0
    start = float(request.reliability.start) if steps else 0.0

    def finish(factor: float) -> float:
        return steps * step * factor / max(ettr.target, 1e-12) + start

    return Predicted(
        step_seconds=Range.around(step, step * low, step * time.upper),
        tokens_per_second=Range.around(speed, speed / time.upper, speed / low),
        mfu=Range.around(*(min(1.0, mfu) for mfu in (used, used / time.upper, used / low))),
        memory_bytes=Range.around(peak, least, most),
        ettr=ettr,
        duration_seconds=Range.around(
            finish(1.0),
            finish(1.0 / _together(1.0 / low, ettr.upper / max(ettr.target, 1e-12))),
            finish(_together(time.upper, ettr.target / max(ettr.lower, 1e-12))),
        ),
    )


def _together(bound: float, other: float) -> float:
    """One bound as a factor, from the bounds of two independent errors. [1]"""
    return math.exp(math.hypot(math.log(max(1.0, bound)), math.log(max(1.0, other))))


def basis(request: Request, priced_layout: PricedLayout, predictions: Predicted) -> Basis:
    """Measured runs that a prediction rests on, with the bounds that the answer states."""
    step = predictions.step_seconds
    measured_basis = basis_of(request.runs, priced_layout.coordinates)
    return replace(measured_basis, within=step.upper / step.target - 1.0)


def missing_host_memory(priced_layout: PricedLayout) -> str:
    """That a layout needs more main memory than a node usually has, where nobody said how much
    there is; else empty.
    """
    cluster, parked = priced_layout.problem.cluster, float(priced_layout.footprint.host)
    host = cluster.host
    if host.stated or (host.memory < ROOMY and parked <= host_memory_limit(cluster)):
        return ""
    needed = units.format(float(parked / (1.0 - host.reserve)), "B", 3)
    return f"a node has to have {needed} of main memory, and nobody said how much there is"


def caveats_of(
    request: Request, priced_layout: PricedLayout, measured_basis: Basis
) -> tuple[str, ...]:
    """What lowers confidence, one sentence each, beside the grade of evidence and the doubts."""
    caveats = [*request.notes]
    host, parked = priced_layout.problem.cluster.host, priced_layout.footprint.host
    if parked and not host.stated and not missing_host_memory(priced_layout):
        parks, assumed = (units.format(float(size), "B", 3) for size in (parked, host.memory))
        caveats.append(
            f"it parks {parks} in the main memory of a node; nobody said how much there is, and "
            f"{assumed} is assumed"
        )
    if measured_basis.stack not in measured_basis.family and not request.timed:
        caveats.append("one run of yours narrows the bands (mofa calibrate --from-runs)")
    if measured_basis.runs and measured_basis.largest < priced_layout.problem.cluster.gpus:
        caveats.append(
            "no measured run of its family on these devices used more than "
            f"{measured_basis.largest} of them"
        )
    if not priced_layout.replayed and priced_layout.strategy.pp > 1:
        caveats.append("the pipeline is too long to replay; its closed form was used")
    return tuple(caveats)
