"""The search itself: all strategies on every node count at every precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Final

import numpy as np

from mofa_model.axes.axis import Axis
from mofa_model.axes.choices import IN_NODE
from mofa_model.axes.frameworks import Framework, framework
from mofa_model.axes.rejection import Rejection
from mofa_model.axes.rules import AxisContext
from mofa_model.errors import TooLarge
from mofa_model.records import dataclass, varied
from mofa_model.search.axes import (
    Axes,
    Constraint,
    constrained,
    known_axes,
    named_keys,
    require_words,
)
from mofa_model.search.blocks import least_checkpoint
from mofa_model.search.price import price
from mofa_model.search.rank import (
    NUMBER,
    PLACE,
    ROW,
    SHAPE,
    Effort,
    Factor,
    Leaders,
    Score,
    Spent,
    nothing_lost,
    step_alone,
)
from mofa_model.search.space import Shapes, shapes_of, with_features
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import Strategy, acting
from mofa_model.units import Bytes, Ratio, Seconds

_ASKED: Final = {"offload": Rejection.OFFLOAD_UNPROVEN, "graphs": Rejection.GRAPHS_UNNEEDED}
"""Rules that a constraint on an axis lifts."""

_PLAINEST: Final = Strategy()
KEEP = 64
"""Strategies that are kept for every number of nodes: what is shown, and room for the replay to
reorder."""


@dataclass(frozen=True, kw_only=True)
class SearchCase:
    """A model at one precision, with the machines and constants that belong to it."""

    workload: Workload
    """Model and training."""
    cluster: Cluster
    """Machines; the number of devices is not looked at."""


@dataclass(frozen=True, kw_only=True)
class SearchQuestion:
    """What is searched."""

    problems: tuple[SearchCase, ...]
    """One for each precision that may be used."""
    nodes: tuple[int, ...]
    """Node counts that may be used."""
    framework: Framework = field(default_factory=framework)
    constraints: tuple[Constraint, ...] = ()
    """What fixes, lists or bounds axes."""
    lifted: frozenset[Rejection] = frozenset()
    """Expert rules that are not applied."""
    built: tuple[str, ...] = ()
    """Axes of which every value is searched, whether the trainer has it or somebody has to build
    it."""
    keep: int = KEEP
    """Strategies to keep for every number of nodes."""
    apart: bool = False
    """Whether of the strategies of one shape (degrees and schedule) only the best is kept."""
    score: Callable[[SearchCase, int], Score] = lambda *_: step_alone
    """The objective of a case on a number of nodes."""
    least_score: Callable[[SearchCase, int, Bytes], float] = lambda *_: 1.0
    """Score over step time, never below this where no checkpoint has fewer bytes than the last
    argument."""
    has: Callable[[Axis, Any], bool] = lambda _axis, _value: True
    """Which values of the axes some measured run has."""
    factor: Callable[[SearchCase, Axes], Factor] = lambda *_: nothing_lost
    """What a strategy may lose beside its score, on some axes."""
    share: Ratio = 1.0
    """Of a device's memory what an estimate may take. [1]"""
    effort: Effort = field(default_factory=Effort)
    """What is left to spend; searches of one question share it."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One of the best."""

    strategy: Strategy
    """As one layout."""
    problem: SearchCase
    """Its precision, with its machines and their number."""
    nodes: int
    score: float
    """Objective; lower is better."""
    weighted_score: float
    """The objective times what it may lose, by the search's factor."""
    step_seconds: Seconds
    memory_bytes: Bytes
    """What it takes on the fullest device. [B]"""
    counted_memory: Bytes
    """What of it is counted, not estimated. [B]"""
    index: int
    """Raw index: of two with one score the smaller is the plainer."""

    @property
    def estimated(self) -> Ratio:
        """Share of its memory that is estimated, not counted. [1]"""
        return max(0.0, 1.0 - self.counted_memory / self.memory_bytes)


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The result of a search."""

    best: Mapping[int, tuple[Candidate, ...]]
    """For every number of nodes the best, best first."""
    raw: int
    """Combinations of all axis values."""
    searched: int
    """Strategies that are legal and fit."""
    pruned: int
    """Left out because another one is proved to be at least as good."""
    rejected: Mapping[Rejection, int]
    """The others, by reason."""
    near: Candidate | None
    """The fastest that would fit with a little more device memory, on the most nodes that have
    one."""
    leanest: Candidate | None
    """Where nothing fits: the strategy that needs the least device memory."""
    axes: Axes
    stuck: tuple[str, Rejection] | None = None
    """Where no shape is legal: the axis at which the last ones fell, and why, on the most nodes."""


def search(question: SearchQuestion, advance: Callable[[float], None] = lambda _: None) -> Ranking:
    """The best strategies, with every combination of the axes counted, Eq. (42).

    `advance` is called with the share that is done.
    """
    try:
        return _search(question, advance)
    except Spent:
        raise TooLarge(_too_much(question)) from None


def _too_much(question: SearchQuestion) -> str:
    """What to do about a question that would take minutes."""
    numbers, recipes = len(question.nodes), len(question.problems)
    asked = [f"{numbers} numbers of nodes"] * (numbers > 1) + [f"{recipes} precisions"] * (
        recipes > 1
    )
    fewer = f"ask about fewer than {' and '.join(asked)}, " if asked else ""
    return (
        "nodes: the question has more layouts than one answer may look at; "
        f"{fewer}name the trainer where none is named, "
        "or constrain an axis with many values, for example pp<=16 or mbs=1"
    )


def require(question: SearchQuestion) -> None:
    """Refuse, before a search, what the trainer cannot train or has no argument for."""
    question.framework.require(question.problems[0].workload)
    _axes_of(question)


def allows(question: SearchQuestion, strategy: Strategy) -> bool:
    """Whether a layout is within the constraints, and the trainer has all of its values."""
    axes = _axes_of(question)
    named = named_keys(question.constraints)
    for axis in acting(strategy):
        value = axis.value_of(strategy)
        if not axis.supported_by(question.framework, value):
            return False
        if any(word.key in named for word in axis.keys) and value not in axes[axis.name]:
            return False
    numbers = {"dp": float(strategy.dp), "micro_batches": _micro_batches(question, strategy)}
    return all(low <= numbers[name] <= high for name, (low, high) in axes.bounds.items())


def _micro_batches(question: SearchQuestion, strategy: Strategy) -> float:
    """Micro-batches of a step of a layout. [1]"""
    batch = question.problems[0].workload.training.global_batch
    return float(batch / strategy.global_micro_batch)


def _axes_of(question: SearchQuestion) -> Axes:
    """What the constraints leave of every axis."""
    first = question.problems[0]
    recipes = [p.workload.training.precision.name for p in question.problems]
    context = AxisContext(
        workload=first.workload,
        cluster=first.cluster,
        framework=question.framework,
        nodes=tuple(question.nodes),
        precisions=tuple(recipes),
    )
    axes = constrained(known_axes(context), question.constraints)
    require_words(question.framework, axes, question.constraints, question.built)
    return axes


def _search(question: SearchQuestion, advance: Callable[[float], None]) -> Ranking:
    """Try all degrees of parallelism on all numbers of nodes; returns the best strategies
    by rank.
    """
    full, rejected = _axes_of(question), Counter[Rejection]()
    axes = _searched_axes(question, full, rejected)
    best: dict[int, list[Candidate]] = {}
    near: list[Candidate] = []
    leanest: list[Candidate] = []
    searched = pruned = 0
    first, effort = question.problems[0], question.effort
    effort.of(first.workload.model)
    stuck: tuple[str, Rejection] | None = None
    share = 1.0 / max(1, len(axes["nodes"]) * len(question.problems))
    for problem in question.problems if axes.raw else ():
        for nodes in axes["nodes"]:
            cluster = replace(problem.cluster, gpus=nodes * int(first.cluster.gpus_per_node))
            case = SearchCase(workload=problem.workload, cluster=cluster)
            context = _context_of(question, axes, case)
            # Effort is spent before each table is made, so a dear question stops before it is slow.
            effort.spend(NUMBER)
            shapes = shapes_of(axes, context, nodes, rejected)
            effort.spend(ROW * shapes.made + SHAPE * len(shapes.index))
            if not len(shapes.index):
                stuck = shapes.stuck
                continue
            effort.spend(PLACE)
            shapes = with_features(axes, context, shapes, rejected)
            leaders = _leaders(question, axes, case, nodes, shapes, rejected)
            if shapes.strategies.any():
                price(axes, context, shapes, leaders, advance, share / len(shapes.index))
            searched, pruned = searched + leaders.searched, pruned + leaders.pruned
            best.setdefault(nodes, []).extend(_led(axes, case, nodes, leaders))
            if leaders.near_index >= 0:
                row = leaders.near_memory, leaders.near_step, leaders.near_step
                near.append(_candidate_at(axes, case, nodes, leaders.near_index, *row))
            if not leaders.searched and leaders.leanest_index >= 0:
                row = leaders.leanest_memory, np.inf, np.inf
                leanest.append(_candidate_at(axes, case, nodes, leaders.leanest_index, *row))
    # Of candidates with one score and step the plainer comes first.
    for candidates in best.values():
        candidates.sort(key=lambda c: (c.weighted_score, c.step_seconds, c.index))
    return Ranking(
        best={
            nodes: tuple(candidates[: question.keep])
            for nodes, candidates in best.items()
            if candidates
        },
        raw=full.raw,
        searched=searched,
        pruned=pruned,
        rejected=+rejected,
        near=min(near, key=lambda c: (-c.nodes, c.step_seconds), default=None),
        leanest=None if searched else min(leanest, key=lambda c: c.memory_bytes, default=None),
        axes=axes,
        stuck=stuck,
    )


def _searched_axes(question: SearchQuestion, full: Axes, rejected: Counter[Rejection]) -> Axes:
    """The values that are searched: those of the trainer, and where the question does not lift that
    rule, of measured runs. The combinations of the others are counted.
    """
    axes = full.supported_by(question.framework, question.built)
    rejected[Rejection.NOT_IN_FRAMEWORK] += full.raw - axes.raw
    if Rejection.NOT_MEASURED not in question.lifted:
        every, axes = axes, axes.known(question.has, named_keys(question.constraints))
        rejected[Rejection.NOT_MEASURED] += every.raw - axes.raw
    return axes


def _context_of(question: SearchQuestion, axes: Axes, case: SearchCase) -> AxisContext:
    """What the rules of axes see of a case. Who constrains offloading or graphs asks for them."""
    wanted = {_ASKED[key] for key in named_keys(question.constraints) if key in _ASKED}
    return AxisContext(
        workload=case.workload,
        cluster=case.cluster,
        framework=question.framework,
        lifted=question.lifted | wanted,
        bounds=axes.bounds,
        memory_share=question.share,
    )


def _leaders(
    question: SearchQuestion,
    axes: Axes,
    case: SearchCase,
    nodes: int,
    shapes: Shapes,
    rejected: Counter[Rejection],
) -> Leaders:
    """The leaders of a case before any is found: how they are scored, and what was left out
    so far.
    """
    saved = least_checkpoint(axes, case.workload)
    return Leaders(
        keep=question.keep,
        factor=question.factor(case, axes),
        score=question.score(case, nodes),
        least_score=question.least_score(case, nodes, saved),
        apart=question.apart,
        effort=question.effort,
        pruned=shapes.pruned,
        rejected=rejected,
    )


def _led(axes: Axes, case: SearchCase, nodes: int, leaders: Leaders) -> Iterator[Candidate]:
    """The best of a case, as candidates."""
    rows = zip(
        leaders.index.tolist(),
        axes.fields_of(leaders.index),
        leaders.memory_bytes.tolist(),
        leaders.step_seconds.tolist(),
        leaders.scores.tolist(),
        leaders.expected.tolist(),
        leaders.counted_memory.tolist(),
        strict=True,
    )
    return (_candidate(case, nodes, *row) for row in rows)


def _candidate_at(
    axes: Axes, case: SearchCase, nodes: int, index: int, memory: float, step: float, score: float
) -> Candidate:
    fields = axes.fields_of(np.array([index]))[0]
    return _candidate(case, nodes, index, fields, memory, step, score)


def _candidate(
    case: SearchCase,
    nodes: int,
    index: int,
    fields: Mapping[str, Any],
    memory: float,
    step: float,
    score: float,
    weighted_score: float = np.inf,
    counted_memory: float = 0.0,
) -> Candidate:
    return Candidate(
        strategy=strategy_of(fields, case.cluster, nodes),
        problem=case,
        nodes=nodes,
        score=score,
        weighted_score=weighted_score,
        step_seconds=step,
        memory_bytes=memory,
        counted_memory=counted_memory,
        index=index,
    )


def strategy_of(fields: Mapping[str, Any], cluster: Cluster, nodes: int) -> Strategy:
    """The strategy of a combination of axis values, by its fields, on a number of nodes."""
    shard = fields["shard"]
    if shard == IN_NODE:
        shard = int(np.floor(cluster.domain / fields["tp"]))
    gpus = nodes * int(cluster.gpus_per_node)
    dp = gpus // (fields["tp"] * fields["pp"] * fields["cp"])
    # The rules of the axes have checked it.
    return varied(_PLAINEST, **{**fields, "dp": dp, "shard": shard})
