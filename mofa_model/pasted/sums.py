"""dict[str, Fact] that a trainer says by several settings together, or in units of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Final

from mofa_model.identity.fact import Fact
from mofa_model.pasted.lookup import Lookup
from mofa_model.pasted.recognise import PastedKind

_LENGTHS: Final = (
    ("max_prompt_length", "max_response_length"), ("max_prompt_length", "max_completion_length"),
    ("source_max_len", "target_max_len"), ("prompt_max_len", "generate_max_len"),
)  # fmt: skip
"""A sequence in two parts."""


def _lengths(facts: dict[str, Fact], lookup: Lookup) -> None:
    for pair in _LENGTHS:
        first, second = (lookup.whole((name,)) for name in pair)
        if first and second:
            facts.setdefault("seq", Fact(first.value + second.value, first.source))


def _two_batches(facts: dict[str, Fact], lookup: Lookup) -> None:
    """Take `batch` for the global batch where a micro-batch stands beside it and nothing
    says more.
    """
    whole, part = lookup.whole(("batch_size",)), lookup.whole(("micro_batch_size",))
    if whole and part and whole.value % part.value == 0 and lookup.call is not None:
        facts.setdefault("global_batch", whole)


def _tokens(facts: dict[str, Fact], lookup: Lookup) -> None:
    """Turn batches of OLMo-core, which are counted in tokens, into sequences."""
    sequence = facts.get("seq")
    each = lookup.whole(("rank_microbatch_size",))
    length = int(sequence.value) if sequence else 4096
    for name, tokens in (
        ("global_batch", lookup.whole(("global_batch_size",))),
        ("micro_batch", each),
    ):
        facts.pop(name, None)
        if tokens and tokens.value % length == 0:
            facts[name] = Fact(tokens.value // length, tokens.source)


def _gate_and_up(facts: dict[str, Fact], lookup: Lookup) -> None:
    """Halve the feed-forward width of OLMo, which counts gate and upper matrix together."""
    ratio, width = lookup.whole(("mlp_ratio",)), lookup.whole(("mlp_hidden_size",))
    if width:
        facts["ffn"] = Fact(width.value // 2, width.source)
    elif ratio and "hidden" in facts:
        facts["ffn"] = Fact(ratio.value * facts["hidden"].value // 2, ratio.source)


def _expansion(facts: dict[str, Fact], lookup: Lookup) -> None:
    ratio = lookup.whole(("expansion_ratio",))
    if ratio and "hidden" in facts:
        facts.setdefault("ffn", Fact(ratio.value * facts["hidden"].value, ratio.source))


def _mesh(facts: dict[str, Fact], lookup: Lookup) -> None:
    """Degrees of MaxText's mesh, each the product of its axes within a slice and across slices."""

    def axes(where: str) -> dict[str, Fact]:
        names = ("data", "fsdp", "tensor", "pipeline", "expert", "context")
        return {
            axis: fact for axis in names if (fact := lookup.whole((f"{where}_{axis}_parallelism",)))
        }

    inner, outer = axes("ici"), axes("dcn")
    each, across = (
        prod(int(fact.value) for fact in degrees.values()) for degrees in (inner, outer)
    )
    first = next(iter([*inner.values(), *outer.values()]), None)
    if first and each * across > 1:
        facts["gpus"] = Fact(each * across, first.source)
        if each > 1 and across > 1:
            facts["gpus_per_node"] = Fact(each, first.source)
            facts["nodes"] = Fact(across, first.source)
    for name, axis in (("tp", "tensor"), ("pp", "pipeline"), ("ep", "expert"), ("cp", "context")):
        if axis in inner and inner[axis].value > 1:
            facts[name] = inner[axis]


def _copies(facts: dict[str, Fact], lookup: Lookup) -> None:
    """Data-parallel ranks: the number of shards times the copies of each shard."""
    for sharded, copied in (
        ("dp_shard_size", "dp_replicate_size"),
        ("data_parallel_shard_degree", "data_parallel_replicate_degree"),
    ):
        shards, copies = lookup.whole((sharded,)), lookup.whole((copied,))
        if shards:
            facts["dp"] = Fact(shards.value * (copies.value if copies else 1), shards.source)
        elif lookup.trainer == "axolotl" and "ep" in facts and not copies:
            facts.setdefault("dp", facts["ep"])


def _stages(facts: dict[str, Fact], lookup: Lookup) -> None:
    """Virtual stages by Megatron's layers in each; one head of keys for multi-query attention."""
    layers = lookup.whole(("num_layers_per_virtual_pipeline_stage",))
    if layers and "vpp" not in facts and {"layers", "pp"} <= facts.keys():
        each, rest = divmod(facts["layers"].value, facts["pp"].value * layers.value)
        if not rest:
            facts["vpp"] = Fact(each, layers.source)
    heads = lookup.first("attention_head_type")
    if heads is not None and heads.value == "multiquery":
        facts["kv_heads"] = Fact(1, heads.where)


def _experts(facts: dict[str, Fact], _: Lookup) -> None:
    if "experts" in facts and facts["experts"].value <= 1:
        del facts["experts"]


def _processes(facts: dict[str, Fact], lookup: Lookup) -> None:
    if lookup.kind is PastedKind.ACCELERATE and (total := lookup.whole(("num_processes",))):
        facts["gpus"] = total


_BY_TRAINER: Final[Mapping[str, Callable[[dict[str, Fact], Lookup], None]]] = {
    "olmo-core": _tokens, "olmo": _gate_and_up, "llm-foundry": _expansion, "maxtext": _mesh,
}  # fmt: skip


def add_sums(facts: dict[str, Fact], lookup: Lookup) -> None:
    """Add to facts, or correct, what several settings say together."""
    for add in (
        _lengths,
        _two_batches,
        _BY_TRAINER.get(lookup.trainer),
        _copies,
        _stages,
        _experts,
        _processes,
    ):
        if add is not None:
            add(facts, lookup)
