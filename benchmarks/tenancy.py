"""How long one call holds the operator's loop in a large cluster, and what very many jobs cost it;
no cluster is needed.

    python benchmarks/tenancy.py [PROFILES] [NODES] [PODS] [JOBS]

Holds are counted in time of the thread, not of the clock, so a busy machine changes nothing.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from operator_objects import NOW, World, node, profile, training_job  # noqa: E402

from mofa_model.cli import SELDOM  # noqa: E402
from mofa_operator.control.enqueuer import Enqueuer  # noqa: E402
from mofa_operator.control.observers import JobObserver, PoolObserver  # noqa: E402
from mofa_operator.control.pages import Pages  # noqa: E402
from mofa_operator.control.work_queue import WorkQueue  # noqa: E402
from mofa_operator.keys import CLUSTER_PROFILE, NODE, TRAINING_JOB, Key  # noqa: E402
from mofa_operator.observe.cluster.store import Store  # noqa: E402
from mofa_operator.observe.progress.telemetry import TelemetryReader  # noqa: E402
from mofa_operator.observe.prometheus.client import QueryResult, Sample  # noqa: E402
from mofa_operator.page.jobs import jobs_page  # noqa: E402
from mofa_operator.settings import LoopSettings  # noqa: E402

PROFILES, NODES, PODS, JOBS = (
    int(given)
    for given in (*sys.argv[1:5], *("500", "20000", "50000", "10000")[len(sys.argv[1:5]) :])
)
NAMESPACES = 10
"""Of the jobs: those of one namespace may have 64 MiB together, which is some 8,000 of them. [1]"""
RANGES = tomllib.loads((ROOT / "benchmarks" / "ranges.toml").read_text(encoding="utf-8"))["tenancy"]


class LongestStep(asyncio.Handle):
    """Takes note of the longest time that the loop's thread worked between two yields."""

    longest = 0.0
    what = ""


def watch_the_loop() -> None:
    """Time every step of every task from now on."""
    run = asyncio.Handle._run  # noqa: SLF001 - what every step goes through

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        if (took := time.thread_time() - began) > LongestStep.longest:
            LongestStep.longest, LongestStep.what = took, repr(handle)[:160]

    asyncio.Handle._run = timed  # noqa: SLF001


def cluster() -> Store:
    """Profiles that share out the nodes."""
    store = Store()
    for number in range(NODES):
        store.put(NODE, node(f"n{number}", pool=f"p{number % PROFILES}"))
    for number in range(PROFILES):
        store.put(CLUSTER_PROFILE, profile(f"p{number}", nodeSelector={"pool": f"p{number}"}))
    return store


def enqueuer(store: Store) -> Enqueuer:
    """What puts jobs whose objects changed into the queue."""
    return Enqueuer(store, WorkQueue(backoff=1.0, longest=1.0), LoopSettings())


class Pods:
    """A Prometheus that knows of very many pods, all of one namespace."""

    def __init__(self) -> None:
        self.samples = tuple(
            Sample(
                labels={
                    "namespace": "ns",
                    "label_jobset_sigs_k8s_io_jobset_name": f"job-{n % PROFILES}",
                    "pod": f"p{n}",
                    "uid": f"u{n}",
                    "node": f"n{n % NODES}",
                },
                points=((NOW, 1.0),),
            )
            for n in range(PODS)
        )

    async def query(self, promql: str, _: float | None = None) -> QueryResult:
        """Pods where pods are asked for, and nothing else."""
        await asyncio.sleep(0)
        return QueryResult(samples=self.samples if "kube_pod" in promql else ())


async def looks(store: Store, pods: Pods) -> None:
    """Two looks at every pool, and two at jobs with very many pods."""
    pools = PoolObserver(store=store, enqueuer=enqueuer(store), interval=60.0)
    jobs = JobObserver(
        store=store, enqueuer=enqueuer(store), ask=TelemetryReader(pods), interval=60.0
    )  # type: ignore[arg-type]
    for _ in range(2):
        await pools.look()
        await jobs.look()


def resident() -> float:
    """What this process holds. [B]"""
    return float(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def settled() -> tuple[Store, float, float, int, int]:
    """Very many jobs that were advised and ask the same: memory that each takes [B], time of a
    restart's decision each [s], its writes, its searches.
    """
    world = World()
    for name in "mnop":
        world.put(NODE, node(name))
    world.put(CLUSTER_PROFILE, profile())
    world.put(TRAINING_JOB, training_job("j0"))
    world.rest()
    first = world.bodies[Key(TRAINING_JOB, "ns", "j0")]
    store = world.restarted()
    before, searches = resident(), world.model.searches
    keys = []
    for number in range(1, JOBS):
        place, name = f"ns-{number % NAMESPACES}", f"j{number}"
        metadata = first["metadata"] | {"namespace": place, "name": name, "uid": f"uid-{number}"}
        store.put(
            TRAINING_JOB, copy.deepcopy(first | {"metadata": metadata})
        )  # as it comes off the wire
        keys.append(Key(TRAINING_JOB, place, name))
    grown = resident() - before
    began = time.process_time()
    writes = sum(not world.decide(key, store).is_silent for key in keys)
    each = (time.process_time() - began) / JOBS
    return store, grown / JOBS, each, writes, world.model.searches - searches


async def page(store: Store) -> None:
    """The list of all jobs, as the page's routes make it."""
    source = Pages(
        store=store,
        model_pool=None,  # type: ignore[arg-type]
        api=None,  # type: ignore[arg-type]
        health=lambda _: "",
    )
    await asyncio.to_thread(jobs_page, iter(await source.jobs(None)), None)


def main() -> int:
    """Print what was measured; the result is 1 where it is out of its range."""
    store, pods = cluster(), Pods()
    for number in range(PROFILES):
        store.put(
            TRAINING_JOB,
            training_job(f"job-{number}", cluster={"profile": f"p{number}", "nodes": 2}),
        )
    gc.set_threshold(SELDOM)  # as the command has it, and as the operator when it has started:
    gc.freeze()
    watch_the_loop()
    asyncio.run(looks(store, pods))
    print(
        f"{PROFILES} profiles, {NODES} nodes, {PODS} pods: no call holds the loop longer than "
        f"{LongestStep.longest:.3f} s ({LongestStep.what})"
    )
    held = LongestStep.longest
    full, memory, time_each, writes, searches = settled()
    LongestStep.longest = 0.0
    asyncio.run(page(full))
    print(
        f"the page of {JOBS} jobs: no call holds the loop longer than {LongestStep.longest:.3f} s "
        f"({LongestStep.what})"
    )
    print(
        f"{JOBS} settled jobs: {memory / 1e3:.1f} kB each, a restart decides each in "
        f"{1e3 * time_each:.2f} ms; {writes} writes, {searches} searches"
    )
    measured = {
        "held_seconds": held,
        "held_by_a_page_seconds": LongestStep.longest,
        "kilobytes_of_a_job": memory / 1e3,
        "milliseconds_of_a_decision": 1e3 * time_each,
        "writes_of_a_restart": float(writes),
        "searches_of_a_restart": float(searches),
    }
    wrong = [
        f"{name}: {value:.3g}, at most {RANGES[name]['most']:g}"
        for name, value in measured.items()
        if value > RANGES[name]["most"]
    ]
    for error in wrong:
        print(error)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
