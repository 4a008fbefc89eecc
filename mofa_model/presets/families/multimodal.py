"""Models that see: a tower, and one of the decoders as its text. A sequence is taken to hold one
image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mofa_model.blocks import Layer
from mofa_model.blocks.encoder import Encoder
from mofa_model.presets.families.decoders import GEMMA3, LLAMA4, QWEN2, Family
from mofa_model.presets.families.fields import Fields
from mofa_model.presets.families.parts import called
from mofa_model.spec import Run, Transformer


def seeing(f: Fields, text: Family, tower: Encoder, **defaults: Any) -> Transformer:
    """The decoder inside the file, or beside its `vision_config`, behind a tower; `defaults` are
    those of the decoder's fields.
    """
    inner = f
    if f.value("text_config") is not None:
        inner = f.inside("text_config", defaults)
        f.skip(*inner.given)  # some files say it all twice
    model = text(inner)
    ends = replace(
        model.embedding, tied=f.flag("tie_word_embeddings", default=model.embedding.tied)
    )
    runs = (Run((Layer((tower,)),)), *model.runs)
    return replace(model, name=called(f), embedding=ends, runs=runs)


def qwen2_5_vl(f: Fields) -> Transformer:
    """Qwen2.5-VL: windows in most layers of the tower; an image of about a megapixel is taken."""
    v = f.inside("vision_config")
    v.skip("spatial_patch_size", "tokens_per_second", "out_hidden_size")
    side, merge = v.number("patch_size", default=14), v.number("spatial_merge_size", default=2)
    layers = v.number("depth", default=32, most=1024)
    whole = v.places("fullatt_block_indexes", layers)
    heads = v.number("num_heads", default=16)
    span = (v.number("window_size", default=112) // side) ** 2
    tower = Encoder(
        width=v.number("hidden_size", default=3584),
        layers=layers,
        heads=heads,
        ffn=v.number("intermediate_size", default=3420),
        gated=True,
        inputs=v.number("in_channels", "in_chans", default=3)
        * v.number("temporal_patch_size", default=2)
        * side**2,
        patches=4096,
        merged=merge**2,
        window=span,
        whole_layers=4 if whole is None else len(whole),
        input_bias=False,
        norm_vectors=1,
    )
    return seeing(f, QWEN2, tower)


_GEMMA3_TEXT: Mapping[str, Any] = {
    "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
}  # fmt: skip
"""What a published Gemma 3 leaves out of its text: the defaults of its class."""


def _squares(
    v: Fields, *, patch: int, image: int, layers: int, heads: int, ffn: int
) -> dict[str, Any]:
    """A tower over a square picture cut into square patches; what is given holds where the file
    does not say.
    """
    side, channels = v.number("patch_size", default=patch), v.number("num_channels", default=3)
    return {
        "width": v.number("hidden_size", default=768),
        "layers": v.number("num_hidden_layers", default=layers, most=1024),
        "heads": v.number("num_attention_heads", default=heads),
        "ffn": v.number("intermediate_size", default=ffn),
        "inputs": channels * side**2,
        "patches": (v.number("image_size", default=image) // side) ** 2,
    }


def gemma3(f: Fields) -> Transformer:
    """Gemma 3 from 4B on: SigLIP, of whose patches 256 averages become tokens."""
    v = f.inside("vision_config")
    v.only("vision_use_head", False)
    squares = _squares(v, patch=16, image=224, layers=12, heads=12, ffn=3072)
    tower = Encoder(
        **squares,
        merged=max(squares["patches"] // f.number("mm_tokens_per_image", default=256), 1),
        positions=squares["patches"],
        final_vectors=3,
        pooled=True,
        projector=(),
        projector_bias=False,
    )
    return seeing(f, GEMMA3, tower, **_GEMMA3_TEXT)


def llama4(f: Fields) -> Transformer:
    """Llama 4: a tower with a class token; four patches become one token."""
    v = f.inside("vision_config")
    v.only("multi_modal_projector_bias", False)
    v.only("pixel_shuffle_ratio", 0.5)
    v.skip("vision_feature_select_strategy", "vision_feature_layer")
    squares = _squares(v, patch=14, image=448, layers=34, heads=16, ffn=5632)
    widths = (
        v.number("projector_input_dim", default=4096),
        v.number("projector_output_dim", default=4096),
    )
    if v.number("vision_output_dim", default=widths[1]) != widths[1]:
        raise v.bad(f"only projector_output_dim ({widths[1]}) is modelled", "vision_output_dim")
    tower = Encoder(
        **squares,
        merged=4,
        input_bias=False,
        positions=squares["patches"] + 2,
        final_vectors=4,
        projector=widths,
        projector_bias=False,
    )
    return seeing(f, LLAMA4, tower)
