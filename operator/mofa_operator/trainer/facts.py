"""Sizes of a job and of its model, as lines of its log, its manifest or its launch tell them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

SHAPE: Final = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary")
"""Labels of the series with the shape of a model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known of a job; None = unknown."""

    sequence: int | None = None
    """Tokens in a sequence. [1]"""
    batch: int | None = None
    """Sequences in a step. [1]"""
    gpus: int | None = None
    layers: int | None = None
    """Layers of its model. [1]"""
    hidden: int | None = None
    """Hidden size of its model. [1]"""
    heads: int | None = None
    """Attention heads of its model. [1]"""
    groups: int | None = None
    """Heads of keys and values; they count only where `grouped`. [1]"""
    grouped: bool | None = None
    """Whether queries share heads of keys and values."""
    ffn: int | None = None
    """Width of the feed-forward block of its model. [1]"""
    vocabulary: int | None = None
    """Tokens that its model knows. [1]"""

    def or_else(self, other: Facts) -> Facts:
        """These facts, with unknown ones taken from `other`."""
        own = {fact.name: getattr(self, fact.name) for fact in fields(Facts)}
        return replace(other, **{name: value for name, value in own.items() if value is not None})

    @property
    def tokens_per_step(self) -> int | None:
        """Tokens in a step of the whole job. [1]"""
        return None if self.sequence is None or self.batch is None else self.sequence * self.batch

    @property
    def shape(self) -> dict[str, str]:
        """The sizes of its model by SHAPE; empty where too few are known.

        >>> Facts(layers=32, hidden=4096, heads=32, groups=1).shape["kv_heads"]
        ''
        """
        if self.layers is None or self.hidden is None or self.heads is None:
            return {}
        groups = self.groups if self.grouped else None
        sizes = (self.layers, self.hidden, self.heads, groups, self.ffn, self.vocabulary)
        return {name: str(size or "") for name, size in zip(SHAPE, sizes, strict=True)}
