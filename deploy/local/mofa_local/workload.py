"""Fake trainers: they export the series that `mofa observe` would read from trainers' logs, and can
be disturbed.

    python -m mofa_local.workload serve --port 9400 --kubeconfig FILE --job
        research/pretrain-13b:2.3e5:18.2
    python -m mofa_local.workload interrupt research/pretrain-13b --kind restart --seconds 120
    python -m mofa_local.workload pace default/llama3-405b --fraction 0.8

With a kubeconfig every TrainingJob that has a recommendation is trained as well, at the given
fraction of what the bare model predicts: what running jobs taught is divided out, for it changes
predictions and not machines. Such a job saves as often as it is advised to, and has pods
(`gang.py`), whose series are exported here. `interrupt` and `pace` ask the server at --url, by
default at $TRAINER_URL, which `make up` writes into .cache/up/env.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from mofa_local import LocalStackError
from mofa_local.client import Client
from mofa_local.exporter import Families, pod_series
from mofa_local.gang import Gang
from mofa_local.nodes import DEVICE
from mofa_local.ports import HOST
from mofa_local.trainer import KINDS, Trainer
from mofa_model.errors import BadValue, MofaError, UnknownName

TRAINING_JOBS: Final = "/apis/mofa.dev/v1alpha1/trainingjobs"
APART: Final = "local.mofa.dev/trains-itself"
"""The annotation of a TrainingJob whose pods really run: the fake trainer leaves it alone."""
PROFILES: Final = "/apis/mofa.dev/v1alpha1/clusterprofiles"
NODES: Final = "/api/v1/nodes"
MEMORY: Final = 1.05
"""Device memory of a job over what the model predicts of it when it begins. [1]"""
FULLEST: Final = 0.98 * DEVICE
"""What an allocator can take of a device; a job that would need more holds so much. [B]"""
FOLLOW: Final = 3.0
"""Time between two looks at TrainingJobs. [s]"""


class Workload(Collector):
    """All trainers of a server."""

    def __init__(
        self, fraction: float = 1.0, speed: float = 1.0, clock: Callable[[], float] = time.time
    ) -> None:
        """`speed` makes steps of TrainingJobs so many times shorter, and smaller: tokens a second
        stay as they are.
        """
        self.clock = clock
        self._fraction = fraction
        self._speed = speed
        self._trainers: dict[str, Trainer] = {}
        self._gangs: dict[str, Gang] = {}
        self.truth: list[dict[str, Any]] = []
        """Every interruption that was injected: job, kind, at, seconds, redone steps, node."""
        self.loading: set[str] = set()
        """Jobs, named namespace/name, that load for ever once they begin: they are there, and make
        no first step.
        """
        self.unexported: set[str] = set()
        """Jobs, named namespace/name, whose device memory no exporter shows."""
        self._memory: dict[str, float] = {}
        self._followed: set[str] = set()
        self._lock = threading.Lock()

    def add(
        self,
        job: str,
        tokens_per_second: float,
        step_seconds: float,
        *,
        checkpoint_steps: int = 50,
        nodes: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """Begin to train a job, named namespace/name; one that trains already goes on. With nodes
        it has pods there.
        """
        namespace, _, name = job.partition("/")
        if job in self._trainers:
            return
        on = None if nodes is None else nodes()
        with self._lock:
            now = self.clock()
            if on is not None:
                self._gangs[job] = Gang(namespace, name, on, now)
            self._trainers[job] = Trainer(
                namespace=namespace,
                name=name,
                tokens_per_second=tokens_per_second,
                step_seconds=step_seconds,
                fraction=self._fraction,
                checkpoint_steps=checkpoint_steps,
                since=math.inf if job in self.loading else now,
                made=now,
            )

    def follow(
        self,
        training_jobs: Iterable[Mapping[str, Any]],
        nodes: Callable[[Mapping[str, Any]], Sequence[str]] = lambda _: (),
    ) -> None:
        """Train exactly the TrainingJobs that have a recommendation, beside the jobs that were
        added by name.

        `nodes` says which nodes a job may be on.
        """
        seen = set()
        for body in training_jobs:
            status = body.get("status", {})
            advised = status.get("recommendation", {})
            predicted = status.get("current", {}).get("predicted") or advised.get("predicted")
            if predicted:
                job = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
                taught, held = (
                    float(status.get("inputs", {}).get(name, 1))
                    for name in ("learned", "learnedMemory")
                )
                self.add(
                    job,
                    predicted["tokensPerSecond"]["target"] * taught,
                    predicted["stepMilliseconds"]["target"] / taught / 1000 / self._speed,
                    checkpoint_steps=max(1, advised.get("checkpointIntervalSteps", 50)),
                    nodes=partial(nodes, body),
                )
                if "memoryBytes" in predicted and job not in self.unexported:
                    would = MEMORY * predicted["memoryBytes"]["target"] / held
                    self._memory.setdefault(job, min(would, FULLEST))
                seen.add(job)
        with self._lock:
            for gone in self._followed - seen:
                self._trainers.pop(gone, None)
                self._gangs.pop(gone, None)
                self._memory.pop(gone, None)
        self._followed = seen

    def interrupt(self, job: str, kind: str, seconds: float) -> None:
        """Let a job stand still for a while."""
        with self._lock:
            meant = next((name for name in KINDS if name == kind), None)
            if meant is None:
                raise UnknownName("kind", kind, KINDS)
            self._trainer(job).interrupt(self.clock(), meant, seconds)

    def inject(self, job: str, kind: str, seconds: float) -> str:
        """Interrupt a job as a cluster does: its pods show it, and it goes on from its last
        checkpoint; the node it happens to.
        """
        with self._lock:
            trainer, now = self._trainer(job), self.clock()
            if job not in self._gangs:
                raise BadValue("job", job, "name a TrainingJob; the others have no pods here")
            node = self._gangs[job].interrupt(kind, now)
            redone = trainer.interrupt(now, "restart", seconds)
            event = {"job": job, "kind": kind, "at": now, "seconds": seconds, "node": node}
            self.truth.append(event | {"redone": redone, "step_seconds": trainer.real_step_seconds})
            return node

    def pace(self, job: str, fraction: float) -> None:
        """Train a job at another fraction of its full rate."""
        with self._lock:
            self._trainer(job).pace(self.clock(), fraction)

    def fill(self, job: str, memory: float) -> None:
        """Let the devices of a job hold so much from now on. [B]"""
        with self._lock:
            self._memory[job] = memory

    @property
    def jobs(self) -> frozenset[str]:
        """Jobs that are trained, named namespace/name."""
        with self._lock:
            return frozenset(self._trainers)

    def tokens_per_second(self, job: str) -> float:
        """How fast a job really trains. [1/s]"""
        with self._lock:
            return self._trainer(job).real_tokens_per_second

    def collect(self) -> Iterable[Metric]:
        """The trainer series; what is not known while a job stands still is left out."""
        gauges = (
            "start_timestamp_seconds",
            "step",
            "checkpoint_step",
            "step_seconds",
            "tokens_per_second",
        )
        families = {
            name: Metric(f"mofa_train_{name}", "As mofa observe has it.", "gauge")
            for name in gauges
        }
        restarts = Metric(
            "mofa_train_restarts", "Times that training fell back to a checkpoint.", "counter"
        )
        with self._lock:
            now = self.clock()
            for trainer in self._trainers.values():
                labels = {
                    "namespace": trainer.namespace,  # as the scrape of each one's own pod would say
                    "training_namespace": trainer.namespace,
                    "training_job": trainer.name,
                }
                values = {"start_timestamp_seconds": trainer.made}
                if math.isfinite(trainer.since):
                    values |= {
                        "step": float(trainer.step(now)),
                        "checkpoint_step": float(trainer.checkpoint(now)),
                    }
                if trainer.running(now):
                    values["step_seconds"] = trainer.real_step_seconds
                    values["tokens_per_second"] = trainer.real_tokens_per_second
                for name, value in values.items():
                    families[name].add_sample(f"mofa_train_{name}", labels, value)
                restarts.add_sample("mofa_train_restarts_total", labels, trainer.restarts)
            pods = Families()
            for job, gang in self._gangs.items():
                for body in gang.bodies(now):
                    pod_series(pods, body)
                    if (
                        job in self._memory and body["status"]["phase"] == "Running"
                    ):  # as DCGM's exporter has it
                        whose = {
                            "namespace": gang.namespace,
                            "pod": body["metadata"]["name"],
                            "gpu": "0",
                        }
                        pods.add("DCGM_FI_DEV_FB_USED", whose, self._memory[job] / 2**20)
        return [*families.values(), restarts, *pods]

    def _trainer(self, job: str) -> Trainer:
        if job not in self._trainers:
            raise UnknownName("job", job, self._trainers)
        return self._trainers[job]


def serve(workload: Workload, port: int) -> ThreadingHTTPServer:
    """A server of /metrics that takes POST /interrupt, /inject and /pace; it runs in threads until
    it is shut down.
    """
    registry = CollectorRegistry()
    registry.register(workload)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(200, generate_latest(registry)) if self.path == "/metrics" else self._say(
                404, b""
            )

        def do_POST(self) -> None:
            actions: dict[str, Callable[..., str | None]] = {
                "/interrupt": workload.interrupt,
                "/inject": workload.inject,
                "/pace": workload.pace,
            }
            try:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = actions[self.path](**asked) or ""
            except (KeyError, TypeError, ValueError, MofaError) as error:
                self._say(400, str(error).encode())
            else:
                self._say(200, answer.encode())

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: each scrape would be a line."""

    server = ThreadingHTTPServer((HOST, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def ask(url: str, action: str, **what: object) -> str:
    """Send a command to a server of fake trainers; the result is its answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/{action}", data=json.dumps(what).encode(), timeout=10) as answer:
            text: bytes = answer.read()
            return text.decode()
    except urllib.error.HTTPError as error:
        with error:
            raise LocalStackError(f"{action}: {error.read().decode()}") from error
    except OSError as error:
        raise LocalStackError(
            f"{url}: no fake trainer answers ({error}); `make up` starts one"
        ) from error


def nodes_of(client: Client, training_job: Mapping[str, Any]) -> list[str]:
    """Names of the nodes of a TrainingJob's profile."""
    wanted = training_job["spec"]["cluster"]["profile"]
    profiles = (
        profile for profile in client.items(PROFILES) or () if profile["metadata"]["name"] == wanted
    )
    selector: Mapping[str, str] = next(
        (profile["spec"].get("nodeSelector", {}) for profile in profiles), {}
    )
    return sorted(
        node["metadata"]["name"]
        for node in client.items(NODES) or ()
        if selector.items() <= (node["metadata"].get("labels") or {}).items()
    )


def _run(arguments: argparse.Namespace) -> None:
    workload = Workload(arguments.fraction, arguments.speed)
    for given in arguments.job:
        job, tokens, seconds = given.split(":")
        workload.add(job, float(tokens), float(seconds))
    client = None if arguments.kubeconfig is None else Client(arguments.kubeconfig)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server = serve(workload, arguments.port)
    while not stop.wait(FOLLOW):
        if client is not None:
            with contextlib.suppress(LocalStackError):  # the API server is away: training goes on
                every = client.items(TRAINING_JOBS) or []
                faked = [
                    job_body
                    for job_body in every
                    if APART not in (job_body["metadata"].get("annotations") or {})
                ]
                workload.follow(faked, partial(nodes_of, client))
    server.shutdown()


def main(words: list[str] | None = None) -> int:
    """Run the verb of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m mofa_local.workload",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    serving = verbs.add_parser("serve", help="train, and export how it goes")
    serving.add_argument("--port", type=int, required=True)
    serving.add_argument("--kubeconfig", type=Path, help="train this cluster's TrainingJobs too")
    serving.add_argument(
        "--job",
        action="append",
        default=[],
        metavar="NAMESPACE/NAME:TOKENS_PER_SECOND:STEP_SECONDS",
    )
    serving.add_argument("--fraction", type=float, default=1.0, help="of the full rate")
    serving.add_argument(
        "--speed", type=float, default=1.0, help="shorter, smaller steps of TrainingJobs"
    )
    interrupting = verbs.add_parser("interrupt", help="stop a job for a while")
    pacing = verbs.add_parser("pace", help="train a job at another fraction of its full rate")
    for verb in (interrupting, pacing):
        verb.add_argument("job", metavar="NAMESPACE/NAME")
        verb.add_argument(
            "--url", default=os.environ.get("TRAINER_URL"), help="default: $TRAINER_URL"
        )
    interrupting.add_argument("--kind", choices=KINDS, default="restart")
    interrupting.add_argument("--seconds", type=float, default=120.0)
    pacing.add_argument("--fraction", type=float, required=True)
    arguments = parser.parse_args(words)
    if arguments.verb == "serve":
        _run(arguments)
        return 0
    if not arguments.url:
        parser.error("no --url, and TRAINER_URL is not set: `. .cache/up/env` sets it")
    what = (
        {"kind": arguments.kind, "seconds": arguments.seconds}
        if arguments.verb == "interrupt"
        else {}
    )
    what |= {"fraction": arguments.fraction} if arguments.verb == "pace" else {}
    try:
        ask(arguments.url, arguments.verb, job=arguments.job, **what)
    except LocalStackError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
