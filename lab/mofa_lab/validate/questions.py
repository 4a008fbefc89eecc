"""Questions of a sweep, each with its measured runs, and what is said of them without their
publisher's other runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_lab.validate.picks import unseen
from mofa_lab.validate.steps import predict
from mofa_model.advice.candidates import weights_of
from mofa_model.advice.choice import KEPT, simplest
from mofa_model.bands.coordinates import Coordinates, coordinates
from mofa_model.bands.odds import LayoutOdds, odds_of
from mofa_model.bands.table import MeasuredRuns, support
from mofa_model.calibrate.cases import Case, shipped
from mofa_model.estimate.terms import device_memory_limit

Array = NDArray[np.floating[Any]]
Layer = tuple[int, int, int]
"""Width of a model, tp and sequences of a micro-batch."""


class SweptQuestion:
    """Runs of one question of a sweep, those that did not fit among them."""

    def __init__(
        self,
        cases: Sequence[Case],
        runs: MeasuredRuns,
        group: str,
        error: Mapping[str, float],
        odd: frozenset[Layer] = frozenset(),
    ) -> None:
        others = unseen(runs, group)
        self.stack = cases[0].key.stack
        self.model = group or cases[0].group
        self.odd = np.array([case.composed and _layer(case) in odd for case in cases])
        self.gpus = int(cases[0].cluster.gpus)
        priced = predict(cases).columns
        self.at: list[Coordinates] = [
            _coordinates(case, share)
            for case, share in zip(cases, priced["estimated"].tolist(), strict=True)
        ]
        self.seen: LayoutOdds = odds_of(others, self.at)
        have = support(others, self.stack, experts=False)
        self.complexity: Array = np.array([have.complexity(at.layout) for at in self.at])
        self.fitted = ~np.array([case.out_of_memory for case in cases])
        limit = np.array(
            [
                float(device_memory_limit(replace(case.cluster, calibration=shipped(case.key))))
                for case in cases
            ]
        )
        self.space: Array = limit / priced["peak"]
        self.measured: Array = np.array([_step(case) for case in cases])
        left = np.array([error.get(case.id, np.nan) for case in cases])
        self.predicted: Array = np.where(
            np.isfinite(left), self.measured * np.exp(-np.nan_to_num(left)), priced["step"]
        )
        self.fits: Array = self.seen.below("memory", self.space)
        unproven = np.array([len(have.unmeasured(at.layout)) for at in self.at])
        self.weight: Array = weights_of(self.seen, self.space, unproven)

    @property
    def may(self) -> NDArray[np.bool_]:
        """Runs that the search would find: those that have room by the estimate, or else
        the surest.
        """
        has_room: NDArray[np.bool_] = self.space >= 1.0
        return has_room if has_room.any() else self.fits == self.fits.max()

    def pick(self, now: int | None = None) -> int:
        """What the rule picks; `now` is the layout that runs today, if one does."""
        weight, complexity, may = self.weight.copy(), self.complexity.copy(), self.may.copy()
        if now is not None:
            weight[now], complexity[now], may[now] = 1.0, 0.0, True
        places = np.flatnonzero(may)
        pace, seen = self.predicted[places], self.seen.subset(places)
        first = simplest(seen, pace * weight[places], complexity[places])
        if now is not None:
            place = int(np.flatnonzero(places == now)[0])
            first = place if seen.beats(first, pace)[place] < KEPT else first
        return int(places[first])


def questions(
    cases: Sequence[Case], runs: MeasuredRuns, group_of: Mapping[str, str]
) -> Iterable[SweptQuestion]:
    """The questions of a sweep's cases: runs of one model, batch and number of devices."""
    error = dict(zip(runs.names, runs.errors["step"].tolist(), strict=True))
    # A run that was out of memory has no step and is in no group; others of its model are.
    models = {_model(case): name for case in cases if (name := group_of.get(case.id, ""))}
    together: dict[str, list[Case]] = {}
    for case in cases:
        together.setdefault(case.group, []).append(case)
    odd = odd_layers(cases)
    for group in together.values():
        yield SweptQuestion(group, runs, models.get(_model(group[0]), ""), error, odd)


def odd_layers(cases: Iterable[Case]) -> frozenset[Layer]:
    """Names of composed runs whose layer took less time than that of half as many sequences.

    A layer's time is the difference between models that differ in their depth alone.
    """
    steps: dict[tuple[object, ...], dict[int, float]] = {}
    for case in cases:
        s = case.strategy
        if case.composed and s.pp == 1:
            batch = int(case.workload.training.global_batch)
            by_depth = steps.setdefault((_layer(case), int(s.dp), batch), {})
            by_depth[int(case.workload.model.layers)] = _step(case) * float(s.dp * s.mbs) / batch
    times: dict[Any, list[float]] = {}
    for (layer, *_), by_depth in steps.items():
        pairs = combinations(sorted(by_depth.items()), 2)
        times.setdefault(layer, []).extend(
            (b - a) / (deep - flat) for (flat, a), (deep, b) in pairs
        )
    medians = {layer: float(np.median(values)) for layer, values in times.items() if values}
    return frozenset(
        (width, tp, mbs)
        for (width, tp, mbs), time in medians.items()
        if time < medians.get((width, tp, mbs // 2), 0.0)
    )


def _layer(case: Case) -> Layer:
    model, s = case.workload.model, case.strategy
    return int(model.hidden), int(s.tp), int(s.mbs)


def _model(case: Case) -> tuple[object, ...]:
    return case.key.stack, case.workload.model.layers, case.workload.model.hidden


def _coordinates(case: Case, estimated: float) -> Coordinates:
    at = coordinates(case.workload, case.cluster, case.strategy, estimated)
    return replace(at, stack=case.key.stack)


def _step(case: Case) -> float:
    return next(
        (figure.value for figure in case.measured if figure.quantity == "step_time_s"), float("nan")
    )
