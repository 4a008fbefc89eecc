"""Numbers that odds and the rule rest on: an answer is another one where they are, so they are part of its inputs hash."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Final

ROOMS: Final = (
    *(f"mofa_model.bands.{name}" for name in ("band", "coordinates", "odds", "table")),
    *(
        f"mofa_model.advice.{name}"
        for name in ("choice", "probes", "prospects", "request", "verdict", "weighed")
    ),
)
"""Modules whose constants decide."""


@cache
def deciding_numbers() -> Mapping[str, float]:
    """Every constant of these rooms by its module and name; one that comes later is in it.

    >>> deciding_numbers()["choice.DECIDED"]
    0.75
    """
    return {
        f"{room.rpartition('.')[2]}.{name}": float(value)
        for room in ROOMS
        for name, value in sorted(vars(import_module(room)).items())
        if name.isupper() and isinstance(value, int | float)
    }
