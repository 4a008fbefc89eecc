"""Failures that the operator itself saw in the API server, by UTC days: the witness `Watch`.

    nodes      time for which they were ready and not cordoned; how many went down unplanned
    jobs       node-time of running jobs; interruptions and recoveries by class, from their objects

Where training jobs filled a tenth of the ready node-time or more, failures are their interruptions,
and the exposure is their node-time. Elsewhere failures are nodes that went down, all of class
`pod`, and the exposure is all ready node-time; of other classes nothing is known.
`observe.history.history` has the same rule.

What was down at the first look is not counted. While nothing was watched there is neither exposure
nor count. Suspensions, evictions and preemptions are no failures. A node counts as lost once it has
been away for a while.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from mofa_model.errors import InputError
from mofa_model.kinds import Demand, demand_of
from mofa_model.kinds.kind import JobKind, Observation
from mofa_model.kinds.shape import moment_of
from mofa_model.spec.cluster import places
from mofa_model.spec.evidence import FailureEvidence, together
from mofa_model.spec.incident_causes import SHORTEST_OUTAGE
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY
from mofa_operator.evidence import WATCH, Day, date_of
from mofa_operator.incidents.timelines import Span
from mofa_operator.objects import LiveObject, LiveProfile
from mofa_operator.observe.history.history import BUSY
from mofa_operator.observe.history.pool_samples import days_of
from mofa_operator.observe.jobs.interruptions import after_look
from mofa_operator.observe.jobs.run_record import RunRecord, evidence
from mofa_operator.observe.nodes import NodeFacts

_KEPT: Final = 3
"""Days that are kept until the status has them. [1]"""


@dataclass(frozen=True, kw_only=True)
class WatchedPool:
    """A ClusterProfile and its nodes."""

    profile: LiveProfile
    node_facts: Mapping[str, NodeFacts]

    @cached_property
    def gpus_per_node(self) -> int:
        """GPUs that most of its nodes offer; 0 where none offers any. [1]"""
        sizes = Counter(facts.gpus for facts in self.node_facts.values() if facts.gpus)
        return sizes.most_common(1)[0][0] if sizes else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedJob:
    """What the object of a job shows."""

    uid: str
    observation: Observation
    shows: frozenset[RecoveryClass]
    """Recovery classes that objects of its kind can show."""
    demand: Demand
    """What its pods ask for; 0 GPUs = unknown."""
    profile: str | None = None
    """The ClusterProfile that it, its policy or a TrainingJob names."""
    owners: frozenset[str] = frozenset()
    """Objects that made it, by uid."""


def watched_job(kind: JobKind, job: LiveObject, profile: str | None, now: float) -> WatchedJob:
    """What the object of a job shows at a moment in seconds of the epoch. [s]"""
    try:
        demand = demand_of(job.body)
    except InputError:
        demand = Demand(gpus=0)
    return WatchedJob(
        uid=job.uid,
        observation=kind.observed(job.body, now),
        shows=kind.visible_classes(job.body),
        demand=demand,
        profile=profile,
        owners=job.owners,
    )


def innermost(jobs: Iterable[WatchedJob]) -> list[WatchedJob]:
    """The jobs that own no other job of the list: of a TrainJob and its JobSet only the JobSet.

    A job that names no ClusterProfile takes the one that its owner names.
    """
    all_jobs = list(jobs)
    by_uid = {job.uid: job for job in all_jobs}
    owner_uids = {uid for job in all_jobs for uid in job.owners}
    innermost_jobs = []
    for job in all_jobs:
        if job.uid not in owner_uids:
            owners_profiles = (by_uid[uid].profile for uid in sorted(job.owners) if uid in by_uid)
            innermost_jobs.append(replace(job, profile=job.profile or next(owners_profiles, None)))
    return innermost_jobs


def placement(job: WatchedJob, pools: Mapping[str, WatchedPool]) -> tuple[str, float] | None:
    """The pool on whose nodes a job runs, and on how many; None where that is unknown.

    It is the pool that is named, else the only one, else the only one whose nodes its pods select.
    A job whose pods ask for other nodes is of no pool. A node counts as a whole, whatever part of
    it the job has: it is lost as a whole.
    """
    selector = job.demand.selector
    if job.profile:
        candidates = [job.profile]
    elif len(pools) == 1:
        candidates = list(pools)
    else:
        candidates = [
            name
            for name, pool in pools.items()
            if pool.profile.spec.node_selector.items() <= selector.items()
        ]
    if len(candidates) != 1 or (pool := pools.get(candidates[0])) is None:
        return None
    labels = pool.profile.spec.node_selector.items()
    if any(selector.get(label, value) != value for label, value in labels):
        return None
    if not job.demand.gpus or not pool.gpus_per_node:
        return None
    node_counts = places(job.demand.gpus, pool.gpus_per_node, job.demand.gpus_per_pod)
    return candidates[0], float(
        node_counts[0]
    ) if node_counts else job.demand.gpus / pool.gpus_per_node


@dataclass(frozen=True, slots=True)
class _JobLook:
    """One look at a job: its nodes, and its record before the look and after it."""

    job: WatchedJob
    nodes: float
    before: RunRecord | None
    record: RunRecord


@dataclass(slots=True)
class _Tally:
    """What was seen on one day since the operator started."""

    covered: float = 0.0
    """Time that was watched. [s]"""
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
    """Evidence that jobs added, by class; negative where an interruption changed its class."""

    def classes(self) -> dict[str, FailureEvidence]:
        """Evidence of one day by recovery class: of jobs, or of lost nodes where few jobs ran."""
        if not self.ready:
            return {}
        if self.busy < BUSY * self.ready:  # the loss of a node replaces its pods
            lost = FailureEvidence(node_days=self.ready / DAY, failures=self.lost)
            return {RecoveryClass.POD.value: lost}
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
        """`gap` is the longest time between looks that misses nothing; `flap` is how long a node
        may be away without being lost, where its profile does not say. [s]
        """
        self._gap = gap
        self._flap = flap
        self._looked: float | None = None
        self._records: dict[str, RunRecord] = {}
        self._pools: dict[str, _PoolDays] = {}

    def look(
        self, pools: Mapping[str, WatchedPool], jobs: Iterable[WatchedJob], now: float
    ) -> dict[str, tuple[Day, ...]]:
        """The last days of every pool, after one more look; `now` in seconds of the epoch. [s]"""
        if self._looked is not None and not 0 <= now - self._looked <= self._gap:
            self._records = {}
            for days in self._pools.values():
                days.pause()
        self._looked = now
        looks: defaultdict[str, list[_JobLook]] = defaultdict(list)
        records: dict[str, RunRecord] = {}
        for job in innermost(jobs):
            before = self._records.get(job.uid)
            records[job.uid] = record = after_look(before, job.observation, now)
            if (home := placement(job, pools)) is not None:
                looks[home[0]].append(_JobLook(job, home[1], before, record))
        self._records = records
        old_pools, self._pools = self._pools, {}
        for name, pool in pools.items():
            pool_days = old_pools.get(name)
            if pool_days is None or pool_days.uid != pool.profile.uid:
                pool_days = _PoolDays(pool, now)
            pool_days.look(pool, looks[name], now, pool.profile.spec.shortest_outage or self._flap)
            self._pools[name] = pool_days
        return {name: days.days() for name, days in self._pools.items()}


class _PoolDays:
    """One pool's last days."""

    def __init__(self, pool: WatchedPool, now: float) -> None:
        """Begin to count a pool; today goes on from what its profile's status holds of it."""
        self.uid = pool.profile.uid
        self._tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
        self._at = now
        self._up: frozenset[str] | None = None
        self._busy = 0.0
        self._exposed: dict[str, float] = {}
        self._down: dict[str, float] = {}
        today = date_of(now)
        self._before = {
            day.date: day for day in pool.profile.days if day.witness == WATCH and day.date == today
        }

    def pause(self) -> None:
        """Forget which nodes were up: after a time without looks, the next one adds no exposure."""
        self._up = None
        self._down = {}

    def look(self, pool: WatchedPool, looks: Iterable[_JobLook], now: float, flap: float) -> None:
        """Take in one more look; a node that is away for no longer than `flap` is not lost. [s]"""
        up = frozenset(
            name for name, facts in pool.node_facts.items() if facts.ready and not facts.cordoned
        )
        if self._up is not None:
            self._add_exposure(len(self._up), now)
            self._add_lost_nodes(pool, up, now, flap)
        self._busy, self._exposed = 0.0, {}
        for look in looks:
            before, record = look.before, look.record
            if self._up is not None and before is not None and record.has_run:
                self._add_interruptions(look.job, before, record, now)
            suspended = look.job.observation.suspended is not None
            if record.has_run and record.ended is None and not suspended:
                self._busy += look.nodes
                for name in look.job.shows:
                    self._exposed[name] = self._exposed.get(name, 0.0) + look.nodes
        self._at, self._up = now, up

    def days(self) -> tuple[Day, ...]:
        """The last days with their evidence, at most `_KEPT`."""
        for date in sorted(self._tallies)[:-_KEPT]:
            del self._tallies[date]
        recent_days = []
        for date, tally in sorted(self._tallies.items()):
            covered, classes = tally.covered, tally.classes()
            if earlier := self._before.get(date):
                covered += earlier.covered
                classes = dict(together(earlier.classes, classes))
            if covered:
                recent_days.append(Day(date=date, witness=WATCH, covered=covered, classes=classes))
        return tuple(recent_days)

    def _add_exposure(self, ready: int, now: float) -> None:
        """Count the time since the last look as exposure, as that look saw nodes and jobs."""
        for day in days_of(Span(self._at, now)) if now > self._at else ():
            tally = self._tallies[date_of(day.start)]
            tally.covered += day.seconds
            tally.ready += day.seconds * ready
            tally.busy += day.seconds * min(self._busy, ready)
            for name, nodes in self._exposed.items():
                tally.exposure[name] += day.seconds * min(nodes, ready)

    def _add_lost_nodes(
        self, pool: WatchedPool, up: frozenset[str], now: float, flap: float
    ) -> None:
        """Count nodes that are there, not ready, not cordoned and long away: unplanned."""
        for name in (self._up or frozenset()) - up:
            facts = pool.node_facts.get(name)
            if facts is not None and not facts.ready and not facts.cordoned:
                self._down[name] = moment_of(facts.lost) or now
        for name, since in list(self._down.items()):
            if name in up:
                del self._down[name]
            elif now - since > flap:
                del self._down[name]
                self._tallies[date_of(now)].lost += 1

    def _add_interruptions(
        self, job: WatchedJob, before: RunRecord, record: RunRecord, now: float
    ) -> None:
        """Add what a look added to a job's record to the evidence of today."""
        if (before.incidents, before.older) == (record.incidents, record.older):
            return
        was, is_now = evidence(before), evidence(record)
        today = date_of(now)
        for name in job.shows:
            changes = self._tallies[today].changes
            changes[name] += is_now[name] - was[name]
            if changes[name].failures < 0:
                # yesterday's interruption recovered today as another class: take it off yesterday
                over = FailureEvidence(failures=changes[name].failures)
                changes[name] -= over
                for date in sorted(self._tallies, reverse=True)[1:2]:
                    self._tallies[date].changes[name] += over
