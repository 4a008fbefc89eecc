"""Gates at which a job waits for us: which it has, since when, and the patch that lets it go.

    kueue.x-k8s.io/admission-gated-by: mofa.dev/advisor,…     Kueue admits it once every name is gone; ours goes
    advisor.mofa.dev/gate: suspend                            it was made suspended; we resume it

Whatever Kueue manages is resumed by Kueue alone, whose quota our own gate would pass by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mofa_model.annotations import GATE, PREFIX
from mofa_operator.decide.reading import annotations_of, part, seconds, uid_of
from mofa_operator.decision import Operation
from mofa_operator.keys import PYTORCH_JOB, VOLCANO_JOB, Kind
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import Body

KUEUE: Final = "kueue.x-k8s.io/admission-gated-by"
"""Kueue's list of those whom a job waits for; names can only be taken away."""
NAME: Final = "mofa.dev/advisor"
"""Our name in that list, and as the manager of a TrainJob's patch."""
SUSPEND: Final = "suspend"
"""The only value of our own gate."""
_QUEUE: Final = "kueue.x-k8s.io/queue-name"


def is_gated(body: Body) -> bool:
    """Whether an object waits for us, or says so."""
    stands = annotations_of(body)
    return stands.get(GATE) == SUSPEND or NAME in _names(stands)


def is_suspended(kind: Kind, body: Body) -> bool:
    """Whether an object is suspended; some kinds never are."""
    if kind == VOLCANO_JOB:
        return False
    spec = part(body, "spec", "runPolicy") if kind == PYTORCH_JOB else part(body, "spec")
    return spec.get("suspend") is True


def consents(body: Body) -> bool:
    """Whether an object lets its launch be written: the fence looks at the object alone, never at policies."""
    return is_gated(body) or annotations_of(body).get(PREFIX + "mode") == "Apply"


def since(body: Body) -> float | None:
    """When an object was made, in seconds of the epoch. [s]"""
    return seconds(part(body, "metadata").get("creationTimestamp"))


def deadline(body: Body, settings: LoopSettings) -> float:
    """When an object must have been let go, in seconds of the epoch; long ago where its age is unknown. [s]"""
    made = since(body)
    return 0.0 if made is None else made + settings.gate_longest


def guard(kind: Kind, body: Body) -> tuple[Operation, ...]:
    """Tests that this very object still waits, where it does."""
    meant: tuple[Operation, ...] = ({"op": "test", "path": "/metadata/uid", "value": uid_of(body)},)
    if not is_suspended(kind, body):
        return meant
    return (*meant, {"op": "test", "path": _suspend(kind), "value": True})


def opened(kind: Kind, body: Body) -> tuple[Operation, ...]:
    """The patch that takes our gates away, and resumes what our own gate held."""
    stands = annotations_of(body)
    made: list[Operation] = []
    if NAME in _names(stands):
        left = [name for name in _names(stands) if name != NAME]
        made += _changed(KUEUE, stands[KUEUE], ",".join(left))
    if stands.get(GATE) == SUSPEND:
        made += _changed(GATE, SUSPEND, "")
        if is_suspended(kind, body) and not _is_kueues(body):
            made.append({"op": "replace", "path": _suspend(kind), "value": False})
    return (*guard(kind, body), *made)


def pointer(*steps: Any) -> str:
    """A JSON pointer.

    >>> pointer("metadata", "annotations", "a/b~c")
    '/metadata/annotations/a~1b~0c'
    """
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _changed(name: str, before: str, after: str) -> tuple[Operation, ...]:
    path = pointer("metadata", "annotations", name)
    change: Operation = (
        {"op": "replace", "path": path, "value": after} if after else {"op": "remove", "path": path}
    )
    return {"op": "test", "path": path, "value": before}, change


def _names(annotations: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in annotations.get(KUEUE, "").split(",") if name.strip()]


def _is_kueues(body: Body) -> bool:
    return KUEUE in annotations_of(body) or _QUEUE in part(body, "metadata", "labels")


def _suspend(kind: Kind) -> str:
    return "/spec/runPolicy/suspend" if kind == PYTORCH_JOB else "/spec/suspend"
