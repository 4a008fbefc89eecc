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
        candidates = cli.offered("kubectl mofa", words, OWN)
    except MofaError:
        candidates = []
    sys.stdout.write(
        "".join(f"{candidate}\n" for candidate in candidates)
        + f":{_NO_FILES if candidates else 0}\n"
    )
    return 0
