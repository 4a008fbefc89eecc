"""How true the odds are, and what the rule picks: every figure without the runs of the publisher
that it is judged on.

    picks    published jobs with their layouts hidden, and as today's (`picks`)
    pairs    two runs of one question of a sweep: how often the one that is said to be faster was
    trained  the chance to fit that is said of published runs, all of which did
    fits     runs of a sweep that fitted or did not, against the chance that is said and against a
             constant edge
    regret   what the pick among the runs of one question loses, by the rule and by the least
             estimate
    gains    what the pick gains over every other run of its question, by what is said and as it was
    kept     gains above 10 % over a slower run as today's: how many are still advised
    kinds    gains above 20 %, by what the two layouts differ in
    probes   the same after short runs (`probes`)

A run's step is predicted by the fit that did not see its group (`runs.tsv.gz`); memory, and runs
that were out of it, by the shipped constants, which have seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.validate.picks import (
    apart,
    kinds_of,
    overstated,
    picks,
    published_pairs,
    summed,
)
from mofa_lab.validate.probes import replayed
from mofa_lab.validate.questions import SweptQuestion, questions
from mofa_lab.validate.score import LARGE, SMALLEST_GROUP
from mofa_lab.validate.steps import predict
from mofa_model.advice.candidates import SURELY
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
LEAST_GAIN: Final = 1.1
"""Time over the pick's from which a run as today's should be given up. [1]"""
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
    kinds = overstated([*published_pairs(published, runs), *_differing(swept)])
    told = (
        {"picks": summed(picked, kinds), "published": apart(published)}
        if any("gain" in one for one in picked)
        else {}
    )
    return {
        **told, "jobs": picked, "kinds": kinds, "trained": trained(cases), **_sweeps(swept),
    }  # fmt: skip


def trained(cases: Sequence[Case]) -> dict[str, Any]:
    """The chance to fit of published runs, by what is said. Their estimates rest on fits that may
    have seen them, the width of their bands on fits without their publishers.
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
    """How often runs fitted, by the chance that was said; how many that did were said to be unsure,
    and how many that did not were refused.
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
        "unsure": float(np.mean(said[fitted] < SURELY)),
        "refused": float(np.mean(said[~fitted] < SURELY)) if not fitted.all() else None,
        "calibration_error": error,
        "bins": bins,
    }


def _differing(
    questions: Sequence[SweptQuestion],
) -> Iterator[tuple[frozenset[str], float, float]]:
    """The least estimate of each question beside its other runs: kinds, and the logarithms of the
    gain that is said and that was.
    """
    for one in questions:
        first = _least(one)
        for at in (
            np.flatnonzero(np.isfinite(one.measured)) if np.isfinite(one.measured[first]) else ()
        ):
            said, was = (
                float(np.log(times[at] / times[first])) for times in (one.predicted, one.measured)
            )
            yield kinds_of(one.at[first], one.at[at]), said, was


def _least(one: SweptQuestion) -> int:
    """Position of the run with the least estimated time among those that fit by the estimate."""
    return int(np.argmin(np.where(one.may, one.predicted, np.inf)))


def _sweeps(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "pairs": {}, "fits": {}, "regret": {}, "kept": {}, "gains": {}, "probes": {},
    }  # fmt: skip
    for stack in sorted({one.stack for one in questions}):
        every = [one for one in questions if one.stack == stack]
        some = [one for one in every if np.isfinite(one.measured).sum() >= SMALLEST_GROUP]
        told["pairs"][stack], told["regret"][stack] = _pairs(some), _regret(some)
        told["kept"][stack] = _kept(some)
        told["gains"][stack], told["probes"][stack] = _gains(some), replayed(some)
        if not all(one.fitted.all() for one in every):
            told["fits"][stack] = _fits(every)
    return told


def _pairs(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    """How true the chance to be faster is, over all pairs of runs that fit, by bins of the chance.

    Three Brier scores, lower is better: `brier` of the chance that was said, `edge` of the
    certainty that the estimate is right, `bound` of chances that equal what was seen in each bin.
    """
    chances, won = [np.empty(0)], [np.empty(0, dtype=bool)]
    models = [np.empty(0, dtype=str)]
    for one in questions:
        places = np.flatnonzero(np.isfinite(one.measured) & (one.space >= 1.0))
        for at in places:
            others = places[one.predicted[places] > one.predicted[at]]
            chances.append(one.seen.beats(int(at), one.predicted)[others])
            won.append(one.measured[at] < one.measured[others])
            models.append(np.full(len(others), one.model))
    chance, right, model = map(np.concatenate, (chances, won, models))
    which = np.clip(np.digitize(chance, BINS) - 1, 0, len(BINS) - 2)
    bins = [
        {
            "said": float(chance[mine].mean()),
            "was": float(right[mine].mean()),
            "pairs": int(mine.sum()),
            "standard_error": _standard_error((right - chance)[mine], model[mine]),
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


def _standard_error(values: Array, groups: NDArray[Any]) -> float:
    """Standard error of a mean whose values are alike within groups. Source: Liang and Zeger 1986.
    [1]

    >>> _standard_error(np.array([0.0, 0.0, 1.0, 1.0]), np.array([1, 1, 2, 2]))
    0.5
    """
    names, which = np.unique(groups, return_inverse=True)
    sums = np.bincount(which, values - values.mean())
    return float(np.sqrt(np.square(sums).sum() * len(names) / max(1, len(names) - 1)) / len(values))


def _gains(questions: Sequence[SweptQuestion]) -> list[dict[str, Any]]:
    """Gain of each question's least estimate over its other runs that fit: predicted and measured
    mean, by bins of the predicted gain.
    """
    said, was = [np.empty(0)], [np.empty(0)]
    for one in questions:
        first = _least(one)
        if one.gpus >= LARGE or not np.isfinite(one.measured[first]):
            continue
        others = np.flatnonzero(
            one.may & np.isfinite(one.measured) & (np.arange(len(one.at)) != first)
        )
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
    """Brier scores of the chance to fit and of a sharp limit (`edge`), and how much longer than
    predicted runs took that trained beyond that limit.

    An allocator that asks for the same memory again and again trains, slowly: `at_speed` counts
    such runs as what does not fit.
    """
    fitted = np.concatenate([one.fitted for one in questions])
    said = np.concatenate([one.fits for one in questions])
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
    """The least Brier score that any rising function of the said chance could reach, with
    hindsight. Source: pool adjacent violators.
    """
    order = np.argsort(said, kind="stable")
    blocks: list[tuple[float, int]] = []
    for was in fitted[order].tolist():
        block = (float(was), 1)
        while blocks and blocks[-1][0] / blocks[-1][1] >= block[0] / block[1]:
            last = blocks.pop()
            block = (last[0] + block[0], last[1] + block[1])
        blocks.append(block)
    return sum(fit * (1.0 - fit / runs) for fit, runs in blocks) / len(said)


def _kept(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    """How often a much slower layout of today is left for a better one.

    Each run that the rule's pick beats by more than 10 %, as measured, is taken as today's layout
    (`gains`); counted is how often another one is advised then, and how often as Recommended.
    """
    gains = advised = recommended = 0
    for one in questions:
        first = one.pick()
        slower = np.flatnonzero(one.measured > LEAST_GAIN * one.measured[first])
        gains += len(slower)
        for now in map(int, slower):
            found = one.pick(now)
            advised += int(found != now)
            recommended += int(found != now and one.fits[found] >= SURELY)
    return {"gains": gains, "advised": advised, "recommended": recommended}


def _regret(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    """Throughput that picks lose against the best run, and how many picks failed: of the rule, and
    of the least estimate among what fits.
    """
    lost: dict[str, list[float]] = {"rule": [], "estimate": []}
    failed = dict.fromkeys(lost, 0)
    for one in questions:
        for name, at in {"rule": one.pick(), "estimate": _least(one)}.items():
            taken = one.measured[at]
            if np.isfinite(taken):
                lost[name].append(1.0 - float(np.nanmin(one.measured)) / float(taken))
            else:
                failed[name] += 1
    return {
        name: {"questions": len(questions), "mean": float(np.mean(found)), "failed": failed[name]}
        for name, found in lost.items()
    }
