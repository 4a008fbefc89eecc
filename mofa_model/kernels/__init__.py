"""Kernels: seconds of operators on a device, from surfaces that were fitted to measured calls.

May import: units, errors. Imported by: spec, which hands them to the estimate, presets, which finds them, and verbs.

One file a kind of operator says what a call does (`CallWork`); `operators` names them; `surface` prices work by a law with a table
of corrections over it; `files` reads and writes surfaces. The surfaces are `measured/DEVICE.json`, written by
`mofa calibrate kernels`, each with its source. Forward calls of one idle device or node, no launch from the host in them.
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
