"""The first process of a machine of its own: it sets up mounts and addresses, then buries what
dies; with it all else there ends.

    unshare --fork --pid --mount --net --mount-proc -- python init.py FOLDER CGROUP ADDRESS SERVICES

It is run by its path, so it imports nothing of ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

PRIVATE = ("/run", "/var/log", "/var/lib/cni")
"""Folders whose paths are fixed in programs; each is a tmpfs of the node's own."""


def main() -> None:
    """Set up, say so, and bury the dead until TERM."""
    folder, cgroup, address = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    _run(
        "mount", "--make-rshared", "/"
    )  # as kubelets and runtimes expect; no further than this machine
    for place in PRIVATE:
        _run("mount", "-t", "tmpfs", "tmpfs", place)
    for name in ("kubelet", "containerd"):
        (folder / name).mkdir(exist_ok=True)
    _run("mount", "--bind", str(folder / "kubelet"), "/var/lib/kubelet")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{address}/32", "dev", "lo")
    _run(
        "ip", "route", "add", sys.argv[4], "dev", "lo", "src", address
    )  # Services, before kube-proxy leads them on
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")
    for controller in filter(None, cgroup.split(",")):
        (Path(controller) / "cgroup.procs").write_text("1", encoding="ascii")
    numbers = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    (folder / "ready").touch()
    while signal.sigwait(numbers) != signal.SIGTERM:
        _bury()


def _bury() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")


if __name__ == "__main__":
    main()
