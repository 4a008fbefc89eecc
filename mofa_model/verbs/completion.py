"""`mofa completion SHELL`: what makes a shell complete verbs, options and names."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model.completion import SHELLS, script

EXAMPLES: Final = """\
examples:
  for every bash, every zsh (a folder of $fpath, before compinit), every fish;
  for one alone, eval what it prints
  mofa completion bash > ~/.local/share/bash-completion/completions/mofa
  mofa completion zsh > ~/.zfunc/_mofa
  mofa completion fish > ~/.config/fish/completions/mofa.fish"""


def configure(parser: ArgumentParser) -> None:
    """Add the name of the shell."""
    parser.add_argument("shell", choices=SHELLS, help="shell to print the completion script for")


def run(arguments: Namespace) -> int:
    """Print the completion script of the shell."""
    sys.stdout.write(script(arguments.shell))
    return 0
