"""Mode Apply: launch arguments for a job that waits, and the gate that holds it.

    kueue.x-k8s.io/admission-gated-by: mofa.dev/advisor,…   Kueue admits once no name is left
    advisor.mofa.dev/gate: suspend                          it was made suspended, and we resume it

    the job                                      what becomes of it
    runs already                                 the gate is removed, nothing else
    was made `gate_longest` seconds ago          let go, whatever was decided
    mode Apply, and advice that can be written   verified arguments of the trainer's version, let go
    today's layout is the best, or likely so     let go as it is
    any other outcome                            let go, with the reason, once its objects were seen
    paused, or decided by another                waits for the bound

Only Kueue resumes what Kueue manages: our own gate would pass by its quota. A job without a gate of
ours is never resumed. Its arguments are written only if it says mode Apply itself and is suspended
at generation 1: then nobody has changed its spec, so it cannot have run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mofa_model.advice.choice import keeps
from mofa_model.annotations import FRAMEWORK_VERSION, GATE, PREFIX, RESTARTS, SIZE
from mofa_model.errors import InputError
from mofa_model.kinds import JobKind, Kind, demand_of
from mofa_model.kinds.patches import INTERVAL, NAME, Operation, place_of, pointer, test
from mofa_model.kinds.pods import gpu_resource
from mofa_model.kinds.shape import Body, ReferencedObjects, part
from mofa_model.launch import unverified
from mofa_operator.decide.launched import launch_sentence, runs_advised
from mofa_operator.decide.policy import (
    Handling,
    handling_of,
    is_paused,
    raises_restarts,
    wants_apply,
)
from mofa_operator.decide.status import NewCondition, State, sentence
from mofa_operator.decision import Answer, Decision, Note, Release
from mofa_operator.objects import LiveObject, LiveTrainingJob
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import JobSnapshot, Question
from mofa_operator.words import Aspect, Happened, Reason

KUEUE: Final = "kueue.x-k8s.io/admission-gated-by"
"""Kueue's list of those whom a job waits for; names can only be removed."""
SUSPEND: Final = "suspend"
"""The only value of our own gate."""
_QUEUE: Final = "kueue.x-k8s.io/queue-name"


def is_gated(job: LiveObject) -> bool:
    """Whether an object has a gate of ours."""
    return job.annotations.get(GATE) == SUSPEND or NAME in _names(job)


def is_suspended(job: LiveObject) -> bool:
    """Whether an object is suspended; some kinds never are."""
    return job.holds(_suspend(job.key.kind))


def consents(job: LiveObject) -> bool:
    """Whether an object itself lets us write its launch: the fence, which knows no policies, asks
    the same.
    """
    return is_gated(job) or job.annotations.get(PREFIX + "mode") == "Apply"


def deadline(job: LiveObject, settings: LoopSettings) -> float:
    """When an object is let go at the latest, in seconds of the epoch; 0 = unknown. [s]"""
    created = job.created
    return 0.0 if created is None else created + settings.gate_longest


def guard(job: LiveObject) -> tuple[Operation, ...]:
    """Tests of a patch: the object is the same, and still suspended where it is now."""
    tests = [test("/metadata/uid", job.uid)]
    if is_suspended(job):
        tests.append(test(pointer(*_suspend(job.key.kind)), True))
    return tuple(tests)


def written(
    job: LiveObject, answer: Answer, beside: Sequence[Body] = (), *, restarts: bool = False
) -> tuple[Operation, ...]:
    """The patch that writes the arguments, and with `restarts` raises the limit of restarts; empty
    where they are written already.

    `beside` holds the objects that the job names.
    """
    kind = job.key.kind
    if not isinstance(kind, JobKind):
        raise InputError(
            f"launch arguments cannot be written into a {kind.kind} of {kind.group}, which has none"
        )
    if SIZE in job.annotations and not kind.states_size(part(job.body, "spec")):
        raise InputError(
            f"the advice is for a size that the {kind.kind} does not have; write "
            f"{answer.nodes} nodes and {answer.gpus} GPUs into its manifest"
        )
    if kind.changed_field and not answer.arguments:
        raise InputError(
            "training.framework: no trainer is named, so the layout cannot be written as "
            "arguments; name one"
        )
    steps = answer.annotations.get(INTERVAL, "")
    patch = kind.launch_patch(job.body, answer.arguments, steps, ReferencedObjects(beside))
    needed = answer.annotations.get(RESTARTS, "")
    if restarts and needed.isdecimal():
        patch = [*patch, *kind.restart_patch(job.body, int(needed))]
    return (*guard(job), *patch) if patch else ()


def unproven(job: LiveObject, answer: Answer) -> str:
    """Why the arguments are not verified for the trainer's version; empty where they are.

    The version is that of our annotation, else of the spec, else of the tag of the trainer's image.
    """
    version = job.annotations.get(FRAMEWORK_VERSION) or answer.framework_version
    if not version:
        references = (image.rpartition("/")[2] for image in demand_of(job.body).images)
        images = [reference.partition("@")[0] for reference in references]
        tags = {image.partition(":")[2] for image in images if answer.trainer in image}
        version = tags.pop() if len(tags) == 1 else ""
    return unverified(answer.trainer, answer.arguments, version)


def opened(job: LiveObject) -> tuple[Operation, ...]:
    """The patch that removes our gates, and resumes the job where our own gate held it."""
    annotations, names = job.annotations, _names(job)
    patch: list[Operation] = []
    if NAME in names:
        others = ",".join(name for name in names if name != NAME)
        patch += _changed(KUEUE, annotations[KUEUE], others)
    if annotations.get(GATE) == SUSPEND:
        patch += _changed(GATE, SUSPEND, "")
        if is_suspended(job) and KUEUE not in annotations and _QUEUE not in job.labels:
            path = pointer(*_suspend(job.key.kind))
            patch.append({"op": "replace", "path": path, "value": False})
    return (*guard(job), *patch)


def _changed(name: str, before: str, after: str) -> tuple[Operation, ...]:
    path = pointer("metadata", "annotations", name)
    change: Operation = (
        {"op": "replace", "path": path, "value": after} if after else {"op": "remove", "path": path}
    )
    return test(path, before), change


def _names(job: LiveObject) -> list[str]:
    """Names in Kueue's list of those whom a job waits for."""
    return [name.strip() for name in job.annotations.get(KUEUE, "").split(",") if name.strip()]


def _suspend(kind: Kind) -> tuple[str, ...]:
    """The field that suspends a job; empty where it has none."""
    return ("spec", *kind.suspend) if isinstance(kind, JobKind) and kind.suspend else ()


RELEASED, UNADVISED, EXPIRED = "released", "unadvised", "expired"
"""How waits end: the metric's label `outcome`."""


def with_release(
    decision: Decision, snapshot: JobSnapshot, answer: Answer | None, settings: LoopSettings
) -> Decision:
    """The decision, with the release and the condition that mode Apply adds."""
    job = subject_of(snapshot)
    if job is None:
        return decision
    wants = wants_apply(snapshot)
    release, why = size_release(snapshot, job, answer)
    if release is not None:
        return replace(decision, release=release)
    if why:
        decision = _with_skipped(decision, f"no size is written: {why}")
    if is_gated(job):
        wait = _wait(snapshot, job, wants, answer, settings)
        if wait > 0:
            again = wait if decision.requeue_after is None else min(wait, decision.requeue_after)
            return replace(decision, requeue_after=again)
        return replace(decision, release=_gated(snapshot, job, wants, answer, settings))
    if not wants or answer is None or not answer.strategy or is_paused(job):
        return decision
    release, why = _ungated(snapshot, job, answer)
    if release is None and why:
        decision = _with_skipped(decision, why)
    return replace(decision, release=release)


def _with_skipped(decision: Decision, why: str) -> Decision:
    """The decision, with the Event of why nothing is applied: once, together with the advice."""
    if not decision.annotate:
        return decision
    note = Note(reason=Happened.APPLY_SKIPPED, message=sentence(why))
    return replace(decision, notes=(*decision.notes, note))


def size_release(
    snapshot: JobSnapshot, job: LiveObject, answer: Answer | None
) -> tuple[Release | None, str]:
    """The release of a job with the size that was chosen for it, or why there is none.

    Once the size is written, what the job's controller may have made with another size is deleted,
    so that it is made again.
    """
    kind, asks = job.key.kind, job.annotations.get(SIZE)
    if not asks or not isinstance(kind, JobKind) or not is_suspended(job) or is_paused(job):
        return None, ""
    if handling_of(snapshot) is not Handling.ADVISE:
        return None, ""
    if kind.states_size(part(job.body, "spec")):
        if job.generation != _WRITTEN or kind.child is None or is_gated(job):
            return None, ""
        return Release(key=job.key, uid=job.uid, child=kind.child, note=None), ""
    if answer is None or not answer.strategy or not answer.nodes or job.generation != 1:
        return None, ""
    nodes, gpus = answer.nodes, answer.gpus // answer.nodes
    if not answer.arguments:
        return None, "no trainer is named, so the layout cannot be written as arguments"
    try:
        patch = kind.size_patch(job.body, nodes, gpus, gpu_resource(answer.gpu), answer.arguments)
        if why := unproven(job, answer):
            return None, why
    except InputError as error:
        return None, str(error)
    message = f"{nodes} x {gpus} GPUs were written, as {asks}: {_strategy(answer)}"
    return Release(
        key=job.key,
        uid=job.uid,
        launch=(*guard(job), *patch),
        child=kind.child,
        free=opened(job) if is_gated(job) else (),
        note=Note(reason=Happened.SIZED, message=sentence(message)),
        outcome=RELEASED if is_gated(job) else "",
    ), ""


_WRITTEN: Final = 2
"""Generation of a job whose spec was changed once: its size was written."""


def _strategy(answer: Answer) -> str:
    return ",".join(f"{axis}={size}" for axis, size in answer.strategy.items())


def launch_verified(snapshot: JobSnapshot, answer: Answer) -> list[NewCondition]:
    """The condition LaunchVerified, in mode Apply."""
    if not isinstance(snapshot.job, LiveTrainingJob) or snapshot.job.spec.mode != "Apply":
        return []
    job, aspect = subject_of(snapshot), Aspect.LAUNCH_VERIFIED
    if job is None or not answer.arguments:
        return [NewCondition(aspect, "Unknown", Reason.NOT_LAUNCHED)]
    is_advised = runs_advised(snapshot, answer)
    state: State = "True" if is_advised else "False"
    if is_advised is not None:
        reason = Reason.RUNS_ADVISED if is_advised else Reason.RUNS_OTHER
        return [NewCondition(aspect, state, reason, launch_sentence(snapshot, answer))]
    try:
        why = unproven(job, answer)
    except InputError as error:
        why = str(error)
    if not why and not is_suspended(job):
        why = "what its pods run is not seen: none runs, or pods may not be read (rbac.pods)"
        return [NewCondition(aspect, "True", Reason.VERIFIED, why)]
    state = "False" if why else "True"
    return [NewCondition(aspect, state, Reason.NOT_VERIFIED if why else Reason.VERIFIED, why)]


def overdue(job: LiveObject, now: float, settings: LoopSettings) -> Release | None:
    """The release of a job whose longest wait is over; None for others.

    `now` in seconds of the epoch [s]
    """
    if not is_gated(job) or job.is_going or now < deadline(job, settings):
        return None
    nothing = JobSnapshot(job=job, question=Question(job={}, profiles=()), now=now)
    return _gated(nothing, job, False, None, settings)


def subject_of(snapshot: JobSnapshot) -> LiveObject | None:
    """The job that starts pods: this one, or the one that a TrainingJob's targetRef names."""
    job = snapshot.target if isinstance(snapshot.job, LiveTrainingJob) else snapshot.job
    return None if job is None or job.is_going or snapshot.job.is_going else job


def _wait(
    snapshot: JobSnapshot,
    job: LiveObject,
    wants: bool,
    answer: Answer | None,
    settings: LoopSettings,
) -> float:
    """How long a job still waits at a gate of ours; 0 or less = it is let go. [s]"""
    time_left = deadline(job, settings) - snapshot.now
    holds = {Handling.PAUSED, Handling.UNREAD, Handling.OWNED}
    if handling_of(snapshot) in holds or is_paused(job):
        return time_left
    if wants and answer is not None and answer.strategy:
        return 0.0
    created = job.created  # a policy or a profile may come a moment after the job
    return 0.0 if created is None else min(time_left, created + settings.settle - snapshot.now)


def _gated(
    snapshot: JobSnapshot,
    job: LiveObject,
    wants: bool,
    answer: Answer | None,
    settings: LoopSettings,
) -> Release:
    """The release of a job at a gate of ours."""
    created, now = job.created, snapshot.now
    waited = None if created is None else max(0.0, now - created)
    free = opened(job)
    if not is_suspended(job):
        why = "it waits for nobody: it runs already, and our gate is taken away"
        note = Note(reason=Happened.APPLY_SKIPPED, message=why)
        return Release(key=job.key, uid=job.uid, free=free, note=note)
    is_late = now >= deadline(job, settings)
    launch, why = _launch(snapshot, job, wants, answer)
    if is_late:
        launch, why = (), f"the longest wait, {settings.gate_longest:g} s, is over"
    note = _applied(launch, answer)
    if why:
        message = sentence(f"the job starts without advised arguments: {why}")
        note = Note(reason=Happened.GATE_RELEASED, message=message, warning=True)
    return Release(
        key=job.key,
        uid=job.uid,
        launch=launch,
        free=free,
        note=note,
        outcome=EXPIRED if is_late else UNADVISED if why else RELEASED,
        waited=waited,
    )


def _ungated(snapshot: JobSnapshot, job: LiveObject, answer: Answer) -> tuple[Release | None, str]:
    """The release of a suspended job without a gate of ours, or why there is none."""
    if not is_suspended(job):
        return None, "it runs already, or cannot wait: the advice is for its next launch"
    if not consents(job):
        why = (
            "it is suspended, but says neither mode Apply nor that it waits for us: "
            "it is left alone"
        )
        return None, why
    if job.generation != 1:
        return None, ""  # we have written, or it may have run
    launch, why = _launch(snapshot, job, True, answer)
    if not launch:
        return None, why
    return Release(key=job.key, uid=job.uid, launch=launch, note=_applied(launch, answer)), ""


def _launch(
    snapshot: JobSnapshot, job: LiveObject, wants: bool, answer: Answer | None
) -> tuple[tuple[Operation, ...], str]:
    """The patch that writes the arguments, or why there is none; neither where they stand."""
    if not wants or answer is None:
        return (), "nobody asks for mode Apply here"
    if not answer.strategy or keeps(answer.says.odds.beats) or _runs_already(answer):
        return (), answer.explanation
    try:
        patch = written(job, answer, snapshot.beside, restarts=raises_restarts(snapshot))
        why = unproven(job, answer) if patch else ""
    except InputError as error:
        return (), str(error)
    return ((), why) if why else (patch, "")


def _runs_already(answer: Answer) -> bool:
    """Whether what is advised is today's layout: then the job goes with its own arguments."""
    today = answer.says.current
    return today is not None and bool(today.strategy) and today.strategy == answer.says.strategy


def _applied(launch: tuple[Operation, ...], answer: Answer | None) -> Note:
    """The Event that arguments were written. Whether the trainer takes them is not known here."""
    strategy = "" if answer is None else _strategy(answer)
    changes = (operation for operation in launch if operation["op"] != "test")
    places = list(dict.fromkeys(place_of(change["path"]) for change in changes))
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    done = f"were written to {places[0]}{more}" if places else "stand in it already"
    return Note(
        reason=Happened.APPLIED_BEFORE_LAUNCH,
        message=sentence(f"the advised arguments {done}: {strategy}"),
    )
