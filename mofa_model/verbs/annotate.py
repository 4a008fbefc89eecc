"""`mofa annotate FILE…`: manifests in, the same manifests out, with the advice as annotations."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import MISSING
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mofa_model import files, terminal
from mofa_model.answers.options import (
    Names,
    UserQuestion,
    add_options,
    argument,
    as_in,
    names,
    option,
    question_of,
    switch,
    text,
)
from mofa_model.answers.questions import AdviceQuestion
from mofa_model.errors import BadFile, BadValue, InputError, NoFeasibleStrategy

if TYPE_CHECKING:
    from mofa_model.manifest.documents import Documents
    from mofa_model.manifest.parsing import Profile
    from mofa_model.manifest.stream import Annotator, Outcome

EPOCH: Final = "SOURCE_DATE_EPOCH"
"""The variable of reproducible builds: the moment in seconds, in place of the clock."""

_CODES: Final = {
    **dict.fromkeys(("InvalidInput", "FactsMissing", "FactsDisagree"), InputError.exit_code),
    "NoRecommendation": NoFeasibleStrategy.exit_code,
}
"""The exit code of each outcome without a recommendation. Several outcomes end with the lowest of
their codes, because what it stands for has to be mended first."""
EXAMPLES: Final = """\
Comments, order and everything that is not ours stay as they are; running it
twice changes nothing. TrainingJobs are annotated, and existing jobs (JobSet,
PyTorchJob, TrainJob, Volcano, Ray, Job) that an annotation, an AdvisorPolicy or
the label advisor.mofa.dev/advise of their Namespace opts in. A
profile is looked for in the same stream, then in --profile, then among those
that come with the package; where nobody names one, the bundled one with the GPU
that the pods select is taken, and the answer says so.

Everything is printed whatever the code: 0 every job has a recommendation, 2 one
or more are invalid input, 3 none is, but one or more have no feasible strategy.
Standard error has a line for each of them, and one where nothing is there to
annotate. What is no YAML at all is refused with 2 and nothing is printed.

examples:
  mofa annotate examples/llama3-405b.yaml
  mofa annotate job.yaml --profile pool.yaml --in-place
  kubectl kustomize overlay | mofa annotate - | kubectl apply -f -
A ResourceList on standard input is answered with a ResourceList: a KRM function."""


class AnnotateQuestion(UserQuestion):
    """Which manifests are annotated, and where they are written."""

    files: Names = argument(
        names,
        "FILE",
        "manifests, YAML or JSON; - is standard input",
        default=MISSING,
        kw_only=False,
    )
    profile: Names = as_in(
        AdviceQuestion, "profile", "a bundled ClusterProfile, or a file with some"
    )
    output: str | None = option(
        text,
        "-o --output",
        "list what each object is instead: class, status, facts and where they stand",
        choices=("json",),
    )
    in_place: bool = option(
        switch, "-i --in-place", "write the files instead of standard output", default=False
    )


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    add_options(parser, AnnotateQuestion)


def run(arguments: Namespace) -> int:
    """Annotate the manifests, and write all of them before any refusal ends the command.

    The code is 2 where an input is invalid, else 3 where a job has no feasible strategy.
    """
    from mofa_model.manifest.documents import LARGEST, Documents, joined
    from mofa_model.manifest.surroundings import named_profiles

    question = question_of(AnnotateQuestion, arguments)
    if question.in_place and "-" in question.files:
        raise BadValue("--in-place", "-", "standard input cannot be written; name files")
    texts = [files.read_text(path, largest=LARGEST) for path in question.files]
    try:
        streams = [
            Documents.parse(text, path) for text, path in zip(texts, question.files, strict=True)
        ]
    except InputError as error:
        if question.output:  # a list has a row for what cannot be read
            row = {"object": None, "class": None, "status": error.status, "explanation": str(error)}
            terminal.put(json.dumps([{**row, "facts": {}}], indent=2) + "\n")
        raise
    around = [stream.resource_list is not None for stream in streams]
    if any(around) and len(streams) > 1:
        raise BadFile(
            question.files[around.index(True)],
            "is a ResourceList, which must be the only file; give the others in another command",
        )
    profiles = [profile for name in question.profile for profile in named_profiles(name)]
    texts, outcomes = _annotator(profiles).run(streams)
    if question.output:
        return _listed(streams, outcomes, profiles)
    if question.in_place:
        for path, stream, text in zip(question.files, streams, texts, strict=True):
            if text != stream.text:
                files.write_text(Path(path), text)
    else:
        terminal.put(texts[0] if len(texts) == 1 else joined(texts))
    return 0 if any(around) else _report(outcomes, question.files)


def _listed(streams: list[Documents], outcomes: list[Outcome], profiles: list[Profile]) -> int:
    """Print every object with its class, status and facts as JSON; the code is of the worst one."""
    from mofa_model.manifest.listing import object_rows
    from mofa_model.manifest.surroundings import surroundings

    items = [item for stream in streams for item in stream.items]
    rows = object_rows(items, outcomes, surroundings(streams, profiles))
    terminal.put(json.dumps(rows, indent=2) + "\n")
    wrong = (_CODES[outcome.status] for outcome in outcomes if outcome.status in _CODES)
    return min(wrong, default=0)


def _annotator(profiles: list[Profile]) -> Annotator:
    from mofa_model import VERSION
    from mofa_model.advice import advise
    from mofa_model.manifest.advised import launch_words
    from mofa_model.manifest.stream import Annotator

    return Annotator(
        answer=advise, words=launch_words, model_version=VERSION, now=_now(), profiles=profiles
    )


def _now() -> str:
    """The moment in UTC, to the second."""
    fixed = os.environ.get(EPOCH)
    if fixed is None:
        moment = datetime.now(UTC)
    elif fixed.isdecimal() and len(fixed) <= 11:
        moment = datetime.fromtimestamp(int(fixed), UTC)
    else:
        raise BadValue(EPOCH, fixed, "give seconds since 1970")
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _report(outcomes: list[Outcome], paths: Sequence[str]) -> int:
    """Print what needs attention to standard error; the exit code is that of the worst outcome."""
    if not outcomes:
        terminal.tell(
            f"mofa annotate: {', '.join(paths)}: nothing to annotate: no job asks for advice; "
            "a TrainingJob does, and another job with the annotation advisor.mofa.dev/model"
        )
    wrong = [outcome for outcome in outcomes if outcome.status in _CODES]
    for outcome in wrong:
        terminal.tell(f"mofa annotate: {' '.join(outcome.line().split())}")
    return min((_CODES[outcome.status] for outcome in wrong), default=0)
