"""The tree keeps its shape: what must be absent is absent, rooms say what they may import, modules
stay short.
"""

import ast
import importlib
import operator
import subprocess
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = {
    "errors", "terminal", "parsed", "records", "units", "checks", "blocks", "spec", "axes", "strategy", "placement", "equations", "schedules", "estimate",
    "kernels", "reliability", "simulator", "search",
}  # fmt: skip
"""What needs numpy and the standard library only."""

SOURCES = sorted(
    path
    for room in ("mofa_model", "operator", "lab")
    for path in (ROOT / room).rglob("*.py")
    if ".venv" not in path.parts
)
ROOMS = sorted(path.parent for path in SOURCES if path.name == "__init__.py")


def tracked():
    """Files that git knows, or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def shown(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("folder", ["operator", "lab"])
def test_a_source_root_is_not_a_package(folder):
    assert not (ROOT / folder / "__init__.py").exists()


def test_the_standard_library_operator_is_not_shadowed():
    assert operator.itemgetter(1)("ab") == "b"


def test_no_package_marker_under_tests():
    assert [shown(path) for path in (ROOT / "tests").rglob("__init__.py")] == []


def test_every_module_says_what_it_is_for():
    said = {
        shown(path): ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        for path in SOURCES
    }
    assert [name for name, text in said.items() if not text] == []


def test_every_room_says_what_it_may_import_and_who_imports_it():
    first = [
        room / "__init__.py" for room in ROOMS if room.parent.name in {"mofa_model", "mofa_lab"}
    ]
    said = {
        shown(path): ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        for path in first
    }
    assert [name for name, text in said.items() if "ay import" not in (text or "")] == []


def test_every_source_folder_is_a_package():
    folders = {path.parent for path in SOURCES} - {ROOT / "operator", ROOT / "lab"}
    assert [
        shown(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()
    ] == []


def test_the_import_contract_names_every_room_of_the_core_that_is_built():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    named = next(one["source_modules"] for one in contracts if "the core" in one["name"])
    built = {
        room
        for room in CORE
        if (ROOT / f"mofa_model/{room}/__init__.py").exists()
        or (ROOT / f"mofa_model/{room}.py").exists()
    }
    assert sorted(named) == sorted(f"mofa_model.{room}" for room in built)


def test_the_product_imports_no_scipy_and_the_lab_only_inside_functions():
    def imports(tree):
        for node in ast.walk(tree) if tree.body else ():
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module or ""

    def needs(path, *, anywhere):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if not anywhere:
            tree.body = [one for one in tree.body if isinstance(one, (ast.Import, ast.ImportFrom))]
        return any(name.split(".")[0] == "scipy" for name in imports(tree))

    of_lab = [path for path in SOURCES if "mofa_lab" in path.parts]
    assert of_lab
    assert [shown(path) for path in of_lab if needs(path, anywhere=False)] == []
    product = [path for path in SOURCES if path not in of_lab]
    assert [shown(path) for path in product if needs(path, anywhere=True)] == []


@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.txt")), ids=shown)
def test_a_lock_has_hashes_and_names_no_place_to_fetch_from(lock):
    text = lock.read_text(encoding="utf-8")
    pinned = [line for line in text.splitlines() if line[:1].isalnum()]
    assert pinned
    assert all("==" in line and line.endswith("\\") for line in pinned)
    assert text.count("--hash=sha256:") >= len(pinned)
    assert "://" not in text
    assert not any(
        line.lstrip().startswith(("-i", "-f", "--index", "--extra-index", "--find"))
        for line in text.splitlines()
    )


def test_the_parts_of_the_lock_agree():
    def pins(name):
        lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
        return {line.rstrip(" \\") for line in lines if line[:1].isalnum()}

    versions = {pin.split(" ;")[0] for pin in pins("dev.txt")}
    for part in ("core.txt", "test.txt", "operator.txt"):
        assert {pin.split(" ;")[0] for pin in pins(part)} <= versions


def test_nothing_reads_files_beside_the_repository():
    texts = {
        shown(path): path.read_text("utf-8", "replace")
        for path in tracked()
        if path.suffix in {".py", ".toml", ".sh", ".yaml", ".md", ""} and path != Path(__file__)
    }
    assert [name for name, text in texts.items() if "../shared" in text] == []


@pytest.mark.parametrize("path", [ROOT / ".ci" / "run"], ids=shown)
def test_a_script_can_be_run(path):
    assert path.stat().st_mode & 0o111
    assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash\n")


@pytest.mark.parametrize("package", ["mofa_model", "operator/mofa_operator", "lab/mofa_lab"])
def test_every_module_can_be_imported(package):
    if package.startswith("operator"):
        pytest.importorskip("kopf", reason="the operator's modules need the extra `operator`")
    room = ROOT / package
    for path in SOURCES:
        if path.name != "__main__.py" and path.is_relative_to(room):
            name = ".".join(path.relative_to(room.parent).with_suffix("").parts).removesuffix(
                ".__init__"
            )
            importlib.import_module(name)


def test_no_two_public_classes_of_the_product_and_the_lab_have_one_name():
    found = {}
    for path in SOURCES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(shown(path))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_the_glossary_has_at_most_sixty_words_and_each_once():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = text.partition("## Words")[2].partition("\n## ")[0].splitlines()
    cells = [
        row.split("|")[1] for row in rows if row.startswith("| ") and not row.startswith("| word ")
    ]
    words = [word.strip() for cell in cells for word in cell.split(",")]
    assert len(words) == len(set(words)) <= 60


def imported(tree, modules):
    """Modules of the product that a file imports: also inside functions, also for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            named = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else node.module for name in named)


def test_no_file_of_the_product_imports_itself_through_others():
    roots = {"mofa_model": ROOT / "mofa_model", "mofa_operator": ROOT / "operator/mofa_operator"}
    modules = {
        ".".join((package, *path.relative_to(root).with_suffix("").parts)): path
        for package, root in roots.items()
        for path in root.rglob("*.py")
    }
    trees = {
        name.removesuffix(".__init__"): ast.parse(path.read_text(encoding="utf-8"))
        for name, path in modules.items()
    }
    graph = {name: {*imported(tree, trees)} - {name} for name, tree in trees.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the files
