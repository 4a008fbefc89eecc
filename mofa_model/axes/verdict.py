"""Why a combination of axis values is not in the answer: one reason each, the first that holds."""

from __future__ import annotations

import enum


class Rejection(enum.Enum):
    """Reasons in the order in which they are looked for."""

    NOT_IN_FRAMEWORK = "NotInFramework"
    NOT_MEASURED = "NotMeasured"
    CONSTRAINT = "Constraint"
    TENSOR_PARALLEL_CROSSES_NODE = "TensorParallelCrossesNode"
    NOT_DIVISIBLE = "NotDivisible"
    SEQUENCE_TOO_SHORT = "SequenceTooShort"
    MORE_STAGES_THAN_LAYERS = "MoreStagesThanLayers"
    TOO_FEW_MICRO_BATCHES = "TooFewMicroBatches"
    SCHEDULE_NOT_POSSIBLE = "ScheduleNotPossible"
    EXPERT_TENSOR_PARALLEL = "ExpertTensorParallel"
    SEQUENCE_PARALLEL_NEEDED = "SequenceParallelNeeded"
    OFFLOAD_UNPROVEN = "OffloadUnproven"
    GRAPHS_UNNEEDED = "GraphsUnneeded"
    DUPLICATE = "Duplicate"
    OUT_OF_MEMORY = "OutOfMemory"
    OUT_OF_HOST_MEMORY = "OutOfHostMemory"


MEANING = {
    Rejection.NOT_IN_FRAMEWORK: "the trainer cannot run it",
    Rejection.NOT_MEASURED: "no measured run of the stack or its relatives has it",
    Rejection.CONSTRAINT: "a constraint that was given rules it out",
    Rejection.TENSOR_PARALLEL_CROSSES_NODE: "tp is larger than the devices that share a scale-up link",
    Rejection.NOT_DIVISIBLE: "GPUs, batch, heads, layers, experts or sequence do not divide evenly",
    Rejection.SEQUENCE_TOO_SHORT: "a context-parallel rank would get fewer than 1024 tokens of a sequence",
    Rejection.MORE_STAGES_THAN_LAYERS: "a pipeline stage would hold no layer",
    Rejection.TOO_FEW_MICRO_BATCHES: "fewer micro-batches than pipeline stages",
    Rejection.SCHEDULE_NOT_POSSIBLE: "the schedule asks for other numbers of micro-batches or stages",
    Rejection.EXPERT_TENSOR_PARALLEL: "experts are split by tp or not at all",
    Rejection.SEQUENCE_PARALLEL_NEEDED: "experts beside tensor parallelism need sequence parallelism",
    Rejection.OFFLOAD_UNPROVEN: "activations go to the host only where that is asked for",
    Rejection.GRAPHS_UNNEEDED: "CUDA graphs only where launches are half of what the products take, or where they are asked for",
    Rejection.DUPLICATE: "says the same as another strategy: a feature has nothing to act on",
    Rejection.OUT_OF_MEMORY: "the fullest device has not enough memory",
    Rejection.OUT_OF_HOST_MEMORY: "a node has not enough main memory",
}
"""What each reason says to a person."""

LIFTABLE = (
    Rejection.NOT_MEASURED,
    Rejection.TENSOR_PARALLEL_CROSSES_NODE,
    Rejection.SEQUENCE_TOO_SHORT,
    Rejection.TOO_FEW_MICRO_BATCHES,
    Rejection.EXPERT_TENSOR_PARALLEL,
    Rejection.OFFLOAD_UNPROVEN,
    Rejection.GRAPHS_UNNEEDED,
)
"""Expert rules: defaults that a user may lift. The second and fourth are the paper's (section 4.1); the others ours."""
