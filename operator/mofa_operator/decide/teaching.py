"""What a running job teaches its profile, and the calibration that a profile makes of it: seldom written, and never forgotten at once.

    taught(snapshot, answer)     one job's evidence: observed over predicted step time, the prediction without any factor
    calibration(stands, live)    `status.calibration`, of what it remembers and of what runs now

The factor is part of every question that is asked while it stands, of running jobs too. So it moves in steps of two percent,
at most once in `quiet` seconds, and where several namespaces teach one step a day; between steps only the evidence beside it is
renewed. What a job taught stays after its end,
with half its weight after each half-life, until it is worth nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from mofa_model.units import DAY
from mofa_operator.decide.learned import HALF_LIFE, learned, ratio_of, remembered
from mofa_operator.decide.observation import FARTHEST, doubted, predicted_tokens, seen_tokens
from mofa_operator.decide.reading import left, moment
from mofa_operator.decision import Answer
from mofa_operator.evidence import JobEvidence
from mofa_operator.objects import LiveProfile, LiveTrainingJob, Written
from mofa_operator.settings import LoopSettings
from mofa_operator.shapes import figure
from mofa_operator.snapshot import JobSnapshot

STEP: Final = 0.02
"""Least relative change of the factor: two of the last digit that advice uses. [1]"""
OLD: Final = 86400.0
"""Age from which on evidence of a job that still runs is written anew. [s]"""
WORTHLESS: Final = 5 * HALF_LIFE
"""Age at which evidence is forgotten: it counts a thirty-second then. [s]"""
_ROUNDING: Final = 1e-9
"""By how much a step may be less than it is for the sake of the last bit. [1]"""
INFLUENCE: Final = 0.02
"""Most that the factor moves in a day where several namespaces teach: who joins them cannot turn it at once. [1]"""
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


def taught(snapshot: JobSnapshot, answer: Answer, settings: LoopSettings) -> JobEvidence | None:
    """What a job says of its profile; None where it is not believed to run there, or has not run for `quiet` seconds yet.

    Believed is one whose pods stand on the profile's nodes and whose throughput is plausible and near what was predicted.
    """
    running, predicted = snapshot.running, predicted_tokens(answer)
    seen = seen_tokens(running)
    if not isinstance(snapshot.job, LiveTrainingJob) or running is None or not seen or not predicted:
        return None
    if not running.on_pool or doubted(seen, answer) or seen / predicted < FARTHEST[0]:
        return None
    if running.since is None or snapshot.now - running.since < settings.quiet:
        return None
    key, applied = snapshot.job.key, answer.says.learned or 1.0
    job = f"{key.namespace}/{key.name} {snapshot.job.uid}".strip()
    return JobEvidence(job=job, log_ratio=ratio_of(1 / seen, 1 / predicted, applied), at=snapshot.now)


def calibration(
    profile: LiveProfile, live: Iterable[JobEvidence], now: float, settings: LoopSettings
) -> TaughtCalibration:
    """What to remember, given what stands in a profile's status and what its running jobs say now."""
    status, current = profile.status, list(live)
    stands, written = status.calibration, profile.calibration
    before = [one for one in status.calibration.taught if now - one.at < WORTHLESS]
    evidence = tuple(before)
    for one in current:
        evidence = remembered(evidence, one)
    if not evidence:  # a ratio without any was set by somebody, and is left alone
        kept = {} if stands.evidence else written
        return TaughtCalibration(written=kept, residual=status.residual if kept else "")
    found = learned(evidence, now)
    ratio = stands.ratio
    several = len({one.namespace for one in evidence}) > 1
    since = stands.moved_time or stands.time
    aim = _bounded(found.ratio, ratio or 1.0, since, now) if several else found.ratio
    moved = ratio is None or abs(aim / ratio - 1) >= STEP - _ROUNDING
    wait = left(stands.time, settings.quiet, now)
    if not moved and not _renewed(before, evidence, len(stands.evidence)):
        return TaughtCalibration(written=written, residual=status.residual, again=AGAIN)
    if wait > 0:
        return TaughtCalibration(written=written, residual=status.residual, again=wait)
    used = aim if moved or ratio is None else ratio
    last = now if moved or since is None else since
    return TaughtCalibration(
        written={
            "stepTimeRatio": f"{used:.2f}",
            "lower": f"{min(used, found.lower):.3f}",
            "upper": f"{max(used, found.upper):.3f}",
            "jobs": found.jobs,
            "time": moment(now),
            **({"movedTime": moment(last)} if several else {}),
            "evidence": [
                {"job": one.job, "stepTimeRatio": f"{math.exp(one.log_ratio):.4f}", "time": moment(one.at)}
                for one in evidence
            ],
        },
        residual=f"{used * median(math.exp(-one.log_ratio) for one in current) - 1:.3f}" if current else "",
        again=AGAIN,
    )


def _bounded(ratio: float, stands: float, since: float | None, now: float) -> float:
    """A factor as far as it may be reached today."""
    most = INFLUENCE if since is None or now - since >= DAY else 0.0
    return max(stands * (1 - most), min(stands * (1 + most), ratio))


def _renewed(before: list[JobEvidence], after: tuple[JobEvidence, ...], stood: int) -> bool:
    """Whether evidence came, went, or stands for longer than it should while its job runs."""
    known = {one.job: one for one in before}
    if stood != len(before) or known.keys() != {one.job for one in after}:
        return True
    return any(
        one.at - known[one.job].at >= OLD or abs(one.log_ratio - known[one.job].log_ratio) >= 2 * STEP
        for one in after
    )
