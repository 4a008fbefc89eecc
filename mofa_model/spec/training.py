"""What is to be trained: batch, sequence, tokens and number formats."""

from __future__ import annotations

from dataclasses import dataclass, field

from mofa_model.checks import LATER, not_negative, whole
from mofa_model.errors import BadValue
from mofa_model.spec.documents import PackedDocuments
from mofa_model.spec.optimizer import UpdateRule
from mofa_model.spec.transformer import Transformer
from mofa_model.units import Bytes, Numeric

GEMM_FORMATS = ("bf16", "fp8", "fp4", "fp32")


@dataclass(frozen=True, kw_only=True, slots=True)
class Precision:
    """Number formats of a training recipe; widths are bytes per element."""

    name: str
    """Recipe id, for example bf16 or mxfp8."""
    gemm: str = "bf16"
    """Format of the linear layers' matrix products; fp16 runs at the bf16 rate, fp32 as TF32."""
    weight: Bytes = 2.0
    """Width of the weights that the GEMMs read. [B]"""
    gradient: Bytes = 4.0
    """Width of accumulated gradients. [B]"""
    optimizer: Bytes = 12.0
    """Master weight and two moments. [B]"""
    activation: Bytes = 2.0
    """Width of stored and sent activations. [B]"""
    dispatch: Bytes = 2.0
    """Width of tokens on their way to experts; they come back as activations. [B]"""
    reduce: Bytes = 4.0
    """Width of gradients while they are reduced. [B]"""
    gather: Bytes = 2.0
    """Width of parameters while they are gathered. [B]"""
    logit: Bytes = 4.0
    """Width of the logits that the loss keeps. [B]"""

    @property
    def quantised(self) -> bool:
        """Whether inputs of matrix products are brought into a narrower format first."""
        return self.gemm in {"fp8", "fp4"}

    def __post_init__(self) -> None:
        if self.gemm not in GEMM_FORMATS:
            raise BadValue("precision.gemm", self.gemm, f"one of {', '.join(GEMM_FORMATS)}")
        not_negative(
            weight=self.weight,
            gradient=self.gradient,
            optimizer=self.optimizer,
            activation=self.activation,
            dispatch=self.dispatch,
            reduce=self.reduce,
            gather=self.gather,
            logit=self.logit,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """One optimizer step and how many of them."""

    sequence: Numeric
    """Tokens in a sequence."""
    global_batch: Numeric
    """Sequences in an optimizer step."""
    precision: Precision
    """Number formats."""
    tokens: Numeric = 0
    """Tokens of the whole run; 0 = not stated."""
    optimizer: UpdateRule = field(default=UpdateRule(), metadata=LATER)
    """What updates the weights."""
    adapter_rank: Numeric = field(default=0, metadata=LATER)
    """Rank of the adapters that are trained beside frozen weights (LoRA); 0 = all weights are trained."""
    documents: PackedDocuments | None = field(default=None, metadata=LATER)
    """Documents that are packed into a sequence; None = each sequence is one."""

    def __post_init__(self) -> None:
        whole(sequence=self.sequence, global_batch=self.global_batch)
        not_negative(tokens=self.tokens, adapter_rank=self.adapter_rank)


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A model and its training: what the cluster is asked to do."""

    model: Transformer
    """The shape of the network."""
    training: Training
    """Batch, sequence and formats."""
