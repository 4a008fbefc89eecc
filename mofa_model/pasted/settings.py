"""Files of settings as settings with their lines; nothing in them is run.

YAML and JSON keep the line of each value, TOML that of each key. A Python source is parsed: what it
passes by name, assigns, or gives a parameter as its default.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from mofa_model.errors import InputError
from mofa_model.files import from_toml
from mofa_model.identity.settings import Setting
from mofa_model.yaml_text import StreamReader

_MOST: Final = 6000
_DEEPEST: Final = 16
_REFERENCE: Final = re.compile(r"\$\{([\w.]+)\}")
_LINE: Final = re.compile(r"(\s*)(?:- )?([A-Za-z_][\w.-]*)\s*:\s*(\S.*?)?\s*(?:#.*)?$")


def key(name: str) -> str:
    """A key in one spelling.

    >>> key("--Model.Seq-Length")
    'model.seq_length'
    """
    return name.strip("-+").replace("-", "_").replace("/", ".").lower()


def of_yaml(text: str, name: str) -> list[Setting]:
    """Settings of YAML or JSON; a text that is no valid YAML is read line by line."""
    reader = StreamReader(name)
    try:
        settings = [
            setting for node in reader.documents(text) for setting in _of_node(node, "", 0, name)
        ]
    except InputError:
        settings = list(_by_lines(text, name))
    return _resolved(settings)


def _of_node(node: Any, path: str, depth: int, name: str) -> Iterator[Setting]:
    from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

    if depth > _DEEPEST:
        return
    if isinstance(node, MappingNode):
        for inner, value in node.value:
            if isinstance(inner, ScalarNode):
                word = str(inner.value)
                yield from _of_node(value, f"{path}.{word}" if path else word, depth + 1, name)
    elif isinstance(node, SequenceNode):
        for item in node.value[:64]:
            yield from _of_node(item, path, depth + 1, name)
    elif isinstance(node, ScalarNode):
        kind, value = str(node.tag).rpartition(":")[2], str(node.value)
        if kind == "null":
            return
        if kind == "bool":
            value = "true" if value.lower() in {"true", "yes", "on"} else "false"
        yield Setting(key(path), value, f"{name}:{node.start_mark.line + 1}", "file")


def _by_lines(text: str, name: str) -> Iterator[Setting]:
    """Settings line by line, with the sections that their indentation shows."""
    sections: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        pair = _LINE.match(line)
        if not pair:
            continue
        depth = len(pair[1].expandtabs(2))
        while sections and sections[-1][0] >= depth:
            sections.pop()
        path = ".".join([word for _, word in sections] + [pair[2]])
        if pair[3] is None:
            sections.append((depth, pair[2]))
        else:
            yield Setting(key(path), pair[3].strip("\"'"), f"{name}:{number}", "file")


def _resolved(settings: list[Setting]) -> list[Setting]:
    """Settings with each reference `${path}` replaced by the value at that path."""
    by_path = {setting.path: setting.value for setting in settings}

    def value(text: str, depth: int = 0) -> str:
        def referred(reference: re.Match[str]) -> str:
            return by_path.get(reference[1].lower(), reference.group())

        made = _REFERENCE.sub(referred, text)
        return value(made, depth + 1) if made != text and depth < 4 else made

    return [
        setting._replace(value=value(setting.value)) if "${" in setting.value else setting
        for setting in settings[:_MOST]
    ]


def of_toml(text: str, name: str) -> list[Setting]:
    """Settings of TOML."""
    try:
        document = from_toml(text, name)
    except InputError:
        return list(_of_ini(text, name))
    lines = {setting.path: setting.where for setting in _of_ini(text, name)}
    settings: list[Setting] = []

    def walk(inner: Any, path: str) -> None:
        if isinstance(inner, Mapping):
            for word, item in inner.items():
                walk(item, f"{path}.{word}" if path else str(word))
        elif isinstance(inner, list):
            for item in inner[:64]:
                walk(item, path)
        else:
            value = str(inner).lower() if isinstance(inner, bool) else str(inner)
            settings.append(Setting(key(path), value, lines.get(key(path), name), "file"))

    walk(document, "")
    return settings


def _of_ini(text: str, name: str) -> Iterator[Setting]:
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[+([\w.\"-]+)\]+", line):
            section = head[1].replace('"', "")
        elif pair := re.match(r"\s*([\w.\"-]+)\s*=\s*(.*?)\s*(?:#.*)?$", line):
            word = pair[1].replace('"', "")
            path = f"{section}.{word}" if section else word
            yield Setting(key(path), pair[2].strip("\"'"), f"{name}:{number}", "file")


def of_python(text: str, name: str) -> list[Setting]:
    """Settings of a Python source, in the order of its lines."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    reader = _Python(tree, name)
    return reader.settings()[:_MOST]


class _Python:
    def __init__(self, tree: ast.Module, name: str) -> None:
        self._tree, self._file = tree, name
        self._constants: dict[str, ast.expr] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._constants.setdefault(target.id, node.value)
        self._scopes: list[dict[str, ast.expr]] = []
        self._found: list[Setting] = []

    def settings(self) -> list[Setting]:
        self._walk(self._tree, "")
        return self._found

    def _walk(self, node: ast.AST, section: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._function(node, section)
            return
        if isinstance(node, ast.Call):
            section = _called(node)
            self._call(node, section)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._add(_dotted(target), node.value, "")
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._add(_dotted(node.target), node.value, "")
        elif isinstance(node, ast.Dict):
            for word, value in zip(node.keys, node.values, strict=True):
                if isinstance(word, ast.Constant) and isinstance(word.value, str):
                    self._add(word.value, value, section)
        for inner in ast.iter_child_nodes(node):
            self._walk(inner, section)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, section: str) -> None:
        """A function: its parameters have their defaults."""
        plain, defaults = [*node.args.posonlyargs, *node.args.args], node.args.defaults
        pairs = list(zip(plain[len(plain) - len(defaults) :], defaults, strict=True))
        named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        pairs += [(parameter, value) for parameter, value in named if value is not None]
        self._scopes.append({parameter.arg: value for parameter, value in pairs})
        for parameter, value in pairs:
            self._add(parameter.arg, value, "")
        for inner in node.body:
            self._walk(inner, section)
        self._scopes.pop()

    def _call(self, node: ast.Call, called: str) -> None:
        for keyword in node.keywords:
            self._add(keyword.arg or "", keyword.value, called)
        if called == "from_pretrained" and node.args:
            owner = _dotted(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            if not re.search(r"token|processor", owner, re.IGNORECASE):
                self._add("pretrained_model_name_or_path", node.args[0], "")
        elif called == "add_argument" and node.args and isinstance(node.args[0], ast.Constant):
            default = next(
                (keyword.value for keyword in node.keywords if keyword.arg == "default"), None
            )
            if default is not None and isinstance(node.args[0].value, str):
                self._add(node.args[0].value, default, "")
        elif recipe := _recipe(node.func):
            where = f"{self._file}:{node.lineno}"
            self._found.append(Setting("recipe", recipe, where, "source"))
        elif isinstance(node.func, ast.Attribute) and _dotted(node.func.value)[:1].isupper():
            where = f"{self._file}:{node.lineno}"
            self._found.append(
                Setting(key(_dotted(node.func.value)), node.func.attr, where, "source")
            )

    def _add(self, word: str, value: ast.expr, section: str) -> None:
        constant = self._value(value, 0) if word else None
        if constant is None or constant == "":
            return
        text = str(constant).lower() if isinstance(constant, bool) else str(constant)
        if isinstance(constant, float) and constant.is_integer() and abs(constant) < 2**53:
            text = str(int(constant))
        path = key(f"{section}.{word}" if section else word)
        line = getattr(value, "lineno", 1)
        self._found.append(Setting(path, text, f"{self._file}:{line}", "source"))

    def _value(self, value: ast.expr | None, depth: int) -> object:
        """What an expression says, as far as constants tell; None where they do not."""
        if depth > _DEEPEST:
            return None
        depth += 1
        match value:
            case ast.Constant(value=str() | int() | float() as constant):
                return constant
            case ast.Name(id=name):
                scopes = (
                    scope for scope in (*reversed(self._scopes), self._constants) if name in scope
                )
                if scope := next(scopes, None):
                    return self._value(scope[name], depth)
                return name if name[:1].isupper() else None  # a class
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self._value(operand, depth)
                return -number if isinstance(number, int | float) else None
            case ast.BoolOp(op=ast.Or(), values=values):
                return next(filter(None, (self._value(operand, depth) for operand in values)), None)
            case ast.BinOp(left=left, op=how, right=right):
                return _calculated(how, self._value(left, depth), self._value(right, depth))
            case ast.Attribute(attr=name):
                return name
            case ast.Call():
                return self._made(value, depth)
        return None

    def _made(self, value: ast.Call, depth: int) -> object:
        called = _called(value)
        if called in _TYPES and len(value.args) == 1:
            inner = self._value(value.args[0], depth)
            try:
                return _TYPES[called](inner) if isinstance(inner, str | int | float) else None
            except ValueError:
                return None
        if called in {"get", "getenv"} and len(value.args) == 2:
            return self._value(value.args[1], depth)
        return called or None


_TYPES: Final[Mapping[str, Callable[[Any], object]]] = {"int": int, "float": float, "str": str}


_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], object]]] = {
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def _calculated(how: ast.operator, left: object, right: object) -> object:
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return None
    if isinstance(how, ast.Pow) and not (0 <= right <= 64 and abs(left) < 2**20):
        return None
    try:
        return _OPERATORS[type(how)](left, right)
    except (KeyError, ArithmeticError, ValueError):
        return None


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        owner = _dotted(node.func)
        if node.func.attr in {"Config", "Partial"} and node.args:
            first = _dotted(node.args[0])
            return first.rpartition(".")[2]
        return owner.rpartition(".")[2]
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _recipe(called: ast.expr) -> str:
    """The recipe that a function makes, as NeMo and Megatron-Bridge name theirs; empty of any
    other.

    >>> _recipe(ast.parse("llm.llama3_70b.pretrain_recipe", mode="eval").body)
    'llama3_70b'
    >>> _recipe(ast.parse("llama32_1b_pretrain_config", mode="eval").body)
    'llama32_1b_pretrain_config'
    """
    owner, _, name = _dotted(called).rpartition(".")
    if name in {"pretrain_recipe", "finetune_recipe"}:
        return owner.rpartition(".")[2]
    return name if re.search(r"\w_(pretrain|finetune|sft|peft)_(config|recipe)$", name) else ""


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else node.attr
    return node.id if isinstance(node, ast.Name) else ""
