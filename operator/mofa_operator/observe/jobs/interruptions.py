"""From record to record: what one more observation of a running job means.

One incident shows at several levels: a node dies, its pods go, the job starts again. It is counted once, as the class that
recovered it. What belongs together is told by progress: an incident lasts until steps advance again, and whatever happens
meanwhile is part of it. Where no steps can be seen, readiness takes their place, and where that cannot be seen either, what
happens within `WINDOW` of the first sign is one incident: so counts are lower bounds, never too high.

    sign      something happened at a known moment: a pod failed, was preempted, a condition turned
    counter   an object's own count went up, at some moment since it was last looked at; the count itself is exact

A sign that is seen again falls into the incident that it made; a counter is remembered by its highest value. So a look may
come twice at any time, and late or in another order as long as the looks at one incident come before those at the next.
`mofa_model.kinds` makes them from objects.
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
"""Time within which signs are one incident where no progress can be seen: the usual timeout of a collective. [s]"""
WARNING: Final = 900.0
"""Time that a lost node may precede what it causes: pods leave it after five minutes. [s]"""
SECOND: Final = 1.0
"""Resolution of the cluster's clock: what happened may be so much later than it is dated. [s]"""
SLACK: Final = 2.0 * SECOND
"""The same of two moments. [s]"""
KEPT: Final = 12
"""Incidents that are kept one by one; older ones are kept as sums."""


def seen(record: RunRecord | None, observation: Observation, now: float) -> RunRecord:
    """After one more look, at `now` in seconds of the epoch; None = the first look.

    >>> from mofa_operator.observe.jobs.run_record import interruptions
    >>> look = lambda restarts: Observation(counters={"JobSet.restarts": Counter(value=restarts, level=RecoveryClass.JOB)})
    >>> record = seen(seen(None, look(0), 0.0), look(1), 60.0)
    >>> interruptions(seen(record, look(1), 120.0))
    {(<RecoveryClass.JOB: 'job'>, 'failure'): 1}
    """
    record = RunRecord(since=now) if record is None else record
    record = replace(record, nodes_lost=_lately((*record.nodes_lost, *observation.nodes_lost), now))
    for sign in observation.signs:
        record = _signed(record, sign)
    if observation.suspended is not None and record.has_run:
        record = _signed(
            record, Sign(at=observation.suspended, level=RecoveryClass.JOB, cause="eviction")
        )
    for name, counter in sorted(observation.counters.items()):
        record = _counted(record, name, counter, now)
    record = _progressed(record, observation, now)
    if observation.ready is not None:
        record = _made_ready(record, now, ready=observation.ready, drop=observation.drop)
    if observation.ended is not None and record.ended is None:
        record = replace(record, ended=observation.ended)
    return _folded(record)


def _signed(record: RunRecord, sign: Sign) -> RunRecord:
    before = sign.at < record.since or (record.horizon is not None and sign.at <= record.horizon)
    after = record.ended is not None and sign.at > record.ended
    return record if before or after else _with(record, sign.level, sign.cause, sign.at, sign.at)


def _counted(record: RunRecord, name: str, counter: Counter, now: float) -> RunRecord:
    if name not in record.marks:  # what it counted before is not of our time
        earlier = {
            **record.earlier,
            counter.level: max(counter.value, record.earlier.get(counter.level, 0)),
        }
        marks = {**record.marks, name: (counter.value, now)}
        return replace(record, earlier={k: n for k, n in earlier.items() if n}, marks=marks)
    mark, looked = record.marks[name]
    new = counter.value - mark
    if new < 0:  # an older look that came late
        return record
    for _ in range(min(new, KEPT if counter.exact else 1)):
        record = _with(
            record, counter.level, "", min(looked, now), now, claim=name if counter.exact else ""
        )
    if counter.exact and new > KEPT:
        record = replace(
            record, older=record.older.added(counter.level, "failure", count=new - KEPT)
        )
    return replace(record, marks={**record.marks, name: (counter.value, max(looked, now))})


def _with(
    record: RunRecord, level: RecoveryClass, cause: str, low: float, high: float, claim: str = ""
) -> RunRecord:
    """With evidence of an incident between two moments: part of one that is known, or a new one."""
    fitting = [
        one
        for one in record.incidents
        if not (claim and claim in one.claims) and _same(record, one, low, high)
    ]
    if fitting:  # the one whose moment is known best and is not later; of several, the last
        found = min(
            reversed(fitting),
            key=lambda incident: (incident.high - incident.low, incident.low > high),
        )
        others = [incident for incident in record.incidents if incident is not found]
        one = _merged(record, found, level, cause, low, high, claim)
    else:
        others = list(record.incidents)
        one = _fresh(record, level, cause, low, high, claim)
    return replace(
        record, incidents=tuple(sorted((*others, one), key=lambda incident: incident.low))
    )


def _same(record: RunRecord, one: RunInterruption, low: float, high: float) -> bool:
    """Whether evidence between two moments can be of this incident: no progress lies between."""
    if one.low < one.high:
        begin, end = one.low, float("inf")
    elif one.alive is None:
        begin, end = one.low - WINDOW, one.low + WINDOW
    else:
        begin, end = one.alive - SLACK, float("inf")
    if one.recovered is not None:
        end = one.recovered
    elif record.unready:
        end = float("inf")
    return high >= begin and (low < end or low == high == end)


def _merged(
    record: RunRecord,
    one: RunInterruption,
    level: RecoveryClass,
    cause: str,
    low: float,
    high: float,
    claim: str,
) -> RunInterruption:
    """The incident with more evidence; a known moment replaces an interval."""
    level, cause = costlier(level, one.level), max(cause, one.cause, key=CAUSES.index)
    claims = (*one.claims, claim) if claim else one.claims
    if low == high and one.low < one.high:
        if one.recovered is None:
            return replace(_fresh(record, level, cause, low, high, ""), claims=claims)
        if (
            one.alive is not None and one.alive > high
        ):  # there was progress between; when it began again was not seen
            over = min(one.recovered, one.alive)
            one = replace(one, alive=None, recovered=over, recovery=None, lost=0.0)
    if (low == high) == (one.low == one.high):
        low, high = min(low, one.low), min(high, one.high)
    elif one.low == one.high:
        low, high = one.low, one.high
    return replace(one, low=low, high=high, level=level, cause=cause, claims=claims)


def _fresh(
    record: RunRecord, level: RecoveryClass, cause: str, low: float, high: float, claim: str
) -> RunInterruption:
    """A new incident; a node that was lost shortly before is its cause."""
    if (lost := _node_lost(record, high)) is not None:
        level, cause = costlier(level, RecoveryClass.POD), max(cause, "failure", key=CAUSES.index)
        if record.step_at is None:  # nothing else says when training stopped
            low = high = lost
    claims = (claim,) if claim else ()
    fresh = RunInterruption(
        low=low, high=high, level=level, cause=cause, claims=claims, alive=record.step_at
    )
    if record.step_at is None or high >= record.step_at - SLACK:
        return fresh
    if (
        record.before_at is None or record.before_at > high
    ):  # over long ago; how long it took was not seen
        progress = record.step_at if record.before_at is None else record.before_at
        return replace(fresh, alive=None, recovered=min(high + WINDOW, progress))
    took = record.step_at - high
    return replace(
        fresh, alive=record.before_at, recovered=record.step_at, recovery=took, lost=took
    )


def _node_lost(record: RunRecord, high: float) -> float | None:
    """When a node was lost that can be behind what happened by `high`: no progress and no other incident lies between."""
    over = [one.recovered for one in record.incidents if one.recovered is not None]
    floor = (
        high - WARNING
        if record.step_at is None
        else record.step_at - SLACK - (record.step_seconds or 0.0)
    )
    floor = max([floor, *over])
    return next((at for at in record.nodes_lost if floor < at <= high + SLACK), None)


def _progressed(record: RunRecord, observation: Observation, now: float) -> RunRecord:
    """With a step that was finished, or that was finished again."""
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
    record = (
        _with(record, RecoveryClass.PROCESS, "", record.step_at, at)
        if fell
        else _still_alive(record, at)
    )
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
    """Step time where nobody states it: the shortest between two looks. [s]"""
    known = record.step_seconds or 0.0
    if record.step is None or record.step_at is None or step <= record.step:
        return known
    shown = (at - record.step_at) / (step - record.step)
    return min(known, shown) if known else shown


def _made_ready(
    record: RunRecord, now: float, *, ready: bool, drop: RecoveryClass | None
) -> RunRecord:
    """With readiness: its loss may be an incident, its return ends one only where no steps are seen."""
    if drop and not ready and record.has_run and not record.unready and record.ended is None:
        record = _with(record, drop, "", now, now)
    if ready and record.unready and record.step_at is None:
        record = _recovered(record, now, 0.0, 0, 0.0)
    return replace(record, unready=not ready, has_run=record.has_run or ready)


def _still_alive(record: RunRecord, at: float) -> RunRecord:
    """A step that came late to our notice, and was finished just before an incident that is known: it ends nothing."""
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
    """Training went on at a moment, so that what was open is over; time and steps are those of the last one.

    A step that `fell` back was finished after the incident, however coarsely both are dated; one that did not, and is dated within
    the second of a known moment, may have been finished before it.
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
    """With no more incidents than are kept."""
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
