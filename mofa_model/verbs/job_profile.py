"""Failures, recoveries and storage of a ClusterProfile, for `mofa ettr` and `mofa simulate`. Not a verb."""

from __future__ import annotations

from mofa_model.errors import BadFile
from mofa_model.files import read_text
from mofa_model.manifest.bundled import bundled_profiles
from mofa_model.manifest.documents import Documents
from mofa_model.manifest.failures import reliability_of, seen_in
from mofa_model.manifest.inputs import cluster_of
from mofa_model.manifest.parsing import Profile, cluster_profile
from mofa_model.manifest.training_job import FailureAssumptions
from mofa_model.spec.reliability import Reliability


def reliability(name: str, nodes: int) -> Reliability:
    """What a profile says of its pool, its assumptions blended with the history in its status."""
    profile = _profile(name)
    return reliability_of(
        FailureAssumptions(),
        profile.spec,
        seen_in(profile.status),
        cluster=cluster_of(profile.spec, nodes),
        asynchronous=True,
        path="profile",
    )


def _profile(name: str) -> Profile:
    bundled = bundled_profiles()
    if name in bundled:
        return bundled[name]
    found = [
        item.value
        for item in Documents.parse(read_text(name), name).items
        if item.value.get("kind") == "ClusterProfile"
    ]
    if len(found) != 1:
        raise BadFile(
            name, f"holds {len(found)} ClusterProfiles; give one, or a bundled name: {', '.join(bundled)}"
        )
    return cluster_profile(found[0])
