"""What running jobs teach about the model on their machines: one factor on the step time of a profile, and one on device memory,
each with its uncertainty.

Each job says the logarithm x of its observed step time over the one that the model alone predicted, and where its device memory is
seen the same of that, which is learned in the same way for itself. What they say together
is `mofa_model.calibrate.system.system_factor`, as for a user's own runs at the desk, each with a weight w = 2^(−age / half_life): one job moves
most of the way, three nearly all of it, and old evidence fades to 1.

A job far off says more of itself than of the profile: x is clipped to ±`CLIP` prior deviations, and to ±`ALONE` while no other
job says the same; a job farther than `HUBER` job deviations from the others' median has less weight, and jobs that disagree
are trusted less. Where several namespaces teach, each has one vote, the median of its jobs, and votes count as jobs do otherwise.

The x of a job is taken against the prediction without the factor (`ratio_of`): else a factor would fight its own evidence.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from mofa_model.calibrate.system import EIGHTY, RUNS, SYSTEMS, system_factor
from mofa_model.units import Range
from mofa_operator.evidence import JobEvidence

HALF_LIFE: Final = 30 * 86400.0
"""Age at which evidence counts half: fabrics, drivers and trainers change within months. [s]"""
CLIP: Final = 4.0
"""Prior standard deviations beyond which a job says no more. [1]"""
ALONE: Final = 2.0
"""The same of one job alone: a slow node or a wrong flag is its own, and must not move everybody's advice. [1]"""
HUBER: Final = 1.5
"""Job standard deviations from the median beyond which a job's weight falls. [1]"""
MOST: Final = 16
"""Jobs whose evidence is kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """What jobs say together of the time of a step, or of device memory."""

    factor: Range
    """Observed over predicted, as it is expected of the next job, with its 80 % bounds. [1]"""
    each: float
    """Logarithm by which four of five next jobs differ from it at most. [1]"""
    jobs: int
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

    Three jobs at 85 % of the predicted throughput, so steps 1/0.85 = 1.176 times as long: k = 0.405, θ̂ = 0.1625 · 3/3.405.
    The next job is predicted at 0.867 of the model's throughput, and its residual is −2 % where it was −15 %; one job alone
    makes it −5 %, and after two half-lives the three weigh 0.75 and −6 % is left.

    >>> three = [JobEvidence(job="a/x", log_ratio=math.log(1 / 0.85), at=0.0)] * 3
    >>> factor = learned(three, 0.0).factor
    >>> round(factor.target, 3), round(factor.lower, 3), round(factor.upper, 3)
    (1.154, 1.099, 1.211)
    >>> round(0.85 * factor.target - 1, 3), round(0.85 * learned(three[:1], 0.0).factor.target - 1, 3)
    (-0.019, -0.046)
    >>> round(0.85 * learned(three, 2 * HALF_LIFE).factor.target - 1, 3)
    -0.055
    """
    votes = _votes(evidence, now, half_life)
    reach = prior_sd * min(CLIP, ALONE * len(votes))
    clipped = [max(-reach, min(reach, x)) for x, _ in votes]
    weights = _weights([weight for _, weight in votes], clipped, job_sd)
    known = sum(weights)
    mean = sum(w * x for w, x in zip(weights, clipped, strict=True)) / known if known else 0.0
    scatter = max(job_sd, _scatter(weights, clipped, mean))
    found = system_factor(clipped, weights, scatter=scatter, systems=prior_sd)
    each = math.hypot(math.log(found.upper / found.target), EIGHTY * scatter)
    return Learned(factor=found, each=each, jobs=len(evidence))


def ratio_of(observed: float, predicted: float, applied: float = 1.0) -> float:
    """Logarithm of an observed step time over the predicted one, without the factor that the prediction contains, Ours. [1]

    Steps of 11.16 s that were predicted at 11.16 s with a factor of 1.116: the model alone still says 10 s.

    >>> round(ratio_of(11.16, 11.16, applied=1.116), 4) == round(math.log(1.116), 4)
    True
    """
    return math.log(observed / predicted * applied)


def remembered(
    evidence: Sequence[JobEvidence], new: JobEvidence, *, most: int = MOST
) -> tuple[JobEvidence, ...]:
    """Evidence with that of one job replaced or added; where there are more than `most`, the oldest goes of who has most.

    >>> first = JobEvidence(job="a/x", log_ratio=0.1, at=1.0)
    >>> [one.log_ratio for one in remembered([first], JobEvidence(job="a/x", log_ratio=0.2, at=2.0))]
    [0.2]
    """
    standing = next((one for one in evidence if one.job == new.job), new)
    others = [one for one in evidence if one.job != new.job]
    latest = new if new.at >= standing.at else standing
    kept = sorted((*others, latest), key=lambda one: (one.at, one.job))
    while len(kept) > most:  # who fills a namespace with jobs drives out its own
        count = Counter(one.namespace for one in kept)
        kept.remove(next(one for one in kept if count[one.namespace] == max(count.values())))
    return tuple(kept)


def drifts(
    observed: float,
    predicted: Range,
    *,
    threshold: float = 0.15,
    drifting: bool = False,
) -> bool:
    """Whether an observed throughput contradicts its prediction: outside the band, and off the target by the threshold.

    The residual counts to the percent, as it is shown. What drifts already, drifts until it is off by less than two thirds of
    the threshold or back in the band, so that the verdict does not flicker.

    >>> band = Range(lower=92.0, target=100.0, upper=110.0)
    >>> drifts(85.0, band), drifts(88.0, band), drifts(92.0, band)
    (True, False, False)
    >>> drifts(88.0, band, drifting=True)
    True
    """
    if predicted.lower <= observed <= predicted.upper:
        return False
    return round(abs(observed / predicted.target - 1), 2) >= (
        threshold * 2 / 3 if drifting else threshold
    )


def _votes(
    evidence: Sequence[JobEvidence], now: float, half_life: float
) -> list[tuple[float, float]]:
    """What is said, with its weight by age: by each job, or by each namespace as one where there are several.

    >>> said = [JobEvidence(job=f"{one}/x", log_ratio=x, at=0.0) for one, x in (("a", 0.1), ("a", 0.3), ("b", 0.5))]
    >>> _votes(said[:2], 0.0, HALF_LIFE), _votes(said, 0.0, HALF_LIFE)
    ([(0.1, 1.0), (0.3, 1.0)], [(0.2, 1.0), (0.5, 1.0)])
    """
    said: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in evidence:
        said[one.namespace].append((one.log_ratio, math.exp2(-max(0.0, now - one.at) / half_life)))
    if len(said) < 2:
        return [vote for jobs in said.values() for vote in jobs]
    return [
        (median(x for x, _ in jobs), max(weight for _, weight in jobs)) for jobs in said.values()
    ]


def _weights(aged: Sequence[float], clipped: Sequence[float], job_sd: float) -> list[float]:
    """Weights by age, and by distance from the median where that has a meaning, from three on."""
    if len(aged) < 3:
        return list(aged)
    middle = median(clipped)
    return [
        w * min(1.0, HUBER * job_sd / max(abs(x - middle), 1e-300))
        for w, x in zip(aged, clipped, strict=True)
    ]


def _scatter(weights: Sequence[float], clipped: Sequence[float], mean: float) -> float:
    """Weighted scatter of the jobs about their mean. [1]"""
    known = sum(weights)
    if len(weights) < 2 or not known:
        return 0.0
    return math.sqrt(
        sum(w * (x - mean) ** 2 for w, x in zip(weights, clipped, strict=True)) / known
    )
