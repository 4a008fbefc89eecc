"""The question that a manifest asks; pydantic and the YAML parser are imported here and nowhere else in `advise`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from mofa_model import files, presets
from mofa_model.answers.door import said_of
from mofa_model.answers.question import option_of
from mofa_model.errors import BadFile, BadValue
from mofa_model.kinds import KINDS, job_kind
from mofa_model.manifest import jobs
from mofa_model.manifest.documents import LARGEST, Documents, Item
from mofa_model.manifest.jobs import Asked
from mofa_model.manifest.surroundings import (
    POLICY,
    PROFILE,
    Surroundings,
    named_profiles,
    surroundings,
)

if TYPE_CHECKING:
    from mofa_model.answers.advise import AdviceQuestion

_BESIDE: Final = frozenset(
    {
        *(
            "file",
            "profile",
            "objective",
            "risk",
            "allow",
            "by_estimate",
            "constraints",
            "lift",
            "current",
        ),
        *("top", "launch", "probe", "runs"),
    }
)
"""What is asked beside a manifest; all else the manifest says."""


_MANY: Final = "`mofa advise` answers for one job, `mofa annotate` for many"
_SHOWN: Final = 5


def asked(question: AdviceQuestion) -> Asked:
    """What a manifest asks."""
    found = asked_in(str(question.file), question.profile)
    if given := [option_of(name) for name in said_of(question) if name not in _BESIDE]:
        right = "it is a job's file, which says such things itself: write it there, or give all by options and no file"
        raise BadValue(", ".join(given), question.file, right)
    return found


def with_model(asked: AdviceQuestion) -> AdviceQuestion:
    """A model that is given in the place of a job's file is the model."""
    if not _is_model(str(asked.file)):
        return asked
    if asked.model is not None:
        raise BadValue("--model", asked.model, f"{asked.file} is a model too; give one of them")
    return replace(asked, file=None, model=asked.file)


def _is_model(word: str) -> bool:
    """Whether what stands in the place of a job's file is a model: a preset, a model hub's config.json or the folder with it."""
    kind = files.found(word)
    if kind == "folder":
        return files.found(f"{word}/config.json") == "file"
    if not kind:
        return bool(presets.meanings("models", word)) or presets.is_address(word)
    if not word.endswith(".json"):
        return False
    try:
        found = json.loads(files.read_text(word))
    except ValueError:  # said by whoever reads it as a job
        return False
    return (
        isinstance(found, dict)
        and "kind" not in found
        and not {"model_type", "architectures"}.isdisjoint(found)
    )


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
    return f"holds no job but {_named(items)}; give one of {', '.join(ours)}, or a model hub's config.json"


def _named(items: Sequence[Item]) -> str:
    names = [f"{item.kind or 'something without a kind'} {item.name}".rstrip() for item in items]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
