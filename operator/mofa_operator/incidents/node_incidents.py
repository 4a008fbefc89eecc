"""What happened to one node: its outages and the faults of its parts, each once.

What lies near in time is one incident: an XID just before the host dies is the first sign of that, and the cordon and the reboot
that follow a fault are its repair.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Final

from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_model.spec import incident_causes as causes
from mofa_model.spec.xids import OFF_THE_BUS, XidMeaning, meaning
from mofa_operator.incidents.incident import Incident, of_node
from mofa_operator.incidents.timelines import (
    ALLOCATABLE,
    BOOT,
    COUNTED,
    DETECTED,
    HEARTBEATS,
    PROBLEM,
    REMAP,
    TAINT,
    XID,
    NodeLife,
    Span,
    ValueRun,
    joined,
    length,
    overlap,
)


def node_incidents(life: NodeLife, rules: IncidentRules) -> list[Incident]:
    """All incidents of a node, in order."""
    told = *outages(life, rules.shortest_outage_seconds), *faults(life, rules)
    return _merged(life, sorted(told, key=lambda one: one.start))


def _merged(life: NodeLife, found: list[Incident]) -> list[Incident]:
    """One incident for what has one cause: a fault just before an outage is its sign, faults within one repair are one."""
    near = 2 * life.step + 240
    kept: list[Incident] = []
    for one in found:
        last = next((k for k in range(len(kept) - 1, -1, -1) if kept[k].cause.counts), None)
        if (
            one.cause.counts
            and last is not None
            and (both := _together(kept[last], one, near)) is not None
        ):
            kept[last] = both
        else:
            kept.append(one)
    return [_until_repaired(life, one) for one in kept]


def _together(before: Incident, one: Incident, near: float) -> Incident | None:
    """Two failures of a node as one; None where they are two. `near` is the longest time that a sign precedes an outage. [s]"""
    said = (*before.evidence, *one.evidence)
    if one.cause in OUTAGES and before.cause not in OUTAGES:
        return (
            replace(one, start=before.start, evidence=said)
            if one.start - before.start <= near
            else None
        )
    if one.cause in OUTAGES:
        longest = max(before, one, key=lambda other: other.seconds)
        end = max(before.end, one.end)
        return (
            replace(longest, start=before.start, end=end, evidence=said)
            if one.start - before.end <= 60.0
            else None
        )
    if (
        before.cause in OUTAGES
    ):  # what its exporters held back while it was away, they tell when it is back
        return replace(before, evidence=said) if one.start - before.end <= near else None
    if one.start > before.end:
        return None
    is_lost = causes.GPU_LOST in (one.cause, before.cause) and one.start - before.start < 900 + near
    return replace(
        before,
        cause=causes.GPU_LOST if is_lost else before.cause,
        end=max(before.end, one.end),
        evidence=said,
    )


def _until_repaired(life: NodeLife, one: Incident) -> Incident:
    """An outage after which somebody cordoned the node lasts until that cordon ends."""
    if one.cause not in OUTAGES or one.cause is causes.NODE_LOST:
        return one
    ends = [b for a, b in life.cordons if one.start - life.step <= a <= one.end < b]
    said = (*one.evidence, "cordoned after it went not ready")
    return replace(one, end=max(ends), evidence=said) if ends else one


# Outages of a node: by readiness, and by boot time where nobody saw that it was not ready.
#
# What comes under a cordon that stood before it is planned; a cordon that comes after it is the answer to it.

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


# Faults of a node's parts while it stays ready: GPUs by XID, by their series and by what the kubelet offers, links, problems.
#
# A fault under a cordon that stood before it is part of a repair; a cordon that comes after it is the repair.

TO_CORDON: Final = 8 * 3600.0
"""Longest time after a fault in which the cordon for its repair comes. [s]"""
BRIEF: Final = 360.0
"""How long a fault takes that nobody repairs: what ran there starts again. [s]"""
_LINK: Final = re.compile(r"(?<![a-z])nic|link|infiniband|\bib|rdma|roce|ethernet", re.IGNORECASE)
_GPU: Final = re.compile(r"gpu|xid|nvlink|nvswitch|nvidia", re.IGNORECASE)
_GONE: Final = re.compile(r"fallen.?off", re.IGNORECASE)
_WARNING: Final = re.compile(r"non.?fatal", re.IGNORECASE)
"""Conditions of nodes that tell no failure. NVSentinel sets GpuMemWatch, SysLogsXIDError, SysLogsGPUFallenOff, NVSwitchDown and
their like where something is fatal; DCGMError speaks of the exporter's own daemon, CSPMaintenance of a plan.
Source: NVSentinel, "Integration Guide", node conditions.
"""


def faults(life: NodeLife, rules: IncidentRules) -> Iterator[Incident]:
    """Faults of a node's parts, those that are no failures too."""
    yield from _xids(life, rules.xids)
    yield from _lost_gpus(life)
    for witness in (DETECTED, PROBLEM, REMAP):
        gap = life.spacing.get(witness, 0.0)
        for part, many in life.parts(witness):
            name = "/".join(part)
            said = "row remapping failed" if witness is REMAP else f"problem {name}"
            is_gpu = witness is REMAP or _GPU.search(name)
            if (is_gpu or _LINK.search(name)) and not _WARNING.search(name):
                gpu = causes.GPU_LOST if _GONE.search(name) else causes.GPU_FATAL
                for at, _ in _events(many, gap):
                    yield _fault(life, at, gpu if is_gpu else causes.NIC, said)


def _events(many: tuple[ValueRun, ...], gap: float) -> Iterator[tuple[float, float]]:
    """New values that are not 0, and when: what a gauge holds on to is told once. [s, 1]"""
    for before, run in pairwise(many):
        if run.value and run.value != before.value:
            silent = run.start - before.end > 3 * gap
            yield (run.start - gap / 2 if silent else (before.end + run.start) / 2), run.value


def _xids(life: NodeLife, stated: Mapping[str, str]) -> Iterator[Incident]:
    gap = life.spacing.get(XID, life.step)
    told = sorted((at, int(code)) for _, many in life.parts(XID) for at, code in _events(many, gap))
    counted = [
        at
        for (reason,), many in life.parts(COUNTED)
        if re.search("xid", reason, re.IGNORECASE)
        and not re.search("user|app", reason, re.IGNORECASE)
        for at, _ in _events(many, life.spacing.get(COUNTED, gap))
    ]
    explained: list[float] = []
    for at, code in told:
        kind = meaning(code, stated)
        if kind is XidMeaning.HARDWARE:
            cause = causes.GPU_LOST if code == OFF_THE_BUS else causes.GPU_FATAL
            yield _fault(life, at, cause, f"XID {code}")
        elif kind is XidMeaning.NOTE:
            yield of_node(life.name, at, at, causes.XID_WARNING, f"XID {code}")
        elif kind is XidMeaning.PROGRAM:
            yield of_node(life.name, at, at, causes.USER_XID, f"XID {code}")
        if kind is not XidMeaning.CLEAN_UP:
            explained.append(at)
    near = 2 * gap + 60
    for at in counted:  # the gauge says nothing new where the same GPU says the same again
        held = [
            int(run.value)
            for _, many in life.parts(XID)
            for run in many
            if run.value and run.start <= at <= run.end + gap
        ]
        if any(abs(at - one) <= near for one, _ in told) or all(
            meaning(code, stated) is not XidMeaning.HARDWARE for code in held
        ):
            continue
        yield _fault(
            life,
            at,
            causes.GPU_FATAL,
            "node-problem-detector counts an XID of hardware",
            "a GPU holds one of before",
        )
    for at, code in told:
        if meaning(code, stated) is not XidMeaning.CLEAN_UP or any(
            abs(at - one) <= near for one in explained
        ):
            continue
        if any(abs(at - one) <= near for one in counted):
            yield _fault(
                life,
                at,
                causes.GPU_FATAL,
                f"XID {code} over another",
                "node-problem-detector counts an XID of hardware",
            )
        elif any(0 < a - at <= 1200 + gap for a, _ in life.cordons):
            yield _fault(life, at, causes.GPU_FATAL, f"XID {code}", "cordoned soon after")
        else:
            yield of_node(life.name, at, at, causes.USER_XID, f"XID {code}")


def _lost_gpus(life: NodeLife) -> Iterator[Incident]:
    """GPUs whose series end while others of the node go on, or that the kubelet offers no more."""
    gap = life.spacing.get(XID, life.step)
    gpus = dict(life.parts(XID))
    for part, many in gpus.items():
        ends = [*(run.start for run in many[1:]), life.known[-1][1]]
        for run, end in zip(many, ends, strict=True):
            silent = (run.end + gap, end)
            others = joined(
                (r.start, r.end) for other, every in gpus.items() if other != part for r in every
            )
            if end - run.end > 3 * gap and length(overlap([silent], others)) > max(240.0, 2 * gap):
                said = f"the series of GPU {part[0]} ended while others went on"
                yield _fault(life, run.end + gap / 2, causes.GPU_LOST, said)
    step = life.spacing.get(ALLOCATABLE, life.step)
    for _, many in life.parts(ALLOCATABLE):
        most = max(run.value for run in many)
        for before, run in pairwise(many):
            if 0 < run.value < before.value == most and run.end - run.start >= step:
                said = f"the node offers {run.value:g} of {most:g} GPUs"
                yield _fault(life, (before.end + run.start) / 2, causes.GPU_LOST, said)


def _fault(life: NodeLife, at: float, cause: causes.IncidentCause, *said: str) -> Incident:
    """A fault of a part: until the cordon for its repair ends, or, where there is none, briefly."""
    under = next(((a, b) for a, b in life.cordons if a < at - life.step and at < b), None)
    if under is not None:
        return of_node(life.name, at, under[1], causes.DRAIN, *said, "under a cordon")
    repair = next(((a, b) for a, b in life.cordons if at - life.step <= a <= at + TO_CORDON), None)
    if repair is None:
        return of_node(life.name, at, at + BRIEF, cause, *said)
    return of_node(
        life.name,
        at,
        repair[1],
        cause,
        *said,
        f"cordoned {max(0.0, repair[0] - at) / 60:.0f} min later",
    )


# Nodes of one domain that went down at the same moment: one incident, not as many as there are nodes.

LEAST: Final = 3
"""Nodes from which on a coincidence is none. [1]"""
_DOWN: Final = (causes.NODE_DOWN, causes.REBOOT)


def domains(
    found: Sequence[Incident], labels: Mapping[str, Mapping[str, str]], step: float
) -> list[Incident]:
    """Incidents of nodes, those of a domain as one; `step` is the time between samples. [s]"""
    down = sorted((one for one in found if one.cause in _DOWN), key=lambda one: one.start)
    rest = [one for one in found if one.cause not in _DOWN]
    groups: list[list[Incident]] = []
    for one in down:
        if groups and one.start - groups[-1][0].start <= step + 60.0:
            groups[-1].append(one)
        else:
            groups.append([one])
    for group in groups:
        rest += _split(group, labels)
    return sorted(rest, key=lambda one: (one.start, one.name))


def _split(group: list[Incident], labels: Mapping[str, Mapping[str, str]]) -> list[Incident]:
    """A group of outages of one moment: those that share a label that few others have, and the rest."""
    if len(group) < LEAST:
        return group
    everywhere = Counter(pair for pairs in labels.values() for pair in pairs.items())
    here = Counter(pair for one in group for pair in labels.get(one.name, {}).items())
    shared = [
        (count, -everywhere[pair], pair)
        for pair, count in here.items()
        if count >= LEAST
        and everywhere[pair] <= max(2 * count, count + 2)
        and everywhere[pair] < len(labels)
    ]
    if not shared:
        return group
    _, _, (label, value) = max(shared)
    mine = [one for one in group if labels.get(one.name, {}).get(label) == value]
    domain = replace(
        mine[0],
        kind="domain",
        name=value,
        end=median(one.end for one in mine),
        cause=causes.RACK_OUTAGE,
        nodes=tuple(sorted(one.name for one in mine)),
        evidence=(f"{len(mine)} nodes with {label}={value} at once", *mine[0].evidence),
    )
    return [domain, *(one for one in group if one not in mine)]
