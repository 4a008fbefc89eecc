"""A pipeline's timeline by plain loops, step by step: the replay of the product is held against it."""

from dataclasses import dataclass

import numpy as np

from mofa_model.schedules.schedule import OperationKind

FORWARD, BACKWARD, WEIGHT = (
    OperationKind.FORWARD,
    OperationKind.BACKWARD,
    OperationKind.WEIGHT_GRADIENT,
)


@dataclass
class Timeline:
    """When each device computes, and for how long; the first axis counts devices."""

    starts: list[list]
    busy: list
    idle: list
    makespan: object


def timeline(order, *, forward, input_gradient, weight_gradient, hop=0.0, pair=1.0, blocking=False):
    """Walk an order; times are as `makespan` takes them."""
    device = {o[1:]: i for i, steps in enumerate(order) for step in steps for o in step}
    depth = 1 + max(stage for stage, _ in device)
    f, i, w = (np.broadcast_to(x, (depth,)) for x in (forward, input_gradient, weight_gradient))
    hops = np.broadcast_to(hop, (max(depth - 1, 1),))
    takes = {OperationKind.INPUT_GRADIENT: i, FORWARD: f, WEIGHT: w, BACKWARD: i + w}

    def hop_between(stage, other, j):
        there = 0 <= other < depth and device[stage, j] != device[other, j]
        return hops[min(stage, other)] if there else 0.0

    results, starts, busy = {}, [[] for _ in order], [0.0 for _ in order]
    free = list(busy)
    todo = [list(steps) for steps in order]
    while any(todo):
        for at, steps in enumerate(todo):
            while steps and all(need in results for o in steps[0] for need in needs(o, depth)):
                step = steps.pop(0)
                start = free[at]
                for o in step:
                    for back, stage, j in needs(o, depth):
                        late = 0.0 if blocking else hop_between(stage, o.virtual_stage, j)
                        start = max(start, results[back, stage, j] + late)
                took = sum(takes[o.kind][o.virtual_stage] for o in step)
                took = took if len(step) == 1 else pair * took
                end = start + took
                for o in step:
                    back = o.kind is not FORWARD
                    if o.kind is WEIGHT:
                        continue
                    if blocking:
                        stage = o.virtual_stage
                        end += hop_between(stage, stage + (-1 if back else 1), o.microbatch)
                    results[back, o.virtual_stage, o.microbatch] = end
                starts[at].append(start)
                busy[at] += took
                free[at] = end
    makespan = max(free)
    return Timeline(starts, busy, [makespan - seconds for seconds in busy], makespan)


def needs(o, depth):
    """Results without which an operation cannot begin: by direction, virtual stage, micro-batch."""
    k, j = o.virtual_stage, o.microbatch
    if o.kind is FORWARD:
        return [(False, k - 1, j)] if k else []
    if o.kind is WEIGHT:
        return [(True, k, j)]
    return [(False, k, j), *([(True, k + 1, j)] if k < depth - 1 else [])]
