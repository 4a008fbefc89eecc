"""A table as a value, and its text: plain, markdown, HTML. `output` prints it, and writes CSV.

    Table(
        title="Step time",
        columns=(Column("term"), Column("time", unit="s"), Column("share", unit="%")),
        rows=(("compute", 4.2, 0.81), ("pipeline bubble", 0.31, 0.06)),
    )

People read `4.2 s` and `81 %`; machines get 4.2 and 0.81 with every digit. A cell without a value
is None.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias, TypeVar

from mofa_model.records import dataclass
from mofa_model.terminal import printable

Cell: TypeAlias = str | int | float | bool | None

_DIMENSIONS: Final = ("s", "B", "B/s", "FLOP", "FLOP/s", "1/s")
"""Units that people read with a prefix in the cell, not in the heading."""

_BAR: Final = 24
"""Characters of the longest bar. [1]"""
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"

_IN_SECONDS: Final = (1.0, 6000.0)
"""From a second to a hundred minutes: times of which all lie there are written in seconds, so that
they compare. [s]"""
_NARROWEST: Final = 12
"""A text column is wrapped to no fewer characters than this."""

_BREAKS: Final = (
    r"([ \t]+(?!(?:[num]?s|min|h|d|%|(?:[kKMGT]i?)?B(?:/s)?)(?:[^\w]|$))|(?<=,)(?=[a-z]))"
)
"""Where a line may end: at spaces, except before a unit, and after the commas of a strategy."""


@dataclass(frozen=True)
class Column:
    """One column: what it holds and how people read it."""

    name: str
    """The heading; the key in JSON is the same in small letters, with _ for spaces."""

    unit: str = ""
    """`s`, `B`, `B/s`, `FLOP`, `FLOP/s` and `1/s` get a prefix in each cell; `%` shows a ratio;
    other units stand in the heading."""

    align: Literal["auto", "left", "right"] = "auto"
    """`auto` is right where the first value is a number."""

    wide: bool = False
    """Shown by `-o wide` and to machines only."""

    copied: bool = False
    """Cells that people copy: never wrapped, however narrow the page is."""

    @property
    def key(self) -> str:
        """The name as machines write it."""
        return self.name.lower().replace(" ", "_").replace("-", "_")

    @property
    def heading(self) -> str:
        """The name with its unit where the cells do not carry it, without it where they do."""
        if self.unit in ("s", "B"):
            return self.name.removesuffix(" seconds").removesuffix(" bytes")
        return self.name if self.unit in ("", "%", *_DIMENSIONS) else f"{self.name} [{self.unit}]"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under columns, with a title above and notes below."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a row that has not one cell for each column."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"{self.title}: {len(row)} cells under {len(self.columns)} columns: {row}"
                )


Item = TypeVar("Item")


def table_of(
    title: str,
    items: Iterable[Item],
    columns: Sequence[tuple[Column, Callable[[Item], Cell]]],
    notes: Sequence[str] = (),
) -> Table:
    """A row for each item; every column stands beside what it shows of an item."""
    return Table(
        title=title,
        columns=tuple(column for column, _ in columns),
        rows=tuple(tuple(show(item) for _, show in columns) for item in items),
        notes=tuple(notes),
    )


def shown(cell: Cell, unit: str = "") -> str:
    """A cell as people read it.

    >>> shown(0.0042, "s"), shown(0.413, "%"), shown(123456.789), shown(16384), shown(None)
    ('4.2 ms', '41.3 %', '123,457', '16,384', '-')
    """
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        return printable(cell)
    if unit == "%":
        return f"{100 * cell:.1f} %"
    if unit in _DIMENSIONS:
        from mofa_model import units

        return "0" if cell == 0 else units.format(float(cell), unit)
    if isinstance(cell, int):
        return f"{cell:,}" if abs(cell) >= 10_000 else str(cell)
    if 1e5 <= abs(cell) < 1e12:
        return f"{cell:,.0f}"
    return f"{cell:.7g}" if abs(cell) >= 1000 else f"{cell:.4g}"


def for_people(table: Table, *, wide: bool = False) -> Table:
    """The table as text for people, without the columns that only `wide` shows."""
    places = [i for i, column in enumerate(table.columns) if wide or not column.wide]
    columns = tuple(
        Column(
            printable(table.columns[i].heading),
            align="right" if _is_right(table, i) else "left",
            copied=table.columns[i].copied,
        )
        for i in places
    )
    shapes = [_texts([row[i] for row in table.rows], table.columns[i].unit) for i in places]
    rows = (
        tuple(zip(*shapes, strict=True)) if table.rows and places else tuple(() for _ in table.rows)
    )
    return Table(
        title=printable(table.title),
        columns=columns,
        rows=rows,
        notes=tuple(map(printable, table.notes)),
    )


def in_seconds(least: float, most: float) -> bool:
    """Whether times between two bounds are all written in seconds."""
    return least >= _IN_SECONDS[0] and most < _IN_SECONDS[1]


def _texts(cells: Sequence[Cell], unit: str) -> list[str]:
    """One column's cells, so that they compare at a glance.

    Times from a second to a hundred minutes are all in seconds; ratios that are all near one have
    a second decimal.
    """
    numbers = [abs(cell) for cell in cells if cell and isinstance(cell, int | float)]
    form = None
    if unit == "s" and numbers and in_seconds(min(numbers), max(numbers)):
        form = "{:.4g} s"
    if unit == "%" and len(numbers) > 1 and 0.9 <= min(numbers) <= max(numbers) < 1:
        form = "{:.2%}"
    return [
        form.format(cell).replace("%", " %")
        if form and cell and isinstance(cell, int | float)
        else shown(cell, unit)
        for cell in cells
    ]


def plain(table: Table, *, wide: bool = False, width: int = 80) -> str:
    """Aligned text; without `wide`, text columns are wrapped so that lines fit into `width`."""
    printed = for_people(table, wide=wide)
    printed = printed if wide else fitted(printed, width)
    cells = _cells(printed)
    grid = [[cell.split("\n") for cell in row] for row in cells]
    widths = [
        max(len(line) for cell in column for line in cell) for column in zip(*grid, strict=True)
    ]
    lines = broken(printed.title, width) if printed.title else []
    for number, row in enumerate(grid):
        lines += _lines(row, widths, printed.columns)
        if number == 0:
            lines.append("  ".join("-" * size for size in widths))
    lines += [line for note in printed.notes for line in (broken(note, width) or [""])]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def fitted(printed: Table, width: int, *, gap: int = 2) -> Table:
    """A table of text whose cells are broken into lines, so that its columns fit into `width`."""
    columns = list(zip(*_cells(printed), strict=True))
    sizes = [max(map(len, column)) for column in columns]
    room = width - gap * (len(sizes) - 1)
    if sum(sizes) > room:  # a heading of several words takes several lines
        sizes = [max(*map(len, column[1:]), *map(len, _words(column[0])), 1) for column in columns]
    words = [max(len(word) for cell in column for word in _words(cell)) for column in columns]
    sizes = _narrowed(sizes, words, printed.columns, room)
    tighter = _narrowed(sizes, [_NARROWEST] * len(sizes), printed.columns, room)
    if sum(tighter) <= room:  # words are broken only where that is enough
        sizes = tighter

    longest = [max(map(len, column[1:]), default=0) for column in columns]

    def lines(cell: Cell, size: int) -> str:
        return "\n".join(broken(str(cell), size)) if len(str(cell)) > size else str(cell)

    def shown_in(cell: Cell, size: int, most: int) -> str:
        text = str(cell)
        return _shortened(text, size / most) if _is_bar(text) and most > size else lines(text, size)

    return Table(
        title=printed.title,
        columns=tuple(
            replace(c, name=lines(c.name, n)) for c, n in zip(printed.columns, sizes, strict=True)
        ),
        rows=tuple(tuple(map(shown_in, row, sizes, longest)) for row in printed.rows),
        notes=printed.notes,
    )


def _cells(printed: Table) -> list[list[str]]:
    """Headings and rows of a table of text."""
    return [
        [column.name for column in printed.columns],
        *([str(cell) for cell in row] for row in printed.rows),
    ]


def broken(text: str, width: int) -> list[str]:
    """Text in lines: numbers stay with their units, and only a word that is too long is broken.

    >>> broken("tp=4,pp=16,tp-overlap=true is 28.8 ms slower", 15)
    ['tp=4,pp=16,', 'tp-overlap=true', 'is 28.8 ms', 'slower']
    """
    wrapper = textwrap.TextWrapper(width, break_on_hyphens=False)
    wrapper.wordsep_simple_re = re.compile(_BREAKS)
    return wrapper.wrap(text)


def as_markdown(table: Table) -> str:
    """A table as most renderers of markdown know it; what people copy is a block of code."""
    printed = for_people(table, wide=True)
    rule = ["--:" if column.align == "right" else "---" for column in printed.columns]
    grid = [[column.name for column in printed.columns], rule, *printed.rows]
    escaped = [[str(cell).replace("|", "\\|") for cell in row] for row in grid]
    lines = [f"### {printed.title}", ""] if printed.title else []
    if all(column.copied for column in printed.columns):
        lines += ["```", *(str(cell) for row in printed.rows for cell in row), "```"]
    else:
        lines += [f"| {' | '.join(row)} |" for row in escaped]
    lines += ["", *printed.notes] if printed.notes else []
    return "\n".join(lines) + "\n"


def as_html(tables: Sequence[Table]) -> str:
    """One page that needs nothing else."""
    from html import escape

    title = escape(printable(tables[0].title) if tables else "mofa")
    body = "\n".join(_section(for_people(table, wide=True)) for table in tables)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n{body}\n</html>\n"
    )


_STYLE: Final = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:70rem;"
    "padding:0 1rem;color:#1b1f24}"
    "table{border-collapse:collapse;margin:.5rem 0}"
    "th,td{padding:.25rem .8rem;border-bottom:1px solid #d5dae0;"
    "text-align:left;vertical-align:top}th{border-bottom-width:2px}.r{text-align:right;"
    "font-variant-numeric:tabular-nums}p{color:#57606a;margin:.2rem 0}"
)


def _section(printed: Table) -> str:
    from html import escape

    def row(cells: Sequence[Cell], tag: str) -> str:
        marks = (' class="r"' if column.align == "right" else "" for column in printed.columns)
        tagged = (
            f"<{tag}{mark}>{escape(str(cell))}</{tag}>"
            for mark, cell in zip(marks, cells, strict=True)
        )
        return f"<tr>{''.join(tagged)}</tr>"

    head = row([column.name for column in printed.columns], "th")
    rows = "\n".join(row(cells, "td") for cells in printed.rows)
    notes = "".join(f"\n<p>{escape(note)}</p>" for note in printed.notes)
    heading = f"<h2>{escape(printed.title)}</h2>\n" if printed.title else ""
    return f"{heading}<table>\n<thead>{head}</thead>\n<tbody>\n{rows}\n</tbody>\n</table>{notes}"


def _is_right(table: Table, index: int) -> bool:
    column = table.columns[index]
    if column.align != "auto":
        return column.align == "right"
    first = next((row[index] for row in table.rows if row[index] is not None), "")
    return isinstance(first, int | float) and not isinstance(first, bool)


def _narrowed(
    sizes: list[int], floors: list[int], columns: tuple[Column, ...], room: int
) -> list[int]:
    """Narrow the widest text column, character by character, until the line fits or none can."""
    sizes = list(sizes)
    while sum(sizes) > room:
        giving = [
            i
            for i, c in enumerate(columns)
            if c.align == "left" and not c.copied and sizes[i] > floors[i]
        ]
        if not giving:
            break
        sizes[max(giving, key=lambda i: sizes[i])] -= 1
    return sizes


def _words(text: str) -> list[str]:
    """The pieces of a text between which a line may be broken."""
    return [word for word in re.split(_BREAKS, text) if word] or [""]


def _lines(row: list[list[str]], widths: list[int], columns: tuple[Column, ...]) -> list[str]:
    """The lines of one row whose cells have lines of their own."""
    height = max((len(cell) for cell in row), default=0)
    padded = [cell + [""] * (height - len(cell)) for cell in row]
    return [
        "  ".join(
            cell[i].rjust(size) if column.align == "right" else cell[i].ljust(size)
            for cell, size, column in zip(padded, widths, columns, strict=True)
        )
        for i in range(height)
    ]


def _is_bar(text: str) -> bool:
    """Whether a cell is one of `bars`."""
    return bool(text) and not text.strip(_EIGHTHS)


def _shortened(bar: str, share: float) -> str:
    """A bar at a share of its length: in a narrow page all of a column become shorter, and none is
    broken.

    >>> _shortened("████", 0.5), _shortened("█▌", 0.5)
    ('██', '▊')
    """
    eighths = 8 * len(bar) - 8 + _EIGHTHS.index(bar[-1]) if bar[-1] != "█" else 8 * len(bar)
    return _bar(eighths / 8 * share)


def bars(values: Sequence[float | None], width: int = _BAR) -> list[str]:
    """A bar for each number, the largest `width` characters wide; empty where there is no number.

    >>> bars([4.0, 2.0, 1.0, None], width=4)
    ['████', '██', '█', '']
    """
    most = max((value for value in values if value is not None), default=0.0)
    return ["" if value is None or most <= 0 else _bar(value / most * width) for value in values]


def _bar(length: float) -> str:
    whole, eighths = divmod(round(8 * max(0.0, length)), 8)
    return ("█" * whole + _EIGHTHS[eighths]).rstrip()
