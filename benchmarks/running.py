"""What it costs to look at running jobs: a thousand of them against a hundred, and the server's
part of it.

Two real Prometheus servers hold the last hours of that many jobs, trainers and pods; the operator's
look (`observe.progress`) is timed on each. Ratios are compared, never times; of several looks the
best counts, so that neighbours change little.

    python benchmarks/running.py [JOBS]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "deploy" / "local")]

from mofa_local import prometheus as local  # noqa: E402
from mofa_local.blocks import write_block  # noqa: E402
from mofa_local.processes import Processes  # noqa: E402
from mofa_local.series import Series, sampled  # noqa: E402
from mofa_local.synthetic import Job, draw  # noqa: E402

from mofa_operator.observe.progress.telemetry import (  # noqa: E402
    JobSeries,
    TelemetryReader,
)
from mofa_operator.observe.prometheus.client import Prometheus  # noqa: E402
from mofa_operator.settings import PrometheusSettings  # noqa: E402

JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
FEW = JOBS // 10
TURNS = 5
RANGES = tomllib.loads((ROOT / "benchmarks" / "ranges.toml").read_text(encoding="utf-8"))["running"]


def is_looked_at(series: Series) -> bool:
    """Whether a look asks for a series: of trainers and of pods."""
    return series.metric.startswith(("mofa_train_", "kube_pod_"))


async def look(server: local.Prometheus, jobs: int) -> float:
    """Time of a look that is not the first one. [s]"""
    watched = [JobSeries(namespace="research", name=f"job-{number}") for number in range(jobs)]
    times = []
    async with Prometheus(PrometheusSettings(url=server.url, timeout=3600)) as prometheus:
        looks = TelemetryReader(prometheus)
        for _ in range(1 + TURNS):
            began = time.perf_counter()
            sightings = await looks(watched, time.time())
            times.append(time.perf_counter() - began)
        running = sum(sighting.running is not None for sighting in sightings.values())
        manned = sum(sighting.gang is not None for sighting in sightings.values())
        print(
            f"{jobs:5d} jobs: {running} seen running, {manned} with pods, a look "
            f"{min(times[1:]):.2f} s"
        )
    return min(times[1:])


def main() -> int:
    local.LONGEST_QUERY = "1h"  # type: ignore[misc] # also on a busy machine
    spent = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Processes(Path(folder) / "processes") as processes,
    ):
        for jobs in (FEW, JOBS):
            past = draw(
                end=int(time.time()),
                nodes=jobs,
                days=1,
                jobs=tuple(Job(name=f"job-{number}", nodes=1) for number in range(jobs)),
                failures={"process": jobs // 10, "pod": jobs // 10},
            )
            server = local.Prometheus(
                processes, Path(folder) / f"{jobs}", name=f"prometheus-{jobs}"
            )
            began = time.perf_counter()
            write_block(sampled(past, is_looked_at), server.data)
            print(f"{jobs} jobs written in {time.perf_counter() - began:.0f} s")
            server.start()
            spent[jobs] = asyncio.run(look(server, jobs))
            server.stop()
    ratio = spent[JOBS] / spent[FEW]
    most = RANGES["ten_times_the_jobs"]["most"]
    print(
        f"ten times the jobs take {ratio:.1f} times as long  at most "
        f"{most:g}{'  OUTSIDE' if ratio > most else ''}"
    )
    return 1 if ratio > most else 0


if __name__ == "__main__":
    sys.exit(main())
