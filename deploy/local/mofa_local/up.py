"""The whole stack for a person: what `make up` starts, `make down` stops, and what is there in between.

Everything lies in `.cache/up`: `run/` has a pid file and a log for each process, `kubeconfig` and `env` are for the person,
`state.json` is written last and says that everything was ready. `down` stops what the pid files name, so it also clears what a
broken `up` left behind.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mofa_local import LocalStackError, binaries, nodes, sample
from mofa_local.cluster import Cluster, KubectlFailed
from mofa_local.control_plane import ControlPlane
from mofa_local.identities import write_private
from mofa_local.ports import HOST, free_ports
from mofa_local.processes import Processes, answers, running_recorded, stop_recorded
from mofa_local.prometheus import Prometheus, Scrape
from mofa_local.series import EXPORTER
from mofa_local.synthetic import node_names

ROOT: Final = Path(__file__).resolve().parents[3]
"""The repository."""
TOOLS: Final = (
    "etcd",
    "kube-apiserver",
    "kubectl",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "prometheus",
    "promtool",
)
"""What is built before anything is started."""
NAMESPACE: Final = "research"
"""Where the sample jobs run."""
ACCOUNT: Final = "mofa-system/mofa-advisor"
"""The operator's ServiceAccount."""
LEARNED: Final = 90.0
"""Longest wait for the operator's first look at the history. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleJob:
    """A batch/v1 Job whose pods are scheduled onto fake nodes, and what its fake trainer reaches."""

    name: str
    """Its name."""
    pods: int
    """Its pods, eight GPUs each. [1]"""
    tokens_per_second: float
    """Tokens of the whole job. [1/s]"""
    step_seconds: float
    """Time of a step. [s]"""


SAMPLES: Final = (
    SampleJob(name="pretrain-13b", pods=16, tokens_per_second=1.25e6, step_seconds=3.36),
    SampleJob(name="finetune-8b", pods=4, tokens_per_second=4.6e5, step_seconds=2.28),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How much of it."""

    nodes: int = 256
    """Fake nodes. [1]"""
    days: int = 120
    """Days of history. [d]"""
    jobs: tuple[SampleJob, ...] = field(default=SAMPLES)
    """Sample jobs."""


def up(folder: Path, size: Size | None = None, *, say: Callable[[str], None] = print) -> None:
    """Start everything and return when it is ready; nothing is started twice, and nothing is left after a failure."""
    size = size or Size()
    folder = folder.resolve()
    if is_up(folder):
        say(f"up: is up already\n{hints(folder)}")
        return
    if stopped := clear(folder):
        say(f"up: stopped what an unfinished start had left: {', '.join(stopped)}")
    begin = time.monotonic()

    def progress(text: str) -> None:
        say(f"up: {time.monotonic() - begin:5.1f} s  {text}")

    for name in TOOLS:
        binaries.path(name)
    progress("the programs are there")
    with Processes(folder / "run", outlive=True) as processes, ThreadPoolExecutor(1) as aside:
        history = aside.submit(
            sample.install, folder / "prometheus" / "data", nodes=size.nodes, days=size.days
        )
        urls = _start(folder, size, processes, history, progress)
        lines = "".join(f"export {name}={text}\n" for name, text in urls.items())
        write_private(folder / "env", lines)
        write_private(folder / "state.json", json.dumps(urls, indent=2) + "\n")
    progress("ready")
    say(hints(folder))


def is_up(folder: Path) -> bool:
    """Whether everything that was started still runs."""
    if not (folder / "state.json").exists():
        return False
    started = {log.stem for log in (folder / "run").glob("*.log")}
    return set(running_recorded(folder / "run")) == started


def clear(folder: Path) -> list[str]:
    """Stop what was started there and remove the folder; the names of what was running."""
    stopped = stop_recorded(folder / "run") if (folder / "run").is_dir() else []
    shutil.rmtree(folder, ignore_errors=True)
    return stopped


def hints(folder: Path) -> str:
    """Where everything is, and what to try."""
    env = _shown(folder / "env")
    lines = (folder / "env").read_text(encoding="utf-8").splitlines()
    tries = (
        (f". {env}", "kubectl and curl below mean this cluster"),
        ("kubectl apply -f examples/llama3-405b.yaml", "ask for advice"),
        ("kubectl get tjob", "the advice in one line; -o yaml for all of it"),
        ("kubectl get cprof", "what the pool's history says of the assumptions"),
        ("kubectl -n research get pods -o wide", "sample jobs on fake nodes"),
        ("curl -s $ADVISOR_URL/metrics", "predicted and observed, for Prometheus"),
        ("make down", "stop all of it"),
    )
    kubectl = "" if shutil.which("kubectl") else f"\nNo kubectl on PATH: {binaries.find('kubectl')} is one."
    return "\n".join([*lines, "", "Try:", *(f"  {command:<45}{what}" for command, what in tries)]) + kubectl


def status(folder: Path) -> str:
    """What runs, and how much memory it takes."""
    running = running_recorded(folder / "run") if (folder / "run").is_dir() else {}
    if not running:
        return "nothing runs; `make up` starts the stack"
    sizes = {name: _memory(pid) for name, pid in running.items()}
    table = [f"  {name:<26}{pid:>8}{sizes[name]:>8.0f} MB" for name, pid in running.items()]
    state = "up" if is_up(folder) else "not all of it is up; `make down` stops the rest"
    return "\n".join([f"{state}, {sum(sizes.values()):.0f} MB together", *table])


# ------------------------------------------------------------------------------------------------- the parts


def _start(
    folder: Path, size: Size, processes: Processes, history: Future[Any], progress: Callable[[str], None]
) -> Mapping[str, str]:
    exporter, trainer, metrics, health = free_ports(4)
    plane = ControlPlane(folder / "plane", processes, controllers=True)
    plane.start()
    cluster = Cluster(plane.kubeconfig, folder / "plane")
    kubeconfig = write_private(folder / "kubeconfig", plane.kubeconfig.read_text(encoding="utf-8"))
    cluster.install(ROOT / "crds", ROOT / "deploy" / "manifests")
    progress("the control plane answers, and knows our kinds")

    nodes.start_kwok(processes, plane.kubeconfig)
    nodes.create(cluster, [nodes.node(name) for name in node_names(size.nodes)])
    _wait("ready nodes", lambda: len(nodes.ready_nodes(cluster)) == size.nodes)
    cluster.apply(*_sample_objects(size))
    progress(f"{size.nodes} fake nodes are ready, the sample jobs are on their way")

    _start_exporters(cluster, size, processes, exporter, trainer)
    history.result()
    server = Prometheus(
        processes,
        folder / "prometheus",
        scrape=[
            Scrape(job=EXPORTER["job"], instance=EXPORTER["instance"], target=f"{HOST}:{exporter}"),
            Scrape(job="trainer", instance="trainer:9400", target=f"{HOST}:{trainer}"),
            Scrape(job="mofa-advisor", instance="mofa-advisor:8080", target=f"{HOST}:{metrics}"),
        ],
        rules=sorted((ROOT / "deploy" / "rules").glob("*.rules.yaml")),
    )
    server.start()
    _wait("live series", lambda: server.ask("count(kube_node_info)")[:1] == [({}, float(size.nodes))])
    progress(f"Prometheus has {size.days} days of history and scrapes the cluster")

    _start_operator(cluster, processes, server.url, metrics, health)
    progress("the operator is ready")
    _wait("pods", lambda: _pods_running(cluster) == sum(job.pods for job in size.jobs))
    learned = _learned(cluster)
    progress("the operator has read the history" if learned else "the operator still reads the history")
    return {
        "KUBECONFIG": str(kubeconfig),
        "PROMETHEUS_URL": server.url,
        "ADVISOR_URL": f"http://{HOST}:{metrics}",
        "TRAINER_URL": f"http://{HOST}:{trainer}",
    }


def _sample_objects(size: Size) -> list[dict[str, Any]]:
    from ruamel.yaml import YAML

    profile = YAML(typ="safe").load(ROOT / "examples" / "h100-east.yaml")
    del profile["status"]  # the operator learns it
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return [profile, namespace, *(_batch_job(job) for job in size.jobs)]


def _batch_job(job: SampleJob) -> dict[str, Any]:
    container = {
        "name": "trainer",
        "image": "registry.example/trainer:1",
        "resources": {"limits": {"nvidia.com/gpu": 8}},
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"nvidia.com/gpu.product": nodes.PRODUCT},
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job.name, "namespace": NAMESPACE},
        "spec": {
            "parallelism": job.pods,
            "completions": job.pods,
            "completionMode": "Indexed",
            "backoffLimit": 1000,
            "template": {"spec": pod},
        },
    }


def _start_exporters(cluster: Cluster, size: Size, processes: Processes, exporter: int, trainer: int) -> None:
    read = ["get", "list"]
    rules = [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": read},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": read},
        {"apiGroups": ["mofa.dev"], "resources": ["trainingjobs"], "verbs": read},
    ]
    identity = str(cluster.identity("local-reader", rules, namespace="kube-system"))
    jobs = [f"--job={NAMESPACE}/{job.name}:{job.tokens_per_second}:{job.step_seconds}" for job in size.jobs]
    serving = ["serve", "--fraction=0.96", *jobs]
    for name, module, port, more in (
        ("exporter", "mofa_local.exporter", exporter, []),
        ("trainer", "mofa_local.workload", trainer, serving),
    ):
        processes.start(
            name,
            [sys.executable, "-m", module, *more, f"--kubeconfig={identity}", f"--port={port}"],
            environment={"PYTHONPATH": str(Path(__file__).parent.parent)},
            ready=answers(f"http://{HOST}:{port}/metrics"),
        )


def _start_operator(
    cluster: Cluster, processes: Processes, prometheus: str, metrics: int, health: int
) -> None:
    identity = cluster.identity("operator", service_account=ACCOUNT)
    processes.start(
        "operator",
        [
            Path(sys.executable).with_name("mofa"),
            "operator",
            f"--kubeconfig={identity}",
            f"--prometheus-url={prometheus}",
            f"--address={HOST}",
            f"--metrics-port={metrics}",
            f"--health-port={health}",
        ],
        ready=answers(f"http://{HOST}:{health}/readyz"),
    )


# ---------------------------------------------------------------------------------------------------- waiting


def _wait(what: str, there: Callable[[], bool], deadline: float = 90.0) -> None:
    end = time.monotonic() + deadline
    while not there():
        if time.monotonic() > end:
            raise LocalStackError(f"{what}: not there after {deadline:.0f} s; the logs are in .cache/up/run")
        time.sleep(0.25)


def _pods_running(cluster: Cluster) -> int:
    listed = cluster.kubectl(
        "get", "pods", "-n", NAMESPACE, "--field-selector=status.phase=Running", "-o", "name"
    )
    return len(listed.split())


def _learned(cluster: Cluster) -> bool:
    """Wait until the profile holds failures of the history; False where the operator is not that far in time."""
    end = time.monotonic() + LEARNED
    while time.monotonic() < end:
        try:
            if cluster.kubectl("get", "cprof", "h100-east", "-o", "jsonpath={.status.failures[*].failures}"):
                return True
        except KubectlFailed:  # a busy moment; asked again
            pass
        time.sleep(1)
    return False


def _memory(pid: int) -> float:
    """Resident memory of a process group's leader and children. [MB]"""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == pid:
            total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return total / 1e6


def _shown(path: Path) -> str:
    """A path as short as it can be typed."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
