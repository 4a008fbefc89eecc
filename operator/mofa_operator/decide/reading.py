"""Small things that every decision needs: parts of foreign objects, moments as text, and whether two states are the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from mofa_model.kinds.shape import at, part, text_of
from mofa_operator.snapshot import FOREIGN, Body

LONGEST: Final = 1024
"""Characters of a message, as the API conventions have it. [1]"""
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z", re.ASCII)


def annotations_of(body: Body) -> dict[str, str]:
    """Annotations, those that are text."""
    found = part(body, "metadata", "annotations")
    return {key: value for key, value in found.items() if isinstance(value, str)}


def foreign_of(body: Body) -> Mapping[str, str]:
    """Annotations under our prefix that are not of our hand, and of whose; empty text = of nobody's that is known."""
    return {name: text_of(hand) for name, hand in part(body, "metadata", FOREIGN).items()}


def uid_of(body: Body) -> str:
    """The uid; empty where there is none."""
    return text_of(at(body, "metadata", "uid"))


def generation_of(body: Body) -> int | None:
    """Generation of the spec."""
    found = at(body, "metadata", "generation")
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def is_going(body: Body) -> bool:
    """Whether an object is being deleted."""
    return at(body, "metadata", "deletionTimestamp") is not None


def moment(now: float) -> str:
    """A moment in UTC, to the second.

    >>> moment(0.0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(written: Any) -> float | None:
    """The moment behind such a text, in seconds of the epoch; None where it is none. [s]

    >>> seconds("1970-01-01T00:01:00Z")
    60.0
    """
    if not _MOMENT.fullmatch(text_of(written)):
        return None
    try:
        return datetime.fromisoformat(written).timestamp()
    except (ValueError, OverflowError):
        return None


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
