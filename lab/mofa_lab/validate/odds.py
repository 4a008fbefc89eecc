"""How true the odds are, and what the rule picks: every figure without the runs of the group that it is judged on.

    picks    published jobs with their layouts hidden: what the default answer gains by the model, and its chance of being out of memory
    pairs    two runs of one question of a sweep: how often the one that is said to be faster was
    fits     runs of a sweep that fitted or did not, against the chance that is said and against a constant edge
    regret   what the pick among the runs of one question loses, by the rule and by the least estimate

A run's step is predicted by the fit that did not see its group (`runs.tsv.gz`); memory, and runs that were out of it, by the shipped
constants, which have seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.validate.score import SMALLEST_GROUP
from mofa_lab.validate.steps import predict
from mofa_model.advice import Request, advise, assumed_reliability
from mofa_model.advice.choice import simplest
from mofa_model.advice.weighed import weights_of
from mofa_model.bands import (
    Coordinates,
    LayoutOdds,
    MeasuredRuns,
    coordinates,
    measured_runs,
    odds_of,
    support,
)
from mofa_model.calibrate.cases import Case, shipped
from mofa_model.errors import InputError
from mofa_model.estimate.footprint import room
from mofa_model.search import SearchCase, framework
from mofa_model.strategy_text import format_strategy

Array = NDArray[np.floating[Any]]

BINS: Final = np.linspace(0.5, 1.0, 11)
"""Edges of the chances that pairs are told apart by. [1]"""
LIKELY: Final = 0.9
"""Chance to fit of a run that may be picked. [1]"""


def unseen(runs: MeasuredRuns, group: str) -> MeasuredRuns:
    """All runs but those of a group."""
    kept = np.array([name != group for name in runs.groups])
    return replace(
        runs,
        names=tuple(np.array(runs.names)[kept].tolist()),
        groups=tuple(np.array(runs.groups)[kept].tolist()),
        places={name: (words, which[kept]) for name, (words, which) in runs.places.items()},
        errors={name: errors[kept] for name, errors in runs.errors.items()},
        held=runs.held[kept],
        say=runs.say[kept],
        digest=f"{runs.digest} without {group}",
    )


def odds_document(cases: Sequence[Case], advance: Callable[[float], None] = lambda _: None) -> dict[str, Any]:
    """All figures of some cases; runs of sweeps are those with a group."""
    runs = measured_runs()
    group_of = dict(zip(runs.names, runs.groups, strict=True))
    published = [case for case in cases if not case.group and case.id in group_of]
    picked = picks(published, runs, group_of, advance)
    swept = list(_questions([case for case in cases if case.group], runs, group_of))
    told = {"picks": _picks_summary(picked)} if any("gain" in one for one in picked) else {}
    return {**told, "jobs": picked, **_sweeps(swept)}


def picks(
    cases: Sequence[Case],
    runs: MeasuredRuns,
    group_of: Mapping[str, str],
    advance: Callable[[float], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """The default answer for every job that was published, each question once."""
    told, asked = list[dict[str, Any]](), set[object]()
    for case in cases:
        advance(1.0 / len(cases))
        training, nodes = case.workload.training, float(case.cluster.gpus) / float(case.cluster.gpus_per_node)
        question = (
            case.workload.model, training.sequence, training.global_batch, training.precision.name, case.key.stack, case.gpu, nodes,
        )  # fmt: skip
        if (
            question in asked
            or nodes != int(nodes)
            or not any(one.quantity == "step_time_s" for one in case.measured)
        ):
            continue
        asked.add(question)
        cluster = replace(case.cluster, calibration=shipped(case.key))
        answer = advise(
            Request(
                problems=(SearchCase(workload=case.workload, cluster=cluster),),
                reliability=assumed_reliability(float(cluster.gpus_per_node * cluster.host.link.bandwidth)),
                nodes=int(nodes),
                framework=_trainer(case),
                current=case.strategy,
                runs=unseen(runs, group_of[case.id]),
                top=0,
            )
        )
        if answer.strategy is None or answer.odds is None or answer.current is None:
            told.append({"id": case.id, "status": answer.status.value, "doubts": answer.doubts})
            continue
        told.append(
            {
                "id": case.id,
                "status": answer.status.value,
                "strategy": format_strategy(answer.strategy),
                "published": format_strategy(case.strategy),
                "published_fits": not answer.current.reason,
                "gain": float(answer.current.gain),
                "out_of_memory": 1.0 - float(answer.odds.fits),
                "doubts": answer.doubts,
            }
        )
    return told


def _trainer(case: Case) -> str:
    try:
        return framework(case.key.stack).name
    except InputError:
        return "any"


def _picks_summary(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    gains = np.array([one["gain"] for one in told if one.get("published_fits")])
    risks = np.array([one["out_of_memory"] for one in told if "out_of_memory" in one])
    return {
        "jobs": len(told),
        "answered": len(risks),
        "unmeasured": sum(
            any("no measured run has" in text for text in one.get("doubts", ())) for one in told
        ),
        "published_fits": len(gains),
        "median_gain": float(np.median(gains)),
        "above_20": float(np.mean(gains > 0.2)),
        "mean_out_of_memory": float(np.mean(risks)),
        "risky": float(np.mean(risks > 0.1)),
        "most_out_of_memory": float(np.max(risks)),
    }


class Question:
    """Runs of one question of a sweep, those that did not fit among them."""

    def __init__(
        self, cases: Sequence[Case], runs: MeasuredRuns, group: str, error: Mapping[str, float]
    ) -> None:
        others = unseen(runs, group)
        self.stack = cases[0].key.stack
        self.gpus = int(cases[0].cluster.gpus)
        self.at: list[Coordinates] = [_coordinates(case) for case in cases]
        self.seen: LayoutOdds = odds_of(others, self.at)
        have = support(others, self.stack, experts=False)
        self.complexity: Array = np.array([have.complexity(at.layout) for at in self.at])
        found = predict(cases).columns
        self.fitted = ~np.array([case.out_of_memory for case in cases])
        limit = np.array(
            [float(room(replace(case.cluster, calibration=shipped(case.key)))) for case in cases]
        )
        self.space: Array = limit / found["peak"]
        self.measured: Array = np.array([_step(case) for case in cases])
        left = np.array([error.get(case.id, np.nan) for case in cases])
        self.predicted: Array = np.where(
            np.isfinite(left), self.measured * np.exp(-np.nan_to_num(left)), found["step"]
        )


def _questions(cases: Sequence[Case], runs: MeasuredRuns, group_of: Mapping[str, str]) -> Iterable[Question]:
    error = dict(zip(runs.names, runs.errors["step"].tolist(), strict=True))
    models = {_model(case): group_of[case.id] for case in cases if case.id in group_of}
    together: dict[str, list[Case]] = {}
    for case in cases:
        together.setdefault(case.group, []).append(case)
    for some in together.values():
        yield Question(some, runs, models.get(_model(some[0]), ""), error)


def _model(case: Case) -> tuple[object, ...]:
    return case.key.stack, case.workload.model.layers, case.workload.model.hidden


def _coordinates(case: Case) -> Coordinates:
    return replace(coordinates(case.workload, case.cluster, case.strategy), stack=case.key.stack)


def _step(case: Case) -> float:
    return next((one.value for one in case.measured if one.quantity == "step_time_s"), float("nan"))


def _sweeps(questions: Sequence[Question]) -> dict[str, Any]:
    told: dict[str, Any] = {"pairs": {}, "fits": {}, "regret": {}}
    for stack in sorted({one.stack for one in questions}):
        every = [one for one in questions if one.stack == stack]
        some = [one for one in every if np.isfinite(one.measured).sum() >= SMALLEST_GROUP]
        told["pairs"][stack], told["regret"][stack] = _pairs(some), _regret(some)
        if not all(one.fitted.all() for one in every):
            told["fits"][stack] = _fits(every)
    return told


def _pairs(questions: Sequence[Question]) -> dict[str, Any]:
    """Of pairs of runs that fit: the chance that the one that is predicted faster is, and how often it was."""
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
        {"said": float(chance[mine].mean()), "was": float(right[mine].mean()), "pairs": int(mine.sum())}
        for mine in (which == at for at in range(len(BINS) - 1))
        if mine.any()
    ]
    error = sum(row["pairs"] * abs(row["said"] - row["was"]) for row in bins) / max(1, len(chance))
    return {"pairs": len(chance), "calibration_error": error, "bins": bins}


def _fits(questions: Sequence[Question]) -> dict[str, Any]:
    """Brier scores of the chance to fit and of a constant edge."""
    fitted = np.concatenate([one.fitted for one in questions]).astype(float)
    said = np.concatenate([one.seen.below("memory", one.space) for one in questions])
    edge = np.concatenate([one.space >= 1.0 for one in questions])
    brier, constant = float(np.mean((said - fitted) ** 2)), float(np.mean((edge - fitted) ** 2))
    return {"runs": len(fitted), "brier": brier, "edge": constant, "better": 1.0 - brier / constant}


def _regret(questions: Sequence[Question]) -> dict[str, Any]:
    """Throughput that the pick of each question loses, by the rule and by the least estimate among what fits; and failures."""
    lost: dict[str, list[float]] = {"rule": [], "estimate": []}
    failed = dict.fromkeys(lost, 0)
    for one in questions:
        fits, weight = weights_of(one.seen, one.space)
        may = {"rule": fits >= LIKELY, "estimate": one.space >= 1.0}
        for name, mask in may.items():
            places = np.flatnonzero(mask if mask.any() else fits == fits.max())
            pace = one.predicted[places] * (weight[places] if name == "rule" else 1.0)
            at = int(np.argmin(pace))
            if name == "rule":
                seen = one.seen.some(places)
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
