"""What collectives say of themselves: sizes and groups, from NCCL's metadata where the profiler
wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mofa_lab.traces.events import Trace
from mofa_lab.traces.operators import CLASSES, Class, classes_of, communicates

_WIDTHS: Final = {
    "float8_e4m3fn": 1, "float8_e5m2": 1, "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1,
    "half": 2, "bfloat16": 2, "float16": 2, "short": 2, "int": 4, "float": 4, "float32": 4,
    "int32": 4, "long": 8, "double": 8, "float64": 8, "int64": 8,
}  # fmt: skip
_VOLUMES: Final = {
    Class.ALL_REDUCE: 2.0,
    Class.ALL_GATHER: 1.0,
    Class.REDUCE_SCATTER: 1.0,
    Class.ALL_TO_ALL: 1.0,
}
"""How often a ring sends (n - 1) / n of the tensor. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """What its kernel says of one collective. The size is that of the large side: the input of a
    reduce-scatter, the output of an all-gather.
    """

    size: float = 0.0
    """Bytes of the whole tensor on one member; 0 = not said. [B]"""
    ranks: tuple[int, ...] = ()
    """Members; empty = not said."""
    members: int = 0
    """How many; 0 = not said."""
    group: str = ""
    """Name of the process group."""
    number: int = -1
    """Place in the group's order of collectives; -1 = not said."""
    peer: int = -1
    """The other rank of a point-to-point transfer; -1 = not said."""
    sends: bool = True
    """True where this rank is the one that sends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """Collectives of one class, group size and message size."""

    kind: Class
    """Operator class."""
    members: int
    """Ranks in the group."""
    size: float
    """Bytes of the whole tensor on one member. [B]"""
    count: int
    """Number of collectives."""
    fastest: float
    """Shortest time: the least that waits for others. [s]"""
    median: float
    """Median time. [s]"""

    @property
    def bandwidth(self) -> float:
        """Bus bandwidth at the shortest time: volume of the ring over time. [B/s]"""
        n = float(max(self.members, 2))
        volumes = _VOLUMES.get(self.kind, 0.0)
        factor = volumes * (n - 1.0) / n if volumes else 1.0
        return self.size * factor / self.fastest if self.fastest > 0 else 0.0


def collective_of(details: Mapping[str, Any]) -> Collective:
    """Size, group and kind of a collective from its kernel's details; impossible values
    are dropped.
    """
    width = _WIDTHS.get(str(details.get("dtype", "")).lower(), 0)
    elements = max(_number(details.get("In msg nelems")), _number(details.get("Out msg nelems")))
    ranks = _ranks(details.get("Process Group Ranks"))
    members = int(_number(details.get("Group size"))) or len(ranks)
    return Collective(
        size=elements * width,
        ranks=ranks,
        members=members,
        group=str(details.get("Process Group Name", "")),
        number=int(_number(details["Seq"])) if "Seq" in details else -1,
        peer=int(_number(details.get("Dst Rank", details.get("Src Rank", -1)), -1.0)),
        sends="recv" not in str(details.get("Collective name", "")).lower(),
    )


def messages(trace: Trace) -> tuple[Message, ...]:
    """Collectives that say their size, in groups of equal ones, most time first."""
    numbers = classes_of(trace)
    talking = np.flatnonzero(communicates(numbers) & (trace.events.detail > 0))
    parsed = {
        int(d): collective_of(trace.details[d]) for d in np.unique(trace.events.detail[talking])
    }
    times: dict[tuple[int, int, float], list[float]] = {}
    for row in talking:
        collective = parsed[int(trace.events.detail[row])]
        if collective.size > 0:
            key = (int(numbers[row]), collective.members, collective.size)
            times.setdefault(key, []).append(float(trace.events.duration[row]))
    messages_of_groups = [
        Message(
            kind=CLASSES[kind],
            members=members,
            size=size,
            count=len(taken),
            fastest=min(taken),
            median=float(np.median(taken)),
        )
        for (kind, members, size), taken in times.items()
    ]
    return tuple(sorted(messages_of_groups, key=lambda message: -message.median * message.count))


def _ranks(value: Any) -> tuple[int, ...]:
    if isinstance(value, list):
        return tuple(int(item) for item in value if isinstance(item, int))
    if isinstance(value, str) and "..." not in value:
        return tuple(int(word) for word in re.findall(r"\d{1,9}", value))
    return ()


def _number(value: Any, otherwise: float = 0.0) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return otherwise
    return number if np.isfinite(number) else otherwise
