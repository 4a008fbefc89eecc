"""What a check found, and the command that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial


class Weight(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    """All is as it should be."""
    UNKNOWN = "unknown"
    """You may not see it."""
    WEAKER = "weaker"
    """It works, but less well than it could."""
    BROKEN = "broken"
    """It does not work."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding."""

    weight: Weight
    about: str
    """What was looked at."""
    finding: str
    """What was found, in one sentence."""
    mend: str = ""
    """The command that mends it, or what to ask for."""


ok = partial(Diagnosis, Weight.OK)
unknown = partial(Diagnosis, Weight.UNKNOWN)
weaker = partial(Diagnosis, Weight.WEAKER)
broken = partial(Diagnosis, Weight.BROKEN)
