"""ClusterProfiles that come with the package: to try things out, and as a beginning for one's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

from mofa_model.manifest.documents import Documents
from mofa_model.manifest.parsing import Profile, cluster_profile


@cache
def bundled_profiles() -> Mapping[str, Profile]:
    """All of them, by name."""
    folder = resources.files("mofa_model.presets").joinpath("profiles")
    found = {}
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".yaml"):
            for item in Documents.parse(file.read_text("utf-8"), file.name).items:
                profile = cluster_profile(item.value)
                found[profile.name] = profile
    return found
