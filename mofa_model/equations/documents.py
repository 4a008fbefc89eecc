"""Documents of unlike lengths: padding, gaps of packing, and ranks that wait for the longest."""

from __future__ import annotations

from typing import Final

import numpy as np

from mofa_model.equations.parameters import forward_flops_per_token, over_documents
from mofa_model.spec import Training, Workload
from mofa_model.units import Count, Numeric, Ratio

_TUKEY: Final = (4.91, 0.14)
"""Factor and power of Tukey's lambda law that is the normal one. Source: Joiner and
Rosenblatt 1971. [1]"""
_BLOM: Final = (0.375, 0.25)
"""Plotting positions of the largest of some normal draws. Source: Blom 1958. [1]"""


def filled(training: Training, number: Count) -> Ratio:
    """Share of the tokens of a micro-batch of so many sequences that are documents and no padding.
    Packed documents stay whole: the longest go first, each where it leaves least. Counted
    on 1,024 documents. Ours. [1]

    Two documents of 3,000 tokens do not fit in 4,096:

    >>> from mofa_model.spec import Lengths, Precision
    >>> text = Lengths((3000.0,), (1.0,))
    >>> round(filled(Training(sequence=4096, global_batch=1, precision=Precision(name="bf16"),
    ...     documents=text), 1), 3)
    0.732
    """
    documents, sequence = training.documents, float(training.sequence)
    if documents is None:
        return 1.0
    if documents.padded:
        share: Ratio = documents.longest(sequence, 1) / documents.longest(sequence, number)
        return share
    total = sum(documents.shares)
    left: list[float] = []
    for length, share in sorted(zip(documents.lengths, documents.shares, strict=True))[::-1]:
        size = min(length, sequence)
        for _ in range(max(1, round(_DRAWN * share / total))):
            fits = [(room, n) for n, room in enumerate(left) if room >= size]
            if fits:
                left[min(fits)[1]] -= size
            else:
                left.append(sequence - size)
    return 1.0 - sum(left) / (len(left) * sequence)


_DRAWN: Final = 1024
"""Documents that are packed to see how full sequences become. [1]"""


def largest_of(ranks: Count) -> Numeric:
    """Expected largest of so many standard normal draws. Source: Blom 1958. [1]

    >>> float(largest_of(1)), round(float(largest_of(8)), 2)
    (0.0, 1.43)
    """
    below = (ranks - _BLOM[0]) / (ranks + _BLOM[1])
    return _TUKEY[0] * (below ** _TUKEY[1] - (1.0 - below) ** _TUKEY[1])


def variation(training: Training, number: Count) -> tuple[Ratio, Ratio]:
    """How the work of a micro-batch of so many sequences varies, and by how much the most work is
    above the mean; both over the mean, of all work under padding, else of attention. Ours. [1]

    Packed documents fill a sequence one after the other, so squares of their lengths add up as the
    rewards of a renewal process do. Half of these sequences are one document, half are two:

    >>> from mofa_model.spec import Lengths, Precision
    >>> text = Lengths((2048.0, 4096.0), (2.0, 1.0))
    >>> step = Training(sequence=4096, global_batch=1, precision=Precision(name="bf16"),
    ...     documents=text)
    >>> [round(float(one), 3) for one in variation(step, 1)]
    [0.289, 0.333]
    """
    documents, sequence = training.documents, training.sequence
    if documents is None:
        return 0.0, 0.0
    if documents.padded:
        mean = documents.longest(sequence, number)
        square = documents.longest(sequence, number, power=2)
        spread = np.sqrt(np.maximum(0.0, square - mean * mean)) / mean
        return spread, training.longest / mean - 1.0
    first, second, third, fourth = (documents.longest(sequence, 1, power=n) for n in (1, 2, 3, 4))
    ratio = second / first
    rewards = np.maximum(0.0, fourth - 2.0 * ratio * third + ratio * ratio * second)
    documents_held = number * sequence / first
    spread = np.sqrt(rewards / documents_held) / second
    return spread, np.minimum(sequence, max(documents.lengths)) / ratio - 1.0


def share_of(workload: Workload) -> Ratio:
    """Share of the work of a micro-batch that varies with its documents: all under padding, else
    attention, by FLOPs. Ours. [1]

    >>> from mofa_model import presets
    >>> from mofa_model.spec import Lengths
    >>> text = Lengths((1000.0,), (1.0,), padded=True)
    >>> training = Training(sequence=4096, global_batch=1, precision=presets.precision("bf16"),
    ...     documents=text)
    >>> share_of(Workload(model=presets.model("llama3-8b"), training=training))
    1.0
    """
    training, model = workload.training, workload.model
    if training.documents is None or training.documents.padded:
        return 1.0

    def flops(factor: float) -> Numeric:
        return over_documents(
            training,
            lambda seen: forward_flops_per_token(
                model, np.maximum(1.0, factor * seen), convention="causal"
            ),
        )

    return 1.0 - flops(0.0) / flops(1.0)
