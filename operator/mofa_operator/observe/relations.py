"""What jobs depend on, and who is concerned when something changes: look-ups by what changed, never through all jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, TypeVar

from pydantic import BeforeValidator, PlainValidator

from mofa_model.annotations import PREFIX
from mofa_model.kinds import KINDS, Kind, made_by, same_kind
from mofa_model.kinds.shape import Shape, Text, under
from mofa_model.manifest.advisor_policy import MOST_HANDS, MOST_INFLUENCE
from mofa_model.manifest.label_selector import LabelSelector, read_selector
from mofa_operator.keys import ADVISOR_POLICY, TRAINING_JOB, Key
from mofa_operator.objects import LiveObject, LiveTrainingJob

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
