"""The numbers of `mofa_model/bands/variance.toml`, from steps that fits did not see.

Every way of leaving out counts: groups, whole systems, publishers, stacks, classes of devices,
large runs. What makes three sums of log-likelihoods greatest is taken, all by Student's law with
three degrees of freedom:

    middles    the median error of a group, against what its system and distance are said to
               vary by: one each
    runs       errors about that median, against their noise
    whole      errors, against all parts together

A run counts as the inverse root of its group's size, because errors of one group are alike. At last
all scales are widened by one factor, so that bands of systems that were left out whole hold their
share of runs, counted alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.fitting.campaign import SPREADS, CampaignResult
from mofa_lab.fitting.coverage import bare_rows, coordinates_of, judged, without
from mofa_lab.fitting.folds import KEYS
from mofa_lab.fitting.sets import CROWD
from mofa_model.bands.coordinates import Coordinates
from mofa_model.bands.odds import END, SHARE
from mofa_model.bands.table import EXPERTS, MeasuredRuns
from mofa_model.bands.variance import Variance, beyond_scales, noise_scales, system_scales

Array = NDArray[np.floating[Any]]

BY: Final = SPREADS
"""What is left out where bands are widened to hold their share."""
SLOPES: Final = ("gpus", "tp", "pp", "cp", "mbs")
"""Sizes and degrees with which noise grows."""
SCALES: Final = ("noise", "system", "mixture", "layout")
START: Final = {"noise": 0.03, "system": 0.08, "mixture": 0.05, "layout": 0.03, "told": 1.0}
"""Where the search starts; slopes start at SLOPE."""
SLOPE: Final = 0.005
LOOSE: Final = 2.0
"""Standard deviation of the logarithm about the start: only what no run moves stays there. [1]"""
DIGITS: Final = 3

HEADER: Final = """\
# Scales of the logarithm of measured over predicted step time, by what they are of: bands/variance.py says how they are put
# together. Written by `mofa fit` of the lab (fitting/spreads.py) from {runs} runs in {groups} groups and {systems} systems that fits
# did not see: change those, not this file.
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class LeftGroup:
    """Errors of a group in one way of leaving out, and what the parts of their variance are at unit
    numbers; one entry a run.
    """

    by: str
    publisher: str
    errors: Array
    logs: Array  # squared doublings of sizes and degrees [runs, SLOPES]
    distance: Array  # squared, in doublings
    shared: Array  # least of it, the same for all runs of a group
    related: Array  # sum over measured systems of 2 ** -relations
    mixture: Array

    def variance(self, numbers: Mapping[str, Array]) -> tuple[Array, Array, Array]:
        """Variances by run: of noise, of the system, and of the distance from measured runs. [1]"""
        noise = numbers["noise"] ** 2 + self.logs @ np.square(numbers["slopes"])
        system = (numbers["system"] ** 2 + numbers["mixture"] ** 2 * self.mixture) / (
            1.0 + numbers["told"] * self.related
        )
        return noise, system, numbers["layout"] ** 2 * self.distance

    def ends(self, numbers: Mapping[str, Array]) -> Array:
        """Errors over half the width of their bands: at most 1 is inside the band. [1]"""
        ratio: Array = np.abs(self.errors) / END / np.sqrt(sum(self.variance(numbers)))
        return ratio


class _Likelihood:
    """The sums that the numbers make greatest, of all groups at once."""

    def __init__(self, groups: Sequence[LeftGroup]) -> None:
        def joined(name: str) -> Array:
            return np.concatenate([getattr(group, name) for group in groups])

        names = ("errors", "logs", "distance", "shared", "related", "mixture")
        self._all = LeftGroup("", "", *map(joined, names))
        self._sizes = np.array([len(group.errors) for group in groups])
        self._which = np.repeat(np.arange(len(groups)), self._sizes)
        self._middles = np.array([np.median(group.errors) for group in groups])
        self._each = (self._sizes**-CROWD)[self._which]

    def __call__(self, numbers: Mapping[str, Array]) -> float:
        """Logarithm of the likelihood of all errors, without constant terms."""
        noise, system, distance = self._all.variance(numbers)
        of_middles = self._mean(system + distance) + self._mean(noise) / self._sizes
        several = self._sizes[self._which] > 1
        about = self._all.errors - self._middles[self._which]
        own = noise + distance - numbers["layout"] ** 2 * self._all.shared
        own = own * (1.0 - 1.0 / self._sizes)[self._which]
        runs = self._each[several] * log_density(about[several], own[several])
        whole = self._each * log_density(self._all.errors, noise + system + distance)
        return float(log_density(self._middles, of_middles).sum() + runs.sum() + whole.sum())

    def _mean(self, values: Array) -> Array:
        means: Array = np.bincount(self._which, values) / self._sizes
        return means


def log_density(errors: Array, variance: Array) -> Array:
    """Logarithm of the density of errors by Student's law, as in `bands.odds`, without its
    constant. [1]
    """
    density: Array = -0.5 * np.log(variance) - 2.0 * np.log1p(np.square(errors) / variance / 3.0)
    return density


def variance_of(result: CampaignResult) -> Variance:
    """The variances fitted to errors of a calibration's left-out runs."""
    groups = list(groups_left_out(result))
    return widened(groups, likeliest(groups))


def held_share(groups: Sequence[LeftGroup], variance: Variance) -> float:
    """Share of runs that bands of these numbers hold, a group counted as the root of its
    size. [1]
    """
    numbers = arrays_of(variance)
    held = [float(np.mean(group.ends(numbers) <= 1.0)) for group in groups]
    sizes = [len(group.errors) ** (1.0 - CROWD) for group in groups]
    return float(np.average(held, weights=sizes))


def unseen_scale(variance: Variance) -> float:
    """Scale of the error of a mixture of experts on a system that nobody measured. [1]

    >>> from mofa_model.bands.variance import Variance
    >>> unseen_scale(Variance(noise=0.03, system=0.04, mixture=0.12, layout=0, told=0, slopes={}))
    0.13
    """
    return math.hypot(variance.noise, variance.system, variance.mixture)


def widened(groups: Sequence[LeftGroup], numbers: Mapping[str, Array]) -> Variance:
    """Numbers, widened until bands of systems that were left out hold their share."""
    systems = [group for group in groups if group.by == BY] or groups
    ends = [group.ends(numbers) for group in systems]
    weights = [np.full(len(group.errors), len(group.errors) ** -CROWD) for group in systems]
    factor = _quantile(np.concatenate(ends), np.concatenate(weights))
    slopes = dict(zip(SLOPES, (factor * numbers["slopes"]).tolist(), strict=True))
    scales = {name: float(factor * numbers[name]) for name in SCALES}
    return Variance(**scales, told=float(numbers["told"]), slopes=slopes)


def held_by_others(groups: Sequence[LeftGroup]) -> tuple[int, float]:
    """Number of left-out systems, and the mean share of their runs inside bands; each band is made
    without errors of the system's publisher. [1]
    """
    shares: list[float] = []
    for publisher in dict.fromkeys(group.publisher for group in groups):
        seen = [group for group in groups if group.publisher != publisher]
        if not seen:
            continue
        numbers = arrays_of(widened(seen, likeliest(seen)))
        shares += [
            float(np.mean(group.ends(numbers) <= 1.0))
            for group in groups
            if group.publisher == publisher and group.by == BY
        ]
    return len(shares), float(np.mean(shares))


def arrays_of(variance: Variance) -> dict[str, Array]:
    """The variances as arrays, for the likelihood."""
    scales = {name: np.array(getattr(variance, name)) for name in (*SCALES, "told")}
    return {**scales, "slopes": np.array([variance.slopes[name] for name in SLOPES])}


def likeliest(groups: Sequence[LeftGroup]) -> dict[str, Array]:
    """The numbers that make left-out errors likeliest."""
    from scipy.optimize import minimize

    start = np.log(np.array([*START.values(), *[SLOPE] * len(SLOPES)]))
    likelihood = _Likelihood(groups)

    def loss(logs: Array) -> float:
        loose = 0.5 * float(np.sum(np.square((logs - start) / LOOSE)))
        return loose - likelihood(_numbers(logs))

    return _numbers(minimize(loss, start, method="L-BFGS-B").x)


def _numbers(logs: Array) -> dict[str, Array]:
    values = np.exp(logs)
    return {
        **dict(zip(START, values[: len(START)], strict=True)),
        "slopes": values[len(START) :],
    }


def _quantile(values: Array, weights: Array) -> float:
    order = np.argsort(values)
    below = np.cumsum(weights[order]) - 0.5 * weights[order]
    return float(np.interp(SHARE * weights.sum(), below, values[order]))


def groups_left_out(result: CampaignResult) -> Iterator[LeftGroup]:
    """Every group in every way of leaving out."""
    rows = bare_rows(result)
    for by in result.time.validated:
        together: dict[tuple[str, str], list[tuple[Coordinates, float]]] = {}
        hidden = {}
        for row, error, fold, unseen in judged(result.time, "step", by):
            key = fold, KEYS["group"](row)
            together.setdefault(key, []).append((coordinates_of(row), error))
            hidden[fold] = unseen
        seen = {fold: without(rows, result.time, unseen) for fold, unseen in hidden.items()}
        for (fold, _), runs in together.items():
            yield group_of(by, seen[fold], runs)


def group_of(by: str, seen: MeasuredRuns, runs: list[tuple[Coordinates, float]]) -> LeftGroup:
    """A group's errors, with each part of their variance at unit scale, as the product computes
    it.
    """
    layouts = [at for at, _ in runs]
    none = Variance(noise=0.0, system=0.0, mixture=0.0, layout=0.0, told=0.0, slopes={})
    logs = [np.square(noise_scales(layouts, replace(none, slopes={name: 1.0}))) for name in SLOPES]
    beyond = np.square(beyond_scales(seen, layouts, replace(none, layout=1.0)))
    share = np.square(system_scales(seen, layouts, replace(none, system=1.0, told=1.0)))
    return LeftGroup(
        by=by,
        publisher=layouts[0].publisher,
        errors=np.array([error for _, error in runs]),
        logs=np.stack(logs, axis=-1),
        distance=beyond.sum(axis=1),
        shared=np.full(len(layouts), beyond.min(axis=0).sum()),
        related=1.0 / share - 1.0,
        mixture=np.array([EXPERTS in at.blocks.split("+") for at in layouts], dtype=float),
    )


def as_toml(numbers: Variance, result: CampaignResult) -> str:
    """The text of variance.toml."""
    runs = [(row, fold) for row, _, fold, _ in judged(result.time, "step", BY)]
    lines = [
        HEADER.format(
            runs=len(runs),
            groups=len({KEYS["group"](row) for row, _ in runs}),
            systems=len({fold for _, fold in runs}),
        )
    ]
    lines += [f"{name} = {_short(getattr(numbers, name))}" for name in (*SCALES, "told")]
    lines += ["", "[slopes]"]
    lines += [f"{name} = {_short(slope)}" for name, slope in numbers.slopes.items()]
    return "\n".join(lines) + "\n"


def _short(value: float) -> str:
    return f"{value:.{DIGITS}g}"
