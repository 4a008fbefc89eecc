"""The fields of a sweep and their values, as people write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from itertools import product
from typing import Any, Final

from mofa_model import units
from mofa_model.answers.question import option_of
from mofa_model.errors import BadValue, UnknownName

FLAGS: Final = (
    "model",
    "seq",
    "global_batch",
    "tokens",
    "precision",
    "lora",
    "documents",
    "imbalance",
    "gpu",
    "gpus",
    "nodes",
    "gpus_per_node",
    "domain",
    "scale_up",
    "scale_out",
    "host_memory",
    "oversubscription",
    "headroom",
    "framework",
    "stack",
    "release",
    "roofline",
    "objective",
    "risk",
    "failure_rate",
    "hang",
    "checkpoint_bandwidth",
)
"""Options of the job that can vary."""
INTERVAL: Final = "interval"
"""Steps between checkpoints, in place of the best number."""
GROUPS: Final = ("compute", "host", "links", "overlap", "memory")
"""Groups of measured constants; one of them varies as GROUP.NAME, for example compute.attention_efficiency."""
PER_GPU: Final = "/gpu"
"""Ending of a global batch that grows with the devices."""
MOST: Final = 100_000
"""Points of a sweep."""
_CALLED: Final = {
    **dict.fromkeys(("batch", "batch_size", "gbs"), "global_batch"),
    **dict.fromkeys(("sequence", "seq_len", "seq_length", "context", "context_length"), "seq"),
    **dict.fromkeys(("device", "accelerator"), "gpu"),
    **dict.fromkeys(("micro_batch", "micro_batch_size"), "mbs"),
    **dict.fromkeys(("trainer",), "framework"),
}
"""What fields are called elsewhere."""
_WHOLE: Final = ("gpus_per_node", "domain")
_RANGE: Final = re.compile(r"(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)(?::([x+])(\d+(?:\.\d+)?))?")

Point = dict[str, str]


def parse_vary(text: str, known: Sequence[str] = ()) -> tuple[str, tuple[str, ...]]:
    """A field and its values: a list, or a range that doubles unless it says how it goes on.

    >>> parse_vary("gpus=64..512"), parse_vary("mbs=1,2"), parse_vary("interval=10..40:+10")[1]
    (('gpus', ('64', '128', '256', '512')), ('mbs', ('1', '2')), ('10', '20', '30', '40'))
    """
    name, equals, rest = text.partition("=")
    field = name.strip().lower().replace("-", "_")
    if not equals or not rest.strip():
        raise BadValue("--vary", text, "write FIELD=VALUES, for example gpus=64..8192 or mbs=1,2,4")
    fields_known = known or (*FLAGS, *keys(), INTERVAL, *_constants())
    if field not in fields_known and flag_of(field) not in fields_known:
        raise UnknownName("--vary", field, fields_known, aliases=_CALLED)
    if span := re.fullmatch(r"(\d+)-(\d+)", rest.strip()):
        raise BadValue("--vary", text, f"write a range as {field}={span[1]}..{span[2]}")
    match = _RANGE.fullmatch(rest.strip())
    if match is None:
        return field, tuple(part.strip() for part in rest.split(","))
    low, high = float(match.group(1)), float(match.group(2))
    sign, by = match.group(3) or "x", float(match.group(4) or 2)
    if (sign == "x" and (by <= 1 or low <= 0)) or (sign == "+" and by <= 0):
        raise BadValue(
            "--vary", text, "a range must grow: LOW..HIGH, LOW..HIGH:x2 or LOW..HIGH:+10"
        )
    values = [low]
    while (
        len(values) <= MOST
        and (following := values[-1] * by if sign == "x" else values[-1] + by) <= high
    ):
        values.append(following)
    return field, tuple(f"{value:.12g}" for value in values)


def flag_of(field: str) -> str:
    """The option's name of a field that is called as a manifest or Python calls it.

    >>> flag_of("global_batch_size"), flag_of("gpus")
    ('global_batch', 'gpus')
    """
    return option_of(field).removeprefix("--").replace("-", "_")


def keys() -> tuple[str, ...]:
    """Keys of the strategy that can vary: they change the given one, or constrain the search."""
    from mofa_model.strategy import AXES

    return (*(word.key.replace("-", "_") for axis in AXES for word in axis.keys), "dp")


def _constants() -> tuple[str, ...]:
    """Names of the measured constants, with their groups."""
    from mofa_model.spec import Calibration

    default = Calibration()
    return tuple(
        f"{group}.{item.name}" for group in GROUPS for item in fields(getattr(default, group))
    )


def points_of(varied: Sequence[tuple[str, tuple[str, ...]]]) -> list[Point]:
    """Every combination of the varied values, the last field fastest."""
    names = [name for name, _ in varied]
    if len(set(names)) < len(names):
        raise BadValue("--vary", ", ".join(names), "vary each field once")
    count = 1
    for _, values in varied:
        count *= len(values)
    if count > MOST:
        raise BadValue("--vary", count, f"at most {MOST} points")
    return [
        dict(zip(names, chosen, strict=True))
        for chosen in product(*(values for _, values in varied))
    ]


def typed(name: str, value: str) -> Any:
    """A value as its option would hold it."""
    if name in _WHOLE:
        return units.count(value, field=name)
    return number(name, value) if name in {"oversubscription", "failure_rate", "risk"} else value


def steps(text: str) -> int:
    """Steps between checkpoints."""
    value = units.count(text, field=INTERVAL)
    if value < 1:
        raise BadValue(INTERVAL, text, "give one step or more")
    return value


def number(name: str, value: str) -> float:
    """A plain number."""
    try:
        return float(value)
    except ValueError:
        raise BadValue(name, value, "give a number") from None
