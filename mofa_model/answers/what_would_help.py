"""What would help a pool: its past as `mofa incidents` writes it, replayed, and the answer
in tables.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mofa_model.advice.answer import Status
from mofa_model.errors import BadFile
from mofa_model.files import read_text
from mofa_model.spec import incident_causes as causes
from mofa_model.spec.account import NodeState, NodeTime
from mofa_model.spec.standstills import NodeOutage, PoolPast, Standstill
from mofa_model.tables import Column, Table
from mofa_model.units import DAY

if TYPE_CHECKING:
    from mofa_model.reliability.remedies import Remedy, WhatWouldHelp

_COLLECTIVE: Final = 600.0
"""Usual timeout of a collective, taken where no sample shows when training stopped. [s]"""
_NO_STANDSTILL: Final = frozenset(one.word for one in (causes.SIDECAR, causes.COMPLETED))
_RIGHT: Final = "write it by mofa incidents --prometheus URL --account -o json"


def read_past(path: str) -> PoolPast:
    """The past in a file that `mofa incidents --account -o json` wrote; - is standard input."""
    try:
        document = json.loads(read_text(path))
    except ValueError as error:
        raise BadFile(path, f"is no JSON ({error}); {_RIGHT}") from None
    return past_of(document, path)


def past_of(document: object, path: str) -> PoolPast:
    """The past that a document of `mofa incidents` tells."""
    try:
        return _past(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        told = f"{type(error).__name__} {error}"
        raise BadFile(path, f"is no account of a pool ({told}); {_RIGHT}") from None


def _past(document: Any) -> PoolPast:
    """A pool's past from the document that `mofa incidents` writes."""
    rows = tuple(
        NodeTime(
            state=NodeState(row["state"]),
            cause=str(row["cause"]),
            node_days=_number(row["node_days"]),
            date=str(row["date"]),
            job=str(row["job"]),
            machines=_number(row["machines_node_days"]),
            estimated=_number(row["estimated_node_days"]),
        )
        for row in document["account"]["rows"]
    )
    by_job: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    outages = []
    for one in document["incidents"]:
        if one["kind"] == "job":
            by_job[str(one["job"])].append(one)
        elif one["kind"] == "node":
            outages.append(_outage(str(one["node"]), one))
        else:
            outages += [_outage(str(node), one) for node in one["nodes"]]
    begin, end = _number(document["start"]), _number(document["end"])
    if not end > begin:
        raise ValueError("end is not after start")
    guessed = sum(row.estimated for row in rows)
    return PoolPast(
        begin=begin,
        end=end,
        account=rows,
        standstills=tuple(_standstills(by_job, rows, begin)),
        outages=tuple(sorted(outages, key=lambda one: (one.at, one.node))),
        watched={
            str(name): _number(days) for name, days in document["exposure"]["by_node"].items()
        },
        lost_work_is_guessed=guessed > 0,
    )


def _outage(node: str, one: Mapping[str, Any]) -> NodeOutage:
    start, end = _number(one["start"]), _number(one["end"])
    seconds = max(0.0, end - start)
    in_use = min(max(0.0, _number(one.get("in_use_seconds", seconds))), seconds)
    return NodeOutage(node=node, at=start, seconds=seconds, cause=str(one["cause"]), in_use=in_use)


def _standstills(
    by_job: Mapping[str, Sequence[Mapping[str, Any]]], rows: Sequence[NodeTime], begin: float
) -> list[Standstill]:
    """Standstills in order. Work that was lost and that no incident shows is spread over those of
    its job and cause, as the account has it.
    """
    lost: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        if row.state is NodeState.REDONE:
            lost[row.job, row.cause] += row.node_days * DAY
    found = []
    for job, incidents in by_job.items():
        own = sorted(
            (one for one in incidents if one["cause"] not in _NO_STANDSTILL),
            key=lambda one: float(one["start"]),
        )
        made, resumed = [], begin
        for one in own:
            made.append(_standstill(job, one, max(0.0, _number(one["start"]) - resumed)))
            resumed = max(resumed, _number(one["end"]))
        for cause in dict.fromkeys(one.cause for one, _ in made):
            own_cause = [(one, seen) for one, seen in made if one.cause == cause]
            known = sum(one.holds * one.lost_work for one, seen in own_cause if seen)
            unseen = [one for one, seen in own_cause if not seen]
            most = _cap(unseen, lost[job, cause] - known)
            found += [
                one if seen else replace(one, lost_work=min(most, one.trained))
                for one, seen in own_cause
                if cause != causes.RESUBMISSION.word
            ]
    return sorted(found, key=lambda one: (one.at, one.job))


def _cap(standstills: Sequence[Standstill], lost: float) -> float:
    """Lost work of each standstill, at most what it had trained, that makes so much
    node-time. [s]
    """
    left, nodes, most = lost, sum(one.holds for one in standstills), math.inf
    for one in sorted(standstills, key=lambda one: one.trained):
        most = max(0.0, left / nodes)
        if most <= one.trained:
            break
        left, nodes = left - one.holds * one.trained, nodes - one.holds
    return most


def _standstill(job: str, one: Mapping[str, Any], trained: float) -> tuple[Standstill, bool]:
    """A standstill, and whether somebody saw the work that it lost."""
    parts = {name: _number(seconds) for name, seconds in one["phases"].items()}
    start, end, cause = _number(one["start"]), _number(one["end"]), str(one["cause"])
    known = sum(parts.get(name, 0.0) for name in ("drain", "queue", "start"))
    left = max(0.0, end - start - known)  # unnoticed and loading
    if "load" in parts:
        unnoticed = parts.get("detect", left - parts["load"])
    elif "detect" in parts:
        unnoticed = parts["detect"]
    else:
        unnoticed = _COLLECTIVE if cause == causes.NCCL_TIMEOUT.word else 0.0
    unnoticed = min(max(0.0, unnoticed), left)
    found = Standstill(
        job=job,
        at=start,
        cause=cause,
        holds=max(1, int(one["stood"])),
        faulty=tuple(str(node) for node in one["nodes"]),
        machines=min(max(_number(one["infrastructure_share"]), 0.0), 1.0),
        in_place="queue" not in parts,
        trained=trained,
        unnoticed=unnoticed,
        ending=parts.get("drain", 0.0),
        queued=parts.get("queue", 0.0),
        starting=parts.get("start", 0.0),
        loading=left - unnoticed,
        lost_work=parts.get("redo", 0.0),
    )
    return found, "redo" in parts


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no finite number")
    return number


MOST_TOLD: Final = 5
"""Changes that are told where there is room for few. [1]"""


def outcome_of(helps: WhatWouldHelp) -> Status:
    """What the answer is worth."""
    if not helps.best(MOST_TOLD):
        return Status.NO_RECOMMENDATION
    return Status.LOW_CONFIDENCE if helps.is_short else Status.RECOMMENDED


def doubt_of(helps: WhatWouldHelp) -> str:
    """Why an answer is not Recommended, as a sentence; empty where it is."""
    seen = f"{helps.standstills} standstills in {helps.window_days:.3g} days"
    if not helps.best(MOST_TOLD):
        return f"No change is told apart from nothing by {seen}."
    return f"The past is short ({seen}); the next weeks may differ." if helps.is_short else ""


def sentence_of(remedy: Remedy, helps: WhatWouldHelp) -> str:
    """A change and what it gains, as one sentence."""
    gain, paid = remedy.gain, remedy.paid
    of_all = f", {gain.target / helps.paid:.1%} of those paid" if helps.paid else ""
    costs = f"; {_rounded(paid):,g} more are paid" if paid > 0 else ""
    return (
        f"{remedy.name[:1].upper()}{remedy.name[1:]}: {_rounded(gain.target):,g} GPU-hours gained "
        f"({_rounded(gain.lower):,g} to {_rounded(gain.upper):,g}){of_all}{costs}."
    )


def document_of(helps: WhatWouldHelp) -> dict[str, Any]:
    """The answer for programs."""
    return {
        "status": outcome_of(helps).value,
        "best": [sentence_of(one, helps) for one in helps.best(MOST_TOLD)],
        "doubt": doubt_of(helps),
        "days": helps.window_days,
        "paid_gpu_hours": helps.paid,
        "effective_gpu_hours": helps.effective,
        "effective_share": helps.effective_share,
        "lemons": list(helps.lemons),
        "remedies": [
            {
                "name": one.name,
                "change": one.change,
                "recovery": one.plan,
                "gained_gpu_hours": one.gain.target,
                "low": one.gain.lower,
                "high": one.gain.upper,
                "paid_gpu_hours": one.paid,
                "standstills": one.standstills,
                "told_apart": one.excludes_zero,
                "note": one.note,
            }
            for one in helps.remedies
        ],
        "notes": list(helps.notes),
    }


def table_of_remedies(helps: WhatWouldHelp) -> Table:
    """What would have helped, the best first."""
    return Table(
        title="What would have helped",
        columns=(
            Column("change", align="left"),
            Column("GPU-hours gained"),
            Column("at least"),
            Column("at most"),
            Column("of all", unit="%"),
            Column("GPU-hours paid more"),
            Column("standstills", wide=True),
            Column("verdict", align="left"),
        ),
        rows=tuple(
            (
                one.name,
                _rounded(one.gain.target),
                _rounded(one.gain.lower),
                _rounded(one.gain.upper),
                one.gain.target / helps.paid if helps.paid else 0.0,
                _rounded(one.paid),
                one.standstills,
                verdict_of(one),
            )
            for one in helps.remedies
        ),
        notes=(
            effective_line(helps.paid, helps.effective, helps.window_days),
            *filter(None, [doubt_of(helps)]),
            "Each change alone: two that shorten the same standstills gain less than their sum.",
            *dict.fromkeys(one.note for one in helps.remedies if one.note and one.standstills),
            *helps.notes,
        ),
    )


def effective_line(paid: float, effective: float, window_days: float) -> str:
    """One number of a fleet, as a sentence; GPU-hours paid, and those that were effective. [h]

    >>> effective_line(1000.0, 870.0, 30.0)
    'Of 1,000 GPU-hours paid in 30 days 870 trained and were kept: 87.0%.'
    """
    share = effective / paid if paid else 0.0
    return f"Of {paid:,.0f} GPU-hours paid in {window_days:.3g} days {effective:,.0f} trained and were kept: {share:.1%}."


def verdict_of(remedy: Remedy) -> str:
    """Whether a change surely helps, may help, or does not, by its band."""
    if not remedy.excludes_zero:
        return "not told apart from nothing"
    if remedy.gain.upper < 0:
        return "loses less than it saves" if remedy.paid < remedy.gain.lower else "loses"
    return "gains less than it costs" if remedy.paid > remedy.gain.upper else "gains"


def _rounded(hours: float) -> float:
    """Three digits are more than the bands allow. [h]"""
    return float(f"{hours:.3g}")
