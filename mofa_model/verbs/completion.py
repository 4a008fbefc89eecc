"""`mofa completion SHELL`: what makes a shell complete verbs, options and names."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model.completion import SHELLS, script

EXAMPLES: Final = """\
for this shell
  eval "$(mofa completion bash)"
for every one
  mofa completion bash >> ~/.bashrc
  mofa completion zsh > ~/.zfunc/_mofa       # a folder of $fpath, before compinit
  mofa completion fish > ~/.config/fish/completions/mofa.fish"""


def configure(parser: ArgumentParser) -> None:
    """Which shell."""
    parser.add_argument("shell", choices=SHELLS, help="shell that is to complete")


def run(arguments: Namespace) -> int:
    """Print its script."""
    sys.stdout.write(script(arguments.shell))
    return 0
