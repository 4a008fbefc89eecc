"""Facts of a job that the account of a pool needs and no series of Prometheus has: how often it
saves, and whether it wants nodes. They come from what is seen of it, its pods and its manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mofa_model.annotations import PREFIX
from mofa_model.identity import identify, pods_of
from mofa_model.kinds import JobKind
from mofa_model.kinds.patches import INTERVAL
from mofa_model.kinds.shape import ReferencedObjects, part
from mofa_operator.incidents.incident import JobFacts
from mofa_operator.objects import LiveObject, LiveTrainingJob, figure
from mofa_operator.snapshot import JobSnapshot

_SHORTEST: Final = 10.0
"""Least time between two saves that is believed, as for `spec.incidents.checkpointSeconds`. [s]"""
SEEN: Final = 0.02
"""Relative error of a time between saves where steps are seen. Ours. [1]"""
PREDICTED: Final = 0.08
"""The same where the time of a step is predicted: half of the predictions are within 4 %. [1]"""
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Label of a job that Kueue suspends and starts again."""
_LONGEST: Final = 604_800.0
"""Greatest time between two saves that is believed. [s]"""


def job_facts(snapshot: JobSnapshot) -> JobFacts:
    """What is known of a job."""
    job, running = snapshot.target or snapshot.job, snapshot.running
    observation = (
        job.key.kind.observed(job.body, snapshot.now) if isinstance(job.key.kind, JobKind) else None
    )
    return JobFacts(
        saves_every=time_between_saves(snapshot),
        saves_off=SEEN if _seen_interval(snapshot) or _seen_step(snapshot) else PREDICTED,
        save_seconds=None if running is None else running.save_seconds,
        wanted=observation is not None
        and observation.ended is None
        and (observation.suspended is None or _queued(job)),
    )


def _queued(job: LiveObject) -> bool:
    """Whether a queue suspended the job and will start it again."""
    return _QUEUE in job.labels


def time_between_saves(snapshot: JobSnapshot) -> float | None:
    """Time between two saves of a job; None where nothing says it. [s]

    The time that is seen of its trainer comes first. Else it is the number of steps that its pods
    or its manifest say, times the time of a step as it is seen or predicted.
    """
    seconds = _seen_interval(snapshot)
    if not seconds:
        steps, step = _stated_steps(snapshot), _seen_step(snapshot) or _predicted_step(snapshot)
        seconds = None if steps is None or step is None else steps * step
    return seconds if seconds and _SHORTEST <= seconds <= _LONGEST else None


def _seen_interval(snapshot: JobSnapshot) -> float | None:
    """Time between two saves as it is seen; None = nobody looked. [s]"""
    job, running = snapshot.job, snapshot.running
    interval = None if running is None else running.checkpoint_interval
    if not interval and isinstance(job, LiveTrainingJob):  # it is over, or nobody looked yet
        interval = job.status.observed.checkpoint_interval_seconds
    return interval or None


def _stated_steps(snapshot: JobSnapshot) -> float | None:
    """Steps between two saves: what we put on its pods, else what its manifest says. [1]"""
    body = (snapshot.target or snapshot.job).body
    for form in pods_of(part(body, "spec")):
        if steps := figure(form.annotations.get(INTERVAL)):
            return steps
    stated = identify(body, ReferencedObjects(snapshot.beside)).facts.get("checkpoint_interval")
    return None if stated is None else figure(stated.value)


def _seen_step(snapshot: JobSnapshot) -> float | None:
    """Time of a step as it is seen; None = nobody looked. [s]"""
    job, running = snapshot.job, snapshot.running
    if running is not None and running.step_seconds:
        return running.step_seconds
    if isinstance(job, LiveTrainingJob) and (milliseconds := job.status.observed.step_milliseconds):
        return milliseconds / 1000.0
    return None


def _predicted_step(snapshot: JobSnapshot) -> float | None:
    """Time of a step as it was predicted with the answer. [s]"""
    advised = _advised_interval(snapshot.job)
    return advised["seconds"] / advised["steps"] if all(advised.values()) else None


def _advised_interval(job: LiveObject) -> Mapping[str, float]:
    """The advised interval in steps and in seconds; their ratio is the predicted step time."""
    return {
        unit: figure(job.annotations.get(f"{PREFIX}checkpoint-interval-{unit}")) or 0.0
        for unit in ("steps", "seconds")
    }
