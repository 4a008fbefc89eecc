"""A shell script followed as a shell would go, without running a program.

Variables, arrays, arithmetic, functions, branches and loops are followed; a program that would run
is written down with its words, each with the place where it stands. What only a run can tell keeps
the form in which it is written (`$NAME`, `$(date)`).

Of a branch whose test nobody can decide here the first is taken; a branch that ends the script is
not taken, and of a loop the first round is.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import PurePosixPath
from typing import Any, Final

from mofa_model.errors import InputError
from mofa_model.identity.commands import PlacedVariable, PlacedWord, ProgramCall, Said, TextFile
from mofa_model.launch.shell import line_of, tree
from mofa_model.records import dataclass

_DEEPEST: Final = 12
"""Functions and scripts within each other. [1]"""
_MOST: Final = 4000
"""Commands that are followed. [1]"""
_LARGEST: Final = 200_000
"""Characters of a value."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_OPEN: Final = re.compile(r"\$[\w{(@*#?!]|`")
"""What only a run can tell."""
_ENDS: Final = frozenset({"exit", "return", "usage", "die", "help", "print_usage"})
_SILENT: Final = frozenset(
    {"set", "shift", "shopt", "ulimit", "trap", "wait", "cd", "true", "false", "module", "unalias"}
    | {"break", "continue", "exit", "return", "mkdir", "rm", "cat", "sleep", "date", "pwd"}
)
_SCRIPT: Final = re.compile(r"\.(sh|bash|sbatch|slurm)$")
_BYTES: Final = re.compile(r"[^\S\n]+|\n")
Value = str | list[str] | dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script as it stands in a file."""

    text: str
    name: str
    """Name of its file."""
    first_line: int = 1
    """The line of its first line there. [1]"""

    def at(self, line: int) -> str:
        """The place of a line that is counted from one."""
        return f"{self.name}:{self.first_line + line - 1}"


@dataclass(frozen=True, kw_only=True)
class Given:
    """What stands around a script: variables that its scheduler sets, and other files."""

    variables: Mapping[str, PlacedVariable] = field(default_factory=dict)
    scripts: Mapping[str, Script] = field(default_factory=dict)
    """Other scripts that may be called, by the name of their file."""


def follow(script: Script, given: Given | None = None) -> Said:
    """What a script would run.

    >>> said = follow(Script(text="N=4; A=(--nnodes $N)\\ntorchrun ${A[@]} t.py", name="x.sh"))
    >>> said.program_calls[0].texts, said.program_calls[0].where
    (('torchrun', '--nnodes', '4', 't.py'), 'x.sh:2')
    """
    around = given or Given()
    follower = _Follower(around)
    for one in around.variables.values():
        follower.assign(one.name, one.value, one.where)
    follower.script(script)
    return follower.said()


def unknown(text: str) -> bool:
    """Whether a part of a value is only known in a run."""
    return bool(_OPEN.search(text))


class _Ended(Exception):
    """The script goes no further."""


class _Follower:
    def __init__(self, given: Given) -> None:
        self._given = given
        self._values: dict[str, Value] = {}
        self._places: dict[str, list[tuple[Script, int, int]]] = {}
        self._wheres: dict[str, str] = {}
        self._calls: list[ProgramCall] = []
        self._files: list[TextFile] = []
        self._functions: dict[str, Any] = {}
        self._called: set[str] = set()
        self._arguments: list[list[str]] = [[]]
        self._depth = 0
        self._steps = 0
        self._source = Script(text="", name="")
        self._line = 1

    # ------------------------------------------------------------------ what was found

    def said(self) -> Said:
        """Everything that was found."""
        found = Said(program_calls=self._calls, files=self._files)
        for name, value in self._values.items():
            text = value if isinstance(value, str) else ""
            if text:
                where = self._wheres.get(name, self._source.name)
                found.variables[name] = PlacedVariable(name, text, where)
        return found

    def assign(self, name: str, value: Value, where: str = "") -> None:
        """Give a variable a value."""
        if isinstance(value, str):
            value = value[:_LARGEST]
        self._values[name] = value
        self._wheres[name] = where or self._here()

    def _here(self) -> str:
        return self._source.at(self._line)

    # ------------------------------------------------------------------ scripts

    def script(self, script: Script) -> None:
        """Follow a script."""
        if self._depth > _DEEPEST:
            return
        before = self._source, self._line
        self._source, self._depth = script, self._depth + 1
        try:
            parsed = tree(_plain(script.text))
        except InputError:
            parsed = None
        try:
            if parsed is None:
                self._by_lines(script)
            else:
                self._statements(parsed.get("Stmts") or [])
        except _Ended:
            pass
        finally:
            self._depth -= 1
            self._source, self._line = before

    def _by_lines(self, script: Script) -> None:
        """A text that is no script as a whole, such as a template: each line that is one."""
        text = re.sub(r"\\\n", "  ", _plain(script.text))
        number = 1
        for line in text.split("\n"):
            joined = line.count("   ")
            self._line = number
            stripped = line.strip()
            if stripped and not stripped.startswith("#"):
                try:
                    parsed = tree(_filled(stripped))
                except InputError:
                    parsed = None
                if parsed is not None:
                    self._fixed = number
                    self._statements(parsed.get("Stmts") or [], fixed=number)
            number += 1
            del joined

    def _statements(self, statements: Sequence[Any], fixed: int | None = None) -> None:
        for one in statements:
            self._steps += 1
            if self._steps > _MOST:
                return
            self._statement(one, fixed)

    def _statement(self, statement: Mapping[str, Any], fixed: int | None = None) -> None:
        command = statement.get("Cmd")
        self._line = fixed or statement.get("Pos", {}).get("Line", self._line)
        redirections = statement.get("Redirs") or []
        for one in redirections:
            if one.get("Hdoc"):
                self._document(command, redirections, one)
        if command is None:
            return
        kind = command["Type"]
        handler = getattr(self, f"_{kind.lower()}", None)
        if handler is not None:
            if kind == "CallExpr":
                self._callexpr(command, redirections)
            else:
                handler(command)

    def _document(
        self, command: Any, redirections: Sequence[Any], document: Mapping[str, Any]
    ) -> None:
        """A here-document: a file that is written, a script for a shell, or Python's source."""
        text = self._word(document["Hdoc"]) if document["Hdoc"].get("Parts") else ""
        line = document["Hdoc"].get("Pos", {}).get("Line", self._line)
        words = [] if command is None else [self._word(one) for one in command.get("Args") or []]
        written = next(
            (self._word(one["Word"]) for one in redirections if one.get("Op") in {">", ">>", ">|"}),
            "",
        )
        if not written and words[:1] == ["tee"] and len(words) > 1:
            written = words[-1]
        first = words[0].rpartition("/")[2] if words else ""
        script = Script(text=text, name=self._source.name, first_line=self._source.first_line + line - 1)
        if not written and first in {"bash", "sh", "sbatch", "ssh", "srun"}:
            self.script(script)
            return
        name = written or "python -c"
        self._files.append(
            TextFile(name, text, self._source.name, self._source.first_line + line - 1)
        )

    # ------------------------------------------------------------------ control

    def _ifclause(self, command: Mapping[str, Any]) -> None:
        branch: Mapping[str, Any] | None = command
        while branch is not None:
            then = branch.get("Then") or []
            if not branch.get("Cond"):
                self._statements(then)
                return
            held = self._condition(branch["Cond"])
            ends = _ends(then)
            if held or (held is None and not ends):
                if not ends:
                    self._statements(then)
                    return
                if held and branch.get("Else"):
                    pass  # what would end the script is not what people run
            branch = branch.get("Else")

    def _caseclause(self, command: Mapping[str, Any]) -> None:
        text = self._word(command["Word"])
        items = command.get("Items") or []
        for item in items:
            if any(self._like(text, self._word(one)) for one in item.get("Patterns") or []):
                if not _ends(item.get("Stmts") or []):
                    self._statements(item.get("Stmts") or [])
                    return
        if items and (unknown(text) or not text):
            first = next((one for one in items if not _ends(one.get("Stmts") or [])), None)
            if first is not None and unknown(text):
                self._statements(first.get("Stmts") or [])

    def _whileclause(self, command: Mapping[str, Any]) -> None:
        held = self._condition(command.get("Cond") or [])
        if bool(command.get("Until")):
            held = None if held is None else not held
        if held is not False and not self._of_arguments(command):
            self._statements(command.get("Do") or [])

    @staticmethod
    def _of_arguments(command: Mapping[str, Any]) -> bool:
        """Whether a loop reads the script's own arguments, of which there are none."""
        return any(
            _first_words(one)[:1] in (["getopts"], ["read"]) for one in command.get("Cond") or []
        )

    def _forclause(self, command: Mapping[str, Any]) -> None:
        loop = command["Loop"]
        if loop["Type"] == "WordIter":
            items = [one for item in loop.get("Items") or [] for one in self._split(item)]
            if not loop.get("Items"):
                items = list(self._arguments[-1])
            if not items:
                return
            self.assign(loop["Name"]["Value"], items[0].text if isinstance(items[0], PlacedWord) else items[0])
        elif loop.get("Init"):
            self._number(loop["Init"])
        self._statements(command.get("Do") or [])

    def _binarycmd(self, command: Mapping[str, Any]) -> None:
        left, right = command["X"], command["Y"]
        if command["Op"] in {"|", "|&"}:
            self._statement(left)
            self._statement(right)
            return
        held = self._condition([left])
        wanted = command["Op"] == "&&"
        if held is None:
            held = wanted
        if held == wanted and not _ends([right]):
            self._statement(right)

    def _block(self, command: Mapping[str, Any]) -> None:
        self._statements(command.get("Stmts") or [])

    _subshell = _block

    def _timeclause(self, command: Mapping[str, Any]) -> None:
        if command.get("Stmt"):
            self._statement(command["Stmt"])

    def _funcdecl(self, command: Mapping[str, Any]) -> None:
        self._functions[command["Name"]["Value"]] = command["Body"]

    def _arithmcmd(self, command: Mapping[str, Any]) -> None:
        self._number(command["X"])

    def _letclause(self, command: Mapping[str, Any]) -> None:
        for one in command.get("Exprs") or []:
            self._number(one)

    def _declclause(self, command: Mapping[str, Any]) -> None:
        words = [self._word(one["Value"]) for one in command.get("Args") or [] if one.get("Naked") and one.get("Value")]
        table = any(word.startswith("-") and "A" in word for word in words)
        for one in command.get("Args") or []:
            name = (one.get("Name") or {}).get("Value", "")
            if name and table and not one.get("Array"):
                self._values.setdefault(name, {})
            if name and not one.get("Naked"):
                self._assignment(one, table=table)

    # ------------------------------------------------------------------ commands

    def _callexpr(self, command: Mapping[str, Any], redirections: Sequence[Any] = ()) -> None:
        arguments = command.get("Args") or []
        for one in command.get("Assigns") or []:
            self._assignment(one)
        if not arguments:
            return
        words = [word for one in arguments for word in self._split(one)]
        if words:
            self._run(words, redirections)

    def _run(self, words: list[PlacedWord], redirections: Sequence[Any] = ()) -> None:
        if self._depth > _DEEPEST or not words:
            return
        first = words[0].text
        name = first.rpartition("/")[2]
        if first in self._functions and first not in self._called:
            self._function(first, words[1:])
            return
        if name in {"export", "readonly", "declare", "local", "typeset"}:
            for word in words[1:]:
                head, equals, value = word.text.partition("=")
                if equals and _NAME.fullmatch(head):
                    self.assign(head, value, word.where)
            return
        if name == "unset":
            for word in words[1:]:
                self._values.pop(word.text, None)
            return
        if name == "read":
            self._read(words, redirections)
            return
        if name == "set" and len(words) > 2 and words[1].text == "--":
            self._arguments[-1] = [one.text for one in words[2:]]
            return
        if name in {"eval", "exec", "command", "time", "nohup"} and len(words) > 1:
            rest = words[1:]
            if name == "eval":
                self._line_within(" ".join(one.text for one in rest), rest[0].where, rest)
            else:
                self._run(rest)
            return
        if name in _SILENT or name in {"test", "[", ":", "echo", "printf"}:
            return
        if name in {"source", "."} and len(words) > 1:
            self._called_script(words[1].text, words[2:])
            return
        texts = [one.text for one in words]
        at = line_of(texts)
        if at is not None and at < len(words):
            before = words[: at - 1]
            if before and any(not one.text.startswith("-") for one in before[:1]):
                self._calls.append(ProgramCall(words=tuple(words[:at]), where=words[0].where))
            self._line_within(words[at].text, words[at].where, words[at : at + 1])
            return
        self._calls.append(ProgramCall(words=tuple(words), where=words[0].where))
        for position, word in enumerate(words):
            if _SCRIPT.search(word.text) and position < 12:
                self._called_script(word.text, words[position + 1 :])
                break
        inner = next((one for one in words[1:] if re.search(r"\s(torchrun|python3?|deepspeed|accelerate)\s", f" {one.text}")), None)
        if inner is not None and not inner.text.startswith("-"):
            self._line_within(inner.text, inner.where, [inner])

    def _line_within(self, text: str, where: str, words: Sequence[PlacedWord]) -> None:
        """A line that a shell within the script runs."""
        if self._depth > _DEEPEST:
            return
        before = self._source, self._line, self._wheres_of_words
        number = where.rpartition(":")[2]
        first = int(number) if number.isdigit() else 1
        name = where.rpartition(":")[0] or self._source.name
        self._pinned = where
        try:
            parsed = tree(_plain(_filled(text)))
        except InputError:
            parsed = None
        try:
            self._depth += 1
            found_in = self._source
            self._source = Script(text=text, name=name, first_line=first)
            if parsed is not None:
                inner = _Inner(found_in, words)
                self._inner.append(inner)
                try:
                    self._statements(parsed.get("Stmts") or [], fixed=1)
                finally:
                    self._inner.pop()
            else:
                try:
                    split = shlex.split(text)
                except ValueError:
                    split = text.split()
                placed = [PlacedWord(one, where) for one in split]
                if placed:
                    self._calls.append(ProgramCall(words=tuple(placed), where=where))
        finally:
            self._depth -= 1
            self._source, self._line, self._wheres_of_words = before

    _wheres_of_words: Mapping[str, str] = {}
    _pinned: str = ""

    @property
    def _inner(self) -> list[_Inner]:
        found = self.__dict__.setdefault("_inner_lines", [])
        return found

    def _function(self, name: str, words: Sequence[PlacedWord]) -> None:
        self._called.add(name)
        self._arguments.append([one.text for one in words])
        self._depth += 1
        try:
            self._statement(self._functions[name])
        finally:
            self._depth -= 1
            self._arguments.pop()
            self._called.discard(name)

    def _called_script(self, path: str, arguments: Sequence[PlacedWord]) -> None:
        found = self._given.scripts.get(PurePosixPath(path).name)
        if found is None or found.text == self._source.text or self._depth > _DEEPEST:
            return
        self._arguments.append([one.text for one in arguments])
        try:
            self.script(found)
        finally:
            self._arguments.pop()

    def _read(self, words: Sequence[PlacedWord], redirections: Sequence[Any]) -> None:
        """`read A B <<< TEXT` splits a text at the characters of IFS."""
        document = next((one for one in redirections if one.get("Hdoc")), None)
        if document is not None:
            names = [one.text for one in words[1:] if _NAME.fullmatch(one.text)]
            if names:
                line = document["Hdoc"].get("Pos", {}).get("Line", self._line)
                end = document["Hdoc"].get("End", {}).get("Line", line)
                self._places[names[0]] = [(self._source, line, end)]
                self.assign(names[0], re.sub(r"\\\n", " ", self._word(document["Hdoc"])), self._source.at(line))
            return
        given = next((one for one in redirections if one.get("Op") == "<<<"), None)
        if given is None:
            return
        text = self._word(given["Word"])
        names = [one.text for one in words[1:] if _NAME.fullmatch(one.text)]
        as_array = any(re.fullmatch(r"-\w*a\w*", one.text) for one in words[1:])
        between = self._values.get("IFS", " ")
        cut = f"[{re.escape(between)}]" if isinstance(between, str) and between else r"\s+"
        parts = [one for one in re.split(cut, text.strip()) if one] if text else []
        if as_array and names:
            self.assign(names[0], parts)
            return
        for number, name in enumerate(names):
            last = number == len(names) - 1
            self.assign(name, " ".join(parts[number:]) if last else (parts[number : number + 1] or [""])[0])

    # ------------------------------------------------------------------ assignments

    def _assignment(self, one: Mapping[str, Any], *, table: bool = False) -> None:
        name = (one.get("Name") or {}).get("Value", "")
        if not name:
            return
        start = one.get("Pos", {}).get("Line", self._line)
        end = one.get("End", {}).get("Line", start)
        if self._inner:
            start = end = self._line
        place = (self._source, start, end)
        appends = bool(one.get("Append"))
        self._places[name] = [*(self._places.get(name, []) if appends or self._extends(one, name) else []), place]
        where = self._source.at(start)
        if one.get("Array"):
            elements = one["Array"].get("Elems") or []
            if table or any(element.get("Index") for element in elements):
                made = {
                    self._text_of_index(element.get("Index")): self._word(element["Value"])
                    for element in elements
                    if element.get("Value")
                }
                self.assign(name, made, where)
                return
            items = [word.text for element in elements if element.get("Value") for word in self._split(element["Value"])]
            before = self._values.get(name)
            if appends and isinstance(before, list):
                items = [*before, *items]
            elif appends and isinstance(before, str) and before:
                items = [before, *items]
            self.assign(name, items, where)
            return
        value = self._word(one["Value"]) if one.get("Value") else ""
        if one.get("Index"):
            index = self._text_of_index(one["Index"])
            held = self._values.get(name)
            if isinstance(held, list) and index.isdigit():
                held = {str(number): item for number, item in enumerate(held)}
            made = dict(held) if isinstance(held, dict) else {}
            made[index] = (made.get(index, "") if appends else "") + value
            self.assign(name, made, where)
            return
        held = self._values.get(name)
        if appends and isinstance(held, list):
            self.assign(name, [*held[:-1], held[-1] + value] if held else [value], where)
        elif appends and isinstance(held, str):
            self.assign(name, held + value, self._wheres.get(name, where))
        else:
            self.assign(name, value, where)

    def _extends(self, one: Mapping[str, Any], name: str) -> bool:
        """Whether a value contains the one before."""
        start, end = one.get("Pos", {}).get("Offset"), one.get("End", {}).get("Offset")
        if start is None or end is None:
            return False
        text = self._source.text[start:end] if not self._inner else ""
        return f"${name}" in text or f"${{{name}" in text

    def _text_of_index(self, index: Any) -> str:
        if not isinstance(index, Mapping):
            return ""
        if index.get("Type") == "Word" or "Parts" in index:
            text = self._word(index)
            value = self._values.get(text)
            return value if isinstance(value, str) and value.isdigit() and not text.isdigit() else text
        number = self._number(index)
        return "" if number is None else str(number)

    # ------------------------------------------------------------------ words

    def _place(self, token: str, names: Sequence[str], line: int) -> str:
        """Where a token stands that came out of variables: in the lines that made them."""
        for name in names:
            for source, start, end in self._places.get(name, []):
                lines = source.text.split("\n")[start - 1 : end]
                for number, text in enumerate(lines, start):
                    if token and token in text:
                        return source.at(number)
        for name in names:
            if name in self._wheres:
                return self._wheres[name]
        if self._inner:
            return self._inner[-1].place(token, self._pinned, self)
        return self._source.at(line)

    def _split(self, word: Mapping[str, Any]) -> list[PlacedWord]:
        """The words that a word becomes: an unquoted variable with blanks is several."""
        parts = word.get("Parts") or []
        line = self._line if self._inner else word.get("Pos", {}).get("Line", self._line)
        made: list[tuple[str, tuple[str, ...]]] = []
        text, names, started = "", tuple[str, ...](), False
        for part in parts:
            kind = part["Type"]
            array = self._array(part)
            if array is not None:
                items, name = array
                for number, item in enumerate(items):
                    if number:
                        made.append((text, names))
                        text, names = "", ()
                    text, names, started = text + item, (*names, name), True
                if not items:
                    continue
            elif kind in {"Lit", "SglQuoted", "DblQuoted"}:
                text += self._part(part)
                names = (*names, *_variables_in(part))
                started = True
            else:
                value = self._part(part)
                found = _variables_in(part)
                pieces = _blanks(value)
                if len(pieces) <= 1 and not value[:1].isspace():
                    text, names, started = text + (pieces[0] if pieces else ""), (*names, *found), started or bool(value.strip())
                    if value[-1:].isspace() and text:
                        made.append((text, names))
                        text, names, started = "", (), False
                    continue
                if value[:1].isspace() and text:
                    made.append((text, names))
                    text, names = "", ()
                for number, piece in enumerate(pieces):
                    if number and text:
                        made.append((text, names))
                        text, names = "", ()
                    text, names = text + piece, (*names, *found)
                started = bool(pieces)
                if value[-1:].isspace() and text:
                    made.append((text, names))
                    text, names, started = "", (), False
        if started or text:
            made.append((text, names))
        return [
            PlacedWord(one.strip("\n"), self._place(_token(one), found, line) if found or self._inner else self._source.at(line))
            for one, found in made
        ]

    def _array(self, part: Mapping[str, Any]) -> tuple[list[str], str] | None:
        """The items of `${A[@]}` and `$@`, in quotes or without."""
        inner = part
        if part["Type"] == "DblQuoted":
            pieces = part.get("Parts") or []
            if len(pieces) != 1:
                return None
            inner = pieces[0]
        if inner["Type"] != "ParamExp" or inner.get("Length"):
            return None
        name = inner["Param"]["Value"]
        if name in {"@", "*"} and not inner.get("Exp"):
            return list(self._arguments[-1]), name
        index = inner.get("Index")
        if not index or self._literal(index) not in {"@", "*"}:
            return None
        value = self._values.get(name)
        if inner.get("Exp") and not value:
            return None
        items = list(value.values()) if isinstance(value, dict) else [value] if isinstance(value, str) and value else list(value or [])
        if piece := inner.get("Slice"):
            start = self._number(piece.get("Offset")) or 0
            length = self._number(piece.get("Length")) if piece.get("Length") else None
            items = items[start : None if length is None else start + length]
        if part["Type"] != "DblQuoted":
            items = [piece for item in items for piece in _blanks(item)]
        return items, name

    @staticmethod
    def _literal(index: Any) -> str:
        parts = index.get("Parts") or [] if isinstance(index, Mapping) else []
        return str(parts[0].get("Value", "")) if len(parts) == 1 else ""

    def _word(self, word: Mapping[str, Any]) -> str:
        return "".join(self._part(part) for part in word.get("Parts") or [])[:_LARGEST]

    def _part(self, part: Mapping[str, Any]) -> str:
        kind = part["Type"]
        if kind == "Lit":
            return re.sub(r"\\\n", "", re.sub(r"\\([^\n])", r"\1", str(part.get("Value", ""))))
        if kind == "SglQuoted":
            return str(part.get("Value", ""))
        if kind == "DblQuoted":
            return "".join(self._quoted(one) for one in part.get("Parts") or [])
        if kind == "ParamExp":
            return self._parameter(part)
        if kind == "ArithmExp":
            number = self._number(part.get("X"))
            return "$((…))" if number is None else str(number)
        if kind == "CmdSubst":
            return self._substitution(part)
        return self._raw(part)

    def _quoted(self, part: Mapping[str, Any]) -> str:
        if part["Type"] == "Lit":
            text = str(part.get("Value", ""))
            return re.sub(r'\\([$`"\\])', r"\1", re.sub(r"\\\n", "", text))
        array = self._array(part)
        return " ".join(array[0]) if array is not None else self._part(part)

    def _raw(self, node: Mapping[str, Any]) -> str:
        start, end = node.get("Pos", {}).get("Offset", 0), node.get("End", {}).get("Offset", 0)
        data = _plain(self._source.text).encode()
        return "$" + data[start:end].decode("utf-8", "replace").lstrip("$") if end > start else "$?"

    def _parameter(self, part: Mapping[str, Any]) -> str:
        name = part["Param"]["Value"]
        value = self._value(name, part.get("Index"))
        if part.get("Excl") and isinstance(value, str) and _NAME.fullmatch(value):
            value = self._value(value, None)
        if part.get("Length"):
            held = self._values.get(name)
            if isinstance(held, list | dict) and part.get("Index"):
                return str(len(held))
            return str(len(self._arguments[-1])) if name in {"@", "*"} else str(len(value or ""))
        if expression := part.get("Exp"):
            value = self._expression(name, value, expression)
        if replace := part.get("Repl"):
            if value is None:
                return f"${{{name}}}"
            old = self._word(replace.get("Orig") or {})
            new = self._word(replace.get("With") or {})
            plain = fnmatch.translate(old).removesuffix(r"\Z").removesuffix(r"\z")
            pattern = re.escape(old) if not re.search(r"[*?\[]", old) else plain
            return re.sub(pattern, lambda _: new, value, count=0 if replace.get("All") else 1)
        if piece := part.get("Slice"):
            if value is None:
                return f"${{{name}}}"
            start = self._number(piece.get("Offset")) or 0
            length = self._number(piece.get("Length")) if piece.get("Length") else None
            return value[start:] if length is None else value[start : start + length]
        if value is None:
            return "" if name in {"@", "*"} or name.isdigit() else f"${{{name}}}"
        return value

    def _expression(self, name: str, value: str | None, expression: Mapping[str, Any]) -> str | None:
        how, word = expression.get("Op", ""), expression.get("Word") or {}
        empty = not value
        if how in {":-", "-"}:
            return self._word(word) if (empty if how == ":-" else value is None) else value
        if how in {":=", "="}:
            if empty if how == ":=" else value is None:
                value = self._word(word)
                self._places.setdefault(name, [(self._source, self._line, self._line)])
                self.assign(name, value)
            return value
        if how in {":+", "+"}:
            return "" if empty else self._word(word)
        if how in {":?", "?"}:
            return value
        if value is None:
            return None
        pattern = self._word(word)
        if how in {"%", "%%"}:
            spans = range(len(value), -1, -1) if how == "%" else range(len(value) + 1)
            cut = next((at for at in spans if fnmatch.fnmatchcase(value[at:], pattern)), len(value))
            return value[:cut]
        if how in {"#", "##"}:
            ends = range(len(value) + 1) if how == "#" else range(len(value), -1, -1)
            cut = next((at for at in ends if fnmatch.fnmatchcase(value[:at], pattern)), 0)
            return value[cut:]
        if how in {",,", ","}:
            return value.lower()
        if how in {"^^", "^"}:
            return value.upper()
        return value

    def _value(self, name: str, index: Any) -> str | None:
        if name.isdigit():
            number = int(name)
            here = self._arguments[-1]
            return here[number - 1] if 0 < number <= len(here) else None
        if name == "#":
            return str(len(self._arguments[-1]))
        if name in {"@", "*"}:
            return " ".join(self._arguments[-1]) or None
        value = self._values.get(name)
        if isinstance(value, list):
            place = self._text_of_index(index) if index else "0"
            if place in {"@", "*"}:
                return " ".join(value)
            try:
                return value[int(place)]
            except (ValueError, IndexError):
                return None
        if isinstance(value, dict):
            place = self._text_of_index(index)
            return " ".join(value.values()) if place in {"@", "*"} else value.get(place)
        return value

    # ------------------------------------------------------------------ substitutions

    def _substitution(self, part: Mapping[str, Any]) -> str:
        """The output of a command where its words tell it; else the command as it is written."""
        raw = self._raw(part)
        statements = part.get("Stmts") or []
        words = self._pipeline(statements[0]) if len(statements) == 1 else None
        found = None if words is None else _told(words, self._values, raw)
        first = words[0][0] if words and words[0] else "…"
        return f"$({first.split()[0] if first.strip() else '…'}…)" if found is None else found

    def _pipeline(self, statement: Mapping[str, Any]) -> list[list[str]] | None:
        command = statement.get("Cmd") or {}
        if command.get("Type") == "BinaryCmd" and command.get("Op") == "|":
            left, right = self._pipeline(command["X"]), self._pipeline(command["Y"])
            return None if left is None or right is None else [*left, *right]
        if command.get("Type") != "CallExpr" or not command.get("Args"):
            return None
        before = len(self._calls)
        words = [word.text for one in command["Args"] for word in self._split(one)]
        del self._calls[before:]
        return [words]

    # ------------------------------------------------------------------ conditions

    def _condition(self, statements: Sequence[Any]) -> bool | None:
        """Whether a test holds; None where only a run can tell."""
        held: bool | None = None
        for one in statements:
            held = self._holds(one)
        return held

    def _holds(self, statement: Mapping[str, Any]) -> bool | None:
        command = statement.get("Cmd") or {}
        kind, found = command.get("Type"), None
        if kind == "TestClause":
            found = self._test(command["X"])
        elif kind == "ArithmCmd":
            number = self._number(command["X"])
            found = None if number is None else number != 0
        elif kind == "BinaryCmd" and command["Op"] in {"&&", "||"}:
            found = _both(command["Op"], self._holds(command["X"]), lambda: self._holds(command["Y"]))
        elif kind == "CallExpr" and command.get("Args"):
            words = [word.text for one in command["Args"] for word in self._quoted_split(one)]
            if words[:1] in (["["], ["test"]):
                found = self._bracket(words[1:-1] if words[0] == "[" else words[1:])
            elif words[:1] in (["true"], [":"]):
                found = True
            elif words[:1] == ["false"]:
                found = False
            else:
                self._statement(statement)
        elif kind == "CallExpr":
            self._statement(statement)
            found = True
        elif kind in {"Block", "Subshell"}:
            found = None
        elif kind is not None:
            self._statement(statement)
        return (not found) if statement.get("Negated") and found is not None else found

    def _quoted_split(self, word: Mapping[str, Any]) -> list[PlacedWord]:
        """Words of a test: an empty word in quotes is a word, and an unset variable is one too."""
        found = self._split(word)
        return found or [PlacedWord("", "")]

    def _bracket(self, words: list[str]) -> bool | None:
        if "-o" in words:
            at = words.index("-o")
            return _both("||", self._bracket(words[:at]), lambda: self._bracket(words[at + 1 :]))
        if "-a" in words[1:]:
            at = words.index("-a", 1)
            return _both("&&", self._bracket(words[:at]), lambda: self._bracket(words[at + 1 :]))
        if words[:1] == ["!"]:
            held = self._bracket(words[1:])
            return None if held is None else not held
        if len(words) == 2:
            return self._unary(words[0], words[1])
        if len(words) == 3:
            return self._compared(words[1], words[0], words[2])
        if len(words) == 1:
            return None if unknown(words[0]) and not _unset(words[0]) else bool(words[0]) and not _unset(words[0])
        return None

    def _test(self, test: Mapping[str, Any]) -> bool | None:
        kind = test.get("Type")
        if kind == "BinaryTest":
            if test["Op"] in {"&&", "||"}:
                return _both(test["Op"], self._test(test["X"]), lambda: self._test(test["Y"]))
            return self._compared(test["Op"], self._word(test["X"]), self._word(test["Y"]))
        if kind == "UnaryTest":
            if test["Op"] == "!":
                held = self._test(test["X"])
                return None if held is None else not held
            return self._unary(test["Op"], self._word(test["X"]))
        if kind == "ParenTest":
            return self._test(test["X"])
        if kind == "Word":
            text = self._word(test)
            return None if unknown(text) and not _unset(text) else bool(text) and not _unset(text)
        return None

    def _unary(self, how: str, text: str) -> bool | None:
        if how in {"-z", "-n"}:
            empty = not text or _unset(text)
            if not empty and unknown(text):
                return None
            return empty if how == "-z" else not empty
        if how == "-v":
            return text in self._values
        return None

    def _compared(self, how: str, left: str, right: str) -> bool | None:
        left, right = ("" if _unset(one) and not _scheduler(one) else one for one in (left, right))
        if unknown(left) or unknown(right):
            return None
        if how in {"==", "="}:
            return self._like(left, right)
        if how == "!=":
            return not self._like(left, right)
        if how == "=~":
            try:
                return re.search(right, left) is not None
            except re.error:
                return None
        try:
            a, b = float(left or "nan"), float(right or "nan")
        except ValueError:
            return None
        if a != a or b != b:
            return None
        return {"-eq": a == b, "-ne": a != b, "-gt": a > b, "-ge": a >= b, "-lt": a < b, "-le": a <= b, "<": a < b, ">": a > b}.get(how)

    @staticmethod
    def _like(text: str, pattern: str) -> bool:
        return fnmatch.fnmatchcase(text, pattern) if re.search(r"[*?\[]", pattern) else text == pattern

    # ------------------------------------------------------------------ arithmetic

    def _number(self, node: Any) -> int | None:
        """The value of an arithmetic expression; None where only a run can tell."""
        if not isinstance(node, Mapping):
            return None
        kind = node.get("Type")
        if kind == "Word" or (kind is None and "Parts" in node):
            return self._number_of(self._word(node))
        if kind == "ParenArithm":
            return self._number(node["X"])
        if kind == "UnaryArithm":
            return self._unary_number(node)
        if kind != "BinaryArithm":
            return None
        how = node["Op"]
        if how == "?":
            held = self._number(node["X"])
            other = node["Y"]
            if held is None or not isinstance(other, Mapping):
                return None
            return self._number(other["X"] if held else other["Y"])
        right = self._number(node["Y"])
        if how == "=" or (how.endswith("=") and how[:-1] in {"+", "-", "*", "/", "%"}):
            name = self._name_of(node["X"])
            left = self._number(node["X"]) if how != "=" else 0
            value = right if how == "=" else _calculated(how[:-1], left, right)
            if name and value is not None:
                self.assign(name, str(value))
            return value
        return _calculated(how, self._number(node["X"]), right)

    def _unary_number(self, node: Mapping[str, Any]) -> int | None:
        how, value = node["Op"], self._number(node["X"])
        if how in {"++", "--"}:
            name = self._name_of(node["X"])
            step = 1 if how == "++" else -1
            if name and value is not None:
                self.assign(name, str(value + step))
            return value if node.get("Post") or value is None else value + step
        if value is None:
            return None
        return {"-": -value, "+": value, "!": int(not value), "~": ~value}.get(how)

    @staticmethod
    def _name_of(node: Any) -> str:
        parts = node.get("Parts") or [] if isinstance(node, Mapping) else []
        text = str(parts[0].get("Value", "")) if len(parts) == 1 and parts[0]["Type"] == "Lit" else ""
        return text if _NAME.fullmatch(text) else ""

    def _number_of(self, text: str, depth: int = 0) -> int | None:
        plain = text.strip().strip("\"'")
        if re.fullmatch(r"-?\d+", plain):
            return int(plain)
        if re.fullmatch(r"0[xX][0-9a-fA-F]+", plain):
            return int(plain, 16)
        if _NAME.fullmatch(plain) and depth < 8:
            value = self._values.get(plain)
            if isinstance(value, list):
                value = value[0] if value else None
            if value is None:
                return None
            return self._number_of(value, depth + 1) if isinstance(value, str) else None
        if plain and not unknown(plain) and re.fullmatch(r"[\w\s+*/%()-]+", plain) and depth < 8:
            try:
                return self._number(tree(f"(({plain}))")["Stmts"][0]["Cmd"]["X"])
            except (InputError, KeyError, IndexError, TypeError):
                return None
        return None


@dataclass(frozen=True)
class _Inner:
    """A line that a shell within a script runs: its words stand in the script around it."""

    source: Script
    words: Sequence[PlacedWord]

    def place(self, token: str, pinned: str, follower: _Follower) -> str:
        """Where a word stands: in the lines below the one that starts the line."""
        number = pinned.rpartition(":")[2]
        first = int(number) - self.source.first_line + 1 if number.isdigit() else 1
        lines = self.source.text.split("\n")
        if token:
            for at, text in enumerate(lines[max(0, first - 1) :], first):
                if token in text:
                    return self.source.at(at)
            for at, text in enumerate(lines, 1):
                if token in text:
                    return self.source.at(at)
        return pinned


def _token(text: str) -> str:
    """What of a word can be found again in a script: the part that no variable gave."""
    return re.split(r"[=\s$]", text, maxsplit=1)[0] if text.startswith(("-", "+")) or "=" in text else text


def _variables_in(part: Mapping[str, Any]) -> tuple[str, ...]:
    if part["Type"] == "ParamExp":
        return (part["Param"]["Value"],)
    return tuple(name for one in part.get("Parts") or [] for name in _variables_in(one))


def _blanks(value: str) -> list[str]:
    """Words of a value: quotes in it hold words together, as `eval` and `bash -c` read them."""
    if "\"" in value or "'" in value:
        try:
            return shlex.split(value)
        except ValueError:
            return value.split()
    return value.split()


def _plain(text: str) -> str:
    """A script's text without marks of other systems. A comment between the lines of a command ends
    it for a shell; people mean that it goes on, so it is left out.
    """
    made = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    if "\\\n" not in made:
        return made
    lines = made.split("\n")
    for at in range(1, len(lines)):
        goes_on = lines[at - 1].rstrip().endswith("\\")
        if goes_on and re.match(r"\s*#", lines[at]):
            after = next((line for line in lines[at + 1 :] if not re.match(r"\s*(#|$)", line)), "")
            if re.match(r"\s*(-|\+?[\w.]+=)", after):
                lines[at] = "\\"
    return "\n".join(lines)


def _filled(text: str) -> str:
    """A line of a template as a shell line: what is to be filled in is a word."""
    return re.sub(r"<([A-Za-z][^<>]{0,60})>", lambda found: re.sub(r"\W+", "_", found[1]), text)


def _unset(text: str) -> bool:
    """Whether a text is nothing but a variable without a value."""
    return re.fullmatch(r"\$\{?[A-Za-z_]\w*\}?|\$\d|", text) is not None


def _scheduler(text: str) -> bool:
    return re.match(r"\$\{?(SLURM|PBS|LSB|RANK|WORLD_SIZE|MASTER)", text) is not None


def _ends(statements: Sequence[Any]) -> bool:
    """Whether statements end the script."""
    for one in statements:
        command = one.get("Cmd") or {}
        if command.get("Type") == "CallExpr" and _first_words(one)[:1]:
            if _first_words(one)[0] in _ENDS:
                return True
        if command.get("Type") in {"Block", "Subshell"} and _ends(command.get("Stmts") or []):
            return True
        if command.get("Type") == "BinaryCmd" and command.get("Op") in {"&&", "||"}:
            if _ends([command["Y"]]) and command["Op"] == "&&":
                return True
    return False


def _first_words(statement: Mapping[str, Any]) -> list[str]:
    command = statement.get("Cmd") or {}
    found = []
    for word in command.get("Args") or []:
        parts = word.get("Parts") or []
        found.append(str(parts[0].get("Value", "")) if len(parts) == 1 else "")
    return found


def _both(how: str, left: bool | None, right: Any) -> bool | None:
    if how == "&&":
        if left is False:
            return False
        other = right()
        return False if other is False else None if None in (left, other) else True
    if left is True:
        return True
    other = right()
    return True if other is True else None if None in (left, other) else False


def _calculated(how: str, left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    if how in {"/", "%"} and right == 0:
        return None
    if how == "**":
        return left**right if 0 <= right < 64 and abs(left) < 2**31 else None
    done = {
        "+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
        "/": lambda: int(left / right) if abs(left) < 2**52 else left // right,
        "%": lambda: left % right, "<": lambda: int(left < right), ">": lambda: int(left > right),
        "<=": lambda: int(left <= right), ">=": lambda: int(left >= right),
        "==": lambda: int(left == right), "!=": lambda: int(left != right),
        "&&": lambda: int(bool(left and right)), "||": lambda: int(bool(left or right)),
        "<<": lambda: left << right if 0 <= right < 64 else None, ">>": lambda: left >> right if right >= 0 else None,
        ",": lambda: right,
    }.get(how)  # fmt: skip
    return None if done is None else done()


def _told(commands: list[list[str]], values: Mapping[str, Value], raw: str) -> str | None:
    """The output of a pipeline whose words tell it."""
    first, joined = commands[0], raw.strip("$()`")
    for pattern, name in _COUNTS:
        if re.search(pattern, joined):
            value = values.get(name)
            return value if isinstance(value, str) and value.isdigit() else None
    if any(unknown(word) for words in commands for word in words):
        return None
    if first[:1] == ["echo"]:
        words = [one for one in first[1:] if one not in {"-n", "-e"}]
        text = " ".join(words)
        return _filtered(text, commands[1:])
    if len(commands) > 1:
        return None
    if first[:1] == ["expr"] and len(first) == 4:
        try:
            done = _calculated(first[2], int(first[1]), int(first[3]))
        except ValueError:
            return None
        return None if done is None else str(done)
    if first[:1] == ["basename"] and len(first) > 1:
        name = first[1].rstrip("/").rpartition("/")[2]
        return name.removesuffix(first[2]) if len(first) > 2 else name
    if first[:1] == ["dirname"] and len(first) > 1:
        return first[1].rstrip("/").rpartition("/")[0] or "."
    if first[:1] == ["seq"] and all(one.isdigit() for one in first[1:]) and len(first) > 1:
        numbers = [int(one) for one in first[1:]]
        low, high = (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[-1])
        return "\n".join(str(one) for one in range(low, min(high, low + 100) + 1))
    return None


_COUNTS: Final = (
    (r"nvidia-smi.*(wc -l|-L$)|rocm-smi.*wc -l|device_count\(\)|grep -c", "SLURM_GPUS_ON_NODE"),
    (r"scontrol show hostnames?.*\| wc -[lw]", "SLURM_NNODES"),
    (r"SLURM_GPUS_ON_NODE", "SLURM_GPUS_ON_NODE"),
)
"""Pipelines that count what the scheduler gave."""


def _filtered(text: str, filters: Iterable[list[str]]) -> str | None:
    """A text behind the filters of a pipeline; None where one of them is not known."""
    for words in filters:
        if words[:1] == ["bc"]:
            if not re.fullmatch(r"[\d\s+*/()-]+", text):
                return None
            try:
                parsed = tree(f"(({text}))")["Stmts"][0]["Cmd"]["X"]
            except (InputError, KeyError, IndexError):
                return None
            number = _Follower(Given())._number(parsed)
            if number is None:
                return None
            text = str(number)
        elif words[0] == "tr" and len(words) == 3 and words[1] != "-d":
            left, right = (re.sub(r"\\n", "\n", one) for one in words[1:])
            if len(left) != len(right):
                if left == "[:upper:]":
                    text = text.lower()
                    continue
                return None
            text = text.lower() if left in {"[:upper:]", "A-Z"} else text.translate(str.maketrans(left, right))
        elif words[0] == "cut" and "-d" in " ".join(words):
            line = " ".join(words)
            by = re.search(r"-d ?'?\"?(.)", line)
            which = re.search(r"-f ?(\d+)", line)
            if not by or not which:
                return None
            parts = text.split(by[1])
            text = parts[int(which[1]) - 1] if 0 < int(which[1]) <= len(parts) else ""
        elif words[0] == "xargs" and len(words) == 1:
            text = " ".join(text.split())
        else:
            return None
    return text
