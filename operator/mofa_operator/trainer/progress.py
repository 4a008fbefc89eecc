"""What a log's step lines do not say, and tokens per second of the whole job from all that is known.

What a step's own line says wins over what was given (batches ramp up), and that over what the trainer printed at its start.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mofa_operator.trainer.formats import Line


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known of a job; None where it is not."""

    sequence: int | None = None
    """Tokens in a sequence. [1]"""
    batch: int | None = None
    """Sequences in a step. [1]"""
    gpus: int | None = None
    """GPUs of the job. [1]"""

    def or_else(self, other: Facts) -> Facts:
        """These facts, and what only the other ones know."""
        return Facts(
            sequence=self.sequence if self.sequence is not None else other.sequence,
            batch=self.batch if self.batch is not None else other.batch,
            gpus=self.gpus if self.gpus is not None else other.gpus,
        )

    @property
    def tokens_per_step(self) -> int | None:
        """Tokens in a step of the whole job. [1]"""
        return None if self.sequence is None or self.batch is None else self.sequence * self.batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """How fast training is; None where that cannot be known."""

    tokens_per_second: float | None
    """Tokens of the whole job. [1/s]"""
    step_seconds: float | None
    """Time of a step. [s]"""
    basis: str
    """Whose number it is and what was done to it; or, without tokens per second, what is missing."""


def said(line: Line) -> Facts:
    """What a line says of the job."""
    return Facts(sequence=line.sequence, batch=line.batch, gpus=line.gpus)


def speed(line: Line, facts: Facts) -> Speed:
    """Tokens per second and step time from a line with a speed; `facts` is what else is known.

    >>> speed(Line(family="torchtitan", step=10, tokens_per_gpu=6512.0), Facts(gpus=8)).tokens_per_second
    52096.0
    >>> speed(Line(family="megatron", step=10, seconds=0.5, batch=8), Facts(sequence=4096)).tokens_per_second
    65536.0
    """
    known = said(line).or_else(facts)
    step = known.tokens_per_step
    if line.tokens is not None:
        tokens, basis = line.tokens, "the trainer's own number for the whole job"
    elif line.seconds is not None and step is not None:
        tokens, basis = step / line.seconds, f"{step} tokens of a step over its time"
    elif line.tokens_per_gpu is not None and known.gpus is not None:
        tokens, basis = (
            line.tokens_per_gpu * known.gpus,
            f"the trainer's number for one GPU times {known.gpus}",
        )
    elif line.samples is not None and known.sequence is not None:
        tokens, basis = (
            line.samples * known.sequence,
            f"sequences per second of the job times {known.sequence}",
        )
    else:
        return Speed(tokens_per_second=None, step_seconds=line.seconds, basis=_missing(line, known))
    seconds = line.seconds
    if seconds is None and line.samples is not None and known.batch is not None:
        seconds = known.batch / line.samples
    if seconds is None and step is not None:
        seconds = step / tokens
    return Speed(tokens_per_second=tokens, step_seconds=seconds, basis=basis)


def _missing(line: Line, known: Facts) -> str:
    """What has to be given, by the names of the options."""
    if line.tokens_per_gpu is not None:
        needed = {"--gpus": known.gpus}
    elif line.samples is not None:
        needed = {"--sequence": known.sequence}
    else:
        needed = {"--sequence": known.sequence, "--global-batch": known.batch}
    return " and ".join(option for option, value in needed.items() if value is None)


# What a log has told so far: the last step, its speed, checkpoints, restarts and the steps that these cost.
#
# A restart is a step that goes back. When several ranks write to one log, lines of one step come several times and a slow
# rank's line may come after the next step's: so a line of the step before the last is no restart, unless the trainer said
# that it starts.


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
