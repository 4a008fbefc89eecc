"""What the history of a large pool costs Prometheus: a look a minute, and the first look after a
restart.

A real server holds two days of a pool at a scrape a minute: kube-state-metrics, node-exporter, DCGM
of eight GPUs a node, pods of jobs that fill it, their trainers, and failures. The operator's looks
are told by the server's own counts of the samples that queries read, and by its time of a core.

    python benchmarks/history.py [NODES]
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "deploy" / "local")]

from mofa_local import blocks  # noqa: E402
from mofa_local import prometheus as local  # noqa: E402
from mofa_local.blocks import write_block  # noqa: E402
from mofa_local.processes import Processes  # noqa: E402
from mofa_local.series import EXPORTER, Run, Series, Span, sampled  # noqa: E402
from mofa_local.synthetic import DAY, HOUR, Job, Past, draw, node_names  # noqa: E402

from mofa_operator.decide import ledger  # noqa: E402
from mofa_operator.evidence import SettledDays  # noqa: E402
from mofa_operator.keys import CLUSTER_PROFILE, FAILURE_LEDGER, Key  # noqa: E402
from mofa_operator.objects import LiveProfile, live  # noqa: E402
from mofa_operator.observe.history.history import KnownPools, history  # noqa: E402
from mofa_operator.observe.prometheus.client import Prometheus  # noqa: E402
from mofa_operator.settings import PrometheusSettings  # noqa: E402
from mofa_operator.snapshot import History  # noqa: E402

NODES = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
OF_A_JOB, STEP, DAYS = 100, 60, 2
MINUTES = 5
KEY = Key(CLUSTER_PROFILE, "", "bench")
RANGES = tomllib.loads((ROOT / "benchmarks" / "ranges.toml").read_text(encoding="utf-8"))["history"]


def hosts(past: Past) -> Iterator[tuple[Series, list[Run]]]:
    """What exporters on the nodes tell: boot times, and the XID and row remaps of eight GPUs."""
    times = range(past.start, past.end, STEP)

    def constant(metric: str, labels: dict[str, str], value: float) -> tuple[Series, list[Run]]:
        span = Span(past.start, past.end, value)
        return Series(metric, labels, STEP, (span,)), [Run(times, span)]

    for number, node in enumerate(past.nodes):
        where = f"10.0.{number // 250}.{number % 250}"
        host = {"job": "node-exporter", "instance": f"{where}:9100", "nodename": node}
        yield constant("node_boot_time_seconds", host, past.start - 9e5)
        whole = {"node": node, "resource": "nvidia_com_gpu", "unit": "integer"} | EXPORTER
        yield constant("kube_node_status_allocatable", whole, 8)
        for gpu in range(8):
            of = {"job": "dcgm", "instance": f"{where}:9400", "Hostname": node}
            of |= {"gpu": str(gpu), "UUID": f"GPU-{number}-{gpu}"}
            yield constant("DCGM_FI_DEV_XID_ERRORS", of, 0)
            yield constant("DCGM_FI_DEV_ROW_REMAP_FAILURE", of, 0)


def pool(end: int, nodes: int) -> Past:
    """A full pool with some failures of each kind."""
    jobs = tuple(Job(name=f"job-{k}", nodes=OF_A_JOB) for k in range(nodes // OF_A_JOB))
    counts = {"process": nodes // 100, "pod": nodes // 100, "job": nodes // 200}
    past = draw(
        end=end,
        nodes=nodes + nodes // 20,
        days=DAYS,
        jobs=jobs,
        failures=counts,  # type: ignore[arg-type]
    )
    names = node_names(len(past.nodes), "n")
    return replace(past, nodes=names, step=STEP, pod_step=STEP, trainer_step=STEP)


def spent(url: str) -> tuple[float, float]:
    """Samples that queries of a server have read so far, and its time of a core. [1, s]"""
    with urllib.request.urlopen(f"{url}/metrics") as page:
        lines = [line.split() for line in page.read().decode().splitlines()]
    metrics = {words[0]: float(words[1]) for words in lines if len(words) == 2}
    return metrics["prometheus_engine_query_samples_total"], metrics["process_cpu_seconds_total"]


def profile() -> dict[str, Any]:
    """A ClusterProfile of that pool."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    spec = {
        "gpu": "h100-80gb-sxm",
        "nodeSelector": labels,
        "prometheus": {"windowSeconds": DAYS * DAY},
    }
    return {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": "bench", "uid": "u"},
        "spec": spec,
    }


def peak_megabytes() -> float:
    """The most memory that this process ever had. [MB]"""
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return int(status["VmHWM"].split()[0]) / 1e3


async def look(
    url: str, now: float, pools: KnownPools, settled: SettledDays | None
) -> tuple[History, float, float]:
    """A look, the samples that its queries read, and the server's time of a core. [1, s]"""
    before, began = spent(url), time.perf_counter()
    async with Prometheus(PrometheusSettings(url=url, timeout=3600)) as prometheus:
        past = await history(prometheus, profile(), now, pools, None, settled)
    if not isinstance(past, History):
        raise SystemExit(past.message)
    samples, cpu = (b - a for a, b in zip(before, spent(url), strict=True))
    failures = sum(kind.failures for kind in past.classes.values())
    print(
        f"{samples / 1e6:7.1f} M samples, {cpu:6.2f} s of a core, "
        f"{time.perf_counter() - began:5.1f} s; "
        f"{failures:g} failures in {past.node_days:.1f} node-days; {peak_megabytes():.0f} MB at "
        "most",
        flush=True,
    )
    return past, samples, cpu


async def looks(url: str, end: int, minutes: int) -> dict[str, float]:
    """What the looks of some minutes cost, the first of them with nothing known, and one after
    a restart.
    """
    pools, costs = KnownPools(), []
    for minute in range(1 + minutes):
        print(f"minute {minute:2d}: ", end="")
        past, *cost = await look(url, end - 60.0 * (minutes - minute), pools, None)
        costs.append(cost)
    body = profile()
    days = ledger.merged((), past.days, (), DAYS * DAY, end)
    status = ledger.ledger_status(LiveProfile(KEY, body), days, (), end, past)
    kept = {"metadata": {"name": "bench", "ownerReferences": [{"uid": "u"}]}, "status": status}
    settled = ledger.settled_days(LiveProfile(KEY, body, live(FAILURE_LEDGER, kept)))
    if settled is None:
        raise SystemExit("the ledger holds no day")
    del pools, past, days, kept, status  # who starts anew has nothing of before
    print("restart:   ", end="")
    _, restarted, _ = await look(url, end, KnownPools(), settled)
    lacks = costs[0][0] * (end - settled.until) / (DAYS * DAY)
    return {
        "core_seconds_a_minute": sum(cpu for _, cpu in costs[1:]) / minutes,
        "million_samples_a_minute": sum(samples for samples, _ in costs[1:]) / minutes / 1e6,
        "restart_over_what_the_ledger_lacks": restarted / lacks,
    }


def looks_apart(url: str, end: int, minutes: int, figures: Any) -> None:
    """Take the looks in a process of its own, so that its peak memory is that of the looks."""
    measured = asyncio.run(looks(url, end, minutes))
    figures.put(measured | {"megabytes_of_the_looks": peak_megabytes()})


def main() -> int:
    end = int(time.time()) // DAY * DAY - HOUR // 6  # ten minutes before midnight: today is longest
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        Processes(Path(folder) / "processes") as processes,
    ):
        blocks.LONGEST = 120  # type: ignore[misc] # samples of a chunk, as Prometheus cuts them
        local.LONGEST_QUERY = "1h"  # type: ignore[misc] # also on a busy machine
        local.MEMORY = "4GiB"  # type: ignore[misc] # queries are measured, no collector in need
        server = local.Prometheus(processes, Path(folder))
        past = pool(end, NODES)
        write_block([*sampled(past, lambda _: True), *hosts(past)], server.data)
        server.start()
        figures = spawn.Queue()
        child = spawn.Process(target=looks_apart, args=(server.url, end, MINUTES, figures))
        child.start()
        child.join()
        if child.exitcode:  # it said why
            return 1
        measured = figures.get()
    from cluster import judged  # the benchmark beside this one

    return judged(measured, RANGES)


if __name__ == "__main__":
    sys.exit(main())
