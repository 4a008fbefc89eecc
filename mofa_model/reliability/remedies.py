"""What would have helped a pool: its own past, replayed through alternatives.

Every alternative changes parts of standstills that were seen, so what it gains is a sum over them:

    recovery plans        each standstill as `replay` says: watchdog, in place, peers, replicas …
    another interval      less or more work was done since the last save
    faster scheduling     new pods were made and started as fast as the fastest tenth
    more or fewer spares  jobs waited for other repairs, event by event
    lemons out            nodes that surely fail more often than others failed as often as these

Time that is gained trains as well as the job's other time did. A band holds two uncertainties. The
standstills are few, so weeks are drawn anew (whole weeks, because failures cluster). And where it
matters whose fault a standstill was, that is drawn by its odds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property
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
"""Recovery plans that are tried where nobody names one."""
INTERVALS: Final = (5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, 60 * MINUTE)
"""Intervals between saves that are tried. [s]"""
MOST_SPARES: Final = 8
"""Most spare nodes that are tried. [1]"""
_FORTNIGHT: Final = 14.0
"""Span by which the clustering of a node's failures is judged. [d]"""
_DRAWS: Final = 400
"""Draws of a band. [1]"""
_GUESS: Final = 0.8
"""Spread of the logarithm of lost work, where that is an estimate. Ours. [1]"""
_WEEKS: Final = 6
"""Fewest weeks that are drawn as a whole; a shorter past is drawn by days. [1]"""
SHORT: Final = 14.0
"""Days below which a past is too short to be sure of anything. Ours. [d]"""
_NEAR: Final = 1800.0
"""Longest time between an outage of a node and the standstill that it made. [s]"""


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """An alternative, and what it would have gained."""

    name: str
    """The change, in words."""
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
    """Its condition, as a sentence."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the band leaves zero out: the alternative surely gains, or surely loses."""
        return self.gain.lower > 0 or self.gain.upper < 0

    @property
    def is_worthwhile(self) -> bool:
        """Whether it surely gains, and does not surely cost more than it gains."""
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
    """Doubts about the result, in sentences."""

    @property
    def effective_share(self) -> Ratio:
        """Effective GPU-hours of those paid: one number of a fleet. [1]"""
        return self.effective / self.paid if self.paid else 0.0

    @property
    def is_short(self) -> bool:
        """Whether so little is known that the next weeks may be quite different. Ours."""
        return self.window_days < SHORT or self.standstills < FEW

    def best(self, most: int) -> tuple[Remedy, ...]:
        """The few remedies that help most, of those that change the same thing only the best."""
        by_change: dict[str, Remedy] = {}
        for remedy in self.remedies:
            if remedy.is_worthwhile:
                by_change.setdefault(remedy.change, remedy)
        return tuple(by_change.values())[:most]


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
    """Settings of a replay that a pool's past does not tell."""

    gpus_per_node: int = 8
    """GPUs of a node. [1]"""
    replicas: int = 2
    """Replicas of a job that hold all of its state. [1]"""
    save: Seconds | None = None
    """Time for which a save stops training; None = nobody said it. [s]"""
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
    """Replay a pool's past through every alternative. Ours. []"""
    settings = settings or RemedySettings()
    replay = _Replay(pool_past, settings)
    remedies = sorted(replay.remedies(), key=lambda remedy: -remedy.gain.target)
    return WhatWouldHelp(
        remedies=tuple(remedies),
        paid=capacity(pool_past.account) * (24.0 * settings.gpus_per_node),
        effective=replay.kept_hours,
        window_days=replay.days,
        standstills=len(pool_past.standstills),
        lemons=replay.lemons,
        notes=tuple(replay.notes()),
    )


class _Replay:
    """A past whose alternatives are tried, its standstills as arrays."""

    def __init__(self, past: PoolPast, settings: RemedySettings) -> None:
        self._past, self._settings = past, settings
        self._stops = past.standstills
        self.days = (past.end - past.begin) / DAY
        self.kept_hours = 24.0 * settings.gpus_per_node * _node_days(past, NodeState.KEPT)
        self._blocks = max(1, round(self.days / 7 if self.days / 7 >= _WEEKS else self.days))
        self._draws = np.random.default_rng(1)
        count = len(self._stops)
        self._holds = np.array([stop.holds for stop in self._stops], dtype=float)
        share = trained_shares(past)
        self._share = share[""]
        self._trains = np.array([share.get(stop.job, self._share) for stop in self._stops])
        self._machines = np.array([stop.machines for stop in self._stops])
        self._block = np.array([self._block_of(stop.at) for stop in self._stops], dtype=int)
        self._weights = self._draws.poisson(1.0, (_DRAWS, self._blocks)).astype(float)
        self._blamed = self._draws.random((_DRAWS, count)) < self._machines
        self._usual = usual_times(self._stops)
        self.lemons: tuple[str, ...] = ()

    def notes(self) -> Iterator[str]:
        """Doubts about the result, in sentences."""
        if not any(stop.unnoticed > 2 * MINUTE for stop in self._stops):
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
            yield (
                "What more saves cost is not taken off; say what a save stops training for "
                "(--save)."
            )

    def remedies(self) -> Iterator[Remedy]:
        """Try every alternative."""
        yield from (self._plan(plan) for plan in self._settings.plans)
        yield from (self._interval(seconds) for seconds in self._settings.intervals)
        yield self._scheduling()
        yield from self._spares()
        yield from self._lemons()

    def _plan(self, plan: RecoveryPlan) -> Remedy:
        """Replay the past under a recovery plan."""
        saved = replayed(plan, self._past, self._settings.replicas)
        return self._remedy(
            _in_words(plan, self._settings.replicas),
            plan.name.partition(":")[0] if math.isinf(plan.watchdog) else "watchdog",
            plan=plan.name,
            time_saved=[saving.time for saving in saved],
            work_saved=[saving.work for saving in saved],
            blamed=asks_whose_fault(plan),
            paid=plan.spares * self.days * 24.0 * self._settings.gpus_per_node,
            note=_note(plan),
        )

    def _interval(self, interval: float) -> Remedy:
        """Replay the past with another time between saves, the first save counted from the start of
        a run.
        """
        work_saved = [stop.lost_work - stop.trained % interval for stop in self._stops]
        return self._remedy(
            f"a save every {interval / MINUTE:g} min",
            "interval",
            work_saved=work_saved,
            cost=self._saves_cost(interval),
        )

    def _saves_cost(self, interval: float) -> float:
        """GPU-hours that saves at this interval take more than at the present one. [h]"""
        save = self._settings.save
        times = [stop.lost_work for stop in self._stops if stop.trained > stop.lost_work > 0]
        if save is None or not times:
            return 0.0
        # A failure finds half an interval unsaved on average.
        present_interval = 2 * float(np.mean(times))
        return self.kept_hours * float(save) * (1 / interval - 1 / present_interval)

    def _scheduling(self) -> Remedy:
        """Replay the past with pods that are made and started as fast as the fastest tenth."""
        start, queue = (
            float(np.quantile(times, 0.1)) if len(times) >= FEW else 0.0
            for times in (
                [stop.starting for stop in self._stops if stop.starting and not stop.in_place],
                [stop.queued for stop in self._stops if not stop.in_place],
            )
        )
        usual = self._usual
        time_saved = [
            0.0
            if stop.in_place
            else max(0.0, min(stop.starting, 2 * usual.start) - start)
            + max(0.0, min(stop.queued, 2 * usual.queue) - queue)
            for stop in self._stops
        ]
        return self._remedy(
            "every pod made and started as fast as the fastest tenth",
            "scheduling",
            time_saved=time_saved,
        )

    def _spares(self) -> Iterator[Remedy]:
        """Replay the past with other numbers of spare nodes than the pool seems to have had."""
        hits, present = self._hits, self._present_spares
        waits = np.array(waits_for_nodes(hits, present))
        block = np.array([self._block_of(hit.outage.at) for hit in hits], dtype=int)
        for spares in self._settings.spares:
            if spares == present:
                continue
            saved = waits - np.array(waits_for_nodes(hits, spares))
            hours = saved * self._share / HOUR * self._settings.gpus_per_node
            yield Remedy(
                name=f"{spares} spare node{'s' if spares != 1 else ''} (now as with {present})",
                change="spares",
                gain=self._band(hours, block),
                paid=(spares - present) * self.days * 24.0 * self._settings.gpus_per_node,
                standstills=int((saved != 0).sum()),
            )

    @cached_property
    def _present_spares(self) -> int:
        """Spare nodes that the pool seems to have: with so many its jobs would wait as long as they
        did. [1]
        """
        hits = self._hits
        waited = sum(
            wait * stop.holds
            for wait, stop in zip(map(self._usual.waited, self._stops), self._stops, strict=True)
            if stop.faulty or stop.cause == causes.DRAIN.word
        )
        idle = round(_node_days(self._past, NodeState.IDLE) / max(self.days, 1e-9))
        best = (math.inf, math.inf, 0)
        for spares in range(len({hit.outage.node for hit in hits}) + 1):
            waits = sum(waits_for_nodes(hits, spares))
            best = min(best, (abs(waits - waited), abs(spares - idle), spares))
            if not waits and spares >= idle:
                break
        return best[-1]

    @cached_property
    def _hits(self) -> list[Hit]:
        """Outages after which a node takes no pods, each with the job that it hit."""
        by_node: defaultdict[str, list[Standstill]] = defaultdict(list)
        drains = []
        for stop in self._stops:
            for node in stop.faulty:
                by_node[node].append(stop)
            if stop.cause == causes.DRAIN.word:
                drains.append(stop)
        hits = []
        for outage in self._past.outages:
            if outage.cause not in UNAVAILABLE or outage.seconds < 2 * MINUTE:
                continue
            is_drain = outage.cause == causes.DRAIN.word
            near = [
                stop
                for stop in by_node[outage.node] or (drains if is_drain else ())
                if stop.at <= outage.at + max(_NEAR, outage.seconds)
                and outage.at <= stop.at + max(_NEAR, stop.seconds)
            ]
            nearest = min(near, key=lambda stop: abs(stop.at - outage.at), default=None)
            hits.append(
                Hit(outage=outage)
                if nearest is None
                else Hit(outage=outage, job=nearest.job, missed_by=nearest.holds)
            )
        return hits

    def _lemons(self) -> Iterator[Remedy]:
        """Replay the past with a usual node in the place of each lemon.

        An outage of a lemon costs its standstills, and the time in which jobs wait for the spare
        that it took.
        """
        counts: defaultdict[str, int] = defaultdict(int)
        for failure in self._own_failures():
            counts[failure.node] += 1
        names = sorted(node for node, days in self._past.watched.items() if days > 0)
        spread = self._clustering(names)
        failed = np.array([counts[node] for node in names], dtype=float) / spread
        exposure = np.array([self._past.watched[node] for node in names]) / spread
        chosen = lemons(failed, exposure)
        self.lemons = tuple(names[index] for index in chosen)
        if not chosen:
            return
        left_out = set(self.lemons)
        cost, standstills = 0.0, 0
        for wait, stop in zip(map(self._usual.waited, self._stops), self._stops, strict=True):
            if part := len(left_out & set(stop.faulty)) / max(1, len(stop.faulty)):
                standstills += 1
                cost += part * stop.holds * (stop.seconds - wait + stop.lost_work)
        hits, present = self._hits, self._present_spares
        others = [hit for hit in hits if hit.outage.node not in left_out]
        cost += sum(waits_for_nodes(hits, present)) - sum(waits_for_nodes(others, present))
        shape, scale = prior(failed, exposure)
        rest = np.delete(np.arange(len(names)), chosen)
        usual = (failed[rest].sum() + 0.5) / exposure[rest].sum()
        rates = self._draws.gamma(failed[chosen] + shape, 1.0, (_DRAWS, len(chosen)))
        rates /= exposure[chosen] + scale
        avoided = np.maximum(((rates - usual) * exposure[chosen] * spread).sum(axis=1), 0.0)
        outages = failed[chosen].sum() * spread
        hours = cost / outages * self._share / HOUR * self._settings.gpus_per_node
        part = max(standstills, 1) / outages  # standstills of one outage
        gained = self._draws.poisson(avoided * part) / part * hours
        low, high = np.quantile(gained, _ends(self._settings.level))
        yield Remedy(
            name=f"out: {', '.join(self.lemons[:4])}{' …' if len(self.lemons) > 4 else ''}",
            change="lemons",
            gain=Range.around(avoided.mean() * hours, low, high),
            standstills=standstills,
            note="Nodes that surely fail more often than others, each replaced by a usual one.",
        )

    def _own_failures(self) -> list[NodeOutage]:
        """Failures of a node by itself: not planned, and not those of a rack."""
        return [
            outage
            for outage in self._past.outages
            if causes.CAUSES.get(outage.cause, causes.NONE).counts
            and outage.cause != causes.RACK_OUTAGE.word
        ]

    def _clustering(self, names: Sequence[str]) -> float:
        """`lemon_nodes.clustering` of the nodes' failures, by fortnights. [1]"""
        spans = max(2, int(self.days / _FORTNIGHT))
        rows = {name: row for row, name in enumerate(names)}
        counts = np.zeros((len(names), spans))
        for outage in self._own_failures():
            if outage.node in rows:
                share = (outage.at - self._past.begin) / DAY / self.days
                counts[rows[outage.node], min(max(int(share * spans), 0), spans - 1)] += 1
        return clustering(counts)

    def _remedy(
        self,
        name: str,
        change: str,
        *,
        plan: str = "",
        time_saved: Sequence[float] = (),
        work_saved: Sequence[float] = (),
        blamed: bool = False,
        cost: float = 0.0,
        paid: float = 0.0,
        note: str = "",
    ) -> Remedy:
        """A remedy, from the time and the work that it saves at each standstill. [s]"""
        none = np.zeros(len(self._stops))
        shorter = np.asarray(time_saved) * self._trains if len(time_saved) else none
        work_gain = np.asarray(work_saved) if len(work_saved) else none
        scale = self._holds / HOUR * self._settings.gpus_per_node
        gained = (shorter + work_gain) * scale
        work_lost = np.array([stop.lost_work for stop in self._stops]) * (work_gain != 0)
        guessed = work_lost * scale if self._past.lost_work_is_guessed else none
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
        """The sum of gains less a cost, with its band. `blamed`: only standstills that are the
        machines' fault gain. [h]
        """
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

    def _block_of(self, moment: float) -> int:
        """Number of the week, or of the day, of a moment. [1]"""
        share = (moment - self._past.begin) / max(self._past.end - self._past.begin, 1.0)
        return min(max(int(share * self._blocks), 0), self._blocks - 1)


def _in_words(plan: RecoveryPlan, replicas: int) -> str:
    """A recovery plan in words.

    >>> _in_words(plan_of("in-place+stand-in:spares=4"), 2)
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


def _ends(level: Ratio) -> tuple[float, float]:
    return (1 - float(level)) / 2, (1 + float(level)) / 2


def trained_shares(pool_past: PoolPast) -> dict[str, float]:
    """Share of the time in which a job held nodes whose training was kept, by job; that of all jobs
    under an empty name. [1]
    """
    kept: defaultdict[str, float] = defaultdict(float)
    held: defaultdict[str, float] = defaultdict(float)
    for row in pool_past.account:
        if row.state is NodeState.IDLE or not row.job:
            continue
        for name in (row.job, ""):
            held[name] += row.node_days
            kept[name] += row.node_days if row.state is NodeState.KEPT else 0.0
    return {"": 1.0} | {name: kept[name] / days for name, days in held.items() if days > 0}


def _node_days(past: PoolPast, state: NodeState) -> float:
    """Node-days of a pool in one state. [node d]"""
    return sum(row.node_days for row in past.account if row.state is state)


def waits_for_nodes(hits: Sequence[Hit], spares: int) -> list[float]:
    """Node-time that jobs wait for nodes after each outage, with so many spares. Ours. [node s]

    A spare takes the node's place. Without a spare the job waits for the next node that is
    repaired, whichever that is. A job that misses several nodes waits until it has all of them.

    >>> first = NodeOutage(node="a", at=0.0, seconds=3600.0, cause="reboot")
    >>> second = NodeOutage(node="b", at=600.0, seconds=3600.0, cause="reboot")
    >>> hits = [Hit(outage=first, job="x", missed_by=8), Hit(outage=second, job="y", missed_by=8)]
    >>> waits_for_nodes(hits, 0), waits_for_nodes(hits, 1)
    ([28800.0, 28800.0], [0.0, 24000.0])
    """
    events = sorted(
        [(hit.outage.at, 1, number) for number, hit in enumerate(hits)]
        + [(hit.outage.at + hit.outage.seconds, 0, number) for number, hit in enumerate(hits)]
    )
    waits, free = [0.0] * len(hits), spares
    waiting: list[int] = []
    absorbed: set[int] = set()
    missing: defaultdict[str, list[int]] = defaultdict(list)
    for moment, breaks, number in events:
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
            missed = missing[served.job]
            if all(other not in waiting for other in missed):
                waits[missed[0]] = (moment - hits[missed[0]].outage.at) * served.missed_by
                missed.clear()
        else:
            free += 1
    return waits
