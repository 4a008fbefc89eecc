"""A machine of its own on this one: namespaces for processes, mounts and the network, and cgroups
of one name.

Everything in it ends when its first process ends, with its mounts, its addresses and its rules of
the firewall; only empty cgroups stay, and `sweep` removes them. The network of this machine is not
changed: `wires` carry what has to go in or out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mofa_local import LocalStackError
from mofa_local.processes import Processes

ADDRESS: Final = "10.66.0.1"
"""The machine's own address, on its own loopback interface."""
SERVICES: Final = "10.0.0.0/24"
"""Addresses of Services, as the API server gives them."""
INIT: Final = "machine"
"""Name of the first process."""
PROGRAMS: Final = {
    "unshare": "util-linux", "nsenter": "util-linux", "mount": "mount", "ip": "iproute2",
    "containerd": "containerd", "ctr": "containerd", "runc": "runc", "iptables": "iptables",
    "conntrack": "conntrack",
    "mmdebstrap": "mmdebstrap", "podman": "podman",
}  # fmt: skip
"""What a real node needs, and the package of Debian that has it."""
PLUGINS: Final = Path("/usr/lib/cni")
"""Folder of the plug-ins of the package containernetworking-plugins."""
PREFIX: Final = "mofa-local-"
"""Beginning of the names of our cgroups."""
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PLACES: Final = ("/var/lib/cni", "/var/lib/kubelet")


def missing() -> str:
    """Why there can be no real node here, and what to do about it, in one line; empty where
    there can.
    """
    if sys.platform != "linux":
        return f"a real node needs Linux; this is {sys.platform}"
    if os.geteuid() != 0:
        return "a real node needs root, for namespaces, mounts and cgroups; run it as root"
    if absent := absent_packages():
        return (
            f"a real node needs {', '.join(absent)}; `apt-get install --no-install-recommends "
            f"{' '.join(absent)}` installs them"
        )
    return ""


def absent_packages() -> list[str]:
    """Debian's packages that a real node needs and that are not installed."""
    absent = sorted({package for name, package in PROGRAMS.items() if shutil.which(name) is None})
    return absent if (PLUGINS / "bridge").exists() else [*absent, "containernetworking-plugins"]


class Machine:
    """A machine of its own; `processes` owns its first process, and what is started in it."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder = folder
        self.processes = processes
        self.cgroup = f"{PREFIX}{os.urandom(4).hex()}"

    def start(self) -> None:
        """Start the machine."""
        if why := missing():
            raise LocalStackError(why)
        sweep()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "ready").unlink(missing_ok=True)
        for place in _PLACES:
            Path(place).mkdir(parents=True, exist_ok=True)
        cgroups = [cgroup / self.cgroup / "init" for cgroup in _hierarchies()]
        for cgroup in cgroups:
            cgroup.mkdir(parents=True)
            _fill_cpuset(cgroup)
        self.processes.start(
            INIT,
            [
                "unshare", "--fork", "--kill-child", "--pid", "--mount", "--net", "--mount-proc",
                "--",
                sys.executable, "-I", "-S", Path(__file__).with_name("init.py"),
                self.folder, ",".join(str(cgroup) for cgroup in cgroups), ADDRESS, SERVICES,
            ],
            ready=(self.folder / "ready").exists,
        )  # fmt: skip

    def stop(self) -> None:
        """End everything in it, and leave nothing."""
        self.processes.stop(INIT)
        sweep()

    def inside(self, *command: str | Path) -> list[str | Path]:
        """A command as it is started from outside, so that it runs in the machine."""
        own = f"/proc/{self.processes[INIT].pid}/ns"
        enter = [
            "nsenter",
            f"--mount={own}/mnt",
            f"--net={own}/net",
            f"--pid={own}/pid_for_children",
            "--",
        ]
        return [*enter, *command]

    def run(self, *command: str | Path) -> str:
        """The output of a command that runs in the machine."""
        words = [str(word) for word in self.inside(*command)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LocalStackError(
                f"{' '.join(str(word) for word in command)}: {done.stderr.strip()}"
            )
        return done.stdout


def sweep() -> None:
    """Remove the cgroups of machines that are gone, and the folders that stood for mounts where
    they are empty.
    """
    for hierarchy in _hierarchies():
        for cgroup in hierarchy.glob(f"{PREFIX}*"):
            if not _is_used(cgroup):
                for folder in sorted(cgroup.rglob("*/"), key=lambda path: -len(path.parts)):
                    with contextlib.suppress(OSError):
                        folder.rmdir()
                with contextlib.suppress(OSError):
                    cgroup.rmdir()
    if not any(True for hierarchy in _hierarchies() for _ in hierarchy.glob(f"{PREFIX}*")):
        for place in _PLACES:
            with contextlib.suppress(OSError):
                Path(place).rmdir()  # refused where it holds anything


def _hierarchies() -> list[Path]:
    """Where cgroups are made: one folder a controller in version 1, one folder in version 2."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    links = [path for path in _CGROUPS.iterdir() if (path / "cgroup.procs").exists()]
    return sorted({path.resolve() for path in links})


def _is_used(cgroup: Path) -> bool:
    for procs in cgroup.rglob("cgroup.procs"):
        with contextlib.suppress(OSError):
            if procs.read_text(encoding="ascii").strip():
                return True
    return False


def _fill_cpuset(cgroup: Path) -> None:
    """Give a new cpuset cgroup its parent's cores and memory nodes: the kernel admits no process
    before it has some.
    """
    for level in (cgroup.parent, cgroup):
        for name in ("cpuset.cpus", "cpuset.mems"):
            above, own = level.parent / name, level / name
            if above.exists() and own.exists() and not own.read_text(encoding="ascii").strip():
                with contextlib.suppress(OSError):
                    own.write_text(above.read_text(encoding="ascii"), encoding="ascii")


def words(command: Sequence[str | Path]) -> str:
    """A command as one line of a shell."""
    return " ".join(str(word) for word in command)
