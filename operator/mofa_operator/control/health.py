"""Answers to probes: a loop that has work and makes no progress is sick, an idle one is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mofa_operator.control.answers import ModelPool
from mofa_operator.control.fence import Fence
from mofa_operator.control.observers import PeriodicQueue
from mofa_operator.control.resync import Resync
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.keys import OURS
from mofa_operator.settings import OperatorSettings

ROUNDS_LATE: Final = 3.0
"""Intervals that reading the history of a profile may take. [1]"""


@dataclass(eq=False, kw_only=True)
class Probes:
    """Answers of the liveness and the readiness probe, and of the page where it is empty."""

    queue: WorkQueue
    history: PeriodicQueue | None
    resync: Resync
    model_pool: ModelPool
    fence: Fence
    settings: OperatorSettings

    def __post_init__(self) -> None:
        self._stall_limit = self.settings.loop.stall
        self._history_limit = max(
            self.settings.loop.stall, ROUNDS_LATE * self.settings.prometheus.interval
        )
        self.standby: Callable[[], str] | None = None
        """Says why this operator waits, and for whom; None = it leads, or there is no election."""

    def live(self) -> tuple[bool, list[str]]:
        """Answer of the liveness probe: whether work advances, and the reasons why not."""
        reasons = list(self._stuck())
        return not reasons, reasons

    def ready(self) -> tuple[bool, list[str]]:
        """Answer of the readiness probe: whether a job would be advised now, and why not.

        A standby is ready when it could take over.
        """
        if self.standby is not None:
            return self.model_pool.is_warm, [self.standby(), *self._cold()]
        reasons = list(self._missing())
        return not reasons, reasons

    def why_empty(self) -> str:
        """Why the page has nothing to show yet; empty where it has something."""
        if self.standby is not None:
            return self.standby()
        return (
            "" if self.resync.is_filled else "this operator has just begun, and reads the cluster"
        )

    def _stuck(self) -> Iterator[str]:
        key, age = self.queue.longest_in_work
        stalled = min(max(age, self.queue.oldest_age), self.queue.idle_for)
        if stalled > self._stall_limit:
            yield f"nothing was finished for {stalled:.0f} s, and there is work"
        elif age > self._stall_limit and not self.model_pool.is_busy:
            yield f"{key} has been in work for {age:.0f} s"
        if self.history is not None and self.history.behind > self._history_limit:
            yield f"a look at the history of a profile takes {self.history.behind:.0f} s"

    def _missing(self) -> Iterator[str]:
        if self.fence.failure is not None:
            yield f"the fence does not hold: {self.fence.failure}"
        if not self.resync.is_filled:
            yield "the first lists are not complete"
        for kind in OURS:
            if kind in self.resync.absent:
                yield f"the CustomResourceDefinition {kind.plural}.{kind.group} is not installed"
            if kind in self.resync.refused:
                yield f"{kind.plural}.{kind.group} may not be listed by this account"
        yield from self._cold()

    def _cold(self) -> Iterator[str]:
        if not self.model_pool.is_warm:
            yield "the process that computes advice is not ready"
