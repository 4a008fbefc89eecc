"""Fine-tuning: adapters beside frozen weights, the task, and how the loss is computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mofa_model.checks import not_negative, positive, share
from mofa_model.errors import UnknownName
from mofa_model.records import Category, dataclass
from mofa_model.units import Bytes, Numeric, Ratio

_FEED_FORWARD: Final = ("gate", "up", "down")
_FIXED: Final = frozenset({"router", "shared_gate"})
"""Linear layers that are in no group, so they are adapted only by their own names."""
_SYNONYMS: Final = {
    "all": ("attention", "mlp"),
    "all-linear": ("attention", "mlp"),
    "qkv": ("q", "k", "v"),
    "linear_qkv": ("q", "k", "v"),
    "attention_qkv": ("q", "k", "v"),
    "proj": ("o",),
    "linear_proj": ("o",),
    "output": ("o",),
    "attention_dense": ("o",),
    "gate_up": ("gate", "up"),
    "fc1": ("gate", "up"),
    "linear_fc1": ("gate", "up"),
    "fc2": ("down",),
    "linear_fc2": ("down",),
    "w1": ("gate",),
    "w3": ("up",),
    "w2": ("down",),
}
"""Names of trainers for linear layers, besides our own names with or without `_proj`."""


def group_of(linear: str) -> str:
    """The group of a linear layer; empty for one that is in none.

    >>> group_of("q"), group_of("down"), group_of("expert_up"), group_of("router")
    ('attention', 'mlp', 'experts', '')
    """
    if linear in _FIXED or not linear:
        return ""
    if linear.startswith("expert_"):
        return "experts"
    return "mlp" if linear in _FEED_FORWARD else "attention"


def read_targets(text: str | Iterable[str], known: Iterable[str], *, field: str) -> frozenset[str]:
    """Linear layers and groups of them, from the names that trainers give them; `known` are the
    linear layers of the model.

    >>> sorted(read_targets("q_proj,v_proj", ("q", "k", "v", "o"), field="targets"))
    ['q', 'v']
    >>> sorted(read_targets("linear_qkv", ("q", "k", "v", "o"), field="targets"))
    ['k', 'q', 'v']
    >>> sorted(read_targets("all", ("q", "o", "expert_up"), field="targets"))
    ['attention']
    """
    linears = set(known)
    linears |= {group_of(linear) for linear in linears} - {""}
    targets: set[str] = set()
    for word in text.split(",") if isinstance(text, str) else text:
        name = word.strip().lower()
        bare = name.removesuffix("_proj")
        meanings = _SYNONYMS.get(name) or _SYNONYMS.get(bare) or (bare,)
        present = [linear for linear in meanings if linear in linears]
        if not present:
            raise UnknownName(field, word, ("all", *sorted(linears)))
        targets.update(present)
    return frozenset(targets)


@dataclass(frozen=True, kw_only=True)
class FrozenFormat:
    """How frozen matrices of layers are stored: a row of presets/bases.toml."""

    name: str
    """Preset id."""
    width: Bytes = 2.0
    """Width of a stored weight with its scales. [B]"""
    unpacked: bool = False
    """True where a product first brings its matrix to the compute width, in a buffer."""

    def __post_init__(self) -> None:
        not_negative(width=self.width)


ADAPTED: Final = frozenset({"attention"})
"""Linear layers with adapters where nobody says which. Source: Hu et al. 2021 adapt attention
alone, and so does MLPerf's fine-tuning."""


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Low-rank adapters (LoRA) that are trained beside frozen weights."""

    rank: Numeric
    """Width between the two matrices of an adapter."""
    targets: frozenset[str] = ADAPTED
    """Linear layers that have one, or groups of them."""
    alpha: Numeric = 0
    """Scale of what an adapter adds, over the rank; it costs nothing. 0 = twice the rank."""
    dropout: Ratio = 0.0
    """Share of an adapter's inputs that is dropped."""
    magnitudes: bool = False
    """True where the length of every column is trained apart from its direction (DoRA)."""
    base: FrozenFormat | None = None
    """Format of the frozen matrices; None = that of the precision's products."""

    def __post_init__(self) -> None:
        positive(adapter_rank=self.rank)
        not_negative(adapter_alpha=self.alpha)
        share(adapter_dropout=self.dropout)

    @property
    def method(self) -> str:
        """The common word for adapters of this kind: lora or qlora.

        >>> Adapters(rank=16).method
        'lora'
        """
        return "qlora" if self.base is not None and self.base.unpacked else "lora"

    def beside(self, linear: str) -> bool:
        """Whether a linear layer has an adapter.

        >>> Adapters(rank=16).beside("q"), Adapters(rank=16).beside("down")
        (True, False)
        """
        return linear in self.targets or group_of(linear) in self.targets


FULL: Final = "full"
"""All weights are trained."""


class Task(Category):
    """What a sample teaches."""

    SFT = "sft"  # the next token
    DPO = "dpo"  # the better of two answers, against a frozen copy of the model
    REWARD = "reward"  # a number for each of two answers
    DISTILL = "distill"  # what a larger model says of every token


class Loss(Category):
    """How head and loss are computed."""

    WHOLE = "whole"  # the logits of all tokens at once
    CHUNKED = "chunked"  # those of a part of the tokens after the other
    FUSED = "fused"  # with their gradient in the forward pass, a part after the other
