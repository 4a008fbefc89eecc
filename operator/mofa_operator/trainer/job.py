"""The job that writes a log, by options, a manifest and the environment of its pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final

from mofa_model.errors import BadFile, InputError

if TYPE_CHECKING:
    from mofa_model.answers.reviewed import ReviewedLaunch
    from mofa_model.manifest.parsing import Profile
    from mofa_model.manifest.training_job import ClusterPart
    from mofa_operator.trainer.question import ObserveQuestion

SHAPE: Final = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary")
"""Labels of the series with the shape of a model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known of a job; None = unknown."""

    sequence: int | None = None
    """Tokens in a sequence. [1]"""
    batch: int | None = None
    """Sequences in a step. [1]"""
    gpus: int | None = None
    layers: int | None = None
    """Layers of its model. [1]"""
    hidden: int | None = None
    """Hidden size of its model. [1]"""
    heads: int | None = None
    """Attention heads of its model. [1]"""
    groups: int | None = None
    """Heads of keys and values; they count only where `grouped`. [1]"""
    grouped: bool | None = None
    """Whether queries share heads of keys and values."""
    ffn: int | None = None
    """Width of the feed-forward block of its model. [1]"""
    vocabulary: int | None = None
    """Tokens that its model knows. [1]"""

    def or_else(self, other: Facts) -> Facts:
        """These facts, with unknown ones taken from `other`."""
        own = {fact.name: getattr(self, fact.name) for fact in fields(Facts)}
        return replace(other, **{name: value for name, value in own.items() if value is not None})

    @property
    def tokens_per_step(self) -> int | None:
        """Tokens in a step of the whole job. [1]"""
        return None if self.sequence is None or self.batch is None else self.sequence * self.batch

    @property
    def shape(self) -> dict[str, str]:
        """The sizes of its model by SHAPE; empty where too few are known.

        >>> Facts(layers=32, hidden=4096, heads=32, groups=1).shape["kv_heads"]
        ''
        """
        if self.layers is None or self.hidden is None or self.heads is None:
            return {}
        groups = self.groups if self.grouped else None
        sizes = (self.layers, self.hidden, self.heads, groups, self.ffn, self.vocabulary)
        return {name: str(size or "") for name, size in zip(SHAPE, sizes, strict=True)}


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
