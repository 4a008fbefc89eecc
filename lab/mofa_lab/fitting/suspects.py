"""Runs that look wrong, with the reason: conditions of suspects.toml held against ids, GPU counts
and ratios.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from mofa_lab.fitting.campaign import Calibrated
from mofa_model.calibrate.fit import FitRow


@dataclass(frozen=True, slots=True)
class Suspect:
    """A run and why it looks wrong; `error` is signed, predicted / measured - 1, all
    runs fitted.
    """

    row: FitRow
    error: float
    reason: str


def rules() -> list[Mapping[str, Any]]:
    """The conditions, in order."""
    text = resources.files("mofa_lab.fitting").joinpath("suspects.toml").read_text(encoding="utf-8")
    return list(tomllib.loads(text)["rows"])


def suspects(part: Calibrated, quantity: str = "step_time_s") -> Iterator[Suspect]:
    """Every measured run that a rule marks as doubtful, with its error and the reason that the
    first such rule gives.
    """
    rules_by_pattern = [(re.compile(rule["id"]), rule) for rule in rules()]
    for row, value in zip(part.evidence.rows, part.values, strict=True):
        if row.figure is None or row.figure.quantity != quantity:
            continue
        excess = float(np.exp(row.measured - value))  # measured over predicted
        for pattern, rule in rules_by_pattern:
            if pattern.search(row.case.id) and _meant(rule, row, excess):
                yield Suspect(row, 1.0 / excess - 1.0, rule["reason"])
                break


def _meant(rule: Mapping[str, Any], row: FitRow, excess: float) -> bool:
    size = rule.get("gpus", row.case.cluster.gpus) == row.case.cluster.gpus
    return bool(
        size and excess >= rule.get("slower", 0.0) and 1.0 / excess >= rule.get("faster", 0.0)
    )
