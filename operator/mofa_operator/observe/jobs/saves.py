"""How often a job saves: pure, from what is seen of it, what its pods are told, and its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mofa_model.annotations import PREFIX
from mofa_model.identity import identify, pods_of
from mofa_model.kinds.patches import INTERVAL
from mofa_model.kinds.shape import Beside, part
from mofa_operator.objects import LiveObject, LiveTrainingJob, figure
from mofa_operator.snapshot import JobSnapshot

_SHORTEST: Final = 10.0
"""Least time between two saves that is believed, as of `spec.incidents.checkpointSeconds`. [s]"""
_LONGEST: Final = 604_800.0
"""Greatest time between two saves that is believed, likewise. [s]"""


def time_between_saves(snapshot: JobSnapshot) -> float | None:
    """Time between two saves of a job; None where nothing says it. [s]

    What its trainer is seen to do goes first. Else it is the number of steps that its pods or its
    manifest say, in steps as long as they are seen to be, or as they are predicted.
    """
    job, running = snapshot.job, snapshot.running
    found = None if running is None else running.checkpoint_interval
    if not found and isinstance(job, LiveTrainingJob):  # it is over, or nobody looked yet
        found = job.status.observed.checkpoint_interval_seconds
    if not found:
        steps, step = _stated_steps(snapshot), _step_seconds(snapshot)
        found = None if steps is None or step is None else steps * step
    return found if found and _SHORTEST <= found <= _LONGEST else None


def _stated_steps(snapshot: JobSnapshot) -> float | None:
    """Steps between two saves: what we put on its pods, else what its manifest says. [1]"""
    body = (snapshot.target or snapshot.job).body
    for form in pods_of(part(body, "spec")):
        if steps := figure(form.annotations.get(INTERVAL)):
            return steps
    stated = identify(body, Beside(snapshot.beside)).facts.get("checkpoint_interval")
    return None if stated is None else figure(stated.value)


def _step_seconds(snapshot: JobSnapshot) -> float | None:
    """Time of a step as it is seen, else as it was predicted with the answer. [s]"""
    job, running = snapshot.job, snapshot.running
    if running is not None and running.step_seconds:
        return running.step_seconds
    if isinstance(job, LiveTrainingJob) and (seen := job.status.observed.step_milliseconds):
        return seen / 1000.0
    told = _told(job)
    return told["seconds"] / told["steps"] if all(told.values()) else None


def _told(job: LiveObject) -> Mapping[str, float]:
    """What was advised, in steps and in seconds: their ratio is the predicted step."""
    return {
        unit: figure(job.annotations.get(f"{PREFIX}checkpoint-interval-{unit}")) or 0.0
        for unit in ("steps", "seconds")
    }
