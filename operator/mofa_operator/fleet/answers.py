"""What is advised for a job: as the operator wrote it, else asked here, by the very call that the operator makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from mofa_model.annotations import PREFIX
from mofa_operator.api import Api
from mofa_operator.control.named import NamedObjects
from mofa_operator.decide.answer import answer
from mofa_operator.decide.stance import Stance, stance_of
from mofa_operator.fleet.fleet import ClusterSeen
from mofa_operator.keys import Key
from mofa_operator.objects import LiveObject
from mofa_operator.observe.cluster.questions import question_bytes
from mofa_operator.snapshot import JobSnapshot, Named

Told: TypeAlias = Mapping[str, str]
"""Annotations of an answer, without their prefix; empty = there is none."""


def standing(job: LiveObject) -> Told:
    """The answer that stands on a job."""
    told = {
        key.removeprefix(PREFIX): text
        for key, text in job.annotations.items()
        if key.startswith(PREFIX)
    }
    return told if "status" in told and "inputs-hash" in told else {}


def stance(fleet: ClusterSeen, key: Key) -> Stance:
    """What a job wants of us."""
    found = question(fleet, key, Named())
    return Stance.NOT_ASKED if found is None else stance_of(found)


def unanswered(fleet: ClusterSeen) -> list[Key]:
    """Jobs that ask, and that nobody has answered."""
    return [
        key
        for key, job in fleet.jobs.items()
        if not standing(job) and stance(fleet, key) is Stance.ADVISE
    ]


async def named(api: Api, fleet: ClusterSeen, keys: Iterable[Key]) -> dict[Key, Named]:
    """What jobs name, read as the operator reads it; what we may not read is as what is not there."""
    objects = NamedObjects(api, fleet.store)
    return {key: (await objects.read(key)).named for key in keys}


def question(fleet: ClusterSeen, key: Key, names: Named) -> JobSnapshot | None:
    """What a job asks, as the operator would see it."""
    found = fleet.store.snapshot(key, fleet.now, names)
    return found if isinstance(found, JobSnapshot) else None


def asked(
    fleet: ClusterSeen, names: Mapping[Key, Named], tell: Callable[[float], None]
) -> dict[Key, Told]:
    """Answers to the questions of these jobs; equal questions are answered once. `tell` hears the share that is done."""
    by_question: dict[bytes, Told] = {}
    found: dict[Key, Told] = {}
    for key, one in names.items():
        if (snapshot := question(fleet, key, one)) is not None:
            same = question_bytes(snapshot.question)
            if same not in by_question:
                told = answer(snapshot.question).annotations
                by_question[same] = {name.removeprefix(PREFIX): text for name, text in told.items()}
            found[key] = by_question[same]
        tell(1 / len(names))
    return found
