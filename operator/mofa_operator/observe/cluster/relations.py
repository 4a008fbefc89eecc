"""What jobs depend on, and who is concerned when something changes: look-ups by what changed, never through all jobs."""

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
from mofa_model.kinds import KINDS, Beside, Demand, JobKind, Kind, demand_of, made_by, same_kind
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Uses:
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


def _as_list(kinds: object) -> list[object]:
    """What is no list lists a kind that no job is of, and not none."""
    return kinds if isinstance(kinds, list) else [kinds] if kinds else []


def _within(least: int, most: int, value: object) -> int:
    """A share as a policy states it; what it may not be is the most."""
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        else most
    )


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
        listed = any(
            same_kind(one.api_version, one.kind, kind.api_version, kind.kind) for one in self.kinds
        )
        return listed and self.selector.matches(labels)


def uses_of(
    job: LiveObject, policies: Sequence[ListedPolicy], kinds: Collection[Kind] = KINDS
) -> Uses:
    """What a job depends on; `policies` are those of its namespace, `kinds` those of jobs that are watched.

    A job that another one made is advised through that one, if that is watched: some makers copy all annotations.
    """
    if isinstance(job, LiveTrainingJob):
        return _training_job(job)
    maker = made_by(job.body)
    if maker is not None and maker[0] in kinds:
        return Uses(asks=False, made_by=maker[1])
    return _existing(job, policies)


def policy_for(job: LiveObject, policies: Sequence[ListedPolicy]) -> ListedPolicy | None:
    """The policy that counts for an existing job: the first that lists its kind and labels, else the first that lists no kind."""
    listed = (policy for policy in policies if policy.lists(job.key.kind, job.labels))
    return next(listed, None) or next((policy for policy in policies if not policy.kinds), None)


class Relations:
    """Who depends on what, kept up to date as jobs come, change and go."""

    def __init__(self) -> None:
        """Nobody depends on anything."""
        self._uses: dict[Key, Uses] = {}
        self._by_profile: defaultdict[str | None, set[Key]] = defaultdict(set)
        self._by_target: defaultdict[Key, set[Key]] = defaultdict(set)
        self._existing: defaultdict[str, set[Key]] = defaultdict(set)

    def link(self, key: Key, uses: Uses) -> frozenset[Key]:
        """Note what a job depends on; the result is who else is concerned, because a target won or lost a TrainingJob."""
        before = self._uses.get(key)
        if before == uses:
            return frozenset()
        concerned = self.unlink(key) | _policy(uses)
        self._uses[key] = uses
        if key.kind == TRAINING_JOB:
            if uses.target is not None:
                self._by_target[uses.target].add(key)
        else:
            self._existing[key.namespace].add(key)
        if uses.asks:
            self._by_profile[uses.profile].add(key)
        if before is not None and before.target == uses.target:
            return frozenset() if before.policy == uses.policy else _policy(before) | _policy(uses)
        return concerned | self._around(uses.target) - {key}

    def unlink(self, key: Key) -> frozenset[Key]:
        """Forget what a job depends on; the result is who else is concerned."""
        uses = self._uses.pop(key, None)
        if uses is None:
            return frozenset()
        _take(self._by_profile, uses.profile, key)
        _take(self._existing, key.namespace, key)
        if uses.target is not None:
            _take(self._by_target, uses.target, key)
        return (self._around(uses.target) - {key}) | _policy(uses)

    def uses(self, key: Key) -> Uses:
        """What a job depends on."""
        return self._uses.get(key, Uses(asks=False))

    def of_profile(self, name: str) -> frozenset[Key]:
        """Jobs whose answer may depend on a ClusterProfile."""
        return frozenset(self._by_profile.get(name, ())) | frozenset(self._by_profile.get(None, ()))

    def existing_in(self, namespace: str) -> frozenset[Key]:
        """Existing jobs of a namespace, which its policies may concern."""
        return frozenset(self._existing.get(namespace, ()))

    def under(self, policy: Key) -> int:
        """How many jobs a policy counts for. [1]"""
        return sum(
            self._uses[job].policy == policy for job in self._existing.get(policy.namespace, ())
        )

    def owners(self, target: Key) -> list[Key]:
        """TrainingJobs whose targetRef names an object; the first one writes there."""
        return sorted(self._by_target.get(target, ()))

    def _around(self, target: Key | None) -> frozenset[Key]:
        """A target, and the TrainingJobs that name it."""
        return (
            frozenset() if target is None else frozenset({target, *self._by_target.get(target, ())})
        )


def _policy(uses: Uses) -> frozenset[Key]:
    return frozenset() if uses.policy is None else frozenset({uses.policy})


def _take(index: dict[K, set[Key]], under: K, key: Key) -> None:
    """Take a key out of an index; an entry that holds nothing goes, so that an index never grows by what is gone."""
    held = index.get(under)
    if held is not None:
        held.discard(key)
        if not held:
            del index[under]


def _training_job(job: LiveTrainingJob) -> Uses:
    asked = job.asked
    return Uses(
        asks=True,
        profile=asked.profile,
        target=job.target,
        config_maps=((asked.config_map, asked.config_key or _CONFIG_KEY),)
        if asked.config_map
        else (),
    )


def _existing(job: LiveObject, policies: Sequence[ListedPolicy]) -> Uses:
    annotations = job.annotations
    policy = policy_for(job, policies) or ListedPolicy()
    asks = bool(policy.kinds) or any(name in annotations for name in (_MODE, _MODEL, _CONFIG))
    name, _, config_key = annotations.get(_CONFIG, "").partition("/")
    return Uses(
        asks=asks,
        profile=None if name else policy.profile or None,  # a ConfigMap may name another
        config_maps=((name, config_key or _CONFIG_KEY),) if name else (),
        policy=Key(ADVISOR_POLICY, job.key.namespace, policy.name)
        if asks and policy.name
        else None,
    )


# AdvisorPolicies as the jobs of their namespace look them up, and what they leave these of what all namespaces share.

_PERCENT: Final = 100.0


class Policies:
    """Policies by namespace and name."""

    def __init__(self) -> None:
        """There are none."""
        self._found: dict[str, dict[str, ListedPolicy]] = {}

    def put(self, key: Key, body: Body | None) -> None:
        """Take in a policy as it is now; None = it is no more."""
        here = self._found.setdefault(key.namespace, {})
        here.pop(key.name, None)
        if body is not None:
            here[key.name] = glance(ListedPolicy, body)
        if not here:
            del self._found[key.namespace]

    def of(self, namespace: str) -> list[ListedPolicy]:
        """Policies of a namespace, in the order of their names."""
        return [policy for _, policy in sorted(self._found.get(namespace, {}).items())]

    def profile(self, key: Key) -> str:
        """The ClusterProfile that a policy names; empty where it names none."""
        return self._found[key.namespace][key.name].profile

    def naming(self, profile: str) -> frozenset[Key]:
        """Policies that name a ClusterProfile."""
        return frozenset(
            Key(ADVISOR_POLICY, place, name)
            for place, here in self._found.items()
            for name, one in here.items()
            if one.profile == profile
        )

    def hands(self, namespace: str) -> float:
        """Share of the operator's concurrent work that a namespace may have. [1]"""
        return min((one.hands for one in self.of(namespace)), default=MOST_HANDS) / _PERCENT

    def most(self, hands: int, namespace: str) -> int:
        """How many of the operator's hands that is, one at least. [1]"""
        return max(1, int(hands * self.hands(namespace)))

    def influence(self) -> Mapping[str, float]:
        """By how much a day namespaces move what a pool has learned, where it is less than usual. [1]"""
        least = {
            place: min(one.influence for one in here.values())
            for place, here in self._found.items()
        }
        return {place: one / _PERCENT for place, one in least.items() if one < MOST_INFLUENCE}


# What a job names: its ConfigMap, its runtime, what its pods claim. Nobody watches these, they are read when they are needed.


def names_others(kind: Kind, uses: Uses, raw: bytes) -> bool:
    """Whether a job that asks may name others, by the fields in which its kind does so; `raw` is its body."""
    if not uses.asks or uses.config_maps:
        return uses.asks
    return isinstance(kind, JobKind) and any(f'"{name}"'.encode() in raw for name in kind.names)


def wanted(key: Key, uses: Uses, body: Body, named: Named) -> list[Key]:
    """What a job names, but for what was read already: what that names in turn is told once it was."""
    demand = _demand(key, body, named)
    maps = {
        name for name, _ in (*uses.config_maps, *demand.files.values())
    } - named.config_maps.keys()
    return [
        *(Key(CONFIG_MAP, key.namespace, name) for name in sorted(maps)),
        *(
            Key(one.kind, key.namespace if one.kind.namespaced else "", one.name)
            for one in demand.missing
        ),
    ]


def texts_of(key: Key, uses: Uses, body: Body, named: Named) -> dict[str, dict[str, str]]:
    """The texts that a job reads out of ConfigMaps, where they are there: those that it refers to, and files that it names."""
    asked = [*uses.config_maps]
    if named.config_maps.keys() - {name for name, _ in asked}:
        asked += _demand(key, body, named).files.values()
    found: dict[str, dict[str, str]] = {}
    for name, one in asked:
        if one in named.config_maps.get(name, {}):
            found.setdefault(name, {})[one] = named.config_maps[name][one]
    return found


def _demand(key: Key, body: Body, named: Named) -> Demand:
    """What a job asks for, as far as it can be read."""
    if isinstance(key.kind, JobKind):
        with contextlib.suppress(InputError):
            return demand_of(body, Beside(named.beside))
    return Demand(gpus=0)


# Jobs that were not looked at since what running jobs teach their profile has moved: the profile says when none is left.

Since: TypeAlias = tuple[tuple[str, int], ...]
"""Profiles for which a job was to be looked at, and for which of their moves."""


@dataclass(slots=True)
class _Round:
    """One move of a profile, and the jobs that were not looked at since."""

    number: int
    factors: tuple[str, ...]
    left: set[Key]


class Unasked:
    """What is left to be looked at, by profile."""

    def __init__(self) -> None:
        """Nothing has moved."""
        self._rounds: dict[str, _Round] = {}
        self._number = 0

    def take(self, profile: LiveProfile, jobs: frozenset[Key]) -> None:
        """A profile as it stands, and the jobs that mean it: all are left where it has moved, none where it says so."""
        name, factors = profile.key.name, tuple(profile.factors.values())
        found = self._rounds.get(name)
        if profile.is_asked:
            self.settled(name)
        elif found is None or found.factors != factors:
            self._number += 1
            self._rounds[name] = _Round(self._number, factors, set(jobs))

    def settled(self, profile: str) -> None:
        """Every job was asked, or the profile is gone."""
        self._rounds.pop(profile, None)

    def came(self, key: Key, uses: Uses) -> None:
        """A job is seen for the first time; it may mean any profile where it names none."""
        for name, one in self._rounds.items():
            if uses.asks and uses.profile in {None, name}:
                one.left.add(key)

    def left(self, profile: str) -> int:
        """How many jobs are left. [1]"""
        return len(self._rounds[profile].left) if profile in self._rounds else 0

    def holding(self, key: Key) -> Since:
        """Of which moves a job is left."""
        return tuple((name, one.number) for name, one in self._rounds.items() if key in one.left)

    def gone(self, key: Key) -> frozenset[Key]:
        """A job is no more; the result is the profiles of which it was the last."""
        return self.asked(key, self.holding(key))

    def asked(self, key: Key, since: Since) -> frozenset[Key]:
        """A job was looked at, as things stood then; the result is the profiles of which it was the last."""
        done = list[str]()
        for name, number in since:
            found = self._rounds.get(name)
            if found is not None and found.number == number and key in found.left:
                found.left.discard(key)
                if not found.left:
                    done.append(name)
        return profile_keys(done)


def profile_keys(names: Iterable[str]) -> frozenset[Key]:
    """Keys of ClusterProfiles."""
    return frozenset(Key(CLUSTER_PROFILE, "", name) for name in names)
