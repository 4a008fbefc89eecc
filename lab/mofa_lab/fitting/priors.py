"""Which constants a campaign may move, and from where: priors.toml."""

from __future__ import annotations

import tomllib
from importlib import resources

from mofa_model.calibrate.constants import FreeConstant, entries_of


def priors(text: str | None = None) -> tuple[FreeConstant, ...]:
    """All entries of priors.toml, fixed ones included, in order."""
    where = resources.files("mofa_lab.fitting").joinpath("priors.toml")
    return entries_of(tomllib.loads(where.read_text(encoding="utf-8") if text is None else text))
