"""All jobs of a cluster with their answers and what they lose, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mofa_model.annotations import PREFIX
from mofa_model.kinds.shape import NOTHING
from mofa_operator.api import Api
from mofa_operator.control.references import References
from mofa_operator.decide.answer import answer
from mofa_operator.decide.policy import Handling, handling_of
from mofa_operator.fleet.fleet import ClusterSeen, Told, read_fleet
from mofa_operator.fleet.spending import JobState, Spending, change, spending
from mofa_operator.keys import Key
from mofa_operator.objects import LiveObject
from mofa_operator.observe.cluster.questions import question_bytes
from mofa_operator.snapshot import JobSnapshot, Named


def standing(job: LiveObject) -> Told:
    """The answer that stands on a job."""
    told = {
        key.removeprefix(PREFIX): text
        for key, text in job.annotations.items()
        if key.startswith(PREFIX)
    }
    return told if "status" in told and "inputs-hash" in told else {}


def stance(fleet: ClusterSeen, key: Key) -> Handling:
    """What a job wants of us."""
    found = question(fleet, key, Named())
    return Handling.NOT_ASKED if found is None else handling_of(found)


def unanswered(fleet: ClusterSeen) -> list[Key]:
    """Jobs that ask, and that nobody has answered."""
    return [
        key
        for key, job in fleet.jobs.items()
        if not standing(job) and stance(fleet, key) is Handling.ADVISE
    ]


async def named(api: Api, fleet: ClusterSeen, keys: Iterable[Key]) -> dict[Key, Named]:
    """What jobs name, as the operator reads it; what we may not read is left out."""
    objects = References(api, fleet.store)
    return {key: await objects.read(key) for key in keys}


def question(fleet: ClusterSeen, key: Key, names: Named) -> JobSnapshot | None:
    """What a job asks, as the operator would see it."""
    found = fleet.store.snapshot(key, fleet.now, names)
    return found if isinstance(found, JobSnapshot) else None


def asked(
    fleet: ClusterSeen, names: Mapping[Key, Named], tell: Callable[[float], None]
) -> dict[Key, Told]:
    """Answers to the questions of these jobs; equal questions are answered once.

    `tell` hears the share that is done.
    """
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


@dataclass(frozen=True, kw_only=True, slots=True)
class JobLoss:
    """One job."""

    spent: Spending
    """What it held and lost."""
    told: Told
    """What is advised for it."""
    change: str
    """What to do about it."""


def survey(
    fleet: ClusterSeen, names: Mapping[Key, Named], tell: Callable[[float], None]
) -> list[JobLoss]:
    """Every job of a fleet; those of `names`, which ask and have no answer, are answered here."""
    return lines_of(fleet, asked(fleet, names, tell))


async def read_survey(
    api: Api, namespace: str, *, answer: bool
) -> tuple[ClusterSeen, dict[Key, Named]]:
    """What has to be read; `answer` says whether jobs without an answer get one here."""
    fleet = await read_fleet(api, namespace)
    return fleet, await named(api, fleet, unanswered(fleet)) if answer else {}


def lines_of(fleet: ClusterSeen, answered: Mapping[Key, Told]) -> list[JobLoss]:
    """Each gang of pods once; a TrainingJob with a targetRef has no line of its own."""
    found = []
    for key, job in fleet.jobs.items():
        if fleet.speaks(key):
            continue
        speaker = fleet.speaker(key)
        told = standing(job) or answered.get(key) or {}
        if not told and speaker is not None:
            told = standing(speaker) or answered.get(speaker.key) or {}
        spent = spending(job, speaker, told, fleet.now, fleet.beside.get(key, NOTHING))
        why = stance(fleet, key)
        found.append(JobLoss(spent=spent, told=told, change=change(spent, told, why, job, speaker)))
    return sorted(found, key=_order)


def _order(line: JobLoss) -> tuple[float, float, Key]:
    """The worst first; of those of which nobody can say anything, what held most."""
    spent = line.spent
    lost = -1.0 if spent.lost is None or spent.state is JobState.ASKS else spent.lost
    return -lost, -spent.held, spent.key
