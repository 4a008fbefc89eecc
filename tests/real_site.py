"""A cluster with a real node, the chart installed in it as people install it, and a Prometheus that
scrapes its pods.
"""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from advisor import read
from mofa_local import binaries, images, neighbourhood, nodes
from mofa_local.cluster import KubectlFailed
from mofa_local.control_plane import ControlPlane
from mofa_local.ports import HOST
from mofa_local.prometheus import Prometheus, Scrape
from mofa_local.real import supply
from mofa_local.real.machine import ADDRESS
from mofa_local.real.node import RealNode
from mofa_local.series import EXPORTER

ROOT = Path(__file__).resolve().parents[1]
TOY = ROOT / "deploy" / "local" / "toy"
HOME, RELEASE = "mofa-system", "mofa-advisor"
GPUS = 2
COLUMNS = r"NAME:.metadata.name,KUBELET:.status.nodeInfo.kubeletVersion,RUNTIME:.status.nodeInfo.containerRuntimeVersion,GPUS:.status.allocatable.nvidia\.com/gpu"


@dataclass
class Seen:
    """What a run has seen, in order: what becomes the page."""

    since: float = field(default_factory=time.time)
    lines: list = field(default_factory=list)

    def note(self, title, *texts):
        self.lines.append((time.time() - self.since, title, [str(text).rstrip() for text in texts]))
        lines = [
            f"{self.lines[-1][0]:6.1f} s  {title}",
            *(str(text).rstrip().replace("\n", "\n          ") for text in texts),
        ]
        sys.stdout.write("\n          ".join(lines) + "\n")
        sys.stdout.flush()


class RealSite:
    def __init__(self, folder, processes, *, gpus=GPUS):
        self.folder = folder
        self.seen = Seen()
        self.processes = processes
        self.cluster = ControlPlane(folder / "plane", processes, real_nodes=True)
        self.prometheus = Prometheus(processes, folder / "prometheus")
        self.node = RealNode(
            self.cluster,
            folder / "node",
            processes,
            gpus=gpus,
            inward={9090: f"{HOST}:{self.prometheus.port}"},
        )
        self.beside = {}
        self.marks = []
        self.page = ""
        self.image = ""

    def start(self, *neighbours):
        """Control plane, node, neighbours, images."""
        for name in ("helm", "prometheus", "kwok"):
            binaries.path(name)
        self.cluster.start()
        self.node.start()
        # Others stand beside it: where no node at all is ready, Kubernetes takes that for its own
        # fault and moves nothing.
        nodes.start_kwok(self.processes, self.cluster.kubeconfig)
        nodes.create(self.cluster, [nodes.node(f"fake-{number}", gpus=0) for number in range(3)])
        self.seen.note(
            "the node is ready",
            self.kubectl("get", "nodes", self.node.name, "-o", f"custom-columns={COLUMNS}"),
        )
        self.beside = neighbourhood.start(self.cluster, self.processes, *neighbours)
        self.load_advisor()
        return self

    def mark(self, what):
        """A moment of the run, for its picture."""
        self.marks.append((time.time(), what))

    def over_time(self, query, seconds):
        """A series of Prometheus over the last so many seconds, a value a second; nan where it
        has none.
        """
        end = time.time()
        form = {"query": query, "start": str(end - seconds), "end": str(end), "step": "1"}
        series = self.prometheus._post("/api/v1/query_range", form)["data"]["result"]
        return [(float(at), float(value)) for line in series for at, value in line["values"]]

    def stop(self):
        self.node.stop()
        self.prometheus.stop()
        self.processes.stop_all()

    def kubectl(self, *words):
        return self.cluster.kubectl(*words)

    def read(self, kind, name, namespace="default"):
        return read(self, kind, namespace, name)

    def load_advisor(self):
        """The image of this tree, as `docker build` would make it."""
        begun = time.time()
        self.image = supply.load_advisor(self.node.containers, ROOT)
        self.seen.note(
            f"the image is built from the tree ({images.size(self.image) / 1e6:.0f} MB) and on the node after {time.time() - begun:.0f} s"
        )

    def load_torch(self):
        begun = time.time()
        supply.load_torch(self.node.containers)
        self.seen.note(f"{supply.TORCH} is on the node after {time.time() - begun:.0f} s")

    def helm(self, *words):
        command = [
            binaries.path("helm"),
            *words,
            f"--kubeconfig={self.cluster.kubeconfig}",
            f"--namespace={HOME}",
        ]
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, *sets, chart=ROOT / "charts" / "mofa-advisor", image=""):
        """A chart by helm, into a namespace that refuses all that is not restricted; without an
        image, with this tree's.
        """
        space = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": HOME,
                "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
            },
        }
        self.cluster.apply(space)
        repository, _, tag = (image or self.image).rpartition(":")
        values = [
            f"image.repository={repository}",
            f"image.tag={tag}",
            r"nodeSelector.local\.mofa\.dev/node=real",
            "image.pullPolicy=Never",
            f"prometheus.url=http://{ADDRESS}:9090",
            *sets,
        ]
        return self.helm(
            "install",
            RELEASE,
            str(chart),
            *(f"--set={value}" for value in values),
        )

    def operator(self):
        """The operator's pod, once there is one."""
        pods = read(self, "pods", HOME)
        operators = [
            pod
            for pod in pods
            if pod["metadata"]["name"].startswith(RELEASE)
            and not pod["metadata"]["name"].endswith("-ready")
        ]
        return operators[0] if operators else None

    def scrape(self):
        """Have Prometheus scrape what runs: the exporter here, the operator's Service and the job's
        in the cluster.
        """

        def service(name, namespace, port):
            return f"{name}.{namespace}.svc.cluster.local:{port}"

        ksm = self.beside["kube-state-metrics"].port
        scrapes = [
            Scrape(
                job="kube-state-metrics",
                target=f"{HOST}:{ksm}",
                instance=EXPORTER["instance"],
                interval="2s",
                honor=True,
            ),
            Scrape(
                job="mofa-advisor",
                target=service(RELEASE, HOME, 8080),
                proxy=self.node.proxy,
                interval="2s",
            ),
            Scrape(
                job="trainer",
                target=service("toy-trainer", "default", 9400),
                labels={"namespace": "default"},
                proxy=self.node.proxy,
                interval="2s",
            ),
        ]
        self.prometheus.configure(scrapes, sorted((ROOT / "deploy" / "rules").glob("mofa-*.yaml")))
        self.prometheus.start()

    def cgroup(self, pod, container):
        """Figures of a container's cgroup, from the kernel. [B] or [s]"""
        status = next(status_of for status_of in _statuses(pod) if status_of["name"] == container)
        identifier = status["containerID"].rpartition("/")[2]
        values = {}
        for file in (
            "memory.max_usage_in_bytes",
            "memory.usage_in_bytes",
            "memory.limit_in_bytes",
            "memory.failcnt",
            "memory.peak",
            "memory.current",
            "memory.max",
            "cpuacct.usage",
        ):
            for path in Path("/sys/fs/cgroup").glob(
                f"*/{self.node.machine.cgroup}/**/{identifier}/{file}"
            ):
                values[file] = path.read_text().strip()
        return values

    def commands(self, word):
        """Command lines of what runs in pods here and has a word in it, from /proc."""
        commands = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if self.node.machine.cgroup in (path / "cgroup").read_text():
                    line = (path / "cmdline").read_bytes().decode().split("\0")[:-1]
                    if any(word in argument for argument in line):
                        commands.append((int(path.name), line))
            except OSError:
                continue
        return commands


def _statuses(pod):
    return [
        *pod["status"].get("initContainerStatuses", ()),
        *pod["status"].get("containerStatuses", ()),
    ]


def until(look, *, what, patience=180.0):
    """What a look gives once it gives something; refusals of a busy moment are looks in vain."""
    end, last = time.monotonic() + patience, None
    while time.monotonic() < end:
        try:
            if last := look():
                return last
        except (KubectlFailed, KeyError, StopIteration, OSError) as error:
            last = error
        time.sleep(0.5)
    raise AssertionError(f"{what}: not so after {patience:.0f} s; last: {last}")
