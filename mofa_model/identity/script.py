"""A shell script, followed as a shell would go through it; nothing is run.

Variables, arrays and arithmetic have their values, a branch is taken where its condition can be
told, a loop is gone through once, and functions, `eval` and `bash -c` are followed. What only a
running machine knows stays as it is written: `$SLURM_PROCID`, `$(hostname)`. Every character of a
word knows where in the script it comes from, so a value can be changed where it was given.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias

from mofa_model.errors import InputError
from mofa_model.launch.shell import line_of, tree

_LONGEST: Final = 40_000
"""Characters of a value. [1]"""
_MOST: Final = 20_000
"""Commands that are followed. [1]"""
_DEEPEST: Final = 12
"""Functions within functions, and scripts within scripts. [1]"""
_BLANKS: Final = " \t\n"
_NOWHERE: Final = -1


class Traced(NamedTuple):
    """A text whose characters know where they come from."""

    text: str
    at: tuple[int, ...]
    """Place of each character in the script; -1 = it is computed."""

    @property
    def place(self) -> int:
        """Where it begins, as far as that is known; -1 = nowhere."""
        return next((one for one in self.at if one >= 0), _NOWHERE)

    @property
    def whole(self) -> bool:
        """Whether it stands in the script as it is, in one piece."""
        first = self.at[0] if self.at else _NOWHERE
        return first >= 0 and self.at == tuple(range(first, first + len(self.at)))

    def slice(self, begin: int, until: int | None = None) -> Traced:
        """A part of it."""
        return Traced(self.text[begin:until], self.at[begin:until])


EMPTY: Final = Traced("", ())
Value: TypeAlias = Traced | list[Traced]
"""What a variable holds: a text, or an array of them."""


def traced(text: str, place: int = _NOWHERE) -> Traced:
    """A text that stands at one place of the script."""
    return Traced(text, (place,) * len(text))


def _joined(parts: Iterable[Traced]) -> Traced:
    kept = list(parts)
    text = "".join(one.text for one in kept)[:_LONGEST]
    return Traced(text, tuple(at for one in kept for at in one.at)[:_LONGEST])


@dataclasses.dataclass(frozen=True)
class Call:
    """A command with its words as the shell would hand them over."""

    traced_words: tuple[Traced, ...]
    place: int
    """Where it begins in the script."""
    outer_calls: tuple[Call, ...] = ()
    """The command whose line it is part of, as `srun bash -c`, outermost first."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Its words without their places."""
        return tuple(one.text for one in self.traced_words)


@dataclasses.dataclass
class Walked:
    """What a script would run, in its order."""

    followed: list[Call] = dataclasses.field(default_factory=list)
    shell_values: dict[str, Value] = dataclasses.field(default_factory=dict)
    """Variables at its end; those of its environment are among them."""
    documents: list[tuple[str, Traced]] = dataclasses.field(default_factory=list)
    """Here-documents: the file that one is written to, empty = a program reads it; the text."""
    notes: list[str] = dataclasses.field(default_factory=list)
    """What was not followed, each in one sentence."""

    @property
    def holds(self) -> Mapping[str, Value]:
        """The same as `shell_values`, to read."""
        return self.shell_values


Answer: TypeAlias = Callable[[str], str | None]
"""What a command substitution would print, by its words; None = only a machine knows."""


def walk(
    text: str, environment: Mapping[str, Value] | None = None, answer: Answer | None = None
) -> Walked:
    """What a script would run, without arguments.

    >>> said = walk('N=2; A=(--nnodes $N); for i in a b; do torchrun "${A[@]}" $i; done')
    >>> said.followed[0].texts
    ('torchrun', '--nnodes', '2', 'a')
    """
    walker = _Walker(environment or {}, answer or (lambda _: None))
    walker.script(Traced(text, tuple(range(len(text)))), ())
    return walker.walked


class _Unknown(Exception):
    """Only a running machine could tell."""


class _Left(Exception):
    """The script, a function or a loop is left."""

    def __init__(self, what: str) -> None:
        self.what = what


class _Piece(NamedTuple):
    value: Traced
    quoted: bool
    ends: bool = False
    """Whether a word ends here, as between elements of "${A[@]}"."""


_SPECIAL: Final = frozenset({"#", "?", "$", "!", "-", "@", "*", "0", "_"})


class _Walker:
    def __init__(self, environment: Mapping[str, Value], answer: Answer) -> None:
        self.walked = Walked(shell_values=dict(environment))
        self._answer = answer
        self._functions: dict[str, Any] = {}
        self._arguments: list[Traced] = []
        self._depth, self._count, self._branches = 0, 0, 0
        self._source = EMPTY
        self._bytes: Sequence[int] = ()

    # --- scripts and statements ---------------------------------------------------------------

    def script(self, source: Traced, inside: tuple[Call, ...]) -> None:
        """Follow a script, or a line within one."""
        if self._depth >= _DEEPEST:
            return
        parsed = tree(source.text)
        before = self._source, self._bytes
        self._source = source
        self._bytes = (
            range(len(source.text) + 1)
            if source.text.isascii()
            else list(accumulate((len(one.encode()) for one in source.text), initial=0))
        )
        self._depth += 1
        try:
            self._statements(parsed.get("Stmts") or (), inside)
        except _Left:
            pass
        finally:
            self._depth -= 1
            self._source, self._bytes = before

    def _statements(self, rows: Iterable[Any], inside: tuple[Call, ...]) -> bool | None:
        """Whether the last one succeeds; None = unknown."""
        last: bool | None = True
        for row in rows:
            last = self._statement(row, inside)
        return last

    def _statement(self, row: Any, inside: tuple[Call, ...]) -> bool | None:
        self._count += 1
        if self._count > _MOST:
            self.walked.notes.append(f"more than {_MOST} commands: the rest is not followed")
            raise _Left("script")
        given = EMPTY
        for one in row.get("Redirs") or ():
            given = self._redirection(one, given, row)
        found = self._command(row.get("Cmd"), inside, given)
        return (None if found is None else not found) if row.get("Negated") else found

    def _redirection(self, one: Any, given: Traced, row: Any) -> Traced:
        op = one.get("Op")
        if op == "<<<":
            return self._text(one["Word"])
        if "Hdoc" in one:
            text = self._text(one["Hdoc"], here=True)
            names = [
                self._text(other["Word"]).text
                for other in row.get("Redirs") or ()
                if other.get("Op") in {">", ">>", "&>", ">|"} and "Word" in other
            ]
            self.walked.documents.append((names[0] if names else "", text))
            return text
        return given

    def _command(self, node: Any, inside: tuple[Call, ...], given: Traced) -> bool | None:
        if node is None:
            return True
        kind = node["Type"]
        if kind not in _COMMANDS:
            return None
        found: bool | None = getattr(self, _COMMANDS[kind])(node, inside, given)
        return found

    def _CallExpr(self, node: Any, inside: tuple[Call, ...], given: Traced) -> bool | None:
        rows = node.get("Args") or ()
        assigned = node.get("Assigns") or ()
        if not rows:
            for one in assigned:
                self._assign(one)
            return True
        words = self._fields(rows)
        kept = {}
        for one in assigned:
            name = one["Name"]["Value"]
            kept[name] = self.walked.shell_values.get(name)
            self._assign(one)
        try:
            return self._call(words, self._place(rows[0]), inside, given) if words else True
        finally:
            for name, value in kept.items():
                if words and words[0].text in {"export", "eval", "read", "."}:
                    continue
                if value is None:
                    self.walked.shell_values.pop(name, None)
                else:
                    self.walked.shell_values[name] = value

    def _Block(self, node: Any, inside: tuple[Call, ...], _given: Traced) -> bool | None:
        return self._statements(node.get("Stmts") or (), inside)

    def _Subshell(self, node: Any, inside: tuple[Call, ...], _given: Traced) -> bool | None:
        before = dict(self.walked.shell_values)
        try:
            return self._statements(node.get("Stmts") or (), inside)
        except _Left:
            return None
        finally:
            self.walked.shell_values = before

    def _TimeClause(self, node: Any, inside: tuple[Call, ...], _given: Traced) -> bool | None:
        return self._statement(node["Stmt"], inside) if node.get("Stmt") else True

    def _BinaryCmd(self, node: Any, inside: tuple[Call, ...], _given: Traced) -> bool | None:
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

    def _IfClause(self, node: Any, inside: tuple[Call, ...], _given: Traced) -> bool | None:
        found = self._statements(node["Cond"], inside) if node.get("Cond") else True
        if found or (found is None and node.get("Else")):
            return self._conditional(node.get("Then") or (), inside)
        if other := node.get("Else"):
            return self._IfClause(other, inside, EMPTY)
        return True

    def _ForClause(self, node: Any, inside: tuple[Call, ...], _given: Traced) -> bool | None:
        loop = node["Loop"]
        if loop["Type"] == "WordIter":
            items = self._fields(loop.get("Items") or ())
            if not items:
                return True
            before = len(self.walked.followed)
            self.walked.shell_values[loop["Name"]["Value"]] = items[0]
            self._once(node, inside)
            named = [one for one in self.walked.followed[before:] if not _is_small(one)]
            if len(items) > 1 and named:
                line = self.line(self._place(node))
                self.walked.notes.append(
                    f"line {line}: a loop over {len(items)} values; the first is read, "
                    f"{items[0].text}"
                )
            return True
        if init := loop.get("Init"):
            self._try_arithmetic(init)
        self._once(node, inside)
        return True

    def _WhileClause(self, node: Any, inside: tuple[Call, ...], _given: Traced) -> bool | None:
        found = self._statements(node.get("Cond") or (), inside)
        found = None if found is None else found != bool(node.get("Until"))
        if found:
            self._once(node, inside)
        return True

    def _once(self, node: Any, inside: tuple[Call, ...]) -> None:
        try:
            self._conditional(node.get("Do") or (), inside)
        except _Left as left:
            if left.what != "loop":
                raise

    def _CaseClause(self, node: Any, inside: tuple[Call, ...], _given: Traced) -> bool | None:
        word = self._text(node["Word"])
        value = self._known(word)
        for item in node.get("Items") or ():
            patterns = [self._text(one).text for one in item.get("Patterns") or ()]
            if value is not None and any(_matches(value, one) for one in patterns):
                return self._conditional(item.get("Stmts") or (), inside)
        return True

    def _FuncDecl(self, node: Any, _inside: tuple[Call, ...], _given: Traced) -> bool | None:
        self._functions[node["Name"]["Value"]] = node["Body"]
        return True

    def _DeclClause(self, node: Any, _inside: tuple[Call, ...], _given: Traced) -> bool | None:
        for one in node.get("Args") or ():
            if "Name" in one and not one.get("Naked"):
                self._assign(one)
        return True

    def _LetClause(self, node: Any, _inside: tuple[Call, ...], _given: Traced) -> bool | None:
        for one in node.get("Exprs") or ():
            self._try_arithmetic(one)
        return True

    def _ArithmCmd(self, node: Any, _inside: tuple[Call, ...], _given: Traced) -> bool | None:
        value = self._try_arithmetic(node["X"])
        return None if value is None else value != 0

    def _TestClause(self, node: Any, _inside: tuple[Call, ...], _given: Traced) -> bool | None:
        return self._test(node["X"])

    # --- commands -----------------------------------------------------------------------------

    def _call(
        self, words: list[Traced], place: int, inside: tuple[Call, ...], given: Traced
    ) -> bool | None:
        name = words[0].text
        if name in self._functions and self._depth < _DEEPEST:
            return self._function(name, words[1:], inside)
        if name in _BUILTINS:
            found: bool | None = getattr(self, _BUILTINS[name])(words, inside, given)
            return found
        if name in _SILENT:
            return True if name in {":", "true"} else False if name == "false" else None
        call = Call(tuple(words), place, inside)
        texts = [one.text for one in words]
        at = line_of(texts)
        if at is not None and 0 < at < len(words) and self._depth < _DEEPEST:
            outer = dataclasses.replace(call, traced_words=tuple(words[:at]))
            before = self._arguments
            self._arguments = words[at + 2 :]
            first = len(self.walked.followed)
            try:
                self.script(words[at], (*inside, outer))
            except InputError:
                self.walked.followed[first:] = [call]
            finally:
                self._arguments = before
            return True
        self.walked.followed.append(call)
        return True

    def _function(
        self, name: str, arguments: list[Traced], inside: tuple[Call, ...]
    ) -> bool | None:
        before, self._arguments = self._arguments, arguments
        self._depth += 1
        try:
            return self._statement(self._functions[name], inside)
        except _Left as left:
            if left.what != "function":
                raise
            return True
        finally:
            self._depth -= 1
            self._arguments = before

    def _do_eval(self, words: list[Traced], inside: tuple[Call, ...], _given: Traced) -> None:
        blank = traced(" ")
        line = _joined(one for word in words[1:] for one in (word, blank))
        try:
            self.script(line, inside)
        except InputError:
            self.walked.followed.append(Call(tuple(words[1:]), words[0].place, inside))

    def _do_test(self, words: list[Traced], _inside: object, _given: object) -> bool | None:
        texts = [one.text for one in words[1:]]
        if words[0].text == "[" and texts and texts[-1] == "]":
            texts.pop()
        return self._plain_test(texts)

    def _do_set(self, words: list[Traced], _inside: object, _given: object) -> bool:
        texts = [one.text for one in words]
        if "--" in texts:
            self._arguments = words[texts.index("--") + 1 :]
        return True

    def _do_shift(self, _words: list[Traced], _inside: object, _given: object) -> bool:
        self._arguments = self._arguments[1:]
        return True

    def _do_unset(self, words: list[Traced], _inside: object, _given: object) -> bool:
        for one in words[1:]:
            self.walked.shell_values.pop(one.text, None)
        return True

    def _do_read(self, words: list[Traced], _inside: object, given: Traced) -> bool | None:
        names = [one.text for one in words[1:] if re.fullmatch(r"[A-Za-z_]\w*", one.text)]
        as_array = any(re.fullmatch(r"-\w*a\w*", one.text) for one in words[1:])
        if not given.text or "$(" in given.text:
            return False
        signs = self.walked.shell_values.get("IFS")
        signs_text = signs.text if isinstance(signs, Traced) else _BLANKS
        first_line = given.slice(0, len(given.text.partition("\n")[0]))
        if as_array and names:
            self.walked.shell_values[names[-1]] = list(_split(first_line, signs_text, 0))
            return True
        parts = list(_split(first_line, signs_text, len(names)))
        for number, name in enumerate(names):
            self.walked.shell_values[name] = parts[number] if number < len(parts) else EMPTY
        return True

    def _do_exit(self, _words: list[Traced], _inside: object, _given: object) -> None:
        if self._branches == 0:
            raise _Left("script")

    def _do_return(self, _words: list[Traced], _inside: object, _given: object) -> None:
        if self._branches == 0:
            raise _Left("function")

    def _do_leave(self, _words: list[Traced], _inside: object, _given: object) -> None:
        raise _Left("loop")

    # --- tests --------------------------------------------------------------------------------

    def _known(self, value: Traced) -> str | None:
        """A text as the script would see it; what nobody has set is empty."""
        text = _UNSET.sub("", value.text)
        return None if "$" in text or "`" in text else text

    def _test(self, node: Any) -> bool | None:
        kind = node["Type"]
        if kind == "ParenTest":
            return self._test(node["X"])
        if kind == "UnaryTest":
            op = node["Op"]
            if op == "!":
                found = self._test(node["X"])
                return None if found is None else not found
            return self._unary(op, self._text(node["X"]))
        if kind == "BinaryTest":
            op = node["Op"]
            if op in {"&&", "||"}:
                first, second = self._test(node["X"]), self._test(node["Y"])
                return _both(first, second) if op == "&&" else _either(first, second)
            left = self._known(self._text(node["X"]))
            right = self._known(self._text(node["Y"]))
            return _compared(left, op, right)
        if kind == "Word":
            text = self._known(self._text(node))
            return None if text is None else bool(text)
        return None

    def _unary(self, op: str, value: Traced) -> bool | None:
        text = self._known(value)
        if op in _OF_FILES:
            return False
        if text is None:
            return {"-n": True, "-z": False}.get(op)
        if op == "-v":
            return text in self.walked.shell_values
        return {"-n": bool(text), "-z": not text}.get(op)

    def _plain_test(self, texts: Sequence[str]) -> bool | None:
        for joint, combine in (("-o", _either), ("-a", _both)):
            if joint in texts[1:-1]:
                at = texts.index(joint)
                return combine(self._plain_test(texts[:at]), self._plain_test(texts[at + 1 :]))
        if texts and texts[0] == "!":
            found = self._plain_test(texts[1:])
            return None if found is None else not found
        if len(texts) == 3:
            left, right = self._known(traced(texts[0])), self._known(traced(texts[2]))
            return _compared(left, texts[1], right)
        if len(texts) == 2:
            return self._unary(texts[0], traced(texts[1]))
        if len(texts) == 1:
            text = self._known(traced(texts[0]))
            return None if text is None else bool(text)
        return False

    # --- arithmetic ---------------------------------------------------------------------------

    def _try_arithmetic(self, node: Any) -> int | None:
        try:
            return self._arithmetic(node)
        except (_Unknown, ValueError, ZeroDivisionError, OverflowError, KeyError):
            return None

    def _arithmetic(self, node: Any) -> int:
        kind = node["Type"]
        if kind == "Word":
            text = self._text(node).text.strip()
            for _ in range(4):
                if re.fullmatch(r"-?\d+", text):
                    return int(text)
                if not re.fullmatch(r"[A-Za-z_]\w*", text):
                    break
                value = self.walked.shell_values.get(text)
                if not isinstance(value, Traced):
                    raise _Unknown
                text = value.text.strip()
            raise _Unknown
        if kind == "ParenArithm":
            return self._arithmetic(node["X"])
        if kind == "UnaryArithm":
            return self._unary_arithmetic(node)
        op = node["Op"]
        if op in {"=", "+=", "-=", "*=", "/=", "%="}:
            name = self._text(node["X"]).text
            result = self._arithmetic(node["Y"])
            if op != "=":
                result = _counted(op[:-1], self._arithmetic(node["X"]), result)
            self.walked.shell_values[name] = traced(str(result))
            return result
        if op == "?":
            pair = node["Y"]
            return self._arithmetic(pair["X"] if self._arithmetic(node["X"]) else pair["Y"])
        return _counted(op, self._arithmetic(node["X"]), self._arithmetic(node["Y"]))

    def _unary_arithmetic(self, node: Any) -> int:
        op = node["Op"]
        value = self._arithmetic(node["X"])
        if op in {"++", "--"}:
            after = value + (1 if op == "++" else -1)
            self.walked.shell_values[self._text(node["X"]).text] = traced(str(after))
            return value if node.get("Post") else after
        return {"-": -value, "+": value, "!": int(not value), "~": ~value}[op]

    # --- words --------------------------------------------------------------------------------

    def line(self, place: int) -> int:
        """The line of the walked text in which a place is. [1]"""
        return 1 + self._source.text.count("\n", 0, max(0, place))

    def _spot(self, node: Any, end: bool = False) -> int:
        """Place of a node in the text that is walked."""
        offset = node["End" if end else "Pos"]["Offset"]
        return offset if isinstance(self._bytes, range) else bisect_right(self._bytes, offset) - 1

    def _place(self, node: Any) -> int:
        spot = self._spot(node)
        return self._source.at[spot] if spot < len(self._source.at) else _NOWHERE

    def _written(self, node: Any) -> Traced:
        """A node as it is written."""
        return self._source.slice(self._spot(node), self._spot(node, end=True))

    def _assign(self, node: Any) -> None:
        name, variables = node["Name"]["Value"], self.walked.shell_values
        old = variables.get(name)
        value: Value
        if "Array" in node:
            rows = [one["Value"] for one in node["Array"].get("Elems") or () if "Value" in one]
            value = self._fields(rows)
            if node.get("Append"):
                before = old if isinstance(old, list) else [old] if old is not None else []
                value = [*before, *value]
            variables[name] = value
            return
        value = self._text(node["Value"]) if node.get("Value") else EMPTY
        if node.get("Index") is not None:
            return
        if node.get("Append"):
            if isinstance(old, list):
                first = old[0] if old else EMPTY
                variables[name] = [_joined((first, value)), *old[1:]]
                return
            value = _joined((old or EMPTY, value))
        variables[name] = value

    def _text(self, word: Any, *, here: bool = False) -> Traced:
        """A word that is not split: the value of an assignment, one side of a test."""
        blank = traced(" ")
        made = list[Traced]()
        for one in self._pieces(word.get("Parts") or (), quoted=here):
            made.append(one.value)
            if one.ends:
                made.append(blank)
        return _joined(made)

    def _fields(self, words: Iterable[Any]) -> list[Traced]:
        """Words, split as a shell splits what is not in quotes."""
        found = list[Traced]()
        for word in words:
            found += self._field(word)
        return found

    def _field(self, word: Any) -> Iterator[Traced]:
        current = list[Traced]()
        some = False
        for piece in self._pieces(word.get("Parts") or (), quoted=False):
            if piece.quoted:
                current.append(piece.value)
                some = some or not piece.ends or bool(piece.value.text)
            else:
                text, start, open_ = piece.value, 0, 0
                for at, sign in enumerate(text.text):
                    if sign == "(" and (open_ or text.text[at - 1 : at] == "$"):
                        open_ += 1
                    elif sign == ")" and open_:
                        open_ -= 1
                    if sign in _BLANKS and not open_:
                        if at > start or current:
                            yield _joined((*current, text.slice(start, at)))
                        current, start, some = [], at + 1, False
                if start < len(text.text):
                    current.append(text.slice(start))
            if piece.ends and (some or current):
                yield _joined(current)
                current, some = [], False
        if current or some:
            yield _joined(current)

    def _pieces(self, parts: Iterable[Any], *, quoted: bool) -> Iterator[_Piece]:
        for part in parts:
            kind = part["Type"]
            if kind == "Lit":
                literal = self._literal(part, quoted=quoted)
                if quoted or literal.text:
                    yield _Piece(literal, True)
            elif kind == "SglQuoted":
                whole = self._written(part)
                text = whole.slice(2 if part.get("Dollar") else 1, len(whole.text) - 1)
                yield _Piece(text, True)
            elif kind == "DblQuoted":
                inner = part.get("Parts") or ()
                if not inner:
                    yield _Piece(EMPTY, True)
                for one in self._pieces(inner, quoted=True):
                    yield one._replace(quoted=True)
            elif kind == "ParamExp":
                yield from self._parameter(part, quoted=quoted)
            elif kind == "ArithmExp":
                value = self._try_arithmetic(part["X"])
                yield _Piece(self._written(part) if value is None else traced(str(value)), True)
            elif kind == "CmdSubst":
                yield _Piece(self._substituted(part), True)
            else:
                yield _Piece(self._written(part), True)

    def _literal(self, part: Any, *, quoted: bool) -> Traced:
        """A literal without its backslashes."""
        whole = self._written(part)
        if "\\" not in whole.text:
            return whole
        kept = list[int]()
        at, text = 0, whole.text
        while at < len(text):
            if text[at] == "\\":
                after = text[at + 1 : at + 2]
                if after in {"", "\n"}:  # the line goes on
                    at += 2
                    continue
                if not quoted or after in '$`"\\':
                    at += 1
            kept.append(at)
            at += 1
        return Traced("".join(text[one] for one in kept), tuple(whole.at[one] for one in kept))

    def _substituted(self, part: Any) -> Traced:
        """What a command substitution prints, where that can be told."""
        whole = self._written(part)
        inner = re.sub(r"^\$\(|^`|\)$|`$", "", whole.text).strip()
        rows: list[Any] = part.get("Stmts") or []
        command = next((one.get("Cmd") or {} for one in rows if len(rows) == 1), {})
        if command.get("Type") == "CallExpr" and command.get("Args"):
            words = self._fields(command["Args"])
            if words and words[0].text in {"echo", "printf"} and len(words) > 1:
                flags = {"-n", "-e", "%s", "%s\\n"}
                rest = [one for one in words[1:] if one.text not in flags]
                blank = traced(" ")
                return _joined(
                    one
                    for at, word in enumerate(rest)
                    for one in ((blank, word) if at else (word,))
                )
            inner = " ".join(one.text for one in words)
        answer = self._answer(inner)
        return whole if answer is None else traced(answer)

    def _parameter(self, part: Any, *, quoted: bool) -> Iterator[_Piece]:
        name = part["Param"]["Value"]
        index = part.get("Index")
        whole = self._written(part)
        subscript = None
        if index is not None:
            subscript = "".join(str(one.get("Value", "")) for one in index.get("Parts") or ())
        if name in {"@", "*"} or subscript in {"@", "*"}:
            yield from self._elements(part, name, subscript, quoted=quoted)
            return
        if part.get("Length"):
            value = self._value(name, index)
            known = value is not None and "$" not in value.text
            yield _Piece(traced(str(len(value.text))) if known and value else whole, quoted)
            return
        if part.get("Excl"):
            pointed = self._value(name, index)
            value = self._value(pointed.text, None) if pointed is not None else None
            yield _Piece(value if value is not None else whole, quoted)
            return
        value = self._changed(part, self._value(name, index), whole)
        yield _Piece(value, quoted)

    def _elements(
        self, part: Any, name: str, subscript: str | None, *, quoted: bool
    ) -> Iterator[_Piece]:
        if name in {"@", "*"}:
            rows = self._arguments
        else:
            value = self.walked.shell_values.get(name)
            rows = value if isinstance(value, list) else [] if value is None else [value]
        if part.get("Length"):
            yield _Piece(traced(str(len(rows))), True)
            return
        if part.get("Slice"):
            first = self._try_arithmetic(part["Slice"]["Offset"]) or 0
            size = part["Slice"].get("Length")
            count = self._try_arithmetic(size) if size else None
            rows = rows[first:] if count is None else rows[first : first + count]
        if quoted and "*" in {name, subscript}:
            blank = traced(" ")
            yield _Piece(
                _joined(x for at, one in enumerate(rows) for x in ((blank, one) if at else (one,))),
                True,
            )
            return
        for number, one in enumerate(rows):
            last = number == len(rows) - 1
            yield _Piece(one, quoted, ends=not last)
            if not quoted and not last:
                yield _Piece(traced(" "), False)
        if not rows and quoted:
            yield _Piece(EMPTY, True, ends=True)

    def _value(self, name: str, index: Any) -> Traced | None:
        """What a variable holds; None = nobody has set it."""
        if name.isdigit() and name != "0":
            at = int(name) - 1
            return self._arguments[at] if at < len(self._arguments) else None
        if name == "#":
            return traced(str(len(self._arguments)))
        if name == "?":
            return traced("0")
        value = self.walked.shell_values.get(name)
        if isinstance(value, list):
            spot = 0 if index is None else self._try_arithmetic(index)
            if spot is None or not -len(value) <= spot < len(value):
                return None
            return value[spot]
        return value

    def _changed(self, part: Any, value: Traced | None, whole: Traced) -> Traced:
        """A variable's value after `:-`, `%`, `#`, `/` and the like."""
        if expansion := part.get("Exp"):
            return self._expanded(part, expansion, value, whole)
        if value is None:
            return whole
        if repl := part.get("Repl"):
            old = self._text(repl["Orig"]).text if repl.get("Orig") else ""
            new = self._text(repl["With"]).text if repl.get("With") else ""
            if not old or "$" in value.text or any(sign in old for sign in "*?["):
                return whole
            return traced(value.text.replace(old, new, -1 if repl.get("All") else 1), value.place)
        if cut := part.get("Slice"):
            first = self._try_arithmetic(cut["Offset"])
            size = self._try_arithmetic(cut["Length"]) if cut.get("Length") else None
            if first is None or "$" in value.text:
                return whole
            return value.slice(first, None if size is None else first + size)
        return value

    def _expanded(self, part: Any, expansion: Any, value: Traced | None, whole: Traced) -> Traced:
        op, word = expansion["Op"], expansion.get("Word")
        if op in {":-", "-", ":=", "="}:
            if value is not None and (value.text or op[0] != ":"):
                return value
            given = self._text(word) if word else EMPTY
            if op in {":=", "="}:
                self.walked.shell_values[part["Param"]["Value"]] = given
            return given
        if op in {":+", "+"}:
            there = value is not None and (op == "+" or bool(value.text))
            return self._text(word) if there and word else EMPTY
        if value is None:
            return whole
        if op in {":?", "?"}:
            return value
        if "$" in value.text:
            return whole
        if op in {"%", "%%", "#", "##"} and word:
            return _trimmed(value, op, self._text(word).text)
        if op in {"^^", ",,"}:
            text = value.text.upper() if op == "^^" else value.text.lower()
            return Traced(text, value.at) if len(text) == len(value.text) else traced(text)
        return whole


_BUILTINS: Final = {
    "eval": "_do_eval",
    "[": "_do_test",
    "test": "_do_test",
    "set": "_do_set",
    "shift": "_do_shift",
    "unset": "_do_unset",
    "read": "_do_read",
    "exit": "_do_exit",
    "return": "_do_return",
    "break": "_do_leave",
    "continue": "_do_leave",
}
"""What the shell does by itself, by the words that call it."""
_COMMANDS: Final = {
    "CallExpr": "_CallExpr",
    "Block": "_Block",
    "Subshell": "_Subshell",
    "TimeClause": "_TimeClause",
    "BinaryCmd": "_BinaryCmd",
    "IfClause": "_IfClause",
    "ForClause": "_ForClause",
    "WhileClause": "_WhileClause",
    "CaseClause": "_CaseClause",
    "FuncDecl": "_FuncDecl",
    "DeclClause": "_DeclClause",
    "LetClause": "_LetClause",
    "ArithmCmd": "_ArithmCmd",
    "TestClause": "_TestClause",
}
"""What follows each form of a command, by the parser's words."""
_SILENT: Final = frozenset(
    {":", "true", "false", "echo", "printf", "cd", "mkdir", "export", "trap", "ulimit", "wait"}
    | {"sleep", "umask", "pushd", "popd", "shopt", "alias", "type", "hash", "clear", "module", "ml"}
    | {"chmod", "rm", "touch", "ls", "date", "hostname", "pwd", "which", "tee", "kill", "jobs"}
    | {"conda", "mamba", "nvidia-smi", "env", "getopts", "logger", "cat", "tail", "head", "grep"}
)  # fmt: skip
"""Commands that start no program and whose result nobody can tell, or need not."""
_UNSET: Final = re.compile(r"\$(?:\{?[A-Za-z_]\w*\}?|\{?\d+\}?|\{[A-Za-z_]\w*\[[@*]\]\})")
_OF_FILES: Final = frozenset(f"-{one}" for one in "abcdefghkprstuwxGLNOS")


def _is_small(call: Call) -> bool:
    return call.texts[0] in {"cp", "mv", "ln", "scp", "rsync", "scancel", "scontrol", "pip"}


def _matches(value: str, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(value, one) for one in (pattern,))


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
        one, other = int(left or 0), int(right or 0)
    except ValueError:
        return None
    return {
        "-eq": one == other, "-ne": one != other, "-lt": one < other,
        "-le": one <= other, "-gt": one > other, "-ge": one >= other,
    }.get(op)  # fmt: skip


def _counted(op: str, one: int, other: int) -> int:
    if op in {"/", "%"}:
        whole = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
        return whole if op == "/" else one - other * whole
    if op == "**":
        if not 0 <= other <= 64 or abs(one) > 2**32:
            raise _Unknown
        return int(one**other)
    if op in {"<<", ">>"} and not 0 <= other < 64:
        raise _Unknown
    done: dict[str, Callable[[int, int], int]] = {
        "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
        "<": lambda a, b: int(a < b), ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b),
        "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b),
        "&&": lambda a, b: int(bool(a and b)), "||": lambda a, b: int(bool(a or b)),
        "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b, "&": lambda a, b: a & b,
        "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, ",": lambda _, b: b,
    }  # fmt: skip
    if op not in done:
        raise _Unknown
    return done[op](one, other)


def _trimmed(value: Traced, op: str, pattern: str) -> Traced:
    """A value without what a pattern matches at its end (`%`) or its beginning (`#`)."""
    size = len(value.text)
    order = range(size + 1)
    if op in {"%", "%%"}:
        starts = order if op == "%%" else reversed(order)
        at = next((one for one in starts if fnmatch.fnmatchcase(value.text[one:], pattern)), size)
        return value.slice(0, at)
    ends = reversed(order) if op == "##" else order
    at = next((one for one in ends if fnmatch.fnmatchcase(value.text[:one], pattern)), 0)
    return value.slice(at)


def _split(value: Traced, signs: str, most: int) -> Iterator[Traced]:
    """A text at separators, as `read` does; the last of `most` parts has the rest; 0 = all."""
    start, number = 0, 1
    for at, sign in enumerate(value.text):
        if sign in signs and (most == 0 or number < most):
            if at > start or sign not in _BLANKS:
                yield value.slice(start, at)
                number += 1
            start = at + 1
    yield value.slice(start)
