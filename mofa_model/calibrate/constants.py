"""Constants that a fit may move, and their text in a constants file.

An entry is a section and path of constants.toml with a prior. The layers of constants.toml multiply
up to a constant: it is the innermost `value`, times every `factor` above it. So the logarithm of a
constant is a sum of logarithms of entries, and a fit works on these sums.
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
"""Section of entries above all others, for every key: those of a user's own runs."""


@dataclass(frozen=True, kw_only=True)
class FreeConstant:
    """One constant, or factor of a constant, that a fit may move."""

    section: str
    path: str
    """Constant in `Calibration`, for example compute.gemm_efficiency."""
    factor: bool
    """Whether it multiplies the value of the layers below."""
    prior: float
    """Its expected value."""
    spread: float
    """Standard deviation of its logarithm before any run is seen; 0 = fixed at the prior."""
    source: str
    least: float = 0.0
    """Its smallest possible value."""
    most: float = math.inf
    """Its largest possible value."""

    @property
    def name(self) -> str:
        """Section and path. []"""
        return f"{self.section}:{self.path}"


def entries_of(table: Mapping[str, Any]) -> tuple[FreeConstant, ...]:
    """Entries of a table in the form of priors.toml; those without a spread are fixed."""
    default_constants = defaults()
    entries = []
    for section, constants in _sections(table):
        for path, entry in constants.items():
            if path not in default_constants:
                raise BadFile("priors.toml", f"[{section}] {path} is not a constant of Calibration")
            factor = "factor" in entry
            entries.append(
                FreeConstant(
                    section=section,
                    path=path,
                    factor=factor,
                    prior=float(entry["factor" if factor else "value"]),
                    spread=float(entry.get("spread", 0.0)),
                    source=str(entry.get("source", "")),
                    least=float(entry.get("least", 0.0)),
                    most=float(entry.get("most", math.inf)),
                )
            )
    return tuple(entries)


def _sections(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Constants of nested tables, by dotted name of the table; a key with a dot is one."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    constants = {
        key: value
        for key, value in inner.items()
        if "." in key and {"value", "factor"} & set(value)
    }
    if constants:
        yield above, constants
    for key, value in inner.items():
        if key not in constants:
            yield from _sections(value, f"{above}.{key}" if above else key)


@dataclass(frozen=True)
class Composition:
    """A constant of one key as a product: a fixed part times some entries of a fit."""

    fixed: float
    """Its default, or 1 where an entry replaces that."""
    entries: tuple[int, ...]
    """Indices of the entries in the product."""


def own_factors() -> tuple[FreeConstant, ...]:
    """Entries of runs.toml, in the section above all others."""
    text = Path(__file__).with_name("runs.toml").read_text(encoding="utf-8")
    return entries_of({YOURS: tomllib.loads(text)})


def composition(key: CalibrationKey, free: tuple[FreeConstant, ...]) -> dict[str, Composition]:
    """Each constant of one key as a product of entries of a fit, by path."""
    by_section: dict[str, list[int]] = {}
    for index, entry in enumerate(free):
        by_section.setdefault(entry.section, []).append(index)
    default_constants = defaults()
    compositions: dict[str, Composition] = {}
    layers = sections_of(
        key.device, key.precision, key.stack, release=key.release or None, defects=key.defects
    )
    for section in (*layers, YOURS):
        for index in by_section.get(section, ()):
            entry = free[index]
            below = compositions.get(entry.path, Composition(default_constants[entry.path], ()))
            compositions[entry.path] = (
                Composition(below.fixed, (*below.entries, index))
                if entry.factor
                else Composition(1.0, (index,))
            )
    return compositions


DIGITS: Final = 4
"""Significant digits of a fitted constant: one in ten thousand is far below any scatter."""


@dataclass(frozen=True, kw_only=True)
class WrittenConstant:
    """One entry as it is written in constants.toml."""

    entry: FreeConstant
    value: float
    scatter: float = 0.0
    """Standard deviation of its logarithm over folds; 0 = fixed, or never left out."""
    run_counts: tuple[tuple[str, int], ...] = ()
    """Sets of runs that the entry depends on, with the number of runs of each."""

    @property
    def fitted(self) -> bool:
        """Whether runs moved it."""
        return self.entry.spread > 0 and bool(self.run_counts)

    @property
    def source(self) -> str:
        """Source of its value, in one line."""
        if not self.fitted:
            return self.entry.source
        counts = ", ".join(f"{count} {name}" for name, count in self.run_counts)
        prior = f"{self.entry.prior:.{DIGITS}g}"
        return f"fitted to {counts} runs from {prior}: {self.entry.source}"


def significant(value: float, digits: int = DIGITS) -> float:
    """A number with so many significant digits, so that rounding of a machine does not change a
    file.

    >>> significant(0.123456)
    0.1235
    """
    return float(f"{value:.{digits}g}")


def as_toml(written: Iterable[WrittenConstant], header: str) -> str:
    """The text of a constants file."""
    lines, section = [header.rstrip()], None
    for item in written:
        if item.entry.section != section:
            section = item.entry.section
            lines += ["", f"[{_heading(section)}]"]
        lines.append(_line(item))
    return "\n".join(lines) + "\n"


def _heading(section: str) -> str:
    """A section's name for TOML, where all that follows `defect.` is one key, with its dots.

    >>> _heading("defect.slow-experts-26.02")
    'defect."slow-experts-26.02"'
    """
    kind, _, rest = section.partition(".")
    return f'{kind}."{rest}"' if kind == "defect" and "." in rest else section


def _line(item: WrittenConstant) -> str:
    kind = "factor" if item.entry.factor else "value"
    spread = f", scatter = {item.scatter!r}" if item.scatter else ""
    fields = f"{kind} = {item.value!r}{spread}, source = {_quoted(item.source)}"
    return f'"{item.entry.path}" = {{ {fields} }}'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{" ".join(escaped.split())}"'
