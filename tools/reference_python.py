"""docs/reference/python.md and the JSON schemas of docs/reference/schema, from the questions and documents of mofa_model.answers."""

from __future__ import annotations

import ast
import inspect
import json
import types
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from reference_crds import HEAD, shown, table

import mofa_model
from mofa_model.answers import documents
from mofa_model.answers.advise import AdviceAnswer, AdviceQuestion
from mofa_model.answers.ettr import EttrAnswer, EttrQuestion
from mofa_model.answers.explain import ExplainAnswer, ExplainQuestion
from mofa_model.answers.question import option_of
from mofa_model.answers.simulate import SimulateAnswer, SimulateQuestion
from mofa_model.answers.sweep import SweepAnswer, SweepQuestion

QUESTIONS = {
    "advise": (AdviceQuestion, AdviceAnswer, ("AdviseDocument",)),
    "explain": (ExplainQuestion, ExplainAnswer, ("ExplainDocument",)),
    "ettr": (EttrQuestion, EttrAnswer, ("EttrDocument", "VariedEttrDocument")),
    "simulate": (SimulateQuestion, SimulateAnswer, ("SimulateDocument",)),
    "sweep": (SweepQuestion, SweepAnswer, ("SweepDocument",)),
}
"""Each function with its question, its answer, and what the answer is for machines."""
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

Names are those of manifests and of the command\'s options. A quantity is text with its unit (`"2 GB/s"`, `"28 s"`), a count a number or
text (`15_000_000_000_000`, `"15T"`). Answers are frozen, and a notebook shows them as tables and pictures. What cannot be right is a
`mofa.InputError` (a `ValueError`) that names the parameter; `mofa.NoFeasibleStrategy` is raised where `answer.raise_for_status()` asks,
`mofa.SourceUnreachable` where something does not answer. All are `mofa.MofaError`.

**What stays.** From 1.0 on versions are semantic: the functions and classes of this page, their parameters, the keys of `to_dict` and
the schemas change only by what is added, until the major version changes. Before 1.0 a change is told in the CHANGELOG. Numbers are
no part of the promise: a better model predicts other ones.
"""


def python_page() -> str:
    """docs/reference/python.md."""
    text = [HEAD, "# Python\n", INTRO]
    for name, (question, answer, told) in QUESTIONS.items():
        function = getattr(mofa_model, name)
        links = " or ".join(f"[`{one}`](schema/{_file(one)})" for one in told)
        text += [
            f"## mofa.{name}\n",
            f"{function.__doc__}\n",
            table(("parameter", "default", "option", "meaning"), _parameters(question)),
            f"\n`{answer.__name__}`: {_sentence(answer)}\n",
            table(("attribute", "what it is"), _attributes(answer)),
            f"\n`to_dict()` is a {links}; `to_frame()` has the rows of `-o csv`; `tables` are those of the command.\n",
        ]
    return "\n".join(text)


def schemas() -> dict[str, str]:
    """JSON schemas of every document, by the name of their file."""
    found = {}
    for _, _, told in QUESTIONS.values():
        for name in told:
            kind = getattr(documents, name)
            schema = {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "title": name,
                "description": f"{inspect.getdoc(kind)} Version {documents.VERSION}: keys are added, never taken away.",
                **schema_of(kind),
            }
            found[f"schema/{_file(name)}"] = json.dumps(schema, indent=2)
    return found


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of a type: what `documents` is made of, and no more."""
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        needed = [name for name, hint in hints.items() if get_origin(hint) is not NotRequired]
        inner = {
            n: schema_of(get_args(h)[0] if get_origin(h) is NotRequired else h)
            for n, h in hints.items()
        }
        return {"type": "object", "properties": inner, "required": needed}
    origin, of = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return {"anyOf": [schema_of(one) for one in of]}
    if origin is list:
        return {"type": "array", "items": schema_of(of[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(of[1])}
    if kind is Any:
        return {}
    names = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    return {"type": names[kind]}


def _file(document: str) -> str:
    stem = document.removesuffix("Document")
    words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in stem).strip(
        "-"
    )
    return f"{words}.v{documents.VERSION}.json"


def _parameters(question: type) -> Iterator[tuple[str, ...]]:
    said = dict(_said(question))
    for one in fields(question):
        default = (
            "required"
            if one.default is MISSING
            else ""
            if one.default in {None, ()}
            else shown(one.default)
        )
        yield (
            f"`{one.name}`",
            default,
            "FILE" if one.name == "file" else f"`{_option(one.name)}`",
            said[one.name],
        )


def _option(name: str) -> str:
    singular = {"classes": "--class", "domains": "--domain", "constraints": "--constraint"}
    return singular.get(name) or option_of(name)


def _attributes(answer: type) -> Iterator[tuple[str, str]]:
    for name, said in _said(answer):
        yield f"`{name}`", said
    for name, member in vars(answer).items():
        if not name.startswith("_") and name not in {"to_dict", "shown", "told"}:
            if isinstance(member, property):
                yield f"`{name}`", _sentence(member)
            elif inspect.isfunction(member):
                yield f"`{name}()`", _sentence(member)


def _sentence(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split())


def _said(kind: type) -> Iterator[tuple[str, str]]:
    """Fields with the text that stands below each."""
    for one in reversed(kind.__mro__):
        if "__annotations__" not in vars(one) or one.__module__.partition(".")[0] != "mofa_model":
            continue
        body = ast.parse(inspect.getsource(one)).body[0].body  # type: ignore[attr-defined]
        for field, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                value = getattr(after, "value", None)
                yield field.target.id, " ".join(str(getattr(value, "value", "")).split())
