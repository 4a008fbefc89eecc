"""XIDs, the error numbers of NVIDIA's driver, by what they mean for the node.

Source: NVIDIA, "XID Errors" (docs.nvidia.com/deploy/xid-errors), its catalogue's columns of causes and immediate actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class XidMeaning(StrEnum):
    """Whose fault an XID is."""

    HARDWARE = "hardware"
    """The GPU, its memory, its links or its firmware: it wants a reset or a repair."""
    PROGRAM = "program"
    """Programs make it; the GPU goes on."""
    NOTE = "note"
    """It is told and work goes on."""
    CLEAN_UP = "clean-up"
    """What the driver says of a program that ended, whatever ended it."""


_PROGRAM: Final = frozenset(
    {1, 2, 3, 4, 5, 6, 7, 8, 13, 24, 31, 32, 37, 43, 68, 69, 80, 107, 126, 127, 128}
)
_NOTE: Final = frozenset({14, 15, 63, 66, 92, 96, 97, 99, 106, 108, 141, 154, 156, 157, 160})
_CLEAN_UP: Final = frozenset({45})
OFF_THE_BUS: Final = 79
"""The GPU does not answer any more."""


def meaning(code: int, stated: Mapping[str, str]) -> XidMeaning:
    """What an XID means: as somebody states it by its number, else as NVIDIA does; one that nobody knows is hardware's, because new ones are.

    >>> meaning(63, {}).value, meaning(63, {"63": "hardware"}).value
    ('note', 'hardware')
    """
    if (said := stated.get(str(code))) is not None:
        return XidMeaning(said)
    if code in _PROGRAM:
        return XidMeaning.PROGRAM
    if code in _NOTE:
        return XidMeaning.NOTE
    return XidMeaning.CLEAN_UP if code in _CLEAN_UP else XidMeaning.HARDWARE
