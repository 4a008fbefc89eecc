"""The number of nodes that advice is for where a job does not state one: a steady size, which short losses do not change.

    a node of the pool that is away           still counts until it was away for `steady` seconds
    a new node                                counts once it was there for `steady` seconds
    a node first seen at the operator's start counts as the stored size says, until `steady` seconds are over

Changes that come close together are taken as one: if more of them are due within `settle_longest` seconds of the first, all wait
for the last. A pool that is younger than `steady` seconds, or that has no node yet, takes changes at once.

The size is stored in the profile's status, with the time since which the present number of nodes is ready. A restarted operator
goes on from there. Of nodes that were deleted while no operator ran, this time is all that is known.


What a profile's conditions say of its nodes: whether there are any, as it states them, and of no other profile.

A profile's snapshot as a decision: its nodes at once, its history seldom, and what both say of its assumptions.

The status is the durable memory of history, and the only source of it for jobs; the days behind it are the FailureLedger's. They
are written anew when they are written for the first time, when a verdict changes, or when a figure moved by `material` or more
and `quiet` seconds have passed; that time stands beside them. What follows from them (rates, verdicts, columns) always follows from
what is remembered, so that a changed assumption shows at once and a reading that waits for its time shows nowhere but in the metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mofa_model import presets
from mofa_model.errors import InputError
from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.inputs import cluster_of
from mofa_model.manifest.parsing import parse
from mofa_model.reliability.observed import TOTAL
from mofa_model.spec.evidence import DatedEvidence
from mofa_model.units import DAY, Range
from mofa_operator.decide.calibration import TaughtCalibration, calibration
from mofa_operator.decide.history import (
    NOBODY,
    Reports,
    assessed,
    contradiction,
    read,
    recoveries,
    rows,
    total,
    verdict,
)
from mofa_operator.decide.ledger import (
    PoolEvidence,
    ledger_status,
    of_days,
    of_profile,
    remembered,
    weeks_with,
)
from mofa_operator.decide.status import (
    Found,
    conditions,
    joined,
    left,
    moment,
    moved,
    of_generation,
    same,
    sentence,
    standing,
)
from mofa_operator.decision import Decision, Note, ProfileFigures
from mofa_operator.incidents.incident import UNMATCHED
from mofa_operator.objects import LiveProfile, Written, seconds, taught_factors
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import History, NodeCount, ProfileSnapshot
from mofa_operator.words import Aspect, Happened, Reason


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSize:
    """A pool's size."""

    nodes: int
    """Nodes that advice is for. [1]"""
    since: float | None = None
    """Since when as many are ready as are now, in seconds of the epoch; None = that is the size. [s]"""
    again: float | None = None
    """When it may be another one, from now. [s]"""


def pool_size(snapshot: ProfileSnapshot, settings: LoopSettings) -> PoolSize:
    """The size of a pool, given the one that stands."""
    pool, nodes, now = snapshot.profile, snapshot.nodes, snapshot.now
    old, since = _standing(pool)
    size, wait = _size(snapshot, settings, old, since) if old else (nodes.ready, None)
    if nodes.ready == size:
        since = None
    elif since is None or size != old or nodes.ready != pool.status.ready:
        since = now
    due = [at + settings.steady - now for at in _turns(nodes)]
    again = min((one for one in (*due, wait) if one is not None and one > 0), default=None)
    return PoolSize(nodes=size, since=since, again=wait or again)


def _standing(pool: LiveProfile) -> tuple[int, float | None]:
    """The size that stands, 0 where none does, and since when as many are ready as are now; a status of before had ready nodes alone."""
    status = pool.status
    size = status.ready if status.steady is None else status.steady
    return int(size or 0), seconds(status.since)


def _size(
    snapshot: ProfileSnapshot, settings: LoopSettings, old: int, since: float | None
) -> tuple[int, float | None]:
    """The size, and how long it has to wait until it can be the one that is seen. [1, s]"""
    pool, nodes, now = snapshot.profile, snapshot.nodes, snapshot.now
    if pool.made is not None and now - pool.made < settings.steady:
        return max(old, nodes.ready), None
    low, high = _bounds(nodes, now, settings.steady)
    if low <= old <= high:
        return old, None
    edited = pool.generation is not None and pool.status.generation != pool.generation
    if old > high and not edited:
        known = nodes.known + settings.steady - now
        seen = settings.steady if since is None else since + settings.steady - now
        if (left := min(known, seen)) > 0:  # some went while nobody looked
            return old, left
    due = sorted(at + settings.steady - now for at in _turns(nodes))
    over = [one for one in due if one <= 0]
    soon = [one for one in due if over and 0 < one <= over[0] + settings.settle_longest]
    if soon and not edited:
        return old, soon[-1]
    return low if old < low else high, None


def _bounds(nodes: NodeCount, now: float, steady: float) -> tuple[int, int]:
    """Least and most nodes that the size can be, by what each of them did. [1]"""

    def lately(turns: tuple[float, ...]) -> int:
        return sum(now - at < steady for at in turns)

    came, gone = lately(nodes.unsure_there), lately(nodes.unsure_away)
    low = nodes.ready - lately(nodes.joined) - came + lately(nodes.away)
    return low, low + came + gone


def _turns(nodes: NodeCount) -> tuple[float, ...]:
    return (*nodes.away, *nodes.joined, *nodes.unsure_there, *nodes.unsure_away)


_NAMED: Final = 3
"""Most node names that a message lists for each other profile that shares nodes. [1]"""


def ready(
    spec: ClusterProfileSpec, nodes: NodeCount, size: PoolSize, settings: LoopSettings
) -> Found:
    """Whether there are nodes, and whether they are what the profile says; what comes back within minutes changes words alone."""
    try:
        per_node = spec.gpus_per_node or int(cluster_of(spec, 1).gpus_per_node)
        device = presets.resolve("devices", spec.gpu, field="spec.gpu")
    except InputError as error:
        return Found(Aspect.READY, "False", Reason.INVALID_INPUT, str(error))
    if not nodes.total and not size.nodes:
        return Found(Aspect.READY, "False", Reason.NO_NODES, "no node matches spec.nodeSelector")
    if not nodes.ready and not size.nodes:
        return Found(
            Aspect.READY,
            "False",
            Reason.NO_READY_NODES,
            "nodes match spec.nodeSelector, but none is ready",
        )
    offered = sorted(number for number in nodes.gpus if number != per_node)
    others = [product for product in nodes.products if _is_other(product, device)]
    if nodes.gpus and per_node not in nodes.gpus:
        message = f"nodes offer {_either(offered)} GPUs; spec.gpusPerNode is {per_node}"
        return Found(Aspect.READY, "False", Reason.NODES_DIFFER, message)
    if others:
        message = f"nodes have {_either(others)}; spec.gpu is {spec.gpu}"
        return Found(Aspect.READY, "False", Reason.NODES_DIFFER, message)
    some = f"some nodes offer {_either(offered)} GPUs instead of {per_node}" if offered else ""
    turns = (
        ""
        if size.since is None
        else f"{nodes.ready} nodes are ready since {moment(size.since)}; advice stays for {size.nodes} until others have been there, "
        f"or away, for {settings.steady:g} s"
    )
    return Found(Aspect.READY, "True", Reason.NODES_AS_STATED, joined([some, turns]))


def _is_other(product: str, device: str) -> bool:
    """Whether a node's product is another device than the profile's; one that nobody knows says nothing."""
    try:
        return presets.resolve("devices", product) != device
    except InputError:
        return False


def _either(words: list[Any]) -> str:
    return " or ".join(str(word) for word in words[:4])


def exclusive(snapshot: ProfileSnapshot) -> Found:
    """Whether its nodes are of no other profile."""
    if not snapshot.shared:
        return Found(Aspect.NODES_EXCLUSIVE, "True", Reason.NOT_SHARED)
    which = [
        f"{', '.join(names[:_NAMED])}{f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''} with {other}"
        for other, names in sorted(snapshot.shared.items())
    ]
    message = f"it shares nodes with other ClusterProfiles: {'; '.join(which)}"
    return Found(Aspect.NODES_EXCLUSIVE, "False", Reason.NODES_SHARED, message)


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
    weeks = weeks_with(pool.weeks, pool.days, reading.days)
    newest = (*weeks, *of_days(reading.days))
    wait = _wait(spec, before, reading.memory, newest, snapshot, settings)
    counted, is_due = ledger_status(pool, reading.days, weeks, snapshot.now)
    pause = _quiet(snapshot, settings) if is_due and wait is None and pool.status.rows else None
    is_written = wait == 0 or pause == 0
    kept = reading.memory if wait == 0 else before
    known = newest if is_written else of_profile(pool)
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
        assessed(spec, before, of_profile(pool), pool.status.present),
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
