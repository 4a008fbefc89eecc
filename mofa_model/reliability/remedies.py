"""What would have helped a pool: its own past, replayed through alternatives.

Every alternative changes parts of standstills that were seen, so what it gains is a sum over them:

    recovery plans      as `replay` says of each standstill: watchdog, in place, peers, replicas …
    another interval    the work since the last save is what the run before leaves of it
    faster scheduling   new pods are made and started as fast as the fastest tenth were
    more or fewer spares   who waits for whose repair, event by event
    lemons out          nodes that surely fail more often than others fail as often as these

Time that is gained trains as well as the job's other time did. The band holds what so few
standstills leave open (weeks are drawn anew, because failures cluster) and what their attribution
leaves open: where it matters whose fault a standstill was, its odds are drawn.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import positive, whole
from mofa_model.records import dataclass
from mofa_model.reliability.lemon_nodes import clustering, lemons, prior
from mofa_model.reliability.replay import FEW, UNAVAILABLE, asks_whose_fault, replayed, usual_times
from mofa_model.spec import incident_causes as causes
from mofa_model.spec.account import NodeState, capacity
from mofa_model.spec.recovery_plans import Others, RecoveryPlan, plan_of
from mofa_model.spec.standstills import NodeOutage, PoolPast, Standstill
from mofa_model.units import DAY, HOUR, MINUTE, Range, Ratio, Seconds

LEVEL: Final = 0.8
"""Level of the bands. [1]"""
REPLAYED: Final = (
    *(f"classes:watchdog={minutes}min" for minutes in (2, 5, 10, 20, 30)),
    "in-place",
    "peer",
    "stand-in",
    "replica:stall=20s:rejoin=0s",  # 20 s of downtime at 1,024 GPUs (arXiv 2412.12636)
    "shrink",
)
"""Recovery plans that are tried where none is named."""
INTERVALS: Final = (5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, 60 * MINUTE)
"""Intervals between saves that are tried. [s]"""
MOST_SPARES: Final = 8
"""Most spare nodes that are tried. [1]"""
_FORTNIGHT: Final = 14.0
"""Span by which the clustering of a node's failures is judged. [d]"""
_DRAWS: Final = 400
"""Draws of a band. [1]"""
_GUESS: Final = 0.8
"""Spread of the logarithm of lost work that is an estimate. Ours. [1]"""
_WEEKS: Final = 6
"""Weeks from which on weeks are drawn; days, where there are fewer. [1]"""
SHORT: Final = 14.0
"""Days below which a past is too short to be sure of anything. Ours. [d]"""
_NEAR: Final = 1800.0
"""Longest time between an outage of a node and the standstill that it made. [s]"""


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """An alternative, and what it would have gained."""

    name: str
    """What is changed, in words."""
    change: str
    """The word for all that change the same thing: watchdog, in-place, peer, stand-in, replica,
    shrink, interval, scheduling, spares, lemons."""
    plan: str = ""
    """The recovery plan, as --recovery takes it; empty = it is none."""
    gain: Range
    """GPU-hours of training that would have been kept more, with its band. [h]"""
    paid: float = 0.0
    """GPU-hours that would have been paid more. [h]"""
    standstills: int = 0
    """Standstills that it changes. [1]"""
    note: str = ""
    """What it rests on, as a sentence."""

    @property
    def is_told_apart(self) -> bool:
        """Whether the band leaves nothing (zero) out."""
        return self.gain.lower > 0 or self.gain.upper < 0

    @property
    def is_worthwhile(self) -> bool:
        """Whether it surely gains, and is not surely paid for with more than that."""
        return self.gain.lower > 0 and self.paid <= self.gain.upper


@dataclass(frozen=True, kw_only=True)
class WhatWouldHelp:
    """The alternatives of a pool, the best first."""

    remedies: tuple[Remedy, ...]
    """By what they would have gained."""
    paid: float
    """GPU-hours of the pool. [h]"""
    effective: float
    """GPU-hours of them that trained and were kept. [h]"""
    window_days: float
    """How long the window is. [d]"""
    standstills: int
    """Standstills that were replayed. [1]"""
    lemons: tuple[str, ...] = ()
    """Nodes that surely fail more often than others."""
    notes: tuple[str, ...] = ()
    """What is doubtful, in sentences."""

    @property
    def effective_share(self) -> Ratio:
        """Effective GPU-hours of those paid: one number of a fleet. [1]"""
        return self.effective / self.paid if self.paid else 0.0

    @property
    def is_short(self) -> bool:
        """Whether so little is known that the next weeks may be quite different. Ours."""
        return self.window_days < SHORT or self.standstills < FEW

    def best(self, most: int) -> tuple[Remedy, ...]:
        """The few remedies that help most: of those that change the same thing the best."""
        found: dict[str, Remedy] = {}
        for one in self.remedies:
            if one.is_worthwhile:
                found.setdefault(one.change, one)
        return tuple(found.values())[:most]


@dataclass(frozen=True, kw_only=True)
class Hit:
    """An outage of a node, and the job that it hit."""

    outage: NodeOutage
    """Of a node that takes no pods while it lasts."""
    job: str = ""
    """The job; empty = it hit none."""
    missed_by: int = 0
    """Nodes of that job, which wait for it. [1]"""


@dataclass(frozen=True, kw_only=True)
class RemedySettings:
    """What is not in a pool's past."""

    gpus_per_node: int = 8
    """GPUs of a node. [1]"""
    replicas: int = 2
    """Replicas of a job that hold all of its state. [1]"""
    save: Seconds | None = None
    """Time that a save stops training for; None = nobody said it. [s]"""
    level: Ratio = LEVEL
    """Level of the bands. [1]"""
    plans: tuple[RecoveryPlan, ...] = field(default=tuple(map(plan_of, REPLAYED)))
    """Recovery plans."""
    intervals: tuple[float, ...] = INTERVALS
    """Intervals between saves. [s]"""
    spares: tuple[int, ...] = field(default=tuple(range(MOST_SPARES + 1)))
    """Numbers of spare nodes. [1]"""

    def __post_init__(self) -> None:
        whole(gpus_per_node=self.gpus_per_node, replicas=self.replicas)
        for value in self.intervals:
            positive(interval=value)


def what_would_help(pool_past: PoolPast, settings: RemedySettings | None = None) -> WhatWouldHelp:
    """A pool's past through every alternative. Ours. []"""
    settings = settings or RemedySettings()
    replay = _Replay(pool_past, settings)
    found = sorted(replay.remedies(), key=lambda one: -one.gain.target)
    hours = 24.0 * settings.gpus_per_node
    kept = sum(one.node_days for one in pool_past.account if one.state is NodeState.KEPT)
    return WhatWouldHelp(
        remedies=tuple(found),
        paid=capacity(pool_past.account) * hours,
        effective=kept * hours,
        window_days=(pool_past.end - pool_past.begin) / DAY,
        standstills=len(pool_past.standstills),
        lemons=replay.lemons,
        notes=tuple(replay.notes()),
    )


class _Replay:
    """A past as arrays, one entry a standstill."""

    def __init__(self, past: PoolPast, settings: RemedySettings) -> None:
        self._past, self._settings = past, settings
        self._stops = past.standstills
        self._blocks = _blocks(past)
        self._draws = np.random.default_rng(1)
        number = len(self._stops)
        self._holds = np.array([one.holds for one in self._stops], dtype=float)
        share = trained_shares(past)
        self._share = share[""]
        self._trains = np.array([share.get(one.job, self._share) for one in self._stops])
        self._machines = np.array([one.machines for one in self._stops])
        self._block = np.array([self._block_of(one.at) for one in self._stops], dtype=int)
        self._weights = self._draws.poisson(1.0, (_DRAWS, self._blocks)).astype(float)
        self._blamed = self._draws.random((_DRAWS, number)) < self._machines
        self._usual = usual_times(self._stops)
        self.lemons: tuple[str, ...] = ()

    def notes(self) -> Iterator[str]:
        """What is doubtful."""
        if not any(one.unnoticed > 2 * MINUTE for one in self._stops):
            yield (
                "Nothing stood still unnoticed for more than two minutes: either nothing hangs, or "
                "no series (mofa_train_*, DCGM_FI_PROF_PIPE_TENSOR_ACTIVE) shows it."
            )
        if self._past.lost_work_is_guessed:
            yield (
                "Nobody publishes steps, so the work that was done again is an estimate; the bands "
                "of what changes it are as wide as that."
            )
        if self._settings.save is None:
            yield "What more saves cost is not taken off; say what a save stops training for (--save)."

    def remedies(self) -> Iterator[Remedy]:
        """Every alternative."""
        yield from (self._plan(plan) for plan in self._settings.plans)
        yield from (self._interval(seconds) for seconds in self._settings.intervals)
        yield self._scheduling()
        yield from self._spares()
        yield from self._lemons()

    def _plan(self, plan: RecoveryPlan) -> Remedy:
        """Replay the past under a recovery plan; returns what that would have gained."""
        saved = replayed(plan, self._past, self._settings.replicas)
        days = (self._past.end - self._past.begin) / DAY
        return self._remedy(
            told(plan, self._settings.replicas),
            plan.name.partition(":")[0] if math.isinf(plan.watchdog) else "watchdog",
            plan=plan.name,
            stands=[one.time for one in saved],
            work=[one.work for one in saved],
            blamed=asks_whose_fault(plan),
            paid=plan.spares * days * 24.0 * self._settings.gpus_per_node,
            note=_note(plan),
        )

    def _interval(self, interval: float) -> Remedy:
        """Replay the past with another time between saves, counted from the start of each run."""
        work = [one.lost_work - one.trained % interval for one in self._stops]
        return self._remedy(
            f"a save every {interval / MINUTE:g} min",
            "interval",
            work=work,
            cost=self._saves_cost(interval),
        )

    def _saves_cost(self, interval: float) -> float:
        """GPU-hours that more saves take. [h]"""
        save = self._settings.save
        times = [one.lost_work for one in self._stops if one.trained > one.lost_work > 0]
        if save is None or not times:
            return 0.0
        kept = sum(one.node_days for one in self._past.account if one.state is NodeState.KEPT)
        now = 2 * float(np.mean(times))
        hours = kept * 24.0 * self._settings.gpus_per_node
        return hours * float(save) * (1 / interval - 1 / now)

    def _scheduling(self) -> Remedy:
        start, queue = (
            float(np.quantile(some, 0.1)) if len(some) >= FEW else 0.0
            for some in (
                [one.starting for one in self._stops if one.starting and not one.in_place],
                [one.queued for one in self._stops if not one.in_place],
            )
        )
        usual = self._usual
        stands = [
            0.0
            if one.in_place
            else max(0.0, min(one.starting, 2 * usual.start) - start)
            + max(0.0, min(one.queued, 2 * usual.queue) - queue)
            for one in self._stops
        ]
        return self._remedy(
            "every pod made and started as fast as the fastest tenth", "scheduling", stands=stands
        )

    def _spares(self) -> Iterator[Remedy]:
        """Replay the past with more spare nodes than the pool seems to have had."""
        hits, now = self._hits(), self._present_spares()
        waits = np.array(waits_for_nodes(hits, now))
        block = np.array([self._block_of(one.outage.at) for one in hits], dtype=int)
        days = (self._past.end - self._past.begin) / DAY
        for spares in self._settings.spares:
            if spares == now:
                continue
            saved = waits - np.array(waits_for_nodes(hits, spares))
            hours = saved * self._share / HOUR * self._settings.gpus_per_node
            yield Remedy(
                name=f"{spares} spare node{'s' if spares != 1 else ''} (now as with {now})",
                change="spares",
                gain=self._band(hours, block),
                paid=(spares - now) * days * 24.0 * self._settings.gpus_per_node,
                standstills=int((saved != 0).sum()),
            )

    def _present_spares(self) -> int:
        """Spare nodes as which the pool behaves: with so many its jobs would wait as they
        did. [1]
        """
        hits = self._hits()
        waited = sum(
            wait * one.holds
            for wait, one in zip(map(self._usual.waited, self._stops), self._stops, strict=True)
            if one.faulty or one.cause == causes.DRAIN.word
        )
        likely, best = _likely_spares(self._past), (math.inf, math.inf, 0)
        for spares in range(len({one.outage.node for one in hits}) + 1):
            waits = sum(waits_for_nodes(hits, spares))
            best = min(best, (abs(waits - waited), abs(spares - likely), spares))
            if not waits and spares >= likely:
                break
        return best[-1]

    def _hits(self) -> list[Hit]:
        """Outages of nodes that take them away, each with the job that it hit."""
        by_node: defaultdict[str, list[Standstill]] = defaultdict(list)
        drains = []
        for one in self._stops:
            for node in one.faulty:
                by_node[node].append(one)
            if one.cause == causes.DRAIN.word:
                drains.append(one)
        found = []
        for outage in self._past.outages:
            if outage.cause not in UNAVAILABLE or outage.seconds < 2 * MINUTE:
                continue
            is_drain = outage.cause == causes.DRAIN.word
            near = [
                one
                for one in by_node[outage.node] or (drains if is_drain else ())
                if one.at <= outage.at + max(_NEAR, outage.seconds)
                and outage.at <= one.at + max(_NEAR, one.seconds)
            ]
            hit = min(near, key=lambda one: abs(one.at - outage.at), default=None)
            found.append(
                Hit(outage=outage)
                if hit is None
                else Hit(outage=outage, job=hit.job, missed_by=hit.holds)
            )
        return found

    def _lemons(self) -> Iterator[Remedy]:
        """Nodes that surely fail more often than others, as often as these.

        An outage costs its standstills, and the time in which others wait for the spare that
        it took.
        """
        counts: defaultdict[str, int] = defaultdict(int)
        for failure in self._own_failures():
            counts[failure.node] += 1
        names = sorted(node for node, days in self._past.watched.items() if days > 0)
        spread = self._clustering(names)
        failed = np.array([counts[node] for node in names], dtype=float) / spread
        exposure = np.array([self._past.watched[node] for node in names]) / spread
        chosen = lemons(failed, exposure)
        self.lemons = tuple(names[at] for at in chosen)
        if not chosen:
            return
        out = set(self.lemons)
        cost, hit = 0.0, 0
        for wait, one in zip(map(self._usual.waited, self._stops), self._stops, strict=True):
            if part := len(out & set(one.faulty)) / max(1, len(one.faulty)):
                hit += 1
                cost += part * one.holds * (one.seconds - wait + one.lost_work)
        hits, now = self._hits(), self._present_spares()
        others = [one for one in hits if one.outage.node not in out]
        cost += sum(waits_for_nodes(hits, now)) - sum(waits_for_nodes(others, now))
        shape, scale = prior(failed, exposure)
        rest = np.delete(np.arange(len(names)), chosen)
        usual = (failed[rest].sum() + 0.5) / exposure[rest].sum()
        rates = self._draws.gamma(failed[chosen] + shape, 1.0, (_DRAWS, len(chosen)))
        rates /= exposure[chosen] + scale
        over = np.maximum(((rates - usual) * exposure[chosen] * spread).sum(axis=1), 0.0)
        outages = failed[chosen].sum() * spread
        hours = cost / outages * self._share / HOUR * self._settings.gpus_per_node
        part = max(hit, 1) / outages  # standstills of one outage
        gained = self._draws.poisson(over * part) / part * hours
        low, high = np.quantile(gained, _ends(self._settings.level))
        yield Remedy(
            name=f"out: {', '.join(self.lemons[:4])}{' …' if len(self.lemons) > 4 else ''}",
            change="lemons",
            gain=Range.around(over.mean() * hours, low, high),
            standstills=hit,
            note="Nodes that surely fail more often than others, each replaced by a usual one.",
        )

    def _own_failures(self) -> list[NodeOutage]:
        """Failures of nodes that are no one else's: not of a rack, not planned."""
        known = ((one, causes.CAUSES.get(one.cause, causes.NONE)) for one in self._past.outages)
        return [one for one, cause in known if cause.counts and cause is not causes.RACK_OUTAGE]

    def _clustering(self, names: Sequence[str]) -> float:
        """How much failures of one node cluster, by fortnights. [1]"""
        days = (self._past.end - self._past.begin) / DAY
        spans = max(2, int(days / _FORTNIGHT))
        place = {name: number for number, name in enumerate(names)}
        found = np.zeros((len(names), spans))
        for one in self._own_failures():
            if one.node in place:
                share = (one.at - self._past.begin) / DAY / days
                found[place[one.node], min(max(int(share * spans), 0), spans - 1)] += 1
        return clustering(found)

    def _remedy(
        self,
        name: str,
        change: str,
        *,
        plan: str = "",
        stands: Sequence[float] = (),
        work: Sequence[float] = (),
        blamed: bool = False,
        cost: float = 0.0,
        paid: float = 0.0,
        note: str = "",
    ) -> Remedy:
        """A remedy's gain, from standstills that are shorter and work that is not lost. [s]"""
        none = np.zeros(len(self._stops))
        shorter = np.asarray(stands) * self._trains if len(stands) else none
        again = np.asarray(work) if len(work) else none
        scale = self._holds / HOUR * self._settings.gpus_per_node
        gained = (shorter + again) * scale
        lost = np.array([one.lost_work for one in self._stops]) * (again != 0)
        guessed = lost * scale if self._past.lost_work_is_guessed else none
        return Remedy(
            name=name,
            change=change,
            plan=plan,
            gain=self._band(gained, self._block, guessed, blamed=blamed, cost=cost),
            paid=paid,
            standstills=int((gained != 0).sum()),
            note=note,
        )

    def _band(
        self,
        gained: NDArray[Any],
        block: NDArray[Any],
        guessed: NDArray[Any] | None = None,
        *,
        blamed: bool = False,
        cost: float = 0.0,
    ) -> Range:
        """The sum of gains with its band. [h]"""
        if not len(gained):
            return Range(lower=-max(cost, 0.0), target=-cost, upper=max(-cost, 0.0))
        weights = self._weights[:, block]
        odds = self._machines if blamed else np.ones(len(gained))
        drawn = weights * (self._blamed if blamed else 1.0)
        sums = drawn @ gained
        if guessed is not None and guessed.any():
            factor = np.exp(_GUESS * self._draws.standard_normal(_DRAWS))
            sums += (factor - 1) * (drawn @ guessed)
        low, high = np.quantile(sums - cost, _ends(self._settings.level))
        mean = float(odds @ gained) - cost
        return Range(lower=min(float(low), mean), target=mean, upper=max(float(high), mean))

    def _block_of(self, at: float) -> int:
        """The week or day of a moment. [1]"""
        share = (at - self._past.begin) / max(self._past.end - self._past.begin, 1.0)
        return min(max(int(share * self._blocks), 0), self._blocks - 1)


def told(plan: RecoveryPlan, replicas: int) -> str:
    """What a plan does, in words.

    >>> told(plan_of("in-place+stand-in:spares=4"), 2)
    'restart in place + 4 nodes standing by, taking over in 20 s'
    """
    parts = {
        f"a watchdog of {plan.watchdog / MINUTE:g} min": math.isfinite(plan.watchdog),
        "the whole job starts again": plan.whole,
        "restart in place": plan.attempts > 0,
        "copies in the memory of peers, every minute": plan.peers > 0,
        f"{plan.spares} node{'s' if plan.spares != 1 else ''} standing by, taking over in "
        f"{plan.takeover:g} s": plan.spares > 0,
        f"recovery replica by replica, {replicas} a job": plan.others is Others.GO_ON,
        "shrink to the nodes that are left, while one is missing": plan.others is Others.SHRINK,
    }
    return " + ".join(part for part, does in parts.items() if does) or "no plan"


def _note(plan: RecoveryPlan) -> str:
    if math.isfinite(plan.watchdog):
        return "It must be longer than the longest step, evaluation and save."
    if plan.others is Others.GO_ON:
        return "Only where a job has replicas that each hold all of its state (--replicas)."
    return ""


def _blocks(past: PoolPast) -> int:
    days = (past.end - past.begin) / DAY
    return max(1, round(days / 7) if days / 7 >= _WEEKS else round(days))


def _ends(level: Ratio) -> tuple[float, float]:
    return (1 - float(level)) / 2, (1 + float(level)) / 2


def trained_shares(pool_past: PoolPast) -> dict[str, float]:
    """Share of the time in which a job holds nodes that is kept; of all under an empty name. [1]"""
    kept: defaultdict[str, float] = defaultdict(float)
    held: defaultdict[str, float] = defaultdict(float)
    for one in pool_past.account:
        if one.state is NodeState.IDLE or not one.job:
            continue
        for name in (one.job, ""):
            held[name] += one.node_days
            kept[name] += one.node_days if one.state is NodeState.KEPT else 0.0
    return {"": 1.0} | {name: kept[name] / days for name, days in held.items() if days > 0}


def _likely_spares(past: PoolPast) -> int:
    """Nodes beside those that jobs held. [1]"""
    days = max((past.end - past.begin) / DAY, 1e-9)
    idle = sum(one.node_days for one in past.account if one.state is NodeState.IDLE)
    return round(idle / days)


def waits_for_nodes(hits: Sequence[Hit], spares: int) -> list[float]:
    """Node-time that jobs wait for nodes after each outage, with so many spares. Ours. [node s]

    A spare steps in; where there is none the job waits for the next node that is repaired,
    whoever's it was. A job that misses several waits for all of them, and once.

    >>> two = [Hit(outage=NodeOutage(node=name, at=at, seconds=3600.0, cause="reboot"), job=job, missed_by=8)
    ...        for name, at, job in (("a", 0.0, "x"), ("b", 600.0, "y"))]
    >>> waits_for_nodes(two, 0), waits_for_nodes(two, 1)
    ([28800.0, 28800.0], [0.0, 24000.0])
    """
    events = sorted(
        [(one.outage.at, 1, number) for number, one in enumerate(hits)]
        + [(one.outage.at + one.outage.seconds, 0, number) for number, one in enumerate(hits)]
    )
    waits, free = [0.0] * len(hits), spares
    waiting: list[int] = []
    absorbed: set[int] = set()
    missing: defaultdict[str, list[int]] = defaultdict(list)
    for at, breaks, number in events:
        if breaks:
            if free > 0:
                free -= 1
            elif hits[number].missed_by:
                waiting.append(number)
                missing[hits[number].job].append(number)
            else:
                absorbed.add(number)
        elif number in absorbed:
            absorbed.remove(number)
        elif waiting:
            served = hits[waiting.pop(0)]
            mine = missing[served.job]
            if all(other not in waiting for other in mine):
                waits[mine[0]] = (at - hits[mine[0]].outage.at) * served.missed_by
                mine.clear()
        else:
            free += 1
    return waits
