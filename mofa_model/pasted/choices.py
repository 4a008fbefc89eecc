"""Facts that are words: precision, sharding, recomputation, offloading, optimizer.

Each is a list of rules, the surest first; the first that says anything counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from mofa_model.identity.fact import (
    DTYPE_WORDS,
    OFF,
    PRECISION_SWITCHES,
    Fact,
    number,
    precision_of,
)
from mofa_model.pasted.lookup import Lookup, Meaning, Rule, fact_at, first_fact
from mofa_model.pasted.recognise import PastedKind, options_of, starter_of


def _switched(value: str, *keys: str) -> Rule:
    """A rule: the fact has this value where one of these switches is on."""
    return lambda lookup: fact_at(lookup.on(*keys), value)


def _by_value(meaning: Meaning, *keys: str) -> Rule:
    """A rule: the fact is the meaning of the first setting among these keys."""
    return lambda lookup: fact_at(lookup.first(*keys), meaning)


def _of(trainer: str, rule: Rule) -> Rule:
    """A rule that holds for one trainer alone."""
    return lambda lookup: rule(lookup) if lookup.trainer == trainer else None


# ------------------------------------------------------------------ precision


def _flags(lookup: Lookup) -> Fact | None:
    """bf16 or fp16 by a switch of its own; None where none is on."""
    yes = {"true", "1", "yes", "full"}
    if lookup.kind is not PastedKind.DEEPSPEED:
        yes.add("auto")
    for key in PRECISION_SWITCHES:
        setting = lookup.first(key)
        if setting is not None and setting.value.lower() in yes:
            return Fact(precision_of(key), setting.where)
    for setting in lookup.settings:
        switch = re.search(r"(bf16|bfloat16|fp16)\.enabled$", setting.path)
        if switch and setting.value.lower() == "true":
            return Fact(precision_of(switch[1]), setting.where)
    return None


def _by_type(lookup: Lookup) -> Fact | None:
    """The precision that a key for types says; FP32 counts as none, because it is not priced."""
    if lookup.kind is PastedKind.MODEL:
        return None
    return first_fact(
        lookup.each(DTYPE_WORDS), lambda value: precision_of(value).replace("fp32", "")
    )


# ------------------------------------------------------------------ sharding

_STAGES: Final = {0: "none", 1: "zero1", 2: "zero2", 3: "zero3"}
_STRATEGIES: Final[Mapping[str, str]] = {
    "FULL_SHARD": "zero3", "FULL": "zero3", "HYBRID_SHARD": "zero3", "HYBRID": "zero3",
    "SHARD_GRAD_OP": "zero2", "NO_SHARD": "none", "1": "zero3", "2": "zero2", "3": "none",
    "4": "zero3", "HYBRID_SHARD_ZERO2": "zero2", "_HYBRID_SHARD_ZERO2": "zero2",
}  # fmt: skip
"""Words and numbers of PyTorch's ShardingStrategy, as Accelerate and scripts take them."""


def _stage(lookup: Lookup) -> Fact | None:
    """DeepSpeed's stage; None where a file has several to choose from."""
    in_file = "zero_optimization.stage"
    stages = {setting.value for setting in lookup.settings if setting.path == in_file}
    keys = ("zero_stage", in_file, "deepspeed_config.zero_stage", "ds_zero_stage")
    for setting in lookup.each(keys):
        if len(stages) > 1 and setting.path == in_file:
            return None
        stage = number(setting.value)
        if stage in _STAGES:
            return Fact(_STAGES[stage], setting.where)
    return None


def _megatron_fsdp(lookup: Lookup) -> Fact | None:
    strategy = lookup.first("data_parallel_sharding_strategy")
    names = {"no_shard": "none", "optim": "zero1", "optim_grads": "zero2"}
    sharding = names.get(strategy.value if strategy else "", "zero3")
    return fact_at(lookup.on("use_megatron_fsdp", "use_custom_fsdp"), sharding)


def _megatron_plain(lookup: Lookup) -> Fact | None:
    if lookup.call is None or not lookup.has("micro_batch_size"):
        return None
    return Fact("none", f"{lookup.place}: no --use-distributed-optimizer")


def _of_accelerate(lookup: Lookup) -> Fact | None:
    setting = lookup.first("distributed_type")
    if lookup.kind is not PastedKind.ACCELERATE or setting is None:
        return None
    if setting.value.upper() in {"MULTI_GPU", "NO"}:
        return Fact("none", setting.where)
    if setting.value.upper() != "FSDP":
        return None
    reshard = lookup.first("fsdp_reshard_after_forward") or setting
    names = {"FALSE": "zero2", "SHARD_GRAD_OP": "zero2", "NO_SHARD": "none"}
    return Fact(names.get(reshard.value.upper(), "zero3"), reshard.where)


def _axolotl_fsdp(lookup: Lookup) -> Fact | None:
    reshard = lookup.first("reshard_after_forward", "fsdp_reshard_after_forward")
    kept = reshard is not None and reshard.value == "false"
    setting = lookup.at(r"^fsdp_config\.") or lookup.first("fsdp", "fsdp_version")
    return fact_at(setting, "zero2" if kept else "zero3")


def _named_file(lookup: Lookup) -> Fact | None:
    """How ranks share their states, guessed by the name of a DeepSpeed or Accelerate file."""
    keys = ("deepspeed", "deepspeed_config", "config_file", "deepspeed_config_file", "ds_config")
    settings = [setting for key in keys if (setting := lookup.first(key)) is not None]
    if lookup.call is not None:  # its starter's options come last
        settings += [setting for setting in options_of(lookup.call)[0] if setting.key in keys]
    for setting in settings:
        if stage := re.search(r"(?:zero|stage|z)[-_]?([0-3])(?!\d)", setting.value.lower()):
            return Fact(_STAGES[int(stage[1])], setting.where)
    return None


def _fsdp_words(value: str) -> str:
    """The sharding that the words of transformers' `fsdp` say."""
    words = value.lower()
    if words in {"false", "true", ""}:
        return ""
    return "zero2" if "shard_grad_op" in words else "none" if "no_shard" in words else "zero3"


def _automodel_strategy(value: str) -> str:
    strategy = re.search(r"fsdp|ddp", value.lower())
    return {"fsdp": "zero3", "ddp": "none"}[strategy[0]] if strategy else ""


def _olmo_core_copies(lookup: Lookup) -> Fact | None:
    setting = lookup.at(r"dataparallelconfig\.name$")
    return fact_at(setting, lambda value: "none" if value == "ddp" else "zero3")


def _maxtext_mesh(lookup: Lookup) -> Fact | None:
    axes = lookup.each(("ici_fsdp_parallelism", "dcn_fsdp_parallelism"))
    return first_fact(axes, lambda value: "" if (number(value) or 0) in {0, 1} else "zero3")


def _torchtune_recipe(lookup: Lookup) -> Fact | None:
    if lookup.call is not None or not re.search(r"_distributed\b", lookup.text):
        return None
    return Fact("zero3", f"{lookup.name}: its recipe shards everything")


def _accelerate_copies(lookup: Lookup) -> Fact | None:
    """No sharding, where Accelerate starts several GPUs and is told neither FSDP nor DeepSpeed."""
    if lookup.call is None or starter_of(lookup.call) != "accelerate":
        return None
    flags = {word.lstrip("-") for word in lookup.call.texts}
    copies = "multi_gpu" in flags and not flags & {"use_fsdp", "use_deepspeed"}
    return Fact("none", lookup.place) if copies else None


# ------------------------------------------------------------------ recomputation


def _script_switch(lookup: Lookup) -> Fact | None:
    """No recomputation, where a variable of a script of Megatron-DeepSpeed switches it off."""
    switch = re.search(r"(?mi)^[ \t]*activation_checkpoint=[\"']?false", lookup.text)
    if lookup.call is None or switch is None:
        return None
    return Fact("none", f"{lookup.name}:{lookup.text.count(chr(10), 0, switch.start()) + 1}")


_CHECKPOINTING: Final = (
    "recompute_layer", "gradient_checkpointing", "activation_checkpointing",
    "enable_activation_checkpointing", "gradient_checkpointing_enable",
    "fsdp_activation_checkpointing", "enable_gradient_checkpointing", "use_gradient_checkpointing",
    "checkpoint_layers", "grad_checkpointing", "grad_checkpoint", "use_activation_checkpoint",
)  # fmt: skip
_RECOMPUTED: Final = {
    "true": "full", "1": "full", "unsloth": "full", "full": "full", "offload": "full",
    "nothing_saveable": "full", "false": "none", "0": "none", "selective": "selective",
}  # fmt: skip


def _factory_default(lookup: Lookup) -> Fact | None:
    """LLaMA-Factory recomputes unless its own switch says no."""
    if lookup.first("finetuning_type", "stage", "cutoff_len") is None:
        return None
    return Fact("full", "derived: its trainer recomputes where nobody says it")


def _checkpointing(lookup: Lookup) -> Fact | None:
    return first_fact(lookup.each(_CHECKPOINTING), lambda value: _RECOMPUTED.get(value.lower(), ""))


# ------------------------------------------------------------------ offloading

_OFFLOADS: Final[Mapping[str, str]] = {
    "offload_optimizer.device": "optimizer", "offload_optimizer_device": "optimizer",
    "offload_param.device": "param", "offload_param_device": "param", "cpu_offload": "optimizer",
    "optimizer_cpu_offload": "optimizer", "cpu_optimizer": "optimizer", "adam_offload": "optimizer",
    "offload_params": "param", "fsdp_offload_params": "param",
    "fsdp_cpu_offload": "optimizer param", "actor.megatron.param_offload": "param",
    "actor.megatron.optimizer_offload": "optimizer", "actor.fsdp_config.param_offload": "param",
    "actor.fsdp_config.optimizer_offload": "optimizer", "offload_activations": "activations",
    "activation_offloading": "activations", "enable_activation_offloading": "activations",
    "activation_cpu_offload": "activations", "cpu_offloading": "activations",
}  # fmt: skip
"""Switches, and what each moves to the host."""


def _offload(lookup: Lookup) -> Fact | None:
    switches = [
        (setting, moved) for key, moved in _OFFLOADS.items() if (setting := lookup.first(key))
    ]
    if not switches:
        return None
    moved = " ".join(
        moved for setting, moved in switches if setting.value.strip().lower() not in OFF
    )
    parts = [part for part in ("optimizer", "param", "activations") if part in moved.split()]
    return Fact("+".join(parts) or "none", switches[0][0].where)


# ------------------------------------------------------------------ optimizer

_UPDATE_RULES: Final = (
    "adafactor", "lion", "muon", "adamw", "adam", "sgd", "shampoo", "sophia", "galore",
)  # fmt: skip
"""A longer name stands before the shorter one that is a part of it."""


def rule_of(value: str) -> str:
    """The update rule that an optimizer's name means; empty where it means none that is known.

    >>> rule_of("torch.optim.AdamW"), rule_of("paged_adamw_8bit"), rule_of("false")
    ('adamw', 'adamw-8bit', '')
    """
    plain = value.lower().rpartition(".")[2]
    for name in _UPDATE_RULES:
        if name in plain:
            return f"{name}-8bit" if "8bit" in plain else name
    return ""


def _optimizer(lookup: Lookup) -> Fact | None:
    return first_fact(lookup.each(lookup.keys("optimizer")), rule_of)


def _olmo_core_optimizer(lookup: Lookup) -> Fact | None:
    configs = (
        setting
        for setting in lookup.settings
        if setting.key == "optim" and setting.value.endswith("Config")
    )
    return fact_at(next(configs, None), rule_of)


CHOICES: Final[Mapping[str, Sequence[Rule]]] = {
    "precision": (
        _switched(
            "fp8", "fp8", "enable_fp8", "use_fp8", "fp8_format", "fp8_hybrid", "fp8_e4m3",
            "float8.enable_fp8_linear",
        ),
        _by_value(lambda value: "fp8" if "float8" in value else "", "converters"),
        _by_value(lambda value: "fp8" if "fp8" in value else "", "quantization"),
        _flags,
        _by_type,
    ),
    "sharding": (
        _stage,
        _megatron_fsdp,
        _switched("zero3", "use_torch_fsdp2"),
        _switched("zero1", "use_distributed_optimizer"),
        _of("megatron-lm", _megatron_plain),
        _by_value(
            lambda value: _STRATEGIES.get(value.upper(), ""),
            "sharding_strategy", "fsdp_sharding_strategy",
        ),
        _of_accelerate,
        _of("axolotl", _axolotl_fsdp),
        _named_file,
        _switched("zero3", "enable_fsdp", "use_fsdp"),
        _by_value(_fsdp_words, "fsdp"),
        _by_value(
            lambda value: "none" if number(value) == 1 else "zero3", "data_parallel_shard_degree"
        ),
        _of(
            "nemo-automodel",
            _by_value(_automodel_strategy, "distributed.strategy", "distributed._target_"),
        ),
        _of("olmo", _by_value("zero3", "fsdp.wrapping_strategy")),
        _of("olmo-core", _olmo_core_copies),
        _of("maxtext", _maxtext_mesh),
        _of("torchtune", _torchtune_recipe),
        _of("transformers", _accelerate_copies),
    ),
    "recompute": (
        _by_value(
            lambda value: value if value in {"full", "selective"} else "",
            "recompute_granularity", "activations_checkpoint_granularity",
        ),
        _switched("selective", "recompute_activations"),
        _switched(
            "full", "checkpoint_activations", "deepspeed_activation_checkpointing",
            "activations_checkpoint_method",
        ),
        _of("megatron-deepspeed", _script_switch),
        _of(
            "maxtext",
            _by_value(
                lambda value: value if value in {"full", "none"} else "selective", "remat_policy"
            ),
        ),
        _by_value(
            lambda value: value if value in {"none", "selective"} else "full",
            "activation_checkpoint.mode", "ac.mode", "activation_checkpointing.mode",
        ),
        _of("llama-factory", _switched("none", "disable_gradient_checkpointing")),
        _of("llama-factory", _factory_default),
        _checkpointing,
    ),
    "offload": (
        # transformers says it among the words of `fsdp`
        _by_value(lambda value: "optimizer+param" if "offload" in value.lower() else "", "fsdp"),
        _offload,
    ),
    "optimizer": (_optimizer, _of("olmo-core", _olmo_core_optimizer)),
}  # fmt: skip
"""The rules of each fact."""
