"""Facts that are words: precision, sharding, recomputation, offloading, optimizer.

Each is a list of rules, the surest first; the first that says anything counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from mofa_model.identity.fact import Fact
from mofa_model.identity.settings import Setting
from mofa_model.pasted.recognise import PastedKind, options_of, starter_of
from mofa_model.pasted.told import OFF, Rule, Told, number, said_of

# ------------------------------------------------------------------ precision


def _eight_bits(told: Told) -> Fact | None:
    """FP8, where a switch of any known name is on; None where none says it."""
    switch = told.on(
        "fp8",
        "enable_fp8",
        "use_fp8",
        "fp8_format",
        "fp8_hybrid",
        "fp8_e4m3",
        "float8.enable_fp8_linear",
    )
    if switch is not None:
        return Fact("fp8", switch.where)
    for word, mark in (("converters", "float8"), ("quantization", "fp8")):
        one = told.first(word)
        if one is not None and mark in one.value:
            return Fact("fp8", one.where)
    return None


def _flags(told: Told) -> Fact | None:
    """bf16 or fp16 by a switch of its own; None where none is on."""
    for word in ("bf16", "pure_bf16", "use_bf16", "enable_bf16", "fp16", "use_fp16"):
        one = told.first(word)
        on = one.value.lower() in {"true", "1", "yes", "full"} if one is not None else False
        auto = (
            one is not None
            and one.value.lower() == "auto"
            and told.kind is not PastedKind.DEEPSPEED
        )
        if on or auto:
            return said_of(one, "fp16" if "fp16" in word else "bf16")
    for one in told.settings:
        if one.value.lower() == "true" and (
            found := re.search(r"(bf16|bfloat16|fp16)\.enabled$", one.path)
        ):
            return Fact("fp16" if found[1] == "fp16" else "bf16", one.where)
    return None


_DTYPES: Final = (
    "mixed_precision", "precision", "plugins", "mp", "mixed_precision_param", "param_dtype", "compute_dtype", "dtype",
    "torch_dtype", "model_dtype", "mixed_precision_dtype", "data_type", "bnb_4bit_compute_dtype",
)  # fmt: skip


def _by_type(told: Told) -> Fact | None:
    if told.kind is PastedKind.MODEL:
        return None
    for one in told.each(_DTYPES):
        if kind := dtype(one.value):
            return Fact(kind, one.where)
    return None


def dtype(value: str) -> str:
    """The precision that a word means; empty where it is none that is priced apart.

    >>> dtype("amp_bf16"), dtype("torch.float16"), dtype("p=f32,c=bfloat16"), dtype("fp32")
    ('bf16', 'fp16', 'bf16', '')
    """
    for form, kind in (
        ("fp8|float8", "fp8"),
        ("bf16|bfloat16", "bf16"),
        ("fp16|float16|half|^16(-mixed)?$", "fp16"),
    ):
        if re.search(form, value.lower()):
            return kind
    return ""


# ------------------------------------------------------------------ sharding

_STAGES: Final = {0: "none", 1: "zero1", 2: "zero2", 3: "zero3"}
_STRATEGIES: Final[Mapping[str, str]] = {
    "FULL_SHARD": "zero3", "FULL": "zero3", "HYBRID_SHARD": "zero3", "HYBRID": "zero3", "SHARD_GRAD_OP": "zero2", "NO_SHARD": "none",
    "1": "zero3", "2": "zero2", "3": "none", "4": "zero3", "HYBRID_SHARD_ZERO2": "zero2", "_HYBRID_SHARD_ZERO2": "zero2",
}  # fmt: skip
"""Words and numbers of PyTorch's ShardingStrategy, as Accelerate and scripts take them."""


def _stage(told: Told) -> Fact | None:
    words = (
        "zero_stage",
        "zero_optimization.stage",
        "deepspeed_config.zero_stage",
        "ds_zero_stage",
    )
    stages = {one.value for one in told.settings if one.path == "zero_optimization.stage"}
    for one in told.each(words):
        if len(stages) > 1 and one.path == "zero_optimization.stage":
            return None  # several to choose from
        stage = number(one.value)
        if stage in _STAGES:
            return Fact(_STAGES[stage], one.where)
    return None


def _of_megatron(told: Told) -> Fact | None:
    if one := told.on("use_megatron_fsdp", "use_custom_fsdp"):
        how = told.first("data_parallel_sharding_strategy")
        names = {"no_shard": "none", "optim": "zero1", "optim_grads": "zero2"}
        return Fact(names.get(how.value if how else "", "zero3"), one.where)
    if one := told.on("use_torch_fsdp2"):
        return Fact("zero3", one.where)
    if one := told.on("use_distributed_optimizer"):
        return Fact("zero1", one.where)
    if told.trainer == "megatron-lm" and told.call is not None and told.having("micro_batch_size"):
        return Fact("none", f"{told.place}: no --use-distributed-optimizer")
    return None


def _strategy(told: Told) -> Fact | None:
    one = told.first("sharding_strategy", "fsdp_sharding_strategy")
    return said_of(one, _STRATEGIES.get(one.value.upper(), "") if one else "")


def _of_accelerate(told: Told) -> Fact | None:
    one = told.first("distributed_type")
    if told.kind is not PastedKind.ACCELERATE or one is None:
        return None
    if one.value.upper() in {"MULTI_GPU", "NO"}:
        return Fact("none", one.where)
    if one.value.upper() != "FSDP":
        return None
    again = told.first("fsdp_reshard_after_forward")
    names = {"FALSE": "zero2", "SHARD_GRAD_OP": "zero2", "NO_SHARD": "none"}
    return Fact(names.get(again.value.upper() if again else "", "zero3"), (again or one).where)


def _of_axolotl(told: Told) -> Fact | None:
    if told.trainer != "axolotl":
        return None
    one = next((one for one in told.settings if one.path.startswith("fsdp_config.")), None)
    again = told.first("reshard_after_forward", "fsdp_reshard_after_forward")
    kept = again is not None and again.value == "false"
    return said_of(one or told.first("fsdp", "fsdp_version"), "zero2" if kept else "zero3")


def _named_file(told: Told) -> Fact | None:
    """How ranks share their states, guessed by the name of a DeepSpeed or Accelerate file."""
    words = ("deepspeed", "deepspeed_config", "config_file", "deepspeed_config_file", "ds_config")
    told_all = [
        one for word in words if (one := told.first(word)) is not None
    ]  # a command goes first
    if told.call is not None:
        told_all += [one for one in options_of(told.call)[0] if one.key in words]
    for one in told_all:
        if found := re.search(r"(?:zero|stage|z)[-_]?([0-3])(?!\d)", one.value.lower()):
            return Fact(_STAGES[int(found[1])], one.where)
    return None


def _word_fsdp(told: Told) -> Fact | None:
    if switch := told.on("enable_fsdp", "use_fsdp"):
        return Fact("zero3", switch.where)
    one = told.first("fsdp")
    if one is None or one.value.lower() in {"false", "true", ""}:
        return None
    text = one.value.lower()
    return Fact(
        "zero2" if "shard_grad_op" in text else "none" if "no_shard" in text else "zero3", one.where
    )


def _degrees(told: Told) -> Fact | None:
    one = told.first("data_parallel_shard_degree")
    if one is not None:
        return Fact("none" if number(one.value) == 1 else "zero3", one.where)
    one = told.first("distributed.strategy", "distributed._target_")
    if told.trainer == "nemo-automodel" and one is not None:
        found = re.search(r"fsdp|ddp", one.value.lower())
        return said_of(one, {"fsdp": "zero3", "ddp": "none"}[found[0]] if found else "")
    return None


def _of_olmo(told: Told) -> Fact | None:
    if told.trainer == "olmo":
        return said_of(told.first("fsdp.wrapping_strategy"), "zero3")
    if told.trainer == "olmo-core":
        one = next(
            (one for one in told.settings if one.path.endswith("dataparallelconfig.name")), None
        )
        return said_of(one, "none" if one is not None and one.value == "ddp" else "zero3")
    return None


def _of_mesh(told: Told) -> Fact | None:
    if told.trainer != "maxtext":
        return None
    for one in told.each(("ici_fsdp_parallelism", "dcn_fsdp_parallelism")):
        if (number(one.value) or 0) not in {0, 1}:
            return Fact("zero3", one.where)
    return None


def _by_recipe(told: Told) -> Fact | None:
    """How ranks share their states by the name of a recipe or starter, where these always do
    the same.
    """
    if (
        told.trainer == "torchtune"
        and told.call is None
        and re.search(r"_distributed\b", told.text)
    ):
        return Fact("zero3", f"{told.name}: its recipe shards everything")
    if (
        told.trainer == "transformers"
        and told.call is not None
        and starter_of(told.call) == "accelerate"
    ):
        flags = {word.lstrip("-") for word in told.call.texts}
        if "multi_gpu" in flags and not flags & {"use_fsdp", "use_deepspeed"}:
            return Fact("none", told.place)
    return None


# ------------------------------------------------------------------ recomputation


def _granularity(told: Told) -> Fact | None:
    """Recomputation by Megatron's words: full, selective or none; None where nothing says it."""
    one = told.first("recompute_granularity", "activations_checkpoint_granularity")
    if one is not None and one.value in {"full", "selective"}:
        return Fact(one.value, one.where)
    if one := told.on("recompute_activations"):
        return Fact("selective", one.where)
    words = (
        "checkpoint_activations",
        "deepspeed_activation_checkpointing",
        "activations_checkpoint_method",
    )
    if one := told.on(*words):
        return Fact("full", one.where)
    switch = re.search(r"(?mi)^[ \t]*activation_checkpoint=[\"']?false", told.text)
    if told.trainer == "megatron-deepspeed" and told.call is not None and switch:
        return Fact("none", f"{told.name}:{told.text.count(chr(10), 0, switch.start()) + 1}")
    return None


def _modes(told: Told) -> Fact | None:
    if told.trainer == "maxtext" and (one := told.first("remat_policy")):
        return Fact({"full": "full", "none": "none"}.get(one.value, "selective"), one.where)
    one = told.first("activation_checkpoint.mode", "ac.mode", "activation_checkpointing.mode")
    if one is not None:
        return Fact(one.value if one.value in {"none", "selective"} else "full", one.where)
    return None


_SWITCHES: Final = (
    "recompute_layer", "gradient_checkpointing", "activation_checkpointing", "enable_activation_checkpointing",
    "gradient_checkpointing_enable", "fsdp_activation_checkpointing", "enable_gradient_checkpointing",
    "use_gradient_checkpointing", "checkpoint_layers", "grad_checkpointing", "grad_checkpoint", "use_activation_checkpoint",
)  # fmt: skip
_SAID: Final = {
    "true": "full", "1": "full", "unsloth": "full", "full": "full", "offload": "full", "nothing_saveable": "full",
    "false": "none", "0": "none", "selective": "selective",
}  # fmt: skip


def _of_factory(told: Told) -> Fact | None:
    """Recomputation in LLaMA-Factory, which does it unless its own switch says no."""
    if told.trainer != "llama-factory":
        return None
    if one := told.on("disable_gradient_checkpointing"):
        return Fact("none", one.where)
    is_here = told.first("finetuning_type", "stage", "cutoff_len") is not None
    return Fact("full", "derived: its trainer recomputes where nobody says it") if is_here else None


def _switches(told: Told) -> Fact | None:
    for one in told.each(_SWITCHES):
        if value := _SAID.get(one.value.lower()):
            return Fact(value, one.where)
    return None


# ------------------------------------------------------------------ offloading

_OFFLOADS: Final[Mapping[str, str]] = {
    "offload_optimizer.device": "optimizer", "offload_optimizer_device": "optimizer", "offload_param.device": "param",
    "offload_param_device": "param", "cpu_offload": "optimizer", "optimizer_cpu_offload": "optimizer", "cpu_optimizer": "optimizer",
    "adam_offload": "optimizer", "offload_params": "param", "fsdp_offload_params": "param", "fsdp_cpu_offload": "optimizer param",
    "actor.megatron.param_offload": "param", "actor.megatron.optimizer_offload": "optimizer",
    "actor.fsdp_config.param_offload": "param", "actor.fsdp_config.optimizer_offload": "optimizer",
    "offload_activations": "activations", "activation_offloading": "activations", "enable_activation_offloading": "activations",
    "activation_cpu_offload": "activations", "cpu_offloading": "activations",
}  # fmt: skip
"""Switches, and what each moves to the host."""


def _offload(told: Told) -> Fact | None:
    fsdp = told.first("fsdp")
    if fsdp is not None and "offload" in fsdp.value.lower():  # as transformers says it
        return Fact("optimizer+param", fsdp.where)
    found = [(one, moved) for word, moved in _OFFLOADS.items() if (one := told.first(word))]
    if not found:
        return None
    moved = {
        word
        for one, words in found
        if one.value.strip().lower() not in OFF
        for word in words.split()
    }
    order = [word for word in ("optimizer", "param", "activations") if word in moved]
    return Fact("+".join(order) or "none", found[0][0].where)


# ------------------------------------------------------------------ optimizer

_RULES: Final = (
    ("adafactor", "adafactor"), ("lion", "lion"), ("muon", "muon"), ("adamw", "adamw"), ("adam", "adam"), ("sgd", "sgd"),
    ("shampoo", "shampoo"), ("sophia", "sophia"), ("galore", "galore"),
)  # fmt: skip


def rule_of(value: str) -> str:
    """The update rule that an optimizer's name means; empty where it means none that is known.

    >>> [rule_of(one) for one in ("adamw_torch_fused", "torch.optim.AdamW", "paged_adamw_8bit", "false")]
    ['adamw', 'adamw', 'adamw-8bit', '']
    """
    plain = value.lower().rpartition(".")[2]
    for form, name in _RULES:
        if form in plain:
            return f"{name}-8bit" if "8bit" in plain else name
    return ""


def _optimizer(told: Told) -> Fact | None:
    for one in told.each(told.row("optimizer")):
        if name := rule_of(one.value):
            return Fact(name, one.where)
    made: Setting | None = next(
        (one for one in told.settings if one.key == "optim" and one.value.endswith("Config")), None
    )
    return said_of(
        made, rule_of(made.value) if made is not None and told.trainer == "olmo-core" else ""
    )


CHOICES: Final[Mapping[str, Sequence[Rule]]] = {
    "precision": (_eight_bits, _flags, _by_type),
    "sharding": (
        _stage, _of_megatron, _strategy, _of_accelerate, _of_axolotl, _named_file, _word_fsdp, _degrees, _of_olmo, _of_mesh,
        _by_recipe,
    ),
    "recompute": (_granularity, _modes, _of_factory, _switches),
    "offload": (_offload,),
    "optimizer": (_optimizer,),
}  # fmt: skip
"""The rules of each fact."""
