"""Child processes: start in order, wait until ready, stop in reverse; none outlives its owner by
accident.

Each child leads a process group of its own, logs to a file, and leaves a pid file that names the
process by its start as well, so that whoever stops it later cannot hit another process that got the
same number. A guard process holds one end of a pipe: when the owner dies, however it dies, the
guard stops what was left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mofa_local import LocalStackError

GRACE: Final = 30.0
"""Time of a process between TERM and KILL; an API server with open watches takes several
seconds. [s]
"""

COLLECTED: Final = {"GOGC": "400"}
"""Memory is there and cores are not: collecting garbage a quarter as often takes a sixth off what
Go programs work.
"""

STEP: Final = 0.05
"""Time between two checks of something that is waited for. [s]"""

CORES: Final = (
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)


def crowded() -> float:
    """How much longer something may take here, by how many wait for each core: 1 where none waits,
    3 at a load of 6 on two cores. [1]
    """
    return max(1.0, os.getloadavg()[0] / CORES)


def is_late(since: float, seconds: float) -> bool:
    """Whether more time has gone than these seconds of a machine with a free core; `since` is
    monotonic. [s]
    """
    return time.monotonic() - since > seconds * crowded()


GUARD: Final = """
import os, signal, sys, time
groups = []
for line in sys.stdin:
    (groups.append if line[0] == "+" else groups.remove)(int(line[1:]))
def tell(number):
    left = []
    for group in groups:
        try:
            os.killpg(group, number)
            left.append(group)
        except OSError:
            pass
    return left
groups.reverse()
tell(signal.SIGTERM)
deadline = time.monotonic() + 5
while tell(0) and time.monotonic() < deadline:
    time.sleep(0.1)
tell(signal.SIGKILL)
"""
"""Reads `+group` and `-group`; at the end of its input, which is the end of the owner, it stops the
groups that are left.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A child process."""

    name: str
    """Name, unique among its owner's."""
    child: subprocess.Popen[bytes]
    """Handle of the process."""
    log: Path
    """File with all its output."""

    @property
    def pid(self) -> int:
        """Process id, which is the id of its group as well."""
        return self.child.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.child.poll() is None

    def tail(self, lines: int = 25) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])


class Processes:
    """The children of one owner.

    As a context manager it stops them all at the end; with `outlive` it stops them only when the
    block fails, and otherwise leaves them and their pid files for `stop_recorded`.
    """

    def __init__(self, folder: Path, *, outlive: bool = False) -> None:
        self.folder = folder
        self.outlive = outlive
        self._running: dict[str, Process] = {}
        self._guard: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None or not self.outlive:
            self.stop_all()

    def __getitem__(self, name: str) -> Process:
        return self._running[name]

    def __contains__(self, name: str) -> bool:
        return name in self._running

    @property
    def names(self) -> list[str]:
        """Names of the children that run, in order of start."""
        return list(self._running)

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        ready: Callable[[], bool] | None = None,
        deadline: float = 60.0,
    ) -> Process:
        """Start a child, and wait until `ready` says so; a child that ends or is late is an error
        with its last words.

        `environment` is added to ours. A name that was used before continues its log.
        """
        if name in self._running:
            raise LocalStackError(f"{name}: already started; stop it first")
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | COLLECTED | dict(environment or {}), cwd=folder,
            )  # fmt: skip
        process = self._running[name] = Process(name=name, child=child, log=log)
        self._tell_guard("+", process)
        _record(self.folder, process)
        if ready is not None:
            try:
                self._wait(process, ready, deadline)
            except BaseException:
                self.stop(name)
                raise
        return process

    def stop(self, name: str, *, grace: float = GRACE) -> None:
        """TERM, and KILL after the grace; returns when the process is gone. Nothing happens for one
        that was stopped.
        """
        self._end(name, signal.SIGTERM, grace)

    def kill(self, name: str) -> None:
        """Kill a child at once by KILL, as a machine that loses power."""
        self._end(name, signal.SIGKILL, GRACE)

    def stop_all(self) -> None:
        """Stop every child, the last one first."""
        for name in reversed(self.names):
            self.stop(name)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None

    def _end(self, name: str, number: signal.Signals, grace: float) -> None:
        process = self._running.get(name)
        if process is None:
            return
        _tell_group(process.pid, number)
        try:
            process.child.wait(grace)
        except subprocess.TimeoutExpired:
            _tell_group(process.pid, signal.SIGKILL)
            process.child.wait()
        _tell_group(process.pid, signal.SIGKILL)  # what it started and left behind
        self._tell_guard("-", process)
        (self.folder / f"{name}.pid").unlink(missing_ok=True)
        del self._running[name]

    def _wait(self, process: Process, ready: Callable[[], bool], deadline: float) -> None:
        began = time.monotonic()
        while not ready():
            if not process.running:
                why = f"ended with code {process.child.returncode} before it was ready"
            elif is_late(began, deadline):
                why = f"not ready after {time.monotonic() - began:.0f} s"
            else:
                time.sleep(STEP)
                continue
            raise LocalStackError(
                f"{process.name}: {why}; the end of {process.log}:\n{process.tail()}"
            )

    def _tell_guard(self, sign: str, process: Process) -> None:
        if self.outlive:
            return
        if self._guard is None:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", GUARD],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
        if self._guard.stdin is not None:
            self._guard.stdin.write(f"{sign}{process.pid}\n".encode())
            self._guard.stdin.flush()


def running_recorded(folder: Path) -> dict[str, int]:
    """Name and pid of what pid files in a folder name and what still runs, in order of start."""
    recorded = []
    for file in folder.glob("*.pid"):
        with contextlib.suppress(
            OSError, ValueError, KeyError, TypeError
        ):  # a file that somebody broke
            written = json.loads(file.read_text(encoding="utf-8"))
            if _start_of(int(written["pid"])) == written["started"]:
                recorded.append((int(written["order"]), file.stem, int(written["pid"])))
    return {name: pid for _, name, pid in sorted(recorded)}


def stop_recorded(folder: Path, *, grace: float = GRACE) -> list[str]:
    """Stop exactly what the pid files in a folder name, the last one first; the names of what
    was running.
    """
    running = running_recorded(folder)
    for name, pid in reversed(running.items()):
        started = _start_of(pid)
        _tell_group(pid, signal.SIGTERM)
        end = time.monotonic() + grace
        while _start_of(pid) == started and time.monotonic() < end:
            time.sleep(STEP)
        _tell_group(pid, signal.SIGKILL)
        (folder / f"{name}.pid").unlink(missing_ok=True)
    for file in folder.glob("*.pid"):  # of processes that ended by themselves
        file.unlink(missing_ok=True)
    return list(reversed(running))


def answers(url: str) -> Callable[[], bool]:
    """A test for `start`: whether a GET of an address on this machine is answered with 200."""
    context = ssl.create_default_context()
    context.check_hostname = (
        False  # a server that makes its certificate as it starts cannot be known yet
    )
    context.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )

    def asked() -> bool:
        try:
            with opener.open(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return asked


def _record(folder: Path, process: Process) -> None:
    written = {"pid": process.pid, "started": _start_of(process.pid), "order": time.time_ns()}
    (folder / f"{process.name}.pid").write_text(json.dumps(written) + "\n", encoding="utf-8")


def _tell_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(
        ProcessLookupError, PermissionError
    ):  # gone; a Mac says the latter of a dead group
        os.killpg(pid, number)


def _start_of(pid: int) -> str | None:
    """When a process was started, in the system's own words; None where it does not run
    (any more).
    """
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]
    columns = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return None if len(columns) < 2 or columns[0].startswith("Z") else columns[1].strip()
