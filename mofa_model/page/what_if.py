"""The what-if page (a form, its answer and a sweep), and the view of an answer in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

from mofa_model.page.advice import AdviceView, brief_list, folded
from mofa_model.page.figures import LineDrawing, lines
from mofa_model.page.markup import STYLE, FormField, Node, el, form, form_errors, page, table, text
from mofa_model.tables import Table, for_people

DESK: Final = (("What if", "/"), ("Paste", "/paste"), ("Which GPU", "/which"))
"""Pages of `mofa ui`, with their addresses."""
SWEPT: Final = "What other values would do"
_BOX: Final = "mofa-advisor"
_STYLE: Final = f".{_BOX}{{{STYLE.replace(':root', '&').replace('body{', '&{')}}}"
"""The page's style, each rule below the box: nested rules, which browsers know since 2023."""


def what_if_page(
    *,
    fields: Sequence[FormField],
    values: Mapping[str, str],
    errors: Mapping[str, str],
    view: AdviceView | None,
    brief_lines: Sequence[tuple[str, str]] = (),
    swept: Sequence[Node] = (),
    commands: Sequence[str] = (),
    alone: bool = False,
) -> str:
    """The page; `alone` leaves the form out, for a file that is kept or sent."""
    title = "What if" if view is None else f"{view.title}: what if"
    content: list[Node] = [el("h1", title)]
    if view is not None:
        content.append(brief_list(brief_lines))
    if not alone:
        content += form_errors(errors, fields)
        content.append(form(fields, values, errors, action="/", button="Answer"))
    if view is None and not errors:
        hint = "Say what shall be trained and on what. The address of the answer can be shared."
        content.append(el("p", hint))
    if view is not None:
        if swept:
            content.append(el("p", el("a", SWEPT, href="#swept"), " stands below."))
        elsewhere = _elsewhere_section(values, commands, alone=alone)
        content += [folded(view, is_open=alone), *swept, *elsewhere]
    foot = "" if view is None else f"MoFa Advisor {view.advice.model_version}."
    return text(page(title, *content, links=() if alone else DESK, foot=foot))


def sweep_sections(drawing: LineDrawing, rows: Table, unasked: int) -> list[ET.Element]:
    """A sweep as a picture and a table."""
    nodes = [el("h2", SWEPT, id="swept"), lines("Other values", drawing), table_of(rows)]
    if unasked:
        more = f"{unasked} points more would take a page too long: "
        nodes.append(el("p", more, el("code", "mofa sweep"), " asks them all."))
    return nodes


def _elsewhere_section(
    values: Mapping[str, str], commands: Sequence[str], *, alone: bool
) -> list[Node]:
    """The section with commands that ask the same, and a link to the answer as one file."""
    nodes: list[Node] = [el("h2", "The same question elsewhere")]
    if not alone:
        address = f"/export?{urlencode(values)}"
        nodes.append(
            el("p", el("a", "This answer as one file", href=address), ", to keep or to send.")
        )
    return [*nodes, el("pre", el("code", "\n".join(commands)))]


def notebook_view(shown: Sequence[Node]) -> str:
    """HTML of an answer."""
    return text(el("div", el("style", _STYLE), *shown, class_=_BOX))


def table_of(answer_table: Table) -> ET.Element:
    """A table of an answer, as people read it."""
    people = for_people(answer_table)
    right = [index for index, column in enumerate(people.columns) if column.align == "right"]
    rows = [tuple(str(cell) for cell in row) for row in people.rows]
    headings = [column.name for column in people.columns]
    element = table(headings, rows, numbers=right, caption=people.title)
    return el("div", element, *(el("p", note, class_="note") for note in people.notes))
