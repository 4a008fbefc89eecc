"""Facts that a trainer says by several settings together, or in units of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Final

from mofa_model.identity.fact import Fact
from mofa_model.pasted.recognise import PastedKind
from mofa_model.pasted.told import Told

Found = dict[str, Fact]
_LENGTHS: Final = (
    ("max_prompt_length", "max_response_length"), ("max_prompt_length", "max_completion_length"),
    ("source_max_len", "target_max_len"), ("prompt_max_len", "generate_max_len"),
)  # fmt: skip
"""A sequence in two parts."""


def _lengths(found: Found, told: Told) -> None:
    for pair in _LENGTHS:
        first, second = (told.whole((name,)) for name in pair)
        if first and second:
            found.setdefault("seq", Fact(first.value + second.value, first.source))


def _two_batches(found: Found, told: Told) -> None:
    """Take `batch` for the global batch where a micro-batch stands beside it and nothing
    says more.
    """
    whole, part = told.whole(("batch_size",)), told.whole(("micro_batch_size",))
    if whole and part and whole.value % part.value == 0 and told.call is not None:
        found.setdefault("global_batch", whole)


def _tokens(found: Found, told: Told) -> None:
    """Turn batches of OLMo-core, which are counted in tokens, into sequences."""
    sequence = found.get("seq")
    each = told.whole(("rank_microbatch_size",))
    length = int(sequence.value) if sequence else 4096
    for name, tokens in (
        ("global_batch", told.whole(("global_batch_size",))),
        ("micro_batch", each),
    ):
        found.pop(name, None)
        if tokens and tokens.value % length == 0:
            found[name] = Fact(tokens.value // length, tokens.source)


def _gate_and_up(found: Found, told: Told) -> None:
    """Halve the feed-forward width of OLMo, which counts gate and upper matrix together."""
    ratio, width = told.whole(("mlp_ratio",)), told.whole(("mlp_hidden_size",))
    if width:
        found["ffn"] = Fact(width.value // 2, width.source)
    elif ratio and "hidden" in found:
        found["ffn"] = Fact(ratio.value * found["hidden"].value // 2, ratio.source)


def _expansion(found: Found, told: Told) -> None:
    ratio = told.whole(("expansion_ratio",))
    if ratio and "hidden" in found:
        found.setdefault("ffn", Fact(ratio.value * found["hidden"].value, ratio.source))


def _mesh(found: Found, told: Told) -> None:
    """Degrees of MaxText's mesh, each the product of its axes within a slice and across slices."""

    def axes(where: str) -> dict[str, Fact]:
        names = ("data", "fsdp", "tensor", "pipeline", "expert", "context")
        return {one: fact for one in names if (fact := told.whole((f"{where}_{one}_parallelism",)))}

    inner, outer = axes("ici"), axes("dcn")
    each, across = (prod(int(fact.value) for fact in some.values()) for some in (inner, outer))
    first = next(iter([*inner.values(), *outer.values()]), None)
    if first and each * across > 1:
        found["gpus"] = Fact(each * across, first.source)
        if each > 1 and across > 1:
            found["gpus_per_node"] = Fact(each, first.source)
            found["nodes"] = Fact(across, first.source)
    for name, axis in (("tp", "tensor"), ("pp", "pipeline"), ("ep", "expert"), ("cp", "context")):
        if axis in inner and inner[axis].value > 1:
            found[name] = inner[axis]


def _copies(found: Found, told: Told) -> None:
    """Data-parallel ranks: shards times the copies of each."""
    for sharded, copied in (
        ("dp_shard_size", "dp_replicate_size"),
        ("data_parallel_shard_degree", "data_parallel_replicate_degree"),
    ):
        shards, copies = told.whole((sharded,)), told.whole((copied,))
        if shards:
            found["dp"] = Fact(shards.value * (copies.value if copies else 1), shards.source)
        elif told.trainer == "axolotl" and "ep" in found and not copies:
            found.setdefault("dp", found["ep"])


def _stages(found: Found, told: Told) -> None:
    """Virtual stages from Megatron's layers of each; and a model with one expert has none."""
    layers = told.whole(("num_layers_per_virtual_pipeline_stage",))
    if layers and "vpp" not in found and {"layers", "pp"} <= found.keys():
        each, rest = divmod(found["layers"].value, found["pp"].value * layers.value)
        if not rest:
            found["vpp"] = Fact(each, layers.source)
    heads = told.first("attention_head_type")
    if heads is not None and heads.value == "multiquery":
        found["kv_heads"] = Fact(1, heads.where)


def _experts(found: Found, _: Told) -> None:
    if "experts" in found and found["experts"].value <= 1:
        del found["experts"]


def _processes(found: Found, told: Told) -> None:
    if told.kind is PastedKind.ACCELERATE and (total := told.whole(("num_processes",))):
        found["gpus"] = total


_BY_TRAINER: Final[Mapping[str, Callable[[Found, Told], None]]] = {
    "olmo-core": _tokens, "olmo": _gate_and_up, "llm-foundry": _expansion, "maxtext": _mesh,
}  # fmt: skip


def add_sums(facts: Found, told: Told) -> None:
    """Add to facts, or correct, what several settings say together."""
    for one in (
        _lengths,
        _two_batches,
        _BY_TRAINER.get(told.trainer),
        _copies,
        _stages,
        _experts,
        _processes,
    ):
        if one is not None:
            one(facts, told)
