"""What a profile remembers of its failures: the sum of its ledger by recovery class, as `status.failures` has it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mofa_model.manifest.failure_history import number
from mofa_model.spec.evidence import ByClass, FailureEvidence
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.decide.reading import moved
from mofa_operator.objects import LiveProfile

_COARSE: Final = 10.0
"""Node-days from which on tenths are enough. [node d]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolEvidence:
    """What was seen of a pool in a window, rounded as the status writes it, so that what is read back is what was written."""

    classes: ByClass
    """What was seen."""
    window: int
    """How far back. [s]"""
    coverage: int
    """Share of the window for which there is data. [%]"""

    @property
    def total(self) -> int:
        """Failures of all classes. [1]"""
        return int(sum(one.failures for one in self.classes.values()))

    @property
    def node_days(self) -> float:
        """The largest exposure of any class. [node d]"""
        return max((one.node_days for one in self.classes.values()), default=0.0)

    def differs(self, other: PoolEvidence, least: float) -> bool:
        """Whether other evidence differs in any figure by a share of `least` or more."""
        pairs: list[tuple[float | None, float | None]] = [(self.coverage, other.coverage)]
        for name in RecoveryClass:
            pairs += zip(
                _figures(self.classes.get(name)), _figures(other.classes.get(name)), strict=True
            )
        return any(moved(before, after, least) for before, after in pairs)


def _figures(one: FailureEvidence | None) -> tuple[float | None, ...]:
    return (None,) * 3 if one is None else (one.node_days, one.failures, one.mean_recovery)


def remembered(profile: LiveProfile) -> PoolEvidence | None:
    """What stands in a profile's status; None where nothing was counted yet."""
    known = profile.status.evidence
    if not any(one.node_days for one in known.values()):
        return None
    first = {row.name: row for row in profile.status.rows}[next(iter(known))]
    return PoolEvidence(
        classes=known,
        window=int(number(first.window_seconds)),
        coverage=int(min(100, number(first.coverage_percent))),
    )


def rounded(classes: ByClass, window: float, percent: float) -> PoolEvidence:
    """Evidence as the status would write it; `window` in [s], `percent` of it is covered. [%]"""
    return PoolEvidence(
        classes={name.value: _rounded(classes[name]) for name in RecoveryClass if name in classes},
        window=round(window),
        coverage=min(100, round(percent)),
    )


def _rounded(one: FailureEvidence) -> FailureEvidence:
    mean = one.mean_recovery
    time = 0.0 if mean is None else float(one.recoveries * round(mean))
    return replace(one, node_days=node_days(one.node_days), recovery_seconds=time)


def node_days(value: float) -> float:
    """Node-days as a status writes them: tenths, and more digits where they are few. [node d]

    >>> node_days(3072.04), node_days(0.00416)
    (3072.0, 0.0042)
    """
    return round(value, 1 if value >= _COARSE else 4)
