"""HTML elements that escape what they hold, forms, and the frame that every page has.

text(page("Jobs", el("h1", "Jobs"), table(("name",), [("llama",)])))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias
from xml.etree import ElementTree as ET

from mofa_model.records import dataclass
from mofa_model.terminal import without_steering

Node: TypeAlias = "ET.Element | str | None"
"""A child of an element: an element, text, or nothing."""

NARROW: Final = 2
"""Most columns that a phone has room for. [1]"""
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Sent with every page: no script runs, nothing is fetched, a form asks only its own server."""
STYLE: Final = """
:root{color-scheme:light dark;
--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;--ground:#fff;--raised:#f6f8fa;--link:#0550ae;
--c0:#2563eb;--c1:#b45309;--c2:#047857;--c3:#be185d;
--c4:#6d28d9;--c5:#0e7490;--c6:#4d7c0f;--c7:#57606a;
--good:#047857;--warn:#9a4a00;--bad:#b42318}
@media (prefers-color-scheme:dark){:root{
--ink:#e6edf3;--soft:#a3adb8;--line:#3b434d;--ground:#0d1117;--raised:#161b22;--link:#79b8ff;
--c0:#6ea8fe;--c1:#f0a35e;--c2:#4fd1a1;--c3:#f687b3;
--c4:#b79cf7;--c5:#5cc8e0;--c6:#a9d15a;--c7:#a3adb8;
--good:#4fd1a1;--warn:#f0a35e;--bad:#ff8f85}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;margin:0;color:var(--ink);background:var(--ground)}
header,main,footer{max-width:72rem;margin:0 auto;padding:0 1rem}
header{display:flex;gap:1.5rem;align-items:baseline;padding-top:.8rem;
border-bottom:1px solid var(--line);flex-wrap:wrap}
header p{font-weight:600;margin:.2rem 0}
nav ul{display:flex;gap:1rem;list-style:none;margin:.2rem 0;padding:0}
main{padding-bottom:3rem;overflow-wrap:break-word}
footer{color:var(--soft);border-top:1px solid var(--line);padding:.8rem 1rem 2rem;font-size:.9rem}
h1{font-size:1.6rem;margin:1.2rem 0 .4rem}h2{font-size:1.2rem;margin:2rem 0 .4rem}
a{color:var(--link)}
a:focus-visible,summary:focus-visible{outline:3px solid var(--c1);outline-offset:2px}
input,select,button{font:inherit;color:var(--ink);background:var(--ground);
border:1px solid var(--soft);border-radius:.3rem;padding:.35rem .5rem;width:100%;min-width:0}
input:focus-visible,select:focus-visible,button:focus-visible,.scroll:focus-visible{
outline:3px solid var(--c1);outline-offset:2px}
button{background:var(--link);color:var(--ground);border-color:var(--link);font-weight:600;
width:auto;padding:.4rem 1.2rem;cursor:pointer}
form.ask,form.search{display:grid;
grid-template-columns:repeat(auto-fill,minmax(min(100%,12.5rem),1fr));
gap:.7rem 1rem;align-items:start;margin:1rem 0}
form.search{align-items:end}label{display:block;font-weight:600;font-size:.9rem}
form small{display:block;color:var(--soft);font-size:.85rem}
form small.bad{color:var(--bad);font-weight:600}
form p{margin:0;align-self:center}[aria-invalid]{border:2px solid var(--bad)}
.skip{position:absolute;left:-100rem}
.skip:focus{left:1rem;top:.5rem;background:var(--ground);padding:.3rem .6rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;margin:.5rem 0}
caption{text-align:left;color:var(--soft);padding:.2rem 0}
th,td{padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);text-align:left;
vertical-align:top}
thead th{border-bottom-width:2px}tbody th{font-weight:400}
td:last-child{overflow-wrap:anywhere;min-width:9rem}td.n:last-child{min-width:0}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
dl.key{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
dl.key div{background:var(--raised);border:1px solid var(--line);border-radius:.4rem;
padding:.5rem .8rem}
dt{color:var(--soft);font-size:.9rem}
dd{margin:0;font-size:1.25rem;font-variant-numeric:tabular-nums}
dd small{display:block;font-size:.85rem;color:var(--soft)}
dl.brief{margin:1rem 0;background:var(--raised);border-radius:.4rem;padding:.5rem .8rem}
dl.brief div{display:grid;grid-template-columns:5.5rem 1fr;gap:.2rem .6rem}
dl.brief dd{font-size:1rem;overflow-wrap:anywhere;min-width:0}
textarea{font:0.9rem/1.4 ui-monospace,monospace;color:var(--ink);background:var(--ground);
border:1px solid var(--soft);border-radius:.3rem;padding:.5rem;width:100%;min-height:9rem}
textarea:focus-visible{outline:3px solid var(--c1);outline-offset:2px}
form .wide{grid-column:1/-1}
code,pre{font:0.92em/1.5 ui-monospace,monospace}
pre{background:var(--raised);padding:.7rem;white-space:pre-wrap;overflow-wrap:anywhere;
border-radius:.4rem}
code{overflow-wrap:anywhere}
figure{margin:.8rem 0}figcaption{color:var(--soft);font-size:.9rem}svg{max-width:100%;height:auto}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}
svg .axis{stroke:var(--line);stroke-width:1;fill:none}
svg .soft{fill:var(--soft)}
.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}
ul.swatches{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;margin:.4rem 0;
font-size:.9rem}
ul.swatches span{display:inline-block;width:.8em;height:.8em;margin-right:.4em;border-radius:2px}
@media (max-width:45rem){
form.ask{grid-template-columns:repeat(auto-fill,minmax(min(100%,9.5rem),1fr))}
.minor{display:none}th,td{padding-right:.6rem;overflow-wrap:anywhere}
td:last-child{min-width:0}h1{font-size:1.35rem;overflow-wrap:anywhere}
.cards,.cards tbody,.cards tr,.cards th,.cards td,.cards caption{display:block}
.cards thead,.cards .minor,.cards td:empty{display:none}
.cards tr{border:1px solid var(--line);border-radius:.4rem;padding:.4rem .8rem;margin:.5rem 0}
.cards th,.cards td{border:0;padding:.05rem 0;text-align:left;white-space:normal}
.cards tbody th{font-weight:600}
.cards td{position:relative;padding-left:7.5rem;min-height:1.5em}
.cards td::before{content:attr(data-name);position:absolute;left:0;max-width:7rem;
color:var(--soft)}}
"""
"""Contrast of text is at least 4.5 to 1 on both grounds; no two colours differ as red and green."""


def el(tag: str, *children: Node, **attributes: str | float) -> ET.Element:
    """An element; `class_` and `for_` lose their underscore, other underscores become hyphens.

    >>> text(el("p", "a < b", class_="soft"))
    '<p class="soft">a &lt; b</p>'
    """
    element = ET.Element(tag, {_name(key): _value(value) for key, value in attributes.items()})
    last: ET.Element | None = None
    for child in children:
        if child is None:
            continue
        if isinstance(child, str):
            shown = "".join(c if c.isprintable() or c == "\n" else " " for c in child)
            if last is None:
                element.text = (element.text or "") + shown
            else:
                last.tail = (last.tail or "") + shown
        else:
            element.append(child)
            last = child
    return element


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[Node]],
    *,
    numbers: Iterable[int] = (),
    minor: Iterable[int] = (),
    caption: str = "",
) -> ET.Element:
    """A table whose first cells are the headings of their rows.

    `numbers` are the columns that are aligned right, `minor` those that a phone does not show. On a
    phone, each row of a table with more than `NARROW` columns is a card that names its cells. A
    table that is wider than its place scrolls, by the keyboard too.
    """
    right, less = set(numbers), set(minor)
    is_wide = len(headings) > NARROW

    def cell(tag: str, index: int, content: Node, scope: str | None) -> ET.Element:
        element = el(tag, content)
        if kinds := " ".join(
            kind for kind, places in (("n", right), ("minor", less)) if index in places
        ):
            element.set("class", kinds)
        if scope:
            element.set("scope", scope)
        if is_wide and scope != "col":
            element.set("role", "cell" if index else "rowheader")
        if is_wide and index and scope is None:
            element.set("data-name", headings[index])
        return element

    def line(*cells: ET.Element) -> ET.Element:
        return el("tr", *cells, **({"role": "row"} if is_wide else {}))

    body = [
        line(
            *(
                cell("td" if index else "th", index, content, None if index else "row")
                for index, content in enumerate(row)
            )
        )
        for row in rows
    ]
    element = el(
        "table",
        el("caption", caption) if caption else None,
        el(
            "thead",
            el("tr", *(cell("th", index, name, "col") for index, name in enumerate(headings))),
        ),
        el("tbody", *body, **({"role": "rowgroup"} if is_wide else {})),
        **({"class": "cards", "role": "table"} if is_wide else {}),
    )
    name = caption or ", ".join(filter(None, headings))
    return el("div", element, class_="scroll", tabindex="0", role="group", aria_label=name)


def page(
    title: str, *body: Node, links: Sequence[tuple[str, str]] = (), foot: str = ""
) -> ET.Element:
    """A whole page: a link past the header, landmarks, the style."""
    navigation = None
    if links:
        items = (el("li", el("a", name, href=address)) for name, address in links)
        navigation = el("nav", el("ul", *items), aria_label="Main")
    return el(
        "html",
        el(
            "head",
            el("meta", charset="utf-8"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("title", f"{title} · MoFa Advisor"),
            el("style", STYLE),
        ),
        el(
            "body",
            el("a", "Skip to the content", href="#content", class_="skip"),
            el("header", el("p", "MoFa Advisor"), navigation),
            el("main", *body, id="content"),
            el("footer", foot) if foot else None,
        ),
        lang="en",
    )


def text(element: ET.Element) -> str:
    """An element as HTML, a page with its document type; control characters become spaces."""
    written = without_steering(ET.tostring(element, encoding="unicode", method="html"))
    return f"<!doctype html>\n{written}\n" if element.tag == "html" else written


@dataclass(frozen=True, kw_only=True)
class FormField:
    """A field of a form."""

    name: str
    """Its name in the address: the parameter of the question."""
    label: str
    """Its name on the page."""
    hint: str = ""
    """A few words on its value."""
    choices: tuple[str, ...] = ()
    """Values to choose from; without `only`, they are suggestions."""
    only: bool = False
    """Whether the choices are the only allowed values."""
    empty: str = "any"
    """The label of the empty choice."""
    look: str = "line"
    """`line`, `text` for a field of many lines, `file` for files that are chosen or dropped."""


def form(
    fields: Sequence[FormField],
    values: Mapping[str, str],
    errors: Mapping[str, str],
    *,
    action: str,
    button: str,
    look: str = "ask",
    is_sent: bool = False,
) -> ET.Element:
    """A form without scripts. Its answer has an address that can be shared; with `is_sent` the form
    is posted, because its texts are too long for an address.
    """
    content = [
        _field(field, values.get(field.name, ""), errors.get(field.name, "")) for field in fields
    ]
    return el(
        "form",
        *content,
        el("p", el("button", button, type="submit")),
        action=action,
        method="post" if is_sent else "get",
        class_=look,
        **({"enctype": "multipart/form-data"} if is_sent else {}),
    )


def form_errors(errors: Mapping[str, str], fields: Sequence[FormField]) -> list[Node]:
    """The errors of a form, each with a link to its field; empty without errors."""
    if not errors:
        return []
    labels = {field.name: field.label for field in fields}
    items = [
        el("li", el("a", labels[name], href=f"#{name}"), f": {why}")
        if name in labels
        else el("li", why)
        for name, why in errors.items()
    ]
    heading = el("p", el("strong", "This cannot be answered", class_="bad"), ":")
    return [el("div", heading, el("ul", *items), role="alert")]


def _field(field: FormField, value: str, error: str) -> ET.Element:
    """One field of a form in HTML, with its label, hint and error."""
    marks = [
        f"{field.name}-{kind}"
        for kind, content in (("hint", field.hint), ("error", error))
        if content
    ]
    attributes: dict[str, str] = {"id": field.name, "name": field.name}
    if marks:
        attributes["aria_describedby"] = " ".join(marks)
    if error:
        attributes["aria_invalid"] = "true"
    below: list[Node] = []
    if field.look == "text":
        control = el("textarea", value, autocomplete="off", spellcheck="false", **attributes)
    elif field.look == "file":
        control = el("input", type="file", multiple="multiple", **attributes)
    elif field.only:
        options = [el("option", word or field.empty, value=word) for word in field.choices]
        for option, word in zip(options, field.choices, strict=True):
            if word == value:
                option.set("selected", "selected")
        control = el("select", *options, **attributes)
    else:
        if field.choices:
            attributes["list"] = f"{field.name}-known"
            options = [el("option", value=word) for word in field.choices]
            below = [el("datalist", *options, id=f"{field.name}-known")]
        control = el("input", value=value, autocomplete="off", **attributes)
    hint = el("small", field.hint, id=f"{field.name}-hint") if field.hint else None
    wrong = el("small", error, id=f"{field.name}-error", class_="bad") if error else None
    wide = {} if field.look == "line" else {"class_": "wide"}
    label = el("label", field.label, for_=field.name)
    return el("div", label, control, *below, hint, wrong, **wide)


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"
