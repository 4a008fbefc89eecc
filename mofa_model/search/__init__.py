"""Finds the best of all legal strategies, and accounts for every one that it does not take.

May import: estimate, reliability and what stands below; numpy and the standard library. Imported
by: advice, verbs.

    explore            the entry: question, candidate, ranking; walks node counts and precisions
    axes               the values on every axis of one search, and the constraints on them
    space              enumerates legal shapes and their features, and counts the rest
    blocks             rows of one schedule, with optimizer states, options of a micro-batch and
                       choices of overlap
    local              the work of one device, on the distinct local shapes
    memory_fit         what has no room at all, and what fits of every state beside an option
    price              memory first, then time, by rising step times that shapes cannot beat
    rank               keeps the best of the stream, and how much computing is left to a question

A strategy that is not chosen is counted once: raw = searched + pruned + rejected.
"""

from mofa_model.axes.frameworks import ANY, Framework, framework, frameworks, trainers
from mofa_model.axes.rejection import LIFTABLE, Rejection
from mofa_model.search.axes import Constraint, parse_constraint, parse_constraints
from mofa_model.search.explore import (
    Candidate,
    Ranking,
    SearchCase,
    SearchQuestion,
    allows,
    require,
    search,
)
from mofa_model.search.rank import ASIDE, Effort, Factor, Score

__all__ = [
    "ANY", "ASIDE", "LIFTABLE", "Candidate", "Constraint", "Effort", "Factor", "Framework",
    "Ranking", "Rejection", "Score", "SearchCase", "SearchQuestion", "allows",
    "framework", "frameworks", "parse_constraint", "parse_constraints", "require", "search",
    "trainers",
]  # fmt: skip
