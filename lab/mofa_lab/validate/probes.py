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


def replayed(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    """Mean regret after none, one, two and three runs, by how the runs were chosen; and how many of
    the planned runs failed.
    """
    curves: dict[str, list[float]] = {"steps": [], "plan": [], "top": [], "random": []}
    plans, steps, failed = (
        [_planned(question, [], MOST) for question in questions],
        [_stepped(question) for question in questions],
        0,
    )
    for count in range(MOST + 1):
        for way, places in (("plan", plans), ("steps", steps)):
            curves[way].append(
                _mean(
                    _regret(question, ran[:count])
                    for question, ran in zip(questions, places, strict=True)
                )
            )
        curves["top"].append(
            _mean(_regret(question, _by_pace(question)[:count]) for question in questions)
        )
        curves["random"].append(
            _mean(
                _regret(question, ran) for question in questions for ran in _random(question, count)
            )
        )
    failed = sum(
        int(np.sum(~question.fitted[ran])) for question, ran in zip(questions, plans, strict=True)
    )
    even = [not question.odd[int(np.nanargmin(question.measured))] for question in questions]
    without_odd = [
        _regret(question, ran)
        for question, ran, kept in zip(questions, steps, even, strict=True)
        if kept
    ]
    planned = [_regret(question, ran) for question, ran in zip(questions, plans, strict=True)]
    worst = int(np.argmax(planned))
    return {
        "questions": len(questions),
        "failed": failed,
        **curves,
        "odd": len(questions) - len(without_odd),
        "without_odd": _mean(without_odd),
        "worst_gpus": questions[worst].gpus,
        "plan_without_worst": _mean(np.delete(planned, worst)),
    }


def _mean(values: Any) -> float:
    return float(np.mean(list(values)))


def _planned(question: SweptQuestion, ran: Sequence[int], count: int) -> list[int]:
    """The next runs by the plan of the advice, after some were run."""
    seen, fine = _after(question, ran), [run for run in ran if question.fitted[run]]
    space, priced = question.space.copy(), np.zeros(len(question.at), dtype=bool)
    space[~question.may] = space[list(ran)] = NOTHING
    priced[fine] = True
    pace = question.predicted * np.exp(seen.centres["step"])
    places = plan(seen, pace, space, count, RISK, priced).indices
    return [run for run in places if run not in ran]


def _stepped(question: SweptQuestion) -> list[int]:
    """Runs chosen one after another, each after those before it were measured."""
    ran: list[int] = []
    while len(ran) < MOST and (new := _planned(question, ran, 1)):
        ran += new
    return ran


def _after(question: SweptQuestion, ran: Sequence[int]) -> LayoutOdds:
    """The odds of all layouts after some were run; the error that all share is taken off all."""
    steps = {
        run: math.log(question.measured[run] / question.predicted[run])
        for run in ran
        if question.fitted[run]
    }
    if not steps:
        return question.seen
    learned = math.log(system_factor(list(steps.values())).target)
    return question.seen.after({"step": {run: error - learned for run, error in steps.items()}})


def _by_pace(question: SweptQuestion) -> list[int]:
    """Positions of the runs that the search would find, the fastest first by its estimate."""
    runs = np.flatnonzero(question.may)
    pace = (question.predicted * question.weight)[runs]
    return [int(run) for run in runs[np.argsort(pace, kind="stable")]]


def _random(question: SweptQuestion, count: int) -> list[list[int]]:
    may = _by_pace(question)
    ways = (np.random.Generator(np.random.PCG64(way)).permutation(len(may)) for way in range(WAYS))
    return [[may[at] for at in way[:count]] for way in ways]


def _regret(question: SweptQuestion, ran: Sequence[int]) -> float:
    """Throughput that the choice after some runs loses; all of it where it fails."""
    may, weight = question.may.copy(), question.weight.copy()
    may[list(ran)] = question.fitted[list(ran)]
    seen, fine = _after(question, ran), [run for run in ran if question.fitted[run]]
    complexity = question.complexity.copy()
    weight[fine], complexity[fine] = 1.0, 0.0
    places = np.flatnonzero(may)
    pace = (question.predicted * weight * np.exp(seen.centres["step"]))[places]
    taken = question.measured[places[simplest(seen.subset(places), pace, complexity[places])]]
    return 1.0 - float(np.nanmin(question.measured)) / float(taken) if np.isfinite(taken) else 1.0
