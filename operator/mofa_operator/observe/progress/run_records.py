"""Records of running jobs, kept from look to look, and read from the job after a restart.

    Prometheus   steps one by one, throughput, pods         `Telemetry`
    watches      the object behind targetRef, nodes         its kind of jobs, the store

A job is alive, whatever its steps do, where its object, its pods or its trainer shows so, and none
of them shows that it is over:

    object    all of it is ready                 its kind of jobs, from the watch
    pods      all that live have nodes           kube-state-metrics, `Gang`
    trainer   its series exist                   `Telemetry.series_since`

A missing step is noticed where the trainer's series exist, where steps were seen before, and where
pods have nodes and do not run. A job whose pods wait for nodes waits in a queue. A job that starts
again and again without a step is still in the same start. A new start needs the end or suspension
of its object before it, or `AWAY` without any of the three signs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from mofa_model.kinds import JobKind
from mofa_model.kinds.kind import Observation
from mofa_model.kinds.shape import moment_of
from mofa_operator.objects import LiveObject
from mofa_operator.observe.jobs.interruptions import SECOND, after_look
from mofa_operator.observe.jobs.run_record import (
    RunRecord,
    ettr,
    from_text,
    interruptions,
    lost,
    recoveries,
    to_text,
    waiting,
)
from mofa_operator.observe.progress.telemetry import Path, Telemetry
from mofa_operator.observe.prometheus.trainers import RECENT
from mofa_operator.snapshot import Alive, Running

TRAIN_JOB_STATUS: Final = "TrainJobStatus"
"""Source of what a TrainJob's trainer reports to its status."""
AWAY: Final = RECENT
"""How long a job may be gone within one start; pods that crash are back in five minutes. [s]"""
_JOINED: Final = 600.0
"""A job's earlier series count if it is older than the first look by at least this. [s]"""
_STEPS: Final = 10
"""Steps after whose time an effective training time ratio means anything. [1]"""


class _Report(NamedTuple):
    """What a TrainJob's trainer reports to its object."""

    tokens_per_second: float | None
    steps: Observation


@dataclass(slots=True)
class _Memory:
    """What is remembered of one job."""

    record: RunRecord | None = None
    sampled_at: float = 0.0
    """The last sample whose step is in the record. [s]"""
    alive: Alive | None = None
    step: int | None = None
    """The last step without a date that was seen to change."""
    step_at: float | None = None
    """When that was. [s]"""


class _Identity(NamedTuple):
    """What tells two jobs apart: a later job of the same name has another uid."""

    namespace: str
    name: str
    uid: str


class RunRecords:
    """What is remembered of every job that is looked at."""

    def __init__(self, lost: Callable[[str], str]) -> None:
        """`lost` says since when a node is not ready; empty where it is ready."""
        self._lost = lost
        self._memories: dict[_Identity, _Memory] = {}

    def after(
        self, job: LiveObject, target: LiveObject | None, telemetry: Telemetry, now: float
    ) -> Running | None:
        """The figures of a job after one more look at it; None where it does not run."""
        memory = self._memories.get(_identity(job), _Memory())
        record = memory.record or from_text(job.record) or _joined(telemetry, now, target)
        if record is None and target is None and telemetry == Telemetry():
            return None  # it has not begun
        report = None if target is None else _recent_report(target, now)
        observations = _observed(target, now)
        nodes: frozenset[str] = frozenset()
        if telemetry.gang is not None:
            observations.append(telemetry.gang.observation)
            nodes = telemetry.gang.nodes
        if telemetry.running is None and report is not None:
            observations.append(report.steps)
        new_steps = tuple(
            step for step in telemetry.finished_steps if step.sampled_at > memory.sampled_at
        )
        if telemetry.finished_steps:  # a coarser look may date the same step differently
            memory.sampled_at = max(memory.sampled_at, telemetry.finished_steps[-1].sampled_at)
        memory.record = after_observations(
            record,
            observations,
            new_steps,
            now,
            step_seconds=None if telemetry.running is None else telemetry.running.step_seconds,
            nodes_lost=tuple(sorted(filter(None, (moment_of(self._lost(node)) for node in nodes)))),
        )
        self._memories[_identity(job)] = memory
        if telemetry.running is not None:
            return _figures(memory.record, telemetry.running, now)
        if report is None:
            return None
        figures = Running(source=TRAIN_JOB_STATUS, tokens_per_second=report.tokens_per_second)
        return _figures(memory.record, figures, now)

    def alive(
        self,
        job: LiveObject,
        target: LiveObject | None,
        telemetry: Telemetry,
        running: Running | None,
        now: float,
    ) -> Alive | None:
        """Whether a job is alive, after the look that gave `running`; None where it is not."""
        memory = self._memories.setdefault(_identity(job), _Memory())
        alive_now = _alive(memory, target, telemetry, running, now)
        if memory.record is not None:
            waits = alive_now is None and running is None
            memory.record = waiting(memory.record, now, waits=waits)
        return alive_now

    def keep(self, jobs: Iterable[LiveObject]) -> None:
        """Forget all other jobs."""
        kept = self._memories.keys() & set(map(_identity, jobs))
        self._memories = {identity: self._memories[identity] for identity in kept}


def _alive(
    memory: _Memory,
    target: LiveObject | None,
    telemetry: Telemetry,
    running: Running | None,
    now: float,
) -> Alive | None:
    """Since when a job is alive, and more; None where it is not alive, or that is unknown."""
    observations = _observed(target, now)
    if any(
        observation.ended is not None or observation.suspended is not None
        for observation in observations
    ):
        memory.alive = None
        return None
    reports = target is not None and _report(target) != (None, Observation())
    trainer = 0.0 if telemetry.series_since is None and reports else telemetry.series_since
    pods = None if telemetry.gang is None else telemetry.gang.since
    ready = any(observation.ready for observation in observations)
    placed = telemetry.gang is not None and telemetry.gang.placed
    if not ready and not placed and pods is None and trainer is None:
        return None  # its start stays remembered for `AWAY`
    before = memory.alive
    if before is not None and now - before.at > AWAY:
        before = None
    record = memory.record or RunRecord(since=now)
    step = running.step if running is not None and running.step is not None else record.step
    seconds = running.step_seconds if running is not None else record.step_seconds
    step_at = record.step_at if step else None
    if step and step_at is None and step != memory.step:
        # a step without a date counts as finished when it was first seen
        memory.step, memory.step_at = step, now
    if step_at is None:
        step_at = memory.step_at
    starts = [moment for moment in (pods, trainer) if moment]
    memory.alive = Alive(
        at=now,
        since=before.since if before is not None else min(now, max(starts, default=now)),
        watched=trainer is not None or step_at is not None or not (ready or pods is not None),
        step_at=step_at,
        step_seconds=seconds if step else None,
    )
    return memory.alive


def after_observations(
    record: RunRecord | None,
    observations: Iterable[Observation],
    finished_steps: Path,
    now: float,
    *,
    step_seconds: float | None = None,
    nodes_lost: tuple[float, ...] = (),
) -> RunRecord:
    """A record after one more look; signs and steps are taken in the order of their times."""
    all_observations = list(observations)
    signs = sorted(
        {sign for observation in all_observations for sign in observation.signs},
        key=lambda sign: sign.at,
    )
    steps = list(finished_steps)

    def with_steps(record: RunRecord | None, until: float) -> RunRecord | None:
        while steps and steps[0].after <= until:
            moment, step, _ = steps.pop(0)
            if record is None or record.step != step:
                finished = Observation(step=step, step_at=moment, step_seconds=step_seconds)
                record = after_look(record, finished, moment)
        return record

    if nodes_lost and record is not None:
        record = after_look(record, Observation(nodes_lost=nodes_lost), now)
    for sign in signs:
        record = with_steps(record, sign.at)
        record = record if record is None else after_look(record, Observation(signs=(sign,)), now)
    record = with_steps(record, float("inf"))
    for observation in all_observations or [Observation()]:
        record = after_look(record, replace(observation, signs=()), now)
    return record if record is not None else RunRecord(since=now)


def _joined(telemetry: Telemetry, now: float, target: LiveObject | None) -> RunRecord | None:
    """The record of a job that is older than the first look, from its series; None where it is not.

    Series that are older than its object were those of another job of the same name.
    """
    figures = telemetry.running
    if figures is None or figures.since is None or figures.ettr is None:
        return None
    if figures.since > now - _JOINED:
        return None
    if (
        target is not None
        and target.created is not None
        and figures.since < target.created - SECOND
    ):
        return None
    step, step_at = (
        (telemetry.finished_steps[-1].step, telemetry.finished_steps[-1].after)
        if telemetry.finished_steps
        else (figures.step, now)
    )
    return RunRecord(
        since=figures.since,
        effective=figures.ettr * (now - figures.since),
        step=step,
        step_at=step_at,
        top=step,
        step_seconds=figures.step_seconds,
        has_run=True,
    )


def _figures(record: RunRecord, running: Running, now: float) -> Running:
    """The figures of a running job: rates from its series, and counts from its record."""
    seconds = running.step_seconds or record.step_seconds
    early = record.step_at is None or seconds is None or now - record.since < _STEPS * seconds
    return replace(
        running,
        step_seconds=seconds,
        step=running.step if running.step is not None else record.step,
        ettr=running.ettr if early else ettr(record, now),
        interruptions=interruptions(record),
        recoveries=recoveries(record),
        lost=lost(record, now),
        since=record.since,
        record=to_text(record),
    )


def _observed(target: LiveObject | None, now: float) -> list[Observation]:
    """What the object of a job shows."""
    if target is None or not isinstance(kind := target.key.kind, JobKind):
        return []
    return [kind.observed(target.body, now)]


def _report(target: LiveObject) -> _Report:
    """What a trainer reports to the object of its job."""
    kind = target.key.kind
    if not isinstance(kind, JobKind):
        return _Report(None, Observation())
    return _Report(*kind.reported(target.body))


def _recent_report(target: LiveObject, now: float) -> _Report | None:
    """The report of a trainer, if it is recent."""
    report = _report(target)
    if report.tokens_per_second is None and report.steps.step is None:
        return None
    reported_at = report.steps.step_at
    return None if reported_at is not None and reported_at < now - RECENT else report


def _identity(job: LiveObject) -> _Identity:
    return _Identity(job.key.namespace, job.key.name, job.uid)
