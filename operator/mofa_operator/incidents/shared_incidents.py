"""What many nodes have in common: taints that are configuration, observers that fail, and faults of
a whole domain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from statistics import median
from typing import Final

from mofa_model.spec import incident_causes as causes
from mofa_model.units import DAY, HOUR
from mofa_operator.incidents.incident import Incident
from mofa_operator.incidents.node_incidents import OUTAGES, TO_CORDON, ended
from mofa_operator.incidents.timelines import (
    CORDON,
    TAINT,
    NodeTimeline,
    PodTimeline,
    Span,
    joined,
    length,
    overlap,
    spans_of,
    without,
)

_MOST: Final = 0.5
"""Share of a pool's nodes above which what they share is no matter of single nodes. [1]"""
_DOMAIN: Final = 3
"""Fewest nodes that make an outage of a domain: two may fail at once by chance. [1]"""
_PAIR: Final = 2
"""Nodes that do where a label is theirs alone. [1]"""
_OF_DOMAINS: Final = (
    *(causes.NODE_DOWN, causes.REBOOT, causes.KUBELET_DOWN),
    *(causes.GPU_FATAL, causes.GPU_LOST, causes.NIC),
)
"""Causes of faults that a domain may share: a rack's power or switch, an NVLink domain."""
_WITHIN: Final = 300.0
"""How far from both ends of a taint a pod is made that was placed under it. Ours. [s]"""
_PODS_END: Final = (60.0, 600.0)
"""How long before and after an outage a pod ends that the outage ended. Ours. [s]"""
_BY_AGENTS: Final = ("problem ", "condition ")
"""How evidence of conditions begins, which agents set."""


def configured(
    timelines: Mapping[str, NodeTimeline],
    pod_timelines: Mapping[str, Sequence[PodTimeline]],
    repairing: AbstractSet[str] = frozenset(),
) -> Callable[[str], frozenset[str]]:
    """Keys of taints that are configuration of a node and no cordon; empty text: unschedulable is.
    What stands on nodes that are known to be in repair is none. `pod_timelines` are those of each
    node.

    A cordon is a change. What stands throughout, or on most of the pool for days, or what training
    pods are placed under, is how the pool is set up.
    """
    standing: defaultdict[str, dict[str, list[Span]]] = defaultdict(dict)
    for node in timelines.values():
        for signal in (CORDON, TAINT):
            for line in node.of(signal):
                spans = spans_of(line.runs, 1.0, node.spacing.get(signal, 0.0))
                if spans:
                    spans_before = standing["".join(line.part)].get(node.name, [])
                    standing["".join(line.part)][node.name] = joined([*spans_before, *spans])

    def throughout(key: str, name: str) -> bool:
        node = timelines[name]
        left = without(overlap(node.presence, node.sampled), standing[key][name])
        return length(left) <= 3 * node.sample_spacing

    def usual(key: str) -> bool:
        spans = standing[key]
        placed = any(
            a + _WITHIN < pod.created < b - _WITHIN and pod.started is not None and pod.started < b
            for name, many in spans.items()
            for a, b in many
            for pod in pod_timelines.get(name, ())
        )
        most = len(spans) > _MOST * len(timelines)
        lasting = sum(any(span.seconds > DAY for span in many) for many in spans.values())
        return placed or (most and lasting > _MOST * len(timelines))

    everywhere = frozenset(key for key in standing if usual(key))
    always: defaultdict[str, set[str]] = defaultdict(set)
    for key, by_name in standing.items():
        for name in by_name:
            is_wide = key or len(by_name) > _MOST * len(timelines)
            if name not in repairing and is_wide and throughout(key, name):
                always[name].add(key)

    def keys(name: str) -> frozenset[str]:
        return everywhere | always[name] if name in always else everywhere

    return keys


def additions(timelines: Mapping[str, NodeTimeline]) -> tuple[float, ...]:
    """When nodes joined a pool in which none was missing. [s]

    A node that joins within an hour of another's deletion takes its place, and one that is deleted
    within an hour of an addition leaves it its place.
    """
    events = [
        (span.start, name, False) for name, node in timelines.items() for span in node.deletions
    ]
    events += [(at, name, True) for name, node in timelines.items() for at in node.joins]
    missing: list[float] = []
    spare: list[float] = []
    moments: list[float] = []
    for at, _, joins in sorted(events):
        missing = [other for other in missing if at - other <= HOUR]
        spare = [other for other in spare if at - other <= HOUR]
        waiting, others = (spare, missing) if joins else (missing, spare)
        if others:
            others.pop(0)
            continue
        waiting.append(at)
        if joins:
            moments.append(at)
    return tuple(moments)


def seen_by_observer(
    incidents: Sequence[Incident],
    timelines: Mapping[str, NodeTimeline],
    sample_spacing: float,
) -> list[Incident]:
    """The incidents; those that only whoever watches the nodes saw are one, and no failure.

    Where many nodes go quiet at once while their exporters speak and what trains there goes on, the
    observer failed. [s]
    """
    doubtful = [i for i in incidents if i.cause is causes.KUBELET_DOWN or _is_told(i)]
    rest = [i for i in incidents if i not in doubtful]
    for group in _at_once(doubtful, sample_spacing):
        pods = [pod for i in group for pod in timelines[i.name].pod_timelines]
        start, end = group[0].start, max(i.end for i in group)
        lives = [pod for pod in pods if pod.created < start < pod.last]
        cordoned = any(
            start - sample_spacing < a <= end + TO_CORDON
            for i in group
            for a, _ in timelines[i.name].cordons
        )
        speaks = all(
            not overlap([Span(i.start, i.end)], timelines[i.name].dark or []) for i in group
        )
        went_on = not ended(pods, start - _PODS_END[0], min(end, start + HOUR) + _PODS_END[1])
        whole = len(group) >= _DOMAIN and not cordoned
        if whole and went_on and (lives or speaks):
            evidence = f"{len(group)} nodes at once, and what ran on them went on"
            rest.append(
                replace(
                    group[0],
                    kind="domain",
                    name=_several(group),
                    end=end,
                    cause=causes.OBSERVER,
                    nodes=tuple(sorted(i.name for i in group)),
                    evidence=(evidence, *group[0].evidence),
                )
            )
        else:
            rest += (_unless_work_went_on(i, timelines[i.name]) for i in group)
    return sorted(rest, key=lambda incident: (incident.start, incident.name))


def _unless_work_went_on(incident: Incident, node: NodeTimeline) -> Incident:
    """A problem that only an agent tells, as a note where it stopped nothing: what trained there
    did so for an hour more, and nobody cordoned the node for it.
    """
    start, until = incident.start, incident.start + HOUR
    before = start - 60 - node.sample_spacing
    stopped_nothing = (
        _is_told(incident, _BY_AGENTS)
        and any(pod.created < before and pod.last > until for pod in node.pod_timelines)
        and not ended(node.pod_timelines, before, until)
        and not any(a <= start + TO_CORDON and b > before for a, b in node.cordons)
    )
    if not stopped_nothing:
        return incident
    evidence = (*incident.evidence, "what trained there went on, and nobody cordoned it")
    return replace(incident, cause=causes.XID_WARNING, end=start, evidence=evidence)


def _is_told(
    incident: Incident, beginnings: tuple[str, ...] = (*_BY_AGENTS, "the node offers ")
) -> bool:
    """Whether only a node condition or its count of GPUs shows a fault, and nothing else does."""
    return incident.cause in (causes.GPU_FATAL, causes.GPU_LOST, causes.NIC) and all(
        text.startswith(beginnings) for text in incident.evidence
    )


def _at_once(incidents: Sequence[Incident], sample_spacing: float) -> list[list[Incident]]:
    """Incidents in groups that began together; `sample_spacing` is the time between samples. [s]"""
    groups: list[list[Incident]] = []
    for incident in sorted(incidents, key=lambda i: i.start):
        if groups and incident.start - groups[-1][0].start <= sample_spacing + 60.0:
            groups[-1].append(incident)
        else:
            groups.append([incident])
    return groups


def _several(group: Sequence[Incident]) -> str:
    names = sorted({i.name for i in group})
    return f"{names[0]} and {len(names) - 1} more"


def domains(
    incidents: Sequence[Incident], labels: Mapping[str, Mapping[str, str]], sample_spacing: float
) -> list[Incident]:
    """Incidents of nodes; faults that began together in one domain are one, of any cause. [s]"""
    faults = [
        i for i in incidents if i.cause.counts and i.kind == "node" and i.cause in _OF_DOMAINS
    ]
    rest = [i for i in incidents if i not in faults]
    for group in _at_once(faults, sample_spacing):
        rest += _of_domains(group, labels)
    return sorted(rest, key=lambda incident: (incident.start, incident.name))


def _of_domains(
    group: list[Incident], labels: Mapping[str, Mapping[str, str]]
) -> Iterator[Incident]:
    """Faults that began together as one of the smallest label that they have in common.

    Three at once have one cause, whether or not a label says which; two only where a label is
    theirs alone.
    """
    left = {i.name: i for i in group}
    everywhere = Counter(pair for pairs in labels.values() for pair in pairs.items())
    while len(left) > 1:
        counts = Counter(pair for name in left for pair in labels.get(name, {}).items())
        shared = [
            (count, -everywhere[pair], pair)
            for pair, count in counts.items()
            if everywhere[pair] < len(labels)
            and (
                everywhere[pair] <= max(2 * count, count + 2)
                if count >= _DOMAIN
                else everywhere[pair] == count == _PAIR
            )
        ]
        if shared:
            _, _, (label, value) = max(shared)
            members = [i for i in left.values() if labels.get(i.name, {}).get(label) == value]
            name, with_label = value, f"with {label}={value} "
            if len(left) - len(members) >= _PAIR:  # several domains at once have a cause above them
                members = list(left.values())
                name, with_label = _several(members), ""
        elif len(left) >= _DOMAIN:
            members = list(left.values())
            name, with_label = _several(members), ""
        else:
            break
        first = min(members, key=lambda i: i.start)
        common = Counter(i.cause for i in members).most_common(1)[0][0]
        is_down = common in OUTAGES and (
            common is not causes.KUBELET_DOWN or "its exporters were silent too" in first.evidence
        )
        yield replace(
            first,
            kind="domain",
            name=name,
            end=median(i.end for i in members),
            cause=causes.RACK_OUTAGE if is_down else common,
            nodes=tuple(sorted(i.name for i in members)),
            evidence=(f"{len(members)} nodes {with_label}at once", *first.evidence),
        )
        for member in members:
            left.pop(member.name, None)
    yield from left.values()
