"""Memory of a device that keeps optimizer states or activations in its host, and what the host then holds.

The paper's tables hold offloaded runs of LLaMA3-405B alone; `paper_peak_memory` is its arithmetic to the letter, and
differs from our estimate in three places: resident inputs count virtual stages instead of micro-batches in flight,
a layer is 31.25 sbh/t instead of the 32 sbh/t of its Table 2, and M_0 is one constant.
"""

from __future__ import annotations

import numpy as np

from mofa_model.equations.memory import peak_memory, sharded_bytes, static_memory
from mofa_model.units import GIB, Bytes, Count, Numeric

PAPER_RESERVE = 8.0 * GIB
"""M_0 of Eq. (6), from the numbers of Tables 6 and 7; the text does not state it. [B]"""
PAPER_LAYER = 31.25
"""Stored bytes of a layer per sbh/t, from the same numbers. [B]"""


def device_optimizer_bytes(optimizer: Bytes, *, on_host: bool) -> Bytes:
    """Optimizer bytes per parameter on the device, Eq. (27): none where they live in the host. [B]

    >>> device_optimizer_bytes(16.0, on_host=True)
    0.0
    """
    return 0.0 * optimizer if on_host else optimizer


def offloaded_activation(layer: Bytes, layer_input: Bytes, inputs: Count) -> Bytes:
    """Activations left on a device that offloads them, Eq. (33): A_layer + n A_in. [B]

    The paper counts n = v L/p inputs. Ours counts the inputs of all micro-batches in flight, n = n_inflight L/p, since
    nothing in the schedule lets go of an input before its backward pass.

    >>> offloaded_activation(5.0e8, 3.4e7, 32)
    1588000000.0
    """
    return layer + inputs * layer_input


def host_activation(
    in_flight: Count, layers: Count, layer: Bytes, layer_input: Bytes, devices: Count
) -> Bytes:
    """Activations that the devices of a node park in its host: n_inflight l (A - A_in) G. Ours. [B]

    >>> host_activation(2, 16, 5.0e8, 1.0e8, 8)
    102400000000.0
    """
    return in_flight * layers * (layer - layer_input) * devices


def host_optimizer(parameters: Count, optimizer: Bytes, gradient: Bytes, devices: Count) -> Bytes:
    """Optimizer states and the gradients they take, of the devices of a node, in its host. Ours. [B]

    >>> host_optimizer(6.44e9, 12.0, 4.0, 8)
    824320000000.0
    """
    return parameters * (optimizer + gradient) * devices


def paper_peak_memory(
    *,
    layers: Count,
    hidden: Count,
    ffn: Count,
    heads: Count,
    kv_heads: Count,
    vocabulary: Count,
    sequence: Count,
    micro_batch: Count,
    tensor: Count,
    pipeline: Count,
    data: Count,
    virtual: Count,
    host_optimizer: Numeric,
) -> Bytes:
    """Peak of the first stage as Tables 6 and 7 print it: Eq. (4), (25) or (27), (33) and (6) with 2 + 2 + 16/d B. [B]

    Row 1 of Table 6, LLaMA3-405B on 64 devices:

    >>> peak = paper_peak_memory(layers=128, hidden=16384, ffn=53248, heads=128, kv_heads=16, vocabulary=128000,
    ...     sequence=8192, micro_batch=1, tensor=8, pipeline=8, data=1, virtual=2, host_optimizer=True)
    >>> round(float(peak) / GIB, 2)
    34.46
    """
    s, b, h, t, p = sequence, micro_batch, hidden, tensor, pipeline
    layer = 2.0 * h * h * (1.0 + kv_heads / heads) + 3.0 * h * ffn
    parameters = layer * layers / p / t + vocabulary * h / t
    optimizer = np.where(host_optimizer, 0.0, sharded_bytes(16.0, data))
    unit = s * b * h / t
    dynamic = offloaded_activation(PAPER_LAYER * unit, 2.0 * unit, virtual * (layers / p))
    return peak_memory(static_memory(parameters, 2.0, 2.0, optimizer), dynamic, PAPER_RESERVE)
