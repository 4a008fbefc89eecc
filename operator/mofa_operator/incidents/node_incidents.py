"""What happened to one node: its outages, and faults of its parts.

An outage or fault under a cordon that was there before is planned work; a cordon that comes after
is the repair. Events that are close in time are one incident: an XID just before the host dies is
its first sign.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_model.spec import incident_causes as causes
from mofa_model.spec.incident_causes import OFF_THE_BUS, XidMeaning, meaning
from mofa_operator.incidents.incident import Incident, of_node
from mofa_operator.incidents.timelines import (
    ALLOCATABLE,
    BOOT,
    COUNTED,
    DETECTED,
    PROBLEM,
    REMAP,
    XID,
    XID_COUNT,
    NodeTimeline,
    PodTimeline,
    SignalTimeline,
    Span,
    ValueRun,
    gaps_in,
    joined,
    length,
    overlap,
    slack_of_silence,
)

GRACE: Final = 40.0
"""Time without an answer until a node is not ready: Kubernetes' grace period before 1.32. [s]"""
START_UP: Final = 90.0
"""Time from the boot until the node is ready again. [s]"""
WAITED: Final = 4 * 3600.0
"""A cordon under which a job trains for longer waits for the job to end: a host that dies meanwhile
was not taken down. Ours. [s]"""
A_REBOOT: Final = 600.0
"""Longest outage that is only a reboot; during a longer one something was repaired. [s]"""
SHUT_DOWN: Final = 240.0
"""Time from the end of work to the next boot, where the end was not seen. [s]"""
TO_CORDON: Final = 8 * 3600.0
"""Longest time from a fault to the cordon for its repair. [s]"""
BRIEF: Final = 360.0
"""Duration of a fault without repair, after which what ran there starts again. [s]"""
AGENT: Final = 60.0
"""How long before the first sign of a fault an agent's cordon for it may be seen: it reads the
kernel's log at once, exporters and the kubelet's status follow. [s]"""
NOTICE: Final = 600.0
"""Longest notice with which a provider takes a machine back; a drain waits longer. Ours. [s]"""
SHORT_NOTICE: Final = 120.0
"""The notice of clouds that evict pods in order before they take a machine back: AWS gives two
minutes, others less. [s]"""
FIRST: Final = 300.0
"""How long before a cordon the node may join that replaces the cordoned one: an upgrade with nodes
to spare has it first. Ours. [s]"""
MENDED: Final = 1800.0
"""How long after a fault of a part a reboot counts as its repair: the chance that a host boots by
itself within half an hour of another fault is one in ten thousand. Ours. [s]"""
GPU_AWAY: Final = 600.0
"""A GPU is lost if fewer are offered for so long: a device plugin starts in less. [s]"""
DELETED: Final = 600.0
"""Longest time from the end of an outage or cordon to the deletion of the node to which it led,
beside some samples. Ours. [s]"""
_BOOTED: Final = 120.0
"""How long before an outage was seen its boot may be dated, beside two samples. Ours. [s]"""
_EARLY: Final = 0.1
"""How early a sample may come, as a share of the time between two. [1]"""
_MOSTLY: Final = 0.8
"""A condition whose name does not tell means health if it is true for more than this share of the
time. Ours. [1]"""
_PODS_END: Final = (60.0, 900.0)
"""How long before and after a fault a pod must end for the fault to be believed, where only a
detector shows it. Ours. [s]"""
_CORDONED: Final = 1200.0
"""Longest time from a clean-up XID to the cordon that makes it a fault. Ours. [s]"""
_WENT_ON: Final = 240.0
"""A GPU whose series ended is lost if those of other GPUs go on for longer. Ours. [s]"""
_DIVISION_LEAD: Final = 600.0
"""A node's GPUs were divided anew, not lost, where it began to offer more of another resource at
most so long before. Ours. [s]"""
_SIGN: Final = 240.0
"""A fault so long before an outage is the first sign of it, beside two samples. [s]"""
_FALLEN_OFF: Final = 900.0
"""Where the series of a GPU ends so long after its XID, both are one fault. [s]"""
OUTAGES: Final = (causes.NODE_DOWN, causes.REBOOT, causes.KUBELET_DOWN, causes.NODE_LOST)
"""Causes of failures in which the whole node is away."""
_LINK: Final = re.compile(r"(?<![a-z])nic|link|infiniband|\bib|rdma|roce|ethernet", re.IGNORECASE)
_GPU: Final = re.compile(
    r"gpu|xid|nvlink|nvswitch|nvidia|accelerat|(?<![a-z])ecc|memory.?integrity|interconnect",
    re.IGNORECASE,
)
"""Names of problems of GPUs: node-problem-detector's, those of clouds, and NVIDIA's events."""
_HEALTHY: Final = re.compile(r"(ready|healthy|available|passed|good|ok)$", re.IGNORECASE)
"""Conditions that are true where all is well, as AcceleratedHardwareReady of EKS."""
_BY_PROGRAM: Final = re.compile(r"user|app", re.IGNORECASE)
_DETECTOR: Final = "node-problem-detector counts an XID of hardware"
_GONE: Final = re.compile(r"fallen.?off", re.IGNORECASE)
_WARNING: Final = re.compile(r"non.?fatal", re.IGNORECASE)
"""Node conditions that are no failure.

NVSentinel sets GpuMemWatch, SysLogsXIDError, SysLogsGPUFallenOff, NVSwitchDown and the like for
fatal errors only; DCGMError speaks of the exporter's own daemon, CSPMaintenance of a plan. Source:
NVSentinel, "Integration Guide", node conditions.
"""


def node_incidents(node: NodeTimeline, rules: IncidentRules) -> list[Incident]:
    """All incidents of a node, in order."""
    longest_sign = 2 * node.sample_spacing + _SIGN
    incidents: list[Incident] = []
    events = *_outages(node, rules.shortest_outage_seconds), *_faults(node, rules)
    for event in sorted(events, key=lambda event: event.start):
        last = len(incidents) - 1
        while last >= 0 and not incidents[last].cause.counts:
            last -= 1
        joint = None
        if event.cause.counts and last >= 0:
            joint = _merged(incidents[last], event, longest_sign)
        if joint is None:
            incidents.append(event)
        else:
            incidents[last] = joint
    return [_until_repaired(node, incident) for incident in incidents]


def _merged(before: Incident, event: Incident, longest_sign: float) -> Incident | None:
    """Two failures of a node as one; None where they are two.

    `longest_sign` is the longest time from the first sign of an outage to it. [s]
    """
    evidence = (*before.evidence, *event.evidence)
    was_outage, is_outage = before.cause in OUTAGES, event.cause in OUTAGES
    if is_outage and not was_outage:
        if event.start - before.start <= longest_sign:
            return replace(event, start=before.start, evidence=evidence)
        booted = event.cause in (causes.REBOOT, causes.NODE_DOWN)
        is_repair = booted and event.start <= before.start + MENDED
        if not is_repair:
            return None
        return replace(before, end=event.end, evidence=evidence, mended=event.start)
    if is_outage:
        if event.start - before.end > causes.SHORTEST_OUTAGE:  # it was not up for long enough
            return None
        longest = max(before, event, key=lambda incident: incident.seconds)
        end = max(before.end, event.end)
        return replace(longest, start=before.start, end=end, evidence=evidence)
    if was_outage:  # exporters publish late what happened while the node was away
        is_late = event.start - before.end <= longest_sign
        return replace(before, evidence=evidence) if is_late else None
    if event.start > before.end:
        return None
    is_lost = (
        causes.GPU_LOST in (event.cause, before.cause)
        and event.start - before.start < _FALLEN_OFF + longest_sign
    )
    return replace(
        before,
        cause=causes.GPU_LOST if is_lost else before.cause,
        end=max(before.end, event.end),
        evidence=evidence,
    )


def _until_repaired(node: NodeTimeline, incident: Incident) -> Incident:
    """The incident; an outage that a cordon followed lasts until the cordon ends."""
    if incident.cause not in OUTAGES or incident.cause is causes.NODE_LOST:
        return incident
    since = incident.start - node.sample_spacing
    ends = [
        cordon.end for cordon in node.cordons if since <= cordon.start <= incident.end < cordon.end
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
    """Boots of a node, without those while it had no Node object: they are of another machine."""
    runs = sorted((run for line in node.of(BOOT) for run in line.runs), key=lambda run: run.start)
    boots, last, alive = [], node.presence[0].start, 0.0
    for run in runs:
        if run.value - last > 30.0:  # a clock that is set moves the boot time by seconds
            boot = _Boot(alive or run.value - SHUT_DOWN, run.value)
            if not any(boot.alive < gone.end and run.value > gone.start for gone in node.away):
                boots.append(boot)
        last, alive = max(last, run.value), run.end
    return boots


def _outages(node: NodeTimeline, shortest: float) -> Iterator[Incident]:
    """All outages of a node, planned or not; `shortest` is the least length without a boot. [s]"""
    boots, step, gap = _boots(node), node.sample_spacing, 3 * node.sample_spacing
    used: set[_Boot] = set()
    deletions, joins = node.deletions, node.joins
    explained: set[Span] = set()
    for number, run in enumerate(node.ready):
        if run.value or any(abs(run.start - joined_at) <= gap for joined_at in joins):
            continue  # a machine that joins is not ready at first
        before = node.ready[number - 1] if number else None
        after = node.ready[number + 1] if number + 1 < len(node.ready) else None
        span = _bounds(node, run, before, after)
        last_ready = before.end if before is not None else span.start
        deletion = next(
            (gone for gone in deletions if -gap <= gone.start - span.end <= max(DELETED, gap)), None
        )
        if deletion is not None:
            explained.add(deletion)
            yield _deleted(node, span, last_ready, deletion)
            continue
        since = span.start - 2 * step - _BOOTED
        own_boots = [boot for boot in boots if since <= boot.at <= span.end + step]
        used.update(own_boots)
        span = _by_boots(run, span, own_boots)
        repeats = before is not None and before.value == 0 and run.end == run.start
        if repeats and after is None and not own_boots:
            continue  # one late sample of an outage that is known
        longest = span.seconds if before is None or after is None else after.start - before.end
        is_long = run.end - run.start >= shortest - _EARLY * step or (
            longest > shortest and _is_longer(node, span, shortest)
        )
        yield _outage(node, span, last_ready, own_boots, is_long=is_long)
    for boot in boots:
        if boot not in used:
            yield _silent_reboot(node, boot)
    for deletion in deletions:
        if deletion not in explained:
            yield _taken_away(node, deletion)


def _is_longer(node: NodeTimeline, span: Span, shortest: float) -> bool:
    """Whether an outage was longer, by its samples, or by the ends of pods if these are rare."""
    step = node.sample_spacing
    if step <= shortest / 4:
        return span.seconds - GRACE > shortest
    delays = (pod.ended(step) - span.start for pod in node.pod_timelines)
    return any(shortest - step <= delay <= span.seconds + 2 * step for delay in delays)


def _deleted(node: NodeTimeline, span: Span, last_ready: float, deletion: Span) -> Incident:
    """An outage after which the node was deleted."""
    in_order = _replaced_first(node, deletion.start, last_ready)
    if in_order or _planned(node, last_ready, span.start, ahead=0.0):
        return _taken_away(node, deletion, last=span.start)
    if _shut_down(node.pod_timelines, span, node.sample_spacing):
        evidence = "shut down in order while pods trained on it, then deleted"
        return of_node(node.name, span.start, deletion.end, causes.RECLAIMED, evidence)
    is_back = deletion.end != deletion.start
    cause = causes.NODE_DOWN if is_back else causes.NODE_LOST
    evidence = f"not ready, then deleted{', and made again' if is_back else ''}"
    return of_node(node.name, span.start, deletion.end, cause, evidence)


def ended(timelines: Sequence[PodTimeline], start: float, end: float) -> bool:
    """Whether a pod without success, or a container of a pod, ended between two moments. [s]"""
    return any(
        (not pod.succeeded and start <= (pod.last if pod.over is None else pod.over) <= end)
        or any(start <= stop.at <= end for stop in pod.exits)
        for pod in timelines
    )


def _shut_down(timelines: Sequence[PodTimeline], span: Span, step: float) -> bool:
    """Whether a host shut its pods down in order before it went away; `step`: of samples. [s]"""
    first, last = span.start - GRACE - 2 * step, span.end + step
    return any(pod.shut_down and first <= pod.ended(step) <= last for pod in timelines)


def _taken_away(node: NodeTimeline, deletion: Span, last: float = math.inf) -> Incident:
    """The incident of a node whose object was deleted while nothing was wrong with it; `last` is
    when its machine ended, where that was seen. [s]

    A provider that takes a machine back gives notice minutes before, and what trains there ends.
    Who drains a node waits for longer, evicts its pods in order, has another node first, or makes
    the node again under its name.
    """
    at, until = deletion
    step = node.sample_spacing
    begins = _cordons_before(node, at)
    begin = min(begins, default=at)
    notice = max(0.0, min(at, last) - begin)
    if _replaced_first(node, at):
        evidence = "cordoned, and another node joined before what trained there had ended"
        return of_node(node.name, begin, until, causes.DRAIN, evidence)
    longest = NOTICE if until == at else NOTICE / 2
    if any(pod.drained and pod.last >= begin - step for pod in node.pod_timelines):
        longest = SHORT_NOTICE + GRACE  # the control plane misses a machine only then
    if notice <= longest + step and ended(node.pod_timelines, begin - step, at + NOTICE):
        evidence = f"deleted {at - begin:.0f} s after its first cordon, while pods trained on it"
        alike = ["a provider's notice or an end by age, which look alike"] if begins else []
        return of_node(node.name, begin, at, causes.RECLAIMED, evidence, *alike)
    if begins and not node.removals:
        evidence = "cordoned, then deleted"
        return of_node(node.name, begin, until, causes.DRAIN, evidence)
    by = ["by the cluster autoscaler"] if node.removals else []
    return of_node(node.name, at, at, causes.SCALE_DOWN, "deleted while ready", *by)


def _cordons_before(node: NodeTimeline, at: float) -> list[float]:
    """Starts of the cordons that led to the deletion of a node. [s]"""
    since = at - 3 * node.sample_spacing - DELETED
    return [cordon.start for cordon in node.cordons if cordon.start < at and cordon.end >= since]


def _replaced_first(node: NodeTimeline, at: float, last_ready: float = math.inf) -> bool:
    """Whether a deleted node had been cordoned while it was ready, and another joined before what
    trained on it had ended; `at` is when it was deleted. [s]

    Who swaps a machine waits for the new one before evicting a pod: Karpenter where nodes drift or
    are consolidated, and upgrades with nodes to spare. On a notice, or where a node ends by age,
    pods are evicted at once. Source: Karpenter, "Disruption".
    """
    step, begin = node.sample_spacing, min(_cordons_before(node, at), default=math.inf)
    earlier = (pod.ended(step) for pod in node.pod_timelines if pod.created < begin)
    ends = [end for end in earlier if begin <= end <= at + step]
    until = max(ends, default=-math.inf) - step / 2
    is_joined = any(begin - FIRST <= joined_at <= until for joined_at in node.additions)
    return begin <= last_ready and is_joined


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


def _by_boots(run: ValueRun, span: Span, boots: Sequence[_Boot]) -> Span:
    """An outage bounded by its boots: they tell more closely when the host was last alive, and when
    the node was ready again.
    """
    if not boots:
        return span
    start = max(span.start, min(boots[0].alive, run.start - GRACE))
    return Span(start, max(run.end, min(span.end, boots[-1].at + START_UP)))


def _outage(
    node: NodeTimeline, span: Span, last_ready: float, boots: Sequence[_Boot], *, is_long: bool
) -> Incident:
    """The incident of an outage: planned work, a reboot, a failed host, a kubelet that was away, or
    a short flap.
    """
    start, end = span
    lasted = f"not ready for {span.seconds - GRACE:.0f} s"
    if _planned(node, last_ready, start):
        return of_node(node.name, start, end, causes.DRAIN, "cordoned before it went not ready")
    silent = bool(overlap([span], node.dark or []))
    lasts = end >= node.sampled[-1].end - node.sample_spacing
    if boots or (silent and (BOOT not in node.signals or (lasts and span.seconds > A_REBOOT))):
        cause = causes.NODE_DOWN if span.seconds > A_REBOOT else causes.REBOOT
        why = "another boot time" if boots else "its exporters were silent"
        return of_node(node.name, start, end, cause, lasted, why)
    if is_long:
        also = ["its exporters were silent too"] if silent else []
        return of_node(node.name, start, end, causes.KUBELET_DOWN, lasted, "the same boot", *also)
    return of_node(node.name, start, end, causes.FLAP, lasted)


def _silent_reboot(node: NodeTimeline, boot: _Boot) -> Incident:
    """The incident of a boot between two samples of readiness, or while nothing was sampled.

    In the second case the host went down at any time before the boot, so that the incident begins
    only `SHUT_DOWN` before it.
    """
    step = node.sample_spacing
    start, end = boot.alive + node.gap(BOOT) / 2, boot.at + START_UP
    slack = slack_of_silence(step)
    around = [
        gap.end
        for gap in gaps_in(node.sampled)
        if gap.start - slack <= boot.alive and boot.at <= gap.end + slack
    ]
    unseen = bool(around)
    if boot.at - boot.alive < A_REBOOT or unseen:
        start = max(start, boot.at - SHUT_DOWN)
    evidence = ["another boot time"]
    if unseen:
        evidence += ["nothing was sampled when it went down"]
    is_cordoned = any(
        (cordon.start <= boot.alive and boot.at <= cordon.end)
        or any(abs(cordon.start - gap_end) <= 3 * step for gap_end in around)
        for cordon in node.cordons
    )
    if is_cordoned or _planned(node, min(boot.alive, start), start):
        return of_node(node.name, start, end, causes.DRAIN, "another boot time under a cordon")
    cause = causes.NODE_DOWN if end - start > 2 * A_REBOOT else causes.REBOOT
    reboot = of_node(node.name, start, end, cause, *evidence)
    return replace(reboot, unsure=max(0.0, start - boot.alive) if unseen else 0.0)


def _planned(node: NodeTimeline, last_ready: float, start: float, ahead: float = AGENT) -> bool:
    """Whether a cordon had lasted for `ahead` when the node was last ready, and did not only wait
    for a job that still trained. [s]
    """
    step = node.sample_spacing
    return any(
        cordon.start <= last_ready - ahead
        and cordon.end >= min(last_ready, start) - step
        and not (
            start - cordon.start > WAITED
            and any(_trained(pod, cordon.start, start, step) for pod in node.pod_timelines)
        )
        for cordon in node.cordons
    )


def _trained(pod: PodTimeline, since: float, until: float, step: float) -> bool:
    """Whether a pod ran from one moment to another, but for a sample. [s]"""
    span = pod.running(step)
    return pod.started is not None and span.start <= since and span.end >= until - step


# ------------------------------------------------------------------------------ faults of its parts


class _Rise(NamedTuple):
    """A value that appears; the last sample without it is at `clean`. [s, s, s, 1]"""

    clean: float
    at: float
    end: float
    value: float


def _faults(node: NodeTimeline, rules: IncidentRules) -> Iterator[Incident]:
    """Incidents of a node's GPUs and links: XIDs, lost GPUs, failed remapping, problems."""
    yield from _xids(node, rules.xids)
    yield from _lost_gpus(node)
    for signal in (DETECTED, PROBLEM, REMAP):
        for line in node.of(signal):
            name = "/".join(line.part)
            is_gpu = signal is REMAP or _GPU.search(name)
            if not (is_gpu or _LINK.search(name)) or _WARNING.search(name):
                continue
            cause = causes.GPU_LOST if _GONE.search(name) else causes.GPU_FATAL
            if not is_gpu:
                cause = causes.NIC
            evidence = "row remapping failed" if signal is REMAP else f"problem {name}"
            gauge = line
            if signal is PROBLEM and _is_health(line, node.presence):
                runs = tuple(replace(run, value=1.0 - run.value) for run in line.runs)
                gauge, evidence = replace(line, runs=runs), f"condition {name} is not true"
            for rise in _rises(node, gauge):
                yield _fault(node, rise, cause, evidence)


def _is_health(line: SignalTimeline, presence: Sequence[Span]) -> bool:
    """Whether a condition is true where all is well: by its name, or as it mostly is."""
    if _HEALTHY.search("/".join(line.part)):
        return True
    runs = line.held()
    first, last = runs[0].start, runs[-1].end
    before = [
        Span(span.start, min(span.end, first))
        for span in presence
        if span.start < first and line.unread(span.start, first)
    ]
    after = [
        Span(max(span.start, last), span.end)
        for span in presence
        if span.end > last and line.unread(last, span.end)
    ]
    unread = length(before) + length(after)  # there it was as at its ends, where it must be true
    true = sum(run.end - run.start for run in runs if run.value) + unread
    falls = runs[0].value and runs[-1].value and any(not run.value for run in runs)
    return bool(falls and true > _MOSTLY * (last - first + unread))


def _rises(node: NodeTimeline, line: SignalTimeline) -> Iterator[_Rise]:
    """Changes of a gauge to another value than 0; between two changes it repeats its value."""
    gap, first = node.spacing.get(line.signal, 0.0), line.runs[0]
    appears = (
        line.signal in (PROBLEM, XID_COUNT)
        and any(span.start + 3 * gap + 60 < first.start <= span.end for span in node.presence)
        and not line.begins_read(first.start, 3 * gap + 60)
    )
    if first.value and appears:
        yield _Rise(first.start - gap, first.start - gap / 2, first.end, first.value)
    for before, run in pairwise(line.runs):
        if run.value and run.value != before.value:
            silent = run.start - before.end > 3 * gap
            at = run.start - gap / 2 if silent else (before.end + run.start) / 2
            yield _Rise(run.start - gap if silent else before.end, at, run.end, run.value)


def _published_xids(node: NodeTimeline) -> list[tuple[_Rise, int]]:
    """XIDs by DCGM's gauge of the last one, and by its count of each, in order."""
    near = 2 * node.gap(XID) + 60
    xids = [(rise, int(rise.value)) for line in node.of(XID) for rise in _rises(node, line)]
    for line in node.of(XID_COUNT):
        code, before = int(line.part[0]) if line.part[0].isdigit() else 0, 0.0
        for rise in _rises(node, line) if code else ():
            is_known = any(
                code == other and abs(rise.at - known_rise.at) <= near for known_rise, other in xids
            )
            if rise.value > before and not is_known:
                xids.append((rise, code))
            before = rise.value
    return sorted(xids)


def _xids(node: NodeTimeline, stated: Mapping[str, str]) -> Iterator[Incident]:
    """Faults by XIDs of GPUs, as DCGM publishes them and node-problem-detector counts them."""
    gap = node.gap(XID)
    near = 2 * gap + 60
    xids = _published_xids(node)
    counted = _counted(node)
    explained: list[float] = []
    for rise, code in xids:
        kind = meaning(code, stated)
        if kind is XidMeaning.HARDWARE:
            cause = causes.GPU_LOST if code == OFF_THE_BUS else causes.GPU_FATAL
            yield _fault(node, rise, cause, f"XID {code}")
        elif kind is not XidMeaning.CLEAN_UP:
            cause = causes.XID_WARNING if kind is XidMeaning.NOTE else causes.USER_XID
            yield of_node(node.name, rise.at, rise.at, cause, f"XID {code}")
        # A clean-up follows another XID: near one it is no incident of its own.
        if kind is not XidMeaning.CLEAN_UP:
            explained.append(rise.at)
    # Without DCGM the detector's line in the kernel log is the only witness. It counts programs'
    # faults, too, so a cordon or the end of the node's pods has to confirm it.
    blind = not {XID, XID_COUNT} & node.signals
    for rise in counted:  # the gauge does not change where a GPU reports the same XID again
        held = any(
            meaning(int(run.value), stated) is XidMeaning.HARDWARE
            for line in node.of(XID)
            for run in line.held()
            if run.value and run.start <= rise.at <= run.end + gap
        )
        if held and all(abs(rise.at - other.at) > near for other, _ in xids):
            yield _fault(
                node, rise, causes.GPU_FATAL, _DETECTOR, "a GPU still shows an earlier XID"
            )
        elif blind and (
            any(0 < cordon.start - rise.at <= TO_CORDON for cordon in node.cordons)
            or ended(node.pod_timelines, rise.clean - _PODS_END[0], rise.at + near + _PODS_END[1])
        ):
            yield _fault(node, rise, causes.GPU_FATAL, _DETECTOR)
    for rise, code in xids:
        alone = all(abs(rise.at - other) > near for other in explained)
        if meaning(code, stated) is XidMeaning.CLEAN_UP and alone:
            yield _clean_up(node, rise, code, counted, near)


def _counted(node: NodeTimeline) -> list[_Rise]:
    """Rises of node-problem-detector's counters of problems of GPUs that programs do not make."""
    return [
        rise
        for line in node.of(COUNTED)
        if _GPU.search(line.part[0])
        and not _BY_PROGRAM.search(line.part[0])
        and not _WARNING.search(line.part[0])
        for rise in _rises(node, line)
    ]


def _clean_up(
    node: NodeTimeline, rise: _Rise, code: int, counted: Sequence[_Rise], near: float
) -> Incident:
    """The incident of a clean-up XID: a fault only if the detector or a cordon confirms it."""
    if any(abs(rise.at - other.at) <= near for other in counted):
        return _fault(node, rise, causes.GPU_FATAL, f"XID {code} over another", _DETECTOR)
    longest = _CORDONED + node.gap(XID)
    if any(0 < cordon.start - rise.at <= longest for cordon in node.cordons):
        return _fault(node, rise, causes.GPU_FATAL, f"XID {code}", "cordoned soon after")
    return of_node(node.name, rise.at, rise.at, causes.USER_XID, f"XID {code}")


def _lost_gpus(node: NodeTimeline) -> Iterator[Incident]:
    """GPUs whose series end while those of others go on, or that the kubelet no longer offers."""
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
            if end - run.end > 3 * gap and went_on > max(_WENT_ON, 2 * gap):
                evidence = f"the series of GPU {line.part[0]} ended while others went on"
                rise = _Rise(run.end, run.end + gap / 2, end, 0.0)
                yield _fault(node, rise, causes.GPU_LOST, evidence)
    offered = node.of(ALLOCATABLE)
    for line in offered:
        most = max(run.value for run in line.runs)
        for before, shortage in _shortages(line.runs, most):
            start, end = shortage[0].start, shortage[-1].end
            if end - start >= GPU_AWAY and not _are_divided_anew(offered, shortage):
                count = max(shortage, key=lambda run: run.end - run.start).value
                evidence = f"the node offers {count:g} of {most:g} GPUs"
                rise = _Rise(before, (before + start) / 2, end, 0.0)
                yield _fault(node, rise, causes.GPU_LOST, evidence)


def _shortages(runs: Sequence[ValueRun], most: float) -> Iterator[tuple[float, list[ValueRun]]]:
    """Each stretch of runs below `most`, behind the moment when the value was last `most`. [s]"""
    last, shortage = None, list[ValueRun]()
    for run in runs:
        if run.value < most:
            shortage.append(run)
            continue
        if shortage and last is not None:
            yield last, shortage
        last, shortage = run.end, []
    if shortage and last is not None:
        yield last, shortage


def _are_divided_anew(offered: Sequence[SignalTimeline], shortage: Sequence[ValueRun]) -> bool:
    """Whether the node offers more of another resource during a shortage of one: then its GPUs are
    not lost, but divided into other slices.
    """
    start, end = shortage[0].start - _DIVISION_LEAD, shortage[-1].end
    for line in offered:
        if any(run in line.runs for run in shortage):
            continue
        nothing = ValueRun(-math.inf, -math.inf, 0.0)
        for before, run in pairwise((nothing, *line.runs)):
            if start <= run.start <= end and run.value > before.value:
                return True
    return False


def _fault(
    node: NodeTimeline, rise: _Rise, cause: causes.IncidentCause, *evidence: str
) -> Incident:
    """The incident of a fault: until the cordon for its repair ends, else for `BRIEF`."""
    step, at = node.sample_spacing, rise.at
    before = min(at - step, rise.clean - AGENT - step / 2)
    for cordon in node.cordons:
        if cordon.start < before and at < cordon.end:
            evidence = (*evidence, "under a cordon")
            return of_node(node.name, at, cordon.end, causes.DRAIN, *evidence)
    for cordon in node.cordons:
        if before <= cordon.start <= at + TO_CORDON:
            later = f"cordoned {max(0.0, cordon.start - at) / 60:.0f} min later"
            return of_node(node.name, at, cordon.end, cause, *evidence, later)
    return of_node(node.name, at, at + BRIEF, cause, *evidence)
