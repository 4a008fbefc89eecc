"""Where a run stands: what trained, on what, how large and in which layout. How far two runs are
apart is counted along these.

A distance counts halvings: what a run says of another one is worth half for each. How many halvings
a difference costs is ours, chosen once, so that bands made without a group of runs hold their share
of it.
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
"""Halvings between stacks, devices or kinds of layers that share nothing; else half. [1]"""
FORMAT: Final = 1.5
"""Halvings between formats of products, between adapters and all weights, and for each block that
only one model has. [1]"""
DOUBLING: Final = 0.5
"""Halvings for every doubling of devices, width or sequence, three doublings at most. [1]"""
CHOICE: Final = 0.75
"""Halvings between two values of an axis; of a number after three doublings. [1]"""
_DOUBLINGS: Final = 3.0

ALONE: Final = "other"
"""Class of devices that share nothing but that nobody measured them."""

WORDS: Final = {word.key: word for axis in AXES for word in axis.words}
"""What a layout says, by key."""
NUMBERS: Final = frozenset(key for key, word in WORDS.items() if isinstance(word, Number))
"""Keys whose word is a number."""
PLAIN: Final = {key: word.write(Strategy()) for key, word in WORDS.items()}
"""What the plainest layout says."""
_PLAINEST: Final = {name: getattr(Strategy(), name) for name in field_names(Strategy)}
SIZES: Final = ("gpus", "hidden", "sequence")
"""Coordinates that are numbers of the model and its machines."""
PLACES: Final = ("stack", "device", "format", "blocks", "method", *SIZES)
"""Coordinates that are no part of the layout."""


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """Where a run stands, in words: so files say it."""

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
    """What differs from the plainest layout, by the key of strategy texts."""
    method: str = FULL
    """What is trained: full, lora or qlora."""
    publisher: str = ""
    """Who ran it; empty for the user."""
    estimated: Ratio = 1.0
    """Share of its memory that is estimated, not counted (`variance`). [1]"""

    def word(self, name: str) -> str:
        """The value of a coordinate, or of a key of the layout, as text."""
        return words_at((self,), name)[0]


def words_at(layouts: Sequence[Coordinates], name: str) -> list[str]:
    """The value of one coordinate or key for each of many layouts, as `Coordinates.word`
    gives it.
    """
    if name in PLACES:
        return [str(getattr(one, name)) for one in layouts]
    plain = PLAIN.get(name, "")
    return [one.layout.get(name, plain) for one in layouts]


def coordinates(
    workload: Workload, cluster: Cluster, strategy: Strategy, estimated: Ratio = 1.0
) -> Coordinates:
    """The coordinates of a run among measured runs; settings of a layout without effect are
    left out.
    """
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


def layouts_of(many: Sequence[Strategy]) -> list[dict[str, str]]:
    """What each strategy says beyond the plainest layout, by key; what has nothing to act on is not
    said. A search asks about hundreds, which share their words.
    """
    layouts: list[dict[str, str]] = [{} for _ in many]
    acts = acting_in(many)
    for axis, word, read in _WORDS_BY_AXIS:
        values = [*map(read, many)]
        by_value = dict(zip(values, many, strict=True))
        texts = {value: word.write(one) for value, one in by_value.items()}
        said = {value: text for value, text in texts.items() if text != PLAIN[word.key]}
        where = acts.get(axis)
        for place, value in enumerate(values if said else ()):
            if value in said and (where is None or where[place]):
                layouts[place][word.key] = said[value]
    return layouts


_WORDS_BY_AXIS: Final = tuple(
    (axis.name, word, attrgetter(*word.reads)) for axis in AXES for word in axis.words
)
"""Every word with the name of its axis, and with what of a strategy it depends on."""


@cache
def words_of(axis: str, value: Any) -> Mapping[str, str]:
    """An axis value as keys with words; empty for the plainest value."""
    fields = _AXES[axis].chosen(value)
    strategy = SimpleNamespace(**{**_PLAINEST, **fields})
    said = {
        key: word.write(strategy)
        for key, word in WORDS.items()
        if not fields.keys().isdisjoint(word.reads)
    }
    return MappingProxyType({key: text for key, text in said.items() if text != PLAIN[key]})


_AXES: Final = {axis.name: axis for axis in AXES}


@cache
def class_of(device: str) -> str:
    """A device's class; of one that stands alone, its own name.

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
    """The family of classes that a device belongs to; of one that stands alone, its own name.

    >>> family_of("gb200"), family_of("l40s")
    ('blackwell', 'l40s')
    """
    device_class = class_of(device)
    return device if device_class == device else device_class.partition("-")[0]


def apart(name: str, asked: str, had: str) -> float:
    """Distance between two values of a coordinate: halvings of the correlation of their errors.

    >>> apart("stack", "nemo", "nemo"), apart("stack", "nemo", "megatron-core")
    (0.0, 1.5)
    >>> apart("gpus", "64", "1024")
    1.5
    """
    if asked == had:
        return 0.0
    if name in SIZES:
        return DOUBLING * _doublings(float(asked), float(had))
    if name == "stack":
        return OTHER / 2 if in_family(asked, had) else OTHER
    if name == "device":
        if class_of(asked) == class_of(had):
            return OTHER / 4
        return OTHER / 2 if family_of(asked) == family_of(had) else OTHER
    if name == "format":
        return FORMAT
    if name == "method":
        return FORMAT if FULL in {asked, had} else FORMAT / 2
    if name == "blocks":
        return min(OTHER, FORMAT * len(set(asked.split("+")) ^ set(had.split("+"))))
    if name in NUMBERS and asked != "0" and had != "0":
        return CHOICE / _DOUBLINGS * _doublings(float(asked), float(had))
    return CHOICE / 2 if asked.partition(":")[0] == had.partition(":")[0] else CHOICE


def in_family(stack: str, other: str) -> bool:
    """Whether two stacks are of one family.

    >>> in_family("nemo", "megatron-core"), in_family("nemo", "torchtitan")
    (True, False)
    """
    return stack == other or other in _stacks(stack)


def _doublings(one: float, other: float) -> float:
    return min(_DOUBLINGS, abs(math.log2(one / other)))


@cache
def _stacks(name: str) -> frozenset[str]:
    try:
        return presets.family(presets.resolve("stacks", name))
    except InputError:
        return frozenset()
