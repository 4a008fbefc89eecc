"""Kernels: seconds of operators on a device, from surfaces that were fitted to measured calls.

May import: units, errors. Imported by: spec, which hands them to the estimate, presets, which finds
them, and verbs.

`operators` states the work of a call of each operator (`CallWork`). `surface` prices work by a law
with a table of corrections over it. `measured_kernels` answers what an estimate asks. The surfaces
are in `measured/DEVICE.json`, written by `mofa calibrate kernels`, each with its source. They hold
forward calls of one idle device or node, without the launch from the host.
"""

from mofa_model.kernels.measured_kernels import (
    MeasuredAttention,
    MeasuredGather,
    MeasuredKernels,
    MeasuredProducts,
)
from mofa_model.kernels.operators import OPERATORS, OperatorKind
from mofa_model.kernels.surface import CallWork, Sheet, Surface, Timer

__all__ = [
    "OPERATORS",
    "CallWork",
    "MeasuredAttention",
    "MeasuredGather",
    "MeasuredKernels",
    "MeasuredProducts",
    "OperatorKind",
    "Sheet",
    "Surface",
    "Timer",
]
