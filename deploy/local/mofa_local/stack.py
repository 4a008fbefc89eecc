"""The parts of `make up`, and how each is started once what it needs is there."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from mofa_local import LocalStackError, binaries, neighbourhood, nodes, sample
from mofa_local.cluster import Cluster, KubectlFailed
from mofa_local.control_plane import ControlPlane
from mofa_local.identities import bound, write_private
from mofa_local.neighbours import chosen
from mofa_local.ports import HOST, free_ports
from mofa_local.processes import Processes, answers, is_late
from mofa_local.prometheus import Prometheus, Scrape
from mofa_local.real import supply
from mofa_local.real.machine import missing as lacking
from mofa_local.real.node import TOOLS as OF_A_NODE
from mofa_local.real.node import RealNode
from mofa_local.series import EXPORTER, TRAINER
from mofa_local.synthetic import node_names

ROOT: Final = Path(__file__).resolve().parents[3]
"""Root of the repository."""
TOOLS: Final = (
    "etcd",
    "kube-apiserver",
    "kubectl",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "prometheus",
)
"""Programs that are built before anything is started."""
NAMESPACE: Final = "research"
"""Namespace of the sample jobs."""
ADVISOR: Final = {"job": "mofa-advisor", "instance": "mofa-advisor:8080"}
"""Scrape labels of the operator's own series."""
ACCOUNT: Final = "mofa-system/mofa-advisor"
"""The operator's ServiceAccount."""
GPUS: Final = 2
"""GPUs that a real node advertises to the scheduler, with no device behind them. [1]"""
TOY: Final = Scrape(
    job="toy", target="toy-trainer.default.svc.cluster.local:9400", labels={"namespace": "default"}
)
"""Where the small trainer of deploy/local/toy is seen, by the name that it has in the cluster."""
STATES: Final = "kube-state-metrics"
"""The neighbour that shows nodes and pods as they are now; the history has its series
without it.
"""
CHECKS: Final = (
    {
        "apiGroups": ["kueue.x-k8s.io"],
        "resources": ["admissionchecks"],
        "verbs": ["get", "list", "watch"],
    },
    {
        "apiGroups": ["kueue.x-k8s.io"],
        "resources": ["admissionchecks/status", "workloads/status"],
        "verbs": ["patch"],
    },
)
"""What the operator may do beside Kueue, as the chart's value operator.admissionChecks has it."""
LEARNED: Final = 900.0
"""Longest wait for the operator's first look at the history; a quiet machine needs half a
minute. [s]
"""
_FEW: Final = 5
"""Minutes of a build up to which a busy machine takes three times as long; all of it took half an
hour. [1]
"""
_READ: Final = ("Complete", "NoFailuresSeen", "HistoryIncomplete")
"""Reasons of HistoryComplete where Prometheus was read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleJob:
    """A batch/v1 Job whose pods are scheduled onto fake nodes, and what its fake
    trainer reaches.
    """

    name: str
    """Its name."""
    pods: int
    """Its pods, eight GPUs each. [1]"""
    tokens_per_second: float
    """Tokens of the whole job. [1/s]"""
    step_seconds: float
    """Time of a step. [s]"""


SAMPLES: Final = (
    SampleJob(name="pretrain-13b", pods=16, tokens_per_second=2.3e5, step_seconds=18.2),
    SampleJob(name="finetune-8b", pods=4, tokens_per_second=9.4e4, step_seconds=11.2),
)
"""They reach 45 % of what their A100s can do, on nodes of their own: the pool h100-east is free
for TrainingJobs.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How large the stack is."""

    nodes: int = 256
    """Fake nodes. [1]"""
    days: int = 120
    """Days of history. [d]"""
    jobs: tuple[SampleJob, ...] = SAMPLES
    """Sample jobs."""
    speed: float = 1.0
    """How many times shorter, and smaller, the steps of trained TrainingJobs are. [1]"""
    flags: tuple[str, ...] = ()
    """Further flags of the operator."""
    beside: tuple[str, ...] = ()
    """Neighbours: real controllers of other projects."""
    real: bool = False
    """Whether a real node stands beside the fake ones, whose pods run."""

    @property
    def others(self) -> int:
        """Nodes of the sample jobs, which are not in the pool. [1]"""
        return sum(job.pods for job in self.jobs)


def start(
    folder: Path, size: Size, processes: Processes, progress: Callable[[str], None]
) -> Mapping[str, str]:
    """Start everything and wait until it is ready; variables that tell a person where it is."""
    if size.real and (why := lacking()):
        raise LocalStackError(why)
    tools = (*TOOLS, *(OF_A_NODE if size.real else ()))
    programs = (*tools, *(neighbour.tool.name for neighbour in chosen(size.beside)))
    if notice := first_build(programs):
        progress(notice)
    binaries.paths(programs)
    progress("the programs are there")
    with ThreadPoolExecutor(1) as aside:  # the history is written while the control plane starts
        history = aside.submit(
            sample.install, folder / "prometheus" / "data", nodes=size.nodes, days=size.days
        )
        cluster = _start_cluster(folder / "plane", size, processes, progress)
        history.result()
    node = _start_real_node(folder, cluster, processes, progress) if size.real else None
    beside = neighbourhood.start(cluster, processes, *size.beside)
    if beside:
        progress(f"{', '.join(beside)} run beside it")
    exporter = beside[STATES].port if STATES in beside else None
    trainer, agents, metrics, health = free_ports(4)
    _start_exporters(cluster, size, processes, trainer, agents)
    toy = [] if node is None else [replace(TOY, proxy=node.proxy)]
    server = _start_prometheus(
        folder / "prometheus", processes, exporter, trainer, agents, metrics, toy
    )
    if exporter is not None:
        there = float(size.nodes + size.others + size.real)
        _wait("live series", lambda: server.ask("count(kube_node_info)")[:1] == [({}, there)])
    progress(f"Prometheus has {size.days} days of history, and scrapes the cluster")
    flags = (*_checks(cluster, size), *size.flags)
    _start_operator(cluster, processes, server.url, metrics, health, flags)
    progress("the operator is at work, and reads the history")
    _wait("pods of the sample jobs", lambda: _pods_running(cluster) == size.others)
    _wait("the operator's first look at the history", lambda: _has_read(cluster), LEARNED)
    progress("the operator has read the history")
    kubeconfig = write_private(
        folder / "kubeconfig", cluster.kubeconfig.read_text(encoding="utf-8")
    )
    return {
        "KUBECONFIG": str(kubeconfig),
        "PROMETHEUS_URL": server.url,
        "ADVISOR_URL": f"http://{HOST}:{metrics}",
        "TRAINER_URL": f"http://{HOST}:{trainer}",
    } | ({} if node is None else {"NODE_PROXY": node.proxy})


def _start_real_node(
    folder: Path, plane: ControlPlane, processes: Processes, progress: Callable[[str], None]
) -> RealNode:
    node = RealNode(plane, folder / "node", processes, gpus=GPUS)
    node.start()
    progress(f"{node.name} is ready: a real node, whose {GPUS} GPUs are a number and no devices")
    supply.load(node.containers)
    progress("its images are there")
    return node


def first_build(programs: Sequence[str]) -> str:
    """A line on what is built before the start, and how long that takes; empty where all is there.

    >>> first_build(())
    ''
    """
    missing = [binaries.tool(name) for name in programs if binaries.find(name) is None]
    if not missing:
        return ""
    minutes = max(1, round(sum(program.seconds for program in missing) / 60))
    busy = "half an hour" if minutes > _FEW else f"{3 * minutes} min"
    return (
        f"{len(missing)} programs are built once from pinned sources: about {minutes} min on two "
        f"quiet cores, up to {busy} where others work beside it "
        f"({', '.join(program.name for program in missing)})"
    )


def _start_cluster(
    folder: Path, size: Size, processes: Processes, progress: Callable[[str], None]
) -> ControlPlane:
    cluster = ControlPlane(folder, processes, controllers=True, real_nodes=size.real)
    cluster.start()
    cluster.install(ROOT / "crds", ROOT / "deploy" / "manifests")
    progress("the control plane answers, and knows our kinds")
    nodes.start_kwok(processes, cluster.kubeconfig)
    nodes.create(
        cluster,
        [
            *(nodes.node(name) for name in node_names(size.nodes)),
            *(nodes.node(name, product=nodes.OTHER) for name in node_names(size.others, "dev")),
        ],
    )
    _wait("ready nodes", lambda: len(nodes.ready_nodes(cluster)) == size.nodes + size.others)
    cluster.apply(*_sample_objects(size))
    progress(f"{size.nodes} fake nodes of the pool and {size.others} of sample jobs are ready")
    return cluster


def _start_prometheus(
    folder: Path,
    processes: Processes,
    exporter: int | None,
    trainer: int,
    agents: int,
    metrics: int,
    more: Sequence[Scrape],
) -> Prometheus:
    targets = ((EXPORTER, exporter), (TRAINER, trainer), (ADVISOR, metrics))
    scrape = [
        Scrape(job=labels["job"], instance=labels["instance"], target=f"{HOST}:{port}")
        for labels, port in targets
        if port is not None
    ]
    scrape.append(Scrape(job="node-agents", target=f"{HOST}:{agents}", honor=True))
    rules = _rules(folder / "rules", metrics)
    server = Prometheus(processes, folder, scrape=[*scrape, *more], rules=rules)
    server.start()
    return server


def _rules(folder: Path, metrics: int) -> list[Path]:
    """Our alerting rules; their runbook links open at this operator."""
    folder.mkdir(parents=True)
    written = []
    for path in sorted((ROOT / "deploy" / "rules").glob("mofa-*.yaml")):
        text = re.sub(
            r'(runbook_url: "http://)[^/"]+/', rf"\g<1>{HOST}:{metrics}/", path.read_text("utf-8")
        )
        written.append(folder / path.name)
        written[-1].write_text(text, encoding="utf-8")
    return written


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
        "nodeSelector": {"nvidia.com/gpu.product": nodes.OTHER},
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


def _start_exporters(
    cluster: Cluster, size: Size, processes: Processes, trainer: int, agents: int
) -> None:
    read = ["get", "list"]
    rules = [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": read},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": read},
        {
            "apiGroups": ["mofa.dev"],
            "resources": ["trainingjobs", "clusterprofiles"],
            "verbs": read,
        },
    ]
    identity = str(cluster.identity("local-reader", rules, namespace="kube-system"))
    jobs = [
        f"--job={NAMESPACE}/{job.name}:{job.tokens_per_second}:{job.step_seconds}"
        for job in size.jobs
    ]
    serving = ["serve", "--fraction=0.96", f"--speed={size.speed}", *jobs]
    for name, module, port, more in (
        ("trainer", "mofa_local.workload", trainer, serving),
        ("agents", "mofa_local.agents", agents, []),
    ):
        processes.start(
            name,
            [sys.executable, "-m", module, *more, f"--kubeconfig={identity}", f"--port={port}"],
            environment={"PYTHONPATH": str(Path(__file__).parent.parent)},
            ready=answers(f"http://{HOST}:{port}/metrics"),
        )


def _checks(cluster: Cluster, size: Size) -> tuple[str, ...]:
    """The operator's option to answer Kueue's AdmissionChecks, with the rights for it; nothing
    where the stack has no Kueue.
    """
    if "kueue" not in size.beside:
        return ()
    home, _, name = ACCOUNT.partition("/")
    cluster.apply(*bound("local-checks", home, name, CHECKS))
    return ("--admission-checks",)


def _start_operator(
    cluster: Cluster,
    processes: Processes,
    prometheus: str,
    metrics: int,
    health: int,
    flags: tuple[str, ...],
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
            "--page",
            *flags,
        ],
        ready=answers(f"http://{HOST}:{health}/readyz"),
    )


def _wait(what: str, there: Callable[[], bool], deadline: float = 300.0) -> None:
    began = time.monotonic()
    while not there():
        if is_late(began, deadline):
            waited = time.monotonic() - began
            raise LocalStackError(
                f"{what}: not there after {waited:.0f} s; the logs are in .cache/up/run"
            )
        time.sleep(0.25)


def _pods_running(cluster: Cluster) -> int:
    listed = cluster.kubectl(
        "get", "pods", "-n", NAMESPACE, "--field-selector=status.phase=Running", "-o", "name"
    )
    return len(listed.split())


def _has_read(cluster: Cluster) -> bool:
    """Whether the profile holds what Prometheus said of its past."""
    asked = (
        "{.status.conditions[?(@.type=='HistoryComplete')].reason} "
        "{.status.failures[*].exposureNodeDays}"
    )
    try:
        reason, *exposure = cluster.kubectl(
            "get", "cprof", "h100-east", "-o", f"jsonpath={asked}"
        ).split()
    except (KubectlFailed, ValueError):  # a busy moment, or nothing is said yet; asked again
        return False
    return reason in _READ and bool(exposure)
