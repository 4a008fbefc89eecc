"""The record of a running job after one more observation of it.

One interruption shows at several levels: a node dies, its pods go, the job starts again. It is
counted once, as the class that recovered it. An interruption lasts until steps advance again, and
all signs in between are part of it. Where no steps are seen, readiness takes their place; where
that is not seen either, everything within `WINDOW` of the first sign is one interruption. So counts
are lower bounds, never too high.

    sign      an event at a known moment: a pod failed or was preempted, a condition turned
    counter   an object's own count went up since the last look; the count itself is exact

A sign that is seen again is part of the interruption that it made, and of a counter the highest
value is remembered. So a look may come twice, late or out of order, as long as the looks at one
interruption come before those at the next. `mofa_model.kinds` makes signs and counters from
objects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mofa_model.kinds.kind import Counter, Observation, Sign
from mofa_model.spec.recovery_classes import RecoveryClass, costlier
from mofa_operator.observe.jobs.run_record import CAUSES, RunInterruption, RunRecord

WINDOW: Final = 600.0
"""Time within which signs are one interruption where no progress is seen: the timeout of a
collective. [s]"""
WARNING: Final = 900.0
"""How long before an interruption its node may be lost: pods leave after five minutes. [s]"""
SECOND: Final = 1.0
"""Resolution of dates in the cluster: an event may be so much later than its date. [s]"""
SLACK: Final = 2.0 * SECOND
"""The same for the time between two events. [s]"""
KEPT: Final = 12
"""Interruptions that are kept one by one; older ones are kept as sums."""


def after_look(record: RunRecord | None, observation: Observation, now: float) -> RunRecord:
    """A job's record after a look at `now` [s]; `record` is the one before, None at the first look.

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
    if name not in record.marks:  # at the first look, all that it counted is from before
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
    """The record with evidence of an interruption, merged into one that it has, or a new one."""
    matching = [
        incident
        for incident in record.incidents
        if not set(evidence.claims) & set(incident.claims) and _same(record, incident, evidence)
    ]
    match = None
    if matching:  # the last one whose moment is known best and is not later
        match = min(
            reversed(matching),
            key=lambda incident: (incident.high - incident.low, incident.low > evidence.high),
        )
    updated = _fresh(record, evidence) if match is None else _merged(record, match, evidence)
    others = (incident for incident in record.incidents if incident is not match)
    return replace(
        record, incidents=tuple(sorted((*others, updated), key=lambda incident: incident.low))
    )


def _same(record: RunRecord, incident: RunInterruption, evidence: RunInterruption) -> bool:
    """Whether evidence can be of this interruption: no progress lies between the two."""
    end = float("inf")
    if incident.low < incident.high:
        begin = incident.low
    elif incident.alive is None:
        begin, end = incident.low - WINDOW, incident.low + WINDOW
    else:
        begin = incident.alive - SLACK
    if incident.recovered is not None:
        end = incident.recovered
    elif record.unready:
        end = float("inf")
    at_its_end = evidence.low == evidence.high == end
    return evidence.high >= begin and (evidence.low < end or at_its_end)


def _merged(
    record: RunRecord, incident: RunInterruption, evidence: RunInterruption
) -> RunInterruption:
    """The interruption with more evidence; an exact moment replaces an interval."""
    low, high = evidence.low, evidence.high
    level = costlier(evidence.level, incident.level)
    cause = max(evidence.cause, incident.cause, key=CAUSES.index)
    claims = (*incident.claims, *evidence.claims)
    if low == high and incident.low < incident.high:
        if incident.recovered is None:
            moment_known = replace(evidence, level=level, cause=cause, claims=())
            return replace(_fresh(record, moment_known), claims=claims)
        if incident.alive is not None and incident.alive > high:
            # there was progress in between; when training went on was not seen
            over = min(incident.recovered, incident.alive)
            incident = replace(incident, alive=None, recovered=over, recovery=None, lost=0.0)
    if (low == high) == (incident.low == incident.high):
        low, high = min(low, incident.low), min(high, incident.high)
    elif incident.low == incident.high:
        low, high = incident.low, incident.high
    return replace(incident, low=low, high=high, level=level, cause=cause, claims=claims)


def _fresh(record: RunRecord, evidence: RunInterruption) -> RunInterruption:
    """A new interruption; its cause is a node that was lost shortly before, if there is one."""
    fresh, high = replace(evidence, alive=record.step_at), evidence.high
    if (node_lost := _node_lost(record, high)) is not None:
        fresh = replace(
            fresh,
            level=costlier(evidence.level, RecoveryClass.POD),
            cause=max(evidence.cause, "failure", key=CAUSES.index),
        )
        if record.step_at is None:  # nothing else shows when training stopped
            high = node_lost
            fresh = replace(fresh, low=node_lost, high=node_lost)
    if record.step_at is None or high >= record.step_at - SLACK:
        return fresh
    if record.before_at is None or record.before_at > high:
        # it was over long ago; how long it took was not seen
        progress = record.step_at if record.before_at is None else record.before_at
        return replace(fresh, alive=None, recovered=min(high + WINDOW, progress))
    recovery = record.step_at - high
    return replace(
        fresh, alive=record.before_at, recovered=record.step_at, recovery=recovery, lost=recovery
    )


def _node_lost(record: RunRecord, high: float) -> float | None:
    """When a node was lost with no progress or interruption from then until `high`. [s]"""
    since = [incident.recovered for incident in record.incidents if incident.recovered is not None]
    if record.step_at is None:
        since.append(high - WARNING)
    else:
        since.append(record.step_at - SLACK - (record.step_seconds or 0.0))
    return next(
        (moment for moment in record.nodes_lost if max(since) < moment <= high + SLACK), None
    )


def _progressed(record: RunRecord, observation: Observation, now: float) -> RunRecord:
    """The record with a step that was finished, or finished again."""
    step = observation.step
    if step is None:
        return record
    moment = observation.step_at if observation.step_at is not None else now
    if record.step is None or record.step_at is None or record.top is None:
        if observation.step_at is not None:
            record = _recovered(record, moment, 0.0, 0, 0.0)
        seconds = observation.step_seconds or record.step_seconds
        return replace(
            record, step=step, step_at=moment, top=step, step_seconds=seconds, has_run=True
        )
    if moment <= record.step_at or (step == record.step and observation.step_at is None):
        return record
    seconds = observation.step_seconds or _step_seconds(record, step, moment)
    redone = max(0, record.top - step) if step < record.step else 0
    gained = max(0, step - record.top)
    top, before_at = max(record.top, step), record.step_at
    fell = step < record.step  # training goes on, from an earlier step
    if fell:
        evidence = RunInterruption(low=record.step_at, high=moment, level=RecoveryClass.PROCESS)
        record = _with(record, evidence)
    else:
        record = _still_alive(record, moment)
    record = _recovered(record, moment, gained * seconds, redone, seconds, fell=fell)
    effective = record.effective + gained * seconds
    return replace(
        record,
        step=step,
        step_at=moment,
        before_at=before_at,
        top=top,
        step_seconds=seconds or None,
        effective=effective,
    )


def _step_seconds(record: RunRecord, step: int, moment: float) -> float:
    """Step time where none is published: the shortest between two looks. [s]"""
    least = record.step_seconds or 0.0
    if record.step is None or record.step_at is None or step <= record.step:
        return least
    seconds = (moment - record.step_at) / (step - record.step)
    return min(least, seconds) if least else seconds


def _made_ready(
    record: RunRecord, now: float, *, ready: bool, drop: RecoveryClass | None
) -> RunRecord:
    """The record with readiness, whose loss can interrupt; its return ends that without steps."""
    if drop and not ready and record.has_run and not record.unready and record.ended is None:
        record = _with(record, _at(now, drop))
    if ready and record.unready and record.step_at is None:
        record = _recovered(record, now, 0.0, 0, 0.0)
    return replace(record, unready=not ready, has_run=record.has_run or ready)


def _still_alive(record: RunRecord, moment: float) -> RunRecord:
    """The record with a step from just before an interruption, which therefore goes on."""
    incidents = tuple(
        replace(incident, alive=moment)
        if incident.recovered is None
        and incident.low == incident.high > moment - SECOND
        and moment > (incident.alive or moment)
        else incident
        for incident in record.incidents
    )
    return replace(record, incidents=incidents)


def _recovered(
    record: RunRecord,
    moment: float,
    new_seconds: float,
    redone: int,
    step_seconds: float,
    *,
    fell: bool = False,
) -> RunRecord:
    """The record after training went on: open interruptions are over, and the last of them has the
    recovery time and the steps that were trained again. Of the time since it began, `new_seconds`
    went into steps that had not been trained before.

    A step that `fell` back was finished after the interruption, however coarsely both are dated.
    Any other step that is dated within a second of a known moment may have been finished before it.
    """
    incidents = list(record.incidents)
    open_indices = [
        i
        for i, incident in enumerate(incidents)
        if incident.recovered is None
        and incident.high <= moment + (SLACK if fell or incident.low < incident.high else -SECOND)
    ]
    for index in open_indices:
        incident = replace(incidents[index], recovered=moment)
        if index == open_indices[-1]:
            recovery = max(0.0, moment - incident.began - new_seconds)
            incident = replace(
                incident, recovery=recovery, redone=redone, lost=recovery + redone * step_seconds
            )
        incidents[index] = incident
    return replace(record, incidents=tuple(incidents)) if open_indices else record


def _lately(moments: tuple[float, ...], now: float) -> tuple[float, ...]:
    return tuple(sorted({moment for moment in moments if moment > now - WARNING}))[:4]


def _folded(record: RunRecord) -> RunRecord:
    """The record with at most `KEPT` interruptions one by one, and the older ones as sums."""
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
