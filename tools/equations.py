"""The tables of docs/equations.md from the code's own references: which function computes an
equation, and where one is from.

    .venv/bin/python tools/equations.py [--check]

A function that cites `Eq. (n)` in the first sentences of its docstring stands in row n; quantity,
test and status are written by hand. Functions of the paper's room without a number fill the other
tables, in the order of their source.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "equations.md"
LAB: Final = ROOT / "lab" / "mofa_lab" / "validate"
FILES: Final = (
    *sorted((ROOT / "mofa_model").rglob("*.py")),
    LAB / "paper_equations.py",
    LAB / "forms.py",
)
"""The model, and what the lab has of the paper's own forms beside it."""
NUMBERS: Final = 45
"""Numbered equations of the paper."""
_CITED: Final = re.compile(r"Eqs?\. (\(\d+\)(?:(?:,? and |, | to |-)(?:Eqs?\. )?\(\d+\))*)")
_ROW: Final = re.compile(r"^\| \((\d+)\) \|")


class Cited(NamedTuple):
    """A function with the first sentences of its docstring."""

    name: str
    first: str


def functions() -> Iterator[Cited]:
    """Every public function and method, in the order of the names of files and of their lines."""
    for path in FILES:
        place = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        place = place.removeprefix("mofa_model.").removeprefix("lab.").removesuffix(".__init__")
        yield from _within(ast.parse(path.read_text(encoding="utf-8")), place)


def _within(node: ast.AST, place: str) -> Iterator[Cited]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef) and not child.name.startswith("_"):
            name = f"{place}.{child.name}"
            if isinstance(child, ast.ClassDef):
                yield from _within(child, name)
            elif text := ast.get_docstring(child):
                yield Cited(name, " ".join(text.split("\n\n")[0].split()))


def numbers(text: str) -> list[int]:
    """The numbers that a text cites, ranges in full.

    >>> numbers("Eqs. (10) to (12) and (23); Eq. (5)")
    [5, 10, 11, 12, 23]
    """
    cited_numbers: set[int] = set()
    for group in _CITED.findall(text):
        cited = [int(number) for number in re.findall(r"\((\d+)\)", group)]
        cited_numbers |= set(cited)
        for low, high in re.findall(r"\((\d+)\)(?: to |-)(?:Eqs?\. )?\((\d+)\)", group):
            cited_numbers |= set(range(int(low), int(high) + 1))
    return sorted(cited_numbers)


def with_tables(page: str) -> str:
    """The page with its functions as the code has them."""
    cited: dict[int, list[str]] = {n: [] for n in range(1, NUMBERS + 1)}
    tables: dict[str, list[str]] = {"Table 2": [], "Source": [], "Ours": []}
    for name, first in functions():
        for n in numbers(first):
            cited[n].append(f"`{name}`")
        if not numbers(first) and name.startswith(
            ("equations.", "mofa_lab.validate.paper_equations.")
        ):
            kind, row = _row(name, first)
            tables[kind].append(row)
    lines = page.splitlines()
    for at, line in enumerate(lines):
        if match := _ROW.match(line):
            cells = line.split(" | ")
            cells[2] = ", ".join(cited[int(match[1])])
            lines[at] = " | ".join(cells)
    text = "\n".join(lines) + "\n"
    for rows in tables.values():
        heading = (
            "| function | quantity |\n|---|---|\n"
            if rows is tables["Ours"]
            else "| function | quantity | source |\n|---|---|---|\n"
        )
        first_row = {"Table 2": "### Table 2", "Source": "### Published", "Ours": "### Ours"}
        title = next(first_row[kind] for kind, table_rows in tables.items() if table_rows is rows)
        text = re.sub(
            rf"({re.escape(title)}.*?\n\n.*?\n\n){re.escape(heading)}(?:\|[^\n]*\n)*",
            lambda match, rows=rows, heading=heading: (
                match[1] + heading + "".join(row + "\n" for row in rows)
            ),
            text,
            count=1,
            flags=re.DOTALL,
        )
    return text


def _row(name: str, first: str) -> tuple[str, str]:
    """Which table a function without a number stands in, and its row."""
    text = re.sub(r"\s*\[[^\]]*\]$", "", first)
    for kind, mark in (
        ("Source", r"Source: (?!Table 2)"),
        ("Table 2", r"(?:Source: )?(?=Table 2)"),
        ("Source", r"(?=Table \d)"),
        ("Ours", r"Ours\b"),
    ):
        quantity, is_marked, source = _parted(text, mark)
        if is_marked:
            quantity = re.split(r"[.,:]$", quantity)[0]
            return kind, f"| `{name}` | {quantity} |" + ("" if kind == "Ours" else f" {source} |")
    raise SystemExit(f"{name}: cite an equation, a table, a source, or say `Ours`")


def _parted(text: str, mark: str) -> tuple[str, bool, str]:
    match = re.search(mark, text)
    if match is None:
        return text, False, ""
    return text[: match.start()].rstrip().rstrip(".,"), True, text[match.end() :].rstrip(".")


def files() -> dict[Path, str]:
    """The page with its tables made anew; an equation that no function cites ends the program."""
    page = with_tables(PAGE.read_text(encoding="utf-8"))
    missing = [
        n
        for n in range(1, NUMBERS + 1)
        if re.search(rf"^\| \({n}\) \| [^|]* \|  \|", page, re.MULTILINE)
    ]
    if missing:
        sys.exit(f"docs/equations.md: no function cites {', '.join(f'({n})' for n in missing)}")
    return {PAGE: page}


if __name__ == "__main__":
    import generated

    sys.exit(
        generated.main("equations", "Write the tables of docs/equations.md from the code.", files)
    )
