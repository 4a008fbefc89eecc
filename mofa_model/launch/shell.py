"""A shell line as the shell reads it: its commands, their words, and where each word stands in the text.

    parse(line)        Script; a line that no shell would read is an error
    words_of(line)     the words of a line for whoever only reads: no place, no variables, no program started

`parse` asks shfmt (`parser`), which knows here-documents, continued lines and every kind of quotes; it runs nothing.
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from mofa_model.errors import InputError, shown
from mofa_model.launch.parser import nodes, tree
from mofa_model.launch.runners import line_of

_BLANKS: Final = re.compile(r"(?:[ \t]|\\\n)*\Z")
_ESCAPED: Final = {"": re.compile(r"\\(.)", re.DOTALL), '"': re.compile(r'\\([$`"\\])')}
_PATTERN: Final = re.compile(r"[~*?\[{]")


@dataclass(frozen=True, slots=True)
class Quoted:
    """What stands in double quotes, in which variables may stand too."""

    text: str
    """As the program that is given the word reads it; variables as they are written."""
    at: tuple[int, ...]
    """Where each of its characters stands in the line, and where the closing quote does."""

    def escaped(self, text: str) -> str:
        """A text as it has to be written between these quotes."""
        return re.sub(r'([$`"\\])', r"\\\1", text)


@dataclass(frozen=True, slots=True)
class ShellWord:
    """A word of a command."""

    text: str
    """Without its quotes; variables as they are written."""
    raw: str
    """As it stands in the line."""
    start: int
    """Where it begins."""
    end: int
    """Where the next character stands."""
    before: int
    """Where the blanks before it begin."""
    expands: bool
    """Whether the shell puts something in: a variable, the output of a command, the names of files."""
    quoted: Quoted | None
    """What is in its double quotes, where they are around the whole of it."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program or a builtin with its arguments; assignments before it and redirections are no words."""

    words: tuple[ShellWord, ...]
    substituted: bool
    """Whether it stands in $( ), <( ) or backticks."""


@dataclass(frozen=True, slots=True)
class Script:
    """A line that was read."""

    commands: tuple[Command, ...]
    values: tuple[str, ...]
    """Assignments, as they stand in the line."""
    documents: tuple[str, ...]
    """Here-documents."""


def parse(line: str) -> Script:
    """Read a line.

    >>> [[word.text for word in command.words] for command in parse("A=1 torchrun 't.py' 2>&1 | tee log").commands]
    [['torchrun', 't.py'], ['tee', 'log']]
    """
    parsed = tree(line)
    return _Reader(line).script(parsed)


def words_of(line: str) -> list[str]:
    r"""The words of a line, and of the line that a shell in it is told to run; quotes that do not match are a ValueError.

    >>> words_of("bash -c 'torchrun t.py --bf16' \\\n")
    ['bash', '-c', 'torchrun', 't.py', '--bf16']
    """
    text = line.replace("\\\n", "").rstrip()
    text = text[:-1] if (len(text) - len(text.rstrip("\\"))) % 2 else text  # continued by nothing
    words = shlex.split(text, comments=True)
    at = line_of(words)
    return (
        words if at in {None, len(words)} else [*words[:at], *words_of(words[at]), *words[at + 1 :]]
    )


class _Reader:
    """The parser's tree, with bytes made places in the text."""

    def __init__(self, line: str) -> None:
        self._line = line
        sizes = accumulate((len(one.encode()) for one in line), initial=0)
        self._places = None if line.isascii() else {byte: at for at, byte in enumerate(sizes)}

    def script(self, parsed: Any) -> Script:
        calls, values, documents, ends = [], [], [], [0]
        for node, substituted in nodes(parsed):
            if node.get("Type") == "CallExpr" and node.get("Args"):
                calls.append((node["Args"], substituted))
            if len(number := str((node.get("N") or {}).get("Value", ""))) > 1:
                raise InputError(
                    f"launch command: {shown(number)} is a file's number to bash, and a word to other shells; put a blank behind it"
                )
            if "Parts" in node:
                ends.append(self._span(node)[1])
            values += [self._raw(one) for one in node.get("Assigns") or ()]
            values += (
                [self._raw(one) for one in node["Args"]]
                if node.get("Type") == "DeclClause" and node.get("Args")
                else []
            )
            documents += [self._raw(node["Hdoc"])] if node.get("Hdoc") else []
        ends.sort()
        commands = [
            Command(tuple(self._word(one, ends) for one in words), inner) for words, inner in calls
        ]
        commands.sort(key=lambda command: command.words[0].start)
        return Script(tuple(commands), tuple(values), tuple(documents))

    def _word(self, node: Mapping[str, Any], ends: Sequence[int]) -> ShellWord:
        start, end = self._span(node)
        parts = node["Parts"]
        left = ends[bisect_right(ends, start) - 1]
        blanks = _BLANKS.search(self._line, left, start)
        return ShellWord(
            text="".join(self._text(part) for part in parts),
            raw=self._line[start:end],
            start=start,
            end=end,
            before=blanks.start() if blanks else start,
            expands=any(self._expands(part) for part in parts),
            quoted=self._quoted(parts[0]) if len(parts) == 1 else None,
        )

    def _text(self, part: Mapping[str, Any], mark: str = "") -> str:
        """A part of a word without its quotes."""
        kind = part["Type"]
        if kind == "Lit":
            return _ESCAPED[mark].sub(r"\1", part.get("Value", ""))
        if kind == "SglQuoted" and not part.get("Dollar"):
            return str(part.get("Value", ""))
        if kind == "DblQuoted" and not part.get("Dollar"):
            return "".join(self._text(one, '"') for one in part.get("Parts") or ())
        return self._raw(part)

    def _expands(self, part: Mapping[str, Any]) -> bool:
        if part.get("Dollar"):
            return True
        if part["Type"] == "DblQuoted":
            return any(one["Type"] != "Lit" for one in part.get("Parts") or ())
        return (
            bool(_PATTERN.search(part.get("Value", "")))
            if part["Type"] == "Lit"
            else part["Type"] != "SglQuoted"
        )

    def _quoted(self, part: Mapping[str, Any]) -> Quoted | None:
        if part["Type"] != "DblQuoted" or part.get("Dollar"):
            return None
        text, at = [], []
        for inner in part.get("Parts") or ():
            here, last = self._span(inner)
            while here < last:
                pair = self._line[here : here + 2] if inner["Type"] == "Lit" else ""
                step = 2 if pair == "\\\n" or _ESCAPED['"'].fullmatch(pair) else 1
                if pair != "\\\n":
                    text.append(self._line[here + step - 1])
                    at.append(here)
                here += step
        return Quoted("".join(text), (*at, self._span(part)[1] - 1))

    def _raw(self, node: Mapping[str, Any]) -> str:
        start, end = self._span(node)
        return self._line[start:end]

    def _span(self, node: Mapping[str, Any]) -> tuple[int, int]:
        start, end = node["Pos"].get("Offset", 0), node["End"].get("Offset", 0)
        if self._places is not None:
            start, end = self._places[start], self._places[end]
        while self._line.endswith("\\\n", start, end) and not self._escaped(start, end - 2):
            end -= 2  # the line goes on, the word need not
        return start, end

    def _escaped(self, start: int, at: int) -> bool:
        """Whether the backslash at a place is one that another one before it stands for."""
        before = self._line[start:at]
        return (len(before) - len(before.rstrip("\\"))) % 2 == 1
