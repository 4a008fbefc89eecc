"""The job that writes a log, by options, a manifest and the environment of its pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mofa_model.errors import BadFile, InputError
from mofa_operator.trainer.facts import Facts

if TYPE_CHECKING:
    from mofa_model.answers.reviewed import ReviewedLaunch
    from mofa_model.manifest.parsing import Profile
    from mofa_model.manifest.training_job import ClusterPart
    from mofa_operator.trainer.question import ObserveQuestion


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerJob:
    """A job; its name is empty where it is unknown."""

    name: str
    namespace: str
    facts: Facts = field(default_factory=Facts)


def job_of(question: ObserveQuestion, environment: Mapping[str, str]) -> TrainerJob:
    """The job, by options first, then its manifest or script, then the environment."""
    options = Facts(
        sequence=question.sequence, batch=question.global_batch_size, gpus=question.gpus
    )
    stated = TrainerJob(name="", namespace="")
    if question.job_file is not None:
        stated = from_manifest(question.job_file)
    elif question.script is not None:
        stated = from_launch(launch_in(question.script))
    name = environment.get("TRAINING_JOB", "") or environment.get("SLURM_JOB_NAME", "")
    return TrainerJob(
        name=question.job or stated.name or name,
        namespace=question.namespace
        or environment.get("POD_NAMESPACE", "")  # a manifest often leaves it out
        or stated.namespace
        or "default",
        facts=options.or_else(stated.facts),
    )


def from_manifest(path: str) -> TrainerJob:
    """The name and facts of a file's TrainingJob; its GPUs where nodes and profile are known."""
    from mofa_model.files import read_text
    from mofa_model.manifest.documents import Documents
    from mofa_model.manifest.parsing import cluster_profile, is_ours, training_job
    from mofa_model.manifest.surroundings import bundled_profiles

    items = [item for item in Documents.parse(read_text(path), path).items if is_ours(item.value)]
    jobs = [training_job(item.value) for item in items if item.kind == "TrainingJob"]
    if len(jobs) != 1:
        raise BadFile(path, f"holds {len(jobs)} TrainingJobs; give a file with one")
    job = jobs[0]
    stated = (cluster_profile(item.value) for item in items if item.kind == "ClusterProfile")
    profiles = {**bundled_profiles(), **{profile.name: profile for profile in stated}}
    return TrainerJob(
        name=job.name,
        namespace=job.namespace,
        facts=Facts(
            sequence=job.spec.training.sequence_length,
            batch=job.spec.training.global_batch_size,
            gpus=_gpus(job.spec.cluster, profiles.get(job.spec.cluster.profile)),
        ),
    )


def launch_in(path: str) -> ReviewedLaunch:
    """The launch of a batch script, or of a manifest with one job."""
    from mofa_model.answers.reviewed import launches_in
    from mofa_model.files import read_text

    launches = [
        launch for launch in launches_in(read_text(path), path) if launch.launch_found is not None
    ]
    if len(launches) != 1:
        raise BadFile(path, f"starts {len(launches)} known trainers; give a file that starts one")
    return launches[0]


def from_launch(reviewed: ReviewedLaunch) -> TrainerJob:
    """What a launch says of its job."""

    def number(name: str) -> int | None:
        fact = reviewed.facts.get(name)
        return int(fact.value) if fact is not None else None

    return TrainerJob(
        name=reviewed.kind.partition(" ")[2],
        namespace="",
        facts=Facts(
            sequence=number("sequence_length"), batch=number("global_batch"), gpus=number("devices")
        ),
    )


def with_name(job: TrainerJob) -> TrainerJob:
    """The job itself; raises InputError, with what to do, where its name is unknown."""
    if not job.name:
        raise InputError(
            "--job: is missing; give the name of the training job, "
            "or set TRAINING_JOB, or give --job-file"
        )
    return job


def _gpus(cluster: ClusterPart, profile: Profile | None) -> int | None:
    from mofa_model import presets

    if cluster.nodes is None or profile is None:
        return None
    spec = profile.spec
    whole = spec.gpus_per_node or int(presets.cluster(spec.gpu, 1).gpus_per_node)
    return cluster.nodes * (cluster.gpus_per_node or whole)
