"""What the config.json of each architecture means: the layers of a model, from the fields of its
file.

`fields` reads fields and refuses those that were not read. `parts` are what many families share. A
new architecture is a row of `decoders`, or a function in `hybrids` or `multimodal` with its word
below. Source of all rules: the modelling code of huggingface/transformers, against whose models the
parameters are counted in tests/data/architectures_counted.json.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mofa_model.presets.families import hybrids, multimodal
from mofa_model.presets.families.decoders import DECODERS, Family
from mofa_model.presets.families.fields import Fields

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    dict(
        sorted(
            {
                **DECODERS,
                "bamba": hybrids.bamba,
                "falcon_h1": hybrids.falcon_h1,
                "falcon_mamba": hybrids.mamba,
                "gemma3": multimodal.gemma3,
                "gemma4_text": hybrids.gemma4,
                "granitemoehybrid": hybrids.granite_hybrid,
                "jamba": hybrids.jamba,
                "kimi_linear": hybrids.kimi_linear,
                "llama4": multimodal.llama4,
                "mamba": hybrids.mamba,
                "mamba2": hybrids.mamba2,
                "mimo_v2_flash": hybrids.mimo_v2,
                "minimax": hybrids.minimax,
                "nemotron_h": hybrids.nemotron_h,
                "qwen2_5_vl": multimodal.qwen2_5_vl,
                "qwen3_5_moe_text": hybrids.qwen3_next,
                "qwen3_5_text": hybrids.qwen3_next,
                "qwen3_next": hybrids.qwen3_next,
            }.items()
        )
    )
)
"""Families by `model_type`."""

REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gemma3n": "AltUp and embeddings of each layer are",
        "gemma3n_text": "AltUp and embeddings of each layer are",
        "jetmoe": "experts inside attention are",
        "nemotron-nas": "layers that a search thinned out one by one (block_configs), "
        "which no release of transformers builds, are",
        "persimmon": "norms with a bias on queries and keys are",
        "zamba": "layers that share weights are",
        "zamba2": "layers that share weights are",
    }
)
"""Architectures that are known, and what of them is not modelled."""

__all__ = ["FAMILIES", "REFUSED", "Fields"]
