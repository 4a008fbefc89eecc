"""From life to life: what one more observation of a running job means.

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

from mofa_model.kinds.observation import Counter, Observation, Sign
from mofa_model.spec.recovery_classes import RecoveryClass, costlier
from mofa_operator.observe.life import (
    CAUSES,
    Incident,
    Life,
    added,
    began,
    summed,
)

WINDOW: Final = 600.0
"""Time within which signs are one incident where no progress can be seen: the usual timeout of a collective. [s]"""
WARNING: Final = 900.0
"""Time that a lost node may precede what it causes: pods leave it after five minutes. [s]"""
SLACK: Final = 2.0
"""Resolution of the cluster's clock, twice. [s]"""
KEPT: Final = 12
"""Incidents that are kept one by one; older ones are kept as sums."""


def seen(life: Life | None, observation: Observation, now: float) -> Life:
    """After one more look, at `now` in seconds of the epoch; None = the first look.

    >>> from mofa_operator.observe.life import interruptions
    >>> look = lambda restarts: Observation(counters={"JobSet.restarts": Counter(value=restarts, level=RecoveryClass.JOB)})
    >>> life = seen(seen(None, look(0), 0.0), look(1), 60.0)
    >>> interruptions(seen(life, look(1), 120.0))
    {(<RecoveryClass.JOB: 'job'>, 'failure'): 1}
    """
    life = Life(since=now) if life is None else life
    life = replace(life, nodes_lost=_lately((*life.nodes_lost, *observation.nodes_lost), now))
    for sign in observation.signs:
        life = _signed(life, sign)
    if observation.suspended is not None and life.has_run:
        life = _signed(life, Sign(at=observation.suspended, level=RecoveryClass.JOB, cause="eviction"))
    for name, counter in sorted(observation.counters.items()):
        life = _counted(life, name, counter, now)
    life = _progressed(life, observation, now)
    if observation.ready is not None:
        life = _made_ready(life, now, ready=observation.ready, drop=observation.drop)
    if observation.ended is not None and life.ended is None:
        life = replace(life, ended=observation.ended)
    return _folded(life)


def _signed(life: Life, sign: Sign) -> Life:
    before = sign.at < life.since or (life.horizon is not None and sign.at <= life.horizon)
    after = life.ended is not None and sign.at > life.ended
    return life if before or after else _with(life, sign.level, sign.cause, sign.at, sign.at)


def _counted(life: Life, name: str, counter: Counter, now: float) -> Life:
    if name not in life.marks:  # what it counted before is not of our time
        earlier = {**life.earlier, counter.level: max(counter.value, life.earlier.get(counter.level, 0))}
        marks = {**life.marks, name: (counter.value, now)}
        return replace(life, earlier={k: n for k, n in earlier.items() if n}, marks=marks)
    mark, looked = life.marks[name]
    new = counter.value - mark
    if new < 0:  # an older look that came late
        return life
    for _ in range(min(new, KEPT if counter.exact else 1)):
        life = _with(life, counter.level, "", min(looked, now), now, claim=name if counter.exact else "")
    if counter.exact and new > KEPT:
        life = replace(life, older=added(life.older, counter.level, "failure", count=new - KEPT))
    return replace(life, marks={**life.marks, name: (counter.value, max(looked, now))})


def _with(life: Life, level: RecoveryClass, cause: str, low: float, high: float, claim: str = "") -> Life:
    """With evidence of an incident between two moments: part of one that is known, or a new one."""
    fitting = [
        one for one in life.incidents if not (claim and claim in one.claims) and _same(life, one, low, high)
    ]
    if fitting:  # the one whose moment is known best and is not later; of several, the last
        found = min(
            reversed(fitting), key=lambda incident: (incident.high - incident.low, incident.low > high)
        )
        others = [incident for incident in life.incidents if incident is not found]
        one = _merged(life, found, level, cause, low, high, claim)
    else:
        others = list(life.incidents)
        one = _fresh(life, level, cause, low, high, claim)
    return replace(life, incidents=tuple(sorted((*others, one), key=lambda incident: incident.low)))


def _same(life: Life, one: Incident, low: float, high: float) -> bool:
    """Whether evidence between two moments can be of this incident: no progress lies between."""
    if one.low < one.high:
        begin, end = one.low, float("inf")
    elif one.alive is None:
        begin, end = one.low - WINDOW, one.low + WINDOW
    else:
        begin, end = one.alive - SLACK, float("inf")
    if one.recovered is not None:
        end = one.recovered
    elif life.unready:
        end = float("inf")
    return high >= begin and (low < end or low == high == end)


def _merged(
    life: Life, one: Incident, level: RecoveryClass, cause: str, low: float, high: float, claim: str
) -> Incident:
    """The incident with more evidence; a known moment replaces an interval."""
    level, cause = costlier(level, one.level), max(cause, one.cause, key=CAUSES.index)
    claims = (*one.claims, claim) if claim else one.claims
    if low == high and one.low < one.high:
        if one.recovered is None:
            return replace(_fresh(life, level, cause, low, high, ""), claims=claims)
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


def _fresh(life: Life, level: RecoveryClass, cause: str, low: float, high: float, claim: str) -> Incident:
    """A new incident; a node that was lost shortly before is its cause."""
    if (lost := _node_lost(life, high)) is not None:
        level, cause = costlier(level, RecoveryClass.POD), max(cause, "failure", key=CAUSES.index)
        if life.step_at is None:  # nothing else says when training stopped
            low = high = lost
    claims = (claim,) if claim else ()
    fresh = Incident(low=low, high=high, level=level, cause=cause, claims=claims, alive=life.step_at)
    if life.step_at is None or high >= life.step_at - SLACK:
        return fresh
    if life.before_at is None or life.before_at > high:  # over long ago; how long it took was not seen
        progress = life.step_at if life.before_at is None else life.before_at
        return replace(fresh, alive=None, recovered=min(high + WINDOW, progress))
    took = life.step_at - high
    return replace(fresh, alive=life.before_at, recovered=life.step_at, recovery=took, lost=took)


def _node_lost(life: Life, high: float) -> float | None:
    """When a node was lost that can be behind what happened by `high`: no progress and no other incident lies between."""
    over = [one.recovered for one in life.incidents if one.recovered is not None]
    floor = high - WARNING if life.step_at is None else life.step_at - SLACK - (life.step_seconds or 0.0)
    floor = max([floor, *over])
    return next((at for at in life.nodes_lost if floor < at <= high + SLACK), None)


def _progressed(life: Life, observation: Observation, now: float) -> Life:
    """With a step that was finished, or that was finished again."""
    step = observation.step
    if step is None:
        return life
    at = observation.step_at if observation.step_at is not None else now
    if life.step is None or life.step_at is None or life.top is None:
        if observation.step_at is not None:
            life = _recovered(life, at, 0.0, 0, 0.0)
        each = observation.step_seconds or life.step_seconds
        return replace(life, step=step, step_at=at, top=step, step_seconds=each, has_run=True)
    if at <= life.step_at or (step == life.step and observation.step_at is None):
        return life
    each = observation.step_seconds or _step_seconds(life, step, at)
    back = max(0, life.top - step) if step < life.step else 0
    gained = max(0, step - life.top)
    top, before = max(life.top, step), life.step_at
    fell = step < life.step  # training goes on, from an earlier step
    life = _with(life, RecoveryClass.PROCESS, "", life.step_at, at) if fell else _still_alive(life, at)
    life = _recovered(life, at, gained * each, back, each, fell=fell)
    effective = life.effective + gained * each
    return replace(
        life, step=step, step_at=at, before_at=before, top=top, step_seconds=each or None, effective=effective
    )


def _step_seconds(life: Life, step: int, at: float) -> float:
    """Step time where nobody states it: the shortest between two looks. [s]"""
    known = life.step_seconds or 0.0
    if life.step is None or life.step_at is None or step <= life.step:
        return known
    shown = (at - life.step_at) / (step - life.step)
    return min(known, shown) if known else shown


def _made_ready(life: Life, now: float, *, ready: bool, drop: RecoveryClass | None) -> Life:
    """With readiness: its loss may be an incident, its return ends one only where no steps are seen."""
    if drop and not ready and life.has_run and not life.unready and life.ended is None:
        life = _with(life, drop, "", now, now)
    if ready and life.unready and life.step_at is None:
        life = _recovered(life, now, 0.0, 0, 0.0)
    return replace(life, unready=not ready, has_run=life.has_run or ready)


def _still_alive(life: Life, at: float) -> Life:
    """A step that came late to our notice, and was finished just before an incident that is known: it ends nothing."""
    incidents = tuple(
        replace(one, alive=at)
        if one.recovered is None and one.low == one.high > at > (one.alive or at)
        else one
        for one in life.incidents
    )
    return replace(life, incidents=incidents)


def _recovered(life: Life, at: float, gained: float, back: int, each: float, *, fell: bool = False) -> Life:
    """Training went on at a moment, so that what was open is over; time and steps are those of the last one.

    A step that `fell` back was finished after the incident, however coarsely both are dated.
    """
    incidents = list(life.incidents)
    open_ones = [
        i
        for i, one in enumerate(incidents)
        if one.recovered is None and one.high <= at + (SLACK if fell or one.low < one.high else 0.0)
    ]
    for index in open_ones:
        one = replace(incidents[index], recovered=at)
        if index == open_ones[-1]:
            took = max(0.0, at - began(one) - gained)
            one = replace(one, recovery=took, redone=back, lost=took + back * each)
        incidents[index] = one
    return replace(life, incidents=tuple(incidents)) if open_ones else life


def _lately(moments: tuple[float, ...], now: float) -> tuple[float, ...]:
    return tuple(sorted({at for at in moments if at > now - WARNING}))[:4]


def _folded(life: Life) -> Life:
    """With no more incidents than are kept."""
    while len(life.incidents) > KEPT:
        first, *others = life.incidents
        ended = first.recovered if first.recovered is not None else first.high
        horizon = ended if life.horizon is None else max(ended, life.horizon)
        life = replace(life, incidents=tuple(others), older=summed(life.older, first), horizon=horizon)
    return life
