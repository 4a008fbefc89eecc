"""Layers, whose blocks stand behind norms beside the residual stream, and the embedding and head
around them.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Final

from mofa_model.blocks.block import ALL, EACH, Block, Kept, Ranks
from mofa_model.checks import not_negative, whole
from mofa_model.records import dataclass
from mofa_model.units import Count, Numeric

STREAM_PASSES: Final = 5.0
"""Reads and writes of a stream-wide tensor by a norm and the residual around its block."""


@dataclass(frozen=True)
class Layer:
    """Blocks in order, with their norms."""

    blocks: tuple[Block, ...]
    """What a token passes, in order."""
    norms: Numeric | None = None
    """Norms; None = one before each block that has one there."""
    norm_vectors: Numeric = 1
    """Parameters of a norm, each as wide as the stream: 1 a weight, 2 with a bias, 0 none."""

    def parameters(self, hidden: Count, *, active: bool = False) -> Count:
        """All parameters, or those that one token meets. [1]"""
        blocks = sum(block.parameters(hidden, active=active) for block in self.blocks)
        return blocks + self.normed * self.norm_vectors * hidden

    def matrices(self, hidden: Count, *, active: bool = False) -> Count:
        """Parameters of all matrices, or of those that one token is multiplied with. [1]"""
        return sum(block.matrices(hidden, active=active) for block in self.blocks)

    @property
    def normed(self) -> Numeric:
        """How many norms it has. [1]"""
        return sum(block.norm_before for block in self.blocks) if self.norms is None else self.norms

    @property
    def name(self) -> str:
        """Its blocks in words."""
        return " + ".join(block.name for block in self.blocks)

    @cached_property
    def routed(self) -> bool:
        """True where tokens are sent to experts."""
        return any(block.exchange() is not None for block in self.blocks)

    def stream(self, hidden: Count) -> tuple[Kept, ...]:
        """Inputs and outputs of the norms, and masks of the dropouts behind the blocks, Table 2:
        each 2 sbh a norm.
        """
        share = 1.0 / len(self.blocks)
        residuals = Counter(block.residual_moved_with for block in self.blocks)
        outputs = Counter(block.norm_moved_with for block in self.blocks)
        wide = self.normed * hidden
        return (
            Kept(
                elements=wide,
                ranks=Ranks.STREAM,
                moved={name: share * n for name, n in residuals.items()},
            ),
            Kept(
                elements=wide,
                ranks=Ranks.STREAM,
                freed=frozenset({"layernorm", EACH, ALL}),
                feeds=True,
                moved={name: share * n for name, n in outputs.items()},
            ),
            Kept(elements=wide, ranks=Ranks.STREAM, freed=frozenset({ALL}), masked=True),
            Kept(elements=wide, ranks=Ranks.STREAM, unfused=True, upcast=True),
            # The gradient of a norm's weight needs what it is multiplied with.
            Kept(
                elements=wide,
                ranks=Ranks.STREAM,
                freed=frozenset({"layernorm", EACH, ALL}),
                unfused=True,
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """The embedding, and whether the head is its transpose."""

    vocabulary: Numeric
    """Rows, padding included."""
    tied: bool = False
    """True where the head is the embedding transposed."""
    positions: Numeric = 0
    """Learned positions: further rows, of which no time and no memory is counted."""
    norm_vectors: Numeric = 1
    """Parameters of the last norm, each as wide as the stream: 1 a weight, 2 with a bias, 0
    none."""
    head_bias: bool = False
    """True where the head adds a number to each score."""

    def __post_init__(self) -> None:
        whole(vocabulary=self.vocabulary)
        not_negative(positions=self.positions)

    def rows(self, hidden: Count) -> Count:
        """Parameters of the embedding, V h, Table 2. [1]"""
        return self.vocabulary * hidden

    def head(self, hidden: Count) -> Count:
        """The head's own matrix, V h; none where it is the embedding. [1]"""
        return 0 if self.tied else self.vocabulary * hidden

    def vectors(self, hidden: Count) -> Count:
        """Learned positions, the last norm, and the head's bias. [1]"""
        return (self.positions + self.norm_vectors) * hidden + self.head_bias * self.vocabulary
