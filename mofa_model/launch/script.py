"""The script that starts a launch on a node."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from mofa_model.launch.answer import TORCHRUN, Launch, shell_lines

_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "megatron": ("pretrain_gpt.py",),
    "torchtitan": ("-m", "torchtitan.train"),
}
"""What a trainer's users start; of the others everybody has a script of his own."""
_OWN: Final = ("train.py",)


def program_of(trainer: str) -> tuple[str, ...]:
    """What torchrun starts, before the trainer's arguments.

    >>> program_of("torchtitan")
    ('-m', 'torchtitan.train')
    """
    return _PROGRAMS.get(trainer, _OWN)


def on_nodes(
    starter: Sequence[str],
    nodes: int,
    gpus: int,
    *,
    rank: str = "",
    address: str = "",
    port: str = "29500",
) -> list[tuple[str, str]]:
    """Options that tell a starter its nodes and GPUs [1] and, where an address is given, how they meet.

    >>> on_nodes(["torchrun"], 2, 8)
    [('--nnodes', '2'), ('--nproc-per-node', '8')]
    """
    if tuple(starter) == TORCHRUN:
        names = ("--node-rank", "--master-addr", "--master-port")
        told = [("--nnodes", str(nodes)), ("--nproc-per-node", str(gpus))]
    else:
        names = ("--machine_rank", "--main_process_ip", "--main_process_port")
        told = [("--num_machines", str(nodes)), ("--num_processes", str(nodes * gpus))]
    return told + list(zip(names, (rank, address, port), strict=True)) * bool(address)


def launch_script(launch: Launch, nodes: int, gpus: int) -> str:
    """A shell script for each of `nodes` nodes with `gpus` GPUs [1]; arguments of people's own come before the layout."""
    program = program_of(launch.trainer)
    started = shlex.join(program) if len(program) > 1 else f'"${{SCRIPT:-{program[0]}}}"'

    def quoted(word: str) -> str:
        return f'"$HERE"/{shlex.quote(word)}' if word in launch.files else shlex.quote(word)

    met = (
        {
            "rank": '"${NODE_RANK:?0 on the first node}"',
            "address": '"${MASTER_ADDR:?address of the first node}"',
            "port": '"${MASTER_PORT:-29500}"',
        }
        if nodes > 1
        else {}
    )
    told = " ".join(
        f"{option} {value}" for option, value in on_nodes(launch.starter, nodes, gpus, **met)
    )
    lines = [
        "#!/usr/bin/env bash",
        f"# {launch.release} on {nodes} nodes with {gpus} GPUs each; run it on every node, with arguments of your own.",
        *(f"# {note}" for note in launch.notes),
        "set -euo pipefail",
        *(['HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"'] if launch.files else []),
        *(f"export {name}={shlex.quote(value)}" for name, value in launch.environment.items()),
        f"exec {' '.join(map(quoted, launch.starter))} \\",
        f"{told} \\",
        f'{started} "$@" \\',
        shell_lines(launch.arguments, quoted),
    ]
    return "\n".join(lines) + "\n"
