"""The best checkpoint interval in whole steps; how many restarts a run needs; after what time a
hang is ended.

For one tier and Poisson failures the best work between saves is a closed form
(`renewal.best_work`). For any other law of failures, and for nested tiers, it is searched on the
exact model itself.

A search ranks thousands of strategies by days = steps x step time / ETTR, in arrays (`best_ettr`).
For nested tiers it gives each tier the best interval for the share of failures that read it, and
takes the product of the tiers' own ETTR. That is right to about 0.2 points; the few strategies that
are shown are priced again by `recommend` on the exact model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from itertools import pairwise, product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import distinct, positive
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.reliability import model, renewal
from mofa_model.reliability.checkpoint import LONGEST_PERIOD
from mofa_model.reliability.laws import sources_of
from mofa_model.reliability.model import Job
from mofa_model.reliability.special import beta_below, gamma_above
from mofa_model.units import DAY, Count, Numeric, Ratio, Seconds

FLAT: Final = 1e-3
"""ETTR that an interval may lose and still count as flat: 0.1 points."""
MOST_STEPS: Final = 1e9
"""Steps between saves when nothing asks for saves."""
_GRID: Final = 65
"""Points of a grid of intervals. [1]"""
_FOLLOWED: Final = 3
"""Hops from which a climb starts: the best ones, if they lose at most `FLAT`. [1]"""

Curve = Callable[[NDArray[Any]], NDArray[Any]]
"""ETTR over numbers of steps."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A recommended interval."""

    steps: int
    """Steps between saves of the nearest tier."""
    every: tuple[int, ...]
    """Saves of the nearest tier for one of each tier."""
    ettr: Ratio


@dataclass(frozen=True, kw_only=True)
class Departure:
    """ETTR at other intervals than the best one."""

    half: Ratio
    """ETTR with half the interval. [1]"""
    double: Ratio
    """ETTR with twice the interval. [1]"""
    flat: tuple[int, int]
    """Least and most steps that lose at most 0.1 points."""


def best_steps(
    rate: Numeric,
    step_time: Seconds,
    blocking: Seconds,
    background: Seconds = 0.0,
    slowdown: Ratio = 0.0,
    *,
    most: Count = MOST_STEPS,
) -> Count:
    """Best interval in whole steps for one tier and Poisson failures: the better of both roundings.
    Ours. [1]

    `rate` is the job's failures [1/s]. Recovery does not enter.

    >>> float(best_steps(32 * 0.01 / 86400, 27.99, 2.0))
    37.0
    """
    real = np.minimum(renewal.best_work(rate, blocking, background, slowdown) / step_time, most)
    down = np.maximum(1.0, np.floor(real))
    up = np.minimum(most, down + 1)
    low = renewal.ettr(rate, 1.0, down * step_time, blocking, background, slowdown)
    high = renewal.ettr(rate, 1.0, up * step_time, blocking, background, slowdown)
    steps: Count = np.where(high > low, up, down)[()]
    return steps


def minimax_rate(low: Numeric, high: Numeric) -> Numeric:
    """Rate whose Young interval has the least worst regret between two rates: ((sqrt lo + sqrt hi)
    / 2)^2. Ours. [1/s]

    >>> round(float(1 / minimax_rate(1 / 36000, 1 / 4000)))
    9000
    """
    middle = (np.sqrt(low) + np.sqrt(high)) / 2
    return middle * middle


def recommend(
    job: Job, *, every: tuple[int, ...] | None = None, most: int = int(MOST_STEPS)
) -> Interval:
    """The best interval of one job on the exact model, for each tier; `every` fixes the tiers'
    ratios. Eq. (44). []

    >>> from mofa_model.spec.reliability import Reliability, paper_classes
    >>> job = Job(nodes=32, step_time=27.99, blocking=(2.0,), background=(0.0,),
    ...           reliability=Reliability(classes=paper_classes(0.01)))
    >>> best = recommend(job)
    >>> best.steps, departure(job, best).flat
    (37, (19, 75))
    """
    if most < 1:
        raise BadValue("most", most, "give at least one step")
    if model.is_planned(job):
        planned = model.recovery().planned(job)
        best = recommend(planned.job, every=every, most=most)
        return replace(best, ettr=best.ettr * planned.keeps)
    if len(job.blocking) > 1:
        return _nested(job, every, most)
    curve = _curve(job, (1,))
    is_poisson = job.reliability.law.kind == "exponential"
    steps = int(nearest_steps(job, most)) if is_poisson else search_steps(curve, most)
    return Interval(steps=steps, every=(1,), ettr=float(curve(np.array([float(steps)]))[0]))


def departure(job: Job, advised_interval: Interval) -> Departure:
    """ETTR at half and at twice an interval, and how flat the top is. Ours. []"""
    steps, most = advised_interval.steps, int(MOST_STEPS)
    curve = _curve(job, advised_interval.every)
    around = np.array([max(1, round(steps / 2)), min(most, steps * 2)], dtype=float)
    half, double = (float(x) for x in curve(around))
    return Departure(half=half, double=double, flat=flat_range(curve, steps, most))


def _curve(job: Job, every: tuple[int, ...]) -> Curve:
    """ETTR of a job over numbers of steps."""
    if model.is_planned(job):
        planned = model.recovery().planned(job)
        unplanned_curve = _curve(planned.job, every)
        return lambda steps: np.asarray(unplanned_curve(steps) * planned.keeps)
    if len(job.blocking) == 1:
        ettr_at_steps = model.ettr_at(job)
        return lambda steps: np.asarray(ettr_at_steps(steps))
    return lambda steps: np.array([float(model.ettr(job, int(k), every)) for k in steps])


def search_steps(curve: Curve, most: int) -> int:
    """The whole number of steps with the greatest ETTR: a log grid, refined around its best point.
    Ours. [1]

    >>> search_steps(lambda k: -np.abs(k - 4321.0), 10**9)
    4321
    """
    low, high = 1, most
    while True:
        grid = distinct(np.round(np.geomspace(low, high, _GRID)))
        best = int(np.argmax(curve(grid)))
        around = int(grid[max(0, best - 1)]), int(grid[min(len(grid) - 1, best + 1)])
        if around == (low, high) or around[1] - around[0] <= 2:
            # The grid narrows no more, so every number of steps is tried; if the curve is flat
            # there, the first one is taken.
            grid = np.arange(around[0], min(around[1], around[0] + 4096) + 1, dtype=float)
            return int(grid[int(np.argmax(curve(grid)))])
        low, high = around


def flat_range(curve: Curve, best_steps: int, most: int) -> tuple[int, int]:
    """Least and most steps whose ETTR is within 0.1 points of the best. Ours. [1]"""
    floor = float(curve(np.array([float(best_steps)]))[0]) - FLAT

    def reach(inside: int, outside: int) -> int:
        while abs(outside - inside) > 1:
            middle = (inside + outside) // 2
            fits = float(curve(np.array([float(middle)]))[0]) >= floor
            inside, outside = (middle, outside) if fits else (inside, middle)
        return inside

    return reach(best_steps, 0), reach(best_steps, most + 1)


@lru_cache(maxsize=64)  # strategies often differ only in what does not change the interval
def _nested(job: Job, every: tuple[int, ...] | None, most: int) -> Interval:
    """The best interval of a job with several tiers: a climb over points, each of them the steps
    between saves of the nearest tier, and the saves of each tier for one of the next.
    """
    steps, ratios = first_order(job, most)
    if every is not None:
        ratios = tuple(high // max(1, low) for low, high in pairwise(every))
        if _multiples(ratios) != every or min(every) < 1:
            raise BadValue("every", every, "begin with 1, and let each number divide the next")
    free = 1 if every is not None else 1 + len(ratios)

    @cache
    def worth(point: tuple[int, ...]) -> float:
        return float(model.ettr(job, point[0], _multiples(point[1:])))

    point = _climbed(worth, (steps, *ratios), free, 2.0, most)
    while True:
        hops = sorted(_hops(point, free, most), key=worth)[-_FOLLOWED:]
        near = [hop for hop in hops if worth(hop) > worth(point) - FLAT]
        # A hop lands near a top, so the climb from it begins with small steps.
        tops = (_climbed(worth, hop, free, 1.1, most) for hop in near)
        best = max(tops, key=worth, default=point)
        if worth(best) <= worth(point):
            break
        point = best
    return Interval(steps=point[0], every=_multiples(point[1:]), ettr=worth(point))


def _climbed(
    worth: Callable[[tuple[int, ...]], float],
    point: tuple[int, ...],
    free: int,
    factor: float,
    most: int,
) -> tuple[int, ...]:
    """The top that is reached by moving to the best neighbour, with ever smaller steps.

    The curve is flat near its top, so steps of one from afar would need hundreds of points.
    """
    while True:
        better = max(_neighbours(point, free, factor, most), key=worth)
        if worth(better) > worth(point):
            point = better
        elif all(round(n * factor) <= n + 1 for n in point[:free]):
            return point
        else:
            factor = np.sqrt(factor)


def _neighbours(
    point: tuple[int, ...], free: int, factor: float, most: int
) -> list[tuple[int, ...]]:
    """Points that differ from this one in a single coordinate, by a factor and at least by one."""
    points = {point}
    for tier in range(free):
        for scale in (1 / factor, factor):
            moved = round(point[tier] * scale)
            if moved == point[tier]:
                moved += 1 if scale > 1 else -1
            points.add((*point[:tier], max(1, moved), *point[tier + 1 :]))
    return _allowed(points, most)


def _hops(point: tuple[int, ...], free: int, most: int) -> list[tuple[int, ...]]:
    """Points that change one coordinate and balance it in another, so that a farther tier keeps its
    interval.

    Waits for copies make ridges: along these no single coordinate can move.
    """
    hops = set()
    for changed in range(free):
        near = {point[changed] - 1, point[changed] + 1, point[changed] // 2, point[changed] * 2}
        others = [coordinate for coordinate in range(free) if coordinate != changed]
        for value, balanced in product(near - {0}, others):
            balance = point[balanced] * point[changed] / value
            for rounded in {int(np.floor(balance)), int(np.ceil(balance))}:
                hop = list(point)
                hop[changed], hop[balanced] = value, max(1, rounded)
                hops.add(tuple(hop))
    return _allowed(hops, most)


def _allowed(points: set[tuple[int, ...]], most: int) -> list[tuple[int, ...]]:
    return sorted(
        point for point in points if point[0] <= most and np.prod(point[1:]) <= LONGEST_PERIOD
    )


def first_order(job: Job, most: int) -> tuple[int, tuple[int, ...]]:
    """Each tier's own Young interval, for the share of failures that read it: sqrt(2 c_j / (Lam
    P_j)). Source: Young 1974. [1]

    Returns steps of the nearest tier, and the ratio of each next tier's interval to the one before.
    No interval is shorter than the tier's copies take. A farther tier that would save more often
    than a nearer one saves together with it.
    """
    rate, sources = float(model.failure_rate(job)), sources_of(job.reliability)
    # For tiers that save together: failures that read them, time that their saves block, their
    # longest copy, number of tiers.
    together: list[tuple[float, float, float, int]] = []
    works: list[float] = []
    for tier, (blocking, background) in enumerate(zip(job.blocking, job.background, strict=True)):
        tier_rate = rate * sum(s.share for s in sources if s.tier == tier)
        # A tier that no failure reads is still saved, but seldom.
        saved = (tier_rate if tier_rate > 0 else rate * 1e-3, float(blocking), float(background), 1)
        while True:
            reads, blocks, copies, tiers = saved
            work = float(renewal.best_work(reads, blocks, copies, job.reliability.slowdown))
            if not works or work >= works[-1]:
                break
            works.pop()  # a farther tier never saves more often than a nearer one
            near = together.pop()
            saved = (reads + near[0], blocks + near[1], max(copies, near[2]), tiers + near[3])
        together.append(saved)
        works.append(work)
    works = [
        max(work, float(job.step_time))
        for work, saved in zip(works, together, strict=True)
        for _ in range(saved[3])
    ]
    steps = int(min(most, max(1, round(works[0] / float(job.step_time)))))
    works[0] = steps * float(job.step_time)
    ratios, used = [], 1
    for low, high in pairwise(works):
        ratio = int(min(max(1, round(high / low)), max(1, LONGEST_PERIOD // 2 // used)))
        ratios.append(ratio)
        used *= ratio
    return steps, tuple(ratios)


def _multiples(ratios: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(saves) for saves in np.cumprod((1, *ratios)))


def nearest_steps(job: Job, most: Count = MOST_STEPS) -> Count:
    """Best steps between saves of the nearest tier, for arrays of strategies. Ours. [1]

    >>> from mofa_model.spec.reliability import Reliability, paper_classes
    >>> job = Job(nodes=np.array([32, 240]), step_time=27.99, blocking=(2.0,), background=(0.0,),
    ...           reliability=Reliability(classes=paper_classes(0.01)))
    >>> nearest_steps(job)
    array([37., 14.])
    """
    rate, slowdown = _tier_rate(job, 0), job.reliability.slowdown
    return best_steps(rate, job.step_time, job.blocking[0], job.background[0], slowdown, most=most)


def best_ettr(job: Job, most: Count = MOST_STEPS) -> Ratio:
    """ETTR of strategies, each tier at its own best interval; arrays throughout. Ours. [1]

    Weibull failures have no form for arrays of jobs. There they count as Poisson, and ETTR is lower
    by about a point.
    """
    if model.is_planned(job):
        planned = model.recovery().planned(job)
        unplanned_ettr: Ratio = best_ettr(planned.job, most) * planned.keeps
        return unplanned_ettr
    steps = nearest_steps(job, most)
    law = job.reliability.law
    if law.kind == "weibull" and np.ndim(model.failure_rate(job) * steps):
        job = replace(
            job, reliability=replace(job.reliability, law=replace(law, kind="exponential"))
        )
    if len(job.blocking) == 1:
        return model.ettr(job, steps)
    eps, total = job.reliability.slowdown, model.survived(job)
    work = steps * job.step_time
    for tier, (blocking, background) in enumerate(zip(job.blocking, job.background, strict=True)):
        rate = _tier_rate(job, tier)
        if tier:
            work = np.maximum(work, renewal.best_work(rate, blocking, background, eps))
        total = total * renewal.ettr(rate, 1.0, work, blocking, background, eps)
    return total * model.available(job)


def _tier_rate(job: Job, tier: int) -> Numeric:
    """Rate of the job's failures that read a tier; of all failures if it is the only tier. [1/s]"""
    share = sum(
        s.share for s in sources_of(job.reliability) if s.tier == tier or len(job.blocking) == 1
    )
    return model.failure_rate(job) * share


LEAST: Final = 240.0
"""Shortest watchdog that is advised: a shorter one ends runs that load, save or evaluate. Ours. [s]
"""
STEPS: Final = 5
"""Steps that may be missing before a run counts as hung; the alert on stuck jobs has the same. [1]
"""
_MOST_TIMEOUTS: Final = 120
"""Timeouts that are tried where pauses are known. [1]"""


@dataclass(frozen=True)
class Watchdog:
    """A watchdog for hangs, and the ETTR that it gains."""

    timeout: Seconds
    """Time without a step after which it ends the processes. [s]"""
    worth: Ratio
    """ETTR with it minus ETTR without. [1]"""


def least_timeout(step_time: float, save: float) -> float:
    """The shortest time without progress that is surely a hang: five steps and a save, in whole
    minutes. Ours. [s]

    >>> least_timeout(10.0, 20.0), least_timeout(60.0, 30.0)
    (240.0, 360.0)
    """
    return 60.0 * float(np.ceil(max(LEAST, STEPS * step_time + save) / 60.0))


def watchdog(job: Job, steps: Count, every: tuple[int, ...]) -> Watchdog | None:
    """The watchdog that is worth most, in whole minutes; None where hangs end as soon without it.
    Ours. [s, 1]

    It waits for five steps and a save. Where pauses without a step are known, a longer one may be
    worth more, because it ends fewer of them.

    >>> from mofa_model.spec.reliability import Hangs, Reliability, paper_classes
    >>> hung = Reliability(classes=paper_classes(), hangs=Hangs(timeout=900.0))
    >>> job = Job(nodes=512, step_time=10.0, blocking=(20.0,), background=(0.0,), reliability=hung)
    >>> best = watchdog(job, 60, (1,))
    >>> best.timeout, round(100 * best.worth, 1)
    (240.0, 1.8)
    """
    hangs = job.reliability.hangs
    if hangs is None:
        return None
    least = hang_timeout(job)
    if least >= hangs.timeout:
        return None

    def ettr_with(timeout: float) -> float:
        reliability = replace(job.reliability, hangs=replace(hangs, timeout=timeout))
        return float(model.ettr(replace(job, reliability=reliability), steps, every))

    candidates = [least]
    if hangs.pauses:
        candidates = np.arange(least, float(hangs.timeout), 60.0)[:_MOST_TIMEOUTS].tolist()
    best = max(candidates, key=ettr_with)
    worth = ettr_with(best) - float(model.ettr(job, steps, every))
    return Watchdog(float(best), worth) if worth > 0 or not hangs.pauses else None


SURE: Final = 0.99
"""Chance with which the advised restarts are enough. [1]"""
USUAL_RUN: Final = 30 * DAY
"""Length of a run whose tokens nobody states. [s]"""
DUMP: Final = 120.0
"""Time in which processes write down which of them hung, before they are killed. Ours. [s]"""


def restarts_needed(mean: Count, square_spread: Count, chance: Ratio = SURE) -> int:
    """Number that failures do not exceed with a chance. Their mean is uncertain by the root of
    `square_spread`: their number is Poisson where that is zero, else negative binomial. Source:
    Gamma-Poisson mixture. [1]

    >>> restarts_needed(3.0, 0.0), restarts_needed(3.0, 9.0)
    (8, 16)
    """
    if not 0 < chance < 1:
        raise BadValue("chance", chance, "give a chance between 0 and 1")

    if mean <= 0:
        return 0

    def is_enough(count: int) -> bool:
        if square_spread <= 0:
            return bool(gamma_above(count + 1.0, mean) >= chance)
        shape = mean * mean / square_spread
        return bool(beta_below(shape, count + 1.0, shape / (shape + mean)) >= chance)

    enough = 1
    while not is_enough(enough):
        enough *= 2
    return bisect_left(range(enough), True, key=is_enough)


def length_of_run(duration: float) -> float:
    """Length of a run: as long as it trains, or `USUAL_RUN` where nobody states its tokens. [s]

    >>> length_of_run(0.0) / DAY
    30.0
    """
    return duration or USUAL_RUN


def restarts_of(job: Job, run_seconds: float = USUAL_RUN) -> int:
    """Restarts that are enough for a run of one job, by the failure rates of its pool. Ours. [1]

    >>> from mofa_model.spec.reliability import FailureMode, FailureRate, RecoveryTime, Reliability
    >>> rate = FailureRate(failures=0.0, exposure=1.0, exactly=0.005 / DAY)
    >>> mode = FailureMode(name="job", rate=rate, recovery=RecoveryTime(mean=300.0))
    >>> job = Job(nodes=20, step_time=10.0, blocking=(20.0,), background=(0.0,),
    ...           reliability=Reliability(classes=(mode,)))
    >>> restarts_of(job)
    8
    """
    positive(run_seconds=run_seconds)
    exposure = float(job.nodes) * float(job.rate_scale) * run_seconds
    mean = square_spread = 0.0
    for mode in job.reliability.classes:
        rate = mode.rate
        mean += rate.mean * exposure
        if rate.exactly is None:
            square_spread += rate.failures * (exposure / rate.exposure) ** 2
    for domain in job.reliability.domains:
        mean += domain.rate * exposure / domain.nodes
    return restarts_needed(mean, square_spread)


def hang_timeout(job: Job) -> float:
    """Time-out of a job's collectives, the first of the `timeouts` that end a hang. Ours. [s]"""
    return least_timeout(float(job.step_time), max(map(float, job.blocking)))


def timeouts(collective: Seconds) -> dict[str, Seconds]:
    """Time-outs that end a hang, in the order in which they pass: of the collectives, whose
    processes say which of them is missing; of the thread that watches collectives; of a watchdog
    outside. A later one that passes too soon hides which process it was. Ours. [s]

    >>> timeouts(240.0)
    {'collective': 240.0, 'heartbeat': 360.0, 'watchdog': 480.0}
    """
    names = ("collective", "heartbeat", "watchdog")
    return {name: collective + number * DUMP for number, name in enumerate(names)}
