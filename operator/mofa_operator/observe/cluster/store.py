"""The cluster as last seen, in memory: objects are put in one by one, and asked for by key.

    put(kind, body) ─▶ keys whose decision may change      drop(kind, namespace, name) ─▶ the same
    wrote(key, body)                                       the API server's answer to our write
    snapshot(key, now) ─▶ JobSnapshot | ProfileSnapshot    complete and frozen

A change that no decision depends on returns no key: heartbeats, resource versions, the status of
foreign kinds, the echo of our own writes. If somebody else edited the object just before our write,
its key is returned when the echo arrives.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from mofa_model.kinds import KINDS, WORKLOAD, Kind
from mofa_model.kinds.shape import Body, at, mapping
from mofa_model.manifest.surroundings import opts_in
from mofa_operator.evidence import Day, JobEvidence
from mofa_operator.keys import (
    ADVISOR_POLICY,
    CLUSTER_PROFILE,
    CONFIG_MAP,
    FAILURE_LEDGER,
    JOBS,
    NAMESPACE,
    NODE,
    TRAINING_JOB,
    Key,
    key_of,
)
from mofa_operator.objects import UNREAD, LiveObject, LiveProfile, LiveTrainingJob, live
from mofa_operator.observe.cluster.bodies import (
    BodyBudget,
    ProfileCache,
    StoredBody,
    kept,
    older,
    ours,
    packed,
    slim,
    stored,
    theirs,
    unpacked,
    version_of,
)
from mofa_operator.observe.cluster.questions import existing_question, relevance, training_question
from mofa_operator.observe.cluster.relations import (
    Dependencies,
    Dependents,
    PendingReadvice,
    Policies,
    dependencies_of,
    names_others,
    objects_named,
    profile_keys,
)
from mofa_operator.observe.nodes import NodeFacts, Pools, facts_of
from mofa_operator.settings import ApiSettings
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
    SeenLaunch,
)
from mofa_operator.workloads import LiveWorkload

_IN_FLIGHT: Final = 8
"""Most older events that may arrive after the answer to our write; more are a restore. [1]"""
_SAME: Final = 0.01
"""Change of the logarithm of a step time that is no news about a job's profile. [1]"""
_LINKED_AT_ONCE: Final = 25
"""Jobs that are linked again in one turn of the loop: some milliseconds. [1]"""
_NONE: Final[frozenset[Key]] = frozenset()


class Store:
    """The cluster as it was last seen."""

    def __init__(
        self,
        kinds: Collection[Kind] = KINDS,
        pools: Pools | None = None,
        settings: ApiSettings | None = None,
    ) -> None:
        """`kinds` are those of watched jobs, `pools` counts nodes, `settings` limit the bytes."""
        self._kinds = kinds
        self._budget = BodyBudget(settings or ApiSettings())
        self._entries: dict[Key, StoredBody] = {}
        self._pools, self._dependents = pools or Pools(), Dependents()
        self.listed = self._pools.listed  # called once all nodes that exist were put in
        self.policies = Policies()
        self._unlinked: dict[str, dict[Key, None]] = {}  # jobs to link again, by namespace
        self._concerned: set[Key] = set()  # by jobs that were linked before their turn
        self._measured, self._profiles = Measurements(), ProfileCache()
        self.pending = PendingReadvice()

    def put(self, kind: Kind, body: Body) -> frozenset[Key]:
        """Take in an object as it is now; returns every key whose decision may have changed."""
        key = key_of(kind, body)
        if kind == NODE:
            return profile_keys(self._pools.put(key.name, facts_of(body)))
        if kind == NAMESPACE:
            return self._put_namespace(key.name, wanted=opts_in({**body, "kind": kind.kind}))
        entry = self._entries.get(key)
        if entry is not None and entry.is_old(version_of(body)):
            return _NONE
        return self._put(key, entry, self._slim(key, body))

    def drop(self, kind: Kind, namespace: str, name: str) -> frozenset[Key]:
        """Forget an object; its own key is in the result, so that its metrics go too."""
        key = Key(kind, namespace, name)
        if kind == NODE:
            return profile_keys(self._pools.put(name, None))
        if kind == NAMESPACE:
            return self._put_namespace(name, wanted=False)
        entry = self._entries.pop(key, None)
        if entry is None:
            return _NONE
        self._budget.add(key.namespace, -len(entry.raw))
        self._measured.forget(key)
        if kind == ADVISOR_POLICY:
            self.policies.put(key, None)
            self._link_later(key.namespace)
            return frozenset({key})
        if kind == FAILURE_LEDGER:
            return profile_keys([name])
        if kind == CLUSTER_PROFILE:
            sharing = profile_keys(self._pools.select(name, None))
            self._measured.forget_profile(name)
            self.pending.clear(name)
            self._profiles.forget(key)
            jobs = self._dependents.of_profile(name)
            return jobs | self.policies.naming_profile(name) | sharing | {key}
        owners = frozenset(self._dependents.owners(key))
        concerned = self._dependents.unlink(key) | owners | self.pending.remove(key)
        return frozenset({key, *(other for other in concerned if other in self._entries)})

    def wrote(self, key: Key, body: Body) -> None:
        """Take in the API server's answer to our write, so that its echo is no change."""
        entry, version = self._entries.get(key), version_of(body)
        if entry is None and key.kind == FAILURE_LEDGER:  # made by this write
            entry = self._entries[key] = stored(key.kind, slim(key.kind, body))
            self._budget.add(key.namespace, len(entry.raw))
        if entry is None or older(version, entry.version):
            return
        body = self._slim(key, body)
        self._budget.add(key.namespace, -len(entry.raw))
        entry.raw, entry.unread = kept(body), UNREAD in body
        self._budget.add(key.namespace, len(entry.raw))
        entry.version, entry.ours = version, ours(key.kind, body)
        entry.ahead = _IN_FLIGHT
        entry.settled = key.kind != CLUSTER_PROFILE and theirs(key.kind, body) == entry.theirs
        if key.kind == CLUSTER_PROFILE and (profile := self.profile(key.name)) is not None:
            self.pending.update(profile, self._dependents.of_profile(key.name))

    def set_history(self, profile: str, history: History | NoHistory) -> frozenset[Key]:
        """Take in what Prometheus shows of a pool; returns the profile's key where that is new."""
        key = Key(CLUSTER_PROFILE, "", profile)
        is_new = key in self._entries and self._measured.set_history(profile, history)
        return frozenset({key} if is_new else ())

    def set_watched(self, profile: str, days: tuple[Day, ...]) -> frozenset[Key]:
        """Take in what the watch saw of a pool; returns the profile's key where that is new."""
        key = Key(CLUSTER_PROFILE, "", profile)
        is_new = key in self._entries and self._measured.set_watched(profile, days)
        return frozenset({key} if is_new else ())

    def set_running(
        self,
        key: Key,
        running: Running | None,
        alive: Alive | None = None,
        unseen: str | None = None,
    ) -> frozenset[Key]:
        """Take in what a job does, or why that is unknown; returns its key where that is new."""
        is_new = key in self._entries and self._measured.set_running(key, running, alive, unseen)
        return frozenset({key} if is_new else ())

    def set_launch(self, key: Key, launch: SeenLaunch | None) -> frozenset[Key]:
        """Take in the launch that a job's pods have; returns its key where that is new."""
        is_new = key in self._entries and self._measured.set_launch(key, launch)
        return frozenset({key} if is_new else ())

    def note_launch_event(self, key: Key) -> None:
        """Note that the Event about the launch of a job's pods was posted."""
        self._measured.note_launch_event(key)

    def set_taught(self, key: Key, profile: str, evidence: JobEvidence | None) -> frozenset[Key]:
        """Take in what a job teaches its profile; returns the profile's key where that is new."""
        kept_evidence = evidence if key in self._entries else None
        is_new = self._measured.set_taught(key, profile, kept_evidence)
        return profile_keys([profile] if is_new else ())

    def keys(self, *kinds: Kind) -> list[Key]:
        """Keys of all objects of some kinds."""
        nodes = [Key(NODE, "", name) for name in self._pools.names()] if NODE in kinds else []
        opted = self.policies.opted_in if NAMESPACE in kinds else ()
        spaces = [Key(NAMESPACE, "", name) for name in sorted(opted)]
        return [key for key in self._entries if key.kind in kinds] + nodes + spaces

    def differs(self, kind: Kind, body: Body) -> bool:
        """Whether an object differs from what was last seen of it, as far as decisions go."""
        key = key_of(kind, body)
        if kind == NODE:
            return self._pools.facts(key.name) != facts_of(body)
        if kind == NAMESPACE:
            return opts_in({**body, "kind": kind.kind}) != (key.name in self.policies.opted_in)
        entry, body = self._entries.get(key), self._slim(key, body)
        return entry is None or (entry.theirs, entry.ours) != (theirs(kind, body), ours(kind, body))

    def _slim(self, key: Key, body: Body) -> Body:
        """A body as it is kept: without useless parts; a job's within its namespace's budget."""
        body = slim(key.kind, body)
        if key.kind not in JOBS:
            return body
        entry = self._entries.get(key)
        return self._budget.within(body, packed(body), 0 if entry is None else len(entry.raw))

    def body(self, key: Key) -> Body | None:
        """The body of an object as it was last seen; None where there is none."""
        return None if (entry := self._entries.get(key)) is None else unpacked(entry.raw)

    def live(self, key: Key) -> LiveObject | None:
        """An object as it was last seen; None where there is none."""
        if key.kind == CLUSTER_PROFILE:
            return self.profile(key.name)
        return None if (body := self.body(key)) is None else live(key.kind, body)

    def profile(self, name: str) -> LiveProfile | None:
        """A ClusterProfile by its name; None where there is none."""
        key, ledger = Key(CLUSTER_PROFILE, "", name), Key(FAILURE_LEDGER, "", name)
        return self._profiles.profile(key, self._entries.get(key), self._entries.get(ledger))

    def profiles(self) -> list[LiveProfile]:
        """Every ClusterProfile, by name."""
        return list(filter(None, map(self.profile, self._pools.profiles())))

    def nodes(self, profile: str) -> NodeCount:
        """How many nodes a profile has."""
        return self._pools.count(profile)

    def node(self, name: str) -> NodeFacts | None:
        """What is kept of a node; None where there is none."""
        return self._pools.facts(name)

    def profile_name(self, key: Key) -> str | None:
        """Name of the ClusterProfile that a job, its policy or its TrainingJob names."""
        owner = next(iter(self._dependents.owners(key)), key)
        return self._dependencies(owner).profile or None

    def target(self, key: Key) -> LiveObject | None:
        """The object that a job's targetRef names; None where there is none."""
        target = self._dependencies(key).target
        return None if target is None else self.live(target)

    def owner(self, key: Key) -> str | None:
        """Name of the TrainingJob through which a job is advised, or of the job that made it."""
        owners = self._dependents.owners(key)
        return owners[0].name if owners else self._dependencies(key).made_by

    def possible_profiles(self, key: Key) -> list[LiveProfile]:
        """ClusterProfiles that an existing job may mean, as far as they exist."""
        name = self._dependencies(key).profile
        if name is None:
            return self.profiles()
        profile = self.profile(name)
        return [] if profile is None else [profile]

    def unread_objects(self, key: Key, named: Named) -> list[Key]:
        """Objects that a job or its pods name, that its answer needs, and that `named` lacks."""
        dependencies, unread_keys = self._dependencies(key), list[Key]()
        if self.names_others(key):
            body = unpacked(self._entries[key].raw)
            unread_keys = objects_named(key, dependencies, body, named)
        if dependencies.target is not None and (target_body := self.body(dependencies.target)):
            # the runtime of a TrainJob says whether its container reads the arguments
            named_by_target = objects_named(
                dependencies.target, Dependencies(asks=True), target_body, named
            )
            unread_keys += [other for other in named_by_target if other.kind != CONFIG_MAP]
        return unread_keys

    def names_others(self, key: Key) -> bool:
        """Whether a job that asks may name others on which its answer depends."""
        if (entry := self._entries.get(key)) is None:
            return False
        return names_others(key.kind, self._dependencies(key), entry.raw)

    def snapshot(
        self, key: Key, now: float, named: Named | None = None
    ) -> JobSnapshot | ProfileSnapshot | PolicySnapshot | None:
        """What is known for a decision about an object; None if it is gone or needs no decision.

        `now` is in seconds of the epoch [s]; `named` has its `unread_objects`, which were read.
        """
        current, named = self.live(key), named or Named()
        if isinstance(current, LiveTrainingJob):
            return self._training_job(current, named, now)
        if isinstance(current, LiveProfile):
            return ProfileSnapshot(
                profile=current,
                node_count=self.nodes(key.name),
                shared=self._pools.shared(key.name),
                **self._measured.of_profile(key.name),
                influence=self.policies.influence(),
                job_count=len(self._dependents.of_profile(key.name)),
                all_asked=not self.pending.count(key.name),
                now=now,
            )
        if current is None:
            return None
        if key.kind == ADVISOR_POLICY:
            profile = self.policies.profile(key)
            missing = bool(profile) and profile not in self._pools.profiles()
            jobs = self._dependents.count_under(key)
            return PolicySnapshot(policy=current, job_count=jobs, profile_missing=missing, now=now)
        return self._existing(current, named, now) if key.kind in JOBS else None

    def _training_job(self, job: LiveTrainingJob, named: Named, now: float) -> JobSnapshot:
        """The snapshot of a TrainingJob with what surrounds it."""
        dependencies = self._dependencies(job.key)
        profile, target = self.profile(dependencies.profile or ""), dependencies.target
        owners = [] if target is None else self._dependents.owners(target)
        owner = owners[0].name if owners and owners[0] != job.key else None
        return JobSnapshot(
            job=job,
            question=training_question(job, profile, dependencies, named),
            target=self.live(target) if target is not None and owner is None else None,
            owned_by=owner,
            profile=profile,
            beside=named.beside,
            asks_anew=profile is not None and not profile.is_asked,
            **self._measured.of_job(job.key),
            now=now,
        )

    def _existing(self, job: LiveObject, named: Named, now: float) -> JobSnapshot:
        """The snapshot of a job of another kind with what surrounds it."""
        dependencies, meant = self._dependencies(job.key), self.possible_profiles(job.key)
        policies = self.policies.of(job.key.namespace)
        opted = job.key.namespace in self.policies.opted_in
        return JobSnapshot(
            job=job,
            question=existing_question(job, meant, policies, dependencies, named, opted_in=opted),
            owned_by=self.owner(job.key),
            beside=named.beside,
            asks_anew=not all(profile.is_asked for profile in meant),
            **self._measured.of_job(job.key),
            now=now,
        )

    def _put(self, key: Key, entry: StoredBody | None, body: Body) -> frozenset[Key]:
        """Take in any object but a node."""
        kind, current = key.kind, live(key.kind, body)
        update = self._entries[key] = stored(kind, body)
        self._budget.add(key.namespace, len(update.raw) - (0 if entry is None else len(entry.raw)))
        edited = entry is None or entry.theirs != update.theirs
        own: frozenset[Key] = (
            frozenset({key}) if edited or (entry and entry.ours != update.ours) else _NONE
        )
        if isinstance(current, LiveProfile):
            update.relevance = relevance(current)
            own |= self.policies.naming_profile(key.name) if entry is None else _NONE
            own |= profile_keys(self._pools.select(key.name, current.spec.node_selector))
            jobs = self._dependents.of_profile(key.name)
            self.pending.update(current, jobs)
            return own if entry is not None and entry.relevance == update.relevance else own | jobs
        if kind == FAILURE_LEDGER:
            return profile_keys([key.name] if own else ())
        if kind == ADVISOR_POLICY:
            if edited:
                self.policies.put(key, body)
                self._link_later(key.namespace)
            return own
        concerned = frozenset(self._dependents.owners(key)) if own else _NONE
        if edited:
            dependencies = self._dependencies_of(current)
            concerned |= self._dependents.link(key, dependencies)
            if entry is None:
                self.pending.add(key, dependencies)
        return own | {other for other in concerned if other in self._entries}

    def _put_namespace(self, name: str, *, wanted: bool) -> frozenset[Key]:
        """Take in whether a namespace's label opts its jobs in; nothing else of it is kept."""
        if self.policies.opt(name, wanted=wanted):
            self._link_later(name)
        return _NONE

    def _link_later(self, namespace: str) -> None:
        """Mark the jobs of a namespace to be linked again, because its policy or label changed."""
        waiting = self._unlinked.get(namespace, {})
        waiting |= dict.fromkeys(self._dependents.existing_in(namespace) - waiting.keys())
        if waiting:
            self._unlinked[namespace] = waiting

    @property
    def is_linked(self) -> bool:
        """Whether no job is to be linked again; a job that is asked for is linked first."""
        return not self._unlinked and not self._concerned

    def link_some(self, most: int = _LINKED_AT_ONCE) -> frozenset[Key]:
        """Link some jobs of one namespace again; returns the keys that this concerns.

        Namespaces take turns. However often a policy changes, each turn costs the same, and each
        job waits at most until all others were linked once.
        """
        for namespace, waiting in list(self._unlinked.items())[:1]:
            for key in list(islice(waiting, most)):
                self._link(key)
            if waiting:
                self._unlinked[namespace] = self._unlinked.pop(namespace)
        concerned = frozenset(other for other in self._concerned if other in self._entries)
        self._concerned.clear()
        return concerned

    def _link(self, key: Key) -> None:
        """Link a job by the present policies of its namespace."""
        waiting = self._unlinked[key.namespace]
        del waiting[key]
        if not waiting:
            del self._unlinked[key.namespace]
        if (job := self.live(key)) is not None:
            before, after = self._dependents.dependencies(key), self._dependencies_of(job)
            self._concerned |= self._dependents.link(key, after)
            # A Workload never asks itself, and its check follows the policies of its job.
            if key.kind == WORKLOAD or before.asks or after.asks or before != after:
                self._concerned.add(key)

    def _dependencies(self, key: Key) -> Dependencies:
        """What a job depends on, by the present policies of its namespace."""
        if key in self._unlinked.get(key.namespace, ()):
            self._link(key)
        return self._dependents.dependencies(key)

    def link_all(self) -> frozenset[Key]:
        """Link all marked jobs again; returns the keys that this concerns."""
        concerned = set[Key]()
        while not self.is_linked:
            concerned |= self.link_some()
        return frozenset(concerned)

    def _dependencies_of(self, job: LiveObject) -> Dependencies:
        policies, namespace = self.policies.of(job.key.namespace), job.key.namespace
        opted = namespace in self.policies.opted_in
        return dependencies_of(job, policies, self._kinds, opted_in=opted)


class Measurements:
    """The last measurements of each pool and job; each setter returns whether they are new."""

    def __init__(self) -> None:
        self._histories: dict[str, History | NoHistory] = {}
        self._watched: dict[str, tuple[Day, ...]] = {}
        self._jobs: dict[Key, dict[str, Any]] = {}
        self._launches: dict[Key, dict[str, Any]] = {}
        self._taught: dict[Key, tuple[str, JobEvidence]] = {}

    def of_profile(self, profile: str) -> dict[str, Any]:
        """What was measured of a pool, as fields of its snapshot."""
        return {
            "history": self._histories.get(profile),
            "watched": self._watched.get(profile, ()),
            "taught": tuple(row for name, row in self._taught.values() if name == profile),
        }

    def of_job(self, key: Key) -> dict[str, Any]:
        """What the last look at a job brought, as fields of its snapshot."""
        return self._jobs.get(key, {}) | self._launches.get(key, {})

    def set_launch(self, key: Key, launch: SeenLaunch | None) -> bool:
        """Take in what a job's pods are told; None = none runs."""
        before = self._launches.get(key, {}).get("launch")
        if before == launch:
            return False
        self._launches[key] = {"launch": launch, "launch_told": False}
        if launch is None:
            self._launches.pop(key)
        return True

    def note_launch_event(self, key: Key) -> None:
        """The Event about what a job's pods are told was posted."""
        if key in self._launches:
            self._launches[key]["launch_told"] = True

    def set_history(self, profile: str, history: History | NoHistory) -> bool:
        """Take in a history; one that differs only in its moment is not new."""
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
        """Take in what a job does. A later moment of a living job is new, as a step may be due.

        A text in `unseen` means that this is unknown: the reason, where it is in the job's own
        spec, else empty.
        """
        before = self._jobs.pop(key, {})
        if unseen is None:
            self._jobs[key] = {"running": running, "alive": alive, "looked": True}
        elif unseen:
            self._jobs[key] = {"unseen": unseen}
        return before != self._jobs.get(key, {})

    def set_taught(self, key: Key, profile: str, evidence: JobEvidence | None) -> bool:
        """Take in what a running job teaches its profile; None = nothing, which is never new."""
        _, before = self._taught.pop(key, (profile, None))
        if evidence is None:
            return False
        self._taught[key] = profile, evidence
        if before is None or (before.log_memory is None) != (evidence.log_memory is None):
            return True
        change = (
            evidence.log_ratio - before.log_ratio,
            (evidence.log_memory or 0.0) - (before.log_memory or 0.0),
        )
        return max(map(abs, change)) > _SAME

    def forget(self, key: Key) -> None:
        """Forget a job."""
        self._jobs.pop(key, None)
        self._launches.pop(key, None)
        self._taught.pop(key, None)

    def forget_profile(self, profile: str) -> None:
        """Forget a profile."""
        self._histories.pop(profile, None)
        self._watched.pop(profile, None)


# ------------------------------------------------------------------- a Workload of Kueue that waits


def speaker(store: Store, workload: LiveWorkload) -> Key:
    """The object whose answer a Workload gets: its job's TrainingJob, else its job, else itself."""
    job = workload.job
    if job is None:
        return workload.key
    name = store.owner(job)
    return job if name is None else Key(TRAINING_JOB, job.namespace, name)


def check_snapshot(
    store: Store, workload: LiveWorkload, checks: tuple[str, ...], now: float, named: Named
) -> CheckSnapshot:
    """All that our AdmissionChecks need; `named` is what the Workload's `speaker` names."""
    snapshot = store.snapshot(speaker(store, workload), now, named)
    job = snapshot if isinstance(snapshot, JobSnapshot) else None
    existing = store.snapshot(workload.job or workload.key, now, named)
    policies = existing.question.policies if isinstance(existing, JobSnapshot) else ()
    return CheckSnapshot(
        workload=workload,
        checks=checks,
        job=job,
        question=None if job is None else _sized(job, workload),
        policy=policies[0] if policies else None,
        selectors={profile.key.name: profile.spec.node_selector for profile in store.profiles()},
        now=now,
    )


def _sized(job: JobSnapshot, workload: LiveWorkload) -> Question | None:
    """A job's question at the size that there is room for; None where it has no such question."""
    question, (room, asked) = job.question, workload.share
    if room == asked:
        return question
    if job.job.key.kind != TRAINING_JOB:
        # a policy lists the job's kind, and a Workload is of another: its list must not count here
        specs = [mapping(policy.get("spec")) for policy in question.policies]
        policies = tuple(
            {**policy, "spec": {name: value for name, value in spec.items() if name != "kinds"}}
            for policy, spec in zip(question.policies, specs, strict=True)
        )
        return replace(question, job={**question.job, **workload.admitted}, policies=policies)
    nodes = at(question.job, "spec", "cluster", "nodes")
    if not isinstance(nodes, int) or not asked or nodes * room % asked:
        return None
    spec = mapping(question.job.get("spec"))
    cluster = mapping(spec.get("cluster")) | {"nodes": nodes * room // asked}
    return replace(question, job={**question.job, "spec": spec | {"cluster": cluster}})
