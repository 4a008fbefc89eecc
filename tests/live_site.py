"""A site where jobs are trained: fake trainers, a real Prometheus that scrapes them, and the
operator beside a real API server.
"""

import itertools
import secrets
import threading
from pathlib import Path

from advisor import Advisor, read, until
from mofa_local import nodes
from mofa_local.ports import free_port
from mofa_local.prometheus import Prometheus, Scrape
from mofa_local.workload import Workload, serve
from operator_objects import small_job
from ruamel.yaml import YAML

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCRAPE = 1.0
"""Seconds between samples."""
PATIENCE = 150.0
"""Longest wait for advice on a busy machine. [s]"""
_pools = itertools.count()


class Site:
    """Everything that runs beside the API server: trainers, Prometheus, the operator."""

    def __init__(self, cluster, processes, folder, flags, name="live"):
        """`flags` are the operator's, `name` tells its processes from those of another site."""
        self.cluster = cluster
        self.processes = processes
        self.workload = Workload(fraction=0.85, speed=8.0)
        port = free_port()
        self.trainers = serve(self.workload, port)
        self.scrape = Scrape(job="trainer", target=f"127.0.0.1:{port}", interval=f"{SCRAPE:g}s")
        self.prometheus = Prometheus(
            processes, folder, scrape=[self.scrape], name=f"prometheus-{name}"
        )
        self.prometheus.start()
        self.advisor = Advisor(cluster, processes, f"operator-{name}")
        self.advisor.start(*flags, f"--prometheus-url={self.prometheus.url}")
        self._stop = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def stop(self):
        self._stop.set()
        self.processes.stop(self.advisor.name, grace=15.0)
        self.prometheus.stop()
        self.trainers.shutdown()
        self.trainers.server_close()

    def pool(self, size=4, **spec):
        """A ClusterProfile of a few ready nodes that are nobody else's."""
        name = f"live-{next(_pools)}-{secrets.token_hex(3)}"
        labels = {"example.org/pool": name}
        made = [nodes.node(f"{name}-{number}", labels=labels) for number in range(size)]
        nodes.create(self.cluster, made, kwok=False)
        profile = YAML(typ="safe").load((EXAMPLES / "h100-east.yaml").read_text())
        profile.pop("status", None)
        profile["metadata"] = {"name": name}
        profile["spec"] |= {"nodeSelector": labels, **spec}
        self.cluster.apply(profile)
        return name

    def apply(self, namespace, name, pool):
        saves = {"mode": "Async", "maxIntervalSeconds": 60}
        self.cluster.apply(small_job(namespace, name, pool, checkpoint=saves))
        return until(
            lambda: self.tokens(namespace, name) and self.read("tjob", name, namespace), PATIENCE
        )

    def read(self, kind, name, namespace=""):
        return read(self.cluster, kind, namespace, name)

    def tokens(self, namespace, name):
        status = self.read("tjob", name, namespace).get("status") or {}
        return (
            status.get("recommendation", {})
            .get("predicted", {})
            .get("tokensPerSecond", {})
            .get("target")
        )

    def observed(self, namespace, name):
        return (self.read("tjob", name, namespace).get("status") or {}).get("observed") or {}

    def figure(self, series, **labels):
        """The value of an exported series; None where there is none."""
        for line in self.advisor.metrics().splitlines():
            if (
                line.startswith(series + "{")
                and all(f'{k}="{v}"' for k, v in labels.items())
                and all(f'{key}="{value}"' in line for key, value in labels.items())
            ):
                return float(line.rsplit(" ", 1)[1])
        return None

    def _follow(self):
        """The trainers' look at the cluster."""
        api = self.cluster.admin.resources.get(api_version="mofa.dev/v1alpha1", kind="TrainingJob")
        while not self._stop.wait(0.5):
            try:
                jobs = api.get().to_dict()["items"]
            except Exception:  # noqa: BLE001 - the API server is another test's to stop
                continue
            self.workload.follow(
                jobs, lambda body: [f"{body['spec']['cluster']['profile']}-{n}" for n in range(4)]
            )
