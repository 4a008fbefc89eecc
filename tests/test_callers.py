"""Nothing is built and inert: what the product defines, the product calls. A test is no caller, nor
is the lab.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = {"mofa_model": ROOT / "mofa_model", "mofa_operator": ROOT / "operator" / "mofa_operator"}
OUTSIDE = {"describe", "collect", "fetch", "purge", "store", "touch", "configure", "run"}
"""Called by name from outside: by prometheus_client, by kopf, by the command line."""
PYTHON = {
    *(
        "to_dict",
        "to_frame",
        "_repr_html_",
        "ettr",
        "interval_steps",
        "step_seconds",
        "memory_bytes",
        "fits",
    ),
    *(
        "strategy",
        "status",
        "predicted",
        "checkpoint_interval_steps",
        "do_GET",
        "do_HEAD",
        "do_POST",
        "log_message",
    ),
}
"""What whoever asks from Python reads of an answer, and what the standard library's server calls
by name.
"""


def names_in(node):
    """Every name and attribute that code reads, and every name in text: entry points,
    quoted types.
    """
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            yield inner.attr
        elif (
            isinstance(inner, ast.Constant)
            and isinstance(inner.value, str)
            and inner.value.isidentifier()
        ):
            yield inner.value


def listed(tree):
    """Names in `__all__`, which calls none of them."""
    return Counter(
        element.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(getattr(to, "id", "") == "__all__" for to in node.targets)
        for element in node.value.elts
    )


class Module:
    """A module of the product: what it defines, imports and reads."""

    def __init__(self, path):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        self.defined = [node for node in tree.body if isinstance(node, kinds)]
        self.constants = {
            ast.unparse(node.target) for node in tree.body if isinstance(node, ast.AnnAssign)
        }
        self.reads = Counter(names_in(tree)) - listed(tree)
        self.imports = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }


@pytest.fixture(scope="module")
def modules():
    found = {}
    for package, root in PRODUCT.items():
        for path in root.rglob("*.py"):
            dotted = ".".join((package, *path.relative_to(root).with_suffix("").parts))
            found[dotted.removesuffix(".__init__")] = Module(path)
    return found


def home_of(modules, module, name):
    """Where a name is defined, through the modules that pass it on."""
    while module in modules and name in modules[module].imports:
        if modules[module].imports[name] == (
            module,
            name,
        ):  # a room's own module, imported from the room
            break
        module, name = modules[module].imports[name]
    return module, name


def found_by_its_word(module, node):
    """Whether it is a kind of block: their room looks for all that have a word."""
    words = [one for one in getattr(node, "body", ()) if isinstance(one, ast.AnnAssign)]
    return module.startswith("mofa_model.blocks.") and any(
        ast.unparse(one.target) == "word" for one in words
    )


def found_in_its_room(module, name):
    """Whether it is a function of a trainer: their room looks for all modules that name one."""
    is_trainer = "TRAINER" in module.constants
    return is_trainer and name in {"write", "matches", "read"}


def called(modules):
    """(module, name) of everything that another module of the product reads."""
    found = set()
    for one in modules.values():
        for local, (source, name) in one.imports.items():
            if one.reads[local]:
                found.add(home_of(modules, source, name))
            if f"{source}.{name}" in modules:  # a module, whose names are read as attributes
                found |= {home_of(modules, f"{source}.{name}", read) for read in one.reads}
    return found


def test_every_function_and_class_of_the_product_has_a_caller_in_the_product(modules):
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    elsewhere = called(modules)
    inert = [
        f"{name}.{node.name}"
        for name, module in modules.items()
        for node in module.defined
        if (name, node.name) not in elsewhere
        and module.reads[node.name] <= Counter(names_in(node))[node.name]
        and not (
            node.name.startswith("__") or node.name in OUTSIDE or f'"{name}:{node.name}"' in project
        )
        and not any("kopf" in ast.unparse(mark) for mark in node.decorator_list)
        and not found_by_its_word(name, node)
        and not found_in_its_room(module, node.name)
    ]
    assert inert == []


def test_every_method_of_the_product_is_read_in_the_product(modules):
    read = {name for module in modules.values() for name in module.reads} | OUTSIDE | PYTHON
    inert = [
        f"{name}.{kind.name}.{method.name}"
        for name, module in modules.items()
        for kind in module.defined
        if isinstance(kind, ast.ClassDef)
        for method in kind.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and not (method.name.startswith("__") or method.name in read)
        and not any("validator" in ast.unparse(mark) for mark in method.decorator_list)
    ]
    assert inert == []
