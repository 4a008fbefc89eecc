"""What a log has shown so far: the last step, its speed, checkpoints, restarts and their cost.

A restart is a step that goes back. When several ranks write to one log, lines of one step come
several times and a slow rank's line may come after the next step's: so a line of the step before
the last is no restart, unless the trainer said that it starts.

What a step's own line says wins over what was given (batches ramp up), and that over what the
trainer printed at its start.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from mofa_operator.trainer.formats import Line
from mofa_operator.trainer.job import Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """How fast training is; None = unknown."""

    tokens_per_second: float | None
    """Tokens of the whole job. [1/s]"""
    step_seconds: float | None
    """Time of a step. [s]"""
    basis: str
    """Where the number comes from; without tokens per second, the options that would give it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """What a log has shown so far; None = nothing."""

    family: str | None = None
    """The trainer that writes it."""
    facts: Facts = field(default_factory=Facts)
    """What the trainer said of the job when it started."""
    step: int | None = None
    """Last finished step."""
    at: float | None = None
    """When that line was written, in seconds of the epoch. [s]"""
    tokens_per_second: float | None = None
    """Tokens of the whole job, by the last line. [1/s]"""
    step_seconds: float | None = None
    """Time of a step, by the last line. [s]"""
    basis: str = ""
    """Where the tokens per second come from."""
    missing: str = ""
    """Options without which tokens per second are unknown."""
    memory_bytes: float | None = None
    """Most device memory that an allocator reserved since the start, of logged ranks. [B]"""
    speeds: int = 0
    """Lines with a speed that gave tokens per second. [1]"""
    unknown: int = 0
    """Lines with a speed that did not. [1]"""
    saves: int = 0
    """Checkpoints. [1]"""
    saved: int | None = None
    """Step of the last checkpoint."""
    resaves: bool = False
    """Whether training went back since, so that a checkpoint of the same step is a new one."""
    save_seconds: float | None = None
    """For how long the last save held up training. [s]"""
    held: bool = False
    """Whether a checkpoint came after the last step, so that the next step shows what it cost."""
    save_spacing: int | None = None
    """Steps between the last two checkpoints. [1]"""
    restarts: int = 0
    """Times that training went back. [1]"""
    redone: int = 0
    """Steps that were or are to be trained again. [1]"""
    before: int | None = None
    """The step before the last one."""
    starting: bool = False
    """Whether the trainer said that it starts, and has finished no step since."""
    resumed: int | None = None
    """The step that it then goes on from, where it said so."""
    has_steps: bool = False
    """Whether lines have the step itself, and not only steps since the start."""


def with_line(progress: Progress, line: Line, job_facts: Facts, at: float) -> Progress:
    """The progress after a line written at `at` [s]; `job_facts` is what the user states."""
    now = replace(progress, family=line.family)
    if line.starts:
        now = replace(now, memory_bytes=None)
    if line.memory_bytes is not None:
        now = replace(now, memory_bytes=max(line.memory_bytes, now.memory_bytes or 0.0))
    if line.starts or line.resumed_step is not None:
        resumed = line.resumed_step if line.resumed_step is not None else now.resumed
        now = replace(now, starting=True, resumed=resumed)
    if line.has_speed:
        now = _with_speed(now, speed(line, job_facts.or_else(now.facts)))
    elif (facts := _facts(line)) != Facts():
        now = replace(now, facts=facts.or_else(now.facts))
    step = line.step
    if step is not None:
        now = replace(now, has_steps=True)
    elif not now.has_steps:
        step = line.since_start
    if step is not None:
        now = _with_step(now, step, at)
    saved = now.step if line.saves else line.checkpoint_step
    return now if saved is None else _with_checkpoint(now, saved)


def speed(line: Line, facts: Facts) -> Speed:
    """The speed of a line that has one; `facts` is what else is known.

    >>> line = Line(family="torchtitan", step=10, tokens_per_gpu=6512.0)
    >>> speed(line, Facts(gpus=8)).tokens_per_second
    52096.0
    >>> line = Line(family="megatron", step=10, seconds=0.5, batch=8)
    >>> speed(line, Facts(sequence=4096)).tokens_per_second
    65536.0
    """
    known = _facts(line).or_else(facts)
    step = known.tokens_per_step
    if line.tokens is not None:
        tokens, basis = line.tokens, "the trainer's own number for the whole job"
    elif line.seconds is not None and step is not None:
        tokens, basis = step / line.seconds, f"{step} tokens of a step over its time"
    elif line.tokens_per_gpu is not None and known.gpus is not None:
        tokens = line.tokens_per_gpu * known.gpus
        basis = f"the trainer's number for one GPU times {known.gpus}"
    elif line.samples_per_second is not None and known.sequence is not None:
        tokens = line.samples_per_second * known.sequence
        basis = f"sequences per second of the job times {known.sequence}"
    else:
        return Speed(tokens_per_second=None, step_seconds=line.seconds, basis=_missing(line, known))
    seconds = line.seconds
    if seconds is None and line.samples_per_second is not None and known.batch is not None:
        seconds = known.batch / line.samples_per_second
    if seconds is None and step is not None:
        seconds = step / tokens
    return Speed(tokens_per_second=tokens, step_seconds=seconds, basis=basis)


def _facts(line: Line) -> Facts:
    return Facts(**{one.name: getattr(line, one.name) for one in fields(Facts)})


def _missing(line: Line, known: Facts) -> str:
    """Options that have to be given."""
    if line.tokens_per_gpu is not None:
        wanted = {"--gpus": known.gpus}
    elif line.samples_per_second is not None:
        wanted = {"--sequence": known.sequence}
    else:
        wanted = {"--sequence": known.sequence, "--global-batch": known.batch}
    return " and ".join(option for option, value in wanted.items() if value is None)


def _with_speed(now: Progress, shown: Speed) -> Progress:
    """The progress with a speed that was seen now."""
    if shown.tokens_per_second is None:
        seconds = shown.step_seconds if shown.step_seconds is not None else now.step_seconds
        return replace(now, step_seconds=seconds, missing=shown.basis, unknown=now.unknown + 1)
    return replace(
        now,
        tokens_per_second=shown.tokens_per_second,
        step_seconds=shown.step_seconds,
        basis=shown.basis,
        missing="",
        speeds=now.speeds + 1,
    )


def _with_step(now: Progress, step: int, at: float) -> Progress:
    """The progress with a step that was finished at a moment."""
    last, lost = now.step, 0
    if last is not None and now.starting:
        spacing = 1 if now.before is None else max(1, last - now.before)
        origin = now.resumed if now.resumed is not None else step - spacing
        lost = max(0, last - max(0, origin))
    elif last is not None and step <= last:
        if step in (last, now.before):  # another rank, or a slow one
            return replace(now, at=at)
        lost = last - step + 1
    if lost:  # checkpoints may now come again for steps that had one
        now = replace(now, restarts=now.restarts + 1, redone=now.redone + lost, resaves=True)
    before = last if last is not None and last < step else None
    if last is None:
        before = now.before
    if now.held and not lost:
        now = replace(now, save_seconds=_held_up(now, step, at) or now.save_seconds)
    return replace(now, before=before, step=step, at=at, starting=False, resumed=None, held=False)


def _held_up(now: Progress, step: int, at: float) -> float | None:
    """What steps took longer than usual over a save; None = unknown. [s]"""
    if now.step is None or now.at is None or now.step_seconds is None or now.starting:
        return None
    return max(0.0, at - now.at - now.step_seconds * (step - now.step))


def _with_checkpoint(now: Progress, step: int) -> Progress:
    if step == now.saved and not now.resaves:  # another rank
        return now
    spacing = step - now.saved if now.saved is not None and step > now.saved else now.save_spacing
    return replace(
        now, saves=now.saves + 1, saved=step, save_spacing=spacing, resaves=False, held=True
    )
