"""Checkpoints of a strategy: what a save costs, the best interval, and the score that the search minimises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model import units
from mofa_model.advice.request import Request
from mofa_model.estimate.saved import checkpoint_replicas, checkpoint_size
from mofa_model.reliability import Interval, Job, best_ettr, recommend, watchdog
from mofa_model.reliability.checkpoint import bytes_per_node, save_times
from mofa_model.search import Score, SearchCase
from mofa_model.strategy import Strategy
from mofa_model.units import Bytes, Numeric, Seconds

_SOON = 1e-6
"""A step so short that rounding an interval to whole steps costs nothing, as a share of a save."""


def save_costs(
    request: Request, problem: SearchCase, nodes: int, saved: Numeric, replicas: Numeric
) -> tuple[tuple[Numeric, ...], tuple[Numeric, ...]]:
    """Blocking and background time of a save, by tier. [s]

    `saved` is what the estimate says of the bytes of a checkpoint; a request that states them is believed.
    """
    size = saved if request.checkpoint_bytes is None else request.checkpoint_bytes
    per_node = problem.cluster.gpus_per_node
    writers = nodes * per_node / replicas
    share = bytes_per_node(size, writers, per_node)
    pairs = [save_times(tier, size, share) for tier in request.reliability.tiers]
    return tuple(blocking for blocking, _ in pairs), tuple(background for _, background in pairs)


def steps_to_finish(problem: SearchCase) -> float:
    """Optimizer steps of the run; 1 where no number of tokens is stated. [1]"""
    training = problem.workload.training
    if not training.tokens:
        return 1.0
    return float(np.ceil(training.tokens / (training.global_batch * training.sequence)))


def score_of(request: Request, problem: SearchCase, nodes: int, saved: Bytes) -> Score:
    """What the search minimises on a number of nodes: the step, the time to finish, or the GPU time to finish. [s]

    No strategy that is scored saves less than `saved` bytes.
    """
    learned = float(request.learned)
    if request.objective == "throughput":
        return Score(of=lambda step, *_: step * learned, least=learned)
    weight = steps_to_finish(problem)
    if request.objective == "cost":
        weight = weight * nodes * float(problem.cluster.gpus_per_node)

    def finish(modelled: NDArray[Any], saved: NDArray[Any], replicas: NDArray[Any]) -> NDArray[Any]:
        step = modelled * learned
        blocking, background = save_costs(request, problem, nodes, saved, replicas)
        most = (
            np.inf
            if request.most_interval is None
            else np.maximum(1.0, np.floor(request.most_interval / step))
        )
        job = Job(
            nodes=nodes,
            step_time=step,
            blocking=blocking,
            background=background,
            reliability=request.reliability,
        )
        ettr = best_ettr(job, most=np.minimum(most, 1e13))
        return np.asarray(weight * step / np.maximum(ettr, 1e-12))

    # A step and a save that no strategy beats: the interval is free, and every rank writes.
    fastest, _ = save_costs(request, problem, nodes, saved, 1.0)
    shortest = max(1e-9, _SOON * float(np.max(fastest[0])))
    ideal = finish(np.array([shortest]), np.array([saved]), np.array([1.0]))
    return Score(of=finish, least=float(ideal[0] / shortest))


def job_of(
    request: Request, problem: SearchCase, nodes: int, strategy: Strategy, step: Seconds
) -> Job:
    """The job that a strategy makes, for the reliability model."""
    saved, replicas = (
        of(problem.workload, strategy) for of in (checkpoint_size, checkpoint_replicas)
    )
    blocking, background = save_costs(request, problem, nodes, saved, replicas)
    return Job(
        nodes=nodes,
        step_time=step,
        blocking=tuple(float(x) for x in blocking),
        background=tuple(float(x) for x in background),
        reliability=request.reliability,
    )


def of_watchdog(job: Job, interval: Interval) -> str:
    """What a watchdog on steps is worth, to go on with a sentence about ETTR; empty where nothing is said of hangs."""
    found = watchdog(job, interval.steps, interval.every)
    if found is None:
        return ""
    return f"; a watchdog of {units.format(float(found.timeout), 's')} is worth {100 * found.worth:.1f} points of it"


def best_interval(request: Request, job: Job) -> Interval:
    """The recommended interval, inside the bounds that were given."""
    step = float(job.step_time)
    most = 10**9 if request.most_interval is None else max(1, int(request.most_interval / step))
    found = recommend(job, most=most)
    least = min(most, int(np.ceil(request.least_interval / step)))
    return found if found.steps >= least else replace(found, steps=least)
