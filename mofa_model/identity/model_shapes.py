"""A model by its sizes: what trainers take where a size is not said, and the presets that
have them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from mofa_model import presets
from mofa_model.blocks import Experts, FeedForward, SoftmaxAttention
from mofa_model.identity.fact import DEGREE_WORDS, OFF, TOKENIZER_WORDS, Fact, whole_number
from mofa_model.identity.named_models import model_preset
from mofa_model.identity.settings import Setting
from mofa_model.spec import Transformer

SIZE_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "layers": ("num_layers", "num_hidden_layers", "n_layers", "nlayers", "n_layer"),
    "hidden": ("hidden_size", "hidden_width", "hidden_dim", "d_model", "n_embd", "emb_dim"),
    "heads": ("num_attention_heads", "num_heads", "n_heads", "n_head", "nheads"),
    "kv_heads": ("num_query_groups", "num_key_value_heads", "num_kv_heads", "n_kv_heads"),
    "ffn": ("ffn_hidden_size", "intermediate_size", "mlp_dim"),
    "expert_ffn": ("moe_ffn_hidden_size", "moe_intermediate_size"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
}
_PADDED: Final = 128 * 64
"""A vocabulary is padded to a multiple of 128 times the tensor-parallel degree. Megatron-LM's
default, at a degree of 64. [1]
"""
_OTHER_SHAPES: Final = frozenset(
    {
        "multi_latent_attention", "moe_layer_freq", "moe_shared_expert_intermediate_size",
        "window_size", "mtp_num_layers", "kv_channels", "is_hybrid_model",
    }
)  # fmt: skip
"""Options of Megatron-LM for shapes that its sizes alone do not say."""
NEOX: Final = "gpt_j_residual"
"""A setting that only GPT-NeoX has: attention and feed-forward part run side by side."""
_DIVISIBLE: Final = "make_vocab_size_divisible_by"
_UNTIED: Final = "untie_embeddings_and_output_weights"
_EXPERT_WIDTH, _CHOSEN = "moe_ffn_hidden_size", "moe_router_topk"
_GPT2: Final = 50257
"""Tokens of GPT-2's tokenizer. [1]"""
_VOCABULARIES: Final = ("vocab_file", "merge_file", "tokenizer_type", "tokenizer_model")


def complete_megatron(
    found_sizes: dict[str, Fact], settings: Sequence[Setting], trainer: str
) -> dict[str, int | bool]:
    """What a model that no preset has needs beside its sizes; nothing where these do not say all of
    it.

    Sizes that are not said become Megatron-LM's own: every head has its own keys, a layer has no
    experts, its feed-forward part is four times as wide as the stream (8/3 times with gates), and
    the vocabulary is padded to 128 rows of every tensor-parallel rank.
    Source: megatron/training/arguments.py, validate_args; tokenizer.py, _vocab_size_with_padding.
    """
    if trainer != "megatron-lm" or not {"layers", "hidden", "heads"} <= found_sizes.keys():
        return {}
    values = {setting.key: setting.value.lower() for setting in reversed(settings)}

    def has(switch: str) -> bool:
        return values.get(switch, "false") not in OFF

    found_sizes.setdefault("kv_heads", found_sizes["heads"])
    found_sizes.setdefault("experts", Fact(1, found_sizes["heads"].source))
    gated, hidden = has("swiglu"), found_sizes["hidden"].value
    # Megatron's own: four times the hidden size, of a gated block two thirds of it in steps of 64;
    # rows of the vocabulary in steps of 128 for each tensor rank.
    plain = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
    usual = "ffn" not in found_sizes  # so is that of many models that nobody means
    found_sizes.setdefault("ffn", Fact(plain, found_sizes["hidden"].source))
    tensor, by = whole_number(settings, DEGREE_WORDS["tp"]), whole_number(settings, (_DIVISIBLE,))
    rows = (128 if by is None else by.value) * (1 if tensor is None else tensor.value)
    named = _vocabulary(settings) if "vocabulary" not in found_sizes else None
    padded = None if named is None else Fact(-(-named.value // rows) * rows, named.source)
    if padded is not None and presets_of_shape(sizes_of({**found_sizes, "vocabulary": padded}), ""):
        found_sizes["vocabulary"] = padded  # else data are made up, or the model is nobody's
    alike = presets_of_shape(sizes_of(found_sizes), "")
    if any(has(key) for key in _OTHER_SHAPES) or (alike and not (usual and padded)):
        return {}
    if padded is not None:
        found_sizes["vocabulary"] = padded
    elif (stated := found_sizes.get("vocabulary")) is not None:
        extra = values.get("tokenizer_type") == "nulltokenizer"  # the end of a document
        found_sizes["vocabulary"] = stated._replace(value=-(-(stated.value + extra) // rows) * rows)
    rest: dict[str, int | bool] = {"gated": gated, "tied": not has(_UNTIED)}
    if found_sizes["experts"].value > 1:
        width, chosen = (whole_number(settings, (key,)) for key in (_EXPERT_WIDTH, _CHOSEN))
        rest["expert_ffn"] = found_sizes["ffn"].value if width is None else width.value
        rest["top_k"] = 2 if chosen is None else chosen.value
    return rest


def complete_neox(found_sizes: dict[str, Fact], settings: Sequence[Setting]) -> None:
    """Fill in GPT-NeoX's defaults: keys for every head, and a feed-forward part of four times the
    width. Source: gpt-neox, megatron/neox_arguments/neox_args.py.
    """
    if {"hidden", "heads"} <= found_sizes.keys() and any(
        setting.key == NEOX for setting in settings
    ):
        found_sizes.setdefault("kv_heads", found_sizes["heads"])
        found_sizes.setdefault(
            "ffn", found_sizes["hidden"]._replace(value=4 * found_sizes["hidden"].value)
        )


def _vocabulary(settings: Sequence[Setting]) -> Fact | None:
    """Tokens of the tokenizer that a job names, where it is GPT-2's or that of a known
    model. [1]
    """
    for setting in settings:
        if setting.key in _VOCABULARIES and "gpt2" in setting.value.lower():
            return Fact(_GPT2, setting.where)
    for setting in settings:
        if setting.key in TOKENIZER_WORDS and (preset := model_preset(setting.value)):
            return Fact(int(presets.model(preset).embedding.vocabulary), setting.where)
    return None


def sizes_of(found_sizes: Mapping[str, Fact]) -> tuple[tuple[str, int], ...]:
    """The sizes of a shape by name, without where they stand."""
    return tuple(sorted((name, fact.value) for name, fact in found_sizes.items()))


@cache
def presets_of_shape(shape: tuple[tuple[str, int], ...], hint: str) -> list[str]:
    """The presets that have a shape; of several those whose family the hint has, if any, and of
    these those whose vocabulary is next to the stated one.
    """
    wanted = dict(shape)
    fitting = [name for name in presets.names("models") if _has_shape(presets.model(name), wanted)]
    if len(fitting) > 1 and hint:
        hinted = {f"{a}{b}" for a, b in re.findall(r"([a-z]+)[-_]?v?(\d?)", hint.lower())}
        families = {name: re.match(r"[a-z]+\d?", name) for name in fitting}
        near = [name for name, family in families.items() if family and family[0] in hinted]
        fitting = near or fitting
    if len(fitting) > 1 and "vocabulary" in wanted:
        tokens = {name: int(presets.model(name).embedding.vocabulary) for name in fitting}
        padding = {name: wanted["vocabulary"] - count for name, count in tokens.items()}
        least = min((rows for rows in padding.values() if 0 <= rows < _PADDED), default=None)
        fitting = [name for name in fitting if padding[name] == least]
    return fitting


def _has_shape(model: Transformer, wanted: Mapping[str, int]) -> bool:
    """Whether a model has all sizes that are wanted."""
    attentions = (block for block in model.blocks if isinstance(block, SoftmaxAttention))
    if (attention := next(attentions, None)) is None:
        return False
    experts = next((int(block.count) for block in model.blocks if isinstance(block, Experts)), 1)
    sizes = {
        "layers": model.layers, "hidden": model.hidden, "heads": attention.heads,
        "kv_heads": attention.kv_heads, "experts": experts,
    }  # fmt: skip
    routed = experts > 1 and "expert_ffn" in wanted  # dense layers may be none
    width = wanted.get("expert_ffn" if routed else "ffn")
    blocks = (block for block in model.blocks if isinstance(block, FeedForward | Experts))
    return all(wanted.get(name, int(size)) == int(size) for name, size in sizes.items()) and (
        width is None or width in {int(block.width) for block in blocks}
    )
