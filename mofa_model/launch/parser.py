"""The shell parser, shfmt: a program that reads a line and writes its syntax tree as JSON, within bounds of size, time and memory.

tree(line)     the tree; a line that no shell would read is an error
nodes(tree)    every node of it
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mofa_model.errors import InputError, shown

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
_INNER: Final = frozenset({"CmdSubst", "ProcSubst"})


def nodes(parsed: Any) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Every node, and whether a substitution is around it."""
    left = [(parsed, False)]
    while left:
        node, inner = left.pop()
        if isinstance(node, list):
            left += [(one, inner) for one in node]
        elif isinstance(node, dict):
            yield node, inner
            inner = inner or node.get("Type") in _INNER
            left += [(one, inner) for one in node.values() if isinstance(one, dict | list)]


def tree(line: str) -> Any:
    """What the parser says. It lets a backslash continue a comment, which no shell does: such a one is masked."""
    if len(line) > _LONGEST:
        raise InputError(f"launch command: {len(line)} characters; at most {_LONGEST} are read")
    if odd := _UNREAD.search(line):
        raise InputError(
            f"launch command: {odd.group()!r} is in it, which shells read differently; take it out"
        )
    text = bytearray(line.encode())
    for _ in range(_PASSES):
        parsed = _parsed(bytes(text))
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
        "launch command: its comments end with backslashes, which continue nothing; take them out"
    )


def _parsed(text: bytes) -> Any:
    import subprocess

    import orjson

    with _started() as parser:
        try:
            made, said = parser.communicate(text, _PATIENCE)
            if parser.returncode == 1:
                why = said.decode("utf-8", "replace").strip().partition("\n")[0]
                raise InputError(f"launch command: no shell can read it: {why}")
            return orjson.loads(made or b"{}" if not parser.returncode else b"")
        except (subprocess.TimeoutExpired, orjson.JSONDecodeError):
            parser.kill()
            raise InputError(
                "launch command: it is too large or nested too deep to be read; write it plainer"
            ) from None


def _started() -> subprocess.Popen[bytes]:
    """The parser, waiting for its text; whoever can write jobs decides what that is, so its memory is bounded first."""
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
            f"launch command: its parser cannot be run here: {shown(str(error))}"
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
        str(one.locate()) for one in files if one.stem == "shfmt" and one.suffix in {"", ".exe"}
    ]
    found = next((place for place in places if Path(place).is_file()), None) or shutil.which(
        "shfmt"
    )
    if found is None:
        raise InputError(
            "launch command: shfmt, which reads shell lines, is missing here: pip install shfmt-py"
        )
    return found
