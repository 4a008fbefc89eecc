"""Everything that was seen of the cluster, in memory: level state, told object by object, asked for by key.

    put(kind, body) ─▶ keys whose decision may change        drop(kind, namespace, name) ─▶ the same
    wrote(key, body)                                         what the API server answered to a write of ours
    snapshot(key, now) ─▶ JobSnapshot | ProfileSnapshot      complete, frozen, nothing in it points back here

A change that no decision depends on is silent: heartbeats, resource versions, the status of foreign kinds, the echo of our own
writes. What came with such an echo without being ours, as an edit that we had not seen, is told when the echo arrives.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from mofa_model.kinds import KINDS, Kind
from mofa_model.kinds.shape import Body, at, mapping
from mofa_operator.evidence import Day, JobEvidence
from mofa_operator.keys import (
    ADVISOR_POLICY,
    CLUSTER_PROFILE,
    FAILURE_LEDGER,
    JOBS,
    NODE,
    TRAINING_JOB,
    Key,
    key_of,
)
from mofa_operator.objects import LiveObject, LiveProfile, LiveTrainingJob, live
from mofa_operator.observe.cluster.bodies import (
    StoredBody,
    Unpacked,
    kept,
    older,
    ours,
    slim,
    stored,
    theirs,
    unpacked,
    version_of,
)
from mofa_operator.observe.cluster.questions import existing_question, relevance, training_question
from mofa_operator.observe.cluster.relations import (
    Policies,
    Relations,
    Unasked,
    names_others,
    profile_keys,
    uses_of,
    wanted,
)
from mofa_operator.observe.nodes import NodeFacts, Pools, facts_of
from mofa_operator.snapshot import (
    Alive,
    CheckSnapshot,
    History,
    JobSnapshot,
    Named,
    NodeCount,
    NoHistory,
    PolicySnapshot,
    ProfileSnapshot,
    Question,
    Running,
)
from mofa_operator.workloads import LiveWorkload

_IN_FLIGHT: Final = 8
"""Events older than a write of ours that may come after its answer; then what comes is taken at its word, as after a restore. [1]"""
_NONE: Final[frozenset[Key]] = frozenset()


class Store:
    """The cluster as it was last seen."""

    def __init__(self, kinds: Collection[Kind] = KINDS, pools: Pools | None = None) -> None:
        """Nothing was seen yet; `kinds` are those of jobs that are watched, `pools` how their nodes are counted."""
        self._kinds = kinds
        self._entries: dict[Key, StoredBody] = {}
        self._pools, self._relations = pools or Pools(), Relations()
        self.listed = self._pools.listed  # once all nodes that there are were put in
        self.policies = Policies()
        self._measured, self._unpacked = Measured(), Unpacked()
        self.unasked = Unasked()
        """Jobs that were not asked yet whether what was taught lately changes their answer."""

    def put(self, kind: Kind, body: Body) -> frozenset[Key]:
        """Take in an object as it is now; the result is every key whose decision may have changed."""
        key = key_of(kind, body)
        if kind == NODE:
            return profile_keys(self._pools.put(key.name, facts_of(body)))
        entry = self._entries.get(key)
        if entry is not None and entry.is_old(version_of(body)):
            return _NONE
        return self._put(key, entry, slim(kind, body))

    def drop(self, kind: Kind, namespace: str, name: str) -> frozenset[Key]:
        """Forget an object; its own key is in the result, so that what is exported of it goes too."""
        key = Key(kind, namespace, name)
        if kind == NODE:
            return profile_keys(self._pools.put(name, None))
        if self._entries.pop(key, None) is None:
            return _NONE
        self._measured.forget(key)
        if kind == ADVISOR_POLICY:
            return self._put_policy(key, None) | {key}
        if kind == FAILURE_LEDGER:
            return profile_keys([name])
        if kind == CLUSTER_PROFILE:
            beside = profile_keys(self._pools.select(name, None))
            self._measured.forget_profile(name)
            self.unasked.settled(name)
            self._unpacked.forget(key)
            return self._relations.of_profile(name) | self.policies.naming(name) | beside | {key}
        concerned = (
            self._relations.unlink(key) | set(self._relations.owners(key)) | self.unasked.gone(key)
        )
        return frozenset({key, *(k for k in concerned if k in self._entries)})

    def wrote(self, key: Key, body: Body) -> None:
        """Take in what the API server answered to a write of ours: its echo is no news, and older events are stale."""
        entry, version = self._entries.get(key), version_of(body)
        if entry is None and key.kind == FAILURE_LEDGER:  # made by this write
            entry = self._entries[key] = stored(key.kind, slim(key.kind, body))
        if entry is None or older(version, entry.version):
            return
        entry.raw = kept(slim(key.kind, body))
        entry.version, entry.ours = version, ours(key.kind, body)
        entry.ahead = _IN_FLIGHT
        entry.told = key.kind != CLUSTER_PROFILE and theirs(key.kind, body) == entry.theirs
        if key.kind == CLUSTER_PROFILE and (profile := self.profile(key.name)) is not None:
            self.unasked.take(profile, self._relations.of_profile(key.name))

    def set_history(self, profile: str, history: History | NoHistory) -> frozenset[Key]:
        """Take in what Prometheus said of a pool; the result is the profile's key where that says anything new."""
        key = Key(CLUSTER_PROFILE, "", profile)
        told = key in self._entries and self._measured.set_history(profile, history)
        return frozenset({key} if told else ())

    def set_watched(self, profile: str, days: tuple[Day, ...]) -> frozenset[Key]:
        """Take in what the watch saw of a pool; the result is the profile's key where that says anything new."""
        key = Key(CLUSTER_PROFILE, "", profile)
        return frozenset(
            {key} if key in self._entries and self._measured.set_watched(profile, days) else ()
        )

    def set_running(
        self,
        key: Key,
        running: Running | None,
        alive: Alive | None = None,
        unseen: str | None = None,
    ) -> frozenset[Key]:
        """Take in what a job was seen to do, or why that is not known; the result is its key where that says anything new."""
        told = key in self._entries and self._measured.set_running(key, running, alive, unseen)
        return frozenset({key} if told else ())

    def set_taught(self, key: Key, profile: str, evidence: JobEvidence | None) -> frozenset[Key]:
        """Take in what a running job says of its profile; the result is the profile's key where that is new."""
        told = self._measured.set_taught(key, profile, evidence if key in self._entries else None)
        return frozenset({Key(CLUSTER_PROFILE, "", profile)}) if told else _NONE

    def keys(self, *kinds: Kind) -> list[Key]:
        """Keys of all objects of some kinds."""
        nodes = [Key(NODE, "", name) for name in self._pools.names()] if NODE in kinds else []
        return [key for key in self._entries if key.kind in kinds] + nodes

    def differs(self, kind: Kind, body: Body) -> bool:
        """Whether an object is otherwise than it was last seen, in anything that matters here."""
        key = key_of(kind, body)
        if kind == NODE:
            return self._pools.facts(key.name) != facts_of(body)
        entry = self._entries.get(key)
        return entry is None or (entry.theirs, entry.ours) != (theirs(kind, body), ours(kind, body))

    def body(self, key: Key) -> Body | None:
        """An object as it was last seen, and as it came; None where there is none."""
        return None if (entry := self._entries.get(key)) is None else unpacked(entry.raw)

    def live(self, key: Key) -> LiveObject | None:
        """An object as it was last seen; None where there is none."""
        if key.kind == CLUSTER_PROFILE:
            return self.profile(key.name)
        return None if (body := self.body(key)) is None else live(key.kind, body)

    def profile(self, name: str) -> LiveProfile | None:
        """A ClusterProfile by its name; None where there is none."""
        key, ledger = Key(CLUSTER_PROFILE, "", name), Key(FAILURE_LEDGER, "", name)
        return self._unpacked.profile(key, self._entries.get(key), self._entries.get(ledger))

    def profiles(self) -> list[LiveProfile]:
        """Every ClusterProfile, by name."""
        return [one for name in self._pools.profiles() if (one := self.profile(name)) is not None]

    def nodes(self, profile: str) -> NodeCount:
        """The nodes of a profile."""
        return self._pools.count(profile)

    def node(self, name: str) -> NodeFacts | None:
        """What is kept of a node; None where there is none."""
        return self._pools.facts(name)

    def named(self, key: Key) -> str | None:
        """The ClusterProfile that a job, its policy or a TrainingJob about it names."""
        return self._relations.uses(next(iter(self._relations.owners(key)), key)).profile or None

    def target(self, key: Key) -> LiveObject | None:
        """The object that a job's targetRef names, as it was last seen; None where there is none."""
        named = self._relations.uses(key).target
        return None if named is None else self.live(named)

    def owner(self, key: Key) -> str | None:
        """Name of the TrainingJob whose targetRef names an existing job, the first one, or of the job that made it; else None."""
        owners = self._relations.owners(key)
        return next((owner.name for owner in owners), None) or self._relations.uses(key).made_by

    def means(self, key: Key) -> list[LiveProfile]:
        """ClusterProfiles that an existing job may mean, as far as they exist."""
        named = self._relations.uses(key).profile
        return self.profiles() if named is None else [one] if (one := self.profile(named)) else []

    def wanted(self, key: Key, named: Named) -> list[Key]:
        """Objects that a job or its pods name and that its answer depends on, but for those that were read already."""
        if not self.names_others(key):
            return []
        return wanted(key, self._relations.uses(key), unpacked(self._entries[key].raw), named)

    def names_others(self, key: Key) -> bool:
        """Whether a job that asks names others on which its answer depends; sometimes one that names none."""
        entry = self._entries.get(key)
        return entry is not None and names_others(key.kind, self._relations.uses(key), entry.raw)

    def snapshot(
        self, key: Key, now: float, named: Named | None = None
    ) -> JobSnapshot | ProfileSnapshot | PolicySnapshot | None:
        """All that a decision about an object needs; None where the object is gone, or nothing is decided about it.

        `now` is in seconds of the epoch [s], `named` holds what it names (`wanted`).
        """
        stands, named = self.live(key), named or Named()
        if isinstance(stands, LiveTrainingJob):
            return self._training_job(stands, named, now)
        if isinstance(stands, LiveProfile):
            return ProfileSnapshot(
                profile=stands,
                nodes=self.nodes(key.name),
                shared=self._pools.shared(key.name),
                **self._measured.of_profile(key.name),
                influence=self.policies.influence(),
                jobs=len(self._relations.of_profile(key.name)),
                all_asked=not self.unasked.left(key.name),
                now=now,
            )
        if stands is None:
            return None
        if key.kind == ADVISOR_POLICY:
            profile = self.policies.profile(key)
            missing = bool(profile) and profile not in self._pools.profiles()
            jobs = self._relations.under(key)
            return PolicySnapshot(policy=stands, jobs=jobs, profile_missing=missing, now=now)
        return self._existing(stands, named, now) if key.kind in JOBS else None

    def _training_job(self, job: LiveTrainingJob, named: Named, now: float) -> JobSnapshot:
        uses = self._relations.uses(job.key)
        profile = self.profile(uses.profile or "")
        owners = [] if uses.target is None else self._relations.owners(uses.target)
        owner = next((other.name for other in owners[:1] if other != job.key), None)
        found = JobSnapshot(
            job=job,
            question=training_question(job, profile, uses, named),
            target=self.live(uses.target) if uses.target is not None and owner is None else None,
            owned_by=owner,
            profile=profile,
            asks_anew=profile is not None and not profile.is_asked,
            now=now,
        )
        return self._sighted(found)

    def _existing(self, job: LiveObject, named: Named, now: float) -> JobSnapshot:
        uses, meant, owner = self._relations.uses(job.key), self.means(job.key), self.owner(job.key)
        question = existing_question(job, meant, self.policies.of(job.key.namespace), uses, named)
        anew = not all(one.is_asked for one in meant)
        return self._sighted(
            JobSnapshot(job=job, question=question, owned_by=owner, asks_anew=anew, now=now)
        )

    def _sighted(self, snapshot: JobSnapshot) -> JobSnapshot:
        """With what the last look at the job brought."""
        return replace(snapshot, **self._measured.sighted(snapshot.job.key))

    def _put(self, key: Key, entry: StoredBody | None, body: Body) -> frozenset[Key]:
        """Take in any object but a node."""
        kind, stands = key.kind, live(key.kind, body)
        fresh = self._entries[key] = stored(kind, body)
        fresh.relevance = relevance(stands) if isinstance(stands, LiveProfile) else b""
        told = entry is None or entry.theirs != fresh.theirs
        own: frozenset[Key] = (
            frozenset({key}) if told or (entry and entry.ours != fresh.ours) else _NONE
        )
        if isinstance(stands, LiveProfile):
            own |= self.policies.naming(key.name) if entry is None else _NONE
            own |= profile_keys(self._pools.select(key.name, stands.asked.node_selector))
            changed = entry is None or entry.relevance != fresh.relevance
            jobs = self._relations.of_profile(key.name)
            self.unasked.take(stands, jobs)
            return own | jobs if changed else own
        if kind == FAILURE_LEDGER:
            return profile_keys([key.name] if own else ())
        if kind == ADVISOR_POLICY:
            return own | self._put_policy(key, body) if told else own
        concerned = frozenset(self._relations.owners(key)) if own else _NONE
        if told:
            uses = uses_of(stands, self.policies.of(key.namespace), self._kinds)
            concerned |= self._relations.link(key, uses)
            if entry is None:
                self.unasked.came(key, uses)
        return own | {k for k in concerned if k in self._entries}

    def _put_policy(self, key: Key, body: Body | None) -> frozenset[Key]:
        """Take in a policy, or its end: every existing job of its namespace may now be opted in, or no longer."""
        self.policies.put(key, body)
        jobs = self._relations.existing_in(key.namespace)
        told = set(jobs)
        for job in filter(None, map(self.live, jobs)):
            told |= self._relations.link(
                job.key, uses_of(job, self.policies.of(key.namespace), self._kinds)
            )
        return frozenset(k for k in told if k in self._entries)


# What was measured of objects, beside what the API server says of them: histories of pools, running jobs, what they taught.

_SAME: Final = 0.01
"""Change of the logarithm of a step time up to which a job says the same of its profile. [1]"""


class Measured:
    """The last measurement of each; every `set` says whether it brings anything new."""

    def __init__(self) -> None:
        """Nothing was measured yet."""
        self._histories: dict[str, History | NoHistory] = {}
        self._watched: dict[str, tuple[Day, ...]] = {}
        self._running: dict[Key, tuple[Running | None, Alive | None]] = {}
        self._unseen: dict[Key, str] = {}
        self._taught: dict[Key, tuple[str, JobEvidence]] = {}

    def of_profile(self, profile: str) -> dict[str, Any]:
        """What was measured of a pool, as fields of its snapshot."""
        return {
            "history": self._histories.get(profile),
            "watched": self._watched.get(profile, ()),
            "taught": tuple(said for name, said in self._taught.values() if name == profile),
        }

    def sighted(self, key: Key) -> dict[str, Any]:
        """What the last look at a job brought, as fields of its snapshot; where nobody looked, why."""
        if key not in self._running:
            return {"unseen": self._unseen.get(key, "")}
        running, alive = self._running[key]
        return {"running": running, "alive": alive, "looked": True}

    def set_history(self, profile: str, history: History | NoHistory) -> bool:
        """Take in what Prometheus said; when it was asked is no news."""
        before = self._histories.get(profile)
        self._histories[profile] = history
        if isinstance(before, History) and isinstance(history, History):
            before = replace(before, at=history.at)
        return before != history

    def set_watched(self, profile: str, days: tuple[Day, ...]) -> bool:
        """Take in what the watch saw of a pool."""
        before = self._watched.get(profile, ())
        self._watched[profile] = days
        return before != days

    def set_running(
        self, key: Key, running: Running | None, alive: Alive | None, unseen: str | None = None
    ) -> bool:
        """Take in what a job was seen to do; that time passes is news of one that is there, and may be due a step.

        `unseen` says that nobody knows it any more, and why, where that is the job's own doing; empty where it is not.
        """
        before = self._running.get(key), self._unseen.get(key, "")
        self._running.pop(key, None)
        self._unseen.pop(key, None)
        if unseen is None:
            self._running[key] = running, alive
        elif unseen:
            self._unseen[key] = unseen
        return before != (self._running.get(key), self._unseen.get(key, ""))

    def set_taught(self, key: Key, profile: str, evidence: JobEvidence | None) -> bool:
        """Take in what a running job says of its profile, None where it says nothing; an end is no news."""
        _, before = self._taught.pop(key, (profile, None))
        if evidence is None:
            return False
        self._taught[key] = profile, evidence
        if before is None or (before.log_memory is None) != (evidence.log_memory is None):
            return True
        by = (
            evidence.log_ratio - before.log_ratio,
            (evidence.log_memory or 0.0) - (before.log_memory or 0.0),
        )
        return max(map(abs, by)) > _SAME

    def forget(self, key: Key) -> None:
        """A job is no more."""
        self._running.pop(key, None)
        self._unseen.pop(key, None)
        self._taught.pop(key, None)

    def forget_profile(self, profile: str) -> None:
        """A profile is no more."""
        self._histories.pop(profile, None)
        self._watched.pop(profile, None)


# What is asked of a Workload that waits: what its job asks, of the size that there is room for.


def speaker(store: Store, workload: LiveWorkload) -> Key:
    """Who speaks for a Workload: the TrainingJob about its job, its job, or itself where nobody knows that."""
    job = workload.job
    if job is None:
        return workload.key
    name = store.owner(job)
    return job if name is None else Key(TRAINING_JOB, job.namespace, name)


def check_snapshot(
    store: Store,
    workload: LiveWorkload,
    checks: tuple[str, ...],
    now: float,
    named: Named,
) -> CheckSnapshot:
    """All that the answer of our checks needs; `now` in seconds of the epoch [s], `named` is what the speaker names."""
    found = store.snapshot(speaker(store, workload), now, named)
    job = found if isinstance(found, JobSnapshot) else None
    existing = store.snapshot(workload.job or workload.key, now, named)
    policies = existing.question.policies if isinstance(existing, JobSnapshot) else ()
    return CheckSnapshot(
        workload=workload,
        checks=checks,
        job=job,
        question=None if job is None else _sized(job, workload),
        policy=policies[0] if policies else None,
        selectors={one.key.name: one.asked.node_selector for one in store.profiles()},
        now=now,
    )


def _sized(job: JobSnapshot, workload: LiveWorkload) -> Question | None:
    """What a job asks, of the size that there is room for."""
    question, (room, asked) = job.question, workload.share
    if room == asked:
        return question
    if job.job.key.kind != TRAINING_JOB:
        policies = tuple(_of_any_kind(one) for one in question.policies)
        return replace(question, job={**question.job, **workload.admitted}, policies=policies)
    nodes = at(question.job, "spec", "cluster", "nodes")
    if not isinstance(nodes, int) or not asked or nodes * room % asked:
        return None
    spec = mapping(question.job.get("spec"))
    cluster = mapping(spec.get("cluster")) | {"nodes": nodes * room // asked}
    return replace(question, job={**question.job, "spec": spec | {"cluster": cluster}})


def _of_any_kind(policy: Body) -> Body:
    """A policy without the kinds that it lists: it was found by the job's, and a Workload is of another."""
    spec = {key: value for key, value in mapping(policy.get("spec")).items() if key != "kinds"}
    return {**policy, "spec": spec}
