"""A real Slurm on loopback ports: munged, MariaDB, slurmdbd, slurmctld, and a slurmd for each node.

    with Processes(folder) as processes:
        site = SlurmSite(folder, processes, nodes=4)
        site.start()
        site.ask("sinfo", "-N")

    python -m mofa_local.slurm       installs them, as root on Debian

All of them are Debian's `PACKAGES`; they run as root, with keys and a database of their own, and
leave nothing outside the folder but a link to it, which goes with the site. A node has generic
resources `gpu` that are counted and not there. Nothing here talks to another Slurm.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mofa_local import LocalStackError
from mofa_local.debian import install
from mofa_local.ports import HOST, free_ports
from mofa_local.processes import Processes

PACKAGES: Final = (
    "slurmctld", "slurmd", "slurmdbd", "slurm-client", "slurm-wlm-mysql-plugin", "munge",
    "mariadb-server",
)  # fmt: skip
"""Packages of Debian that have the programs."""
PROGRAMS: Final = (
    "munged", "mariadbd", "mariadb-install-db", "mysql", "slurmdbd", "slurmctld", "slurmd",
    "sbatch", "sacct",
)  # fmt: skip
MEMORY: Final = Path("/sys/fs/cgroup/memory")
"""Where the kernel bounds memory by cgroups of version 1; those of version 2 Slurm leaves
to systemd.
"""
PATIENCE: Final = 240.0
"""How long a command may take. [s]"""


def missing() -> str:
    """Why no Slurm can run here, in one line; empty where it can."""
    lacking = [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]
    if lacking:
        return (
            f"no Slurm here: {', '.join(lacking)} missing; `make test-slurm` installs "
            f"{' '.join(PACKAGES)}"
        )
    return "" if os.geteuid() == 0 else "no Slurm here: its daemons start as root alone"


def bounds_memory() -> bool:
    """Whether a job's memory can be bounded here."""
    return os.access(MEMORY / "memory.limit_in_bytes", os.W_OK)


def _path() -> str:
    return os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"))


@dataclass
class SlurmSite:
    """One cluster of Slurm."""

    folder: Path
    processes: Processes
    nodes: int = 4
    """Nodes. [1]"""
    devices: int = 8
    """GPUs of a node. [1]"""
    product: str = "h100"
    """Type of the GPUs, as Slurm names it."""
    down_after: int = 4
    """How long a node may be silent before it is down: longer where a machine may starve it. [s]"""
    bounds_memory: bool = False
    """Whether a job that takes more memory than it asked for is ended; by cgroups of the nodes'
    names, so for one site at once.
    """
    near: Path = field(init=False)
    """The folder by a short name: a socket's path has 108 bytes at most, and Slurm adds 30 to that
    of its spool.
    """

    def __post_init__(self) -> None:
        """Draw the ports and write the files."""
        self.folder = self.folder.resolve()
        short = Path(tempfile.mkdtemp(prefix="slurm-"))
        weakref.finalize(self, shutil.rmtree, short, ignore_errors=True)
        if self.bounds_memory:
            weakref.finalize(
                self, _without_groups, [MEMORY / f"slurm_{node}" for node in self.names]
            )
        self.near = short / "site"
        self.near.symlink_to(self.folder)
        for name in ("spool", "state", "database", "temporary", "log"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.ports = dict(
            zip(("database", "dbd", "ctld", *self.names), free_ports(3 + self.nodes), strict=True)
        )
        self._write()

    @property
    def names(self) -> list[str]:
        """The nodes' names."""
        return [f"gpu{number:02d}" for number in range(1, self.nodes + 1)]

    @property
    def environment(self) -> dict[str, str]:
        """What the commands of Slurm need to find this one."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": _path()}

    def start(self) -> None:
        """Start the cluster, and wait until every node is idle."""
        self._start_munge()
        self._start_database()
        self.processes.start(
            "slurmdbd",
            ["slurmdbd", "-D"],
            environment=self.environment,
            ready=lambda: self._listens("dbd"),
        )
        self.ask("sacctmgr", "-i", "add", "cluster", "mofa")
        self.ask("sacctmgr", "-i", "add", "account", "lab", "Cluster=mofa")
        self.ask("sacctmgr", "-i", "add", "user", "root", "Account=lab")
        self.processes.start(
            "slurmctld",
            ["slurmctld", "-D", "-f", self.folder / "slurm.conf"],
            environment=self.environment,
            ready=lambda: self._listens("ctld"),
        )
        for name in self.names:
            self.start_node(name)
        self.wait_for(
            "every node is idle", lambda: self.states() == dict.fromkeys(self.names, "idle")
        )

    def start_node(self, name: str) -> None:
        """Start the daemon of a node."""
        self.processes.start(
            f"slurmd-{name}",
            ["slurmd", "-D", "-N", name, "-f", self.folder / "slurm.conf"],
            environment=self.environment,
        )

    def kill_node(self, name: str) -> None:
        """End a node as if its power were lost: its daemons first, then what it runs."""
        self.processes.kill(f"slurmd-{name}")
        marked = f"SLURMD_NODENAME={name}".encode()
        log = f"{self.folder}/log/slurmd.{name}.log"
        programs = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes()
                environment = (entry / "environ").read_bytes().split(b"\0")
                is_step = command.startswith(b"slurmstepd") and any(
                    str(descriptor.readlink()) == log for descriptor in (entry / "fd").iterdir()
                )
            except OSError:
                continue
            if is_step:
                _end(int(entry.name))
            elif (
                marked in environment
                and f"SLURM_CONF={self.folder}/slurm.conf".encode() in environment
            ):
                programs.append(int(entry.name))
        for process in programs:
            _end(process)

    def ask(self, *words: str | Path, text: str | None = None) -> str:
        """The output of a command of Slurm, which has to succeed."""
        done = self.run(*words, text=text)
        if done.returncode:
            raise LocalStackError(f"{words[0]}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def run(self, *words: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm, which may fail."""
        return subprocess.run(
            [str(word) for word in words], input=text, capture_output=True, text=True, check=False,
            timeout=PATIENCE, env={**os.environ, **self.environment}, cwd=self.folder,
        )  # fmt: skip

    def submit(self, script: str, *options: str) -> int:
        """Hand a script to sbatch; returns the number of its job."""
        made = self.ask("sbatch", "--parsable", *options, text=script)
        return int(made.strip().partition(";")[0])

    def states(self) -> dict[str, str]:
        """The state of every node."""
        rows = self.ask("sinfo", "-h", "-N", "-o", "%N %T").split("\n")
        return dict(row.split() for row in rows if row)

    def wait_for(self, what: str, holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until something holds."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise LocalStackError(
                    f"slurm: {what}: not after {seconds:.0f} s\n{self._state_and_errors()}"
                )
            time.sleep(0.2)

    def _state_and_errors(self) -> str:
        """What Slurm says of its jobs and nodes, and the last errors of its logs."""
        jobs = self.run("squeue", "-t", "all", "-o", "%i %T %R").stdout
        nodes = self.run("sinfo", "-N", "-o", "%N %T %E").stdout
        errors = [
            f"{log.name}: {line}"
            for log in sorted((self.folder / "log").iterdir())
            for line in [
                line_of_log
                for line_of_log in log.read_text("utf-8", "replace").splitlines()
                if "error:" in line_of_log or "fatal:" in line_of_log
            ][-5:]
        ]
        return "\n".join((jobs, nodes, *errors))

    # --- its parts ----------------------------------------------------------------------------

    def _listens(self, name: str) -> bool:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            return probe.connect_ex((HOST, self.ports[name])) == 0

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        if not key.exists():
            key.write_bytes(os.urandom(128))
            key.chmod(0o400)
        where = self.near / "munge.socket"
        self.processes.start(
            "munged",
            ["munged", "--foreground", "--force", "--num-threads=2", f"--socket={where}",
                f"--key-file={key}",
             f"--log-file={self.folder}/log/munged.log", f"--pid-file={self.folder}/munged.pid",
             f"--seed-file={self.folder}/munged.seed"],
            ready=where.exists,
        )  # fmt: skip

    def _start_database(self) -> None:
        data, where = self.folder / "database", self.near / "database.socket"
        own = {"PATH": _path(), "TMPDIR": str(self.folder / "temporary")}  # two at once collide
        if not any(data.iterdir()):
            done = subprocess.run(
                ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root",
                    "--skip-test-db",
                 "--auth-root-authentication-method=normal"],
                capture_output=True, text=True, check=False, env={**os.environ, **own},
            )  # fmt: skip
            if done.returncode:
                raise LocalStackError(f"mariadb-install-db: {done.stderr.strip()[-300:]}")
        self.processes.start(
            "mariadbd",
            ["mariadbd", "--no-defaults", f"--datadir={data}", "--user=root", f"--socket={where}",
             f"--port={self.ports['database']}", f"--bind-address={HOST}",
             "--innodb-buffer-pool-size=64M",
             "--innodb-log-file-size=32M", "--innodb-lock-wait-timeout=900",
             "--innodb-flush-log-at-trx-commit=0"],
            environment=own,
            ready=lambda: self._listens("database"),
        )  # fmt: skip
        words = (
            "CREATE USER IF NOT EXISTS 'slurm'@'%' IDENTIFIED BY 'slurm'; "
            "GRANT ALL ON *.* TO 'slurm'@'%';"
        )
        done = subprocess.run(
            ["mysql", "--no-defaults", f"--socket={where}", "-uroot", "-e", words],
            capture_output=True, text=True, check=False, env={**os.environ, "PATH": _path()},
        )  # fmt: skip
        if done.returncode:
            raise LocalStackError(f"mysql: {done.stderr.strip()}")

    def _write(self) -> None:
        """Write the configuration files of this local Slurm, and files that stand for its
        nodes' GPUs.
        """
        folder = self.folder
        host = socket.gethostname().partition(".")[0]
        cpus = max(1, self.devices * 4)
        node_lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr={HOST} Port={self.ports[name]} "
            f"CPUs={cpus} "
            f"RealMemory=64000 Gres=gpu:{self.product}:{self.devices} Feature={self.product},hbm "
            "State=UNKNOWN"
            for name in self.names
        ]
        together = ",".join(self.names)
        _written(
            folder / "slurm.conf",
            "ClusterName=mofa",
            f"SlurmctldHost={host}({HOST})",
            f"SlurmctldPort={self.ports['ctld']}",
            "SlurmUser=root",
            "SlurmdUser=root",
            # A job that is requeued waits for as long as a credential lives: two minutes, where
            # nothing is said.
            f"AuthInfo=socket={self.near}/munge.socket,cred_expire=40",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={self.near}/spool/%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd.%n.pid",
            f"SlurmctldLogFile={folder}/log/slurmctld.log",
            f"SlurmdLogFile={folder}/log/slurmd.%n.log",
            "ProctrackType=proctrack/linuxproc",
            f"TaskPlugin=task/{'cgroup' if self.bounds_memory else 'none'}",
            "MpiDefault=none",
            "LaunchParameters=disable_send_gids",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=bf_interval=2,sched_interval=5,batch_sched_delay=0,"
            "sched_min_interval=0",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
            "GresTypes=gpu",
            "AccountingStorageType=accounting_storage/slurmdbd",
            f"AccountingStorageHost={HOST}",
            f"AccountingStoragePass={self.near}/munge.socket",
            f"AccountingStoragePort={self.ports['dbd']}",
            "AccountingStorageTRES=gres/gpu",
            "JobAcctGatherType=jobacct_gather/none",
            "DefMemPerNode=1000",
            "ReturnToService=2",
            f"SlurmdTimeout={self.down_after}",
            "SlurmdParameters=config_overrides",
            "KillWait=2",
            "CompleteWait=0",
            "MinJobAge=3600",
            "InactiveLimit=0",
            "JobRequeue=1",
            "RequeueExit=99",
            f"TCPTimeout={max(2, self.down_after // 4)}",
            f"MessageTimeout={max(5, self.down_after // 2)}",
            *node_lines,
            f"PartitionName=batch Nodes={together} Default=YES MaxTime=INFINITE State=UP "
            "PriorityTier=10 PreemptMode=REQUEUE OverSubscribe=NO",
            f"PartitionName=urgent Nodes={together} MaxTime=INFINITE State=UP PriorityTier=100 "
            "PreemptMode=OFF OverSubscribe=NO",
        )
        devices = folder / "devices"
        devices.mkdir(exist_ok=True)
        for number in range(self.devices):  # a node without the files of its GPUs has none
            _device(devices / f"gpu{number}")
        last = self.devices - 1
        numbers = f"[0-{last}]" if last else "0"
        _written(
            folder / "gres.conf",
            f"NodeName={together} Name=gpu Type={self.product} File={devices}/gpu{numbers}",
        )
        _written(
            folder / "cgroup.conf",
            "CgroupAutomount=no",
            "CgroupPlugin=cgroup/v1",
            "ConstrainRAMSpace=yes",
        )
        _written(
            folder / "slurmdbd.conf",
            f"DbdHost={host}",
            f"DbdAddr={HOST}",
            f"DbdPort={self.ports['dbd']}",
            f"AuthInfo=socket={self.near}/munge.socket",
            "SlurmUser=root",
            f"PidFile={folder}/slurmdbd.pid",
            f"LogFile={folder}/log/slurmdbd.log",
            "StorageType=accounting_storage/mysql",
            f"StorageHost={HOST}",
            f"StoragePort={self.ports['database']}",
            "StorageUser=slurm",
            "StoragePass=slurm",
            "StorageLoc=slurm",
        )
        (folder / "slurmdbd.conf").chmod(0o600)


def _written(path: Path, *lines: str) -> None:
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _device(path: Path) -> None:
    """A file like that of a GPU: Slurm tells jobs the numbers of devices alone."""
    if path.exists():
        return
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    except OSError:  # not allowed here: it counts, and has no number
        path.touch()


def _without_groups(groups: list[Path]) -> None:
    for group in groups:
        for inner in sorted((*group.rglob("*/"), group), reverse=True):
            with contextlib.suppress(OSError):  # gone, or something still runs in it
                inner.rmdir()


def _end(process: int) -> None:
    try:
        os.kill(process, 9)
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(install(PACKAGES if missing() else (), missing))
