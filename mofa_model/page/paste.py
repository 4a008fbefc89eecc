"""The page for pasted texts and files: the form, the answer, and the files of its launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mofa_model.page.advice import AdviceView, brief_list, folded
from mofa_model.page.markup import FormField, Node, el, form, form_errors, page, text
from mofa_model.page.what_if import DESK, table_of
from mofa_model.tables import Table

ADDRESS: Final = "/paste"
_NOTHING: Final = "Nothing in it is run, and nothing is kept."


def paste_page(
    *,
    fields: Sequence[FormField],
    values: Mapping[str, str],
    errors: Mapping[str, str],
    brief_lines: Sequence[tuple[str, str]] = (),
    tables: Sequence[Table] = (),
    view: AdviceView | None = None,
    texts: Mapping[str, str] | None = None,
    command: str = "",
) -> str:
    """The page, with the answer where there is one; `texts` are the files of its launch."""
    title = "Paste what you have" if view is None else view.title
    sent = form(fields, values, errors, action=ADDRESS, button="Answer", is_sent=True)
    content: list[Node] = [el("h1", title)]
    if view is None:
        content += [*form_errors(errors, fields), sent, el("p", _NOTHING)]
    content += _launch(brief_lines, texts or {}) if view is not None else []
    if tables:
        shown = [table_of(table) for table in tables]
        content.append(el("details", el("summary", "What was read, and where it stands"), *shown))
    if view is not None:
        content += [folded(view), el("h2", "Another question"), sent]
    if command:
        content += [el("h2", "The same question elsewhere"), el("pre", el("code", command))]
    return text(page(title, *content, links=DESK))


def _launch(brief_lines: Sequence[tuple[str, str]], texts: Mapping[str, str]) -> list[Node]:
    """The ten-second answer, and each file of the launch behind its name."""
    nodes: list[Node] = [brief_list(brief_lines)]
    if texts:
        nodes.append(el("h2", "The launch, as files"))
    for name, written in texts.items():
        nodes.append(el("details", el("summary", el("code", name)), el("pre", el("code", written))))
    return nodes
