"""What a log's step lines do not say, and tokens per second of the whole job from all that is known.

What a step's own line says wins over what was given (batches ramp up), and that over what the trainer printed at its start.
"""

from __future__ import annotations

from dataclasses import dataclass

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
