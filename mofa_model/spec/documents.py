"""Documents that are packed into a sequence: tokens of one do not look at those of another."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from mofa_model import units
from mofa_model.errors import BadValue
from mofa_model.units import Numeric

_MOST: Final = 64
"""Lengths that a text may list."""


@dataclass(frozen=True, slots=True)
class PackedDocuments:
    """A distribution of lengths."""

    lengths: tuple[float, ...]
    """Tokens of a document; one that is longer than a sequence is cut."""
    shares: tuple[float, ...]
    """How many documents of each length there are, in any unit."""

    def mean(self, sequence: Numeric, of: Callable[[Numeric], Numeric]) -> Numeric:
        """The mean over tokens of what a token's document is asked: a long one has more of them."""
        tokens: Numeric = 0.0
        total: Numeric = 0.0
        for length, share in zip(self.lengths, self.shares, strict=True):
            cut = np.minimum(length, sequence)
            tokens, total = tokens + share * cut, total + share * cut * of(cut)
        return total / tokens


def parse_documents(text: str, *, field: str) -> PackedDocuments:
    """Documents from a text of lengths, each with its share.

    >>> parse_documents("512:3,8k", field="documents")
    PackedDocuments(lengths=(512.0, 8000.0), shares=(3.0, 1.0))
    """
    parts = [part.partition(":") for part in text.split(",")]
    if len(parts) > _MOST:
        raise BadValue(field, text, f"at most {_MOST} lengths")
    lengths = tuple(float(units.count(length.strip(), field=field)) for length, _, _ in parts)
    try:
        shares = tuple(float(share) if colon else 1.0 for _, colon, share in parts)
    except ValueError:
        shares = (0.0,)
    if min(lengths) < 1 or not all(0 < share < math.inf for share in shares):
        raise BadValue(
            field, text, "write LENGTH:SHARE,… with lengths of at least 1 and shares above zero"
        )
    return PackedDocuments(lengths, shares)
