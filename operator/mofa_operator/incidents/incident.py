"""An incident: what happened to a node, a domain of nodes or a job, from when to when, why, and how we know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from mofa_model.errors import BadValue
from mofa_model.spec.incident_causes import CAUSES, IncidentCause
from mofa_model.spec.recovery_classes import RecoveryClass

Kind: TypeAlias = Literal["node", "domain", "job"]
"""What an incident is of."""
PHASES: Final[Mapping[str, str]] = {
    "detect": "from when training stopped to the end of the first container or pod",
    "drain": "until the last of the pods that were replaced had ended",
    "queue": "until the last new pod was made",
    "start": "until the last container runs: scheduling, images",
    "load": "until the first step: rendezvous, checkpoint, compiling",
    "redo": "until the step before is finished again: work since the last checkpoint",
}
"""How a job comes back, in order; it trains again after all but the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Incident:
    """One incident, however many series show it."""

    kind: Kind
    """What it is of."""
    name: str
    """The node, the domain, or the job as namespace/name."""
    start: float
    """When it began, in seconds of the epoch. [s]"""
    end: float
    """When all was well again. [s]"""
    cause: IncidentCause
    """Why."""
    evidence: tuple[str, ...]
    """What shows it, in words."""
    nodes: tuple[str, ...] = ()
    """Nodes of a domain; of a job, the node to blame."""
    level: RecoveryClass | None = None
    """What of a job had to be made anew."""
    timed: bool = True
    """Whether its end was seen; else it is an estimate."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """How a job came back, by `PHASES`; those that nobody saw are missing. [s]"""
    stood: int = 0
    """Nodes of a job that stood still. [1]"""
    deduced: IncidentCause | None = None
    """What the cause would be, had nobody overruled it; None = nobody did."""

    @property
    def id(self) -> str:
        """Of what, its name, and when it began: by it somebody overrules the cause."""
        return (
            f"{self.kind}/{self.name}@{datetime.fromtimestamp(self.start, UTC):%Y-%m-%dT%H:%M:%SZ}"
        )

    @property
    def seconds(self) -> float:
        """How long it took. [s]"""
        return max(1.0, self.end - self.start)


def of_node(name: str, start: float, end: float, cause: IncidentCause, *evidence: str) -> Incident:
    """An incident of a node. [s]"""
    return Incident(kind="node", name=name, start=start, end=end, cause=cause, evidence=evidence)


# What somebody knows better: causes of incidents as a profile's spec states them by id.
#
# When an incident began may move by some samples as more is seen, so an id means the one of that name that began nearest.

UNMATCHED: Final = "spec.incidents.overruled names no incident that was seen: "
"""How a warning begins that an id is overruled which no incident has."""
NEAR: Final = 600.0
"""Longest time by which an incident may begin before or after what its id says. [s]"""


def overruled(found: Sequence[Incident], stated: Mapping[str, str]) -> list[Incident]:
    """Incidents with the causes that somebody states, each by its id."""
    made = list(found)
    for text, word in stated.items():
        near = [
            (away, not one.cause.counts, number)
            for number, one in enumerate(made)
            if (away := apart(one, text)) is not None
        ]
        if near:
            *_, number = min(near)
            made[number] = _with(made[number], word)
    return made


def apart(one: Incident, text: str) -> float | None:
    """How far from what an id says an incident began; None where the id is of another. [s]"""
    away = abs(one.start - moment_of(text))
    return away if f"{one.kind}/{one.name}" == text.rpartition("@")[0] and away <= NEAR else None


def moment_of(text: str) -> float:
    """When the incident of an id began, as it says. [s]"""
    try:
        return datetime.fromisoformat(text.rpartition("@")[2]).timestamp()
    except ValueError:
        right = (
            "give the id that mofa incidents prints, for example node/gpu-17@2026-01-31T09:30:00Z"
        )
        raise BadValue("id of an incident", text, right) from None


def _with(one: Incident, word: str) -> Incident:
    level = one.level or (RecoveryClass.PROCESS if one.kind == "job" else None)
    said = (f"overruled; deduced was {one.cause.word}", *one.evidence)
    return replace(
        one, cause=CAUSES[word], deduced=one.deduced or one.cause, level=level, evidence=said
    )
