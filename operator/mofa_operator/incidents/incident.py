"""An incident: what happened to a node, a domain or a job, when, why, and what shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal

from mofa_model.errors import BadValue
from mofa_model.spec.incident_causes import CAUSES, DRAIN, IncidentCause
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.incidents.timelines import Span

PHASES: Final[Mapping[str, str]] = {
    "detect": "from when training stopped to the end of the first container or pod",
    "drain": "until the last of the pods that were replaced had ended",
    "queue": "until the last new pod was made",
    "start": "until the last container runs: scheduling, images",
    "load": "until the first step: rendezvous, checkpoint, compiling",
    "redo": "until the step before is finished again: work since the last checkpoint",
}
"""The phases of a job's recovery, in order; it trains again after all but the last."""
UNMATCHED: Final = "spec.incidents.overruled names no incident that was seen: "
"""How the warning begins for an overruled id that no incident has."""
NEAR: Final = 600.0
"""How far an incident's start may be from its id: it moves as more samples are read. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Incident:
    """One incident, however many series show it."""

    kind: Literal["node", "domain", "job"]
    name: str
    """The node, the domain, or the job as namespace/name."""
    start: float
    """In seconds of the epoch. [s]"""
    end: float
    """When the node was healthy again, or the job trained again. [s]"""
    cause: IncidentCause
    evidence: tuple[str, ...]
    """What shows it, in words."""
    nodes: tuple[str, ...] = ()
    """Nodes of a domain; of a job, the nodes that caused it."""
    fault: Incident | None = None
    """Of a job: the incident of a node or domain that caused it."""
    recovery_class: RecoveryClass | None = None
    """Of a job: what had to be made anew."""
    lasts: bool = False
    """Whether it is not over yet: then its end is the last moment that was read, and its cause is
    the best that is known so far."""
    mended: float | None = None
    """When the host was booted to mend a fault of a part; None = it was not. [s]"""
    unsure: float = 0.0
    """How much earlier it may have begun, where nothing was sampled. [s]"""
    timed: bool = True
    """Whether its end was seen; otherwise the end is an estimate."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Time of each phase of `PHASES` that was seen. [s]"""
    stood: int = 0
    """Nodes of a job that stood still. [1]"""
    share: float = 1.0
    """The chance that the machines made it stop, where signs had to be weighed; else 1 or 0 by its
    cause. [1]"""
    deduced: IncidentCause | None = None
    """The cause before somebody overruled it; None = nobody did."""

    @property
    def id(self) -> str:
        """Kind, name and start in one word, by which a profile overrules the cause."""
        return (
            f"{self.kind}/{self.name}@{datetime.fromtimestamp(self.start, UTC):%Y-%m-%dT%H:%M:%SZ}"
        )

    @property
    def charged(self) -> IncidentCause:
        """The cause to which its cost is charged: its own, or the fault for whose repair a job was
        moved.
        """
        if self.cause is DRAIN and self.fault is not None and self.fault.cause.counts:
            return self.fault.cause
        return self.cause

    @property
    def span(self) -> Span:
        """From its start to its end."""
        return Span(self.start, self.end)

    @property
    def seconds(self) -> float:
        """How long it lasted. [s]"""
        return max(1.0, self.end - self.start)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFacts:
    """What the cluster knows of a job, and what no series shows."""

    saves_every: float | None = None
    """Time between two saves; None = unknown. [s]"""
    saves_off: float = 0.0
    """Possible error of `saves_every`, as a share of it. [1]"""
    save_seconds: float | None = None
    """For how long a save holds up training; None = unknown. [s]"""
    wanted: bool = False
    """Whether its object is there and asks for nodes: it trains or waits."""


def of_node(name: str, start: float, end: float, cause: IncidentCause, *evidence: str) -> Incident:
    """An incident of a node. [s]"""
    return Incident(kind="node", name=name, start=start, end=end, cause=cause, evidence=evidence)


def of_job(name: str, start: float, end: float, cause: IncidentCause, *evidence: str) -> Incident:
    """An incident of a job that is no failure. [s]"""
    return Incident(kind="job", name=name, start=start, end=end, cause=cause, evidence=evidence)


def overruled(incidents: Sequence[Incident], stated: Mapping[str, str]) -> list[Incident]:
    """The incidents, with the causes that a profile states by id, for the nearest of the name."""
    corrected = list(incidents)
    for text, word in stated.items():
        candidates = [
            (distance, not incident.cause.counts, number)
            for number, incident in enumerate(corrected)
            if (distance := time_apart(incident, text)) is not None
        ]
        if candidates:
            *_, number = min(candidates)
            corrected[number] = _with_cause(corrected[number], CAUSES[word])
    return corrected


def time_apart(incident: Incident, text: str) -> float | None:
    """Time between an incident's start and the moment in an id; None for another incident. [s]"""
    distance = abs(incident.start - moment_of(text))
    is_same = f"{incident.kind}/{incident.name}" == text.rpartition("@")[0]
    return distance if is_same and distance <= NEAR else None


def moment_of(text: str) -> float:
    """The moment in an id. [s]"""
    try:
        return datetime.fromisoformat(text.rpartition("@")[2]).timestamp()
    except ValueError:
        right = (
            "give the id that mofa incidents prints, for example node/gpu-17@2026-01-31T09:30:00Z"
        )
        raise BadValue("id of an incident", text, right) from None


def _with_cause(incident: Incident, cause: IncidentCause) -> Incident:
    return replace(
        incident,
        cause=cause,
        deduced=incident.deduced or incident.cause,
        recovery_class=incident.recovery_class
        or (RecoveryClass.PROCESS if incident.kind == "job" else None),
        evidence=(f"overruled; deduced was {incident.cause.word}", *incident.evidence),
    )
