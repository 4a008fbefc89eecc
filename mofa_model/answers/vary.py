"""The notation of `--vary`: fields and their values, `gpus=64..512`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import fields
from itertools import product
from typing import Final

from mofa_model.answers.options import switch
from mofa_model.answers.questions import LAYOUTS, LayoutQuestion
from mofa_model.errors import BadValue, UnknownName

PARAMETERS: Final = {
    option.flag.removeprefix("--").replace("-", "_"): option.name
    for option in LayoutQuestion.options.values()
    if option.reader is not switch
    and not option.is_repeated
    and option.name not in {"max_nodes", *LAYOUTS, "allow", "optimizer"}
}
"""Options that can vary, each with its parameter; `optimizer` is the axis of that name."""
_FLAGS: Final = {parameter: flag for flag, parameter in PARAMETERS.items()}
INTERVAL: Final = "interval"
"""Steps between checkpoints, in place of the best number."""
_CONSTANTS: Final = ("compute", "host", "links", "overlap", "memory")
"""Groups of measured constants, which vary as GROUP.NAME: compute.attention_efficiency."""
_MOST: Final = 100_000
"""Points of a sweep."""
_ALIASES: Final = {
    **dict.fromkeys(("batch", "batch_size", "gbs"), "global_batch"),
    **dict.fromkeys(("sequence", "seq_len", "seq_length", "context", "context_length"), "seq"),
    **dict.fromkeys(("device", "accelerator"), "gpu"),
    **dict.fromkeys(("micro_batch", "micro_batch_size"), "mbs"),
    "trainer": "framework",
}
"""What fields are called elsewhere."""
_RANGE: Final = re.compile(r"(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)(?::([x+])(\d+(?:\.\d+)?))?")

Point = dict[str, str]
"""The value of each field at one point of a sweep."""


def parse_vary(text: str, allowed: Sequence[str] = ()) -> tuple[str, tuple[str, ...]]:
    """A field and its values: a list, or a range that doubles unless it names another step.

    >>> parse_vary("gpus=64..512"), parse_vary("mbs=1,2"), parse_vary("interval=10..40:+10")[1]
    (('gpus', ('64', '128', '256', '512')), ('mbs', ('1', '2')), ('10', '20', '30', '40'))
    """
    name, equals, rest = text.partition("=")
    field, rest = name.strip().lower().replace("-", "_"), rest.strip()
    if not equals or not rest:
        raise BadValue("--vary", text, "write FIELD=VALUES, for example gpus=64..8192 or mbs=1,2,4")
    allowed = allowed or (*PARAMETERS, *axis_keys(), INTERVAL, *_constants())
    if field not in allowed and _FLAGS.get(field) not in allowed:
        raise UnknownName("--vary", field, allowed, aliases=_ALIASES)
    if span := re.fullmatch(r"(\d+)-(\d+)", rest):
        raise BadValue("--vary", text, f"write a range as {field}={span[1]}..{span[2]}")
    match = _RANGE.fullmatch(rest)
    if match is None:
        return field, tuple(part.strip() for part in rest.split(","))
    value, high = float(match[1]), float(match[2])
    sign, by = match[3] or "x", float(match[4] or 2)
    if (sign == "x" and (by <= 1 or value <= 0)) or (sign == "+" and by <= 0):
        right = "a range must grow: LOW..HIGH, LOW..HIGH:x2 or LOW..HIGH:+10"
        raise BadValue("--vary", text, right)
    values = [value]
    while len(values) <= _MOST and (value := value * by if sign == "x" else value + by) <= high:
        values.append(value)
    return field, tuple(f"{value:.12g}" for value in values)


def points_of(varied: Sequence[tuple[str, tuple[str, ...]]]) -> list[Point]:
    """Every combination of the varied values, the last field fastest."""
    names = [name for name, _ in varied]
    if len(set(names)) < len(names):
        raise BadValue("--vary", ", ".join(names), "vary each field once")
    if (count := math.prod(len(values) for _, values in varied)) > _MOST:
        raise BadValue("--vary", count, f"at most {_MOST} points")
    points = product(*(values for _, values in varied))
    return [dict(zip(names, point, strict=True)) for point in points]


def axis_keys() -> tuple[str, ...]:
    """Keys of a strategy that can vary: they change a given strategy, or constrain the search."""
    from mofa_model.strategy import AXES

    return (*(word.key.replace("-", "_") for axis in AXES for word in axis.keys), "dp")


def _constants() -> tuple[str, ...]:
    """Measured constants, as GROUP.NAME."""
    from mofa_model.spec import Calibration

    default = Calibration()
    return tuple(
        f"{group}.{constant.name}"
        for group in _CONSTANTS
        for constant in fields(getattr(default, group))
    )
