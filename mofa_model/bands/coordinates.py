"""Coordinates of a run: what was trained, on what, how large and in which layout; and the distance
between two runs, which is summed over them.

A distance counts halvings: with each, a run says half as much of another one. How many halvings a
difference costs is ours. They were chosen once, so that bands made without a group of runs hold
their share of that group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final

from mofa_model import presets
from mofa_model.axes.axis import Number
from mofa_model.checks import field_names
from mofa_model.errors import InputError
from mofa_model.records import dataclass
from mofa_model.spec import Cluster, Workload
from mofa_model.spec.tuning import FULL
from mofa_model.strategy import AXES, Strategy, acting_in
from mofa_model.units import Ratio

OTHER: Final = 3.0
"""Halvings between stacks, devices or kinds of layers that share nothing; relatives have half. [1]
"""
FORMAT: Final = 1.5
"""Halvings between formats of products, between adapters and all weights, and for each block that
only one model has. [1]"""
DOUBLING: Final = 0.5
"""Halvings for every doubling of devices, width or sequence, three doublings at most. [1]"""
CHOICE: Final = 0.75
"""Halvings between two values of an axis; of a number after three doublings. [1]"""
_DOUBLINGS: Final = 3.0

ALONE: Final = "other"
"""Class of all devices that belong to no other class: they have nothing in common."""

WORDS: Final = {word.key: word for axis in AXES for word in axis.words}
"""Words of a layout, by key."""
NUMBERS: Final = frozenset(key for key, word in WORDS.items() if isinstance(word, Number))
"""Keys whose word is a number."""
PLAIN: Final = {key: word.write(Strategy()) for key, word in WORDS.items()}
"""Texts of the plainest layout, by key."""
_PLAINEST: Final = {name: getattr(Strategy(), name) for name in field_names(Strategy)}
SIZES: Final = ("gpus", "hidden", "sequence")
"""Coordinates that are numbers of the model and its machines."""
PLACES: Final = ("stack", "device", "format", "blocks", "method", *SIZES)
"""Coordinates besides those of the layout."""


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """Coordinates of a run, as the words in which files state them."""

    stack: str
    device: str
    format: str
    blocks: str
    """Kinds of blocks of a layer, with + between them."""
    gpus: str
    hidden: str
    """Width of the model."""
    sequence: str
    """Tokens of a sequence."""
    layout: Mapping[str, str]
    """Differences from the plainest layout, by the key of strategy texts."""
    method: str = FULL
    """The training method: full, lora or qlora."""
    publisher: str = ""
    """Who ran it; empty for the user."""
    estimated: Ratio = 1.0
    """Share of its memory that is estimated, not counted (`variance`). [1]"""

    def word(self, name: str) -> str:
        """The value of a coordinate, or of a key of the layout, as text."""
        return words_at((self,), name)[0]


def words_at(layouts: Sequence[Coordinates], name: str) -> list[str]:
    """The value of one coordinate or key of each layout, as `Coordinates.word` gives it."""
    if name in PLACES:
        return [str(getattr(layout, name)) for layout in layouts]
    plain = PLAIN.get(name, "")
    return [layout.layout.get(name, plain) for layout in layouts]


def coordinates(
    workload: Workload, cluster: Cluster, strategy: Strategy, estimated: Ratio = 1.0
) -> Coordinates:
    """The coordinates of a run; settings of its layout that have no effect are left out."""
    return Coordinates(
        stack=cluster.calibration.stack,
        device=cluster.device.name,
        format=workload.training.precision.gemm,
        blocks="+".join(sorted({block.word for block in workload.model.blocks})),
        method=workload.training.method,
        gpus=f"{float(cluster.gpus):g}",
        hidden=f"{float(workload.model.hidden):g}",
        sequence=f"{float(workload.training.sequence):g}",
        layout=layouts_of((strategy,))[0],
        estimated=estimated,
    )


def layouts_of(strategy_list: Sequence[Strategy]) -> list[dict[str, str]]:
    """Differences of each strategy from the plainest layout, by key; settings that have nothing to
    act on are left out. A search asks about hundreds of strategies, so each value is written once.
    """
    layouts: list[dict[str, str]] = [{} for _ in strategy_list]
    acts = acting_in(strategy_list)
    for axis, word, read in _WORDS_BY_AXIS:
        values = [*map(read, strategy_list)]
        by_value = dict(zip(values, strategy_list, strict=True))
        texts = {value: word.write(strategy) for value, strategy in by_value.items()}
        texts = {value: text for value, text in texts.items() if text != PLAIN[word.key]}
        is_active = acts.get(axis)
        for index, value in enumerate(values if texts else ()):
            if value in texts and (is_active is None or is_active[index]):
                layouts[index][word.key] = texts[value]
    return layouts


_WORDS_BY_AXIS: Final = tuple(
    (axis.name, word, attrgetter(*word.reads)) for axis in AXES for word in axis.words
)
"""Every word, with the name of its axis and a reader of the strategy's fields that it depends on.
"""


@cache
def words_of(axis: str, value: Any) -> Mapping[str, str]:
    """An axis value as keys with words; empty for the plainest value."""
    fields = _AXES[axis].chosen(value)
    strategy = SimpleNamespace(**{**_PLAINEST, **fields})
    texts = {
        key: word.write(strategy)
        for key, word in WORDS.items()
        if not fields.keys().isdisjoint(word.reads)
    }
    return MappingProxyType({key: text for key, text in texts.items() if text != PLAIN[key]})


_AXES: Final = {axis.name: axis for axis in AXES}


@cache
def class_of(device: str) -> str:
    """The class of a device; its own name where it belongs to none.

    >>> class_of("gb200"), class_of("l40s")
    ('blackwell-gb200', 'l40s')
    """
    try:
        device_class = presets.device_class(device)
    except InputError:  # machines that no preset describes
        return device
    return device if device_class == ALONE else device_class


@cache
def family_of(device: str) -> str:
    """The family of a device's class; the device's own name where it belongs to no class.

    >>> family_of("gb200"), family_of("l40s")
    ('blackwell', 'l40s')
    """
    device_class = class_of(device)
    return device if device_class == device else device_class.partition("-")[0]


def apart(name: str, value: str, other: str) -> float:
    """Distance between two values of a coordinate, in halvings.

    >>> apart("stack", "nemo", "nemo"), apart("stack", "nemo", "megatron-core")
    (0.0, 1.5)
    >>> apart("gpus", "64", "1024")
    1.5
    """
    if value == other:
        return 0.0
    if name in SIZES:
        return DOUBLING * _doublings(float(value), float(other))
    if name == "stack":
        return OTHER / 2 if in_family(value, other) else OTHER
    if name == "device":
        if class_of(value) == class_of(other):
            return OTHER / 4
        return OTHER / 2 if family_of(value) == family_of(other) else OTHER
    if name == "format":
        return FORMAT
    if name == "method":
        return FORMAT if FULL in {value, other} else FORMAT / 2
    if name == "blocks":
        return min(OTHER, FORMAT * len(set(value.split("+")) ^ set(other.split("+"))))
    if name in NUMBERS and value != "0" and other != "0":
        return CHOICE / _DOUBLINGS * _doublings(float(value), float(other))
    return CHOICE / 2 if value.partition(":")[0] == other.partition(":")[0] else CHOICE


def in_family(stack: str, other: str) -> bool:
    """Whether two stacks are of one family.

    >>> in_family("nemo", "megatron-core"), in_family("nemo", "torchtitan")
    (True, False)
    """
    return stack == other or other in _stacks(stack)


def _doublings(first: float, second: float) -> float:
    return min(_DOUBLINGS, abs(math.log2(first / second)))


@cache
def _stacks(name: str) -> frozenset[str]:
    try:
        return presets.family(presets.resolve("stacks", name))
    except InputError:
        return frozenset()
