"""What a log has told so far: the last step, its speed, checkpoints, restarts and the steps that these cost.

A restart is a step that goes back. When several ranks write to one log, lines of one step come several times and a slow
rank's line may come after the next step's: so a line of the step before the last is no restart, unless the trainer said
that it starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mofa_operator.trainer.facts import Facts, Speed, said, speed
from mofa_operator.trainer.formats import Line


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """What a log has told so far; None where it has told nothing."""

    family: str | None = None
    """Which trainer writes it."""
    facts: Facts = field(default_factory=Facts)
    """What the trainer said of the job when it started."""
    step: int | None = None
    """Last finished step. [1]"""
    at: float | None = None
    """When that line was written, in seconds of the epoch. [s]"""
    tokens_per_second: float | None = None
    """Tokens of the whole job, as of the last line. [1/s]"""
    step_seconds: float | None = None
    """Time of a step, as of the last line. [s]"""
    basis: str = ""
    """Where the tokens per second come from."""
    missing: str = ""
    """What has to be given before tokens per second can be known."""
    memory: float | None = None
    """Most device memory that an allocator has reserved since the trainer started, of the ranks that the log shows. [B]"""
    speeds: int = 0
    """Lines with a speed from which tokens per second are known. [1]"""
    unknown: int = 0
    """Lines with a speed from which they are not. [1]"""
    saves: int = 0
    """Checkpoints seen. [1]"""
    saved: int | None = None
    """Step of the last checkpoint. [1]"""
    resaves: bool = False
    """Whether training went back since, so that a checkpoint of the same step is a new one."""
    save_spacing: int | None = None
    """Steps between the last two checkpoints. [1]"""
    restarts: int = 0
    """Times that training went back. [1]"""
    redone: int = 0
    """Steps that were or are to be trained again. [1]"""
    before: int | None = None
    """The step before the last that was told. [1]"""
    starting: bool = False
    """Whether the trainer said that it starts, and has finished no step since."""
    resumed: int | None = None
    """Step from which it then goes on, where it said so. [1]"""
    has_steps: bool = False
    """Whether lines say the step itself, not only steps since the start."""


def seen(progress: Progress, line: Line, given: Facts, at: float) -> Progress:
    """After one more line; `given` is what the user knows of the job, `at` the moment the line was written."""
    now = replace(progress, family=line.family)
    if line.starts:
        now = replace(now, memory=None)
    if line.memory is not None:
        now = replace(now, memory=max(line.memory, now.memory or 0.0))
    if line.starts or line.resumed is not None:
        now = replace(
            now, starting=True, resumed=line.resumed if line.resumed is not None else now.resumed
        )
    if line.has_speed:
        now = _faster(now, speed(line, given.or_else(now.facts)))
    elif (facts := said(line)) != Facts():
        now = replace(now, facts=facts.or_else(now.facts))
    step = line.step
    if step is not None:
        now = replace(now, has_steps=True)
    elif not now.has_steps:
        step = line.since_start
    if step is not None:
        now = _stepped(now, step, at)
    saved = now.step if line.saves else line.saved
    return now if saved is None else _saved(now, saved)


def _faster(now: Progress, told: Speed) -> Progress:
    """With a new speed; one that cannot be known says what is missing."""
    if told.tokens_per_second is None:
        known = told.step_seconds if told.step_seconds is not None else now.step_seconds
        return replace(now, step_seconds=known, missing=told.basis, unknown=now.unknown + 1)
    return replace(
        now,
        tokens_per_second=told.tokens_per_second,
        step_seconds=told.step_seconds,
        basis=told.basis,
        missing="",
        speeds=now.speeds + 1,
    )


def _stepped(now: Progress, step: int, at: float) -> Progress:
    last = now.step
    if last is None:
        return replace(now, step=step, at=at, starting=False, resumed=None)
    if now.starting:
        spacing = 1 if now.before is None else max(1, last - now.before)
        origin = now.resumed if now.resumed is not None else step - spacing
        lost = max(0, last - max(0, origin))
        return _advanced(_again(now, lost) if lost else now, step, at)
    if step > last:
        return _advanced(now, step, at)
    if step in (last, now.before):  # another rank, or a slow one
        return replace(now, at=at)
    return _advanced(_again(now, last - step + 1), step, at)


def _advanced(now: Progress, step: int, at: float) -> Progress:
    before = now.step if now.step is not None and now.step < step else None
    return replace(now, before=before, step=step, at=at, starting=False, resumed=None)


def _again(now: Progress, lost: int) -> Progress:
    """After a restart; checkpoints may now be seen again for steps that had one."""
    return replace(now, restarts=now.restarts + 1, redone=now.redone + lost, resaves=True)


def _saved(now: Progress, step: int) -> Progress:
    if step == now.saved and not now.resaves:  # another rank
        return now
    spacing = step - now.saved if now.saved is not None and step > now.saved else now.save_spacing
    return replace(now, saves=now.saves + 1, saved=step, save_spacing=spacing, resaves=False)
