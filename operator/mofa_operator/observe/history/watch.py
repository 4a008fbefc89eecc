"""The watch as a witness: what the operator itself saw of each pool, day by day in UTC, without any other server.

    nodes      time for which they were ready and not cordoned; those that went down unplanned
    jobs       node-time under running jobs; incidents and recoveries by class, from their objects (`observe.interruptions`)

Where training jobs filled a tenth of the ready node-time or more, their incidents are the evidence and their node-time the
exposure; else nodes that went down are class pod over all ready node-time, and the other classes stay unknown: the rule of
`observe.history`. What stood when we first looked is a mark and counts nothing; while nobody looks there is neither exposure nor
count. Suspensions, evictions and preemptions are no failures, and a node is lost once it has been away for a while: one that is
soon back was only flapping.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeAlias

from mofa_model.errors import InputError
from mofa_model.kinds import demand_of
from mofa_model.kinds.kind import JobKind, Observation
from mofa_model.kinds.shape import moment_of
from mofa_model.spec.evidence import FailureEvidence, together
from mofa_model.spec.incident_causes import SHORTEST_OUTAGE
from mofa_model.spec.part import places
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY
from mofa_operator.evidence import WATCH, Day, date_of
from mofa_operator.objects import LiveObject, LiveProfile
from mofa_operator.observe.history.history import BUSY
from mofa_operator.observe.history.looks import Stretch
from mofa_operator.observe.history.looks import days as days_of
from mofa_operator.observe.jobs.interruptions import seen
from mofa_operator.observe.jobs.run_record import RunRecord, evidence
from mofa_operator.observe.nodes import NodeFacts

# Which jobs the watch sees, what each says of itself, and on which pool's nodes it runs. Pure.


@dataclass(frozen=True, kw_only=True)
class WatchedPool:
    """A ClusterProfile's nodes."""

    profile: LiveProfile
    """The ClusterProfile."""
    nodes: Mapping[str, NodeFacts]
    """Its nodes."""

    @cached_property
    def gpus_per_node(self) -> int:
        """GPUs that most of its nodes offer; 0 where none offers any. [1]"""
        sizes = Counter(facts.gpus for facts in self.nodes.values() if facts.gpus)
        return sizes.most_common(1)[0][0] if sizes else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What a job's object says."""

    uid: str
    """Which object."""
    observation: Observation
    """What happens to it."""
    shows: frozenset[RecoveryClass]
    """Recovery classes that its kind's object can show."""
    gpus: int
    """GPUs of its pods; 0 = not known. [1]"""
    pod: int = 0
    """GPUs of one of them; 0 = not known, or not all have as many. [1]"""
    selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of nodes that its pods ask for."""
    named: str | None = None
    """The profile that it, its policy or a TrainingJob names."""
    owners: frozenset[str] = frozenset()
    """Objects that made it, by uid."""


def told(kind: JobKind, job: LiveObject, named: str | None, now: float) -> Told:
    """What the object of a job of a kind says at a moment. `now` in seconds of the epoch. [s]"""
    try:
        demand = demand_of(job.body)
        gpus, pod, selector = demand.gpus, demand.pod, demand.selector
    except InputError:
        gpus, pod, selector = 0, 0, {}
    return Told(
        uid=job.uid,
        observation=kind.observed(job.body, now),
        shows=kind.shown(job.body),
        gpus=gpus,
        pod=pod,
        selector=selector,
        named=named,
        owners=job.owners,
    )


def innermost(jobs: Iterable[Told]) -> list[Told]:
    """Jobs without those that made others of them: a TrainJob and its JobSet are one job, which the JobSet shows better."""
    every = list(jobs)
    made = {uid for one in every for uid in one.owners}
    by_uid = {one.uid: one for one in every}
    found: list[Told] = []
    for one in every:
        if one.uid in made:
            continue
        named = one.named or next(
            (by_uid[uid].named for uid in sorted(one.owners) if uid in by_uid), None
        )
        found.append(one if named == one.named else replace(one, named=named))
    return found


def place(job: Told, pools: Mapping[str, WatchedPool]) -> tuple[str, float] | None:
    """The pool on whose nodes a job runs, and on how many; None where that is not known.

    It is the one that is named, else the only one, else the only one whose nodes its pods select; a job whose pods ask for
    other nodes is of no pool. A node counts as a whole one, whatever part of it the job has: it is lost as a whole.
    """
    fitting = [
        name
        for name, pool in pools.items()
        if pool.profile.asked.node_selector.items() <= job.selector.items()
    ]
    candidates = [job.named] if job.named else list(pools) if len(pools) == 1 else fitting
    if len(candidates) != 1 or (pool := pools.get(candidates[0])) is None or not job.gpus:
        return None
    if any(
        job.selector.get(label, value) != value
        for label, value in pool.profile.asked.node_selector.items()
    ):
        return None
    if not pool.gpus_per_node:
        return None
    found = places(job.gpus, pool.gpus_per_node, job.pod)
    return candidates[0], float(found[0]) if found else job.gpus / pool.gpus_per_node


_KEPT: Final = 3
"""Days that are held until the status has them. [1]"""

_Change: TypeAlias = tuple[Told, float, RunRecord | None, RunRecord]
"""A job, its nodes, its record before this look and after it."""


@dataclass(slots=True)
class _Tally:
    """What was seen on one day since the operator started."""

    covered: float = 0.0
    """Time for which it looked. [s]"""
    ready: float = 0.0
    """Node-time ready and not cordoned. [node s]"""
    busy: float = 0.0
    """Node-time under running jobs. [node s]"""
    lost: int = 0
    """Nodes that went down unplanned. [1]"""
    exposure: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Node-time under jobs that can show a class. [node s]"""
    changes: defaultdict[str, FailureEvidence] = field(
        default_factory=lambda: defaultdict(FailureEvidence)
    )
    """What jobs added, by class: less than nothing where an incident of before turned out to be of another class."""

    def classes(self) -> dict[str, FailureEvidence]:
        """What it comes to."""
        if not self.ready:
            return {}
        if self.busy < BUSY * self.ready:  # the loss of a node replaces its pods
            return {
                RecoveryClass.POD.value: FailureEvidence(
                    node_days=self.ready / DAY, failures=self.lost
                )
            }
        return {
            name: FailureEvidence(
                node_days=exposure / DAY,
                failures=max(0, self.changes[name].failures),
                recoveries=max(0, self.changes[name].recoveries),
                recovery_seconds=max(0.0, self.changes[name].recovery_seconds),
            )
            for name, exposure in self.exposure.items()
        }


class PoolWatch:
    """What was seen of every pool."""

    def __init__(self, gap: float, flap: float = SHORTEST_OUTAGE) -> None:
        """`gap` is the time between two looks from which on nobody looked between them [s], `flap` the longest time for
        which a node may be away without being lost, where its profile says nothing of it. [s]
        """
        self._gap = gap
        self._flap = flap
        self._looked: float | None = None
        self._records: dict[str, RunRecord] = {}
        self._pools: dict[str, _Past] = {}

    def look(
        self, pools: Mapping[str, WatchedPool], jobs: Iterable[Told], now: float
    ) -> dict[str, tuple[Day, ...]]:
        """The last days of every pool, after one more look. `now` in seconds of the epoch. [s]"""
        if self._looked is not None and not 0 <= now - self._looked <= self._gap:
            self._records = {}
            for past in self._pools.values():
                past.pause()
        self._looked = now
        changes: defaultdict[str, list[_Change]] = defaultdict(list)
        records: dict[str, RunRecord] = {}
        for job in innermost(jobs):
            before = self._records.get(job.uid)
            records[job.uid] = record = seen(before, job.observation, now)
            if (found := place(job, pools)) is not None:
                changes[found[0]].append((job, found[1], before, record))
        self._records = records
        known, self._pools = self._pools, {}
        for name, pool in pools.items():
            stands = known.get(name)
            past = (
                stands
                if stands is not None and stands.uid == pool.profile.uid
                else _Past(pool, now)
            )
            past.look(pool, changes[name], now, pool.profile.asked.shortest_outage or self._flap)
            self._pools[name] = past
        return {name: past.days() for name, past in self._pools.items()}


class _Past:
    """One pool's last days."""

    def __init__(self, pool: WatchedPool, now: float) -> None:
        """The day goes on that the profile's status holds."""
        self.uid = pool.profile.uid
        self._tallies: dict[str, _Tally] = {}
        self._at = now
        self._up: frozenset[str] | None = None
        self._busy = 0.0
        self._showing: dict[str, float] = {}
        self._down: dict[str, float] = {}
        self._stood = {
            day.date: day
            for day in pool.profile.days
            if day.witness == WATCH and day.date == date_of(now)
        }

    def pause(self) -> None:
        """Nobody looked for a while: what is seen next is a mark."""
        self._up = None
        self._down = {}

    def look(self, pool: WatchedPool, jobs: Iterable[_Change], now: float, flap: float) -> None:
        """One more look; a node that is away for no longer than `flap` is not lost. [s]"""
        up = frozenset(
            name for name, facts in pool.nodes.items() if facts.ready and not facts.cordoned
        )
        if self._up is not None:
            self._exposed(len(self._up), now)
            self._went_down(pool, self._up - up, now)
            self._stayed_down(up, now, flap)
        self._busy, self._showing = 0.0, {}
        for job, nodes, before, record in jobs:
            is_new = before is not None and (before.incidents, before.older) != (
                record.incidents,
                record.older,
            )
            if self._up is not None and before is not None and is_new and record.has_run:
                self._changed(job, before, record, now)
            if record.has_run and record.ended is None and job.observation.suspended is None:
                self._busy += nodes
                for name in job.shows:
                    self._showing[name] = self._showing.get(name, 0.0) + nodes
        self._at, self._up = now, up

    def days(self) -> tuple[Day, ...]:
        """What was seen, by day."""
        for date in sorted(self._tallies)[:-_KEPT]:
            del self._tallies[date]
        return tuple(day for date in sorted(self._tallies) if (day := self._day(date)).covered)

    def _day(self, date: str) -> Day:
        tally, stood = self._tallies[date], self._stood.get(date)
        classes = tally.classes()
        if stood is None:
            return Day(date=date, witness=WATCH, covered=tally.covered, classes=classes)
        return Day(
            date=date,
            witness=WATCH,
            covered=stood.covered + tally.covered,
            classes=together(stood.classes, classes),
        )

    def _exposed(self, ready: int, now: float) -> None:
        """Time since the last look, in the state that was found then."""
        if now <= self._at:
            return
        for part in days_of(Stretch(self._at, now)):
            tally = self._tally(part.start)
            tally.covered += part.span
            tally.ready += part.span * ready
            tally.busy += part.span * min(self._busy, ready)
            for name, nodes in self._showing.items():
                tally.exposure[name] += part.span * min(nodes, ready)

    def _went_down(self, pool: WatchedPool, gone: Iterable[str], now: float) -> None:
        """Nodes that are there, not ready and not cordoned: nobody planned that."""
        for name in gone:
            facts = pool.nodes.get(name)
            if facts is not None and not facts.ready and not facts.cordoned:
                self._down[name] = moment_of(facts.lost) or now

    def _stayed_down(self, up: frozenset[str], now: float, flap: float) -> None:
        """Those of them that have been away for long enough are lost."""
        for name, since in list(self._down.items()):
            if name in up:
                del self._down[name]
            elif now - since > flap:
                del self._down[name]
                self._tally(now).lost += 1

    def _changed(self, job: Told, before: RunRecord, record: RunRecord, now: float) -> None:
        """What a look added to a job's record; what it took for another class counts as that one from now on."""
        first, then = evidence(before), evidence(record)
        for name in job.shows:
            changes = self._tally(now).changes
            changes[name] += then[name] - first[name]
            if (
                changes[name].failures < 0
            ):  # begun yesterday as one class, recovered today as another
                over = FailureEvidence(failures=changes[name].failures)
                changes[name] -= over
                for date in sorted(self._tallies, reverse=True)[1:2]:
                    self._tallies[date].changes[name] += over

    def _tally(self, at: float) -> _Tally:
        return self._tallies.setdefault(date_of(at), _Tally())
