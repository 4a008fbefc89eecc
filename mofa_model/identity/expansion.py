"""Words of a shell script, expanded as a shell does it; nothing is run.

A word's variables, arrays and arithmetic have their values. Every character of the result knows
where in the script it comes from. What only a running machine knows stays as it is written.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias

_LONGEST: Final = 40_000
"""Characters of a value. [1]"""
_ALL: Final = 2_000_000
"""Most characters of all words of a script together: values may contain each other, and scripts are
untrusted. [1]
"""
BLANKS: Final = " \t\n"
"""Characters that separate words outside of quotes."""
NOWHERE: Final = -1


_PRINTED: Final = frozenset({"-n", "-e", "-ne", "%s", "%s\\n"})
"""Options and formats of `echo` and `printf`, which are not printed."""


class TracedText(NamedTuple):
    """A text whose characters know where they come from."""

    text: str
    at: tuple[int, ...]
    """Offset of each character in the script; -1 = it is computed."""

    @property
    def place(self) -> int:
        """Where it begins, as far as that is known; -1 = nowhere."""
        return next((place for place in self.at if place >= 0), NOWHERE)

    @property
    def whole(self) -> bool:
        """Whether it stands in the script as it is, in one piece."""
        first = self.at[0] if self.at else NOWHERE
        return first >= 0 and self.at == tuple(range(first, first + len(self.at)))

    def slice(self, begin: int, until: int | None = None) -> TracedText:
        """A part of the text, by positions of its characters."""
        return TracedText(self.text[begin:until], self.at[begin:until])


EMPTY: Final = TracedText("", ())
Value: TypeAlias = TracedText | list[TracedText]
"""What a variable holds: a text, or an array of them."""


def traced(text: str, place: int = NOWHERE) -> TracedText:
    """A text that stands at one place of the script."""
    return TracedText(text, (place,) * len(text))


def joined(traced_texts: Iterable[TracedText]) -> TracedText:
    """Several traced texts joined to one."""
    kept = list(traced_texts)
    text = "".join(part.text for part in kept)[:_LONGEST]
    return TracedText(text, tuple(at for part in kept for at in part.at)[:_LONGEST])


def _spaced(words: Iterable[TracedText]) -> TracedText:
    """Words with a blank between them."""
    blank = traced(" ")
    parts = [part for word in words for part in (blank, word)]
    return joined(parts[1:])


Answer: TypeAlias = Callable[[str], str | None]
"""What a command substitution would print, by its words; None = only a machine knows."""


class _UnknownValue(Exception):
    """The value is only known on the running machine."""


class EndlessExpansion(Exception):
    """The script's values grow beyond any script that people write."""


class _Piece(NamedTuple):
    value: TracedText
    quoted: bool
    ends: bool = False
    """Whether a word ends here, as between elements of "${A[@]}"."""


_UNSET: Final = re.compile(r"\$(?:\{?[A-Za-z_]\w*\}?|\{?\d+\}?|\{[A-Za-z_]\w*\[[@*]\]\})")


class Expander:
    """What words mean, given the variables and arguments of the moment."""

    def __init__(
        self, environment: Mapping[str, Value], answer: Answer, *, may_be_set: bool = False
    ) -> None:
        self.variables: dict[str, Value] = dict(environment)
        self.arguments: list[TracedText] = []
        """Of the script, or of the function that is followed."""
        self._answer = answer
        self._may_be_set = may_be_set
        """Whether a machine may set what the script does not."""
        self._left = _ALL
        self._source = EMPTY
        self._bytes: Sequence[int] = ()

    @contextmanager
    def within(self, walked_text: TracedText) -> Iterator[None]:
        """Within the block, nodes are positions in this text."""
        before = self._source, self._bytes
        self._source = walked_text
        self._bytes = (
            range(len(walked_text.text) + 1)
            if walked_text.text.isascii()
            else list(
                accumulate((len(character.encode()) for character in walked_text.text), initial=0)
            )
        )
        try:
            yield
        finally:
            self._source, self._bytes = before

    @contextmanager
    def with_arguments(self, traced_words: list[TracedText]) -> Iterator[None]:
        """Within the block, `$1` and its like have these values."""
        before, self.arguments = self.arguments, traced_words
        try:
            yield
        finally:
            self.arguments = before

    def line(self, place: int) -> int:
        """The line of the walked text in which a place is. [1]"""
        return 1 + self._source.text.count("\n", 0, max(0, place))

    def _spot(self, node: Any, end: bool = False) -> int:
        """Place of a node in the text that is walked."""
        offset = node["End" if end else "Pos"]["Offset"]
        return offset if isinstance(self._bytes, range) else bisect_right(self._bytes, offset) - 1

    def place(self, node: Any) -> int:
        """Where a node begins in the script; -1 = nowhere."""
        spot = self._spot(node)
        return self._source.at[spot] if spot < len(self._source.at) else NOWHERE

    def _written(self, node: Any) -> TracedText:
        """A node as it is written."""
        return self._source.slice(self._spot(node), self._spot(node, end=True))

    def assign(self, node: Any) -> None:
        """Follow an assignment: `A=x`, `A+=x`, `A=(x y)`."""
        name, variables = node["Name"]["Value"], self.variables
        old = variables.get(name)
        value: Value
        if "Array" in node:
            elements = node["Array"].get("Elems") or ()
            rows = [element["Value"] for element in elements if "Value" in element]
            value = self.fields(rows)
            if node.get("Append"):
                before = old if isinstance(old, list) else [old] if old is not None else []
                value = [*before, *value]
            variables[name] = value
            return
        value = self.text(node["Value"]) if node.get("Value") else EMPTY
        if node.get("Index") is not None:
            return
        if node.get("Append"):
            if isinstance(old, list):
                first = old[0] if old else EMPTY
                variables[name] = [joined((first, value)), *old[1:]]
                return
            value = joined((old or EMPTY, value))
        variables[name] = value

    def text(self, word: Any, *, here: bool = False) -> TracedText:
        """A word that is not split: the value of an assignment, one side of a test."""
        blank = traced(" ")
        made = list[TracedText]()
        for piece in self._pieces(word.get("Parts") or (), quoted=here):
            made.append(piece.value)
            if piece.ends:
                made.append(blank)
        return joined(made)

    def fields(self, words: Iterable[Any]) -> list[TracedText]:
        """Words, split as a shell splits what is not in quotes."""
        return [field for word in words for field in self._field(word)]

    def _field(self, word: Any) -> Iterator[TracedText]:
        """The words that one word of a script becomes: split at blanks that are neither quoted nor
        in brackets.
        """
        current = list[TracedText]()
        is_begun = False
        for piece in self._pieces(word.get("Parts") or (), quoted=False):
            if piece.quoted:
                current.append(piece.value)
                is_begun = is_begun or not piece.ends or bool(piece.value.text)
            else:
                text, start, open_ = piece.value, 0, 0
                for at, sign in enumerate(text.text):
                    if sign == "(" and (open_ or text.text[at - 1 : at] == "$"):
                        open_ += 1
                    elif sign == ")" and open_:
                        open_ -= 1
                    if sign in BLANKS and not open_:
                        if at > start or current:
                            yield joined((*current, text.slice(start, at)))
                        current, start, is_begun = [], at + 1, False
                if start < len(text.text):
                    current.append(text.slice(start))
            if piece.ends and (is_begun or current):
                yield joined(current)
                current, is_begun = [], False
        if current or is_begun:
            yield joined(current)

    def _pieces(self, parts: Iterable[Any], *, quoted: bool) -> Iterator[_Piece]:
        for piece in self._every_piece(parts, quoted=quoted):
            self._left -= len(piece.value.text)
            if self._left < 0:
                raise EndlessExpansion
            yield piece

    def _every_piece(self, parts: Iterable[Any], *, quoted: bool) -> Iterator[_Piece]:
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
                for inner_piece in self._pieces(inner, quoted=True):
                    yield inner_piece._replace(quoted=True)
            elif kind == "ParamExp":
                yield from self._parameter(part, quoted=quoted)
            elif kind == "ArithmExp":
                value = self.try_arithmetic(part["X"])
                yield _Piece(self._written(part) if value is None else traced(str(value)), True)
            elif kind == "CmdSubst":
                yield _Piece(self._substituted(part), True)
            else:
                yield _Piece(self._written(part), True)

    def _literal(self, part: Any, *, quoted: bool) -> TracedText:
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
        return TracedText("".join(text[at] for at in kept), tuple(whole.at[at] for at in kept))

    def _substituted(self, part: Any) -> TracedText:
        """What a command substitution prints, where that can be told."""
        whole = self._written(part)
        inner = re.sub(r"^\$\(|^`|\)$|`$", "", whole.text).strip()
        rows: list[Any] = part.get("Stmts") or []
        row = rows[0] if len(rows) == 1 else {}
        command = row.get("Cmd") or {}
        if command.get("Type") == "CallExpr" and command.get("Args"):
            words = self.fields(command["Args"])
            text = self.here_document(row) if [word.text for word in words] == ["cat"] else None
            text = self.printed(words) if text is None else text
            if text is not None:
                return text.slice(0, len(text.text.rstrip("\n")))
            inner = " ".join(word.text for word in words)
        answer = self._answer(inner)
        return whole if answer is None else traced(answer)

    def here_document(self, row: Any) -> TracedText | None:
        """The here-document that a command reads; None where there is none."""
        documents = (part for part in row.get("Redirs") or () if "Hdoc" in part)
        if (redirection := next(documents, None)) is None:
            return None
        text = self.text(redirection["Hdoc"], here=True)
        last = text.text.rfind("\n") + 1  # of a quoted one the parser keeps its end
        ends = text.text[last:].strip() == self.text(redirection["Word"]).text
        return text.slice(0, last) if ends else text

    @staticmethod
    def printed(traced_words: Sequence[TracedText]) -> TracedText | None:
        """What `echo`, `printf` or `expr` prints; None of another command."""
        if traced_words and traced_words[0].text == "expr":
            result = _of_expr([word.text for word in traced_words[1:]])
            return None if result is None else traced(str(result))
        if len(traced_words) < 2 or traced_words[0].text not in {"echo", "printf"}:
            return None
        return _spaced([word for word in traced_words[1:] if word.text not in _PRINTED])

    def _parameter(self, part: Any, *, quoted: bool) -> Iterator[_Piece]:
        name = part["Param"]["Value"]
        index = part.get("Index")
        whole = self._written(part)
        subscript = None
        if index is not None:
            subscript = "".join(str(piece.get("Value", "")) for piece in index.get("Parts") or ())
        if name in {"@", "*"} or subscript in {"@", "*"}:
            yield from self._elements(part, name, subscript, quoted=quoted)
            return
        if part.get("Length"):
            value = self._value(name, index)
            is_known = value is not None and "$" not in value.text
            yield _Piece(traced(str(len(value.text))) if is_known and value else whole, quoted)
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
            rows = self.arguments
        else:
            value = self.variables.get(name)
            rows = value if isinstance(value, list) else [] if value is None else [value]
        if part.get("Length"):
            yield _Piece(self._length(name, rows), True)
            return
        if part.get("Slice"):
            first = self.try_arithmetic(part["Slice"]["Offset"]) or 0
            size = part["Slice"].get("Length")
            count = self.try_arithmetic(size) if size else None
            rows = rows[first:] if count is None else rows[first : first + count]
        if quoted and "*" in {name, subscript}:
            yield _Piece(_spaced(rows), True)
            return
        for number, element in enumerate(rows):
            last = number == len(rows) - 1
            yield _Piece(element, quoted, ends=not last)
            if not quoted and not last:
                yield _Piece(traced(" "), False)
        if not rows and quoted:
            yield _Piece(EMPTY, True, ends=True)

    def _length(self, name: str, rows: Sequence[TracedText]) -> TracedText:
        """The number of elements. Hosts that Slurm prints are as many as the job's nodes; what
        another program prints is not known.
        """
        if not any("$(" in element.text or "`" in element.text for element in rows):
            return traced(str(len(rows)))
        nodes = self.variables.get("SLURM_NNODES")
        if all("scontrol show hostname" in element.text for element in rows) and isinstance(
            nodes, TracedText
        ):
            return nodes
        return traced(f"${{#{name}[@]}}")

    def _value(self, name: str, index: Any) -> TracedText | None:
        """What a variable holds; None = nobody has set it."""
        if name.isdigit() and name != "0":
            at = int(name) - 1
            return self.arguments[at] if at < len(self.arguments) else None
        if name == "#":
            return traced(str(len(self.arguments)))
        if name == "?":
            return traced("0")
        value = self.variables.get(name)
        if isinstance(value, list):
            spot = 0 if index is None else self.try_arithmetic(index)
            if spot is None or not -len(value) <= spot < len(value):
                return None
            return value[spot]
        return value

    def _changed(self, part: Any, value: TracedText | None, whole: TracedText) -> TracedText:
        """A variable's value after `:-`, `%`, `#`, `/` and the like."""
        if expansion := part.get("Exp"):
            return self._expanded(part, expansion, value, whole)
        if value is None:
            return whole
        if repl := part.get("Repl"):
            old = self.text(repl["Orig"]).text if repl.get("Orig") else ""
            new = self.text(repl["With"]).text if repl.get("With") else ""
            if not old or "$" in value.text or any(sign in old for sign in "*?["):
                return whole
            return traced(value.text.replace(old, new, -1 if repl.get("All") else 1), value.place)
        if cut := part.get("Slice"):
            first = self.try_arithmetic(cut["Offset"])
            size = self.try_arithmetic(cut["Length"]) if cut.get("Length") else None
            if first is None or "$" in value.text:
                return whole
            return value.slice(first, None if size is None else first + size)
        return value

    def _expanded(
        self, part: Any, expansion: Any, value: TracedText | None, whole: TracedText
    ) -> TracedText:
        op, word = expansion["Op"], expansion.get("Word")
        if op in {":-", "-", ":=", "="}:
            if value is not None and (value.text or op[0] != ":"):
                return value
            default = self.text(word) if word else EMPTY
            if op in {":=", "="}:
                self.variables[part["Param"]["Value"]] = default
            return default
        if op in {":+", "+"}:
            there = value is not None and (op == "+" or bool(value.text))
            return self.text(word) if there and word else EMPTY
        if value is None:
            return whole
        if op in {":?", "?"}:
            return value
        if "$" in value.text:
            return whole
        if op in {"%", "%%", "#", "##"} and word:
            return _trimmed(value, op, self.text(word).text)
        if op in {"^^", ",,"}:
            text = value.text.upper() if op == "^^" else value.text.lower()
            return TracedText(text, value.at) if len(text) == len(value.text) else traced(text)
        return whole

    def resolved(self, value: TracedText) -> str | None:
        """A text as the script would see it; what nobody has set is empty."""
        text = value.text if self._may_be_set else _UNSET.sub("", value.text)
        return None if "$" in text or "`" in text else text

    # --- arithmetic ---------------------------------------------------------------------------

    def try_arithmetic(self, node: Any) -> int | None:
        """The value of an arithmetic expression; None = only a machine knows."""
        try:
            return self._arithmetic(node)
        except (_UnknownValue, ValueError, ZeroDivisionError, OverflowError, KeyError):
            return None

    def _arithmetic(self, node: Any) -> int:
        kind = node["Type"]
        if kind == "Word":
            text = self.text(node).text.strip()
            for _ in range(4):
                if re.fullmatch(r"-?\d+", text):
                    return int(text)
                if not re.fullmatch(r"[A-Za-z_]\w*", text):
                    break
                value = self.variables.get(text)
                if not isinstance(value, TracedText):
                    raise _UnknownValue
                text = value.text.strip()
            raise _UnknownValue
        if kind == "ParenArithm":
            return self._arithmetic(node["X"])
        if kind == "UnaryArithm":
            return self._unary_arithmetic(node)
        op = node["Op"]
        if op in {"=", "+=", "-=", "*=", "/=", "%="}:
            name = self.text(node["X"]).text
            result = self._arithmetic(node["Y"])
            if op != "=":
                result = _counted(op[:-1], self._arithmetic(node["X"]), result)
            self.variables[name] = traced(str(result))
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
            self.variables[self.text(node["X"]).text] = traced(str(after))
            return value if node.get("Post") else after
        return {"-": -value, "+": value, "!": int(not value), "~": ~value}[op]


def _counted(op: str, left: int, right: int) -> int:
    """The result of an arithmetic operator on whole numbers, as a shell computes it."""
    if op in {"/", "%"}:
        whole = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return whole if op == "/" else left - right * whole
    if op == "**":
        if not 0 <= right <= 64 or abs(left) > 2**32:
            raise _UnknownValue
        return int(left**right)
    if op in {"<<", ">>"} and not 0 <= right < 64:
        raise _UnknownValue
    if op not in _OPERATORS:
        raise _UnknownValue
    return int(_OPERATORS[op](left, right))


_OPERATORS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "<": operator.lt, ">": operator.gt,
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "&&": lambda left, right: bool(left and right),
    "||": lambda left, right: bool(left or right), ",": lambda _, right: right,
}  # fmt: skip
"""A shell's operators on whole numbers; a comparison is 0 or 1."""


def _trimmed(value: TracedText, op: str, pattern: str) -> TracedText:
    """A value without what a pattern matches at its end (`%`) or its beginning (`#`)."""
    size = len(value.text)
    order = range(size + 1)
    if op in {"%", "%%"}:
        starts = order if op == "%%" else reversed(order)
        at = next(
            (start for start in starts if fnmatch.fnmatchcase(value.text[start:], pattern)), size
        )
        return value.slice(0, at)
    ends = reversed(order) if op == "##" else order
    at = next((end for end in ends if fnmatch.fnmatchcase(value.text[:end], pattern)), 0)
    return value.slice(at)


def _of_expr(words: Sequence[str]) -> int | None:
    """The whole number that `expr` prints for a sum or a product; None of anything else.

    >>> _of_expr("32 / 4 / 2".split()), _of_expr("1 + 2 * 3".split()), _of_expr(["$N", "*", "2"])
    (4, 7, None)
    """
    numbers, signs = words[::2], words[1::2]
    if len(words) % 2 == 0 or not all(re.fullmatch(r"-?\d{1,12}", number) for number in numbers):
        return None
    if any(sign not in {"+", "-", "*", "/", "%"} for sign in signs):
        return None
    terms = [int(numbers[0])]
    for sign, number in zip(signs, map(int, numbers[1:]), strict=True):
        if sign in {"+", "-"}:
            terms.append(_counted(sign, 0, number))
        elif number == 0 and sign != "*":
            return None
        else:
            terms[-1] = _counted(sign, terms[-1], number)
    return sum(terms)
