"""How long a run takes with its failures, and the fewest nodes or spares with which it ends
in time.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import Final

import numpy as np

from mofa_model.checks import positive, share
from mofa_model.errors import BadValue
from mofa_model.reliability import model
from mofa_model.reliability.interval import recommend
from mofa_model.reliability.laws import NEVER
from mofa_model.reliability.model import Job
from mofa_model.units import Count, Ratio, Seconds

_MOST_NODES: Final = 2**20
"""Nodes up to which a deadline is tried. [1]"""


def finish_time(steps: Count, step_time: Seconds, ettr: Ratio, start: Seconds = 0.0) -> Seconds:
    """Expected wall time of a run: S t / ETTR + T_init; infinite where ETTR is zero. Eqs. (37),
    (43). [s]

    >>> float(finish_time(1000, 2.0, 0.8))
    2500.0
    """
    divisor = np.maximum(ettr, NEVER)
    with np.errstate(over="ignore"):
        return np.where(np.asarray(ettr) > 0, steps * step_time / divisor, np.inf)[()] + start


def run_time(job: Job, steps: float) -> Seconds:
    """Expected wall time of a run with its best interval. Ours, as Eq. (43). [s]"""
    best = recommend(job)
    return float(finish_time(steps, float(job.step_time), best.ettr, job.reliability.start))


def nodes_for(job: Job, steps: float, deadline: Seconds, scaling: float = 1.0) -> int | None:
    """Fewest nodes with which a run ends in time, where step time is proportional to
    nodes^-scaling; None where no number is enough. Ours. [1]

    More nodes are faster but fail more often, so beyond some number a run only gets slower.

    >>> from mofa_model.spec.reliability import Reliability, paper_classes
    >>> job = Job(nodes=256, step_time=30.0, blocking=(2.0,), background=(0.0,),
    ...           reliability=Reliability(classes=paper_classes(0.005)))
    >>> nodes_for(job, 100000, 20 * 86400.0)
    452
    """
    positive(deadline=deadline, steps=steps)
    share(scaling=scaling)

    def time(nodes: int) -> float:
        factor = (float(job.nodes) / nodes) ** scaling
        return float(run_time(replace(job, nodes=nodes, step_time=job.step_time * factor), steps))

    enough, shortest = 1, time(1)
    while shortest > deadline:
        enough *= 2
        if enough > _MOST_NODES:
            return None
        doubled = time(enough)
        if doubled >= shortest and enough > float(job.nodes):
            return None
        shortest = doubled
    return bisect_left(
        range(enough), True, lo=enough // 2 + 1, key=lambda nodes: time(nodes) <= float(deadline)
    )


MOST_SPARES: Final = 10_000
"""Most spare nodes that are tried. [1]"""


def spares_for_deadline(job: Job, steps: float, deadline: Seconds) -> int | None:
    """Fewest spare nodes that end a run in time; None where no number is enough. Ours. [1]"""
    positive(deadline=deadline, steps=steps)
    if job.reliability.spares is None:
        raise BadValue(
            "spares", None, "give the number of spares and the repair time that you have now"
        )
    never_waiting = replace(job, reliability=replace(job.reliability, spares=None))
    ideal, start = float(run_time(never_waiting, steps)), float(job.reliability.start)
    if ideal > float(deadline):
        return None

    def is_in_time(spares: int) -> bool:
        limited = replace(job, reliability=replace(job.reliability, spares=spares))
        return start + (ideal - start) / max(float(model.available(limited)), 1e-12) <= float(
            deadline
        )

    enough = 1
    while not is_in_time(enough):
        enough *= 2
        if enough > MOST_SPARES:
            return None
    return bisect_left(range(enough), True, key=is_in_time)
