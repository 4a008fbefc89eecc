"""A mixture of experts: a router, routed experts of which a token passes a few, and shared ones
that every token passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import ClassVar, Final

import numpy as np

from mofa_model.blocks.block import (
    ALL,
    EACH,
    Block,
    Cut,
    Elementwise,
    Exchange,
    Projection,
    Ranks,
    RecomputedWork,
    Rows,
    SavedTensor,
)
from mofa_model.blocks.feed_forward import FeedForward, both_ways
from mofa_model.checks import LATER, not_negative, whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.units import Count, Numeric

PERMUTE_PASSES: Final = 4.0
"""Reads and writes of the routed tokens to sort, un-sort and weigh them."""
_ALL: Final = frozenset({"moe", ALL})
_ACT: Final = frozenset({"moe_act", EACH}) | _ALL


@dataclass(frozen=True, kw_only=True)
class Experts(Block):
    """The mixture of experts."""

    word: ClassVar = "experts"
    residual_offloaded_with: ClassVar = "mlp_norm"
    recomputed_work: ClassVar[Mapping[str, RecomputedWork]] = {
        "mlp": RecomputedWork(1.0, 1.0),
        "mlp_act": RecomputedWork(0.0, 0.5),
        "moe": RecomputedWork(1.0, 1.0, exchange=True),
        "moe_act": RecomputedWork(0.0, 0.25),
    }

    count: Numeric
    """Routed experts."""
    top_k: Numeric
    """Experts that a token is sent to."""
    width: Numeric
    """Width between the matrices of one expert."""
    gated: bool = True
    """True for SwiGLU and its kin, in routed and shared experts."""
    shared_width: Numeric | None = None
    """Width of the experts that every token passes, together; None = there are none."""
    shared_gate: bool = False
    """True where a number of its own weighs the shared experts of each token."""
    latent: Numeric | None = None
    """Width to which tokens are projected before they are sent to routed experts; None = they go as
    they are."""
    bias: bool = False
    """True where the matrices of experts have biases."""
    router_bias: bool = False
    """True where the router has learned biases."""
    imbalance: Numeric = 1.0
    """Load of the fullest rank against the mean, at least 1: its mean over layers and
    micro-batches."""
    imbalance_spread: Numeric = field(default=0.0, metadata=LATER)
    """Standard deviation of that load over layers and micro-batches; its tail decides the
    memory."""
    node_limit: Numeric = 0
    """Nodes that the experts of one token may lie on; 0 = any (DeepSeek-V3 routes to 4). [1]"""

    def __post_init__(self) -> None:
        whole(experts=self.count, top_k=self.top_k, expert_width=self.width)
        not_negative(node_limit=self.node_limit)
        if self.shared_width is not None:
            whole(shared_width=self.shared_width)
        if self.latent is not None:
            whole(latent=self.latent)
        if np.any(np.asarray(self.top_k) > self.count):
            raise BadValue(
                "top_k", self.top_k, f"it cannot exceed the number of experts ({self.count})"
            )
        if not np.all(np.isfinite(self.imbalance) & (np.asarray(self.imbalance) >= 1)):
            raise BadValue("imbalance", self.imbalance, "give 1 (balanced) or more")
        not_negative(imbalance_spread=self.imbalance_spread)
        if np.any((np.asarray(self.imbalance_spread) > 0) & (np.asarray(self.imbalance) == 1)):
            right = (
                "a fullest rank whose mean is 1 is balanced always; "
                "give a mean above 1 or no spread"
            )
            raise BadValue("imbalance_spread", self.imbalance_spread, right)

    @property
    def _shared(self) -> FeedForward | None:
        return (
            None
            if self.shared_width is None
            else FeedForward(width=self.shared_width, gated=self.gated, bias=self.bias)
        )

    @property
    def _one(self) -> FeedForward:
        """One routed expert."""
        return FeedForward(width=self.width, gated=self.gated, bias=self.bias)

    @property
    def launches(self) -> Count:
        """Two products of shared experts, their activation and a sum. Source: counted. [1]"""
        return 0.0 if self.shared_width is None else 4.0

    def _sent(self, hidden: Count) -> Count:
        """Width of a token on its way to experts. [1]"""
        return hidden if self.latent is None else self.latent

    def products(self, hidden: Count) -> tuple[Projection, ...]:
        """Shared experts, one routed expert, and the router h E, Table 2."""
        sent_width, products = self._sent(hidden), list[Projection]()
        if self.shared_width is not None:
            products += both_ways(hidden, self.shared_width, gated=self.gated, bias=self.bias)
        if self.shared_gate:
            products.append(Projection(n=1, k=hidden, cut=Cut.NOTHING))
        if self.latent is not None:
            products.append(Projection(n=sent_width, k=hidden, cut=Cut.NOTHING))
            products.append(Projection(n=hidden, k=sent_width, cut=Cut.NOTHING))
        products += both_ways(
            sent_width, self.width, gated=self.gated, bias=self.bias, rows=Rows.ROUTED
        )
        products.append(
            Projection(
                n=self.count,
                k=hidden,
                cut=Cut.NOTHING,
                rows=Rows.SENT,
                bias=self.router_bias,
                linears=(("router", self.count),),
            )
        )
        return tuple(products)

    def elementwise(self, hidden: Count) -> tuple[Elementwise, ...]:
        """Activation functions, and tokens sorted by expert and back."""
        shared, sent_width = self._shared, self._sent(hidden)
        return (
            *(() if shared is None else shared.elementwise(hidden)),
            Elementwise(
                width=self.width, passes=PERMUTE_PASSES, cast=sent_width, sorted=sent_width
            ),
        )

    def gathers(self) -> Count:
        """No tensor-parallel collectives: routed tokens go by all-to-all. [1]"""
        return 0.0 if self.shared_width is None else 2.0

    def saved_tensors(self, hidden: Count) -> tuple[SavedTensor, ...]:
        """The router's logits (4 sbE), sorted tokens, and both sides of the activation functions,
        Table 2.

        What experts hand back is not kept: the router's weights are applied inside the activation
        function.
        """
        activation_input, activation_output, *gate_products = self._one.saved_tensors(hidden)
        shared = () if self._shared is None else self._shared.saved_tensors(hidden)
        return (
            SavedTensor(elements=self.count, dropped_by=_ALL, logit_width=True),
            SavedTensor(
                elements=self._sent(hidden),
                ranks=Ranks.NOBODY,
                dropped_by=_ALL,
                product_input=True,
                readers=frozenset({"expert_gate", "expert_up"}),
                routed=True,
                offloaded_by={"expert_fc1": 1.0},
            ),
            replace(
                activation_input,
                ranks=Ranks.EXPERT,
                dropped_by=_ALL,
                narrowed_by=_ACT,
                routed=True,
                gradient_alive=False,
                offloaded_by={"moe_act": 1.0},
            ),
            replace(
                activation_output,
                ranks=Ranks.EXPERT,
                dropped_by=_ACT,
                readers=frozenset({"expert_down"}),
                routed=True,
                gradient_alive=False,
            ),
            *(
                replace(tensor, dropped_by=freed, narrowed_by=tensor.narrowed_by and _ACT)
                for tensor, freed in zip(shared, (_ALL, _ACT, _ACT), strict=False)
            ),
            *(
                replace(
                    tensor, ranks=Ranks.EXPERT, dropped_by=_ACT, routed=True, gradient_alive=False
                )
                for tensor in gate_products
            ),
        )

    def exchange(self) -> Exchange:
        """What expert parallelism sends: experts, choices of a token, width, load."""
        return Exchange(
            top_k=self.top_k,
            count=self.count,
            imbalance=self.imbalance,
            spread=self.imbalance_spread,
            node_limit=self.node_limit,
            width=self.latent,
        )

    def split(self) -> tuple[Count, ...]:
        """Width of shared experts, which tensor parallelism has to divide."""
        return () if self.shared_width is None else (self.shared_width,)

    def split_inside(self) -> tuple[Count, ...]:
        """Width of an expert, which tensor parallelism inside experts has to divide."""
        return (self.width,)
