"""The answer that every door gives: strategy, checkpoint interval, predictions with bounds,
reasons.

May import: search, schedule, estimate, reliability, bands, presets and what stands below. Imported
by: manifest, verbs.

    request      the question
    candidates   where is searched, and the odds of what is found
    predictions  what one layout is expected to do: replay, checkpoints, figures with bounds
    choice       the rule: of layouts that cannot be told apart the simplest; its status and doubts
    probes       short runs that would make the choice surer
    reasons      why the winner wins, and what would change the answer
    compose      the entry: joins them, and lists the numbers that the inputs hash covers
    answer       the types of an answer
    measured_today   today's layout with its measured step
    failed_layout    a layout that ran out of memory
    sizes        which size a job should have: of several questions the best that surely fits
"""

from mofa_model.advice.answer import (
    Advice,
    Alternative,
    Current,
    Frontier,
    Odds,
    Predicted,
    Status,
)
from mofa_model.advice.compose import advise, deciding_numbers, memory_of_today
from mofa_model.advice.failed_layout import with_failed
from mofa_model.advice.measured_today import with_measured_today
from mofa_model.advice.request import (
    OBJECTIVES,
    ByTrainer,
    LearnedMemory,
    Request,
    Unplaced,
    assumed_reliability,
    by_trainer,
)
from mofa_model.advice.sizes import SURE, Size, best_size, ranked, size_of, sizes_of

__all__ = [
    "OBJECTIVES",
    "SURE",
    "Advice",
    "Alternative",
    "ByTrainer",
    "Current",
    "Frontier",
    "LearnedMemory",
    "Odds",
    "Predicted",
    "Request",
    "Size",
    "Status",
    "Unplaced",
    "advise",
    "assumed_reliability",
    "best_size",
    "by_trainer",
    "deciding_numbers",
    "memory_of_today",
    "ranked",
    "size_of",
    "sizes_of",
    "with_failed",
    "with_measured_today",
]
