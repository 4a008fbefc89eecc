"""Facts that are words: precision, sharding, recomputation, offloading, optimizer.

Each is a list of rules, the surest first; the first that says anything counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from mofa_model.identity.fact import Fact
from mofa_model.identity.settings import Setting
from mofa_model.pasted.lookup import OFF, Lookup, Rule, fact_at, number
from mofa_model.pasted.recognise import PastedKind, options_of, starter_of

# ------------------------------------------------------------------ precision


def _eight_bits(lookup: Lookup) -> Fact | None:
    """FP8, where a switch of any known name is on; None where none says it."""
    switch = lookup.on(
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
        setting = lookup.first(word)
        if setting is not None and mark in setting.value:
            return Fact("fp8", setting.where)
    return None


def _flags(lookup: Lookup) -> Fact | None:
    """bf16 or fp16 by a switch of its own; None where none is on."""
    for word in ("bf16", "pure_bf16", "use_bf16", "enable_bf16", "fp16", "use_fp16"):
        setting = lookup.first(word)
        on = setting.value.lower() in {"true", "1", "yes", "full"} if setting is not None else False
        auto = (
            setting is not None
            and setting.value.lower() == "auto"
            and lookup.kind is not PastedKind.DEEPSPEED
        )
        if on or auto:
            return fact_at(setting, "fp16" if "fp16" in word else "bf16")
    for setting in lookup.settings:
        if setting.value.lower() == "true" and (
            precision := re.search(r"(bf16|bfloat16|fp16)\.enabled$", setting.path)
        ):
            return Fact("fp16" if precision[1] == "fp16" else "bf16", setting.where)
    return None


_DTYPES: Final = (
    "mixed_precision", "precision", "plugins", "mp", "mixed_precision_param", "param_dtype",
    "compute_dtype", "dtype", "torch_dtype", "model_dtype", "mixed_precision_dtype", "data_type",
    "bnb_4bit_compute_dtype",
)  # fmt: skip


def _by_type(lookup: Lookup) -> Fact | None:
    if lookup.kind is PastedKind.MODEL:
        return None
    for setting in lookup.each(_DTYPES):
        if kind := dtype(setting.value):
            return Fact(kind, setting.where)
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
    "FULL_SHARD": "zero3", "FULL": "zero3", "HYBRID_SHARD": "zero3", "HYBRID": "zero3",
    "SHARD_GRAD_OP": "zero2", "NO_SHARD": "none", "1": "zero3", "2": "zero2", "3": "none",
    "4": "zero3", "HYBRID_SHARD_ZERO2": "zero2", "_HYBRID_SHARD_ZERO2": "zero2",
}  # fmt: skip
"""Words and numbers of PyTorch's ShardingStrategy, as Accelerate and scripts take them."""


def _stage(lookup: Lookup) -> Fact | None:
    words = (
        "zero_stage",
        "zero_optimization.stage",
        "deepspeed_config.zero_stage",
        "ds_zero_stage",
    )
    stages = {
        setting.value for setting in lookup.settings if setting.path == "zero_optimization.stage"
    }
    for setting in lookup.each(words):
        if len(stages) > 1 and setting.path == "zero_optimization.stage":
            return None  # several to choose from
        stage = number(setting.value)
        if stage in _STAGES:
            return Fact(_STAGES[stage], setting.where)
    return None


def _of_megatron(lookup: Lookup) -> Fact | None:
    if setting := lookup.on("use_megatron_fsdp", "use_custom_fsdp"):
        how = lookup.first("data_parallel_sharding_strategy")
        names = {"no_shard": "none", "optim": "zero1", "optim_grads": "zero2"}
        return Fact(names.get(how.value if how else "", "zero3"), setting.where)
    if setting := lookup.on("use_torch_fsdp2"):
        return Fact("zero3", setting.where)
    if setting := lookup.on("use_distributed_optimizer"):
        return Fact("zero1", setting.where)
    if (
        lookup.trainer == "megatron-lm"
        and lookup.call is not None
        and lookup.has("micro_batch_size")
    ):
        return Fact("none", f"{lookup.place}: no --use-distributed-optimizer")
    return None


def _strategy(lookup: Lookup) -> Fact | None:
    setting = lookup.first("sharding_strategy", "fsdp_sharding_strategy")
    return fact_at(setting, _STRATEGIES.get(setting.value.upper(), "") if setting else "")


def _of_accelerate(lookup: Lookup) -> Fact | None:
    setting = lookup.first("distributed_type")
    if lookup.kind is not PastedKind.ACCELERATE or setting is None:
        return None
    if setting.value.upper() in {"MULTI_GPU", "NO"}:
        return Fact("none", setting.where)
    if setting.value.upper() != "FSDP":
        return None
    again = lookup.first("fsdp_reshard_after_forward")
    names = {"FALSE": "zero2", "SHARD_GRAD_OP": "zero2", "NO_SHARD": "none"}
    return Fact(names.get(again.value.upper() if again else "", "zero3"), (again or setting).where)


def _of_axolotl(lookup: Lookup) -> Fact | None:
    if lookup.trainer != "axolotl":
        return None
    setting = next(
        (setting for setting in lookup.settings if setting.path.startswith("fsdp_config.")), None
    )
    again = lookup.first("reshard_after_forward", "fsdp_reshard_after_forward")
    kept = again is not None and again.value == "false"
    return fact_at(setting or lookup.first("fsdp", "fsdp_version"), "zero2" if kept else "zero3")


def _named_file(lookup: Lookup) -> Fact | None:
    """How ranks share their states, guessed by the name of a DeepSpeed or Accelerate file."""
    words = ("deepspeed", "deepspeed_config", "config_file", "deepspeed_config_file", "ds_config")
    settings = [
        setting for word in words if (setting := lookup.first(word)) is not None
    ]  # a command goes first
    if lookup.call is not None:
        settings += [setting for setting in options_of(lookup.call)[0] if setting.key in words]
    for setting in settings:
        if stage := re.search(r"(?:zero|stage|z)[-_]?([0-3])(?!\d)", setting.value.lower()):
            return Fact(_STAGES[int(stage[1])], setting.where)
    return None


def _word_fsdp(lookup: Lookup) -> Fact | None:
    if switch := lookup.on("enable_fsdp", "use_fsdp"):
        return Fact("zero3", switch.where)
    setting = lookup.first("fsdp")
    if setting is None or setting.value.lower() in {"false", "true", ""}:
        return None
    text = setting.value.lower()
    return Fact(
        "zero2" if "shard_grad_op" in text else "none" if "no_shard" in text else "zero3",
        setting.where,
    )


def _degrees(lookup: Lookup) -> Fact | None:
    setting = lookup.first("data_parallel_shard_degree")
    if setting is not None:
        return Fact("none" if number(setting.value) == 1 else "zero3", setting.where)
    setting = lookup.first("distributed.strategy", "distributed._target_")
    if lookup.trainer == "nemo-automodel" and setting is not None:
        strategy = re.search(r"fsdp|ddp", setting.value.lower())
        return fact_at(setting, {"fsdp": "zero3", "ddp": "none"}[strategy[0]] if strategy else "")
    return None


def _of_olmo(lookup: Lookup) -> Fact | None:
    if lookup.trainer == "olmo":
        return fact_at(lookup.first("fsdp.wrapping_strategy"), "zero3")
    if lookup.trainer == "olmo-core":
        setting = next(
            (
                setting
                for setting in lookup.settings
                if setting.path.endswith("dataparallelconfig.name")
            ),
            None,
        )
        return fact_at(
            setting, "none" if setting is not None and setting.value == "ddp" else "zero3"
        )
    return None


def _of_mesh(lookup: Lookup) -> Fact | None:
    if lookup.trainer != "maxtext":
        return None
    for setting in lookup.each(("ici_fsdp_parallelism", "dcn_fsdp_parallelism")):
        if (number(setting.value) or 0) not in {0, 1}:
            return Fact("zero3", setting.where)
    return None


def _by_recipe(lookup: Lookup) -> Fact | None:
    """How ranks share their states by the name of a recipe or starter, where these always do
    the same.
    """
    if (
        lookup.trainer == "torchtune"
        and lookup.call is None
        and re.search(r"_distributed\b", lookup.text)
    ):
        return Fact("zero3", f"{lookup.name}: its recipe shards everything")
    if (
        lookup.trainer == "transformers"
        and lookup.call is not None
        and starter_of(lookup.call) == "accelerate"
    ):
        flags = {word.lstrip("-") for word in lookup.call.texts}
        if "multi_gpu" in flags and not flags & {"use_fsdp", "use_deepspeed"}:
            return Fact("none", lookup.place)
    return None


# ------------------------------------------------------------------ recomputation


def _granularity(lookup: Lookup) -> Fact | None:
    """Recomputation by Megatron's words: full, selective or none; None where nothing says it."""
    setting = lookup.first("recompute_granularity", "activations_checkpoint_granularity")
    if setting is not None and setting.value in {"full", "selective"}:
        return Fact(setting.value, setting.where)
    if setting := lookup.on("recompute_activations"):
        return Fact("selective", setting.where)
    words = (
        "checkpoint_activations",
        "deepspeed_activation_checkpointing",
        "activations_checkpoint_method",
    )
    if setting := lookup.on(*words):
        return Fact("full", setting.where)
    switch = re.search(r"(?mi)^[ \t]*activation_checkpoint=[\"']?false", lookup.text)
    if lookup.trainer == "megatron-deepspeed" and lookup.call is not None and switch:
        return Fact("none", f"{lookup.name}:{lookup.text.count(chr(10), 0, switch.start()) + 1}")
    return None


def _modes(lookup: Lookup) -> Fact | None:
    if lookup.trainer == "maxtext" and (setting := lookup.first("remat_policy")):
        return Fact({"full": "full", "none": "none"}.get(setting.value, "selective"), setting.where)
    setting = lookup.first("activation_checkpoint.mode", "ac.mode", "activation_checkpointing.mode")
    if setting is not None:
        return Fact(
            setting.value if setting.value in {"none", "selective"} else "full", setting.where
        )
    return None


_SWITCHES: Final = (
    "recompute_layer", "gradient_checkpointing", "activation_checkpointing",
    "enable_activation_checkpointing", "gradient_checkpointing_enable",
    "fsdp_activation_checkpointing", "enable_gradient_checkpointing", "use_gradient_checkpointing",
    "checkpoint_layers", "grad_checkpointing", "grad_checkpoint", "use_activation_checkpoint",
)  # fmt: skip
_RECOMPUTED: Final = {
    "true": "full", "1": "full", "unsloth": "full", "full": "full", "offload": "full",
    "nothing_saveable": "full", "false": "none", "0": "none", "selective": "selective",
}  # fmt: skip


def _of_factory(lookup: Lookup) -> Fact | None:
    """Recomputation in LLaMA-Factory, which does it unless its own switch says no."""
    if lookup.trainer != "llama-factory":
        return None
    if setting := lookup.on("disable_gradient_checkpointing"):
        return Fact("none", setting.where)
    is_here = lookup.first("finetuning_type", "stage", "cutoff_len") is not None
    return Fact("full", "derived: its trainer recomputes where nobody says it") if is_here else None


def _switches(lookup: Lookup) -> Fact | None:
    for setting in lookup.each(_SWITCHES):
        if value := _RECOMPUTED.get(setting.value.lower()):
            return Fact(value, setting.where)
    return None


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
    fsdp = lookup.first("fsdp")
    if fsdp is not None and "offload" in fsdp.value.lower():  # as transformers says it
        return Fact("optimizer+param", fsdp.where)
    switches = [
        (setting, moved) for word, moved in _OFFLOADS.items() if (setting := lookup.first(word))
    ]
    if not switches:
        return None
    moved = {
        word
        for setting, words in switches
        if setting.value.strip().lower() not in OFF
        for word in words.split()
    }
    order = [word for word in ("optimizer", "param", "activations") if word in moved]
    return Fact("+".join(order) or "none", switches[0][0].where)


# ------------------------------------------------------------------ optimizer

_UPDATE_RULES: Final = (
    "adafactor", "lion", "muon", "adamw", "adam", "sgd", "shampoo", "sophia", "galore",
)  # fmt: skip
"""Each before those whose name is a part of its own."""


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
    for setting in lookup.each(lookup.keys("optimizer")):
        if name := rule_of(setting.value):
            return Fact(name, setting.where)
    made: Setting | None = next(
        (
            setting
            for setting in lookup.settings
            if setting.key == "optim" and setting.value.endswith("Config")
        ),
        None,
    )
    return fact_at(
        made, rule_of(made.value) if made is not None and lookup.trainer == "olmo-core" else ""
    )


CHOICES: Final[Mapping[str, Sequence[Rule]]] = {
    "precision": (_eight_bits, _flags, _by_type),
    "sharding": (
        _stage, _of_megatron, _strategy, _of_accelerate, _of_axolotl, _named_file, _word_fsdp,
        _degrees, _of_olmo, _of_mesh, _by_recipe,
    ),
    "recompute": (_granularity, _modes, _of_factory, _switches),
    "offload": (_offload,),
    "optimizer": (_optimizer,),
}  # fmt: skip
"""The rules of each fact."""
