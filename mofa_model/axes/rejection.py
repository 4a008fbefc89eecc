"""Why a combination of axis values is not in the answer."""

from __future__ import annotations

from typing import Final, Self

from mofa_model.records import Category


class Rejection(Category):
    """Reasons in the order in which they are looked for: the first that holds is counted.

    Each has its word, what it says to a person, and whether it is an expert rule, a default that a
    user may lift.
    """

    NOT_IN_FRAMEWORK = "NotInFramework", "the trainer cannot run it"
    NOT_MEASURED = "NotMeasured", "no measured run of the stack or its relatives has it", True
    CONSTRAINT = "Constraint", "a constraint that was given rules it out"
    # This expert rule and the one of too few micro-batches are the paper's (section 4.1).
    TENSOR_PARALLEL_CROSSES_NODE = (
        "TensorParallelCrossesNode",
        "tp is larger than the devices that share a scale-up link",
        True,
    )
    NOT_DIVISIBLE = (
        "NotDivisible",
        "GPUs, batch, heads, layers, experts, sequence or quantised weights do not divide evenly",
    )
    SEQUENCE_TOO_SHORT = (
        "SequenceTooShort",
        "a context-parallel rank would get fewer than 1024 tokens of a sequence",
        True,
    )
    MORE_STAGES_THAN_LAYERS = "MoreStagesThanLayers", "a pipeline stage would hold no layer"
    TOO_FEW_MICRO_BATCHES = ("TooFewMicroBatches", "fewer micro-batches than pipeline stages", True)
    SCHEDULE_NOT_POSSIBLE = (
        "ScheduleNotPossible",
        "the schedule asks for other numbers of micro-batches or stages",
    )
    EXPERT_TENSOR_PARALLEL = ("ExpertTensorParallel", "experts are split by tp or not at all", True)
    SEQUENCE_PARALLEL_NEEDED = (
        "SequenceParallelNeeded",
        "experts beside tensor parallelism need sequence parallelism",
    )
    OFFLOAD_UNPROVEN = (
        "OffloadUnproven",
        "activations go to the host only where that is asked for",
        True,
    )
    GRAPHS_UNNEEDED = (
        "GraphsUnneeded",
        (
            "CUDA graphs only where launches are half of what the products take, "
            "or where they are asked for"
        ),
        True,
    )
    DUPLICATE = "Duplicate", "says the same as another strategy: a feature has nothing to act on"
    OUT_OF_MEMORY = "OutOfMemory", "the fullest device has not enough memory"
    OUT_OF_HOST_MEMORY = "OutOfHostMemory", "a node has not enough main memory"

    meaning: str
    liftable: bool

    def __new__(cls, word: str, meaning: str = "", liftable: bool = False) -> Self:
        """Make a reason whose value is its word; its meaning, and whether it may be lifted,
        stand beside.
        """
        member = object.__new__(cls)
        member._value_, member.meaning, member.liftable = word, meaning, liftable
        return member


LIFTABLE: Final = tuple(reason for reason in Rejection if reason.liftable)
"""Expert rules."""
