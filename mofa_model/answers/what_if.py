"""The what-if form of the page: an advice and a sweep, with bounds for a page."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import Any, Final

from mofa_model import presets, units
from mofa_model.answers.advise import AdviceAnswer, advise
from mofa_model.answers.answer import in_python, parameters_of
from mofa_model.answers.forms import KEPT, check_values, errors_by_field, written_values
from mofa_model.answers.questions import AdviceQuestion, SweepQuestion
from mofa_model.answers.sweep import FIGURES, Row, SweepAnswer, sweep
from mofa_model.answers.training import framework_of
from mofa_model.answers.vary import Point, parse_vary, points_of
from mofa_model.errors import BadValue, DoesNotFit, InputError, MofaError
from mofa_model.launch import read_layout
from mofa_model.page.markup import FormField
from mofa_model.records import dataclass
from mofa_model.search import trainers
from mofa_model.strategy import format_strategy, pairs_of

POINTS: Final = 24
"""Points of a page's sweep; the command asks any number. [1]"""
PATIENCE: Final = 0.5
"""Time after which a page's sweep begins no further point. [s]"""
DRAWN: Final = (
    "tokens_per_second",
    "step_seconds",
    "mfu",
    "memory_bytes",
    "ettr",
    "duration_seconds",
    "gpu_hours",
)
"""Figures that a sweep draws, the usual one first."""
FIRST: Final[Mapping[str, str]] = {
    "model": "llama3-8b",
    "gpu": "h100-sxm",
    "gpus": "64",
    "sequence_length": "8192",
    "global_batch_size": "512",
    "tokens": "1T",
    "framework": "megatron",
}
"""Values in a form that is still empty."""


_LABELS: Final = {
    "model": "Model",
    "gpu": "GPU",
    "gpus": "GPUs",
    "sequence_length": "Sequence length",
    "global_batch_size": "Global batch",
    "tokens": "Tokens of the run",
    "framework": "Trainer",
    "precision": "Precision",
    "objective": "Best is",
    "current": "Today\u2019s layout",
    "planned": "Planned layout",
    "failure_rate": "Failures a node-day",
    "hang": "Hangs",
    "checkpoint_bandwidth": "Storage of a node",
    "vary": "Vary",
    "y": "Draw",
}
"""Fields of the form and what the page calls them: those of a question, and `y`, which is drawn."""
_HINTS: Final = {
    "model": "a preset",
    "framework": "",
    "current": "tp=4,pp=2,sp=true, or a trainer\u2019s flags",
    "planned": "the same, where it did not run yet",
    "vary": "gpus=64..512, at most two fields",
}
"""Hints of fields for which a page takes less than the command."""
_ONLY: Final = ("framework", "objective", "y")
"""Fields that take one of their choices and no other value."""
_PARAMETERS: Final = {
    flag: name for flag, name in parameters_of(SweepQuestion).items() if name in _LABELS
}


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """A form that was sent, with its answer or its errors."""

    values: Mapping[str, str]
    """The texts of its fields."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """The errors by field; an error of no field under an empty name."""
    answer: AdviceAnswer | None = None
    """The advice; None where the form is empty or has errors."""
    sweep: SweepAnswer | None = None
    """The sweep, where the form has values to vary."""
    unasked: int = 0
    """Points of the sweep that a page has no time for. [1]"""

    def commands(self) -> list[str]:
        """Command lines that ask the same."""
        commands = [] if self.answer is None else [self.answer.question.command("advise")]
        return commands if self.sweep is None else [*commands, self.sweep.question.command("sweep")]


def form_fields(models: Sequence[str] = ()) -> tuple[FormField, ...]:
    """The form; `models` may be asked for beside the presets."""
    choices = {
        "model": (*models, *presets.names("models")),
        "framework": ("", *trainers()),
        "y": DRAWN,
    }
    fields = []
    for name, label in _LABELS.items():
        option = AdviceQuestion.options.get(name)
        offered = choices.get(name, ())
        if option is not None and not offered:
            offered = option.choices or tuple(
                presets.names(option.presets) if option.presets else ()
            )
        hint = _HINTS.get(
            name, "" if option is None or option.choices else option.text.partition(" (")[0]
        )
        only = name in _ONLY
        fields.append(FormField(name=name, label=label, hint=hint, choices=offered, only=only))
    return tuple(fields)


def what_if(sent: Mapping[str, str], models: Sequence[str] = ()) -> WhatIf:
    """The answer to a form, or its errors; an error of the sweep leaves the advice."""
    values = written_values(sent, _LABELS)
    if not values:
        return WhatIf(values=FIRST)
    form = WhatIf(values=values)
    try:
        with in_python(_PARAMETERS):
            question = _question(values, models)
            form = replace(form, answer=_advised(question))
            if "vary" in values:
                swept, unasked = _swept(question, values["vary"])
                form = replace(form, sweep=swept, unasked=unasked)
    except MofaError as error:
        return replace(form, errors=errors_by_field(error, _LABELS, _PARAMETERS))
    return form


@lru_cache(KEPT)
def _advised(question: AdviceQuestion) -> AdviceAnswer:
    return advise.of(question)


def _question(values: Mapping[str, str], models: Sequence[str]) -> AdviceQuestion:
    check_values(values, models)
    words: dict[str, Any] = {
        name: text for name, text in values.items() if name not in {"vary", "y"}
    }
    for name in ("current", "planned"):
        if name in values:
            words[name] = _layout(values, name)
    question = AdviceQuestion(**words)
    framework_of(question)
    return question


def _layout(values: Mapping[str, str], name: str) -> str:
    """Today's or the planned layout as pairs, `tp=8,pp=4`, also from a trainer's flags. A file that
    they name is not opened.
    """
    text = values[name]
    if not re.search(r"(^|\s)--?[A-Za-z]", text):
        pairs_of(text, name)
        return text
    named = values.get("model", "")
    model = presets.model(named) if presets.meanings("models", named) else None
    gpus = units.count(values.get("gpus", "1"), field="gpus")
    try:
        strategy = read_layout(
            text, gpus, layers=None if model is None else int(model.layers), field=name
        )
    except DoesNotFit:
        raise
    except BadValue:  # no trainer's: its error names the keys of a layout
        pairs_of(text, name)
        raise
    return format_strategy(strategy)


def _swept(question: AdviceQuestion, vary: str) -> tuple[SweepAnswer, int]:
    """A sweep of as many points as there is time for, and the number of those left out."""
    texts = tuple(vary.split())
    if not texts or len(texts) > 2:
        raise BadValue("vary", vary, "vary one field, or two; `mofa sweep` varies more")
    varied = [parse_vary(text) for text in texts]
    for name, values in varied:
        for word in values if name == "model" else ():
            presets.resolve("models", word, field="vary")
    count = len(points_of(varied))
    if count > POINTS:
        raise BadValue(
            "vary", vary, f"{count} points; a page draws {POINTS}, and `mofa sweep` any number"
        )
    shared = {
        n: value for n, value in question.changed_fields().items() if n in SweepQuestion.options
    }
    sweep_question = SweepQuestion(**shared, vary=texts)
    left: list[int] = []

    def carry(
        work: Callable[..., Row], questions: Iterable[Any], points: Sequence[Point]
    ) -> Iterator[Row]:
        began = time.process_time()
        for number, (point_question, point) in enumerate(zip(questions, points, strict=True)):
            if number and time.process_time() - began > PATIENCE:
                left.append(len(points) - number)
                return
            yield work(point_question, point)

    try:
        swept = sweep.of(sweep_question, carry)
        swept.raise_for_status()
    except MofaError as error:
        raise InputError(f"vary: {str(error).removeprefix('--vary: ')}") from error
    return swept, sum(left)


def figure_of(values: Mapping[str, str]) -> str:
    """The figure that a sweep draws."""
    figure = values.get("y", DRAWN[0])
    return figure if figure in FIGURES else DRAWN[0]
