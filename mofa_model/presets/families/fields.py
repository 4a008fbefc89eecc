"""The fields of a config.json, read by name; a field that no family reads is refused by name.

Whatever a family asks for may decide the cost. What it does not ask for must be known to be
harmless, or off: a field that nobody knows may change the cost where it switches something on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from mofa_model.errors import BadValue

LARGEST: Final = 2**24
"""No width or count of a model comes near this."""
MOST_LAYERS: Final = 2**10
"""No model comes near this many layers."""

HARMLESS: Final = frozenset(
    """
    architectures model_type torch_dtype dtype transformers_version use_cache auto_map name_or_path
    tokenizer_class prefix initializer_range init_std init_method init_config init_device
    normalization_function norm_type logits_to_keep rms_norm_eps layer_norm_eps layer_norm_epsilon
    layernorm_epsilon norm_eps norm_epsilon norm_bias hidden_act hidden_activation
    activation_function mlp_hidden_act mamba_hidden_act hidden_activation_function activation
    attention_dropout hidden_dropout classifier_dropout dropout activation_dropout embd_pdrop
    resid_pdrop attn_pdrop emb_pdrop resid_dropout residual_dropout embedding_dropout embed_dropout
    attention_probs_dropout_prob hidden_dropout_prob ffn_dropout projector_dropout
    summary_first_dropout summary_activation summary_proj_to_labels summary_type summary_use_proj
    layerdrop classifier_bias max_position_embeddings max_sequence_length max_seq_len
    model_max_length seq_length n_ctx output_past rope_theta rope_scaling rope_parameters
    rope_interleave rope_local_base_freq rope_type partial_rotary_factor rotary_pct rotary_emb_base
    rotary_dim original_max_position_embeddings initial_context_length position_embedding_type
    use_mem_rope no_rope_layers no_rope_layer_interval mla_use_nope nope_layer_interval
    use_parallel_residual rotary alibi offset_alibi bos_token_id eos_token_id eod_token_id
    pad_token_id unk_token_id sep_token_id cls_token_id mask_token_id decoder_start_token_id
    im_start_id im_end_id text_start_id text_end_id video_start_id image_start_id boi_token_index
    eoi_token_index image_token_index image_token_id video_token_id vision_start_token_id
    vision_end_token_id vision_token_id pretraining_tp gradient_checkpointing quantization_config
    is_decoder chunk_size_feed_forward slow_but_exact output_router_logits router_aux_loss_coef
    router_jitter_noise input_jitter_noise aux_loss_alpha seq_aux z_loss_coefficient
    output_attentions output_hidden_states return_dict task_specific_params problem_type id2label
    label2id use_return_dict cache_implementation torchscript num_logits_to_keep moe_jitter_eps
    moe_loss_weight moe_normalize_expert_weights norm_topk_prob routed_scaling_factor
    router_scaling_factor scoring_func topk_method ep_size moe_renormalize use_grouped_topk
    moe_router_activation_func moe_use_aux_free moe_capacity moe_norm_min moe_norm_topk_prob
    use_routing_bias use_mixed_mlp_moe attn_logit_softcapping final_logit_softcapping
    query_pre_attn_scalar sliding_window_size logit_scale logits_scaling embedding_multiplier
    residual_multiplier attention_multiplier lm_head_multiplier mlp_multipliers key_multiplier
    attention_out_multiplier attention_in_multiplier ssm_multipliers ssm_in_multiplier
    ssm_out_multiplier scale_emb scale_depth dim_model_base clip_qkv swiglu_alpha swiglu_limit
    scale_attn_weights scale_attn_by_inverse_layer_idx scale_attention_softmax_in_fp32
    attention_softmax_in_fp32 reorder_and_upcast_attn bias_dropout_fusion masked_softmax_fusion
    skip_bias_add skip_bias_add_qkv apply_residual_connection_post_layernorm residual_in_fp32
    rescale_prenorm_residual attn_temperature_tuning floor_scale attn_scale for_llm_compression
    mlp_type use_mamba_kernels time_step_min time_step_max time_step_limit time_step_floor
    time_step_rate time_step_scale time_step_init_scheme time_step_init time_step_clamp
    mamba_ssm_cache_dtype chunk_size mamba_chunk_size mamba_norm_before_gate use_mambapy
    use_associative_scan rms_norm mixer_rms_eps block_size full_attn_alpha_factor
    full_attn_beta_factor linear_attn_alpha_factor linear_attn_beta_factor mlp_alpha_factor
    mlp_beta_factor layernorm_full_attention_alpha layernorm_full_attention_beta
    layernorm_linear_attention_alpha layernorm_linear_attention_beta layernorm_mlp_alpha
    layernorm_mlp_beta postnorm order_of_interleaved_layers use_embedding_sharing
    use_gated_activation use_parallel_block use_parallel_embedding validate_runner_input
    inference_runner max_seq_length embedding_fraction learned_pos_emb tokenizer_name verbose
    moe_shared_expert_overlap indexer_rope_interleave sequence_parallel_enabled bad_words_ids
    begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id
    length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams
    num_return_sequences remove_invalid_values repetition_penalty return_dict_in_generate
    suppress_tokens temperature tf_legacy_loss top_k top_p typical_p use_bfloat16
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
"""Fields that change no count and no work, in any family."""


def is_on(value: Any) -> bool:
    """Whether a field is set. Null, false, zero and empty values mean that it is off, as a missing
    field does.

    >>> [is_on(value) for value in (None, False, 0, "", [], {}, True, 4, [0])]
    [False, False, False, False, False, False, True, True, True]
    """
    return bool(value)


@dataclass(slots=True)
class Fields:
    """A config.json, or an object inside of one."""

    given: Mapping[str, Any]
    """What stands in the file."""
    path: str = "config"
    """What errors call it."""
    asked: set[str] = field(default_factory=set)
    """Names that a family asked for."""
    nested: list[Fields] = field(default_factory=list)
    """Objects that a family looked into."""

    def name(self, *names: str) -> str:
        """The first of several names that the file gives a value to, else the first."""
        self.asked.update(names)
        return next((name for name in names if self.given.get(name) is not None), names[0])

    def value(self, *names: str) -> Any:
        """What the file says; None where it says nothing."""
        return self.given.get(self.name(*names))

    def number(
        self, *names: str, default: int | None = None, least: int = 1, most: int = LARGEST
    ) -> int:
        """A whole number; one that is missing and has no default is refused."""
        value = self.value(*names)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.bad(f"the file must give a whole number between {least} and {most}", *names)
        return value

    def flag(self, *names: str, default: bool) -> bool:
        """True or false."""
        value = self.value(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.bad("true or false", *names)
        return value

    def words(self, name: str, length: int, legal: Sequence[str]) -> list[str] | None:
        """A list with a known word for each layer; None where the file has none."""
        what = f"words, each {' or '.join(legal)}"
        return self._list(name, length, what, lambda word: word in legal)

    def places(self, name: str, most: int, *, counted_from: int = 0) -> frozenset[int] | None:
        """A list of layers by their number, the first one called `counted_from`; None where the
        file has none.
        """
        value = self.value(name)
        if value is None:
            return None
        legal = range(counted_from, most + counted_from)
        if not (
            isinstance(value, list)
            and all(type(layer) is int and layer in legal for layer in value)
        ):  # True is no number
            raise self.bad(
                f"a list of layers from {counted_from} to {most - 1 + counted_from}", name
            )
        return frozenset(layer - counted_from for layer in value)

    def places_of(self, name: str, length: int) -> list[bool] | None:
        """A list with 1 for each layer that has something and 0 for each other; None where the file
        has none.
        """
        flags = self._list(
            name, length, "numbers, each 0 or 1", lambda flag: type(flag) is int and flag in (0, 1)
        )
        return None if flags is None else [flag == 1 for flag in flags]

    def _list(
        self, name: str, length: int, what: str, is_legal: Callable[[Any], bool]
    ) -> list[Any] | None:
        """A list of so many values, each legal; None where the file has none."""
        value = self.value(name)
        if value is None:
            return None
        if not (isinstance(value, list) and len(value) == length and all(map(is_legal, value))):
            raise self.bad(f"a list of {length} {what}", name)
        return value

    def only(self, name: str, *values: Any) -> None:
        """Refuse a field that has another value than those that are modelled."""
        value = self.value(name)
        if value is not None and not any(
            type(value) is type(legal) and value == legal for legal in values
        ):
            raise self.bad(
                f"only {' or '.join(str(legal).lower() for legal in values)} is modelled", name
            )

    def inside(self, name: str, defaults: Mapping[str, Any] = MappingProxyType({})) -> Fields:
        """An object inside the file; an empty one where the file has none. What it leaves out is as
        in `defaults`.
        """
        value = self.value(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.bad("the file must give an object", name)
        fields = Fields({**defaults, **(value or {})}, f"{self.path}.{name}")
        self.nested.append(fields)
        return fields

    def skip(self, *names: str) -> None:
        """Fields that change nothing in this family, though they do in others."""
        self.asked.update(names)

    def bad(self, right: str, *names: str) -> BadValue:
        """The error for a field whose value cannot be right."""
        name = self.name(*names)
        return BadValue(f"{self.path}.{name}", self.given.get(name), right)

    def finish(self) -> None:
        """Refuse the fields that were not read."""
        for name, value in self.given.items():
            if (
                name not in self.asked
                and name not in HARMLESS
                and not str(name).startswith("_")
                and is_on(value)
            ):
                right = (
                    "no such field is known for this family, so its cost is not; "
                    "leave it out if it has none"
                )
                raise BadValue(f"{self.path}.{name}", value, right)
        for fields in self.nested:
            fields.finish()
