"""The operator as its own process against a real cluster, under the account of deploy/manifests."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mofa_local import audit
from mofa_local.ports import HOST, free_ports
from mofa_local.processes import is_late

from mofa_model.annotations import PREFIX

ACCOUNT = "mofa-system/mofa-advisor"
USER = "system:serviceaccount:mofa-system:mofa-advisor"
MOFA = Path(sys.executable).with_name("mofa")
WATCHED = re.compile(r'^mofa_advisor_watch_up\{kind="([^"]+)"\} 1\.0$', re.MULTILINE)


def until(check: Callable[[], Any], seconds: float = 60.0, what: str = "") -> Any:
    """The first true answer of a check; an error when none comes in the time that a machine with a
    free core has for it.
    """
    start = time.monotonic()
    while True:
        began = time.monotonic()
        if answer := check():
            return answer
        took = time.monotonic() - began
        if is_late(start, seconds):
            raise AssertionError(f"not within {time.monotonic() - start:.0f} s: {what or check}")
        time.sleep(min(1.0, max(0.1, 2 * took)))  # a look that costs much is taken less often


class Advisor:
    """One operator process, and what it did."""

    def __init__(
        self,
        cluster: Any,
        processes: Any,
        name: str = "operator",
        *,
        kubeconfig: Path | None = None,
        memory: int | None = None,
        program: Sequence[str | Path] = (MOFA,),
    ) -> None:
        """`kubeconfig` is another one than the account's own: with something between it and the API
        server.

        `memory` bounds the address space of each of its processes [B]; `program` is another
        installation of the command.
        """
        self._program = program
        self.cluster = cluster
        self.name = name
        self._processes = processes
        self._kubeconfig = kubeconfig or cluster.identity("advisor", service_account=ACCOUNT)
        self._limited = (
            () if memory is None else ("sh", "-c", f'ulimit -v {memory // 1024}; exec "$0" "$@"')
        )
        self._health = 0
        self._metrics = 0

    def start(self, *flags: str, wait: bool = True) -> None:
        """Start it; it is ready afterwards."""
        self._metrics, self._health = free_ports(2)
        command = [
            *self._limited, *self._program, "operator", f"--kubeconfig={self._kubeconfig}", f"--address={HOST}", "--verbose",
            f"--metrics-port={self._metrics}", f"--health-port={self._health}", *flags,
        ]  # fmt: skip
        ready = (lambda: self.probe("readyz")["ok"]) if wait else None
        self._processes.start(self.name, command, ready=ready)

    def stop(self) -> int:
        """Stop it as Kubernetes does; the result is its exit code."""
        process = self._processes[self.name]
        self._processes.stop(self.name, grace=15.0)
        return process.child.returncode

    def kill(self) -> None:
        """As a machine that loses power."""
        self._processes.kill(self.name)

    @property
    def workers(self) -> list[int]:
        """Its processes that compute advice."""
        workers_found, leader = [], self._processes[self.name].pid
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                number, group = (
                    int(path.parent.name),
                    int(path.read_text().rpartition(")")[2].split()[2]),
                )
                if group == leader and "spawn_main" in (path.parent / "cmdline").read_text():
                    workers_found.append(number)
        return workers_found

    @property
    def watched(self) -> set[str]:
        """Names of the kinds that it watches; none before it serves."""
        try:
            return set(WATCHED.findall(self.metrics()))
        except OSError:
            return set()

    @property
    def resident(self) -> int:
        """What all of its processes hold. [B]"""
        files = [
            Path(f"/proc/{pid}/status") for pid in (self._processes[self.name].pid, *self.workers)
        ]
        lines = [
            line
            for file in files
            for line in file.read_text().splitlines()
            if line.startswith("VmRSS")
        ]
        return 1024 * sum(int(line.split()[1]) for line in lines)

    @property
    def log(self) -> str:
        """What it has said so far, all lives together."""
        return (self._processes.folder / f"{self.name}.log").read_text()

    def probe(self, which: str) -> dict[str, Any]:
        """What a probe says."""
        try:
            text = _read(f"http://{HOST}:{self._health}/{which}")
        except urllib.error.HTTPError as error:
            text = error.read()
        except OSError:
            return {"ok": False, "reasons": ["no connection"]}
        answer: dict[str, Any] = json.loads(text)
        return answer

    @property
    def url(self) -> str:
        """Where it serves metrics and page."""
        return f"http://{HOST}:{self._metrics}"

    @property
    def health_url(self) -> str:
        """Where it answers probes."""
        return f"http://{HOST}:{self._health}"

    def metrics(self) -> str:
        """What a scrape is answered with."""
        return _read(f"{self.url}/metrics").decode()

    def writes(self, since: int = 0) -> list[dict[str, Any]]:
        """Its writes that the API server took, beyond the first so many."""
        time.sleep(0.3)  # the audit log follows the answers
        return audit.writes(self.cluster.audit(), user=USER)[since:]

    def writes_by_object(self, since: int = 0) -> Counter[str]:
        """The number of the operator's writes to each object; writes of Events are left out."""
        counts = audit.per_object(self.writes(since))
        return Counter(
            {name: count for name, count in counts.items() if not name.startswith("events/")}
        )


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as response:
        answer: bytes = response.read()
        return answer


def read(cluster: Any, kind: str, namespace: str = "", name: str = "") -> Any:
    """An object of the cluster; without a name, the list of all objects of the kind. Without a
    namespace, the list is of every namespace.
    """
    place = ("-n", namespace) if namespace else () if name else ("-A",)
    answer = json.loads(cluster.kubectl("get", kind, *filter(None, [name]), *place, "-o", "json"))
    return answer if name else answer["items"]


def ours(body: dict[str, Any]) -> dict[str, str]:
    """Our annotations on an object, without their prefix."""
    annotations = body["metadata"].get("annotations") or {}
    return {
        key.removeprefix(PREFIX): value
        for key, value in annotations.items()
        if key.startswith(PREFIX)
    }


def condition(body: dict[str, Any], name: str) -> dict[str, Any]:
    """A condition of an object; empty where it is not there."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == name), {})
