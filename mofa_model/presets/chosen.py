"""Which constants hold: the shipped ones, with files of the user's over them or in their place.

The environment variable MOFA_CONSTANTS names the files, the way PATH names folders, so that every verb, the operator and
their worker processes agree. A file with `whole = true` (constants.toml as `mofa fit` writes it) takes the
place of the shipped one; any other (as `mofa calibrate --from-runs` writes it) is put over what stands below, each
section above the shipped section of the same layers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mofa_model.errors import BadFile
from mofa_model.files import from_toml
from mofa_model.presets import entries

VARIABLE: Final = "MOFA_CONSTANTS"
"""The environment variable."""

LARGEST: Final = 2**20
"""A file of constants beyond this is refused unread. [B]"""


def files() -> tuple[str, ...]:
    """The files that hold beside the shipped constants, lowest first."""
    return tuple(name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name)


def tables(names: tuple[str, ...]) -> tuple[Mapping[str, Any], ...]:
    """The constants that hold, lowest first: the shipped ones, and what the files say."""
    found: list[Mapping[str, Any]] = [entries.table("constants")]
    for name in names:
        given = read(name)
        found = [given] if given.get("whole") else [*found, given]
    return tuple(found)


@cache
def read(name: str) -> Mapping[str, Any]:
    """What one of the files says."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise BadFile(name, f"cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise BadFile(name, f"larger than {LARGEST} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadFile(name, f"is not a file of constants: {error}") from None
    table = from_toml(text, name)
    _check(name, table, "")
    return MappingProxyType(table)


def _check(name: str, table: Mapping[str, Any], where: str) -> None:
    """Refuse a constant that is not `{value = 1.0, source = "…"}` or `{factor = 1.0, source = "…"}`."""
    for key, given in table.items():
        inside = f"{where}.{key}" if where else key
        if "." not in key or where == "defect":
            if isinstance(given, Mapping):
                _check(name, given, inside)
            continue
        kinds = {"value", "factor"} & set(given) if isinstance(given, Mapping) else set()
        number = given[kinds.pop()] if len(kinds) == 1 else None
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not 0 <= number < math.inf
        ):
            raise BadFile(
                name, f'[{where}] "{key}" must have a value or a factor: a number of zero or more'
            )
        if not isinstance(given.get("source"), str):
            raise BadFile(
                name, f'[{where}] "{key}" must have a source: text that says where it is from'
            )
