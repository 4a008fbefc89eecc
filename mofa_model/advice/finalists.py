"""Replays the finalists: their pipelines are walked operation by operation, uneven stages as they are.

The search uses closed forms, which are exact for equal stages. Among the best few, whose times differ by little, the order
is settled by the replay, and its figure is the one that is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.estimate import Estimate, estimate
from mofa_model.estimate.step import StepTime, hop_time, step_terms
from mofa_model.placement import kind_of_stages
from mofa_model.schedules.replay import StageTimes, replay
from mofa_model.search import SearchCase
from mofa_model.strategy import Strategy

MOST_OPERATIONS: Final = 30_000
"""Operations of a pipeline that are walked; one with more keeps its closed form, whose bubble is a small part then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Priced:
    """A strategy with its figures in full."""

    strategy: Strategy
    """As one layout."""
    problem: SearchCase
    """Model, machines and their number."""
    estimate: Estimate
    """Every term by the closed forms."""
    step: StepTime
    """The step's parts, the pipeline's by replay where it was walked."""
    replayed: bool
    """Whether it was."""

    @property
    def step_time(self) -> float:
        """One optimizer step. [s]"""
        return float(self.step.total)


def priced(problem: SearchCase, strategy: Strategy) -> Priced:
    """One strategy in full."""
    return priced_together([(problem, strategy)])[0]


def priced_together(some: Sequence[tuple[SearchCase, Strategy]]) -> list[Priced]:
    """Strategies in full; those that walk the same order are walked together."""
    found = [estimate(problem.workload, problem.cluster, strategy) for problem, strategy in some]
    walks: dict[tuple[Any, ...], list[int]] = {}
    for at, ((_, s), one) in enumerate(zip(some, found, strict=True)):
        if s.pp > 1 and 2 * s.pp * s.vpp * one.micro_batches <= MOST_OPERATIONS:
            key = (s.schedule, s.pp, int(one.micro_batches), s.vpp, s.pipeline_overlap)
            walks.setdefault(key, []).append(at)
    steps = {at: one.step for at, one in enumerate(found)}
    for members in walks.values():
        replayed = _replayed([(*some[at], found[at]) for at in members])
        steps |= dict(zip(members, replayed, strict=True))
    walked = {at for members in walks.values() for at in members}
    return [
        Priced(
            strategy=s, problem=problem, estimate=found[at], step=steps[at], replayed=at in walked
        )
        for at, (problem, s) in enumerate(some)
    ]


def _replayed(some: list[tuple[SearchCase, Strategy, Estimate]]) -> list[StepTime]:
    """Steps with the pipeline's time from the replay, hops included; all of one order."""
    _, s, first = some[0]
    order = s.schedule.order(int(s.pp), int(first.micro_batches), int(s.vpp))
    chunks = np.stack([_chunks(*one) for one in some], axis=-1)
    forward = np.array([float(one.stage.forward_share) for _, _, one in some])
    weight = np.array([float(one.stage.weight_share) for _, _, one in some])
    hops = np.array([[float(hop_time(p.workload, p.cluster, s)) for p, s, _ in some]])
    # The same walk with and without hops, side by side.
    makespan = replay(
        order,
        StageTimes(
            forward=_twice(chunks * forward),
            input_gradient=_twice(chunks * (1.0 - forward - weight)),
            weight_gradient=_twice(chunks * weight),
            hop=np.concatenate([0.0 * hops, hops], axis=1),
        ),
        blocking=not s.pipeline_overlap,
    ).makespan
    alone, with_hops = np.split(np.asarray(makespan), 2)
    return [
        step_terms(
            problem.cluster,
            slowest=one.stage.slowest,
            micro_batches=one.micro_batches,
            pipeline=float(alone[at]),
            hops=float(with_hops[at] - alone[at]),
            data=one.step.data,
            embedding=one.step.embedding,
            optimizer=one.step.optimizer,
        )
        for at, (problem, _, one) in enumerate(some)
    ]


def _chunks(problem: SearchCase, s: Strategy, found: Estimate) -> NDArray[Any]:
    """Time of every virtual stage for one micro-batch, forward and backward. [s]"""
    kinds = kind_of_stages(problem.workload.model, s, problem.cluster.calibration.placement)
    chunks = np.asarray(found.stage.total)[kinds] / s.vpp
    return (
        np.concatenate([chunks, chunks[::-1]]) if s.schedule.folded else np.tile(chunks, int(s.vpp))
    )


def _twice(times: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([times, times], axis=-1)
