"""The answer that every door gives: strategy, checkpoint interval, predictions with bounds, reasons.

May import: search, estimate, reliability, presets and what stands below. Imported by: manifest, verbs.

    answer   the types of an answer; frozen
"""

from mofa_model.advice.answer import (
    Advice,
    Alternative,
    Band,
    Counts,
    Current,
    FailureInput,
    Predicted,
    Status,
)

__all__ = [
    "Advice",
    "Alternative",
    "Band",
    "Counts",
    "Current",
    "FailureInput",
    "Predicted",
    "Status",
]
