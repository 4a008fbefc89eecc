"""What one question may cost: spent before each table is made, whichever trainers and places it is searched in.

Costs are microseconds of a core of 2023, as they were fitted to 340 questions that were drawn to be dear; so the same question is
refused on every machine, and a busy one only takes longer.
"""

from __future__ import annotations

from typing import Final

MOST: Final = 6_500_000.0
"""Of one question. Of realistic ones the dearest known, 405B on at most 10,000,000 nodes for any trainer, takes 5,600,000. [us]"""
ASIDE: Final = 2_000_000.0
"""Of what is said beside an answer; where it would take more, it is not said. [us]"""
NUMBER: Final = 600.0
"""A number of nodes, whatever is found on it. [us]"""
ROW: Final = 0.3
"""A row of a table of shapes, legal or not. [us]"""
SHAPE: Final = 4.0
"""A legal shape, with what features it can have. [us]"""
BLOCK: Final = 6_500.0
"""A block of shapes of one schedule. [us]"""
STATE: Final = 0.5
"""A row of a block beside a state. [us]"""
WORK: Final = 800.0
"""A kind of work of a block, and again each choice of overlap that is timed. [us]"""
CELL: Final = 5.0
"""A strategy that is timed. [us]"""
RUNS: Final = 100.0
"""Runs of layers for which everything takes twice as long: each kind of stage is priced. [1]"""


class Spent(Exception):
    """Nothing is left."""


class Effort:
    """What is left of one question's effort."""

    def __init__(self, most: float = MOST) -> None:
        """Nothing is spent yet."""
        self.left = most
        """[us]"""
        self.runs = 1
        """Runs of layers of the model. [1]"""

    def spend(self, cost: float) -> None:
        """Take a cost off; raises `Spent` where it is more than is left. [us]"""
        self.left -= cost * (1.0 + self.runs / RUNS)
        if self.left < 0.0:
            raise Spent
