"""Existing kinds of jobs as TrainingJobs: annotations, a ConfigMap, a policy and the launch command, put together.

What is said nearest to the job counts: its `config-ref`, then its `model` annotation and launch command, then the
namespace's AdvisorPolicy. What nobody says is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mofa_model.annotations import PREFIX
from mofa_model.errors import BadValue, InputError
from mofa_model.launch import Reading, read
from mofa_model.manifest.advisor_policy import AdvisorPolicySpec
from mofa_model.manifest.documents import Item
from mofa_model.manifest.existing import Demand, demand_of, known
from mofa_model.manifest.inputs import cluster_of
from mofa_model.manifest.parsing import Object, Profile, parse
from mofa_model.manifest.training_job import TrainingJobSpec
from mofa_model.manifest.values import Reader

MODES: Final = ("Disabled", "Annotate", "Apply")
_MODE, _MODEL, _CONFIG, _PAUSED = (PREFIX + key for key in ("mode", "model", "config-ref", "paused"))
_CONFIG_KEY: Final = "config.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What else is in the stream."""

    profiles: Mapping[str, Profile]
    """Profiles of the stream and of --profile, by name."""
    bundled: Mapping[str, Profile] = field(default_factory=dict)
    """Profiles that come with the package, for names that no other has."""
    policies: Sequence[Object[AdvisorPolicySpec]] = ()
    """Policies."""
    config_maps: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """Data of ConfigMaps, by namespace and name."""

    def profile(self, name: str, where: str) -> Profile:
        """A profile by name."""
        found = self.profiles.get(name) or self.bundled.get(name)
        if found is None:
            right = (
                f"known: {', '.join(sorted({*self.profiles, *self.bundled}))}; give it with --profile FILE"
            )
            raise BadValue(where, name, right)
        return found

    def text(self, namespace: str, name: str, key: str) -> str | None:
        """The text behind a key of a ConfigMap; None where it is not here."""
        found = self.config_maps.get((namespace, name), {}).get(key)
        return found if isinstance(found, str) else None


def mode_of(item: Item, around: Surroundings) -> str | None:
    """Mode of an existing job: None where it is not opted in, which leaves it untouched."""
    given = item.annotations
    if given.get(_PAUSED, "").lower() == "true" or not item.kind:
        return None
    mode = given.get(_MODE)
    if mode is not None:
        if mode not in MODES:
            raise BadValue(f"annotation {_MODE}", mode, f"one of {', '.join(MODES)}")
        return mode
    policy = _policy(item, around)
    said = policy.spec.mode if policy is not None and _listed(item, policy.spec) else None
    if _MODEL in given or _CONFIG in given:
        return said if said == "Apply" else "Annotate"
    return said


def question_of(item: Item, around: Surroundings) -> tuple[TrainingJobSpec, Profile, str | None]:
    """The TrainingJob that an existing job amounts to, its profile, and its config.json where it has one."""
    demand = demand_of(item.value)
    policy = _policy(item, around)
    given: dict[str, Any] = {} if policy is None else _of_policy(policy.spec)
    reading = _read(demand)
    _merge(given, _of_reading(reading))
    config = _of_config(item, around, given)
    if _MODEL in item.annotations:
        given["model"] = {"preset": item.annotations[_MODEL]}
    if "model" not in given:
        raise InputError(f"annotation {_MODEL}: is missing; give a model preset, for example llama3-405b")
    profile = _profile(given, demand, around)
    given["cluster"] = {"profile": profile.name, "nodes": _nodes(given, demand, profile)}
    if reading is not None:
        given.setdefault("current", {"arguments": list(demand.words)[:256]})
    return parse(TrainingJobSpec, given, "job"), profile, config


def supported(item: Item) -> bool:
    """Whether an object is of a kind whose replicas can be read."""
    return known(item.kind, item.api_version)


def _policy(item: Item, around: Surroundings) -> Object[AdvisorPolicySpec] | None:
    """The policy of the job's namespace: one that lists its kind, else one that lists none."""
    here = [policy for policy in around.policies if policy.namespace == item.namespace]
    listed = [policy for policy in here if _listed(item, policy.spec)]
    return next(iter([*listed, *(p for p in here if not p.spec.kinds)]), None)


def _listed(item: Item, policy: AdvisorPolicySpec) -> bool:
    labels = item.metadata.get("labels")
    own = labels if isinstance(labels, dict) else {}
    return any((k.api_version, k.kind) == (item.api_version, item.kind) for k in policy.kinds) and all(
        own.get(key) == value for key, value in policy.selector.items()
    )


def _of_policy(policy: AdvisorPolicySpec) -> dict[str, Any]:
    """A policy's defaults in the form of a TrainingJob's spec."""
    dump = policy.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
    training = dump.get("training", {})
    given: dict[str, Any] = {
        key: dump[key]
        for key in ("objective", "constraints", "checkpoint", "failureAssumptions")
        if key in dump
    }
    if "model" in training:
        given["model"] = {"preset": training.pop("model")}
    given["training"] = training
    if policy.profile is not None:
        given["cluster"] = {"profile": policy.profile}
    return given


def _read(demand: Demand) -> Reading | None:
    """What the launch command says; None where it is no command of a trainer that is known."""
    try:
        return read(demand.words)
    except InputError:
        return None


def _of_reading(reading: Reading | None) -> dict[str, Any]:
    if reading is None:
        return {}
    facts = {
        "sequenceLength": reading.sequence,
        "globalBatchSize": reading.global_batch,
        "precision": reading.precision,
        "framework": reading.trainer,
    }
    return {"training": {key: value for key, value in facts.items() if value is not None}}


def _of_config(item: Item, around: Surroundings, given: dict[str, Any]) -> str | None:
    """What the ConfigMap behind `config-ref` says: a spec in YAML is merged, a config.json is returned."""
    ref = item.annotations.get(_CONFIG)
    if ref is None:
        return None
    name, _, key = ref.partition("/")
    key = key or _CONFIG_KEY
    text = around.text(item.namespace, name, key)
    if text is None:
        raise BadValue(f"annotation {_CONFIG}", ref, "this ConfigMap is not here: give it in the same stream")
    if not key.endswith((".yaml", ".yml")):
        given["model"] = {"configMapRef": {"name": name, "key": key}}
        return text
    reader = Reader(f"ConfigMap {ref}")
    for node in reader.documents(text):
        value = reader.value(node)
        if not isinstance(value, dict):
            raise BadValue(f"annotation {_CONFIG}", ref, "the key must hold the spec of a TrainingJob")
        _merge(given, value)
    return None


def _merge(given: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Put one spec over another, section by section."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(given.get(key), dict) and key != "model":
            given[key] = {**given[key], **value}
        else:
            given[key] = value


def _nodes(given: Mapping[str, Any], demand: Demand, profile: Profile) -> int:
    """Nodes that the pods need; where the object does not say how many GPUs that are, those of `config-ref`. [1]"""
    if not demand.gpus:
        cluster = given.get("cluster")
        stated = cluster.get("nodes") if isinstance(cluster, Mapping) else None
        if not isinstance(stated, int) or isinstance(stated, bool):
            raise InputError(demand.unread)
        return stated
    per_node = int(cluster_of(profile.spec, 1).gpus)
    if demand.gpus % per_node:
        raise BadValue(
            "GPUs of all pods", demand.gpus, f"nodes of profile {profile.name} have {per_node} each"
        )
    return demand.gpus // per_node


def _profile(given: Mapping[str, Any], demand: Demand, around: Surroundings) -> Profile:
    """The profile that is named, else the only one, else the only one whose nodes the pods select."""
    cluster = given.get("cluster")
    name = cluster.get("profile") if isinstance(cluster, Mapping) else None
    if isinstance(name, str):
        return around.profile(name, "profile")
    fitting = [
        profile
        for profile in around.profiles.values()
        if profile.spec.node_selector.items() <= demand.selector.items()
    ]
    for candidates in (list(around.profiles.values()), fitting):
        if len(candidates) == 1:
            return candidates[0]
    raise InputError("profile: is missing; name one in an AdvisorPolicy, or give one with --profile FILE")
