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
    groups = dict(zip(runs.names, runs.groups, strict=True))
    group_of = {case.id: groups.get(case.id, "") for case in cases}  # a run from outside has none
    published = [case for case in cases if not case.group]
    picked = picks(published, runs, group_of, advance)
    swept = list(questions([case for case in cases if case.group], runs, group_of))
    kinds = overstated([*published_pairs(published, runs), *_differing(swept)])
    of_published = (
        {"picks": summed(picked, kinds), "published": apart(published)}
        if any("gain" in job for job in picked)
        else {}
    )
    return {
        **of_published, "jobs": picked, "kinds": kinds, "trained": trained(cases), **_sweeps(swept),
    }  # fmt: skip


def trained(cases: Sequence[Case]) -> dict[str, Any]:
    """The chance to fit of published runs, by what is said. Their estimates rest on fits that may
    have seen them, the width of their bands on fits without their publishers.
    """
    counted = [
        case for case in cases if case.kind == "pretrain" and not case.group and _has_step(case)
    ]
    if not counted:
        return {"runs": 0}
    predicted = predict(counted).columns
    layouts = [
        replace(
            coordinates(case.workload, case.cluster, case.strategy, share), stack=case.key.stack
        )
        for case, share in zip(counted, predicted["estimated"].tolist(), strict=True)
    ]
    chances = odds_of(measured_runs(), layouts).below("memory", np.exp(predicted["room"]))
    return _reliability(chances, np.ones(len(counted), dtype=bool))


def _has_step(case: Case) -> bool:
    return any(measurement.quantity == "step_time_s" for measurement in case.measured)


def _reliability(chances: Array, fitted: Mask) -> dict[str, Any]:
    """How often runs fitted, by the chance that was said; how many that did were said to be unsure,
    and how many that did not were refused.
    """
    bin_of_run = np.clip(np.digitize(chances, CHANCES) - 1, 0, len(CHANCES) - 2)
    bins = [
        {
            "said": float(chances[in_bin].mean()),
            "was": float(fitted[in_bin].mean()),
            "runs": int(in_bin.sum()),
        }
        for in_bin in (bin_of_run == number for number in range(len(CHANCES) - 1))
        if in_bin.any()
    ]
    error = sum(row["runs"] * abs(row["said"] - row["was"]) for row in bins) / len(chances)
    return {
        "runs": len(chances),
        "unsure": float(np.mean(chances[fitted] < SURELY)),
        "refused": float(np.mean(chances[~fitted] < SURELY)) if not fitted.all() else None,
        "calibration_error": error,
        "bins": bins,
    }


def _differing(
    questions: Sequence[SweptQuestion],
) -> Iterator[tuple[frozenset[str], float, float]]:
    """The least estimate of each question beside its other runs: kinds, and the logarithms of the
    gain that is said and that was.
    """
    for question in questions:
        first = _least(question)
        for other in (
            np.flatnonzero(np.isfinite(question.measured))
            if np.isfinite(question.measured[first])
            else ()
        ):
            predicted_gain, measured_gain = (
                float(np.log(times[other] / times[first]))
                for times in (question.predicted, question.measured)
            )
            yield kinds_of(question.at[first], question.at[other]), predicted_gain, measured_gain


def _least(question: SweptQuestion) -> int:
    """Position of the run with the least estimated time among those that fit by the estimate."""
    return int(np.argmin(np.where(question.may, question.predicted, np.inf)))


def _sweeps(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "pairs": {}, "fits": {}, "regret": {}, "kept": {}, "gains": {}, "probes": {},
    }  # fmt: skip
    for stack in sorted({question.stack for question in questions}):
        of_stack = [question for question in questions if question.stack == stack]
        comparable = [
            question
            for question in of_stack
            if np.isfinite(question.measured).sum() >= SMALLEST_GROUP
        ]
        figures["pairs"][stack], figures["regret"][stack] = _pairs(comparable), _regret(comparable)
        figures["kept"][stack] = _kept(comparable)
        figures["gains"][stack], figures["probes"][stack] = _gains(comparable), replayed(comparable)
        if not all(question.fitted.all() for question in of_stack):
            figures["fits"][stack] = _fits(of_stack)
    return figures


def _pairs(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    """How true the chance to be faster is, over all pairs of runs that fit, by bins of the chance.

    Three Brier scores, lower is better: `brier` of the chance that was said, `edge` of the
    certainty that the estimate is right, `bound` of chances that equal what was seen in each bin.
    """
    chances, won = [np.empty(0)], [np.empty(0, dtype=bool)]
    models = [np.empty(0, dtype=str)]
    for question in questions:
        places = np.flatnonzero(np.isfinite(question.measured) & (question.space >= 1.0))
        for run in places:
            others = places[question.predicted[places] > question.predicted[run]]
            chances.append(question.seen.beats(int(run), question.predicted)[others])
            won.append(question.measured[run] < question.measured[others])
            models.append(np.full(len(others), question.model))
    chance, right, model = map(np.concatenate, (chances, won, models))
    bin_of_pair = np.clip(np.digitize(chance, BINS) - 1, 0, len(BINS) - 2)
    bins = [
        {
            "said": float(chance[in_bin].mean()),
            "was": float(right[in_bin].mean()),
            "pairs": int(in_bin.sum()),
            "standard_error": _standard_error((right - chance)[in_bin], model[in_bin]),
        }
        for in_bin in (bin_of_pair == number for number in range(len(BINS) - 1))
        if in_bin.any()
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
    predicted, measured = [np.empty(0)], [np.empty(0)]
    for question in questions:
        first = _least(question)
        if question.gpus >= LARGE or not np.isfinite(question.measured[first]):
            continue
        others = np.flatnonzero(
            question.may & np.isfinite(question.measured) & (np.arange(len(question.at)) != first)
        )
        predicted.append(np.log(question.predicted[others] / question.predicted[first]))
        measured.append(np.log(question.measured[others] / question.measured[first]))
    predicted_gain, measured_gain = np.concatenate(predicted), np.concatenate(measured)
    bin_of_pair = np.digitize(np.expm1(predicted_gain), GAINS)
    return [
        {
            "said": float(np.expm1(predicted_gain[in_bin].mean())),
            "was": float(np.expm1(measured_gain[in_bin].mean())),
            "pairs": int(in_bin.sum()),
        }
        for in_bin in (bin_of_pair == number for number in range(len(GAINS) + 1))
        if in_bin.any()
    ]


def _fits(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    """Brier scores of the chance to fit and of a sharp limit (`edge`), and how much longer than
    predicted runs took that trained beyond that limit.

    An allocator that asks for the same memory again and again trains, slowly: `at_speed` counts
    such runs as what does not fit.
    """
    fitted = np.concatenate([question.fitted for question in questions])
    chances = np.concatenate([question.fits for question in questions])
    edge = np.concatenate([question.space >= 1.0 for question in questions])
    longer = np.concatenate([question.measured / question.predicted for question in questions])
    beyond = fitted & ~edge
    slowed = beyond & (longer > SLOW)
    return {
        **_reliability(chances, fitted),
        **_scores(chances, edge, fitted),
        "bound": _bound(chances, fitted),
        "beyond": int(beyond.sum()),
        "slowed": sorted(longer[slowed].tolist()),
        "at_speed": _scores(chances, edge, fitted & ~slowed),
    }


def _scores(chances: Array, edge: Mask, fitted: Mask) -> dict[str, Any]:
    brier, constant = (
        float(np.mean((chances - fitted) ** 2)),
        float(np.mean((1.0 * edge - fitted) ** 2)),
    )
    return {"runs": len(fitted), "brier": brier, "edge": constant, "better": 1.0 - brier / constant}


def _bound(chances: Array, fitted: Mask) -> float:
    """The least Brier score that any rising function of the said chance could reach, with
    hindsight. Source: pool adjacent violators.
    """
    order = np.argsort(chances, kind="stable")
    blocks: list[tuple[float, int]] = []
    for did_fit in fitted[order].tolist():
        block = (float(did_fit), 1)
        while blocks and blocks[-1][0] / blocks[-1][1] >= block[0] / block[1]:
            last = blocks.pop()
            block = (last[0] + block[0], last[1] + block[1])
        blocks.append(block)
    return sum(fit * (1.0 - fit / runs) for fit, runs in blocks) / len(chances)


def _kept(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    """How often a much slower layout of today is left for a better one.

    Each run that the rule's pick beats by more than 10 %, as measured, is taken as today's layout
    (`gains`); counted is how often another one is advised then, and how often as Recommended.
    """
    gains = advised = recommended = 0
    for question in questions:
        first = question.pick()
        slower = np.flatnonzero(question.measured > LEAST_GAIN * question.measured[first])
        gains += len(slower)
        for current in map(int, slower):
            pick = question.pick(current)
            advised += int(pick != current)
            recommended += int(pick != current and question.fits[pick] >= SURELY)
    return {"gains": gains, "advised": advised, "recommended": recommended}


def _regret(questions: Sequence[SweptQuestion]) -> dict[str, Any]:
    """Throughput that picks lose against the best run, and how many picks failed: of the rule, and
    of the least estimate among what fits.
    """
    lost: dict[str, list[float]] = {"rule": [], "estimate": []}
    failed = dict.fromkeys(lost, 0)
    for question in questions:
        for name, run in {"rule": question.pick(), "estimate": _least(question)}.items():
            taken = question.measured[run]
            if np.isfinite(taken):
                lost[name].append(1.0 - float(np.nanmin(question.measured)) / float(taken))
            else:
                failed[name] += 1
    return {
        name: {"questions": len(questions), "mean": float(np.mean(shares)), "failed": failed[name]}
        for name, shares in lost.items()
    }
