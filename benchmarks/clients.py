"""What a list and a watch of 2,000 objects cost with each client, and what each does where a kind
is absent or a watch is cut.

    ours        `mofa_operator.api`
    aio         `kubernetes.aio`: `CustomObjectsApi` and `watch.Watch`
    informer    `kubernetes.informer.SharedInformer`, on the synchronous client, in a thread

Each runs in a process of its own against the same API server. Printed are seconds of a core and
resident memory, by which importing, listing and watching grow; and requests, as the API server's
audit log counts them. ranges.toml holds the reasons for which the operator has a client of its own
(ARCHITECTURE): where one no longer holds, the exit code is 1.

    python benchmarks/clients.py [OBJECTS]
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "deploy" / "local")]

OBJECTS = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdecimal() else 2000
GROUP, VERSION, PLURAL = "mofa.dev", "v1alpha1", "trainingjobs"
WINDOW = 10.0
"""How long requests are counted where the kind is absent. [s]"""


class Meter:
    """Time of a core and memory between two marks."""

    def __init__(self) -> None:
        self._cpu, self._memory = time.process_time(), _resident()
        self.used = 0.0
        """Time of a core between the last two marks. [s]"""

    def mark(self, what: str) -> None:
        """Print what was used since the last mark."""
        cpu, memory = time.process_time(), _resident()
        self.used = cpu - self._cpu
        print(
            f"  {what:28s} {cpu - self._cpu:6.2f} s of a core {memory - self._memory:+7.1f} MB",
            flush=True,
        )
        self._cpu, self._memory = cpu, memory


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


async def ours(meter: Meter, seen: set[str], changed: set[str]) -> None:
    """List and watch with our own client."""
    from mofa_operator.api import Api
    from mofa_operator.credentials import Credentials
    from mofa_operator.keys import TRAINING_JOB

    async with Api(Credentials.from_environment()) as api:
        meter.mark("import and connect")
        async for items, version in api.pages(TRAINING_JOB):  # noqa: B007
            seen |= {item["metadata"]["name"] for item in items}
        meter.mark("list")
        print("LISTED", flush=True)
        async with api.watch(TRAINING_JOB, None, version) as events:
            async for _, body in events:
                changed.add(body["metadata"].get("name", ""))
                if len(changed) >= OBJECTS:
                    return


async def aio(meter: Meter, seen: set[str], changed: set[str]) -> None:
    """List and watch with `kubernetes.aio`."""
    from kubernetes.aio import client, config, watch

    await config.load_kube_config()
    async with client.ApiClient() as session:
        api = client.CustomObjectsApi(session)
        meter.mark("import and connect")
        more, version = None, ""
        while more != "":
            page = await api.list_cluster_custom_object(
                GROUP, VERSION, PLURAL, limit=500, **({"_continue": more} if more else {})
            )
            seen |= {item["metadata"]["name"] for item in page["items"]}
            version, more = (
                page["metadata"]["resourceVersion"],
                page["metadata"].get("continue", ""),
            )
        meter.mark("list")
        print("LISTED", flush=True)
        async with watch.Watch() as stream:
            async for event in stream.stream(
                api.list_cluster_custom_object, GROUP, VERSION, PLURAL, resource_version=version
            ):
                changed.add(event["object"]["metadata"]["name"])
                if len(changed) >= OBJECTS:
                    return


async def informer(meter: Meter, seen: set[str], changed: set[str]) -> None:
    """List and watch with an informer."""
    from kubernetes import client, config
    from kubernetes.informer import ADDED, MODIFIED, SharedInformer

    config.load_kube_config()
    api = client.CustomObjectsApi()
    plural = os.environ.get("PLURAL", PLURAL)

    def listed(**given: Any) -> Any:
        listing = api.list_cluster_custom_object(GROUP, VERSION, plural, **given)
        return _Listed(listing) if isinstance(listing, dict) else listing

    meter.mark("import and connect")
    made = SharedInformer(listed, key_func=lambda body: body["metadata"]["name"])
    made.add_event_handler(ADDED, lambda body: seen.add(body["metadata"]["name"]))
    made.add_event_handler(MODIFIED, lambda body: changed.add(body["metadata"]["name"]))
    made.start()
    if plural != PLURAL or "WAIT" in os.environ:
        await asyncio.sleep(WINDOW)
        return
    while len(seen) < OBJECTS:  # noqa: ASYNC110 - an informer calls from its thread
        await asyncio.sleep(0.05)
    meter.mark("list")
    print("LISTED", flush=True)
    while len(changed) < OBJECTS:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


class _Listed:
    """A list of custom objects as an informer reads it."""

    def __init__(self, listing: dict[str, Any]) -> None:
        self.items = listing["items"]
        self.metadata = type(
            "Meta", (), {"resource_version": listing["metadata"]["resourceVersion"]}
        )


CLIENTS = {"ours": ours, "aio": aio, "informer": informer}


def main() -> int:
    from cluster import PLACE, Bench, _together, job, judged  # the benchmark beside this one
    from mofa_local import audit
    from mofa_local.control_plane import ControlPlane
    from mofa_local.processes import Processes

    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(Path(folder) / "processes")
        plane = ControlPlane(Path(folder) / "plane", processes)
        policy = {**audit.POLICY, "rules": [{"level": "Metadata"}]}
        (plane.folder / "audit-policy.json").write_text(json.dumps(policy))
        with plane:
            plane.install(ROOT / "crds", ROOT / "deploy" / "manifests")
            plane.kubectl("create", "namespace", PLACE)
            bench = Bench.__new__(Bench)
            bench.plane = plane

            async def fill() -> None:
                async with bench.api() as api:
                    from mofa_operator.keys import TRAINING_JOB

                    await _together(
                        lambda n: api.create(TRAINING_JOB, PLACE, job(n)), list(range(OBJECTS))
                    )

            async def touch(turn: str) -> None:
                async with bench.api() as api:
                    from mofa_operator.keys import TRAINING_JOB

                    change = {"metadata": {"labels": {"turn": turn}}}
                    await _together(
                        lambda n: api.merge(TRAINING_JOB, PLACE, f"job-{n:05d}", change),
                        list(range(OBJECTS)),
                    )

            asyncio.run(fill())
            watched: dict[str, float] = {}
            figures: dict[str, float] = {}
            given = os.environ | {"KUBECONFIG": str(plane.kubeconfig)}
            for name in CLIENTS:
                print(name, flush=True)
                before = len(plane.audit())
                child = subprocess.Popen(
                    [sys.executable, __file__, name, str(OBJECTS)],
                    env=given,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                assert child.stdout is not None
                for line in child.stdout:
                    word, _, number = line.strip().partition(" ")
                    if word == "LISTED":
                        time.sleep(1.0)
                        asyncio.run(touch(name))
                    elif word == "WATCHED":
                        watched[name] = float(number)
                    else:
                        print(line, end="", flush=True)
                if child.wait():
                    return 1
                reads = [
                    e
                    for e in plane.audit()[before:]
                    if e["verb"] in {"list", "watch"}
                    and (e.get("objectRef") or {}).get("resource") == PLURAL
                ]
                requests = len({e["auditID"] for e in reads})
                print(f"  requests {requests}", flush=True)
                if name == "ours":
                    figures["requests_of_ours"] = float(requests)
            figures["informer_requests_of_a_forbidden_watch"] = stray_requests(plane, given)
            figures["aio_watch_over_ours"] = watched["aio"] / watched["ours"]
    ranges = tomllib.loads((ROOT / "benchmarks" / "ranges.toml").read_text(encoding="utf-8"))
    return judged(figures, ranges["clients"])


def stray_requests(plane: Any, given: dict[str, str]) -> float:
    """Requests of an informer that may not watch, in `WINDOW`; what it does without a kind is
    printed before.
    """
    from cluster import PLACE

    requests = 0.0
    reader = [{"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["list"]}]
    blind = plane.identity("blind", reader, namespace=PLACE)
    for what, change in (
        ("does not exist", {"PLURAL": "absentees"}),
        ("may be listed and not watched", {"KUBECONFIG": str(blind), "WAIT": "yes"}),
    ):
        before = len(plane.audit())
        done = subprocess.run(
            [sys.executable, __file__, "informer", str(OBJECTS)],
            env=given | change,
            capture_output=True,
            text=True,
            check=False,
        )
        asked = {e["auditID"] for e in plane.audit()[before:] if GROUP in e["requestURI"]}
        print(
            f"informer of a kind that {what}: {len(asked)} requests and "
            f"{len(done.stderr.splitlines())} lines of log in {WINDOW:g} s",
            flush=True,
        )
        requests = float(len(asked))
    return requests


def measured(name: str) -> None:
    """Run one of the clients in this process, and print what it took."""
    meter, seen, changed = Meter(), set[str](), set[str]()
    asyncio.run(CLIENTS[name](meter, seen, changed))
    meter.mark(f"{len(changed)} events")
    print(f"WATCHED {meter.used}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"  at most {peak:.0f} MB", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        OBJECTS = int(sys.argv[2])
        measured(sys.argv[1])
    else:
        sys.exit(main())
