"""What a profile remembers of its failures: counts and exposure by recovery class, as `status.failures` has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mofa_operator.decide.reading import items, moved, part
from mofa_operator.snapshot import CLASSES, History, number

_COARSE: Final = 10.0
"""Node-days from which on tenths are enough. [node d]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Counts and exposure, rounded as the status writes them, so that what is read back is what was written."""

    failures: Mapping[str, int]
    """Failures by recovery class. [1]"""
    recovery: Mapping[str, int]
    """Mean recovery time by class, where one was seen. [s]"""
    exposure: Mapping[str, float]
    """Exposure by class. [node d]"""
    window: int
    """How far back. [s]"""
    coverage: int
    """Share of the window for which there is data. [%]"""

    @property
    def total(self) -> int:
        """Failures of all classes. [1]"""
        return sum(self.failures.values())

    @property
    def node_days(self) -> float:
        """The largest exposure of any class. [node d]"""
        return max(self.exposure.values(), default=0.0)

    def differs(self, other: Memory, least: float) -> bool:
        """Whether another memory differs in any figure by a share of `least` or more."""
        pairs: list[tuple[float | None, float | None]] = [
            (self.coverage, other.coverage),
            *((self.exposure.get(name), other.exposure.get(name)) for name in CLASSES),
            *((self.failures.get(name), other.failures.get(name)) for name in CLASSES),
            *((self.recovery.get(name), other.recovery.get(name)) for name in CLASSES),
        ]
        return any(moved(before, after, least) for before, after in pairs)


def remembered(status: Any) -> Memory | None:
    """What stands in a status; None where nothing was counted yet."""
    rows = {str(row.get("name")): row for row in items(part(status).get("failures"))}
    known = {name: rows[name] for name in CLASSES if name in rows}
    exposure: dict[str, float] = {name: number(row.get("exposureNodeDays")) for name, row in known.items()}
    if not known or max(exposure.values()) <= 0:
        return None
    first = next(iter(known.values()))
    return Memory(
        failures={name: int(number(row.get("failures"))) for name, row in known.items()},
        recovery={
            name: int(number(row["recoverySeconds"]))
            for name, row in known.items()
            if row.get("recoverySeconds") is not None
        },
        exposure=exposure,
        window=int(number(first.get("windowSeconds"))),
        coverage=int(min(100, number(first.get("coveragePercent", 100)))),
    )


def rounded(history: History) -> Memory:
    """A whole reading as the status would write it."""
    counted = {name: history.classes[name] for name in CLASSES if name in history.classes}
    return Memory(
        failures={name: one.failures for name, one in counted.items()},
        recovery={name: round(one.recovery) for name, one in counted.items() if one.recovery is not None},
        exposure=dict.fromkeys(counted, node_days(history.node_days)),
        window=round(history.window),
        coverage=round(100 * history.coverage),
    )


def node_days(value: float) -> float:
    """Node-days as a status writes them: tenths, and more digits where they are few. [node d]

    >>> node_days(3072.04), node_days(0.00416)
    (3072.0, 0.0042)
    """
    return round(value, 1 if value >= _COARSE else 4)
