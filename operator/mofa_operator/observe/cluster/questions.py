"""Questions: exactly what an answer depends on; jobs with equal questions are answered once.

Names, conditions, verdicts and what is only displayed are left out. A count of nodes is reduced to
what matters: with `nodes: 256` an answer changes when fewer than 256 are ready, but not with each
node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mofa_model.annotations import ASKED, RUNS, SEEN
from mofa_model.kinds import Kind, without_suspension
from mofa_model.kinds.shape import Body, at, part
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, TRAINING_JOB
from mofa_operator.objects import UNREAD, LiveObject, LiveProfile, LiveTrainingJob, WrittenPart
from mofa_operator.observe.cluster.bodies import digest, packed
from mofa_operator.observe.cluster.relations import Dependencies, ListedPolicy, policy_for, texts_of
from mofa_operator.snapshot import Named, Question
from mofa_operator.words import Aspect

_NOT_ASKED: Final = ("mode", "targetRef", "slo", "throughput")
"""Parts of a TrainingJob's spec that no answer depends on: what to do and what to watch."""
_ANY_TIME: Final = "1970-01-01T00:00:00Z"
"""The time of a condition in a question, which must have one."""
_COUNTED: Final = (
    "name", "failures", "exposureNodeDays", "presentFailures", "presentNodeDays", "recoverySeconds",
)  # fmt: skip
"""Fields of a class's history that an answer depends on."""


def question_bytes(question: Question) -> bytes:
    """A question as bytes, equal for equal questions."""
    changes = [question.changes] if question.changes else []
    parts = [
        question.job,
        question.profiles,
        question.policies,
        question.config_maps,
        question.beside,
    ]
    return packed([*parts, *changes])


def training_question(
    job: LiveTrainingJob, profile: LiveProfile | None, dependencies: Dependencies, named: Named
) -> Question:
    """The question of a TrainingJob."""
    spec = job.body.get("spec")
    asked_spec = _without(spec, _NOT_ASKED)
    profiles = () if profile is None else (_for_job(_profile_part(profile), part(spec, "cluster")),)
    question_job: WrittenPart = {
        "apiVersion": job.body.get("apiVersion"),
        "kind": TRAINING_JOB.kind,
        "spec": asked_spec,
    }
    if UNREAD in job.body:
        question_job[UNREAD] = job.body[UNREAD]
    if RUNS in job.annotations:
        question_job["metadata"] = {"annotations": {RUNS: job.annotations[RUNS]}}
    return Question(
        job=question_job,
        profiles=profiles,
        config_maps=texts_of(job.key, dependencies, job.body, named),
    )


def existing_question(
    job: LiveObject,
    profiles: Sequence[LiveProfile],
    policies: Sequence[ListedPolicy],
    dependencies: Dependencies,
    named: Named,
    *,
    opted_in: bool = False,
) -> Question:
    """The question of a job that may mean any of `profiles`, with its namespace's `policies`."""
    policy = policy_for(job, policies)
    chosen_by = set() if policy is None else policy.selector.keys()
    labels, annotations = job.labels, job.annotations
    return Question(
        job={
            "apiVersion": job.body.get("apiVersion"),
            "kind": job.key.kind.kind,
            "metadata": {
                "labels": {name: labels[name] for name in sorted(chosen_by) if name in labels},
                "annotations": {
                    name: annotations[name] for name in (*ASKED, *SEEN) if name in annotations
                },
            },
            "spec": without_suspension(job.body.get("spec")),
            **({UNREAD: job.body[UNREAD]} if UNREAD in job.body else {}),
        },
        profiles=tuple(_profile_part(profile) for profile in profiles),
        policies=()
        if policy is None
        else (_object(ADVISOR_POLICY, policy.name, _without(policy.spec, ("budget",))),),
        opted_in=opted_in,
        config_maps=texts_of(job.key, dependencies, job.body, named),
        beside=tuple(_named_object(body) for body in named.beside),
    )


def relevance(profile: LiveProfile) -> bytes:
    """Checksum of the parts of a profile that its jobs use in answers, or show beside them."""
    verdicts = [row.verdict for row in profile.status.rows]
    complete = [
        [condition.status, condition.reason, condition.message]
        for condition in profile.conditions
        if condition.type == Aspect.HISTORY_COMPLETE
    ]
    return digest([_profile_part(profile), verdicts, complete])


def _profile_part(profile: LiveProfile) -> WrittenPart:
    """The part of a profile that answers depend on."""
    status = profile.kept("nodes", "failures")
    kept_status: WrittenPart = {"nodes": _count(status["nodes"])} if "nodes" in status else {}
    if isinstance(classes := status.get("failures"), list):
        kept_status["failures"] = [
            {field: part(row)[field] for field in _COUNTED if field in part(row)} for row in classes
        ]
    if factors := profile.factors:
        kept_status["calibration"] = {**factors, "jobs": 0}
    if unready := _unready(profile):
        kept_status["conditions"] = [unready]
    spec = _without(profile.body.get("spec"), ("prometheus",))
    return _object(CLUSTER_PROFILE, profile.key.name, spec) | {"status": kept_status}


def _unready(profile: LiveProfile) -> WrittenPart:
    """The condition that says that a profile is not ready, without its time; else empty."""
    for condition in profile.conditions:
        if condition.type == Aspect.READY and condition.status == "False":
            fields = {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
            }
            return {k: text for k, text in fields.items() if text} | {
                "lastTransitionTime": _ANY_TIME
            }
    return {}


def _for_job(profile: WrittenPart, cluster: Mapping[str, object]) -> WrittenPart:
    """A profile for a TrainingJob: without selector, and with no more nodes than the job wants."""
    status = dict(profile["status"])
    ready, wanted = at(status, "nodes", "ready"), cluster.get("nodes")
    if isinstance(ready, int) and isinstance(wanted, int):
        status["nodes"] = {"total": wanted, "ready": wanted if ready >= wanted else 0}
    elif isinstance(ready, int) and "maxNodes" in cluster:
        del status["nodes"]
    return profile | {"spec": _without(profile["spec"], ("nodeSelector",)), "status": status}


def _without(spec: object, left_out: Sequence[str]) -> object:
    """A spec without some parts; a value that is no mapping stays, and the answer reports it."""
    if not isinstance(spec, Mapping):
        return spec
    return {name: value for name, value in spec.items() if name not in left_out}


def _count(nodes: object) -> object:
    """The number of nodes that advice is for: the steady one, else those that are ready; and for
    new sizes the number that the pool had lately.
    """
    ready = at(nodes, "steady")
    ready = at(nodes, "ready") if ready is None else ready
    if not isinstance(ready, int):
        return nodes
    lately = at(nodes, "lately")
    lately_count = {"lately": lately} if isinstance(lately, int) else {}
    return {"total": ready, "ready": ready, **lately_count}


def _object(kind: Kind, name: object, spec: object) -> WrittenPart:
    """An object of our kinds with its name and spec only."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _named_object(body: Body) -> WrittenPart:
    """An object that a job names, with only what its answer depends on."""
    return {
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "metadata": {"name": at(body, "metadata", "name")},
        "spec": body.get("spec"),
    }
