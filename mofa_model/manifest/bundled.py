"""ClusterProfiles that come with the package: to try things out, and as a beginning for one's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

from mofa_model.errors import UnknownName
from mofa_model.manifest.documents import Documents
from mofa_model.manifest.parsing import Profile, cluster_profile


@cache
def bundled_profiles() -> Mapping[str, Profile]:
    """All of them, by name."""
    profiles = [
        cluster_profile(item.value)
        for name, text in _texts().items()
        for item in Documents.parse(text, f"{name}.yaml").items
    ]
    return {profile.name: profile for profile in profiles}


def bundled_text(name: str) -> str:
    """The manifest of one, comments included."""
    if name not in _texts():
        raise UnknownName("profile", name, _texts())
    return _texts()[name]


@cache
def _texts() -> Mapping[str, str]:
    """Manifests by file name, which is the profile's name."""
    folder = resources.files("mofa_model.presets").joinpath("profiles")
    found = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".yaml")), key=lambda e: e.name
    )
    return {entry.name.removesuffix(".yaml"): entry.read_text("utf-8") for entry in found}
