"""One look at all jobs that run: what their trainers' series say, step by step, and what kube-state-metrics says of their pods.

Jobs that share queries fail together, and nobody else with them. Pods are asked for last, and a server that cannot say
anything of them only leaves causes and classes open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from mofa_model.errors import MofaError, SourceUnreachable
from mofa_operator.observe.asking import together
from mofa_operator.observe.gangs import Gang, gangs
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.run_records import Telemetry
from mofa_operator.observe.steps import paths
from mofa_operator.observe.throughput import Job, Watched, present, running, sorted_out
from mofa_operator.observe.trainers import RECENT

BACK: Final = 120.0
"""How far every look goes back at least, beyond the time since the last one: samples come late. [s]"""


class TelemetryReader:
    """Looks again and again; each goes back to the one before."""

    def __init__(self, prometheus: Prometheus) -> None:
        """Nothing was looked at yet: the first look goes back a quarter of an hour."""
        self._prometheus = prometheus
        self._last: float | None = None

    async def __call__(self, jobs: Iterable[Watched], now: float) -> dict[Job, Telemetry]:
        """What there is to see; a job of which nothing is seen has no entry. Raises `SourceUnreachable`."""
        every = list(jobs)
        span = RECENT if self._last is None else min(RECENT, now - self._last + BACK)
        groups, refused = sorted_out(every)
        looks = await together(*(self._look(group, now, span) for group in groups))
        failures = [failure for _, failure in looks if failure is not None]
        away = next((one for one in failures if isinstance(one, SourceUnreachable)), None)
        if away is not None and len(failures) == len(groups):
            raise away
        self._last = now
        found = {job: Telemetry(refused=why) for job, why in refused.items()}
        found |= {job: one for look, _ in looks for job, one in look.items()}
        for job, gang in (await self._pods(every, now, span)).items():
            found[job] = replace(found.get(job, Telemetry()), gang=gang)
        return found

    async def _look(
        self, group: list[Watched], now: float, span: float
    ) -> tuple[dict[Job, Telemetry], MofaError | None]:
        """What the series of jobs say that share their queries; and what failed, if anything did."""
        try:
            told = await running(self._prometheus, group, now)
            there = await present(self._prometheus, group, now)
            walked = await paths(self._prometheus, group, now, span)
        except MofaError as error:
            return {one.job: Telemetry(refused=str(error)) for one in group}, error
        seen = told.keys() | there.keys() | walked.keys()
        return {
            job: Telemetry(running=told.get(job), path=walked.get(job, ()), there=there.get(job))
            for job in seen
        }, None

    async def _pods(self, jobs: list[Watched], now: float, span: float) -> dict[Job, Gang]:
        """Pods by job; where too much comes of several namespaces, each is asked for alone."""
        pools: dict[tuple[object, ...], list[Watched]] = {}
        for one in jobs:
            pools.setdefault((one.exporters, *sorted(one.pool.items())), []).append(one)
        found: dict[Job, Gang] = {}
        asked = list(pools.values())
        while asked:
            many = asked.pop()
            pool, wanted = many[0], {one.gang: one.born for one in many}
            try:
                seen = await gangs(
                    self._prometheus, pool.pool, wanted, now, lately=span, exporters=pool.exporters
                )
            except SourceUnreachable:
                if len(places := {one.namespace for one in many}) > 1:
                    asked += [[one for one in many if one.namespace == place] for place in places]
                continue
            found |= {one.job: seen[one.gang] for one in many if one.gang in seen}
        return found
