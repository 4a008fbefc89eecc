"""What happened to one node: its outages and the faults of its parts, each once.

What lies near in time is one incident: an XID just before the host dies is the first sign of that, and the cordon and the reboot
that follow a fault are its repair.
"""

from __future__ import annotations

from dataclasses import replace

from mofa_model.manifest.incident_rules import IncidentRules
from mofa_model.spec import incident_causes as causes
from mofa_operator.incidents.faults import faults
from mofa_operator.incidents.incident import Incident
from mofa_operator.incidents.node_life import NodeLife
from mofa_operator.incidents.outages import OUTAGES, outages


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
