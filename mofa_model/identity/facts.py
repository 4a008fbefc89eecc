"""Facts of a training job, each with the place where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from mofa_model import presets
from mofa_model.blocks import Experts, FeedForward, SoftmaxAttention
from mofa_model.errors import InputError
from mofa_model.identity.classes import LANGUAGE_MODELS
from mofa_model.identity.devices import DeviceRequest
from mofa_model.identity.pods import number
from mofa_model.identity.recipes import preset_of
from mofa_model.identity.settings import Setting
from mofa_model.launch.tuning import ALL_LINEAR, targets_of
from mofa_model.records import dataclass


class Fact(NamedTuple):
    """A value and where it stands."""

    value: Any
    source: str


Facts = Mapping[str, Fact]
"""Facts by their names."""

_MODEL: Final = (
    "model_name_or_path", "pretrained_model_name_or_path", "base_model",
    "hf_model_name_or_path", "model_name", "model_id", "model_id_or_path", "hf_model_id",
    "model_config_name", "hf_model", "student_model", "model", "model_path", "base_model_name",
    "base_model_path", "hf_path", "pretrained_model", "model_repo", "model_tag", "model_dir",
    "hf_assets_path", "storage_uri", "load_hf", "hf_model_path", "hf_checkpoint", "model_uri",
    "repo_id", "model_size_name", "checkpoint_path", "pretrained_checkpoint", "checkpoint",
    "load", "model_name_hf", "partial_pretrain", "model_variant", "model_recipe_name", "recipe", "factory", "config_name", "config",
    "flavor", "model_type", "architecture",
)  # fmt: skip
_RECIPES: Final = frozenset({"recipe", "config", "factory", "model_variant", "model_recipe_name"})
"""Options whose value is the name of settings, which has a model's name in it."""
_HUB: Final = frozenset(
    {"model_name_or_path", "pretrained_model_name_or_path", "base_model", "hf_model_name_or_path"}
)
"""Options whose value is a name of the hub or a folder: a bare one is one of its oldest models."""
_TOKENIZER: Final = (
    "tokenizer", "tokenizer_model", "tokenizer_name", "tokenizer_name_or_path",
    "tokenizer_path",
)  # fmt: skip
_SEQUENCE: Final = (
    "seq_length", "max_seq_length", "max_seq_len", "max_sequence_length", "sequence_length",
    "sequence_len", "seq_len", "seqlen", "model_max_length", "max_target_length",
    "max_context_width", "max_length", "maxlen", "max_len", "cutoff_len", "block_size",
    "context_length", "encoder_seq_length", "train_seq_length", "max_model_length",
    "context_len", "seq_size", "ctx_len", "max_ctx_len", "max_tokens_per_sample",
)  # fmt: skip
_GLOBAL: Final = (
    "global_batch_size", "global_train_batch_size", "total_batch_size",
    "total_train_batch_size", "effective_batch_size", "gbs", "global_batch",
    "batch_size_global",
)  # fmt: skip
_MICRO: Final = (
    "per_device_train_batch_size", "per_gpu_train_batch_size", "micro_batch_size",
    "per_device_batch_size", "device_train_microbatch_size", "train_micro_batch_size_per_gpu",
    "micro_train_batch_size", "mbs", "batch_size_training", "local_batch_size", "micro_batch",
    "device_batch_size", "batch_size_per_device", "batch_size_per_gpu", "per_device_train_bs",
    "max_train_batch_size_per_gpu", "train_micro_batch_size", "micro_batch_size_per_gpu", "max_per_device_train_batch_size",
)  # fmt: skip
_AGAIN: Final = (
    "gradient_accumulation_steps", "grad_accum_steps", "grad_accum_usteps",
    "accumulate_grad_batches", "gradient_accumulation", "grad_acc_steps",
    "batch_accumulation_per_replica", "accumulation_steps", "grad_accumulation_steps",
    "grad_accum", "accum_steps", "gradient_accumulate_every", "accumulate_steps",
)  # fmt: skip
_SAVE: Final = (
    "save_interval", "save_steps", "checkpoint_freq", "checkpoint_frequency",
    "checkpoint_interval", "checkpoint_period", "save_freq", "checkpoint_save_steps",
    "save_every_n_steps", "interval_steps",
)  # fmt: skip
_STEPS: Final = (
    "train_iters", "max_steps", "train_steps", "max_train_steps", "training_steps", "total_steps",
    "num_training_steps", "max_iters",
)  # fmt: skip
_PARALLEL: Final[Mapping[str, tuple[str, ...]]] = {
    "tp": (
        "tensor_model_parallel_size", "tensor_parallel_size", "tensor_parallel_degree", "tp_size",
        "tp", "tp_degree", "tensor_model_parallel", "tensor_parallel", "ici_tensor_parallelism",
        "model_parallel_size",
    ),
    "pp": (
        "pipeline_model_parallel_size", "pipeline_parallel_size", "pipeline_parallel_degree",
        "pp_size", "pp", "pp_degree", "pipeline_parallel", "ici_pipeline_parallelism",
        "pipe_parallel_size",
    ),
    "cp": (
        "context_parallel_size", "context_parallel_degree", "cp_size", "cp", "context_parallel",
        "ici_context_parallelism",
    ),
    "ep": (
        "expert_model_parallel_size", "expert_parallel_degree", "expert_parallel_size", "ep_size",
        "ep", "ici_expert_parallelism",
    ),
}  # fmt: skip
_SHAPE: Final[Mapping[str, tuple[str, ...]]] = {
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
_RANK: Final = ("lora_r", "lora_rank", "adapter_rank", "lora_dim", "peft_lora_rank", "peft_lora_r")
_ADAPTERS: Final = (
    "use_lora", "use_peft", "finetuning_type", "adapter", "peft_method", "peft_scheme",
    "peft_type", "enable_lora", "lora",
)  # fmt: skip
_TARGETS: Final = ("lora_target_modules", "lora_target", "target_modules", "peft_target_modules")
_EVERY_LINEAR: Final = "lora_target_linear"
_FOUR_BITS: Final = (
    "load_in_4bit", "qlora", "use_qlora", "quantization_bit", "load_in_8bit",
)  # fmt: skip
_FILE: Final = re.compile(
    r"\.(py|sh|ya?ml|json|jsonl|toml|model|txt|safetensors|pt|bin|nemo|parquet)$"
)
_FLAGS: Final = {
    "bf16": "bf16", "pure_bf16": "bf16", "use_bf16": "bf16", "fp16": "fp16", "use_fp16": "fp16",
    "enable_bf16": "bf16",
}  # fmt: skip
_AUTO: Final = {"bf16": "auto"}
"""axolotl and LLaMA-Factory: bf16 wherever the device has it, as all that are priced here have."""
_DTYPES: Final = (
    "mixed_precision", "precision", "dtype", "torch_dtype", "trainer_precision",
    "mixed_precision_param", "param_dtype", "compute_dtype", "weight_dtype", "model_dtype", "mx",
)  # fmt: skip
_SWITCHES: Final = ("fp8", "enable_fp8", "use_fp8", "te_fp8")
"""Where one of these says no, other words about eight bits say how they would be."""
_EIGHT: Final = (
    "fp8", "enable_fp8", "use_fp8", "fp8_format", "fp8_recipe", "fp8_param", "quantization",
    "converters", "float8_recipe_name",
)  # fmt: skip
_OFF: Final = frozenset({"false", "0", "none", "no", "null", "off", "", "auto"})
HUGGING_FACE: Final = frozenset({"per_device_train_batch_size", "per_gpu_train_batch_size"})
"""Hugging Face's names: without `gradient_accumulation_steps` its Trainer accumulates once.
Source: transformers, TrainingArguments."""
_PLACEHOLDER: Final = re.compile(r"[$<>{}\s]|REPLACE|YOUR[_-]")
_SIZED: Final = re.compile(r"(?<![a-z0-9.])(\d+x)?\d+(\.\d+|_\d)?[bm](?![a-z0-9])", re.IGNORECASE)
_IN_A_NAME: Final = re.compile(
    r"(?<![a-z])(?P<family>tinyllama|codellama|llama|gemma|qwen|mistral|mixtral|deepseek|gpt"
    r"|falcon|nemotron|phi|olmo|bloom|mpt|granite)"
    r"[-_]?v?(?P<version>\d(?!\d)(?:[._-]\d(?=[-_/]))?)?[-_/]?"
    r"(?P<size>(?:\d+x)?\d+(?:[._]\d+)?b)(?![a-z0-9])",
    re.IGNORECASE,
)
_RUN_TOGETHER: Final = (
    (re.compile(r"(?<![a-z])(llama|qwen|glm)(\d)(\d)(?=[-_/])"), r"\1\2.\3"),
    (re.compile(r"(?<=[-_/]\d)p(?=\db)"), "."),
    (re.compile(r"(?<=[-_/])(\d)00m(?![a-z0-9])"), r"0.\1b"),
)
"""How recipes write what a name may not hold: `llama31_8b`, `qwen25_1p5b`, `qwen25_500m`."""
_MADE_UP: Final = re.compile(r"(?<![a-z])(debug|dummy|toy|proxy|smoke|test)", re.IGNORECASE)
"""Names of models that are none but in a test."""
_TOKENS: Final = re.compile(r"vocab|merges|tokeni[sz]er|bpe", re.IGNORECASE)
"""Names of files of a tokenizer, which many models share."""
_SECRET: Final = re.compile(
    r"token(?!iz|s\.)|secret|passw|credential|api[-_]?key|access[-_]?key|private[-_]?key|\bauth",
    re.IGNORECASE,
)
_LOOKS_SECRET: Final = re.compile(
    r"^(hf_|sk-|ghp_|gho_|github_pat_|xox[bp]-|AKIA|ASIA|eyJ)\w"
    r"|://[^/\s]*:[^/\s]*@|^[A-Fa-f0-9]{32,}$"
)


def is_secret(name: str, value: str) -> bool:
    """Whether a setting is a token or a password by its name, or by its form.

    >>> is_secret("hf_token", "x"), is_secret("tokenizer", "gpt2"), is_secret("m", "hf_AbC1")
    (True, False, True)
    """
    return bool(_SECRET.search(name) or _LOOKS_SECRET.search(value))


def masked(words: Iterable[str]) -> list[str]:
    """Words of a command without tokens and passwords.

    >>> masked(["train.py", "--hf-token", "abc", "--key=1", "--api_key=s3", "hf_AbC1"])
    ['train.py', '--hf-token', '***', '--key=1', '--api_key=***', '***']
    """
    found, hide = list[str](), False
    for word in words:
        name, equals, value = word.partition("=")
        secret = bool(_SECRET.search(name)) and (name.startswith("-") or bool(equals))
        if hide and not word.startswith("-"):
            found.append("***")
        elif equals and (secret or _LOOKS_SECRET.search(value)):
            found.append(f"{name}=***")
        else:
            found.append("***" if _LOOKS_SECRET.search(word) else word)
        hide = secret and not equals
    return found


@dataclass(frozen=True, kw_only=True)
class FactSheet:
    """Facts, and what contradicts itself."""

    facts: dict[str, Fact]
    disagree: tuple[str, ...] = ()
    """Contradictions, each in one sentence."""
    by_shape: bool = False
    """Whether the model is the one that has the shape, and nobody names it."""


class FactSources(NamedTuple):
    """What facts are read from."""

    settings: Sequence[Setting]
    """Of containers that compute."""
    others: Sequence[Setting]
    """Of containers that prepare, and of the object itself."""
    words: Sequence[tuple[str, str]]
    """Words of commands and where they stand, for names of models in names of files."""
    fetched: Sequence[tuple[str, str]]
    """What commands copy, and where that stands."""
    device_request: DeviceRequest
    trainer: str
    torch: bool
    """Whether a launcher of PyTorch starts it: a batch is that of one process."""
    image: tuple[str, str]
    """The trainer's image and where it stands."""
    elsewhere: bool = False
    """Whether its pods are those of another object."""


def read_facts(sources: FactSources) -> FactSheet:
    """The facts of a job."""
    settings = [one for one in sources.settings if not is_secret(one.path, one.value)]
    found: dict[str, Fact] = {}
    disagree: list[str] = []
    _of_devices(found, sources)
    shape = {name: fact for name, keys in _SHAPE.items() if (fact := _whole(settings, keys))}
    _of_neox(shape, settings)
    rest = _of_megatron(shape, settings, sources.trainer)
    model = _model(sources._replace(settings=settings), shape)
    if model is not None:
        found["model"] = model
        disagree += _other_depth(model, shape)
    elif {"layers", "hidden", "heads"} <= shape.keys():
        sizes = {name: fact.value for name, fact in shape.items()}
        found["shape"] = Fact(sizes | rest, shape["layers"].source)
    for name, keys in (
        ("sequence_length", _SEQUENCE),
        ("accumulation", _AGAIN),
        ("checkpoint_interval", _SAVE),
        ("steps", _STEPS),
    ):
        if fact := _whole(settings, keys, disagree, name.replace("_", " ")):
            found[name] = fact
    if "steps" not in found and (told := _at(settings, "training.steps")):  # as torchtitan has it
        found["steps"] = told
    _batches(found, settings, sources, disagree)
    if precision := _precision(settings):
        found["precision"] = precision
    if parallel := _parallel(settings, sources.trainer):
        found["parallel"] = parallel
    _derived(found, settings, sources, disagree)
    _of_adapters(found, settings, sources.trainer)
    if sources.trainer and sources.trainer != "none":
        found["trainer"] = Fact(sources.trainer, sources.image[1])
        if version := re.search(r":v?(\d+\.\d+[\w.]*)$", sources.image[0]):
            found["trainer_version"] = Fact(version[1], sources.image[1])
    shaped = model is not None and "layers" in shape and model.source == shape["layers"].source
    return FactSheet(facts=found, disagree=tuple(dict.fromkeys(disagree)), by_shape=shaped)


def _of_adapters(found: dict[str, Fact], settings: Sequence[Setting], trainer: str) -> None:
    """Rank, layers and frozen format of adapters, or that there are some of which nobody says the rank."""
    rank, adapters = _whole(settings, _RANK) or _rank(settings), _adapters(settings)
    if rank is None and adapters is not None and trainer in _RANKS:
        rank = Fact(_RANKS[trainer], f"{adapters.source}: the default of {trainer}")
    if rank is None:
        found.update({} if adapters is None else {"adapters": adapters})
        return
    beside = {"base": _base(settings), "adapter_targets": _targets(settings)}
    found["adapter_rank"] = rank
    found.update({name: fact for name, fact in beside.items() if fact is not None})


_RANKS: Final = {"llama-factory": 8, "trl": 16}
"""Ranks of trainers that need none said. Source: LLaMA-Factory, hparams/finetuning_args.py:
lora_rank; TRL, trainer/model_config.py: lora_r. [1]"""
_GPT2: Final = 50257
"""Tokens of GPT-2's tokenizer. [1]"""


_OTHER_SHAPES: Final = frozenset(
    {
        "multi_latent_attention", "moe_layer_freq", "moe_shared_expert_intermediate_size",
        "window_size", "mtp_num_layers", "kv_channels", "is_hybrid_model",
    }
)  # fmt: skip
"""Options of Megatron-LM for shapes that its sizes alone do not say."""


def _of_megatron(
    shape: dict[str, Fact], settings: Sequence[Setting], trainer: str
) -> dict[str, int | bool]:
    """What Megatron-LM takes where a shape does not say it: every head has its own keys, a layer has
    no experts, and a vocabulary is padded to 128 rows of every tensor-parallel rank. Given back is
    what a model that nobody knows has beside its sizes; nothing where these do not say all of it.
    Source: megatron/training/arguments.py, validate_args; tokenizer.py, _vocab_size_with_padding.
    """
    if trainer != "megatron-lm" or not {"layers", "hidden", "heads"} <= shape.keys():
        return {}
    said = {one.key: one.value.lower() for one in reversed(settings)}

    def has(switch: str) -> bool:
        return said.get(switch, "false") not in _OFF

    shape.setdefault("kv_heads", shape["heads"])
    shape.setdefault("experts", Fact(1, shape["heads"].source))
    tensor, by = _whole(settings, _PARALLEL["tp"]), _whole(settings, (_DIVISIBLE,))
    rows = (128 if by is None else by.value) * (1 if tensor is None else tensor.value)
    named = _vocabulary(settings) if "vocabulary" not in shape else None
    padded = None if named is None else Fact(-(-named.value // rows) * rows, named.source)
    if padded is not None and _of_shape(_sizes({**shape, "vocabulary": padded}), ""):
        shape["vocabulary"] = padded  # else data are made up, or the model is nobody's
    if any(has(key) for key in _OTHER_SHAPES) or _of_shape(_sizes(shape), ""):
        return {}
    if padded is not None:
        shape["vocabulary"] = padded
    elif (stated := shape.get("vocabulary")) is not None:
        extra = said.get("tokenizer_type") == "nulltokenizer"  # the end of a document
        shape["vocabulary"] = stated._replace(value=-(-(stated.value + extra) // rows) * rows)
    gated, hidden = has("swiglu"), shape["hidden"].value
    plain = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
    shape.setdefault("ffn", Fact(plain, shape["hidden"].source))
    rest: dict[str, int | bool] = {"gated": gated, "tied": not has(_UNTIED)}
    if shape["experts"].value > 1:
        width, chosen = (_whole(settings, (key,)) for key in (_EXPERT_WIDTH, _CHOSEN))
        rest["expert_ffn"] = shape["ffn"].value if width is None else width.value
        rest["top_k"] = 2 if chosen is None else chosen.value
    return rest


_NEOX: Final = "gpt_j_residual"
"""A setting that GPT-NeoX alone has: attention and dense part beside each other."""


def _of_neox(shape: dict[str, Fact], settings: Sequence[Setting]) -> None:
    """What GPT-NeoX takes where a shape does not say it: keys for every head, four times as wide a
    dense part. Source: gpt-neox, megatron/neox_arguments/neox_args.py.
    """
    if {"hidden", "heads"} <= shape.keys() and any(one.key == _NEOX for one in settings):
        shape.setdefault("kv_heads", shape["heads"])
        shape.setdefault("ffn", shape["hidden"]._replace(value=4 * shape["hidden"].value))


_DIVISIBLE: Final = "make_vocab_size_divisible_by"
_UNTIED: Final = "untie_embeddings_and_output_weights"
_EXPERT_WIDTH, _CHOSEN = "moe_ffn_hidden_size", "moe_router_topk"


def _vocabulary(settings: Sequence[Setting]) -> Fact | None:
    """Tokens of the tokenizer that a job names, where it is GPT-2's or that of a known model. [1]"""
    for one in settings:
        if one.key in _VOCABULARIES and "gpt2" in one.value.lower():
            return Fact(_GPT2, one.where)
    for one in settings:
        if one.key in _TOKENIZER and (preset := model_preset(one.value)):
            return Fact(int(presets.model(preset).embedding.vocabulary), one.where)
    return None


_VOCABULARIES: Final = ("vocab_file", "merge_file", "tokenizer_type", "tokenizer_model")


def _of_devices(found: dict[str, Fact], seen: FactSources) -> None:
    devices = seen.device_request
    if not devices.vendor and seen.elsewhere:
        return
    if not devices.vendor:
        found["device_kind"] = Fact("cpu", "no container asks for an accelerator")
        return
    kind = f"{devices.vendor}-{devices.word}" if devices.sliced else devices.product
    found["device_kind"] = Fact(kind, devices.label or devices.named)
    if devices.pod_count is not None:
        found["nodes"] = Fact(devices.pod_count, devices.counted or "one pod")
    if devices.total is not None:
        found["devices"] = Fact(devices.total, f"{devices.named} x pods")


def _whole(
    settings: Sequence[Setting],
    keys: Sequence[str],
    disagree: list[str] | None = None,
    called: str = "",
) -> Fact | None:
    """The first whole number of some keys; options that contradict each other are told."""
    having = [
        (one, value)
        for one in settings
        if one.key in keys and (value := number(one.value)) is not None and value > 0
    ]
    if not having:
        return None
    best = min((one.origin for one, _ in having), key=_ORIGINS.index)
    same = [(one, value) for one, value in having if one.origin == best]
    same.sort(key=lambda pair: keys.index(pair[0].key))
    first, value = same[0]
    for other, given in same[1:]:
        if disagree is not None and best == "option" and other.key == first.key and given != value:
            disagree.append(f"{called} is {value} by {first.where} and {given} by {other.where}")
    return Fact(value, first.where)


def _at(settings: Sequence[Setting], path: str) -> Fact | None:
    """The first whole number at a path."""
    having = ((number(one.value), one.where) for one in settings if one.path == path)
    return next((Fact(value, where) for value, where in having if value), None)


_ORIGINS: Final = ["option", "variable", "file", "source"]


def _model(seen: FactSources, shape: Mapping[str, Fact]) -> Fact | None:
    """The model that a job names: by an option, by its shape, or in the name of a file."""
    if (flavored := _flavored(seen.settings)) is not None:
        return flavored
    named = _named(seen.settings, _MODEL)
    if named is not None and _SIZED.search(named.value):
        return named
    tokenizer = _named(seen.settings, _TOKENIZER)
    sized = tokenizer if tokenizer is not None and _SIZED.search(tokenizer.value) else None
    if {"layers", "hidden", "heads"} <= shape.keys():
        whole = _sizes(shape)
        preset = model_preset(sized.value) if sized is not None else ""
        borrowed = bool(preset) and preset not in _of_shape(whole, "")
        return _shaped(seen, shape) if borrowed else sized or _shaped(seen, shape)
    if named is None or not _known(named.value):
        found = (Fact(name, where) for text, where in seen.words if (name := _in_a_name(text)))
        fetched = (Fact(name, where) for name, where in _copied(seen))
        prepared = _named(seen.others, _MODEL)
        prepared = prepared if prepared is not None and _SIZED.search(prepared.value) else None
        if (other := next(found, None) or next(fetched, None) or prepared) is not None:
            return other
    return named or sized


_VARIANT: Final = re.compile(r"[-_](flex|varlen|fused|sdpa)\w*$")
"""Endings of torchtitan's flavors that change how attention is computed, and not the model."""


def _flavored(settings: Sequence[Setting]) -> Fact | None:
    """The model of two words, its family and its flavor or size: `llama3` and `8B`, as torchtitan has
    them, or `llama3` and `8`.
    """
    families = {"model.name": "model.flavor", "module": "flavor", "model_name": "model_flavor"}
    for family, flavor in (*families.items(), ("model_name", "model_size")):
        first = next((one for one in settings if one.path == family), None)
        second = next((one for one in settings if one.path == flavor), None)
        if first is not None and second is not None:
            size = f"{second.value}{'b' * (flavor == 'model_size' and second.value.isdigit())}"
            both = f"{first.value}-{_VARIANT.sub('', size.lower())}"
            if flavor == "model_size" and not _known(both):
                continue
            if not _PLACEHOLDER.search(both):
                return Fact(both.lower().replace("_", "-"), second.where)
    return None


def _sizes(shape: Mapping[str, Fact]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, fact.value) for name, fact in shape.items()))


def _other_depth(model: Fact, shape: Mapping[str, Fact]) -> list[str]:
    """That a job names a model and gives it another number of layers, as short trials do."""
    layers, preset = shape.get("layers"), model_preset(model.value)
    if layers is None or not preset:
        return []
    known = int(presets.model(preset).layers)
    if known == layers.value:
        return []
    said = f"{layers.source} says {layers.value}"
    return [f"{model.source} names {model.value}, which has {known} layers, and {said}"]


def _shaped(seen: FactSources, shape: Mapping[str, Fact]) -> Fact | None:
    """The model that has the shape which a job spells out, where only one is known; of those that
    differ by their names alone, the first.
    """
    keys = (*_TOKENIZER, "model_type", *_MODEL)
    named = (one for one in seen.settings if one.key in keys or one.path == "model.name")
    hint = " ".join(one.value for one in named)
    if any(one.key == _NEOX for one in seen.settings):
        hint += " pythia"
    whole = _sizes(shape)
    found = _of_shape(whole, hint)
    if len(found) == 1:
        return Fact(found[0], shape["layers"].source)
    copied = (Fact(name, where) for name, where in _copied(seen) if model_preset(name) in found)
    if (chosen := next(copied, None)) is not None:
        return chosen
    same = found and all(presets.model(one) == presets.model(found[0]) for one in found)
    return Fact(found[0], shape["layers"].source) if same else None


def _copied(seen: FactSources) -> list[tuple[str, str]]:
    """Models whose files commands copy, and where: known ones first, those of tokenizers last."""
    found = [(name, where, text) for text, where in seen.fetched if (name := _on_the_way(text))]
    found.sort(key=lambda one: ("tokenizer" in one[2].lower(), not _known(one[0])))
    return [(name, where) for name, where, _ in found]


def _named(settings: Sequence[Setting], keys: Sequence[str]) -> Fact | None:
    having = [one for one in settings if one.key in keys and (_name_of(one.value, one.key))]
    having.sort(key=lambda one: (_ORIGINS.index(one.origin), keys.index(one.key)))
    return next((Fact(_name_of(one.value, one.key), one.where) for one in having), None)


def _name_of(value: str, key: str = "") -> str:
    """A model as people name it, from a name or a place of its weights; empty where it is none.

    >>> _name_of("s3://bucket/models/Llama-3.1-8B/"), _name_of("google/gemma-2-2b")
    ('Llama-3.1-8B', 'google/gemma-2-2b')
    >>> _name_of("/data/run-7"), _name_of("${MODEL}"), _name_of("pretrain_gpt.py")
    ('', '', '')
    """
    plain = value.strip().rstrip("/")
    for mark in ("hf://", "huggingface://"):
        plain = plain.removeprefix(mark)
    if not plain or len(plain) > 200 or _PLACEHOLDER.search(plain) or _LOOKS_SECRET.search(plain):
        return ""
    parts = [part for part in plain.split("/") if part]
    is_hub = len(parts) == 2 and not value.startswith(("/", ".")) and "://" not in plain
    name = parts[-1]
    if (
        re.search(r"\.(py|sh|ya?ml|json|toml|model|jsonl|txt|safetensors|pt|nemo)$", name)
        and key not in _RECIPES
    ):
        return ""
    if re.search(r"\.(py|sh|json|jsonl|txt)$", name):
        return ""
    if key in _RECIPES:
        return _in_a_name(plain)
    if key in _HUB and len(parts) == 1 and LANGUAGE_MODELS.match(plain):
        return plain
    if _known(plain) or _known(name):
        return plain if is_hub else name
    for part in reversed(parts):
        if LANGUAGE_MODELS.search(part) and _SIZED.search(part):
            return plain if is_hub else part
    if is_hub and LANGUAGE_MODELS.search(plain):
        return plain
    return ""


def _in_a_name(text: str) -> str:
    """The model that the name of a script or of a file of settings has; empty where it has none.

    >>> named = ("/opt/run_llama3_8b.sh", "llama3_2/1B_full", "gpt2-vocab")
    >>> tuple(map(_in_a_name, named))
    ('llama3-8b', 'llama3.2-1b', '')
    >>> _in_a_name("llama3-1-70b-a3mega.yaml"), _in_a_name("llama31_8b_pretrain_config")
    ('llama3.1-70b', 'llama3.1-8b')
    >>> _in_a_name("deepseek_v3_pretrain_config"), _in_a_name("deepseek_v3_debugmodel.toml")
    ('deepseek-v3', '')
    """
    text = text.replace("Meta-Llama", "llama").lower()
    for form, plain in _RUN_TOGETHER:
        text = form.sub(plain, text)
    named = ""
    if (found := _IN_A_NAME.search(text)) is not None:
        version = re.sub("[-_]", ".", found["version"] or "")
        named = f"{found['family']}{version}-{found['size'].replace('_', '.')}"
    return named if _known(named) else _spelt_out(text) or named


def _spelt_out(text: str) -> str:
    """The longest name of a known model that stands in a text as its own words.

    >>> _spelt_out("configs/gpt_oss_20b_pretrain_config"), _spelt_out("train_mistral_nemo_12b.sh")
    ('gpt-oss-20b', 'mistral-nemo-12b')
    """
    if _MADE_UP.search(text) or _TOKENS.search(text):
        return ""
    names = _runs(_words_of(text))
    return next((one for one in names if LANGUAGE_MODELS.match(one) and _of_name(one)), "")


def _words_of(text: str) -> list[str]:
    """The last words of a name."""
    return [one for one in re.split(r"[-_/\s]|\.(?=\D)", text)[-_WORDS:] if one]


def _runs(words: Sequence[str]) -> Iterator[str]:
    """Words that follow each other as names, the longest first."""
    for size in range(len(words), 0, -1):
        for first in range(len(words) - size + 1):
            yield "-".join(words[first : first + size])


_WORDS: Final = 12
"""Words at the end of a name in which a model is looked for. [1]"""


def _on_the_way(path: str) -> str:
    """The model in whose folder a file is that a command copies; empty where there is none.

    >>> _on_the_way("minio/models/meta-llama/Llama-3.1-8B/tokenizer.json")
    'Llama-3.1-8B'
    """
    if _PLACEHOLDER.search(path) or _LOOKS_SECRET.search(path) or path.count("/") < 2:
        return ""
    parts = [part for part in path.split("/") if part]
    for part in parts[1:]:
        if _known(part) or (LANGUAGE_MODELS.search(part) and _SIZED.search(part)):
            return "" if _FILE.search(part) else part
    return ""


_TUNED: Final = re.compile(
    r"([-_](instruct|chat|it|pt|base|hf|deduped|dpo|sft|bnb|4bit|8bit|awq|gptq|fp8)(-v?\d[\w.]*)?)+$",
    re.IGNORECASE,
)
"""Endings of models that were trained on or stored otherwise: their architecture is the same."""


@cache
def model_preset(name: str) -> str:
    """The preset of a model by its name, or by the place of its weights; empty where unknown.

    >>> model_preset("meta-llama/Llama-2-7b-hf"), model_preset("meta-llama/Llama-3.1-8B-Instruct")
    ('llama2-7b', 'llama3-8b')
    >>> model_preset("deepseek3-671b")  # as MaxText calls it
    'deepseek-v3'
    >>> model_preset("someone/Hermes-3-Llama-3.1-8B")  # whose base its name spells out
    'llama3-8b'
    """
    return _of_name(name) or _base_of(_bare(name))


def _bare(name: str) -> str:
    """The last part of a name or an address, without what says how its model was tuned or stored."""
    return _TUNED.sub("", name.rstrip("/").rpartition("/")[2])


def _of_name(name: str) -> str:
    """The preset of a model that is called so itself; empty where none is."""
    plain = name.partition("://")[2] or name
    tail, bare = plain.rstrip("/").rpartition("/")[2], _bare(plain)
    unnamed = re.sub("^(meta|nvidia)-", "", bare, flags=re.IGNORECASE)
    for candidate in (plain, tail, _TUNED.sub("", plain), bare, unnamed):
        try:
            return presets.resolve("models", candidate) if candidate else ""
        except InputError:
            continue
    return preset_of(bare) or _tails().get(bare.lower().replace("_", "-"), "")


def _base_of(name: str) -> str:
    """The preset of the model whose name and size a longer name spells out, as tunes have it.

    >>> _base_of("Llama-3.1-Minitron-4B"), _base_of("Qwen2-VL-7B"), _base_of("gpt2-chinese")
    ('', '', '')
    """
    words = _words_of(name) if not _MADE_UP.search(name) else []
    for run in _runs(words):
        if _SIZED.search(run) and LANGUAGE_MODELS.match(run) and (preset := _of_name(run)):
            return preset
    return ""


@cache
def _tails() -> Mapping[str, str]:
    """Presets by the names of their repositories alone, as folders of weights are called."""
    every = presets.canonical_names("models").items()
    return {_TUNED.sub("", alias.rpartition("/")[2]): name for alias, name in every if "/" in alias}


def _known(name: str) -> bool:
    return bool(model_preset(name))


@cache
def _of_shape(shape: tuple[tuple[str, int], ...], hint: str) -> list[str]:
    """The presets that have a shape; of several those whose family the hint has, if any, and of these
    those whose vocabulary is next to the stated one.
    """
    wanted = dict(shape)
    found: list[str] = []
    for name in presets.names("models"):
        model = presets.model(name)
        experts = next((int(one.count) for one in model.blocks if isinstance(one, Experts)), 1)
        if wanted.get("experts", experts) != experts:
            continue
        attention = next((one for one in model.blocks if isinstance(one, SoftmaxAttention)), None)
        widths = {int(one.width) for one in model.blocks if isinstance(one, FeedForward | Experts)}
        if attention is None or int(model.layers) != wanted["layers"]:
            continue
        if int(model.hidden) != wanted["hidden"] or int(attention.heads) != wanted["heads"]:
            continue
        if wanted.get("kv_heads", int(attention.kv_heads)) != int(attention.kv_heads):
            continue
        routed = experts > 1 and "expert_ffn" in wanted  # of dense layers that there may be none of
        width = wanted.get("expert_ffn" if routed else "ffn")
        if width is not None and width not in widths:
            continue
        found.append(name)
    if len(found) > 1 and hint:
        said = {f"{a}{b}" for a, b in re.findall(r"([a-z]+)[-_]?v?(\d?)", hint.lower())}
        families = {one: re.match(r"[a-z]+\d?", one) for one in found}
        near = [one for one, family in families.items() if family and family.group() in said]
        found = near or found
    if len(found) > 1 and "vocabulary" in wanted:
        padding = {
            one: wanted["vocabulary"] - int(presets.model(one).embedding.vocabulary)
            for one in found
        }
        least = min((one for one in padding.values() if 0 <= one < _PADDED), default=None)
        found = [one for one in found if padding[one] == least]
    return found


def _batches(
    found: dict[str, Fact], settings: Sequence[Setting], seen: FactSources, disagree: list[str]
) -> None:
    deepspeed = {one.key for one in settings if one.origin == "file"} & {
        "train_micro_batch_size_per_gpu", "zero_optimization",
        "stage3_gather_16bit_weights_on_model_save",
    }  # fmt: skip
    if fact := _whole(settings, _GLOBAL, disagree, "global batch"):
        found["global_batch"] = fact
    if fact := _whole(settings, _MICRO, disagree, "micro batch"):
        found["micro_batch"] = fact
        if whole := _whole(settings, ("bs",)):  # MBS and BS, as examples of Megatron-LM call them
            found.setdefault("global_batch", whole)
    whole = _whole(settings, ("train_batch_size",))
    if whole is not None:
        of_step = deepspeed or seen.trainer == "levanter" or "micro_batch" in found
        name = "global_batch" if of_step else "micro_batch"
        found.setdefault(name, whole)
    plain = _whole(settings, ("batch_size",))
    if plain is not None and "micro_batch" not in found and "global_batch" not in found:
        if seen.device_request.vendor == "tpu":  # one program of JAX has one batch
            found["global_batch"] = plain
        elif seen.torch or seen.trainer in {"torchtune", "trl"}:
            found["micro_batch"] = plain


def _derived(
    found: dict[str, Fact], settings: Sequence[Setting], seen: FactSources, disagree: list[str]
) -> None:
    """The global batch from what one device computes, and whether it contradicts what is said."""
    devices = found.get("devices")
    parallel = found["parallel"].value if "parallel" in found else {}
    if devices is None:
        return
    ranks = devices.value * seen.device_request.per_chip
    for name in ("tp", "pp", "cp"):
        size = parallel.get(name, 1)
        if name != "cp" or seen.trainer != "maxtext":
            ranks = ranks // size if ranks % size == 0 else 0
    again = found.get("accumulation")
    micro = found.get("micro_batch")
    if seen.trainer == "maxtext":
        text = next((one for one in settings if one.key == "per_device_batch_size"), None)
        if text is None or "global_batch" in found:
            return
        try:
            each = float(text.value)
        except ValueError:
            return
        total = each * devices.value * seen.device_request.per_chip * (again.value if again else 1)
        if total >= 1 and total == int(total):
            chips = f"{devices.value} x {seen.device_request.per_chip} devices"
            found["global_batch"] = Fact(int(total), f"derived: {text.value} x {chips}")
        return
    if micro is None or not ranks:
        return
    defaulted = any(one.key in HUGGING_FACE for one in settings) or seen.trainer in {
        "axolotl", "llama-factory", "trl", "torchtune", "torchtitan",
    }  # fmt: skip
    plain = seen.trainer == "fsdp-script" and not any(one.origin == "file" for one in settings)
    if again is None and not defaulted and not plain:
        return
    times = again.value if again else 1
    total = micro.value * times * ranks
    stated = found.get("global_batch")
    if stated is None:
        words = f"micro batch {micro.value} x accumulation {times} x {ranks} ranks"
        words += "" if again or defaulted else ", as no accumulation is said"
        found["global_batch"] = Fact(total, f"derived: {words}")
    elif again is not None and stated.value != total and stated.value != micro.value * times:
        disagree.append(
            f"global batch is {stated.value} by {stated.source}, "
            f"and {micro.value} x {times} x {ranks} = "
            f"{total} by micro batch, accumulation and devices"
        )


def _precision(settings: Sequence[Setting]) -> Fact | None:
    """The width of products; eight bits count before what stands beside them."""
    switched = [one for one in settings if one.key in _SWITCHES]
    off = switched and all(one.value.lower() in _OFF for one in switched)
    for one in [] if off else settings:
        value = one.value.lower()
        said = "fp8" in value or "float8" in value or "fp8" in one.key
        if one.key in _EIGHT and value not in _OFF and said:
            return Fact("fp8", one.where)
    for one in settings:
        if one.key in _FLAGS and one.value.lower() in {"true", "1", "yes", _AUTO.get(one.key)}:
            return Fact(_FLAGS[one.key], one.where)
        if one.key in _DTYPES and (kind := _dtype(one.value)):
            return Fact(kind, one.where)
        if one.path.endswith(("bf16.enabled", "fp16.enabled")) and one.value == "true":
            return Fact(one.path.split(".")[-2], one.where)
    return None


def _dtype(value: str) -> str:
    lower = value.lower()
    for form, kind in (
        ("fp8|float8", "fp8"),
        ("bf16|bfloat16", "bf16"),
        ("fp16|float16|half|^16(-mixed)?$", "fp16"),
        ("fp32|float32|^32", "fp32"),
    ):
        if re.search(form, lower):
            return kind
    return ""


def _parallel(settings: Sequence[Setting], trainer: str) -> Fact | None:
    sizes = {name: fact for name, keys in _PARALLEL.items() if (fact := _whole(settings, keys))}
    if trainer == "maxtext":  # an axis of its mesh that is one is not used
        sizes = {name: fact for name, fact in sizes.items() if fact.value > 1}
    if not sizes:
        return None
    return Fact(
        {name: fact.value for name, fact in sizes.items()}, next(iter(sizes.values())).source
    )


def _rank(settings: Sequence[Setting]) -> Fact | None:
    beside = any(one.key == "lora_alpha" for one in settings)  # as PEFT and Unsloth name both
    for one in settings:
        inside = beside or re.search(r"lora|peft", one.path.rpartition(".")[0])
        if one.key in {"r", "rank"} and inside and (value := number(one.value)):
            return Fact(value, one.where)
    return None


def _base(settings: Sequence[Setting]) -> Fact | None:
    """The format of frozen weights by the switches of bitsandbytes, under their trainers' names."""
    for one in settings:
        if one.key in _FOUR_BITS and (value := one.value.lower()) not in _OFF:
            eight = one.key == "load_in_8bit" or value == "8"
            return Fact("int8" if eight else "nf4", one.where)
    return None


def _targets(settings: Sequence[Setting]) -> Fact | None:
    """Linear layers with adapters, where all that are named are known.

    >>> _targets([Setting("lora_target_modules", "['q_proj', 'v_proj']", "args[3]", "option")]).value
    'q,v'
    """
    for one in settings:
        if one.key == _EVERY_LINEAR and one.value.lower() not in _OFF:
            return Fact("all", one.where)
        if one.key in _TARGETS:
            names = re.sub(r"[\[\]'\"\s]", "", one.value).split(",")
            try:
                found = targets_of(names, one.key)
            except InputError:  # adapters beside others are not priced
                continue
            return Fact("all" if found == ALL_LINEAR else ",".join(sorted(found)), one.where)
    return None


def _adapters(settings: Sequence[Setting]) -> Fact | None:
    for one in settings:
        if one.key in _ADAPTERS and re.search(r"lora|^true$|^1$|^peft$", one.value.lower()):
            return Fact("lora", one.where)
        if one.key in _FOUR_BITS and one.value.lower() not in _OFF:
            return Fact("qlora", one.where)
    return None
