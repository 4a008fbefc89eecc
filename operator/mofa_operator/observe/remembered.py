"""A record as a short text and back, without loss: it is kept in a status, so that a restart of the operator forgets nothing.

The text is JSON, a few hundred bytes for a quiet job and at most `LARGEST` for any. A text that is not ours, or of another
version, is no record: counting begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.observe.run_record import CAUSES, RunInterruption, RunRecord, Totals

VERSION: Final = 1
"""Of the text's form."""
LARGEST: Final = 8192
"""Characters of a text."""

_PLAIN: Final = tuple(
    one.name
    for one in fields(RunRecord)
    if one.name not in ("earlier", "marks", "incidents", "older", "nodes_lost")
)
_INCIDENT: Final = tuple(one.name for one in fields(RunInterruption))


def to_text(record: RunRecord) -> str:
    """A record as text.

    >>> to_text(RunRecord(since=5.0, step=3))
    '{"v":1,"since":5.0,"step":3}'
    """
    empty = RunRecord(since=record.since)
    plain = {
        name: getattr(record, name)
        for name in _PLAIN
        if getattr(record, name) != getattr(empty, name)
    }
    told: dict[str, Any] = {"v": VERSION, "since": record.since, **plain}
    if record.earlier:
        told["earlier"] = dict(record.earlier)
    if record.marks:
        told["marks"] = {name: list(mark) for name, mark in sorted(record.marks.items())}
    if record.nodes_lost:
        told["nodes"] = list(record.nodes_lost)
    if record.incidents:
        told["incidents"] = [_written(one) for one in record.incidents]
    if record.older != Totals():
        told["counts"] = {
            f"{level} {cause}": n for (level, cause), n in sorted(record.older.counts.items())
        }
        told["recoveries"] = {
            level: list(sums) for level, sums in sorted(record.older.recoveries.items())
        }
        told["lost"] = dict(sorted(record.older.lost.items()))
    return json.dumps(told, separators=(",", ":"))


def from_text(text: object) -> RunRecord | None:
    """The record that a text holds; None where it holds none.

    >>> from_text('{"v":1,"since":5.0,"step":3}').step
    3
    >>> from_text("anything else") is None
    True
    """
    if not isinstance(text, str) or len(text) > LARGEST:
        return None
    try:
        told = json.loads(text)
        return _read(told) if isinstance(told, dict) and told.get("v") == VERSION else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _written(one: RunInterruption) -> dict[str, Any]:
    """An incident; what is as usual is left out."""
    usual = RunInterruption(low=one.low, high=one.low, level=RecoveryClass.PROCESS)
    return {"low": one.low} | {
        name: list(value) if isinstance(value, tuple) else value
        for name in _INCIDENT
        if (value := getattr(one, name)) != getattr(usual, name)
    }


def _read(told: Mapping[str, Any]) -> RunRecord:
    return RunRecord(
        **{name: _checked(name, told[name]) for name in _PLAIN if name in told},
        earlier={RecoveryClass(level): int(n) for level, n in told.get("earlier", {}).items()},
        marks={str(name): (int(n), float(at)) for name, (n, at) in told.get("marks", {}).items()},
        nodes_lost=tuple(float(at) for at in told.get("nodes", ())),
        incidents=tuple(_incident(one) for one in told.get("incidents", ())),
        older=Totals(
            counts={_pair(pair): int(n) for pair, n in told.get("counts", {}).items()},
            recoveries={
                RecoveryClass(level): (int(n), float(time))
                for level, (n, time) in told.get("recoveries", {}).items()
            },
            lost={_cause(cause): float(time) for cause, time in told.get("lost", {}).items()},
        ),
    )


def _incident(told: Mapping[str, Any]) -> RunInterruption:
    known = {
        name: _checked(name, told[name])
        for name in _INCIDENT
        if name in told and name not in ("level", "cause")
    }
    return RunInterruption(
        **{"high": known["low"], **known},
        level=RecoveryClass(told.get("level", RecoveryClass.PROCESS)),
        cause=_cause(told.get("cause", "")),
    )


def _checked(name: str, value: Any) -> Any:
    if name == "claims":
        return tuple(str(one) for one in value)
    if name in ("has_run", "unready"):
        return bool(value)
    return int(value) if name in ("step", "top", "redone") else float(value)


def _pair(text: str) -> tuple[RecoveryClass, str]:
    level, _, cause = text.partition(" ")
    return RecoveryClass(level), _cause(cause)


def _cause(text: str) -> str:
    if text not in CAUSES:
        raise ValueError(text)
    return text
