"""Evidence of failures: their number, the exposure in which they were counted, and how long
recoveries took. The same type serves all the way:

    a witness counts ─▶ the ledger's days ─▶ their sum in `status.failures` ─▶ posterior and advice

Evidence adds up: that of two times, or of two pools, is their sum, and `FailureEvidence()` says
that nobody looked. So it holds no mean, only a count and a sum. Sums of whole numbers and of binary
fractions are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from mofa_model.records import dataclass


@dataclass(frozen=True, kw_only=True)
class FailureEvidence:
    """Counts of one recovery class."""

    node_days: float = 0.0
    """Exposure: node-days in which a failure would have been seen. [node d]"""
    failures: float = 0
    """Failures; not a whole number where old ones count less. [1]"""
    others: float = 0
    """Interruptions that were no faults: preemptions, reclaimed machines, drains. They count in the
    rates for ETTR and for the interval, but not in the check of the assumption. [1]"""
    recoveries: int = 0
    """Recoveries whose time was seen, from any interruption. [1]"""
    recovery_seconds: float = 0.0
    """Sum of the times of these recoveries. [s]"""

    def __add__(self, other: FailureEvidence) -> FailureEvidence:
        """The sum of two pieces of evidence."""
        return FailureEvidence(
            node_days=self.node_days + other.node_days,
            failures=self.failures + other.failures,
            others=self.others + other.others,
            recoveries=self.recoveries + other.recoveries,
            recovery_seconds=self.recovery_seconds + other.recovery_seconds,
        )

    def __sub__(self, other: FailureEvidence) -> FailureEvidence:
        """The evidence without an earlier part of it."""
        return FailureEvidence(
            node_days=self.node_days - other.node_days,
            failures=self.failures - other.failures,
            others=self.others - other.others,
            recoveries=self.recoveries - other.recoveries,
            recovery_seconds=self.recovery_seconds - other.recovery_seconds,
        )

    @property
    def interruptions(self) -> float:
        """Failures and other interruptions together. [1]"""
        return self.failures + self.others

    @property
    def mean_recovery(self) -> float | None:
        """Mean recovery time; None where none was seen. [s]

        >>> once = FailureEvidence(recoveries=1, recovery_seconds=60.0)
        >>> (once + FailureEvidence(recoveries=2, recovery_seconds=30.0)).mean_recovery
        30.0
        """
        return self.recovery_seconds / self.recoveries if self.recoveries else None


ByClass: TypeAlias = Mapping[str, FailureEvidence]
"""Evidence by recovery class. A class whose failures cannot be seen has no entry, because unknown
is not zero."""


@dataclass(frozen=True, kw_only=True)
class DatedEvidence:
    """Evidence of one or more days in a row."""

    date: str
    """Its first day in UTC, as 2026-11-21."""
    days: float
    """Number of days. [d]"""
    classes: ByClass
    """What was counted in them."""


def together(first_evidence: ByClass, second_evidence: ByClass) -> dict[str, FailureEvidence]:
    """The sum of two sets of evidence, class by class."""
    names = dict.fromkeys((*first_evidence, *second_evidence))
    nothing = FailureEvidence()
    return {
        name: first_evidence.get(name, nothing) + second_evidence.get(name, nothing)
        for name in names
    }
