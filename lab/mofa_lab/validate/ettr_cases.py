"""Published and simulated facts on ETTR, intervals and rates against `reliability`: one function
for each kind of case.

    {"id", "kind", "source", "inputs": {...}, "expected": number | list | object, "tolerance":
        {"abs" | "rel": number}}

An expected object or list is compared number by number, text by equality. What a storage takes that
nobody describes is asked of no model: a kind may take such measured times of `expected` as given
(`GIVEN`). A tolerance that is a number is relative. A kind that is not known, or inputs that cannot
be, make a case unsupported with a reason, never an error of the command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mofa_lab.validate.ettr_kinds import KINDS
from mofa_lab.validate.record import Record, read
from mofa_model.errors import InputError

AT_LEAST: Final = frozenset({"ettr_at_least"})
"""Kinds whose expected value is a floor."""
GIVEN: Final = {"async_checkpoint": ("blocked_s", "background_s", "first_checkpoint_background_s")}
"""Measured times that a kind starts from, by its name; they are not compared."""
UNSUPPORTED: Final = {
    "known_inconsistency": "the source contradicts itself here; see the case's note"
}
"""Kinds that no model should reproduce."""


def validate_ettr(path: Any) -> dict[str, Any]:
    """Every case of a file beside its prediction, as `mofa validate ettr --json` prints it."""
    cases, unsupported = [], []
    for row in read(path)[0]:
        record = Record(row if isinstance(row, Mapping) else {})
        name, kind = record.text("id"), record.text("kind")
        reason = UNSUPPORTED.get(kind) or ("" if kind in KINDS else f"unknown kind {kind!r}")
        if not reason:
            try:
                cases.append(_case(name, kind, record))
            except InputError as error:
                reason = str(error)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                reason = f"the inputs do not fit the kind: {error!r}"
        if reason:
            unsupported.append({"id": name, "reason": reason})
    good = sum(case["ok"] for case in cases)
    return {"cases": cases, "unsupported": unsupported, "summary": {"n": len(cases), "ok": good}}


def _case(name: str, kind: str, record: Record) -> dict[str, Any]:
    expected, inputs, tolerance = record.get("expected"), record.inner("inputs"), _tolerance(record)
    if given := GIVEN.get(kind, ()):
        inputs = Record({**inputs.values, **record.inner("expected").values}, inputs.path)
        expected = {name: value for name, value in expected.items() if name not in given}
    predicted = _plain(KINDS[kind](inputs))
    absolute, relative = tolerance.number("abs", 0.0), tolerance.number("rel", 0.0)
    if isinstance(expected, Mapping) and isinstance(predicted, Mapping):
        predicted = {key: predicted.get(key) for key in expected}
    ok = _close(predicted, expected, absolute, relative, floor=kind in AT_LEAST)
    return {
        "id": name,
        "kind": kind,
        "expected": expected,
        "predicted": predicted,
        "tolerance": dict(tolerance.values),
        "ok": ok,
    }


def _tolerance(record: Record) -> Record:
    """`abs` and `rel` of a case; a bare number is relative."""
    bare = isinstance(record.get("tolerance"), int | float)
    return (
        Record({"rel": record.number("tolerance")}, "tolerance")
        if bare
        else record.inner("tolerance")
    )


def _close(predicted: Any, expected: Any, absolute: float, relative: float, *, floor: bool) -> bool:
    """Whether a prediction equals what is expected within tolerances, also inside lists and
    mappings; with `floor` it may be higher.
    """
    if isinstance(expected, Mapping):
        return isinstance(predicted, Mapping) and all(
            _close(predicted.get(key), value, absolute, relative, floor=floor)
            for key, value in expected.items()
        )
    if isinstance(expected, list):
        same = isinstance(predicted, list) and len(predicted) == len(expected)
        return same and all(
            _close(value, other, absolute, relative, floor=floor)
            for value, other in zip(predicted, expected, strict=True)
        )
    if isinstance(expected, str) or expected is None or predicted is None:
        return bool(predicted == expected)
    room = max(absolute, relative * abs(expected), 1e-15 * abs(expected))
    return bool(predicted >= expected - room if floor else abs(predicted - expected) <= room)


def _plain(value: Any) -> Any:
    """Numbers of numpy as numbers of Python, tuples as lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value
