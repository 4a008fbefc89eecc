"""Sequences that are packed of documents: what a token's attention is asked depends on its own document alone."""

from __future__ import annotations

from collections.abc import Callable

from mofa_model.spec import Training
from mofa_model.units import Numeric


def over_documents(training: Training, of: Callable[[Numeric], Numeric]) -> Numeric:
    """Mean over the tokens of a sequence of what depends on the length in which they see each other. Ours. []

    Attention's work is the sum of squares of the lengths: two documents of 1024 tokens and one of 2048 in a sequence of 4096
    ask for (2 + 4) / 16 of its products.

    >>> from mofa_model.spec import PackedDocuments, Precision
    >>> packed = PackedDocuments((1024.0, 2048.0), (2.0, 1.0))
    >>> step = Training(sequence=4096, global_batch=1, precision=Precision(name="bf16"), documents=packed)
    >>> float(over_documents(step, lambda length: length)) / 4096
    0.375
    """
    if training.documents is None:
        return of(training.sequence)
    return training.documents.mean(training.sequence, of)
