"""Linear attention: a state of keys times values in the place of scores; with decay, delta rule and
gate, or without.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mofa_model.blocks.block import (
    ALL,
    Block,
    ContextMessages,
    Core,
    Cut,
    Elementwise,
    Projection,
    SavedTensor,
)
from mofa_model.blocks.softmax import GATE_PASSES, LAST
from mofa_model.checks import not_negative, whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.units import Count, Numeric

DECAYS: Final = ("fixed", "head", "channel")
"""What forgets: nothing that is learned, a number of each head, or one of each channel of the
keys."""


@dataclass(frozen=True, kw_only=True)
class LinearAttention(Block):
    """Lightning attention (decay `fixed`), Gated DeltaNet (`head`, with delta rule), Kimi Delta
    Attention (`channel`).
    """

    word: ClassVar = "linear_attention"
    stream_passes: ClassVar = 6.0
    norm_offloaded_with: ClassVar = "qkv_linear"
    residual_offloaded_with: ClassVar = "qkv_linear"

    key_heads: Numeric
    """Heads of queries and keys."""
    value_heads: Numeric
    """Heads of values, and of states."""
    key_dim: Numeric
    """Width of a query and of a key."""
    value_dim: Numeric
    """Width of a value."""
    decay: str = "head"
    """How a state forgets: one of `DECAYS`."""
    delta: bool = True
    """True where a state forgets what it held for a key before it learns the new value."""
    gate_rank: Numeric | None = None
    """Width through which the output's gate is projected, and decays of channels; None = the gate
    is direct."""
    kernel: Numeric = 4
    """Tokens that the convolution of queries, keys and values spans; 0 = there is none."""
    whole_norm: bool = False
    """True where the output's norm spans all heads, not each."""
    chunk: Numeric = 64
    """Tokens that are worked off at once."""

    def __post_init__(self) -> None:
        whole(
            key_heads=self.key_heads,
            value_heads=self.value_heads,
            key_dim=self.key_dim,
            chunk=self.chunk,
        )
        whole(linear_value_dim=self.value_dim)
        not_negative(kernel=self.kernel)
        if self.decay not in DECAYS:
            raise BadValue("decay", self.decay, f"one of {', '.join(DECAYS)}")
        if self.decay == "channel" and self.gate_rank is None:
            raise BadValue(
                "gate_rank", None, "decays of channels are projected through it: give its width"
            )

    @property
    def variant(self) -> str:
        """The word of the variant in lists of trainers: by how a state forgets."""
        return {
            "fixed": "lightning_attention",
            "head": "gated_delta_net",
            "channel": "kimi_delta_attention",
        }[self.decay]

    @property
    def keys(self) -> Numeric:
        """Width of all keys. [1]"""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> Numeric:
        """Width of all values. [1]"""
        return self.value_heads * self.value_dim

    @property
    def numbers(self) -> Numeric:
        """Numbers of each token that steer its heads: a decay, a step of the delta rule. [1]"""
        return self.value_heads * ((1 if self.decay == "head" else 0) + (1 if self.delta else 0))

    def products(self, hidden: Count) -> tuple[Projection, ...]:
        """Queries, keys and values with the gate; what steers the heads; the output. Sources:
        MiniMax-01, Qwen3-Next, Kimi Linear.
        """
        direct_gate = self.values if self.gate_rank is None else 0
        rank = 0 if self.gate_rank is None else self.gate_rank
        gate = (
            ()
            if self.gate_rank is None
            else (Projection(n=rank, k=hidden, cut=Cut.NOTHING), Projection(n=self.values, k=rank))
        )
        decays = (
            ()
            if self.decay != "channel"
            else (Projection(n=rank, k=hidden, cut=Cut.NOTHING), Projection(n=self.keys, k=rank))
        )
        wide = 2 * self.keys + self.values + direct_gate
        return (
            Projection(n=wide, k=hidden, linears=(("in", wide),)),
            *gate,
            *decays,
            *(
                (Projection(n=self.numbers, k=hidden),)
                if self.delta or self.decay == "head"
                else ()
            ),
            Projection(n=hidden, k=self.values, cut=Cut.INPUT, linears=(("out", hidden),)),
        )

    def vectors(self, hidden: Count) -> Count:  # noqa: ARG002
        """The convolution, decays with their steps, and the norm."""
        decays = {
            "fixed": 0,
            "head": 2 * self.value_heads,
            "channel": self.value_heads + self.keys,
        }[self.decay]
        norm = self.values if self.whole_norm else self.value_dim
        return (2 * self.keys + self.values) * self.kernel + decays + norm

    def cores(self) -> tuple[Core, ...]:
        """Work inside a chunk, then of a chunk on the state.

        Inside: scores and values; with the delta rule also a triangular system of scores between
        keys, whose right sides are as wide as a key and as a value. The state is written and read;
        with the delta rule it is read once more, for what it holds of a key.
        """
        inside = self.key_dim + self.value_dim
        if self.delta:
            inside = inside + 2 * self.key_dim + self.value_dim + self.chunk / 6.0
        ways = 3 if self.delta else 2
        return (
            Core(heads=self.value_heads, width=inside, fixed=self.chunk),
            Core(heads=self.value_heads, width=ways * self.value_dim, fixed=self.key_dim),
        )

    def elementwise(self, hidden: Count) -> tuple[Elementwise, ...]:  # noqa: ARG002
        """Convolution and scan; norm and gate. Source: counted on fused kernels."""
        return (
            Elementwise(width=2 * self.keys + self.values, passes=4.0 if self.kernel else 2.0),
            Elementwise(width=self.values, passes=1.0 + GATE_PASSES),
        )

    def saved_tensors(self, hidden: Count) -> tuple[SavedTensor, ...]:  # noqa: ARG002
        """What is projected, before and after the convolution; the gate; output before and after
        norm and gate.
        """
        wide = 2 * self.keys + self.values
        return (
            SavedTensor(
                elements=wide + self.values + self.numbers,
                dropped_by=frozenset({ALL}),
                halved=True,
                offloaded_by={"core_attn": 1.0},
            ),
            *((SavedTensor(elements=wide, dropped_by=frozenset({ALL})),) if self.kernel else ()),
            SavedTensor(elements=self.values, dropped_by=frozenset({ALL})),
            SavedTensor(elements=self.values, **LAST),
        )

    def context_messages(self) -> ContextMessages:
        """A rank hands its states to the next, or an all-to-all moves inputs and outputs."""
        return ContextMessages(
            all_to_all_elements=2 * self.keys + 3 * self.values,
            state_elements=self.value_heads * self.key_dim * self.value_dim,
        )

    def split(self) -> tuple[Count, ...]:
        """Heads of keys and of values, which tensor parallelism has to divide."""
        return (self.key_heads, self.value_heads)

    def all_to_all_heads(self) -> Count:
        """Heads of keys, which ranks of an all-to-all have to divide."""
        return self.key_heads
