"""A question as it is understood in a cluster, where the ClusterProfiles there count and no others."""

from __future__ import annotations

from mofa_model.advice import Request
from mofa_model.errors import InputError
from mofa_model.manifest import jobs
from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.documents import Item
from mofa_model.manifest.inputs import to_inputs
from mofa_model.manifest.jobs import Asked
from mofa_model.manifest.parsing import Profile, advisor_policy, cluster_profile, parse
from mofa_model.manifest.surroundings import Surroundings
from mofa_model.manifest.training_job import TrainingJobSpec
from mofa_operator.snapshot import Question


class NoProfile(InputError):
    """The ClusterProfile that is named does not exist."""


def asked(question: Question) -> Asked:
    """What a question asks; raises errors of `mofa_model.errors` where it cannot be understood."""
    return (
        _training_job(question)
        if question.job.get("kind") == "TrainingJob"
        else _existing(question)
    )


def example() -> Request:
    """A request that leaves next to nothing to search, for whoever wants everything imported and read before the first question."""
    one = {"values": [1]}
    job = {
        "model": {"preset": "llama3.1-8b"},
        "training": {
            "sequenceLength": 4096,
            "globalBatchSize": 64,
            "tokens": "1T",
            "framework": "megatron",
        },
        "cluster": {"profile": "warm", "nodes": 1},
        "constraints": dict.fromkeys(("tp", "pp", "cp", "mbs"), one) | {"recompute": ["none"]},
    }
    profile = Profile(name="warm", spec=ClusterProfileSpec(gpu="h100"))
    return to_inputs(TrainingJobSpec.model_validate(job), profile)


def _training_job(question: Question) -> Asked:
    """A TrainingJob as it is; its errors call the spec `spec`, because equal specs share an answer and not a name."""
    spec = parse(TrainingJobSpec, question.job.get("spec"), "spec")
    if not question.profiles:
        name = spec.cluster.profile
        raise NoProfile(
            f"spec.cluster.profile: there is no ClusterProfile {name!r}; see kubectl get cprof"
        )
    profile = cluster_profile(question.profiles[0])
    ref = spec.model.config_map_ref
    config = question.config_maps.get(ref.name, {}).get(ref.key) if ref is not None else None
    return Asked(spec=spec, profile=profile, config=config, path="spec")


def _existing(question: Question) -> Asked:
    """An existing job as the TrainingJob that it amounts to; a mode that cannot be is said here."""
    item = Item(question.job, None)
    around = Surroundings(
        profiles={profile.name: profile for profile in map(cluster_profile, question.profiles)},
        policies=[advisor_policy(policy) for policy in question.policies],
        config_maps={(item.namespace, name): data for name, data in question.config_maps.items()},
        beside={item.namespace: question.beside},
    )
    jobs.mode_of(item, around)
    return jobs.question_of(item, around)
