"""One run of the scenario, clean or under a fault, and what it cost."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from advisor import ACCOUNT, USER, Advisor, until
from faults import scenario
from faults.proxy import Fault, Proxy, behind
from faults.scenario import State, persist
from mofa_local import audit
from mofa_local.processes import is_late

FLAGS = (
    "--settle=0.5",
    "--steady=1",
    "--resync=2",
    "--backoff=0.2",
    "--backoff-longest=3",
    "--prometheus-interval=1",
)
"""Knobs that make an hour of production fit into seconds."""
SELDOM = "--prometheus-interval=60"
"""How often running jobs are looked at where none runs, and five times which a node may be away
without being lost.
"""
BOUND = 180.0
"""Longest that a phase may take to converge under a fault, on a machine whose speed is not ours to
know. [s]
"""
PATIENCE = 30.0
"""How long Events are waited for at the end. [s]"""
QUIET = 1.5
"""Seconds without a write after which a clean run has come to rest."""


@dataclass
class Run:
    """What a run came to, and what it cost."""

    name: str
    phases: list[State] = field(default_factory=list)
    """What stood at the end of each phase."""
    seconds: list[float] = field(default_factory=list)
    """How long each phase took to converge. [s]"""
    events: set[tuple[str, str]] = field(default_factory=set)
    """Events at the end."""
    writes: Counter[str] = field(default_factory=Counter)
    """Writes that the API server took, by object, Events left out."""
    attempts: Counter[str] = field(default_factory=Counter)
    """Writes that the operator tried, by object, Events left out."""
    rss: int = 0
    """Most memory of the operator's own process. [B]"""
    lives: int = 1
    """Times that the operator was started."""

    def __str__(self) -> str:
        return (
            f"{self.name:<28} {sum(self.seconds):6.1f} s   {self.writes.total():4d} writes of"
            f" {self.attempts.total():4d} tried   {self.rss / 1e6:4.0f} MB   {self.lives} lives"
        )


class Supervised:
    """The operator behind a proxy, as a kubelet runs it: whenever it has ended, it is
    started again.
    """

    def __init__(self, cluster: Any, processes: Any, kubeconfig: Path, *flags: str) -> None:
        self.advisor = Advisor(cluster, processes, "faulted", kubeconfig=kubeconfig)
        self._processes = processes
        self._flags = (*FLAGS, *flags)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.lives = 1
        self.rss = 0

    def __enter__(self) -> Self:
        self.advisor.start(*self._flags, wait=False)
        until(lambda: self.advisor.probe("readyz")["ok"], 3 * BOUND, "the operator is ready")
        self._thread.start()
        return self

    def __exit__(self, *how: object) -> None:
        self._ending.set()
        self._thread.join()
        self._look()
        self._processes.stop(self.advisor.name, grace=20.0)

    def signal(self, number: signal.Signals) -> None:
        """Tell the process of now; KILL takes its workers along, as the end of a container does."""
        with contextlib.suppress(ProcessLookupError, KeyError):
            pid = self._processes[self.advisor.name].pid
            (os.killpg if number == signal.SIGKILL else os.kill)(pid, number)

    def _watch(self) -> None:
        while not self._ending.wait(0.1):
            self._look()
            if not self._processes[self.advisor.name].running:
                self._processes.stop(self.advisor.name)
                self.advisor.start(*self._flags, wait=False)
                self.lives += 1

    def _look(self) -> None:
        self.rss = max(self.rss, peak(self._processes[self.advisor.name].pid))


def peak(pid: int) -> int:
    """Most memory that a process ever had; 0 where the system does not tell. [B]"""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


@contextlib.contextmanager
def operator(cluster: Any, processes: Any, proxy: Proxy, *flags: str) -> Iterator[Supervised]:
    """An operator that reaches the API server through the proxy."""
    account = cluster.identity("advisor", service_account=ACCOUNT)
    with Supervised(cluster, processes, behind(account, proxy.url), *flags) as supervised:
        yield supervised


def play(
    name: str,
    cluster: Any,
    processes: Any,
    *,
    clean: Run | None = None,
    fault: Callable[[Supervised], Fault] | None = None,
    during: Callable[[int, Supervised], None] | None = None,
    bound: float = BOUND,
) -> Run:
    """Play the scenario; without a clean run to compare with, wait for rest instead of for its
    states.

    `fault` is in force from the operator's readiness on; `during` is called in each phase, just
    after the people's deeds.
    """
    run = Run(name=name)
    with Proxy(cluster) as proxy, operator(cluster, processes, proxy, SELDOM) as supervised:
        try:
            scenario.set_up(cluster)
            _await_pool(cluster)
            seen, tried = len(_accepted(cluster)), len(proxy.asked)
            proxy.fault = Fault() if fault is None else fault(supervised)
            for number, deed in enumerate(scenario.PHASES):
                persist(lambda deed=deed: deed(cluster))
                since = time.monotonic()
                if during is not None:
                    during(number, supervised)
                if clean is None:
                    _rest(cluster)
                    run.phases.append(scenario.state(cluster))
                else:
                    run.phases.append(
                        _reach(cluster, clean.phases[number], bound, f"{name}, phase {number}")
                    )
                run.seconds.append(time.monotonic() - since)
            proxy.fault = Fault()
            run.events = _events(cluster, set() if clean is None else clean.events)
            run.writes = _per_object(_accepted(cluster)[seen:])
            run.attempts = proxy.attempts(tried)
            assert scenario.state(cluster) == run.phases[-1], "what stood did not stay"
        finally:
            proxy.fault = Fault()
            persist(lambda: scenario.tear_down(cluster))
        run.lives = supervised.lives
    run.rss = supervised.rss
    print(run)  # noqa: T201 - shown by pytest -rA and on failure
    return run


def _reach(cluster: Any, wanted: State, bound: float, where: str) -> State:
    start = time.monotonic()
    while (state := persist(lambda: scenario.state(cluster))) != wanted:
        if is_late(start, bound):
            waited = time.monotonic() - start
            raise AssertionError(
                f"{where}, after {waited:.0f} s:\n{scenario.difference(state, wanted)}"
            )
        time.sleep(0.25)
    return state


def _events(cluster: Any, wanted: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Events follow the writes, and wait longer than these while the API server is away."""
    start = time.monotonic()
    time.sleep(QUIET)
    while not (events := scenario.events(cluster)) >= wanted and not is_late(start, PATIENCE):
        time.sleep(0.5)
    return events


def _rest(cluster: Any) -> None:
    """Wait until every job has its outcome, and nothing was written for a while."""
    quiet_since, count = time.monotonic(), -1
    while time.monotonic() - quiet_since < 2 * QUIET:
        now = len(_accepted(cluster))
        if now != count or not scenario.is_answered(cluster):
            quiet_since, count = time.monotonic(), now
        time.sleep(0.2)


def _await_pool(cluster: Any) -> None:
    def ready() -> Any:
        return scenario.state(cluster)[f"ClusterProfile/{scenario.POOL}"]["status"].get("nodes", {}).get("ready")  # fmt: skip

    until(lambda: ready() == scenario.SIZE, BOUND, "the pool is counted")


def _accepted(cluster: Any) -> list[audit.Event]:
    return audit.writes(cluster.audit(), user=USER)


def _per_object(writes: list[audit.Event]) -> Counter[str]:
    counted = audit.per_object(writes)
    return Counter(
        {
            name: count
            for name, count in counted.items()
            if not name.startswith(("events/", "advisorp"))
        }
    )
