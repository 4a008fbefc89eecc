"""Constants that a fit may move, and their text in a constants file.

An entry is a section and path of constants.toml with a prior. A constant is what the layers of
constants.toml make of it: the innermost `value`, times every `factor` above it. So the logarithm of
each constant is a sum of logarithms of entries, and a fit works on these sums.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mofa_model.calibrate.cases import CalibrationKey
from mofa_model.errors import BadFile
from mofa_model.presets.constants import defaults, sections_of
from mofa_model.records import dataclass

YOURS: Final = "yours"
"""Section of entries that stand over all others, whatever the key: a user's own runs."""


@dataclass(frozen=True, kw_only=True)
class Free:
    """One constant that may move."""

    section: str
    path: str
    """Constant in `Calibration`, for example compute.gemm_efficiency."""
    factor: bool
    """True where it multiplies what the layers below say."""
    prior: float
    """Where it is expected."""
    spread: float
    """Standard deviation of its logarithm before any run is seen; 0 = fixed at the prior."""
    source: str
    least: float = 0.0
    """The smallest value that can be; a fit stays above."""
    most: float = math.inf
    """The largest one."""

    @property
    def name(self) -> str:
        """Section and path. []"""
        return f"{self.section}:{self.path}"


def entries_of(table: Mapping[str, Any]) -> tuple[Free, ...]:
    """Entries of a table in the form of priors.toml; those without a spread are fixed."""
    known = defaults()
    entries = []
    for section, constants in _sections(table):
        for path, given in constants.items():
            if path not in known:
                raise BadFile("priors.toml", f"[{section}] {path} is not a constant of Calibration")
            factor = "factor" in given
            entries.append(
                Free(
                    section=section,
                    path=path,
                    factor=factor,
                    prior=float(given["factor" if factor else "value"]),
                    spread=float(given.get("spread", 0.0)),
                    source=str(given.get("source", "")),
                    least=float(given.get("least", 0.0)),
                    most=float(given.get("most", math.inf)),
                )
            )
    return tuple(entries)


def _sections(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Nested tables by dotted name; a key with a dot in it is a constant."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    here = {
        key: value
        for key, value in inner.items()
        if "." in key and {"value", "factor"} & set(value)
    }
    if here:
        yield above, here
    for key, value in inner.items():
        if key not in here:
            yield from _sections(value, f"{above}.{key}" if above else key)


@dataclass(frozen=True)
class Composition:
    """How one key's constant is made: a fixed part times some of the entries."""

    fixed: float
    """Default where no entry replaces it, else 1."""
    entries: tuple[int, ...]
    """Indices of the entries that multiply up to it."""


def own_factors() -> tuple[Free, ...]:
    """Entries of runs.toml, in the section above all others."""
    text = Path(__file__).with_name("runs.toml").read_text(encoding="utf-8")
    return entries_of({YOURS: tomllib.loads(text)})


def composition(key: CalibrationKey, free: tuple[Free, ...]) -> dict[str, Composition]:
    """How each constant of one device, precision and stack is made of entries of the fit."""
    by_section: dict[str, list[int]] = {}
    for index, entry in enumerate(free):
        by_section.setdefault(entry.section, []).append(index)
    known = defaults()
    made: dict[str, Composition] = {}
    layers = sections_of(
        key.device, key.precision, key.stack, release=key.release or None, defects=key.defects
    )
    for section in (*layers, YOURS):
        for index in by_section.get(section, ()):
            entry = free[index]
            below = made.get(entry.path, Composition(known[entry.path], ()))
            made[entry.path] = (
                Composition(below.fixed, (*below.entries, index))
                if entry.factor
                else Composition(1.0, (index,))
            )
    return made


DIGITS: Final = 4
"""Significant digits of a fitted constant: a tenth of a per mille is far below any scatter."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """One entry as it stands in constants.toml."""

    entry: Free
    value: float
    scatter: float = 0.0
    """Standard deviation of its logarithm over folds; 0 = fixed, or never left out."""
    run_counts: tuple[tuple[str, int], ...] = ()
    """How many runs of each set have a say on it."""

    @property
    def fitted(self) -> bool:
        """True where runs moved it."""
        return self.entry.spread > 0 and bool(self.run_counts)

    @property
    def source(self) -> str:
        """Where its value is from, in one line."""
        if not self.fitted:
            return self.entry.source
        seen = ", ".join(f"{count} {name}" for name, count in self.run_counts)
        prior = f"{self.entry.prior:.{DIGITS}g}"
        return f"fitted to {seen} runs from {prior}: {self.entry.source}"


def significant(value: float, digits: int = DIGITS) -> float:
    """A number with so many significant digits, so that the last bits of a machine do not change a
    file.

    >>> significant(0.123456)
    0.1235
    """
    return float(f"{value:.{digits}g}")


def as_toml(written: Iterable[Written], header: str) -> str:
    """The text of a constants file."""
    lines, section = [header.rstrip()], None
    for item in written:
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
    fields = f"{kind} = {item.value!r}{spread}, source = {_quoted(item.source)}"
    return f'"{item.entry.path}" = {{ {fields} }}'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{" ".join(escaped.split())}"'
