"""One job of a cluster, with its question and its answer, for the verbs that look at one. Not a verb."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mofa_model.errors import UnknownName
from mofa_operator.verbs import cluster_options

if TYPE_CHECKING:
    from mofa_operator.api import Api
    from mofa_operator.fleet.answers import Told
    from mofa_operator.fleet.fleet import ClusterSeen
    from mofa_operator.keys import Key
    from mofa_operator.snapshot import JobSnapshot

_PATIENCE: Final = 2.0
"""Longest that somebody waits for a list after a Tab. [s]"""


@dataclass(frozen=True, kw_only=True)
class JobSeen:
    """What was read of it."""

    fleet: ClusterSeen
    """What stands around it."""
    key: Key
    """The job that was named, or the TrainingJob that speaks for it."""
    snapshot: JobSnapshot
    """What it asks."""
    told: Told
    """What stands on it; empty = nobody has answered."""


def add_options(parser: ArgumentParser) -> None:
    """The job, and where it is."""
    job = parser.add_argument(
        "job", metavar="JOB", help="NAME or KIND/NAME, for example jobset/llama3-70b"
    )
    job.completer = _names  # type: ignore[attr-defined] # the attribute that argcomplete reads
    cluster_options.add_options(parser, namespace="that of the context")


def _names(parsed_args: Namespace, **_: object) -> list[str]:
    """Jobs of the namespace, for a shell that completes; none where the cluster does not say them at once."""
    from mofa_model.errors import MofaError
    from mofa_operator.fleet.fleet import read_fleet

    async def listed(api: Api) -> list[str]:
        async with asyncio.timeout(_PATIENCE):
            fleet = await read_fleet(api, cluster_options.namespace(parsed_args))
        return sorted({key.name for key in fleet.jobs})

    try:
        return cluster_options.read(parsed_args, listed)
    except (MofaError, TimeoutError):
        return []


def read(arguments: Namespace) -> JobSeen:
    """Read the job and what its answer depends on."""
    from mofa_operator.fleet.answers import named, question, standing
    from mofa_operator.fleet.fleet import read_fleet
    from mofa_operator.fleet.naming import job_named

    async def asked(api: Api) -> JobSeen:
        fleet = await read_fleet(api)
        key = job_named(arguments.job, fleet.jobs.keys(), cluster_options.namespace(arguments))
        speaker = fleet.speaker(key)
        meant = key if speaker is None else speaker.key
        names = await named(api, fleet, [meant])
        snapshot = question(fleet, meant, names[meant])
        if snapshot is None:
            raise UnknownName("job", arguments.job, ())
        return JobSeen(fleet=fleet, key=meant, snapshot=snapshot, told=standing(fleet.jobs[meant]))

    return cluster_options.read(arguments, asked)
