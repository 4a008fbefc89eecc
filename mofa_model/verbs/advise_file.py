"""The request that a manifest makes. Not a verb; pydantic and the YAML parser are imported here and nowhere else in `advise`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mofa_model import files
from mofa_model.advice import Request
from mofa_model.errors import BadFile, UnknownName
from mofa_model.manifest.bundled import bundled_profiles
from mofa_model.manifest.documents import LARGEST, Documents
from mofa_model.manifest.inputs import to_inputs
from mofa_model.manifest.parsing import Profile, cluster_profile, training_job


def request_of_file(path: str, profiles: Sequence[str]) -> Request:
    """The one TrainingJob of a file; its profile from the same file, from `profiles`, or from those of the package."""
    items = Documents.parse(files.read_text(path, largest=LARGEST), path).items
    jobs = [item.value for item in items if item.kind == "TrainingJob"]
    if len(jobs) != 1:
        raise BadFile(
            path, f"holds {len(jobs)} TrainingJobs; `mofa advise` answers for one, `mofa annotate` for many"
        )
    job = training_job(jobs[0])
    known: dict[str, Profile] = dict(bundled_profiles())
    for other in profiles:
        more = Documents.parse(files.read_text(other, largest=LARGEST), other).items
        known |= {p.name: p for p in (cluster_profile(i.value) for i in more if i.kind == "ClusterProfile")}
    known |= {p.name: p for p in (cluster_profile(i.value) for i in items if i.kind == "ClusterProfile")}
    name = job.spec.cluster.profile
    if name not in known:
        raise UnknownName("spec.cluster.profile", name, known)
    ref = job.spec.model.config_map_ref
    config = None if ref is None else _config(items, ref.name, ref.key, path)
    return to_inputs(job.spec, known[name], config=config)


def _config(items: Sequence[object], name: str, key: str, path: str | Path) -> str:
    """Text of a ConfigMap that stands in the same file."""
    for item in items:
        value = getattr(item, "value", {})
        if value.get("kind") == "ConfigMap" and value.get("metadata", {}).get("name") == name:
            text = value.get("data", {}).get(key)
            if isinstance(text, str):
                return text
    raise BadFile(path, f"names the ConfigMap {name} with key {key}, which does not stand in it")
