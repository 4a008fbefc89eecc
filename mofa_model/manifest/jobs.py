"""Jobs of any kind as questions: an existing job becomes the TrainingJob that it amounts to.

Its spec is put together from the namespace's AdvisorPolicy, the launch command, the ConfigMap
behind `config-ref` and the `model` annotation. Of these the later one counts. A fact that none of
them states is an error that names it.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from mofa_model.advice import Advice, Request
from mofa_model.annotations import PREFIX
from mofa_model.errors import BadValue, InputError, shown
from mofa_model.kinds import Demand, demand_of, made_by, same_kind
from mofa_model.kinds.shape import part as part_of
from mofa_model.launch import Reading, read
from mofa_model.manifest.advisor_policy import AdvisorPolicySpec
from mofa_model.manifest.command_facts import (
    facts_of,
    files_of,
    model_of,
    reading_of,
    words_of,
    written_model,
)
from mofa_model.manifest.documents import Item
from mofa_model.manifest.inputs import cluster_of, to_inputs
from mofa_model.manifest.parsing import Object, Profile, is_ours, parse, training_job
from mofa_model.manifest.surroundings import POLICY, Surroundings, profile_of
from mofa_model.manifest.training_job import ClusterPart, TrainingJobSpec
from mofa_model.records import dataclass
from mofa_model.spec.cluster import places
from mofa_model.yaml_text import StreamReader

_FACTS: Final = {"sequenceLength": "sequence length", "globalBatchSize": "global batch size"}
"""Fields of the training that every question needs, and what messages call them."""
_MODEL_ANNOTATION: Final = f"the annotation {PREFIX}model"
_ELSEWHERE: Final = (
    f"an AdvisorPolicy of the namespace, or in the spec behind the annotation {PREFIX}config-ref"
)


@dataclass(frozen=True, kw_only=True)
class JobQuestion:
    """A question that was understood."""

    spec: TrainingJobSpec
    profile: Profile
    config: str | None
    """Text of the model's config.json, where the spec names one."""
    path: str
    """What messages call the spec."""
    draft: SpecDraft | None = None
    """How the spec of a job that is no TrainingJob was put together."""
    size_questions: tuple[tuple[int, JobQuestion | InputError], ...] = ()
    """An elastic job at each of its sizes, by GPUs, or why that cannot be asked; fewest first."""
    assumed: str = ""
    """Why it is this profile, where nobody named one and there was none to choose from."""


def request_of(question: JobQuestion) -> Request:
    """The model's request for a job's question."""
    with contextlib.nullcontext() if question.draft is None else question.draft.errors():
        return to_inputs(
            question.spec, question.profile, config=question.config, path=question.path
        )


def with_assumption(question: JobQuestion, advice: Advice) -> Advice:
    """An answer that says which profile was assumed."""
    if not question.assumed:
        return advice
    return replace(
        advice,
        explanation=f"{advice.explanation}; {question.assumed}",
        caveats=(*advice.caveats, question.assumed),
    )


class SpecDraft:
    """The spec that a job amounts to, put together from several places.

    It remembers where each field stands, so that an error names that place and not the draft.
    """

    PATH: Final = "job"
    """What the parser calls the spec, until `errors` names the place."""

    def __init__(self, kind: str, demand: Demand) -> None:
        """An empty spec of a job that asks for `demand`."""
        self.spec: dict[str, Any] = {}
        self._kind = kind
        self._demand = demand
        self._places: dict[str, str] = {}

    def add(self, part: Mapping[str, Any], place: str, *, model: str = "") -> None:
        """Lay a part of a spec over the others; `model` is the place of its model, if another."""
        # The spec of an object goes on with a dot; any other place holds a whole spec.
        start = f"{place}{'.' if place.endswith('spec') else ': '}"
        for key, value in part.items():
            if isinstance(value, Mapping) and key != "model":
                own = self.spec.get(key)
                self.spec[key] = {**(own if isinstance(own, dict) else {}), **value}
                for name in value:
                    self._places[f"{self.PATH}.{key}.{name}"] = f"{start}{key}.{name}"
                continue
            self.spec[key] = value
            self._places[f"{self.PATH}.{key}"] = f"{start}{key}"
            if key == "model":
                for name in ("model", "model.preset"):
                    self._places[f"{self.PATH}.{name}"] = model or place

    def check(self) -> None:
        """Refuse a draft without the model, or without the size of a step."""
        demand, training = self._demand, part_of(self.spec, "training")
        missing = [field for field in _FACTS if field not in training]
        words = f"{shown(shlex.join(demand.words))} says" if demand.words else "says"
        if "model" not in self.spec:
            name = written_model(demand.words, demand.model)
            why = (
                f"names {shown(name)}, which is no model that is known"
                if name
                else f"{words} no model"
            )
            raise InputError(
                f"{demand.said}: {why}; give the {self._kind} {_MODEL_ANNOTATION}, for example "
                f"llama3-8b, or training.model in {_ELSEWHERE}"
            )
        if missing:
            nouns = " and no ".join(_FACTS[field] for field in missing)
            fields = " and ".join(f"training.{field}" for field in missing)
            raise InputError(f"{demand.said}: {words} no {nouns}; give {fields} in {_ELSEWHERE}")

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Errors within name the place where a field stands."""
        try:
            yield
        except InputError as error:
            text = str(error)
            if not text.startswith(self.PATH):
                raise
            for field in sorted(self._places, key=len, reverse=True):
                if text.startswith(field):
                    raise InputError(self._places[field] + text.removeprefix(field)) from None
            raise InputError(f"{self._kind}{text.removeprefix(self.PATH)}") from None


MODES: Final = ("Disabled", "Annotate", "Apply")
_MODE, _MODEL, _CONFIG, _PAUSED = (
    PREFIX + key for key in ("mode", "model", "config-ref", "paused")
)


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


def job_question(item: Item, around: Surroundings) -> JobQuestion:
    """The question of a job of any kind: a TrainingJob's spec, or one drafted from the job."""
    return _training_job(item, around) if is_training_job(item) else question_of(item, around)


def is_training_job(item: Item) -> bool:
    """Whether an object is a job of our own kind."""
    return is_ours(item.value) and item.kind == "TrainingJob"


def question_of(item: Item, around: Surroundings) -> JobQuestion:
    """The TrainingJob that an existing job amounts to, on its profile."""
    if why := around.refused.get((POLICY, item.namespace)):
        raise InputError(why)
    demand = demand_of(item.value, around.around(item.namespace))
    draft = SpecDraft(item.kind, demand)
    if (policy := _policy(item, around)) is not None:
        place = f"AdvisorPolicy {policy.name}: spec"
        draft.add(_of_policy(policy.spec), place, model=f"{place}.training.model")
    try:
        reading = read(demand.words)
    except InputError:  # it is no command of a trainer that is known
        reading = None
    files = files_of(demand, around, item.namespace)
    if (settings := reading_of(files)) is not None:
        draft.add({"training": _of_reading(settings)}, demand.said)
    words = (*demand.words, *words_of(files))
    training = facts_of(words, demand.gpus) | ({} if reading is None else _of_reading(reading))
    draft.add({"training": training}, demand.said)
    if model := model_of(words, demand.model):
        draft.add({"model": {"preset": model}}, demand.said)
    config = _add_config(item, around, draft)
    if _MODEL in item.annotations:
        draft.add({"model": {"preset": item.annotations[_MODEL]}}, f"annotation {_MODEL}")
    stated = part_of(draft.spec, "cluster")
    if not demand.gpus and "nodes" not in stated:
        raise InputError(demand.unread)
    draft.check()
    profile, assumed = profile_of(stated.get("profile"), demand.selector, around)
    draft.spec["cluster"] = {"profile": profile.name, **_places(stated, demand, profile)}
    if reading is not None:
        draft.spec.setdefault("current", {"arguments": list(demand.words)[:256]})
    with draft.errors():
        spec = parse(TrainingJobSpec, draft.spec, draft.PATH)
    asked = JobQuestion(
        spec=spec, profile=profile, config=config, path=draft.PATH, assumed=assumed, draft=draft
    )
    sizes = tuple((gpus, _at_size(asked, stated, demand, gpus)) for gpus in demand.sizes)
    return replace(asked, size_questions=sizes)


def _at_size(
    asked: JobQuestion, stated: Mapping[str, Any], demand: Demand, gpus: int
) -> JobQuestion | InputError:
    """The question at another number of GPUs, without today's layout."""
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
    listed = any(
        same_kind(one.api_version, one.kind, item.api_version, item.kind) for one in policy.kinds
    )
    return listed and policy.selector.matches(part_of(item.metadata, "labels"))


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


def _of_reading(reading: Reading) -> dict[str, Any]:
    facts = {
        "sequenceLength": reading.sequence,
        "globalBatchSize": reading.global_batch,
        "precision": reading.precision,
        "framework": reading.trainer,
    }
    return {key: value for key, value in facts.items() if value is not None}


def _add_config(item: Item, around: Surroundings, draft: SpecDraft) -> str | None:
    """Add the spec in the ConfigMap behind `config-ref`, or return its config.json."""
    ref = item.annotations.get(_CONFIG)
    if ref is None:
        return None
    name, _, key = ref.partition("/")
    key = key or "config.json"
    text = around.text(item.namespace, name, key)
    if text is None:
        raise BadValue(
            f"annotation {_CONFIG}", ref, "this ConfigMap was not found; give it beside the job"
        )
    if not key.endswith((".yaml", ".yml")):
        draft.add({"model": {"configMapRef": {"name": name, "key": key}}}, f"ConfigMap {ref}")
        return text
    reader = StreamReader(f"ConfigMap {ref}")
    for node in reader.documents(text):
        value = reader.value(node)
        if not isinstance(value, dict):
            raise BadValue(
                f"annotation {_CONFIG}", ref, "the key must hold the spec of a TrainingJob"
            )
        draft.add(value, f"ConfigMap {ref}")
    return None


def _places(stated: Mapping[str, Any], demand: Demand, profile: Profile) -> dict[str, int]:
    """Nodes that the pods need, and the part of each; without GPUs, as `config-ref` states them."""
    if not demand.gpus:
        kept = {key: stated[key] for key in ("nodes", "gpusPerNode", "gpusPerPod") if key in stated}
        if not isinstance(kept.get("nodes"), int) or isinstance(kept["nodes"], bool):
            raise InputError(demand.unread)
        return kept
    per_node = int(cluster_of(profile.spec, 1).gpus)
    found = places(demand.gpus, per_node, demand.gpus_per_pod)
    if found is None:
        raise BadValue(
            "GPUs of all pods",
            demand.gpus,
            f"nodes of profile {profile.name} have {per_node} each: "
            "give every pod the same number of GPUs, or all GPUs of its nodes",
        )
    nodes, mine = found
    part = {} if mine == per_node else {"gpusPerNode": mine}
    return (
        {"nodes": nodes}
        | part
        | ({"gpusPerPod": demand.gpus_per_pod} if 0 < demand.gpus_per_pod < mine else {})
    )


def _training_job(item: Item, around: Surroundings) -> JobQuestion:
    job = training_job(item.value)
    path = f"TrainingJob {job.name}: spec"
    ref = job.spec.model.config_map_ref
    config = around.text(job.namespace, ref.name, ref.key) if ref is not None else None
    profile = around.profile(job.spec.cluster.profile, f"{path}.cluster.profile")
    return JobQuestion(spec=job.spec, profile=profile, config=config, path=path)
