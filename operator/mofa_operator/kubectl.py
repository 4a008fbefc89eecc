"""`kubectl mofa VERB`: the same command under the name by which kubectl finds it."""

from __future__ import annotations

import sys
from typing import Final

from mofa_model import cli
from mofa_model.errors import MofaError

OWN: Final = {"explain": "mofa_operator.verbs.explain"}
"""Verbs that do something else here, because kubectl has a cluster."""

_NO_FILES: Final = 4
"""The directive by which kubectl completes no names of files."""


def main() -> int:
    """Run the command."""
    return cli.main(program="kubectl mofa", instead=OWN)


def complete() -> int:
    """Print what may follow, for kubectl's completion: a line each, then a directive."""
    words = sys.argv[1:] or [""]
    try:
        offers = cli.offered("kubectl mofa", words, OWN)
    except MofaError:
        offers = []
    sys.stdout.write("".join(f"{offer}\n" for offer in offers) + f":{_NO_FILES if offers else 0}\n")
    return 0
