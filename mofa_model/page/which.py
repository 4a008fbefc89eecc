"""The page that says which GPUs a fine-tune needs: a form and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mofa_model.page.markup import FormField, Node, el, form, form_errors, page, text
from mofa_model.page.what_if import DESK, table_of
from mofa_model.tables import Table


def which_page(
    *,
    fields: Sequence[FormField],
    values: Mapping[str, str],
    errors: Mapping[str, str],
    tables: Sequence[Table],
    command: str,
) -> str:
    """The page, with the answer where there is one."""
    title = "Which GPU"
    content: list[Node] = [
        el("h1", title),
        *form_errors(errors, fields),
        form(fields, values, errors, action="/which", button="Answer"),
    ]
    if not tables and not errors:
        content.append(
            el("p", "Say what shall be fine-tuned on how much text. An answer takes some seconds.")
        )
    content += [table_of(table) for table in tables]
    if command:
        content += [el("h2", "The same question elsewhere"), el("pre", el("code", command))]
    return text(page(title, *content, links=DESK))
