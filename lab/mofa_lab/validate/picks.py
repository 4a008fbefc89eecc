"""The default answer for published jobs, without what their publisher's runs say: with the
published layout hidden, and as today's.

*gain* is what the model says that the answer gains over the fastest layout that was published for
the same question, both priced alike; below zero the answer is slower by its own estimate. Layouts
of one question differ among themselves, and `apart` says by how much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import Any, Final

import numpy as np

from mofa_model.advice import Advice, Request, advise, assumed_reliability
from mofa_model.bands.coordinates import WORDS, Coordinates, coordinates
from mofa_model.bands.table import MeasuredRuns
from mofa_model.calibrate.cases import Case, shipped
from mofa_model.errors import InputError
from mofa_model.search import SearchCase, framework
from mofa_model.strategy import format_strategy

RISKY: Final = 0.1
"""Chance of being out of memory that is asked about. [1]"""
SURE: Final = 0.9
"""Chance from which an alternative is one that a reader would rather take. [1]"""
LARGE: Final = 0.2
"""Gain that is doubted. [1]"""
SOME: Final = 10
"""Pairs of a kind that say something of it. [1]"""
KINDS: Final = {
    "tp": "degrees", "pp": "degrees", "cp": "degrees", "vpp": "degrees", "schedule": "degrees",
    "mbs": "micro-batch", "ep": "experts", "etp": "experts", "recompute": "recomputation",
    "optimizer": "sharding", "shard": "sharding", "offload": "offload",
}  # fmt: skip
"""What two layouts may differ in, in a few kinds; what is not here is overlap and graphs."""


@lru_cache(maxsize=64)
def unseen(runs: MeasuredRuns, group: str) -> MeasuredRuns:
    """All runs but those of a group's publisher."""
    publisher = publisher_of(group)
    for name in sorted({name for name in runs.groups if publisher_of(name) == publisher}):
        runs = without(runs, name)
    return runs


def without(runs: MeasuredRuns, group: str) -> MeasuredRuns:
    """All runs but those of a group."""
    kept = np.array([name != group for name in runs.groups])
    return replace(
        runs,
        names=tuple(np.array(runs.names)[kept].tolist()),
        groups=tuple(np.array(runs.groups)[kept].tolist()),
        which={name: which[kept] for name, which in runs.which.items()},
        errors={name: errors[kept] for name, errors in runs.errors.items()},
        left_out=(*runs.left_out, group),
    )


def publisher_of(group: str) -> str:
    """Who ran a group's runs."""
    return group.partition(",")[0]


def picks(
    cases: Sequence[Case],
    runs: MeasuredRuns,
    group_of: Mapping[str, str],
    advance: Callable[[float], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """The default answers for every question that somebody published runs of."""
    asked = questions(cases)
    figures = []
    for group in asked:
        advance(1.0 / len(asked))
        case = min(group, key=_step)
        request = request_of(case, unseen(runs, group_of[case.id]))
        hidden = advise(replace(request, current=None))
        figures.append(
            {"id": case.id, **_figures_of(hidden, advise(replace(request, top=0)), case)}
        )
    return figures


def request_of(case: Case, runs: MeasuredRuns) -> Request:
    """The request of a published job, with its layout as today's; the answer may use
    `runs` alone.
    """
    cluster = replace(case.cluster, calibration=shipped(case.key))
    return Request(
        problems=(SearchCase(workload=case.workload, cluster=cluster),),
        reliability=assumed_reliability(float(cluster.gpus_per_node * cluster.host.link.bandwidth)),
        nodes=int(float(cluster.gpus) / float(cluster.gpus_per_node)),
        framework=_trainer(case),
        current=case.strategy,
        runs=runs,
    )


def apart(cases: Sequence[Case]) -> dict[str, Any]:
    """Measured gains between layouts that were published for one question."""
    several = [group for group in questions(cases) if len({case.strategy for case in group}) > 1]
    pairs = [
        abs(np.log(_step(case) / _step(other)))
        for group in several
        for case, other in combinations(group, 2)
        if case.strategy != other.strategy
    ]
    slow = [max(map(_step, group)) / min(map(_step, group)) for group in several]
    return {
        "questions": len(several),
        "pairs": len(pairs),
        "pairs_above_20": float(np.mean(np.array(pairs) > np.log(1.2))) if pairs else None,
        "slowest_above_20": float(np.mean(np.array(slow) > 1.2)) if slow else None,
    }


def questions(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases with a step by what is asked: model, batch, precision, stack, machines."""
    by_question: dict[object, list[Case]] = {}
    for case in cases:
        training, nodes = (
            case.workload.training,
            float(case.cluster.gpus) / float(case.cluster.gpus_per_node),
        )
        question = (
            case.workload.model, training.sequence, training.global_batch, training.precision.name,
            case.key.stack, case.gpu, nodes,
        )  # fmt: skip
        if nodes == int(nodes) and np.isfinite(_step(case)):
            by_question.setdefault(question, []).append(case)
    return list(by_question.values())


def published_pairs(
    cases: Sequence[Case], runs: MeasuredRuns
) -> list[tuple[frozenset[str], float, float]]:
    """Pairs of layouts published for one question: the kinds in which they differ, and the
    logarithms of predicted and measured gain.
    """
    error = dict(zip(runs.names, runs.errors["step"].tolist(), strict=True))
    pairs = []
    for group in questions(cases):
        judged = [case for case in group if np.isfinite(error.get(case.id, np.nan))]
        for first, other in combinations(judged, 2):
            steps = [np.log(_step(case)) - error[case.id] for case in (first, other)]
            fast, slow = (0, 1) if steps[0] < steps[1] else (1, 0)
            pair, layouts = (first, other), [_coordinates(case) for case in (first, other)]
            measured_gain = float(np.log(_step(pair[slow]) / _step(pair[fast])))
            pairs.append((kinds_of(*layouts), float(steps[slow] - steps[fast]), measured_gain))
    return pairs


def kinds_of(layout: Coordinates, other: Coordinates) -> frozenset[str]:
    """The kinds in which two layouts differ."""
    return frozenset(
        KINDS.get(key, "overlap and graphs") for key in WORDS if layout.word(key) != other.word(key)
    )


def overstated(pairs: Iterable[tuple[frozenset[str], float, float]]) -> dict[str, dict[str, Any]]:
    """Mean predicted and mean measured gain of pairs that are predicted 20 % apart, by kind."""
    far_pairs = [
        (kinds, predicted, was)
        for kinds, predicted, was in pairs
        if predicted > np.log(1.0 + LARGE)
    ]
    by_kind = {}
    for kind in sorted({kind for kinds, _, _ in far_pairs for kind in kinds}):
        gains = [(predicted, was) for kinds, predicted, was in far_pairs if kind in kinds]
        predicted, was = (float(np.expm1(np.mean(column))) for column in zip(*gains, strict=True))
        by_kind[kind] = {"said": predicted, "was": was, "pairs": len(gains)}
    return by_kind


def _step(case: Case) -> float:
    steps = (figure.value for figure in case.measured if figure.quantity == "step_time_s")
    return next(steps, float("nan"))


def _coordinates(case: Case) -> Coordinates:
    return coordinates(case.workload, case.cluster, case.strategy)


def _figures_of(hidden: Advice, as_today: Advice, case: Case) -> dict[str, Any]:
    """Figures of one job: the advice without its layout, and the advice with it as today's."""
    figures: dict[str, Any] = {"status": hidden.status.value, "doubts": hidden.doubts}
    today = as_today.current
    if (
        as_today.strategy is None
        or as_today.odds is None
        or today is None
        or today.predicted is None
    ):
        return figures
    figures |= {
        "published": format_strategy(case.strategy),
        "given_status": as_today.status.value,
        "given_gain": float(today.gain),
        "beats": as_today.odds.beats,
    }
    if hidden.strategy is None or hidden.odds is None or hidden.predicted is None:
        return figures
    workload, cluster = case.workload, case.cluster
    kinds = kinds_of(_coordinates(case), coordinates(workload, cluster, hidden.strategy))
    return {
        **figures,
        "strategy": format_strategy(hidden.strategy),
        "gain": _time(today.predicted) / _time(hidden.predicted) - 1.0,
        "kinds": sorted(kinds),
        "out_of_memory": 1.0 - float(hidden.odds.fits),
        "unmeasured": any("no measured run has" in text for text in hidden.doubts),
        "half": any(
            alternative.odds.fits >= SURE
            and (alternative.odds.beats or 0.0) >= SURE
            and alternative.predicted.mfu.target > 2.0 * hidden.predicted.mfu.target
            for alternative in hidden.alternatives
        ),
    }


def _time(figures: Any) -> float:
    return float(figures.step_seconds.target / max(figures.ettr.target, 1e-12))


def _trainer(case: Case) -> str:
    try:
        return framework(case.key.stack).name
    except InputError:
        return "any"


def summed(jobs: Sequence[Mapping[str, Any]], pairs: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of all jobs; `pairs` are what `overstated` says of each kind."""
    gains = np.array([job["gain"] for job in jobs if "gain" in job])
    given_gains = np.array([job["given_gain"] for job in jobs if "given_gain" in job])
    risks = np.array([job["out_of_memory"] for job in jobs if "out_of_memory" in job])
    wrong = {
        kind
        for kind, row in pairs.items()
        if row["pairs"] >= SOME and row["was"] < 0.5 * row["said"]
    }
    doubted = [job for job in jobs if job.get("gain", 0.0) > LARGE and wrong & {*job["kinds"]}]
    slower = np.log1p(given_gains)
    return {
        "jobs": len(jobs),
        "answered": len(risks),
        "recommended": sum(job["status"] == "Recommended" for job in jobs),
        "unmeasured": sum(job.get("unmeasured", False) for job in jobs),
        "half": sum(job.get("half", False) for job in jobs),
        "given_slower_2": int(np.sum(slower < -np.log(1.02))),
        "given_recommended": sum(job.get("given_status") == "Recommended" for job in jobs),
        "given_unlikely": sum(
            job.get("given_status") == "Recommended" and (job["beats"] or 1.0) < 0.5 for job in jobs
        ),
        "slower_10": float(np.mean(np.log1p(gains) < -np.log(1.1))),
        "median_gain": float(np.median(gains)),
        "above_20": float(np.mean(gains > LARGE)),
        "overstated": len(doubted) / max(1, len(gains)),
        "mean_out_of_memory": float(np.mean(risks)),
        "risky": float(np.mean(risks > RISKY)),
    }
