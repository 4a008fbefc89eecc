"""The few checks that every given value passes once, when it is made; and the names of its
fields.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from math import inf
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from mofa_model.errors import BadValue
from mofa_model.units import Numeric

LATER: Final = {"later": True}
"""Marks a field that came after the first release: a question that says its default is the same
question as before."""


def plain(value: Numeric) -> TypeGuard[int | float]:
    """Whether a value is one number of Python's own: a search makes thousands of strategies, and
    numpy is slow at one.
    """
    return type(value) is int or type(value) is float


def anything(value: Numeric | NDArray[np.bool_]) -> bool:
    """Whether any number is not zero, or anything is true: as numpy's `any`, which is slow at one
    number.

    >>> anything(0.0), anything(np.array([0.0, 2.0]))
    (False, True)
    """
    return bool(value.any() if isinstance(value, np.ndarray) else value)


_PLAIN: Final = frozenset({float, int, bool, str, type(None), frozenset})
"""Types that are no arrays and hold none: most fields by far."""


def array_axes(*described: Any) -> int:
    """1 where a description holds an array, 0 where all its numbers are scalars."""
    for item in described:
        kind = type(item)
        if kind in _PLAIN:
            continue
        if (kind is tuple and array_axes(*item)) or (isinstance(item, np.ndarray) and item.ndim):
            return 1
        if is_dataclass(item) and array_axes(
            *(getattr(item, name) for name in field_names(item.__class__))
        ):
            return 1
    return 0


def distinct(rising: NDArray[Any]) -> NDArray[Any]:
    """Each number of a rising column once: numpy's `unique` would import masked arrays.

    >>> distinct(np.array([1.0, 1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    numbers: NDArray[Any] = rising[np.append(True, rising[1:] != rising[:-1])]
    return numbers


def positive(**values: Numeric) -> None:
    """Refuse a value that is not finite and above zero."""
    for field, value in values.items():
        if not (
            0 < value < inf
            if plain(value)
            else np.all(np.isfinite(value) & (np.asarray(value) > 0))
        ):
            raise BadValue(field, value, "give a finite number above zero")


def not_negative(**values: Numeric) -> None:
    """Refuse a value that is not finite and at least zero."""
    for field, value in values.items():
        if not (
            0 <= value < inf
            if plain(value)
            else np.all(np.isfinite(value) & (np.asarray(value) >= 0))
        ):
            raise BadValue(field, value, "give a finite number that is zero or more")


def whole(**values: Numeric) -> None:
    """Refuse a count that is not a whole number of at least one."""
    for field, value in values.items():
        if not (
            1 <= value < inf and value % 1 == 0
            if plain(value)
            else np.all(_counts(np.asarray(value)))
        ):
            raise BadValue(field, value, "give a whole number of one or more")


def _counts(values: NDArray[Any]) -> NDArray[np.bool_]:
    counts: NDArray[np.bool_] = np.isfinite(values) & (values >= 1) & (values == np.round(values))
    return counts


def share(**values: Numeric) -> None:
    """Refuse a value outside [0, 1]."""
    for field, value in values.items():
        numbers = np.asarray(value)
        if not np.all(np.isfinite(numbers) & (numbers >= 0) & (numbers <= 1)):
            raise BadValue(field, value, "give a share between 0 and 1")


@cache
def field_names(kind: Any) -> tuple[str, ...]:
    """Names of a dataclass's fields, found once: whoever walks descriptions does so for every block
    of a search.
    """
    return tuple(field.name for field in fields(kind))
