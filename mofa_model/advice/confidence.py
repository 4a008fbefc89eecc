"""How sure an answer is: bands on its predictions, and what lowers confidence."""

from __future__ import annotations

import math
from dataclasses import replace

from mofa_model.advice.answer import FailureInput, Predicted
from mofa_model.advice.finalists import Priced
from mofa_model.advice.request import Request
from mofa_model.advice.saves import best_interval, job_of, steps_to_finish
from mofa_model.advice.verdict import DOUBTED
from mofa_model.advice.weighed import seen_of
from mofa_model.bands import Basis, basis_of, coordinates
from mofa_model.estimate.step import least_step, tokens_per_second, utilisation
from mofa_model.reliability import Interval, ettr_band
from mofa_model.units import DAY, Range, Ratio


def predicted(request: Request, one: Priced, nodes: int) -> tuple[Predicted, Interval]:
    """What a strategy is expected to do, with bands, at its best checkpoint interval; what running jobs taught is in it."""
    w, c = one.problem.workload, one.problem.cluster
    seen = seen_of(request, (coordinates(w, c, one.strategy),))
    told = {name: math.exp(float(centre[0])) for name, centre in seen.centres.items()}
    step = one.step_time * float(request.learned) * told["step"]
    job = job_of(request, one.problem, nodes, one.strategy, step)
    interval = best_interval(request, job)
    ettr = ettr_band(job, interval.steps, interval.every)
    time, memory = seen.band("step"), seen.band("memory")
    # No run is faster than its devices, and none holds less than its weights and their states.
    low = min(1.0, max(time.lower, float(least_step(w, c)) / step))
    peak = float(one.estimate.memory.peak) * told["memory"]
    least = max(peak * memory.lower, float(one.estimate.memory.states))
    speed = float(tokens_per_second(w, step))
    used = float(utilisation(w, c, step))
    steps = steps_to_finish(one.problem) if w.training.tokens else 0.0
    start = float(request.reliability.start) if steps else 0.0

    def finish(factor: float) -> float:
        return steps * step * factor / max(ettr.target, 1e-12) + start

    figures = Predicted(
        step_seconds=Range.around(step, step * low, step * time.upper),
        tokens_per_second=Range.around(speed, speed / time.upper, speed / low),
        mfu=Range.around(*(min(1.0, one) for one in (used, used / time.upper, used / low))),
        memory_bytes=Range.around(peak, least, peak * memory.upper),
        ettr=ettr,
        duration_seconds=Range.around(
            finish(1.0),
            finish(1.0 / _together(1.0 / low, ettr.upper / max(ettr.target, 1e-12))),
            finish(_together(time.upper, ettr.target / max(ettr.lower, 1e-12))),
        ),
    )
    return figures, interval


def _together(one: float, other: float) -> float:
    """How far two factors of 1 or more that know nothing of each other go together, as often as each alone. [1]"""
    return math.exp(math.hypot(math.log(max(1.0, one)), math.log(max(1.0, other))))


def basis(request: Request, one: Priced, told: Predicted) -> Basis:
    """What a prediction rests on; its band is the one that is told, which short runs make narrower."""
    found = basis_of(
        request.runs, coordinates(one.problem.workload, one.problem.cluster, one.strategy)
    )
    return replace(found, within=told.step_seconds.upper / told.step_seconds.target - 1.0)


def confidence(request: Request, one: Priced, found: Basis) -> tuple[Ratio, tuple[str, ...]]:
    """Probability that the bands hold, and what is to be said of it beside the grade of evidence and the doubts."""
    sure, caveats = found.confidence, [*request.notes]
    if not found.runs:
        if not request.tried:
            caveats.append("one run of yours narrows the bands (mofa calibrate --from-runs)")
    elif found.largest < one.problem.cluster.gpus:
        caveats.append(
            f"no measured run of this stack on these devices used more than {found.largest} of them"
        )
    if not one.replayed and one.strategy.pp > 1:
        caveats.append("the pipeline is too long to replay; its closed form was used")
    if request.caveats:
        sure = min(sure, DOUBTED)
    return sure, tuple(caveats)


def failure_inputs(request: Request) -> tuple[FailureInput, ...]:
    """The failure rates that an answer uses."""
    return tuple(
        FailureInput(
            name=c.name, per_node_day=c.rate.mean * DAY, recovery_seconds=float(c.recovery.mean)
        )
        for c in request.reliability.classes
    )
