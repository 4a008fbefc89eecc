"""What running jobs teach: a factor on the step time of a pool, and one on device memory.

    taught(snapshot, answer)     evidence of one job: observed over predicted, uncalibrated
    calibration(profile, live)   `status.calibration`, from its stored evidence and what runs now

Each job gives x, the logarithm of its observed over its predicted step time, and the same of its
device memory where that is seen. `mofa_model.bands.system.system_factor` joins them, as at the
desk, with weights 2^(-age / half-life): one job moves most of the way, three nearly all of it, and
old evidence fades to a factor of 1.

- x is taken against the prediction without the factor (`ratio_of`); otherwise a factor would undo
  the evidence that it rests on.
- An outlier says more of itself than of the pool. So x is clipped to `CLIP` prior deviations, to
  `ALONE` for a single job; jobs farther than `HUBER` job deviations from the median weigh less;
  jobs that disagree are trusted less.
- Where several namespaces teach, each has one vote: the median of its jobs.

A factor is part of every later question. A job that was answered keeps its answer until a changed
factor changes its advice (`stored_answer`). So a factor moves in steps of two percent, at most once
in `quiet` seconds, and one step a day where several namespaces teach. Between steps only the
evidence beside it is renewed. Evidence of a job that has ended loses half its weight with each
half-life, and is dropped at last.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from mofa_model.bands.system import (
    EIGHTY,
    MEMORY_RUNS,
    MEMORY_SYSTEMS,
    RUNS,
    SYSTEMS,
    system_factor,
)
from mofa_model.manifest.advisor_policy import MOST_INFLUENCE
from mofa_model.units import DAY, Range
from mofa_operator.decide.launched import runs_another
from mofa_operator.decide.observation import (
    FARTHEST,
    doubted,
    implausible,
    predicted_memory,
    predicted_tokens,
    seen_tokens,
)
from mofa_operator.decide.status import moment, time_left
from mofa_operator.decision import Answer
from mofa_operator.evidence import JobEvidence
from mofa_operator.objects import LiveProfile, LiveTrainingJob, WrittenPart, figure
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import JobSnapshot, Running

HALF_LIFE: Final = 30 * 86400.0
"""Age at which evidence counts half: fabrics, drivers and trainers change within months. [s]"""
CLIP: Final = 4.0
"""x is clipped to this many prior standard deviations. [1]"""
ALONE: Final = 2.0
"""The same for a single job: its slow node or wrong flag must not move everybody's advice. [1]"""
HUBER: Final = 1.5
"""Job standard deviations from the median, beyond which a job weighs less. [1]"""
MOST: Final = 16
"""Jobs whose evidence is kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """What all jobs together teach of the time of a step, or of device memory."""

    factor: Range
    """Observed over predicted, as it is expected of the next job, with its 80 % bounds. [1]"""
    each: float
    """Logarithm by which four of five next jobs differ from it at most. [1]"""
    job_count: int
    """Jobs that it rests on. [1]"""


def learned(
    evidence: Sequence[JobEvidence],
    now: float,
    *,
    prior_sd: float = SYSTEMS,
    job_sd: float = RUNS,
    half_life: float = HALF_LIFE,
) -> Learned:
    """The factor that jobs teach, Ours. [1]

    Three jobs at 85 % of the predicted throughput, so steps 1/0.85 = 1.176 times as long: k =
    0.405, θ̂ = 0.1625 · 3/3.405. The next job is predicted at 0.867 of the model's throughput, and
    its residual is −2 % where it was −15 %; one job alone makes it −5 %, and after two half-lives
    the three weigh 0.75 and −6 % is left.

    >>> three = [JobEvidence(job="a/x", log_ratio=math.log(1 / 0.85), at=0.0)] * 3
    >>> factor = learned(three, 0.0).factor
    >>> round(factor.target, 3), round(factor.lower, 3), round(factor.upper, 3)
    (1.154, 1.099, 1.211)
    >>> alone = learned(three[:1], 0.0).factor
    >>> round(0.85 * factor.target - 1, 3), round(0.85 * alone.target - 1, 3)
    (-0.019, -0.046)
    >>> round(0.85 * learned(three, 2 * HALF_LIFE).factor.target - 1, 3)
    -0.055
    """
    votes = _votes(evidence, now, half_life)
    reach = prior_sd * min(CLIP, ALONE * len(votes))
    clipped = [max(-reach, min(reach, x)) for x, _ in votes]
    weights = _weights([weight for _, weight in votes], clipped, job_sd)
    scatter = max(job_sd, _scatter(weights, clipped))
    factor = system_factor(clipped, weights, scatter=scatter, systems=prior_sd)
    each = math.hypot(math.log(factor.upper / factor.target), EIGHTY * scatter)
    return Learned(factor=factor, each=each, job_count=len(evidence))


def ratio_of(observed: float, expected: float, applied: float = 1.0) -> float:
    """Logarithm of observed over predicted step time, without the prediction's factor, Ours. [1]

    Steps of 11.16 s that were predicted at 11.16 s with a factor of 1.116: the model alone still
    says 10 s.

    >>> round(ratio_of(11.16, 11.16, applied=1.116), 4) == round(math.log(1.116), 4)
    True
    """
    return math.log(observed / expected * applied)


def remembered(
    evidence: Sequence[JobEvidence], new_evidence: JobEvidence, *, most: int = MOST
) -> tuple[JobEvidence, ...]:
    """The evidence, with that of one job replaced or added; above `most`, the oldest of the
    namespace that has most is dropped.

    >>> first = JobEvidence(job="a/x", log_ratio=0.1, at=1.0)
    >>> later = JobEvidence(job="a/x", log_ratio=0.2, at=2.0)
    >>> [entry.log_ratio for entry in remembered([first], later)]
    [0.2]
    """
    stored = next((entry for entry in evidence if entry.job == new_evidence.job), new_evidence)
    others = [entry for entry in evidence if entry.job != new_evidence.job]
    latest = new_evidence if new_evidence.at >= stored.at else stored
    kept = sorted((*others, latest), key=lambda entry: (entry.at, entry.job))
    while len(kept) > most:  # so that jobs by the dozen drive out only those of their own namespace
        count = Counter(entry.namespace for entry in kept)
        kept.remove(next(entry for entry in kept if count[entry.namespace] == max(count.values())))
    return tuple(kept)


def _votes(
    evidence: Sequence[JobEvidence], now: float, half_life: float
) -> list[tuple[float, float]]:
    """The votes with their weights by age: one for each job, or for each of several namespaces.

    >>> ratios = (("a", 0.1), ("a", 0.3), ("b", 0.5))
    >>> jobs = [JobEvidence(job=f"{name}/x", log_ratio=x, at=0.0) for name, x in ratios]
    >>> _votes(jobs[:2], 0.0, HALF_LIFE), _votes(jobs, 0.0, HALF_LIFE)
    ([(0.1, 1.0), (0.3, 1.0)], [(0.2, 1.0), (0.5, 1.0)])
    """
    by_namespace: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for entry in evidence:
        weight = math.exp2(-max(0.0, now - entry.at) / half_life)
        by_namespace[entry.namespace].append((entry.log_ratio, weight))
    if len(by_namespace) < 2:
        return [vote for votes in by_namespace.values() for vote in votes]
    return [
        (median(x for x, _ in votes), max(weight for _, weight in votes))
        for votes in by_namespace.values()
    ]


def _weights(aged: Sequence[float], clipped: Sequence[float], job_sd: float) -> list[float]:
    """Weights by age, and by distance from the median where that has a meaning, from three on."""
    if len(aged) < 3:
        return list(aged)
    middle = median(clipped)
    return [
        weight * min(1.0, HUBER * job_sd / max(abs(x - middle), 1e-300))
        for weight, x in zip(aged, clipped, strict=True)
    ]


def _scatter(weights: Sequence[float], clipped: Sequence[float]) -> float:
    """Weighted scatter of the jobs about their mean. [1]"""
    total = sum(weights)
    if len(weights) < 2 or not total:
        return 0.0
    weighted = list(zip(weights, clipped, strict=True))
    mean = sum(weight * x for weight, x in weighted) / total
    return math.sqrt(sum(weight * (x - mean) ** 2 for weight, x in weighted) / total)


STEP: Final = 0.02
"""Least relative change of the factor: two of the last digit that advice uses. [1]"""
OLD: Final = 86400.0
"""Age from which on evidence of a job that still runs is written anew. [s]"""
WORTHLESS: Final = 5 * HALF_LIFE
"""Age at which evidence is forgotten: it counts a thirty-second then. [s]"""
_ROUNDING: Final = 1e-9
"""By how much a step may fall short and still count, because of rounding. [1]"""
INFLUENCE: Final = MOST_INFLUENCE / 100
"""Most that the factor moves in a day where several namespaces teach: who joins them cannot turn it
at once. [1]"""
IN_ADVANCE: Final = ("maxtext",)
"""Trainers whose framework takes device memory in advance, so that what is in use says nothing of
the layout (JAX)."""
_NO_LIMITS: Final[Mapping[str, float]] = {}
AGAIN: Final = 3600.0
"""Time between two looks at evidence that only ages. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaughtCalibration:
    """What a profile learned."""

    written: WrittenPart
    """`status.calibration`; empty where nothing was learned."""
    residual: str = ""
    """`status.residual`: median of the jobs that run; empty where none does."""
    requeue_after: float | None = None
    """Look again after this. [s]"""


def taught(snapshot: JobSnapshot, answer: Answer, settings: LoopSettings) -> JobEvidence | None:
    """How far a job's step and memory are from their predictions; None where it teaches nothing.

    A job teaches where it has run for `quiet` seconds on the pool's nodes, with a throughput that
    is plausible and near the prediction.
    """
    running, predicted = snapshot.running, predicted_tokens(answer)
    observed = seen_tokens(running)
    if not isinstance(snapshot.job, LiveTrainingJob) or running is None:
        return None
    if (
        runs_another(snapshot, answer)
        or not observed
        or not predicted
        or not running.on_pool
        or doubted(observed, answer)
        or observed / predicted < FARTHEST[0]
        or running.since is None
        or snapshot.now - running.since < settings.quiet
    ):
        return None
    key, applied = snapshot.job.key, answer.says.learned or 1.0
    job = f"{key.namespace}/{key.name} {snapshot.job.uid}".strip()
    ratio, memory = ratio_of(1 / observed, 1 / predicted, applied), _memory(running, answer)
    return JobEvidence(job=job, log_ratio=ratio, log_memory=memory, at=snapshot.now)


def _memory(running: Running, answer: Answer) -> float | None:
    """What a job says of device memory; None where that is unseen or says nothing of its layout."""
    observed, band = figure(running.memory_bytes), predicted_memory(answer)
    if observed is None or band is None or not running.whole_device or answer.trainer in IN_ADVANCE:
        return None
    if implausible(observed, answer) or not FARTHEST[0] <= observed / band.target <= FARTHEST[1]:
        return None
    return ratio_of(observed, band.target, answer.says.learned_memory or 1.0)


def calibration(
    profile: LiveProfile,
    live: Iterable[JobEvidence],
    now: float,
    settings: LoopSettings,
    influence: Mapping[str, float] = _NO_LIMITS,
) -> TaughtCalibration:
    """The calibration of a profile, from its status and what its running jobs teach now.

    `influence` limits how far jobs of a namespace move a factor in a day; those of a namespace with
    0 do not count. [1]
    """
    status = profile.status
    current = [entry for entry in live if influence.get(entry.namespace, INFLUENCE)]
    stored, written = status.calibration, profile.calibration
    believed = (entry for entry in stored.taught if influence.get(entry.namespace, INFLUENCE))
    before = [entry for entry in believed if now - entry.at < WORTHLESS]
    evidence = tuple(before)
    for entry in current:
        evidence = remembered(evidence, entry)
    if not evidence:  # a ratio that never had any was set by somebody, and is left alone
        kept = {} if stored.evidence else written
        return TaughtCalibration(written=kept, residual=status.residual if kept else "")
    since = stored.moved_time or stored.time
    step = _factor(evidence, stored.ratio, since, now, influence)
    memory = _memory_factor(evidence, stored.memory_ratio, since, now, influence)
    moved = step.has_moved or (memory is not None and memory.has_moved)
    is_news = moved or _renewed(before, evidence, len(stored.evidence))
    wait = time_left(stored.time, settings.quiet, now) if is_news else AGAIN
    if wait > 0:
        return TaughtCalibration(written=written, residual=status.residual, requeue_after=wait)
    moved_time = now if moved or since is None else since
    residual = ""
    if current:
        residual = f"{step.used * median(math.exp(-entry.log_ratio) for entry in current) - 1:.3f}"
    return TaughtCalibration(
        written={
            "stepTimeRatio": f"{step.used:.2f}",
            "lower": f"{min(step.used, step.learned.factor.lower):.3f}",
            "upper": f"{max(step.used, step.learned.factor.upper):.3f}",
            **_of_memory(memory),
            "jobs": step.learned.job_count,
            "time": moment(now),
            **({"movedTime": moment(moved_time)} if _are_several(evidence) else {}),
            "evidence": [_row(entry) for entry in evidence],
        },
        residual=residual,
        requeue_after=AGAIN,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Factor:
    """A learned factor, the one that is stored, and where it may move now."""

    learned: Learned
    current: float | None
    aim: float

    @property
    def has_moved(self) -> bool:
        """Whether it moves by a step."""
        return self.current is None or abs(self.aim / self.current - 1) >= STEP - _ROUNDING

    @property
    def used(self) -> float:
        """The factor to write. [1]"""
        return self.aim if self.current is None or self.has_moved else self.current


def _factor(
    evidence: Sequence[JobEvidence],
    current: float | None,
    since: float | None,
    now: float,
    influence: Mapping[str, float],
    **spreads: float,
) -> _Factor:
    """The factor that the evidence gives, moved no further than it may move today."""
    fit = learned(evidence, now, **spreads)
    aim = fit.factor.target
    if _are_several(evidence):
        pull = _pulling(evidence, aim, current or 1.0, influence)
        aim = _bounded(aim, current or 1.0, since, now, pull)
    return _Factor(learned=fit, current=current, aim=aim)


def _memory_factor(
    evidence: Sequence[JobEvidence],
    current: float | None,
    since: float | None,
    now: float,
    influence: Mapping[str, float],
) -> _Factor | None:
    """The factor on device memory; None where no job tells its memory."""
    known = (entry for entry in evidence if entry.log_memory is not None)
    of_memory = [replace(entry, log_ratio=entry.log_memory or 0.0) for entry in known]
    spreads = {"prior_sd": MEMORY_SYSTEMS, "job_sd": MEMORY_RUNS}
    return _factor(of_memory, current, since, now, influence, **spreads) if of_memory else None


def _of_memory(memory: _Factor | None) -> WrittenPart:
    """The factor on device memory and its spread, in whole steps so that it seldom changes."""
    if memory is None:
        return {}
    spread = STEP * math.ceil(memory.learned.each / STEP - _ROUNDING)
    return {"memoryRatio": f"{memory.used:.2f}", "memorySpread": f"{spread:.2f}"}


def _row(entry: JobEvidence) -> WrittenPart:
    """One job's evidence as a row of the status."""
    row = {"job": entry.job, "stepTimeRatio": f"{math.exp(entry.log_ratio):.4f}"}
    if entry.log_memory is not None:
        row["memoryRatio"] = f"{math.exp(entry.log_memory):.4f}"
    return row | {"time": moment(entry.at)}


def _are_several(evidence: Sequence[JobEvidence]) -> bool:
    """Whether more than one namespace teaches."""
    return len({entry.namespace for entry in evidence}) > 1


def _pulling(
    evidence: Sequence[JobEvidence], ratio: float, current: float, influence: Mapping[str, float]
) -> float:
    """The largest influence of a namespace whose jobs pull the factor towards a ratio. [1]"""
    up = ratio > current
    pulling = {entry.namespace for entry in evidence if (entry.log_ratio > math.log(current)) == up}
    return max((influence.get(namespace, INFLUENCE) for namespace in pulling), default=INFLUENCE)


def _bounded(
    ratio: float, current: float, since: float | None, now: float, influence: float
) -> float:
    """The factor after today's step: a whole step once enough time has passed, else none. [1]"""
    limit = INFLUENCE if since is None or (now - since) * influence >= DAY * INFLUENCE else 0.0
    return max(current * (1 - limit), min(current * (1 + limit), ratio))


def _renewed(before: list[JobEvidence], after: tuple[JobEvidence, ...], stored_count: int) -> bool:
    """Whether evidence came, went, changed, or is old while its job runs."""
    by_job = {entry.job: entry for entry in before}
    if stored_count != len(before) or by_job.keys() != {entry.job for entry in after}:
        return True
    return any(
        entry.at - by_job[entry.job].at >= OLD
        or abs(entry.log_ratio - by_job[entry.job].log_ratio) >= 2 * STEP
        or (entry.log_memory is None) != (by_job[entry.job].log_memory is None)
        or abs((entry.log_memory or 0.0) - (by_job[entry.job].log_memory or 0.0)) >= 2 * STEP
        for entry in after
    )
