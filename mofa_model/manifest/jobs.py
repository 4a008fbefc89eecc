"""Jobs of any kind as questions: an existing job becomes the TrainingJob that it amounts to.

First `identity` says what the object is: what trains no language model is `NotTraining`. Then a
spec is put together (`draft`) from the namespace's AdvisorPolicy, the job's own facts, the
ConfigMap behind `config-ref` and the `model` annotation. Of these the later one counts. A fact that
none of them states is an error that names it.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from mofa_model.advice import Advice, Request
from mofa_model.advice.sizes import OBJECTIVES, of_size
from mofa_model.annotations import CLASS, MEASURED, PREFIX, RUNS, SIZE
from mofa_model.errors import (
    BadValue,
    FactsDisagree,
    FactsMissing,
    InputError,
    NotApplicable,
    NotTraining,
)
from mofa_model.identity import (
    Fact,
    Identity,
    JobClass,
    LaunchFound,
    agrees,
    identify,
    model_preset,
)
from mofa_model.kinds import Demand, controller_of, demand_of, job_kind, same_kind
from mofa_model.kinds.shape import part as part_of
from mofa_model.manifest.advisor_policy import AdvisorPolicySpec, SizeBounds
from mofa_model.manifest.documents import Item
from mofa_model.manifest.draft import (
    ELSEWHERE,
    WORD,
    BatchMissing,
    SpecDraft,
    add_model,
    current_layout,
    of_facts,
    of_policy,
)
from mofa_model.manifest.inputs import cluster_of, to_inputs
from mofa_model.manifest.parsing import Object, Profile, is_ours, parse, training_job
from mofa_model.manifest.surroundings import POLICY, Surroundings, profile_of, profile_with
from mofa_model.manifest.training_job import ClusterPart, CurrentLayout, TrainingJobSpec
from mofa_model.records import dataclass
from mofa_model.spec.cluster import places
from mofa_model.yaml_text import StreamReader


@dataclass(frozen=True, kw_only=True)
class JobQuestion:
    """The question of one job, ready to be answered."""

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
    size: str = ""
    """What the job's size is to be best at, where the advisor chooses it; else empty."""
    size_bounds: SizeBounds | None = None
    """Between which sizes one is to be chosen; None = it has its size, given or chosen."""
    is_planned: bool = False
    """Whether its layout of today stands in its command, and nobody saw it run."""
    tunes: bool = False
    """Whether the job fine-tunes, by what it is."""
    doubts: tuple[str, ...] = ()
    """What the job leaves open and was assumed; with a doubt no answer is more
    than LowConfidence.
    """


def request_of(question: JobQuestion) -> Request:
    """The model's request for a job's question."""
    with contextlib.nullcontext() if question.draft is None else question.draft.errors():
        request = to_inputs(
            question.spec, question.profile, config=question.config, path=question.path
        )
    request = replace(
        request,
        caveats=(*question.doubts, *request.caveats),
        current_runs=not question.is_planned,
        tunes=question.tunes,
    )
    return of_size(request, question.size) if question.size else request


def with_assumption(question: JobQuestion, advice: Advice) -> Advice:
    """An answer that says which profile was assumed."""
    if not question.assumed:
        return advice
    return replace(
        advice,
        explanation=f"{advice.explanation}; {question.assumed}",
        caveats=(question.assumed, *advice.caveats),
    )


MODES: Final = ("Disabled", "Annotate", "Apply")
_MODE, _MODEL, _CONFIG, _PAUSED = (
    PREFIX + key for key in ("mode", "model", "config-ref", "paused")
)


def mode_of(item: Item, around: Surroundings) -> str | None:
    """Mode of an existing job: None where it is not opted in, which leaves it untouched."""
    annotations = item.annotations
    is_paused = annotations.get(_PAUSED, "").lower() == "true"
    if is_paused or not item.kind or controller_of(item.value) is not None:
        return None
    mode = annotations.get(_MODE)
    if mode is not None:
        if mode not in MODES:
            raise BadValue(f"annotation {_MODE}", mode, f"one of {', '.join(MODES)}")
        return mode
    policy = policy_of(item, around)
    if policy is not None and _applies(item, policy.spec):
        mode = policy.spec.mode
    elif item.namespace in around.opted_in and job_kind(item.api_version, item.kind) is not None:
        mode = "Annotate"
    asks = _MODEL in annotations or _CONFIG in annotations or SIZE in annotations
    return "Annotate" if asks and mode != "Apply" else mode


def job_question(item: Item, around: Surroundings) -> JobQuestion:
    """The question of a job of any kind: a TrainingJob's spec, or one drafted from the job."""
    return _training_job(item, around) if is_training_job(item) else question_of(item, around)


def is_training_job(item: Item) -> bool:
    """Whether an object is a job of our own kind."""
    return is_ours(item.value) and item.kind == "TrainingJob"


def identity_of(item: Item, around: Surroundings) -> Identity:
    """What an object is; a person's annotation counts before what it runs."""
    maps = {
        name: data for (space, name), data in around.config_maps.items() if space == item.namespace
    }
    identity = identify(item.value, around.around(item.namespace), maps)
    job_class = item.annotations.get(CLASS)
    if job_class is None:
        return identity
    if job_class not in {*JobClass}:
        raise BadValue(f"annotation {CLASS}", job_class, f"one of {', '.join(JobClass)}")
    return identity.as_person_says(JobClass(job_class), f"the annotation {CLASS}")


def requests_by_batch(
    item: Item, around: Surroundings, error: BatchMissing
) -> dict[int, Request | str]:
    """The question of a job that does not say its batch at some batches, or why there is none."""
    requests: dict[int, Request | str] = {}
    for batch in error.batches:
        try:
            requests[batch] = request_of(question_of(item, around, batch))
        except InputError as why:
            requests[batch] = str(why)
    return requests


def question_of(item: Item, around: Surroundings, batch: int | None = None) -> JobQuestion:
    """The TrainingJob that an existing job amounts to, on its profile; `batch` is tried. [1]"""
    if why := around.refused.get((POLICY, item.namespace)):
        raise InputError(why)
    beside = around.around(item.namespace)
    kind = job_kind(item.api_version, item.kind)
    if kind is None:
        demand_of(item.value, beside)  # says which kinds are known
    identity, policy = identity_of(item, around), policy_of(item, around)
    doubt = _refuse(identity, item, policy)
    demand = demand_of(item.value, beside)
    facts = identity.facts
    draft = SpecDraft(item.kind, demand, facts)
    if (trainer := facts.get("trainer")) is not None and trainer.value in _SCRIPTS:
        parts = facts["parallel"].value if "parallel" in facts else {}
        draft.add({"constraints": {"cp": {"max": parts.get("cp", 1)}}}, trainer.source)
    if policy is not None:
        place = f"AdvisorPolicy {policy.name}: spec"
        draft.add(of_policy(policy.spec), place, model=f"{place}.training.model")
    draft.add({"training": of_facts(identity)}, demand.words_path)
    add_model(draft, facts)
    config = _add_config(item, around, draft)
    if _MODEL in item.annotations:
        _agree_on_model(item.annotations[_MODEL], facts.get("model"))
        draft.add({"model": {"preset": item.annotations[_MODEL]}}, f"annotation {_MODEL}")
    tried = {} if batch is None else {"training": {"globalBatchSize": batch}}
    draft.add(tried, "the table over batches")
    stated = part_of(draft.spec, "cluster")
    size = size_wanted(item)
    bounds = SizeBounds() if policy is None else policy.spec.sizing
    if size:
        if kind is not None and (node_gpus := kind.gpus_per_node(part_of(item.value, "spec"))):
            bounds = bounds.model_copy(update={"gpus_per_node": [node_gpus]})
        demand = replace(demand, gpus=0, gpus_per_pod=0)
        stated = {**stated, "nodes": bounds.min_nodes}
        if bounds.global_batch_sizes:
            first = {"globalBatchSize": bounds.global_batch_sizes[0]}
            draft.add({"training": first}, "AdvisorPolicy: spec.sizing")
    if not demand.gpus and "nodes" not in stated:
        raise FactsMissing(demand.unread)
    draft.check()
    profile, assumed, sure = _profile(stated.get("profile"), identity, demand, around)
    draft.spec["cluster"] = {"profile": profile.name, **_places(stated, demand, profile)}
    is_planned = False
    if identity.launch_found is not None and not size and "current" not in draft.spec:
        is_planned = _add_current(draft, identity.launch_found, demand.gpus, item.annotations)
    with draft.errors():
        spec = parse(TrainingJobSpec, draft.spec, draft.PATH)
    question = JobQuestion(
        spec=spec,
        profile=profile,
        config=config,
        path=draft.PATH,
        assumed=assumed if sure else "",
        doubts=tuple(filter(None, (doubt, "" if sure else assumed))),
        draft=draft,
        is_planned=is_planned,
        tunes=identity.job_class is JobClass.FINE_TUNING,
        size=size,
        size_bounds=bounds if size else None,
    )
    sizes = tuple((gpus, _at_size(question, stated, demand, gpus)) for gpus in demand.sizes)
    return replace(question, size_questions=sizes)


_SCRIPTS: Final = frozenset({"custom", "fsdp-script"})
"""Trainers that are scripts of the user's: context parallelism is in their code, or in none."""


def size_wanted(item: Item) -> str:
    """What the size of a job is to be best at; empty where it asks for none, or has one."""
    objective = item.annotations.get(SIZE, "")
    kind = job_kind(item.api_version, item.kind)
    if not objective or kind is None or kind.states_size(part_of(item.value, "spec")):
        return ""
    if objective not in OBJECTIVES:
        raise BadValue(f"annotation {SIZE}", objective, f"one of {', '.join(OBJECTIVES)}")
    return objective


_OVERRULED: Final = frozenset({JobClass.OTHER_TRAINING, JobClass.CPU, JobClass.OTHER})
"""Classes of an object of which nothing is known for sure: a person who names its model
knows more.
"""


def _refuse(identity: Identity, item: Item, policy: Object[AdvisorPolicySpec] | None) -> str:
    """Refuse what is no training that is priced; else the doubt that remains, or nothing."""
    doubt = ""
    if not identity.job_class.trains:
        named = _MODEL in item.annotations or _CONFIG in item.annotations
        defaulted = policy is not None and policy.spec.training.model is not None
        is_sure = identity.sure and identity.job_class not in _OVERRULED
        trains = identity.job_class is JobClass.OTHER_TRAINING and not identity.sure
        trains = trains and identity.may_train
        if CLASS in item.annotations or is_sure or not (named or (defaulted and trains)):
            raise NotTraining(
                f"{identity.job_class}: {identity.reason}; if it trains a language model, give the "
                f"{item.kind} the annotation {CLASS}: {JobClass.PRE_TRAINING}, or {_MODEL}"
            )
        if not named:
            doubt = "nothing in the job says that it trains the model of its policy"
    if identity.disagree:
        raise FactsDisagree(f"{identity.disagree[0]}; make them agree, or say it in {ELSEWHERE}")
    if identity.device_request.vendor and not identity.device_request.ours:
        raise NotApplicable(
            f"{identity.device_request.named}: it trains on {identity.device_request.title}, "
            "and this advisor knows whole GPUs of NVIDIA and AMD only"
        )
    return doubt


def _agree_on_model(annotation: str, named: Fact | None) -> None:
    """Refuse an annotation that names another model than the job's own words."""
    annotated = model_preset(annotation)
    if named is not None and annotated and model_preset(named.value) not in {"", annotated}:
        raise FactsDisagree(
            f"the annotation {_MODEL} says {annotation}, and {named.source} says {named.value}; "
            "make them agree"
        )


def _profile(
    name: Any, identity: Identity, demand: Demand, around: Surroundings
) -> tuple[Profile, str, bool]:
    """A job's profile, why that one where it was assumed, and whether its device is sure.

    A policy names a profile for all jobs of a namespace. One whose pods ask for other devices has
    another profile, or none.
    """
    devices = identity.device_request
    profile, assumed = profile_of(name, demand.selector, around)
    if not devices.vendor or agrees(devices, profile.spec.gpu):
        return profile, assumed, True
    word = devices.word or devices.product
    request = f"{devices.label or devices.named} asks for {word} devices"
    alternative = profile_with(devices, around)
    if alternative is None:
        raise FactsDisagree(
            f"{request}, and the profile {profile.name} has {profile.spec.gpu}; "
            "name a ClusterProfile that has them in an AdvisorPolicy, or in the spec behind "
            f"the annotation {_CONFIG}"
        )
    chosen, sure = alternative
    unsaid = "" if devices.label else ", and nothing says which"
    why = f"{request}{unsaid}: {chosen.spec.gpu} is assumed, by profile {chosen.name}"
    return chosen, why, sure


def _at_size(
    question: JobQuestion, stated: Mapping[str, Any], demand: Demand, gpus: int
) -> JobQuestion | InputError:
    """The question at another number of GPUs, without today's layout."""
    try:
        places = _places(stated, replace(demand, gpus=gpus), question.profile)
    except InputError as error:
        return error
    cluster = ClusterPart.model_validate({"profile": question.profile.name, **places})
    spec = question.spec.model_copy(update={"cluster": cluster, "current": None})
    return replace(question, spec=spec)


def policy_of(item: Item, around: Surroundings) -> Object[AdvisorPolicySpec] | None:
    """The policy of the job's namespace: one that lists its kind, else one that lists none."""
    policies = [policy for policy in around.policies if policy.namespace == item.namespace]
    listed = [policy for policy in policies if _applies(item, policy.spec)]
    return next(iter([*listed, *(p for p in policies if not p.spec.kinds)]), None)


def _applies(item: Item, policy: AdvisorPolicySpec) -> bool:
    listed = any(
        same_kind(kind.api_version, kind.kind, item.api_version, item.kind) for kind in policy.kinds
    )
    return listed and policy.selector.matches(part_of(item.metadata, "labels"))


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
        keys = ("nodes", "gpusPerNode", "gpusPerPod")
        sizes = {key: stated[key] for key in keys if key in stated}
        if not isinstance(sizes.get("nodes"), int) or isinstance(sizes["nodes"], bool):
            raise InputError(demand.unread)
        return sizes
    per_node = int(cluster_of(profile.spec, 1).gpus)
    split = places(demand.gpus, per_node, demand.gpus_per_pod)
    if split is None:
        raise BadValue(
            "GPUs of all pods",
            demand.gpus,
            f"nodes of profile {profile.name} have {per_node} each: "
            "give every pod the same number of GPUs, or all GPUs of its nodes",
        )
    nodes, gpus_per_node = split
    sizes = {"nodes": nodes}
    if gpus_per_node != per_node:
        sizes["gpusPerNode"] = gpus_per_node
    if 0 < demand.gpus_per_pod < gpus_per_node:
        sizes["gpusPerPod"] = demand.gpus_per_pod
    return sizes


def _add_current(
    draft: SpecDraft, launch_found: LaunchFound, gpus: int, annotations: Mapping[str, str]
) -> bool:
    """Put the layout of a job into its draft.

    Gives True where that layout only stands in a command, and nobody saw it run.
    """
    draft.spec["current"] = current_layout(launch_found, gpus)
    if step := _measured(annotations):
        draft.spec["current"]["stepSeconds"] = step
    # A command says what somebody wrote. That it ran, a measured step says, or what was seen.
    return not step and RUNS not in annotations


def _measured(annotations: Mapping[str, Any]) -> str:
    """The measured step of a running job, as its annotation has it; empty where there is
    none. [s]
    """
    text = annotations.get(MEASURED)
    return text if isinstance(text, str) and re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text) else ""


def with_seen(spec: TrainingJobSpec, annotations: Mapping[str, Any]) -> TrainingJobSpec:
    """A TrainingJob's spec with the layout that its processes were seen to run as today's."""
    line = annotations.get(RUNS)
    try:
        words = shlex.split(line) if isinstance(line, str) else []
    except ValueError:
        return spec
    if not words:
        return spec
    current = CurrentLayout(arguments=[word[:WORD] for word in words[:256]])
    return spec.model_copy(update={"current": current})


def _training_job(item: Item, around: Surroundings) -> JobQuestion:
    job = training_job(item.value)
    path = f"TrainingJob {job.name}: spec"
    ref = job.spec.model.config_map_ref
    config = around.text(job.namespace, ref.name, ref.key) if ref is not None else None
    profile = around.profile(job.spec.cluster.profile, f"{path}.cluster.profile")
    spec = with_seen(job.spec, item.annotations)
    return JobQuestion(spec=spec, profile=profile, config=config, path=path)
