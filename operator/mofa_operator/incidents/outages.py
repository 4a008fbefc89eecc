"""Outages of a node: by readiness, and by boot time where nobody saw that it was not ready.

What comes under a cordon that stood before it is planned; a cordon that comes after it is the answer to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mofa_model.spec import incident_causes as causes
from mofa_operator.incidents.incident import Incident, of_node
from mofa_operator.incidents.node_life import NodeLife
from mofa_operator.incidents.runs import Span, ValueRun
from mofa_operator.incidents.witnesses import BOOT, HEARTBEATS, TAINT

GRACE: Final = 40.0
"""Time after which a node that does not answer is not ready, as controllers are set by default. [s]"""
START_UP: Final = 90.0
"""Time from the boot until the node is ready again. [s]"""
A_REBOOT: Final = 600.0
"""Longest outage that is but a reboot: longer, somebody repaired something. [s]"""
SHUT_DOWN: Final = 240.0
"""Time from the end of work to the boot time of what follows, where nobody saw it. [s]"""
OUTAGES: Final = (causes.NODE_DOWN, causes.REBOOT, causes.KUBELET_DOWN, causes.NODE_LOST)
"""Causes of failures in which the whole node is away."""


@dataclass(frozen=True, slots=True)
class _Boot:
    alive: float
    """Last sample before. [s]"""
    at: float
    """The boot. [s]"""


def _boots(life: NodeLife) -> list[_Boot]:
    told = sorted((run for _, many in life.parts(BOOT) for run in many), key=lambda run: run.start)
    found, last, alive = [], life.seen[0][0], 0.0
    for run in told:
        if run.value - last > 30.0:
            found.append(_Boot(alive or run.value - SHUT_DOWN, run.value))
        last, alive = max(last, run.value), run.end
    return found


def outages(life: NodeLife, shortest: float) -> Iterator[Incident]:
    """Outages of a node, those that are no failures too; on the same boot one that is no longer than `shortest` is none. [s]"""
    boots = _boots(life)
    used: set[_Boot] = set()
    for number, run in enumerate(life.ready):
        if run.value:
            continue
        before = life.ready[number - 1] if number else None
        after = life.ready[number + 1] if number + 1 < len(life.ready) else None
        start, end = _bounds(life, run, before, after)
        mine = [one for one in boots if start - 2 * life.step - 120 <= one.at <= end + life.step]
        used.update(mine)
        if (
            before is not None
            and before.value == 0
            and after is None
            and not mine
            and run.end == run.start
        ):
            continue
        yield _outage(life, (start, end), before, mine, shortest, is_last=after is None)
    for one in boots:
        if one not in used:
            yield _silent_reboot(life, one)
    if (not life.ready or life.ready[-1].value) and (gone := life.gone) is not None:
        deleted = [key for (key,), _ in life.parts(TAINT) if key.startswith("ToBeDeleted")]
        yield of_node(life.name, gone, gone, causes.SCALE_DOWN, "deleted while ready", *deleted)


def _bounds(life: NodeLife, run: ValueRun, before: ValueRun | None, after: ValueRun | None) -> Span:
    """When the node was not ready, and from when on it did not work; silences of the exporter are not of the node."""
    half, gap = life.step / 2, 3 * life.step
    start = (
        run.start - half
        if before is None or run.start - before.end > gap
        else (before.end + run.start) / 2
    )
    end = (
        run.end + half
        if after is None or after.start - run.end > gap
        else (run.end + after.start) / 2
    )
    return start - GRACE, end


def _outage(
    life: NodeLife,
    span: Span,
    before: ValueRun | None,
    boots: list[_Boot],
    shortest: float,
    *,
    is_last: bool,
) -> Incident:
    start, end = span
    last_ready = before.end if before is not None else start
    lasted = end - start - GRACE
    if _planned(life, last_ready, start):
        return of_node(life.name, start, end, causes.DRAIN, "cordoned before it went not ready")
    gone = life.gone
    if is_last and gone is not None and gone - end <= max(600.0, 3 * life.step):
        return of_node(life.name, start, gone, causes.NODE_LOST, "not ready, then deleted")
    if boots or _went_dark(life, start, end):
        said = (
            f"not ready for {lasted:.0f} s",
            "another boot time" if boots else "its exporters were silent",
        )
        cause = causes.NODE_DOWN if end - start > A_REBOOT else causes.REBOOT
        return of_node(life.name, start, end, cause, *said)
    if lasted > shortest:
        return of_node(
            life.name,
            start,
            end,
            causes.KUBELET_DOWN,
            f"not ready for {lasted:.0f} s",
            "the same boot",
        )
    return of_node(life.name, start, end, causes.FLAP, f"not ready for {lasted:.0f} s")


def _went_dark(life: NodeLife, start: float, end: float) -> bool:
    """Whether exporters of the host were silent in an outage, where nobody tells boot times."""
    if BOOT in life.told:
        return False
    for witness in HEARTBEATS:
        least = max(100.0, witness.apart * life.spacing.get(witness, life.step))
        for _, many in life.parts(witness):
            if any(
                b.start - a.end > least and a.end < end and b.start > start
                for a, b in pairwise(many)
            ):
                return True
    return False


def _silent_reboot(life: NodeLife, boot: _Boot) -> Incident:
    """A boot between two samples of readiness, or while nobody looked."""
    gap = life.spacing.get(BOOT, life.step)
    start = (
        max(boot.alive + gap / 2, boot.at - SHUT_DOWN)
        if boot.at - boot.alive < A_REBOOT
        else boot.alive + gap / 2
    )
    end = boot.at + START_UP
    if _planned(life, min(boot.alive, start), start) or any(
        a <= boot.at <= b for a, b in life.cordons
    ):
        return of_node(life.name, start, end, causes.DRAIN, "another boot time under a cordon")
    cause = causes.NODE_DOWN if end - start > 2 * A_REBOOT else causes.REBOOT
    return of_node(life.name, start, end, cause, "another boot time")


def _planned(life: NodeLife, last_ready: float, start: float) -> bool:
    """Whether a cordon stood when the node was last seen well; one that came after is the answer to the outage."""
    return any(a <= last_ready and b >= min(last_ready, start) - life.step for a, b in life.cordons)
