"""Questions: what an answer depends on, and nothing else, so that jobs which ask the same are answered once.

Left out are names, conditions, verdicts, what is displayed, and what is watched rather than asked. A count of ready nodes
is reduced to what can matter: with `nodes: 256` an answer changes when fewer than 256 are ready, but not with each node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mofa_model.annotations import ASKED
from mofa_model.kinds import Kind, asked_of
from mofa_model.kinds.shape import at, items, part
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.observe.bodies import digest, packed
from mofa_operator.observe.relations import ListedPolicy, Uses, policy_for
from mofa_operator.snapshot import Body, Question
from mofa_operator.words import Aspect

_UNASKED: Final = ("mode", "targetRef", "slo", "throughput")
"""Parts of a TrainingJob's spec that say what to do with an answer, or what to watch."""
_UNREADY: Final = ("type", "status", "reason", "message")
"""What of a profile's condition goes into an answer."""
_ANY_TIME: Final = "1970-01-01T00:00:00Z"
"""What stands where a condition must have a time."""
_COUNTED: Final = ("name", "failures", "exposureNodeDays", "recoverySeconds")
"""What of a class's history goes into an answer."""


def question_bytes(question: Question) -> bytes:
    """A question as bytes, equal for equal questions."""
    return packed([question.job, question.profiles, question.policies, question.config_maps])


def training_question(
    body: Body, profile: Body | None, uses: Uses, maps: Mapping[str, Mapping[str, str]]
) -> Question:
    """What a TrainingJob asks."""
    spec = body.get("spec")
    asked = {k: v for k, v in spec.items() if k not in _UNASKED} if isinstance(spec, Mapping) else spec
    job = {"apiVersion": body.get("apiVersion"), "kind": TRAINING_JOB.kind, "spec": asked}
    profiles = () if profile is None else (_for_job(_asked(profile), part(spec, "cluster")),)
    return Question(job=job, profiles=profiles, config_maps=_texts(uses, maps))


def existing_question(
    key: Key,
    body: Body,
    profiles: Sequence[Body],
    policies: Sequence[ListedPolicy],
    uses: Uses,
    maps: Mapping[str, Mapping[str, str]],
) -> Question:
    """What an existing job asks; `profiles` are all that it could mean, `policies` those of its namespace."""
    policy = policy_for(key, body, policies)
    chosen_by = set() if policy is None else policy.selector.keys()
    labels, annotations = part(body, "metadata", "labels"), part(body, "metadata", "annotations")
    return Question(
        job={
            "apiVersion": body.get("apiVersion"),
            "kind": key.kind.kind,
            "metadata": {
                "labels": {name: labels[name] for name in sorted(chosen_by) if name in labels},
                "annotations": {name: annotations[name] for name in ASKED if name in annotations},
            },
            "spec": asked_of(body.get("spec")),
        },
        profiles=tuple(_asked(profile) for profile in profiles),
        policies=() if policy is None else (_named(ADVISOR_POLICY, policy.name, policy.spec),),
        config_maps=_texts(uses, maps),
    )


def relevance(profile: Body) -> bytes:
    """Mark of all that jobs take from a profile: what goes into answers, and what is shown with them."""
    status = part(profile, "status")
    classes = status.get("failures")
    verdicts = [at(one, "verdict") for one in classes] if isinstance(classes, list) else None
    shown = [
        [one.get(field) for field in ("type", "status", "reason", "message")]
        for one in items(status.get("conditions"))
        if one.get("type") == Aspect.HISTORY_COMPLETE
    ]
    return digest([_asked(profile), verdicts, shown])


def _asked(profile: Body) -> dict[str, Any]:
    """A profile without what no answer depends on."""
    status, spec = part(profile, "status"), profile.get("spec")
    classes, taught = status.get("failures"), at(status, "calibration", "stepTimeRatio")
    kept: dict[str, Any] = {"nodes": _count(status["nodes"])} if "nodes" in status else {}
    if isinstance(classes, list):
        kept["failures"] = [{k: part(one)[k] for k in _COUNTED if k in part(one)} for one in classes]
    if taught is not None:
        kept["calibration"] = {"stepTimeRatio": taught, "jobs": 0}
    if unready := _unready(status):
        kept["conditions"] = [unready]
    asked = {k: v for k, v in spec.items() if k != "prometheus"} if isinstance(spec, Mapping) else spec
    return _named(CLUSTER_PROFILE, at(profile, "metadata", "name"), asked) | {"status": kept}


def _unready(status: Body) -> dict[str, Any]:
    """That a profile is not ready, and why; empty where nobody says so. When that came about is no part of a question."""
    for one in items(status.get("conditions")):
        if one.get("type") == Aspect.READY and one.get("status") == "False":
            return {k: one[k] for k in _UNREADY if k in one} | {"lastTransitionTime": _ANY_TIME}
    return {}


def _for_job(profile: dict[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    """A profile as a TrainingJob sees it: not how nodes are selected, and no more of their number than matters."""
    spec, status = profile["spec"], dict(profile["status"])
    if isinstance(spec, Mapping):
        spec = {k: v for k, v in spec.items() if k != "nodeSelector"}
    ready, wanted = at(status, "nodes", "ready"), cluster.get("nodes")
    if isinstance(ready, int) and isinstance(wanted, int):
        status["nodes"] = {"total": wanted, "ready": wanted if ready >= wanted else 0}
    elif isinstance(ready, int) and "maxNodes" in cluster:
        del status["nodes"]
    return profile | {"spec": spec, "status": status}


def _count(nodes: Any) -> Any:
    """Ready nodes; how many there are besides is shown, and no more."""
    ready = at(nodes, "ready")
    return {"total": ready, "ready": ready} if isinstance(ready, int) else nodes


def _named(kind: Kind, name: object, spec: object) -> dict[str, Any]:
    """An object of ours with its name and spec alone."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}


def _texts(uses: Uses, maps: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """The texts that a job reads out of ConfigMaps, where they are there."""
    return {name: {key: maps[name][key]} for name, key in uses.config_maps if key in maps.get(name, {})}
