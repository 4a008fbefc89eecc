"""Gates at which a job waits for us: which it has, since when, and the patch that lets it go.

    kueue.x-k8s.io/admission-gated-by: mofa.dev/advisor,…     Kueue admits it once every name is gone; ours goes
    advisor.mofa.dev/gate: suspend                            it was made suspended; we resume it

Whatever Kueue manages is resumed by Kueue alone, whose quota our own gate would pass by.
"""

from __future__ import annotations

from typing import Final

from mofa_model.annotations import FRAMEWORK_VERSION, GATE, PREFIX
from mofa_model.errors import InputError
from mofa_model.kinds import JobKind, Kind, demand_of
from mofa_model.kinds.patches import INTERVAL, NAME, Operation, pointer, test
from mofa_model.launch import unverified
from mofa_operator.decision import Answer
from mofa_operator.objects import LiveObject
from mofa_operator.settings import LoopSettings

KUEUE: Final = "kueue.x-k8s.io/admission-gated-by"
"""Kueue's list of those whom a job waits for; names can only be taken away."""
SUSPEND: Final = "suspend"
"""The only value of our own gate."""
_QUEUE: Final = "kueue.x-k8s.io/queue-name"


def is_gated(job: LiveObject) -> bool:
    """Whether an object waits for us, or says so."""
    return job.annotations.get(GATE) == SUSPEND or NAME in _names(job)


def is_suspended(job: LiveObject) -> bool:
    """Whether an object is suspended; some kinds never are."""
    return job.holds(_suspend(job.key.kind))


def consents(job: LiveObject) -> bool:
    """Whether an object lets its launch be written: the fence looks at the object alone, never at policies."""
    return is_gated(job) or job.annotations.get(PREFIX + "mode") == "Apply"


def deadline(job: LiveObject, settings: LoopSettings) -> float:
    """When an object must have been let go, in seconds of the epoch; long ago where its age is unknown. [s]"""
    made = job.made
    return 0.0 if made is None else made + settings.gate_longest


def guard(job: LiveObject) -> tuple[Operation, ...]:
    """Tests that this very object still waits, where it does."""
    meant = test("/metadata/uid", job.uid)
    return (meant, test(pointer(*_suspend(job.key.kind)), True)) if is_suspended(job) else (meant,)


def written(job: LiveObject, answer: Answer) -> tuple[Operation, ...]:
    """The patch that writes an answer's arguments; empty where they stand, an `InputError` where they cannot be written."""
    kind = job.key.kind
    if not isinstance(kind, JobKind):
        raise InputError(f"a {kind.kind} of {kind.group} has no launch arguments")
    if kind.changes and not answer.arguments:
        raise InputError("training.framework: no trainer is named that could be told this layout")
    made = kind.written(job.body, answer.arguments, answer.annotations.get(INTERVAL, ""))
    return (*guard(job), *made) if made else ()


def unproven(job: LiveObject, answer: Answer) -> str:
    """Why an answer's arguments are not verified for the version of the trainer that a job names: in our annotation, in the spec
    behind it, or in the tag of the trainer's image; empty where they are.
    """
    version = job.annotations.get(FRAMEWORK_VERSION) or answer.framework_version
    if not version:
        images = [
            image.rpartition("/")[2].partition("@")[0] for image in demand_of(job.body).images
        ]
        tags = {image.partition(":")[2] for image in images if answer.trainer in image}
        version = tags.pop() if len(tags) == 1 else ""
    return unverified(answer.trainer, answer.arguments, version)


def opened(job: LiveObject) -> tuple[Operation, ...]:
    """The patch that takes our gates away, and resumes what our own gate held."""
    stands, waits = job.annotations, _names(job)
    made: list[Operation] = []
    if NAME in waits:
        made += _changed(KUEUE, stands[KUEUE], ",".join(name for name in waits if name != NAME))
    if stands.get(GATE) == SUSPEND:
        made += _changed(GATE, SUSPEND, "")
        if is_suspended(job) and KUEUE not in stands and _QUEUE not in job.labels:
            made.append({"op": "replace", "path": pointer(*_suspend(job.key.kind)), "value": False})
    return (*guard(job), *made)


def _changed(name: str, before: str, after: str) -> tuple[Operation, ...]:
    path = pointer("metadata", "annotations", name)
    change: Operation = (
        {"op": "replace", "path": path, "value": after} if after else {"op": "remove", "path": path}
    )
    return test(path, before), change


def _names(job: LiveObject) -> list[str]:
    """Whom Kueue lets it wait for."""
    return [name.strip() for name in job.annotations.get(KUEUE, "").split(",") if name.strip()]


def _suspend(kind: Kind) -> tuple[str, ...]:
    """Where a job says that it waits; empty where it cannot."""
    return ("spec", *kind.suspend) if isinstance(kind, JobKind) and kind.suspend else ()
