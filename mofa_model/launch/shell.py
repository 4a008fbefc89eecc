"""Shell lines: commands, words and their places; and programs that run other programs.

    parse(line)        Script; a line that no shell would read is an error
    words_of(line)     the words of a line, without places, and without shfmt
    line_of(words)     which word is a line of its own, as in `bash -lc LINE`
    is_run(words)      whether what follows is run as a command
    append_obstacle(words)  why arguments at the end would not be the trainer's

`parse` asks shfmt, which knows here-documents, continued lines and every kind of quotes, and runs
nothing. It writes its syntax tree as JSON, within bounds of size, time and memory.
"""

from __future__ import annotations

import re
import shlex
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mofa_model.errors import BadShell, InputError, shown
from mofa_model.records import dataclass

if TYPE_CHECKING:
    import subprocess

_LONGEST: Final = 20_000
"""Characters of a line that are read."""
_PATIENCE: Final = 5.0
"""How long the parser may take; it needs milliseconds. [s]"""
_MEMORY: Final = 96 * 2**20
"""What the parser may hold; a line of one command needs a tenth of it. [B]"""
_PASSES: Final = 8
"""How often a line is read, to see which of its comments end where."""
_UNREAD: Final = re.compile(r"[\0\r\ud800-\udfff]")
"""Characters of which shells and their parsers do not think alike."""
_FREQUENCY: Final = re.compile(r"(?<=\s)\[[\d,]+\](?=[*+\s])")
_OPENED, _CLOSED = "\x01", "\x02"
"""In place of brackets while a line is parsed."""
_INNER: Final = frozenset({"CmdSubst", "ProcSubst"})


def nodes(parsed: Any) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """All nodes of a syntax tree, each with whether it is inside a substitution."""
    pending = [(parsed, False)]
    while pending:
        node, inner = pending.pop()
        if isinstance(node, list):
            pending += [(child, inner) for child in node]
        elif isinstance(node, dict):
            yield node, inner
            inner = inner or node.get("Type") in _INNER
            pending += [(child, inner) for child in node.values() if isinstance(child, dict | list)]


def tree(line: str) -> Any:
    """The syntax tree of a line."""
    # shfmt lets a backslash continue a comment, which no shell does: such a backslash is masked.
    if len(line) > _LONGEST:
        raise InputError(f"launch command: {len(line)} characters; at most {_LONGEST} are read")
    if odd := _UNREAD.search(line):
        raise InputError(
            f"launch command: it holds {odd.group()!r}, which not all shells read alike; "
            "take it out"
        )
    text = bytearray(_FREQUENCY.sub(_masked, line).encode())
    for _ in range(_PASSES):
        parsed = _unmasked(_parsed(bytes(text)))
        ends = [
            node["End"]["Offset"]
            for node, _ in nodes(parsed)
            if str(node.get("Text", "")).endswith("\\\n")
        ]
        if not ends:
            return parsed
        for end in ends:
            text[end - 2] = ord("#")
    raise InputError(
        "launch command: its comments end with backslashes, which continue no line; take them out"
    )


def _masked(match: re.Match[str]) -> str:
    """A word that begins with brackets and assigns nothing, `[0]*3+[1]*58`: bash takes it in an
    array, and shfmt looks for an assignment.
    """
    return match.group().translate({ord("["): _OPENED, ord("]"): _CLOSED})


def _unmasked(node: Any) -> Any:
    """The syntax tree with the brackets that `_masked` replaced put back."""
    if isinstance(node, dict):
        return {name: _unmasked(value) for name, value in node.items()}
    if isinstance(node, list):
        return [_unmasked(item) for item in node]
    return node.translate({ord(_OPENED): "[", ord(_CLOSED): "]"}) if isinstance(node, str) else node


def _parsed(text: bytes) -> Any:
    import subprocess

    import orjson

    with _started() as parser:
        try:
            syntax, message = parser.communicate(text, _PATIENCE)
            if parser.returncode == 1:
                why = message.decode("utf-8", "replace").strip().partition("\n")[0]
                raise BadShell(why)
            return orjson.loads(syntax or b"{}" if not parser.returncode else b"")
        except (subprocess.TimeoutExpired, orjson.JSONDecodeError):
            parser.kill()
            raise InputError(
                "launch command: it is too large or nested too deep to be read; "
                "make it shorter or simpler"
            ) from None


def _started() -> subprocess.Popen[bytes]:
    """The parser, waiting for its text. Anybody may write that, so its memory is bounded first."""
    import subprocess

    pipe = subprocess.PIPE
    try:
        parser = subprocess.Popen(
            [_program(), "-ln=bash", "-tojson"], stdin=pipe, stdout=pipe, stderr=pipe
        )
        if sys.platform == "linux":
            import resource

            resource.prlimit(parser.pid, resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    except OSError as error:
        raise InputError(
            "launch command: shfmt, the program that reads it, cannot be run here: "
            f"{shown(str(error))}"
        ) from None
    return parser


@cache
def _program() -> str:
    """Where shfmt is: as its distribution was installed, or on the path."""
    import shutil
    from importlib import metadata

    try:
        files = metadata.files("shfmt-py") or []
    except metadata.PackageNotFoundError:
        files = []
    places = [
        str(file.locate()) for file in files if file.stem == "shfmt" and file.suffix in {"", ".exe"}
    ]
    program = next((place for place in places if Path(place).is_file()), None) or shutil.which(
        "shfmt"
    )
    if program is None:
        raise InputError(
            "launch command: shfmt, which reads shell lines, is missing here: pip install shfmt-py"
        )
    return program


_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_USERS: Final = frozenset({"su", "runuser"})
"""Programs that start somebody's shell, or without a line of it a command."""
_RUN_WHAT_FOLLOWS: Final = frozenset(
    {"chrt", "command", "dumb-init", "env", "exec", "ionice", "mpiexec", "mpirun", "ncu"}
    | {"nice", "nohup", "nsys", "numactl"}
    | {"setsid", "srun", "stdbuf", "sudo", "taskset", "time", "timeout", "tini", "torchrun"}
)  # fmt: skip
_ADD_WORDS: Final = frozenset({"find", "parallel", "xargs"})
"""Programs that put words of their own behind a command's, or end it by a word."""
BUILTINS: Final = frozenset(
    {":", ".", "[", "alias", "cd", "echo", "exit", "export", "popd", "printf", "pushd", "read"}
    | {"set", "shift", "shopt"}
    | {"sleep", "source", "test", "trap", "true", "ulimit", "umask", "unalias", "unset", "wait"}
)  # fmt: skip
"""Commands that train nothing: they are not taken for the trainer's."""
_TAKES_A_LINE: Final = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_SSH_TAKES_A_VALUE: Final = re.compile(r"-[A-Za-z]*[BbcDEeFIiJLlmOopQRSWw]")
"""Options of ssh whose value is the next word."""
_IS_A_VALUE: Final = re.compile(r"[A-Za-z_]\w*=.*|[0-9].*|profile", re.DOTALL)
"""A variable, a time, a number of processors; what nsys is told to do."""
_STARTS: Final = re.compile(
    r"(?:\S*/)?(?:torchrun|deepspeed|accelerate|python[0-9.]*|\S+\.(?:py|sh))"
)
"""A program or a script by which training is started."""


def line_of(words: Sequence[str]) -> int | None:
    """Which word a shell runs as a line: `bash -euo pipefail -c LINE`; None without such a shell.

    It is the place after the last word where the line is missing, or where the shell has no script
    either and reads one from its input.

    >>> line_of(["env", "A=1", "/bin/bash", "-lc", "torchrun t.py"])
    4
    >>> line_of(["su", "-", "user", "-c", "torchrun t.py"])
    4
    """
    for index in range(len(words)):
        if _name(words[index]) in _USERS and is_run(words[:index]):
            return _line_of_user(words, index)
    # An option alone is for the shell that is the image's entry point.
    starts = [0] if words and _TAKES_A_LINE.fullmatch(words[0]) else []
    starts += [index + 1 for index, word in enumerate(words) if _name(word) in _SHELLS]
    for start in starts:
        index, has_line = start, False
        while index < len(words) and words[index][:1] in {"-", "+"} and words[index] != "--":
            short = words[index][1:2] != "-"
            has_line = has_line or _TAKES_A_LINE.fullmatch(words[index]) is not None
            takes_value = words[index] in {"--rcfile", "--init-file"}
            index += 1 + (takes_value or (short and "o" in words[index].lower()))
        index += index < len(words) and words[index] == "--"
        if has_line or (index >= len(words) and start > 0 and is_run(words[: start - 1])):
            return min(index, len(words))
    return None


def _line_of_user(words: Sequence[str], index: int) -> int | None:
    """Position of the word that `su` or `runuser` runs as a line; None if `runuser` has a command.

    The number of words where there is no line.
    """
    after_flag = (
        place
        for place in range(index + 1, len(words))
        if words[place] in {"-c", "-lc", "--command"}
    )
    line = next(after_flag, None)
    if line is None and _name(words[index]) == "runuser" and {"-u", "--user"} & {*words[index:]}:
        return None
    return len(words) if line is None else min(line + 1, len(words))


def is_run(before: Sequence[str]) -> bool:
    """Whether what follows shells, runners of commands and their options is run as a command.

    >>> is_run(["timeout", "-k", "9", "1h", "env", "A=1"]), is_run(["ssh", "node"])
    (True, False)
    >>> is_run(["su", "user", "-c"])
    True
    """
    users = next((index for index, word in enumerate(before) if _name(word) in _USERS), None)
    before = before[:users]  # what follows them is theirs up to the line
    runners = _RUN_WHAT_FOLLOWS | _SHELLS
    return all(
        _name(word) in runners or word[:1] in {"-", "+"} or _IS_A_VALUE.fullmatch(word)
        or (last[:1] in {"-", "+"} and "=" not in last)
        for last, word in zip(("", *before), before, strict=False)
    )  # fmt: skip


def append_obstacle(words: Sequence[str]) -> str:
    """Why arguments at the end of a command would not reach the trainer in it; empty where they do.

    >>> append_obstacle(["env", "-S", "torchrun t.py"]).partition(";")[0]
    "the trainer is in 'torchrun t.py', which 'env' splits into words"
    >>> append_obstacle(["torchrun", "t.py", "--note", "as python t.py"])
    ''
    """
    for index, word in enumerate(words):
        if _name(word) == "ssh" and is_run(words[:index]):
            command = _ssh_command(words[index + 1 :])
            if not command:
                return (
                    "ssh has no command, and would run the arguments as one; "
                    "write the trainer behind its host"
                )
            if line_of(command) == len(command):
                return (
                    "ssh starts a shell that reads what it runs from elsewhere; "
                    "write the trainer behind its host"
                )
        if _name(word) in _ADD_WORDS and is_run(words[:index]):
            return (
                f"{shown(_name(word))} adds words after the command; start the trainer without it"
            )
    if any(_STARTS.fullmatch(word) for word in words):
        return ""
    inside = (word for word in words if any(_STARTS.fullmatch(part) for part in word.split()))
    quoted_line = next(inside, None)
    if quoted_line is None:
        return ""
    return (
        f"the trainer is in {shown(quoted_line)}, which {shown(words[0])} splits into words;"
        " write it in words of the command's own"
    )


def _ssh_command(words: Sequence[str]) -> Sequence[str]:
    """The command that ssh runs: the words after its options and its host."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 1 + (_SSH_TAKES_A_VALUE.fullmatch(words[index]) is not None)
    return words[index + 1 :]


def _name(word: str) -> str:
    return word.rpartition("/")[2]


_BLANKS: Final = re.compile(r"(?:[ \t]|\\\n)*\Z")
_ESCAPED: Final = {"": re.compile(r"\\(.)", re.DOTALL), '"': re.compile(r'\\([$`"\\])')}
_PATTERN: Final = re.compile(r"[~*?\[{]")


@dataclass(frozen=True)
class QuotedText:
    """What stands in double quotes, in which variables may stand too."""

    text: str
    """As the program that is given the word reads it; variables as they are written."""
    at: tuple[int, ...]
    """Where each of its characters stands in the line, and where the closing quote does."""

    def escaped(self, text: str) -> str:
        """A text as it has to be written between these quotes."""
        return re.sub(r'([$`"\\])', r"\\\1", text)


@dataclass(frozen=True)
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
    """Whether the shell puts in a variable, the output of a command, or names of files."""
    quoted: QuotedText | None
    """What is in its double quotes, where they are around the whole of it."""


@dataclass(frozen=True)
class Command:
    """A program or a builtin with its arguments, without assignments and redirections."""

    words: tuple[ShellWord, ...]
    substituted: bool
    """Whether it stands in $( ), <( ) or backticks."""


@dataclass(frozen=True)
class Script:
    """A line that was read."""

    commands: tuple[Command, ...]
    values: tuple[str, ...]
    """Assignments, as they stand in the line."""
    documents: tuple[str, ...]
    """Here-documents."""


def parse(line: str) -> Script:
    """Read a line.

    >>> script = parse("A=1 torchrun 't.py' 2>&1 | tee log")
    >>> [[word.text for word in command.words] for command in script.commands]
    [['torchrun', 't.py'], ['tee', 'log']]
    """
    parsed = tree(line)
    return _Reader(line).script(parsed)


def words_of(line: str) -> list[str]:
    r"""The words of a line, and of the line that a shell in it runs; ValueError at a lone quote.

    >>> words_of("bash -c 'torchrun t.py --bf16' \\\n")
    ['bash', '-c', 'torchrun', 't.py', '--bf16']
    """
    text = line.replace("\\\n", "").rstrip()
    text = text[:-1] if (len(text) - len(text.rstrip("\\"))) % 2 else text  # continued by nothing
    words = shlex.split(text, comments=True)
    line_index = line_of(words)
    return (
        words
        if line_index in {None, len(words)}
        else [*words[:line_index], *words_of(words[line_index]), *words[line_index + 1 :]]
    )


class _Reader:
    """The parser's tree, with bytes made places in the text."""

    def __init__(self, line: str) -> None:
        self._line = line
        sizes = accumulate((len(character.encode()) for character in line), initial=0)
        self._places = (
            None if line.isascii() else {byte: offset for offset, byte in enumerate(sizes)}
        )

    def script(self, parsed: Any) -> Script:
        calls, values, documents, ends = [], [], [], [0]
        for node, substituted in nodes(parsed):
            if node.get("Type") == "CallExpr" and node.get("Args"):
                calls.append((node["Args"], substituted))
            if len(number := str((node.get("N") or {}).get("Value", ""))) > 1:
                raise InputError(
                    f"launch command: {shown(number)} is the number of a file for bash, and a word "
                    "for other shells; put a blank after it"
                )
            if "Parts" in node:
                ends.append(self._span(node)[1])
            values += [self._raw(assignment) for assignment in node.get("Assigns") or ()]
            values += (
                [self._raw(argument) for argument in node["Args"]]
                if node.get("Type") == "DeclClause" and node.get("Args")
                else []
            )
            documents += [self._raw(node["Hdoc"])] if node.get("Hdoc") else []
        ends.sort()
        commands = [
            Command(tuple(self._word(word, ends) for word in words), inner)
            for words, inner in calls
        ]
        commands.sort(key=lambda command: command.words[0].start)
        return Script(tuple(commands), tuple(values), tuple(documents))

    def _word(self, node: Mapping[str, Any], ends: Sequence[int]) -> ShellWord:
        start, end = self._span(node)
        parts = node["Parts"]
        previous_end = ends[bisect_right(ends, start) - 1]
        blanks = _BLANKS.search(self._line, previous_end, start)
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
            return "".join(self._text(inner, '"') for inner in part.get("Parts") or ())
        return self._raw(part)

    def _expands(self, part: Mapping[str, Any]) -> bool:
        if part.get("Dollar"):
            return True
        if part["Type"] == "DblQuoted":
            return any(inner["Type"] != "Lit" for inner in part.get("Parts") or ())
        return (
            bool(_PATTERN.search(part.get("Value", "")))
            if part["Type"] == "Lit"
            else part["Type"] != "SglQuoted"
        )

    def _quoted(self, part: Mapping[str, Any]) -> QuotedText | None:
        """The text between double quotes, with the place of each character in the line; None where
        a word is not in double quotes.
        """
        if part["Type"] != "DblQuoted" or part.get("Dollar"):
            return None
        text, offsets = [], []
        for inner in part.get("Parts") or ():
            offset, end = self._span(inner)
            while offset < end:
                pair = self._line[offset : offset + 2] if inner["Type"] == "Lit" else ""
                step = 2 if pair == "\\\n" or _ESCAPED['"'].fullmatch(pair) else 1
                if pair != "\\\n":
                    text.append(self._line[offset + step - 1])
                    offsets.append(offset)
                offset += step
        return QuotedText("".join(text), (*offsets, self._span(part)[1] - 1))

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

    def _escaped(self, start: int, offset: int) -> bool:
        """Whether the backslash at a place is one that another one before it stands for."""
        before = self._line[start:offset]
        return (len(before) - len(before.rstrip("\\"))) % 2 == 1
