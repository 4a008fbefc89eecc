"""`kubectl mofa VERB`: the same command under the name by which kubectl finds it."""

from __future__ import annotations

import sys
from typing import Final

from mofa_model import cli
from mofa_model.errors import MofaError

OWN: Final = {"explain": "mofa_operator.verbs.explain"}
"""Verbs that mean something else where a cluster is at hand."""

_NO_FILES: Final = 4
"""How kubectl is told that no names of files may follow."""


def main() -> int:
    """Run it."""
    return cli.main(program="kubectl mofa", instead=OWN)


def complete() -> int:
    """Answer kubectl's question what may follow: a line each, then how it is to be taken."""
    words = sys.argv[1:] or [""]
    try:
        offers = cli.offered("kubectl mofa", words, OWN)
    except MofaError:
        offers = []
    sys.stdout.write("".join(f"{offer}\n" for offer in offers) + f":{_NO_FILES if offers else 0}\n")
    return 0
