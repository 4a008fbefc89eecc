"""The form of `mofa which` on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, Final

from mofa_model import presets
from mofa_model.answers.answer import in_python, parameters_of
from mofa_model.answers.forms import KEPT, check_values, errors_by_field, written_values
from mofa_model.answers.questions import WhichQuestion
from mofa_model.answers.which import RECIPES, WhichAnswer, which
from mofa_model.errors import MofaError
from mofa_model.page.markup import FormField
from mofa_model.records import dataclass

_LABELS: Final = {
    "model": "Model",
    "examples": "Examples",
    "length": "Tokens of one",
    "epochs": "Epochs",
    "sequence_length": "Sequence length",
    "global_batch_size": "Global batch",
    "method": "Method",
    "gpu": "GPU",
    "price": "Price of a GPU",
    "by": "Least",
}
"""Fields of the form and what the page calls them."""
FIRST: Final[Mapping[str, str]] = {
    "model": "llama3-8b",
    "examples": "50k",
    "length": "512",
    "epochs": "3",
    "method": "lora,qlora",
}
"""What the form proposes where nobody has said anything."""
_HINTS: Final = {"model": "a preset", "gpu": "devices or machines; empty: all that are known"}
_PARAMETERS: Final = {
    flag: name for flag, name in parameters_of(WhichQuestion).items() if name in _LABELS
}


@dataclass(frozen=True, kw_only=True)
class WhichForm:
    """A form that was sent, and what came of it."""

    values: Mapping[str, str]
    errors: Mapping[str, str] = field(default_factory=dict)
    answer: WhichAnswer | None = None

    @property
    def command(self) -> str:
        """The command line that asks the same; empty where nothing is answered."""
        return "" if self.answer is None else self.answer.question.command("which")


def form_fields(models: Sequence[str] = ()) -> tuple[FormField, ...]:
    """The form; `models` may be asked for beside the presets."""
    choices = {
        "model": (*models, *presets.names("models")),
        "gpu": presets.names("devices"),
        "method": (*RECIPES, "lora,qlora", "lora,qlora,full"),
        "by": WhichQuestion.options["by"].choices,
    }
    return tuple(
        FormField(
            name=name,
            label=label,
            hint=_HINTS.get(
                name, "" if name == "by" else WhichQuestion.options[name].text.partition(" (")[0]
            ),
            choices=choices.get(name, ()),
            only=name == "by",
            empty="money",
        )
        for name, label in _LABELS.items()
    )


def which_form(given: Mapping[str, str], models: Sequence[str] = ()) -> WhichForm:
    """The answer to a form, or what cannot be right in it."""
    values = written_values(given, _LABELS)
    if not values:
        return WhichForm(values=FIRST)
    try:
        with in_python(_PARAMETERS):
            return WhichForm(values=values, answer=_answered(_question(values, models)))
    except MofaError as error:
        return WhichForm(values=values, errors=errors_by_field(error, _LABELS, _PARAMETERS))


@lru_cache(KEPT)
def _answered(question: WhichQuestion) -> WhichAnswer:
    return which.of(question)


def _question(values: Mapping[str, str], models: Sequence[str]) -> WhichQuestion:
    check_values(values, models)
    words: dict[str, Any] = dict(values)
    return WhichQuestion(**words)
