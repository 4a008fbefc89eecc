"""What updates the weights: how many bytes of state it keeps, and what it computes and sends beside."""

from __future__ import annotations

from dataclasses import dataclass

from mofa_model.checks import not_negative
from mofa_model.units import Bytes, Count

ADAM_MOMENTS = 8.0
"""Two fp32 moments of a parameter, which the optimizer bytes of a precision and measured traffic hold. [B]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateRule:
    """One row of presets/optimizers.toml."""

    name: str = "adamw"
    """Preset id."""
    states: Bytes = ADAM_MOMENTS
    """Moments of a parameter of a matrix inside a layer. [B]"""
    outside: Bytes = ADAM_MOMENTS
    """The same of embedding and head, where another rule may update them. [B]"""
    replaced: Bytes = ADAM_MOMENTS
    """The moments that the optimizer bytes of a precision, and measured traffic, hold in their place. [B]"""
    iterations: Count = 0.0
    """Newton-Schulz iterations on every matrix inside a layer; 0 = none. [1]"""
    gather: Bytes = 0.0
    """Sent per parameter beside gradients and weights, so that one rank has a matrix whole. [B]"""

    def __post_init__(self) -> None:
        not_negative(
            states=self.states,
            outside=self.outside,
            replaced=self.replaced,
            iterations=self.iterations,
            gather=self.gather,
        )
