"""An encoder of images or sound: a tower of layers of its own width, run once a sample, and a
projector into the stream.

It stands as a layer of its own before all others. What it adds to a sequence is counted in the
sequence's length.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import ClassVar

from mofa_model.blocks.block import (
    ALL,
    Block,
    ContextMessages,
    Core,
    Cut,
    Elementwise,
    Projection,
    Ranks,
    SavedTensor,
)
from mofa_model.blocks.feed_forward import FeedForward, both_ways
from mofa_model.checks import not_negative, whole
from mofa_model.records import dataclass
from mofa_model.units import Count, Numeric, Ratio


@dataclass(frozen=True, kw_only=True)
class Encoder(Block):
    """A vision or audio transformer in which every patch sees every other, or those of its window.
    Source: Dosovitskiy et al. 2021, Qwen2.5-VL.

    Leaves out: launches of its layers one by one, and that its norms are computed in the width of
    the tower.
    """

    word: ClassVar = "encoder"
    norm_before: ClassVar = 0

    width: Numeric
    """Width of the tower's own stream."""
    layers: Numeric
    """Layers of the tower."""
    heads: Numeric
    """Heads of its attention."""
    ffn: Numeric
    """Width of its feed-forward part."""
    gated: bool = False
    """True where that has three matrices."""
    inputs: Numeric
    """Numbers of a patch: of an image channels times height times width."""
    patches: Numeric
    """Patches of all images, or frames of sound, in a sequence."""
    merged: Numeric = 1
    """Patches that become one token of the sequence."""
    window: Numeric | None = None
    """Patches that a windowed layer sees; None = no layer is windowed."""
    whole_layers: Numeric = 0
    """Layers without a window, where there is one."""
    bias: bool = True
    """True where the matrices of its layers have biases."""
    input_bias: bool = True
    """True where that of the patches has one."""
    positions: Numeric = 0
    """Learned positions."""
    norm_vectors: Numeric = 2
    """Parameters of a norm, each as wide as the tower: 1 a weight, 2 with a bias."""
    final_vectors: Numeric = 1
    """Parameters of the norms before the first layer and behind the last, each as wide as the
    tower."""
    pooled: bool = False
    """True where the patches that become one token are averaged; else they are joined."""
    projector: tuple[Numeric, ...] | None = None
    """Widths inside the projector; None = one, that of what it takes."""
    projector_bias: bool = True
    """True where its matrices have biases."""

    def __post_init__(self) -> None:
        whole(
            encoder_width=self.width,
            encoder_layers=self.layers,
            encoder_heads=self.heads,
            encoder_ffn=self.ffn,
        )
        whole(inputs=self.inputs, patches=self.patches, merged=self.merged)
        not_negative(whole_layers=self.whole_layers, positions=self.positions)

    @property
    def own_tokens(self) -> Count:
        """Patches of all images that a sequence holds: the encoder's own tokens. [1]"""
        return self.patches

    @property
    def projector_inputs(self) -> Numeric:
        """Numbers of a patch that go into the projector. [1]"""
        return self.width if self.pooled else self.merged * self.width

    def products(self, hidden: Count) -> tuple[Projection, ...]:
        """Patches in; queries, keys, values, output and feed-forward part of every layer; the
        projector into the stream.
        """
        h, layers, inputs = self.width, self.layers, self.projector_inputs
        feed_forward = both_ways(h, self.ffn, gated=self.gated, bias=self.bias)
        widths = (inputs, *((inputs,) if self.projector is None else self.projector), hidden)
        seen: Ratio = 1.0 / self.merged
        projector = [
            Projection(n=n, k=k, cut=Cut.OUTPUT, bias=self.projector_bias, seen=seen)
            for k, n in itertools.pairwise(widths)
        ]
        return (
            Projection(n=h, k=self.inputs, cut=Cut.NOTHING, bias=self.input_bias),
            Projection(n=3 * h, k=h, bias=self.bias, times=layers),
            Projection(n=h, k=h, cut=Cut.INPUT, bias=self.bias, times=layers),
            *(
                Projection(n=product.n, k=product.k, cut=product.cut, bias=self.bias, times=layers)
                for product in feed_forward
            ),
            *projector[:-1],
            replace(projector[-1], cut=Cut.INPUT),
        )

    def vectors(self, hidden: Count) -> Count:  # noqa: ARG002
        """Parameters in no matrix: positions and norms. [1]"""
        return self.width * (
            self.positions + 2 * self.norm_vectors * self.layers + self.final_vectors
        )

    def cores(self) -> tuple[Core, ...]:
        """Attention of all layers: each patch sees all patches, or those of its window."""
        dim = 2 * self.width / self.heads
        unwindowed = Core(
            heads=self.heads, width=dim, fixed=self.patches, times=self.layers, scored=True
        )
        if self.window is None:
            return (unwindowed,)
        return (
            Core(
                heads=self.heads,
                width=dim,
                fixed=self.patches,
                times=self.whole_layers,
                scored=True,
            ),
            Core(
                heads=self.heads,
                width=dim,
                fixed=self.window,
                times=self.layers - self.whole_layers,
                scored=True,
            ),
        )

    def elementwise(self, hidden: Count) -> tuple[Elementwise, ...]:  # noqa: ARG002
        """Norms and residuals, and the activation function, of every layer."""
        passes = FeedForward(width=self.ffn, gated=self.gated).passes
        return (
            Elementwise(
                width=self.width * self.layers, passes=16.0, cast=2 * self.width * self.layers
            ),
            Elementwise(width=self.ffn * self.layers, passes=passes),
        )

    def gathers(self) -> Count:
        """Tensor-parallel collectives of all layers: two of attention, two of feed-forward. [1]"""
        return 4.0 * self.layers

    def saved_tensors(self, hidden: Count) -> tuple[SavedTensor, ...]:  # noqa: ARG002
        """Tensors of all layers: inputs and outputs of norms; queries, keys, values and output of
        attention; both sides of the activation function.
        """
        h, layers = self.width, self.layers
        activation = (3 if self.gated else 2) * self.ffn
        return (
            SavedTensor(elements=2 * h * layers, ranks=Ranks.STREAM),
            SavedTensor(
                elements=2 * h * layers,
                ranks=Ranks.STREAM,
                dropped_by=frozenset({"layernorm", ALL}),
                product_input=True,
            ),
            SavedTensor(
                elements=(3 * h + activation) * layers, dropped_by=frozenset({ALL}), halved=True
            ),
            SavedTensor(elements=h * layers, product_input=True),
            SavedTensor(elements=self.projector_inputs, product_input=True),
        )

    def context_messages(self) -> ContextMessages:
        """Keys and values of every layer go around a ring; an all-to-all moves queries and outputs
        as well.
        """
        return ContextMessages(
            ring_elements=2 * self.width * self.layers,
            all_to_all_elements=2 * self.width * self.layers,
        )

    def split(self) -> tuple[Count, ...]:
        """Heads and the feed-forward width, which tensor parallelism has to divide."""
        return (self.heads, self.ffn)

    def all_to_all_heads(self) -> Count:
        """Heads, which ranks of an all-to-all have to divide."""
        return self.heads
