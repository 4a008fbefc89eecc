"""What the pods of a job run, compared with what was advised.

what they run          condition LaunchVerified     the Event, in mode Apply     compared with
the advised layout     True   RunsAdvised           StartedAsAdvised             the advice
another one            False  RunsOther             StartedOtherwise             that one
not seen               as before the start          none                         what its spec says
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from mofa_model.annotations import MEASURED, RUNS
from mofa_model.errors import InputError
from mofa_model.launch import Reading, program_of, read
from mofa_operator.decide.policy import wants_apply
from mofa_operator.decide.status import sentence, significant
from mofa_operator.decision import Answer, Note
from mofa_operator.objects import LiveTrainingJob, figure
from mofa_operator.snapshot import SHAPE, JobSnapshot
from mofa_operator.words import Happened, Reason

MOVED: Final = 0.05
"""Least share by which a measured step changes for it to be written anew. Ours. [1]"""


def runs_advised(snapshot: JobSnapshot, answer: Answer) -> bool | None:
    """Whether the pods run with the advised layout; None where that is not seen."""
    launch = snapshot.launch
    if launch is None or not answer.arguments or not answer.trainer:
        return None
    if launch.trouble:
        return False
    running = _reading(answer.trainer, launch.words)
    advised = _reading(answer.trainer, answer.arguments)
    if running is None or advised is None:
        return None
    return _layout(running) == _layout(advised)


def launch_sentence(snapshot: JobSnapshot, answer: Answer) -> str:
    """What the pods of a job run, in one sentence; empty where it is not seen."""
    launch, is_advised = snapshot.launch, runs_advised(snapshot, answer)
    if launch is None or is_advised is None:
        return ""
    if is_advised:
        return f"it starts with the advised arguments: {launch.where} runs them"
    if launch.trouble:
        return f"{launch.where}: {launch.trouble}"
    return f"{launch.where} runs {shlex.join(launch.words)}, which is not the advised layout"


def launch_note(snapshot: JobSnapshot, answer: Answer) -> tuple[Note, ...]:
    """The Event of a job in mode Apply whose pods were seen to run."""
    if snapshot.launch_told or not wants_apply(snapshot):
        return ()
    if not (text := launch_sentence(snapshot, answer)):
        return ()
    is_advised = runs_advised(snapshot, answer)
    reason = Happened.STARTED_AS_ADVISED if is_advised else Happened.STARTED_OTHERWISE
    return (Note(reason=reason, message=sentence(text), warning=not is_advised, episode=text),)


def runs_annotation(snapshot: JobSnapshot, answer: Answer) -> str:
    """The value of the annotation `runs`: the launch arguments, where their layout is one that the
    answer does not know of.

    It stays while nothing runs, and goes once the manifest says the same.
    """
    annotation, launch = snapshot.job.annotations.get(RUNS, ""), snapshot.launch
    if launch is None or not launch.words:
        return annotation or _learned(snapshot, answer)
    if launch.stated and not isinstance(snapshot.job, LiveTrainingJob):
        return ""
    today = answer.says.current
    compared = answer.says.strategy if today is None else today.strategy
    if not annotation and compared == answer.says.strategy and runs_advised(snapshot, answer):
        return ""
    return shlex.join(launch.words)


def measured_annotation(snapshot: JobSnapshot, answer: Answer, quiet: float) -> str:
    """The value of the annotation `measured-step-seconds`, for a job that is no TrainingJob.

    It is the step time of today's layout as the answer knows it, once that has run for `quiet`
    seconds; it is written anew where it moved by more than MOVED. The step time of a TrainingJob
    teaches its pool instead. [s]
    """
    annotation, running = snapshot.job.annotations.get(MEASURED, ""), snapshot.running
    if isinstance(snapshot.job, LiveTrainingJob) or runs_another(snapshot, answer):
        return ""
    today, step = answer.says.current, None if running is None else figure(running.step_seconds)
    if running is None or not step or step <= 0.0 or today is None or not today.strategy:
        return annotation
    if running.since is None or snapshot.now - running.since < quiet:
        return annotation
    step_before = figure(annotation)
    if step_before and abs(step / step_before - 1.0) <= MOVED:
        return annotation
    return significant(step, 3)


def _learned(snapshot: JobSnapshot, answer: Answer) -> str:
    """Launch arguments for the shape, batch and sequence of a trainer's series; empty where the
    answer lacks no facts.
    """
    running = snapshot.running
    if running is None or answer.reason != Reason.FACTS_MISSING:
        return ""
    arguments = [(word, running.shape.get(name)) for name, word in SHAPE.items()]
    arguments += [
        ("--seq-length", running.sequence_length),
        ("--global-batch-size", running.global_batch),
    ]
    return " ".join(f"{name} {value}" for name, value in arguments if value is not None)


def runs_another(snapshot: JobSnapshot, answer: Answer) -> bool:
    """Whether a job runs another layout than its answer compares with: then it teaches nothing."""
    if snapshot.launch is None:
        return False
    if snapshot.launch.trouble:
        return True
    return runs_annotation(snapshot, answer) != snapshot.job.annotations.get(RUNS, "")


def _reading(trainer: str, words: Sequence[str]) -> Reading | None:
    try:
        return read([*program_of(trainer), *words])
    except InputError:
        return None


def _layout(reading: Reading) -> tuple[object, ...]:
    layout = {name: value for name, value in reading.layout.items() if name != "dp"}
    return layout, reading.chunk_layers, reading.copies, reading.recompute_every
