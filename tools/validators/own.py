"""Packages that one trainer alone asks for, in the versions that it pins: they come before those
of all.
"""

from __future__ import annotations

import sys
from pathlib import Path


def use(trainer: str) -> None:
    """Let imports find the packages of a trainer first."""
    sys.path.insert(0, str(Path(sys.prefix) / "own" / trainer))
