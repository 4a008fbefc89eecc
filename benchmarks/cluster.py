"""What the operator costs at 5,000 jobs, against operators of kopf that decide nothing.

Each clears the same 5,000 TrainingJobs (200 distinct specs, shuffled) on the same API server, in the same run:

    bare      a kopf operator that patches one short field of each job's status
    same      a kopf operator that writes what ours writes, annotations and status, copied from what ours wrote
    ours      the operator as it is shipped, decisions included; also its time less that of its worker

and then 1,000 updates of a pool's nodes. Ratios are compared, never times.

    python benchmarks/cluster.py [JOBS]
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "deploy" / "local")]

from advisor import MOFA, USER  # noqa: E402
from mofa_local import audit, nodes  # noqa: E402
from mofa_local.control_plane import ControlPlane  # noqa: E402
from mofa_local.ports import HOST, free_ports  # noqa: E402
from mofa_local.processes import Processes  # noqa: E402
from operator_objects import QUICK  # noqa: E402
from ruamel.yaml import YAML  # noqa: E402

from mofa_operator.api import Api  # noqa: E402
from mofa_operator.credentials import Credentials  # noqa: E402
from mofa_operator.keys import NODE, TRAINING_JOB  # noqa: E402
from mofa_operator.settings import ApiSettings  # noqa: E402

JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
SPECS = 200
AFFECTED = 100
PLACE = "bench"
FAST = ApiSettings(writes_per_second=1e9, burst=10**9, concurrency=32)
RANGES = tomllib.loads((ROOT / "benchmarks" / "ranges.toml").read_text(encoding="utf-8"))["cluster"]

KOPF = """
import json, sys, kopf
written = json.load(open(sys.argv[1])) if len(sys.argv) > 1 else None

@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False
    settings.queueing.idle_timeout = 0.5

@kopf.on.event("mofa.dev", "v1alpha1", "trainingjobs")
def seen(event, name, status, patch, **_):
    if event["type"] == "DELETED" or status.get("inputsHash"):
        return
    if written is None:
        patch.status["inputsHash"] = "0"
    else:
        patch.metadata["annotations"] = written[name]["annotations"]
        patch.status.update(written[name]["status"])

kopf.run(standalone=True, clusterwide=True)
"""


class Tail:
    """The audit log from now on."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._before = len(plane.audit())
        self.events: list[audit.Event] = []
        self.since = time.monotonic()

    def read(self) -> None:
        """Add what has come."""
        self.events = self._plane.audit()[self._before :]


@dataclass(frozen=True)
class Cleared:
    """What it took to clear all jobs."""

    seconds: float
    """From the first write to the last. [s]"""
    memory: int
    """Largest resident memory of the operator and its workers. [B]"""
    worker: float
    """Time of a core that its workers used. [s]"""
    most_writes: int
    """Writes to one job. [1]"""
    most_events: int
    """Events of one job. [1]"""


class Bench:
    """One control plane, and the operators that take turns on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes = Processes(folder / "processes")
        self.plane = ControlPlane(folder / "plane", self.processes)
        rule = {"level": "Metadata", "verbs": ["patch", "create", "update", "delete"]}
        policy = {**audit.POLICY, "rules": [rule, {"level": "None"}]}
        (self.plane.folder / "audit-policy.json").write_text(json.dumps(policy))

    def api(self) -> Api:
        """A session as the administrator."""
        os.environ["KUBECONFIG"] = str(self.plane.kubeconfig)
        return Api(Credentials.from_environment(), FAST)

    async def fill(self, jobs: int = JOBS) -> None:
        """So many jobs, anew."""
        async with self.api() as api:
            self.plane.delete(TRAINING_JOB.resource, namespace=PLACE)
            numbers = list(range(jobs))
            random.Random(7).shuffle(numbers)
            await _together(lambda n: api.create(TRAINING_JOB, PLACE, job(n)), numbers)

    def clear(self, name: str, command: list[Any], writes: int, user: str) -> Cleared:
        """Let an operator clear all jobs; each takes so many writes."""
        log = Tail(self.plane)
        self.processes.start(name, command, environment={"KUBECONFIG": str(self.plane.kubeconfig)})
        largest = 0
        while True:
            time.sleep(1.0)  # looking costs time that the operators need
            log.read()
            largest = max(largest, memory(self.processes[name].child.pid))
            mine = written(log.events, user)
            if len(mine) >= writes * JOBS:
                break
            if time.monotonic() > log.since + 1200:
                raise SystemExit(f"{name}: {len(mine)} of {writes * JOBS} writes in 20 minutes")
        worker = sum(_cpu(child) for child in _children(self.processes[name].child.pid))
        time.sleep(2.0)
        self.processes.stop(name, grace=15.0)
        moments = sorted(_seconds(event["stageTimestamp"]) for event in mine)
        log.read()
        events = audit.writes(log.events, user=user, resource="events")
        return Cleared(
            moments[-1] - moments[0],
            largest,
            worker,
            max(Counter(map(_name, written(log.events, user))).values()),
            max(Counter(_name(event).partition(".")[0] for event in events).values(), default=0),
        )


def job(number: int) -> dict[str, Any]:
    """One of 200 specs: batch and sequence differ."""
    spec = number % SPECS
    return {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": f"job-{number:05d}", "namespace": PLACE},
        "spec": {
            "model": {"preset": "llama3.1-8b"},
            "training": {
                "tokens": "1T",
                "sequenceLength": 2048 * (1 + spec % 8),
                "globalBatchSize": 64 * (1 + spec // 8),
                "framework": "megatron",
            },
            "cluster": {"profile": "bench"},
            "constraints": QUICK,
        },
    }


def memory(pid: int) -> int:
    """Resident memory of a process and its children. [B]"""
    total = 0
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if str(pid) in (lines["Pid"].strip(), lines["PPid"].strip()) and "VmRSS" in lines:
            total += 1024 * int(lines["VmRSS"].split()[0])
    return total


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        with bench.plane:
            return run(bench)


def run(bench: Bench) -> int:
    plane = bench.plane
    plane.install(ROOT / "crds", ROOT / "deploy" / "manifests")
    plane.kubectl("create", "namespace", PLACE)
    labels = {"example.org/pool": "bench"}
    pool = [nodes.node(f"bench-{number:03d}", labels=labels) for number in range(8)]
    nodes.create(plane, pool, kwok=False)
    profile = YAML(typ="safe").load((ROOT / "examples" / "h100-east.yaml").read_text())
    profile.pop("status", None)
    profile["metadata"] = {"name": "bench"}
    profile["spec"] |= {"nodeSelector": labels}
    plane.apply(profile)
    script = bench.folder / "kopf_operator.py"
    script.write_text(KOPF)

    asyncio.run(bench.fill())
    bare = bench.clear("bare", [sys.executable, script], 1, "admin")
    asyncio.run(bench.fill())
    ours = bench.clear("ours", _ours(bench), 2, USER)
    copied = bench.folder / "written.json"
    copied.write_text(json.dumps(asyncio.run(_written(bench))))
    asyncio.run(bench.fill())
    same = bench.clear("same", [sys.executable, script, copied], 2, "admin")
    decisions = asyncio.run(_restless(bench, pool))
    outside = ours.seconds - ours.worker
    for what, one in (("one short patch", bare), ("what ours writes", same), ("ours", ours)):
        print(f"{what:20s} {JOBS / one.seconds:7.0f} jobs/s  {one.memory / 1e6:6.0f} MB")
    print(f"ours took {ours.seconds:.1f} s, of which the worker computed {ours.worker:.1f} s; outside it")
    print(
        f"{outside / bare.seconds:.2f} x one short patch: two writes of whole answers against one of a word"
    )
    figures = {
        "outside_over_same": outside / same.seconds,
        "writes_to_an_object": float(ours.most_writes),
        "events_of_an_object": float(ours.most_events),
        "memory_megabytes": ours.memory / 1e6,
        "decisions_after_1000_node_updates": decisions,
    }
    return judged(figures)


def judged(figures: dict[str, float]) -> int:
    """Print the figures with their ranges; 1 where one is outside."""
    bad = 0
    for name, value in figures.items():
        most = RANGES[name]["most"]
        bad += value > most
        print(f"{name:36s} {value:8.2f}  at most {most:g}{'  OUTSIDE' if value > most else ''}")
    return 1 if bad else 0


async def _restless(bench: Bench, pool: list[dict[str, Any]]) -> float:
    """Most decisions that a job needs for 1,000 updates of its pool's nodes."""
    await bench.fill(AFFECTED)
    log = Tail(bench.plane)
    bench.processes.start("restless", _ours(bench), environment={"KUBECONFIG": str(bench.plane.kubeconfig)})
    await _advised(log)
    log = Tail(bench.plane)
    async with bench.api() as api:
        names = [node["metadata"]["name"] for node in pool]
        for turn in range(1000):
            cordoned = turn % 2 == 0 if turn < 990 else turn % len(names) < len(names) // 2
            patch = {"spec": {"unschedulable": cordoned}}
            await api.merge(NODE, "", names[turn % len(names)], patch)
    await _advised(log)
    bench.processes.stop("restless", grace=15.0)
    counts = Counter(_name(event) for event in written(log.events, USER) if not _part(event))
    return float(max(counts.values()))


async def _advised(log: Tail) -> None:
    """Until every affected job was written twice, and a while longer."""
    while len(written(log.events, USER)) < 2 * AFFECTED:
        await asyncio.sleep(1.0)
        log.read()
    await asyncio.sleep(10.0)
    log.read()


def _ours(bench: Bench) -> list[Any]:
    port, health = free_ports(2)
    account = bench.plane.identity("bench", service_account="mofa-system/mofa-advisor")
    return [
        MOFA, "operator", f"--kubeconfig={account}", f"--address={HOST}", f"--metrics-port={port}",
        f"--health-port={health}",
    ]  # fmt: skip


def written(events: list[Any], user: str = "admin") -> list[Any]:
    """Writes to jobs by patches."""
    return [e for e in audit.writes(events, user=user, resource="trainingjobs") if e["verb"] == "patch"]


async def _written(bench: Bench) -> dict[str, Any]:
    """What ours wrote, by name."""
    found = {}
    async with bench.api() as api:
        async for body in api.list(TRAINING_JOB):
            found[body["metadata"]["name"]] = {
                "annotations": body["metadata"]["annotations"],
                "status": body["status"],
            }
    return found


async def _together(work: Any, items: list[Any]) -> None:
    rest = iter(items)

    async def hand() -> None:
        for item in rest:
            await work(item)

    await asyncio.gather(*(hand() for _ in range(32)))


def _name(event: dict[str, Any]) -> str:
    return str(event["objectRef"].get("name", ""))


def _part(event: dict[str, Any]) -> str:
    return str(event["objectRef"].get("subresource", ""))


def _children(pid: int) -> list[int]:
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/status")
        if path.exists() and f"PPid:\t{pid}\n" in path.read_text()
    ]


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100


def _seconds(stamp: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(stamp).timestamp()


if __name__ == "__main__":
    sys.exit(main())
