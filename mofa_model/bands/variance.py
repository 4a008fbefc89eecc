"""How far a measured step or memory may lie from its estimate: the one relation of bands, odds and
words.

    variance = noise + system + layout

    noise     noise^2 + sum over sizes and degrees of (slope log2(degree))^2
    system    (system^2 + mixture^2 of experts) / (1 + told)
    layout    layout^2 * sum over axes of distance^2            (`table`: doublings beyond runs)
    told      sum over measured systems of told 2 ** -relations
              + sum over your own runs of (system of it) / (noise of it) 2 ** -relations

A system is what one publisher ran of a stack on a class of devices, with a format, kinds of layers
and a method (all weights, LoRA, QLoRA); your own runs have you as their publisher. Two systems are
apart by one relation for each of these that differs, and by two where stacks or devices are of
different families. Adapters tell nothing of runs that train all weights. The numbers stand
in `variance.toml`: `mofa fit` of the lab finds them from runs that were left out, whole systems
among them, and widens them until bands of systems that were left out hold their share.

Layouts of one question share their system, and what takes both beyond the measured runs. Their
noise is alike by how near they are (`odds`). So system and distance cancel between like layouts,
and count in full where a layout is compared with a budget, or with a measured one.

Of a memory, weights, gradients, optimizer states and buffers are counted, and right to half a
percent. All else is estimated: activations, the loss, workspaces, what an allocator keeps. So its
band widens with the share of it that is estimated:

    half² = (ESTIMATED share)² + COUNTED²

ESTIMATED is the likeliest one: by what runs measured, against what a fit without their publisher,
or without their model of a sweep, says; by published runs, which had room; and by runs of a sweep
that had none. `mofa fit` finds it again. What differs between trainers and publishers is no larger
than what differs between layouts, so they need no width of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model import parsed
from mofa_model.bands.coordinates import (
    NUMBERS,
    SIZES,
    Coordinates,
    class_of,
    family_of,
    in_family,
    words_at,
)
from mofa_model.bands.table import (
    EXPERTS,
    VARIANCE,
    MeasuredRuns,
    distinct,
    positions,
    support,
    tells,
)
from mofa_model.records import dataclass
from mofa_model.units import Ratio

Array = NDArray[np.floating[Any]]
Place = tuple[str, str, str, str, str, str]
"""Publisher, stack, device, format, blocks and method of a system."""


SYSTEM: Final = ("stack", "device", "format", "blocks", "method")
"""Coordinates of a system, after its publisher."""
OWN_PUBLISHER: Final = ""
"""Publisher of your own runs, and of what is asked about."""
ORDERED: Final = NUMBERS | set(SIZES)
"""Keys and sizes whose values are numbers: what is beyond the largest is beyond in one way."""


ESTIMATED: Final = 0.129
"""Half the width of the band of a memory that is all estimated, as a logarithm. [1]"""
COUNTED: Final = 0.02
"""The same of one that is all counted, where contexts and other processes differ. Ours. [1]"""

REPEATED: Final = 0.001
"""Scale of a memory's logarithm between runs of one layout: 0.0006 in the median of 23
layouts of Megatron's tests. [1]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Variance:
    """Scales of the logarithm of measured over predicted, by what they are of. [1]"""

    noise: float
    """Of a run of a system that is known, in a layout that was measured."""
    system: float
    """Between systems of dense models."""
    mixture: float
    """The same of mixtures of experts, beside it."""
    layout: float
    """For one doubling beyond the largest measured value."""
    told: float
    """What a system that differs in nothing but its runs tells of another one."""
    slopes: Mapping[str, float]
    """Of noise, for each doubling of a size or degree."""


@cache
def shipped() -> Variance:
    """The numbers that are shipped."""
    return Variance(**parsed.tables_of(parsed.beside(__file__, VARIANCE)))


def system_scales(
    runs: MeasuredRuns, layouts: Sequence[Coordinates], variance: Variance | None = None
) -> Array:
    """Scale of the part of each layout's error that its system makes, by the measured runs. [1]"""
    known = variance or shipped()
    places = [place_of(one) for one in layouts]
    words = distinct(places)
    scales = np.array([_system(runs, known, place) for place in words])
    return scales[positions(places, words)]


def systems_together(layouts: Sequence[Coordinates], some: Sequence[int], systems: Array) -> Array:
    """Covariance between some layouts and all, of the part of errors that their systems
    make. [1]
    """
    places = [place_of(one) for one in layouts]
    words = distinct(places)
    which = positions(places, words)
    alike = np.exp2(-np.array([[relations(one, other) for other in words] for one in words]))
    at = list(some)
    found: Array = alike[which[at]][:, which] * systems[at][:, None] * systems
    return found


def place_of(coordinates: Coordinates) -> Place:
    """The system of a layout."""
    return (
        coordinates.publisher,
        coordinates.stack,
        coordinates.device,
        coordinates.format,
        coordinates.blocks,
        coordinates.method,
    )


@cache
def relations(one: Place, other: Place) -> float:
    """In how many relations two systems differ; infinite where runs of `other` say nothing of
    `one`. [1]

    >>> relations(
    ...     ("", "nemo", "h100", "fp8", "dense", "lora"),
    ...     ("nvidia", "nemo", "h200", "fp8", "dense", "full"),
    ... )
    2.0
    """
    if not tells(other[-1], one[-1]):
        return math.inf
    publisher, stack, device, *kind = one
    _, of_stack, of_device, *of_kind = other
    found = float(publisher != other[0]) + sum(a != b for a, b in zip(kind, of_kind, strict=True))
    if stack != of_stack:
        found += 1.0 if in_family(stack, of_stack) else 2.0
    if class_of(device) != class_of(of_device):
        found += 1.0 if family_of(device) == family_of(of_device) else 2.0
    return found


def _variance_of_systems(known: Variance, place: Place) -> float:
    mixture = EXPERTS in place[-2].split("+")
    return known.system**2 + known.mixture**2 * mixture


@lru_cache(maxsize=256)
def _system(runs: MeasuredRuns, known: Variance, place: Place) -> float:
    """Scale of the error of a system, with what measured runs tell of it. [1]"""
    own = _variance_of_systems(known, place)
    told = sum(
        (count if other[0] == OWN_PUBLISHER else known.told) * 2.0 ** -relations(place, other)
        for other, count in _systems(runs, known)
    )
    return float(np.sqrt(own / (1.0 + told)))


@lru_cache(maxsize=64)
def _systems(runs: MeasuredRuns, known: Variance) -> tuple[tuple[Place, float], ...]:
    """Systems with a measured step; for your own, the weight of its runs, each by its noise."""
    found: dict[Place, float] = {}
    measured = np.flatnonzero(np.isfinite(runs.errors["step"])).tolist()
    columns = [[runs.words[name][at] for at in runs.which[name][measured]] for name in SYSTEM]
    for run, *words in zip(measured, *columns, strict=True):
        publisher = runs.publisher(run)
        place: Place = (publisher, *words)
        found.setdefault(place, 0.0)
        if publisher == OWN_PUBLISHER:
            noise = float(_noise(known, (runs.at(run),))[0])
            found[place] += _variance_of_systems(known, place) / noise
    return tuple(found.items())


def noise_scales(layouts: Sequence[Coordinates], variance: Variance | None = None) -> Array:
    """Scale of each layout's own noise. [1]"""
    scales: Array = np.sqrt(_noise(variance or shipped(), layouts))
    return scales


def _noise(known: Variance, layouts: Sequence[Coordinates]) -> Array:
    """Variance of each layout's own noise, which grows with sizes and degrees. [1]"""
    found = np.full(len(layouts), known.noise**2)
    for name, slope in known.slopes.items():
        texts = words_at(layouts, name)
        words = distinct(texts)
        doublings = np.array([max(0.0, math.log2(float(word))) for word in words])
        found += np.square(slope * doublings[positions(texts, words)])
    return found


def beyond_scales(
    runs: MeasuredRuns, layouts: Sequence[Coordinates], variance: Variance | None = None
) -> Array:
    """Scale of the error that each layout has because it goes beyond the measured runs, [layouts,
    ways].

    A way is a size or degree above the largest one measured, or a value that no run has. [1]
    """
    kinds = [(one.stack, EXPERTS in one.blocks.split("+"), one.method) for one in layouts]
    kept = distinct(kinds)
    known = [support(runs, stack, experts=experts, method=way) for stack, experts, way in kept]
    at = positions(kinds, kept).tolist()
    ways: dict[str, Array] = {}
    for name in (*SIZES, *sorted({key for one in layouts for key in one.layout})):
        asked = list(zip(at, words_at(layouts, name), strict=True))
        words = distinct(asked)
        costs = np.array([known[kind].beyond(name, word) for kind, word in words])
        if not costs.any():
            continue
        which = positions(asked, words)
        named = [name if name in ORDERED else f"{name}={word}" for _, word in words]
        for way in distinct(named):
            own = np.where([other == way for other in named], costs, 0.0)
            ways[way] = own[which]
    distances = np.stack([*ways.values(), np.zeros(len(layouts))], axis=-1)
    return (variance or shipped()).layout * distances


def memory_half_width(estimated: Array | Ratio, whole: float = ESTIMATED) -> Array:
    """Half the width of the band of a memory, by the share that is estimated. Ours. [1]

    `whole` is that of a memory that is all estimated.

    >>> float(memory_half_width(1.0).round(3)), float(memory_half_width(0.2).round(3))
    (0.131, 0.033)
    """
    return np.hypot(whole * np.asarray(estimated, dtype=float), COUNTED)
