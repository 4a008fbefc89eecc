"""The what-if page: a form, its answer with the odds first, and what other values would make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

from mofa_model.page.advice import advice_sections
from mofa_model.page.figures import LineDrawing, lines
from mofa_model.page.form import FormField, form, told
from mofa_model.page.markup import Node, el, page, text
from mofa_model.page.notebook import table_of
from mofa_model.page.view import AdviceView
from mofa_model.tables import Table

SWEPT: Final = "What other values would do"


def what_if_page(
    *,
    fields: Sequence[FormField],
    values: Mapping[str, str],
    errors: Mapping[str, str],
    view: AdviceView | None,
    swept: Sequence[Node] = (),
    commands: Sequence[str] = (),
    alone: bool = False,
) -> str:
    """The page; `alone` leaves the form out, for a file that is kept or sent."""
    title = "What if" if view is None else f"{view.title}: what if"
    content: list[Node] = [el("h1", title)]
    if not alone:
        content += [
            *told(errors, fields),
            form(fields, values, errors, action="/", button="Answer"),
        ]
    if view is None and not errors:
        content.append(
            el(
                "p",
                "Say what shall be trained and on what. The address of the answer can be shared.",
            )
        )
    if view is not None:
        if swept:
            content.append(el("p", el("a", SWEPT, href="#swept"), " stands below."))
        content += [*advice_sections(view), *swept, *_asked_again(values, commands, alone=alone)]
    foot = (
        ""
        if view is None
        else f"MoFa Advisor {view.version}. Nearest measured run: {view.nearest_run}."
    )
    return text(page(title, *content, foot=foot))


def sweep_sections(drawn: LineDrawing, rows: Table, unasked: int) -> list[ET.Element]:
    """A sweep as a picture and a table."""
    found = [el("h2", SWEPT, id="swept"), lines("Other values", drawn), table_of(rows)]
    if unasked:
        found.append(
            el(
                "p",
                f"{unasked} points more would take a page too long: ",
                el("code", "mofa sweep"),
                " asks them all.",
            )
        )
    return found


def _asked_again(values: Mapping[str, str], commands: Sequence[str], *, alone: bool) -> list[Node]:
    found: list[Node] = [el("h2", "The same question elsewhere")]
    if not alone:
        address = f"/export?{urlencode(values)}"
        found.append(
            el("p", el("a", "This answer as one file", href=address), ", to keep or to send.")
        )
    return [*found, el("pre", el("code", "\n".join(commands)))]
