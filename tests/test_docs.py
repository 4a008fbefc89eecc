"""What is written is true: equations cite their source, and every name in the documents exists in
the code.
"""

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
from each import each
from ruamel.yaml import YAML

import mofa_lab
import mofa_model
from mofa_model import spec, verbs
from mofa_model.blocks import BLOCKS, Embedding, Layer

ROOT = Path(__file__).resolve().parent.parent
CITED = re.compile(r"Eqs?\. \(|Ours\.|Source: |Table \d|Algorithm \d|Section \d")
UNIT = re.compile(r"\[[^\]]*\]$")
NUMBER = re.compile(r"\((\d+[a-z]?)\)")
PATH = re.compile(r"`(?:mofa_model\.)?([a-z_]+(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "lab").rglob("*.md")])


def equations():
    """Public functions of the paper's room, and those that only the paper's tables need, by the
    name that pages use.
    """
    room = importlib.import_module("mofa_model.equations")
    modules = [
        importlib.import_module(f"{room.__name__}.{one.name}")
        for one in pkgutil.iter_modules(room.__path__)
    ]
    modules.append(importlib.import_module("mofa_lab.validate.paper_equations"))
    return [
        (f"{module.__name__.removeprefix('mofa_model.')}.{name}", function)
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    ]


EQUATIONS = equations()


def page(name):
    path = ROOT / "docs" / name
    if not path.exists():
        pytest.skip(f"docs/{name} is not written yet")
    return path.read_text(encoding="utf-8")


def rows(text):
    """Cells of the rows of every table, headings left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = {
        i for i, cells in enumerate(split) if all(re.fullmatch(r":?-+:?", cell) for cell in cells)
    }
    return [cells for i, cells in enumerate(split) if i not in rules and i + 1 not in rules]


def exists(dotted):
    """Whether a dotted path below `mofa_model`, or from `mofa_lab` on, leads to something."""
    here = mofa_model
    if dotted.startswith("mofa_lab."):
        here, dotted = mofa_lab, dotted.removeprefix("mofa_lab.")
    for part in dotted.split("."):
        if not hasattr(here, part):
            try:
                importlib.import_module(f"{here.__name__}.{part}")
            except (ImportError, AttributeError):
                return part in getattr(here, "__dataclass_fields__", {})
        here = getattr(here, part)
    return True


def known_names():
    """Every function, class, parameter and field that the package defines."""
    names = set()
    for path in (ROOT / "mofa_model").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {
                    one.id
                    for target in targets
                    for one in ast.walk(target)
                    if isinstance(one, ast.Name)
                }
    return names


@each([pytest.param(function, id=name) for name, function in EQUATIONS])
def test_an_equation_says_where_it_is_from_and_in_which_unit_it_answers(function):
    first = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ").strip()
    assert CITED.search(first), f"cite `Eq. (n)`, `Table n`, `Source: …` or `Ours.`: {first}"
    assert UNIT.search(first), f"end with the unit in brackets: {first}"


@each([pytest.param(function, id=name) for name, function in EQUATIONS])
def test_an_equation_shows_a_worked_number(function):
    assert ">>> " in (inspect.getdoc(function) or ""), "show one worked number as a doctest"


def test_every_row_of_the_equations_page_leads_to_code_or_says_why_not():
    for cells in rows(page("equations.md")):
        text = " ".join(cells)
        assert PATH.search(text) or "not used" in text.lower(), (
            f"name the function, or say `not used: why`: {text}"
        )


def test_every_equation_that_the_code_cites_is_on_the_equations_page():
    listed = set(NUMBER.findall(" ".join(cells[0] for cells in rows(page("equations.md")))))
    cited = {
        number
        for _, function in EQUATIONS
        for group in re.findall(
            r"Eqs?\. ((?:\(\d+[a-z]?\)(?:, | and |-)?)+)", inspect.getdoc(function) or ""
        )
        for number in NUMBER.findall(group)
    }
    assert cited <= listed


def test_every_name_in_the_nomenclature_exists():
    known = known_names()
    named = [
        name
        for cells in rows(page("nomenclature.md"))
        for name in re.findall(r"`([a-z_]\w*)(?:\(\))?`", " ".join(cells[:2]))
    ]
    assert named
    assert [name for name in named if name not in known] == []


def test_every_equation_of_the_paper_and_every_function_of_ours_is_on_the_equations_page():
    text = page("equations.md")
    numbers = [cells[0] for cells in rows(text) if NUMBER.fullmatch(cells[0])]
    assert numbers == [f"({n})" for n in range(1, 46)]
    assert [name for name, _ in EQUATIONS if f"`{name}`" not in text] == []


def told_with(kind, name):
    """The first of a class and those that it is made from that has a field."""
    return next(
        one for one in reversed(kind.__mro__) if name in getattr(one, "__annotations__", {})
    )


def test_every_field_that_is_given_or_chosen_is_in_the_nomenclature_with_its_unit():
    said = {cells[1]: cells[2] for cells in rows(page("nomenclature.md"))}
    for kind in [
        *(getattr(spec, name) for name in spec.__all__),
        Embedding,
        Layer,
        *BLOCKS.values(),
    ]:
        hints = get_type_hints(kind, include_extras=True)
        for name in [field.name for field in fields(kind)]:
            hint, unit = hints[name], said[f"`{name}` of `{told_with(kind, name).__name__}`"]
            assert unit == getattr(hint, "__metadata__", (unit,))[0]


@functools.cache
def manifest_fields():
    """Paths of every field of our custom resources."""

    def below(schema, path):
        for name, inner in (schema.get("properties") or {}).items():
            yield f"{path}{name}"
            yield from below(inner, f"{path}{name}.")
        if "items" in schema:
            yield from below(schema["items"], path)

    loaded = (YAML(typ="safe").load(path) for path in sorted((ROOT / "crds").glob("*.yaml")))
    schemas = (one["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for one in loaded)
    return {field for schema in schemas for field in below(schema, "")}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_into_the_package_that_a_page_names_exists(path):
    rooms = {one.name for one in pkgutil.iter_modules(mofa_model.__path__)} | {"mofa_lab"}
    fields = manifest_fields()  # `spec.objective` is a field of a manifest, and no module
    named = [
        dotted
        for dotted in PATH.findall(path.read_text(encoding="utf-8"))
        if dotted.split(".")[0] in rooms and dotted not in fields
    ]
    assert [
        dotted for dotted in named if not dotted.endswith((".py", ".toml")) and not exists(dotted)
    ] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_to_a_file_leads_somewhere(path):
    text = re.sub(
        r"`[^`\n]*`", "", path.read_text(encoding="utf-8")
    )  # a pattern in code may look like a link
    links = re.findall(r"\]\((?!\w+:)([^)#\s]+)", text)
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_verb_is_documented():
    text = "".join(
        path.read_text(encoding="utf-8")
        for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    )
    assert [verb for verb in (*verbs.ours(), *verbs.LAB) if f"mofa {verb}" not in text] == []


def test_the_architecture_shows_every_room_and_module_at_the_top():
    drawn = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    found = [
        one.name
        for package in (mofa_model, mofa_lab)
        for one in pkgutil.iter_modules(package.__path__)
        if not one.name.startswith("_")
    ]
    assert [name for name in found if not re.search(rf"\b{name}\b", drawn)] == []


def test_the_layers_that_the_architecture_draws_are_those_that_are_checked():
    """A line of the drawing is a layer: its rooms, two blanks, and what they do."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    checked = {
        contract["containers"][0]: [
            {room.strip(" ()") for room in layer.split("|")} - {"__main__"}
            for layer in contract["layers"]
        ]
        for contract in contracts["contracts"]
        if contract["type"] == "layers" and "." not in contract["containers"][0]
    }
    drawn = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Layers")[2]
    for package, layers in checked.items():
        block = re.search(rf"^    {package}\n((?:      .*\n)+)", drawn, re.MULTILINE)
        lines = [line.strip().split("  ")[0] for line in block[1].splitlines()]
        assert [set(line.split(", ")) for line in lines] == [one for one in layers if one]


def test_every_make_target_that_the_documents_name_exists():
    targets = set(
        re.findall(
            r"^([a-z0-9 -]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    targets = {one for line in targets for one in line.split()}
    named = {
        name
        for path in PAGES
        for name in re.findall(r"`make ([a-z0-9-]+)", path.read_text(encoding="utf-8"))
    }
    assert named <= targets


def test_each_fragment_of_the_changelog_is_one_sentence():
    for path in (ROOT / "changelog.d").glob("*.md"):
        text = path.read_text(encoding="utf-8").strip()
        assert len(text.splitlines()) == 1, path.name
        assert text.endswith("."), path.name
