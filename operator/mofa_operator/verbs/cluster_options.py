"""Options of verbs that look at a cluster, or at one job of it, through a person's own kubeconfig.

Not a verb.
"""

from __future__ import annotations

import asyncio
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from mofa_model.answers.options import (
    UserQuestion,
    add_options,
    argument,
    as_in,
    option,
    question_of,
    text,
)
from mofa_model.errors import BadFile, UnknownName

if TYPE_CHECKING:
    from mofa_operator.api import Api
    from mofa_operator.credentials import Credentials
    from mofa_operator.fleet.fleet import AnswerTexts, ClusterSeen
    from mofa_operator.keys import Key
    from mofa_operator.snapshot import JobSnapshot

T = TypeVar("T")
_PATIENCE: Final = 2.0
"""How long a Tab may wait for the names of jobs. [s]"""


class ClusterQuestion(UserQuestion):
    """Which cluster is looked at."""

    kubeconfig: str | None = option(
        text,
        "--kubeconfig FILE",
        "kubeconfig (default: KUBECONFIG, ~/.kube/config)",
        group="cluster",
    )
    context: str | None = option(text, "--context NAME", "context of it (default: its current one)")
    namespace: str | None = option(text, "-n --namespace NAME", "namespace (default: all of them)")


class ClusterJobQuestion(ClusterQuestion):
    """Which job of a cluster is looked at."""

    job: str = argument(
        text,
        "JOB",
        "NAME or KIND/NAME, for example jobset/llama3-70b",
        default=MISSING,
        kw_only=False,
    )
    namespace: str | None = as_in(
        ClusterQuestion,
        "namespace",
        "namespace (default: that of the context)",
        group="cluster",
    )


def read(question: ClusterQuestion, ask: Callable[[Api], Awaitable[T]]) -> T:
    """The result of `ask(api)`, asked of the cluster that the options name."""
    from mofa_model.errors import SourceUnreachable
    from mofa_operator.api import Api
    from mofa_operator.api_errors import Busy

    account = credentials(question)

    async def connect_and_ask() -> T:
        async with Api(account) as api:
            try:
                return await ask(api)
            except Busy as error:
                raise SourceUnreachable(
                    f"the API server {account.access.server} does not answer: {error}"
                ) from None

    return asyncio.run(connect_and_ask())


def credentials(question: ClusterQuestion) -> Credentials:
    """Credentials of the kubeconfig and the context that the options name."""
    from mofa_operator.credentials import Credentials

    use_kubeconfig(question.kubeconfig)
    return Credentials.from_environment(question.context)


def namespace(question: ClusterQuestion) -> str:
    """The namespace of -n, else that of the context."""
    from mofa_operator.credentials import namespace_of

    use_kubeconfig(question.kubeconfig)
    return question.namespace or namespace_of(question.context)


def use_kubeconfig(path: str | None) -> None:
    """Let clients read the kubeconfig that --kubeconfig names, which must exist."""
    if path is not None:
        if not os.path.isfile(path):  # noqa: PTH113 - pathlib is slower to import
            raise BadFile(path, "there is no such kubeconfig")
        os.environ["KUBECONFIG"] = path


@dataclass(frozen=True, kw_only=True)
class JobSeen:
    """A job of the cluster, with what its answer depends on."""

    fleet: ClusterSeen
    """The objects of its cluster."""
    key: Key
    """The job that was named, or the TrainingJob that speaks for it."""
    snapshot: JobSnapshot
    """What the operator would know of it."""
    texts: AnswerTexts
    """The answer in its annotations; empty where nobody has answered."""


def add_job_options(parser: ArgumentParser, kind: type[ClusterJobQuestion]) -> None:
    """Give a verb the options of a question on a job, whose names a shell completes."""
    add_options(parser, kind)
    (job,) = (action for action in parser._actions if action.dest == "job")  # noqa: SLF001
    job.completer = _completions  # type: ignore[attr-defined] # argcomplete reads it


def _completions(parsed_args: Namespace, **_: object) -> list[str]:
    """Jobs of the namespace, for a shell that completes; none where the cluster is slow."""
    from mofa_model.errors import MofaError
    from mofa_operator.fleet.fleet import read_fleet

    question = question_of(ClusterQuestion, parsed_args)

    async def job_names(api: Api) -> list[str]:
        async with asyncio.timeout(_PATIENCE):
            fleet = await read_fleet(api, namespace(question))
        return sorted({key.name for key in fleet.jobs})

    try:
        return read(question, job_names)
    except (MofaError, TimeoutError):
        return []


def read_job(question: ClusterJobQuestion) -> JobSeen:
    """Read the job and what its answer depends on."""
    from mofa_operator.fleet.fleet import job_named, read_fleet
    from mofa_operator.fleet.survey import named, written_answer
    from mofa_operator.fleet.survey import question as snapshot_of

    async def read_objects(api: Api) -> JobSeen:
        fleet = await read_fleet(api)
        key = job_named(question.job, fleet.jobs.keys(), namespace(question))
        speaker = fleet.speaker(key)
        if speaker is not None:
            key = speaker.key
        references = await named(api, fleet, [key])
        snapshot = snapshot_of(fleet, key, references[key])
        if snapshot is None:
            raise UnknownName("job", question.job, ())
        texts = written_answer(fleet.jobs[key])
        return JobSeen(fleet=fleet, key=key, snapshot=snapshot, texts=texts)

    return read(question, read_objects)
