"""What is chosen: the parallel layout and the features that trade time for memory.

Degrees (tp, pp, …) are numbers or arrays; categories (schedule, sharding, …) are Python values. So one `Strategy` is
either a single layout or a *family* of layouts that differ in degrees alone, and every equation takes both.

    strategy_text.parse_strategy("tp=8,pp=8,dp=32,vpp=2,sp=true,recompute=selective,optimizer=distributed")
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mofa_model.errors import BadValue
from mofa_model.schedules import ONE_F_ONE_B, Schedule
from mofa_model.spec.checks import not_negative, whole
from mofa_model.units import Numeric


class Sharding(enum.Enum):
    """What data-parallel ranks share out among themselves; each level includes the one before."""

    NONE = "replicated"
    OPTIMIZER = "distributed"  # ZeRO-1
    GRADIENTS = "zero2"
    WEIGHTS = "zero3"  # FSDP


class Recompute(enum.Enum):
    """Which activations are computed again in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"  # the modules named in `recompute_modules`
    FULL = "full"  # whole layers; `recompute_layers` of each stage, 0 = all


class ContextMode(enum.Enum):
    """How context-parallel ranks see each other's keys and values."""

    RING = "ring"
    ALL_TO_ALL = "a2a"


class Placement(enum.Enum):
    """Where optimizer states live and are updated."""

    DEVICE = "device"
    HOST = "cpu"


class Graphs(enum.Enum):
    """How much of an iteration is captured in CUDA graphs."""

    NONE = "none"
    PARTIAL = "partial"
    FULL = "full"


MODULES = (
    "core_attn",
    "layernorm",
    "mlp",
    "mlp_act",
    "moe",
    "moe_act",
    "mla_up_proj",
    "per_op",
    "all_but_attention_output",
)
"""Modules that selective recomputation can name."""

ACTIVATIONS = "activations"
"""Offloading of everything but the inputs of layers."""
LAYER_INPUT = "layer_input"
"""Offloading of the inputs of layers that are recomputed."""
OFFLOADED = (
    ACTIVATIONS,
    LAYER_INPUT,
    "attn_norm",
    "qkv_linear",
    "core_attn",
    "attn_proj",
    "mlp_norm",
    "expert_fc1",
    "moe_act",
)
"""What offloading can name: all activations, inputs of layers, or inputs of modules."""

DEGREES = ("tp", "pp", "cp", "dp", "ep", "etp", "vpp", "mbs", "shard", "recompute_layers", "chunks")
"""Fields that may be arrays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategy:
    """One parallel layout, or a family of them."""

    tp: Numeric = 1
    """Tensor-parallel size."""
    pp: Numeric = 1
    """Pipeline stages."""
    cp: Numeric = 1
    """Context-parallel size."""
    dp: Numeric = 1
    """Data-parallel size of the dense part."""
    ep: Numeric = 1
    """Expert-parallel size."""
    etp: Numeric = 1
    """Tensor-parallel size inside an expert."""
    vpp: Numeric = 1
    """Virtual stages per device."""
    mbs: Numeric = 1
    """Sequences in a micro-batch."""
    shard: Numeric = 0
    """Data-parallel ranks that share one copy of what is sharded; 0 = all of them."""
    schedule: Schedule = ONE_F_ONE_B
    """Order of passes; interleaved where vpp > 1."""
    sharding: Sharding = Sharding.OPTIMIZER
    """ZeRO level."""
    sequence_parallel: bool = False
    """Norms and residuals sharded over tp as well."""
    context_mode: ContextMode = ContextMode.RING
    """How context parallelism communicates."""
    recompute: Recompute = Recompute.NONE
    """Activation recomputation."""
    recompute_modules: frozenset[str] = frozenset({"core_attn"})
    """What selective recomputation names."""
    recompute_layers: Numeric = 0
    """Layers per stage under full recomputation; 0 = all."""
    chunks: Numeric = 1
    """MemFine: chunks in which experts run and are recomputed; 1 = whole."""
    offload: frozenset[str] = frozenset()
    """Activations that wait in host memory between forward and backward, of `OFFLOADED`."""
    optimizer: Placement = Placement.DEVICE
    """Home of the optimizer states."""
    tensor_overlap: bool = False
    """Tensor-parallel collectives overlap GEMMs, Eq. (20)."""
    data_overlap: bool = True
    """Gradient and parameter collectives overlap compute, Eq. (24), where the stack can."""
    pipeline_overlap: bool = True
    """Pipeline hops overlap compute, Eq. (23)."""
    expert_overlap: bool = False
    """All-to-all overlaps compute, Eq. (22)."""
    graphs: Graphs = Graphs.NONE
    """CUDA graphs."""

    def __post_init__(self) -> None:
        whole(tp=self.tp, pp=self.pp, cp=self.cp, dp=self.dp, ep=self.ep, etp=self.etp)
        whole(vpp=self.vpp, mbs=self.mbs, chunks=self.chunks)
        not_negative(shard=self.shard, recompute_layers=self.recompute_layers)
        unknown = self.recompute_modules - set(MODULES)
        if unknown:
            raise BadValue("recompute", ", ".join(sorted(unknown)), f"modules: {', '.join(MODULES)}")
        unknown = self.offload - set(OFFLOADED)
        if unknown:
            raise BadValue("offload", ", ".join(sorted(unknown)), f"of: {', '.join(OFFLOADED)}")

    @property
    def gpus(self) -> Numeric:
        """Devices that the layout occupies."""
        return self.tp * self.pp * self.cp * self.dp

    def __len__(self) -> int:
        """Rows of a family; 1 for a single layout."""
        return int(np.broadcast(*(getattr(self, name) for name in DEGREES)).size)

    def row(self, index: int) -> Strategy:
        """One layout of a family, as plain numbers."""
        shape = np.broadcast_shapes(*(np.shape(getattr(self, name)) for name in DEGREES))
        degrees = {n: np.broadcast_to(getattr(self, n), shape).reshape(-1)[index].item() for n in DEGREES}
        return replace(self, **degrees)

    def rows(self, index: Any) -> Strategy:
        """The layouts of a family that an index or a mask selects."""
        shape = np.broadcast_shapes(*(np.shape(getattr(self, name)) for name in DEGREES))
        picked: dict[str, Any] = {
            n: v if np.ndim(v := getattr(self, n)) == 0 else np.broadcast_to(v, shape)[index] for n in DEGREES
        }
        return replace(self, **picked)
