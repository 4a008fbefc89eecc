"""Forty attacks of a tenant who may do everything in his own namespace, and a kernel's limit of
memory.

An attack is a function of the site and of random numbers; it does one thing and returns. `Siege`
draws attacks by a seed and runs them side by side until it is told to stop.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import threading
import time
import urllib.request
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import foreign
from faults.proxy import Asked, Fault, Proxy
from faults.scenario import persist
from giants import SIZE, Lists, giant
from hostile_site import (
    COMPOSITE,
    EVIL,
    POOL,
    VICTIM,
    config_map,
    evil_job,
    forged,
    target,
    trainer,
)
from mofa_local import LocalStackError
from mofa_local.client import Client, Refused

from mofa_model.annotations import PREFIX
from mofa_model.kinds import JOB_SET

JOBS = f"/apis/mofa.dev/v1alpha1/namespaces/{EVIL}/trainingjobs"
SETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{EVIL}/jobsets"
LISTED = "/apis/batch/v1/jobs"


class Cgroup:
    """Memory that the kernel bounds, for one process and its children; where that cannot be,
    nothing is bounded.
    """

    def __init__(self, most: int) -> None:
        self.folder = Path(f"/sys/fs/cgroup/memory/mofa-siege-{os.getpid()}-{time.monotonic_ns()}")
        try:
            self.folder.mkdir()
            (self.folder / "memory.limit_in_bytes").write_text(str(most))
        except OSError:
            self.folder = Path()

    @property
    def program(self) -> tuple[str, ...]:
        """Before a command: it runs within the bound."""
        if self.folder == Path():
            return ()
        return ("sh", "-c", f'echo $$ > {self.folder}/cgroup.procs; exec "$0" "$@"')

    def close(self) -> None:
        """Have it go, once nothing runs in it."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    @property
    def most(self) -> int:
        """Most memory that was ever used, files in memory included. [B]"""
        return int((self.folder / "memory.max_usage_in_bytes").read_text())

    @property
    def kills(self) -> int:
        """How often the kernel ended a process for it."""
        lines = (self.folder / "memory.oom_control").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("oom_kill ")))


class Giants(Fault):
    """Behind the last Job that the API server lists come thousands of megabytes each, which it
    never had.
    """

    def __init__(self, count: int) -> None:
        shared = giant(EVIL, "x")
        names = (f"proxied-{n:05}" for n in range(count))
        self.lists = Lists("batch/v1", "Job", {
            (EVIL, name): shared | {"metadata": giant(EVIL, name, size=3)["metadata"]} for name in names
        })  # fmt: skip

    async def answer(self, asked: Asked, proxy: Proxy):
        request = asked.request
        if asked.is_watch or asked.is_write:
            return await proxy.through(asked)
        if asked.what == LISTED and request.query.get("continue", "").startswith("giant-"):
            at = request.query["continue"].removeprefix("giant-")
            changed = request.clone(rel_url=request.rel_url.update_query({"continue": at}))
            return await self.lists.answer(changed, more="giant-")
        if asked.what.startswith(f"/apis/batch/v1/namespaces/{EVIL}/jobs/proxied-"):
            return await self.lists.answer(request)
        response = await proxy.through(asked)
        if asked.what == LISTED and response.status == 200:
            body = json.loads(response.body)
            if not body["metadata"].get("continue"):
                body["metadata"]["continue"] = "giant-0"
                response.body = json.dumps(body).encode()
        return response


class InThreads:
    """Works in threads of its own, from the beginning of a block to its end."""

    def __init__(self, *works) -> None:
        self._end = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *how):
        self._end.set()
        for thread in self._threads:
            thread.join(60)


class Prober(InThreads):
    """Asks as kubelet does: a connection of its own each time, five seconds for the answer."""

    def __init__(self, url: str, period: float = 1.0) -> None:
        super().__init__(self._run)
        self._url, self._period = url, period
        self.asked, self.failed = 0, []

    def _run(self):
        while not self._end.wait(self._period):
            self.asked += 1
            began = time.monotonic()
            try:
                with urllib.request.urlopen(self._url, timeout=5.0) as answer:
                    answer.read()
            except OSError as error:
                self.failed.append(f"{error} after {time.monotonic() - began:.1f} s")


class LeastOperator(InThreads):
    """An operator that does next to nothing, beside ours: it watches one namespace and writes twice
    to each job that comes.

    What a job waits for it is the API server's own slowness, which a besieged namespace causes
    whoever runs there.
    """

    def __init__(self, cluster, namespace) -> None:
        super().__init__(self._watch)
        self._client, self._namespace = Client(cluster.kubeconfig), namespace
        self._kind = cluster.admin.resources.get(
            api_version="mofa.dev/v1alpha1", kind="TrainingJob"
        )
        self._seen, self._changed = set(), threading.Condition()

    def _watch(self):
        while not self._end.is_set():
            with contextlib.suppress(Exception):  # whatever ends a watch, the next one begins
                # from whatever the server has: one that lags behind its store refuses the newest
                # version
                for event in self._kind.watch(
                    namespace=self._namespace, resource_version="0", timeout=30
                ):
                    with self._changed:
                        self._seen.add(event["raw_object"]["metadata"]["name"])
                        self._changed.notify_all()

    def waited(self, job):
        """How long a new job waits until it was seen, written to twice, and read. [s]"""
        name, began = job["metadata"]["name"], time.monotonic()
        path = f"/apis/mofa.dev/v1alpha1/namespaces/{self._namespace}/trainingjobs/{name}"
        apply = f"{path}?fieldManager=beside&force=true"
        persist(lambda: self._client.ask("PATCH", apply, job, sent="application/apply-patch+yaml"))
        with self._changed:
            assert self._changed.wait_for(lambda: name in self._seen, 900.0), f"{name} is not seen"
        for number in range(2):
            patch = {"metadata": {"annotations": {"beside/told": str(number)}}}
            persist(
                lambda patch=patch: self._client.ask(
                    "PATCH", path, patch, sent="application/merge-patch+json"
                )
            )
        persist(lambda: self._client.get(path))
        waited = time.monotonic() - began
        persist(lambda: self._client.ask("DELETE", path))
        return waited


# ------------------------------------------------------------------------------------------ what attacks use


class Attacker:
    """Whoever may do everything in one namespace, reach the operator's ports from a thousand
    addresses, and publish.
    """

    def __init__(self, site, proxy=None) -> None:
        self.site = site
        self._own = threading.local()
        self.number = itertools.count()
        self.texts = {"evil": [], "honoured": []}
        self.done = Counter()
        self.refused = Counter()
        self.ports = [urlsplit(site.advisor.url).port, urlsplit(site.advisor.health_url).port]

    def api(self, method, path, body=None, sent="application/json"):
        """A request to the API server; what it refuses, it refuses."""
        if not hasattr(self._own, "client"):
            self._own.client = Client(self.site.tenant)
        with contextlib.suppress(Refused, LocalStackError):
            return self._own.client.ask(method, path, body, sent=sent)

    def apply(self, path, body):
        name = body["metadata"]["name"]
        where = f"{path}/{name}?fieldManager=evil&force=true"
        return self.api("PATCH", where, body, "application/apply-patch+yaml")

    def patch(self, path, body):
        return self.api("PATCH", path, body, "application/merge-patch+json")

    def connect(self, port, random):
        """A connection from one of a thousand addresses."""
        source = f"127.1.{random.randrange(4)}.{random.randrange(1, 251)}"
        made = socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(source, 0))
        made.settimeout(1.0)
        return made

    def publish(self, who, text):
        """Publish something from a pod of his own, beside what was published lately."""
        self.texts[who] = [*self.texts[who][-3:], text]
        target_ = getattr(self.site.prometheus, who)
        target_.text = _once("".join(self.texts[who]))


def _once(text):
    """Series without repeats: an exporter that says one twice is not heard at all."""
    return "".join({line.rpartition(" ")[0]: line + "\n" for line in text.splitlines()}.values())


def _held(attacker, random, port, send, seconds=3.0, count=60):
    """Connections that are held for a while."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            with contextlib.suppress(OSError):
                made = stack.enter_context(attacker.connect(attacker.ports[port], random))
                made.sendall(send)
        time.sleep(seconds)


def _ask(attacker, random, path, port=0):
    with contextlib.suppress(OSError), attacker.connect(attacker.ports[port], random) as made:
        made.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        while made.recv(65536):
            pass


def _job(attacker, **more):
    attacker.apply(JOBS, evil_job(f"siege-{next(attacker.number) % 200}", **more))


def _series(attacker, who, name, tokens, **more):
    attacker.publish(who, trainer(VICTIM, name, tokens, **more))


def _jobset(name, **metadata):
    return foreign.job(JOB_SET, EVIL, name, **metadata)


def _giant_set(name, size, *, empty=False):
    body = _jobset(name, annotations={PREFIX + "advise": "true"})
    pods = {"containers": [{"name": "c", "args": [""] * (size // 3) if empty else ["x" * size]}]}
    template = {"spec": {"parallelism": 1, "template": {"spec": pods}}}
    body["spec"]["replicatedJobs"] = [{"name": "w", "template": template}]
    return body


HTTP = "GET {} HTTP/1.1\r\nHost: a\r\n\r\n"
ATTACKS = {
    "half-open lines to the metrics port": lambda a, r: _held(a, r, 0, b""),
    "half-open lines to the health port": lambda a, r: _held(a, r, 1, b""),
    "half a head": lambda a, r: _held(a, r, r.randrange(2), b"GET /metrics HTTP/1.1\r\nX: "),
    "probes without end": lambda a, r: [_ask(a, r, "/healthz", 1) for _ in range(30)],
    "pipelined probes": lambda a, r: _held(a, r, 1, HTTP.format("/healthz").encode() * 50, 1.0),
    "scrapes that nobody reads": lambda a, r: _held(a, r, 0, HTTP.format("/metrics").encode() * 3),
    "scrapes": lambda a, r: [_ask(a, r, "/metrics") for _ in range(3)],
    "the page": lambda a, r: _ask(a, r, f"/?namespace={EVIL}&search={r.random()}"),
    "a page of another namespace": lambda a, r: _ask(a, r, f"/jobs/trainingjobs.mofa.dev/{EVIL}/..%2f..%2fetc"),
    "what-if forms": lambda a, r: _ask(a, r, f"/jobs/trainingjobs.mofa.dev/{EVIL}/siege-1?nodes={r.randrange(1, 99999)}"),
    "a head of 60 kB": lambda a, r: _ask(a, r, "/" + "a" * 60_000),
    "bytes that are no HTTP": lambda a, r: _held(a, r, r.randrange(2), r.randbytes(4096), 0.5),
    "a JobSet of 1.3 MB": lambda a, r: a.apply(SETS, _giant_set(f"giant-{next(a.number) % 40}", 1_300_000)),
    "a JobSet of empty texts": lambda a, r: a.apply(SETS, _giant_set(f"empty-{next(a.number) % 10}", 1_200_000, empty=True)),
    "JobSets of 400 kB": lambda a, r: a.apply(SETS, _giant_set(f"large-{next(a.number) % 300}", 400_000)),
    "giants that change": lambda a, r: a.patch(f"{SETS}/giant-{r.randrange(40)}", {"metadata": {"labels": {"x": str(r.random())}}}),
    "TrainingJobs of 800 kB": lambda a, r: _job(a, current={"arguments": ["x" * 4000] * 200}),
    "jobs with questions of their own": lambda a, r: [_job(a, training={"globalBatchSize": 64 * r.randrange(1, 500)}) for _ in range(5)],
    "giant questions": lambda a, r: _job(a, model={"architecture": COMPOSITE}, training={"globalBatchSize": 8648640}, cluster={"nodes": r.randrange(1, 90090)}, constraints={}),
    "jobs of other pools": lambda a, r: _job(a, cluster={"profile": f"p-{r.randrange(1000)}"}),
    "the same job again and again": lambda a, r: [a.patch(f"{JOBS}/siege-1", {"spec": {"training": {"globalBatchSize": 64 * r.randrange(1, 9)}}}) for _ in range(10)],
    "jobs that come and go": lambda a, r: (a.apply(JOBS, evil_job("brief")), a.api("DELETE", f"{JOBS}/brief")),
    "forged answers": lambda a, r: a.patch(f"{JOBS}/siege-{r.randrange(200)}", {"metadata": {"annotations": {PREFIX + "strategy": "tp=1", PREFIX + "computed-at": "2999-01-01T00:00:00Z"}}}),
    "forged statuses": lambda a, r: a.patch(f"{JOBS}/siege-{r.randrange(200)}/status", {"status": {"inputsHash": str(r.random())}}),
    "forged run records": lambda a, r: a.patch(f"{JOBS}/siege-{r.randrange(200)}", {"metadata": {"annotations": {PREFIX + "run-record": "x" * 10_000}}}),
    "annotations of 200 kB": lambda a, r: a.patch(f"{JOBS}/siege-{r.randrange(200)}", {"metadata": {"annotations": {"x": str(r.random()) * 10_000}}}),
    "a policy that changes its mind": lambda a, r: a.apply(f"/apis/mofa.dev/v1alpha1/namespaces/{EVIL}/advisorpolicies", {
        "apiVersion": "mofa.dev/v1alpha1", "kind": "AdvisorPolicy", "metadata": {"name": "p", "namespace": EVIL},
        "spec": {"kinds": [{"apiVersion": JOB_SET.api_version, "kind": JOB_SET.kind}], "profile": POOL, "mode": r.choice(["Annotate", "Apply", "Disabled"])},
    }),
    "a quota that refuses Events": lambda a, r: a.apply(f"/api/v1/namespaces/{EVIL}/resourcequotas", {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": EVIL}, "spec": {"hard": {"count/events": str(r.choice([0, 100000]))}},
    }),
    "ConfigMaps of 900 kB": lambda a, r: a.apply(f"/api/v1/namespaces/{EVIL}/configmaps", config_map("fat", json.dumps({"model_type": "llama", "x": str(r.random()) + "y" * 900_000}))),
    "brackets a megabyte deep": lambda a, r: (a.apply(f"/api/v1/namespaces/{EVIL}/configmaps", config_map("deep", "[" * 900_000)), _job(a, model={"configMapRef": {"name": "deep"}})),
    "the victim's name as a target": lambda a, r: _job(a, targetRef=target("TrainingJob", "train", "mofa.dev/v1alpha1")),
    "matchers of another namespace": lambda a, r: _job(a, throughput={"preset": "mofa", "matchers": {"namespace": VICTIM}}),
    "matchers of its own": lambda a, r: _job(a, throughput={"matchers": {"run": str(r.randrange(10**6))}}),
    "PromQL in a matcher": lambda a, r: _job(a, throughput={"matchers": {"run": '"} or vector(1) or mofa{x="'}}),
    "the victim's series": lambda a, r: _series(a, "evil", "train", r.randrange(10**7)),
    "numbers that are none and labels without end": lambda a, r: a.publish("evil", forged(r.randrange(10**9))),
    "the victim's series by honoured labels": lambda a, r: _series(a, "honoured", "train", 9e6, namespace=VICTIM),
    "and by another's address": lambda a, r: _series(a, "honoured", "train", 9e6, namespace=VICTIM, job="research-trainer", instance="10.0.0.9:1"),
    "restarts and nodes of the victim": lambda a, r: a.publish("honoured", "".join(f'{name}{{namespace="{VICTIM}",pod="train-0",uid="u1",node="{POOL}-0",condition="Ready",status="false"}} 1\n' for name in ("kube_pod_info", "kube_node_status_condition"))),
    "labels that change": lambda a, r: a.patch(f"{SETS}/large-{r.randrange(300)}", {"metadata": {"labels": {"x": str(r.randrange(10**6))}}}),
}  # fmt: skip
"""Attacks by name."""


class Siege(InThreads):
    """Attacks side by side, drawn by a seed."""

    def __init__(self, site, seed, at_once=40):
        super().__init__(*(partial(self._run, number) for number in range(at_once)))
        self.attacker, self._seed = Attacker(site), seed
        self.faults = []

    def _run(self, number):
        random = Random(self._seed * 1000 + number)
        names = sorted(ATTACKS)
        first = [names[number % len(names)]]
        while not self._end.is_set():
            name = first.pop() if first else random.choice(names)
            try:
                ATTACKS[name](self.attacker, random)
            except OSError:
                self.attacker.refused[name] += 1
            except Exception as error:  # noqa: BLE001 - an attack that is wrong attacks nobody
                self.faults.append(f"{name}: {type(error).__name__}: {error}")
            self.attacker.done[name] += 1
            self._end.wait(random.uniform(0.2, 1.5))


assert len(ATTACKS) == 40
assert SIZE > 1_000_000
