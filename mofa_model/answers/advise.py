"""`mofa advise`: the best strategy and checkpoint interval of a job, asked by options or manifest.

The way from options to screen: `AdviceQuestion` of `questions.py` holds the options, `request_of`
makes the model's request of them (`training.py`) or of a manifest, `mofa_model.advice` answers, and
`advise_tables.py` writes the answer as lines, tables and a document.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mofa_model import files, presets
from mofa_model.answers import training
from mofa_model.answers.answer import UserAnswer, asked_by
from mofa_model.answers.questions import AdviceQuestion
from mofa_model.errors import BadFile, BadValue, InputError, NoFeasibleStrategy
from mofa_model.records import dataclass
from mofa_model.tables import Table

if TYPE_CHECKING:
    from mofa_model.advice import Advice, Predicted, Request
    from mofa_model.answers.advise_tables import BriefLine
    from mofa_model.launch import Launch
    from mofa_model.manifest.documents import Item
    from mofa_model.manifest.jobs import JobQuestion
    from mofa_model.manifest.surroundings import Surroundings
    from mofa_model.page import AdviceView

_OR_A_FILE: Final = "or give a job's file in place of all: mofa advise job.yaml"
_BESIDE_A_MANIFEST: Final = ("", "answer", "short runs")
"""Groups of options that a manifest may be combined with; it states all others itself."""
_SHOWN: Final = 5
"""Objects of a file that a message names. [1]"""


@dataclass(frozen=True, kw_only=True, repr=False)
class AdviceAnswer(UserAnswer):
    """The first choice with its odds, and others with the reason why they are not the first."""

    question: AdviceQuestion
    """What was asked."""
    request: Request
    """What the model was asked."""
    advice: Advice
    """The whole answer, typed."""
    launch: Launch | None = None
    """The first choice in a trainer's own arguments, where they were asked for."""
    refused: InputError | None = None
    """Why the first choice has no launch that was asked for."""

    @property
    def status(self) -> str:
        """Recommended, LowConfidence or NoRecommendation."""
        return str(self.advice.status.value)

    @property
    def strategy(self) -> str | None:
        """The first choice as `mofa explain --strategy` takes it; None where there is none."""
        from mofa_model.strategy import format_strategy

        return None if self.advice.strategy is None else format_strategy(self.advice.strategy)

    @property
    def predicted(self) -> Predicted | None:
        """The predicted figures of the advice, each with its bounds."""
        return self.advice.predicted

    @property
    def checkpoint_interval_steps(self) -> int | None:
        """Steps between checkpoints. [1]"""
        return self.advice.checkpoint_interval_steps

    @property
    def document(self) -> dict[str, Any]:
        """The answer for machines."""
        from mofa_model.answers.advise_tables import document
        from mofa_model.answers.given import of_layout

        job = of_layout(self.request, self.advice)
        data = document(self.advice, self.launch, str(self.refused or ""))
        return {**data, "job": job} if job else data

    @property
    def tables(self) -> Sequence[Table]:
        """What a person reads on one screen."""
        return self.tables_of(wide=False)

    def tables_of(self, *, wide: bool) -> list[Table]:
        """The tables; `wide` has every choice, the measured runs and what became of the rest."""
        from mofa_model.answers.advise_tables import tables

        return tables(self.advice, self.launch, wide=wide)

    @property
    def records(self) -> Table:
        """A row for each layout: the advice, its alternatives, today's, the frontier."""
        from mofa_model.answers.advise_tables import records

        return records(self.advice)

    def brief_lines(self) -> tuple[BriefLine, ...]:
        """The ten-second answer: at most twelve lines."""
        from mofa_model.answers.advise_tables import brief

        return brief(self.advice, self._next_command())

    def brief_text(self, width: int = 80) -> str:
        """`brief_lines` as text for a screen of some width."""
        from mofa_model.answers.advise_tables import as_text

        return as_text(self.brief_lines(), width)

    def short_text(self, width: int = 80) -> str:
        """The ten-second answer, and below it tables that the question asked for: the launch, runs
        to make, sizes.
        """
        from mofa_model import output
        from mofa_model.answers.advise_tables import asked_tables

        tables = asked_tables(self.advice, self.launch if self.question.launch else None)
        below = f"\n{output.render('table', tables)}" if tables else ""
        return self.brief_text(width) + below

    def __repr__(self) -> str:
        """The ten-second answer, as a terminal shows it; `tables_of(wide=True)` has all else."""
        return self.short_text()

    def _next_command(self) -> str:
        """The command that writes the launch; empty where there is none."""
        if self.advice.strategy is None:
            return ""
        return f"{self.question.command('advise')} --save-dir out"

    def view(self) -> AdviceView:
        """The advice as the page shows it."""
        from mofa_model.page import view_of

        return view_of(self.request, self.advice, self.launch.arguments if self.launch else ())

    def shown(self) -> Sequence[Any]:
        """The ten-second answer and, folded, the sections of the whole one, as on a page."""
        from mofa_model.page import brief_list, folded

        return [brief_list(self.brief_lines()), folded(self.view())]

    def raise_for_status(self) -> None:
        """Raise `NoFeasibleStrategy` without a strategy, or the error of a refused launch."""
        if self.advice.strategy is None:
            raise NoFeasibleStrategy(self.advice.explanation)
        if self.refused is not None:
            raise self.refused


@asked_by(AdviceQuestion)
def advise(
    question: AdviceQuestion,
    advance: Callable[[float], None] = lambda _: None,
    launched_by: str = "",
) -> AdviceAnswer:
    """The best parallel strategy and checkpoint interval of a job, with odds and alternatives."""
    from mofa_model.advice import advise as search

    question = settled(question)
    job_question = _manifest(question)
    request = request_of(question, job_question)
    trainer = question.launch or ""
    if launched_by and not trainer:
        from mofa_model.manifest.advised import trainer_of

        if not (trainer := trainer_of(request.framework)):
            right = "say for which trainer: --launch TRAINER"
            raise BadValue(launched_by, f"framework {request.framework}", right)
    advice = search(request, advance)
    if job_question is not None:
        from mofa_model.manifest.jobs import with_assumption

        advice = with_assumption(job_question, advice)
    launch, refused = None, None
    if trainer and advice.strategy is not None:
        from mofa_model.manifest.advised import launch_of

        try:
            launch = launch_of(request, advice, trainer)
        except InputError as error:
            refused = error  # the advice holds, though this trainer cannot be launched with it
    return AdviceAnswer(
        question=question, request=request, advice=advice, launch=launch, refused=refused
    )


def settled(question: AdviceQuestion) -> AdviceQuestion:
    """The question with its model and its trainer in their own fields.

    People may name a model where a job's file is expected, or a trainer by `--launch` alone.
    """
    if question.file and _is_model(question.file):
        if question.model is not None:
            right = f"{question.file} is a model too; give one of them"
            raise BadValue("--model", question.model, right)
        question = replace(question, file=None, model=question.file)
    if question.launch and not question.file:
        from mofa_model.manifest.advised import framework_for

        framework = training.framework_of(question)
        of_launch = framework_for(question.launch, framework)
        if of_launch != framework:
            question = replace(question, framework=of_launch)
    return question


def request_of(question: AdviceQuestion, job_question: JobQuestion | None = None) -> Request:
    """The request to the model that a question makes, with the facts of its manifest."""
    if job_question is None:
        request = _from_options(question)
    else:
        request = _from_manifest(question, job_question)
    request = replace(request, top=question.top, probe=question.probe)
    if not question.runs:
        return request
    from mofa_model.calibrate.short_runs import with_short_runs

    if request.framework == "any":
        raise BadValue("--runs", question.runs, "say which trainer ran them: --framework TRAINER")
    return with_short_runs(request, question.runs)


def _from_options(question: AdviceQuestion) -> Request:
    if question.profile:
        right = "it goes with a manifest; give FILE, or say --gpu and --nodes"
        raise BadValue("--profile", question.profile[0], right)
    training.require(question, also=_OR_A_FILE)
    return training.request_of(question)


def _from_manifest(question: AdviceQuestion, job_question: JobQuestion) -> Request:
    from mofa_model.manifest.jobs import request_of

    request = request_of(job_question)
    framework = request.framework
    if question.launch:
        from mofa_model.manifest.advised import framework_for

        framework = framework_for(question.launch, framework)
    request = training.with_layout(question, request)
    return replace(
        request,
        lifted=training.lifted(question),
        risk=question.risk,
        odds=not question.by_estimate,
        framework=framework,
        objective=question.objective or request.objective,
        constraints=(*request.constraints, *question.constraints),
    )


def _manifest(question: AdviceQuestion) -> JobQuestion | None:
    """The question in the manifest that a question names; None where it names none."""
    if not question.file:
        return None
    # A manifest rarely states the GPU of its nodes. So the profile may be a pool of `--gpu`s.
    pool = "" if question.profile else question.gpu
    if pool:
        presets.device(pool)
    job_question = asked_in(question.file, (pool,) if pool else question.profile)
    fields = question.changed_fields().keys() - ({"gpu"} if pool else set())
    options = (option for name, option in question.options.items() if name in fields)
    if flags := [option.flag for option in options if option.group not in _BESIDE_A_MANIFEST]:
        right = (
            "it is a job's file, which says such things itself: write it there, or give all by"
            " options and no file"
        )
        raise BadValue(", ".join(flags), question.file, right)
    if pool and job_question.profile.name != pool:
        right = f"{question.file} names the profile {job_question.profile.name}; leave --gpu out"
        raise BadValue("--gpu", pool, right)
    return job_question


def _is_model(word: str) -> bool:
    """Whether a word is a model: a preset, a model hub's config.json or the folder with it."""
    kind = files.path_kind(word)
    if kind == "folder":
        return files.path_kind(f"{word}/config.json") == "file"
    if not kind:
        return bool(presets.meanings("models", word)) or presets.is_address(word)
    if not word.endswith(".json"):
        return False
    try:
        config = json.loads(files.read_text(word))
    except ValueError:  # the reader of jobs refuses it later, with a reason
        return False
    return (
        isinstance(config, dict)
        and "kind" not in config
        and not {"model_type", "architectures"}.isdisjoint(config)
    )


def asked_in(path: str, profiles: Sequence[str]) -> JobQuestion:
    """The question that the one job of a file asks.

    Its profile is looked for in the same file, in `profiles`, then among those of the package.
    """
    from mofa_model.manifest import jobs
    from mofa_model.manifest.documents import LARGEST, Documents
    from mofa_model.manifest.sizing import at_best_size
    from mofa_model.manifest.surroundings import named_profiles, surroundings

    stream = Documents.parse(files.read_text(path, largest=LARGEST), path)
    around = surroundings(
        [stream], [profile for name in profiles for profile in named_profiles(name)]
    )
    job_items = _jobs(stream.items, around)
    if not job_items:
        raise BadFile(path, _why_no_job(stream.items))
    if len(job_items) > 1:
        takes = "`mofa advise` answers for one job, `mofa annotate` for many"
        raise BadFile(path, f"holds {len(job_items)} jobs, {_named(job_items)}; {takes}")
    return at_best_size(jobs.job_question(job_items[0], around))


def _jobs(items: Sequence[Item], around: Surroundings) -> list[Item]:
    """The TrainingJobs; else jobs of other kinds that ask for advice; else those that do not."""
    from mofa_model.kinds import job_kind
    from mofa_model.manifest import jobs

    ours = [item for item in items if jobs.is_training_job(item)]
    if ours:
        return ours
    others = [item for item in items if job_kind(item.api_version, item.kind)]
    asking = [item for item in others if jobs.mode_of(item, around) not in {None, "Disabled"}]
    return asking or others


def _why_no_job(items: Sequence[Item]) -> str:
    """Why a file without a job is refused: which objects it holds, and which command takes them."""
    from difflib import get_close_matches

    from mofa_model.kinds import KINDS
    from mofa_model.manifest.surroundings import POLICY, PROFILE

    if not items:
        return "is empty; give a TrainingJob, or a job of a kind that you have"
    kinds = {item.kind for item in items}
    job_kinds = sorted({"TrainingJob", *(kind.kind for kind in KINDS)})
    holds = f"holds no job but {_named(items)}"
    for kind in sorted(kinds - {PROFILE, POLICY}):
        if near := get_close_matches(kind, job_kinds, n=1):
            return f"{holds}: kind {kind!r} is unknown; did you mean {near[0]}?"
    if kinds == {PROFILE}:
        return (
            f"{holds}: give it with --profile beside a job's manifest, or to `mofa ettr --profile`"
        )
    if POLICY in kinds:
        return f"{holds}: `mofa annotate` takes it beside the manifests of jobs"
    return f"{holds}; give one of {', '.join(job_kinds)}, or a model hub's config.json"


def _named(items: Sequence[Item]) -> str:
    names = [f"{item.kind or 'something without a kind'} {item.name}".rstrip() for item in items]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
