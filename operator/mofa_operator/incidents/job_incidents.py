"""Interruptions of jobs as incidents: when training stopped and went on, in which phases, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import median
from typing import Final

from mofa_model.spec import incident_causes as causes
from mofa_operator.incidents.episodes import Episode, by_job, episodes
from mofa_operator.incidents.incident import Incident
from mofa_operator.incidents.job_causes import REACTION, JobSurroundings, cause_of, gave_up
from mofa_operator.incidents.pod_life import PodLife

COLLECTIVE: Final = 600.0
"""Usual timeout of a collective, where nobody sees when training stopped. [s]"""
LOADING: Final = 240.0
"""Time from the last container's start to the first step, where nobody saw it of any job of the pool: a prior. Ours. [s]"""


def job_incidents(
    pods: Mapping[str, PodLife], around: JobSurroundings, until: float
) -> list[Incident]:
    """Incidents of all jobs, in order."""
    found: list[Incident] = []
    for job, many in sorted(by_job(pods).items()):
        every, helpers = episodes(job, many, until, around.step, around.silences)
        found += [
            Incident(
                kind="job",
                name=job,
                start=one.at,
                end=one.again,
                cause=causes.SIDECAR,
                evidence=(f"container {one.container} alone restarted",),
            )
            for _, one in helpers
        ]
        before: Episode | None = None
        last = earlier = 0.0
        for episode in _until_trained(every, around):
            one, blamed = _incident(episode, around, last)
            if before is not None and blamed is not None and gave_up(before, episode, blamed):
                found.pop()
                last, before = earlier, replace(before, later=(*before.later, *episode.downs))
                one, blamed = _incident(before, around, last)
            else:
                before = None if one is None else episode
            found += [] if one is None else [one]
            earlier = last
            last = max(last, episode.running or 0.0, 0.0 if blamed is None else blamed.start)
    return _timed(sorted(found, key=lambda one: (one.start, one.name)))


def _until_trained(every: Sequence[Episode], around: JobSurroundings) -> list[Episode]:
    """Interruptions of a job as one where it is known that it did not train between them."""
    found: list[Episode] = []
    for one in every:
        running = found[-1].running if found else None
        begun = None if running is None else _training(found[-1], around, running)[1]
        if begun is not None and begun > one.start + around.step:
            found[-1] = replace(found[-1], later=(*found[-1].later, *one.downs))
        else:
            found.append(one)
    return found


def _incident(
    one: Episode, around: JobSurroundings, last: float
) -> tuple[Incident | None, Incident | None]:
    """An interruption as an incident, and the incident of a node that is to blame. `last` is until when all before was over. [s]"""
    running = one.running
    ended = [down.pod for down in one.downs if down.exit is None]
    if ended and all(pod.succeeded for pod in ended):
        done = Incident(
            kind="job",
            name=one.job,
            start=one.start,
            end=one.start,
            cause=causes.COMPLETED,
            evidence=("its pods succeeded",),
        )
        return done, None
    if running is None:
        return None, None
    stopped, begun, redone = _training(one, around, running)
    begun = None if begun == inf else begun
    stall = one.start - stopped if stopped is not None else None
    cause, said, blamed = cause_of(one, around, stall, last)
    start = one.start
    if blamed is None and not one.exits and any(a <= start <= b for a, b in around.silences):
        return None, None  # nobody looked, so nobody knows why: neither exposure nor count
    if blamed is not None and last < blamed.start <= start <= blamed.start + REACTION:
        start = blamed.start
    if stopped is not None and stopped <= one.start + around.step:
        start = stopped
    elif cause is causes.NCCL_TIMEOUT and stopped is None and blamed is None:
        start -= COLLECTIVE
    end = begun if begun is not None else running
    made = max(
        (down.next.created for down in one.replaced if down.next is not None), default=one.start
    )
    left = min(made, max((down.start for down in one.replaced), default=made))
    phases = {
        "detect": one.start - start if stopped is not None or blamed is not None else None,
        "drain": left - one.start if one.replaced else None,
        "queue": made - left if one.replaced else None,
        "start": running - max(made, one.start),
        "load": None if begun is None else begun - running,
        "redo": redone or None,
    }
    found = Incident(
        kind="job",
        name=one.job,
        start=start,
        end=end,
        cause=cause,
        evidence=said,
        level=one.level,
        timed=begun is not None,
        phases={name: max(0.0, time) for name, time in phases.items() if time is not None},
        stood=len({pod.node for pod in one.before if pod.node}),
        nodes=(blamed.name,)
        if blamed is not None and blamed.kind == "node"
        else blamed.nodes
        if blamed is not None
        else (),
    )
    return found, blamed


def _timed(found: list[Incident]) -> list[Incident]:
    """Incidents whose first step nobody saw last as long after their last start as is usual for the job, else in the pool."""
    loads: defaultdict[str, list[float]] = defaultdict(list)
    for one in found:
        for whose in (one.name, "") if "load" in one.phases else ():
            loads[whose].append(one.phases["load"])
    return [
        one
        if one.timed or one.level is None
        else _as_usual(one, loads.get(one.name) or loads.get(""))
        for one in found
    ]


def _as_usual(one: Incident, seen: Sequence[float] | None) -> Incident:
    load = median(seen) if seen else LOADING
    known = (
        f"the median of {len(seen)} that were seen" if seen else "a prior, for none was ever seen"
    )
    said = f"nobody saw its first step: {load:.0f} s of loading are {known}"
    return replace(one, end=one.end + load, evidence=(*one.evidence, said))


def _training(
    one: Episode, around: JobSurroundings, running: float
) -> tuple[float | None, float | None, float]:
    """When the job last trained before, and when it did again after, infinite for not yet; None where nobody saw it. Then the
    time of the steps that it did again. [s]
    """
    slack = 2 * around.step + 60.0
    if one.job in around.stalls:
        near = [
            stall
            for stall in around.stalls[one.job]
            if stall.stopped <= one.start + slack and stall.resumed >= one.start
        ]
        if not near:
            return None, None, 0.0
        found = min(near, key=lambda stall: abs(one.start - stall.stopped))
        return found.stopped, found.resumed, found.redone
    nodes = {pod.node for pod in one.before}
    after = nodes | {down.next.node for down in one.replaced if down.next is not None}
    spans = [span for node in nodes for span in around.busy.get(node, ())]
    if any(a < one.start and b > running for a, b in spans):
        return None, None, 0.0
    ends = [b for a, b in spans if a < one.start and b <= one.start + slack]
    begins = [
        a
        for node in after
        for a, _ in around.busy.get(node, ())
        if a > one.start and a >= running - 2 * around.step
    ]
    return max(ends, default=None), min(begins, default=None), 0.0
