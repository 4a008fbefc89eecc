"""What a notebook shows of an answer: tables and pictures in a box whose style touches nothing beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

from mofa_model.page.figures import curve
from mofa_model.page.markup import STYLE, Node, el, table, text
from mofa_model.tables import Table, for_people

_BOX: Final = "mofa-advisor"
_STYLE: Final = f".{_BOX}{{{STYLE.replace(':root', '&').replace('body{', '&{')}}}"
"""The page's style, each rule below the box: nested rules, which browsers know since 2023."""


def notebook_view(shown: Sequence[Node]) -> str:
    """HTML of an answer."""
    return text(el("div", el("style", _STYLE), *shown, class_=_BOX))


def table_of(told: Table) -> ET.Element:
    """A table of an answer, as people read it."""
    people = for_people(told)
    right = [at for at, column in enumerate(people.columns) if column.align == "right"]
    rows = [tuple(str(cell) for cell in row) for row in people.rows]
    made = table(
        [column.name for column in people.columns], rows, numbers=right, caption=people.title
    )
    return el("div", made, *(el("p", note, class_="note") for note in people.notes))


def ettr_curve(points: Sequence[Mapping[str, Any]], interval: Mapping[str, Any]) -> ET.Element:
    """ETTR over the interval, with its band and the interval that is told."""
    drawn = [
        tuple(float(point[name]) for name in ("seconds", "lower", "ettr", "upper"))
        for point in points
    ]
    return curve(
        "Effective training time over the checkpoint interval",
        drawn,  # type: ignore[arg-type]
        mark=(float(interval["seconds"]), f"{interval['steps']} steps"),
        across="work between saves",
        up="effective training time",
    )
