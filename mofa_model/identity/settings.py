"""Settings that a job says: options of commands, variables, files of settings, Python sources.

    settings_of(contents)         all settings of a job: options of the command first, then
                                  variables, then files; the earlier one counts
    file_settings(source, form)   those of one file, also of one that somebody pastes

Each `Setting` is a key in one spelling, its value as text, and where it stands. YAML and JSON keep
the line of each value, TOML that of each key. A Python source is parsed and never run.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple

from mofa_model.errors import InputError
from mofa_model.files import from_json, from_toml
from mofa_model.identity.commands import (
    Contents,
    PlacedVariable,
    PlacedWord,
    ProgramCall,
    TextFile,
    programs,
)
from mofa_model.identity.recipes import own_arguments
from mofa_model.yaml_text import MOST_VALUES, StreamReader

_MOST: Final = 6000
"""Most settings of a job, and of a file, that are read. [1]"""
_DEEPEST: Final = 16
"""Most levels of a file that are read. [1]"""
_ITEMS: Final = 64
"""Most items of a list that are read. [1]"""
_LONGEST: Final = 100_000
"""Most characters of a job's file that are read."""
_LINE: Final = re.compile(r"(\s*)(?:- )?([A-Za-z_][\w.-]*)\s*:\s*(\S.*?)?\s*(?:#.*)?$")
"""A line of YAML with a key."""
_OPTION: Final = re.compile(r"(--?|\+{0,2})[A-Za-z_][\w./-]*")
_NEGATIVE: Final = re.compile(r"-[\d.]+(e-?\d+)?")
_LISTS: Final = re.compile(r"((target|attn)_modules|converters)$")
"""Keys whose value is a list of words."""
OTHER_PARTS: Final = (
    "eval|evaluation|val|valid|validation|test|infer|inference|generation|vllm|sglang|teacher|draft"
    "|reward|critic|embedding|tokenizer_config|monitoring|dataloader_val|dataset_val|profiler"
    "|benchmark|sampling"
)
"""Sections that do not describe the trained model: of an evaluation, or of a model beside it."""
_ASIDE: Final = re.compile(rf"(^|[._])({OTHER_PARTS}|rollout|ref)([._]|$)")


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
        Setting(key(variable.name), variable.value.strip(), variable.where, "variable")
        for variable in contents.variables.values()
        if not variable.name.isdigit()
    ]
    for source in contents.files:
        form = _form_of(source.name)
        if form and len(source.text) <= _LONGEST:
            settings += file_settings(source, form, contents.variables)
    for command in programs(contents):
        recipe = own_arguments(command, contents.variables)
        options = _options(ProgramCall(words=(command.words[0], *recipe), where=command.where))
        settings += [setting._replace(origin="file") for setting in options if recipe]
    return [setting for setting in settings if setting.value and not _ASIDE.search(setting.path)][
        :_MOST
    ]


def _form_of(name: str) -> str:
    """The form of a file by its name; empty where it is none of settings."""
    ending = "py" if name == "python -c" else name.lower().rpartition(".")[2]
    return {"yml": "yaml"}.get(ending, ending if ending in {"yaml", "json", "toml", "py"} else "")


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
        own = variable.value if variable is not None else values.get(key(match["name"]))
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


def key(name: str) -> str:
    """A key in one spelling.

    >>> key("--Model.Seq-Length")
    'model.seq_length'
    """
    return name.strip("-+").replace("-", "_").replace("/", ".").lower()


def option_at(word: PlacedWord, following: str) -> Setting | None:
    """The setting of a word that is an option: `--a 1`, `--a=1`, `a=1`; None of any other word.

    >>> option_at(PlacedWord("--seq-length", ""), "2048").value
    '2048'
    """
    name, equals, value = word.text.partition("=")
    if not _OPTION.fullmatch(name) or not (equals or name.startswith("-")):
        return None
    if not equals:
        is_switch = following.startswith("-") and not _NEGATIVE.fullmatch(following)
        value = "true" if is_switch else following
    return Setting(key(name), value.strip().strip("\"'"), word.where, "option")


def _options(command: ProgramCall) -> Iterator[Setting]:
    words = command.words
    if words[0].text == "litgpt" and len(words) > 2 and not words[2].text.startswith("-"):
        yield Setting("model", words[2].text, words[2].where, "option")
    for at, word in enumerate(words):
        following = words[at + 1].text if at + 1 < len(words) else "-"
        option = option_at(word, following) if at or word.text.startswith("-") else None
        if option is None:
            continue
        if _LISTS.search(option.path) and option.value == following:  # its words are many
            option = option._replace(value=",".join([following, *_plain(words[at + 2 :])]))
        if option.value.startswith("{"):  # settings as JSON, as Kubeflow's SDK passes them
            inside = file_settings(TextFile("", option.value, ""), "json", {})
            yield from (one._replace(where=word.where, origin="option") for one in inside)
        yield option


def _plain(words: Iterable[PlacedWord]) -> list[str]:
    """The words up to the next option."""
    return [word.text for word in takewhile(lambda word: not word.text.startswith("-"), words)]


# ---------------------------------------------------------------------------- files of trainers


def file_settings(
    source: TextFile, form: str, variables: Mapping[str, PlacedVariable], *, by_name: bool = False
) -> list[Setting]:
    """Settings of a file in the form `yaml`, `json`, `toml` or `py`; nothing in it is run.

    What it asks the environment for is the variable that the job has, else its default. `by_name`:
    whether a class or a function of a Python source stands for its own name.
    """
    if form == "py":
        settings = _of_python(source, variables, by_name=by_name)
    else:
        settings = {"yaml": _of_yaml, "json": _of_json, "toml": _of_toml}[form](source)
    return _filled(settings, variables)


def _of_yaml(source: TextFile) -> list[Setting]:
    """Settings of YAML, and so of JSON; a text that is no valid YAML is read line by line."""
    walk = _Nodes(source)
    try:
        nodes = list(StreamReader(source.name).documents(source.text))
    except InputError:  # a template too: what its lines say
        return _by_lines(source)
    settings = (setting for node in nodes for setting in walk.settings(node, "", 0))
    return list(islice(settings, _MOST))


class _Nodes:
    """Settings of YAML by its nodes, each with its line.

    An alias is followed wherever it stands, so a small file may say a lot: visits are counted.
    """

    def __init__(self, source: TextFile) -> None:
        self._source = source
        self._left = MOST_VALUES

    def settings(self, node: Any, path: str, depth: int) -> Iterator[Setting]:
        """Settings in a node: each text, number or switch under its dotted path."""
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            return
        if isinstance(node, MappingNode):
            for word, value in self._entries(node, depth).items():
                yield from self.settings(value, f"{path}.{word}" if path else word, depth + 1)
        elif isinstance(node, SequenceNode):
            if _LISTS.search(key(path)) and not any(item.id != "scalar" for item in node.value):
                words = ",".join(str(item.value) for item in node.value)
                yield self._setting(node, path, words)
            else:
                for item in node.value[:_ITEMS]:
                    yield from self.settings(item, path, depth + 1)
        elif (kind := str(node.tag).rpartition(":")[2]) != "null":
            value = str(node.value)
            if kind == "bool":
                value = "true" if value.lower() in {"true", "yes", "on"} else "false"
            yield self._setting(node, path, value)

    def _entries(self, mapping: Any, depth: int) -> dict[str, Any]:
        """Nodes of a mapping by their keys: of a key that stands twice the last one, and its own
        before those that it merges.
        """
        self._left -= len(mapping.value)
        merged, own = dict[str, Any](), dict[str, Any]()
        if depth > _DEEPEST or self._left < 0:
            return own
        for word, value in mapping.value:
            if str(word.tag).endswith(":merge"):
                for inner in reversed(value.value if value.id == "sequence" else [value]):
                    merged |= self._entries(inner, depth + 1) if inner.id == "mapping" else {}
            elif word.id == "scalar":
                own[str(word.value)] = value
        return merged | own

    def _setting(self, node: Any, path: str, value: str) -> Setting:
        return Setting(key(path), value, self._source.line(node.start_mark.line), "file")


def _by_lines(source: TextFile) -> list[Setting]:
    """Settings line by line, with the sections that their indentation shows."""
    sections, settings = list[tuple[int, str]](), list[Setting]()
    for number, line in enumerate(source.text.splitlines()):
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
            value = pair[3].strip("\"'")
            settings.append(Setting(key(path), value, source.line(number), "file"))
    return settings


def _of_toml(source: TextFile) -> list[Setting]:
    """Settings of TOML; a text that is no valid TOML is read line by line."""
    lines = _of_ini(source)
    try:
        document = from_toml(source.text, source.name)
    except InputError:
        return lines
    places = {setting.path: setting.where for setting in lines}
    return _of_document(document, lambda path, _: places.get(key(path), source.where))


def _of_json(source: TextFile) -> list[Setting]:
    """Settings of JSON, many times as fast as by its nodes: its keys stand in the order of its
    values, so the next place where a key is written is its own.
    """
    at = line = 0

    def place(_: str, name: str) -> str:
        nonlocal at, line
        quoted = f'"{name}"'
        found = source.text.find(quoted, at)
        while found >= 0 and not _COLON.match(source.text, found + len(quoted)):
            found = source.text.find(quoted, found + 1)
        if found >= 0:
            line += source.text.count("\n", at, found)
            at = found + len(quoted)
        return source.line(line)

    try:
        return _of_document(from_json(source.text, source.name), place)
    except InputError:
        return []


_COLON: Final = re.compile(r"\s*:")


def _of_document(document: Any, place: Callable[[str, str], str]) -> list[Setting]:
    """Settings in nested values; `place` is asked for each key, by its dotted path and its name, in
    the order of the file.
    """
    settings: list[Setting] = []

    def walk(inner: Any, path: str, where: str, depth: int) -> None:
        if depth > _DEEPEST or len(settings) >= _MOST or inner is None:
            return
        if isinstance(inner, Mapping):
            for word, item in inner.items():
                inside = f"{path}.{word}" if path else str(word)
                walk(item, inside, place(inside, str(word)), depth + 1)
        elif isinstance(inner, list):
            if _LISTS.search(key(path)) and all(isinstance(item, str) for item in inner):
                inner = [",".join(inner)]
            for item in inner[:_ITEMS]:
                walk(item, path, where, depth + 1)
        else:
            value = str(inner).lower() if isinstance(inner, bool) else str(inner)
            settings.append(Setting(key(path), value, where, "file"))

    walk(document, "", "", 0)
    return settings


def _of_ini(source: TextFile) -> list[Setting]:
    """Assignments below heads in brackets, line by line."""
    section, settings = "", list[Setting]()
    for number, line in enumerate(source.text.splitlines()):
        if head := re.match(r"\s*\[+([\w.\"-]+)\]+", line):
            section = head[1].replace('"', "")
        elif pair := re.match(r"\s*([\w.\"-]+)\s*=\s*(.*?)\s*(?:#.*)?$", line):
            word = pair[1].replace('"', "")
            path = f"{section}.{word}" if section else word
            value = pair[2].strip("\"'")
            settings.append(Setting(key(path), value, source.line(number), "file"))
    return settings


# ---------------------------------------------------------------------------- Python sources


def _of_python(
    source: TextFile, variables: Mapping[str, PlacedVariable], *, by_name: bool
) -> list[Setting]:
    """What a Python source passes by name, assigns, or gives a parameter as its default, in the
    order of its lines.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return _Python(tree, source, variables, by_name=by_name).settings()[:_MOST]


class _Python:
    def __init__(
        self, tree: ast.Module, source: TextFile, variables: Mapping[str, PlacedVariable],
        *, by_name: bool,
    ) -> None:  # fmt: skip
        self._tree, self._source = tree, source
        self._variables, self._by_name = variables, by_name
        self._constants: dict[str, ast.expr] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._constants.setdefault(target.id, node.value)
        self._scopes: list[dict[str, ast.expr]] = []
        self._found: list[Setting] = []
        self._imported: list[Setting] = []

    def settings(self) -> list[Setting]:
        """All settings, in the order of the lines; recipes that are only imported come last."""
        self._walk(self._tree, "")
        return [*self._found, *self._imported]

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
        elif isinstance(node, ast.ImportFrom):
            recipes = (name.name for name in node.names if _RECIPE.search(name.name))
            self._imported += (self._setting("recipe", recipe, node) for recipe in recipes)
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
            if isinstance(node.args[0].value, str) and (default := _default(node)):
                self._add(node.args[0].value, default, "")
        elif recipe := _recipe(node.func):
            self._found.append(self._setting("recipe", recipe, node))
        elif self._by_name and isinstance(node.func, ast.Attribute):
            owner = _dotted(node.func.value)
            if owner[:1].isupper():
                self._found.append(self._setting(key(owner), node.func.attr, node))

    def _add(self, word: str, value: ast.expr, section: str) -> None:
        path = key(f"{section}.{word}" if section else word)
        if _LISTS.search(path) and isinstance(value, ast.List | ast.Tuple):
            constant: object = ",".join(str(self._value(item, 0)) for item in value.elts)
        else:
            constant = self._value(value, 0) if word else None
        if constant is None or constant == "":
            return
        text = str(constant).lower() if isinstance(constant, bool) else str(constant)
        if isinstance(constant, float) and constant.is_integer() and abs(constant) < 2**53:
            text = str(int(constant))
        self._found.append(self._setting(path, text, value))

    def _setting(self, path: str, value: str, node: ast.AST) -> Setting:
        return Setting(path, value, self._source.line(getattr(node, "lineno", 1) - 1), "source")

    def _value(self, value: ast.expr | None, depth: int) -> object:
        """What an expression says, as far as constants and variables tell; None where they do
        not.
        """
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
                return name if self._by_name and name[:1].isupper() else None  # a class
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self._value(operand, depth)
                return -number if isinstance(number, int | float) else None
            case ast.BoolOp(op=ast.Or(), values=values):
                return next(filter(None, (self._value(operand, depth) for operand in values)), None)
            case ast.BinOp(left=left, op=how, right=right):
                return _calculated(how, self._value(left, depth), self._value(right, depth))
            case ast.Attribute(attr=name):
                return name if self._by_name or _dotted(value).startswith("torch.") else None
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=name):
                return self._variable(name)
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
        if called in {"get", "getenv"} and value.args:  # os.environ.get("NAME", "default")
            usual = value.args[1] if len(value.args) == 2 else None
            if (own := self._variable(value.args[0])) or usual is not None:
                return own or self._value(usual, depth)
        if called == "field" and (default := _default(value)):
            return self._value(default, depth)
        return called or None if self._by_name else None

    def _variable(self, name: ast.expr) -> str | None:
        """What the job says of a variable that a source asks the environment for."""
        variable = self._variables.get(str(name.value)) if isinstance(name, ast.Constant) else None
        return None if variable is None else variable.value


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


def _default(node: ast.Call) -> ast.expr | None:
    """What a call gives as `default`, as add_argument and a dataclass's field have it."""
    return next((keyword.value for keyword in node.keywords if keyword.arg == "default"), None)


_RECIPE: Final = re.compile(r"\w_(pretrain|finetune|sft|peft)_(config|recipe)$")
"""Names of recipes of NeMo and Megatron Bridge."""


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
    return name if _RECIPE.search(name) else ""


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else node.attr
    return node.id if isinstance(node, ast.Name) else ""
