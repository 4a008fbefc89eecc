"""Runs whose errors are summed up together."""

from __future__ import annotations

from typing import Final

from mofa_model.calibrate.cases import Case

SETS: Final = {"huggingface": "nanotron"}
"""Publishers whose sweep goes by another name."""


def set_of(case: Case) -> str:
    """`published` for single runs, the name of the sweep for runs that compete with each other."""
    return SETS.get(case.publisher, case.publisher) if case.group else "published"
