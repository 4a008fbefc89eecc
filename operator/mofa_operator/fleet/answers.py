"""What is advised for a job: as the operator wrote it, else asked here, by the very call that the operator makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from mofa_model.annotations import PREFIX
from mofa_model.kinds import Kind
from mofa_model.kinds.shape import part
from mofa_operator.api import Api
from mofa_operator.decide.answer import answer
from mofa_operator.decide.stance import Stance, stance_of
from mofa_operator.fleet.fleet import ClusterSeen
from mofa_operator.keys import CONFIG_MAP, Key
from mofa_operator.objects import LiveObject
from mofa_operator.observe.questions import question_bytes
from mofa_operator.refusals import Refused
from mofa_operator.snapshot import JobSnapshot

Told: TypeAlias = Mapping[str, str]
"""Annotations of an answer, without their prefix; empty = there is none."""
Maps: TypeAlias = Mapping[str, Mapping[str, str]]
"""Data of ConfigMaps by name."""


def standing(job: LiveObject) -> Told:
    """The answer that stands on a job."""
    told = {key.removeprefix(PREFIX): text for key, text in job.annotations.items() if key.startswith(PREFIX)}
    return told if "status" in told and "inputs-hash" in told else {}


def stance(fleet: ClusterSeen, key: Key) -> Stance:
    """What a job wants of us."""
    found = question(fleet, key, {})
    return Stance.NOT_ASKED if found is None else stance_of(found)


def unanswered(fleet: ClusterSeen) -> list[Key]:
    """Jobs that ask, and that nobody has answered."""
    return [
        key for key, job in fleet.jobs.items() if not standing(job) and stance(fleet, key) is Stance.ADVISE
    ]


async def config_maps(api: Api, fleet: ClusterSeen, keys: Iterable[Key]) -> dict[Key, Maps]:
    """The ConfigMaps that jobs name, one by one; one that we may not read is as one that is not there."""
    found: dict[Key, Maps] = {}
    for key in keys:
        data: dict[str, Mapping[str, str]] = {}
        for name in fleet.store.config_maps_of(key):
            if (body := await _read(api, CONFIG_MAP, key.namespace, name)) is not None:
                data[name] = part(body, "data")
        found[key] = data
    return found


async def _read(api: Api, kind: Kind, namespace: str, name: str) -> Mapping[str, object] | None:
    try:
        return await api.get(kind, namespace, name)
    except Refused:
        return None


def question(fleet: ClusterSeen, key: Key, maps: Maps) -> JobSnapshot | None:
    """What a job asks, as the operator would see it."""
    found = fleet.store.snapshot(key, fleet.now, maps)
    return found if isinstance(found, JobSnapshot) else None


def asked(fleet: ClusterSeen, maps: Mapping[Key, Maps], tell: Callable[[float], None]) -> dict[Key, Told]:
    """Answers to the questions of these jobs; equal questions are answered once. `tell` hears the share that is done."""
    by_question: dict[bytes, Told] = {}
    found: dict[Key, Told] = {}
    for key, named in maps.items():
        if (snapshot := question(fleet, key, named)) is not None:
            same = question_bytes(snapshot.question)
            if same not in by_question:
                told = answer(snapshot.question).annotations
                by_question[same] = {name.removeprefix(PREFIX): text for name, text in told.items()}
            found[key] = by_question[same]
        tell(1 / len(maps))
    return found
