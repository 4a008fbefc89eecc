"""Frozen descriptions of a question: the model, the training, the cluster and its calibration.

May import: blocks, kernels, checks, units, errors. Imported by: everything above. Numbers are SI. A
number may be an array (a batch of cases of one kind, as calibration uses); a category never is.
"""

from mofa_model.spec.calibration import (
    Calibration,
    ComputeConstants,
    HostConstants,
    LinkConstants,
    MemoryConstants,
    OverlapConstants,
)
from mofa_model.spec.cluster import Cluster, Device, Host, Link
from mofa_model.spec.training import Lengths, Precision, Training, UpdateRule, Workload
from mofa_model.spec.transformer import Run, Transformer
from mofa_model.spec.tuning import Adapters, FrozenFormat

__all__ = [
    "Adapters",
    "Calibration",
    "Cluster",
    "ComputeConstants",
    "Device",
    "FrozenFormat",
    "Host",
    "HostConstants",
    "Lengths",
    "Link",
    "LinkConstants",
    "MemoryConstants",
    "OverlapConstants",
    "Precision",
    "Run",
    "Training",
    "Transformer",
    "UpdateRule",
    "Workload",
]
