"""Every object of a stream that makes pods: what it is, what became of it, its facts
with sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mofa_model.annotations import PREFIX
from mofa_model.errors import InputError, NotApplicable, NotTraining
from mofa_model.identity import Fact, Facts, Identity, pods_of
from mofa_model.kinds import job_kind
from mofa_model.kinds.shape import part, text_of
from mofa_model.manifest import jobs
from mofa_model.manifest.documents import Item
from mofa_model.manifest.parsing import is_ours
from mofa_model.manifest.stream import Outcome
from mofa_model.manifest.surroundings import Surroundings

_NOT_ASKED: Final = "NotAsked"
_OF_POLICY: Final = {
    "model": "model",
    "sequence_length": "sequenceLength",
    "global_batch": "globalBatchSize",
    "precision": "precision",
    "trainer": "framework",
}
"""Facts that a policy may give, and its fields."""


def object_rows(
    items: Sequence[Item], outcomes: Sequence[Outcome], around: Surroundings
) -> list[dict[str, Any]]:
    """Rows of object, class, status, why, and facts."""
    outcome_of = {id(outcome.item): outcome for outcome in outcomes}
    rows: list[dict[str, Any]] = []
    for item in items:
        outcome = outcome_of.get(id(item))
        if is_ours(item.value):
            if outcome is not None:
                rows.append(_row(item, "", outcome.status, outcome.explanation, {}))
            continue
        spec = item.value.get("spec")
        is_job_kind = job_kind(item.api_version, item.kind) is not None
        if not isinstance(spec, Mapping) or not (is_job_kind or pods_of(spec)):
            continue
        rows.append(_of_object(item, outcome, is_job_kind, around))
    return rows


def _of_object(
    item: Item, outcome: Outcome | None, is_job_kind: bool, around: Surroundings
) -> dict[str, Any]:
    try:
        identity = jobs.identity_of(item, around)
    except InputError as error:
        return _row(item, "", error.status, str(error), {})
    status, why = (
        (outcome.status, outcome.explanation) if outcome else _unasked(item, identity, is_job_kind)
    )
    facts = {**_stated_facts(item, identity, around), **identity.facts}
    return _row(item, identity.job_class, status, why, facts, identity.reason)


def _unasked(item: Item, identity: Identity, is_job_kind: bool) -> tuple[str, str]:
    """Status of an object that nobody asks for, or of a kind that is not advised."""
    if not identity.job_class.trains:
        return NotTraining.status, f"{identity.job_class}: {identity.reason}"
    if not is_job_kind:
        why = f"a {item.kind} is no kind of job that is advised; docs/reference/kinds.md lists them"
        return NotApplicable.status, why
    return _NOT_ASKED, "neither the object nor a policy of its namespace asks for advice"


def _stated_facts(item: Item, identity: Identity, around: Surroundings) -> Facts:
    """What a person's annotation or the policy says where the job says nothing."""
    facts: dict[str, Fact] = {}
    policy = jobs.policy_of(item, around) if identity.job_class.trains else None
    if policy is not None:
        training = part(policy.spec.model_dump(by_alias=True, exclude_none=True), "training")
        for name, field in _OF_POLICY.items():
            if field in training:
                place = f"AdvisorPolicy {policy.name}: spec.training.{field}"
                facts[name] = Fact(training[field], place)
    if (model := item.annotations.get(f"{PREFIX}model")) is not None:
        facts["model"] = Fact(model, f"annotation {PREFIX}model")
    return facts


def _row(
    item: Item, job_class: str, status: str, why: str, facts: Facts, reason: str = ""
) -> dict[str, Any]:
    name = item.name or text_of(item.metadata.get("generateName"))
    return {
        "object": f"{item.kind}/{name}",
        "namespace": item.namespace,
        "class": str(job_class) or None,
        "reason": reason or None,
        "status": status,
        "explanation": why,
        "facts": {
            name: {"value": fact.value, "source": fact.source} for name, fact in facts.items()
        },
    }
