"""What a check found: what is so, and where something is missing, the command that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Weight(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    """As it should be."""
    UNKNOWN = "unknown"
    """You may not see it."""
    WEAKER = "weaker"
    """It works, and less well than it could."""
    BROKEN = "broken"
    """Something does not work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """One finding."""

    about: str
    """What was looked at."""
    weight: Weight = Weight.OK
    """How much it matters."""
    found: str
    """What is so, in one sentence."""
    mend: str = ""
    """The command that mends it, or what to ask for."""


def ok(about: str, found: str) -> Diagnosis:
    """As it should be."""
    return Diagnosis(about=about, found=found)


def unknown(about: str, found: str, mend: str = "") -> Diagnosis:
    """You may not see it."""
    return Diagnosis(about=about, weight=Weight.UNKNOWN, found=found, mend=mend)


def weaker(about: str, found: str, mend: str) -> Diagnosis:
    """It works, and less well than it could."""
    return Diagnosis(about=about, weight=Weight.WEAKER, found=found, mend=mend)


def broken(about: str, found: str, mend: str) -> Diagnosis:
    """Something does not work."""
    return Diagnosis(about=about, weight=Weight.BROKEN, found=found, mend=mend)
