"""Everything that was seen of the cluster, in memory: level state, told object by object, asked for by key.

    put(kind, body) ─▶ keys whose decision may change        drop(kind, namespace, name) ─▶ the same
    wrote(key, body)                                         what the API server answered to a write of ours
    snapshot(key, now) ─▶ JobSnapshot | ProfileSnapshot      complete, frozen, nothing in it points back here

A change that no decision depends on is silent: heartbeats, resource versions, the status of foreign kinds, and the echo of
our own writes. What came with such an echo without being ours (an edit of the spec that we had not seen, history that jobs
depend on) is told when the echo arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mofa_model.kinds import Kind
from mofa_model.kinds.shape import at, glance, part, text_of
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, JOBS, NODE, TRAINING_JOB, Key, key_of
from mofa_operator.observe.bodies import kept, older, ours, slim, theirs, unpacked
from mofa_operator.observe.measured import Measured
from mofa_operator.observe.nodes import NodeFacts, Pools, facts_of
from mofa_operator.observe.questions import existing_question, relevance, training_question
from mofa_operator.observe.relations import ListedPolicy, Relations, uses_of
from mofa_operator.snapshot import (
    Alive,
    Day,
    History,
    JobEvidence,
    JobSnapshot,
    NodeCount,
    NoHistory,
    PolicySnapshot,
    ProfileSnapshot,
    Running,
)

_IN_FLIGHT: Final = 8
"""Events older than a write of ours that may still be on their way when it is answered; after as many, what comes is taken
at its word, so that a cluster restored from a backup, whose versions go back, is believed. [1]"""
_NONE: Final[frozenset[Key]] = frozenset()


@dataclass(slots=True)
class _Entry:
    """One object."""

    version: str
    """Its resource version."""
    raw: bytes
    """Its body, packed."""
    theirs: bytes
    """Mark of what others write."""
    ours: bytes
    """Mark of what we write."""
    relevance: bytes = b""
    """Of a ClusterProfile: mark of what jobs take from it."""
    ahead: int = 0
    """Above zero while the echo of our own write is outstanding: how many older events are still let pass."""


class Store:
    """The cluster as it was last seen."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._entries: dict[Key, _Entry] = {}
        self._pools = Pools()
        self._policies: dict[str, dict[str, ListedPolicy]] = {}
        self._relations = Relations()
        self._measured = Measured()

    def put(self, kind: Kind, body: Mapping[str, Any]) -> frozenset[Key]:
        """Take in an object as it is now; the result is every key whose decision may have changed."""
        key = key_of(kind, body)
        if kind == NODE:
            return _profiles(self._pools.put(key.name, facts_of(body)))
        entry, version = self._entries.get(key), text_of(at(body, "metadata", "resourceVersion"))
        if entry is not None and entry.ahead and older(version, entry.version):
            entry.ahead -= 1
            return _NONE
        if entry is not None and not entry.ahead and version and version == entry.version:
            return _NONE
        return self._put(key, entry, slim(kind, body), version)

    def drop(self, kind: Kind, namespace: str, name: str) -> frozenset[Key]:
        """Forget an object; its own key is in the result, so that what is exported of it goes too."""
        key = Key(kind, namespace, name)
        if kind == NODE:
            return _profiles(self._pools.put(name, None))
        if self._entries.pop(key, None) is None:
            return _NONE
        self._measured.forget(key)
        if kind == ADVISOR_POLICY:
            return self._put_policy(key, None) | {key}
        if kind == CLUSTER_PROFILE:
            beside = _profiles(self._pools.select(name, None))
            self._measured.forget_profile(name)
            return self._relations.of_profile(name) | self._policies_with(name) | beside | {key}
        concerned = self._relations.unlink(key) | set(self._relations.owners(key))
        return frozenset({key, *(k for k in concerned if k in self._entries)})

    def wrote(self, key: Key, body: Mapping[str, Any]) -> None:
        """Take in what the API server answered to a write of ours: its echo is no news, and older events are stale."""
        entry, version = self._entries.get(key), text_of(at(body, "metadata", "resourceVersion"))
        if entry is None or older(version, entry.version):
            return
        entry.raw = kept(slim(key.kind, body))
        entry.version = version
        entry.ours = ours(key.kind, body)
        entry.ahead = _IN_FLIGHT

    def set_history(self, profile: str, history: History | NoHistory) -> frozenset[Key]:
        """Take in what Prometheus said of a pool; the result is the profile's key where that says anything new."""
        key = Key(CLUSTER_PROFILE, "", profile)
        told = key in self._entries and self._measured.set_history(profile, history)
        return frozenset({key}) if told else _NONE

    def set_watched(self, profile: str, days: tuple[Day, ...]) -> frozenset[Key]:
        """Take in what the watch saw of a pool; the result is the profile's key where that says anything new."""
        key = Key(CLUSTER_PROFILE, "", profile)
        return frozenset({key} if key in self._entries and self._measured.set_watched(profile, days) else ())

    def set_running(self, key: Key, running: Running | None, alive: Alive | None = None) -> frozenset[Key]:
        """Take in what a job was seen to do, None where it does not run; the result is its key where that says anything new."""
        told = key in self._entries and self._measured.set_running(key, running, alive)
        return frozenset({key}) if told else _NONE

    def set_taught(self, key: Key, profile: str, evidence: JobEvidence | None) -> frozenset[Key]:
        """Take in what a running job says of its profile; the result is the profile's key where that is new."""
        told = self._measured.set_taught(key, profile, evidence if key in self._entries else None)
        return frozenset({Key(CLUSTER_PROFILE, "", profile)}) if told else _NONE

    def keys(self, *kinds: Kind) -> list[Key]:
        """Keys of all objects of some kinds."""
        nodes = [Key(NODE, "", name) for name in self._pools.names()] if NODE in kinds else []
        return [key for key in self._entries if key.kind in kinds] + nodes

    def differs(self, kind: Kind, body: Mapping[str, Any]) -> bool:
        """Whether an object is otherwise than it was last seen, in anything that matters here."""
        key = key_of(kind, body)
        if kind == NODE:
            return self._pools.facts(key.name) != facts_of(body)
        entry = self._entries.get(key)
        return entry is None or (entry.theirs, entry.ours) != (theirs(kind, body), ours(kind, body))

    def body(self, key: Key) -> dict[str, Any] | None:
        """An object as it was last seen; None where there is none."""
        entry = self._entries.get(key)
        return None if entry is None else unpacked(entry.raw)

    def nodes(self, profile: str) -> NodeCount:
        """The nodes of a profile."""
        return self._pools.count(profile)

    def node(self, name: str) -> NodeFacts | None:
        """What is kept of a node; None where there is none."""
        return self._pools.facts(name)

    def named(self, key: Key) -> str | None:
        """The ClusterProfile that a job, its policy or a TrainingJob about it names."""
        return self._relations.uses(next(iter(self._relations.owners(key)), key)).profile or None

    def target(self, key: Key) -> dict[str, Any] | None:
        """The object that a job's targetRef names, as it was last seen; None where there is none."""
        named = self._relations.uses(key).target
        return None if named is None else self.body(named)

    def config_maps_of(self, key: Key) -> tuple[str, ...]:
        """Names of the ConfigMaps, in its namespace, that a job's question needs."""
        return tuple(sorted({name for name, _ in self._relations.uses(key).config_maps}))

    def snapshot(
        self, key: Key, now: float, config_maps: Mapping[str, Mapping[str, str]] | None = None
    ) -> JobSnapshot | ProfileSnapshot | PolicySnapshot | None:
        """All that a decision about an object needs; None where the object is gone, or nothing is decided about it.

        `now` is in seconds of the epoch [s], `config_maps` holds the data of those that `config_maps_of` names.
        """
        body = self.body(key)
        if body is None or key.kind not in {CLUSTER_PROFILE, ADVISOR_POLICY, *JOBS}:
            return None
        if key.kind == ADVISOR_POLICY:
            profile = text_of(at(body, "spec", "profile"))
            missing = bool(profile) and profile not in self._pools.profiles()
            jobs = self._relations.under(key)
            return PolicySnapshot(key=key, body=body, jobs=jobs, profile_missing=missing, now=now)
        if key.kind == CLUSTER_PROFILE:
            return ProfileSnapshot(
                key=key,
                body=body,
                nodes=self.nodes(key.name),
                shared=self._pools.shared(key.name),
                history=self._measured.history(key.name),
                watched=self._measured.watched(key.name),
                taught=self._measured.taught(key.name),
                now=now,
            )
        maps = config_maps or {}
        if key.kind == TRAINING_JOB:
            return self._training_job(key, body, maps, now)
        return self._existing(key, body, maps, now)

    def _training_job(
        self, key: Key, body: dict[str, Any], maps: Mapping[str, Mapping[str, str]], now: float
    ) -> JobSnapshot:
        uses = self._relations.uses(key)
        profile = self.body(Key(CLUSTER_PROFILE, "", uses.profile or ""))
        owners = [] if uses.target is None else self._relations.owners(uses.target)
        owner = next((other.name for other in owners[:1] if other != key), None)
        return JobSnapshot(
            key=key,
            body=body,
            question=training_question(body, profile, uses, maps),
            target=self.body(uses.target) if uses.target is not None and owner is None else None,
            owned_by=owner,
            profile=profile,
            **self._measured.sighted(key),
            now=now,
        )

    def _existing(
        self, key: Key, body: dict[str, Any], maps: Mapping[str, Mapping[str, str]], now: float
    ) -> JobSnapshot:
        uses = self._relations.uses(key)
        known = self._pools.profiles() if uses.profile is None else [uses.profile]
        found = [self.body(Key(CLUSTER_PROFILE, "", name)) for name in known]
        owners = self._relations.owners(key)
        return JobSnapshot(
            key=key,
            body=body,
            question=existing_question(
                key, body, [one for one in found if one is not None], self._policies_of(key), uses, maps
            ),
            owned_by=owners[0].name if owners else None,
            **self._measured.sighted(key),
            now=now,
        )

    def _put(self, key: Key, entry: _Entry | None, body: dict[str, Any], version: str) -> frozenset[Key]:
        """Take in any object but a node."""
        kind = key.kind
        fresh = _Entry(
            version=version,
            raw=kept(body),
            theirs=theirs(kind, body),
            ours=ours(kind, body),
            relevance=relevance(body) if kind == CLUSTER_PROFILE else b"",
        )
        self._entries[key] = fresh
        told = entry is None or entry.theirs != fresh.theirs
        own: frozenset[Key] = frozenset({key}) if told or (entry and entry.ours != fresh.ours) else _NONE
        if kind == CLUSTER_PROFILE:
            own |= self._policies_with(key.name) if entry is None else _NONE
            own |= _profiles(self._pools.select(key.name, part(body, "spec", "nodeSelector")))
            changed = entry is None or entry.relevance != fresh.relevance
            return own | self._relations.of_profile(key.name) if changed else own
        if kind == ADVISOR_POLICY:
            return own | self._put_policy(key, body) if told else own
        concerned = frozenset(self._relations.owners(key)) if own else _NONE
        if told:
            concerned |= self._relations.link(key, uses_of(key, body, self._policies_of(key)))
        return own | {k for k in concerned if k in self._entries}

    def _put_policy(self, key: Key, body: dict[str, Any] | None) -> frozenset[Key]:
        """Take in a policy, or its end: every existing job of its namespace may now be opted in, or no longer."""
        here = self._policies.setdefault(key.namespace, {})
        here.pop(key.name, None)
        if body is not None:
            here[key.name] = glance(ListedPolicy, body)
        if not here:
            del self._policies[key.namespace]
        jobs = self._relations.existing_in(key.namespace)
        told = set(jobs)
        for job in jobs:
            told |= self._relations.link(job, uses_of(job, self.body(job) or {}, self._policies_of(job)))
        return frozenset(k for k in told if k in self._entries)

    def _policies_of(self, key: Key) -> list[ListedPolicy]:
        """Policies of a namespace, in the order of their names."""
        return [policy for _, policy in sorted(self._policies.get(key.namespace, {}).items())]

    def _policies_with(self, profile: str) -> frozenset[Key]:
        """Policies that name a ClusterProfile."""
        return frozenset(
            Key(ADVISOR_POLICY, place, name)
            for place, here in self._policies.items()
            for name, policy in here.items()
            if policy.profile == profile
        )


def _profiles(names: Iterable[str]) -> frozenset[Key]:
    return frozenset(Key(CLUSTER_PROFILE, "", name) for name in names)
