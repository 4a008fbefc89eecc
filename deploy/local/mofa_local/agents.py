"""What two agents on every GPU node would show: node exporter's clock and boot time, and a health
agent's events and repairs.

    python -m mofa_local.agents --kubeconfig FILE --port 9310

A node that is not ready has a fatal health event, counted once; when it is ready again, the repair
is over and the node was rebooted. `make up` serves the one process for all nodes, each as its own
instance. While the API server does not answer, nothing happens to any node.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from mofa_local import LocalStackError
from mofa_local.client import Client
from mofa_local.ports import HOST

LOOK: Final = 2.0
"""Time between two looks at the nodes. [s]"""
AGE: Final = 30 * 86400.0
"""How long the nodes have been up when this starts. [s]"""
BUCKETS: Final = (60.0, 600.0, 3600.0, 21600.0, float("inf"))
"""Upper edges of repair times. [s]"""
HEALTH: Final = {"agent": "syslog-health-monitor", "component_class": "GPU"}
REPAIR: Final = "fault_quarantine_node_remediation_duration_seconds"


@dataclass(kw_only=True, slots=True)
class Machine:
    """A node as its agents know it."""

    booted: float
    """Boot time, in seconds of the epoch. [s]"""
    faults: int = 0
    """Fatal health events. [1]"""
    down: float | None = None
    """Since when it is not ready; None = it is. [s]"""


class Agents(Collector):
    """The agents of all nodes."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._machines: dict[str, Machine] = {}
        self._repairs: list[float] = []
        self._lock = threading.Lock()

    def look(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Take the present conditions of nodes.

        >>> agents = Agents(clock=iter([0.0, 10.0, 70.0, 100.0]).__next__)
        >>> for ready in ("True", "False", "True"):
        ...     conditions = [{"type": "Ready", "status": ready}]
        ...     agents.look([{"metadata": {"name": "a"}, "status": {"conditions": conditions}}])
        >>> [sample.value for family in agents.collect() for sample in family.samples][:3]
        [100.0, 70.0, 1]
        """
        now = self._clock()
        with self._lock:
            for node in nodes:
                machine = self._machines.setdefault(
                    node["metadata"]["name"], Machine(booted=now - AGE)
                )
                if not _ready(node):
                    machine.faults += machine.down is None
                    machine.down = now if machine.down is None else machine.down
                elif machine.down is not None:
                    self._repairs.append(now - machine.down)
                    machine.booted, machine.down = now, None

    def collect(self) -> Iterable[Metric]:
        """All series of this moment."""
        families = {
            "node_time_seconds": Metric("node_time_seconds", "Clock of the node.", "gauge"),
            "node_boot_time_seconds": Metric(
                "node_boot_time_seconds", "Boot time of the node.", "gauge"
            ),
            "health_events": Metric("health_events", "Health events of a node.", "counter"),
            REPAIR: Metric(REPAIR, "From a fatal event to the node's return.", "histogram"),
        }
        with self._lock:
            now = self._clock()
            for name, machine in self._machines.items():
                instance = {"instance": name}
                families["node_time_seconds"].add_sample("node_time_seconds", instance, now)
                families["node_boot_time_seconds"].add_sample(
                    "node_boot_time_seconds", instance, machine.booted
                )
                events = HEALTH | {"node": name, "is_fatal": "true"}
                families["health_events"].add_sample("health_events_total", events, machine.faults)
            did = {"recommended_action": "RESTART_BM"}
            for edge in BUCKETS:
                text = "+Inf" if edge == float("inf") else f"{edge:g}"
                within = sum(repair <= edge for repair in self._repairs)
                families[REPAIR].add_sample(f"{REPAIR}_bucket", did | {"le": text}, within)
            families[REPAIR].add_sample(f"{REPAIR}_count", did, len(self._repairs))
            families[REPAIR].add_sample(f"{REPAIR}_sum", did, sum(self._repairs))
        return families.values()


def _ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def main() -> None:
    """Serve the series of all exporters until the signal TERM."""
    parser = argparse.ArgumentParser(prog="python -m mofa_local.agents", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    agents, client = Agents(), Client(arguments.kubeconfig)
    registry = CollectorRegistry()
    registry.register(agents)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server, thread = start_http_server(arguments.port, addr=HOST, registry=registry)
    while not stop.wait(LOOK):
        with contextlib.suppress(LocalStackError):
            agents.look(client.items("/api/v1/nodes") or [])
    server.shutdown()
    thread.join()


if __name__ == "__main__":
    main()
