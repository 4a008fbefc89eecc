"""Failures, recoveries and storage of a ClusterProfile, for `mofa ettr` and `mofa simulate`."""

from __future__ import annotations

from mofa_model.manifest.failures import reliability_of
from mofa_model.manifest.inputs import cluster_of
from mofa_model.manifest.surroundings import named_profile
from mofa_model.manifest.training_job import FailureAssumptions
from mofa_model.spec.reliability import Reliability


def reliability(name: str, nodes: int) -> Reliability:
    """What a profile says of its pool, its assumptions blended with the history in its status."""
    profile = named_profile(name)
    return reliability_of(
        FailureAssumptions(),
        profile.spec,
        profile.status.evidence(),
        cluster=cluster_of(profile.spec, nodes),
        asynchronous=True,
        path="profile",
    )
