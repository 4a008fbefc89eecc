"""The answer that every door gives: strategy, checkpoint interval, predictions with bounds, reasons.

May import: search, schedule, estimate, reliability, bands, presets and what stands below. Imported by: manifest, verbs.

    request     what is asked
    saves       what checkpoints cost, and the score that the search minimises
    weighed     a candidate's odds, and what memory makes of its objective
    prospects   where is looked
    finalists   the best few, replayed
    choice      the rule: of what cannot be told apart the simplest
    probes      short runs that would make the choice surer
    reasons     why the winner wins, what would change the answer
    confidence  bands, caveats
    verdict     status and doubts
    numbers     what odds and rule rest on, for the inputs hash
    compose     joins them: the entry
    answer      the types of an answer; frozen
"""

from mofa_model.advice.answer import (
    Advice,
    Alternative,
    Counts,
    Current,
    FailureInput,
    Frontier,
    Odds,
    Predicted,
    Status,
)
from mofa_model.advice.compose import advise
from mofa_model.advice.confidence import failure_inputs
from mofa_model.advice.request import (
    OBJECTIVES,
    ByTrainer,
    LearnedMemory,
    Request,
    Unplaced,
    assumed_reliability,
    by_trainer,
)

__all__ = [
    "OBJECTIVES",
    "Advice",
    "Alternative",
    "ByTrainer",
    "Counts",
    "Current",
    "FailureInput",
    "Frontier",
    "LearnedMemory",
    "Odds",
    "Predicted",
    "Request",
    "Status",
    "Unplaced",
    "advise",
    "assumed_reliability",
    "by_trainer",
    "failure_inputs",
]
