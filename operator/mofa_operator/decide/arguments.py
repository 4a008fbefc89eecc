"""Where launch arguments are written in a job that waits, kind by kind; each project lets other fields through.

JobSet, batch Job    annotations of the pod template, which the trainer's container reads by the downward API
TrainJob             the same, in the patch of its runtime that is ours
PyTorchJob           args of the container `pytorch`: the layout's words are replaced, the others kept
RayJob               the entrypoint: the same
Volcano Job          nowhere: its webhook lets nothing of that change
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mofa_model.annotations import PREFIX
from mofa_model.errors import InputError
from mofa_model.launch import rewritten, rewritten_line
from mofa_operator.decide.gates import NAME, guard, pointer
from mofa_operator.decide.reading import part
from mofa_operator.decision import Answer, Operation
from mofa_operator.keys import BATCH_JOB, JOB_SET, PYTORCH_JOB, RAY_JOB, TRAIN_JOB, Kind
from mofa_operator.snapshot import Body

ARGUMENTS: Final = PREFIX + "launch-args"
"""Annotation of a pod template: the trainer's arguments, as a shell would read them."""
INTERVAL: Final = PREFIX + "checkpoint-interval-steps"
"""Annotation of a pod template, the same as on the job."""
_TRAINER: Final = "node"
"""The trainer's job in the runtimes of Kubeflow."""
_CONTAINER: Final = "pytorch"
"""The trainer's container in a PyTorchJob."""


def written(kind: Kind, body: Body, answer: Answer) -> tuple[Operation, ...]:
    """The patch that writes an answer's arguments; empty where they stand, an `InputError` where they cannot be written."""
    writer = _WRITERS.get(kind)
    if writer is None:
        raise InputError(f"nothing of a {kind.kind} of {kind.group} can be changed once it was made")
    if not answer.arguments:
        raise InputError("training.framework: no trainer is named that could be told this layout")
    made = writer(body, answer)
    return (*guard(kind, body), *made) if made else ()


def _job_set(body: Body, answer: Answer) -> list[Operation]:
    wanted, made, found = _annotations(answer), list[Operation](), False
    for at, replicated in enumerate(_list(part(body, "spec").get("replicatedJobs"))):
        path = pointer("spec", "replicatedJobs", at)
        template = part(replicated, "template", "spec", "template")
        found |= bool(template)
        added = _annotated(path + "/template/spec/template", template, wanted) if template else []
        if added:
            made += [_test(path + "/name", part(replicated).get("name")), *added]
    if not found:
        raise InputError("spec.replicatedJobs: holds no pod template")
    return made


def _batch_job(body: Body, answer: Answer) -> list[Operation]:
    template = part(body, "spec", "template")
    if not template:
        raise InputError("spec.template: is missing")
    return _annotated("/spec/template", template, _annotations(answer))


def _train_job(body: Body, answer: Answer) -> list[Operation]:
    pods = {"metadata": {"annotations": _annotations(answer)}}
    trainer = {"name": _TRAINER, "template": {"spec": {"template": pods}}}
    runtime = {"template": {"spec": {"replicatedJobs": [trainer]}}}
    wanted = {"manager": NAME, "trainingRuntimeSpec": runtime}
    path, stands = "/spec/runtimePatches", part(body, "spec").get("runtimePatches")
    if not isinstance(stands, list):
        return [_test(path, None), {"op": "add", "path": path, "value": [wanted]}]
    for at, patch in enumerate(stands):
        if part(patch).get("manager") == NAME:
            same = part(patch).get("trainingRuntimeSpec") == runtime
            here = f"{path}/{at}"
            return (
                []
                if same
                else [_test(here + "/manager", NAME), {"op": "replace", "path": here, "value": wanted}]
            )
    return [{"op": "add", "path": path + "/-", "value": wanted}]


def _pytorch_job(body: Body, answer: Answer) -> list[Operation]:
    made, found = list[Operation](), False
    for role, replica in part(body, "spec", "pytorchReplicaSpecs").items():
        containers = _list(part(replica, "template", "spec").get("containers"))
        for at, container in enumerate(containers):
            if part(container).get("name") != _CONTAINER:
                continue
            found = True
            path = pointer("spec", "pytorchReplicaSpecs", role, "template", "spec", "containers", at)
            args = part(container).get("args")
            after = _rewritten(_words(part(container).get("command")), _words(args), answer.arguments)
            if after != args:
                change: Operation = {"op": "add", "path": path + "/args", "value": after}
                made += [_test(path + "/name", _CONTAINER), _test(path + "/args", args), change]
    if not found:
        raise InputError(f"no container is called {_CONTAINER}, as the trainer's of a PyTorchJob must be")
    return made


def _ray_job(body: Body, answer: Answer) -> list[Operation]:
    entrypoint = part(body, "spec").get("entrypoint")
    if not isinstance(entrypoint, str) or not entrypoint.strip():
        raise InputError("spec.entrypoint: is missing; there is nothing to add the arguments to")
    after = rewritten_line(entrypoint, answer.arguments)
    if after == entrypoint:
        return []
    return [
        _test("/spec/entrypoint", entrypoint),
        {"op": "replace", "path": "/spec/entrypoint", "value": after},
    ]


_WRITERS: Final[Mapping[Kind, Callable[[Body, Answer], list[Operation]]]] = {
    JOB_SET: _job_set,
    BATCH_JOB: _batch_job,
    TRAIN_JOB: _train_job,
    PYTORCH_JOB: _pytorch_job,
    RAY_JOB: _ray_job,
}


def _annotations(answer: Answer) -> dict[str, str]:
    """What the pods are told; arguments that name a file beside them are refused."""
    told = {ARGUMENTS: shlex.join(rewritten((), answer.arguments))}
    steps = answer.annotations.get(INTERVAL)
    return told | ({INTERVAL: steps} if steps else {})


def _annotated(path: str, template: Mapping[str, Any], wanted: Mapping[str, str]) -> list[Operation]:
    """The patch that puts annotations on a pod template; what is on the way to them is made where it is missing."""
    if not isinstance(template.get("metadata"), Mapping):
        path = path + "/metadata"
        return [
            _test(path, template.get("metadata")),
            {"op": "add", "path": path, "value": {"annotations": wanted}},
        ]
    stands, path = template["metadata"].get("annotations"), path + "/metadata/annotations"
    if not isinstance(stands, Mapping):
        return [_test(path, stands), {"op": "add", "path": path, "value": dict(wanted)}]
    return [
        {"op": "add", "path": path + pointer(name), "value": value}
        for name, value in wanted.items()
        if stands.get(name) != value
    ]


def _rewritten(command: Sequence[str], args: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """New args; the command stays, so that a layout in it cannot be replaced."""
    after = rewritten((*command, *args), arguments)
    if after[: len(command)] != tuple(command):
        raise InputError(
            "the layout stands in the container's command: write it into args, where it can be replaced"
        )
    return list(after[len(command) :])


def _test(path: str, value: Any) -> Operation:
    """That something is as it was seen; None = that it is missing."""
    return {"op": "test", "path": path, "value": value}


def _words(value: Any) -> list[str]:
    words = _list(value)
    if not all(isinstance(word, str) for word in words):
        raise InputError("command and args must be lists of text")
    return words


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
