"""One job of a cluster, with its question and its answer, for the verbs that look at one. Not a verb."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mofa_model.errors import UnknownName
from mofa_operator.verbs import cluster_options

if TYPE_CHECKING:
    from mofa_operator.api import Api
    from mofa_operator.fleet.answers import Told
    from mofa_operator.fleet.fleet import Fleet
    from mofa_operator.keys import Key
    from mofa_operator.snapshot import JobSnapshot


@dataclass(frozen=True, kw_only=True)
class JobSeen:
    """What was read of it."""

    fleet: Fleet
    """What stands around it."""
    key: Key
    """The job that was named, or the TrainingJob that speaks for it."""
    snapshot: JobSnapshot
    """What it asks."""
    told: Told
    """What stands on it; empty = nobody has answered."""


def add_options(parser: ArgumentParser) -> None:
    """The job, and where it is."""
    parser.add_argument("job", metavar="JOB", help="NAME or KIND/NAME, for example jobset/llama3-70b")
    cluster_options.add_options(parser, namespace="that of the context")


def read(arguments: Namespace) -> JobSeen:
    """Read the job and what its answer depends on."""
    from mofa_operator.fleet.answers import config_maps, question, standing
    from mofa_operator.fleet.fleet import read_fleet
    from mofa_operator.fleet.naming import job_named

    async def asked(api: Api) -> JobSeen:
        fleet = await read_fleet(api)
        key = job_named(arguments.job, fleet.jobs.keys(), cluster_options.namespace(arguments))
        speaker = fleet.speaker(key)
        meant = key if speaker is None else speaker.key
        maps = await config_maps(api, fleet, [meant])
        snapshot = question(fleet, meant, maps[meant])
        if snapshot is None:
            raise UnknownName("job", arguments.job, ())
        return JobSeen(fleet=fleet, key=meant, snapshot=snapshot, told=standing(fleet.jobs[meant]))

    return cluster_options.read(arguments, asked)
