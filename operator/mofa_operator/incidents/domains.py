"""Nodes of one domain that went down at the same moment: one incident, not as many as there are nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Final

from mofa_model.spec import incident_causes as causes
from mofa_operator.incidents.incident import Incident

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
