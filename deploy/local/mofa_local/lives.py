"""Pods of a made-up past (`synthetic.py`), from creation to deletion."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Final

from mofa_local.synthetic import Job, Past, moves, seating

CONTAINER_SHARE: Final = 0.25
"""Share of a process recovery in which the container is down; loading and lost steps are
the rest.
"""
POD_SHARE: Final = 0.6
"""Share of a pod or job recovery after which the new pods are ready."""


@dataclass(kw_only=True, slots=True)
class Life:
    """One pod."""

    job: Job
    """Its job."""
    attempt: int
    """Restart attempt of the whole job. [1]"""
    slot: int
    """Completion index. [1]"""
    node: str
    """Its node."""
    born: float
    """Creation, in seconds of the epoch. [s]"""
    ready: float
    """When it was ready. [s]"""
    died: float | None = None
    """Deletion; None = it still runs. [s]"""
    restarts: list[tuple[float, float]] = field(default_factory=list)
    """Restarts of its container: when it ended, when it started again. [s]"""

    @property
    def uid(self) -> str:
        """The pod's uid, from job, slot and birth: one past always gives the same uids."""
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.job.name}/{self.slot}/{self.born}"))


def lives(past: Past) -> list[Life]:
    """Every pod that was, in order of birth."""
    jobs = {job.name: job for job in past.jobs}
    start = float(past.start)
    now = {
        (name, slot): Life(job=jobs[name], attempt=0, slot=slot, node=node, born=start, ready=start)
        for (name, slot), node in seating(past).items()
    }
    every = list(now.values())
    for incident, (_, node) in zip(past.incidents, moves(past), strict=True):
        for seat in [seat for seat in now if seat[0] == incident.job]:
            life = now[seat]
            if incident.level == "process":
                life.restarts.append(
                    (incident.at, round(incident.at + CONTAINER_SHARE * incident.recovery))
                )
            elif incident.level == "job" or seat[1] == incident.slot:
                life.died = incident.at
                now[seat] = Life(
                    job=life.job,
                    attempt=life.attempt + (incident.level == "job"),
                    slot=life.slot,
                    node=life.node if incident.level == "job" else node,
                    born=incident.at + 1.0,
                    ready=round(incident.at + POD_SHARE * incident.recovery),
                )
                every.append(now[seat])
    return every
