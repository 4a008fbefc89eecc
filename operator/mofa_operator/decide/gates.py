"""Gates at which a job waits for us: which it has, since when, and the patch that lets it go.

    kueue.x-k8s.io/admission-gated-by: mofa.dev/advisor,…     Kueue admits it once every name is gone; ours goes
    advisor.mofa.dev/gate: suspend                            it was made suspended; we resume it

Whatever Kueue manages is resumed by Kueue alone, whose quota our own gate would pass by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mofa_model.annotations import GATE, PREFIX
from mofa_model.errors import InputError
from mofa_model.kinds import JobKind, Kind
from mofa_model.kinds.patches import INTERVAL, NAME, Operation, pointer, test
from mofa_model.kinds.shape import at, part
from mofa_operator.decide.reading import annotations_of, seconds, uid_of
from mofa_operator.decision import Answer
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import Body

KUEUE: Final = "kueue.x-k8s.io/admission-gated-by"
"""Kueue's list of those whom a job waits for; names can only be taken away."""
SUSPEND: Final = "suspend"
"""The only value of our own gate."""
_QUEUE: Final = "kueue.x-k8s.io/queue-name"


def is_gated(body: Body) -> bool:
    """Whether an object waits for us, or says so."""
    stands = annotations_of(body)
    return stands.get(GATE) == SUSPEND or NAME in _names(stands)


def is_suspended(kind: Kind, body: Body) -> bool:
    """Whether an object is suspended; some kinds never are."""
    return bool(path := _suspend(kind)) and at(body, *path) is True


def consents(body: Body) -> bool:
    """Whether an object lets its launch be written: the fence looks at the object alone, never at policies."""
    return is_gated(body) or annotations_of(body).get(PREFIX + "mode") == "Apply"


def since(body: Body) -> float | None:
    """When an object was made, in seconds of the epoch. [s]"""
    return seconds(at(body, "metadata", "creationTimestamp"))


def deadline(body: Body, settings: LoopSettings) -> float:
    """When an object must have been let go, in seconds of the epoch; long ago where its age is unknown. [s]"""
    made = since(body)
    return 0.0 if made is None else made + settings.gate_longest


def guard(kind: Kind, body: Body) -> tuple[Operation, ...]:
    """Tests that this very object still waits, where it does."""
    meant = test("/metadata/uid", uid_of(body))
    return (meant, test(pointer(*_suspend(kind)), True)) if is_suspended(kind, body) else (meant,)


def written(kind: Kind, body: Body, answer: Answer) -> tuple[Operation, ...]:
    """The patch that writes an answer's arguments; empty where they stand, an `InputError` where they cannot be written."""
    if not isinstance(kind, JobKind):
        raise InputError(f"a {kind.kind} of {kind.group} has no launch arguments")
    if kind.changes and not answer.arguments:
        raise InputError("training.framework: no trainer is named that could be told this layout")
    made = kind.written(body, answer.arguments, answer.annotations.get(INTERVAL, ""))
    return (*guard(kind, body), *made) if made else ()


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
            made.append({"op": "replace", "path": pointer(*_suspend(kind)), "value": False})
    return (*guard(kind, body), *made)


def _changed(name: str, before: str, after: str) -> tuple[Operation, ...]:
    path = pointer("metadata", "annotations", name)
    change: Operation = (
        {"op": "replace", "path": path, "value": after} if after else {"op": "remove", "path": path}
    )
    return test(path, before), change


def _names(annotations: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in annotations.get(KUEUE, "").split(",") if name.strip()]


def _is_kueues(body: Body) -> bool:
    return KUEUE in annotations_of(body) or _QUEUE in part(body, "metadata", "labels")


def _suspend(kind: Kind) -> tuple[str, ...]:
    """Where a job says that it waits; empty where it cannot."""
    return ("spec", *kind.suspend) if isinstance(kind, JobKind) and kind.suspend else ()
