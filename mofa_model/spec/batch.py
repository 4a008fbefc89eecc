"""A global batch: sequences in an optimizer step, or so many tokens; and whether anybody trains with one of that size."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mofa_model import units
from mofa_model.errors import BadValue

if TYPE_CHECKING:
    from mofa_model.spec.training import Training

LARGEST: Final = 128e6
"""Tokens in the largest step that a report names. Source: MiniMax-01, arXiv 2501.08313: from 16 M to 128 M tokens. [1]"""
DOUBTED: Final = 4 * LARGEST
"""Tokens in a step above which a batch is doubted. A batch of tokens that was meant as one of sequences is above it. Ours. [1]"""
_TOKENS: Final = re.compile(r"(.*?[\d.kKMGTi])\s*(?:tokens|token|tok)\s*", re.IGNORECASE)
_BINARY: Final = {"ki": 2**10, "mi": 2**20, "gi": 2**30}


def read_batch(text: object, sequence: int, field: str) -> int:
    """Sequences in an optimizer step, from their number or from tokens; `sequence` is the tokens in one of them. [1]

    K, M and G of tokens are powers of 1,000 where that is a whole number of sequences, else powers of 1,024: most batches that
    reports call "4M tokens" have 4,194,304.

    >>> read_batch("512", 8192, "--global-batch"), read_batch("4M tokens", 8192, "--global-batch")
    (512, 512)
    """
    match = _TOKENS.fullmatch(text) if isinstance(text, str) and len(text) <= 64 else None
    if match is None:
        return units.count(text, field=field)
    said = match[1].strip()
    tokens = _tokens(said, field)
    if tokens % sequence and (power := " KMG".find(said[-1:].upper())) > 0:
        binary, left = divmod(tokens * 1024**power, 1000**power * sequence)
        tokens = tokens if left else binary * sequence
    if tokens % sequence or tokens < sequence:
        raise BadValue(
            field, text, f"a sequence has {sequence:,} tokens: {_whole(tokens, sequence)}"
        )
    return tokens // sequence


def doubt_of(training: Training) -> str:
    """Why nobody can mean so large a batch; empty where it is one that somebody trains with."""
    tokens = float(training.global_batch) * float(training.sequence)
    if tokens <= DOUBTED:
        return ""
    return (
        f"a global batch of {int(training.global_batch):,} sequences is {tokens / 1e6:,.0f} M tokens a step, and the largest that "
        f"was published has {LARGEST / 1e6:.0f} M: if it is a number of tokens, write "
        f"{max(1, round(float(training.global_batch) / float(training.sequence))):,} sequences"
    )


def _tokens(text: str, field: str) -> int:
    """A number of tokens; Ki, Mi and Gi are powers of 1,024."""
    size = _BINARY.get(text[-2:].lower())
    return (
        units.count(text, field=field)
        if size is None
        else units.count(text[:-2], field=field) * size
    )


def _whole(tokens: int, sequence: int) -> str:
    """What to write in place of tokens that make no whole number of sequences."""
    fewer = max(0, tokens // sequence)
    near = [f"{one:,} ({one * sequence:,} tokens)" for one in (fewer, fewer + 1) if one]
    return f"write {' or '.join(near)}"
