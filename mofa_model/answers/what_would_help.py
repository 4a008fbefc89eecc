"""What would help a pool: the file of its past that `mofa incidents` writes, and tables of the
remedies that a replay of this past found.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mofa_model.advice.answer import Status
from mofa_model.errors import BadFile, BadValue
from mofa_model.files import read_text
from mofa_model.spec import incident_causes as causes
from mofa_model.spec.account import NodeState, NodeTime
from mofa_model.spec.standstills import NodeOutage, PoolPast, Standstill
from mofa_model.tables import Column, Table
from mofa_model.units import DAY

if TYPE_CHECKING:
    from mofa_model.answers.questions import RatesQuestion
    from mofa_model.reliability.remedies import Remedy, WhatWouldHelp

_COLLECTIVE: Final = 600.0
"""Usual timeout of a collective, assumed where no sample shows when training stopped. [s]"""
_NO_STANDSTILL: Final = frozenset(cause.word for cause in (causes.SIDECAR, causes.COMPLETED))
_RIGHT: Final = "write it by mofa incidents --prometheus URL --account -o json"


def replayed(question: RatesQuestion) -> WhatWouldHelp:
    """The changes that would have helped the pool whose past the question names."""
    from mofa_model.answers.job import time_of
    from mofa_model.reliability.remedies import RemedySettings, what_would_help
    from mofa_model.spec.recovery_plans import plans_of

    path = str(question.what_would_help)
    others = (question.prometheus, question.events, question.count, question.failures)
    if any(other is not None for other in others):
        right = "give it alone: the file has failures and exposure"
        raise BadValue("--what-would-help", path, right)
    save = None if question.save is None else time_of(question.save, "--save", least=0.0)
    settings = RemedySettings(
        gpus_per_node=question.gpus_per_node, replicas=question.replicas, save=save
    )
    if question.recovery:
        settings = replace(settings, plans=plans_of(tuple(question.recovery)))
    return what_would_help(read_past(path), settings)


def read_past(path: str) -> PoolPast:
    """The past in a file that `mofa incidents --account -o json` wrote; - is standard input."""
    try:
        document = json.loads(read_text(path))
    except ValueError as error:
        raise BadFile(path, f"is no JSON ({error}); {_RIGHT}") from None
    return past_of(document, path)


def past_of(document: object, path: str) -> PoolPast:
    """The past in a document of `mofa incidents`; raises BadFile for a document of another form."""
    try:
        return _past(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__} {error}"
        raise BadFile(path, f"is no account of a pool ({reason}); {_RIGHT}") from None


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
    for incident in document["incidents"]:
        if incident["kind"] == "job":
            by_job[str(incident["job"])].append(incident)
        elif incident["kind"] == "node":
            outages.append(_outage(str(incident["node"]), incident))
        else:
            outages += [_outage(str(node), incident) for node in incident["nodes"]]
    begin, end = _number(document["start"]), _number(document["end"])
    if not end > begin:
        raise ValueError("end is not after start")
    guessed = sum(row.estimated for row in rows)
    return PoolPast(
        begin=begin,
        end=end,
        account=rows,
        standstills=tuple(_standstills(by_job, rows, begin)),
        outages=tuple(sorted(outages, key=lambda outage: (outage.at, outage.node))),
        watched={
            str(name): _number(days) for name, days in document["exposure"]["by_node"].items()
        },
        lost_work_is_guessed=guessed > 0,
    )


def _outage(node: str, incident: Mapping[str, Any]) -> NodeOutage:
    start, end = _number(incident["start"]), _number(incident["end"])
    seconds = max(0.0, end - start)
    in_use = min(max(0.0, _number(incident.get("in_use_seconds", seconds))), seconds)
    return NodeOutage(
        node=node, at=start, seconds=seconds, cause=str(incident["cause"]), in_use=in_use
    )


def _standstills(
    by_job: Mapping[str, Sequence[Mapping[str, Any]]], rows: Sequence[NodeTime], begin: float
) -> list[Standstill]:
    """Standstills in order.

    The account may have more lost work of a job and cause than its incidents show: the rest is
    spread over the standstills without a measured loss.
    """
    lost: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        if row.state is NodeState.REDONE:
            lost[row.job, row.cause] += row.node_days * DAY
    standstills = []
    for job, incidents in by_job.items():
        stopping = [incident for incident in incidents if incident["cause"] not in _NO_STANDSTILL]
        by_cause: defaultdict[str, list[tuple[Standstill, bool]]] = defaultdict(list)
        resumed = begin
        for incident in sorted(stopping, key=lambda incident: float(incident["start"])):
            trained = max(0.0, _number(incident["start"]) - resumed)
            standstill, is_measured = _standstill(job, incident, trained)
            by_cause[standstill.cause].append((standstill, is_measured))
            resumed = max(resumed, _number(incident["end"]))
        by_cause.pop(causes.RESUBMISSION.word, None)
        for cause, pairs in by_cause.items():
            measured = sum(s.holds * s.lost_work for s, is_measured in pairs if is_measured)
            unmeasured = [standstill for standstill, is_measured in pairs if not is_measured]
            largest = _cap(unmeasured, lost[job, cause] - measured)
            standstills += [
                s if is_measured else replace(s, lost_work=min(largest, s.trained))
                for s, is_measured in pairs
            ]
    return sorted(standstills, key=lambda standstill: (standstill.at, standstill.job))


def _cap(standstills: Sequence[Standstill], lost: float) -> float:
    """Largest lost work of a standstill, if all together lost so much node-time and none lost more
    than it had trained. [s]
    """
    rest, nodes, largest = lost, sum(standstill.holds for standstill in standstills), math.inf
    for standstill in sorted(standstills, key=lambda standstill: standstill.trained):
        largest = max(0.0, rest / nodes)
        if largest <= standstill.trained:
            break
        rest, nodes = rest - standstill.holds * standstill.trained, nodes - standstill.holds
    return largest


def _standstill(job: str, incident: Mapping[str, Any], trained: float) -> tuple[Standstill, bool]:
    """A standstill, and whether the incident has the work that it lost."""
    parts = {name: _number(seconds) for name, seconds in incident["phases"].items()}
    start, end, cause = _number(incident["start"]), _number(incident["end"]), str(incident["cause"])
    other_phases = sum(parts.get(name, 0.0) for name in ("drain", "queue", "start"))
    unexplained = max(0.0, end - start - other_phases)  # unnoticed and loading
    if "load" in parts:
        unnoticed = parts.get("detect", unexplained - parts["load"])
    elif "detect" in parts:
        unnoticed = parts["detect"]
    else:
        unnoticed = _COLLECTIVE if cause == causes.NCCL_TIMEOUT.word else 0.0
    unnoticed = min(max(0.0, unnoticed), unexplained)
    standstill = Standstill(
        job=job,
        at=start,
        cause=cause,
        holds=max(1, int(incident["stood"])),
        faulty=tuple(str(node) for node in incident["nodes"]),
        machines=min(max(_number(incident["infrastructure_share"]), 0.0), 1.0),
        in_place="queue" not in parts,
        trained=trained,
        unnoticed=unnoticed,
        ending=parts.get("drain", 0.0),
        queued=parts.get("queue", 0.0),
        starting=parts.get("start", 0.0),
        loading=unexplained - unnoticed,
        lost_work=parts.get("redo", 0.0),
    )
    return standstill, "redo" in parts


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no finite number")
    return number


MOST_TOLD: Final = 5
"""Changes that a short answer names. [1]"""


def outcome_of(helps: WhatWouldHelp) -> Status:
    """How sure the answer is."""
    if not helps.best(MOST_TOLD):
        return Status.NO_RECOMMENDATION
    return Status.LOW_CONFIDENCE if helps.is_short else Status.RECOMMENDED


def doubt_of(helps: WhatWouldHelp) -> str:
    """Why an answer is not Recommended, as a sentence; empty where it is."""
    evidence = f"{helps.standstills} standstills in {helps.window_days:.3g} days"
    if not helps.best(MOST_TOLD):
        return f"{evidence} show no change with a sure gain."
    return f"The past is short ({evidence}); the next weeks may differ." if helps.is_short else ""


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
        "best": [sentence_of(remedy, helps) for remedy in helps.best(MOST_TOLD)],
        "doubt": doubt_of(helps),
        "days": helps.window_days,
        "paid_gpu_hours": helps.paid,
        "effective_gpu_hours": helps.effective,
        "effective_share": helps.effective_share,
        "lemons": list(helps.lemons),
        "remedies": [
            {
                "name": remedy.name,
                "change": remedy.change,
                "recovery": remedy.plan,
                "gained_gpu_hours": remedy.gain.target,
                "low": remedy.gain.lower,
                "high": remedy.gain.upper,
                "paid_gpu_hours": remedy.paid,
                "standstills": remedy.standstills,
                "told_apart": remedy.excludes_zero,
                "note": remedy.note,
            }
            for remedy in helps.remedies
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
                remedy.name,
                _rounded(remedy.gain.target),
                _rounded(remedy.gain.lower),
                _rounded(remedy.gain.upper),
                remedy.gain.target / helps.paid if helps.paid else 0.0,
                _rounded(remedy.paid),
                remedy.standstills,
                verdict_of(remedy),
            )
            for remedy in helps.remedies
        ),
        notes=(
            effective_line(helps.paid, helps.effective, helps.window_days),
            *filter(None, [doubt_of(helps)]),
            "Each change alone: two that shorten the same standstills gain less than their sum.",
            *dict.fromkeys(
                remedy.note for remedy in helps.remedies if remedy.note and remedy.standstills
            ),
            *helps.notes,
        ),
    )


def effective_line(paid: float, effective: float, window_days: float) -> str:
    """One number of a fleet, as a sentence; GPU-hours paid, and those that were effective. [h]

    >>> effective_line(1000.0, 870.0, 30.0)
    'Of 1,000 GPU-hours paid in 30 days 870 trained and were kept: 87.0%.'
    """
    share = effective / paid if paid else 0.0
    return (
        f"Of {paid:,.0f} GPU-hours paid in {window_days:.3g} days {effective:,.0f} trained and were"
        f" kept: {share:.1%}."
    )


def verdict_of(remedy: Remedy) -> str:
    """Whether a change surely helps, may help, or does not, by its band."""
    if not remedy.excludes_zero:
        return "no sure gain"
    if remedy.gain.upper < 0:
        return "loses less than it saves" if remedy.paid < remedy.gain.lower else "loses"
    return "gains less than it costs" if remedy.paid > remedy.gain.upper else "gains"


def _rounded(hours: float) -> float:
    """Three digits are more than the bands allow. [h]"""
    return float(f"{hours:.3g}")
