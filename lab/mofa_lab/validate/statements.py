"""Published statements against what we say: that a fine-tune fits a machine or does not, against
the chance that we give it; layouts of recipes, against the default pick, both priced alike; and
steps of cards that no constant was measured on. No law and no constant is fitted to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mofa_model.advice import advise
from mofa_model.advice.candidates import fits
from mofa_model.advice.predictions import priced
from mofa_model.answers.explain import explain
from mofa_model.answers.questions import AdviceQuestion, ExplainQuestion
from mofa_model.answers.training import request_of
from mofa_model.records import dataclass
from mofa_model.strategy import parse_strategy
from mofa_model.units import Bytes, Ratio

FITS: Final = Path(__file__).parents[2] / "data" / "statements" / "fits.json"
"""The statements with their sources."""
RECIPES: Final = FITS.with_name("recipes.json")
"""Recipes with their layouts and sources."""
STEPS: Final = FITS.with_name("steps.json")
"""Measured steps of cards in boxes without NVLink, and of others beside them."""
TRAINER: Final = "accelerate"
"""Whose search and constants answer: most of the trainers that are spoken of stand on it."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A statement, and what we say of it."""

    name: str
    fits: bool
    """Whether it is said to fit."""
    chance: Ratio
    memory: Bytes
    """What we expect of the fullest device; 0 where nothing was priced. [B]"""
    stated: Bytes
    """What the source measured; 0 where it does not say. [B]"""

    @property
    def agrees(self) -> bool:
        """Whether our chance to fit agrees with the statement: at least one half where
        it fitted.
        """
        return (self.chance >= 0.5) is self.fits


def statements(path: Path = FITS) -> list[dict[str, Any]]:
    """All statements of a file."""
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows


def judged(case: Mapping[str, Any]) -> Judged:
    """Our chance to fit for one published statement: of its layout, else of the best one."""
    asked = request_of(AdviceQuestion(**case["question"], framework=TRAINER))
    chance, memory = 0.0, 0.0
    if case["strategy"] is None:
        advice = advise(asked)
        if advice.odds is not None and advice.predicted is not None:
            chance, memory = float(advice.odds.fits), advice.predicted.memory_bytes.target
    else:
        problem = asked.problems[0]
        layout = priced(
            problem, parse_strategy(case["strategy"], problem.cluster.gpus, field="strategy")
        )
        memory = float(layout.footprint.peak)
        chance = float(fits(asked, problem, layout.coordinates, memory))
    return Judged(
        name=case["id"],
        fits=case["fits"],
        chance=chance,
        memory=memory,
        stated=(case["memory_gib"] or 0.0) * 2.0**30,
    )


def score(cases: Sequence[Mapping[str, Any]]) -> list[Judged]:
    """Our verdict on each published statement that a fine-tune fits a machine, or does not."""
    return [judged(case) for case in cases]


def slower(case: Mapping[str, Any]) -> Ratio | None:
    """How many times as long a step of the default pick takes as one of a recipe's layout; None
    where one of them has no answer.

    What a recipe does not say of its layout is completed as we would.
    """
    asked = {**case["question"], "top": 0}
    pick = advise(request_of(AdviceQuestion(**asked)))
    recipe = advise(request_of(AdviceQuestion(**asked, constraints=tuple(case["layout"]))))
    if pick.predicted is None or recipe.predicted is None:
        return None
    return pick.predicted.step_seconds.target / recipe.predicted.step_seconds.target


def step_error(case: Mapping[str, Any]) -> Ratio:
    """Our step over the measured one, less one."""
    asked = ExplainQuestion(**case["question"], strategy=case["strategy"])
    seconds: float = explain.of(asked).document["summary"]["step_seconds"]
    return seconds / float(case["step_seconds"]) - 1.0
