"""What containers run: their command and arguments, read as a shell reads them, and never run.

Scripts behind `bash -c`, scripts and Python sources in ConfigMaps, here-documents and the
entrypoint of a RayJob are taken apart. A word keeps the place where it stands, and variables that
the manifest gives a value have it.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mofa_model.errors import InputError
from mofa_model.identity.expansion import traced
from mofa_model.identity.script import Call, walk
from mofa_model.launch.shell import line_of
from mofa_model.records import dataclass

_LONGEST: Final = 20_000
"""Characters of one script that are read."""
_DEEPEST: Final = 4
"""Scripts within scripts. [1]"""
_VARIABLE: Final = re.compile(
    r"\$\{(?P<braced>[A-Za-z_]\w*)(?P<default>:?[-=][^}]*)?\}"
    r"|\$\((?P<kubernetes>[A-Za-z_]\w*)\)|\$(?P<plain>[A-Za-z_]\w*)"
)
_KUBERNETES: Final = re.compile(r"(?<!\$)\$\(([A-Za-z_][\w.-]*)\)")
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SCRIPT: Final = re.compile(r"\.(?:sh|bash)$")
_PYTHON: Final = re.compile(r"(?:.*/)?(?:python[0-9.]*|pypy3?)$")
_MODULE: Final = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_SPAWNS: Final = re.compile(r"(gaudi|xla)_spawn\.py$|torch/distributed/(run|launch)\.py$")
"""Scripts that start the script behind them, once for each device."""
_NO_PYTHON: Final = frozenset({"--no-python", "--no_python"})
"""Options that tell torchrun that the program is no Python."""
_STARTERS: Final = frozenset(
    {"bash", "sh", "source", ".", "exec", "nohup", "env", "time", "sudo", "tini", "dumb-init"}
)
"""Programs that only start the program in their other words."""


class PlacedWord(NamedTuple):
    """A word of a command."""

    text: str
    where: str
    """Where it stands in the manifest."""


class PlacedVariable(NamedTuple):
    """A variable that has a value."""

    name: str
    value: str
    where: str


class TextFile(NamedTuple):
    """A file with text: a ConfigMap's key, or a here-document."""

    name: str
    """Its name, or its path in the container."""
    text: str
    where: str
    """Where it stands in the manifest."""
    first_line: int = 1
    """The line of its first line there. [1]"""
    mark: str = " line "
    """What stands between its place and a line of it."""

    def line(self, lines: int) -> str:
        """The place of the line that comes so many lines after the first."""
        return f"{self.where}{self.mark}{self.first_line + lines}"

    def at(self, offset: int) -> str:
        """The place of a character."""
        return self.line(self.text.count("\n", 0, offset))


@dataclass(frozen=True, kw_only=True)
class ProgramCall:
    """A program with its arguments."""

    words: tuple[PlacedWord, ...]
    where: str
    """Where it stands."""
    own_variables: tuple[PlacedVariable, ...] = ()
    """Variables that it alone is given."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The words of the command, without where they stand."""
        return tuple(word.text for word in self.words)

    @property
    def program(self) -> str:
        """The script, module or program that it starts in the end, behind launchers.

        >>> words = "torchrun --nnodes 2 /app/train.py --bf16".split()
        >>> ProgramCall(words=tuple(PlacedWord(one, "") for one in words), where="").program
        '/app/train.py'
        >>> words = "torchrun --nnodes=2 --standalone -m torchtitan.train --bf16".split()
        >>> ProgramCall(words=tuple(PlacedWord(one, "") for one in words), where="").program
        'torchtitan.train'
        >>> words = "torchrun --nnodes=2 --no-python nemo llm pretrain".split()
        >>> ProgramCall(words=tuple(PlacedWord(one, "") for one in words), where="").program
        'nemo'
        """
        texts = self.texts
        for at, text in enumerate(texts):
            following = texts[at + 1] if at + 1 < len(texts) else ""
            if text in _NO_PYTHON and following and not _PYTHON.match(following):
                return following
            is_module = text == "-m" and at and _MODULE.fullmatch(following)
            if is_module and not following.startswith("torch.distributed"):
                return following
            if re.search(r"\.(py|sh|R|jl)$", text) and not text.startswith("-") and "=" not in text:
                if _SPAWNS.search(text) and following:
                    continue
                return text
            if text == "-c" and at and _PYTHON.match(texts[at - 1]):
                return "python -c"
        return texts[0] if texts else ""


@dataclasses.dataclass(kw_only=True)
class Contents:
    """Everything that containers run and read."""

    program_calls: list[ProgramCall] = dataclasses.field(default_factory=list)
    variables: dict[str, PlacedVariable] = dataclasses.field(default_factory=dict)
    files: list[TextFile] = dataclasses.field(default_factory=list)
    """Files: those that a command names or writes, then the others that are mounted."""
    notes: list[str] = dataclasses.field(default_factory=list)
    """What could not be read."""


def read_container(
    command: object,
    args: object,
    where: str,
    variables: Mapping[str, PlacedVariable],
    files: Mapping[str, TextFile],
) -> Contents:
    """What a container says; `files` are those of ConfigMaps, by their path."""
    contents = Contents(variables=dict(variables))
    words = [
        word._replace(text=_substituted(word.text, variables))
        for word in (*_listed(command, f"{where}.command"), *_listed(args, f"{where}.args"))
    ]
    reader = _Reader(contents, files)
    if words:
        reader.command(words, 0)
    reader.rest()
    return contents


def _substituted(text: str, variables: Mapping[str, PlacedVariable]) -> str:
    """A word as Kubernetes hands it over: `$(NAME)` is a variable's value, before any shell."""

    def value(reference: re.Match[str]) -> str:
        variable = variables.get(reference[1])
        return reference.group() if variable is None else variable.value

    return _KUBERNETES.sub(value, text) if "$(" in text else text


def read_text(
    text: str, where: str, variables: Mapping[str, PlacedVariable], files: Mapping[str, TextFile]
) -> Contents:
    """The commands in a line that a shell runs, as the entrypoint of a RayJob."""
    contents = Contents(variables=dict(variables))
    reader = _Reader(contents, files)
    reader.script(TextFile("", text, where), 0)
    reader.rest()
    return contents


def _listed(value: object, where: str) -> list[PlacedWord]:
    if isinstance(value, str):
        return [PlacedWord(value, where)]
    rows = value if isinstance(value, list) else []
    return [
        PlacedWord(str(word), f"{where}[{number}]")
        for number, word in enumerate(rows)
        if word is not None
    ]


class _Reader:
    def __init__(self, contents: Contents, files: Mapping[str, TextFile]) -> None:
        self._contents, self._files = contents, dict(files)
        self._named = set[str | tuple[str, int]]()

    def command(self, words: Sequence[PlacedWord], depth: int) -> None:
        """A command as words; a shell's line in it is a script of its own."""
        texts = [self._expanded(word.text) for word in words]
        if texts[0].rpartition("/")[2] == "ray" and texts[1:3] == ["job", "submit"]:
            first = texts.index("--") + 1 if "--" in texts else len(texts)
            if first < len(texts):  # what is submitted is the command
                words, texts = words[first:], texts[first:]
        at = line_of(texts)
        if at is not None and at < len(words) and depth < _DEEPEST:
            outer = tuple(
                PlacedWord(text, word.where) for text, word in zip(texts, words, strict=True)
            )
            if at > 1 and any(not text.startswith("-") for text in texts[1:at]):
                self._add(outer[:at])  # mpirun bash -c: the launcher is a command as well
            behind = [word.text for word in words[at + 2 :]]
            self.script(TextFile("", words[at].text, words[at].where), depth + 1, behind)
            return
        if len(words) == 1 and re.search(r"\s", texts[0].strip()) and depth < _DEEPEST:
            self.script(TextFile("", words[0].text, words[0].where), depth + 1)
            return
        made = list[PlacedWord]()
        for text, word in zip(texts, words, strict=True):
            bare = re.sub(r"\s+#.*$", "", text) if "\n" not in text else text
            if re.fullmatch(r"-\S+\s+\S.*", bare, re.DOTALL):
                made += [
                    PlacedWord(text, word.where) for text in _words(bare)
                ]  # `- --lr 0.1` in a list
            else:
                made.append(PlacedWord(bare, word.where))
        self._add(tuple(made))
        self._follow(made, depth)

    def script(self, source: TextFile, depth: int, arguments: Sequence[str] = ()) -> None:
        """A shell script, followed as a shell would go through it."""
        text = source.text[:_LONGEST]
        values = {
            variable.name: traced(variable.value) for variable in self._contents.variables.values()
        }
        try:
            walked = walk(text, values, arguments=arguments, every=True)
        except InputError:
            self._lines(source, depth)
            return
        for name, value in {**walked.passed, **walked.holds}.items():
            held = self._contents.variables.get(name)
            if isinstance(value, list) or (held is not None and held.value == value.text):
                continue
            plain = re.sub(r"\\?\n", " ", value.text)
            if "$(" not in plain and "`" not in plain:
                place = source.at(max(0, value.place))
                self._contents.variables[name] = PlacedVariable(name, plain, place)
        for path, document in walked.documents:
            start = max(0, document.place)
            first = source.first_line + text.count("\n", 0, start)
            made = TextFile(path or "python -c", document.text, source.where, first)
            self._take(made)
            if path:  # a later command may run it
                self._files[path.removeprefix("./")] = made
        launchers = set[int]()
        for call in walked.followed:
            for outer in call.outer_calls:  # mpirun bash -c: the launcher is a command as well
                if outer.place not in launchers and not _is_shell(outer.texts):
                    launchers.add(outer.place)
                    self._add(tuple(self._placed(outer, source)))
            words = [part for word in self._placed(call, source) for part in self._split(word)]
            if words:
                self.command(words, max(depth, 1))

    def _placed(self, call: Call, source: TextFile) -> list[PlacedWord]:
        """The words of a call; what is computed stands where the call does."""
        return [
            PlacedWord(word.text, source.at(word.place if word.place >= 0 else max(0, call.place)))
            for word in call.traced_words
        ]

    def rest(self) -> None:
        """Read the mounted files that no command named, after those that commands named."""
        for path, source in self._files.items():
            if path not in self._named:
                self._take(source)

    def _split(self, word: PlacedWord) -> list[PlacedWord]:
        """Split a word that is a bare variable into the words of its value."""
        if re.fullmatch(r"\$\{?\w+(\[@\])?\}?", word.text):
            name = re.sub(r"\W", "", word.text)
            variable = self._contents.variables.get(name)
            if variable is not None and re.search(r"\s", variable.value.strip()):
                inner = variable.value.strip()
                if inner.startswith("(") and inner.endswith(")"):
                    inner = inner[1:-1]
                return [PlacedWord(text, variable.where) for text in _words(inner)]
        return [word]

    def _add(self, words: tuple[PlacedWord, ...]) -> None:
        kept = list(words)
        while kept and _ASSIGNED.fullmatch(kept[0].text) and len(kept) > 1:
            kept.pop(0)
        if kept:
            self._contents.program_calls.append(ProgramCall(words=tuple(kept), where=kept[0].where))

    def _follow(self, words: Sequence[PlacedWord], depth: int) -> None:
        """Files that a command names and that are here: scripts are read as scripts."""
        for word in words:
            for path in (word.text, word.text.partition("=")[2]):
                source = self._file(path)
                if source is None or (source.where, source.first_line) in self._named:
                    continue
                self._named |= {(source.where, source.first_line), path}
                if _SCRIPT.search(source.name) and depth < _DEEPEST:
                    behind = [later.text for later in words[words.index(word) + 1 :]]
                    self.script(source, depth + 1, behind)
                self._take(source)
        if words and _PYTHON.match(words[0].text) and len(words) > 2 and words[1].text == "-c":
            self._take(TextFile("python -c", words[2].text, words[2].where))

    def _file(self, path: str) -> TextFile | None:
        """A mounted file by its path, or by its name alone if only one has it."""
        if not path or len(path) > 300 or " " in path:
            return None
        clean = path.removeprefix("./")
        if clean in self._files:
            return self._files[clean]
        tail = clean.rpartition("/")[2]
        if "." not in tail:
            return None
        sources = [
            source for name, source in self._files.items() if name.rpartition("/")[2] == tail
        ]
        return sources[0] if len(sources) == 1 else None

    def _take(self, source: TextFile) -> None:
        if source not in self._contents.files:
            self._contents.files.append(source)

    def _lines(self, source: TextFile, depth: int) -> None:
        """A script that no shell reads, as templates are: line by line."""
        text = re.sub(r"\\\n", "  ", source.text[:_LONGEST])
        offset = 0
        for line in text.split("\n"):
            for piece in re.split(r"&&|\|\||;|(?<!\|)\|(?!\|)", line):
                words = _words(piece)
                if words and (assignment := _ASSIGNED.fullmatch(words[0])) and len(words) == 1:
                    value = self._expanded(assignment[2])
                    self._contents.variables[assignment[1]] = PlacedVariable(
                        assignment[1], value, source.at(offset)
                    )
                elif words:
                    self.command(
                        [PlacedWord(text, source.at(offset)) for text in words], max(depth, 1)
                    )
            offset += len(line) + 1

    def _expanded(self, text: str) -> str:
        def value(reference: re.Match[str]) -> str:
            name = reference["braced"] or reference["kubernetes"] or reference["plain"]
            variable = self._contents.variables.get(name)
            if variable is not None and "\n" not in variable.value:
                return variable.value
            if reference["default"]:
                return reference["default"].lstrip(":-=").strip("\"'")
            return reference.group()

        return _VARIABLE.sub(value, text) if "$" in text else text


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def _is_shell(texts: Sequence[str]) -> bool:
    """Whether a command is a shell and its options alone, as `bash -c`."""
    return all(text.startswith("-") for text in texts[1:])


def merged(parts: Sequence[Contents]) -> Contents:
    """What several containers say, those first that come first."""
    whole = Contents()
    for contents in parts:
        whole.program_calls += contents.program_calls
        whole.files += [source for source in contents.files if source not in whole.files]
        for name, variable in contents.variables.items():
            whole.variables.setdefault(name, variable)
    return whole


def programs(contents: Contents) -> Iterator[ProgramCall]:
    """The commands, without those of which a starter such as `bash` or `env` is the only word."""
    for command in contents.program_calls:
        first = command.texts[0].rpartition("/")[2]
        if first in _STARTERS and len(command.words) == 1:
            continue
        yield command
