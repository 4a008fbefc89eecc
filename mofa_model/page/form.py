"""A form without scripts: each field has its label, its hint and its error, and keeps what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from mofa_model.page.markup import Node, el


@dataclass(frozen=True, kw_only=True, slots=True)
class FormField:
    """One thing that may be said."""

    name: str
    """Its name in the address: the parameter of the question."""
    label: str
    """What people call it."""
    hint: str = ""
    """What may be written."""
    choices: tuple[str, ...] = ()
    """What there is to choose from; empty where anything may be written."""
    only: bool = False
    """Whether nothing else may be written than one of the choices."""
    empty: str = "any"
    """What the empty one of them means."""


def form(
    fields: Sequence[FormField],
    values: Mapping[str, str],
    errors: Mapping[str, str],
    *,
    action: str,
    button: str,
    look: str = "ask",
) -> ET.Element:
    """The form, which asks by its address, so that an answer can be shared."""
    content = [_field(one, values.get(one.name, ""), errors.get(one.name, "")) for one in fields]
    return el(
        "form",
        *content,
        el("p", el("button", button, type="submit")),
        action=action,
        method="get",
        class_=look,
    )


def told(errors: Mapping[str, str], fields: Sequence[FormField]) -> list[Node]:
    """What cannot be right, each with a link to its field; nothing where all is well."""
    if not errors:
        return []
    labels = {one.name: one.label for one in fields}
    items = [
        el("li", el("a", labels[name], href=f"#{name}") if name in labels else None, f": {why}" if name in labels else why)
        for name, why in errors.items()
    ]  # fmt: skip
    return [
        el(
            "div",
            el("p", el("strong", "This cannot be answered", class_="bad"), ":"),
            el("ul", *items),
            role="alert",
        )
    ]


def _field(one: FormField, value: str, error: str) -> ET.Element:
    marks = [f"{one.name}-{kind}" for kind, said in (("hint", one.hint), ("error", error)) if said]
    given: dict[str, str] = {"id": one.name, "name": one.name}
    if marks:
        given["aria_describedby"] = " ".join(marks)
    if error:
        given["aria_invalid"] = "true"
    below: list[Node] = []
    if one.only:
        options = [
            el(
                "option",
                word or one.empty,
                value=word,
                **({"selected": "selected"} if word == value else {}),
            )
            for word in one.choices
        ]
        control = el("select", *options, **given)
    else:
        if one.choices:
            given["list"] = f"{one.name}-known"
            below = [
                el(
                    "datalist",
                    *(el("option", value=word) for word in one.choices),
                    id=f"{one.name}-known",
                )
            ]
        control = el("input", value=value, autocomplete="off", **given)
    hint = el("small", one.hint, id=f"{one.name}-hint") if one.hint else None
    wrong = el("small", error, id=f"{one.name}-error", class_="bad") if error else None
    return el("div", el("label", one.label, for_=one.name), control, *below, hint, wrong)
