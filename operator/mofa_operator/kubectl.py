"""`kubectl mofa VERB`: the same command under the name by which kubectl finds its plugins; `explain` takes a job there."""

from __future__ import annotations

from typing import Final

from mofa_model import cli

OWN: Final = {"explain": "mofa_operator.verbs.explain"}
"""Verbs that mean something else where a cluster is at hand."""


def main() -> int:
    """Run it."""
    return cli.main(program="kubectl mofa", instead=OWN)
