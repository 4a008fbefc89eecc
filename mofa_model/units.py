"""Text with units in, SI floats out, and back: the one home of 1e9 and 2**30.

    parse("450 GB/s", "B/s")  -> 4.5e11        format(4.5e11, "B/s")  -> "450 GB/s"
    parse("80 GiB", "B")      -> 85899345920.0 parse("400 Gbit/s", "B/s") -> 5e10
    parse("2.5 ms", "s")      -> 0.0025        count("15T")           -> 15_000_000_000_000

Inside the package every number is SI: seconds, bytes, FLOP, bytes per second, FLOP per second. A
bare number is refused for a dimensioned quantity, so that nobody has to guess whether 400 meant
Gbit/s or GB/s.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mofa_model.errors import BadUnit, BadValue
from mofa_model.records import dataclass

Numeric: TypeAlias = float | NDArray[np.floating[Any]]
"""A scalar or an array: every equation takes either through the same code."""

Seconds: TypeAlias = Annotated[Numeric, "s"]
Bytes: TypeAlias = Annotated[Numeric, "B"]
BytesPerSecond: TypeAlias = Annotated[Numeric, "B/s"]
Flop: TypeAlias = Annotated[Numeric, "FLOP"]
FlopPerSecond: TypeAlias = Annotated[Numeric, "FLOP/s"]
Count: TypeAlias = Annotated[Numeric, "1"]
Ratio: TypeAlias = Annotated[Numeric, "1"]


@dataclass(frozen=True, kw_only=True)
class Range:
    """A figure and the bounds between which it is expected."""

    lower: float
    """Lower bound of the stated confidence."""
    target: float
    """What is expected."""
    upper: float
    """Upper bound of the stated confidence."""

    @classmethod
    def around(cls, target: Numeric, lower: Numeric, upper: Numeric) -> Range:
        """A range whose bounds lie on the right sides of its target, whatever rounding did."""
        middle = float(target)
        return cls(lower=min(float(lower), middle), target=middle, upper=max(float(upper), middle))

    def times(self, factor: float) -> Range:
        """The range with all its values times a factor."""
        return Range(
            lower=self.lower * factor, target=self.target * factor, upper=self.upper * factor
        )


MINUTE: Final = 60.0
HOUR: Final = 3600.0
DAY: Final = 86400.0
GIB: Final = float(2**30)

_SI: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BITS: Final = _SI | {"g": 1e9, "m": 1e6}
"""Prefixes of bps, which is a bit's whatever the case: 400 gbps."""
_IEC: Final = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_SMALL: Final = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3}


def _scaled(suffix: str, prefixes: dict[str, float], unit: float = 1.0) -> dict[str, float]:
    return {prefix + suffix: scale * unit for prefix, scale in prefixes.items()}


def _bytes(per: str) -> dict[str, float]:
    return {
        **_scaled(f"B{per}", _SI | _IEC),
        **_scaled(f"bit{per}", _SI, 1 / 8),
        **(
            _scaled("bps", _BITS, 1 / 8) | _scaled("b/s", _SI, 1 / 8) | _scaled("Bps", _SI)
            if per
            else {}
        ),
    }


_UNITS: Final[dict[str, dict[str, float]]] = {
    "s": {
        **_scaled("s", {"": 1.0} | _SMALL),
        **dict.fromkeys(("sec", "secs", "second", "seconds"), 1.0),
        **dict.fromkeys(("min", "m", "mins", "minute", "minutes"), MINUTE),
        **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), HOUR),
        **dict.fromkeys(("d", "day", "days"), DAY),
        **dict.fromkeys(("w", "week", "weeks"), 7 * DAY),
    },
    "B": _bytes("") | {name: scale for name, scale in (_SI | _IEC).items() if name},
    "B/s": _bytes("/s"),
    "FLOP": _scaled("FLOP", _SI),
    "FLOP/s": {**_scaled("FLOP/s", _SI), **_scaled("FLOPS", _SI)},
    "1/s": {"/s": 1.0, "/h": 1 / HOUR, "/d": 1 / DAY, "/day": 1 / DAY},
    "USD/s": {"USD/s": 1.0, "USD/h": 1 / HOUR, "USD/d": 1 / DAY, "USD/day": 1 / DAY},
}
_SHOWN: Final = {
    "s": ("d", "h", "min", "s", "ms", "us", "ns"),
    "B": ("PiB", "TiB", "GiB", "MiB", "KiB", "B"),
    "B/s": ("TB/s", "GB/s", "MB/s", "kB/s", "B/s"),
    "FLOP": ("EFLOP", "PFLOP", "TFLOP", "GFLOP", "MFLOP", "kFLOP", "FLOP"),
    "FLOP/s": ("PFLOP/s", "TFLOP/s", "GFLOP/s", "MFLOP/s", "kFLOP/s", "FLOP/s"),
    "1/s": ("/s", "/h", "/d"),
    "USD/s": ("USD/s", "USD/h", "USD/d"),
}
_EXAMPLE: Final = {
    "s": "2.5 ms",
    "B": "80 GiB",
    "B/s": "400 Gbit/s",
    "FLOP": "1 TFLOP",
    "FLOP/s": "989 TFLOP/s",
    "1/s": "0.005 /d",
    "USD/s": "2.5 USD/h",
}
_MEANT: Final = {
    "s": "is it '{0} s', '{0} min' or '{0} h'?",
    "B": "is it '{0} GB' or '{0} GiB'?",
    "B/s": "is it '{0} Gbit/s' or '{0} GB/s'?",
    "FLOP": "is it '{0} TFLOP'?",
    "FLOP/s": "is it '{0} TFLOP/s'?",
    "1/s": "is it '{0} /d' or '{0} /h'?",
    "USD/s": "is it '{0} USD/h'?",
}
"""What a number without a unit may mean."""
_QUANTITY: Final = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*(\S*)\s*")
_LONGEST: Final = 64
_LEAST: Final = 1e-18
_MOST: Final = 1e30
"""Quantities beyond these are slips of the pen, and their squares and products would be no
numbers."""
_COUNTED: Final = 1e18
"""What a count may be, so that it and its double are whole numbers of 64 bits."""


def parse(text: object, dimension: str, *, field: str = "quantity") -> float:
    """A quantity with its unit, as an SI float; `dimension` is one of s, B, B/s, FLOP, FLOP/s, 1/s,
    USD/s.

    >>> parse("400 Gbit/s", "B/s")
    50000000000.0
    """
    units = _UNITS[dimension]
    right = "write a number with a unit"
    example = f"{right}, for example {_EXAMPLE[dimension]!r}"
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise BadUnit(field, text, example)
    match = _QUANTITY.fullmatch(text)
    if match is None or match.group(2) not in units:
        bare = match is not None and not match.group(2)
        raise BadUnit(
            field, text, f"{right}: {_MEANT[dimension].format(text.strip())}" if bare else example
        )
    value = _finite(float(match.group(1)) * units[match.group(2)], field, text)
    if value and not _LEAST <= abs(value) <= _MOST:
        raise BadUnit(field, text, f"nothing is that {'small' if abs(value) < 1 else 'large'}")
    return value


def count(text: object, *, field: str = "count") -> int:
    """A whole number, with an optional decimal suffix: "15T", "8k", "2048".

    >>> count("15T")
    15000000000000
    """
    right = "write a whole number, for example 2048 or '15T'"
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise BadValue(field, text, right)
    if not isinstance(text, str):
        value = _finite(float(text), field, text)
    else:
        match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
        scales = _SI | {"B": 1e9}
        if match is None or match.group(2) not in scales:
            raise BadValue(field, text, right)
        value = _finite(float(match.group(1)) * scales[match.group(2)], field, text)
    if value != round(value) or abs(value) > _COUNTED:
        raise BadValue(field, text, right)
    return round(value)


def number(text: str) -> float:
    """A number without a unit: with a decimal suffix, or in percent; `ValueError` for any other
    text.

    >>> number("0.1"), number("10%"), number("500k")
    (0.1, 0.1, 500000.0)
    """
    scales = _SI | {"%": 0.01}
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or match.group(2) not in scales:
        return float(text)
    return float(match.group(1)) * scales[match.group(2)]


def format(value: float, dimension: str, digits: int = 4) -> str:
    """An SI float with the largest unit that keeps it at one or more.

    >>> format(5e10, "B/s")
    '50 GB/s'
    """
    units = _UNITS[dimension]
    texts = {name: f"{value / units[name]:.{digits}g}" for name in _SHOWN[dimension]}
    fitting = (
        name for name, text in texts.items() if abs(float(text)) >= 1
    )  # as rounded: 999.99 ms is 1 s
    name = next(fitting, _SHOWN[dimension][-1])
    return f"{texts[name]} {name}"


def _finite(value: float, field: str, text: object) -> float:
    if not math.isfinite(value):
        raise BadValue(field, text, "write a finite number")
    return value
