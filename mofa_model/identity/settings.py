"""Settings that a job says: options of commands, variables, files of settings, Python sources.

All become `Setting`s: a key in one spelling, its value as text, and where it stands. They are
ordered: options of the command first, then variables, then files; the earlier one counts.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any, Final, NamedTuple

from mofa_model.errors import InputError
from mofa_model.identity.commands import (
    Contents,
    PlacedVariable,
    PlacedWord,
    ProgramCall,
    TextFile,
    programs,
)
from mofa_model.identity.recipes import own_arguments
from mofa_model.yaml_text import StreamReader

_MOST: Final = 4000
"""Most settings of a job that are read. [1]"""
_DEEPEST: Final = 8
"""Most levels of a file that are read. [1]"""
_LONGEST: Final = 100_000
"""Most characters of a file that are read."""
_ASSIGNED: Final = re.compile(r"\+{0,2}([A-Za-z_][\w./-]*)=(.*)", re.DOTALL)
_OPTION: Final = re.compile(r"--?([A-Za-z_][\w./-]*)")
_LISTS: Final = re.compile(r"((target|attn)_modules|converters)$")
"""Keys whose value is a list of words."""
ASIDE: Final = re.compile(
    r"(^|[._])(eval|evaluation|val|valid|validation|test|infer|inference|generation|rollout|vllm"
    r"|sglang|teacher|draft|reward|critic|ref|embedding|tokenizer_config|monitoring|dataloader_val)"
    r"([._]|$)"
)
"""Keys that do not describe the trained model: of an evaluation, or of another model beside it."""


class Setting(NamedTuple):
    """A setting."""

    path: str
    """Its whole key, in lower case with underscores and dots."""
    value: str
    where: str
    """Where it stands in the manifest."""
    origin: str
    """option, variable, file or source."""

    @property
    def key(self) -> str:
        """The last part of the path; `tokenizer` for anything in a section of the tokenizer."""
        section, _, last = self.path.rpartition(".")
        named = last in {"type", "name", "model", "path"}
        return "tokenizer" if named and section.endswith("tokenizer") else last


def settings_of(contents: Contents) -> list[Setting]:
    """All settings, those that count first."""
    settings = [setting for command in programs(contents) for setting in _options(command)]
    settings += [
        Setting(_key(variable.name), variable.value.strip(), variable.where, "variable")
        for variable in contents.variables.values()
        if not variable.name.isdigit()
    ]
    for source in contents.files:
        settings += _filled(_of_source(source, contents.variables), contents.variables)
    for command in programs(contents):
        recipe = own_arguments(command, contents.variables)
        options = _options(ProgramCall(words=(command.words[0], *recipe), where=command.where))
        settings += [setting._replace(origin="file") for setting in options if recipe]
    return [setting for setting in settings if setting.value and not ASIDE.search(setting.path)][
        :_MOST
    ]


_FILLED: Final = re.compile(
    r"\$\{(?:oc\.env:|env:)?(?P<name>[A-Za-z_][\w.]*)(?::?[-,]\s*(?P<default>[^${}]*))?\}"
)
"""A value that stands elsewhere: in the same file, as OmegaConf has it, or in the environment."""


def _filled(settings: list[Setting], variables: Mapping[str, PlacedVariable]) -> list[Setting]:
    """Settings of a file with references to others, and to variables, replaced by their values.

    >>> rows = [Setting("seq", "2048", "", "file"), Setting("data.seq_len", "${seq}", "", "file")]
    >>> _filled(rows, {})[1].value
    '2048'
    """
    if not any("${" in setting.value for setting in settings):
        return settings
    values = {setting.path: setting.value for setting in reversed(settings)}

    def value(match: re.Match[str]) -> str:
        variable = variables.get(match["name"])
        own = variable.value if variable is not None else values.get(_key(match["name"]))
        return own or match["default"] or match.group()

    def whole(text: str) -> str:
        for _ in range(_NESTED):
            text = _FILLED.sub(value, text) if len(text) < _LONGEST else text
        return text

    return [
        setting._replace(value=whole(setting.value)) if "${" in setting.value else setting
        for setting in settings
    ]


_NESTED: Final = 3
"""How often a value is resolved that refers to another one. [1]"""


def _key(name: str) -> str:
    """A key in one spelling.

    >>> _key("--Model.Seq-Length")
    'model.seq_length'
    """
    return name.strip("-+").replace("-", "_").replace("/", ".").lower()


def _options(command: ProgramCall) -> Iterator[Setting]:
    words = command.words
    if words[0].text == "litgpt" and len(words) > 2 and not words[2].text.startswith("-"):
        yield Setting("model", words[2].text, words[2].where, "option")
    for at, word in enumerate(words):
        text = word.text
        following = words[at + 1].text if at + 1 < len(words) else "-"
        if text.startswith("-"):
            name, equals, value = text.partition("=")
            if not _OPTION.fullmatch(name):
                continue
            if not equals:
                value = "true" if following.startswith("--") or at + 1 == len(words) else following
                if following.startswith("-") and not re.fullmatch(r"-[\d.]+(e-?\d+)?", following):
                    value = "true"
            if _LISTS.search(_key(name)) and value == following:  # its words are many
                value = ",".join([value, *_plain(words[at + 2 :])])
            if value.lstrip().startswith("{"):  # settings as JSON, as Kubeflow's SDK passes them
                yield from _of_json(value, word.where)
            yield Setting(_key(name), value.strip().strip("\"'"), word.where, "option")
        elif at and (assignment := _ASSIGNED.fullmatch(text)):
            yield Setting(
                _key(assignment[1]), assignment[2].strip().strip("\"'"), word.where, "option"
            )


def _plain(words: Iterable[PlacedWord]) -> list[str]:
    """The words up to the next option."""
    return [word.text for word in takewhile(lambda word: not word.text.startswith("-"), words)]


def _of_json(text: str, where: str) -> list[Setting]:
    try:
        leaves = _leaves(json.loads(text), TextFile("", text, where))
    except (ValueError, RecursionError):
        return []
    return [setting._replace(where=where, origin="option") for setting in leaves]


def _of_source(source: TextFile, variables: Mapping[str, PlacedVariable]) -> list[Setting]:
    if len(source.text) > _LONGEST:
        return []
    name = source.name.lower()
    try:
        if name.endswith(".toml"):
            return _leaves(tomllib.loads(source.text), source)
        if name.endswith(".json"):
            return _leaves(json.loads(source.text), source)
        if name.endswith((".yaml", ".yml")):
            reader = StreamReader(source.name)
            try:
                values = [reader.value(node) for node in reader.documents(source.text)]
            except InputError:  # a key twice, or a template: what its lines say
                return list(_lines(source))
            return [setting for value in values for setting in _leaves(value, source)]
    except (InputError, ValueError, RecursionError):
        return []
    if name.endswith(".py") or name == "python -c":
        return list(_of_python(source, variables))
    return []


_WORD: Final = re.compile(r"[\w./-]+")
_LINE: Final = re.compile(r"\s*([A-Za-z_][\w.-]*):\s+([^#\s][^#]*?)\s*(#.*)?")


def _lines(source: TextFile) -> Iterator[Setting]:
    """Settings of a file that is no valid YAML, line by line; the last one of each key."""
    settings = {}
    for number, line in enumerate(source.text.splitlines(), source.first_line):
        if pair := _LINE.fullmatch(line):
            place = f"{source.where} line {number}"
            settings[pair[1]] = Setting(_key(pair[1]), pair[2].strip("\"'"), place, "file")
    yield from settings.values()


class _Places:
    """Lines of a file by the keys that stand in them.

    A file may have thousands of keys, and anybody may write it: each line is read once.
    """

    def __init__(self, source: TextFile) -> None:
        self._source = source
        self._lines = source.text.splitlines()
        self._with_word: dict[str, list[int]] = {}
        self._having: dict[str, list[int]] = {}
        for at, line in enumerate(self._lines):
            for word in dict.fromkeys(_WORD.findall(line)):
                self._with_word.setdefault(word, []).append(at)

    def of(self, name: str, value: str) -> str:
        """The line where a leaf stands: the one with its key and value, else with its key."""
        having = self._having.get(name)
        if having is None:
            having = self._having[name] = self._lines_of(name)
        exact = (at for at in having if value in self._lines[at])
        at = next(exact, next(iter(having), None))
        where = self._source.where
        return where if at is None else f"{where} line {self._source.first_line + at}"

    def _lines_of(self, name: str) -> list[int]:
        key = re.compile(rf"(^|[\s{{,\"']){re.escape(name)}[\"']?\s*[:=]")
        if _WORD.fullmatch(name):
            near = self._with_word.get(name, [])
        else:  # a key with blanks or other signs
            near = [at for at, line in enumerate(self._lines) if name in line]
        return [at for at in near if key.search(self._lines[at])]


def _leaves(value: Any, source: TextFile) -> list[Setting]:
    """Settings in a nested value: each text or number under its dotted path, with its line."""
    settings: list[Setting] = []
    place = _Places(source).of

    def walk(inner: Any, path: str, depth: int) -> None:
        if depth > _DEEPEST or len(settings) >= _MOST:
            return
        if isinstance(inner, Mapping):
            for name, item in inner.items():
                walk(item, f"{path}.{name}" if path else str(name), depth + 1)
        elif isinstance(inner, list):
            if _LISTS.search(path) and all(isinstance(item, str) for item in inner):
                walk(",".join(inner), path, depth + 1)
            for item in inner[:64]:
                if isinstance(item, Mapping):
                    walk(item, path, depth + 1)
        elif isinstance(inner, str | int | float):
            text = "true" if inner is True else "false" if inner is False else str(inner)
            name = path.rpartition(".")[2]
            shown = text if not isinstance(inner, bool) else ""
            settings.append(Setting(_key(path), text, place(name, shown), "file"))

    walk(value, "", 0)
    return settings


def _of_python(source: TextFile, variables: Mapping[str, PlacedVariable]) -> Iterator[Setting]:
    """Constants that a Python source assigns or passes by name; it is parsed and never run. What it
    asks the environment for is the variable that the job has, else its default.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    constants: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and (constant := _literal(node.value, variables)):
                    constants.setdefault(target.id, constant)
    for node in ast.walk(tree):
        for name, value in _pairs(node):
            constant = _literal(value, variables)
            if isinstance(value, ast.Name):
                constant = constants.get(value.id)
            if _LISTS.search(_key(name)) and isinstance(value, ast.List | ast.Tuple):
                constant = ",".join(str(_literal(element, variables)) for element in value.elts)
            if isinstance(constant, str | int | float) and constant != "":
                text = str(constant).lower() if isinstance(constant, bool) else str(constant)
                line = source.first_line + getattr(value, "lineno", 1) - 1
                yield Setting(_key(name), text, f"{source.where} line {line}", "source")


def _pairs(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names with the values that a node gives them."""
    if isinstance(node, ast.Call):
        yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)
        yield from _of_call(node)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            name = getattr(target, "id", None) or getattr(target, "attr", None)
            if name:
                yield name, node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        if isinstance(node.target, ast.Name):
            yield node.target.id, node.value
    elif isinstance(node, ast.FunctionDef):
        last = node.args.args[len(node.args.args) - len(node.args.defaults) :]
        yield from zip((parameter.arg for parameter in last), node.args.defaults, strict=True)
    elif isinstance(node, ast.ImportFrom):  # of Megatron Bridge: import llama3_8b_pretrain_config
        yield from (
            ("recipe", ast.copy_location(ast.Constant(imported.name), node))
            for imported in node.names
            if _RECIPE.search(imported.name)
        )
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value


_RECIPE: Final = re.compile(r"_(pretrain|finetune|sft|peft)_config$")
"""Names of recipes of Megatron Bridge."""


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The model of `from_pretrained`, and defaults of `add_argument`."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if called == "from_pretrained" and node.args:
        owner = getattr(node.func, "value", None)
        if not re.search(r"Token|Processor", getattr(owner, "id", "")):
            yield "pretrained_model_name_or_path", node.args[0]
    if called in {"pretrain_recipe", "finetune_recipe"}:  # NeMo's: llm.llama3_8b.pretrain_recipe()
        owner = getattr(node.func, "value", None)
        named = getattr(owner, "attr", "") or getattr(owner, "id", "")
        if named:  # or llama3_8b.pretrain_recipe()
            yield "recipe", ast.copy_location(ast.Constant(named), node)
    if called == "add_argument" and node.args and isinstance(node.args[0], ast.Constant):
        default = next(
            (keyword.value for keyword in node.keywords if keyword.arg == "default"), None
        )
        if default is not None and isinstance(node.args[0].value, str):
            yield node.args[0].value, default


def _literal(value: ast.expr, variables: Mapping[str, PlacedVariable]) -> object:
    """The constant that an expression is; None where it is none."""
    if isinstance(value, ast.Constant):
        return value.value
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
        return f"{value.value.id}.{value.attr}" if value.value.id == "torch" else None
    if isinstance(value, ast.Subscript):  # os.environ["NAME"]
        environ = getattr(value.value, "attr", "") == "environ"
        return _variable(value.slice, variables) if environ else None
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "field":
        default = next(
            (keyword.value for keyword in value.keywords if keyword.arg == "default"), None
        )
        return default.value if isinstance(default, ast.Constant) else None
    if not isinstance(value, ast.Call) or not value.args:
        return None
    if isinstance(value.func, ast.Name) and value.func.id in {"int", "float", "str"}:
        return _literal(value.args[0], variables)
    called = value.func.attr if isinstance(value.func, ast.Attribute) else ""
    if called not in {"get", "getenv"}:
        return None
    environment = _variable(value.args[0], variables)  # os.environ.get("NAME", "default")
    usual = value.args[1] if len(value.args) == 2 else None
    return environment or (usual.value if isinstance(usual, ast.Constant) else None)


def _variable(name: ast.expr, variables: Mapping[str, PlacedVariable]) -> str | None:
    variable = variables.get(str(name.value)) if isinstance(name, ast.Constant) else None
    return None if variable is None else variable.value
