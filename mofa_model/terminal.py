"""Text for any terminal: nothing in it steers the terminal, and every character can be written.

Names and messages come from files, hubs and clusters that strangers write. An escape sequence, a
line break or a mark that turns the direction of writing is printed as a space. A terminal or a pipe
that lacks a character gets a plain one in its place.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import sys
import unicodedata
from typing import Final, TextIO

_PLAIN: Final = {
    "−": "-",
    "–": "-",
    "—": "-",
    "×": "x",
    "·": ".",
    "…": "...",
    "µ": "u",
    "’": "'",
    "≥": ">=",
    "≤": "<=",
    "≈": "~",
    "±": "+/-",
    "→": "->",
    "°": " deg",
    **dict.fromkeys("█▉▊▋▌", "#"),
    **dict.fromkeys("▍▎▏", "-"),
}
"""Plain forms of characters that we print. A letter loses its accents; others become `?`."""

_UNSEEN: Final = (
    r"\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\U000e0000-\U000e007f"
)
_CODED: Final = f"[{_UNSEEN}]"
"""Characters that steer a terminal, or are not seen, and that JSON would write as they are."""
_STEERING: Final = rf"[\x00-\x08\x0b-\x1f{_UNSEEN}]"
"""The same, and those that JSON would not."""

_HANDLER: Final = "mofa.plain"
"""The name under which Python's encoders find these."""

_OTHERS: Final = ("strict", "surrogateescape", "backslashreplace")
"""Python's own ways with such characters; another one was asked for by PYTHONIOENCODING."""


def printable(text: str) -> str:
    """Text on one line, without what would steer a terminal.

    >>> printable("evil" + chr(27) + "[2J" + chr(0x202E) + "name")
    'evil [2J name'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def coded(json_text: str) -> str:
    r"""JSON whose texts have the codes of such characters in their place: it says the same.

    >>> coded('"' + chr(0x202E) + 'é"')
    '"\\u202eé"'
    """
    if json_text.replace("\n", "").isprintable():  # as nearly all is
        return json_text
    return re.sub(_CODED, lambda match: json.dumps(match[0])[1:-1], json_text)


def is_harmless(text: str) -> bool:
    """Whether a text of several lines has no character that would steer a terminal."""
    return text.isprintable() or re.search(_STEERING, text) is None


def without_steering(text: str) -> str:
    """A text of several lines with a space for each character that would steer a terminal."""
    return re.sub(_STEERING, " ", text)


def plain(text: str) -> str:
    """Text in ASCII, as near to it as that goes.

    >>> plain("12 − 3 × é … 漢")
    '12 - 3 x e ... ?'
    """
    return "".join(_PLAIN.get(c) or _letter(c) for c in text)


def never_fail(*streams: TextIO) -> None:
    """Make streams write a plain character, and not fail, where their encoding lacks one."""
    codecs.register_error(_HANDLER, _replaced)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and stream.errors in _OTHERS:
            stream.reconfigure(errors=_HANDLER)


def put(text: str, stream: TextIO | None = None) -> None:
    """Write a document for programs, in UTF-8, to `stream` or standard output."""
    out = stream or sys.stdout
    if isinstance(out, io.TextIOWrapper):
        out.flush()
        out.buffer.write(text.encode("utf-8", "backslashreplace"))
    else:
        out.write(text)


def tell(line: str) -> None:
    """Say something beside the answer, in one line on standard error."""
    sys.stderr.write(f"{printable(line)}\n")
    sys.stderr.flush()


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return plain(error.object[error.start : error.end]), error.end


def _letter(character: str) -> str:
    plain_text = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return plain_text if plain_text.isprintable() and plain_text else "?"
