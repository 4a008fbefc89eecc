"""All jobs of a cluster with their answers and what they lose, the largest loss first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mofa_model.annotations import PREFIX
from mofa_model.kinds.shape import NO_OBJECTS
from mofa_operator.api import Api
from mofa_operator.control.references import References
from mofa_operator.decide.answer import answer
from mofa_operator.decide.policy import Handling, handling_of
from mofa_operator.fleet.fleet import AnswerTexts, ClusterSeen, read_fleet
from mofa_operator.fleet.spending import JobState, PoolAccount, Spending, change, spending
from mofa_operator.keys import Key
from mofa_operator.objects import LiveObject
from mofa_operator.observe.cluster.questions import question_bytes
from mofa_operator.observe.nodes import count_nodes
from mofa_operator.snapshot import JobSnapshot, Named


def written_answer(job: LiveObject) -> AnswerTexts:
    """The advisor's annotations on a job, without their prefix; empty where they are incomplete."""
    ours = (item for item in job.annotations.items() if item[0].startswith(PREFIX))
    texts = {name.removeprefix(PREFIX): text for name, text in ours}
    return texts if "status" in texts and "inputs-hash" in texts else {}


def handling(fleet: ClusterSeen, key: Key) -> Handling:
    """How the operator handles a job: it advises, is paused or disabled, or was not asked."""
    snapshot = question(fleet, key, Named())
    return Handling.NOT_ASKED if snapshot is None else handling_of(snapshot)


def unanswered(fleet: ClusterSeen) -> list[Key]:
    """Jobs that ask for advice and have no answer."""
    return [
        key
        for key, job in fleet.jobs.items()
        if not written_answer(job) and handling(fleet, key) is Handling.ADVISE
    ]


async def named(api: Api, fleet: ClusterSeen, keys: Iterable[Key]) -> dict[Key, Named]:
    """The objects that each job names, as the operator reads them; unreadable ones are left out."""
    objects = References(api, fleet.store)
    return {key: await objects.read(key) for key in keys}


def question(fleet: ClusterSeen, key: Key, names: Named) -> JobSnapshot | None:
    """The snapshot of a job as the operator sees it; None where the job asks nothing."""
    snapshot = fleet.store.snapshot(key, fleet.now, names)
    return snapshot if isinstance(snapshot, JobSnapshot) else None


def answers_of(
    fleet: ClusterSeen, names: Mapping[Key, Named], tell: Callable[[float], None]
) -> dict[Key, AnswerTexts]:
    """Answers to the questions of these jobs; equal questions are computed once.

    After each job, `tell` is called with its share of the work.
    """
    by_question: dict[bytes, AnswerTexts] = {}
    answers: dict[Key, AnswerTexts] = {}
    for key, named_objects in names.items():
        if (snapshot := question(fleet, key, named_objects)) is not None:
            encoded = question_bytes(snapshot.question)
            if encoded not in by_question:
                annotations = answer(snapshot.question).annotations
                by_question[encoded] = {
                    name.removeprefix(PREFIX): text for name, text in annotations.items()
                }
            answers[key] = by_question[encoded]
        tell(1 / len(names))
    return answers


@dataclass(frozen=True, kw_only=True, slots=True)
class JobLoss:
    """One job."""

    spending: Spending
    """What it held and lost."""
    change: str
    """What to do about it."""


def survey(
    fleet: ClusterSeen, names: Mapping[Key, Named], tell: Callable[[float], None]
) -> list[JobLoss]:
    """Every job of a fleet; those of `names`, which ask and have no answer, are answered here."""
    return lines_of(fleet, answers_of(fleet, names, tell))


async def read_survey(
    api: Api, namespace: str, *, answer: bool
) -> tuple[ClusterSeen, dict[Key, Named]]:
    """The jobs of a cluster; and of those without an answer the objects that their questions name,
    where `answer` says that they are to be answered here.
    """
    fleet = await read_fleet(api, namespace)
    return fleet, await named(api, fleet, unanswered(fleet)) if answer else {}


def lines_of(fleet: ClusterSeen, answered: Mapping[Key, AnswerTexts]) -> list[JobLoss]:
    """A line for each job; a TrainingJob whose targetRef names one has no line of its own."""
    lines, accounts = [], accounts_by_job(fleet)
    for key, job in fleet.jobs.items():
        if fleet.speaks(key):
            continue
        speaker = fleet.speaker(key)
        texts = written_answer(job) or answered.get(key) or {}
        if not texts and speaker is not None:
            texts = written_answer(speaker) or answered.get(speaker.key) or {}
        beside = fleet.beside.get(key, NO_OBJECTS)
        spent = spending(job, speaker, texts, fleet.now, beside, accounts.get(key.full_name))
        lines.append(
            JobLoss(spending=spent, change=change(spent, texts, handling(fleet, key), job, speaker))
        )
    return sorted(lines, key=_order)


def pool_accounts(fleet: ClusterSeen) -> dict[str, PoolAccount]:
    """The account of each pool whose ledger has one."""
    accounts = {}
    for profile in sorted(fleet.store.profiles(), key=lambda profile: profile.key.name):
        if profile.account:
            gpus = count_nodes(profile.spec.node_selector, fleet.node_facts.items()).gpus
            gpus_per_node = max(gpus, key=lambda number: (gpus[number], number), default=0)
            accounts[profile.key.name] = PoolAccount(
                rows=profile.account, gpus_per_node=gpus_per_node
            )
    return accounts


def accounts_by_job(fleet: ClusterSeen) -> dict[str, PoolAccount]:
    """The first account that names a job, by the full name of the job."""
    by_job: dict[str, PoolAccount] = {}
    for account in pool_accounts(fleet).values():
        for row in account.rows:
            by_job.setdefault(row.job, account)
    return by_job


def _order(line: JobLoss) -> tuple[float, float, Key]:
    """Sort key of a line: the largest loss first, then unknown losses by GPU time held."""
    spent = line.spending
    lost = None if spent.state is JobState.ASKS else spent.gpu_hours_lost
    return 1.0 if lost is None else -lost, -spent.gpu_hours, spent.key
