"""What it is worth to notice a hang sooner: the same job, with a watchdog that ends processes which make no step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mofa_model.reliability import model
from mofa_model.reliability.model import Job
from mofa_model.units import Count, Ratio, Seconds

LEAST: Final = 240.0
"""Shortest watchdog that is advised: less ends runs that load, save or evaluate. Ours. [s]"""
STEPS: Final = 5
"""Steps that may be missing before a run hangs, as the alert on stuck jobs has it. [1]"""


@dataclass(frozen=True, slots=True)
class Watchdog:
    """A watchdog, and what it is worth."""

    timeout: Seconds
    """Time without a step after which it ends the processes. [s]"""
    worth: Ratio
    """ETTR with it minus ETTR without. [1]"""


def watchdog(job: Job, steps: Count, every: tuple[int, ...]) -> Watchdog | None:
    """The shortest watchdog that lets five steps and a save pass, in whole minutes; None where hangs end no later. Ours. [s, 1]

    >>> from mofa_model.spec.reliability import Hangs, Reliability, paper_classes
    >>> hung = Reliability(classes=paper_classes(), hangs=Hangs(timeout=900.0))
    >>> job = Job(nodes=512, step_time=10.0, blocking=(20.0,), background=(0.0,), reliability=hung)
    >>> found = watchdog(job, 60, (1,))
    >>> found.timeout, round(100 * found.worth, 1)
    (240.0, 1.8)
    """
    hangs = job.reliability.hangs
    if hangs is None:
        return None
    longest = STEPS * float(job.step_time) + max(float(x) for x in job.blocking)
    timeout = 60.0 * float(np.ceil(max(LEAST, longest) / 60.0))
    if timeout >= hangs.timeout:
        return None
    sooner = replace(
        job, reliability=replace(job.reliability, hangs=replace(hangs, timeout=timeout))
    )
    gain = model.ettr(sooner, steps, every) - model.ettr(job, steps, every)
    return Watchdog(timeout, float(gain))
