"""What a fit says of every entry: its value, its scatter over folds and the runs that moved it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.fitting.folds import OutOfFold
from mofa_lab.fitting.sets import set_of
from mofa_model.calibrate.constants import FreeConstant, WrittenConstant, significant
from mofa_model.calibrate.constants import as_toml as constants_as_toml
from mofa_model.calibrate.fit import Evidence

Array = NDArray[np.floating[Any]]

HEADER: Final = """\
# Measured constants in layers; a later layer stands over an earlier one:
#   the defaults of spec/calibration.py
#   [any]                          what every device and stack has in common
#   [any.RECIPE]                   the same in a recipe (fp8-rowwise)
#   [device.CLASS]                 what kernels and links reach on a class of devices (devices.toml names the class)
#   [device.CLASS.FORMAT]          the same for a GEMM format (fp8, fp4), then for a recipe (fp8-rowwise)
#   [stack.STACK]                  a software stack on any device
#   [stack.STACK.device.CLASS]     and on one class
#   [stack.STACK.chip.CHIP]        and on one chip, as a user's own runs say it
#   [defect.NAME]                  a release or known defect, where stacks.toml says that it applies
# One constant a line, by its path in `Calibration`: `value` replaces, `factor` multiplies what the layers before say;
# scatter = standard deviation of its logarithm over fits that leave a group or a model out; source = where the prior is
# from, and the runs that moved it. Written by `mofa fit` of the lab from its fitting/priors.toml and data/cases: change
# those, not this file.

whole = true # as a file of the user's (MOFA_CONSTANTS) it takes the place of the shipped one
"""  # noqa: E501

_SEEN: Final = 1e-3
"""A row has a say on an entry where moving the entry by 1 % moves the row by more than 0.001 %."""


def written(
    entries: tuple[FreeConstant, ...],
    evidence: Evidence,
    logs: Array,
    validated: Iterable[OutOfFold] = (),
) -> list[WrittenConstant]:
    """The entries of one problem after a fit, in the order of priors.toml."""
    place = {entry.name: index for index, entry in enumerate(evidence.entries)}
    _, slope = evidence.derivatives(logs)
    touched = np.abs(slope) > _SEEN
    spreads = scatter(evidence, logs, list(validated), touched)
    rows = []
    for entry in entries:
        index = place.get(entry.name)
        if index is None or not entry.spread:
            rows.append(WrittenConstant(entry=entry, value=entry.prior))
            continue
        seen = _runs(evidence, touched[:, index])
        value = significant(float(np.exp(logs[index]))) if seen else entry.prior
        spread = significant(float(spreads[index]), 2)
        rows.append(
            WrittenConstant(
                entry=entry, value=value, scatter=spread if seen else 0.0, run_counts=seen
            )
        )
    return rows


def _runs(evidence: Evidence, touched: NDArray[np.bool_]) -> tuple[tuple[str, int], ...]:
    counted: dict[str, set[str]] = {}
    for row, is_touched in zip(evidence.rows, touched, strict=True):
        if is_touched and row.figure is not None:
            counted.setdefault(set_of(row.case), set()).add(row.case.id)
    return tuple((name, len(runs)) for name, runs in sorted(counted.items()))


def scatter(
    evidence: Evidence, logs: Array, validated: list[OutOfFold], touched: NDArray[np.bool_]
) -> Array:
    """Root mean square move of each entry over the folds that leave out a row with a say on
    it. [1]
    """
    total, count = np.zeros(len(evidence.entries)), np.zeros(len(evidence.entries))
    free = np.isfinite(logs)
    for validation in validated:
        for fold, there in zip(validation.folds, validation.logs, strict=True):
            says = touched[fold.unseen].any(axis=0) & free
            total[says] += np.square(there[says] - logs[says])
            count[says] += 1
    return np.sqrt(total / np.maximum(count, 1.0))


def rounded(constants: Iterable[WrittenConstant], entries: tuple[FreeConstant, ...]) -> Array:
    """Logarithms of the entries as they are written, in the order of a problem. [1]"""
    values = {item.entry.name: item.value for item in constants}
    with np.errstate(divide="ignore"):
        logs: Array = np.log(np.array([values[entry.name] for entry in entries]))
    return logs


def as_toml(constants: Iterable[WrittenConstant]) -> str:
    """The text of constants.toml."""
    return constants_as_toml(constants, HEADER)


def joined(
    parts: Iterable[list[WrittenConstant]], entries: tuple[FreeConstant, ...]
) -> list[WrittenConstant]:
    """The constants of several fits, in the order of priors.toml. A constant that no fit moved
    keeps its prior value.
    """
    constants: Mapping[str, WrittenConstant] = {
        item.entry.name: item for part in parts for item in part if item.run_counts
    }
    return [
        constants.get(entry.name) or WrittenConstant(entry=entry, value=entry.prior)
        for entry in entries
    ]


def renamed(item: WrittenConstant, section: str) -> WrittenConstant:
    """The same constant in another section."""
    return replace(item, entry=replace(item.entry, section=section))
