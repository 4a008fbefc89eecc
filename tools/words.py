"""Names with more than one meaning: of classes, of fields, of parameters and of functions in the product.

    python tools/words.py                     all of them, with where they stand
    python tools/words.py mofa_model/search   those that stand there, too

A class has one home. A field, parameter or function has one unit, the one in brackets at the end of its docstring. A field or
parameter holds one kind of thing: a number or a record, and one class of records. Text beside it is the same thing before it is read,
and `PredictedDocument` beside `Predicted` is the same thing in another form.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNIT = re.compile(r"\[(B|s|1|h|d|FLOP/s|B/s|1/s|1/d|1/h|node s|node d|node h|%)\][.)]?$")
"""A unit at the end of a docstring; shapes such as `[states, rows]` are none."""
NUMBERS = frozenset(
    {
        "Whole",
        "Number",
        "Size",
        "Zero",
        "Big",
        "Share",
        "int",
        "float",
        "Numeric",
        "Seconds",
        "Bytes",
        "Ratio",
        "Count",
        "Floats",
        "Array",
        "Decimal",
        "Real",
        "NDArray",
    }
)
FORMS = ("Document", "Part", "Words", "Row", "View", "Figures", "Status", "Spec")
"""Ends of names that say the form in which a thing stands."""
RANGE_ENDS = frozenset({"low", "high", "value", "mean", "total", "amount"})
"""Names of a number in any unit."""
LOCAL_TO_ITS_FILE = frozenset({"Spec", "Status"})
"""Shapes of one kind of jobs, which no other file reads by that name."""

Places = dict[str, dict[str, list[str]]]


def stem(name: str) -> str:
    """What a class is about, without the form in which it stands.

    >>> stem("PredictedDocument"), stem("LivePods")
    ('Predicted', 'LivePods')
    """
    for form in FORMS:
        if name.endswith(form) and name != form:
            return name.removesuffix(form)
    return name


def meanings(annotation: str, records: set[str]) -> set[str]:
    """What an annotation says that a name holds: `number`, and stems of records.

    >>> sorted(meanings("tuple[Candidate, ...] | float | None", {"Candidate"}))
    ['Candidate', 'number']
    """
    if "Callable" in annotation:
        return set()
    words = set(re.findall(r"\w+", annotation))
    return {"number" for word in words & NUMBERS} | {stem(word) for word in words & records}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every file of the product, as a path and as a tree."""
    for part in ("mofa_model", "operator/mofa_operator"):
        for path in sorted((ROOT / part).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def documented(body: list[ast.stmt]) -> Iterator[tuple[ast.AnnAssign, str]]:
    """The fields of a class, each with its docstring."""
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = (
                following.value.value
                if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                else ""
            )
            yield statement, str(text).strip()


@dataclass
class Names:
    """What each name means, with where it stands."""

    homes: Places = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    """Public classes by the file that defines them."""
    units: Places = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    """Fields and functions by unit."""
    things: Places = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    """Fields and parameters by what they hold."""

    def unit(self, name: str, text: str, place: str) -> None:
        """Note the unit at the end of a docstring."""
        if (found := UNIT.search(text)) and name not in RANGE_ENDS:
            self.units[name][found[1]].append(place)

    def thing(self, name: str, annotation: ast.expr | None, place: str, records: set[str]) -> None:
        """Note what an annotation says."""
        for meaning in meanings(ast.unparse(annotation), records) if annotation else ():
            self.things[name][meaning].append(place)

    def of_class(self, path: str, node: ast.ClassDef, records: set[str]) -> None:
        """Note a class and its fields."""
        if not node.name.startswith("_") and node.name not in LOCAL_TO_ITS_FILE:
            self.homes[node.name][path].append(f"{path}:{node.lineno}")
        for statement, text in documented(node.body):
            name, place = ast.unparse(statement.target), f"{path}:{statement.lineno} {node.name}"
            self.unit(name, text, place)
            self.thing(name, statement.annotation, place, records)

    def of_function(
        self, path: str, node: ast.FunctionDef | ast.AsyncFunctionDef, records: set[str]
    ) -> None:
        """Note a public function and its parameters."""
        if node.name.startswith("_"):
            return
        place = f"{path}:{node.lineno} {node.name}()"
        self.unit(node.name, (ast.get_docstring(node) or "").split("\n\n")[0].strip(), place)
        for given in (*node.args.args, *node.args.kwonlyargs):
            self.thing(given.arg, given.annotation, place, records)


def read() -> Names:
    """All names of the product."""
    trees, names = dict(modules()), Names()
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    records = {
        node.name
        for _, node in nodes
        if isinstance(node, ast.ClassDef)
        and any(isinstance(row, ast.AnnAssign) for row in node.body)
    }
    for path, node in nodes:
        if isinstance(node, ast.ClassDef):
            names.of_class(path, node, records)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.of_function(path, node, records)
    return names


def several(names: Places) -> Places:
    """Those with more than one meaning."""
    return {name: dict(places) for name, places in sorted(names.items()) if len(places) > 1}


def main(folders: list[str]) -> int:
    """Print what has several meanings; 1 where anything has."""
    names, count = read(), 0
    titles = {
        "classes with several homes": names.homes,
        "names with several units": names.units,
        "names that hold several things": names.things,
    }
    for title, places in titles.items():
        found = {
            name: meant
            for name, meant in several(places).items()
            if not folders
            or any(place.startswith(tuple(folders)) for where in meant.values() for place in where)
        }
        count += len(found)
        print(f"{title}: {len(found)}")
        for name, meant in found.items():
            print(
                f"  {name}: "
                + "; ".join(
                    f"{meaning} ({', '.join(where[:3])}{' …' * (len(where) > 3)})"
                    for meaning, where in meant.items()
                )
            )
    return int(bool(count))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
