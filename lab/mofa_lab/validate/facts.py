"""What a record says, in the words of `spec` and `strategy`: network, formats, machines, layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from mofa_lab.validate.record import Record
from mofa_model import presets
from mofa_model.blocks import (
    Block,
    Embedding,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    SoftmaxAttention,
)
from mofa_model.errors import BadValue, UnknownName
from mofa_model.schedules import DUALPIPE, DUALPIPE_V, INTERLEAVED, ONE_F_ONE_B, ZBV, ZERO_BUBBLE
from mofa_model.spec import Cluster, Precision, Run, Transformer
from mofa_model.strategy import ACTIVATIONS, ContextMode, Graphs, Recompute, Sharding, Strategy

DEEPEST: Final = 100_000
"""Layers that a model may have, and any degree of a layout: stages are dealt one by one."""

LEARNED: Final = "learned_absolute"
"""Positions that are rows of a table, one for each token of a sequence."""

_SHARDING: Final = {
    "none": Sharding.NONE,
    "zero1": Sharding.OPTIMIZER,
    "zero2": Sharding.GRADIENTS,
    "zero3": Sharding.WEIGHTS,
}
_SCHEDULE: Final = {
    "none": ONE_F_ONE_B,
    "1f1b": ONE_F_ONE_B,
    "gpipe": ONE_F_ONE_B,  # the same bubble; its memory is larger
    "interleaved-1f1b": INTERLEAVED,
    "interleaved": INTERLEAVED,
    "1f1b-interleaved": INTERLEAVED,
    "zero-bubble": ZERO_BUBBLE,
    # ZB-H2 holds more and waits less; it is priced as the one we model.
    **dict.fromkeys(("zb", "zb-h1", "zb-h2", "zb-1p", "zb-2p"), ZERO_BUBBLE),
    **dict.fromkeys(("zbv", "zb-v"), ZBV),
    "dualpipe": DUALPIPE,
    "dualpipev": DUALPIPE_V,
}


def model_of(record: Record) -> Transformer:
    """The network of a case."""
    given = record.inner("model")
    moe, mla = given.inner("moe"), given.inner("mla")
    hidden, heads = given.count("hidden"), given.count("heads")
    attention: Block
    if mla.values:
        attention = LatentAttention(
            heads=heads,
            query_rank=mla.count("q_lora", 0) or None,
            kv_rank=mla.count("kv_lora"),
            nope_dim=mla.count("qk_nope"),
            rope_dim=mla.count("qk_rope"),
            value_dim=mla.count("v_dim"),
        )
    else:
        attention = SoftmaxAttention(
            heads=heads,
            kv_heads=given.count("kv_heads", heads),
            head_dim=given.count("head_dim", hidden // max(1, heads)),
        )
    layers, gated = given.count("layers", most=DEEPEST), given.flag("gated_mlp")
    plain = Layer((attention, FeedForward(width=given.count("ffn"), gated=gated)))
    leading = min(moe.count("dense_first_layers", 0), layers) if moe.values else layers
    runs = (Run((plain,), leading),) if leading else ()
    if leading < layers:
        experts = Experts(
            count=moe.count("experts"),
            top_k=moe.count("top_k"),
            width=moe.count("moe_ffn"),
            gated=gated,
            shared_width=moe.count("shared_expert_ffn", 0) or None,
        )
        runs = (*runs, Run((Layer((attention, experts)),), layers - leading))
    return Transformer(
        name=given.text("name", "unnamed"),
        hidden=hidden,
        runs=runs,
        embedding=Embedding(
            vocabulary=given.count("vocab"),
            tied=given.flag("tied_embeddings"),
            positions=given.count("seq")
            if given.text("position_embedding", "rope") == LEARNED
            else 0,
        ),
        prediction_modules=given.count("mtp_layers", 0, most=DEEPEST),
    )


def stack_of(record: Record) -> str:
    """The software stack of a case by its preset id; a stack without a preset is the
    default one.
    """
    named = record.inner("normalized").text("software", record.text("software", "default"))
    try:
        return presets.resolve("stacks", named)
    except UnknownName:
        return "default"


def precision_of(record: Record) -> Precision:
    """The recipe of a case on its stack, with what the case says of widths."""
    normalized = record.inner("normalized")
    widths: dict[str, Any] = {}
    if normalized.get("fp32_gradients") is not None:
        widths["gradient"] = 4.0 if normalized.flag("fp32_gradients") else 2.0
        if not normalized.flag("fp32_gradients"):
            widths["reduce"] = 2.0  # what is summed in 16 bits is sent in 16 bits
    if normalized.get("reduce_dtype") is not None:
        widths["reduce"] = {"bf16": 2.0, "fp16": 2.0}.get(normalized.text("reduce_dtype"), 4.0)
    name, fp8_params = normalized.text("precision", "bf16"), normalized.flag("fp8_params")
    return _recipe(name, stack_of(record), fp8_params, tuple(sorted(widths.items())))


@lru_cache(maxsize=256)
def _recipe(
    name: str, stack: str, fp8_params: bool, widths: tuple[tuple[str, Any], ...]
) -> Precision:
    return replace(presets.precision(name, stack=stack, fp8_params=fp8_params), **dict(widths))


def cluster_of(record: Record, strategy: Strategy) -> Cluster:
    """The machines of a case: the device's preset, overruled by what the case states."""
    system = record.inner("system")
    used = int(strategy.gpus)
    gpus = system.count("gpus", used)
    if gpus != used:
        raise BadValue("system.gpus", gpus, f"tp x pp x cp x dp = {used}")
    return _cluster(
        system.text("gpu"),
        gpus,
        system.count("gpus_per_node", 0),
        system.number("nic_gbps_per_gpu", 0.0),
    )


@lru_cache(maxsize=4096)
def _cluster(gpu: str, gpus: int, gpus_per_node: int, nic: float) -> Cluster:
    share = f"{nic} Gbit/s" if nic else None
    return presets.cluster(gpu, gpus, gpus_per_node=gpus_per_node or None, scale_out=share)


def strategy_of(record: Record, features: Mapping[str, Any]) -> Strategy:
    """The layout of a case and the features that its words stand for."""
    given, normalized = record.inner("strategy"), record.inner("normalized")
    sharding, recompute = normalized.inner("sharding"), normalized.inner("recompute")
    degrees: dict[str, Any] = {
        name: given.size(name, 1, most=DEEPEST)
        for name in ("tp", "pp", "cp", "dp", "ep", "etp", "vpp", "mbs")
    }
    interleaved = degrees["vpp"] > 1
    schedule = _choice(given, "schedule", _SCHEDULE, "none")
    if interleaved and schedule == ONE_F_ONE_B:
        schedule = INTERLEAVED
    modules = recompute.get("modules") or ["core_attn"]
    return Strategy(
        **degrees,
        shard=sharding.count("ranks", 0),
        schedule=schedule,
        sharding=_choice(sharding, "level", _SHARDING, "none"),
        sequence_parallel=given.flag("sequence_parallel"),
        context_mode=ContextMode.ALL_TO_ALL if features.get("a2a") else ContextMode.RING,
        recompute=_choice(recompute, "mode", {mode.value: mode for mode in Recompute}, "none"),
        recompute_modules=frozenset(str(module) for module in modules),
        offload=_offloaded(given),
        tensor_overlap=features.get("tensor_overlap", False),
        data_overlap=features.get("data_overlap", True),
        # Trainers overlap hops with compute only where a device has other chunks to run meanwhile.
        pipeline_overlap=features.get("pipeline_overlap", True) and schedule != ONE_F_ONE_B,
        expert_overlap=features.get("expert_overlap", False),
        graphs=Graphs(features.get("graphs", "none")),
    )


def placement_of(record: Record) -> str:
    """Which layers lie on which stage, as `placement` has it, where a case says so."""
    layout = record.inner("strategy").text("pipeline_layout", "")
    return _PLACEMENT.get(layout, layout)


_PLACEMENT: Final = {"embedding and loss count as layers": "slots"}
"""What Megatron's account-for-embedding and account-for-loss options do."""


def _offloaded(given: Record) -> frozenset[str]:
    """What goes to the host: the modules that a list names, or all activations where text says that
    they do.
    """
    stated = given.get("offload")
    if isinstance(stated, list):
        return frozenset(map(str, stated))
    return frozenset({ACTIVATIONS} if given.text("offload", "none") != "none" else ())


def _choice(record: Record, name: str, choices: Mapping[str, Any], default: str) -> Any:
    word = record.text(name, default).lower()
    if word not in choices:
        raise BadValue(f"{record.path}.{name}", word, f"one of {', '.join(choices)}")
    return choices[word]
