"""Numbers as bars of blocks, for a terminal and wherever else text goes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_WIDTH: Final = 24
"""Characters of the longest bar. [1]"""
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


def bars(values: Sequence[float | None], width: int = _WIDTH) -> list[str]:
    """A bar for each number, the largest one as wide as `width`, to an eighth of a character; empty where there is no number.

    >>> bars([4.0, 2.0, 1.0, None], width=4)
    ['████', '██', '█', '']
    """
    most = max((one for one in values if one is not None), default=0.0)
    return ["" if one is None or most <= 0 else _bar(one / most * width) for one in values]


def _bar(length: float) -> str:
    whole, eighths = divmod(round(8 * max(0.0, length)), 8)
    return ("█" * whole + _EIGHTHS[eighths]).rstrip()
