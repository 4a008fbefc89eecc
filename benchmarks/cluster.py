"""What the operator costs at 5,000 jobs, against operators of kopf that decide nothing, and what
its restart costs.

Each clears the same 5,000 TrainingJobs (200 distinct specs, shuffled) on the same API server, in
the same run:

    bare      a kopf operator that patches one short field of each job's status
    same      a kopf operator that asks the model what ours asks, each distinct question once, in a
              worker process of its own, and then
              writes what ours writes: annotations, status and one Event; what both wrote is
                  compared field by field
    ours      the operator as it is shipped, decisions and Events included
    restart   ours, begun anew where all is settled
    nodes     1,000 updates of a pool's nodes

Ratios of processor time are compared, never times of the clock. The time of the workers, in which
the model searches, is counted for both: 200 searches, which make both alike where there are fewer
jobs than 5,000. Updates of nodes that come so slowly that a settling window ends on the way may
have a decision for each window; the audit log says how many there were.

    python benchmarks/cluster.py [JOBS] [PART,…]
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
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

from advisor import MOFA, USER, Advisor  # noqa: E402
from mofa_local import audit, nodes  # noqa: E402
from mofa_local.control_plane import ControlPlane  # noqa: E402
from mofa_local.ports import HOST, free_ports  # noqa: E402
from mofa_local.processes import Processes  # noqa: E402
from operator_objects import QUICK  # noqa: E402
from ruamel.yaml import YAML  # noqa: E402

from mofa_operator.act.events import EVENT  # noqa: E402
from mofa_operator.api import Api  # noqa: E402
from mofa_operator.credentials import Credentials  # noqa: E402
from mofa_operator.keys import CLUSTER_PROFILE, NODE, TRAINING_JOB  # noqa: E402
from mofa_operator.observe.cluster.questions import question_bytes  # noqa: E402
from mofa_operator.observe.cluster.store import Store  # noqa: E402
from mofa_operator.settings import ApiSettings, LoopSettings  # noqa: E402
from mofa_operator.snapshot import JobSnapshot, Named, Question  # noqa: E402

GIVEN = sys.argv[1:] if __name__ == "__main__" else []
JOBS = int(GIVEN[0]) if GIVEN else 5000
PARTS = (
    tuple(GIVEN[1].split(",")) if len(GIVEN) > 1 else ("bare", "ours", "restart", "same", "nodes")
)
SPECS = 200
AFFECTED = 100
PLACE = "bench"
STILL = 600.0
"""How long nothing may move before a part has failed: twice what the operator waits for a node to
come back. A slow machine may take any time in all. [s]"""
FAST = ApiSettings(writes_per_second=1e9, burst=10**9, concurrency=32, timeout=STILL)
RANGES = tomllib.loads((ROOT / "benchmarks" / "ranges.toml").read_text(encoding="utf-8"))["cluster"]

KOPF = """
import asyncio, json, multiprocessing, pickle, sys, kopf
from concurrent.futures import ProcessPoolExecutor
from mofa_operator.control import worker_process as worker

written = json.load(open(sys.argv[1])) if len(sys.argv) > 1 else None
questions = pickle.load(open(sys.argv[2], "rb")) if written else []
done, asked, pool = set(), {}, None

@kopf.on.startup()
def configure(settings, **_):
    global pool
    settings.posting.enabled = written is not None
    settings.posting.loggers = False
    settings.queueing.idle_timeout = 0.5
    if written:
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), worker.prepare)

@kopf.on.event("mofa.dev", "v1alpha1", "trainingjobs")
async def seen(event, name, uid, status, patch, **_):
    if event["type"] == "DELETED" or status.get("inputsHash") or uid in done:
        return
    done.add(uid)  # of its two patches the first one comes back before the second is done
    if written is None:
        patch.status["inputsHash"] = "0"
        return
    number = written[name]["question"]
    if number not in asked:
        asked[number] = asyncio.wrap_future(pool.submit(worker.answer, questions[number]))
    await asked[number]
    for told in written[name]["events"]:
        kopf.event(event["object"], type="Normal", reason=told["reason"], message=told["message"])
    patch.metadata["annotations"] = written[name]["annotations"]
    patch.status.update(written[name]["status"])

if __name__ == "__main__":
    kopf.run(standalone=True, clusterwide=True)
"""


class Tail:
    """The audit log from now on."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._before = len(plane.audit())
        self.events: list[audit.Event] = []

    def read(self) -> None:
        """Add what has come."""
        self.events = self._plane.audit()[self._before :]


class Progress:
    """How far something came. A slow machine takes long, but what stands still for `STILL`
    has failed.
    """

    def __init__(self, what: str) -> None:
        self._what, self._most, self._since = what, 0.0, time.monotonic()

    def reached(self, count: float) -> None:
        """Take note of a count; where it has not risen for too long, end."""
        if count > self._most:
            self._most, self._since = count, time.monotonic()
        elif time.monotonic() > self._since + STILL:
            raise SystemExit(f"{self._what}: {self._most:g}, and no more for {STILL:g} s")


@dataclass(frozen=True)
class Cleared:
    """What it took to clear all jobs."""

    seconds: float
    """From the first write to the last. [s]"""
    memory: int
    """Largest resident memory of the operator and its workers. [B]"""
    loop: float
    """Time of a core that its first process used. [s]"""
    worker: float
    """The same of its workers. [s]"""
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
        largest, progress = 0, Progress(f"{name}: writes of {writes * JOBS}")
        while True:
            time.sleep(1.0)  # looking costs time that the operators need
            log.read()
            largest = max(largest, memory(self.processes[name].child.pid))
            own_writes = written(log.events, user)
            done = Counter(map(_name, own_writes))
            if len(done) >= JOBS and min(done.values()) >= writes:
                break
            progress.reached(len(own_writes))
        time.sleep(2.0)
        loop, worker = used(self.processes[name].child.pid)
        self.processes.stop(name, grace=15.0)
        moments = sorted(_seconds(event["stageTimestamp"]) for event in own_writes)
        log.read()
        events = audit.writes(log.events, user=user, resource="events")
        return Cleared(
            moments[-1] - moments[0],
            largest,
            loop,
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
            lines = dict(
                line.split(":", 1) for line in path.read_text().splitlines() if ":" in line
            )
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

    figures: dict[str, float] = {}
    if "bare" in PARTS:
        asyncio.run(bench.fill())
        print_cost("one short patch", bench.clear("bare", [sys.executable, script], 1, "admin"))
    if "ours" in PARTS:
        asyncio.run(bench.fill())
        ours = bench.clear("ours", _ours(bench), 2, USER)
        print_cost("ours", ours)
        figures |= {
            "writes_to_an_object": float(ours.most_writes),
            "events_of_an_object": float(ours.most_events),
            "memory_megabytes": ours.memory / 1e6,
        }
        if "restart" in PARTS:
            figures |= restarted(bench)
        if "same" in PARTS:
            wrote = asyncio.run(_written(bench))
            copied, asked = bench.folder / "written.json", bench.folder / "questions.pickle"
            numbers, questions = asyncio.run(_questions(bench))
            copied.write_text(
                json.dumps(
                    {name: outputs | {"question": numbers[name]} for name, outputs in wrote.items()}
                )
            )
            asked.write_bytes(pickle.dumps(questions))
            asyncio.run(bench.fill())
            same = bench.clear("same", [sys.executable, script, copied, asked], 2, "admin")
            print_cost("what ours writes", same)
            again = asyncio.run(_written(bench))
            figures["kopf_over_ours"] = (same.loop + same.worker) / (ours.loop + ours.worker)
            figures["differing_outputs"] = float(
                sum(wrote[name] != again.get(name) for name in wrote)
            )
    if "nodes" in PARTS:
        figures["decisions_over_settling_windows"] = asyncio.run(_restless(bench, pool))
    return judged(figures)


def print_cost(what: str, cleared: Cleared) -> None:
    """Print what it took an operator to clear all jobs."""
    print(
        f"{what:20s} {JOBS / cleared.seconds:7.0f} jobs/s  {cleared.memory / 1e6:6.0f} MB  "
        f"{1e3 * (cleared.loop + cleared.worker) / JOBS:6.2f} ms of a core a job, "
        f"{1e3 * cleared.loop / JOBS:.2f} of them in its loop and "
        f"{cleared.worker:.1f} s of workers in all",
        flush=True,
    )


def restarted(bench: Bench) -> dict[str, float]:
    """What a start costs where all is settled."""
    log, advisor = Tail(bench.plane), Advisor(bench.plane, bench.processes, "restarted")
    advisor.start("--kinds=JobSet", wait=False)
    pid, since, ready, page = bench.processes[advisor.name].child.pid, time.monotonic(), None, ""
    progress, looked_at = Progress("restart: jobs looked at"), 0.0
    while not looked_at >= JOBS:
        if ready is None:
            time.sleep(0.25)
            ready = time.monotonic() - since if advisor.probe("readyz")["ok"] else None
        else:
            time.sleep(5.0)  # a scrape of thousands of jobs takes half a second of a core
            page = _scraped(advisor)
            looked_at = _sample(page, "mofa_advisor_recommendation_duration_seconds_count")
        progress.reached(looked_at)
    whole, (loop, worker) = time.monotonic() - since, used(pid)
    time.sleep(3.0)
    page, held = _scraped(advisor) or page, memory(pid)
    advisor.stop()
    log.read()
    writes = audit.writes(log.events, user=USER)
    print(
        f"restart: ready after {ready:.1f} s, all {JOBS} looked at after {whole:.1f} s, {loop:.1f} "
        f"s of a core and {worker:.1f} s of "
        f"its worker, {held / 1e6:.0f} MB",
        flush=True,
    )
    return {
        "seconds_until_ready": ready or whole,
        "core_seconds_of_a_restart": loop + worker,
        "megabytes_of_a_restart": held / 1e6,
        "writes_of_a_restart": float(len(writes)),
        "searches_of_a_restart": _sample(page, "mofa_advisor_searches_total"),
    }


def _scraped(advisor: Advisor) -> str:
    """A scrape; nothing where it takes too long beside all else, on cores that are shared."""
    try:
        return advisor.metrics()
    except OSError:
        return ""


def used(pid: int) -> tuple[float, float]:
    """Time of a core that a process has used, and its children. [s]"""
    return _cpu(pid), sum(_cpu(child) for child in _children(pid))


def _sample(page: str, name: str) -> float:
    """A sample of a scrape; no number where it is not there, which is in no range."""
    lines = (line.split() for line in page.splitlines())
    return next(
        (float(words[1]) for words in lines if len(words) == 2 and words[0] == name), float("nan")
    )


def judged(figures: dict[str, float], ranges: dict[str, Any] = RANGES) -> int:
    """Print each figure with its range; the exit code is 1 if a figure is outside of it."""
    bad = 0
    for name, value in figures.items():
        least, most = ranges[name].get("least", 0.0), ranges[name].get("most", float("inf"))
        wrong = not least <= value <= most
        bad += wrong
        right = f"at least {least:g}" if "least" in ranges[name] else f"at most {most:g}"
        print(f"{name:36s} {value:8.2f}  {right}{'  OUTSIDE' if wrong else ''}")
    return 1 if bad else 0


def settling_windows(moments: list[float], settle: float, longest: float) -> int:
    """Windows that these moments of change fall into: a window ends after `settle` without a
    change, or after `longest`. [1]

    >>> settling_windows([0.0, 1.0, 2.0, 6.0, 7.0], settle=2.5, longest=30.0)
    2
    >>> settling_windows([float(second) for second in range(61)], settle=2.0, longest=30.0)
    2
    """
    windows, began, last = 0, -float("inf"), -float("inf")
    for moment in moments:
        if moment > min(last + settle, began + longest):
            windows, began = windows + 1, moment
        last = moment
    return windows


async def _restless(bench: Bench, pool: list[dict[str, Any]]) -> float:
    """Most decisions that a job needs for 1,000 updates of its pool's nodes, over the windows in
    which they settle.
    """
    await bench.fill(AFFECTED)
    log = Tail(bench.plane)
    bench.processes.start(
        "restless", _ours(bench), environment={"KUBECONFIG": str(bench.plane.kubeconfig)}
    )
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
    changes = audit.writes(log.events, user="admin", resource="nodes")
    moments = sorted(_seconds(event["stageTimestamp"]) for event in changes)
    settings = LoopSettings()
    windows = settling_windows(moments, settings.settle, settings.settle_longest)
    print(
        f"{len(moments)} updates of nodes in {moments[-1] - moments[0]:.1f} s: {windows} settling "
        "windows, at most "
        f"{max(counts.values())} decisions a job",
        flush=True,
    )
    return max(counts.values()) / windows


async def _advised(log: Tail) -> None:
    """Wait until every affected job was written twice, and ten seconds more."""
    progress = Progress(f"restless: writes of {2 * AFFECTED}")
    while (writes := len(written(log.events, USER))) < 2 * AFFECTED:
        progress.reached(writes)
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
    return [
        e for e in audit.writes(events, user=user, resource="trainingjobs") if e["verb"] == "patch"
    ]


async def _written(bench: Bench) -> dict[str, Any]:
    """Annotations, status and Events of every job, by name."""
    outputs, names = {}, {}
    async with bench.api() as api:
        async for body in api.list(TRAINING_JOB):
            names[body["metadata"]["uid"]] = body["metadata"]["name"]
            outputs[body["metadata"]["name"]] = {
                "annotations": body["metadata"].get("annotations"),
                "status": body.get("status"),
                "events": [],
            }
        async for event in api.list(EVENT, PLACE):
            if (name := names.get(event["involvedObject"].get("uid"))) is not None:
                outputs[name]["events"].append({key: event[key] for key in ("reason", "message")})
    return outputs


async def _questions(bench: Bench) -> tuple[dict[str, int], list[Question]]:
    """What every job asks the model, as a number by its name, and the distinct questions."""
    store = Store()
    async with bench.api() as api:
        for kind in (NODE, CLUSTER_PROFILE, TRAINING_JOB):
            async for body in api.list(kind):
                store.put(kind, body)
    store.listed()
    numbers, questions = {}, dict[bytes, Question]()
    for key in store.keys(TRAINING_JOB):
        snapshot = store.snapshot(key, time.time(), Named())
        if not isinstance(snapshot, JobSnapshot):
            raise SystemExit(f"{key} asks nothing")
        mark = question_bytes(snapshot.question)
        questions.setdefault(mark, snapshot.question)
        numbers[key.name] = list(questions).index(mark)
    return numbers, list(questions.values())


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
