"""What somebody knows better: causes of incidents as a profile's spec states them by id.

When an incident began may move by some samples as more is seen, so an id means the one of that name that began nearest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from mofa_model.errors import BadValue
from mofa_model.spec.incident_causes import CAUSES
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.incidents.incident import Incident

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
