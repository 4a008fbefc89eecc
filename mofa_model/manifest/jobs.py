"""Jobs of any kind as questions: an existing job becomes the TrainingJob that it amounts to.

Its spec is put together from the namespace's AdvisorPolicy, the launch command, the `model` annotation and the ConfigMap
behind `config-ref`. Of these the later one counts. A fact that none of them states is an error that names it.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mofa_model.advice import Advice, Request
from mofa_model.annotations import PREFIX
from mofa_model.errors import BadValue, InputError, shown
from mofa_model.kinds import Demand, demand_of, made_by, same_kind
from mofa_model.launch import Reading, read
from mofa_model.manifest.advisor_policy import AdvisorPolicySpec
from mofa_model.manifest.command_facts import (
    facts_of,
    files_of,
    model_of,
    model_said,
    reading_of,
    words_of,
)
from mofa_model.manifest.documents import Item
from mofa_model.manifest.inputs import cluster_of, to_inputs
from mofa_model.manifest.parsing import Object, Profile, is_ours, parse, training_job
from mofa_model.manifest.surroundings import POLICY, Surroundings, profile_of
from mofa_model.manifest.training_job import ClusterPart, TrainingJobSpec
from mofa_model.spec.cluster import places
from mofa_model.yaml_text import StreamReader


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A question that was understood."""

    spec: TrainingJobSpec
    """What shall be trained."""
    profile: Profile
    """On what."""
    config: str | None
    """Text of the model's config.json, where the spec names one."""
    path: str
    """What messages call the spec."""
    said: Said | None = None
    """Who said which part of the spec, of a job that is no TrainingJob."""
    sizes: tuple[tuple[int, Asked | InputError], ...] = ()
    """Of an elastic job, the same at each size that it may have, by its GPUs, or why that cannot be asked; fewest first."""
    assumed: str = ""
    """Why it is this profile, where nobody named one and there was none to choose from."""


def request_of(found: Asked) -> Request:
    """What the model is asked."""
    with contextlib.nullcontext() if found.said is None else found.said.told():
        return to_inputs(found.spec, found.profile, config=found.config, path=found.path)


def told(found: Asked, advice: Advice) -> Advice:
    """An answer that says what was assumed before it was asked for."""
    if not found.assumed:
        return advice
    return replace(
        advice,
        explanation=f"{advice.explanation}; {found.assumed}",
        caveats=(*advice.caveats, found.assumed),
    )


PATH: Final = "job"
"""What the spec that a job amounts to is called before its fields are told by their own places."""
_FACTS: Final = {"sequenceLength": "sequence length", "globalBatchSize": "global batch size"}
"""Fields of the training without which there is no question, and what they are called."""
_MODEL_ANNOTATION: Final = f"the annotation {PREFIX}model"
_ELSEWHERE: Final = (
    f"an AdvisorPolicy of the namespace, or in the spec behind the annotation {PREFIX}config-ref"
)


class Said:
    """Where each part of a spec was said; what is said later stands over what was said before."""

    def __init__(self, kind: str, demand: Demand) -> None:
        """Nothing was said yet; `demand` is what the job asks for."""
        self._kind = kind
        self._demand = demand
        self._places: dict[str, str] = {}

    def add(
        self, given: dict[str, Any], over: Mapping[str, Any], place: str, model: str = ""
    ) -> None:
        """Put one spec over another, section by section; `place` is where it stands, `model` where its model does, if elsewhere."""
        for key, value in over.items():
            if isinstance(value, Mapping) and key != "model":
                own = given.get(key)
                given[key] = {**(own if isinstance(own, dict) else {}), **value}
                self._places |= {
                    f"{PATH}.{key}.{one}": f"{place}{_under(place)}{key}.{one}" for one in value
                }
            else:
                given[key] = value
                self._places[f"{PATH}.{key}"] = f"{place}{_under(place)}{key}"
                if key == "model":
                    self._places |= dict.fromkeys(
                        (f"{PATH}.model.preset", f"{PATH}.model"), model or place
                    )

    def check(self, given: Mapping[str, Any]) -> None:
        """Refuse a job of which nobody says the model, or the size of a step: by the place where it would say so."""
        training = given.get("training")
        known = training if isinstance(training, Mapping) else {}
        missing = [field for field in _FACTS if field not in known]
        words = f"{shown(shlex.join(self._demand.words))} says" if self._demand.words else "says"
        if "model" not in given:
            name = model_said(self._demand.words, self._demand.model)
            why = (
                f"names {shown(name)}, which is no model that is known"
                if name
                else f"{words} no model"
            )
            right = f"give the {self._kind} {_MODEL_ANNOTATION}, for example llama3-8b, or training.model in {_ELSEWHERE}"
            raise InputError(f"{self._demand.said}: {why}; {right}")
        if missing:
            nouns = " and no ".join(_FACTS[field] for field in missing)
            fields = " and ".join(f"training.{field}" for field in missing)
            raise InputError(
                f"{self._demand.said}: {words} no {nouns}; give {fields} in {_ELSEWHERE}"
            )

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Errors within are told by the place where the field was said."""
        try:
            yield
        except InputError as error:
            text = str(error)
            if not text.startswith(PATH):
                raise
            for field in sorted(self._places, key=len, reverse=True):
                if text.startswith(field):
                    raise InputError(self._places[field] + text.removeprefix(field)) from None
            raise InputError(f"{self._kind}{text.removeprefix(PATH)}") from None


def _under(place: str) -> str:
    """What stands between a place and a field of it: the spec of an object goes on, anything else holds a spec."""
    return "." if place.endswith("spec") else ": "


MODES: Final = ("Disabled", "Annotate", "Apply")
_MODE, _MODEL, _CONFIG, _PAUSED = (
    PREFIX + key for key in ("mode", "model", "config-ref", "paused")
)
_CONFIG_KEY: Final = "config.json"


def mode_of(item: Item, around: Surroundings) -> str | None:
    """Mode of an existing job: None where it is not opted in, which leaves it untouched."""
    given = item.annotations
    if given.get(_PAUSED, "").lower() == "true" or not item.kind or made_by(item.value) is not None:
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


def asked(item: Item, around: Surroundings) -> Asked:
    """What a job of any kind asks: a TrainingJob as it is, another as the TrainingJob that it amounts to."""
    return _training_job(item, around) if is_training_job(item) else question_of(item, around)


def is_training_job(item: Item) -> bool:
    """Whether an object is a job of our own kind."""
    return is_ours(item.value) and item.kind == "TrainingJob"


def question_of(item: Item, around: Surroundings) -> Asked:
    """The TrainingJob that an existing job amounts to, on its profile."""
    if why := around.refused.get((POLICY, item.namespace)):
        raise InputError(why)
    demand = demand_of(item.value, around.around(item.namespace))
    policy = _policy(item, around)
    said = Said(item.kind, demand)
    given: dict[str, Any] = {}
    if policy is not None:
        place = f"AdvisorPolicy {policy.name}: spec"
        said.add(given, _of_policy(policy.spec), place, f"{place}.training.model")
    reading, files = _read(demand), files_of(demand, around, item.namespace)
    if told := reading_of(files):
        said.add(given, {"training": _of_reading(told)}, demand.said)
    said.add(given, _of_command(reading, demand, words_of(files)), demand.said)
    config = _of_config(item, around, given, said)
    if _MODEL in item.annotations:
        said.add(given, {"model": {"preset": item.annotations[_MODEL]}}, f"annotation {_MODEL}")
    cluster = given.get("cluster")
    stated = cluster if isinstance(cluster, Mapping) else {}
    if not demand.gpus and "nodes" not in stated:
        raise InputError(demand.unread)
    said.check(given)
    profile, assumed = profile_of(stated.get("profile"), demand.selector, around)
    given["cluster"] = {"profile": profile.name, **_places(stated, demand, profile)}
    if reading is not None:
        given.setdefault("current", {"arguments": list(demand.words)[:256]})
    with said.told():
        spec = parse(TrainingJobSpec, given, PATH)
    asked = Asked(spec=spec, profile=profile, config=config, path=PATH, assumed=assumed, said=said)
    sizes = tuple((gpus, _at(asked, stated, demand, gpus)) for gpus in demand.sizes)
    return replace(asked, sizes=sizes)


def _at(asked: Asked, stated: Mapping[str, Any], demand: Demand, gpus: int) -> Asked | InputError:
    """The same question at another size; today's layout is that of today's size."""
    try:
        places = _places(stated, replace(demand, gpus=gpus), asked.profile)
    except InputError as error:
        return error
    cluster = ClusterPart.model_validate({"profile": asked.profile.name, **places})
    return replace(asked, spec=asked.spec.model_copy(update={"cluster": cluster, "current": None}))


def _policy(item: Item, around: Surroundings) -> Object[AdvisorPolicySpec] | None:
    """The policy of the job's namespace: one that lists its kind, else one that lists none."""
    here = [policy for policy in around.policies if policy.namespace == item.namespace]
    listed = [policy for policy in here if _listed(item, policy.spec)]
    return next(iter([*listed, *(p for p in here if not p.spec.kinds)]), None)


def _listed(item: Item, policy: AdvisorPolicySpec) -> bool:
    labels = item.metadata.get("labels")
    own = labels if isinstance(labels, dict) else {}
    listed = any(
        same_kind(k.api_version, k.kind, item.api_version, item.kind) for k in policy.kinds
    )
    return listed and policy.selector.matches(own)


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


def _of_command(
    reading: Reading | None, demand: Demand, settings: tuple[str, ...]
) -> dict[str, Any]:
    """What the launch command says, in a trainer's own words where it is one that is known, else in words that are common; with the
    settings of files that it names.
    """
    words = (*demand.words, *settings)
    training: dict[str, Any] = dict(facts_of(words, demand.gpus))
    if reading is not None:
        training |= _of_reading(reading)
    model = model_of(words, demand.model)
    return {"training": training} | ({"model": {"preset": model}} if model else {})


def _of_reading(reading: Reading) -> dict[str, Any]:
    facts = {
        "sequenceLength": reading.sequence,
        "globalBatchSize": reading.global_batch,
        "precision": reading.precision,
        "framework": reading.trainer,
    }
    return {key: value for key, value in facts.items() if value is not None}


def _of_config(item: Item, around: Surroundings, given: dict[str, Any], said: Said) -> str | None:
    """What the ConfigMap behind `config-ref` says: a spec in YAML is merged, a config.json is returned."""
    ref = item.annotations.get(_CONFIG)
    if ref is None:
        return None
    name, _, key = ref.partition("/")
    key = key or _CONFIG_KEY
    text = around.text(item.namespace, name, key)
    if text is None:
        raise BadValue(
            f"annotation {_CONFIG}", ref, "this ConfigMap is not here: give it in the same stream"
        )
    if not key.endswith((".yaml", ".yml")):
        said.add(given, {"model": {"configMapRef": {"name": name, "key": key}}}, f"ConfigMap {ref}")
        return text
    reader = StreamReader(f"ConfigMap {ref}")
    for node in reader.documents(text):
        value = reader.value(node)
        if not isinstance(value, dict):
            raise BadValue(
                f"annotation {_CONFIG}", ref, "the key must hold the spec of a TrainingJob"
            )
        said.add(given, value, f"ConfigMap {ref}")
    return None


def _places(stated: Mapping[str, Any], demand: Demand, profile: Profile) -> dict[str, int]:
    """Nodes that the pods need, and the part of each; where the object does not say how many GPUs, those of `config-ref`."""
    if not demand.gpus:
        kept = {key: stated[key] for key in ("nodes", "gpusPerNode", "gpusPerPod") if key in stated}
        if not isinstance(kept.get("nodes"), int) or isinstance(kept["nodes"], bool):
            raise InputError(demand.unread)
        return kept
    per_node = int(cluster_of(profile.spec, 1).gpus)
    found = places(demand.gpus, per_node, demand.pod)
    if found is None:
        raise BadValue(
            "GPUs of all pods",
            demand.gpus,
            f"nodes of profile {profile.name} have {per_node} each: give every pod as many, or fill whole nodes",
        )
    nodes, mine = found
    part = {} if mine == per_node else {"gpusPerNode": mine}
    return {"nodes": nodes} | part | ({"gpusPerPod": demand.pod} if 0 < demand.pod < mine else {})


def _training_job(item: Item, around: Surroundings) -> Asked:
    job = training_job(item.value)
    path = f"TrainingJob {job.name}: spec"
    ref = job.spec.model.config_map_ref
    config = around.text(job.namespace, ref.name, ref.key) if ref is not None else None
    profile = around.profile(job.spec.cluster.profile, f"{path}.cluster.profile")
    return Asked(spec=job.spec, profile=profile, config=config, path=path)
