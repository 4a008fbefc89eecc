"""Jobs on a real Slurm, some of which come to harm, with a log of what was done to them: the truth.

    python -m mofa_local.slurm_faults FOLDER --jobs 300 --nodes 24

Jobs sleep and write the time of every second into a file of their own. Nodes lose their power, are
drained, jobs are preempted, requeued and cancelled, run out of time or of memory, end with an error
or by a signal. What Slurm says of it is written beside the truth.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from mofa_local.processes import Processes
from mofa_local.slurm import SlurmSite, bounds_memory
from mofa_model.slurm.ask import commands

SHARES: Final = {
    "completed": 0.45, "exit": 0.07, "signal": 0.06, "memory": 0.06, "timeout": 0.06,
    "cancel": 0.08, "requeue": 0.06,
    "preempt": 0.08, "node-fail": 0.08,
}  # fmt: skip
"""What becomes of a job, by its share; one of twelve nodes is drained beside them."""
SCRIPT: Final = """#!/bin/bash
exec 3<> <(:)
F={folder}/beats/$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}
echo $EPOCHREALTIME $SLURM_JOB_NODELIST > $F.start
beat() {{ read -t 1 -u 3; echo $EPOCHREALTIME > $F.beat; }}
while (( SECONDS < {seconds} )); do beat; done
{end}
"""
MEMORY: Final = "TAKEN=$(head -c 60M /dev/zero | tr '\\0' x); while :; do beat; done"
"""A job's end that takes more memory than the job asked for, and works on."""
ALONE: Final = frozenset({"completed", "exit", "signal", "memory", "timeout"})
"""What becomes of a job by itself."""
OUTAGE: Final = 45.0
"""How long a node stays without power; Slurm tells its end to the second, and is asked every
half. [s]
"""


@dataclass
class Done:
    """Something that was done to a job or a node."""

    kind: str
    at: float
    """[s]"""
    job: int = 0
    nodes: list[str] = field(default_factory=list)
    until: float = 0.0
    """When a node was as before; 0 = not yet. [s]"""


class Faults:
    """Jobs, and what is done to them."""

    def __init__(
        self, site: SlurmSite, jobs: int, seed: int, shortest: float, longest: float
    ) -> None:
        self.site, self.jobs = site, jobs
        self.draw = random.Random(seed)  # noqa: S311 - what is drawn is no secret
        self.lengths = shortest, longest
        self.log: list[Done] = []
        self.waits: dict[int, str] = {}
        self.broken: dict[str, Done] = {}
        self.closed: dict[str, Done] = {}
        (site.folder / "beats").mkdir(exist_ok=True)

    def run(self) -> None:
        """Submit all jobs, and do harm until all have ended."""
        kinds = [
            kind
            for kind, share in SHARES.items()
            if kind != "memory" or self.site.bounds_memory
            for _ in range(round(share * self.jobs))
        ]
        self.draw.shuffle(kinds)
        begun = time.time()
        for number, kind in enumerate(kinds):
            self._submit(number, kind)
        drains = [begun + 20 + 15 * number for number in range(max(1, self.site.nodes // 12))]
        while True:
            rows = [
                row.split("|") for row in self.site.ask("squeue", "-h", "-o", "%i|%T|%M|%N").split()
            ]
            if not rows and not self.broken and not self.closed:
                break
            for job, state, lasted, nodes in rows:
                if state == "RUNNING" and _seconds(lasted) >= 4 and int(job) in self.waits:
                    self._harm(int(job), nodes)
            self._mend()
            if drains and time.time() > drains[0]:
                drains.pop(0)
                self._drain()
            time.sleep(0.5)

    def _submit(self, number: int, kind: str) -> None:
        seconds = round(self.draw.uniform(*self.lengths))
        ends = {"exit": "exit 3", "signal": "kill -SEGV $$", "memory": MEMORY}
        nodes = 2 if self.draw.random() < 0.2 else 1
        limit = "1" if kind == "timeout" else "30"
        seconds = 300 if kind == "timeout" else seconds
        text = SCRIPT.format(folder=self.site.folder, seconds=seconds, end=ends.get(kind, "exit 0"))
        job = self.site.submit(
            text, f"--job-name=train{number}", f"-N{nodes}", f"--gres=gpu:{self.site.devices}",
            f"-t{limit}",
            "--requeue", "--exclusive", "-o", "/dev/null",
            *(("--mem=20M",) if kind == "memory" else ()),
        )  # fmt: skip
        if kind in ALONE:
            self.log.append(Done(kind, 0.0, job))
        else:
            self.waits[job] = kind

    def _harm(self, job: int, listed: str) -> None:
        nodes = self.site.ask("scontrol", "show", "hostnames", listed).split()
        kind = self.waits.pop(job)
        done = Done(kind, time.time(), job, nodes)
        if kind == "cancel":
            self.site.run("scancel", str(job))
        elif kind == "requeue":
            self.site.run("scontrol", "requeue", str(job))
        elif kind == "preempt":
            text = SCRIPT.format(folder=self.site.folder, seconds=5, end="exit 0")
            urgent = self.site.submit(
                text, "-purgent", f"-w{nodes[0]}", "-N1", f"--gres=gpu:{self.site.devices}", "-t5",
                "--exclusive",
                "--job-name=urgent", "-o", "/dev/null",
            )  # fmt: skip
            self.log.append(Done("completed", 0.0, urgent))
        else:
            done.nodes = [self.draw.choice(nodes)]
            done.at = time.time()
            self.site.kill_node(done.nodes[0])
            self.broken[done.nodes[0]] = done
        self.log.append(done)

    def _drain(self) -> None:
        free = [
            name for name in self.site.names if name not in self.broken and name not in self.closed
        ]
        name = self.draw.choice(free)
        self.closed[name] = Done("drain", time.time(), nodes=[name])
        self.site.ask(
            "scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=change of a cable"
        )
        self.log.append(self.closed[name])

    def _mend(self) -> None:
        states = self.site.states()
        now = time.time()
        for name, done in list(self.broken.items()):
            if f"slurmd-{name}" not in self.site.processes:
                if states[name].startswith("down") and now - done.at > OUTAGE:
                    self.site.start_node(name)
            elif not states[name].startswith(("down", "unknown")):
                done.until = done.until or now
                if not states[name].endswith("*"):
                    del self.broken[name]
        for name, done in list(self.closed.items()):
            if now - done.at > 60 and states[name].startswith("drained"):
                self.site.ask("scontrol", "update", f"NodeName={name}", "State=RESUME")
                done.until = time.time()
                del self.closed[name]

    def beats(self) -> list[dict[str, float | str]]:
        """When each run of a job worked, by its own file."""
        beats: list[dict[str, float | str]] = []
        counts: dict[str, int] = {}
        for begun in sorted((self.site.folder / "beats").glob("*.start")):
            first, nodes = begun.read_text().split()
            last = begun.with_suffix(".beat")
            end = float(last.read_text() or first) if last.exists() else float(first)
            if nodes not in counts:
                counts[nodes] = len(self.site.ask("scontrol", "show", "hostnames", nodes).split())
            beats.append(
                {"run": begun.stem, "start": float(first), "end": end, "nodes": counts[nodes]}
            )
        return beats


def _seconds(text: str) -> int:
    total = 0
    for part in text.replace("-", ":").split(":"):
        total = total * 60 + int(part)
    return total


def recorded(site: SlurmSite, faults: Faults, begun: float, folder: Path) -> None:
    """Write the truth, and what Slurm says, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    until = time.time()
    asked = commands(begun - 1, until + 1)
    asked["sacct-json"] = ("sacct", "-D", "-a", "-S", f"uts{begun - 1:.0f}", "--json")
    asked["sinfo-json"] = ("sinfo", "--json")
    asked["sinfo"] = ("sinfo", "-N", "-o", "%N %P %T %G %c %m %f %E")
    for name, words in asked.items():
        ending = "json" if name.endswith("json") else "txt"
        zone = (
            "TZ=UTC" if ending == "json" else "SLURM_TIME_FORMAT=%s"
        )  # JSON takes no other format
        (folder / f"{name}.{ending}").write_text(site.ask("env", zone, *words))
    truth = {
        "start": begun,
        "end": until,
        "nodes": site.names,
        "log": [asdict(fault) for fault in faults.log],
        "beats": faults.beats(),
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def main() -> int:
    """Run the site and its faults."""
    parser = argparse.ArgumentParser(prog="python -m mofa_local.slurm_faults", description=__doc__)
    parser.add_argument("folder", type=Path, help="where what was seen is written")
    parser.add_argument("--jobs", type=int, default=300, help="jobs (default: 300)")
    parser.add_argument("--nodes", type=int, default=24, help="nodes (default: 24)")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn (default: 1)")
    parser.add_argument(
        "--shortest", type=float, default=12.0, help="shortest job in seconds (default: 12)"
    )
    parser.add_argument(
        "--longest", type=float, default=30.0, help="longest job in seconds (default: 30)"
    )
    arguments = parser.parse_args()
    with Processes(arguments.folder / "processes") as processes:
        site = SlurmSite(
            arguments.folder / "site",
            processes,
            nodes=arguments.nodes,
            bounds_memory=bounds_memory(),
        )
        site.start()
        begun = time.time()
        faults = Faults(site, arguments.jobs, arguments.seed, arguments.shortest, arguments.longest)
        try:
            faults.run()
        finally:
            recorded(site, faults, begun, arguments.folder / "seen")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
