"""What to write about a ClusterProfile: its nodes at once, its history seldom.

The status holds the sum of the history, from which jobs read it; the FailureLedger holds the days.
Both are written the first time, when a verdict changes, and when a figure has moved by `material`
and `quiet` seconds have passed. Rates, verdicts and columns always follow from the stored history.
So a changed assumption shows at once, and a reading that is not yet written shows in the metrics
alone.
"""

from __future__ import annotations

from typing import Any, Final

from mofa_model import presets
from mofa_model.errors import InputError
from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.inputs import gpus_of_node
from mofa_model.manifest.parsing import parse
from mofa_model.reliability.observed import TOTAL
from mofa_operator.decide.calibration import TaughtCalibration, calibration
from mofa_operator.decide.forecasts import forecasts, rows_of
from mofa_operator.decide.history import (
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
    dated_evidence,
    differs,
    ledger_is_due,
    ledger_status,
    remembered,
    stored_evidence,
    trimmed,
    weeks_with,
)
from mofa_operator.decide.pool_size import PoolSize, availability, pool_size, stored_size
from mofa_operator.decide.remedies import HELPS, what_would_help
from mofa_operator.decide.status import (
    NewCondition,
    conditions,
    joined,
    moment,
    moved,
    of_generation,
    same,
    sentence,
    standing,
    time_left,
)
from mofa_operator.decision import Decision, Note, PoolFigures
from mofa_operator.evidence import account_of
from mofa_operator.incidents.incident import UNMATCHED
from mofa_operator.objects import WrittenPart, seconds, taught_factors
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import History, NodeCount, ProfileSnapshot
from mofa_operator.words import Aspect, Happened, Reason

_NAMED: Final = 3
"""Nodes that a message names for each profile that shares them. [1]"""
_SOON: Final = 1.0
"""Time until the next look, which removes from the status what was moved to the ledger. [s]"""


def ready(
    spec: ClusterProfileSpec, node_count: NodeCount, pool_size: PoolSize, settings: LoopSettings
) -> NewCondition:
    """The condition Ready: whether there are nodes, and whether they are as the profile says."""
    try:
        per_node = gpus_of_node(spec)
        device = presets.resolve("devices", spec.gpu, field="spec.gpu")
    except InputError as error:
        return NewCondition(Aspect.READY, "False", Reason.INVALID_INPUT, str(error))
    if not node_count.total and not pool_size.nodes:
        why = "no node matches spec.nodeSelector"
        return NewCondition(Aspect.READY, "False", Reason.NO_NODES, why)
    if not node_count.ready and not pool_size.nodes:
        why = "nodes match spec.nodeSelector, but none is ready"
        return NewCondition(Aspect.READY, "False", Reason.NO_READY_NODES, why)
    offered = sorted(number for number in node_count.gpus if number != per_node)
    others = [product for product in node_count.products if _is_other(product, device)]
    if node_count.gpus and per_node not in node_count.gpus:
        message = f"nodes offer {_either(offered)} GPUs; spec.gpusPerNode is {per_node}"
        return NewCondition(Aspect.READY, "False", Reason.NODES_DIFFER, message)
    if others:
        message = f"nodes have {_either(others)}; spec.gpu is {spec.gpu}"
        return NewCondition(Aspect.READY, "False", Reason.NODES_DIFFER, message)
    odd_nodes = f"some nodes offer {_either(offered)} GPUs instead of {per_node}" if offered else ""
    turns = "" if pool_size.since is None else (
        f"{node_count.ready} nodes are ready since {moment(pool_size.since)}; advice stays for "
        f"{pool_size.nodes} until others have been there, or away, for {settings.steady:g} s"
    )  # fmt: skip
    return NewCondition(Aspect.READY, "True", Reason.NODES_AS_STATED, joined([odd_nodes, turns]))


def _is_other(product: str, device: str) -> bool:
    """Whether a node's product is a known device, and another one than the profile's."""
    try:
        return presets.resolve("devices", product) != device
    except InputError:
        return False


def _either(words: list[Any]) -> str:
    return " or ".join(str(word) for word in words[:4])


def exclusive(snapshot: ProfileSnapshot) -> NewCondition:
    """The condition NodesExclusive: whether no other ClusterProfile has any of its nodes."""
    if not snapshot.shared:
        return NewCondition(Aspect.NODES_EXCLUSIVE, "True", Reason.NOT_SHARED)
    which = []
    for other, names in sorted(snapshot.shared.items()):
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        which.append(f"{', '.join(names[:_NAMED])}{more} with {other}")
    message = f"it shares nodes with other ClusterProfiles: {'; '.join(which)}"
    return NewCondition(Aspect.NODES_EXCLUSIVE, "False", Reason.NODES_SHARED, message)


def profile(snapshot: ProfileSnapshot, settings: LoopSettings) -> Decision:
    """What to write about a ClusterProfile, its figures, and when to look at it again."""
    pool = snapshot.profile
    if pool.is_going:
        return Decision(key=pool.key, uid=pool.uid)
    size = pool_size(snapshot, settings)
    try:
        spec = parse(ClusterProfileSpec, pool.body.get("spec"), "spec")
    except InputError as error:
        status = _unread(snapshot, size, str(error))
        return _decided(snapshot, status, requeue_after=size.requeue_after)
    old_history = remembered(pool)
    reading = read(snapshot, old_history, float(spec.prometheus.window_seconds))
    weeks = weeks_with(pool.weeks, pool.days, reading.days)
    newest = (*weeks, *dated_evidence(reading.days))
    evidence = reading.history or old_history
    reports_before = assessed(spec, old_history, stored_evidence(pool), pool.status.present)
    reports_now = assessed(spec, evidence, newest)
    wait = _wait_before_writing(
        old_history, reading.history, reports_before, reports_now, snapshot, settings
    )
    # Where a day of the ledger is over, it is written even if the reading says nothing new.
    is_due = ledger_is_due(pool, reading.days, snapshot.now)
    pause = _quiet(snapshot, settings) if is_due and wait is None and pool.status.rows else None
    is_written = 0 in (wait, pause)
    if wait == 0:
        history, reports = reading.history, reports_now
    else:  # until a reading is written, it shows in the metrics alone
        history, reports = old_history, reports_before
        if is_written:
            reports = assessed(spec, old_history, newest, pool.status.present)
    complete, old_complete = reading.condition, standing(pool, Aspect.HISTORY_COMPLETE)
    if old_complete is not None and wait != 0 and _says_the_same(old_complete, complete):
        complete = old_complete
    nodes_ready = ready(spec, snapshot.node_count, size, settings)
    new_conditions = [nodes_ready, complete, verdict(history, reports), exclusive(snapshot)]
    learned = calibration(pool, snapshot.taught, snapshot.now, settings, snapshot.influence)
    soon = _SOON if is_written and pool.unmoved else None
    waits = filter(None, (wait, pause, soon, learned.requeue_after, size.requeue_after))
    new_forecasts, account, ledger = pool.forecasts, pool.account, None
    if is_written:
        days = trimmed(reading.days, snapshot.now)
        new_forecasts, account = forecasts(new_forecasts, days, snapshot.now), account_of(days)
        ledger = ledger_status(
            pool, reading.days, weeks, snapshot.now, snapshot.history, rows_of(new_forecasts)
        )
    common = _common(snapshot, size, new_conditions)
    return _decided(
        snapshot,
        _status(snapshot, common, learned, history, reports, is_written=is_written),
        ledger=ledger,
        event=contradiction(pool, history, reports)
        or _episode(complete, old_complete, usable=reading.usable),
        figures=PoolFigures(
            snapshot=snapshot,
            history=evidence,
            rates=reports_now,
            recovery=recoveries(spec, evidence),
            calibration=learned.written,
            account=account,
            forecasts=new_forecasts,
        ),
        requeue_after=min(waits, default=None),
    )


def _status(
    snapshot: ProfileSnapshot,
    common: WrittenPart,
    learned: TaughtCalibration,
    history: History | None,
    reports: Reports,
    *,
    is_written: bool,
) -> WrittenPart:
    """The status with a history, whose time is new where it `is_written` now."""
    pool = snapshot.profile
    status = {
        **common,
        "failures": rows(history, reports),
        "total": total(history, reports),
        **what_would_help(snapshot),
        **pool.unmoved,
    }
    if factors := _with_asked_factors(learned.written, snapshot):
        status["calibration"] = factors
    if learned.residual:
        status["residual"] = learned.residual
    if history is not None:
        time_before = pool.status.history_time
        is_new = is_written or seconds(time_before) is None
        status["historyTime"] = moment(snapshot.now) if is_new else time_before
    return status


def _with_asked_factors(written: WrittenPart, snapshot: ProfileSnapshot) -> WrittenPart:
    """The learned calibration, with the factors in `asked` if every job was asked with them."""
    pool, factors = snapshot.profile, taught_factors(written)
    calibration = {name: value for name, value in written.items() if name != "asked"}
    are_in_use = factors == pool.factors and (snapshot.all_asked or pool.is_asked)
    is_asked = factors and (are_in_use or not snapshot.job_count)
    return calibration | {"asked": " ".join(factors.values())} if is_asked else calibration


def _says_the_same(old_complete: NewCondition, complete: NewCondition) -> bool:
    """Whether two readings differ in figures alone, and not in overruled ids without incident."""

    def meaning(condition: NewCondition) -> object:
        unmatched = [text for text in condition.message.split("; ") if text.startswith(UNMATCHED)]
        return condition.state, condition.reason, unmatched

    return meaning(old_complete) == meaning(complete)


def _wait_before_writing(
    old_history: History | None,
    new_history: History | None,
    reports_before: Reports,
    reports_now: Reports,
    snapshot: ProfileSnapshot,
    settings: LoopSettings,
) -> float | None:
    """How long a new reading waits until it is written; None where it says nothing new. [s]"""
    if new_history is None:
        return None
    if old_history is None:
        return 0.0
    if [(old.name, old.verdict) for old in reports_before] != [
        (new.name, new.verdict) for new in reports_now
    ]:
        return 0.0
    has_moved = any(
        moved(old.mean, new.mean, 2 * settings.material)
        for old, new in zip(reports_before, reports_now, strict=True)
        if old.name != TOTAL
    )
    if has_moved or differs(old_history, new_history, settings.material):
        return _quiet(snapshot, settings)
    return None


def _quiet(snapshot: ProfileSnapshot, settings: LoopSettings) -> float:
    """How long until the history may be written again. [s]"""
    return time_left(seconds(snapshot.profile.status.history_time), settings.quiet, snapshot.now)


def _common(
    snapshot: ProfileSnapshot, size: PoolSize, new_conditions: list[NewCondition]
) -> WrittenPart:
    """What every status of a profile has: nodes, size and conditions."""
    count = snapshot.node_count
    nodes: WrittenPart = {
        "total": count.total,
        "ready": count.ready,
        "cordoned": count.cordoned,
        "steady": size.nodes,
        **({} if size.since is None else {"since": moment(size.since)}),
        **availability(
            snapshot.profile, stored_size(snapshot.profile)[0], size.nodes, snapshot.now
        ),
    }
    condition_rows = conditions(snapshot.profile, new_conditions, snapshot.now)
    return of_generation(snapshot.profile, {"nodes": nodes, "conditions": condition_rows})


def _unread(snapshot: ProfileSnapshot, size: PoolSize, message: str) -> WrittenPart:
    """The status of a profile whose spec cannot be read; what was learned stays in it."""
    invalid, pool = Reason.INVALID_INPUT, snapshot.profile
    learned = [
        standing(pool, aspect)
        or NewCondition(aspect, "Unknown", invalid, "the spec cannot be read")
        for aspect in (Aspect.HISTORY_COMPLETE, Aspect.ASSUMPTIONS_HOLD)
    ]
    new_conditions = [
        NewCondition(Aspect.READY, "False", invalid, message),
        *learned,
        exclusive(snapshot),
    ]
    fields = ("calibration", "residual", "failures", "total", "days", "weeks", "historyTime", HELPS)
    return _common(snapshot, size, new_conditions) | pool.kept(*fields)


def _decided(
    snapshot: ProfileSnapshot,
    status: WrittenPart,
    *,
    ledger: WrittenPart | None = None,
    event: Note | None = None,
    figures: PoolFigures | None = None,
    requeue_after: float | None = None,
) -> Decision:
    """The decision to write a status; an unchanged status is not written and makes no Event."""
    is_same = same(snapshot.profile.standing, status)
    return Decision(
        key=snapshot.profile.key,
        uid=snapshot.profile.uid,
        status=None if is_same else status,
        ledger=ledger,
        notes=() if event is None or is_same else (event,),
        figures=figures,
        outcome=status["conditions"][0]["reason"],
        requeue_after=requeue_after,
    )


def _episode(
    complete: NewCondition, old_complete: NewCondition | None, *, usable: bool
) -> Note | None:
    """The Event with which a time begins in which the history has gaps or cannot be read."""
    if complete.state != "False" or complete.reason == Reason.NOT_CONFIGURED:
        return None
    if old_complete is not None and (old_complete.reason, old_complete.state) == (
        complete.reason,
        "False",
    ):
        return None
    has_gaps = usable or complete.reason == Reason.HISTORY_INCOMPLETE
    return Note(
        reason=Happened.HISTORY_INCOMPLETE if has_gaps else Happened.HISTORY_UNAVAILABLE,
        message=sentence(complete.message),
        warning=not has_gaps,
        episode=str(complete.reason),
    )
