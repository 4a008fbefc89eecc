"""Asks the Slurm of this machine, by the commands on the PATH; nothing is changed."""

from __future__ import annotations

from typing import Final

from mofa_model.errors import SourceUnreachable, why
from mofa_model.slurm.printed import read
from mofa_model.slurm.slurm_records import SlurmRecords

PATIENCE: Final = 120.0
"""How long one command may take. [s]"""
FIELDS: Final = (
    "JobID", "JobIDRaw", "JobName", "User", "Partition", "State", "ExitCode", "Submit", "Start",
    "End", "NodeList", "AllocTRES", "Timelimit", "Reason", "Comment",
)  # fmt: skip
EVENTS: Final = "Cluster,NodeName,TimeStart,TimeEnd,State,Reason%200,User"


def commands(since: float, until: float) -> dict[str, tuple[str, ...]]:
    """The commands by what they tell, for a time between two moments of the epoch. [s]"""
    begin, end = f"uts{since:.0f}", f"uts{until:.0f}"
    return {
        "nodes": ("scontrol", "show", "node"),
        "config": ("scontrol", "show", "config"),
        "runs": (
            "sacct", "-D", "-X", "-a", "-P", "-S", begin, "-E", end,
            f"--format={','.join(FIELDS)}",
        ),
        "events": (
            "sacctmgr", "-P", "show", "event", f"Start={begin}", f"End={end}", f"format={EVENTS}",
        ),
    }  # fmt: skip


def ask(since: float, until: float) -> SlurmRecords:
    """Nodes, runs and events of the Slurm that is here; `SourceUnreachable` without one. [s]"""
    outputs = [
        (text, " ".join(words[:3]))
        for what, words in commands(since, until).items()
        if (text := _output(words, needed=what in {"nodes", "runs"})).strip()
    ]
    return read(outputs)


def _output(words: tuple[str, ...], *, needed: bool) -> str:
    import os
    import subprocess

    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=PATIENCE, check=False,
            env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
        )  # fmt: skip
    except FileNotFoundError:
        raise SourceUnreachable(
            f"Slurm: there is no {words[0]} on the PATH; give files with what it printed"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = why(error) if isinstance(error, OSError) else f"no answer in {PATIENCE:.0f} s"
        raise SourceUnreachable(f"Slurm: {words[0]}: {reason}") from None
    if done.returncode and needed:
        message = (done.stderr or done.stdout).strip().partition("\n")[0]
        raise SourceUnreachable(f"Slurm: {' '.join(words[:3])}: {message}")
    return done.stdout if done.returncode == 0 else ""
