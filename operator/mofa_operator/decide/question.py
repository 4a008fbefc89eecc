"""A job's question as that of a TrainingJob; for the page also with changed values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from mofa_model import units
from mofa_model.advice import Request
from mofa_model.errors import InputError, MofaError
from mofa_model.kinds.shape import part
from mofa_model.manifest import jobs
from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.documents import Item
from mofa_model.manifest.inputs import to_inputs
from mofa_model.manifest.jobs import JobQuestion
from mofa_model.manifest.parsing import Profile, advisor_policy, cluster_profile, parse
from mofa_model.manifest.surroundings import Surroundings
from mofa_model.manifest.training_job import TrainingJobSpec
from mofa_operator.objects import UNREAD
from mofa_operator.snapshot import Question


class NoProfile(InputError):
    """The ClusterProfile that is named does not exist."""


def parsed_question(question: Question) -> JobQuestion:
    """A question, parsed; an error of `mofa_model.errors` says what is wrong in it."""
    if why := question.job.get(UNREAD):
        raise InputError(f"job: {why}")
    is_ours = question.job.get("kind") == "TrainingJob"
    return _training_job(question) if is_ours else _existing(question)


def example() -> Request:
    """A request with hardly anything to search, which loads all that later questions need."""
    only_one = {"values": [1]}
    job = {
        "model": {"preset": "llama3.1-8b"},
        "training": {
            "sequenceLength": 4096,
            "globalBatchSize": 64,
            "tokens": "1T",
            "framework": "megatron",
        },
        "cluster": {"profile": "warm", "nodes": 1},
        "constraints": dict.fromkeys(("tp", "pp", "cp", "mbs"), only_one) | {"recompute": ["none"]},
    }
    profile = Profile(name="warm", spec=ClusterProfileSpec(gpu="h100"))
    return to_inputs(TrainingJobSpec.model_validate(job), profile)


def _training_job(question: Question) -> JobQuestion:
    """The question of a TrainingJob: its spec, profile and model config.

    Errors name `spec` and not the job, because equal specs share one answer.
    """
    spec = parse(TrainingJobSpec, question.job.get("spec"), "spec")
    spec = jobs.with_seen(spec, part(question.job, "metadata", "annotations"))
    if not question.profiles:
        name = spec.cluster.profile
        raise NoProfile(
            f"spec.cluster.profile: there is no ClusterProfile {name!r}; see kubectl get cprof"
        )
    profile = cluster_profile(question.profiles[0])
    ref = spec.model.config_map_ref
    config = question.config_maps.get(ref.name, {}).get(ref.key) if ref is not None else None
    return JobQuestion(spec=spec, profile=profile, config=config, path="spec")


def _existing(question: Question) -> JobQuestion:
    """The question of a job of another kind, as that of a TrainingJob; a wrong mode is an error."""
    item, around = placed(question)
    jobs.mode_of(item, around)
    return jobs.question_of(item, around)


def placed(question: Question) -> tuple[Item, Surroundings]:
    """A job that is no TrainingJob, such as a JobSet, and the objects that its advice depends on,
    in the form in which `mofa annotate` reads them from files.
    """
    item = Item(question.job, None)
    around = Surroundings(
        profiles={profile.name: profile for profile in map(cluster_profile, question.profiles)},
        policies=[advisor_policy(policy) for policy in question.policies],
        config_maps={(item.namespace, name): data for name, data in question.config_maps.items()},
        beside={item.namespace: question.beside},
        opted_in=frozenset({item.namespace} if question.opted_in else ()),
    )
    return item, around


PLACES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[str], Any]]]] = {
    "nodes": (("cluster", "nodes"), units.count),
    "sequence_length": (("training", "sequenceLength"), units.count),
    "global_batch_size": (("training", "globalBatchSize"), units.count),
    "tokens": (("training", "tokens"), str),
    "precision": (("training", "precision"), str),
    "framework": (("training", "framework"), str),
    "objective": (("objective",), str.capitalize),
    "current": (("current",), lambda text: {"strategy": text}),
    "planned": (("current",), lambda text: {"strategy": text}),
}
"""Where each parameter of the page's form is in a TrainingJob's spec, and how its text is read."""


def changed(questions: JobQuestion, changes: Mapping[str, str]) -> JobQuestion:
    """The question with these values in place of those of the job."""
    if {"current", "planned"} <= changes.keys():
        raise InputError("spec.current: give today's layout or a planned one")
    spec = questions.spec.model_dump(by_alias=True, exclude_unset=True)
    is_planned = "planned" in changes or (questions.is_planned and "current" not in changes)
    for name, text in changes.items():
        (*parts, last), read = PLACES[name]
        try:
            value = read(text)
        except MofaError as error:
            where = ".".join(("spec", *parts, last))
            raise InputError(f"{where}: {str(error).partition(': ')[2]}") from None
        inner = spec
        for step in parts:
            inner = inner.setdefault(step, {})
        inner[last] = value
    if "nodes" in changes:
        spec["cluster"].pop("maxNodes", None)
    changed_spec = parse(TrainingJobSpec, spec, "spec")
    return replace(questions, spec=changed_spec, path="spec", is_planned=is_planned)


def by_parameter(error: MofaError, changes: Mapping[str, str]) -> dict[str, str]:
    """The message of an error by the parameter that it names, a changed one before others; by an
    empty name where it names none.
    """
    message = str(error)
    for name in sorted(PLACES, key=lambda name: name not in changes):
        parts, _ = PLACES[name]
        for root in ("spec", "job"):
            where = ".".join((root, *parts))
            if message.startswith((f"{where}:", f"{where}.")):
                return {name: message.partition(": ")[2]}
    return {"": message}
