"""What a log has shown so far: the last step, its speed, checkpoints, restarts and their cost.

A step that goes back is a restart. When several ranks write to one log, lines of one step come
several times, and a slow rank's line may come after one of the next step. So a line of the step
before the last is no restart, unless the trainer said that it starts.

The facts in a step's own line win over those that the user gave, because batches ramp up; and those
win over what the trainer printed at its start.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from mofa_operator.trainer.facts import Facts
from mofa_operator.trainer.formats import Line


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Speed of training; None = unknown."""

    tokens_per_second: float | None
    """Tokens of the whole job. [1/s]"""
    step_seconds: float | None
    """Time of a step. [s]"""
    basis: str
    """Where the number comes from; without tokens per second, the options that would give it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """What a log has shown so far; None = not shown."""

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
    """Whether training went back since, so that a checkpoint of the same step counts anew."""
    save_seconds: float | None = None
    """For how long the last save held up training. [s]"""
    held: bool = False
    """Whether a checkpoint came after the last step, so that the next step shows its cost."""
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
    """Whether lines say the step itself, and not only steps since the start."""

    def with_speed(self, line_speed: Speed) -> Progress:
        """This progress with the speed of a line."""
        if line_speed.tokens_per_second is None:
            seconds = (
                line_speed.step_seconds
                if line_speed.step_seconds is not None
                else self.step_seconds
            )
            return replace(
                self, step_seconds=seconds, missing=line_speed.basis, unknown=self.unknown + 1
            )
        return replace(
            self,
            tokens_per_second=line_speed.tokens_per_second,
            step_seconds=line_speed.step_seconds,
            basis=line_speed.basis,
            missing="",
            speeds=self.speeds + 1,
        )

    def with_step(self, step: int, at: float) -> Progress:
        """This progress with a step that was finished at a moment. [s]"""
        last, before, lost = self.step, self.before, 0
        if last is not None and self.starting:
            spacing = 1 if before is None else max(1, last - before)
            origin = self.resumed if self.resumed is not None else step - spacing
            lost = max(0, last - max(0, origin))
        elif last is not None and step <= last:
            if step in (last, before):  # another rank, or a slow one
                return replace(self, at=at)
            lost = last - step + 1
        if last is not None:
            before = last if last < step else None
        progress = self
        if lost:  # checkpoints may now come again for steps that had one
            progress = replace(
                self, restarts=self.restarts + 1, redone=self.redone + lost, resaves=True
            )
        elif self.held:
            progress = replace(self, save_seconds=self._held_up(step, at) or self.save_seconds)
        return replace(
            progress, before=before, step=step, at=at, starting=False, resumed=None, held=False
        )

    def _held_up(self, step: int, at: float) -> float | None:
        """How much longer than usual the steps over a save took; None = unknown. [s]"""
        if self.step is None or self.at is None or self.step_seconds is None or self.starting:
            return None
        return max(0.0, at - self.at - self.step_seconds * (step - self.step))

    def with_checkpoint(self, step: int) -> Progress:
        """This progress with a checkpoint of a step; one that another rank logs too counts once."""
        if step == self.saved and not self.resaves:
            return self
        spacing = self.save_spacing
        if self.saved is not None and step > self.saved:
            spacing = step - self.saved
        return replace(
            self, saves=self.saves + 1, saved=step, save_spacing=spacing, resaves=False, held=True
        )


def with_line(progress: Progress, line: Line, job_facts: Facts, at: float) -> Progress:
    """The progress after a line written at `at` [s]; `job_facts` is what the user states."""
    progress = replace(progress, family=line.family)
    if line.starts:
        progress = replace(progress, memory_bytes=None)
    if line.memory_bytes is not None:
        most = max(line.memory_bytes, progress.memory_bytes or 0.0)
        progress = replace(progress, memory_bytes=most)
    if line.starts or line.resumed_step is not None:
        resumed = line.resumed_step if line.resumed_step is not None else progress.resumed
        progress = replace(progress, starting=True, resumed=resumed)
    if line.has_speed:
        progress = progress.with_speed(speed(line, job_facts.or_else(progress.facts)))
    elif (facts := _facts(line)) != Facts():
        progress = replace(progress, facts=facts.or_else(progress.facts))
    step = line.step
    if step is not None:
        progress = replace(progress, has_steps=True)
    elif not progress.has_steps:
        step = line.since_start
    if step is not None:
        progress = progress.with_step(step, at)
    saved = progress.step if line.saves else line.checkpoint_step
    return progress if saved is None else progress.with_checkpoint(saved)


def speed(line: Line, facts: Facts) -> Speed:
    """The speed that a line says; `facts` are of the job, apart from those in the line.

    >>> line = Line(family="torchtitan", step=10, tokens_per_gpu=6512.0)
    >>> speed(line, Facts(gpus=8)).tokens_per_second
    52096.0
    >>> line = Line(family="megatron", step=10, seconds=0.5, batch=8)
    >>> speed(line, Facts(sequence=4096)).tokens_per_second
    65536.0
    """
    facts = _facts(line).or_else(facts)
    step_tokens = facts.tokens_per_step
    if line.tokens is not None:
        tokens, basis = line.tokens, "the trainer's own number for the whole job"
    elif line.seconds is not None and step_tokens is not None:
        tokens, basis = step_tokens / line.seconds, f"{step_tokens} tokens of a step over its time"
    elif line.tokens_per_gpu is not None and facts.gpus is not None:
        tokens = line.tokens_per_gpu * facts.gpus
        basis = f"the trainer's number for one GPU times {facts.gpus}"
    elif line.samples_per_second is not None and facts.sequence is not None:
        tokens = line.samples_per_second * facts.sequence
        basis = f"sequences per second of the job times {facts.sequence}"
    else:
        return Speed(tokens_per_second=None, step_seconds=line.seconds, basis=_missing(line, facts))
    seconds = line.seconds
    if seconds is None and line.samples_per_second is not None and facts.batch is not None:
        seconds = facts.batch / line.samples_per_second
    if seconds is None and step_tokens is not None:
        seconds = step_tokens / tokens
    return Speed(tokens_per_second=tokens, step_seconds=seconds, basis=basis)


def _facts(line: Line) -> Facts:
    return Facts(**{fact.name: getattr(line, fact.name) for fact in fields(Facts)})


def _missing(line: Line, facts: Facts) -> str:
    """The options that the user has to give, so that the speed is known."""
    if line.tokens_per_gpu is not None:
        wanted = {"--gpus": facts.gpus}
    elif line.samples_per_second is not None:
        wanted = {"--sequence": facts.sequence}
    else:
        wanted = {"--sequence": facts.sequence, "--global-batch": facts.batch}
    return " and ".join(option for option, value in wanted.items() if value is None)
