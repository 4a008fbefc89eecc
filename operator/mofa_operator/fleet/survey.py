"""All jobs of a fleet with what they lose, the worst first: reads the cluster, then reckons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mofa_model.kinds.shape import NOTHING
from mofa_operator.api import Api
from mofa_operator.fleet.answers import Told, asked, named, stance, standing, unanswered
from mofa_operator.fleet.changes import change
from mofa_operator.fleet.fleet import ClusterSeen, read_fleet
from mofa_operator.fleet.spending import JobState, Spending, spending
from mofa_operator.keys import Key
from mofa_operator.snapshot import Named


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
    """What has to be read for it; `answer` says whether jobs without an answer are to get one here."""
    fleet = await read_fleet(api, namespace)
    return fleet, await named(api, fleet, unanswered(fleet)) if answer else {}


def lines_of(fleet: ClusterSeen, answered: Mapping[Key, Told]) -> list[JobLoss]:
    """Every gang of pods once; a TrainingJob whose targetRef names a job speaks for it and has no line of its own."""
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
