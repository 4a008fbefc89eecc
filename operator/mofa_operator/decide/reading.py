"""Small things that every decision needs: moments and messages as text, and whether two states are the same."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

LONGEST: Final = 1024
"""Characters of a message, as the API conventions have it. [1]"""


def moment(now: float) -> str:
    """A moment in UTC, to the second.

    >>> moment(0.0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def sentence(message: str) -> str:
    """A message on one line, printable and not too long."""
    line = " ".join(message.split())
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " for c in line)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def digits(value: float, number: int = 3) -> int:
    """A whole number with so many significant digits.

    >>> digits(812345.6)
    812000
    """
    return round(float(f"{value:.{number}g}"))


def same(standing: Any, wanted: Any) -> bool:
    """Whether what stands is what is wanted, where nothing, an empty text and a missing field are one.

    >>> same({"a": 1, "b": ""}, {"a": 1, "c": []})
    True
    """
    return bool(standing == wanted or _bare(standing) == _bare(wanted))


def moved(before: float | None, after: float | None, least: float) -> bool:
    """Whether a number changed by a share of at least `least`, or came or went.

    >>> moved(100.0, 104.0, 0.05), moved(100.0, 106.0, 0.05), moved(0.0, 1.0, 0.05)
    (False, True, True)
    """
    if before is None or after is None:
        return before is not after
    return before != after and abs(after - before) >= least * abs(before)


def left(since: float | None, quiet: float, now: float) -> float:
    """How long until what was written at a moment may be written again; 0 where nobody knows when that was. [s]

    >>> left(1000.0, 600.0, 1500.0), left(None, 600.0, 1500.0)
    (100.0, 0.0)
    """
    return 0.0 if since is None else max(0.0, min(quiet, since + quiet - now))


def joined(words: Iterable[str]) -> str:
    """Sentences as one text.

    >>> joined(["a", "", "b"])
    'a; b'
    """
    return "; ".join(word for word in words if word)


def _bare(value: Any) -> Any:
    """A value without what says nothing."""
    if isinstance(value, dict):
        bare = {key: _bare(item) for key, item in value.items()}
        return {key: item for key, item in bare.items() if item not in (None, "", {}, [])}
    return [_bare(item) for item in value] if isinstance(value, list | tuple) else value
