"""The question that a manifest asks; pydantic and the YAML parser are imported here and nowhere else in `advise`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from mofa_model import files
from mofa_model.errors import BadFile
from mofa_model.kinds import KINDS, job_kind
from mofa_model.manifest import jobs
from mofa_model.manifest.asked import Asked
from mofa_model.manifest.bundled import named_profiles
from mofa_model.manifest.documents import LARGEST, Documents, Item
from mofa_model.manifest.surroundings import POLICY, PROFILE, Surroundings, surroundings

_MANY: Final = "`mofa advise` answers for one job, `mofa annotate` for many"
_SHOWN: Final = 5


def asked_in(path: str, profiles: Sequence[str]) -> Asked:
    """What the one job of a file asks; its profile from the same file, from `profiles`, or from those of the package."""
    stream = Documents.parse(files.read_text(path, largest=LARGEST), path)
    around = surroundings([stream], [one for word in profiles for one in named_profiles(word)])
    found = _jobs(stream.items, around)
    if not found:
        raise BadFile(path, _nothing(stream.items))
    if len(found) > 1:
        raise BadFile(path, f"holds {len(found)} jobs, {_named(found)}; {_MANY}")
    return jobs.asked(found[0], around)


def _jobs(items: Sequence[Item], around: Surroundings) -> list[Item]:
    """The TrainingJobs; without any the jobs of other kinds, those that ask for advice before those that do not."""
    ours = [item for item in items if jobs.is_training_job(item)]
    if ours:
        return ours
    others = [item for item in items if job_kind(item.api_version, item.kind)]
    asking = [item for item in others if jobs.mode_of(item, around) not in {None, "Disabled"}]
    return asking or others


def _nothing(items: Sequence[Item]) -> str:
    """What a file without any job holds, and what takes it."""
    if not items:
        return "is empty; give a TrainingJob, or a job of a kind that you have"
    kinds = {item.kind for item in items}
    ours = sorted({"TrainingJob", *(kind.kind for kind in KINDS)})
    for kind in sorted(kinds - {PROFILE, POLICY}):
        if near := get_close_matches(kind, ours, n=1):
            return f"holds no job but {_named(items)}: kind {kind!r} is unknown; did you mean {near[0]}?"
    if kinds == {PROFILE}:
        return (
            f"holds no job but {_named(items)}: give it with --profile beside a job's manifest, or to "
            "`mofa ettr --profile`"
        )
    if POLICY in kinds:
        return f"holds no job but {_named(items)}: `mofa annotate` takes it beside the manifests of jobs"
    return f"holds no job but {_named(items)}; give one of {', '.join(ours)}"


def _named(items: Sequence[Item]) -> str:
    names = [f"{item.kind or 'something without a kind'} {item.name}".rstrip() for item in items]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
