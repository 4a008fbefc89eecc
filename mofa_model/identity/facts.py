"""Facts of a training job, each with the place where it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mofa_model import presets
from mofa_model.errors import InputError
from mofa_model.identity.devices import DeviceRequest
from mofa_model.identity.fact import (
    DEGREE_WORDS,
    DTYPE_WORDS,
    OFF,
    ORIGINS,
    PRECISION_SWITCHES,
    TOKENIZER_WORDS,
    Fact,
    number,
    number_at,
    precision_of,
    whole_number,
)
from mofa_model.identity.model_shapes import (
    NEOX,
    SIZE_WORDS,
    complete_megatron,
    complete_neox,
    presets_of_shape,
    sizes_of,
)
from mofa_model.identity.named_models import (
    PLACEHOLDER,
    SIZED,
    in_a_name,
    is_known,
    model_preset,
    name_of,
    on_the_way,
)
from mofa_model.identity.secret_words import is_secret
from mofa_model.identity.settings import Setting
from mofa_model.launch.tuning import ALL_LINEAR, targets_of
from mofa_model.records import dataclass

_MODEL: Final = (
    "model_name_or_path", "pretrained_model_name_or_path", "base_model", "hf_model_name_or_path",
    "model_name", "model_id", "model_id_or_path", "hf_model_id", "model_config_name", "hf_model",
    "student_model", "model", "model_path", "base_model_name", "base_model_path", "hf_path",
    "pretrained_model", "model_repo", "model_tag", "model_dir", "hf_assets_path", "storage_uri",
    "load_hf", "hf_model_path", "hf_checkpoint", "model_uri", "repo_id", "model_size_name",
    "checkpoint_path", "pretrained_checkpoint", "checkpoint", "load", "model_name_hf",
    "partial_pretrain", "pretrain", "model_variant", "model_recipe_name", "recipe", "factory",
    "config_name", "config", "flavor", "model_type", "architecture",
)  # fmt: skip
WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "seq": (
        "seq_length", "max_seq_length", "max_seq_len", "max_sequence_length", "sequence_length",
        "sequence_len", "seq_len", "seqlen", "model_max_length", "max_target_length",
        "max_context_width", "max_length", "maxlen", "max_len", "cutoff_len", "block_size",
        "context_length", "encoder_seq_length", "train_seq_length", "max_model_length",
        "context_len", "seq_size", "ctx_len", "max_ctx_len", "max_tokens_per_sample",
        "packed_sequence_size",
    ),
    "global_batch": (
        "global_batch_size", "global_train_batch_size", "total_batch_size",
        "total_train_batch_size", "effective_batch_size", "gbs", "global_batch",
        "batch_size_global",
    ),
    "micro_batch": (
        "per_device_train_batch_size", "per_gpu_train_batch_size", "micro_batch_size",
        "per_device_batch_size", "device_train_microbatch_size", "train_micro_batch_size_per_gpu",
        "micro_train_batch_size", "mbs", "batch_size_training", "local_batch_size", "micro_batch",
        "device_batch_size", "batch_size_per_device", "batch_size_per_gpu", "per_device_train_bs",
        "max_train_batch_size_per_gpu", "train_micro_batch_size", "micro_batch_size_per_gpu",
        "max_per_device_train_batch_size",
    ),
    "accumulation": (
        "gradient_accumulation_steps", "grad_accum_steps", "grad_accum_usteps",
        "accumulate_grad_batches", "gradient_accumulation", "grad_acc_steps",
        "batch_accumulation_per_replica", "accumulation_steps", "grad_accumulation_steps",
        "grad_accum", "accum_steps", "gradient_accumulate_every", "accumulate_steps", "gas",
    ),
    "interval": (
        "save_interval", "save_steps", "checkpoint_freq", "checkpoint_frequency",
        "checkpoint_interval", "checkpoint_period", "save_freq", "checkpoint_save_steps",
        "save_every_n_steps", "interval_steps",
    ),
    "lora_rank": (
        "lora_r", "lora_rank", "adapter_rank", "lora_dim", "peft_lora_rank", "peft_lora_r",
    ),
    **DEGREE_WORDS, **SIZE_WORDS,
}  # fmt: skip
"""Keys under which trainers have the whole numbers of a training, by fact."""
_STEPS: Final = (
    "train_iters", "max_steps", "train_steps", "max_train_steps", "training_steps", "total_steps",
    "num_training_steps", "max_iters",
)  # fmt: skip
_ADAPTERS: Final = (
    "use_lora", "use_peft", "finetuning_type", "train_type", "adapter", "peft_method",
    "peft_scheme", "peft_type", "enable_lora", "lora",
)  # fmt: skip
_TARGETS: Final = ("lora_target_modules", "lora_target", "target_modules", "peft_target_modules")
_EVERY_LINEAR: Final = "lora_target_linear"
_FOUR_BITS: Final = (
    "load_in_4bit", "qlora", "use_qlora", "quantization_bit", "load_in_8bit",
)  # fmt: skip
_AUTO: Final = {"bf16": "auto"}
"""axolotl and LLaMA-Factory use bf16 with `auto`, because all devices that are priced here have
it.
"""
_SWITCHES: Final = ("fp8", "enable_fp8", "use_fp8", "te_fp8")
"""Where one of these is off, other keys about FP8 do not count."""
_EIGHT: Final = (
    "fp8", "enable_fp8", "use_fp8", "fp8_format", "fp8_recipe", "fp8_param", "quantization",
    "converters", "float8_recipe_name",
)  # fmt: skip
HUGGING_FACE: Final = frozenset({"per_device_train_batch_size", "per_gpu_train_batch_size"})
"""Hugging Face's names: without `gradient_accumulation_steps` its Trainer accumulates once.
Source: transformers, TrainingArguments."""


@dataclass(frozen=True, kw_only=True)
class FactSheet:
    """Facts with their contradictions."""

    facts: dict[str, Fact]
    disagree: tuple[str, ...] = ()
    """Contradictions, each in one sentence."""
    by_shape: bool = False
    """Whether the model is known by its shape alone."""


class FactSources(NamedTuple):
    """What facts are read from."""

    settings: Sequence[Setting]
    """Settings of containers that compute."""
    others: Sequence[Setting]
    """Settings of containers that prepare, and of the object itself."""
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
    settings = [item for item in sources.settings if not is_secret(item.path, item.value)]
    sources = sources._replace(settings=settings)
    facts: dict[str, Fact] = {}
    disagree: list[str] = []
    _of_devices(facts, sources)
    shape = {
        name: fact for name, keys in SIZE_WORDS.items() if (fact := whole_number(settings, keys))
    }
    complete_neox(shape, settings)
    rest = complete_megatron(shape, settings, sources.trainer)
    model = _model(sources, shape)
    if model is not None:
        facts["model"] = model
        disagree += _other_depth(model, shape)
    elif {"layers", "hidden", "heads"} <= shape.keys():
        sizes = {name: fact.value for name, fact in shape.items()}
        facts["shape"] = Fact(sizes | rest, shape["layers"].source)
    for name, keys in (
        ("sequence_length", WORDS["seq"]),
        ("accumulation", WORDS["accumulation"]),
        ("checkpoint_interval", WORDS["interval"]),
        ("steps", _STEPS),
    ):
        if fact := whole_number(settings, keys, disagree, name.replace("_", " ")):
            facts[name] = fact
    if steps := number_at(settings, "training.steps"):  # as torchtitan has it
        facts.setdefault("steps", steps)
    _batches(facts, sources, disagree)
    if precision := _precision(settings):
        facts["precision"] = precision
    if parallel := _parallel(settings, sources.trainer):
        facts["parallel"] = parallel
    _derived(facts, sources, disagree)
    _of_adapters(facts, settings, sources.trainer)
    if sources.trainer and sources.trainer != "none":
        facts["trainer"] = Fact(sources.trainer, sources.image[1])
        if version := re.search(r":v?(\d+\.\d+[\w.]*)$", sources.image[0]):
            facts["trainer_version"] = Fact(version[1], sources.image[1])
    shaped = model is not None and "layers" in shape and model.source == shape["layers"].source
    return FactSheet(facts=facts, disagree=tuple(dict.fromkeys(disagree)), by_shape=shaped)


def _of_adapters(facts: dict[str, Fact], settings: Sequence[Setting], trainer: str) -> None:
    """Rank, layers and frozen format of adapters, or that there are some of which nobody says
    the rank.
    """
    rank = whole_number(settings, WORDS["lora_rank"]) or _rank(settings)
    adapters = _adapters(settings)
    if rank is None and adapters is not None and trainer in _RANKS:
        rank = Fact(_RANKS[trainer], f"{adapters.source}: the default of {trainer}")
    if rank is None:
        facts.update({} if adapters is None else {"adapters": adapters})
        return
    beside = {"base": _base(settings), "adapter_targets": _targets(settings)}
    facts["adapter_rank"] = rank
    facts.update({name: fact for name, fact in beside.items() if fact is not None})


_RANKS: Final = {"llama-factory": 8, "trl": 16}
"""Default ranks of trainers. Source: LLaMA-Factory, hparams/finetuning_args.py:
lora_rank; TRL, trainer/model_config.py: lora_r. [1]"""


def _of_devices(facts: dict[str, Fact], sources: FactSources) -> None:
    devices = sources.device_request
    if not devices.vendor and sources.elsewhere:
        return
    if not devices.vendor:
        facts["device_kind"] = Fact("cpu", "no container asks for an accelerator")
        return
    kind = f"{devices.vendor}-{devices.word}" if devices.sliced else devices.product
    facts["device_kind"] = Fact(kind, devices.label or devices.named)
    if devices.pod_count is not None:
        facts["nodes"] = Fact(devices.pod_count, devices.counted or "one pod")
    if devices.total is not None:
        facts["devices"] = Fact(devices.total, f"{devices.named} x pods")


def _model(sources: FactSources, shape: Mapping[str, Fact]) -> Fact | None:
    """The model that a job names: by an option, by its shape, or in the name of a file."""
    if (flavored := _flavored(sources.settings)) is not None:
        return flavored
    named = _named(sources.settings, _MODEL)
    if named is not None and SIZED.search(named.value):
        return named
    tokenizer = _named(sources.settings, TOKENIZER_WORDS)
    sized = tokenizer if tokenizer is not None and SIZED.search(tokenizer.value) else None
    if {"layers", "hidden", "heads"} <= shape.keys():
        whole = sizes_of(shape)
        preset = model_preset(sized.value) if sized is not None else ""
        borrowed = bool(preset) and preset not in presets_of_shape(whole, "")
        return _shaped(sources, shape) if borrowed else sized or _shaped(sources, shape)
    if named is None or not is_known(named.value):
        in_names = (Fact(name, where) for text, where in sources.words if (name := in_a_name(text)))
        fetched = (Fact(name, where) for name, where in _copied(sources))
        prepared = _named(sources.others, _MODEL)
        prepared = prepared if prepared is not None and SIZED.search(prepared.value) else None
        if (other := next(in_names, None) or next(fetched, None) or prepared) is not None:
            return other
    return named or sized


_VARIANT: Final = re.compile(r"[-_](flex|varlen|fused|sdpa)\w*$")
"""Endings of torchtitan's flavors that change how attention is computed, and not the model."""


def _flavored(settings: Sequence[Setting]) -> Fact | None:
    """A model given in two settings, its family and its flavor or size: `llama3` and `8B`, as
    torchtitan has them, or `llama3` and `8`.
    """
    by_path = {setting.path: setting for setting in reversed(settings)}  # the first one counts
    families = {"model.name": "model.flavor", "module": "flavor", "model_name": "model_flavor"}
    for family_path, path in (*families.items(), ("model_name", "model_size")):
        family, flavor = by_path.get(family_path), by_path.get(path)
        if family is None or flavor is None:
            continue
        is_size = path == "model_size"
        size = f"{flavor.value}{'b' * (is_size and flavor.value.isdigit())}"
        model = f"{family.value}-{_VARIANT.sub('', size.lower())}"
        if not PLACEHOLDER.search(model) and (is_known(model) or not is_size):
            return Fact(model.lower().replace("_", "-"), flavor.where)
    return None


def _other_depth(model: Fact, shape: Mapping[str, Fact]) -> list[str]:
    """The contradiction where a job names a model but gives another number of layers, as short
    trials do; else nothing.
    """
    layers, preset = shape.get("layers"), model_preset(model.value)
    if layers is None or not preset:
        return []
    layers_of_preset = int(presets.model(preset).layers)
    if layers_of_preset == layers.value:
        return []
    sentence = (
        f"{model.source} names {model.value}, which has {layers_of_preset} layers, "
        f"and {layers.source} says {layers.value}"
    )
    return [sentence]


def _shaped(sources: FactSources, shape: Mapping[str, Fact]) -> Fact | None:
    """The model that has the shape which a job spells out, where only one is known; of those that
    differ by their names alone, the first.
    """
    keys = (*TOKENIZER_WORDS, "model_type", *_MODEL)
    hint = " ".join(
        "pythia" if setting.key == NEOX else setting.value
        for setting in sources.settings
        if setting.key in {*keys, NEOX} or setting.path == "model.name"
    )
    fitting = presets_of_shape(sizes_of(shape), hint)
    if len(fitting) == 1:
        return Fact(fitting[0], shape["layers"].source)
    files = ((in_a_name(text), where) for text, where in sources.words)
    for name, where in (*_copied(sources), *files):
        if model_preset(name) in fitting:
            return Fact(name, where)
    same = fitting and all(presets.model(name) == presets.model(fitting[0]) for name in fitting)
    return Fact(fitting[0], shape["layers"].source) if same else None


def _copied(sources: FactSources) -> list[tuple[str, str]]:
    """Models whose files commands copy, and where: known ones first, those of tokenizers last."""
    models = [(name, where, text) for text, where in sources.fetched if (name := on_the_way(text))]
    models.sort(key=lambda model: ("tokenizer" in model[2].lower(), not is_known(model[0])))
    return [(name, where) for name, where, _ in models]


def _named(settings: Sequence[Setting], keys: Sequence[str]) -> Fact | None:
    """The model that the first of some keys names."""
    named = [setting for setting in settings if setting.key in keys]
    named.sort(key=lambda setting: (ORIGINS.index(setting.origin), keys.index(setting.key)))
    facts = (Fact(name_of(setting.value, setting.key), setting.where) for setting in named)
    return next((fact for fact in facts if fact.value), None)


_OF_DEEPSPEED: Final = frozenset(
    {"train_micro_batch_size_per_gpu", "zero_optimization"}
    | {"stage3_gather_16bit_weights_on_model_save"}
)


def _batches(facts: dict[str, Fact], sources: FactSources, disagree: list[str]) -> None:
    """The global batch and that of one device, by the options that say them."""
    settings = sources.settings
    deepspeed = _OF_DEEPSPEED & {item.key for item in settings if item.origin == "file"}
    if fact := whole_number(settings, WORDS["global_batch"], disagree, "global batch"):
        facts["global_batch"] = fact
    if fact := whole_number(settings, WORDS["micro_batch"], disagree, "micro batch"):
        facts["micro_batch"] = fact
        # MBS and BS, as examples of Megatron-LM call them
        if whole := whole_number(settings, ("bs",)):
            facts.setdefault("global_batch", whole)
    if whole := whole_number(settings, ("train_batch_size",)):
        of_step = deepspeed or sources.trainer == "levanter" or "micro_batch" in facts
        name = "global_batch" if of_step else "micro_batch"
        facts.setdefault(name, whole)
    plain = whole_number(settings, ("batch_size",))
    if plain is not None and "micro_batch" not in facts and "global_batch" not in facts:
        if sources.device_request.vendor == "tpu":  # one program of JAX has one batch
            facts["global_batch"] = plain
        elif (
            sources.torch
            or sources.device_request.total == 1
            or sources.trainer in {"torchtune", "trl", "fsdp-script"}
        ):
            facts["micro_batch"] = plain


_ONCE: Final = frozenset({"axolotl", "llama-factory", "trl", "torchtune", "torchtitan"})
"""Trainers that accumulate once where nobody says it."""


def _derived(facts: dict[str, Fact], sources: FactSources, disagree: list[str]) -> None:
    """The global batch from what one device computes, and whether it contradicts what is said."""
    if sources.trainer == "maxtext":
        _of_maxtext(facts, sources)
        return
    accumulation, micro = facts.get("accumulation"), facts.get("micro_batch")
    ranks = _ranks(facts, sources)
    if micro is None or not ranks:
        return
    keys = {setting.key for setting in sources.settings}
    defaulted = bool(HUGGING_FACE & keys) or sources.trainer in _ONCE
    files = any(setting.origin == "file" for setting in sources.settings)
    plain = sources.trainer == "fsdp-script" and not files
    if accumulation is None and not defaulted and not plain:
        return
    times = accumulation.value if accumulation else 1
    total = micro.value * times * ranks
    stated = facts.get("global_batch")
    if stated is None:
        words = f"micro batch {micro.value} x accumulation {times} x {ranks} ranks"
        words += "" if accumulation or defaulted else ", as no accumulation is said"
        facts["global_batch"] = Fact(total, f"derived: {words}")
    elif accumulation is not None and stated.value != total and stated.value != micro.value * times:
        disagree.append(
            f"global batch is {stated.value} by {stated.source}, "
            f"and {micro.value} x {times} x {ranks} = "
            f"{total} by micro batch, accumulation and devices"
        )


def _ranks(facts: Mapping[str, Fact], sources: FactSources) -> int:
    """Ranks by which a micro-batch with its accumulation is multiplied; 0 = unknown. [1]"""
    if "devices" not in facts:
        return 0
    if {setting.key for setting in sources.settings} >= _OF_NANOGPT:
        return 1
    ranks = int(facts["devices"].value) * sources.device_request.per_chip
    parallel = facts["parallel"].value if "parallel" in facts else {}
    for size in (parallel.get(name, 1) for name in ("tp", "pp", "cp")):
        ranks = ranks // size if ranks % size == 0 else 0
    return ranks


def _of_maxtext(facts: dict[str, Fact], sources: FactSources) -> None:
    """The global batch of a MaxText job: its batch for one device, times all devices.

    A device may train a part of a sequence only: then its batch is below 1.
    """
    texts = (item.value for item in sources.settings if item.key == "per_device_batch_size")
    text, devices = next(texts, None), facts.get("devices")
    if devices is None or text is None or "global_batch" in facts:
        return
    try:
        each = float(text)
    except ValueError:
        return
    per_chip = sources.device_request.per_chip
    times = facts["accumulation"].value if "accumulation" in facts else 1
    total = each * devices.value * per_chip * times
    if total >= 1 and total == int(total):
        words = f"derived: {text} x {devices.value} x {per_chip} devices"
        facts["global_batch"] = Fact(int(total), words)


_OF_NANOGPT: Final = frozenset({"n_layer", "n_embd", "block_size", "gradient_accumulation_steps"})
"""Settings of nanoGPT, whose accumulation is that of all ranks. Source: nanoGPT, train.py."""


def _precision(settings: Sequence[Setting]) -> Fact | None:
    """The format of matrix products by a job's settings: FP8 where it is on, else the one that
    is named.
    """
    switches = [setting.value.lower() for setting in settings if setting.key in _SWITCHES]
    off = switches and all(value in OFF for value in switches)
    for setting in [] if off else settings:
        value = setting.value.lower()
        names_fp8 = "fp8" in value or "float8" in value or "fp8" in setting.key
        if setting.key in _EIGHT and value not in OFF and names_fp8:
            return Fact("fp8", setting.where)
    for setting in settings:
        yes = {"true", "1", "yes", _AUTO.get(setting.key)}
        if setting.key in PRECISION_SWITCHES and setting.value.lower() in yes:
            return Fact(precision_of(setting.key), setting.where)
        if setting.key in DTYPE_WORDS and (kind := precision_of(setting.value)):
            return Fact(kind, setting.where)
        if setting.path.endswith(("bf16.enabled", "fp16.enabled")) and setting.value == "true":
            return Fact(setting.path.split(".")[-2], setting.where)
    return None


def _parallel(settings: Sequence[Setting], trainer: str) -> Fact | None:
    sizes = {
        name: fact for name, keys in DEGREE_WORDS.items() if (fact := whole_number(settings, keys))
    }
    if trainer == "maxtext":  # an axis of its mesh that is one is not used
        sizes = {name: fact for name, fact in sizes.items() if fact.value > 1}
    if not sizes:
        return None
    first = next(iter(sizes.values()))
    return Fact({name: fact.value for name, fact in sizes.items()}, first.source)


def _rank(settings: Sequence[Setting]) -> Fact | None:
    # PEFT and Unsloth call the rank `r`, beside a `lora_alpha`.
    beside = any(setting.key == "lora_alpha" for setting in settings)
    for setting in settings:
        inside = beside or re.search(r"lora|peft", setting.path.rpartition(".")[0])
        if setting.key in {"r", "rank"} and inside and (value := number(setting.value) or 0) > 0:
            return Fact(value, setting.where)
    return None


def _base(settings: Sequence[Setting]) -> Fact | None:
    """The format of frozen weights by the switches of bitsandbytes, under their trainers' names."""
    for setting in settings:
        if setting.key in _FOUR_BITS and (value := setting.value.lower()) not in OFF:
            eight = setting.key == "load_in_8bit" or value == "8"
            return Fact("int8" if eight else "nf4", setting.where)
        if setting.key in _ADAPTERS and setting.value.lower() == "qlora":
            return Fact("nf4", setting.where)
    return None


def _targets(settings: Sequence[Setting]) -> Fact | None:
    """Linear layers with adapters, where all that are named are known.

    >>> _targets([Setting("lora_target", "['q_proj', 'v_proj']", "args[3]", "option")]).value
    'q,v'
    """
    for setting in settings:
        if setting.key == _EVERY_LINEAR and setting.value.lower() not in OFF:
            return Fact("all", setting.where)
        if setting.key in _TARGETS:
            names = re.sub(r"[\[\]'\"\s]", "", setting.value).split(",")
            try:
                targets = targets_of(names, setting.key)
            except InputError:  # adapters beside others are not priced
                continue
            layers = "all" if targets == ALL_LINEAR else ",".join(sorted(targets))
            return Fact(layers, setting.where)
    return None


def _adapters(settings: Sequence[Setting]) -> Fact | None:
    for setting in settings:
        if setting.key in _ADAPTERS and re.search(r"lora|^true$|^1$|^peft$", setting.value.lower()):
            return Fact("qlora" if setting.value.lower() == "qlora" else "lora", setting.where)
        if setting.key in _FOUR_BITS and setting.value.lower() not in OFF:
            return Fact("qlora", setting.where)
    return None
