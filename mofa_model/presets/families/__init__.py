"""What the config.json of each architecture means: one function a family, which reads the fields and says the layers.

`fields` asks for fields and refuses what nobody asked for; `parts` are what many families share. A new architecture is a
function in one of the files, and its word in `FAMILIES`. Source of all rules: the modelling code of huggingface/transformers,
against whose models the parameters are counted in tests/data/architectures_counted.json.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from mofa_model.presets.families import dense, earlier, hybrids, mixtures, multimodal, unlike
from mofa_model.presets.families.fields import Fields
from mofa_model.spec import Transformer

FAMILIES: Final[Mapping[str, Callable[[Fields], Transformer]]] = MappingProxyType(
    {
        "apertus": dense.apertus,
        "arcee": dense.ungated,
        "bamba": hybrids.bamba,
        "bloom": earlier.bloom,
        "codegen": earlier.gpt_j,
        "cohere": dense.cohere,
        "cohere2": dense.cohere2,
        "dbrx": mixtures.dbrx,
        "deepseek_v2": mixtures.deepseek,
        "deepseek_v3": mixtures.deepseek,
        "deepseek_v32": mixtures.deepseek,
        "dots1": mixtures.dots,
        "ernie4_5": dense.ernie,
        "ernie4_5_moe": mixtures.ernie_moe,
        "exaone4": dense.exaone4,
        "falcon": earlier.falcon,
        "falcon_h1": hybrids.falcon_h1,
        "falcon_mamba": hybrids.mamba,
        "gemma": dense.gemma,
        "gemma2": dense.gemma2,
        "gemma3": multimodal.gemma3,
        "gemma3_text": dense.gemma3,
        "gemma4_text": unlike.gemma4,
        "glm": dense.glm,
        "glm4": dense.glm,
        "glm4_moe": mixtures.glm4_moe,
        "gpt2": earlier.gpt2,
        "gpt_bigcode": earlier.bigcode,
        "gpt_neo": earlier.gpt_neo,
        "gpt_neox": earlier.gpt_neox,
        "gpt_oss": mixtures.gpt_oss,
        "gptj": earlier.gpt_j,
        "granite": dense.llama,
        "granitemoe": mixtures.granite_moe,
        "granitemoehybrid": hybrids.granite_hybrid,
        "granitemoeshared": mixtures.granite_moe,
        "hunyuan_v1_dense": dense.hunyuan,
        "hunyuan_v1_moe": mixtures.hunyuan_moe,
        "jamba": hybrids.jamba,
        "kimi_k2": mixtures.deepseek,
        "kimi_linear": hybrids.kimi_linear,
        "llama": dense.llama,
        "llama4": multimodal.llama4,
        "llama4_text": mixtures.llama4,
        "mamba": hybrids.mamba,
        "mamba2": hybrids.mamba2,
        "mimo_v2_flash": unlike.mimo_v2,
        "minicpm3": dense.minicpm3,
        "minimax": hybrids.minimax,
        "minimax_m2": mixtures.minimax_m2,
        "mistral": dense.mistral,
        "mixtral": mixtures.mixtral,
        "mpt": earlier.mpt,
        "nemotron": dense.nemotron,
        "nemotron_h": hybrids.nemotron_h,
        "olmo": dense.olmo,
        "olmo2": dense.olmo2,
        "olmo3": dense.olmo2,
        "olmoe": mixtures.olmoe,
        "opt": earlier.opt,
        "phi": dense.phi,
        "phi3": dense.mistral,
        "phimoe": mixtures.phimoe,
        "qwen2": dense.qwen2,
        "qwen2_5_vl": multimodal.qwen2_5_vl,
        "qwen2_5_vl_text": dense.qwen2,
        "qwen2_moe": mixtures.qwen_moe,
        "qwen3": dense.qwen3,
        "qwen3_5_moe_text": hybrids.qwen3_next,
        "qwen3_5_text": hybrids.qwen3_next,
        "qwen3_moe": mixtures.qwen_moe,
        "qwen3_next": hybrids.qwen3_next,
        "qwen3_vl_moe_text": mixtures.qwen_moe,
        "qwen3_vl_text": dense.qwen3,
        "seed_oss": dense.seed_oss,
        "smollm3": dense.smollm3,
        "stablelm": dense.stablelm,
        "starcoder2": dense.starcoder2,
    }
)
"""Families by `model_type`."""

REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gemma3n": "AltUp and embeddings of each layer are",
        "gemma3n_text": "AltUp and embeddings of each layer are",
        "jetmoe": "experts inside attention are",
        "nemotron-nas": "layers that a search thinned out one by one (block_configs), which no release of transformers builds, are",
        "persimmon": "norms with a bias on queries and keys are",
        "zamba": "layers that share weights are",
        "zamba2": "layers that share weights are",
    }
)
"""Architectures that are known, and what of them is not modelled."""

__all__ = ["FAMILIES", "REFUSED", "Fields"]
