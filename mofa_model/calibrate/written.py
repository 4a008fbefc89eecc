"""Constants as they stand in a file: every entry with its value, its scatter and its source, the same text every time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mofa_model.calibrate.free import Free

DIGITS: Final = 4
"""Significant digits of a fitted constant: a tenth of a per mille is far below any scatter."""


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


def significant(value: float, digits: int = DIGITS) -> float:
    """A number with so many significant digits, so that the last bits of a machine do not change a file.

    >>> significant(0.123456)
    0.1235
    """
    return float(f"{value:.{digits}g}")


def as_toml(found: Iterable[Written], header: str) -> str:
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
