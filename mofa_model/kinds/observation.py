"""What one look at a job says of its life, and what conditions, which most kinds have, say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mofa_model.kinds.shape import Many, Moment, Shape, Text
from mofa_model.spec.recovery_classes import RecoveryClass

ATTEMPTS: Final = "JobSet.restarts"
"""The counter of attempts, which a JobSet tells, and labels of its pods as well: one incident is in both."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sign:
    """Something that happened at a known moment."""

    at: float
    """When, in seconds of the epoch. [s]"""
    level: RecoveryClass
    """What had to be restored at least."""
    cause: str = ""
    """failure, eviction or preemption; empty = not said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counter:
    """How often something happened, by an object's own count."""

    value: int
    """The count. [1]"""
    level: RecoveryClass
    """What it restored."""
    exact: bool = True
    """Whether each one is an incident of its own; a count over pods is not, because one incident takes many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What one look at a job, its pods, its nodes or its step series said; what it did not say is None or empty."""

    counters: Mapping[str, Counter] = field(default_factory=dict)
    """Counts, by a name that says object and field."""
    signs: tuple[Sign, ...] = ()
    """What happened."""
    nodes_lost: tuple[float, ...] = ()
    """When nodes of the job stopped being ready. [s]"""
    suspended: float | None = None
    """Since when the job is suspended. [s]"""
    ready: bool | None = None
    """Whether all of it runs."""
    drop: RecoveryClass | None = None
    """The least class that a loss of readiness means, where no counter of the object tells; None = it means nothing."""
    ended: float | None = None
    """When it was done, for better or worse. [s]"""
    step: int | None = None
    """Last finished step. [1]"""
    step_at: float | None = None
    """When that step was finished; None = about now. [s]"""
    step_seconds: float | None = None
    """Time of a step. [s]"""


class _Condition(Shape):
    type: Text = ""
    status: Text = ""
    last_transition_time: Moment = None


class Conditioned(Shape):
    """A status with conditions."""

    conditions: Many[_Condition] = ()

    def since(self, kind: str) -> float | None:
        """Since when a condition is true; None = it is not. [s]"""
        return next(
            (
                one.last_transition_time
                for one in self.conditions
                if one.type == kind and one.status == "True"
            ),
            None,
        )

    def observation(
        self,
        done: str,
        *,
        ready: bool | None,
        drop: RecoveryClass | None = None,
        signs: Sequence[Sign] = (),
        counters: Mapping[str, Counter] | None = None,
    ) -> Observation:
        """What the conditions say, suspended, done well, or failed, which is an interruption too; and what else is known."""
        failed = self.since("Failed")
        return Observation(
            counters=counters or {},
            signs=(
                *signs,
                *(() if failed is None else (Sign(at=failed, level=RecoveryClass.JOB),)),
            ),
            suspended=self.since("Suspended"),
            ready=ready,
            drop=drop,
            ended=self.since(done) if failed is None else failed,
        )
