"""Constants that no data sheet has: how well a software stack uses a device in a precision.

A constant may depend on device, precision, stack, operator and link, but never on a model, a layout
or a cluster. The values here are defaults for a stack that nobody measured; presets replace them,
with source and scatter.
"""

from __future__ import annotations

import enum
from dataclasses import field, fields, replace
from types import MappingProxyType
from typing import Any, Final

from mofa_model.checks import LATER, not_negative
from mofa_model.kernels import MeasuredKernels
from mofa_model.records import dataclass
from mofa_model.units import Bytes, Count, Numeric, Ratio, Seconds

LAWS: Final = MappingProxyType(
    {
        "compute.gemm_efficiency": "product",
        "compute.gemm_half_m": "product",
        "compute.gemm_half_n": "product",
        "compute.gemm_half_k": "product",
        "compute.attention_efficiency": "attention",
        "compute.attention_half": "attention",
        "links.scale_up_efficiency": "gather",
        "links.scale_up_hop": "gather",
        "links.collective": "gather",
    }
)
"""Constants of laws, each with the operator whose measured kernels replace that law."""


class _Constants:
    """Constants of one kind: each is zero or more."""

    __slots__ = ()

    def __post_init__(self) -> None:
        constants: Any = self
        not_negative(**{item.name: getattr(self, item.name) for item in fields(constants)})


@dataclass(frozen=True, kw_only=True)
class ComputeConstants(_Constants):
    """Rates of kernels on the device."""

    gemm_efficiency: Ratio = 0.75
    """Share of the peak that an infinitely large GEMM reaches. [1]"""
    gemm_half_m: Count = 150.0
    """Rows (tokens) at which a GEMM takes twice its ideal time. [1]"""
    gemm_half_n: Count = 150.0
    """The same for the output width. [1]"""
    gemm_half_k: Count = 150.0
    """The same for the contracted width. [1]"""
    gemm_shape: Ratio = 1.0
    """Factor on the three half sizes. [1]"""
    sustained: Ratio = 1.1
    """Time of measured products in a long run over that of single calls: clocks fall under load.
    [1]"""
    attention_pace: Ratio = 1.0
    """Time of attention over that of the measured kernels, where a stack has others. [1]"""
    low_precision_rate: Ratio = 1.0
    """Achieved FP8 or FP4 rate, as a share of its peak times `gemm_efficiency`. [1]"""
    grouped_penalty: Ratio = 2.0
    """Factor on the half sizes for the grouped GEMMs of experts. [1]"""
    attention_efficiency: Ratio = 0.45
    """Share of the bf16 peak that fused attention reaches on large shapes, causal FLOPs. [1]"""
    attention_half: Numeric = 8.0
    """Heads x tokens / 4096 on a device at which fused attention takes twice its ideal time. [1]"""
    attention_backward: Ratio = 2.5
    """Backward over forward time of fused attention. [1]"""
    attention_causal: Ratio = 0.5
    """Share of the s x s products that are computed: 0.5 with causal skipping, 1 without. [1]"""
    score_traffic: Bytes = 0.0
    """Bytes moved per attention score and pass where attention is not fused; 0 = fused. [B]"""
    memory_efficiency: Ratio = 0.75
    """Share of the memory bandwidth that elementwise kernels reach. [1]"""
    elementwise_passes: Ratio = 1.0
    """Elementwise traffic over that of well fused kernels. [1]"""
    stream_scale: Ratio = 1.0
    """The same of norms, residuals and rotary positions alone, beside it: 1 where they are fused.
    [1]"""
    cast_traffic: Bytes = 3.0
    """Bytes moved per GEMM input element to quantise it. [B]"""
    permute_passes: Ratio = 1.5
    """Traffic of sorting tokens by expert over the ideal. [1]"""
    logit_traffic: Bytes = 24.0
    """Bytes moved per logit, forward and backward. [B]"""
    optimizer_traffic: Bytes = 30.0
    """Bytes moved per parameter in the optimizer update. [B]"""
    optimizer_efficiency: Ratio = 0.67
    """Share of the memory bandwidth that the optimizer update reaches. [1]"""
    recompute_share: Ratio = 1.0
    """Measured over ideal time of recomputed operators. [1]"""
    layer_scale: Ratio = 1.0
    """Factor on the device time of a layer: a release of a stack that is known to be slower. [1]"""
    expert_scale: Ratio = 1.0
    """The same for layers with experts alone. [1]"""
    frozen_scale: Ratio = 1.0
    """Device time of a layer of frozen matrices with adapters beside them, over that of the same
    work where all is trained. [1]"""
    adapter_passes: Ratio = 1.0
    """Traffic of adapters over that of well fused kernels. [1]"""


@dataclass(frozen=True, kw_only=True)
class HostConstants(_Constants):
    """Time the host needs to launch work: a maximum with the device's time, not a sum."""

    layer: Seconds = 3.9e-3
    """Forward and backward of one dense layer, where tensors are sharded. [s]"""
    layer_unsharded: Seconds = 3.0e-3
    """The same at tp = 1. [s]"""
    layer_experts: Seconds = 9.0e-3
    """Forward and backward of one layer with experts. [s]"""
    expert_overlap: Ratio = 0.0
    """Extra share of a layer's launch time where its experts' exchange runs beside another
    micro-batch. [1]"""
    head: Seconds = 4.0e-3
    """Forward and backward of head and loss. [s]"""
    recompute: Ratio = 0.33
    """Extra share of a layer's launch time under full recomputation. [1]"""
    extra_node: Seconds = 0.0
    """Per layer and further node that the tensor-parallel group spans. [s]"""
    extra_rank: Seconds = 0.0
    """Per layer and tensor-parallel rank: a communication defect of some stacks; 0 = sound. [s]"""
    serial: Ratio = 0.0
    """Share of the smaller of host and device time that adds up when the tensor-parallel group
    leaves the node. [1]"""
    adapter: Seconds = 0.15e-3
    """Forward and backward of one adapter, beside the launches of its layer. [s]"""
    expert_visit: Seconds = 0.0
    """Forward pass of one expert where, beside adapters, experts run one after the other and the
    host waits for each; 0 = they are launched together. [s]"""
    graph_partial: Ratio = 0.6
    """Launch time left when parts of a layer are captured in graphs. [1]"""
    graph_full: Ratio = 0.15
    """Launch time left when the whole iteration is one graph. [1]"""
    micro_batch: Seconds = 1.0e-3
    """Per micro-batch and stage, beside everything else. [s]"""
    step: Seconds = 20e-3
    """Per optimizer step. [s]"""
    uneven: Ratio = 1.0
    """How unlike kernels of a layer are in length, so that some wait for launches where work is
    longer in all: 0 = alike. [1]"""


@dataclass(frozen=True, kw_only=True)
class LinkConstants(_Constants):
    """Rates of collectives on the links."""

    scale_up_efficiency: Ratio = 0.7
    """Share of the scale-up bandwidth that collectives reach. [1]"""
    scale_out_efficiency: Ratio = 0.8
    """Share of the NIC bandwidth that collectives reach. [1]"""
    scale_up_hop: Seconds = 5e-6
    """Latency of a ring hop inside the domain. [s]"""
    scale_out_hop: Seconds = 10e-6
    """Latency of a ring hop between nodes. [s]"""
    collective: Seconds = 10e-6
    """Fixed time of a collective: launch, and waiting for the last rank to join. [s]"""
    scale_decay: Ratio = 0.1
    """Exponent by which bandwidth falls with the nodes that a group spans, Eq. (3). [1]"""
    all_to_all_efficiency: Ratio = 0.5
    """Share of the collectives' bandwidth that all-to-all reaches. [1]"""
    point_efficiency: Ratio = 0.5
    """Share of the link bandwidth that a pipeline hop reaches. [1]"""
    point_latency: Seconds = 0.3e-3
    """Fixed time of a pipeline hop. [s]"""
    point_shared: Ratio = 0.0
    """Share of a pipeline hop that tensor ranks divide among themselves where no sequence
    parallelism has: 1 = each sends its part, and they gather. [1]"""
    message_copies: Count = 0.0
    """Copies in memory of a tensor-parallel message, beside its way over the link. [1]"""
    tensor_latency: Seconds = 5e-6
    """Per parameter tensor and rank of a sharded gradient collective. [s]"""
    tensor_latency_replicated: Seconds = 3e-6
    """The same for all-reduces of replicated gradients. [s]"""
    host_link_efficiency: Ratio = 0.8
    """Share of the host link that offloading reaches. [1]"""


@dataclass(frozen=True, kw_only=True)
class OverlapConstants(_Constants):
    """How much communication hides behind compute, and what that costs."""

    tensor: Ratio = 0.9
    """Exposed share of tensor-parallel collectives in the forward pass without overlap. [1]"""
    tensor_backward: Ratio = 0.6
    """The same in the backward pass, where weight gradients can run beside them. [1]"""
    tensor_overlapped: Ratio = 0.4
    """Exposed share with asynchronous or user-buffer overlap, Eq. (20). [1]"""
    context: Ratio = 0.3
    """Exposed share of ring attention's messages where compute could cover them. [1]"""
    expert_overlapped: Ratio = 0.4
    """Exposed share of all-to-all with overlap, Eq. (22). [1]"""
    data: Ratio = 0.5
    """Share of a micro-batch's compute that hides sharded gradient collectives, Eq. (24); 0 = no
    overlap. [1]"""
    data_replicated: Ratio = 0.3
    """The same for all-reduces of replicated gradients. [1]"""
    data_tail: Ratio = 0.1
    """Share of gradient collectives that never hides. [1]"""
    gather: Ratio = 0.7
    """Share of a micro-batch's compute that hides fully sharded gathers and reduces. [1]"""
    gather_tail: Ratio = 0.08
    """Share of those that never hides. [1]"""
    slow_down: Ratio = 1.0
    """Compute over undisturbed compute while communication runs beside it. [1]"""
    straggler: Ratio = 0.005
    """Growth of the step per doubling of the nodes. [1]"""


@dataclass(frozen=True, kw_only=True)
class MemoryConstants(_Constants):
    """Device memory that a stack keeps beside the bare tensors."""

    activation_scale: Ratio = 1.0
    """Measured over ideal stored activations of a layer. [1]"""
    low_precision_input: Ratio = 0.5
    """Width of what FP8 and FP4 GEMMs keep of their inputs, over the activation width; 1 = the wide
    tensor is kept. [1]"""
    gathered_input: Ratio = 0.0
    """Whole copies of a layer's input that each micro-batch in flight costs beyond the second.
    [1]"""
    cached_gathers: Numeric = 0.0
    """Full-size layer inputs that the allocator keeps although tensor parallelism is done with
    them. [1]"""
    score: Bytes = 0.0
    """Bytes kept per attention score; 0 = fused, 5 = softmax, mask and dropout of an unfused core.
    [B]"""
    mask: Bytes = 0.0
    """Bytes of a dropout mask per element of the residual stream; 0 = no dropout. [B]"""
    unfused: Ratio = 0.0
    """Share of the tensors between elementwise kernels of a layer that are kept: 0 where norms and
    activation functions are fused. [1]"""
    autocast: Ratio = 0.0
    """1 where unsharded weights are as wide as their update, and each product casts what it reads:
    the residual stream is as wide, and narrow copies of weights and inputs are kept. [1]"""
    frozen_gate: Ratio = 1.0
    """Width in which the input of an activation function waits beside adapters in FP8 and FP4, over
    the activation width. [1]"""
    backward_copies: Ratio = 1.0
    """Gradients alive in the backward pass of a layer, over the activations of its feed-forward
    part. [1]"""
    logit_copies: Numeric = 2.0
    """Copies of the logits alive at the loss peak, in the precision's logit width. [1]"""
    gather_copies: Numeric = 2.0
    """Full-size layer inputs that tensor-parallel collectives write to. [1]"""
    bucket: Bytes = 0.0
    """Bytes per parameter of reduction buffers, where gradients are reduced over data-parallel
    ranks. [B]"""
    partition: Bytes = 0.0
    """Bytes per parameter of gather buffers, where ranks own parts of the optimizer states. [B]"""
    update: Bytes = 0.0
    """Bytes per parameter that a rank updates, for the time of the update. [B]"""
    update_copies: Numeric = 0.0
    """Copies of a moment that the update makes and frees. [1]"""
    fresh_gradients: Ratio = 0.0
    """1 where gradients are freed after each step: those of a lone micro-batch come as its
    activations go; 0 = they have a place of their own. [1]"""
    root_unit: Ratio = 0.0
    """1 where a sharded embedding is gathered with the head, for the whole step. [1]"""
    input_gradients: Ratio = 0.0
    """Gradients of recomputed layers' inputs that stay until the backward pass is over, where
    frozen weights are sharded, over the inputs. [1]"""
    sharded_weight: Bytes = 0.0
    """Width of weight shards kept beside the master weights under full sharding; 0 = cast when
    gathered. [B]"""
    workspace: Bytes = 0.0
    """Workspaces of matrix products that come from the allocator. [B]"""
    grouped_workspace: Bytes = 0.0
    """Further ones of the grouped products of experts. [B]"""
    spare_gradient: Bytes = 0.0
    """Bytes per parameter of one layer, of the empty gradients that fused accumulation hands on.
    [B]"""
    buffer: Bytes = 1.0 * 2**30
    """Communication buffers and what else is there before the first layer, beside the allocator.
    [B]"""
    fragmentation: Ratio = 0.03
    """Reserved over allocated memory, minus one. [1]"""
    usable: Ratio = 0.94
    """Share of the device memory that a run can reserve before it fails. [1]"""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """All constants of one device, precision and stack, and the stack's habits."""

    stack: str = "default"
    """Stack preset id."""
    placement: str = "even"
    """How layers go to stages: `even`, `slots` (embedding and head count as a layer each) or
    `cost`."""
    tensor_overlap: bool = False
    """True where the stack overlaps tensor-parallel collectives by default."""
    compute: ComputeConstants = field(default_factory=ComputeConstants)
    """Kernels."""
    host: HostConstants = field(default_factory=HostConstants)
    """Launches."""
    links: LinkConstants = field(default_factory=LinkConstants)
    """Collectives."""
    overlap: OverlapConstants = field(default_factory=OverlapConstants)
    """Hiding."""
    memory: MemoryConstants = field(default_factory=MemoryConstants)
    """Residents."""
    kernels: MeasuredKernels | None = field(default=None, metadata=LATER)
    """Measured kernels; None = the laws of `compute` hold."""

    def stated(self, path: str, value: Numeric) -> Calibration:
        """The calibration with one constant changed, by its path, for example `links.collective`.

        The constant of a law also removes the measured kernels that would stand in for that law.

        >>> Calibration().stated("host.step", 0.5).host.step
        0.5
        """
        group, _, name = path.partition(".")
        changes: dict[str, Any] = {group: replace(getattr(self, group), **{name: value})}
        if self.kernels is not None and path in LAWS:
            kernels: dict[str, Any] = {LAWS[path]: None}
            changes["kernels"] = replace(self.kernels, **kernels)
        return replace(self, **changes)


class Roofline(enum.Enum):
    """The paper's three ways to model compute (its section 5.7, Fig. 10)."""

    THEORETICAL = "theoretical"
    """Eq. (19) with the peaks and bandwidths of the data sheet, every kernel fused."""
    MODIFIED = "modified"
    """Eq. (19) with the rates that large shapes reach, Eq. (17): the straight lines of a fit."""
    SHAPED = "shaped"
    """The same with a penalty for small shapes, fitted on profiles of operators: the default."""


_HALVES: Final = dict.fromkeys(("gemm_half_m", "gemm_half_n", "gemm_half_k", "attention_half"), 0.0)
_IDEAL: Final = dict.fromkeys(
    (
        "gemm_efficiency",
        "low_precision_rate",
        "attention_efficiency",
        "memory_efficiency",
        "elementwise_passes",
        "stream_scale",
        "permute_passes",
        "optimizer_efficiency",
        "recompute_share",
        "layer_scale",
        "expert_scale",
    ),
    1.0,
)
_CHANGED: Final[dict[Roofline, dict[str, float]]] = {
    Roofline.THEORETICAL: {**_IDEAL, **_HALVES, "score_traffic": 0.0},
    Roofline.MODIFIED: _HALVES,
    Roofline.SHAPED: {},
}


def under(roofline: Roofline, calibration: Calibration) -> Calibration:
    """A calibration whose kernels follow a roofline.

    >>> under(Roofline.THEORETICAL, Calibration()).compute.gemm_efficiency
    1.0
    """
    changed: dict[str, Any] = _CHANGED[roofline]
    compute: ComputeConstants = replace(calibration.compute, **changed)
    kernels = calibration.kernels if roofline is Roofline.SHAPED else None
    return replace(calibration, compute=compute, kernels=kernels)
