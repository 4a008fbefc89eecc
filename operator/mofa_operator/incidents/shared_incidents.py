"""What many nodes share: taints that are configuration, observers that fail, and faults of a whole
domain.
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
"""What more than this share of a pool's nodes have in common is not of single nodes. [1]"""
_DOMAIN: Final = 3
"""Fewest nodes of an outage of a domain: two may fail at once by chance. [1]"""
_PAIR: Final = 2
"""Fewest nodes of one where no other node has their label. [1]"""
_OF_DOMAINS: Final = (
    *(causes.NODE_DOWN, causes.REBOOT, causes.KUBELET_DOWN),
    *(causes.GPU_FATAL, causes.GPU_LOST, causes.NIC),
)
"""Causes of faults that a domain may share: a rack's power or switch, an NVLink domain."""
_WITHIN: Final = 300.0
"""A pod that is made at least so far from both ends of a taint was placed under it. Ours. [s]"""
_PODS_END: Final = (60.0, 600.0)
"""A pod that ends at most so long before or after an outage ended with it. Ours. [s]"""
_BY_AGENTS: Final = ("problem ", "condition ")
"""How the evidence of conditions begins, which agents set."""


def configured(
    timelines: Mapping[str, NodeTimeline],
    pod_timelines: Mapping[str, Sequence[PodTimeline]],
    repairing: AbstractSet[str] = frozenset(),
) -> Callable[[str], frozenset[str]]:
    """A function from a node's name to the keys of its taints that are configuration and no cordon;
    an empty text means unschedulable. `pod_timelines` are those of each node.

    A cordon is a change. A taint is configuration where a node that is not known to be in repair
    has it throughout, where most of the pool has it for days, or where training pods are placed
    under it.
    """
    by_key: defaultdict[str, dict[str, list[Span]]] = defaultdict(dict)
    for node in timelines.values():
        for signal in (CORDON, TAINT):
            for line in node.of(signal):
                spans = spans_of(line.runs, 1.0, node.spacing.get(signal, 0.0))
                if spans:
                    of_key = by_key["".join(line.part)]
                    of_key[node.name] = joined([*of_key.get(node.name, []), *spans])
    most = _MOST * len(timelines)

    def is_throughout(spans: list[Span], name: str) -> bool:
        node = timelines[name]
        rest = without(overlap(node.presence, node.sampled), spans)
        return length(rest) <= 3 * node.sample_spacing

    def is_of_pool(by_name: Mapping[str, list[Span]]) -> bool:
        has_placed = any(
            span.start + _WITHIN < pod.created < span.end - _WITHIN
            and pod.started is not None
            and pod.started < span.end
            for name, spans in by_name.items()
            for span in spans
            for pod in pod_timelines.get(name, ())
        )
        lasting = sum(any(span.seconds > DAY for span in spans) for spans in by_name.values())
        return has_placed or (len(by_name) > most and lasting > most)

    of_pool = frozenset(key for key, by_name in by_key.items() if is_of_pool(by_name))
    of_node: defaultdict[str, set[str]] = defaultdict(set)
    for key, by_name in by_key.items():
        for name, spans in by_name.items():
            is_wide = key or len(by_name) > most
            if name not in repairing and is_wide and is_throughout(spans, name):
                of_node[name].add(key)

    def keys(name: str) -> frozenset[str]:
        return of_pool | of_node[name] if name in of_node else of_pool

    return keys


def additions(timelines: Mapping[str, NodeTimeline]) -> tuple[float, ...]:
    """When nodes joined a pool while none was missing. [s]

    A node that joins within an hour after another's deletion replaces it, and so does one that
    joined within an hour before.
    """
    events = [
        (span.start, name, False) for name, node in timelines.items() for span in node.deletions
    ]
    events += [(start, name, True) for name, node in timelines.items() for start in node.joins]
    missing: list[float] = []
    spare: list[float] = []
    moments: list[float] = []
    for now, _, joins in sorted(events):
        missing = [moment for moment in missing if now - moment <= HOUR]
        spare = [moment for moment in spare if now - moment <= HOUR]
        waiting, others = (spare, missing) if joins else (missing, spare)
        if others:
            others.pop(0)
            continue
        waiting.append(now)
        if joins:
            moments.append(now)
    return tuple(moments)


def seen_by_observer(
    incidents: Sequence[Incident],
    timelines: Mapping[str, NodeTimeline],
    sample_spacing: float,
) -> list[Incident]:
    """The incidents; where only the observer of many nodes failed, theirs are one, and no failure.

    The observer failed where many nodes go quiet at once and nothing that trains there ends, while
    something trains there or their exporters publish. [s]
    """
    doubtful = [
        incident
        for incident in incidents
        if incident.cause is causes.KUBELET_DOWN or _is_reported(incident)
    ]
    judged = [incident for incident in incidents if incident not in doubtful]
    for group in _at_once(doubtful, sample_spacing):
        nodes = [timelines[incident.name] for incident in group]
        pods = [pod for node in nodes for pod in node.pod_timelines]
        start, end = group[0].start, max(incident.end for incident in group)
        has_trained = any(pod.created < start < pod.last for pod in pods)
        cordoned = any(
            start - sample_spacing < cordon.start <= end + TO_CORDON
            for node in nodes
            for cordon in node.cordons
        )
        published = not any(
            overlap([incident.span], node.dark or [])
            for incident, node in zip(group, nodes, strict=True)
        )
        went_on = not ended(pods, start - _PODS_END[0], min(end, start + HOUR) + _PODS_END[1])
        if len(group) >= _DOMAIN and not cordoned and went_on and (has_trained or published):
            evidence = f"{len(group)} nodes at once, and what ran on them went on"
            judged.append(
                replace(
                    group[0],
                    kind="domain",
                    name=_several(group),
                    end=end,
                    cause=causes.OBSERVER,
                    nodes=tuple(sorted(node.name for node in nodes)),
                    evidence=(evidence, *group[0].evidence),
                )
            )
        else:
            judged += map(_unless_work_went_on, group, nodes)
    return sorted(judged, key=lambda incident: (incident.start, incident.name))


def _unless_work_went_on(incident: Incident, node: NodeTimeline) -> Incident:
    """The incident; one that only an agent reports becomes a note where it stopped nothing: what
    trained there went on for an hour more, and nobody cordoned the node.
    """
    start, until = incident.start, incident.start + HOUR
    before = start - 60 - node.sample_spacing
    stopped_nothing = (
        _is_reported(incident, _BY_AGENTS)
        and any(pod.created < before and pod.last > until for pod in node.pod_timelines)
        and not ended(node.pod_timelines, before, until)
        and not any(
            cordon.start <= start + TO_CORDON and cordon.end > before for cordon in node.cordons
        )
    )
    if not stopped_nothing:
        return incident
    evidence = (*incident.evidence, "what trained there went on, and nobody cordoned it")
    return replace(incident, cause=causes.XID_WARNING, end=start, evidence=evidence)


def _is_reported(
    incident: Incident, beginnings: tuple[str, ...] = (*_BY_AGENTS, "the node offers ")
) -> bool:
    """Whether only a node's condition, or its count of GPUs, shows a fault of a part."""
    return incident.cause in (causes.GPU_FATAL, causes.GPU_LOST, causes.NIC) and all(
        text.startswith(beginnings) for text in incident.evidence
    )


def _at_once(incidents: Sequence[Incident], sample_spacing: float) -> list[list[Incident]]:
    """Incidents in groups that began together; `sample_spacing` is the time between samples. [s]"""
    groups: list[list[Incident]] = []
    for incident in sorted(incidents, key=lambda incident: incident.start):
        if groups and incident.start - groups[-1][0].start <= sample_spacing + 60.0:
            groups[-1].append(incident)
        else:
            groups.append([incident])
    return groups


def _several(group: Sequence[Incident]) -> str:
    names = sorted({incident.name for incident in group})
    return f"{names[0]} and {len(names) - 1} more"


def domains(
    incidents: Sequence[Incident], labels: Mapping[str, Mapping[str, str]], sample_spacing: float
) -> list[Incident]:
    """Incidents of nodes; faults that began together in one domain are one, of any cause. [s]"""
    faults = [
        incident
        for incident in incidents
        if incident.cause.counts and incident.kind == "node" and incident.cause in _OF_DOMAINS
    ]
    judged = [incident for incident in incidents if incident not in faults]
    for group in _at_once(faults, sample_spacing):
        judged += _of_domains(group, labels)
    return sorted(judged, key=lambda incident: (incident.start, incident.name))


def _of_domains(
    group: list[Incident], labels: Mapping[str, Mapping[str, str]]
) -> Iterator[Incident]:
    """Faults that began together, joined to one for the smallest domain whose label they share.

    Three at once have one cause, whether or not a label shows it; two only where no other node has
    their label.
    """
    single = {incident.name: incident for incident in group}
    in_pool = Counter(pair for pairs in labels.values() for pair in pairs.items())
    while len(single) > 1:
        counts = Counter(pair for name in single for pair in labels.get(name, {}).items())
        shared = [
            (count, -in_pool[pair], pair)
            for pair, count in counts.items()
            if in_pool[pair] < len(labels)
            and (
                in_pool[pair] <= max(2 * count, count + 2)
                if count >= _DOMAIN
                else in_pool[pair] == count == _PAIR
            )
        ]
        if not shared and len(single) < _DOMAIN:
            break
        members, with_label = list(single.values()), ""
        name = _several(members)
        if shared:
            _, _, (label, value) = max(shared)
            of_domain = [
                fault for fault in members if labels.get(fault.name, {}).get(label) == value
            ]
            if (
                len(members) - len(of_domain) < _PAIR
            ):  # else several domains have a cause above them
                members, name, with_label = of_domain, value, f"with {label}={value} "
        first = min(members, key=lambda fault: fault.start)
        common = Counter(fault.cause for fault in members).most_common(1)[0][0]
        is_down = common in OUTAGES and (
            common is not causes.KUBELET_DOWN or "its exporters were silent too" in first.evidence
        )
        yield replace(
            first,
            kind="domain",
            name=name,
            end=median(fault.end for fault in members),
            cause=causes.RACK_OUTAGE if is_down else common,
            nodes=tuple(sorted(fault.name for fault in members)),
            evidence=(f"{len(members)} nodes {with_label}at once", *first.evidence),
        )
        for member in members:
            single.pop(member.name, None)
    yield from single.values()
