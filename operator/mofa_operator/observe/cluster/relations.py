"""What jobs depend on, and so which keys a change concerns."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, TypeAlias, TypeVar

from pydantic import BeforeValidator, PlainValidator

from mofa_model.annotations import PREFIX
from mofa_model.errors import InputError
from mofa_model.kinds import (
    KINDS,
    Demand,
    JobKind,
    Kind,
    ReferencedObjects,
    controller_of,
    demand_of,
    same_kind,
)
from mofa_model.kinds.shape import Body, Shape, Text, glance, under
from mofa_model.manifest.advisor_policy import (
    MOST_HANDS,
    MOST_INFLUENCE,
    LabelSelector,
    read_selector,
)
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, CONFIG_MAP, TRAINING_JOB, Key
from mofa_operator.objects import LiveObject, LiveProfile, LiveTrainingJob
from mofa_operator.snapshot import Named

_MODE, _MODEL, _CONFIG = (PREFIX + key for key in ("mode", "model", "config-ref"))
_CONFIG_KEY: Final = "config.json"
K = TypeVar("K")


def profile_keys(names: Iterable[str]) -> frozenset[Key]:
    """Keys of ClusterProfiles."""
    return frozenset(Key(CLUSTER_PROFILE, "", name) for name in names)


# ------------------------------------------------------------------------------------ policies


def _as_list(kinds: object) -> list[object]:
    """A list of kinds; a value that is no list counts as a kind that no job has."""
    return kinds if isinstance(kinds, list) else [kinds] if kinds else []


def _within(least: int, most: int, value: object) -> int:
    """A percentage that a policy states; one out of bounds counts as the largest."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    return most


class _Listed(Shape):
    api_version: Text = ""
    kind: Text = ""


class ListedPolicy(Shape):
    """An AdvisorPolicy, as the jobs of its namespace look it up."""

    name: Text = under("", "metadata", "name")
    profile: Text = under("", "spec", "profile")
    kinds: Annotated[tuple[_Listed, ...], BeforeValidator(_as_list)] = under((), "spec", "kinds")
    selector: Annotated[LabelSelector, PlainValidator(read_selector)] = under(
        LabelSelector(), "spec", "selector"
    )
    hands: Annotated[int, PlainValidator(partial(_within, 1, MOST_HANDS))] = under(
        MOST_HANDS, "spec", "budget", "handsPercent"
    )
    influence: Annotated[int, PlainValidator(partial(_within, 0, MOST_INFLUENCE))] = under(
        MOST_INFLUENCE, "spec", "budget", "influencePercent"
    )
    spec: object = None

    def lists(self, kind: Kind, labels: Mapping[str, str]) -> bool:
        """Whether it lists a kind, and its selector matches the labels of a job."""
        return self.selector.matches(labels) and any(
            same_kind(listed.api_version, listed.kind, kind.api_version, kind.kind)
            for listed in self.kinds
        )


def policy_for(job: LiveObject, policies: Sequence[ListedPolicy]) -> ListedPolicy | None:
    """A job's policy: the first with its kind and labels, else the first without kinds."""
    listed = (policy for policy in policies if policy.lists(job.key.kind, job.labels))
    return next(listed, None) or next((policy for policy in policies if not policy.kinds), None)


class Policies:
    """AdvisorPolicies by namespace and name."""

    def __init__(self) -> None:
        self._policies: defaultdict[str, dict[str, ListedPolicy]] = defaultdict(dict)
        self.opted_in: set[str] = set()
        """Namespaces whose label opts their jobs in."""

    def opt(self, namespace: str, *, wanted: bool) -> bool:
        """Take in whether the label of a namespace opts its jobs in; returns whether it is new."""
        if wanted == (namespace in self.opted_in):
            return False
        (self.opted_in.add if wanted else self.opted_in.discard)(namespace)
        return True

    def put(self, key: Key, body: Body | None) -> None:
        """Take in a policy as it is now; None = it is gone."""
        policies = self._policies[key.namespace]
        policies.pop(key.name, None)
        if body is not None:
            policies[key.name] = glance(ListedPolicy, body)
        if not policies:
            del self._policies[key.namespace]

    def of(self, namespace: str) -> list[ListedPolicy]:
        """Policies of a namespace, in the order of their names."""
        return [policy for _, policy in sorted(self._policies.get(namespace, {}).items())]

    def profile(self, key: Key) -> str:
        """The ClusterProfile that a policy names; empty where it names none."""
        return self._policies[key.namespace][key.name].profile

    def naming_profile(self, profile: str) -> frozenset[Key]:
        """Policies that name a ClusterProfile."""
        return frozenset(
            Key(ADVISOR_POLICY, namespace, name)
            for namespace, policies in self._policies.items()
            for name, policy in policies.items()
            if policy.profile == profile
        )

    def worker_share(self, namespace: str) -> float:
        """Share of the operator's workers that a namespace may use at once. [1]"""
        return min((policy.hands for policy in self.of(namespace)), default=MOST_HANDS) / 100

    def most_workers(self, workers: int, namespace: str) -> int:
        """How many of the operator's `workers` a namespace may use at once, at least one. [1]"""
        return max(1, int(workers * self.worker_share(namespace)))

    def influence(self) -> Mapping[str, float]:
        """How far a namespace may move a pool's factors in a day, where less than usual. [1]"""
        least = {
            namespace: min(policy.influence for policy in policies.values())
            for namespace, policies in self._policies.items()
        }
        return {name: percent / 100 for name, percent in least.items() if percent < MOST_INFLUENCE}


# -------------------------------------------------------------------------------- dependencies


@dataclass(frozen=True, kw_only=True, slots=True)
class Dependencies:
    """What one job depends on, besides itself."""

    asks: bool
    """Whether it asks for advice, by itself or by a policy."""
    profile: str | None = None
    """The ClusterProfile that it names; None = it may mean any."""
    target: Key | None = None
    """The existing job that its targetRef names."""
    config_maps: tuple[tuple[str, str], ...] = ()
    """Names and keys of the ConfigMaps that it reads."""
    policy: Key | None = None
    """The AdvisorPolicy that counts for it, where it asks."""
    made_by: str | None = None
    """Name of the job of another kind that made it, and through which it is advised."""

    @property
    def policies(self) -> frozenset[Key]:
        """The policy of the job, as a list of one; empty without one."""
        return frozenset() if self.policy is None else frozenset({self.policy})


_NONE: Final = Dependencies(asks=False)


def dependencies_of(
    job: LiveObject,
    policies: Sequence[ListedPolicy],
    kinds: Collection[Kind] = KINDS,
    *,
    opted_in: bool = False,
) -> Dependencies:
    """What a job depends on; `policies` are its namespace's, `kinds` the watched kinds of jobs, and
    `opted_in` says whether a label of its namespace asks for advice.

    A job that another watched job made is advised through its maker; that its annotations ask too
    does not count, because some makers copy all annotations.
    """
    if isinstance(job, LiveTrainingJob):
        spec = job.spec
        config = (spec.config_map, spec.config_key or _CONFIG_KEY)
        return Dependencies(
            asks=True,
            profile=spec.profile,
            target=job.target,
            config_maps=(config,) if spec.config_map else (),
        )
    maker = controller_of(job.body)
    if maker is not None and maker[0] in kinds:
        return Dependencies(asks=False, made_by=maker[1])
    annotations = job.annotations
    policy = policy_for(job, policies) or ListedPolicy()
    asks = (
        opted_in
        or bool(policy.kinds)
        or any(name in annotations for name in (_MODE, _MODEL, _CONFIG))
    )
    name, _, config_key = annotations.get(_CONFIG, "").partition("/")
    counts = asks and policy.name
    return Dependencies(
        asks=asks,
        profile=None if name else policy.profile or None,  # a ConfigMap may name another
        config_maps=((name, config_key or _CONFIG_KEY),) if name else (),
        policy=Key(ADVISOR_POLICY, job.key.namespace, policy.name) if counts else None,
    )


def names_others(kind: Kind, dependencies: Dependencies, raw: bytes) -> bool:
    """Whether a job that asks may name objects that nobody watches; `raw` is its packed body."""
    if not dependencies.asks or dependencies.config_maps:
        return dependencies.asks
    return isinstance(kind, JobKind) and any(f'"{name}"'.encode() in raw for name in kind.names)


def objects_named(key: Key, dependencies: Dependencies, body: Body, named: Named) -> list[Key]:
    """Objects that a job names and that are not in `named`: ConfigMaps, runtimes, pods' claims."""
    demand = _demand(key, body, named)
    maps = {name for name, _ in dependencies.config_maps}
    maps |= {mount.config_map for mount in demand.mounts}
    return [
        *(Key(CONFIG_MAP, key.namespace, name) for name in sorted(maps - named.config_maps.keys())),
        *(
            Key(other.kind, key.namespace if other.kind.namespaced else "", other.name)
            for other in demand.missing
        ),
    ]


def texts_of(
    key: Key, dependencies: Dependencies, body: Body, named: Named
) -> dict[str, dict[str, str]]:
    """Texts that a job reads out of ConfigMaps that exist, by ConfigMap and key."""
    entries = [*dependencies.config_maps]
    if named.config_maps.keys() - {name for name, _ in entries}:
        for mount in _demand(key, body, named).mounts:
            keys = named.config_maps.get(mount.config_map, {})
            entries += [(mount.config_map, entry) for entry in keys if mount.key in {"", entry}]
    texts: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, entry in entries:
        if entry in named.config_maps.get(name, {}):
            texts[name][entry] = named.config_maps[name][entry]
    return dict(texts)


def _demand(key: Key, body: Body, named: Named) -> Demand:
    """What a job asks for, as far as it can be read."""
    if isinstance(key.kind, JobKind):
        with contextlib.suppress(InputError):
            return demand_of(body, ReferencedObjects(named.beside))
    return Demand(gpus=0)


class Dependents:
    """Which jobs depend on what, kept up to date as jobs come, change and go."""

    def __init__(self) -> None:
        self._dependencies: dict[Key, Dependencies] = {}
        self._by_profile: defaultdict[str | None, set[Key]] = defaultdict(set)
        self._by_target: defaultdict[Key, set[Key]] = defaultdict(set)
        self._existing: defaultdict[str, set[Key]] = defaultdict(set)

    def link(self, key: Key, dependencies: Dependencies) -> frozenset[Key]:
        """Take in what a job depends on; returns the other keys that this concerns."""
        before = self._dependencies.get(key)
        if before == dependencies:
            return frozenset()
        concerned = self.unlink(key) | dependencies.policies
        self._dependencies[key] = dependencies
        if key.kind != TRAINING_JOB:
            self._existing[key.namespace].add(key)
        elif dependencies.target is not None:
            self._by_target[dependencies.target].add(key)
        if dependencies.asks:
            self._by_profile[dependencies.profile].add(key)
        if before is not None and before.target == dependencies.target:
            return (
                frozenset()
                if before.policy == dependencies.policy
                else before.policies | dependencies.policies
            )
        return concerned | self._around(dependencies.target) - {key}

    def unlink(self, key: Key) -> frozenset[Key]:
        """Forget what a job depends on; returns the other keys that this concerns."""
        before = self._dependencies.pop(key, None)
        if before is None:
            return frozenset()
        _discard(self._by_profile, before.profile, key)
        _discard(self._existing, key.namespace, key)
        if before.target is not None:
            _discard(self._by_target, before.target, key)
        return (self._around(before.target) - {key}) | before.policies

    def dependencies(self, key: Key) -> Dependencies:
        """What a job depends on."""
        return self._dependencies.get(key, _NONE)

    def of_profile(self, name: str) -> frozenset[Key]:
        """Jobs whose answer may depend on a ClusterProfile."""
        jobs_by_profile = self._by_profile
        return frozenset(jobs_by_profile.get(name, ())) | frozenset(jobs_by_profile.get(None, ()))

    def existing_in(self, namespace: str) -> frozenset[Key]:
        """Existing jobs of a namespace, which its policies may concern."""
        return frozenset(self._existing.get(namespace, ()))

    def count_under(self, policy: Key) -> int:
        """How many jobs a policy counts for. [1]"""
        jobs = self._existing.get(policy.namespace, ())
        return sum(self._dependencies[job].policy == policy for job in jobs)

    def owners(self, target: Key) -> list[Key]:
        """TrainingJobs whose targetRef names an object, sorted; only the first one writes to it."""
        return sorted(self._by_target.get(target, ()))

    def _around(self, target: Key | None) -> frozenset[Key]:
        """Keys of a target object and of the TrainingJobs that name it."""
        if target is None:
            return frozenset()
        return frozenset({target, *self._by_target.get(target, ())})


def _discard(index: dict[K, set[Key]], under: K, key: Key) -> None:
    """Take a key out of an index; an entry without keys is removed, so that no index grows."""
    if (keys := index.get(under)) is not None:
        keys.discard(key)
        if not keys:
            del index[under]


# ----------------------------------------------------------------- jobs that must be asked anew

Rounds: TypeAlias = tuple[tuple[str, int], ...]
"""Profiles and the numbers of their rounds."""


@dataclass(slots=True)
class _Round:
    """One change of a profile's factors, and the jobs that were not looked at since."""

    number: int
    factors: tuple[str, ...]
    left: set[Key]


class PendingReadvice:
    """Jobs that were not looked at since the factors of their profile changed, by profile."""

    def __init__(self) -> None:
        self._rounds: dict[str, _Round] = {}
        self._number = 0

    def update(self, profile: LiveProfile, jobs: frozenset[Key]) -> None:
        """Take in a profile: its jobs are pending if its factors changed and it is not asked."""
        name, factors = profile.key.name, tuple(profile.factors.values())
        pending = self._rounds.get(name)
        if profile.is_asked:
            self.clear(name)
        elif pending is None or pending.factors != factors:
            self._number += 1
            self._rounds[name] = _Round(self._number, factors, set(jobs))

    def clear(self, profile: str) -> None:
        """Forget the round of a profile: every job was looked at, or the profile is gone."""
        self._rounds.pop(profile, None)

    def add(self, key: Key, dependencies: Dependencies) -> None:
        """Add a new job; one that names no profile may mean any."""
        for name, pending in self._rounds.items():
            if dependencies.asks and dependencies.profile in {None, name}:
                pending.left.add(key)

    def count(self, profile: str) -> int:
        """How many jobs are pending. [1]"""
        return len(self._rounds[profile].left) if profile in self._rounds else 0

    def rounds_of(self, key: Key) -> Rounds:
        """Rounds in which a job is pending."""
        return tuple(
            (name, pending.number) for name, pending in self._rounds.items() if key in pending.left
        )

    def remove(self, key: Key) -> frozenset[Key]:
        """Forget a job; returns the profiles of which it was the last pending job."""
        return self.finish(key, self.rounds_of(key))

    def finish(self, key: Key, rounds: Rounds) -> frozenset[Key]:
        """Note that a job was looked at in these rounds; returns profiles with no job left."""
        finished = []
        for name, number in rounds:
            pending = self._rounds.get(name)
            if pending is not None and pending.number == number and key in pending.left:
                pending.left.discard(key)
                if not pending.left:
                    finished.append(name)
        return profile_keys(finished)
