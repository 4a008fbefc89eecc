"""The training: global batch, sequence, packed documents, tokens, number formats and update
rule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Final

import numpy as np

from mofa_model import units
from mofa_model.checks import LATER, array_axes, field_names, not_negative, whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.spec.transformer import Transformer
from mofa_model.spec.tuning import FULL, Adapters, Loss, Task
from mofa_model.units import Bytes, Count, Numeric

_MOST: Final = 64
"""Lengths that a text may list."""
_PADDED: Final = "padded"
"""Word before the lengths of documents that are padded in place of packed."""


@dataclass(frozen=True)
class Lengths:
    """A distribution of lengths, and whether a sequence is packed of documents or padded to one."""

    lengths: tuple[float, ...]
    """Tokens of a document; one that is longer than a sequence is cut."""
    shares: tuple[float, ...]
    """How many documents of each length there are, in any unit."""
    padded: bool = field(default=False, metadata=LATER)
    """True where a sequence is one document, padded to the longest of its micro-batch."""

    def mean(self, sequence: Numeric, function: Callable[[Numeric], Numeric]) -> Numeric:
        """The mean over tokens of a function of the length of the token's document."""
        tokens: Numeric = 0.0
        total: Numeric = 0.0
        for length, share in zip(self.lengths, self.shares, strict=True):
            cut = np.minimum(length, sequence)
            tokens, total = tokens + share * cut, total + share * cut * function(cut)
        return total / tokens

    def longest(self, sequence: Numeric, number: Numeric, power: int = 1) -> Numeric:
        """Expected length of the longest of so many documents, or of a power of it; its
        distribution is F^n.

        >>> Lengths((100.0, 300.0), (1.0, 1.0)).longest(4096, 2)
        250.0
        """
        total, below = sum(self.shares), 0.0
        expected: Numeric = 0.0
        for length, share in sorted(zip(self.lengths, self.shares, strict=True)):
            up_to = min(1.0, below + share / total)
            expected = expected + np.minimum(length, sequence) ** power * (
                up_to**number - below**number
            )
            below = up_to
        return expected if np.ndim(expected) else float(expected)


def parse_documents(text: str, *, field: str) -> Lengths:
    """Documents from a text of lengths, each with its share; the word padded comes before them.

    >>> parse_documents("512:3,8k", field="documents")
    Lengths(lengths=(512.0, 8000.0), shares=(3.0, 1.0), padded=False)
    """
    word, _, rest = text.partition(",")
    padded = word.strip().lower() == _PADDED
    parts = [part.partition(":") for part in (rest if padded else text).split(",")]
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
    return Lengths(lengths, shares, padded)


ADAM_MOMENTS = 8.0
"""Two fp32 moments of a parameter, which the optimizer bytes of a precision and measured traffic
hold. [B]"""


@dataclass(frozen=True, kw_only=True)
class UpdateRule:
    """One row of presets/optimizers.toml."""

    name: str = "adamw"
    """Preset id."""
    states: Bytes = ADAM_MOMENTS
    """Moments of a parameter of a matrix inside a layer. [B]"""
    outside: Bytes = ADAM_MOMENTS
    """The same of embedding and head, where another rule may update them. [B]"""
    replaced: Bytes = ADAM_MOMENTS
    """The moments that the optimizer bytes of a precision, and measured traffic, hold in their
    place. [B]"""
    iterations: Count = 0.0
    """Newton-Schulz iterations on every matrix inside a layer; 0 = none. [1]"""
    gather: Bytes = 0.0
    """Sent per parameter beside gradients and weights, so that one rank has a matrix whole. [B]"""
    paged: bool = False
    """True where the states go to the host while the device needs their place."""

    def __post_init__(self) -> None:
        numbers = ("states", "outside", "replaced", "iterations", "gather")
        not_negative(**{name: getattr(self, name) for name in numbers})


GEMM_FORMATS = ("bf16", "fp8", "fp4", "fp32")


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Number formats of a training recipe; widths are bytes per element."""

    name: str
    """Recipe id, for example bf16 or mxfp8."""
    gemm: str = "bf16"
    """Format of the linear layers' matrix products; fp16 runs at the bf16 rate, fp32 as TF32."""
    weight: Bytes = 2.0
    """Width of the weights that the GEMMs read. [B]"""
    gradient: Bytes = 4.0
    """Width of accumulated gradients. [B]"""
    optimizer: Bytes = 12.0
    """Master weight and two moments. [B]"""
    activation: Bytes = 2.0
    """Width of stored and sent activations. [B]"""
    dispatch: Bytes = 2.0
    """Width of tokens on their way to experts; they come back as activations. [B]"""
    reduce: Bytes = 4.0
    """Width of gradients while they are reduced. [B]"""
    gather: Bytes = 2.0
    """Width of parameters while they are gathered. [B]"""
    logit: Bytes = 4.0
    """Width of the logits that the loss keeps. [B]"""
    frozen: Bytes = field(default=2.0, metadata=LATER)
    """Width of the matrices beside adapters, where nobody says another format. [B]"""
    gathered: Bytes = field(default=2.0, metadata=LATER)
    """Width of a layer's inputs while tensor ranks gather them. [B]"""

    @property
    def quantised(self) -> bool:
        """Whether inputs of matrix products are brought into a narrower format first."""
        return self.gemm in {"fp8", "fp4"}

    def __post_init__(self) -> None:
        if self.gemm not in GEMM_FORMATS:
            raise BadValue("precision.gemm", self.gemm, f"one of {', '.join(GEMM_FORMATS)}")
        widths = [name for name in field_names(Precision) if name not in {"name", "gemm"}]
        not_negative(**{name: getattr(self, name) for name in widths})


@dataclass(frozen=True, kw_only=True)
class Training:
    """One optimizer step and how many of them."""

    sequence: Numeric
    """Tokens in a sequence."""
    global_batch: Numeric
    """Sequences in an optimizer step."""
    precision: Precision
    """Number formats."""
    tokens: Numeric = 0
    """Tokens of the whole run; 0 = not stated."""
    optimizer: UpdateRule = field(default=UpdateRule(), metadata=LATER)
    """What updates the weights."""
    adapters: Adapters | None = field(default=None, metadata=LATER)
    """Adapters that are trained beside frozen weights; None = all weights are trained."""
    documents: Lengths | None = field(default=None, metadata=LATER)
    """Documents of which sequences are made; None = each sequence is full, and one."""
    task: Task = field(default=Task.SFT, metadata=LATER)
    """What a sample teaches."""
    teacher: Transformer | None = field(default=None, metadata=LATER)
    """The model that is distilled; None = there is none."""
    loss: Loss = field(default=Loss.WHOLE, metadata=LATER)
    """How head and loss are computed."""
    released: bool = field(default=False, metadata=LATER)
    """True where each gradient updates its weight in the backward pass and is gone."""

    def __post_init__(self) -> None:
        whole(sequence=self.sequence, global_batch=self.global_batch)
        not_negative(tokens=self.tokens)

    def length(self, number: Numeric) -> Numeric:
        """Tokens of each sequence of a micro-batch of so many on average, padding counted.

        >>> Training(sequence=4096, global_batch=2, precision=Precision(name="bf16"),
        ...     documents=Lengths((100.0, 300.0), (1.0, 1.0), padded=True)).length(2)
        250.0
        """
        if self.documents is None or not self.documents.padded:
            return self.sequence
        return self.documents.longest(self.sequence, number)

    @property
    def longest(self) -> Numeric:
        """Tokens of the longest sequence of a run, which memory has to hold."""
        if self.documents is None or not self.documents.padded:
            return self.sequence
        return np.minimum(self.sequence, max(self.documents.lengths))

    @property
    def method(self) -> str:
        """What is trained: full, lora or qlora."""
        return FULL if self.adapters is None else self.adapters.method

    @property
    def step_tokens(self) -> Numeric:
        """Tokens of an optimizer step, without padding."""
        return self.global_batch * self.length(1)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model and its training: what the cluster is asked to do."""

    model: Transformer
    """The shape of the network."""
    training: Training
    """Batch, sequence and formats."""

    @cached_property
    def axes(self) -> int:
        """1 where some number of it is an array, else 0."""
        return array_axes(*(getattr(self, name) for name in field_names(Workload)))


LARGEST: Final = 128e6
"""Tokens in the largest step that a report names. Source: MiniMax-01, arXiv 2501.08313: from 16 M
to 128 M tokens. [1]"""
DOUBTED: Final = 4 * LARGEST
"""Tokens in a step above which a batch is doubted. A batch of tokens that was meant as one of
sequences is above it. Ours. [1]"""
_TOKENS: Final = re.compile(r"(.*?[\d.kKMGTi])\s*(?:tokens|token|tok)\s*", re.IGNORECASE)
_BINARY: Final = {"ki": 2**10, "mi": 2**20, "gi": 2**30}


def read_batch(text: object, sequence: int, field: str) -> int:
    """Sequences in an optimizer step, from their number or from tokens; `sequence` is the tokens in
    one of them. [1]

    K, M and G of tokens are powers of 1,000 where that is a whole number of sequences, else powers
    of 1,024: most batches that reports call "4M tokens" have 4,194,304.

    >>> read_batch("512", 8192, "--global-batch"), read_batch("4M tokens", 8192, "--global-batch")
    (512, 512)
    """
    match = _TOKENS.fullmatch(text) if isinstance(text, str) and len(text) <= 64 else None
    if match is None:
        return units.count(text, field=field)
    count = match[1].strip()
    tokens = _tokens(count, field)
    if tokens % sequence and (power := " KMG".find(count[-1:].upper())) > 0:
        binary, remainder = divmod(tokens * 1024**power, 1000**power * sequence)
        tokens = tokens if remainder else binary * sequence
    if tokens % sequence or tokens < sequence:
        raise BadValue(
            field, text, f"a sequence has {sequence:,} tokens: {_whole(tokens, sequence)}"
        )
    return tokens // sequence


def doubt_of(training: Training) -> str:
    """Sentence that a batch is so large that it must be a mistake; empty for usual batches."""
    tokens = float(training.global_batch) * float(training.sequence)
    if tokens <= DOUBTED:
        return ""
    return (
        f"a global batch of {int(training.global_batch):,} sequences is "
        f"{tokens / 1e6:,.0f} M tokens a step, and the largest that "
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
    """Advice for tokens that make no whole number of sequences: the nearest numbers that do."""
    below = max(0, tokens // sequence)
    choices = [f"{count:,} ({count * sequence:,} tokens)" for count in (below, below + 1) if count]
    return f"write {' or '.join(choices)}"
