"""docs/reference/python.md, from the questions and answers of mofa_model.answers.

The JSON schemas of docs/reference/schema are kept by hand: they are what was promised, and
tests/mofa_model/answers/test_documents.py holds every answer to them.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING
from typing import Any

from reference_crds import HEAD, shown, table

import mofa_model
from mofa_model.answers import questions
from mofa_model.answers.advise import AdviceAnswer
from mofa_model.answers.answer import parameters_of
from mofa_model.answers.ettr import EttrAnswer
from mofa_model.answers.explain import ExplainAnswer
from mofa_model.answers.options import Option, UserQuestion
from mofa_model.answers.simulate import SimulateAnswer
from mofa_model.answers.sweep import SweepAnswer
from mofa_model.answers.which import WhichAnswer

FUNCTIONS: dict[str, tuple[type[UserQuestion], type, tuple[str, ...]]] = {
    "advise": (questions.AdviceQuestion, AdviceAnswer, ("advise",)),
    "explain": (questions.ExplainQuestion, ExplainAnswer, ("explain",)),
    "ettr": (questions.EttrQuestion, EttrAnswer, ("ettr", "varied-ettr")),
    "simulate": (questions.SimulateQuestion, SimulateAnswer, ("simulate",)),
    "sweep": (questions.SweepQuestion, SweepAnswer, ("sweep",)),
    "which": (questions.WhichQuestion, WhichAnswer, ("which",)),
}
"""Each function with its question, its answer, and the schemas of its JSON."""
INTRO = """\
What the command answers, Python answers too, from the same code:

```python
import mofa_model as mofa

answer = mofa.advise(
    model="llama3-8b", gpu="h100", gpus=64, sequence_length=8192, global_batch_size=512
)
answer.strategy  # text, as `mofa explain --strategy` and `spec.current` take it
answer.predicted.step_seconds.target  # SI numbers, each with .lower and .upper
answer.to_dict()  # the same as `-o json`
answer.to_frame()  # the same as `-o csv`, in pandas or polars
```

Names are those of manifests and of the command\'s options. A quantity is text with its unit
(`"2 GB/s"`, `"28 s"`), a count a number or text (`15_000_000_000_000`, `"15T"`). Answers are
frozen, and a notebook shows them as tables and pictures. What cannot be right is a
`mofa.InputError` (a `ValueError`) that names the parameter; `mofa.NoFeasibleStrategy` is raised
where `answer.raise_for_status()` asks, `mofa.SourceUnreachable` where something does not answer.
All are `mofa.MofaError`.

**What stays.** From 1.0 on versions are semantic: the functions and classes of this page, their
parameters, the keys of `to_dict` and the schemas change only by what is added, until the major
version changes. Before 1.0 a change is told in the CHANGELOG. Numbers are no part of the promise: a
better model predicts other ones.
"""


def python_page() -> str:
    """docs/reference/python.md."""
    text = [HEAD, "# Python\n", INTRO]
    for name, (question, answer, schemas) in FUNCTIONS.items():
        function = getattr(mofa_model, name)
        links = " or ".join(f"[`{schema}`](schema/{schema}.v1.json)" for schema in schemas)
        text += [
            f"## mofa.{name}\n",
            f"{function.__doc__}\n",
            table(("parameter", "default", "option", "meaning"), _parameters(question)),
            f"\n`{answer.__name__}`: {_sentence(answer)}\n",
            table(("attribute", "what it is"), _attributes(answer)),
            (
                f"\n`to_dict()` is a {links}; `to_frame()` has the rows of `-o csv`; `tables` are "
                "those of the command.\n"
            ),
        ]
    return "\n".join(text)


def _parameters(question: type[UserQuestion]) -> Iterator[tuple[str, ...]]:
    for how in question.options.values():
        yield f"`{how.name}`", _default(how), f"`{how.flag}`", _meaning(how, question)


def _default(how: Option) -> str:
    if how.default is MISSING:
        return "required"
    return "" if how.default in (None, ()) else shown(how.default)


def _meaning(how: Option, question: type[UserQuestion]) -> str:
    """What the command's help says, with parameters where it names options."""
    parameters = parameters_of(question)

    def renamed(match: re.Match[str]) -> str:
        name = parameters.get(match[0])
        return f"`{name}`" if name else f"`{match[0]}`"

    text = re.sub(r"--[a-z]+(?:-[a-z]+)*", renamed, how.text)
    if how.choices:
        sentence, default, rest = text.partition(" (default")
        text = f"{sentence}: {', '.join(how.choices)}{default}{rest}"
    return f"{text[0].upper()}{text[1:]}."


def _attributes(answer: type) -> Iterator[tuple[str, str]]:
    for name, meaning in _field_meanings(answer):
        yield f"`{name}`", meaning
    for name, member in vars(answer).items():
        if not name.startswith("_") and name not in {"shown", "tables_of"}:
            if isinstance(member, property):
                yield f"`{name}`", _sentence(member)
            elif inspect.isfunction(member):
                yield f"`{name}()`", _sentence(member)


def _sentence(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split())


def _field_meanings(kind: type) -> Iterator[tuple[str, str]]:
    """Fields with the text that stands below each."""
    for owner in reversed(kind.__mro__):
        if (
            "__annotations__" not in vars(owner)
            or owner.__module__.partition(".")[0] != "mofa_model"
        ):
            continue
        body = ast.parse(inspect.getsource(owner)).body[0].body  # type: ignore[attr-defined]
        for field, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                value = getattr(after, "value", None)
                yield field.target.id, " ".join(str(getattr(value, "value", "")).split())
