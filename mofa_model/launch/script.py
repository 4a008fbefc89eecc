"""The script that starts a launch on a node."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from mofa_model.launch.answer import Launch, shell_lines

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


def launch_script(launch: Launch, nodes: int, gpus: int) -> str:
    """A shell script for each of `nodes` nodes with `gpus` GPUs [1]; arguments of people's own come before the layout."""
    program = program_of(launch.trainer)
    started = shlex.join(program) if len(program) > 1 else f'"${{SCRIPT:-{program[0]}}}"'

    def quoted(word: str) -> str:
        return f'"$HERE"/{shlex.quote(word)}' if word in launch.files else shlex.quote(word)

    meet = (
        '--node-rank "${NODE_RANK:?0 on the first node}" --master-addr "${MASTER_ADDR:?address of the first node}"'
        ' --master-port "${MASTER_PORT:-29500}" '
        if nodes > 1
        else ""
    )
    lines = [
        "#!/usr/bin/env bash",
        f"# {launch.release} on {nodes} nodes with {gpus} GPUs each; run it on every node, with arguments of your own.",
        *(f"# {note}" for note in launch.notes),
        "set -euo pipefail",
        *(['HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"'] if launch.files else []),
        *(f"export {name}={shlex.quote(value)}" for name, value in launch.environment.items()),
        "exec torchrun \\",
        f"--nnodes {nodes} --nproc-per-node {gpus} {meet}\\",
        f'{started} "$@" \\',
        shell_lines(launch.arguments, quoted),
    ]
    return "\n".join(lines) + "\n"
