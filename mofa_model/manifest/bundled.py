"""ClusterProfiles by what people call them: by the name of one that comes with the package, or by a file.

bundled_profiles()          those of the package: to try things out, and as a beginning for one's own
named_profile(word)         the one that a word means; named_profiles(word) where a file may hold several
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mofa_model import presets
from mofa_model.errors import BadFile, BadValue, UnknownName
from mofa_model.files import read_text
from mofa_model.manifest.documents import LARGEST, Documents
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


def named_profiles(word: str, field: str = "--profile") -> list[Profile]:
    """The profiles that a word means: the bundled one of that name, else all of a file."""
    return [cluster_profile(value) for value in manifests_of(word, field)]


def named_profile(word: str, field: str = "--profile") -> Profile:
    """The one profile that a word means."""
    found = named_profiles(word, field)
    if len(found) != 1:
        raise BadFile(
            word, f"holds {len(found)} ClusterProfiles; give one, or a bundled name: {_known()}"
        )
    return found[0]


def manifests_of(word: str, field: str = "--profile") -> list[Mapping[str, Any]]:
    """The same as manifests; a word that is neither a name nor a file is refused with the names."""
    if word in _texts():
        text = _texts()[word]
    elif word == "-" or Path(word).exists():
        text = read_text(word, largest=LARGEST)
    else:
        raise BadValue(field, word, f"give a file, or a bundled name: {_known()}")
    found = [
        item.value for item in Documents.parse(text, word).items if item.kind == "ClusterProfile"
    ]
    if not found:
        raise BadFile(word, f"holds no ClusterProfile; give one, or a bundled name: {_known()}")
    return found


def _known() -> str:
    return ", ".join(_texts())


@cache
def _texts() -> Mapping[str, str]:
    """Manifests by file name, which is the profile's name."""
    found = sorted(Path(presets.__file__).with_name("profiles").glob("*.yaml"))
    return {path.stem: path.read_text("utf-8") for path in found}
