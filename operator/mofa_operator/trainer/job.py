"""Which job a log is of, and what is known of it: from options, from a manifest, and from the environment of a pod."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mofa_model import units
from mofa_model.errors import BadFile, BadValue, InputError
from mofa_operator.trainer.progress import Facts

if TYPE_CHECKING:
    from mofa_model.manifest.parsing import Profile
    from mofa_model.manifest.training_job import ClusterPart


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerJob:
    """A job."""

    name: str
    """Its name; empty where nobody said it."""
    namespace: str
    """Its namespace."""
    facts: Facts = field(default_factory=Facts)
    """What is known of it without reading its log."""


def job_of(arguments: Namespace, environment: Mapping[str, str]) -> TrainerJob:
    """The job that options, manifest and environment mean, in this order."""
    given = Facts(
        sequence=_positive("--sequence", arguments.sequence),
        batch=_positive("--global-batch", arguments.global_batch),
        gpus=_positive("--gpus", arguments.gpus),
    )
    stated = (
        TrainerJob(name="", namespace="")
        if arguments.job_file is None
        else from_manifest(arguments.job_file)
    )
    return TrainerJob(
        name=arguments.job or stated.name or environment.get("TRAINING_JOB", ""),
        namespace=arguments.namespace
        or environment.get("POD_NAMESPACE", "")  # a manifest often leaves it out
        or stated.namespace
        or "default",
        facts=given.or_else(stated.facts),
    )


def from_manifest(path: str) -> TrainerJob:
    """A TrainingJob's name and facts; GPUs where it states its nodes and its profile is in the file or bundled."""
    from mofa_model.files import read_text
    from mofa_model.manifest.documents import Documents
    from mofa_model.manifest.parsing import cluster_profile, is_ours, training_job
    from mofa_model.manifest.surroundings import bundled_profiles

    items = [item for item in Documents.parse(read_text(path), path).items if is_ours(item.value)]
    jobs = [training_job(item.value) for item in items if item.kind == "TrainingJob"]
    if len(jobs) != 1:
        raise BadFile(path, f"holds {len(jobs)} TrainingJobs; give a file with one")
    job = jobs[0]
    profiles = dict(bundled_profiles())
    profiles.update(
        (p.name, p) for p in (cluster_profile(i.value) for i in items if i.kind == "ClusterProfile")
    )
    return TrainerJob(
        name=job.name,
        namespace=job.namespace,
        facts=Facts(
            sequence=job.spec.training.sequence_length,
            batch=job.spec.training.global_batch_size,
            gpus=_gpus(job.spec.cluster, profiles.get(job.spec.cluster.profile)),
        ),
    )


def _gpus(cluster: ClusterPart, profile: Profile | None) -> int | None:
    from mofa_model import presets

    if cluster.nodes is None or profile is None:
        return None
    spec = profile.spec
    whole = spec.gpus_per_node or int(presets.cluster(spec.gpu, 1).gpus_per_node)
    return cluster.nodes * (cluster.gpus_per_node or whole)


def _positive(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    value = units.count(text, field=name)
    if value < 1:
        raise BadValue(name, text, "give a whole number of one or more")
    return value


def needed(job: TrainerJob) -> TrainerJob:
    """The job, where its name is known; else what to do about it."""
    if not job.name:
        raise InputError(
            "--job: is missing; give the name of the training job, or set TRAINING_JOB, or give --job-file"
        )
    return job
