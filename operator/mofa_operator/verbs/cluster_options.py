"""Options of verbs that look at a cluster, or at one job of it, through a person's own kubeconfig.

Not a verb.
"""

from __future__ import annotations

import asyncio
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

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


def add_options(parser: ArgumentParser, *, namespace: str) -> None:
    """Give a verb --kubeconfig, --context and -n; `namespace` says its default."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig (default: KUBECONFIG, ~/.kube/config)"
    )
    group.add_argument("--context", metavar="NAME", help="context of it (default: its current one)")
    group.add_argument(
        "-n", "--namespace", metavar="NAME", help=f"namespace (default: {namespace})"
    )


def read(arguments: Namespace, ask: Callable[[Api], Awaitable[T]]) -> T:
    """The result of `ask(api)`, asked of the cluster that the options name."""
    from mofa_model.errors import SourceUnreachable
    from mofa_operator.api import Api
    from mofa_operator.api_errors import Busy

    account = credentials(arguments)

    async def connect_and_ask() -> T:
        async with Api(account) as api:
            try:
                return await ask(api)
            except Busy as error:
                raise SourceUnreachable(
                    f"the API server {account.access.server} does not answer: {error}"
                ) from None

    return asyncio.run(connect_and_ask())


def credentials(arguments: Namespace) -> Credentials:
    """Credentials of the kubeconfig and the context that the options name."""
    from mofa_operator.credentials import Credentials

    use_kubeconfig(arguments)
    return Credentials.from_environment(arguments.context)


def namespace(arguments: Namespace) -> str:
    """The namespace of -n, else that of the context."""
    from mofa_operator.credentials import namespace_of

    use_kubeconfig(arguments)
    return arguments.namespace or namespace_of(arguments.context)


def use_kubeconfig(arguments: Namespace) -> None:
    """Let clients read the kubeconfig that --kubeconfig names, which must exist."""
    if arguments.kubeconfig is not None:
        if not os.path.isfile(arguments.kubeconfig):  # noqa: PTH113 - pathlib is slower to import
            raise BadFile(arguments.kubeconfig, "there is no such kubeconfig")
        os.environ["KUBECONFIG"] = arguments.kubeconfig


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


def add_job_options(parser: ArgumentParser) -> None:
    """Add the argument that names a job, and the options of its cluster and namespace."""
    job = parser.add_argument(
        "job", metavar="JOB", help="NAME or KIND/NAME, for example jobset/llama3-70b"
    )
    job.completer = _completions  # type: ignore[attr-defined] # argcomplete reads it
    add_options(parser, namespace="that of the context")


def _completions(parsed_args: Namespace, **_: object) -> list[str]:
    """Jobs of the namespace, for a shell that completes; none where the cluster is slow."""
    from mofa_model.errors import MofaError
    from mofa_operator.fleet.fleet import read_fleet

    async def job_names(api: Api) -> list[str]:
        async with asyncio.timeout(_PATIENCE):
            fleet = await read_fleet(api, namespace(parsed_args))
        return sorted({key.name for key in fleet.jobs})

    try:
        return read(parsed_args, job_names)
    except (MofaError, TimeoutError):
        return []


def read_job(arguments: Namespace) -> JobSeen:
    """Read the job and what its answer depends on."""
    from mofa_operator.fleet.fleet import job_named, read_fleet
    from mofa_operator.fleet.survey import named, question, written_answer

    async def read_objects(api: Api) -> JobSeen:
        fleet = await read_fleet(api)
        key = job_named(arguments.job, fleet.jobs.keys(), namespace(arguments))
        speaker = fleet.speaker(key)
        if speaker is not None:
            key = speaker.key
        references = await named(api, fleet, [key])
        snapshot = question(fleet, key, references[key])
        if snapshot is None:
            raise UnknownName("job", arguments.job, ())
        texts = written_answer(fleet.jobs[key])
        return JobSeen(fleet=fleet, key=key, snapshot=snapshot, texts=texts)

    return read(arguments, read_objects)
