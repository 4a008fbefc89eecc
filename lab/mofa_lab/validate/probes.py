"""What short runs are worth, replayed on sweeps: the regret of the choice after some runs, by how
the runs were chosen.

    plan        those of `mofa advise --probe 3`
    steps       those of `mofa advise --probe 1`, each with what those before it measured
    top         those of the least expected time
    random      any that have room by the estimate, in ten ways

A question's candidates are its measured runs. Its predictions have not seen its model; after the
runs the choice is made as `mofa advise --runs` makes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.validate.questions import SweptQuestion
from mofa_model.advice.candidates import RISK
from mofa_model.advice.choice import simplest
from mofa_model.advice.probes import plan
from mofa_model.bands.odds import LayoutOdds
from mofa_model.bands.system import system_factor

Array = NDArray[np.floating[Any]]

MOST: Final = 3
"""Runs that are made at most."""
NOTHING: Final = 1e-9
"""Room of a layout that need not be asked again. [1]"""
WAYS: Final = 10
"""Random choices of a question."""


def replayed(some: Sequence[SweptQuestion]) -> dict[str, Any]:
    """Mean regret after none, one, two and three runs, by how the runs were chosen; and how many of
    the planned runs failed.
    """
    curves: dict[str, list[float]] = {"steps": [], "plan": [], "top": [], "random": []}
    plans, steps, failed = (
        [_planned(one, [], MOST) for one in some],
        [_stepped(one) for one in some],
        0,
    )
    for count in range(MOST + 1):
        for way, places in (("plan", plans), ("steps", steps)):
            curves[way].append(
                _mean(_regret(one, ran[:count]) for one, ran in zip(some, places, strict=True))
            )
        curves["top"].append(_mean(_regret(one, _by_pace(one)[:count]) for one in some))
        curves["random"].append(
            _mean(_regret(one, ran) for one in some for ran in _random(one, count))
        )
    failed = sum(int(np.sum(~one.fitted[ran])) for one, ran in zip(some, plans, strict=True))
    even = [not one.odd[int(np.nanargmin(one.measured))] for one in some]
    without_odd = [
        _regret(one, ran) for one, ran, kept in zip(some, steps, even, strict=True) if kept
    ]
    planned = [_regret(one, ran) for one, ran in zip(some, plans, strict=True)]
    worst = int(np.argmax(planned))
    return {
        "questions": len(some),
        "failed": failed,
        **curves,
        "odd": len(some) - len(without_odd),
        "without_odd": _mean(without_odd),
        "worst_gpus": some[worst].gpus,
        "plan_without_worst": _mean(np.delete(planned, worst)),
    }


def _mean(values: Any) -> float:
    return float(np.mean(list(values)))


def _planned(one: SweptQuestion, ran: Sequence[int], count: int) -> list[int]:
    """The next runs by the plan of the advice, after some were run."""
    seen, fine = _after(one, ran), [at for at in ran if one.fitted[at]]
    space, known = one.space.copy(), np.zeros(len(one.at), dtype=bool)
    space[~one.may] = space[list(ran)] = NOTHING
    known[fine] = True
    pace = one.predicted * np.exp(seen.centres["step"])
    places = plan(seen, pace, space, count, RISK, known).indices
    return [at for at in places if at not in ran]


def _stepped(one: SweptQuestion) -> list[int]:
    """Runs chosen one after another, each after those before it were measured."""
    ran: list[int] = []
    while len(ran) < MOST and (new := _planned(one, ran, 1)):
        ran += new
    return ran


def _after(one: SweptQuestion, ran: Sequence[int]) -> LayoutOdds:
    """The odds of all layouts after some were run; the error that all share is taken off all."""
    steps = {at: math.log(one.measured[at] / one.predicted[at]) for at in ran if one.fitted[at]}
    if not steps:
        return one.seen
    learned = math.log(system_factor(list(steps.values())).target)
    return one.seen.after({"step": {at: error - learned for at, error in steps.items()}})


def _by_pace(question: SweptQuestion) -> list[int]:
    """Positions of the runs that the search would find, the fastest first by its estimate."""
    runs = np.flatnonzero(question.may)
    pace = (question.predicted * question.weight)[runs]
    return [int(run) for run in runs[np.argsort(pace, kind="stable")]]


def _random(one: SweptQuestion, count: int) -> list[list[int]]:
    may = _by_pace(one)
    ways = (np.random.Generator(np.random.PCG64(way)).permutation(len(may)) for way in range(WAYS))
    return [[may[at] for at in way[:count]] for way in ways]


def _regret(one: SweptQuestion, ran: Sequence[int]) -> float:
    """Throughput that the choice after some runs loses; all of it where it fails."""
    may, weight = one.may.copy(), one.weight.copy()
    may[list(ran)] = one.fitted[list(ran)]
    seen, fine = _after(one, ran), [at for at in ran if one.fitted[at]]
    complexity = one.complexity.copy()
    weight[fine], complexity[fine] = 1.0, 0.0
    places = np.flatnonzero(may)
    pace = (one.predicted * weight * np.exp(seen.centres["step"]))[places]
    taken = one.measured[places[simplest(seen.subset(places), pace, complexity[places])]]
    return 1.0 - float(np.nanmin(one.measured)) / float(taken) if np.isfinite(taken) else 1.0
