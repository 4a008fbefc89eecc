"""The next record of a running job: what one more observation of it means.

One interruption shows at several levels: a node dies, its pods go, the job starts again. It is
counted once, as the class that recovered it. Progress shows what belongs together: an interruption
lasts until steps advance again, and everything in between is part of it. Where no steps are seen,
readiness takes their place, and where that is not seen either, everything within `WINDOW` of the
first sign is one interruption: so counts are lower bounds, never too high.

    sign      something happened at a known moment: a pod failed, was preempted, a condition turned
    counter   an object's own count went up since the last look; the count itself is exact

A sign that is seen again falls into the interruption that it made; a counter is remembered by its
highest value. So a look may come twice, late or out of order, as long as the looks at one
interruption come before those at the next. `mofa_model.kinds` makes signs and counters from
objects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mofa_model.kinds.kind import Counter, Observation, Sign
from mofa_model.spec.recovery_classes import RecoveryClass, costlier
from mofa_operator.observe.jobs.run_record import (
    CAUSES,
    RunInterruption,
    RunRecord,
)

WINDOW: Final = 600.0
"""Time within which signs are one interruption without progress: a collective's timeout. [s]"""
WARNING: Final = 900.0
"""How long before an interruption its node may be lost: pods leave after five minutes. [s]"""
SECOND: Final = 1.0
"""Resolution of the cluster's clock: an event may be so much later than its date. [s]"""
SLACK: Final = 2.0 * SECOND
"""The same for the time between two events. [s]"""
KEPT: Final = 12
"""Interruptions that are kept one by one; older ones are kept as sums."""


def after_look(record: RunRecord | None, observation: Observation, now: float) -> RunRecord:
    """A job's record after a look at `now`, in seconds of the epoch; `record` is None at first.

    >>> from mofa_operator.observe.jobs.run_record import interruptions
    >>> def look(restarts):
    ...     counter = Counter(value=restarts, recovery_class=RecoveryClass.JOB)
    ...     return Observation(counters={"JobSet.restarts": counter})
    >>> record = after_look(after_look(None, look(0), 0.0), look(1), 60.0)
    >>> interruptions(after_look(record, look(1), 120.0))
    {(<RecoveryClass.JOB: 'job'>, 'failure'): 1}
    """
    record = RunRecord(since=now) if record is None else record
    record = replace(record, nodes_lost=_lately((*record.nodes_lost, *observation.nodes_lost), now))
    for sign in observation.signs:
        record = _with_sign(record, sign)
    if observation.suspended is not None and record.has_run:
        suspension = Sign(
            at=observation.suspended, recovery_class=RecoveryClass.JOB, cause="eviction"
        )
        record = _with_sign(record, suspension)
    for name, counter in sorted(observation.counters.items()):
        record = _with_counter(record, name, counter, now)
    record = _progressed(record, observation, now)
    if observation.ready is not None:
        record = _made_ready(record, now, ready=observation.ready, drop=observation.drop)
    if observation.ended is not None and record.ended is None:
        record = replace(record, ended=observation.ended)
    return _folded(record)


def _with_sign(record: RunRecord, sign: Sign) -> RunRecord:
    """The record after a sign of an interruption; signs outside of its time are dropped."""
    before = sign.at < record.since or (record.horizon is not None and sign.at <= record.horizon)
    after = record.ended is not None and sign.at > record.ended
    if before or after:
        return record
    return _with(record, _at(sign.at, sign.recovery_class, sign.cause))


def _at(moment: float, level: RecoveryClass, cause: str = "") -> RunInterruption:
    """Evidence of an interruption at a known moment."""
    return RunInterruption(low=moment, high=moment, level=level, cause=cause)


def _with_counter(record: RunRecord, name: str, counter: Counter, now: float) -> RunRecord:
    """The record after a look at a restart counter; its increase is interruptions."""
    if name not in record.marks:  # first look: what it counted before belongs to `earlier`
        count_before = max(counter.value, record.earlier.get(counter.recovery_class, 0))
        earlier = {
            **record.earlier,
            **({counter.recovery_class: count_before} if count_before else {}),
        }
        return replace(record, earlier=earlier, marks={**record.marks, name: (counter.value, now)})
    mark, last_look = record.marks[name]
    gained = counter.value - mark
    if gained < 0:  # an older look that came late
        return record
    evidence = RunInterruption(
        low=min(last_look, now),
        high=now,
        level=counter.recovery_class,
        claims=(name,) if counter.exact else (),
    )
    for _ in range(min(gained, KEPT if counter.exact else 1)):
        record = _with(record, evidence)
    if counter.exact and gained > KEPT:
        older = record.older.added(counter.recovery_class, "failure", count=gained - KEPT)
        record = replace(record, older=older)
    return replace(record, marks={**record.marks, name: (counter.value, max(last_look, now))})


def _with(record: RunRecord, evidence: RunInterruption) -> RunRecord:
    """The record with evidence of an interruption: part of one that is known, or a new one."""
    matching = [
        incident
        for incident in record.incidents
        if not set(evidence.claims) & set(incident.claims) and _same(record, incident, evidence)
    ]
    known = None
    if matching:  # the one whose moment is known best and is not later; of several, the last
        known = min(
            reversed(matching),
            key=lambda incident: (incident.high - incident.low, incident.low > evidence.high),
        )
    updated = _fresh(record, evidence) if known is None else _merged(record, known, evidence)
    others = (incident for incident in record.incidents if incident is not known)
    return replace(
        record, incidents=tuple(sorted((*others, updated), key=lambda incident: incident.low))
    )


def _same(record: RunRecord, one: RunInterruption, evidence: RunInterruption) -> bool:
    """Whether evidence can be of this interruption: no progress lies between."""
    end = float("inf")
    if one.low < one.high:
        begin = one.low
    elif one.alive is None:
        begin, end = one.low - WINDOW, one.low + WINDOW
    else:
        begin = one.alive - SLACK
    if one.recovered is not None:
        end = one.recovered
    elif record.unready:
        end = float("inf")
    at_its_end = evidence.low == evidence.high == end
    return evidence.high >= begin and (evidence.low < end or at_its_end)


def _merged(record: RunRecord, one: RunInterruption, evidence: RunInterruption) -> RunInterruption:
    """The interruption with more evidence; a known moment replaces an interval."""
    low, high = evidence.low, evidence.high
    level = costlier(evidence.level, one.level)
    cause = max(evidence.cause, one.cause, key=CAUSES.index)
    claims = (*one.claims, *evidence.claims)
    if low == high and one.low < one.high:
        if one.recovered is None:
            known = replace(evidence, level=level, cause=cause, claims=())
            return replace(_fresh(record, known), claims=claims)
        if one.alive is not None and one.alive > high:
            # there was progress between; when training went on was not seen
            over = min(one.recovered, one.alive)
            one = replace(one, alive=None, recovered=over, recovery=None, lost=0.0)
    if (low == high) == (one.low == one.high):
        low, high = min(low, one.low), min(high, one.high)
    elif one.low == one.high:
        low, high = one.low, one.high
    return replace(one, low=low, high=high, level=level, cause=cause, claims=claims)


def _fresh(record: RunRecord, evidence: RunInterruption) -> RunInterruption:
    """A new interruption; a node that was lost shortly before is its cause."""
    fresh, high = replace(evidence, alive=record.step_at), evidence.high
    if (lost := _node_lost(record, high)) is not None:
        fresh = replace(
            fresh,
            level=costlier(evidence.level, RecoveryClass.POD),
            cause=max(evidence.cause, "failure", key=CAUSES.index),
        )
        if record.step_at is None:  # nothing else shows when training stopped
            high = lost
            fresh = replace(fresh, low=lost, high=lost)
    if record.step_at is None or high >= record.step_at - SLACK:
        return fresh
    if record.before_at is None or record.before_at > high:
        # it was over long ago; how long it took was not seen
        progress = record.step_at if record.before_at is None else record.before_at
        return replace(fresh, alive=None, recovered=min(high + WINDOW, progress))
    took = record.step_at - high
    return replace(
        fresh, alive=record.before_at, recovered=record.step_at, recovery=took, lost=took
    )


def _node_lost(record: RunRecord, high: float) -> float | None:
    """When a node was lost that can be the cause by `high`: no progress or interruption between."""
    since = [one.recovered for one in record.incidents if one.recovered is not None]
    if record.step_at is None:
        since.append(high - WARNING)
    else:
        since.append(record.step_at - SLACK - (record.step_seconds or 0.0))
    return next((at for at in record.nodes_lost if max(since) < at <= high + SLACK), None)


def _progressed(record: RunRecord, observation: Observation, now: float) -> RunRecord:
    """The record with a step that was finished, or finished again."""
    step = observation.step
    if step is None:
        return record
    at = observation.step_at if observation.step_at is not None else now
    if record.step is None or record.step_at is None or record.top is None:
        if observation.step_at is not None:
            record = _recovered(record, at, 0.0, 0, 0.0)
        each = observation.step_seconds or record.step_seconds
        return replace(record, step=step, step_at=at, top=step, step_seconds=each, has_run=True)
    if at <= record.step_at or (step == record.step and observation.step_at is None):
        return record
    each = observation.step_seconds or _step_seconds(record, step, at)
    back = max(0, record.top - step) if step < record.step else 0
    gained = max(0, step - record.top)
    top, before = max(record.top, step), record.step_at
    fell = step < record.step  # training goes on, from an earlier step
    if fell:
        evidence = RunInterruption(low=record.step_at, high=at, level=RecoveryClass.PROCESS)
        record = _with(record, evidence)
    else:
        record = _still_alive(record, at)
    record = _recovered(record, at, gained * each, back, each, fell=fell)
    effective = record.effective + gained * each
    return replace(
        record,
        step=step,
        step_at=at,
        before_at=before,
        top=top,
        step_seconds=each or None,
        effective=effective,
    )


def _step_seconds(record: RunRecord, step: int, at: float) -> float:
    """Step time where none is published: the shortest between two looks. [s]"""
    known = record.step_seconds or 0.0
    if record.step is None or record.step_at is None or step <= record.step:
        return known
    shown = (at - record.step_at) / (step - record.step)
    return min(known, shown) if known else shown


def _made_ready(
    record: RunRecord, now: float, *, ready: bool, drop: RecoveryClass | None
) -> RunRecord:
    """The record with readiness: its loss may interrupt; its return ends that without steps."""
    if drop and not ready and record.has_run and not record.unready and record.ended is None:
        record = _with(record, _at(now, drop))
    if ready and record.unready and record.step_at is None:
        record = _recovered(record, now, 0.0, 0, 0.0)
    return replace(record, unready=not ready, has_run=record.has_run or ready)


def _still_alive(record: RunRecord, at: float) -> RunRecord:
    """The record with a step seen late that ended just before an interruption: it ends none."""
    incidents = tuple(
        replace(one, alive=at)
        if one.recovered is None and one.low == one.high > at - SECOND and at > (one.alive or at)
        else one
        for one in record.incidents
    )
    return replace(record, incidents=incidents)


def _recovered(
    record: RunRecord, at: float, gained: float, back: int, each: float, *, fell: bool = False
) -> RunRecord:
    """The record after training went on: open interruptions are over; time and steps are the last.

    A step that `fell` back was finished after the interruption, however coarsely both are dated.
    Another step that is dated within the second of a known moment may have been finished before it.
    """
    incidents = list(record.incidents)
    open_ones = [
        i
        for i, one in enumerate(incidents)
        if one.recovered is None
        and one.high <= at + (SLACK if fell or one.low < one.high else -SECOND)
    ]
    for index in open_ones:
        one = replace(incidents[index], recovered=at)
        if index == open_ones[-1]:
            took = max(0.0, at - one.began - gained)
            one = replace(one, recovery=took, redone=back, lost=took + back * each)
        incidents[index] = one
    return replace(record, incidents=tuple(incidents)) if open_ones else record


def _lately(moments: tuple[float, ...], now: float) -> tuple[float, ...]:
    return tuple(sorted({at for at in moments if at > now - WARNING}))[:4]


def _folded(record: RunRecord) -> RunRecord:
    """The record with no more interruptions than are kept."""
    while len(record.incidents) > KEPT:
        first, *others = record.incidents
        ended = first.recovered if first.recovered is not None else first.high
        horizon = ended if record.horizon is None else max(ended, record.horizon)
        record = replace(
            record,
            incidents=tuple(others),
            older=record.older.with_interruption(first),
            horizon=horizon,
        )
    return record
