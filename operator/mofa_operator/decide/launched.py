"""What the pods of a job really run, against what was advised.

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
"""Part by which a measured step must have moved before it is written anew. Ours. [1]"""


def runs_advised(snapshot: JobSnapshot, answer: Answer) -> bool | None:
    """Whether the running pods are told the advised layout; None where that is not seen."""
    seen = snapshot.launch
    if seen is None or not answer.arguments or not answer.trainer:
        return None
    if seen.trouble:
        return False
    running = _reading(answer.trainer, seen.words)
    advised = _reading(answer.trainer, answer.arguments)
    if running is None or advised is None:
        return None
    return _layout(running) == _layout(advised)


def launch_sentence(snapshot: JobSnapshot, answer: Answer) -> str:
    """What the pods of a job run, in one sentence; empty where it is not seen."""
    seen, same = snapshot.launch, runs_advised(snapshot, answer)
    if seen is None or same is None:
        return ""
    if same:
        return f"it starts with the advised arguments: {seen.where} runs them"
    if seen.trouble:
        return f"{seen.where}: {seen.trouble}"
    return f"{seen.where} runs {shlex.join(seen.words)}, which is not the advised layout"


def launch_note(snapshot: JobSnapshot, answer: Answer) -> tuple[Note, ...]:
    """The Event of a job in mode Apply whose pods were seen to run."""
    if (
        snapshot.launch_told
        or not wants_apply(snapshot)
        or not (text := launch_sentence(snapshot, answer))
    ):
        return ()
    same = runs_advised(snapshot, answer)
    reason = Happened.STARTED_AS_ADVISED if same else Happened.STARTED_OTHERWISE
    return (Note(reason=reason, message=sentence(text), warning=not same, episode=text),)


def runs_annotation(snapshot: JobSnapshot, answer: Answer) -> str:
    """What stands in the annotation `runs`: words of another layout than the answer knows of.

    It stays as it is while nothing runs, and goes once the manifest says the same.
    """
    stands, seen = snapshot.job.annotations.get(RUNS, ""), snapshot.launch
    if seen is None or not seen.words:
        return stands or _learned(snapshot, answer)
    if seen.stated and not isinstance(snapshot.job, LiveTrainingJob):
        return ""
    today = answer.says.current
    compared = answer.says.strategy if today is None else today.strategy
    if not stands and compared == answer.says.strategy and runs_advised(snapshot, answer):
        return ""
    return shlex.join(seen.words)


def measured_annotation(snapshot: JobSnapshot, answer: Answer, quiet: float) -> str:
    """What stands in the annotation `measured-step-seconds` of a job of another kind than ours.

    It is the step of the layout that its answer knows as today's, once that ran for `quiet`
    seconds; it changes where it moved by more than MOVED. What our own jobs take teaches their
    pool. [s]
    """
    stands, running = snapshot.job.annotations.get(MEASURED, ""), snapshot.running
    if isinstance(snapshot.job, LiveTrainingJob) or runs_another(snapshot, answer):
        return ""
    today, step = answer.says.current, None if running is None else figure(running.step_seconds)
    if running is None or not step or step <= 0.0 or today is None or not today.strategy:
        return stands
    if running.since is None or snapshot.now - running.since < quiet:
        return stands
    step_before = figure(stands)
    if step_before and abs(step / step_before - 1.0) <= MOVED:
        return stands
    return significant(step, 3)


def _learned(snapshot: JobSnapshot, answer: Answer) -> str:
    """What a trainer's series say of shape, batch and sequence where an answer lacks them."""
    running = snapshot.running
    if running is None or answer.reason != Reason.FACTS_MISSING:
        return ""
    facts = (
        ("--seq-length", running.sequence_length),
        ("--global-batch-size", running.global_batch),
    )
    sizes = ((word, running.shape.get(name)) for name, word in SHAPE.items())
    arguments = (*sizes, *facts)
    return " ".join(f"{name} {value}" for name, value in arguments if value is not None)


def runs_another(snapshot: JobSnapshot, answer: Answer) -> bool:
    """Whether a job runs another layout than its answer compares with: then it teaches nothing."""
    seen = snapshot.launch
    if seen is None:
        return False
    if seen.trouble:
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
