"""The default answer for published jobs with their layouts hidden, without what runs of their group say.

*gain* is what the model says that the answer gains over the fastest layout that was published for the same question; layouts of one
question differ among themselves, and `apart` says by how much. Where an answer is likely to be out of memory, or has what no run has, it
is asked whether something was there that runs have and that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from mofa_model.advice import Advice, Request, advise, assumed_reliability
from mofa_model.advice.candidates import supported
from mofa_model.bands.table import MeasuredRuns
from mofa_model.calibrate.cases import Case, shipped
from mofa_model.errors import InputError
from mofa_model.search import SearchCase, framework
from mofa_model.strategy_text import format_strategy

RISKY: Final = 0.1
"""Chance of being out of memory that is asked about. [1]"""
SHARES: Final = (1.0, 0.8, 0.6, 0.4)
"""Of a device's memory, in which something surer is looked for: what is fast takes much, so little has to be asked for. [1]"""


def unseen(runs: MeasuredRuns, group: str) -> MeasuredRuns:
    """All runs but those of a group."""
    kept = np.array([name != group for name in runs.groups])
    return replace(
        runs,
        names=tuple(np.array(runs.names)[kept].tolist()),
        groups=tuple(np.array(runs.groups)[kept].tolist()),
        which={name: which[kept] for name, which in runs.which.items()},
        errors={name: errors[kept] for name, errors in runs.errors.items()},
        digest=f"{runs.digest} without {group}",
    )


def picks(
    cases: Sequence[Case],
    runs: MeasuredRuns,
    group_of: Mapping[str, str],
    advance: Callable[[float], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """The default answer for every question that somebody published runs of."""
    asked = questions(cases)
    told = []
    for some in asked:
        advance(1.0 / len(asked))
        case = min(some, key=_step)
        request = request_of(case, unseen(runs, group_of[case.id]))
        told.append({"id": case.id, **_told(request, advise(request), case)})
    return told


def request_of(case: Case, runs: MeasuredRuns) -> Request:
    """What a published job asks, with its layout as today's; `runs` are what the answer may rest on."""
    cluster = replace(case.cluster, calibration=shipped(case.key))
    return Request(
        problems=(SearchCase(workload=case.workload, cluster=cluster),),
        reliability=assumed_reliability(float(cluster.gpus_per_node * cluster.host.link.bandwidth)),
        nodes=int(float(cluster.gpus) / float(cluster.gpus_per_node)),
        framework=_trainer(case),
        current=case.strategy,
        runs=runs,
        top=0,
    )


def apart(cases: Sequence[Case]) -> dict[str, Any]:
    """How far layouts are apart that were published for one question, as they were measured."""
    several = [some for some in questions(cases) if len({case.strategy for case in some}) > 1]
    pairs = [
        abs(np.log(_step(one) / _step(other)))
        for some in several
        for one, other in combinations(some, 2)
        if one.strategy != other.strategy
    ]
    slow = [max(map(_step, some)) / min(map(_step, some)) for some in several]
    return {
        "questions": len(several),
        "pairs": len(pairs),
        "pairs_above_20": float(np.mean(np.array(pairs) > np.log(1.2))) if pairs else None,
        "slowest_above_20": float(np.mean(np.array(slow) > 1.2)) if slow else None,
    }


def questions(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases with a step by what is asked: model, batch, precision, stack, machines."""
    found: dict[object, list[Case]] = {}
    for case in cases:
        training, nodes = (
            case.workload.training,
            float(case.cluster.gpus) / float(case.cluster.gpus_per_node),
        )
        question = (
            case.workload.model, training.sequence, training.global_batch, training.precision.name, case.key.stack, case.gpu, nodes,
        )  # fmt: skip
        if nodes == int(nodes) and np.isfinite(_step(case)):
            found.setdefault(question, []).append(case)
    return list(found.values())


def _step(case: Case) -> float:
    return next((one.value for one in case.measured if one.quantity == "step_time_s"), float("nan"))


def _told(request: Request, answer: Advice, case: Case) -> dict[str, Any]:
    told: dict[str, Any] = {"status": answer.status.value, "doubts": answer.doubts}
    if answer.strategy is None or answer.odds is None or answer.current is None:
        return told
    risk, unmeasured = (
        1.0 - float(answer.odds.fits),
        any("no measured run has" in text for text in answer.doubts),
    )
    return {
        **told,
        "strategy": format_strategy(answer.strategy),
        "published": format_strategy(case.strategy),
        "published_fits": not answer.current.reason,
        "gain": float(answer.current.gain),
        "out_of_memory": risk,
        "unmeasured": unmeasured,
        "avoidable": (risk > RISKY or unmeasured) and _surer(request, answer),
    }


def _surer(request: Request, answer: Advice) -> bool:
    """Whether what runs have could have been chosen, and fits as surely as is asked for."""
    every = (
        one
        for share in SHARES
        for one in supported(request.for_trainer(answer.trainer), answer.nodes, share)
    )
    return any(one.fits >= 1.0 - RISKY and not one.unmeasured for one in every)


def _trainer(case: Case) -> str:
    try:
        return framework(case.key.stack).name
    except InputError:
        return "any"


def summed(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of all jobs."""
    gains = np.array([one["gain"] for one in told if one.get("published_fits")])
    risks = np.array([one["out_of_memory"] for one in told if "out_of_memory" in one])
    return {
        "jobs": len(told),
        "answered": len(risks),
        "unmeasured": sum(one.get("unmeasured", False) for one in told),
        "avoidable": sum(one.get("avoidable", False) for one in told),
        "published_fits": len(gains),
        "median_gain": float(np.median(gains)),
        "above_20": float(np.mean(gains > 0.2)),
        "mean_out_of_memory": float(np.mean(risks)),
        "risky": float(np.mean(risks > RISKY)),
        "most_out_of_memory": float(np.max(risks)),
    }
