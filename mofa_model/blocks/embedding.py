"""Both ends of a model: rows that tokens are looked up in, and the head that scores the next
one.
"""

from __future__ import annotations

from dataclasses import dataclass

from mofa_model.checks import not_negative, whole
from mofa_model.units import Count, Numeric


@dataclass(frozen=True, kw_only=True, slots=True)
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
