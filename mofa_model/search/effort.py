"""How much computing one question may cost. It is spent before each table is made.

Costs are microseconds of a core of 2023, as they were fitted to 175 questions that were drawn to be
dear; so the same question is refused on every machine, and a busy one only takes longer.
"""

from __future__ import annotations

import math
from typing import Final

from mofa_model.spec.transformer import Transformer

MOST: Final = 7_400_000.0
"""Of one question. Of realistic ones the dearest known, a preset on at most 2,048 nodes for any
trainer, takes 7,000,000. [us]"""
ASIDE: Final = 1_200_000.0
"""Most effort for a remark beside an answer; a dearer remark is left out. [us]"""
NUMBER: Final = 400.0
"""A number of nodes, whether it has legal shapes or not. [us]"""
PLACE: Final = 3_600.0
"""A number of nodes on which some shape is legal. [us]"""
ROW: Final = 0.12
"""A row of a table of shapes, legal or not. [us]"""
SHAPE: Final = 0.8
"""A legal shape, with what features it can have. [us]"""
STATE: Final = 1_100.0
"""A state that stands beside a block of shapes. [us]"""
BESIDE: Final = 0.95
"""A row of a block beside a state. [us]"""
WORK: Final = 1_050.0
"""A kind of work of a block, and again each choice of overlap that is timed. [us]"""
CELL: Final = 5.0
"""A strategy that is timed. [us]"""
RUNS: Final = 0.25
"""By how much more everything takes for twice as many runs of layers: stages are less alike. [1]"""
EXPERTS: Final = 0.25
"""By how much more everything takes where layers have experts. [1]"""


class Spent(Exception):
    """Nothing is left."""


class Effort:
    """What is left of one question's effort."""

    def __init__(self, most: float = MOST) -> None:
        """Nothing is spent yet."""
        self.left = most
        """[us]"""
        self.weight = 1.0
        """What the model makes of a cost. [1]"""

    def of(self, model: Transformer) -> None:
        """Count for a model from now on."""
        self.weight = (
            1.0 + RUNS * math.log2(len(model.runs)) + EXPERTS * (model.experts is not None)
        )

    def spend(self, cost: float) -> None:
        """Take a cost off; raises `Spent` where it is more than is left. [us]"""
        self.left -= cost * self.weight
        if self.left < 0.0:
            raise Spent
