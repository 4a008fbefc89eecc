"""What every status needs: conditions, moments and messages as text, equality of states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Final, Literal

from mofa_operator.objects import LiveObject, WrittenPart, seconds
from mofa_operator.words import Aspect, Reason

LONGEST: Final = 1024
"""Characters of a message, as the API conventions have it. [1]"""


def moment(now: float) -> str:
    """A moment in UTC, to the second.

    >>> moment(0.0)
    '1970-01-01T00:00:00Z'
    """
    return _second(int(now // 1))


@lru_cache(maxsize=64)
def _second(whole: int) -> str:
    """A moment in UTC; cached, because one look writes the same moment many times."""
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def sentence(message: str) -> str:
    """A message on one line, printable and not too long."""
    line = " ".join(message.split())
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " for c in line)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def digits(value: float) -> int:
    """A whole number with three significant digits.

    >>> digits(812345.6)
    812000
    """
    return round(float(f"{value:.3g}"))


def significant(value: float, number: int) -> str:
    """A number as text, with so many significant digits and no exponent.

    >>> significant(1234567.8, 6), significant(0.01234567, 6), significant(30.0, 6)
    ('1234570', '0.0123457', '30')
    """
    return f"{Decimal(f'{value:.{number}g}'):f}"


def same(standing: object, wanted: object) -> bool:
    """Whether two values are equal, where None, an empty text and a missing field are the same.

    >>> same({"a": 1, "b": ""}, {"a": 1, "c": []})
    True
    """
    if standing == wanted:
        return True
    if isinstance(standing, dict) and isinstance(wanted, dict):
        pairs = ((standing.get(name), wanted.get(name)) for name in standing.keys() | wanted.keys())
        return all(same(a, b) or (_is_nothing(a) and _is_nothing(b)) for a, b in pairs)
    if isinstance(standing, list | tuple) and isinstance(wanted, list | tuple):
        return len(standing) == len(wanted) and all(map(same, standing, wanted))
    return False


def moved(before: float | None, after: float | None, least: float) -> bool:
    """Whether a number changed by a share of at least `least`, or came or went.

    >>> moved(100.0, 104.0, 0.05), moved(100.0, 106.0, 0.05), moved(0.0, 1.0, 0.05)
    (False, True, True)
    """
    if before is None or after is None:
        return before is not after
    return before != after and abs(after - before) >= least * abs(before)


def time_left(since: float | None, quiet: float, now: float) -> float:
    """Time until what was written at `since` may be written again; 0 where that is unknown. [s]

    >>> time_left(1000.0, 600.0, 1500.0), time_left(None, 600.0, 1500.0)
    (100.0, 0.0)
    """
    return 0.0 if since is None else max(0.0, min(quiet, since + quiet - now))


def joined(words: Iterable[str]) -> str:
    """Sentences that are not empty, as one text.

    >>> joined(["a", "", "b"])
    'a; b'
    """
    return "; ".join(word for word in words if word)


def _is_nothing(value: object) -> bool:
    """Whether a value is as good as missing."""
    if isinstance(value, dict):
        return all(map(_is_nothing, value.values()))
    return value is None or (isinstance(value, str | list | tuple) and not value)


State = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class NewCondition:
    """A condition to write, without its times."""

    aspect: Aspect
    state: State
    reason: Reason | str
    message: str = ""


def conditions(
    live_object: LiveObject, new_conditions: Iterable[NewCondition], now: float
) -> list[WrittenPart]:
    """Conditions as rows; the time of one whose state stays is kept.

    `now` in seconds of the epoch. [s]
    """
    by_type = {condition.type: condition for condition in live_object.conditions}
    rows: list[WrittenPart] = []
    for new_condition in new_conditions:
        old = by_type.get(new_condition.aspect.value)
        since = old.since if old is not None and old.status == new_condition.state else ""
        row = {
            "type": new_condition.aspect.value,
            "status": new_condition.state,
            "reason": str(new_condition.reason),
            "message": sentence(new_condition.message),
            "lastTransitionTime": moment(now) if seconds(since) is None else since,
        }
        rows.append(of_generation(live_object, row))
    return rows


def of_generation(live_object: LiveObject, status: WrittenPart) -> WrittenPart:
    """A status with the generation of its spec."""
    generation = live_object.generation
    return status if generation is None else status | {"observedGeneration": generation}


def standing(live_object: LiveObject, aspect: Aspect) -> NewCondition | None:
    """The condition of an object; None where it has none that could be written again."""
    row = live_object.condition(aspect.value)
    if row is None or row.status not in ("True", "False", "Unknown"):
        return None
    if not (row.reason.isascii() and row.reason.isalnum() and row.reason[:1].isupper()):
        return None
    return NewCondition(aspect, row.status, row.reason[:64], row.message)  # type: ignore[arg-type]
