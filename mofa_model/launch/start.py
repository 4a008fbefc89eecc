"""What a launch says beside its layout, so that it starts with no word added: the shape of the
model, tokenizer, data, steps and folders.

What only people know is a variable at the top of the script, with a value that runs: mock data, no
tokenizer, weights from nothing. `launch-smoke.sh` is the same launch with other values: ten steps.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from mofa_model.records import dataclass

STEPS_OF_SMOKE: Final = 10
"""Steps of `launch-smoke.sh`. [1]"""


_NO_GPU: Final = "[ -e /dev/nvidia0 ] || [ -e /dev/kfd ]"
"""A test of the shell: whether a driver of NVIDIA or AMD is here."""


class Variable(NamedTuple):
    """A variable of the launch script that only people can set, with a value that runs."""

    name: str
    default: str
    meaning: str = ""


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a launch says beside its layout."""

    program: str = ""
    """The script that starts where nobody names one; empty = the trainer's own."""
    variables: tuple[Variable, ...] = ()
    preparations: tuple[str, ...] = ()
    """Lines of shell that make options of the variables."""
    shape: tuple[str, ...] = ()
    """The model, as words of the trainer."""
    options: tuple[str, ...] = ()
    """Further options, as they stand in a shell script."""
    options_last: bool = False
    """Whether the options come behind those of the layout, because a file has to come first."""
    extra_files: Mapping[str, str] = field(default_factory=dict)
    """Files that the options name, with their text."""
    smoke: tuple[Variable, ...] = ()
    """The variables of ten steps, where they are others."""
    smoke_preparations: tuple[str, ...] = ()
    """Lines of shell before these ten steps."""
    without_gpu: tuple[str, ...] = ()
    """Words that let the ten steps run where no GPU is."""
    default_run: str = ""
    """What runs as long as nobody changes a variable, in one sentence."""

    def top(self) -> list[str]:
        """Lines of shell at the top of a launch script."""
        if not self.variables:
            return []
        lines = [f"# Yours to set, here or in the environment. {self.default_run}".rstrip()]
        for variable in self.variables:
            value = (
                variable.default
                if variable.default.startswith('"$')
                else shlex.quote(variable.default)
            )
            inner = value.strip('"') if value.startswith('"') else value if variable.default else ""
            line = f'{variable.name}="${{{variable.name}-{inner}}}"'
            lines.append(f"{line}  # {variable.meaning}" if variable.meaning else line)
        return [*lines, *self.preparations]

    def shell_options(self) -> list[str]:
        """The words of the start as a script writes them, one option on each line."""
        shape = list[str]()
        for word in self.shape:
            quoted = shlex.quote(word)
            if shape and not word.startswith("--") and shape[-1].startswith("--"):
                shape[-1] += f" {quoted}"
            else:
                shape.append(quoted)
        return [*shape, *self.options]

    def smoke_script(self, launched: str) -> str:
        """The script of ten steps, which starts the launch script beside it."""
        sets = [f"export {variable.name}={variable.default}" for variable in self.smoke]
        lines = [
            "#!/usr/bin/env bash",
            f"# {STEPS_OF_SMOKE} steps of {launched} with its layout: does it start here?",
            "set -euo pipefail",
            'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"',
            *self.smoke_preparations,
            *sets,
            *(
                [f'{_NO_GPU} || set -- {" ".join(self.without_gpu)} "$@"']
                if self.without_gpu
                else []
            ),
            f'exec bash "$HERE/{launched}" "$@"',
        ]
        return "\n".join(lines) + "\n"


def variables(*rows: Sequence[str]) -> tuple[Variable, ...]:
    """Variables of rows: name, value, meaning."""
    return tuple(Variable(*row) for row in rows)
