"""Names with more than one meaning: of classes, of fields, of parameters and of functions in the
product.

    python tools/words.py                     all of them, with where they stand
    python tools/words.py mofa_model/search   those that stand there, too

A class has one home. A field, parameter or function has one unit, the one in brackets at the end of
its docstring. A field or parameter holds one kind of thing: a number or a record, and one class of
records. What is judged, and how:

- An annotation is read as its file imports it, so an alias such as `Whole` is the number that it
  stands for.
- A `Range` is a number with its bounds.
- Text, an object as JSON, `LiveObject` and `Key` are forms that every thing has before it is read
  or looked up.
- Classes whose names differ by a form alone (`PredictedDocument` and `Predicted`, `LiveProfile` and
  `Profile`) are one thing.
- A class and the class that it extends are one thing.
- Of a mapping its values are judged, not its keys.
- A name that is the last noun of a class (`snapshot` of `JobSnapshot` and of `PolicySnapshot`)
  means that noun: the class says of what.
- Alternatives that one annotation joins are one meaning, with each of them alone, because its
  readers handle both.
- Parameters that take callables are not judged, nor are private functions and classes, nor
  functions inside of functions.
- Words of language (`value`, `key`, `name` …) are generic: a reader expects to look at what they
  hold.
- Shipped names are not judged, because users and other programs read them: `SHIPPED_FILES` and
  `SHIPPED_BASES` say where they stand.
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
NUMBERS = frozenset({"Range"})
"""Our classes that are numbers."""
OUTSIDE_NUMBERS = frozenset({"int", "float", "Decimal", "NDArray", "ArrayLike", "Counter"})
"""Numbers of Python and of numpy; a `Counter` holds numbers, whatever it counts."""
ANY_FORM = frozenset({"LiveObject", "Object", "Key"})
"""Classes that hold things of every kind: an object of the cluster or of a file, and its name."""
MAPPINGS = frozenset({"Mapping", "MutableMapping", "dict", "defaultdict", "Named"})
"""Types with keys and values."""
SUFFIXES = (
    "Document",
    "Part",
    "Words",
    "Row",
    "View",
    "Figures",
    "Status",
    "Spec",
    "Snapshot",
    "Template",
    "Ref",
)
"""Ends of names that say the form in which a thing stands."""
PREFIXES = ("Live", "New", "Stored", "Cluster", "Listed")
"""Beginnings of names that say such a form."""
GENERIC = frozenset(
    [
        "_",
        "self",
        "value",
        "values",
        "key",
        "keys",
        "name",
        "names",
        "kind",
        "kinds",
        "other",
        "row",
        "rows",
        "item",
        "items",
    ]
)
"""Names that are words of language."""
RANGE_ENDS = frozenset({"low", "high", "lower", "upper", "value", "mean", "total", "amount"})
"""Names of a number in any unit."""
LOCAL_TO_ITS_FILE = frozenset({"Spec", "Status"})
"""Shapes of one kind of jobs, which no other file reads by that name."""
SHIPPED_BASES = frozenset({"Part", "Shape", "UserQuestion"})
"""Their fields are keys of manifests, keys of other projects' objects, and options of commands and
of Python.
"""
SHIPPED_FILES = {
    "mofa_model/answers/questions.py": "options of commands, parameters of Python",
    "mofa_model/advice/answer.py": "attributes of answers, keys of JSON",
    "mofa_model/spec/": "labels that the inputs hash covers, and keys of constants.toml",
    "mofa_model/estimate/terms.py": "keys of the JSON of mofa explain",
    "mofa_model/bands/evidence.py": "keys of the same JSON",
    "mofa_model/bands/variance.py": "keys of variance.toml",
    "mofa_model/reliability/observed.py": "keys of the JSON of mofa rates",
    "mofa_model/reliability/forecast.py": "keys of the same JSON",
    "mofa_model/presets/catalogue.py": "keys of the preset files",
    "mofa_model/kernels/surface.py": "keys of the files of measured kernels",
    "operator/mofa_operator/settings.py": "settings of the operator",
    "operator/mofa_operator/fleet/pools.py": "keys of the JSON of kubectl mofa pools",
    "operator/mofa_operator/observe/jobs/run_record.py": "keys of the annotation run-record",
}
"""Where fields of classes are names that shipped, with what reads them."""

Places = dict[str, dict[str, list[str]]]


def stem(name: str) -> str:
    """What a class is about, without the form in which it stands.

    >>> stem("PredictedDocument"), stem("LiveProfile"), stem("Status")
    ('Predicted', 'Profile', 'Status')
    """
    name = name.lstrip("_")
    for form in SUFFIXES:
        if name != form:
            name = name.removesuffix(form)
    for form in PREFIXES:
        if name != form:
            name = name.removeprefix(form)
    return name


def last_noun(name: str) -> str:
    """The last word of a name, as one of many.

    >>> last_noun("PolicySnapshot"), last_noun("policies"), last_noun("known_nodes")
    ('snapshot', 'policy', 'node')
    """
    word = re.split(r"_|(?<=[a-z])(?=[A-Z])", name.strip("_"))[-1].lower()
    word = re.sub("ies$", "y", word)
    return word if word.endswith("ss") else word.removesuffix("s")


@dataclass
class Sources:
    """The files of the product, and what their names stand for."""

    trees: dict[str, ast.Module]
    """Every file, by path."""
    classes: dict[str, dict[str, ast.ClassDef]] = field(default_factory=dict)
    """Classes by file and name."""
    aliases: dict[str, dict[str, ast.expr]] = field(default_factory=dict)
    """Names for types by file and name."""
    imports: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    """By file and name: the file that the name comes from, and its name there."""

    def __post_init__(self) -> None:
        for path, tree in self.trees.items():
            nodes = list(ast.walk(tree))
            self.classes[path] = {n.name: n for n in nodes if isinstance(n, ast.ClassDef)}
            self.aliases[path] = dict(filter(None, map(alias_of, tree.body)))
            self.imports[path] = {
                name.asname or name.name: (self.file_of(node.module), name.name)
                for node in nodes
                if isinstance(node, ast.ImportFrom) and node.module
                for name in node.names
            }

    def file_of(self, module: str) -> str:
        """The file of a module, or nothing where it is another project's."""
        base = module.replace(".", "/")
        options = (
            f"{root}{base}{end}" for root in ("", "operator/") for end in (".py", "/__init__.py")
        )
        return next((path for path in options if path in self.trees), "")

    def home(self, path: str, name: str) -> tuple[str, str]:
        """The file that defines what `name` stands for in `path`, and its name there."""
        while name not in self.classes.get(path, {}) and name not in self.aliases.get(path, {}):
            if name not in self.imports.get(path, {}):
                return "", name
            path, name = self.imports[path][name]
        return path, name

    def bases(self, path: str, name: str) -> Iterator[tuple[str, str]]:
        """A class and those that it extends, the last one first."""
        path, name = self.home(path, name)
        if node := self.classes.get(path, {}).get(name):
            for base in node.bases:
                yield from self.bases(path, ast.unparse(base).split("[")[0])
        yield path, name

    def meanings(self, path: str, annotation: ast.expr, noun: str) -> set[str]:
        """What an annotation says that a name holds: `number`, stems of records, or the name's
        own noun.
        """
        meanings: set[str] = set()
        for node in named_in(annotation):
            home, name = self.home(path, node.id)
            if name in (NUMBERS if home else OUTSIDE_NUMBERS):
                meanings.add("number")
            elif name in self.classes.get(home, {}):
                if name not in ANY_FORM and is_record(self.classes[home][name]):
                    family = self.family(home, name)
                    is_noun = noun in {last_noun(name), last_noun(family)}
                    meanings.add(noun if is_noun else family)
            elif name in self.aliases.get(home, {}):
                meanings |= self.meanings(home, self.aliases[home][name], noun)
        return meanings

    def family(self, path: str, name: str) -> str:
        """The first record that a class extends, without its form."""
        names = [
            own
            for home, own in self.bases(path, name)
            if own not in SHIPPED_BASES | ANY_FORM
            and own in self.classes.get(home, {})
            and is_record(self.classes[home][own])
        ]
        return stem((names or [name])[0])

    def is_shipped(self, path: str, node: ast.ClassDef) -> bool:
        """Whether the names of a class's fields were shipped: users or other programs read them."""
        return path.startswith(tuple(SHIPPED_FILES)) or any(
            name in SHIPPED_BASES for _, name in self.bases(path, node.name)
        )


def alias_of(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """A name for a type, with what it stands for."""
    if isinstance(statement, ast.AnnAssign) and "TypeAlias" in ast.unparse(statement.annotation):
        return (ast.unparse(statement.target), statement.value) if statement.value else None
    if (
        isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(statement.value, ast.Name | ast.Subscript | ast.BinOp)
        and statement.targets[0].id[:1].isupper()
        and not statement.targets[0].id.isupper()
    ):
        return statement.targets[0].id, statement.value
    return None


def named_in(annotation: ast.expr) -> Iterator[ast.Name]:
    """The types that an annotation names, without the words of a `Literal` and the rules of
    an `Annotated`.
    """
    if isinstance(annotation, ast.Name):
        yield annotation
    elif isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        generic, inner = annotation.value.id, annotation.slice
        if generic in {"Literal", "Callable"}:
            return
        if generic == "Counter":
            yield annotation.value
            return
        if isinstance(inner, ast.Tuple) and generic == "Annotated":
            inner = inner.elts[0]
        elif isinstance(inner, ast.Tuple) and generic in MAPPINGS:
            inner = inner.elts[-1]
        yield annotation.value
        yield from named_in(inner)
    else:
        for child in ast.iter_child_nodes(annotation):
            if isinstance(child, ast.expr):
                yield from named_in(child)


def is_record(node: ast.ClassDef) -> bool:
    """Whether a class has fields."""
    return any(isinstance(row, ast.AnnAssign) for row in node.body)


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
        if (match := UNIT.search(text)) and name not in RANGE_ENDS | GENERIC:
            self.units[name][match[1]].append(place)

    def thing(self, name: str, annotation: ast.expr | None, place: str, sources: Sources) -> None:
        """Note what an annotation says."""
        if annotation is None or name in GENERIC:
            return
        path = place.split(":", maxsplit=1)[0]
        meanings = sources.meanings(path, annotation, last_noun(name))
        if meanings:
            self.things[name][" or ".join(sorted(meanings))].append(place)

    def of_class(self, path: str, node: ast.ClassDef, sources: Sources) -> None:
        """Note a public class and its fields."""
        if node.name.startswith("_"):
            return
        if node.name not in LOCAL_TO_ITS_FILE:
            self.homes[node.name][path].append(f"{path}:{node.lineno}")
        if sources.is_shipped(path, node):
            return
        for statement, text in documented(node.body):
            name, place = ast.unparse(statement.target), f"{path}:{statement.lineno} {node.name}"
            self.unit(name, text, place)
            self.thing(name, statement.annotation, place, sources)

    def of_function(
        self, path: str, node: ast.FunctionDef | ast.AsyncFunctionDef, sources: Sources
    ) -> None:
        """Note a public function and its parameters."""
        if node.name.startswith("_"):
            return
        place = f"{path}:{node.lineno} {node.name}()"
        self.unit(node.name, (ast.get_docstring(node) or "").split("\n\n")[0].strip(), place)
        for parameter in (*node.args.args, *node.args.kwonlyargs):
            self.thing(parameter.arg, parameter.annotation, place, sources)


def read() -> Names:
    """All names of the product."""
    sources, names = Sources(dict(modules())), Names()
    for path, tree in sources.trees.items():
        for node in outside_functions(tree):
            if isinstance(node, ast.ClassDef):
                names.of_class(path, node, sources)
            else:
                names.of_function(path, node, sources)
    return names


def outside_functions(
    parent: ast.AST,
) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Classes and functions, without those inside of functions and of private classes."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            if isinstance(node, ast.ClassDef):
                if node.name.startswith("_"):
                    continue
                yield node
            yield from outside_functions(node)


def joined(meanings: dict[str, list[str]]) -> dict[str, list[str]]:
    """Meanings with their places, where those that an annotation joins are one.

    >>> joined({"Advice": ["a"], "Advice or Refusal": ["b"], "number": ["c"]})
    {'Advice or Refusal': ['b', 'a'], 'number': ['c']}
    """
    groups: dict[str, list[str]] = {}
    for meaning in sorted(meanings, key=lambda meaning: -meaning.count(" or ")):
        words = set(meaning.split(" or "))
        near = next((group for group in groups if words & set(group.split(" or "))), meaning)
        groups[near] = groups.get(near, []) + meanings[meaning]
    return groups


def several(names: Places) -> Places:
    """Names with more than one meaning."""
    groups = {name: joined(meanings) for name, meanings in sorted(names.items())}
    return {name: meanings for name, meanings in groups.items() if len(meanings) > 1}


def main(folders: list[str]) -> int:
    """Print what has several meanings; 1 where anything has."""
    names, count = read(), 0
    titles = {
        "classes with several homes": names.homes,
        "names with several units": names.units,
        "names that hold several things": names.things,
    }
    for title, places in titles.items():
        ambiguous = {
            name: meant
            for name, meant in several(places).items()
            if not folders
            or any(place.startswith(tuple(folders)) for where in meant.values() for place in where)
        }
        count += len(ambiguous)
        print(f"{title}: {len(ambiguous)}")
        for name, meant in ambiguous.items():
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
