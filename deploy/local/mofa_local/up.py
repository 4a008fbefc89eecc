"""The whole stack for a person: what `make up` starts, `make down` stops, and what is there in
between.

Everything lies in `.cache/up`: `run/` has a pid file and a log for each process, `kubeconfig` and
`env` are for the person, `state.json` is written last and says that everything was ready. `down`
stops what the pid files name, so it also clears what a broken `up` left behind.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mofa_local import LocalStackError, binaries, nodes, stack, workload
from mofa_local.cluster import Cluster
from mofa_local.identities import write_private
from mofa_local.processes import Processes, running_recorded, stop_recorded
from mofa_local.real.machine import sweep

FOLDER: Final = stack.ROOT / ".cache" / "up"
"""Folder of the running stack."""
OURS: Final = ("state.json", "env", "kubeconfig", "prometheus", "plane", "inject", "node", "run")
"""Folders that `down` removes, in this order."""
REAL: Final = (
    (
        "kubectl apply -k deploy/local/toy",
        "a small real trainer on the real node, once WITH=jobset runs beside it",
    ),
    (
        "curl -x $NODE_PROXY http://toy-trainer.default.svc.cluster.local:9400/metrics",
        "what its sidecar serves",
    ),
)
"""Hints for a stack with a real node."""


def up(folder: Path, size: stack.Size, *, say: Callable[[str], None] = print) -> None:
    """Start everything and return when it is ready; nothing is started twice, and nothing is left
    after a failure.
    """
    folder = folder.resolve()
    with _alone(folder):
        if is_up(folder):
            say(f"up: is up already\n{hints(folder)}")
            return
        if stopped := _clear(folder):
            say(f"up: stopped what an unfinished start had left: {', '.join(stopped)}")
        begin = time.monotonic()

        def progress(text: str) -> None:
            say(f"up: {time.monotonic() - begin:5.1f} s  {text}")

        with Processes(folder / "run", outlive=True) as processes:
            where = stack.start(folder, size, processes, progress)
            write_private(
                folder / "env", "".join(f"export {name}={text}\n" for name, text in where.items())
            )
            write_private(folder / "state.json", json.dumps(where, indent=2) + "\n")
        progress("ready")
        say(hints(folder))


def down(folder: Path) -> list[str]:
    """Stop what was started there and remove its files; the names of what was running."""
    with _alone(folder.resolve()):
        return _clear(folder.resolve())


def is_up(folder: Path) -> bool:
    """Whether everything that was started still runs."""
    started = {log.stem for log in (folder / "run").glob("*.log")}
    return (folder / "state.json").exists() and set(running_recorded(folder / "run")) == started


def inject(folder: Path, kind: str, job: str, seconds: float) -> str:
    """Interrupt a job that trains, as a cluster would; returns what was done and how to undo it."""
    if not is_up(folder):
        raise LocalStackError("the stack is not up; `make up` starts it")
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    node = workload.ask(state["TRAINER_URL"], "inject", job=job, kind=kind, seconds=seconds)
    if kind != "node":
        return f"{job}: {kind}, back in {seconds:.0f} s"
    nodes.fail(Cluster(Path(state["KUBECONFIG"]), folder / "inject"), node)
    mend = f"kubectl annotate node {node} {nodes.BROKEN}-"
    return (
        f"{job}: node {node} is lost, back on another in {seconds:.0f} s; `{mend}` mends the node"
    )


def status(folder: Path) -> str:
    """Running processes, with their memory."""
    running = running_recorded(folder / "run")
    if not running:
        return "nothing runs; `make up` starts the stack"
    sizes = {name: _memory(pid) for name, pid in running.items()}
    table = [f"  {name:<26}{pid:>8}{sizes[name]:>8.0f} MB" for name, pid in running.items()]
    state = "up" if is_up(folder) else "not all of it is up; `make down` stops the rest"
    return "\n".join([f"{state}, {sum(sizes.values()):.0f} MB together", *table])


def hints(folder: Path) -> str:
    """Addresses of the parts, and commands to try."""
    env = folder / "env"
    ours = (
        f"PYTHONPATH={_shown(stack.ROOT / 'deploy' / 'local')} {_shown(Path(sys.executable))} "
        "-m mofa_local"
    )
    option = "" if folder.resolve() == FOLDER else f" --folder {_shown(folder)}"
    tries = (
        (f". {_shown(env)}", "kubectl and curl below mean this cluster"),
        ("kubectl apply -f examples/llama3-405b.yaml", "ask for advice"),
        ("kubectl get tjob", "the advice in one line; -o yaml for all of it"),
        ("kubectl get cprof", "what the pool's history says of the assumptions"),
        (f"kubectl -n {stack.NAMESPACE} get pods -o wide", "sample jobs on fake nodes"),
        (
            f"{ours} inject{option} pod default/llama3-405b",
            "interrupt it: process, pod, node, preemption or job",
        ),
        ("curl -s $ADVISOR_URL/metrics", "predicted and observed, for Prometheus"),
        ("echo $ADVISOR_URL", "the same as a page: an address for a browser"),
        *(REAL if (folder / "node").exists() else ()),
        ("make down", "stop all of it"),
    )
    kubectl = None if shutil.which("kubectl") else binaries.find("kubectl")
    path = (
        ""
        if kubectl is None
        else f"\nNo kubectl on PATH; here is one:\n  export PATH=$PATH:{kubectl.parent}"
    )
    lines = env.read_text(encoding="utf-8").splitlines()
    hints = [f"  {command}\n    {what}" for command, what in tries]
    return "\n".join([*lines, "", "Try:", *hints]) + path


def _shown(path: Path) -> str:
    """A path as one types it here; symbolic links stay, for a virtual environment's python
    is one.
    """
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One `up` or `down` at a time; another one fails at once."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            raise LocalStackError(
                f"{folder}: another `make up` or `make down` is at work; wait for it"
            ) from busy
        yield


def _clear(folder: Path) -> list[str]:
    stopped = stop_recorded(folder / "run")
    if (folder / "node").exists():
        sweep()
    for name in OURS:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return stopped


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
