"""A profile's snapshot as a decision: its nodes at once, its history seldom, and what both say of its assumptions.

The status is the durable memory of history, and the only source of it for jobs; the days behind it are the FailureLedger's. They
are written anew when they are written for the first time, when a verdict changes, or when a figure moved by `material` or more
and `quiet` seconds have passed; that time stands beside them. What follows from them (rates, verdicts, columns) always follows from
what is remembered, so that a changed assumption shows at once and a reading that waits for its time shows nowhere but in the metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mofa_model.errors import InputError
from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.parsing import parse
from mofa_model.reliability.observed import TOTAL
from mofa_model.spec.evidence import DatedEvidence
from mofa_model.units import Range
from mofa_operator.decide import past
from mofa_operator.decide.conditions import Found, conditions, of_generation, standing
from mofa_operator.decide.history import read
from mofa_operator.decide.ledger import DAY
from mofa_operator.decide.pool_evidence import PoolEvidence, remembered
from mofa_operator.decide.pool_nodes import exclusive, ready
from mofa_operator.decide.pool_size import PoolSize, pool_size
from mofa_operator.decide.rates import (
    NOBODY,
    Reports,
    assessed,
    contradiction,
    recoveries,
    rows,
    total,
    verdict,
)
from mofa_operator.decide.reading import left, moment, moved, same, sentence
from mofa_operator.decide.teaching import TaughtCalibration, calibration
from mofa_operator.decision import Decision, Note, ProfileFigures
from mofa_operator.incidents.incident import UNMATCHED
from mofa_operator.objects import Written, taught_factors
from mofa_operator.settings import LoopSettings
from mofa_operator.shapes import seconds
from mofa_operator.snapshot import History, ProfileSnapshot
from mofa_operator.words import Aspect, Happened, Reason

_LEARNED: Final = ("calibration", "residual")
"""What running jobs teach."""
_SOON: Final = 1.0
"""When what was moved to the ledger is taken out of the status. [s]"""


def profile(snapshot: ProfileSnapshot, settings: LoopSettings) -> Decision:
    """What to do about a ClusterProfile."""
    pool = snapshot.profile
    if pool.is_going:
        return Decision(key=pool.key, uid=pool.uid)
    size = pool_size(snapshot, settings)
    try:
        spec = parse(ClusterProfileSpec, pool.body.get("spec"), "spec")
    except InputError as error:
        return _decided(snapshot, _unread(snapshot, size, str(error)), again=size.again)
    before = remembered(pool)
    reading = read(snapshot, before, float(spec.prometheus.window_seconds))
    weeks = past.weeks_with(pool.weeks, pool.days, reading.days)
    newest = (*weeks, *past.of_days(reading.days))
    wait = _wait(spec, before, reading.memory, newest, snapshot, settings)
    counted, is_due = past.ledger_status(pool, reading.days, weeks, snapshot.now)
    pause = _quiet(snapshot, settings) if is_due and wait is None and pool.status.rows else None
    is_written = wait == 0 or pause == 0
    kept = reading.memory if wait == 0 else before
    known = newest if is_written else past.of_profile(pool)
    found = assessed(spec, kept, known, NOBODY if wait == 0 else pool.status.present)
    complete = reading.found
    stands = standing(pool, Aspect.HISTORY_COMPLETE)
    if stands is not None and wait != 0 and _is_no_news(stands, complete):
        complete = stands
    holds = verdict(kept, found)
    status = _common(
        snapshot,
        size,
        [ready(spec, snapshot.nodes, size, settings), complete, holds, exclusive(snapshot)],
    ) | {
        "failures": rows(kept, found),
        "total": total(kept, found),
        **pool.unmoved,
    }
    learned = calibration(pool, snapshot.taught, snapshot.now, settings, snapshot.influence)
    told = {"calibration": _asked(learned.written, snapshot), "residual": learned.residual}
    status = {
        name: value for name, value in (status | told).items() if value or name not in _LEARNED
    }
    if kept is not None:
        status["historyTime"] = moment(snapshot.now) if is_written else _history_time(snapshot)
    live = assessed(spec, reading.memory or kept, newest)
    soon = _SOON if is_written and pool.unmoved else None
    return _decided(
        snapshot,
        status,
        ledger=counted if is_written else None,
        told=contradiction(pool, kept, found) or _episode(complete, stands, usable=reading.usable),
        figures=_figures(snapshot, spec, reading.memory or kept, live, learned),
        again=min(
            (one for one in (wait, pause, soon, learned.again, size.again) if one), default=None
        ),
    )


def _asked(written: Written, snapshot: ProfileSnapshot) -> Written:
    """What was learned, with the factors that every job was asked with, as long as they are the ones that stand."""
    pool, factors = snapshot.profile, taught_factors(written)
    kept = {name: one for name, one in written.items() if name != "asked"}
    stood = factors == pool.factors and (snapshot.all_asked or pool.is_asked)
    return (
        kept | {"asked": " ".join(factors.values())}
        if factors and (stood or not snapshot.jobs)
        else kept
    )


def _is_no_news(stands: Found, complete: Found) -> bool:
    """Whether what is said of the history is the same with other figures; that an id was overruled which is none is news."""

    def told(one: Found) -> object:
        unmatched = [text for text in one.message.split("; ") if text.startswith(UNMATCHED)]
        return one.state, one.reason, unmatched

    return told(stands) == told(complete)


def _wait(
    spec: ClusterProfileSpec,
    before: PoolEvidence | None,
    fresh: PoolEvidence | None,
    newest: Sequence[DatedEvidence],
    snapshot: ProfileSnapshot,
    settings: LoopSettings,
) -> float | None:
    """How long a new reading has to wait until it is remembered; None where it says nothing new. [s]"""
    if fresh is None:
        return None
    if before is None:
        return 0.0
    pool = snapshot.profile
    told = (
        assessed(spec, before, past.of_profile(pool), pool.status.present),
        assessed(spec, fresh, newest),
    )
    if [(one.name, one.verdict) for one in told[0]] != [(one.name, one.verdict) for one in told[1]]:
        return 0.0
    has_moved = any(
        moved(old.mean, new.mean, 2 * settings.material)
        for old, new in zip(*told, strict=True)
        if old.name != TOTAL
    )
    if not (has_moved or before.differs(fresh, settings.material)):
        return None
    return _quiet(snapshot, settings)


def _quiet(snapshot: ProfileSnapshot, settings: LoopSettings) -> float:
    """How long until the history may be written again. [s]"""
    return left(seconds(snapshot.profile.status.history_time), settings.quiet, snapshot.now)


def _history_time(snapshot: ProfileSnapshot) -> str:
    """When what is remembered was written."""
    stands = snapshot.profile.status.history_time
    return moment(snapshot.now) if seconds(stands) is None else stands


def _common(snapshot: ProfileSnapshot, size: PoolSize, found: list[Found]) -> Written:
    """What every status of a profile has."""
    count, stands = snapshot.nodes, snapshot.profile
    nodes = {
        "total": count.total,
        "ready": count.ready,
        "cordoned": count.cordoned,
        "steady": size.nodes,
    }
    status: Written = {
        "nodes": nodes if size.since is None else nodes | {"since": moment(size.since)},
        "conditions": conditions(stands, found, snapshot.now),
    }
    return of_generation(stands, status) | stands.kept(*_LEARNED)


def _unread(snapshot: ProfileSnapshot, size: PoolSize, message: str) -> Written:
    """The status where the spec cannot be read: what was learned stays."""
    learned = [
        standing(snapshot.profile, aspect)
        or Found(aspect, "Unknown", Reason.INVALID_INPUT, "the spec cannot be read")
        for aspect in (Aspect.HISTORY_COMPLETE, Aspect.ASSUMPTIONS_HOLD)
    ]
    found = [
        Found(Aspect.READY, "False", Reason.INVALID_INPUT, message),
        *learned,
        exclusive(snapshot),
    ]
    return _common(snapshot, size, found) | snapshot.profile.kept(
        "failures", "total", "days", "weeks", "historyTime"
    )


def _decided(
    snapshot: ProfileSnapshot,
    status: Written,
    *,
    ledger: Written | None = None,
    told: tuple[str, Note] | None = None,
    figures: ProfileFigures | None = None,
    again: float | None = None,
) -> Decision:
    """The decision; what stands already is not written, and nothing is told of it."""
    silent = same(snapshot.profile.standing, status)
    episode, notes = ("", ()) if told is None or silent else (told[0], (told[1],))
    return Decision(
        key=snapshot.profile.key,
        uid=snapshot.profile.uid,
        status=None if silent else status,
        ledger=ledger,
        notes=notes,
        figures=figures,
        outcome=status["conditions"][0]["reason"],
        digest=episode,
        again=again,
    )


def _episode(complete: Found, stands: Found | None, *, usable: bool) -> tuple[str, Note] | None:
    """The Event at the beginning of an episode without history, or without all of it."""
    if complete.state != "False" or (
        stands is not None and stands.reason == complete.reason and stands.state == "False"
    ):
        return None
    if usable or complete.reason == Reason.HISTORY_INCOMPLETE:
        note = Note(reason=Happened.HISTORY_INCOMPLETE, message=sentence(complete.message))
    elif complete.reason == Reason.NOT_CONFIGURED:
        return None
    else:
        note = Note(
            reason=Happened.HISTORY_UNAVAILABLE, message=sentence(complete.message), warning=True
        )
    return str(complete.reason), note


def _figures(
    snapshot: ProfileSnapshot,
    spec: ClusterProfileSpec,
    memory: PoolEvidence | None,
    found: Reports,
    taught: TaughtCalibration,
) -> ProfileFigures:
    """What is exported: of the newest reading, whether or not it is written yet."""
    history = snapshot.history if isinstance(snapshot.history, History) else None
    return ProfileFigures(
        key=snapshot.profile.key,
        total=snapshot.nodes.total,
        ready=snapshot.nodes.ready,
        members=snapshot.nodes.names,
        rates={
            rate.name: Range(lower=rate.lower, target=rate.mean, upper=rate.upper)
            for rate in found
            if rate.lower is not None and rate.mean is not None and rate.upper is not None
        },
        assumed={rate.name: rate.assumed for rate in found},
        recovery=recoveries(spec, memory),
        exposure=None if memory is None else memory.node_days,
        coverage=None if memory is None else memory.coverage / 100,
        prior_weight={rate.name: rate.prior_weight for rate in found},
        verdicts={rate.name: rate.verdict.value for rate in found},
        contradiction={rate.name: rate.evidence for rate in found},
        calibration=taught.ratio,
        memory=taught.memory,
        lost={} if history is None else {cause: one / DAY for cause, one in history.lost.items()},
        phases={} if history is None else history.phases,
    )
