"""A job that pretends to train: which step it is at, as a function of the clock and of what was
done to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from mofa_model.errors import BadValue

Kind = Literal["stall", "restart"]
KINDS: Final[tuple[Kind, ...]] = ("stall", "restart")
"""stall: steps stand still and go on; restart: they go on from the last checkpoint."""


@dataclass(kw_only=True, slots=True)
class Trainer:
    """One job. Moments are seconds on any one clock, and never go back."""

    namespace: str
    """Namespace of the job."""
    name: str
    """Name of the job."""
    tokens_per_second: float
    """Tokens of the whole job, at full rate. [1/s]"""
    step_seconds: float
    """Time of a step at full rate. [s]"""
    since: float
    """When training began, or began again. [s]"""
    made: float = 0.0
    """When it was made, which no interruption changes. [s]"""
    fraction: float = 1.0
    """Share of the full rate that is reached. [1]"""
    checkpoint_steps: int = 50
    """Steps between checkpoints. [1]"""
    restarts: int = 0
    """Times that it fell back to a checkpoint. [1]"""
    _base: int = 0
    _reached: int = field(default=0)

    def step(self, now: float) -> int:
        """Last finished step."""
        if now < self.since:
            return self._reached
        return self._base + int((now - self.since) / self.real_step_seconds)

    def running(self, now: float) -> bool:
        """Whether steps advance at this moment."""
        return now >= self.since

    @property
    def real_step_seconds(self) -> float:
        """Time of a step at the rate that is reached. [s]"""
        return self.step_seconds / self.fraction

    @property
    def real_tokens_per_second(self) -> float:
        """Tokens of the whole job at the rate that is reached. [1/s]"""
        return self.tokens_per_second * self.fraction

    def checkpoint(self, now: float) -> int:
        """Step of the last checkpoint."""
        step = self.step(now)
        return step - step % self.checkpoint_steps

    def interrupt(self, now: float, kind: Kind, seconds: float) -> int:
        """Stop training for some seconds; returns the number of steps that are trained again.

        >>> job = Trainer(
        ...     namespace="a", name="b", tokens_per_second=1e6, step_seconds=2.0, since=0.0
        ... )
        >>> job.interrupt(now=260.0, kind="restart", seconds=40.0)
        30
        >>> job.step(299.0), job.step(300.0), job.step(360.0)
        (130, 100, 130)
        """
        if kind not in KINDS or seconds < 0:
            raise BadValue(
                "interruption",
                f"{kind} for {seconds} s",
                f"one of {', '.join(KINDS)}, for 0 s or longer",
            )
        self._reached = self.step(now)
        self._base = self.checkpoint(now) if kind == "restart" else self._reached
        self.restarts += kind == "restart"
        self.since = max(now, self.since) + seconds
        return self._reached - self._base

    def pace(self, now: float, fraction: float) -> None:
        """Train at another share of the full rate from now on."""
        if not fraction > 0:
            raise BadValue("fraction", fraction, "more than 0; to stop a job, interrupt it")
        if self.running(now):
            self._base, self.since = self.step(now), now
        self.fraction = fraction
