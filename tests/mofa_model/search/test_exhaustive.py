"""The searched space is all of the legal space, and nothing else: held against a nested loop
written from the rules.

The loop below shares no code with the search. It walks plain Python numbers, asks for every reason
of `Rejection` in its order, and prices each strategy with `estimate`. Sets, counts by reason and
the ranking must be equal.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import ceil, floor, prod
from random import Random

import numpy as np
import pytest
from shapes import decoder, deeper

from mofa_model.axes.axis import Scope
from mofa_model.blocks import Experts, FeedForward, LatentAttention, SoftmaxAttention
from mofa_model.calibrate.cases import kind_of, stacked
from mofa_model.equations.parameters import training_flops_per_token
from mofa_model.estimate import estimate
from mofa_model.launch import launch
from mofa_model.schedules import DUALPIPE, INTERLEAVED, ONE_F_ONE_B, SCHEDULES
from mofa_model.search import SearchCase, SearchQuestion, framework, parse_constraint, search
from mofa_model.search.explore import strategy_of
from mofa_model.spec import (
    Calibration,
    Cluster,
    Device,
    Link,
    MemoryConstants,
    Precision,
    Training,
    Workload,
)
from mofa_model.spec.transformer import with_imbalance
from mofa_model.strategy import (
    AXES,
    ContextMode,
    Graphs,
    Placement,
    Recompute,
    Sharding,
    format_strategy,
)

ATTENTION = SoftmaxAttention(heads=16, kv_heads=4, head_dim=128)
SMALL = dict(hidden=2048, ffn=8192, vocabulary=32000)
DENSE = decoder("dense", layers=6, attention=ATTENTION, **SMALL)
MIXTURE = decoder(
    "mixture",
    layers=4,
    attention=ATTENTION,
    experts=Experts(count=4, top_k=2, width=2048),
    dense_layers=1,
    **SMALL,
)
UNEVEN = with_imbalance(MIXTURE, 1.5, 0.1)
LEAN = replace(UNEVEN, embedding=replace(UNEVEN.embedding, vocabulary=8000))
"""With a vocabulary of 32,000 the loss holds more than experts do, and chunks of these
save nothing.
"""
LATENT = decoder(
    "latent",
    layers=4,
    attention=LatentAttention(
        heads=16, query_rank=512, kv_rank=256, nope_dim=64, rope_dim=32, value_dim=64
    ),
    experts=Experts(count=4, top_k=2, width=1024, shared_width=1024),
    **SMALL,
)


def cluster(gpus: int, memory: float) -> Cluster:
    device = Device(name="test", peak_bf16=400e12, memory=memory, memory_bandwidth=2e12)
    return Cluster(
        device=device, gpus=gpus, scale_up=Link(bandwidth=300e9), scale_out=Link(bandwidth=25e9)
    )


def workload(model, batch: int) -> Workload:
    return Workload(
        model=model,
        training=Training(sequence=4096, global_batch=batch, precision=Precision(name="bf16")),
    )


FEW = ("recompute=none,selective:layernorm,full:1", "offload=none", "graphs=none")
FULLY = {Sharding.GRADIENTS, Sharding.WEIGHTS}
HALF = ("recompute=none,full", "offload=none,layer_input", "schedule=1f1b", "mbs<=2")
EVERY_SCHEDULE = f"schedule={','.join(one.value for one in SCHEDULES)}"
CASES = [
    # model, GPUs, batch, memory, trainer, constraints that keep the loop short; the quickest first,
    # for a glance
    ("mixture on 64", MIXTURE, 64, 64, 5e9, "megatron", ("recompute=none", "cp=1", "mbs<=2")),
    (
        "dense on 8",
        DENSE,
        8,
        8,
        20e9,
        "any",
        (
            "recompute=none,full",
            "mbs=1",
            "sharding=distributed,zero3",
            "offload=none,activations",
            "graphs=none",
        ),
    ),
    ("dense on 64", DENSE, 64, 32, 6e9, "any", (*FEW, "cp<=2", "optimizer=device")),
    ("dense on 64, Megatron", DENSE, 64, 128, 9e9, "megatron", (*FEW, "cp<=2", "optimizer=device")),
    (
        "mixture on 16",
        MIXTURE,
        16,
        8,
        12e9,
        "any",
        ("offload=none", "recompute=none", "cp=1", "optimizer=device", "graphs=none"),
    ),
    (
        "mixture on 16, Megatron, what it refuses together",
        MIXTURE,
        16,
        16,
        9e9,
        "megatron",
        ("recompute=none,selective:moe,full", "offload=none,activations", "cp=1", "mbs=1"),
    ),
    (
        "dense on 16, Megatron, some layers",
        DENSE,
        16,
        16,
        9e9,
        "megatron",
        ("recompute=none,full:1,full:2", "cp<=2", "mbs=1", "sharding=distributed"),
    ),
    (
        "mixture on 16, chunks that somebody builds",
        UNEVEN,
        16,
        16,
        5e9,
        "any",
        (
            "chunks=1,2,4",
            "chunk-layers=0,1,2",
            "graphs=none",
            "cp=1",
            "tp=1",
            "pp=1",
            "mbs=1",
            "recompute=none,full",
            "sharding=zero2,zero3",
            "optimizer=device",
        ),
    ),
    ("latent on 32", LATENT, 32, 32, 6e9, "torchtitan", ("cp=1", "mbs<=4")),
    (
        "dense on 32, by engines",
        DENSE,
        32,
        32,
        20e9,
        "accelerate",
        ("mbs<=2", "cp-mode=ring,a2a,allgather"),
    ),
    (
        "latent on 8",
        LATENT,
        8,
        8,
        9e9,
        "any",
        ("mbs=1", "sharding=zero3", "recompute=full:1", "cp=1", "graphs=none", EVERY_SCHEDULE),
    ),
]


@pytest.mark.parametrize(
    "_, model, gpus, batch, memory, trainer, limits",
    [pytest.param(*case, id=case[0]) for case in CASES],
)
def test_search_equals_a_nested_loop_over_the_rules(_, model, gpus, batch, memory, trainer, limits):
    equal(workload(model, batch), cluster(gpus, memory), trainer, limits)


@pytest.mark.parametrize("memory", [8e9, 20e9])
def test_search_equals_the_loop_where_unsharded_weights_are_cast_for_each_product(memory):
    """Then activations, and what of them goes to the host, differ between levels of sharding."""
    constants = replace(MemoryConstants(), autocast=1.0, unfused=1.0)
    c = replace(cluster(8, memory), calibration=Calibration(memory=constants))
    equal(workload(DENSE, 32), c, "any", ("tp<=2", "pp<=2", "cp=1", "graphs=none", *HALF))


def equal(w, c, trainer, limits):
    """The search, and a loop over every legal layout priced alone."""
    gpus = int(c.gpus)
    question = SearchQuestion(
        problems=(SearchCase(workload=w, cluster=c),),
        nodes=(gpus // 8,),
        framework=framework(trainer),
        constraints=tuple(parse_constraint(text) for text in limits),
        keep=10**6,
    )
    found = search(question)
    legal, reasons, pruned = brute_force(
        w, c, trainer, found, gpus, any(one.startswith("offload") for one in limits)
    )
    fitting = {}
    for text, (step, peak, parked) in price_all(w, c, legal).items():
        if peak > c.device.memory * c.calibration.memory.usable:
            reasons["OutOfMemory"] += 1
        elif parked > 0.8 * c.host.memory:  # a fifth is left free
            reasons["OutOfHostMemory"] += 1
        else:
            fitting[text] = step
    best = found.best.get(gpus // 8, ())
    assert {format_strategy(one.strategy): one.step_seconds for one in best} == fitting
    assert [one.step_seconds for one in best] == sorted(fitting.values())
    assert found.searched == len(fitting)
    assert found.pruned == pruned
    assert {r.value: n for r, n in found.rejected.items()} == +reasons
    assert found.raw == found.searched + found.pruned + sum(found.rejected.values())
    assert len(fitting) > 50


def test_the_fewest_chunks_that_fit_are_the_best():
    """Nothing fits 2.3 GB with whole experts; of 2, 4 and 8 chunks the best has 2, and more memory
    asks for none.
    """
    w, limits = workload(LEAN, 16), ("chunks=1,2,4,8", "cp=1", "tp=1", "pp=1", "optimizer=device")
    found = []
    for memory in (2.3e9, 3e9):
        c = cluster(16, memory)
        question = SearchQuestion(
            problems=(SearchCase(workload=w, cluster=c),),
            nodes=(2,),
            constraints=tuple(parse_constraint(text) for text in limits),
        )
        found.append(search(question).best[2])
    few, many = found
    assert min(one.strategy.chunks for one in few) == few[0].strategy.chunks == 2
    assert many[0].strategy.chunks == 1


PLAIN = ("cp=1", "optimizer=device", "graphs=none", "offload=none", "etp=1")
CHUNKED = {
    # model, batch, constraints, and by memory: chunks of the best, layers of a stage in chunks (0 =
    # all), what it recomputes
    "9 layers on single devices": (
        deeper(LEAN, 9),
        16,
        (
            "chunks=1,2,4",
            "chunk-layers=0,1,2,4",
            "tp=1",
            "pp=1",
            "mbs=1",
            "recompute=none",
            "sharding=zero3",
        ),
        {4.5e9: (2, 0, Recompute.NONE), 5e9: (2, 1, Recompute.NONE), 6e9: (1, 0, Recompute.NONE)},
    ),
    "latent attention and shared experts in two stages": (
        deeper(with_imbalance(replace(LATENT, embedding=LEAN.embedding), 2.0, 0.2), 8),
        32,
        (
            *("chunks=1,2,4,8", "chunk-layers=0,1,2,3", "tp=1", "pp=2", "mbs=1", "recompute=none"),
            *("sharding=zero2", "ep=1,4", "schedule=1f1b"),
        ),
        {
            3.1e9: (4, 0, Recompute.NONE),
            3.2e9: (2, 0, Recompute.NONE),
            3.7e9: (2, 2, Recompute.NONE),
            3.8e9: (2, 1, Recompute.NONE),
            4e9: (1, 0, Recompute.NONE),
        },
    ),
    "the fullest rank three times the mean, in two stages": (
        deeper(with_imbalance(LEAN, 3.0, 0.5), 9),
        32,
        (
            *(
                "chunks=1,2,4,8",
                "chunk-layers=0,1,2,3,4",
                "tp=1",
                "pp=2",
                "mbs=1,2",
                "schedule=1f1b",
                "ep=4",
            ),
            *("recompute=none,selective:moe_act", "sharding=zero2,zero3"),
        ),
        {
            3.9e9: (4, 0, Recompute.NONE),
            4.1e9: (2, 0, Recompute.NONE),
            4.6e9: (2, 3, Recompute.NONE),
            5.1e9: (2, 2, Recompute.SELECTIVE),
            6e9: (1, 0, Recompute.SELECTIVE),
        },
    ),
    "the same beside whole layers computed again": (
        deeper(with_imbalance(LEAN, 3.0, 0.5), 9),
        32,
        (
            *(
                "chunks=1,2,4,8",
                "chunk-layers=0,1,2,3,4",
                "tp=1",
                "pp=1",
                "mbs=1",
                "ep=4",
                "sharding=zero3",
            ),
            "recompute=none,full,full:1,full:2",
        ),
        {
            2.7e9: (2, 0, Recompute.FULL),
            3.9e9: (2, 1, Recompute.FULL),
            5.2e9: (2, 3, Recompute.NONE),
            5.5e9: (2, 2, Recompute.NONE),
            6.1e9: (1, 0, Recompute.NONE),
        },
    ),
}


@pytest.mark.parametrize("name", CHUNKED)
def test_as_many_chunks_and_layers_in_chunks_as_memory_asks(name):
    """The best of all strategies under several limits of memory; it has fewer chunks where
    more fits.
    """
    model, batch, limits, by_memory = CHUNKED[name]
    w, every = workload(model, batch), {}
    for memory, (chunks, layers, recompute) in by_memory.items():
        c = cluster(16, memory)
        question = SearchQuestion(
            problems=(SearchCase(workload=w, cluster=c),),
            nodes=(2,),
            constraints=tuple(parse_constraint(text) for text in (*PLAIN, *limits)),
            has=lambda axis, value: axis.assumed or value == axis.off,
            keep=10**6,
        )
        found = search(question)
        if not every:
            legal, _, _ = brute_force(w, c, "any", found, 16, True)
            every = price_all(w, c, legal)
        room = c.device.memory * c.calibration.memory.usable
        fitting = [(step, text) for text, (step, peak, _) in every.items() if peak <= room]
        step, text = min(fitting, key=lambda one: one[0])
        best = legal[text]
        first = found.best[2][0]
        assert first.step_seconds == step
        assert (best.chunks, best.chunk_layers, best.recompute) == (chunks, layers, recompute), (
            format_strategy(best)
        )
        assert (first.strategy.chunks, first.strategy.chunk_layers) == (chunks, layers)
        assert len(found.best[2]) == len(fitting) < len(every)


@pytest.mark.parametrize("layers, deepest", [(78, 13), (80, 10)])
def test_what_a_search_finds_for_torchtitan_its_launch_can_say(layers, deepest):
    """78 layers are 3 on each of 2 x 13 chunks, 80 are 4 on each of 2 x 10: then embedding and head
    count as none.
    """
    w, c = workload(deeper(DENSE, layers), 16), cluster(8, 400e9)
    question = SearchQuestion(
        problems=(SearchCase(workload=w, cluster=c),),
        nodes=(1,),
        framework=framework("torchtitan"),
        constraints=tuple(
            map(parse_constraint, ("pp=2,4", "vpp=3..40", "mbs=1", "cp=1", "recompute=none"))
        ),
        keep=10**6,
    )
    found = search(question).best[1]
    assert max(one.strategy.vpp for one in found) == deepest
    for one in found:
        launch(one.strategy, "torchtitan", one.problem)


ALONE = 12
"""Strategies of a case that are priced alone as well."""


def price_all(w, c, legal):
    """Step, device memory and host memory of each strategy; those that differ in degrees alone are
    rows of one estimate.
    """
    kinds, found = {}, {}
    for text, strategy in legal.items():
        kinds.setdefault(kind_of(strategy), []).append(text)
    for texts in kinds.values():
        priced = estimate(w, c, stacked([legal[text] for text in texts]))
        figures = (priced.step_time, priced.footprint.peak, priced.footprint.host)
        rows = zip(
            *(np.broadcast_to(figure, len(texts)).tolist() for figure in figures), strict=True
        )
        found |= zip(texts, rows, strict=True)
    for text in Random(0).sample(sorted(legal), ALONE):
        alone = estimate(w, c, legal[text])
        assert found[text] == (alone.step_time, alone.footprint.peak, alone.footprint.host), text
    return {text: found[text] for text in legal}


def brute_force(w, c, trainer, found, gpus, asked):
    """Every combination of the axes in nested loops; a combination falls to the first rule that
    it breaks.
    """
    reasons, pruned, legal = Counter(), 0, {}
    axes, t = found.axes, framework(trainer).entry
    shortened = prod(len(v) for v in axes.values.values())
    reasons["NotInFramework"] = found.raw - shortened
    order, late = (
        [axis.name for axis in AXES if (axis.scope is Scope.SHAPE) is shape]
        for shape in (True, False)
    )
    each = prod(len(axes[name]) for name in late)
    assert shortened == prod(len(axes[name]) for name in order) * each

    def walk(at, chosen):
        if at == len(order):
            return features(chosen)
        below = prod(len(axes[name]) for name in order[at + 1 :]) * each
        dropped = 0
        for value in axes[order[at]]:
            new = {**chosen, order[at]: value}
            reason = SHAPES[order[at]](new, w, c, t, gpus) if order[at] in SHAPES else None
            if reason:
                reasons[reason] += below
            else:
                dropped += walk(at + 1, new)
        return dropped

    def features(chosen, at=0):
        if at == len(late):
            fields = {k: v for axis in AXES for k, v in axis.chosen(chosen[axis.name]).items()}
            strategy = strategy_of(fields, c, gpus // 8)
            legal[format_strategy(strategy)] = strategy
            return 0
        name, good, count = late[at], [], 0
        remaining = prod(len(axes[other]) for other in late[at + 1 :])
        idle = is_idle(name, chosen, w, gpus)
        for value in axes[name]:
            reason = feature_reason(name, value, chosen, w, c, t, gpus)
            reason = None if reason == "OffloadUnproven" and asked else reason
            if reason is None and not idle:
                reason = refused_together(
                    name, value, chosen, t, shares=not is_idle("sharding", chosen, w, gpus)
                )
            if reason is None and idle and good:
                reason = "Duplicate"
            if reason:
                reasons[reason] += remaining
            else:
                good.append(value)
        if (name.endswith("_overlap") or better(name, c)) and set(good) == {True, False}:
            count += remaining  # off is never faster
            good = [True]
        return count + sum(features({**chosen, name: value}, at + 1) for value in good)

    pruned = walk(0, {})
    return legal, reasons, pruned


def dp_of(x, gpus):
    return gpus // (x["tp"] * x["context"].size * x["pp"])


def copies_of(x, w, gpus):
    ranks = dp_of(x, gpus) * x["context"].size
    return ranks if w.model.experts is None else max(1, ranks * x["tp"] / (x["ep"] * x["etp"]))


def tp_rule(x, w, c, t, gpus):
    a, m = next(iter(w.model.blocks)), w.model
    if x["tp"] > c.domain:
        return "TensorParallelCrossesNode"
    heads = [a.heads] if isinstance(a, LatentAttention) else [a.heads, a.kv_heads]
    ffn = [block.width for block in m.blocks if isinstance(block, FeedForward)]
    widths = [gpus, *ffn, *heads, *([m.experts.shared_width or 0] if m.experts else [])]
    return "NotDivisible" if any(width % x["tp"] for width in widths) else None


def context_rule(x, w, c, t, gpus):
    mode, size = x["context"]
    s, a = w.training.sequence, next(iter(w.model.blocks))
    if gpus % (x["tp"] * size) or s % (2 * size if mode is ContextMode.RING and size > 1 else size):
        return "NotDivisible"
    groups = a.heads if isinstance(a, LatentAttention) else a.kv_heads
    if mode is ContextMode.ALL_TO_ALL and groups % (x["tp"] * size):
        return "NotDivisible"
    return "SequenceTooShort" if size > 1 and s / size < 1024 else None


def pp_rule(x, w, c, t, gpus):
    if x["pp"] > w.model.layers:
        return "MoreStagesThanLayers"
    return "NotDivisible" if gpus % (x["tp"] * x["context"].size * x["pp"]) else None


def mbs_rule(x, w, c, t, gpus):
    per_step = dp_of(x, gpus) * x["mbs"]
    if w.training.global_batch % per_step:
        return "NotDivisible"
    return "TooFewMicroBatches" if w.training.global_batch // per_step < x["pp"] else None


def pipeline_rule(x, w, c, t, gpus):
    (schedule, v), p, layers = x["pipeline"], x["pp"], w.model.layers
    m = w.training.global_batch // (dp_of(x, gpus) * x["mbs"])
    if p == 1 and schedule != ONE_F_ONE_B:
        return "Duplicate"
    if v > 1 and p * v > layers:
        return "MoreStagesThanLayers"
    uneven = t.get("uneven", "any")
    if uneven == "rounded" and v > 2:
        if layers % (p * v) and len(range(0, layers + 2, ceil((layers + 2) / (p * v)))) != p * v:
            return "NotDivisible"
    elif uneven != "rounded":
        even = layers % (p * v) == 0 or (uneven != "none" and (layers + 2) % (p * v) == 0)
        if not even and (uneven != "any" or (v > 1 and v not in {2, 4, 8})):
            return "NotDivisible"
    if schedule == INTERLEAVED and m % p:
        return "ScheduleNotPossible"
    if (
        schedule.folded
        and m < {"zbv": 2 * p - 1, "v-half": p + 1, "dualpipev": 2 * p}[schedule.value]
    ):
        return "ScheduleNotPossible"
    if schedule == DUALPIPE and (p % 2 or m % 2 or m < 2 * p):
        return "ScheduleNotPossible"
    return None


def etp_rule(x, w, c, t, gpus):
    if x["etp"] not in {1, x["tp"]}:
        return "ExpertTensorParallel"
    ranks = x["tp"] * x["context"].size * dp_of(x, gpus)
    if w.model.experts is not None and w.model.experts.width % x["etp"]:
        return "NotDivisible"
    return "NotDivisible" if ranks % (x["ep"] * x["etp"]) else None


SHAPES = {
    "tp": tp_rule,
    "context": context_rule,
    "pp": pp_rule,
    "mbs": mbs_rule,
    "pipeline": pipeline_rule,
    "etp": etp_rule,
    "chunk_layers": lambda x, *_: "Duplicate" if x["chunk_layers"] and x["chunks"] == 1 else None,
}


ROWS = {axis.name: axis for axis in AXES}
KNOWN = {"sp", "sharding", "recompute", "offload", "optimizer", "graphs"}
"""Features whose rules are written out here; of an axis that is newer its own row is asked."""


def better(name, c):
    row = ROWS[name]
    return name not in KNOWN and row.never_slower is not None and row.never_slower(c.calibration)


def is_idle(name, x, w, gpus):
    row = ROWS[name]
    if name not in KNOWN and not name.endswith("_overlap") and row.idle is not None:
        degrees = {one: np.array([x[one]]) for one in ("tp", "pp", "ep", "etp", "mbs", "chunks")}
        degrees |= {"cp": np.array([x["context"].size]), "dp": np.array([dp_of(x, gpus)])}
        return bool(row.idle(degrees)[0])
    alone = max(dp_of(x, gpus) * x["context"].size, copies_of(x, w, gpus)) == 1
    return {
        "sp": x["tp"] == 1,
        "tensor_overlap": x["tp"] == 1,
        "sharding": alone,
        "data_overlap": alone,
        "pipeline_overlap": x["pp"] == 1,
        "expert_overlap": x["ep"] == 1,
    }.get(name, False)


def sharding_reason(value, x, w, c, t, gpus):
    ranks = dp_of(x, gpus) * x["context"].size
    if x["pp"] > 1 and value.level.value not in t.get("sharding_pipeline", [value.level.value]):
        return "NotInFramework"
    group = floor(c.domain / x["tp"])
    if value.group and (group <= 1 or group >= max(ranks, copies_of(x, w, gpus))):
        return "Duplicate"
    if value.group and ranks % group:
        return "NotDivisible"
    if value.group and t.get("expert_groups") and ranks == group:
        return "Duplicate"
    experts = t.get("one_shard_group") and value.group and copies_of(x, w, gpus) != ranks
    experts = experts or (
        t.get("expert_groups") and value.group and copies_of(x, w, gpus) % (ranks // group)
    )
    size, mode = x["context"].size, x["context"].mode.value
    least = t.get("shard_contexts")
    alone = least and value.group and (group % size or (size > 1 and group < least * size))
    if size > 1:
        alone = alone or value.level.value not in t.get("context_sharding", {}).get(
            mode, [value.level.value]
        )
        alone = alone or (value.group and mode not in t.get("group_context", [mode]))
    return "NotInFramework" if experts or alone else None


def feature_reason(name, value, x, w, c, t, gpus):
    if name == "sp":
        if value and (w.training.sequence / x["context"].size) % x["tp"]:
            return "NotDivisible"
        return "SequenceParallelNeeded" if not value and w.model.experts and x["tp"] > 1 else None
    if name == "sharding":
        return sharding_reason(value, x, w, c, t, gpus)
    if name == "recompute" and value.mode is Recompute.FULL and value.layers:
        deepest = -(-w.model.layers // x["pp"])
        if value.layers >= deepest:
            return "Duplicate"
        by_chunk = t.get("recompute_by_chunk") and value.layers % x["pipeline"].virtual
        return "NotInFramework" if by_chunk else None
    if name == "offload" and value:
        return "OffloadUnproven"
    if name == "graphs" and value is not Graphs.NONE:
        return graphs_reason(value, x, w, c)
    schedule = x["pipeline"].schedule.value
    if name == "expert_overlap" and value and t.get("expert_overlap_interleaved"):
        return "NotInFramework" if x["pp"] > 1 and schedule != "interleaved" else None
    if name == "pipeline_overlap" and x["pp"] > 1:
        if not value:
            two = t.get("overlap_between_two") and x["pp"] == 2 and schedule == "interleaved"
            return "NotInFramework" if two else None
        return None if schedule in t.get("overlap_hops", [schedule]) else "NotInFramework"
    return None


def graphs_reason(value, x, w, c):
    """Layers launch in 9 ms with experts, else in 3.9, or 3 alone; a token multiplies six times the
    parameters that it meets.
    """
    if value is Graphs.FULL and w.model.experts:
        return "GraphsUnneeded"
    k, sequence = c.calibration.host, w.training.sequence
    dense = k.layer_unsharded if x["tp"] == 1 else k.layer
    launched = sum(
        run.repeats * sum(k.layer_experts if layer.routed else dense for layer in run.layers)
        for run in w.model.runs
    )
    tokens = x["mbs"] * sequence / (x["context"].size * x["tp"])
    least = (
        tokens
        * training_flops_per_token(w.model, sequence, convention="causal")
        / c.device.peak_rate("bf16")
    )
    return "GraphsUnneeded" if launched < 0.5 * least else None


def refused_together(name, value, x, t, *, shares):
    """What Megatron, or an engine of Accelerate, refuses beside features that were
    chosen before.
    """
    bad = "apart" in t and apart(name, value, x, shares, engines="group_context" in t)
    return "NotInFramework" if bad else None


def apart(name, value, x, shares, *, engines):
    if name == "optimizer":
        shard, context = x["sharding"], x["context"]
        sharded_by_torch = context.size > 1 and context.mode is not ContextMode.ALL_TO_ALL
        bad = (shares and shard.level is Sharding.NONE) or (
            engines and (shard.group or sharded_by_torch)
        )
        return value is Placement.HOST and bad
    again = x.get("recompute")
    full = again is not None and again.mode is Recompute.FULL
    experts = again is not None and again.mode is Recompute.SELECTIVE and "moe" in again.modules
    if name == "tensor_overlap":
        return value and not x["sp"]
    if name == "offload":
        return bool(value) and (full or (experts and "moe_act" in value))
    if name == "graphs":
        partial, whole = value is Graphs.PARTIAL, full or experts or x["sharding"].level in FULLY
        return (partial and whole) or (value is not Graphs.NONE and bool(x["offload"]))
    return name == "expert_overlap" and value and (full or experts)


def test_optimizer_and_levels_are_all_there():
    """A guard of the guard: the loop above walks every category of the strategy."""
    w, c = workload(DENSE, 16), cluster(8, 80e9)
    few = tuple(
        map(
            parse_constraint, (EVERY_SCHEDULE, "mbs=1", "recompute=none,selective:layernorm,full:1")
        )
    )
    problem = SearchCase(workload=w, cluster=c)
    found = search(SearchQuestion(problems=(problem,), nodes=(1,), constraints=few, keep=10**6))
    strategies = [one.strategy for one in found.best[1]]
    assert {s.sharding for s in strategies} == set(Sharding)
    assert {s.schedule for s in strategies} == set(SCHEDULES)
    assert {s.optimizer for s in strategies} == set(Placement)
    assert {s.recompute for s in strategies} == set(Recompute)
    assert {s.context_mode for s in strategies} == {ContextMode.RING, ContextMode.ALL_TO_ALL}
