"""constants.toml as text: every entry with its value, its scatter over folds and its source, the same text every time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.calibrate.evidence import Evidence
from mofa_model.calibrate.folds import OutOfFold
from mofa_model.calibrate.free import Free

Array = NDArray[np.floating[Any]]

HEADER: Final = """\
# Measured constants in layers; a later layer stands over an earlier one:
#   the defaults of spec/calibration.py
#   [any]                          what every device and stack has in common
#   [device.CLASS]                 what kernels and links reach on a class of devices (devices.toml names the class)
#   [device.CLASS.FORMAT]          the same for a GEMM format (fp8, fp4), then for a recipe (fp8-rowwise)
#   [stack.STACK]                  a software stack on any device
#   [stack.STACK.device.CLASS]     and on one class
#   [defect.NAME]                  a release or known defect, where stacks.toml says that it applies
# One constant a line, by its path in `Calibration`: `value` replaces, `factor` multiplies what the layers before say;
# scatter = standard deviation of its logarithm over fits that leave a source or a model out; source = where the prior is
# from, and the runs that moved it. Written by `mofa calibrate` from calibrate/priors.toml and tests/data/cases: change
# those, not this file.

whole = true # as a file of the user's (MOFA_CONSTANTS) it takes the place of the shipped one
"""

DIGITS: Final = 4
"""Significant digits of a fitted constant: a tenth of a per mille is far below any scatter."""

_SEEN: Final = 1e-3
"""A row has a say on an entry where moving the entry by 1 % moves the row by more than 0.001 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """One entry as it stands in constants.toml."""

    entry: Free
    """The prior it started from."""
    value: float
    """Its value or factor."""
    scatter: float = 0.0
    """Standard deviation of its logarithm over folds that touch it; 0 = fixed, or never left out."""
    runs: tuple[tuple[str, int], ...] = ()
    """How many runs of each set have a say on it."""

    @property
    def fitted(self) -> bool:
        """True where runs moved it."""
        return self.entry.spread > 0 and bool(self.runs)

    @property
    def source(self) -> str:
        """Where its value is from, in one line."""
        if not self.fitted:
            return self.entry.source
        seen = ", ".join(f"{count} {name}" for name, count in self.runs)
        prior = f"{self.entry.prior:.{DIGITS}g}"
        return f"fitted to {seen} runs from {prior}: {self.entry.source}"


def written(
    entries: tuple[Free, ...], evidence: Evidence, logs: Array, validated: Iterable[OutOfFold] = ()
) -> list[Written]:
    """The entries of one problem after a fit, in the order of priors.toml."""
    place = {entry.name: index for index, entry in enumerate(evidence.entries)}
    _, slope = evidence.derivatives(logs)
    touched = np.abs(slope) > _SEEN
    spreads = scatter(evidence, logs, list(validated), touched)
    found = []
    for entry in entries:
        index = place.get(entry.name)
        if index is None or not entry.spread:
            found.append(Written(entry=entry, value=entry.prior))
            continue
        seen = _runs(evidence, touched[:, index])
        value = significant(float(np.exp(logs[index]))) if seen else entry.prior
        spread = significant(float(spreads[index]), 2)
        found.append(Written(entry=entry, value=value, scatter=spread if seen else 0.0, runs=seen))
    return found


def _runs(evidence: Evidence, touched: NDArray[np.bool_]) -> tuple[tuple[str, int], ...]:
    counted: dict[str, set[str]] = {}
    for row, here in zip(evidence.rows, touched, strict=True):
        if here and row.figure is not None:
            counted.setdefault(row.set, set()).add(row.case.id)
    return tuple((name, len(runs)) for name, runs in sorted(counted.items()))


def scatter(evidence: Evidence, logs: Array, validated: list[OutOfFold], touched: NDArray[np.bool_]) -> Array:
    """Root mean square move of each entry over the folds that leave out a row with a say on it. [1]"""
    total, count = np.zeros(len(evidence.entries)), np.zeros(len(evidence.entries))
    free = np.isfinite(logs)
    for found in validated:
        for fold, there in zip(found.folds, found.logs, strict=True):
            says = touched[fold.unseen].any(axis=0) & free
            total[says] += np.square(there[says] - logs[says])
            count[says] += 1
    return np.sqrt(total / np.maximum(count, 1.0))


def significant(value: float, digits: int = DIGITS) -> float:
    """A number with so many significant digits, so that the last bits of a machine do not change a file.

    >>> significant(0.123456)
    0.1235
    """
    return float(f"{value:.{digits}g}")


def rounded(found: Iterable[Written], entries: tuple[Free, ...]) -> Array:
    """Logarithms of the entries as they are written, in the order of a problem. [1]"""
    values = {item.entry.name: item.value for item in found}
    with np.errstate(divide="ignore"):
        logs: Array = np.log(np.array([values[entry.name] for entry in entries]))
    return logs


def as_toml(found: Iterable[Written], header: str = HEADER) -> str:
    """The text of a constants file."""
    lines, section = [header.rstrip()], None
    for item in found:
        if item.entry.section != section:
            section = item.entry.section
            lines += ["", f"[{_heading(section)}]"]
        lines.append(_line(item))
    return "\n".join(lines) + "\n"


def _heading(section: str) -> str:
    """A section's name for TOML: what follows `defect.` is one key, dots and all.

    >>> _heading("defect.slow-experts-26.02")
    'defect."slow-experts-26.02"'
    """
    kind, _, rest = section.partition(".")
    return f'{kind}."{rest}"' if kind == "defect" and "." in rest else section


def _line(item: Written) -> str:
    kind = "factor" if item.entry.factor else "value"
    spread = f", scatter = {item.scatter!r}" if item.scatter else ""
    return f'"{item.entry.path}" = {{ {kind} = {item.value!r}{spread}, source = {_quoted(item.source)} }}'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{" ".join(escaped.split())}"'


def joined(parts: Iterable[list[Written]], entries: tuple[Free, ...]) -> list[Written]:
    """Entries of several problems in the order of priors.toml; what no problem moved is as its prior."""
    known: Mapping[str, Written] = {item.entry.name: item for part in parts for item in part if item.runs}
    return [known.get(entry.name) or Written(entry=entry, value=entry.prior) for entry in entries]


def renamed(item: Written, section: str) -> Written:
    """The same entry in another section."""
    return replace(item, entry=replace(item.entry, section=section))
