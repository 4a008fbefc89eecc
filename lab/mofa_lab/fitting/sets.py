"""Runs whose errors are summed up together."""

from __future__ import annotations

from typing import Final

from mofa_model.calibrate.cases import Case

CROWD: Final = 0.5
"""Power of a group's size by which each run counts less: errors are alike. Ours. [1]"""
SETS: Final = {"huggingface": "nanotron"}
"""Publishers whose sweep goes by another name."""


def set_of(case: Case) -> str:
    """`published` for single runs, the name of the sweep for runs that compete with each other."""
    return SETS.get(case.publisher, case.publisher) if case.group else "published"
