"""Which kinds are looked at, in the order in which they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from mofa_operator.keys import (
    ADVISOR_POLICY,
    BATCH_JOB,
    CLUSTER_PROFILE,
    JOB_SET,
    NODE,
    PYTORCH_JOB,
    RAY_JOB,
    TRAIN_JOB,
    TRAINING_JOB,
    VOLCANO_JOB,
    Kind,
)

KINDS: Final[Mapping[str, Kind]] = {
    "JobSet": JOB_SET,
    "TrainJob": TRAIN_JOB,
    "PyTorchJob": PYTORCH_JOB,
    "VolcanoJob": VOLCANO_JOB,
    "RayJob": RAY_JOB,
    "Job": BATCH_JOB,
}
"""Existing kinds of jobs, by the names that settings use; Job is the plain one, and off unless it is named."""


def watched(names: Iterable[str]) -> tuple[Kind, ...]:
    """What decisions rest on before what is decided, so that the first decisions rest on everything.

    >>> [kind.kind for kind in watched(["JobSet"])]
    ['Node', 'ClusterProfile', 'AdvisorPolicy', 'JobSet', 'TrainingJob']
    """
    return (NODE, CLUSTER_PROFILE, ADVISOR_POLICY, *(KINDS[name] for name in names), TRAINING_JOB)
