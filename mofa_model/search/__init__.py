"""Finds the best of all legal strategies, and accounts for every one that it does not take.

May import: estimate, reliability and what stands below; numpy and the standard library. Imported
by: advice, verbs.

    explore            the entry: question, candidate, ranking; walks node counts and precisions
    axes               the values on every axis of one search
    constraints        what fixes, lists or bounds an axis, as people write it
    space              enumerates legal shapes and their features, and counts the rest
    lower_bound        step times that shapes cannot beat, and the order in which they are priced
    blocks             rows of one schedule, with options of a micro-batch and choices of overlap
    optimizer_states   what stays in memory and is sent once a step
    local              the work of one device, on the distinct local shapes
    memory_fit         what has no room at all, and what fits of every state beside an option
    price              memory first, then time
    rank               keeps the best of the stream
    effort             how much computing one question may cost

A strategy that is not chosen is counted once: raw = searched + pruned + rejected.
"""

from mofa_model.axes.frameworks import ANY, Framework, framework, frameworks, trainers
from mofa_model.axes.rejection import LIFTABLE, Rejection
from mofa_model.search.constraints import Constraint, parse_constraint, parse_constraints
from mofa_model.search.effort import ASIDE, Effort
from mofa_model.search.explore import (
    Candidate,
    Ranking,
    SearchCase,
    SearchQuestion,
    allows,
    require,
    search,
)
from mofa_model.search.rank import Factor, Score

__all__ = [
    "ANY", "ASIDE", "LIFTABLE", "Candidate", "Constraint", "Effort", "Factor", "Framework", "Ranking",
    "Rejection", "Score", "SearchCase", "SearchQuestion", "allows",
    "framework", "frameworks", "parse_constraint", "parse_constraints", "require", "search", "trainers",
]  # fmt: skip
