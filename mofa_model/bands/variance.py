"""How far a measured step or memory may lie from its estimate: the source of all bands, odds and
words.

    variance = noise + system + layout

    noise     noise^2 + sum over sizes and degrees of (slope log2(degree))^2
    system    (system^2 + mixture^2 of experts) / (1 + told)
    layout    layout^2 * sum over axes of distance^2            (`table`: doublings beyond runs)
    told      sum over measured systems of told 2 ** -relations
              + sum over your own runs of (their system) / (their noise) 2 ** -relations

A system is all that one publisher ran with one stack, class of devices, format, kinds of layers and
method (all weights, LoRA, QLoRA); you are the publisher of your own runs. Two systems differ by one
relation for each of these that differs, and by two for stacks or devices of different families.
Runs with adapters tell nothing of runs that train all weights. The numbers stand in
`variance.toml`. `mofa fit` of the lab finds them from runs that were left out, whole systems among
them, and widens them until bands of systems that were left out hold their share.

Layouts of one question have the same system, and often go beyond the measured runs in the same way;
their noise is the more alike, the nearer they are (`odds`). So system and distance cancel between
similar layouts, but count in full where a layout is compared with a budget, or with a measured
one.

Of a memory, weights, gradients, optimizer states and buffers are counted, and are right to half a
percent. All else is estimated: activations, the loss, workspaces, what an allocator keeps. So the
band of a memory widens with its share that is estimated:

    half² = (ESTIMATED share)² + COUNTED²

ESTIMATED is the most likely value, given three kinds of runs: those whose memory was measured,
against a fit without their publisher or without their model of a sweep; published runs, which had
room; and runs of a sweep that had no room. `mofa fit` finds it again. Trainers and publishers
differ no more than layouts do, so they need no width of their own.
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
System = tuple[str, str, str, str, str, str]
"""Publisher, stack, device, format, blocks and method of a system."""


SYSTEM: Final = ("stack", "device", "format", "blocks", "method")
"""Coordinates of a system, after its publisher."""
OWN_PUBLISHER: Final = ""
"""Publisher of your own runs, and of a question."""
ORDERED: Final = NUMBERS | set(SIZES)
"""Keys and sizes whose values are numbers: all values beyond the largest are one way to be beyond.
"""
ESTIMATED: Final = 0.129
"""Half the width of the band of a memory that is all estimated, as a logarithm. [1]"""
COUNTED: Final = 0.02
"""The same for a memory that is all counted: contexts and other processes differ. Ours. [1]"""
REPEATED: Final = 0.001
"""Scale of a memory's logarithm between runs of one layout: 0.0006 in the median of 23
layouts of Megatron's tests. [1]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Variance:
    """Scales of the parts of the logarithm of measured over predicted. [1]"""

    noise: float
    """Noise of a run whose system is known, in a layout that was measured."""
    system: float
    """Difference between systems of dense models."""
    mixture: float
    """Further difference between systems of mixtures of experts."""
    layout: float
    """Error for each doubling beyond the largest measured value."""
    told: float
    """Weight of a measured system as evidence of another one."""
    slopes: Mapping[str, float]
    """Growth of the noise for each doubling of a size or degree."""


@cache
def shipped() -> Variance:
    """The numbers that are shipped."""
    return Variance(**parsed.tables_of(parsed.beside(__file__, VARIANCE)))


def system_scales(
    runs: MeasuredRuns, layouts: Sequence[Coordinates], variance: Variance | None = None
) -> Array:
    """Scale of the part of each layout's error that is due to its system. [1]"""
    systems = [system_of(layout) for layout in layouts]
    once = distinct(systems)
    scales = np.array([_system_scale(runs, variance or shipped(), system) for system in once])
    return scales[positions(systems, once)]


def systems_together(layouts: Sequence[Coordinates], rows: Sequence[int], scales: Array) -> Array:
    """Covariance between some layouts and all, of the part of errors that is due to their systems;
    `scales` are those of `system_scales`. [1]
    """
    systems = [system_of(layout) for layout in layouts]
    once = distinct(systems)
    numbers, picked = positions(systems, once), list(rows)
    alike = np.exp2(-np.array([[relations(first, second) for second in once] for first in once]))
    covariance: Array = alike[numbers[picked]][:, numbers] * scales[picked][:, None] * scales
    return covariance


def system_of(coordinates: Coordinates) -> System:
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
def relations(first: System, second: System) -> float:
    """In how many relations two systems differ; infinite where runs of `second` say nothing of
    `first`. [1]

    >>> relations(
    ...     ("", "nemo", "h100", "fp8", "dense", "lora"),
    ...     ("nvidia", "nemo", "h200", "fp8", "dense", "full"),
    ... )
    2.0
    """
    if not tells(second[-1], first[-1]):
        return math.inf
    publisher, stack, device, *kind = first
    other_publisher, other_stack, other_device, *other_kind = second
    differing = float(publisher != other_publisher)
    differing += sum(word != other for word, other in zip(kind, other_kind, strict=True))
    if stack != other_stack:
        differing += 1.0 if in_family(stack, other_stack) else 2.0
    if class_of(device) != class_of(other_device):
        differing += 1.0 if family_of(device) == family_of(other_device) else 2.0
    return differing


def _variance_of_systems(variance: Variance, system: System) -> float:
    """Variance between systems of one kind, before any run is known. [1]"""
    mixture = EXPERTS in system[-2].split("+")
    return variance.system**2 + variance.mixture**2 * mixture


@lru_cache(maxsize=256)
def _system_scale(runs: MeasuredRuns, variance: Variance, system: System) -> float:
    """Scale of the error of a system, given the measured runs. [1]"""
    between = _variance_of_systems(variance, system)
    evidence = sum(
        (count if measured[0] == OWN_PUBLISHER else variance.told)
        * 2.0 ** -relations(system, measured)
        for measured, count in _systems(runs, variance)
    )
    return float(np.sqrt(between / (1.0 + evidence)))


@lru_cache(maxsize=64)
def _systems(runs: MeasuredRuns, variance: Variance) -> tuple[tuple[System, float], ...]:
    """Systems with a measured step; your own also with the weight of their runs, by their noise."""
    weights: dict[System, float] = {}
    measured = np.flatnonzero(np.isfinite(runs.errors["step"])).tolist()
    columns = [[runs.words[name][word] for word in runs.which[name][measured]] for name in SYSTEM]
    for run, *words in zip(measured, *columns, strict=True):
        publisher = runs.publisher(run)
        system: System = (publisher, *words)
        weights.setdefault(system, 0.0)
        if publisher == OWN_PUBLISHER:
            noise = float(_noise(variance, (runs.at(run),))[0])
            weights[system] += _variance_of_systems(variance, system) / noise
    return tuple(weights.items())


def noise_scales(layouts: Sequence[Coordinates], variance: Variance | None = None) -> Array:
    """Scale of each layout's own noise. [1]"""
    scales: Array = np.sqrt(_noise(variance or shipped(), layouts))
    return scales


def _noise(variance: Variance, layouts: Sequence[Coordinates]) -> Array:
    """Variance of each layout's own noise, which grows with sizes and degrees. [1]"""
    noise = np.full(len(layouts), variance.noise**2)
    for name, slope in variance.slopes.items():
        texts = words_at(layouts, name)
        words = distinct(texts)
        doublings = np.array([max(0.0, math.log2(float(word))) for word in words])
        noise += np.square(slope * doublings[positions(texts, words)])
    return noise


def beyond_scales(
    runs: MeasuredRuns, layouts: Sequence[Coordinates], variance: Variance | None = None
) -> Array:
    """Scale of the error of each layout for each way in which it goes beyond the measured runs,
    [layouts, ways].

    A way is a size or degree above the largest one measured, or a value that no run has. [1]
    """
    kinds = [
        (layout.stack, EXPERTS in layout.blocks.split("+"), layout.method) for layout in layouts
    ]
    distinct_kinds = distinct(kinds)
    supports = [
        support(runs, stack, experts=experts, method=method)
        for stack, experts, method in distinct_kinds
    ]
    kind_of_layout = positions(kinds, distinct_kinds).tolist()
    ways: dict[str, Array] = {}
    for name in (*SIZES, *sorted({key for layout in layouts for key in layout.layout})):
        asked = list(zip(kind_of_layout, words_at(layouts, name), strict=True))
        words = distinct(asked)
        costs = np.array([supports[kind].beyond(name, word) for kind, word in words])
        if not costs.any():
            continue
        asked_position = positions(asked, words)
        word_ways = [name if name in ORDERED else f"{name}={word}" for _, word in words]
        for way in distinct(word_ways):
            cost = np.where([word_way == way for word_way in word_ways], costs, 0.0)
            ways[way] = cost[asked_position]
    distances = np.stack([*ways.values(), np.zeros(len(layouts))], axis=-1)
    return (variance or shipped()).layout * distances


def memory_half_width(estimated: Array | Ratio, whole: float = ESTIMATED) -> Array:
    """Half the width of the band of a memory, by its share that is estimated. Ours. [1]

    `whole` is the half width of a memory that is all estimated.

    >>> float(memory_half_width(1.0).round(3)), float(memory_half_width(0.2).round(3))
    (0.131, 0.033)
    """
    return np.hypot(whole * np.asarray(estimated, dtype=float), COUNTED)
