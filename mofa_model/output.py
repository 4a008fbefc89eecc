"""What a verb answers, printed in the form that was asked for.

    def configure(parser):
        output.add_options(parser)

    def run(arguments):
        output.emit(arguments.output, [table], document={"step_seconds": 4.2})
        return 0

Tables on a terminal are drawn by rich. In a pipe they are plain text of 80 columns, or of as many
as the variable COLUMNS says. JSON and YAML hold `document`, or the tables where a verb has no
document; a number that is not finite is refused, because JSON cannot write it. CSV is one table:
`records` where a verb has some, else the first table.

No output steers a terminal, whatever names it contains: tables and CSV write a space for such a
character, JSON and YAML its code. What programs read is always UTF-8; people get plain characters
where their terminal has no others.
"""

from __future__ import annotations

import dataclasses
import enum
import io
import json
import math
import os
import re
import sys
from argparse import ArgumentParser, _ArgumentGroup
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

from mofa_model import terminal
from mofa_model.tables import (
    Cell,
    Column,
    Table,
    as_html,
    as_markdown,
    broken,
    fitted,
    for_people,
    plain,
)
from mofa_model.yaml_text import as_yaml

if TYPE_CHECKING:
    from rich.progress import Progress

FORMS: Final = ("table", "wide", "json", "yaml", "csv", "markdown", "html")

_BILLIONS: Final = "1e9"
"""Unit of counts that people read in billions."""

_PATIENCE: Final = 1.0
"""Seconds of work before a progress bar is worth looking at."""


def add_options(parser: ArgumentParser) -> None:
    """Give a verb the options `-o FORM` and `--json`; both end in `arguments.output`."""
    group = parser.add_argument_group("output").add_mutually_exclusive_group()
    group.add_argument(
        "-o", "--output", choices=FORMS, default="table", help="form of the answer (default: table)"
    )
    group.add_argument(
        "--json", dest="output", action="store_const", const="json", help="short for -o json"
    )


def add_folder_options(group: ArgumentParser | _ArgumentGroup, what: str) -> None:
    """Give a verb `--save-dir` and `--overwrite`; `what` is written into the folder."""
    group.add_argument("--save-dir", metavar="FOLDER", help=f"write {what}")
    group.add_argument(
        "--overwrite",
        action="store_true",
        help="let --save-dir write into a folder that is not empty",
    )


def emit(
    form: str,
    tables: Sequence[Table],
    document: Any = None,
    *,
    records: Table | None = None,
    stream: TextIO | None = None,
) -> None:
    """Print the tables; in JSON and YAML the document, in CSV the records."""
    out = stream or sys.stdout
    if form in ("table", "wide") and out.isatty():
        _draw(tables, out, wide=form == "wide")
        return
    text = render(form, tables, document, records=records, width=columns())
    if form in ("json", "yaml", "html"):
        terminal.put(text, out)
    else:
        out.write(text)


def render(
    form: str,
    tables: Sequence[Table],
    document: Any = None,
    *,
    records: Table | None = None,
    width: int = 80,
) -> str:
    """The text that `emit` writes where there is no terminal."""
    if form in ("json", "yaml"):
        data = as_data(as_document(tables) if document is None else document)
        return as_json(data) if form == "json" else as_yaml(data)
    if form == "html":
        return as_html(tables)
    if form == "csv":
        return as_csv(records or tables[0])
    write: dict[str, Callable[[Table], str]] = {
        "table": lambda table: plain(table, width=width),
        "wide": lambda table: plain(table, wide=True),
        "markdown": as_markdown,
    }
    return "\n".join(write[form](table) for table in tables)


def as_csv(table: Table) -> str:
    """Keys in the first row, then the values with every digit, in SI, without title and notes."""
    import csv

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([terminal.printable(column.key) for column in table.columns])
    writer.writerows(map(_plain_cell, row, table.columns) for row in table.rows)
    return text.getvalue()


def _plain_cell(cell: Cell, column: Column) -> Cell:
    """A cell for a program: nothing for no value, and no prefix of the column's."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return terminal.printable(cell)
    if column.unit == _BILLIONS and isinstance(cell, int | float):
        return round(cell * 1e9)
    return cell


def as_document(tables: Sequence[Table]) -> Any:
    """Tables for machines: one object, or a list where there are several."""
    documents = [
        {
            "title": table.title,
            "units": {column.key: column.unit for column in table.columns if column.unit},
            "rows": [
                dict(zip((column.key for column in table.columns), row, strict=True))
                for row in table.rows
            ],
            "notes": list(table.notes),
        }
        for table in tables
    ]
    return documents[0] if len(documents) == 1 else documents


def as_record(document: Any) -> Table:
    """A document as one row for CSV: nested keys are joined by _, lists of mappings left out.

    >>> as_record({"ettr": {"target": 0.97}, "every": [1, 5], "curve": [{"steps": 1}]}).rows
    ((0.97, '1 5'),)
    """
    cells: dict[str, Cell] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                walk(item, f"{name}_{key}" if name else str(key))
        elif not isinstance(value, list):
            cells[name] = value
        elif value and not any(isinstance(item, Mapping | list) for item in value):
            cells[name] = " ".join(map(str, value))

    walk(as_data(document), "")
    columns = tuple(Column(re.sub(r"\W+", "_", name)) for name in cells)
    return Table(columns=columns, rows=(tuple(cells.values()),))


def as_json(document: Any) -> str:
    """A document as JSON text; what could steer a terminal is written by its code."""
    return (
        terminal.coded(json.dumps(as_data(document), indent=2, ensure_ascii=False, allow_nan=False))
        + "\n"
    )


def as_data(value: Any, path: str = "document") -> Any:
    """Dataclasses, enums and arrays as what JSON knows; `path` is the value's place, for errors."""
    if isinstance(value, enum.Enum):
        return as_data(value.value, path)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path} is {value}, which JSON cannot say")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: as_data(getattr(value, f.name), f"{path}.{f.name}")
            for f in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {
            str(as_data(key, path)): as_data(item, f"{path}.{key}") for key, item in value.items()
        }
    if hasattr(value, "tolist"):  # numpy arrays and scalars, without importing numpy
        return as_data(value.tolist(), path)
    if isinstance(value, Iterable):
        return [as_data(item, f"{path}[{i}]") for i, item in enumerate(value)]
    return str(value)


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Show progress on standard error, where it is a terminal, for work of more than a second.

    with progress("searching", total=len(blocks)) as advance:
        for block in blocks:
            ...
            advance(1)
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    began, done = monotonic(), 0.0
    bar: Progress | None = None

    def advance(amount: float) -> None:
        nonlocal done, bar
        done += amount
        if bar is None and monotonic() - began > _PATIENCE:
            from rich.console import Console
            from rich.progress import Progress

            bar = Progress(console=Console(stderr=True), transient=True)
            bar.add_task(what, total=total)
            bar.start()
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def columns() -> int:
    """Columns of a page that is no terminal: the variable COLUMNS, else 80."""
    text = os.environ.get("COLUMNS", "")
    return max(40, int(text)) if text.isdecimal() and len(text) < 6 else 80


def _draw(tables: Sequence[Table], out: TextIO, *, wide: bool) -> None:
    """Tables on a terminal; text of users is never read as markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawing
    from rich.text import Text

    console = Console(file=out, highlight=False, markup=False)
    page = console.width
    for table in tables:
        printed = for_people(table, wide=wide)
        printed = printed if wide else fitted(printed, page - 2, gap=3)
        drawing = Drawing(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in printed.columns:
            side: Literal["left", "right"] = "right" if column.align == "right" else "left"
            drawing.add_column(Text(column.name), justify=side, no_wrap=True)
        for row in printed.rows:
            drawing.add_row(*(Text(str(cell)) for cell in row))
        if printed.title:
            console.print("\n".join(broken(printed.title, page)), style="bold")
        console.width = 1 << 16
        console.width = max(
            page, console.measure(drawing).maximum
        )  # no number is cut: the terminal breaks the line
        console.print(drawing)
        for note in printed.notes:
            console.print("\n".join(broken(note, page)), style="italic")
        console.width = page
