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
if TYPE_CHECKING:
    from mofa_operator.api import Api
    from mofa_operator.fleet.fleet import AnswerTexts, ClusterSeen
    from mofa_operator.keys import Key
    from mofa_operator.snapshot import JobSnapshot


T = TypeVar("T")


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
    """What `ask(api)` reads of the cluster that the options name."""
    from mofa_model.errors import SourceUnreachable
    from mofa_operator.api import Api
    from mofa_operator.api_errors import Busy

    known = credentials(arguments)

    async def asked() -> T:
        async with Api(known) as api:
            try:
                return await ask(api)
            except Busy as error:
                raise SourceUnreachable(
                    f"the API server {known.access.server} does not answer: {error}"
                ) from None

    return asyncio.run(asked())


def credentials(arguments: Namespace) -> Credentials:
    """Credentials of the kubeconfig and the context that the options name."""
    from mofa_operator.credentials import Credentials

    _named(arguments)
    return Credentials.from_environment(arguments.context)


def namespace(arguments: Namespace) -> str:
    """The namespace that is meant where one is needed: that of -n, else of the context."""
    from mofa_operator.credentials import namespace_of

    _named(arguments)
    return arguments.namespace or namespace_of(arguments.context)


def _named(arguments: Namespace) -> None:
    if arguments.kubeconfig is not None:
        if not os.path.isfile(arguments.kubeconfig):  # noqa: PTH113 - pathlib is slower to import
            raise BadFile(arguments.kubeconfig, "there is no such kubeconfig")
        os.environ["KUBECONFIG"] = arguments.kubeconfig


_PATIENCE: Final = 2.0
"""Longest that somebody waits for a list after a Tab. [s]"""


@dataclass(frozen=True, kw_only=True)
class JobSeen:
    """What was read_job of it."""

    fleet: ClusterSeen
    """What stands around it."""
    key: Key
    """The job that was named, or the TrainingJob that speaks for it."""
    snapshot: JobSnapshot
    """What it asks."""
    texts: AnswerTexts
    """What stands on it; empty = nobody has answered."""


def add_job_options(parser: ArgumentParser) -> None:
    """Add the argument that names a job, and the options of its cluster and namespace."""
    job = parser.add_argument(
        "job", metavar="JOB", help="NAME or KIND/NAME, for example jobset/llama3-70b"
    )
    job.completer = _names  # type: ignore[attr-defined] # the attribute that argcomplete reads
    add_options(parser, namespace="that of the context")


def _names(parsed_args: Namespace, **_: object) -> list[str]:
    """Jobs of the namespace, for a shell that completes; none where the cluster is slow."""
    from mofa_model.errors import MofaError
    from mofa_operator.fleet.fleet import read_fleet

    async def listed(api: Api) -> list[str]:
        async with asyncio.timeout(_PATIENCE):
            fleet = await read_fleet(api, namespace(parsed_args))
        return sorted({key.name for key in fleet.jobs})

    try:
        return read(parsed_args, listed)
    except (MofaError, TimeoutError):
        return []


def read_job(arguments: Namespace) -> JobSeen:
    """Read the job and what its answer depends on."""
    from mofa_operator.fleet.fleet import job_named, read_fleet
    from mofa_operator.fleet.survey import named, question, written_answer

    async def asked(api: Api) -> JobSeen:
        fleet = await read_fleet(api)
        key = job_named(arguments.job, fleet.jobs.keys(), namespace(arguments))
        speaker = fleet.speaker(key)
        meant = key if speaker is None else speaker.key
        names = await named(api, fleet, [meant])
        snapshot = question(fleet, meant, names[meant])
        if snapshot is None:
            raise UnknownName("job", arguments.job, ())
        return JobSeen(
            fleet=fleet, key=meant, snapshot=snapshot, texts=written_answer(fleet.jobs[meant])
        )

    return read(arguments, asked)
