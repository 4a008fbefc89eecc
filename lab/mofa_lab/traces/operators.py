"""What a kernel does, told by its name: NVIDIA's and AMD's libraries, Triton, NCCL and RCCL,
DeepEP, gloo.

A name is looked at once; the first row of the table that matches decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final

import numpy as np

from mofa_lab.traces.events import Array, EventKind, Trace


class Class(Enum):
    """Operator classes, as the report shows them."""

    GEMM = "GEMM"
    GROUPED = "grouped GEMM"
    ATTENTION = "attention"
    ELEMENTWISE = "norm, elementwise"
    OPTIMIZER = "optimizer"
    COPY = "copy"
    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    POINT = "p2p"
    BROADCAST = "broadcast, barrier"


CLASSES: Final = tuple(Class)
"""In the order of their numbers in arrays."""
COMMUNICATION: Final = frozenset(
    {
        Class.ALL_REDUCE,
        Class.ALL_GATHER,
        Class.REDUCE_SCATTER,
        Class.ALL_TO_ALL,
        Class.POINT,
        Class.BROADCAST,
    }
)
"""Classes that move data between ranks."""

_COLLECTIVE: Final = (
    (Class.ALL_REDUCE, r"all_?reduce"),
    (Class.REDUCE_SCATTER, r"reduce_?scatter"),
    (
        Class.ALL_TO_ALL,
        r"all_?to_?all|alltoall|internode::|intranode::|deep_?ep|\bep::.*(dispatch|combine|notify)",
    ),
    (Class.ALL_GATHER, r"all_?gather"),
    (
        Class.POINT,
        r"send_?recv|nccl\w*_(send|recv)|coalesced|gloo:(send|recv)|::(send|recv)_?\b|c10d::(isend|irecv)",
    ),
    (Class.BROADCAST, r"broadcast|barrier|nccl\w*_reduce|nccl\w*_scatter|nccl\w*_gather"),
)
_COMMUNICATING: Final = (
    r"nccl|rccl|gloo|c10d|mscclpp|nvshmem|deep_?ep|internode::|intranode::|\bep::cuda"
    r"|all_?reduce_kernel"
)
_COMPUTE: Final = (
    (Class.OPTIMIZER, r"adam(?!ard)|multi_tensor_|\blamb\b|_lamb_|fused_?sgd|optimizer\.step"),
    (Class.ATTENTION, r"flash|fmha|attn|attention|scaled_dot_product|_mha_|softmax.*(warp|masked)"),
    (
        Class.GROUPED,
        r"m_grouped|GroupProblemShape|grouped_mm|moe_gemm|fused_moe|_group_gemm",
    ),
    (
        Class.GEMM,
        r"gemm|cijk_|matmul|cublas|xmma|s\d+gemm|wgmma|nvjet|cutlass.*(mma|conv)|aten::(mm|addmm|bmm|linear)\b|gemv|dot_kernel",
    ),
    (
        Class.COPY,
        r"memcpy|memset|copydevice|_copy_tensor|direct_copy|copybuffer|fillbuffer|aten::(copy_|fill_|zero_)|catarray",
    ),
)
_TABLE: Final = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _COMPUTE)
_COLLECTIVES: Final = tuple(
    (kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _COLLECTIVE
)
_ANY_COLLECTIVE: Final = re.compile(_COMMUNICATING, re.IGNORECASE)
_HELPERS: Final = re.compile(
    r"grouped_gemm::\w+::utils::|fill_tensormaps|layer_norm", re.IGNORECASE
)
"""Named after a library of matrix products, but only moving memory."""


def class_of(name: str) -> Class:
    """Class of a kernel or operator; what nothing matches moves memory.

    >>> class_of("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)").value
    'all-gather'
    >>> class_of("Cijk_Ailk_Bljk_BBS_BH").value
    'GEMM'
    """
    if _ANY_COLLECTIVE.search(name):
        for kind, pattern in _COLLECTIVES:
            if pattern.search(name):
                return kind
    if _HELPERS.search(name):
        return Class.ELEMENTWISE
    for kind, pattern in _TABLE:
        if pattern.search(name):
            return kind
    return Class.ELEMENTWISE


def classes(names: Sequence[str]) -> Array:
    """Number of the class of each name."""
    return np.array([CLASSES.index(class_of(name)) for name in names], dtype=np.int8)


def classes_of(trace: Trace) -> Array:
    """Number of the class of each event, -1 for events that are not on a device; copies are copies
    whatever their name.
    """
    table = np.append(classes(trace.names), np.int8(0))
    numbers = table[trace.events.name]
    saying = [i for i, details in enumerate(trace.details) if "Collective name" in details]
    for place in saying:  # a kernel's own word counts more than its name, which may be generic
        kind = class_of(f"nccl_{trace.details[place]['Collective name']}")
        if kind in COMMUNICATION:
            numbers = np.where(trace.events.detail == place, np.int8(CLASSES.index(kind)), numbers)
    numbers = np.where(
        trace.events.kind == EventKind.COPY, np.int8(CLASSES.index(Class.COPY)), numbers
    )
    return np.where(trace.events.kind <= EventKind.COPY, numbers, np.int8(-1))


def communicates(numbers: Array) -> Array:
    """True where a class moves data between ranks."""
    table = np.array([kind in COMMUNICATION for kind in CLASSES] + [False])
    mask: Array = table[numbers]
    return mask
