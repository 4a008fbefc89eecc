"""The feed-forward part that every token passes: two matrices, or three where one gates the
other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from mofa_model.blocks.block import (
    ALL,
    EACH,
    Block,
    Cut,
    Elementwise,
    Projection,
    RecomputedWork,
    Rows,
    SavedTensor,
)
from mofa_model.checks import not_negative, whole
from mofa_model.records import dataclass
from mofa_model.units import Count, Numeric

GATED_PASSES: Final = 3.5
"""Reads and writes of an FFN-wide tensor by a gated activation function. Source: counted on fused
kernels."""
PLAIN_PASSES: Final = 2.5
"""The same by a plain one."""


def both_ways(
    hidden: Count, width: Count, *, gated: bool, bias: bool, rows: Rows = Rows.TOKENS
) -> tuple[Projection, ...]:
    """Matrices into an activation function and out of it: 3 h g where gated, else 2 h g, Table
    2.
    """
    prefix = "expert_" if rows is Rows.ROUTED else ""
    inputs = tuple((f"{prefix}{name}", width) for name in (("gate", "up") if gated else ("up",)))
    return (
        Projection(n=len(inputs) * width, k=hidden, linears=inputs, bias=bias, rows=rows),
        Projection(
            n=hidden,
            k=width,
            cut=Cut.INPUT,
            bias=bias,
            rows=rows,
            linears=((f"{prefix}down", hidden),),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class FeedForward(Block):
    """SwiGLU and its kin, or a plain activation function between two matrices."""

    word: ClassVar = "dense"
    recomputed_work: ClassVar[Mapping[str, RecomputedWork]] = {
        "mlp": RecomputedWork(1.0, 1.0),
        "mlp_act": RecomputedWork(0.0, 0.5),
        "moe_act": RecomputedWork(0.0, 0.25),
    }

    width: Numeric
    """Width between the matrices."""
    gated: bool = True
    """True for SwiGLU and its kin: three matrices instead of two."""
    bias: bool = False
    """True where its matrices have biases."""
    learned: Numeric = 0
    """Numbers that its activation function learns: 2 of xIELU. [1]"""

    def __post_init__(self) -> None:
        whole(width=self.width)
        not_negative(learned=self.learned)

    @property
    def inputs(self) -> int:
        """Matrices into the activation function. [1]"""
        return 2 if self.gated else 1

    @property
    def passes(self) -> float:
        """Reads and writes by the activation function. [1]"""
        return GATED_PASSES if self.gated else PLAIN_PASSES

    def products(self, hidden: Count) -> tuple[Projection, ...]:
        """Products with matrices: one or two before the activation function, and one after it."""
        return both_ways(hidden, self.width, gated=self.gated, bias=self.bias)

    def vectors(self, hidden: Count) -> Count:  # noqa: ARG002
        """Parameters that the activation function learns. [1]"""
        return self.learned

    def placement_cost(self, hidden: Count) -> Numeric:
        """Three h x f matrices, gated or not: that is what nanotron counts. [1]"""
        return 3 * hidden * self.width

    def elementwise(self, hidden: Count) -> tuple[Elementwise, ...]:
        """Work of the activation function, which only moves memory."""
        return (Elementwise(width=self.width, passes=self.passes, cast=hidden),)

    def saved_tensors(self, hidden: Count) -> tuple[SavedTensor, ...]:  # noqa: ARG002
        """Input (4 sbg gated, else 2 sbg) and output (2 sbg) of the activation function, Table
        2.
        """
        activation = frozenset({"mlp_act", EACH})
        whole_block = frozenset({"mlp", ALL})
        return (
            SavedTensor(
                elements=self.inputs * self.width,
                dropped_by=whole_block,
                narrowed_by=activation | whole_block,
                halved=True,
                gradient_alive=True,
            ),
            SavedTensor(
                elements=self.width,
                dropped_by=activation | whole_block,
                product_input=True,
                readers=frozenset({"down"}),
                gradient_alive=True,
            ),
            # The product of a gate reads both sides of it.
            *(
                (
                    SavedTensor(
                        elements=self.width,
                        dropped_by=activation | whole_block,
                        unfused=True,
                        gradient_alive=True,
                    ),
                )
                if self.gated
                else ()
            ),
        )

    def split(self) -> tuple[Count, ...]:
        """Width, which tensor parallelism has to divide."""
        return (self.width,)
