"""The recommended strategy and interval, the alternatives, and why: for a manifest, or for what is said in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from mofa_model import output
from mofa_model.answers import short_runs, training
from mofa_model.answers.advised_training import AdvisedTraining, lifted, request_in_words
from mofa_model.answers.door import Reply, asked_by
from mofa_model.answers.question import Names, Text, Whole
from mofa_model.errors import BadValue, InputError, NoFeasibleStrategy
from mofa_model.tables import Table

if TYPE_CHECKING:
    from mofa_model.advice import Advice, Predicted, Request
    from mofa_model.answers.documents import AdviseDocument
    from mofa_model.launch import Launch
    from mofa_model.manifest.jobs import Asked
    from mofa_model.page import AdviceView


@dataclass(frozen=True, kw_only=True)
class AdviceQuestion(AdvisedTraining):
    """Which strategy and which checkpoint interval are best."""

    file: Text | None = field(default=None, kw_only=False)
    """A job's manifest, in place of the words for model, training and machines."""
    profile: Names = ()
    """ClusterProfiles for `file`: bundled ones by name, or manifests."""
    top: Whole = 5
    """Alternatives to find."""
    launch: Text | None = None
    """Trainer whose arguments are wanted: megatron, torchtitan, nemo, deepspeed or accelerate."""
    probe: Whole = 0
    """Short runs to propose: those that would make the choice surest."""
    runs: Text | None = None
    """What such runs measured: a `runs.csv`."""


_OR_A_FILE: Final = "or give a job's file in place of all: mofa advise job.yaml"


@dataclass(frozen=True, kw_only=True, repr=False)
class AdviceAnswer(Reply):
    """The first choice with its odds, others with the reason why they are not the first, and where the rest went."""

    question: AdviceQuestion
    """What was asked."""
    request: Request
    """The same, understood."""
    advice: Advice
    """The whole answer, typed."""
    launch: Launch | None = None
    """The first choice in a trainer's own arguments, where they were asked for."""
    refused: InputError | None = None
    """Why there is no such launch."""

    @property
    def status(self) -> str:
        """Recommended, LowConfidence or NoRecommendation."""
        return str(self.advice.status.value)

    @property
    def strategy(self) -> str | None:
        """The first choice as text, as `mofa explain --strategy` takes it; None where there is none."""
        from mofa_model.strategy_text import format_strategy

        return None if self.advice.strategy is None else format_strategy(self.advice.strategy)

    @property
    def predicted(self) -> Predicted | None:
        """What it is expected to do, each figure with its bounds."""
        return self.advice.predicted

    @property
    def checkpoint_interval_steps(self) -> int | None:
        """Steps between checkpoints. [1]"""
        return self.advice.checkpoint_interval_steps

    @property
    def document(self) -> dict[str, Any]:
        """The answer for machines."""
        from mofa_model.answers.advise_tables import document

        return document(self.advice, self.launch, str(self.refused or ""))

    @property
    def tables(self) -> Sequence[Table]:
        """What a person reads on one screen."""
        return self.told(wide=False)

    def told(self, *, wide: bool) -> list[Table]:
        """The same, with the longer lists where it is `wide`."""
        from mofa_model.answers.advise_tables import tables

        return tables(self.advice, self.launch, wide=wide)

    @property
    def records(self) -> Table:
        """A row for each layout: the advice, its alternatives, today's, the frontier."""
        from mofa_model.answers.advise_tables import records

        return records(self.advice)

    def view(self) -> AdviceView:
        """What a page says of it."""
        from mofa_model.page import view_of

        return view_of(self.request, self.advice, self.launch.arguments if self.launch else ())

    def to_dict(self) -> AdviseDocument:
        """The answer as plain data, the same as `-o json`."""
        return cast("AdviseDocument", output.as_data(self.document))

    def shown(self) -> Sequence[Any]:
        """The same sections as a page has."""
        from mofa_model.page import advice_sections
        from mofa_model.page.markup import el

        view = self.view()
        return [el("p", el("strong", view.title)), *advice_sections(view)]

    def raise_for_status(self) -> None:
        """Raise what stands in the way: `NoFeasibleStrategy`, or why there is no launch."""
        if self.advice.strategy is None:
            raise NoFeasibleStrategy(self.advice.explanation)
        if self.refused is not None:
            raise self.refused


@dataclass(frozen=True, kw_only=True)
class Understood:
    """A question that can be searched."""

    question: AdviceQuestion
    """What was asked."""
    request: Request
    """What the model is asked."""
    asked: Asked | None
    """What the manifest asks, where there is one."""
    trainer: str
    """Trainer whose arguments are wanted; empty where none are."""


def understood(question: AdviceQuestion, launched_by: str = "") -> Understood:
    """What is searched; `launched_by` is an option that needs a launch, where nobody names its trainer."""
    if question.file:
        from mofa_model.answers import advise_file

        question = advise_file.with_model(question)
    if question.launch and not question.file:
        question = _with_framework(question)
    asked = advise_file.asked(question) if question.file else None
    request = _from_words(question) if asked is None else _from_manifest(question, asked)
    request = short_runs.asked(question, request)
    trainer = question.launch or ""
    if launched_by and not trainer:
        from mofa_model.manifest.advised import trainer_of

        if not (trainer := trainer_of(request.framework)):
            named = f"framework {request.framework}"
            raise BadValue(launched_by, named, "say for which trainer: --launch TRAINER")
    return Understood(question=question, request=request, asked=asked, trainer=trainer)


def answered(given: Understood, advance: Callable[[float], None] | None = None) -> AdviceAnswer:
    """The answer; one without a recommendation is an answer too."""
    from mofa_model.advice import advise as search

    advice = search(given.request) if advance is None else search(given.request, advance)
    if given.asked is not None:
        from mofa_model.manifest.jobs import told

        advice = told(given.asked, advice)
    launch, refused = None, None
    if given.trainer and advice.strategy is not None:
        from mofa_model.manifest.advised import launch_of

        try:
            launch = launch_of(given.request, advice, given.trainer)
        except InputError as error:
            refused = error  # the answer stands, whatever this trainer can be told
    return AdviceAnswer(
        question=given.question,
        request=given.request,
        advice=advice,
        launch=launch,
        refused=refused,
    )


@asked_by(AdviceQuestion)
def advise(question: AdviceQuestion) -> AdviceAnswer:
    """The best parallel strategy and checkpoint interval of a job, with its odds, alternatives and reasons."""
    return answered(understood(question))


def _with_framework(asked: AdviceQuestion) -> AdviceQuestion:
    """A launch is for its own trainer: that is what is searched, where no other is named."""
    from mofa_model.manifest.advised import framework_for

    framework = training.framework_of(asked)
    chosen = framework_for(str(asked.launch), framework)
    return asked if chosen == framework else replace(asked, framework=chosen)


def _from_words(asked: AdviceQuestion) -> Request:
    if asked.profile:
        ought = "it goes with a manifest; give FILE, or say --gpu and --nodes"
        raise BadValue("--profile", asked.profile[0], ought)
    training.require(asked, also=_OR_A_FILE)
    return replace(request_in_words(asked), top=_top(asked.top))


def _from_manifest(question: AdviceQuestion, asked: Asked) -> Request:
    from mofa_model.manifest.jobs import request_of

    request = request_of(asked)
    changes: dict[str, object] = {
        "top": _top(question.top),
        "lifted": lifted(question),
        "risk": question.risk,
        "odds": not question.by_estimate,
    }
    if question.launch:
        from mofa_model.manifest.advised import framework_for

        changes["framework"] = framework_for(question.launch, request.framework)
    if question.objective:
        changes["objective"] = question.objective
    if question.current:
        changes["current"] = training.layout_of(question.current, request.problems[0], "--current")
    return replace(request, constraints=(*request.constraints, *question.constraints), **changes)  # type: ignore[arg-type]


def _top(value: int) -> int:
    if not 0 <= value <= 100:
        raise BadValue("--top", value, "give a number from 0 to 100")
    return value
