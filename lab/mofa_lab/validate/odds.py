"""How true the odds are, and what the rule picks: every figure without the runs of the group that it is judged on.

    picks    published jobs with their layouts hidden (`picks`)
    pairs    two runs of one question of a sweep: how often the one that is said to be faster was
    trained  the chance to fit that is said of published runs, all of which did
    fits     runs of a sweep that fitted or did not, against the chance that is said and against a constant edge
    regret   what the pick among the runs of one question loses, by the rule and by the least estimate
    gains    what the pick gains over every other run of its question, by what is said and as it was
    probes   the same after short runs (`probes`)

A run's step is predicted by the fit that did not see its group (`runs.tsv.gz`); memory, and runs that were out of it, by the shipped
constants, which have seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.validate.picks import apart, picks, summed
from mofa_lab.validate.probes import replayed
from mofa_lab.validate.questions import LIKELY, SweptQuestion, questions
from mofa_lab.validate.score import LARGE, SMALLEST_GROUP
from mofa_lab.validate.steps import predict
from mofa_model.advice.candidates import weights_of
from mofa_model.advice.choice import simplest
from mofa_model.bands.coordinates import coordinates
from mofa_model.bands.odds import odds_of
from mofa_model.bands.table import measured_runs
from mofa_model.calibrate.cases import Case

Array = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]

BINS: Final = np.linspace(0.5, 1.0, 11)
"""Edges of the chances that pairs are told apart by. [1]"""
SLOW: Final = 1.8
"""Times its estimate from which a run beyond its memory was slowed by its allocator. [1]"""
CHANCES: Final = np.array([0.0, 0.05, 0.3, 0.5, 0.7, 0.9, 0.97, 1.0])
"""Edges of the chances to fit that are told apart. [1]"""
GAINS: Final = (0.1, 0.2, 0.5)
"""Edges of the gains that are told apart. [1]"""


def odds_document(
    cases: Sequence[Case], advance: Callable[[float], None] = lambda _: None
) -> dict[str, Any]:
    """All figures of some cases; runs of sweeps are those with a group."""
    runs = measured_runs()
    known = dict(zip(runs.names, runs.groups, strict=True))
    group_of = {case.id: known.get(case.id, "") for case in cases}  # a run from outside has none
    published = [case for case in cases if not case.group]
    picked = picks(published, runs, group_of, advance)
    swept = list(questions([case for case in cases if case.group], runs, group_of))
    told = (
        {"picks": summed(picked), "published": apart(published)}
        if any("gain" in one for one in picked)
        else {}
    )
    return {**told, "jobs": picked, "trained": trained(cases), **_sweeps(swept)}


def trained(cases: Sequence[Case]) -> dict[str, Any]:
    """The chance to fit of published runs, by what is said. Their estimates rest on fits that may have seen them, the width of their
    bands on fits without their publishers.
    """
    some = [
        case for case in cases if case.kind == "pretrain" and not case.group and _has_step(case)
    ]
    if not some:
        return {"runs": 0}
    found = predict(some).columns
    at = [
        replace(
            coordinates(case.workload, case.cluster, case.strategy, share), stack=case.key.stack
        )
        for case, share in zip(some, found["estimated"].tolist(), strict=True)
    ]
    said = odds_of(measured_runs(), at).below("memory", np.exp(found["room"]))
    return _reliability(said, np.ones(len(some), dtype=bool))


def _has_step(case: Case) -> bool:
    return any(one.quantity == "step_time_s" for one in case.measured)


def _reliability(said: Array, fitted: Mask) -> dict[str, Any]:
    """How often runs fitted, by the chance that was said; how many that did were said to be unsure, and how many that did not were
    refused.
    """
    which = np.clip(np.digitize(said, CHANCES) - 1, 0, len(CHANCES) - 2)
    bins = [
        {
            "said": float(said[mine].mean()),
            "was": float(fitted[mine].mean()),
            "runs": int(mine.sum()),
        }
        for mine in (which == at for at in range(len(CHANCES) - 1))
        if mine.any()
    ]
    error = sum(row["runs"] * abs(row["said"] - row["was"]) for row in bins) / len(said)
    return {
        "runs": len(said),
        "unsure": float(np.mean(said[fitted] < LIKELY)),
        "refused": float(np.mean(said[~fitted] < LIKELY)) if not fitted.all() else None,
        "calibration_error": error,
        "bins": bins,
    }


def _sweeps(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    told: dict[str, Any] = {"pairs": {}, "fits": {}, "regret": {}, "gains": {}, "probes": {}}
    for stack in sorted({one.stack for one in questions}):
        every = [one for one in questions if one.stack == stack]
        some = [one for one in every if np.isfinite(one.measured).sum() >= SMALLEST_GROUP]
        told["pairs"][stack], told["regret"][stack] = _pairs(some), _regret(some)
        told["gains"][stack], told["probes"][stack] = _gains(some), replayed(some)
        if not all(one.fitted.all() for one in every):
            told["fits"][stack] = _fits(every)
    return told


def _pairs(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    """Of pairs of runs that fit: the chance that the one that is predicted faster is, and how often it was.

    `brier` scores the chance, `edge` a certainty that the estimate is right, and `bound` chances that say of each bin what was there.
    """
    chances, won = [np.empty(0)], [np.empty(0, dtype=bool)]
    for one in questions:
        sure = one.seen.below("memory", one.space) >= LIKELY
        places = np.flatnonzero(np.isfinite(one.measured) & sure)
        for at in places:
            others = places[one.predicted[places] > one.predicted[at]]
            chances.append(one.seen.beats(int(at), one.predicted)[others])
            won.append(one.measured[at] < one.measured[others])
    chance, right = np.concatenate(chances), np.concatenate(won)
    which = np.clip(np.digitize(chance, BINS) - 1, 0, len(BINS) - 2)
    bins = [
        {
            "said": float(chance[mine].mean()),
            "was": float(right[mine].mean()),
            "pairs": int(mine.sum()),
        }
        for mine in (which == at for at in range(len(BINS) - 1))
        if mine.any()
    ]
    error = sum(row["pairs"] * abs(row["said"] - row["was"]) for row in bins) / max(1, len(chance))
    bound = sum(row["pairs"] * row["was"] * (1.0 - row["was"]) for row in bins) / max(
        1, len(chance)
    )
    return {
        "pairs": len(chance),
        "calibration_error": error,
        "brier": float(np.mean((chance - right) ** 2)),
        "edge": float(np.mean(~right)),
        "bound": bound,
        "bins": bins,
    }


def _gains(questions: Sequence[SweptQuestion]) -> list[dict[str, Any]]:
    """What the least estimate of each question gains over its other runs that fit, by what is said."""
    said, was = [np.empty(0)], [np.empty(0)]
    for one in questions:
        if one.gpus >= LARGE:
            continue
        fits = one.seen.below("memory", one.space) >= LIKELY
        first = int(np.argmin(np.where(fits, one.predicted, np.inf)))
        if not np.isfinite(one.measured[first]):
            continue
        others = np.flatnonzero(fits & np.isfinite(one.measured) & (np.arange(len(fits)) != first))
        said.append(np.log(one.predicted[others] / one.predicted[first]))
        was.append(np.log(one.measured[others] / one.measured[first]))
    by, true = np.concatenate(said), np.concatenate(was)
    which = np.digitize(np.expm1(by), GAINS)
    return [
        {
            "said": float(np.expm1(by[mine].mean())),
            "was": float(np.expm1(true[mine].mean())),
            "pairs": int(mine.sum()),
        }
        for mine in (which == at for at in range(len(GAINS) + 1))
        if mine.any()
    ]


def _fits(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    """Brier scores of the chance to fit and of a constant edge; and how long runs took that trained beyond the edge.

    An allocator that asks for the same memory again and again trains, slowly: `at_speed` counts such runs as what does not fit.
    """
    fitted = np.concatenate([one.fitted for one in questions])
    said = np.concatenate([one.seen.below("memory", one.space) for one in questions])
    edge = np.concatenate([one.space >= 1.0 for one in questions])
    longer = np.concatenate([one.measured / one.predicted for one in questions])
    beyond = fitted & ~edge
    slowed = beyond & (longer > SLOW)
    return {
        **_reliability(said, fitted),
        **_scores(said, edge, fitted),
        "bound": _bound(said, fitted),
        "beyond": int(beyond.sum()),
        "slowed": sorted(longer[slowed].tolist()),
        "at_speed": _scores(said, edge, fitted & ~slowed),
    }


def _scores(said: Array, edge: Mask, fitted: Mask) -> dict[str, Any]:
    brier, constant = (
        float(np.mean((said - fitted) ** 2)),
        float(np.mean((1.0 * edge - fitted) ** 2)),
    )
    return {"runs": len(fitted), "brier": brier, "edge": constant, "better": 1.0 - brier / constant}


def _bound(said: Array, fitted: Mask) -> float:
    """The least Brier score of any chance that rises with the one that is said, chosen with hindsight. Source: pool adjacent violators."""
    order = np.argsort(said, kind="stable")
    blocks: list[tuple[float, int]] = []
    for was in fitted[order].tolist():
        block = (float(was), 1)
        while blocks and blocks[-1][0] / blocks[-1][1] >= block[0] / block[1]:
            last = blocks.pop()
            block = (last[0] + block[0], last[1] + block[1])
        blocks.append(block)
    return sum(fit * (1.0 - fit / runs) for fit, runs in blocks) / len(said)


def _regret(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    """Throughput that the pick of each question loses, by the rule and by the least estimate among what fits; and failures."""
    lost: dict[str, list[float]] = {"rule": [], "estimate": []}
    failed = dict.fromkeys(lost, 0)
    for one in questions:
        fits, weight = one.seen.below("memory", one.space), weights_of(one.seen, one.space)
        may = {"rule": fits >= LIKELY, "estimate": one.space >= 1.0}
        for name, mask in may.items():
            places = np.flatnonzero(mask if mask.any() else fits == fits.max())
            pace = one.predicted[places] * (weight[places] if name == "rule" else 1.0)
            at = int(np.argmin(pace))
            if name == "rule":
                seen = one.seen.subset(places)
                at = simplest(seen, pace, one.complexity[places])
            taken = one.measured[places[at]]
            if np.isfinite(taken):
                lost[name].append(1.0 - float(np.nanmin(one.measured)) / float(taken))
            else:
                failed[name] += 1
    return {
        name: {"questions": len(questions), "mean": float(np.mean(found)), "failed": failed[name]}
        for name, found in lost.items()
    }
