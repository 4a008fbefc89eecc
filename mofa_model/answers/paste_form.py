"""The page's form for pasted text and files, and its answer.

A page opens no file and no connection: a model is a preset, a name like that of a preset, or one of
the pasted texts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mofa_model import presets
from mofa_model.answers.answer import in_python, parameters_of
from mofa_model.answers.forms import check_values, errors_by_field, written_values
from mofa_model.answers.pasted import PasteAnswer, answered
from mofa_model.answers.questions import PasteQuestion
from mofa_model.errors import BadValue, InputError, MofaError
from mofa_model.page.markup import FormField
from mofa_model.pasted.model_names import alike, preset_named
from mofa_model.pasted.reading import PastedText, read
from mofa_model.pasted.recognise import PastedKind, kind_of
from mofa_model.pasted.spoken import read_words
from mofa_model.pasted.wrapped import RunState, run_seen
from mofa_model.records import dataclass
from mofa_model.tables import Table

if TYPE_CHECKING:
    from mofa_model.answers.advise import AdviceAnswer

MOST: Final = 1 << 20
"""Most bytes of a form with its files. [B]"""
PASTED: Final = "pasted"
"""The field of the text."""
FILES: Final = "files"
"""The field of the files."""
_NAME: Final = "standard input"
"""The name of the text that was typed into the form."""
_LABELS: Final = {
    "gpu": "GPU",
    "gpus": "GPUs",
    "nodes": "Nodes",
    "sequence_length": "Sequence length",
    "global_batch_size": "Global batch",
    "model": "Model",
    "launch": "Launch for",
}
"""Fields of the form for facts that the texts may lack."""
_PARAMETERS: Final = {
    flag: name for flag, name in parameters_of(PasteQuestion).items() if name in _LABELS
}


@dataclass(frozen=True, kw_only=True)
class PasteForm:
    """A form that was sent, with its answer or its errors."""

    values: Mapping[str, str]
    errors: Mapping[str, str] = field(default_factory=dict)
    answer: PasteAnswer | None = None
    folder: str = ""
    """The folder in which a model's text lay while it was read; no page shows it."""

    def brief_lines(self) -> list[tuple[str, str]]:
        """The ten-second answer."""
        lines = () if self.answer is None else self.answer.brief_lines()
        return [(line.word, self._plain(line.says)) for line in lines]

    def tables(self) -> list[Table]:
        """The facts that were read."""
        return [
            replace(
                table,
                title=self._plain(table.title),
                rows=tuple(tuple(map(self._plain, row)) for row in table.rows),
                notes=tuple(map(self._plain, table.notes)),
            )
            for table in (() if self.answer is None else self.answer.tables)
        ]

    def command(self) -> str:
        """The command line that asks the same."""
        advice_question = None if self.answer is None else self.answer.asked
        return "" if advice_question is None else self._plain(advice_question.command("advise"))

    def _plain(self, cell: Any) -> Any:
        """Text without the path of the folder; other cells as they are."""
        return (
            cell.replace(f"{self.folder}/", "") if self.folder and isinstance(cell, str) else cell
        )


def form_fields() -> tuple[FormField, ...]:
    """The fields of the form for pasted text."""
    from mofa_model.launch import TRAINERS

    choices = {
        "gpu": tuple(presets.names("devices")),
        "model": tuple(presets.names("models")),
        "launch": ("", *TRAINERS),
    }
    hint = "a script, a command, a trainer\u2019s file, a config.json, nvidia-smi, or words: "
    hint += "llama3 70b on 64 h100"
    return (
        FormField(name=PASTED, label="Paste what you have", hint=hint, look="text"),
        FormField(name=FILES, label="Or choose or drop files here", look="file"),
        *(
            FormField(
                name=name,
                label=label,
                hint="" if name == "launch" else "where nothing above says it",
                choices=choices.get(name, ()),
                only=name == "launch",
                empty="the trainer that was read",
            )
            for name, label in _LABELS.items()
        ),
    )


def paste_form(sent: Mapping[str, str], texts: Sequence[PastedText]) -> PasteForm:
    """The answer to a form and its files, or its errors."""
    short = {name: text for name, text in sent.items() if name != PASTED}
    values = written_values(short, _LABELS)
    written = sent.get(PASTED, "").strip()
    shown = {**values, **({PASTED: written} if written else {})}
    if not shown and not texts:
        return PasteForm(values={})
    try:
        with in_python(_PARAMETERS):
            check_values(values, ())
            own = [PastedText(written, _NAME)] if written else []
            with tempfile.TemporaryDirectory() as folder:
                answer = _answer(values, [*own, *texts], Path(folder))
            answer.raise_for_status()
    except MofaError as error:
        return PasteForm(values=shown, errors=errors_by_field(error, _LABELS, _PARAMETERS))
    return PasteForm(values=shown, answer=answer, folder=folder)


def _answer(values: Mapping[str, str], texts: Sequence[PastedText], folder: Path) -> PasteAnswer:
    fields = dict[str, Any]()
    documents = list[PastedText]()
    for pasted in texts:
        kind = kind_of(pasted.text, pasted.name)
        if kind is PastedKind.KUBERNETES:
            raise BadValue(PASTED, pasted.name, "a manifest is answered by `mofa advise FILE`")
        is_log = run_seen(pasted.text) is not RunState.UNSEEN
        if (
            kind is PastedKind.UNKNOWN
            and pasted.name == _NAME
            and len(pasted.text) < 400
            and not is_log
        ):
            fields |= _spoken(pasted.text)
        else:
            documents.append(pasted)
    fields |= {name: PasteQuestion.options[name].read(text) for name, text in values.items()}
    if not documents and not fields.get("model"):
        raise InputError("say a model, or paste a script, a trainer's file or a config.json")
    question = PasteQuestion(**fields)
    question = replace(question, model=_known_model(question.model, documents))
    answer = answered(question, [_as_file(pasted, folder) for pasted in documents])
    return answer if answer.answer is None else replace(answer, answer=_with_launch(answer.answer))


def _with_launch(answer: AdviceAnswer) -> AdviceAnswer:
    """An answer with the launch of the advised trainer, where it has no launch of a named one."""
    from mofa_model.manifest.advised import launch_of, trainer_of

    trainer = trainer_of(answer.advice.trainer)
    if answer.launch is not None or answer.advice.strategy is None or not trainer:
        return answer
    with suppress(InputError):
        return replace(answer, launch=launch_of(answer.request, answer.advice, trainer))
    return answer


def _as_file(pasted: PastedText, folder: Path) -> PastedText:
    """A model's text as a file, because its reader opens one; other texts as they are."""
    if kind_of(pasted.text, pasted.name) is not PastedKind.MODEL:
        return pasted._replace(name=Path(pasted.name).name or _NAME)
    path = folder / "config.json"
    path.write_text(pasted.text, "utf-8")
    return pasted._replace(name=str(path))


def _spoken(text: str) -> dict[str, Any]:
    """The fields of the question that a few words give: `llama3 70b on 64 h100`."""
    words, unread, _ = read_words(text.split())
    parameters = parameters_of(PasteQuestion)
    fields = dict[str, Any]()
    rest = iter(words)
    for word in rest:
        name = parameters.get(word)
        value = next(rest, None) if name else None
        if name and value is not None:
            fields[name] = PasteQuestion.options[name].read(value)
        elif not word.startswith("-") and "model" not in fields:
            fields["model"] = word
        else:
            unread = (*unread, word)
    if unread and "model" not in fields:
        raise BadValue(PASTED, text, "write a model and its machines: llama3 70b on 64 h100")
    return fields


def _known_model(named: str | None, texts: Sequence[PastedText]) -> str | None:
    """The preset of a model that a field or a text names; None where a text is the model itself."""
    if named is None and texts:
        fact = read(texts).facts.get("model")
        is_shape = any(kind_of(pasted.text, pasted.name) is PastedKind.MODEL for pasted in texts)
        named = None if fact is None or is_shape else str(fact.value)
    if named is None:
        return None
    if preset := preset_named(named) or alike(named):
        return preset
    raise BadValue("model", named, "name a preset, or give the model's config.json beside")
