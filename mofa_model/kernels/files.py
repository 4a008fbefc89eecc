"""Surfaces from text: one JSON document a device, a line a surface, corrections in thousandths of an octave."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from mofa_model.errors import BadFile
from mofa_model.kernels.operators import OPERATORS
from mofa_model.kernels.surface import Law, Surface

Surfaces = Mapping[tuple[str, str], Surface]
"""Surfaces by operator and form."""

UNIT: Final = 1000.0
"""Steps of a correction in an octave: 0.07 %."""


def from_text(text: str, file: str) -> tuple[str, Surfaces]:
    """Device and surfaces of a document; `file` is what an error calls it."""
    try:
        document = json.loads(text)
        found = {(one["operator"], one["form"]): _surface(one) for one in document["surfaces"]}
        device = str(document["device"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadFile(
            file, f"is no file of surfaces as `mofa calibrate kernels` writes it: {error!r}"
        ) from None
    for operator, _ in found:
        if operator not in OPERATORS:
            raise BadFile(file, f"has an operator {operator!r}: one of {', '.join(OPERATORS)}")
    return device, found


def _surface(plain: Mapping[str, Any]) -> Surface:
    knots = tuple(tuple(float(place) for place in axis) for axis in plain["knots"])
    law: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else float(value)
        for name, value in plain["law"].items()
    }
    if any(len(axis) < 2 or min(axis) <= 0.0 or sorted(set(axis)) != list(axis) for axis in knots):
        raise ValueError("knots must be two or more ascending numbers above zero")
    corrections = np.asarray(plain["corrections"], dtype=float) / UNIT
    if not np.all(np.isfinite(corrections)):
        raise ValueError("corrections must be finite")
    return Surface(
        law=Law(**law),
        knots=knots,
        corrections=corrections.reshape([len(axis) for axis in knots]),
        format=str(plain["format"]),
        given={str(name): float(value) for name, value in plain["given"].items()},
        rows=int(plain["rows"]),
        source=str(plain["source"]),
    )
