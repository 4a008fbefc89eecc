"""What the file of a fine-tuner says of a training, beside the layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mofa_model.errors import BadValue
from mofa_model.records import dataclass

ATTENTION: Final = ("q", "k", "v", "o")
FEED_FORWARD: Final = ("gate", "up", "down")
ALL_LINEAR: Final = frozenset({*ATTENTION, *FEED_FORWARD})
"""What fine-tuners mean by all linear layers: routed experts are no linear layers to PEFT."""
GROUPS: Final = {"attention": ATTENTION, "mlp": FEED_FORWARD}
PURE: Final = "bf16-pure"
"""The precision in which no weight has a copy in 32 bits."""
PAIRED: Final = frozenset({"dpo", "reward"})
"""Tasks whose sample is a pair of answers."""
PACKED: Final = "packed"
PADDED: Final = "padded"
UNNAMED: Final = "ORGANISATION/MODEL"
"""Stands for a model of which neither a folder nor an id on a hub is known."""
BITS: Final = {"int8": 8, "nf4": 4, "nf4-double": 4}
"""Bits of a frozen weight by the format that bitsandbytes makes."""


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """A fine-tuning as the fine-tuners' files say it."""

    model: str
    """Its id on a hub, or its folder."""
    rank: int = 0
    """Rank of the adapters; 0 = all weights are trained. [1]"""
    targets: frozenset[str] = frozenset()
    """Linear layers with adapters."""
    base: str = ""
    """Format of the frozen matrices, an id of presets/bases.toml; empty = that of the products."""
    magnitudes: bool = False
    """Whether adapters are DoRA's."""
    alpha: int = 0
    """Scale of the adapters over their rank. [1]"""
    dropout: float = 0.0
    """Share of the adapters' inputs that is dropped."""
    optimizer: str = "adamw"
    """Optimizer preset id."""
    pure: bool = False
    """Whether all that is trained is in the precision of the products."""
    documents: str = ""
    """What a sequence is made of: packed documents that see themselves alone, one padded document;
    empty = it is full, and its tokens see each other."""
    task: str = "sft"
    """What a sample teaches."""
    loss: str = "whole"
    """How head and loss are computed."""
    released: bool = False
    """Whether each gradient updates its weight in the backward pass."""

    @property
    def modules(self) -> list[str]:
        """The layers with adapters, by transformers' names."""
        return [f"{layer}_proj" for layer in (*ATTENTION, *FEED_FORWARD) if layer in self.targets]

    @property
    def learning_rate(self) -> float:
        """A rate to begin with. Source: the examples of TRL, Axolotl and LLaMA-Factory."""
        return 2e-4 if self.rank else 2e-5

    @property
    def dtype(self) -> str:
        """In which type weights are loaded; what is trained has a wide copy."""
        return "bfloat16" if self.rank or self.pure else "float32"


def notes_of(tuning: FineTuning) -> tuple[str, ...]:
    """Notes on what the fine-tuning file leaves to a person."""
    named = () if tuning.model != UNNAMED else ("name the model in the file",)
    return ("the data set and the learning rate in the file are yours to set", *named)


def targets_of(value: object, field: str) -> frozenset[str]:
    """Linear layers with adapters, from a list of their names or a word for all.

    >>> sorted(targets_of(["q_proj", "v_proj"], "x")), len(targets_of("all-linear", "x"))
    (['q', 'v'], 7)
    """
    words = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if not isinstance(words, Sequence) or not words:
        raise BadValue(field, value, "give a list of linear layers, or all-linear")
    if [str(name).lower() for name in words] in (["all"], ["all-linear"], ["all_linear"]):
        return ALL_LINEAR
    layers = frozenset(str(name).rpartition(".")[2].removesuffix("_proj") for name in words)
    if not layers <= ALL_LINEAR:
        right = "adapters beside it are not priced; give some of " + ", ".join(
            f"{layer}_proj" for layer in (*ATTENTION, *FEED_FORWARD)
        )
        raise BadValue(field, min(layers - ALL_LINEAR), right)
    return layers


def base_of(settings: Mapping[str, Any], four: str, eight: str, double: bool) -> str:
    """The format of frozen weights by the switches of bitsandbytes."""
    if on(settings.get(four)):
        return "nf4-double" if double else "nf4"
    return "int8" if on(settings.get(eight)) else ""


def on(value: object) -> bool:
    """Whether a switch is on, also where it is a word."""
    return str(value).lower() in {"true", "yes", "on", "1", "auto"}


def whole(settings: Mapping[str, Any], name: str, default: int | None = None) -> int | None:
    """A whole number of a file; `default` where it does not say."""
    value = settings.get(name)
    if value is None or str(value) == "auto":
        return default
    if not (str(value).isascii() and str(value).isdigit() and 0 < len(str(value)) <= 9):
        raise BadValue(name, value, "give a whole number of one or more")
    return int(value)
