"""Files of settings that people name as their layout: which trainer's a file is.

An unknown file is refused, and a file of another trainer is refused by its name: a file of which
nothing was read would be taken for a layout without sharding. `formats.toml` has the marks by which
files are told.

nanotron and LLM Foundry are read here and never written. Their fields and defaults: nanotron,
config/parallelism_config.py and config/config.py (ParallelismArgs, OptimizerArgs, TokensArgs);
Composer 0.32, utils/parallelism.py (FSDPConfig), and its trainer's device_train_microbatch_size and
precision.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from mofa_model.errors import BadFile, BadValue, shown
from mofa_model.files import from_json, from_toml
from mofa_model.launch.answer import OpenFile, Reading
from mofa_model.launch.table import Settings
from mofa_model.records import dataclass
from mofa_model.strategy import Recompute, Sharding
from mofa_model.yaml_text import StreamReader

ENDINGS: Final = (".toml", ".json", ".yaml", ".yml")
"""How names of such files end."""
_WRITTEN: Final = "or write the layout as tp=8,pp=4,…"


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of files, by which trainer's words it has."""

    about: str
    """What it is called."""
    marks: Sequence[Sequence[str]]
    """Lists of keys, `a/b` for one inside another: a file that has all of one list is of the
    format."""
    replacement: str = ""
    """What can be given in its place, where it is not read."""
    reader: str = ""
    """The trainer whose words it has, where it is read."""
    keys: frozenset[str] = frozenset()
    """All keys that it can have at the top; empty where nobody knows."""

    def is_of(self, document: Mapping[str, Any]) -> bool:
        """Whether a document has one of the keys by which this format is known."""
        return any(all(_has(document, path) for path in paths) for paths in self.marks)


def _has(document: Mapping[str, Any], path: str) -> bool:
    value: Any = document
    for key in path.split("/"):
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True


@cache
def _formats() -> tuple[Format, ...]:
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["format"]
    return tuple(Format(**{**row, "keys": frozenset(row.get("keys", ()))}) for row in rows)


def document_of(text: str, name: str) -> Mapping[str, Any]:
    """The settings of a file in TOML, JSON or YAML, by the end of its name."""
    if name.lower().endswith(".toml"):
        return from_toml(text, name)
    if name.lower().endswith(".json"):
        documents = [from_json(text, name)]
    else:
        reader = StreamReader(name)
        documents = [reader.value(node) for node in reader.documents(text)]
    if len(documents) > 1 and not any(_has(document, "apiVersion") for document in documents):
        raise BadFile(name, f"holds {len(documents)} documents; give one")
    if not documents or not isinstance(documents[0], Mapping):
        raise BadFile(name, "is not a mapping of settings; give keys with values")
    return dict(documents[0])


def format_of(document: Mapping[str, Any], name: str) -> Format:
    """The format of a file that is read as a layout; any other file is refused with the reason."""
    file_format = _first(document)
    if file_format is None:
        keys = ", ".join(str(key) for key in list(document)[:3]) or "nothing"
        raise BadFile(
            name,
            f"is not a file of settings that is known here; its first keys are {shown(keys)}; "
            f"{_read()}",
        )
    if not file_format.reader:
        raise BadFile(
            name,
            f"seems to be {file_format.about}, which is not read as a layout: "
            f"{file_format.replacement}; {_read()}",
        )
    _refuse_keys(file_format, document, name)
    return file_format


def document_for(reader: str, text: str, name: str) -> Mapping[str, Any]:
    """The settings of a file that a command gives to the trainer `reader`."""
    document = document_of(text, name)
    recognised, expected = (
        _first(document),
        next(file_format for file_format in _formats() if file_format.reader == reader),
    )
    if recognised not in (None, expected):
        raise BadFile(
            name,
            f"seems to be {recognised.about}, but the command names it as {expected.about}; "
            "give one of those",
        )
    _refuse_keys(expected, document, name)
    return document


def _first(document: Mapping[str, Any]) -> Format | None:
    return next((file_format for file_format in _formats() if file_format.is_of(document)), None)


def _refuse_keys(file_format: Format, document: Mapping[str, Any], name: str) -> None:
    """Refuse a file with a top-level key that its format lacks, unless the key is switched off."""
    for key, value in document.items():
        if (
            file_format.keys
            and key not in file_format.keys
            and not str(key).startswith(("_", "comment"))
            and not _off(value)
        ):
            trainer = file_format.about.removesuffix("'s")
            raise BadFile(
                name,
                f"has {shown(key)}, which {trainer} does not know, so it is not read; "
                f"take it out, {_WRITTEN}",
            )


def _off(value: object) -> bool:
    """Whether a value switches nothing on."""
    if isinstance(value, Mapping):
        return all(map(_off, value.values()))
    return value is None or value is False or value in ("", "no", "none", [])


def _read() -> str:
    """The end of an error: which formats of files are read, each with the key that marks it."""
    marks = {
        file_format.about.split(" of ")[0]: file_format.marks[0][0].replace("/", ".")
        for file_format in _formats()
        if file_format.reader
    }
    return f"read are {', '.join(f'{about} ({mark})' for about, mark in marks.items())}, {_WRITTEN}"


FSDP1_STRATEGIES: Final = {
    "FULL_SHARD": Sharding.WEIGHTS,
    "SHARD_GRAD_OP": Sharding.GRADIENTS,
    "NO_SHARD": Sharding.NONE,
}
"""Sharding strategies of FSDP1, which is read and never written."""
_NOT_PRICED: Final = (
    "fsdp_config.cpu_offload", "fsdp_config.activation_cpu_offload", "fsdp_config.process_group",
    "fsdp_config.data_parallel_replicate_degree", "fsdp_config.te_checkpoint_wrapper",
    "fsdp_config.activation_checkpointing_target", "activation_checkpointing_target",
    "fsdp2_config", "parallelism_config", "tp_config", "deepspeed_config",
)  # fmt: skip
"""Keys of LLM Foundry that are refused where they are on, because their cost is not modelled."""
_ASIDE: Final = (
    "fsdp_config.mixed_precision",
    "fsdp_config.keep_low_precision_grads",
    "compile_config",
    "fsdp_config.te_shard_fp8_weight",
)
"""Keys of LLM Foundry that change memory or time and are not read."""


def nanotron(document: Mapping[str, Any], _: OpenFile | None = None) -> Reading:
    """What a recipe of nanotron says."""
    settings = Settings(document)
    tp, pp, dp = (settings.number(f"parallelism.{axis}") or 1 for axis in ("tp", "pp", "dp"))
    for name in ("expert_parallel_size", "context_parallel_size"):
        if (settings.number(f"parallelism.{name}") or 1) > 1:
            raise BadValue(
                f"parallelism.{name}",
                settings.value(f"parallelism.{name}"),
                "only 1 has a modelled cost",
            )
    engine = settings.value("parallelism.pp_engine") or "afab"
    if pp > 1 and engine != "1f1b":
        raise BadValue("parallelism.pp_engine", engine, "only 1f1b has a modelled cost")
    mode = str(settings.value("parallelism.tp_mode") or "ALL_REDUCE").upper()
    if mode not in {"ALL_REDUCE", "REDUCE_SCATTER"}:
        raise BadValue("parallelism.tp_mode", mode, "ALL_REDUCE or REDUCE_SCATTER")
    stage = settings.number("optimizer.zero_stage", 0) or 0
    if stage > 1:
        raise BadValue("optimizer.zero_stage", stage, "0 or 1")
    mbs, rounds = (
        settings.number("tokens.micro_batch_size"),
        settings.number("tokens.batch_accumulation_per_replica"),
    )
    recomputes = settings.truth("parallelism.recompute_layer")
    return Reading(
        trainer="nanotron",
        layout={
            "tp": tp, "pp": pp, "dp": dp, "mbs": mbs or 1,
            "sequence_parallel": tp > 1 and mode == "REDUCE_SCATTER",
            "tensor_overlap":
                tp > 1 and settings.truth("parallelism.tp_linear_async_communication"),
            "sharding": Sharding.OPTIMIZER if stage else Sharding.NONE,
            "recompute": Recompute.FULL if recomputes else Recompute.NONE,
        },
        layers=settings.number("model.model_config.num_hidden_layers"),
        sequence=settings.number("tokens.sequence_length"),
        global_batch=dp * mbs * rounds if mbs and rounds else None,
        precision={"bfloat16": "bf16", "float16": "fp16"}.get(str(settings.value("model.dtype"))),
        interval_steps=settings.number("checkpoints.checkpoint_interval"),
        unpriced=tuple(
            name
            for name in (
                "parallelism.tp_recompute_allgather", "parallelism.moe_layer_recompute",
                "optimizer.accumulate_grad_in_fp32",
            )
            if settings.truth(name)
        ),
    )  # fmt: skip


def llm_foundry(document: Mapping[str, Any], _: OpenFile | None = None) -> Reading:
    """What a recipe of LLM Foundry says: it shards where it has an `fsdp_config`."""
    settings = Settings(document)
    for name in _NOT_PRICED:
        if settings.value(name) not in (None, False, {}, []):
            raise BadValue(
                name,
                settings.value(name),
                "its cost is not modelled; leave it out, or write the layout as "
                "optimizer=zero3,mbs=…",
            )
    if settings.value("fsdp_config.data_parallel_shard_degree") not in (None, -1):
        raise BadValue(
            "fsdp_config.data_parallel_shard_degree",
            settings.value("fsdp_config.data_parallel_shard_degree"),
            "only -1 is read",
        )
    sharding = Sharding.NONE
    if settings.value("fsdp_config") is not None:
        word = str(settings.value("fsdp_config.sharding_strategy") or "FULL_SHARD").upper()
        if word not in FSDP1_STRATEGIES:
            raise BadValue(
                "fsdp_config.sharding_strategy", word, f"one of {', '.join(FSDP1_STRATEGIES)}"
            )
        sharding = FSDP1_STRATEGIES[word]
    precision = str(settings.value("precision") or "")
    layout: dict[str, Any] = {
        "sharding": sharding,
        "recompute": Recompute.FULL
        if settings.truth("fsdp_config.activation_checkpointing")
        else Recompute.NONE,
    }
    if (size := settings.number("device_train_microbatch_size")) is not None:
        layout["mbs"] = size
    return Reading(
        trainer="llm-foundry",
        layout=layout,
        sequence=_sequence(settings),
        global_batch=settings.number("global_train_batch_size"),
        precision={"amp_bf16": "bf16", "amp_fp16": "fp16"}.get(precision),
        unpriced=tuple(
            name for name in _ASIDE if settings.value(name) not in (None, False, "DEFAULT")
        ),
    )


def _sequence(settings: Settings) -> int | None:
    """Tokens of a sequence, which a recipe usually names as one of its own variables. [1]"""
    value = settings.value("max_seq_len")
    if isinstance(value, str) and value.startswith("${") and value.endswith("}"):
        return settings.number(value[2:-1])
    return settings.number("max_seq_len")
