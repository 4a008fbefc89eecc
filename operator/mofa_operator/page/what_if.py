"""What somebody who looks at a job asks to be different: the form of `mofa ui`, without what the job and its pool say."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from mofa_model.answers.what_if import form_fields
from mofa_model.page.form import FormField, form, told
from mofa_model.page.markup import Node, el

LONGEST: Final = 200
"""Characters of a field. [1]"""
_NODES: Final = FormField(name="nodes", label="Nodes", hint="of the job's pool")
_ASKED: Final = (
    "sequence_length",
    "global_batch_size",
    "tokens",
    "framework",
    "precision",
    "objective",
    "current",
)
_AS_IT_IS: Final = "as the job says"


@cache
def fields() -> tuple[FormField, ...]:
    """What may be different; whatever is empty stays as the job says it."""
    known = {one.name: one for one in form_fields()}
    chosen = (known[name] for name in _ASKED)
    return (_NODES, *(_open(one) for one in chosen))


def _open(one: FormField) -> FormField:
    """A field that may stay empty."""
    choices = ("", *filter(None, one.choices)) if one.only else one.choices
    return FormField(
        name=one.name,
        label=one.label,
        hint=one.hint.removesuffix("; may be empty"),
        choices=choices,
        only=one.only,
        empty=_AS_IT_IS,
    )


def said(query: Mapping[str, str]) -> dict[str, str]:
    """What the address asks to be different."""
    found = {one.name: query.get(one.name, "").strip()[:LONGEST] for one in fields()}
    return {name: text for name, text in found.items() if text}


def sections(changes: Mapping[str, str], errors: Mapping[str, str], address: str) -> list[Node]:
    """The form beside a job, with what cannot be right in it."""
    return [
        el("h2", "What if", id="what-if"),
        el(
            "p",
            f"Ask the same for other values; what is empty stays {_AS_IT_IS}. Nothing is written.",
        ),
        *told(errors, fields()),
        form(fields(), changes, errors, action=address, button="Answer"),
    ]
