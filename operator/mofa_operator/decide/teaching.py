"""What a running job teaches its profile, and the calibration that a profile makes of it: seldom written, and never forgotten at once.

    taught(snapshot, answer)     one job's evidence: observed over predicted step time, the prediction without any factor
    calibration(stands, live)    `status.calibration`, of what it remembers and of what runs now

Where its device memory is seen, a job teaches that as well, and a second factor is kept by the same rules. A factor is part of
every question that is asked while it stands, of running jobs too; who was answered before keeps the answer until a factor matters to it
(`settled`). So it moves in steps of two percent, at most once in `quiet`
seconds, and where several namespaces teach one step a day; between steps only the evidence beside it is renewed. What a job
taught stays after its end, with half its weight after each half-life, until it is worth nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from mofa_model.calibrate.system import MEMORY_RUNS, MEMORY_SYSTEMS
from mofa_model.manifest.advisor_policy import MOST_INFLUENCE
from mofa_model.units import DAY
from mofa_operator.decide.learned import HALF_LIFE, Learned, learned, ratio_of, remembered
from mofa_operator.decide.memory import implausible, predicted_memory
from mofa_operator.decide.observation import FARTHEST, doubted, predicted_tokens, seen_tokens
from mofa_operator.decide.reading import left, moment
from mofa_operator.decision import Answer
from mofa_operator.evidence import JobEvidence
from mofa_operator.objects import LiveProfile, LiveTrainingJob, Written
from mofa_operator.settings import LoopSettings
from mofa_operator.shapes import figure
from mofa_operator.snapshot import JobSnapshot, Running

STEP: Final = 0.02
"""Least relative change of the factor: two of the last digit that advice uses. [1]"""
OLD: Final = 86400.0
"""Age from which on evidence of a job that still runs is written anew. [s]"""
WORTHLESS: Final = 5 * HALF_LIFE
"""Age at which evidence is forgotten: it counts a thirty-second then. [s]"""
_ROUNDING: Final = 1e-9
"""By how much a step may be less than it is for the sake of the last bit. [1]"""
INFLUENCE: Final = MOST_INFLUENCE / 100
"""Most that the factor moves in a day where several namespaces teach: who joins them cannot turn it at once. [1]"""
IN_ADVANCE: Final = ("maxtext",)
"""Trainers whose framework takes device memory in advance, so that what is in use says nothing of the layout (JAX)."""
_USUAL: Final[Mapping[str, float]] = {}
AGAIN: Final = 3600.0
"""Time between two looks at evidence that only ages. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaughtCalibration:
    """What a profile learned."""

    written: Written
    """`status.calibration`; empty where nothing was learned."""
    residual: str = ""
    """`status.residual`: median of the jobs that run; empty where none does."""
    again: float | None = None
    """Look again after this. [s]"""

    @property
    def ratio(self) -> float | None:
        """The factor in it. [1]"""
        return figure(self.written.get("stepTimeRatio"))

    @property
    def memory(self) -> float | None:
        """The factor on device memory in it. [1]"""
        return figure(self.written.get("memoryRatio"))


def taught(snapshot: JobSnapshot, answer: Answer, settings: LoopSettings) -> JobEvidence | None:
    """What a job says of its profile; None where it is not believed to run there, or has not run for `quiet` seconds yet.

    Believed is one whose pods stand on the profile's nodes and whose throughput is plausible and near what was predicted.
    """
    running, predicted = snapshot.running, predicted_tokens(answer)
    seen = seen_tokens(running)
    if (
        not isinstance(snapshot.job, LiveTrainingJob)
        or running is None
        or not seen
        or not predicted
    ):
        return None
    if not running.on_pool or doubted(seen, answer) or seen / predicted < FARTHEST[0]:
        return None
    if running.since is None or snapshot.now - running.since < settings.quiet:
        return None
    key, applied = snapshot.job.key, answer.says.learned or 1.0
    job = f"{key.namespace}/{key.name} {snapshot.job.uid}".strip()
    ratio, memory = ratio_of(1 / seen, 1 / predicted, applied), _memory(running, answer)
    return JobEvidence(job=job, log_ratio=ratio, log_memory=memory, at=snapshot.now)


def _memory(running: Running, answer: Answer) -> float | None:
    """What it says of device memory; None where that is not seen, cannot be, or is taken in advance whatever the layout needs."""
    seen, band = figure(running.memory_bytes), predicted_memory(answer)
    if (
        seen is None
        or not running.whole_device
        or band is None
        or answer.trainer in IN_ADVANCE
        or implausible(seen, answer)
    ):
        return None
    ratio = seen / band.target
    near = FARTHEST[0] <= ratio <= FARTHEST[1]
    return ratio_of(seen, band.target, answer.says.learned_memory or 1.0) if near else None


def calibration(
    profile: LiveProfile,
    live: Iterable[JobEvidence],
    now: float,
    settings: LoopSettings,
    influence: Mapping[str, float] = _USUAL,
) -> TaughtCalibration:
    """What to remember, given what stands in a profile's status and what its running jobs say now.

    `influence` is by how much a day jobs of a namespace move it, where that is less than usual; without any they are not heard. [1]
    """
    status = profile.status
    current = [one for one in live if influence.get(one.namespace, INFLUENCE)]
    stands, written = status.calibration, profile.calibration
    believed = (one for one in stands.taught if influence.get(one.namespace, INFLUENCE))
    before = [one for one in believed if now - one.at < WORTHLESS]
    evidence = tuple(before)
    for one in current:
        evidence = remembered(evidence, one)
    if not evidence:  # a ratio without any was set by somebody, and is left alone
        kept = {} if stands.evidence else written
        return TaughtCalibration(written=kept, residual=status.residual if kept else "")
    since = stands.moved_time or stands.time
    step = _factor(evidence, stands.ratio, since, now, influence)
    held = [
        replace(one, log_ratio=one.log_memory) for one in evidence if one.log_memory is not None
    ]
    spreads = {"prior_sd": MEMORY_SYSTEMS, "job_sd": MEMORY_RUNS}
    memory = _factor(held, stands.memory_ratio, since, now, influence, **spreads) if held else None
    moved = step.has_moved or (memory is not None and memory.has_moved)
    wait = left(stands.time, settings.quiet, now)
    if not moved and not _renewed(before, evidence, len(stands.evidence)):
        return TaughtCalibration(written=written, residual=status.residual, again=AGAIN)
    if wait > 0:
        return TaughtCalibration(written=written, residual=status.residual, again=wait)
    last = now if moved or since is None else since
    return TaughtCalibration(
        written={
            "stepTimeRatio": f"{step.used:.2f}",
            "lower": f"{min(step.used, step.found.factor.lower):.3f}",
            "upper": f"{max(step.used, step.found.factor.upper):.3f}",
            **_of_memory(memory),
            "jobs": step.found.jobs,
            "time": moment(now),
            **({"movedTime": moment(last)} if _are_several(evidence) else {}),
            "evidence": [_row(one) for one in evidence],
        },
        residual=f"{step.used * median(math.exp(-one.log_ratio) for one in current) - 1:.3f}"
        if current
        else "",
        again=AGAIN,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Factor:
    """A factor that is learned, and as far as it may move now."""

    found: Learned
    stands: float | None
    aim: float

    @property
    def has_moved(self) -> bool:
        return self.stands is None or abs(self.aim / self.stands - 1) >= STEP - _ROUNDING

    @property
    def used(self) -> float:
        return self.aim if self.stands is None or self.has_moved else self.stands


def _factor(
    evidence: Sequence[JobEvidence],
    stands: float | None,
    since: float | None,
    now: float,
    influence: Mapping[str, float],
    **spreads: float,
) -> _Factor:
    """What evidence says now, given what stands; where several namespaces teach, as far as it may be reached today."""
    found = learned(evidence, now, **spreads)
    aim = found.factor.target
    if _are_several(evidence):
        aim = _bounded(
            found.factor.target,
            stands or 1.0,
            since,
            now,
            _pulling(evidence, aim, stands or 1.0, influence),
        )
    return _Factor(found=found, stands=stands, aim=aim)


def _of_memory(memory: _Factor | None) -> Written:
    """The factor on device memory, and by how much jobs differ from it: in whole steps, so that seldom is asked anew."""
    if memory is None:
        return {}
    spread = STEP * math.ceil(memory.found.each / STEP - _ROUNDING)
    return {"memoryRatio": f"{memory.used:.2f}", "memorySpread": f"{spread:.2f}"}


def _row(one: JobEvidence) -> Written:
    """What one job taught, as it is written."""
    memory = {} if one.log_memory is None else {"memoryRatio": f"{math.exp(one.log_memory):.4f}"}
    return {
        "job": one.job,
        "stepTimeRatio": f"{math.exp(one.log_ratio):.4f}",
        **memory,
        "time": moment(one.at),
    }


def _are_several(evidence: Sequence[JobEvidence]) -> bool:
    """Whether more than one namespace teaches."""
    return len({one.namespace for one in evidence}) > 1


def _pulling(
    evidence: Sequence[JobEvidence], ratio: float, stands: float, influence: Mapping[str, float]
) -> float:
    """The most influence of a namespace whose jobs say what moves a factor from where it stands to a ratio. [1]"""
    up = ratio > stands
    pull = {one.namespace for one in evidence if (one.log_ratio > math.log(stands)) == up}
    return max((influence.get(one, INFLUENCE) for one in pull), default=INFLUENCE)


def _bounded(
    ratio: float, stands: float, since: float | None, now: float, influence: float
) -> float:
    """A factor as far as it may be reached today: a whole step, when as many days have passed as the influence needs for it."""
    most = INFLUENCE if since is None or (now - since) * influence >= DAY * INFLUENCE else 0.0
    return max(stands * (1 - most), min(stands * (1 + most), ratio))


def _renewed(before: list[JobEvidence], after: tuple[JobEvidence, ...], stood: int) -> bool:
    """Whether evidence came, went, or stands for longer than it should while its job runs."""
    known = {one.job: one for one in before}
    if stood != len(before) or known.keys() != {one.job for one in after}:
        return True
    return any(
        one.at - known[one.job].at >= OLD
        or abs(one.log_ratio - known[one.job].log_ratio) >= 2 * STEP
        or (one.log_memory is None) != (known[one.job].log_memory is None)
        or abs((one.log_memory or 0.0) - (known[one.job].log_memory or 0.0)) >= 2 * STEP
        for one in after
    )
