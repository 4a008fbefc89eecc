"""The runbooks as pages: an alert's `runbook_url` opens where the operator runs, whoever hosts documents or does not."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from mofa_model.page.markup import el, page, text

PATH: Final = "/runbooks/"
"""Where they are served; they say nothing of a cluster, so whoever reaches the port may read them."""
INDEX: Final = "README"
"""The list of all."""
_HERE: Final = Path(__file__).resolve()
_FOLDERS: Final = (_HERE.parents[1] / "runbooks", _HERE.parents[3] / "docs" / "runbooks")
"""In a wheel, and in a clone."""


@cache
def runbook_page(name: str) -> str | None:
    """A runbook by the name of its alert; the list of all for an empty name; None where there is none."""
    found = _pages().get(name.removesuffix(".md") or INDEX)
    if found is None:
        return None
    from markdown_it import MarkdownIt

    title = found.partition("\n")[0].removeprefix("# ")
    told = MarkdownIt("commonmark", {"html": False, "xhtmlOut": True}).enable("table").render(found)
    body = ET.fromstring(f"<div>{told}</div>")  # noqa: S314 - made here, of our own pages
    for link in body.iter("a"):
        if not link.get("href", "").startswith("Mofa"):  # other documents are not here
            link.tag = "em"
            link.attrib.clear()
    for table in list(body.findall("table")):  # wide ones are scrolled on a phone
        place = list(body).index(table)
        body[place] = el(
            "div", table, class_="scroll", tabindex="0", role="group", aria_label=title
        )
    return text(page(title, body, links=(("All runbooks", f"{PATH}{INDEX}"),)))


@cache
def _pages() -> dict[str, str]:
    """The text of each by its name."""
    folder = next(one for one in _FOLDERS if one.is_dir())
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
