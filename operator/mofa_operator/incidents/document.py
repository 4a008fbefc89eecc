"""The past of a pool for programs: `mofa incidents -o json` prints it, and `what-would-help`
replays it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from mofa_model.spec.account import NodeTime, capacity, node_days_lost, summed
from mofa_model.units import DAY
from mofa_operator.incidents.incident import Incident
from mofa_operator.incidents.past import Past
from mofa_operator.incidents.timelines import Span, length


def past_document(seen_past: Past, start: float, end: float) -> dict[str, Any]:
    """The document of a past between two moments, in seconds of the epoch. [s]"""
    by_node = {node: length(spans) / DAY for node, spans in sorted(seen_past.exposed.items())}
    return {
        "start": start,
        "end": end,
        "incidents": [
            incident_document(incident, seen_past.cordons) for incident in seen_past.incidents
        ],
        "exposure": {
            "node_days": sum(by_node.values()),
            "by_node": by_node,
            "job_node_days": {
                job: seconds / DAY for job, seconds in sorted(seen_past.job_seconds.items())
            },
        },
        "recovery": {
            name: {"median_seconds": median(times), "count": len(times)}
            for name, times in seen_past.phases.items()
        },
        "lost_node_days": node_days_lost(seen_past.account),
        "account": account_document(seen_past.account),
        "notes": list(seen_past.warnings),
    }


def account_document(account: Sequence[NodeTime]) -> dict[str, Any]:
    """The document of an account: by day, job, state and cause."""
    return {
        "capacity_node_days": capacity(account),
        "node_days": {row.state.value: row.node_days for row in summed(account)},
        "lost_node_days": node_days_lost(account),
        "rows": [
            {
                "date": row.date,
                "job": row.job,
                "state": row.state.value,
                "cause": row.cause,
                "node_days": row.node_days,
                "machines_node_days": row.machines,
                "estimated_node_days": row.estimated,
                "incidents": list(row.incidents),
            }
            for row in account
        ],
    }


def incident_document(
    incident: Incident, cordons: Mapping[str, Sequence[Span]] | None = None
) -> dict[str, Any]:
    """The document of an incident; `cordons` are those of each node."""
    document: dict[str, Any] = {
        "kind": incident.kind,
        incident.kind: incident.name,
        "id": incident.id,
        "start": incident.start,
        "end": incident.end,
        "cause": incident.cause.word,
        "counts": incident.cause.counts,
        "class": incident.cause.by.value,
        "evidence": list(incident.evidence),
    }
    if incident.unsure:
        document["window"] = [incident.start - incident.unsure, incident.start]
    if incident.deduced is not None:
        document["overruled"] = incident.deduced.word
    if incident.kind == "node" and cordons is not None:
        starts = [
            cordon.start
            for cordon in cordons.get(incident.name, ())
            if cordon.end > incident.start and cordon.start < incident.end
        ]
        document["in_use_seconds"] = max(0.0, min([*starts, incident.end]) - incident.start)
    if incident.cause.counts:
        document["recovery_seconds"] = incident.seconds
    if incident.kind != "node":
        document["nodes"] = list(incident.nodes)
    if incident.recovery_class is not None:
        document |= {
            "infrastructure_share": incident.share,
            "level": incident.recovery_class.value,
            "stood": incident.stood,
            "recovery_seen": incident.timed,
            "phases": dict(incident.phases),
        }
    return document
