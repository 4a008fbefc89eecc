"""The records of the jobs that run: each is carried on from look to look, and read again from its job's status after a restart.

Prometheus   steps one by one, throughput, pods          observe.steps, throughput, gangs
watches      the object behind targetRef, nodes          its kind, the store
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from mofa_model.kinds import JobKind
from mofa_model.kinds.kind import Observation
from mofa_model.kinds.shape import moment_of
from mofa_operator.objects import LiveObject
from mofa_operator.observe.jobs.interruptions import SECOND, seen
from mofa_operator.observe.jobs.run_record import RunRecord, from_text, running, to_text, waiting
from mofa_operator.observe.progress.telemetry import Path, Telemetry
from mofa_operator.observe.prometheus.trainers import RECENT
from mofa_operator.snapshot import Alive, Running

TRAIN_JOB_STATUS: Final = "TrainJobStatus"
"""Source of what a TrainJob's trainer reports to its status."""
_JOINED: Final = 600.0
"""By how much a job must be older than the first look at it for what its series say of the time before to be taken. [s]"""
_STEPS: Final = 10
"""Steps' time that must have passed before an effective training time ratio says anything. [1]"""


class RunRecords:
    """What is remembered of every job that is looked at."""

    def __init__(self, lost: Callable[[str], str]) -> None:
        """`lost` says since when a node is not ready; empty where it is."""
        self._lost = lost
        self._known: dict[tuple[str, str, str], RunRecord] = {}
        self._walked: dict[tuple[str, str, str], float] = {}
        self._presences = Presences()

    def after(
        self, job: LiveObject, target: LiveObject | None, look: Telemetry, now: float
    ) -> Running | None:
        """What a job does, after one more look at it; None where it does not run."""
        key = _identity(job)
        reported = None if target is None else _reported(target, now)
        record = self._known.get(key) or from_text(job.record) or _joined(look, now, target)
        if record is None and target is None and look == Telemetry():
            return None  # it has not begun
        told = [
            *_observed(target, now),
            *([look.gang.observation] if look.gang else []),
        ]
        if look.running is None and reported is not None:
            told.append(reported[1])
        each = None if look.running is None else look.running.step_seconds
        lost = (
            []
            if look.gang is None
            else [at for node in look.gang.nodes if (at := moment_of(self._lost(node)))]
        )
        record = carried(
            record,
            told,
            self._new(key, look.path),
            now,
            step_seconds=each,
            nodes_lost=tuple(sorted(lost)),
        )
        self._known[key] = record
        if look.running is not None:
            return _shown(record, look.running, now)
        if reported is not None:
            return _shown(
                record, Running(source=TRAIN_JOB_STATUS, tokens_per_second=reported[0]), now
            )
        return None

    def alive(
        self,
        job: LiveObject,
        target: LiveObject | None,
        look: Telemetry,
        running: Running | None,
        now: float,
    ) -> Alive | None:
        """Whether a job is there to train, after the look that showed what is `running`."""
        key, gang = _identity(job), look.gang
        record = self._known.get(key, RunRecord(since=now))
        reports = target is not None and _trained(target) != (None, Observation())
        step = running.step if running is not None and running.step is not None else record.step
        seconds = running.step_seconds if running is not None else record.step_seconds
        found = self._presences.after(
            key,
            _observed(target, now),
            Steps(step=step, at=record.step_at, seconds=seconds) if step else Steps(),
            pods=None if gang is None else gang.since,
            placed=gang is not None and gang.placed,
            trainer=0.0 if look.there is None and reports else look.there,
            now=now,
        )
        if key in self._known:
            self._known[key] = waiting(
                self._known[key], now, waits=found is None and running is None
            )
        return found

    def keep(self, jobs: Iterable[LiveObject]) -> None:
        """Forget all others."""
        there = {_identity(job) for job in jobs}
        self._known = {key: record for key, record in self._known.items() if key in there}
        self._walked = {key: at for key, at in self._walked.items() if key in there}
        self._presences.keep(there)

    def _new(self, key: tuple[str, str, str], path: Path) -> Path:
        """The part of a path that no look has brought yet: one look may be coarser than another, and date a step otherwise."""
        walked = self._walked.get(key, 0.0)
        if path:
            self._walked[key] = max(walked, path[-1][2])
        return tuple(point for point in path if point[2] > walked)


def carried(
    record: RunRecord | None,
    told: Iterable[Observation],
    path: Path,
    now: float,
    *,
    step_seconds: float | None = None,
    nodes_lost: tuple[float, ...] = (),
) -> RunRecord:
    """A record after what was told of it, in the order in which it happened."""
    observations = list(told)
    signs = sorted({sign for one in observations for sign in one.signs}, key=lambda sign: sign.at)
    rest = list(path)

    def stepped(record: RunRecord | None, until: float) -> RunRecord | None:
        while rest and rest[0][0] <= until:
            at, step, _ = rest.pop(0)
            if record is None or record.step != step:
                one = Observation(step=step, step_at=at, step_seconds=step_seconds)
                record = seen(record, one, at)
        return record

    if nodes_lost:
        record = (
            seen(record, Observation(nodes_lost=nodes_lost), now) if record is not None else record
        )
    for sign in signs:
        record = stepped(record, sign.at)
        record = record if record is None else seen(record, Observation(signs=(sign,)), now)
    record = stepped(record, float("inf"))
    for one in observations or [Observation()]:
        record = seen(record, replace(one, signs=()), now)
    return record if record is not None else RunRecord(since=now)


def _joined(look: Telemetry, now: float, target: LiveObject | None) -> RunRecord | None:
    """The record of a job that ran before we looked: its time so far, and what of it its series say was effective.

    Series that are older than its object were those of another job of the same name, and say nothing of it.
    """
    told = look.running
    if told is None or told.since is None or told.ettr is None or told.since > now - _JOINED:
        return None
    if target is not None and target.made is not None and told.since < target.made - SECOND:
        return None
    step, at = (look.path[-1][1], look.path[-1][0]) if look.path else (told.step, now)
    return RunRecord(
        since=told.since,
        effective=told.ettr * (now - told.since),
        step=step,
        step_at=at,
        top=step,
        step_seconds=told.step_seconds,
        has_run=True,
    )


def _shown(record: RunRecord, told: Running, now: float) -> Running:
    """What is shown of a running job: rates from its series, everything that is counted from its record."""
    lived = running(
        record,
        now,
        source=told.source,
        tokens_per_second=told.tokens_per_second,
        checkpoint_interval=told.checkpoint_interval,
        memory_bytes=told.memory_bytes,
    )
    each = told.step_seconds or lived.step_seconds
    early = record.step_at is None or each is None or now - record.since < _STEPS * each
    return replace(
        lived,
        step_seconds=each,
        step=told.step if told.step is not None else lived.step,
        ettr=told.ettr if early else lived.ettr,
        record=to_text(record),
    )


def _observed(target: LiveObject | None, now: float) -> list[Observation]:
    """What the object of a job says of its record."""
    kind = None if target is None else target.key.kind
    return (
        [kind.observed(target.body, now)]
        if target is not None and isinstance(kind, JobKind)
        else []
    )


def _trained(target: LiveObject) -> tuple[float | None, Observation]:
    """What a trainer reports to the object of its job: tokens per second, and steps. [1/s]"""
    kind = target.key.kind
    return kind.reported(target.body) if isinstance(kind, JobKind) else (None, Observation())


def _reported(target: LiveObject, now: float) -> tuple[float | None, Observation] | None:
    """What a TrainJob's trainer reports, where it still does."""
    tokens, steps = _trained(target)
    if tokens is None and steps.step is None:
        return None
    return None if steps.step_at is not None and steps.step_at < now - RECENT else (tokens, steps)


def _identity(job: LiveObject) -> tuple[str, str, str]:
    return job.key.namespace, job.key.name, job.uid


# Whether a job is there to train, whatever its steps do: its object, its pods or its trainer says so, and none that it is over.
#
#     object    all of it is ready                 its kind, from the watch
#     pods      every one that lives has a node    kube-state-metrics, `Pool.started`
#     trainer   its series are there               `Trainer.there`
#
# A step that is missing would be seen where the trainer's series are there, where steps were seen before, and where pods have
# nodes and do not run: then nobody trains. A job whose pods wait for nodes waits in a queue.
#
# A job that starts again and again without ever a step is still the same start: only the end or the suspension of its object, or
# `AWAY` without any of the three, makes the next one a new start.

AWAY: Final = RECENT
"""Time for which a job may be gone and still be in the same start: pods that crash come back within five minutes. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """What is known of a job's steps."""

    step: int | None = None
    """Last finished one, where it is counted. [1]"""
    at: float | None = None
    """When it was finished. [s]"""
    seconds: float | None = None
    """Time of one. [s]"""


class Presences:
    """What is remembered of every job that was there lately."""

    def __init__(self) -> None:
        """Nothing was looked at yet."""
        self._known: dict[tuple[str, str, str], Alive] = {}
        self._moved: dict[tuple[str, str, str], Steps] = {}

    def after(
        self,
        key: tuple[str, str, str],
        told: Iterable[Observation],
        steps: Steps,
        *,
        pods: float | None,
        placed: bool,
        trainer: float | None,
        now: float,
    ) -> Alive | None:
        """What holds after one more look; `pods` and `trainer` are since when they are there, None where they are not [s],
        `placed` is whether all pods have nodes.
        """
        observations = list(told)
        if any(one.ended is not None or one.suspended is not None for one in observations):
            self._known.pop(key, None)
            return None
        whole = any(one.ready for one in observations)
        if not whole and not placed and pods is None and trainer is None:
            return None
        before = self._known.get(key)
        if before is not None and now - before.at > AWAY:
            before = None
        said = [at for at in (pods, trainer) if at]
        stepped = self._step_at(key, steps, now)
        found = Alive(
            at=now,
            since=before.since if before is not None else min(now, max(said, default=now)),
            watched=trainer is not None or stepped is not None or not (whole or pods is not None),
            step_at=stepped,
            step_seconds=steps.seconds,
        )
        self._known[key] = found
        return found

    def keep(self, there: Iterable[tuple[str, str, str]]) -> None:
        """Forget all others."""
        kept = set(there)
        self._known = {key: one for key, one in self._known.items() if key in kept}
        self._moved = {key: one for key, one in self._moved.items() if key in kept}

    def _step_at(self, key: tuple[str, str, str], steps: Steps, now: float) -> float | None:
        """When the last step was finished: where nobody dates it, when it was first seen."""
        if (
            steps.at is None
            and steps.step is not None
            and steps.step != self._moved.get(key, Steps()).step
        ):
            self._moved[key] = replace(steps, at=now)
        return steps.at if steps.at is not None else self._moved.get(key, Steps()).at
