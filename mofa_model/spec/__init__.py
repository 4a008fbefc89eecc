"""What is given: frozen descriptions of the model, the training, the cluster and its calibration.

May import: units, errors. Imported by: everything above.
Numbers are SI. A number may be an array (a batch of cases of one kind, as calibration uses); a category never is.
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
from mofa_model.spec.training import Precision, Training, Workload
from mofa_model.spec.transformer import Attention, Experts, LatentAttention, Transformer

__all__ = [
    "Attention",
    "Calibration",
    "Cluster",
    "ComputeConstants",
    "Device",
    "Experts",
    "Host",
    "HostConstants",
    "LatentAttention",
    "Link",
    "LinkConstants",
    "MemoryConstants",
    "OverlapConstants",
    "Precision",
    "Training",
    "Transformer",
    "Workload",
]
