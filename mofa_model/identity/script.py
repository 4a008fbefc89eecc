"""A shell script, followed as a shell would go through it; nothing is run.

A branch is taken where its condition can be told, a loop is gone through once, and functions,
`eval` and `bash -c` are followed. `expansion` tells what the words of a command are.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from mofa_model.errors import InputError
from mofa_model.identity.expansion import (
    BLANKS,
    EMPTY,
    Answer,
    EndlessExpansion,
    Expander,
    TracedText,
    Value,
    joined,
    traced,
)
from mofa_model.launch.shell import line_of, tree

_MOST: Final = 20_000
"""Commands that are followed. [1]"""
_DEEPEST: Final = 12
"""Functions within functions, and scripts within scripts. [1]"""


@dataclasses.dataclass(frozen=True)
class Call:
    """A command with its words as the shell would hand them over."""

    traced_words: tuple[TracedText, ...]
    place: int
    """Where it begins in the script."""
    outer_calls: tuple[Call, ...] = ()
    """The command whose line it is part of, as `srun bash -c`, outermost first."""
    visible_devices: str = ""
    """CUDA_VISIBLE_DEVICES as it finds it; empty = not set."""
    passed: tuple[tuple[str, TracedText], ...] = ()
    """Variables that it alone is given, as `A=1 train.sh`."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The words of the call, without their positions."""
        return tuple(word.text for word in self.traced_words)


@dataclasses.dataclass
class ScriptWalk:
    """What a script would run, in its order."""

    followed: list[Call] = dataclasses.field(default_factory=list)
    shell_values: dict[str, Value] = dataclasses.field(default_factory=dict)
    """Variables at its end; those of its environment are among them."""
    passed: dict[str, Value] = dataclasses.field(default_factory=dict)
    """Variables that one command alone is given, as `A=1 train.sh`."""
    documents: list[tuple[str, TracedText]] = dataclasses.field(default_factory=list)
    """Here-documents: the file that one is written to, empty = a program reads it; the text."""
    notes: list[str] = dataclasses.field(default_factory=list)
    """What was not followed, each in one sentence."""

    @property
    def holds(self) -> Mapping[str, Value]:
        """`shell_values` for readers, who cannot change them."""
        return self.shell_values


def walk(
    text: str,
    environment: Mapping[str, Value] | None = None,
    answer: Answer | None = None,
    arguments: Sequence[str] = (),
    *,
    every: bool = False,
) -> ScriptWalk:
    """What a script would run; with `every` also commands that start no program, and all branches
    of which only a machine can choose.

    >>> said = walk('N=2; A=(--nnodes $N); for i in a b; do torchrun "${A[@]}" $i; done')
    >>> said.followed[0].texts
    ('torchrun', '--nnodes', '2', 'a')
    """
    walker = _Walker(environment or {}, answer or (lambda _: None), every=every)
    return walker.whole(text, arguments)


class _Exit(Exception):
    """The script, a function or a loop is left."""

    def __init__(self, what: str) -> None:
        self.what = what


class _Walker:
    def __init__(self, environment: Mapping[str, Value], answer: Answer, *, every: bool) -> None:
        self._passed: dict[str, TracedText] = {}
        self._words = Expander(environment, answer, may_be_set=every)
        self._every = every
        self.walked = ScriptWalk()
        self._functions: dict[str, Any] = {}
        self._depth, self._count, self._branches = 0, 0, 0

    # --- scripts and statements ---------------------------------------------------------------

    def whole(self, text: str, arguments: Sequence[str]) -> ScriptWalk:
        """Follow a script from its first line to its last."""
        with self._words.with_arguments([traced(argument) for argument in arguments]):
            try:
                self.script(TracedText(text, tuple(range(len(text)))), ())
            except EndlessExpansion:
                self.walked.notes.append(
                    "its words hold each other without end: the rest is not followed"
                )
        self.walked.shell_values = self._words.variables
        return self.walked

    def script(self, source: TracedText, inside: tuple[Call, ...]) -> None:
        """Follow a script, or a line within one."""
        if self._depth >= _DEEPEST:
            return
        parsed = tree(source.text)
        self._depth += 1
        try:
            with self._words.within(source):
                self._statements(parsed.get("Stmts") or (), inside)
        except _Exit:
            pass
        finally:
            self._depth -= 1

    def _statements(self, rows: Iterable[Any], inside: tuple[Call, ...]) -> bool | None:
        """Follow statements in order; returns whether the last one succeeds, None where unknown."""
        last: bool | None = True
        for row in rows:
            last = self._statement(row, inside)
        return last

    def _statement(self, row: Any, inside: tuple[Call, ...]) -> bool | None:
        self._count += 1
        if self._count > _MOST:
            self.walked.notes.append(f"more than {_MOST} commands: the rest is not followed")
            raise _Exit("script")
        stdin = EMPTY
        for redirection in row.get("Redirs") or ():
            stdin = self._redirection(redirection, stdin, row)
        command = row.get("Cmd") or {}
        if row.get("Redirs") and command.get("Type") == "CallExpr":
            self._write(row, self._words.fields(command.get("Args") or ()))
        succeeds = self._command(row.get("Cmd"), inside, stdin)
        return (None if succeeds is None else not succeeds) if row.get("Negated") else succeeds

    def _redirection(self, redirection: Any, stdin: TracedText, row: Any) -> TracedText:
        op = redirection.get("Op")
        if op == "<<<":
            return self._words.text(redirection["Word"])
        if "Hdoc" in redirection:
            text = self._words.here_document(row) or EMPTY
            names = [name for name, _ in self._files_of(row)] or self._teed(row.get("Cmd") or {})
            self.walked.documents.append((names[0] if names else "", text))
            return text
        return stdin

    def _files_of(self, row: Any) -> list[tuple[str, bool]]:
        """Files into which a command prints, and whether it adds to one."""
        return [
            (self._words.text(redirection["Word"]).text, redirection["Op"] == ">>")
            for redirection in row.get("Redirs") or ()
            if redirection.get("Op") in {">", ">>", "&>", ">|"} and "Word" in redirection
        ]

    def _write(self, row: Any, words: list[TracedText]) -> None:
        """Remember a file that `echo` or `printf` writes, or a line that it adds to one."""
        text = self._words.printed(words)
        for name, adds in self._files_of(row) if text is not None else ():
            if text is None or not re.search(r"\.\w+$", name) or name.startswith("/dev/"):
                continue
            written = joined((text, traced("\n")))
            indices = [
                indices for indices, (path, _) in enumerate(self.walked.documents) if path == name
            ]
            if indices and adds:
                before = self.walked.documents[indices[-1]][1]
                self.walked.documents[indices[-1]] = name, joined((before, written))
            else:
                self.walked.documents.append((name, written))

    def _teed(self, node: Any) -> list[str]:
        """Files that `tee` writes."""
        words = self._words.fields(node.get("Args") or ()) if node.get("Type") == "CallExpr" else []
        texts = [text.text for text in words]
        return [text for text in texts[1:] if texts[0] == "tee" and not text.startswith("-")]

    def _command(self, node: Any, inside: tuple[Call, ...], stdin: TracedText) -> bool | None:
        """Follow a command of any form; returns whether it succeeds, None where unknown."""
        if node is None:
            return True
        match node["Type"]:
            case "CallExpr":
                return self._simple(node, inside, stdin)
            case "Block":
                return self._statements(node.get("Stmts") or (), inside)
            case "Subshell":
                return self._subshell(node, inside)
            case "TimeClause":
                return self._statement(node["Stmt"], inside) if node.get("Stmt") else True
            case "BinaryCmd":
                return self._pair(node, inside)
            case "IfClause":
                return self._if(node, inside)
            case "ForClause":
                self._for(node, inside)
            case "WhileClause":
                self._while(node, inside)
            case "CaseClause":
                return self._case(node, inside)
            case _:
                return self._declaration(node)
        return True

    def _declaration(self, node: Any) -> bool | None:
        """Follow what starts no other command; returns whether it succeeds, None where unknown."""
        match node["Type"]:
            case "FuncDecl":
                self._functions[node["Name"]["Value"]] = node["Body"]
            case "DeclClause":
                for assignment in node.get("Args") or ():
                    if "Name" in assignment and not assignment.get("Naked"):
                        self._words.assign(assignment)
            case "LetClause":
                for expression in node.get("Exprs") or ():
                    self._words.try_arithmetic(expression)
            case "ArithmCmd":
                value = self._words.try_arithmetic(node["X"])
                return None if value is None else value != 0
            case "TestClause":
                return self._test(node["X"])
            case _:
                return None
        return True

    def _simple(self, node: Any, inside: tuple[Call, ...], stdin: TracedText) -> bool | None:
        """Follow a simple command with the assignments before it; returns whether it succeeds, None
        if unknown.
        """
        rows, variables = node.get("Args") or (), self._words.variables
        assigned = node.get("Assigns") or ()
        if not rows:
            for assignment in assigned:
                self._words.assign(assignment)
            values = (variables.get(assignment["Name"]["Value"]) for assignment in assigned)
            is_unknown = any(
                isinstance(value, TracedText) and "$(" in value.text for value in values
            )
            return None if is_unknown else True
        words = self._words.fields(rows)
        kept = {}
        for assignment in assigned:
            name = assignment["Name"]["Value"]
            kept[name] = variables.get(name)
            self._words.assign(assignment)
            self.walked.passed[name] = variables[name]
        before = self._passed
        passed = {name: variables[name] for name in kept}
        self._passed = before | {
            name: value for name, value in passed.items() if isinstance(value, TracedText)
        }
        try:
            return self._call(words, self._words.place(rows[0]), inside, stdin) if words else True
        finally:
            self._passed = before
            for name, value in kept.items():
                if words and words[0].text in {"export", "eval", "read", "."}:
                    continue
                if value is None:
                    self._words.variables.pop(name, None)
                else:
                    self._words.variables[name] = value

    def _subshell(self, node: Any, inside: tuple[Call, ...]) -> bool | None:
        before = dict(self._words.variables)
        try:
            return self._statements(node.get("Stmts") or (), inside)
        except _Exit:
            return None
        finally:
            self._words.variables = before

    def _pair(self, node: Any, inside: tuple[Call, ...]) -> bool | None:
        op = node["Op"]
        first = self._statement(node["X"], inside)
        if op in {"|", "|&"}:
            self._statement(node["Y"], inside)
            return None
        if (op == "&&" and first is False) or (op == "||" and first is not False):
            return first
        second = self._conditional([node["Y"]], inside)
        return second if op == "||" or first is not None else None

    def _conditional(self, rows: Iterable[Any], inside: tuple[Call, ...]) -> bool | None:
        self._branches += 1
        try:
            return self._statements(rows, inside)
        finally:
            self._branches -= 1

    def _if(self, node: Any, inside: tuple[Call, ...]) -> bool | None:
        holds = self._statements(node["Cond"], inside) if node.get("Cond") else True
        if holds is None and self._every:
            branches = [node.get("Then") or (), *_otherwise(node)]
            return self._all_ways(branches, inside, stay=bool(node.get("Else")))
        # What is asked for is not there the first time: KubeRay submits unless its job has a
        # status.
        is_new = any(self._asks_for_nothing(row) for row in node.get("Cond") or ())
        if holds or is_new or (holds is None and node.get("Else")):
            return self._conditional(node.get("Then") or (), inside)
        if other := node.get("Else"):
            return self._if(other, inside)
        return True

    def _asks_for_nothing(self, row: Any) -> bool:
        """Whether a condition is `! program > /dev/null`, which asks whether something is
        missing.
        """
        to = [
            self._words.text(redirection["Word"]).text
            for redirection in row.get("Redirs") or ()
            if "Word" in redirection
        ]
        return bool(row.get("Negated")) and "/dev/null" in to

    def _all_ways(
        self, branches: Sequence[Iterable[Any]], inside: tuple[Call, ...], *, stay: bool
    ) -> bool | None:
        """Follow every branch, because only a machine can choose one; what the first branch sets
        may `stay`.
        """
        before, kept = dict(self._words.variables), None
        for rows in branches:
            self._words.variables = dict(before)
            self._conditional(rows, inside)
            kept = self._words.variables if kept is None else kept
        self._words.variables = kept if stay and kept is not None else before
        return None

    def _for(self, node: Any, inside: tuple[Call, ...]) -> None:
        loop = node["Loop"]
        if loop["Type"] != "WordIter":
            if init := loop.get("Init"):
                self._words.try_arithmetic(init)
            self._once(node, inside)
            return
        items = self._words.fields(loop.get("Items") or ())
        if not items:
            return
        before = len(self.walked.followed)
        self._words.variables[loop["Name"]["Value"]] = items[0]
        self._once(node, inside)
        if len(items) > 1 and any(
            call.texts[0] not in _SMALL for call in self.walked.followed[before:]
        ):
            line = self._words.line(self._words.place(node))
            self.walked.notes.append(
                f"line {line}: a loop over {len(items)} values; the first is read, {items[0].text}"
            )

    def _while(self, node: Any, inside: tuple[Call, ...]) -> None:
        holds = self._statements(node.get("Cond") or (), inside)
        if holds is not None and holds != bool(node.get("Until")):
            self._once(node, inside)

    def _once(self, node: Any, inside: tuple[Call, ...]) -> None:
        try:
            self._conditional(node.get("Do") or (), inside)
        except _Exit as left:
            if left.what != "loop":
                raise

    def _case(self, node: Any, inside: tuple[Call, ...]) -> bool | None:
        word = self._words.text(node["Word"])
        value = self._words.resolved(word)
        items: list[Any] = node.get("Items") or []
        if value is None and self._every:
            return self._all_ways([item.get("Stmts") or () for item in items], inside, stay=True)
        for item in items:
            patterns = [self._words.text(pattern).text for pattern in item.get("Patterns") or ()]
            if value is not None and any(_matches(value, pattern) for pattern in patterns):
                return self._conditional(item.get("Stmts") or (), inside)
        return True

    # --- commands -----------------------------------------------------------------------------

    def _call(
        self, words: list[TracedText], place: int, inside: tuple[Call, ...], stdin: TracedText
    ) -> bool | None:
        """Follow one command of a script; returns whether it succeeds, None where that is
        not known.
        """
        name = words[0].text
        if name in self._functions and self._depth < _DEEPEST:
            return self._function(name, words[1:], inside)
        if name in _BUILTINS:
            return self._builtin(words, inside, stdin)
        if name in _SILENT:
            if self._every:
                self.walked.followed.append(Call(tuple(words), place, inside))
            return True if name in {":", "true"} else False if name == "false" else None
        visible = self._words.variables.get("CUDA_VISIBLE_DEVICES")
        call = Call(
            tuple(words),
            place,
            inside,
            visible.text if isinstance(visible, TracedText) else "",
            tuple(self._passed.items()),
        )
        texts = [word.text for word in words]
        at = line_of(texts)
        if at is not None and 0 < at < len(words) and self._depth < _DEEPEST:
            outer = dataclasses.replace(call, traced_words=tuple(words[:at]))
            first = len(self.walked.followed)
            try:
                with self._words.with_arguments(words[at + 2 :]):
                    self.script(words[at], (*inside, outer))
            except InputError:
                self.walked.followed[first:] = [call]
            return True
        self.walked.followed.append(call)
        return True

    def _function(
        self, name: str, arguments: list[TracedText], inside: tuple[Call, ...]
    ) -> bool | None:
        self._depth += 1
        try:
            with self._words.with_arguments(arguments):
                return self._statement(self._functions[name], inside)
        except _Exit as left:
            if left.what != "function":
                raise
            return True
        finally:
            self._depth -= 1

    def _builtin(
        self, words: list[TracedText], inside: tuple[Call, ...], stdin: TracedText
    ) -> bool | None:
        """What the shell does by itself."""
        texts = [word.text for word in words]
        match texts[0]:
            case "eval":
                self._eval(words, inside)
                return None
            case "[" | "test":
                ends = texts[0] == "[" and texts[-1] == "]"
                return self._plain_test(texts[1:-1] if ends else texts[1:])
            case "read":
                return self._read(words[1:], stdin)
            case "set" if "--" in texts:
                self._words.arguments = words[texts.index("--") + 1 :]
            case "shift":
                self._words.arguments = self._words.arguments[1:]
            case "unset":
                for name in texts[1:]:
                    self._words.variables.pop(name, None)
            case "break" | "continue":
                raise _Exit("loop")
            case "exit" | "return":
                if self._branches == 0:
                    raise _Exit("script" if texts[0] == "exit" else "function")
                return None
        return True

    def _eval(self, words: list[TracedText], inside: tuple[Call, ...]) -> None:
        blank = traced(" ")
        line = joined(part for word in words[1:] for part in (word, blank))
        try:
            self.script(line, inside)
        except InputError:
            self.walked.followed.append(Call(tuple(words[1:]), words[0].place, inside))

    def _read(self, words: list[TracedText], stdin: TracedText) -> bool | None:
        names = [word.text for word in words if re.fullmatch(r"[A-Za-z_]\w*", word.text)]
        as_array = any(re.fullmatch(r"-\w*a\w*", word.text) for word in words)
        if not stdin.text or "$(" in stdin.text:
            return False
        signs = self._words.variables.get("IFS")
        signs_text = signs.text if isinstance(signs, TracedText) else BLANKS
        first_line = stdin.slice(0, len(stdin.text.partition("\n")[0]))
        if as_array and names:
            self._words.variables[names[-1]] = list(_split(first_line, signs_text, 0))
            return True
        parts = list(_split(first_line, signs_text, len(names)))
        for number, name in enumerate(names):
            self._words.variables[name] = parts[number] if number < len(parts) else EMPTY
        return True

    # --- tests --------------------------------------------------------------------------------

    def _test(self, node: Any) -> bool | None:
        kind = node["Type"]
        if kind == "ParenTest":
            return self._test(node["X"])
        if kind == "UnaryTest":
            op = node["Op"]
            if op == "!":
                holds = self._test(node["X"])
                return None if holds is None else not holds
            return self._unary(op, self._words.text(node["X"]))
        if kind == "BinaryTest":
            op = node["Op"]
            if op in {"&&", "||"}:
                first, second = self._test(node["X"]), self._test(node["Y"])
                return _both(first, second) if op == "&&" else _either(first, second)
            left = self._words.resolved(self._words.text(node["X"]))
            right = self._words.resolved(self._words.text(node["Y"]))
            return _compared(left, op, right)
        if kind == "Word":
            text = self._words.resolved(self._words.text(node))
            return None if text is None else bool(text)
        return None

    def _unary(self, op: str, value: TracedText) -> bool | None:
        text = self._words.resolved(value)
        if op in _OF_FILES:
            return False
        if text is None:
            return {"-n": True, "-z": False}.get(op)
        if op == "-v":
            return text in self._words.variables
        return {"-n": bool(text), "-z": not text}.get(op)

    def _plain_test(self, texts: Sequence[str]) -> bool | None:
        for joint, combine in (("-o", _either), ("-a", _both)):
            if joint in texts[1:-1]:
                at = texts.index(joint)
                return combine(self._plain_test(texts[:at]), self._plain_test(texts[at + 1 :]))
        if texts and texts[0] == "!":
            holds = self._plain_test(texts[1:])
            return None if holds is None else not holds
        if len(texts) == 3:
            left, right = (
                self._words.resolved(traced(texts[0])),
                self._words.resolved(traced(texts[2])),
            )
            return _compared(left, texts[1], right)
        if len(texts) == 2:
            return self._unary(texts[0], traced(texts[1]))
        if len(texts) == 1:
            text = self._words.resolved(traced(texts[0]))
            return None if text is None else bool(text)
        return False


_BUILTINS: Final = frozenset(
    {"eval", "[", "test", "set", "shift", "unset", "read", "exit", "return", "break", "continue"}
)
"""Words that call what the shell does by itself."""
_SMALL: Final = frozenset({"cp", "mv", "ln", "scp", "rsync", "scancel", "scontrol", "pip"})
"""Programs whose repeats in a loop are not noted."""
_SILENT: Final = frozenset(
    {":", "true", "false", "echo", "printf", "cd", "mkdir", "export", "trap", "ulimit", "wait"}
    | {"sleep", "umask", "pushd", "popd", "shopt", "alias", "type", "hash", "clear", "module", "ml"}
    | {"chmod", "rm", "touch", "ls", "date", "hostname", "pwd", "which", "tee", "kill", "jobs"}
    | {"conda", "mamba", "nvidia-smi", "env", "getopts", "logger", "cat", "tail", "head", "grep"}
)  # fmt: skip
"""Commands that start no program and whose result nobody can tell, or need not."""
_OF_FILES: Final = frozenset(f"-{letter}" for letter in "abcdefghkprstuwxGLNOS")


def _otherwise(node: Any) -> list[list[Any]]:
    """The branches behind `elif` and `else`; that of an `elif` begins with its condition."""
    branches = list[list[Any]]()
    while other := node.get("Else"):
        branches.append([*(other.get("Cond") or ()), *(other.get("Then") or ())])
        node = other
    return branches


def _matches(value: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(value, pattern)


def _both(first: bool | None, second: bool | None) -> bool | None:
    return False if False in {first, second} else None if None in {first, second} else True


def _either(first: bool | None, second: bool | None) -> bool | None:
    return True if True in {first, second} else None if None in {first, second} else False


def _compared(left: str | None, op: str, right: str | None) -> bool | None:
    if left is None or right is None:
        return None
    if op in {"=", "=="}:
        return _matches(left, right)
    if op == "!=":
        return not _matches(left, right)
    if op == "=~":
        try:
            return re.search(right, left) is not None
        except re.error:
            return None
    try:
        first, second = int(left or 0), int(right or 0)
    except ValueError:
        return None
    return {
        "-eq": first == second, "-ne": first != second, "-lt": first < second,
        "-le": first <= second, "-gt": first > second, "-ge": first >= second,
    }.get(op)  # fmt: skip


def _split(value: TracedText, signs: str, most: int) -> Iterator[TracedText]:
    """A text at separators, as `read` does; the last of `most` parts has the rest; 0 = all."""
    start, number = 0, 1
    for at, sign in enumerate(value.text):
        if sign in signs and (most == 0 or number < most):
            if at > start or sign not in BLANKS:
                yield value.slice(start, at)
                number += 1
            start = at + 1
    yield value.slice(start)
