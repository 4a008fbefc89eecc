"""Fake trainers: they export the series that `mofa observe` would read from trainers' logs, and can be disturbed.

    python -m mofa_local.workload serve --port 9400 --kubeconfig FILE --job research/pretrain-13b:1.2e6:4.0
    python -m mofa_local.workload interrupt research/pretrain-13b --kind restart --seconds 120
    python -m mofa_local.workload pace default/llama3-405b --fraction 0.8

With a kubeconfig every TrainingJob that has a recommendation is trained as well, at the given fraction of what is predicted.
`interrupt` and `pace` ask the server at --url, by default at $TRAINER_URL, which `make up` writes into .cache/up/env.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from mofa_local import LocalStackError
from mofa_local.ports import HOST
from mofa_local.reader import Reader
from mofa_local.trainer import KINDS, Trainer
from mofa_model.errors import MofaError, UnknownName

TRAINING_JOBS: Final = "/apis/mofa.dev/v1alpha1/trainingjobs"
FOLLOW: Final = 3.0
"""Time between two looks at TrainingJobs. [s]"""


class Workload(Collector):
    """All trainers of a server."""

    def __init__(
        self, fraction: float = 1.0, speed: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`speed` makes steps of TrainingJobs so many times shorter, and smaller: tokens a second stay as they are."""
        self.clock = clock
        self._fraction = fraction
        self._speed = speed
        self._trainers: dict[str, Trainer] = {}
        self._followed: set[str] = set()
        self._lock = threading.Lock()

    def add(self, job: str, tokens_per_second: float, step_seconds: float) -> None:
        """Begin to train a job, named namespace/name; one that trains already goes on."""
        namespace, _, name = job.partition("/")
        with self._lock:
            self._trainers.setdefault(
                job,
                Trainer(
                    namespace=namespace,
                    name=name,
                    tokens_per_second=tokens_per_second,
                    step_seconds=step_seconds,
                    fraction=self._fraction,
                    since=self.clock(),
                ),
            )

    def follow(self, training_jobs: Iterable[Mapping[str, Any]]) -> None:
        """Train exactly the TrainingJobs that have a recommendation, beside the jobs that were added by name."""
        seen = set()
        for body in training_jobs:
            predicted = body.get("status", {}).get("recommendation", {}).get("predicted")
            if predicted:
                job = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
                seconds = predicted["stepMilliseconds"]["target"] / 1000 / self._speed
                self.add(job, float(predicted["tokensPerSecond"]["target"]), seconds)
                seen.add(job)
        with self._lock:
            for gone in self._followed - seen:
                self._trainers.pop(gone, None)
        self._followed = seen

    def interrupt(self, job: str, kind: str, seconds: float) -> None:
        """Stop a job for a while."""
        with self._lock:
            known = next((one for one in KINDS if one == kind), None)
            if known is None:
                raise UnknownName("kind", kind, KINDS)
            self._trainer(job).interrupt(self.clock(), known, seconds)

    def pace(self, job: str, fraction: float) -> None:
        """Train a job at another fraction of its full rate."""
        with self._lock:
            self._trainer(job).pace(self.clock(), fraction)

    def collect(self) -> Iterable[Metric]:
        """The trainer series; what is not known while a job stands still is left out."""
        gauges = ("step", "checkpoint_step", "step_seconds", "tokens_per_second")
        families = {name: Metric(f"mofa_train_{name}", "As mofa observe has it.", "gauge") for name in gauges}
        restarts = Metric("mofa_train_restarts", "Times that training fell back to a checkpoint.", "counter")
        with self._lock:
            now = self.clock()
            for trainer in self._trainers.values():
                labels = {"training_namespace": trainer.namespace, "training_job": trainer.name}
                values = {"step": float(trainer.step(now)), "checkpoint_step": float(trainer.checkpoint(now))}
                if trainer.running(now):
                    values["step_seconds"] = trainer.real_step_seconds
                    values["tokens_per_second"] = trainer.real_tokens_per_second
                for name, value in values.items():
                    families[name].add_sample(f"mofa_train_{name}", labels, value)
                restarts.add_sample("mofa_train_restarts_total", labels, trainer.restarts)
        return [*families.values(), restarts]

    def _trainer(self, job: str) -> Trainer:
        if job not in self._trainers:
            raise UnknownName("job", job, self._trainers)
        return self._trainers[job]


def serve(workload: Workload, port: int) -> ThreadingHTTPServer:
    """A server of /metrics that takes POST /interrupt and /pace; it runs in threads until it is shut down."""
    registry = CollectorRegistry()
    registry.register(workload)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(200, generate_latest(registry)) if self.path == "/metrics" else self._say(404, b"")

        def do_POST(self) -> None:
            actions: dict[str, Callable[..., None]] = {
                "/interrupt": workload.interrupt,
                "/pace": workload.pace,
            }
            try:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                actions[self.path](**asked)
            except (KeyError, TypeError, ValueError, MofaError) as error:
                self._say(400, str(error).encode())
            else:
                self._say(200, b"")

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing of every scrape."""

    server = ThreadingHTTPServer((HOST, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def ask(url: str, action: str, **what: object) -> None:
    """Tell a server of fake trainers what to do."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(f"{url}/{action}", data=json.dumps(what).encode(), timeout=10).close()
    except urllib.error.HTTPError as error:
        with error:
            raise LocalStackError(f"{action}: {error.read().decode()}") from error
    except OSError as error:
        raise LocalStackError(f"{url}: no fake trainer answers ({error}); `make up` starts one") from error


def _run(arguments: argparse.Namespace) -> None:
    workload = Workload(arguments.fraction, arguments.speed)
    for given in arguments.job:
        job, tokens, seconds = given.split(":")
        workload.add(job, float(tokens), float(seconds))
    reader = None if arguments.kubeconfig is None else Reader(arguments.kubeconfig)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server = serve(workload, arguments.port)
    while not stop.wait(FOLLOW):
        if reader is not None:
            with contextlib.suppress(LocalStackError):  # the API server is away: training goes on
                workload.follow(reader.items(TRAINING_JOBS) or [])
    server.shutdown()


def main(words: list[str] | None = None) -> int:
    """What the command line says."""
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
        "--job", action="append", default=[], metavar="NAMESPACE/NAME:TOKENS_PER_SECOND:STEP_SECONDS"
    )
    serving.add_argument("--fraction", type=float, default=1.0, help="of the full rate")
    serving.add_argument("--speed", type=float, default=1.0, help="shorter, smaller steps of TrainingJobs")
    interrupting = verbs.add_parser("interrupt", help="stop a job for a while")
    pacing = verbs.add_parser("pace", help="train a job at another fraction of its full rate")
    for one in (interrupting, pacing):
        one.add_argument("job", metavar="NAMESPACE/NAME")
        one.add_argument("--url", default=os.environ.get("TRAINER_URL"), help="default: $TRAINER_URL")
    interrupting.add_argument("--kind", choices=KINDS, default="restart")
    interrupting.add_argument("--seconds", type=float, default=120.0)
    pacing.add_argument("--fraction", type=float, required=True)
    arguments = parser.parse_args(words)
    if arguments.verb == "serve":
        _run(arguments)
        return 0
    if not arguments.url:
        parser.error("no --url, and TRAINER_URL is not set: `. .cache/up/env` sets it")
    what = {"kind": arguments.kind, "seconds": arguments.seconds} if arguments.verb == "interrupt" else {}
    what |= {"fraction": arguments.fraction} if arguments.verb == "pace" else {}
    try:
        ask(arguments.url, arguments.verb, job=arguments.job, **what)
    except LocalStackError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
