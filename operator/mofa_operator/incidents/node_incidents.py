"""What happened to one node: its outages, faults of its parts, and outages that its domain shares.

An outage or fault under a cordon that stood before it is planned work; a cordon that comes after it
is its repair. Events that are close in time are one incident: an XID just before the host dies is
its first sign.
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
from mofa_model.spec.incident_causes import OFF_THE_BUS, XidMeaning, meaning
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
    NodeTimeline,
    Span,
    ValueRun,
    joined,
    length,
    overlap,
)

GRACE: Final = 40.0
"""Time without an answer until a node is not ready: Kubernetes' grace period before 1.32. [s]"""
START_UP: Final = 90.0
"""Time from the boot until the node is ready again. [s]"""
A_REBOOT: Final = 600.0
"""Longest outage that is only a reboot; in a longer one somebody repaired something. [s]"""
SHUT_DOWN: Final = 240.0
"""Time from the end of work to the next boot, where the end was not seen. [s]"""
TO_CORDON: Final = 8 * 3600.0
"""Longest time from a fault to the cordon for its repair. [s]"""
BRIEF: Final = 360.0
"""Duration of a fault that nobody repairs: what ran there starts again. [s]"""
_DOMAIN: Final = 3
"""Fewest nodes that make an outage of a domain: two may fail at once by chance. [1]"""
_SIGN: Final = 240.0
"""How long before an outage a fault is its first sign, beside two samples. [s]"""
_FALLEN_OFF: Final = 900.0
"""How long after an XID the series of its GPU may end for it to be the same fault. [s]"""
OUTAGES: Final = (causes.NODE_DOWN, causes.REBOOT, causes.KUBELET_DOWN, causes.NODE_LOST)
"""Causes of failures in which the whole node is away."""
_LINK: Final = re.compile(r"(?<![a-z])nic|link|infiniband|\bib|rdma|roce|ethernet", re.IGNORECASE)
_GPU: Final = re.compile(r"gpu|xid|nvlink|nvswitch|nvidia", re.IGNORECASE)
_GONE: Final = re.compile(r"fallen.?off", re.IGNORECASE)
_WARNING: Final = re.compile(r"non.?fatal", re.IGNORECASE)
"""Node conditions that are no failure.

NVSentinel sets GpuMemWatch, SysLogsXIDError, SysLogsGPUFallenOff, NVSwitchDown and the like for
fatal errors only; DCGMError speaks of the exporter's own daemon, CSPMaintenance of a plan. Source:
NVSentinel, "Integration Guide", node conditions.
"""


def node_incidents(node: NodeTimeline, rules: IncidentRules) -> list[Incident]:
    """All incidents of a node, in order."""
    near = 2 * node.sample_spacing + _SIGN
    found: list[Incident] = []
    events = *_outages(node, rules.shortest_outage_seconds), *_faults(node, rules)
    for event in sorted(events, key=lambda event: event.start):
        last = next((k for k in range(len(found) - 1, -1, -1) if found[k].cause.counts), None)
        both = (
            _merged(found[last], event, near) if event.cause.counts and last is not None else None
        )
        if both is not None and last is not None:
            found[last] = both
        else:
            found.append(event)
    return [_until_repaired(node, incident) for incident in found]


def _merged(before: Incident, event: Incident, near: float) -> Incident | None:
    """Two failures of a node as one, or None; `near`: longest time from sign to outage. [s]"""
    evidence = (*before.evidence, *event.evidence)
    was_outage, is_outage = before.cause in OUTAGES, event.cause in OUTAGES
    if is_outage and not was_outage:
        is_sign = event.start - before.start <= near
        return replace(event, start=before.start, evidence=evidence) if is_sign else None
    if is_outage:
        if event.start - before.end > 60.0:
            return None
        longest = max(before, event, key=lambda incident: incident.seconds)
        end = max(before.end, event.end)
        return replace(longest, start=before.start, end=end, evidence=evidence)
    if was_outage:  # exporters publish late what happened while the node was away
        return replace(before, evidence=evidence) if event.start - before.end <= near else None
    if event.start > before.end:
        return None
    is_lost = (
        causes.GPU_LOST in (event.cause, before.cause)
        and event.start - before.start < _FALLEN_OFF + near
    )
    return replace(
        before,
        cause=causes.GPU_LOST if is_lost else before.cause,
        end=max(before.end, event.end),
        evidence=evidence,
    )


def _until_repaired(node: NodeTimeline, incident: Incident) -> Incident:
    """An outage with the cordon that followed: it lasts until that cordon ends."""
    if incident.cause not in OUTAGES or incident.cause is causes.NODE_LOST:
        return incident
    ends = [
        b for a, b in node.cordons if incident.start - node.sample_spacing <= a <= incident.end < b
    ]
    evidence = (*incident.evidence, "cordoned after it went not ready")
    return replace(incident, end=max(ends), evidence=evidence) if ends else incident


# ------------------------------------------------------------------------------------------ outages


@dataclass(frozen=True, slots=True)
class _Boot:
    """A boot, and the last sample before it. [s]"""

    alive: float
    at: float


def _boots(node: NodeTimeline) -> list[_Boot]:
    runs = sorted((run for line in node.of(BOOT) for run in line.runs), key=lambda run: run.start)
    found, last, alive = [], node.presence[0].start, 0.0
    for run in runs:
        if run.value - last > 30.0:  # a clock that is set moves the boot time by seconds
            found.append(_Boot(alive or run.value - SHUT_DOWN, run.value))
        last, alive = max(last, run.value), run.end
    return found


def _outages(node: NodeTimeline, shortest: float) -> Iterator[Incident]:
    """Outages of a node, failures or not; on the same boot, one of `shortest` seconds is none."""
    boots = _boots(node)
    used: set[_Boot] = set()
    for number, run in enumerate(node.ready):
        if run.value:
            continue
        before = node.ready[number - 1] if number else None
        after = node.ready[number + 1] if number + 1 < len(node.ready) else None
        span = _bounds(node, run, before, after)
        own = [
            boot
            for boot in boots
            if span.start - 2 * node.sample_spacing - 120
            <= boot.at
            <= span.end + node.sample_spacing
        ]
        used.update(own)
        repeats = before is not None and before.value == 0 and run.end == run.start
        if repeats and after is None and not own:
            continue  # one late sample of an outage that is known
        last_ready = before.end if before is not None else span.start
        yield _outage(node, span, last_ready, own, shortest, is_last=after is None)
    for boot in boots:
        if boot not in used:
            yield _silent_reboot(node, boot)
    if (not node.ready or node.ready[-1].value) and (gone := node.gone) is not None:
        taints = [line.part[0] for line in node.of(TAINT) if line.part[0].startswith("ToBeDeleted")]
        yield of_node(node.name, gone, gone, causes.SCALE_DOWN, "deleted while ready", *taints)


def _bounds(
    node: NodeTimeline, run: ValueRun, before: ValueRun | None, after: ValueRun | None
) -> Span:
    """From when a node did not work until it was ready; a silent exporter is no outage."""
    half, gap = node.sample_spacing / 2, 3 * node.sample_spacing
    start, end = run.start - half, run.end + half
    if before is not None and run.start - before.end <= gap:
        start = (before.end + run.start) / 2
    if after is not None and after.start - run.end <= gap:
        end = (run.end + after.start) / 2
    return Span(start - GRACE, end)


def _outage(
    node: NodeTimeline,
    span: Span,
    last_ready: float,
    boots: Sequence[_Boot],
    shortest: float,
    *,
    is_last: bool,
) -> Incident:
    start, end = span
    seconds = span.seconds - GRACE
    lasted = f"not ready for {seconds:.0f} s"
    if _planned(node, last_ready, start):
        return of_node(node.name, start, end, causes.DRAIN, "cordoned before it went not ready")
    gone = node.gone
    if is_last and gone is not None and gone - end <= max(600.0, 3 * node.sample_spacing):
        return of_node(node.name, start, gone, causes.NODE_LOST, "not ready, then deleted")
    if boots or _went_dark(node, span):
        cause = causes.NODE_DOWN if span.seconds > A_REBOOT else causes.REBOOT
        why = "another boot time" if boots else "its exporters were silent"
        return of_node(node.name, start, end, cause, lasted, why)
    if seconds > shortest:
        return of_node(node.name, start, end, causes.KUBELET_DOWN, lasted, "the same boot")
    return of_node(node.name, start, end, causes.FLAP, lasted)


def _went_dark(node: NodeTimeline, span: Span) -> bool:
    """Whether exporters of the host were silent in an outage, where no boot time is published."""
    if BOOT in node.signals:
        return False
    return any(
        b.start - a.end > max(100.0, signal.silence * node.gap(signal))
        and a.end < span.end
        and b.start > span.start
        for signal in HEARTBEATS
        for line in node.of(signal)
        for a, b in pairwise(line.runs)
    )


def _silent_reboot(node: NodeTimeline, boot: _Boot) -> Incident:
    """A boot between two samples of readiness, or while nothing was sampled."""
    start, end = boot.alive + node.gap(BOOT) / 2, boot.at + START_UP
    if boot.at - boot.alive < A_REBOOT:
        start = max(start, boot.at - SHUT_DOWN)
    under_cordon = any(a <= boot.at <= b for a, b in node.cordons)
    if under_cordon or _planned(node, min(boot.alive, start), start):
        return of_node(node.name, start, end, causes.DRAIN, "another boot time under a cordon")
    cause = causes.NODE_DOWN if end - start > 2 * A_REBOOT else causes.REBOOT
    return of_node(node.name, start, end, cause, "another boot time")


def _planned(node: NodeTimeline, last_ready: float, start: float) -> bool:
    """Whether a cordon stood when the node was last ready."""
    return any(
        a <= last_ready and b >= min(last_ready, start) - node.sample_spacing
        for a, b in node.cordons
    )


# ------------------------------------------------------------------------------ faults of its parts


def _faults(node: NodeTimeline, rules: IncidentRules) -> Iterator[Incident]:
    """Incidents of a node's GPUs and links: Xids, lost GPUs, failed remapping, problems."""
    yield from _xids(node, rules.xids)
    yield from _lost_gpus(node)
    for signal in (DETECTED, PROBLEM, REMAP):
        for line in node.of(signal):
            name = "/".join(line.part)
            is_gpu = signal is REMAP or _GPU.search(name)
            if not (is_gpu or _LINK.search(name)) or _WARNING.search(name):
                continue
            gpu = causes.GPU_LOST if _GONE.search(name) else causes.GPU_FATAL
            evidence = "row remapping failed" if signal is REMAP else f"problem {name}"
            for event in _changes(line.runs, node.spacing.get(signal, 0.0)):
                yield _fault(node, event.start, gpu if is_gpu else causes.NIC, evidence)


def _changes(runs: Sequence[ValueRun], gap: float) -> Iterator[ValueRun]:
    """New values other than 0, and when they changed: a gauge repeats its last value."""
    for before, run in pairwise(runs):
        if run.value and run.value != before.value:
            silent = run.start - before.end > 3 * gap
            at = run.start - gap / 2 if silent else (before.end + run.start) / 2
            yield ValueRun(at, run.end, run.value)


def _xids(node: NodeTimeline, stated: Mapping[str, str]) -> Iterator[Incident]:
    """Faults by XIDs of GPUs, as DCGM publishes them and node-problem-detector counts them."""
    gap = node.gap(XID)
    xids = [
        (event.start, int(event.value))
        for line in node.of(XID)
        for event in _changes(line.runs, gap)
    ]
    xids.sort()
    counted = [
        event.start
        for line in node.of(COUNTED)
        if re.search("xid", line.part[0], re.IGNORECASE)
        and not re.search("user|app", line.part[0], re.IGNORECASE)
        for event in _changes(line.runs, node.spacing.get(COUNTED, gap))
    ]
    near = 2 * gap + 60
    detector = "node-problem-detector counts an XID of hardware"
    explained: list[float] = []
    for at, code in xids:
        kind = meaning(code, stated)
        if kind is XidMeaning.HARDWARE:
            cause = causes.GPU_LOST if code == OFF_THE_BUS else causes.GPU_FATAL
            yield _fault(node, at, cause, f"XID {code}")
        elif kind is XidMeaning.NOTE:
            yield of_node(node.name, at, at, causes.XID_WARNING, f"XID {code}")
        elif kind is XidMeaning.PROGRAM:
            yield of_node(node.name, at, at, causes.USER_XID, f"XID {code}")
        if kind is not XidMeaning.CLEAN_UP:
            explained.append(at)
    for at in counted:  # the gauge does not change where the same GPU reports the same XID again
        held = [
            int(run.value)
            for line in node.of(XID)
            for run in line.runs
            if run.value and run.start <= at <= run.end + gap
        ]
        is_new = all(abs(at - other) > near for other, _ in xids)
        if is_new and any(meaning(code, stated) is XidMeaning.HARDWARE for code in held):
            yield _fault(node, at, causes.GPU_FATAL, detector, "a GPU holds one of before")
    for at, code in xids:
        if meaning(code, stated) is not XidMeaning.CLEAN_UP or any(
            abs(at - other) <= near for other in explained
        ):
            continue
        # a clean-up XID alone tells nothing: the detector or a cordon soon after makes it a fault
        if any(abs(at - other) <= near for other in counted):
            yield _fault(node, at, causes.GPU_FATAL, f"XID {code} over another", detector)
        elif any(0 < a - at <= 1200 + gap for a, _ in node.cordons):
            yield _fault(node, at, causes.GPU_FATAL, f"XID {code}", "cordoned soon after")
        else:
            yield of_node(node.name, at, at, causes.USER_XID, f"XID {code}")


def _lost_gpus(node: NodeTimeline) -> Iterator[Incident]:
    """GPUs whose series end while other GPUs' go on, or that the kubelet no longer offers."""
    gap, gpus = node.gap(XID), node.of(XID)
    for line in gpus:
        ends = [*(run.start for run in line.runs[1:]), node.sampled[-1].end]
        for run, end in zip(line.runs, ends, strict=True):
            others = joined(
                Span(other.start, other.end)
                for gpu in gpus
                if gpu is not line
                for other in gpu.runs
            )
            went_on = length(overlap([Span(run.end + gap, end)], others))
            if end - run.end > 3 * gap and went_on > max(240.0, 2 * gap):
                evidence = f"the series of GPU {line.part[0]} ended while others went on"
                yield _fault(node, run.end + gap / 2, causes.GPU_LOST, evidence)
    for line in node.of(ALLOCATABLE):
        most = max(run.value for run in line.runs)
        for before, run in pairwise(line.runs):
            lasts = run.end - run.start >= node.gap(ALLOCATABLE)
            if 0 < run.value < before.value == most and lasts:
                evidence = f"the node offers {run.value:g} of {most:g} GPUs"
                yield _fault(node, (before.end + run.start) / 2, causes.GPU_LOST, evidence)


def _fault(node: NodeTimeline, at: float, cause: causes.IncidentCause, *evidence: str) -> Incident:
    """A fault of a part: it lasts until the cordon for its repair ends, or `BRIEF` without one."""
    for cordon in node.cordons:
        if cordon.start < at - node.sample_spacing and at < cordon.end:
            evidence = (*evidence, "under a cordon")
            return of_node(node.name, at, cordon.end, causes.DRAIN, *evidence)
    for cordon in node.cordons:
        if at - node.sample_spacing <= cordon.start <= at + TO_CORDON:
            later = f"cordoned {max(0.0, cordon.start - at) / 60:.0f} min later"
            return of_node(node.name, at, cordon.end, cause, *evidence, later)
    return of_node(node.name, at, at + BRIEF, cause, *evidence)


# ------------------------------------------------------------------------------------ whole domains


def domains(
    incidents: Sequence[Incident], labels: Mapping[str, Mapping[str, str]], sample_spacing: float
) -> list[Incident]:
    """Incidents of nodes, outages of a domain as one; `sample_spacing` is between samples. [s]"""
    is_down = (causes.NODE_DOWN, causes.REBOOT)
    down = sorted((i for i in incidents if i.cause in is_down), key=lambda i: i.start)
    rest = [i for i in incidents if i.cause not in is_down]
    groups: list[list[Incident]] = []
    for incident in down:
        if groups and incident.start - groups[-1][0].start <= sample_spacing + 60.0:
            groups[-1].append(incident)
        else:
            groups.append([incident])
    for group in groups:
        rest += _of_one_domain(group, labels)
    return sorted(rest, key=lambda incident: (incident.start, incident.name))


def _of_one_domain(
    group: list[Incident], labels: Mapping[str, Mapping[str, str]]
) -> list[Incident]:
    """Outages that began together, as one where the nodes share a label that few others have."""
    if len(group) < _DOMAIN:
        return group
    everywhere = Counter(pair for pairs in labels.values() for pair in pairs.items())
    here = Counter(pair for i in group for pair in labels.get(i.name, {}).items())
    shared = [
        (count, -everywhere[pair], pair)
        for pair, count in here.items()
        if count >= _DOMAIN
        and everywhere[pair] <= max(2 * count, count + 2)
        and everywhere[pair] < len(labels)
    ]
    if not shared:
        return group
    _, _, (label, value) = max(shared)
    members = [i for i in group if labels.get(i.name, {}).get(label) == value]
    domain = replace(
        members[0],
        kind="domain",
        name=value,
        end=median(i.end for i in members),
        cause=causes.RACK_OUTAGE,
        nodes=tuple(sorted(i.name for i in members)),
        evidence=(f"{len(members)} nodes with {label}={value} at once", *members[0].evidence),
    )
    return [domain, *(i for i in group if i not in members)]
