"""One look at all jobs that run: what their trainers' series say, step by step, and what kube-state-metrics says of their pods.

Pods are asked for last, and a server that cannot say anything of them only leaves causes and classes open.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mofa_model.errors import SourceUnreachable
from mofa_operator.observe.gangs import Gang, gangs
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.run_records import Telemetry
from mofa_operator.observe.steps import paths
from mofa_operator.observe.throughput import Job, Watched, present, running
from mofa_operator.observe.trainers import RECENT

BACK: Final = 120.0
"""How far every look goes back at least, beyond the time since the last one: samples come late. [s]"""


class TelemetryReader:
    """Looks again and again; each goes back to the one before."""

    def __init__(self, prometheus: Prometheus) -> None:
        """Nothing was looked at yet: the first look goes back a quarter of an hour."""
        self._prometheus = prometheus
        self._last: float | None = None
        self.doubt = ""
        """Why the last look saw no pods; empty where it did."""

    async def __call__(self, jobs: Iterable[Watched], now: float) -> dict[Job, Telemetry]:
        """What there is to see; a job of which nothing is seen has no entry. Raises `SourceUnreachable`."""
        every = list(jobs)
        span = RECENT if self._last is None else min(RECENT, now - self._last + BACK)
        told = await running(self._prometheus, every, now)
        there = await present(self._prometheus, every, now)
        walked = await paths(self._prometheus, every, now, span)
        self._last = now
        manned = await self._pods(every, now)
        return {
            one.job: Telemetry(
                running=told.get(one.job),
                path=walked.get(one.job, ()),
                gang=manned.get((one.job, one.gang)),
                there=there.get(one.job),
            )
            for one in every
            if one.job in told or one.job in walked or one.job in there or (one.job, one.gang) in manned
        }

    async def _pods(self, jobs: list[Watched], now: float) -> dict[tuple[Job, Job], Gang]:
        """Pods by job and whose pods they are."""
        pools: dict[tuple[tuple[str, str], ...], list[Watched]] = {}
        for one in jobs:
            pools.setdefault(tuple(sorted(one.pool.items())), []).append(one)
        found: dict[tuple[Job, Job], Gang] = {}
        self.doubt = ""
        for labels, many in pools.items():
            try:
                seen = await gangs(self._prometheus, dict(labels), {one.gang for one in many}, now)
            except SourceUnreachable as error:
                self.doubt = str(error)
                continue
            found |= {(one.job, one.gang): seen[one.gang] for one in many if one.gang in seen}
        return found
