"""The footprint of layouts: measured runs, published layouts that must fit, and laws."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import changed, ends

from mofa_model import presets
from mofa_model.blocks import Experts
from mofa_model.estimate.activation_memory import stored_layers
from mofa_model.estimate.step import footprint
from mofa_model.estimate.terms import Footprint, terms_of
from mofa_model.placement import stages_of
from mofa_model.schedules import DUALPIPE, INTERLEAVED, ONE_F_ONE_B
from mofa_model.spec import MemoryConstants, Training, Workload
from mofa_model.strategy import MODULES, OFFLOADED, Placement, Recompute, Sharding, Strategy
from mofa_model.units import GIB

NANOTRON = MemoryConstants(
    activation_scale=1.15,
    gathered_input=1.7,
    logit_copies=2.27,
    bucket=2.04,
    partition=2.0,
    update=1.42,
    buffer=7.5e7,
    fragmentation=0.021,
    usable=0.87,
)
MEGATRON = MemoryConstants(
    activation_scale=1.01, logit_copies=0.75, buffer=5.6e8, fragmentation=0.0
)


def cluster_of(device, gpus, constants=None):
    cluster = presets.cluster(device, gpus)
    return replace(
        cluster, calibration=replace(cluster.calibration, memory=constants or MemoryConstants())
    )


def priced(
    model, device, strategy, *, sequence, batch, precision="bf16", constants=None, rule="slots"
):
    shape = presets.model(model)
    recipe = presets.precision(precision) if isinstance(precision, str) else precision
    workload = Workload(
        model=shape, training=Training(sequence=sequence, global_batch=batch, precision=recipe)
    )
    cluster = cluster_of(device, int(np.max(strategy.gpus)), constants)
    return footprint(workload, cluster, strategy, stages_of(shape, strategy, rule)), cluster


def test_the_published_layout_of_llama_405b_fits_its_h100s():
    # FSDP that keeps parameters gathered after the forward pass shards gradients and optimizer
    # states.
    layout = Strategy(tp=8, pp=16, dp=128, sequence_parallel=True, sharding=Sharding.GRADIENTS)
    found, cluster = priced("llama3.1-405b", "h100-80gb-sxm", layout, sequence=8192, batch=2048)
    assert bool(found.fits(cluster))
    assert 60 < float(found.peak) / GIB < 75


@pytest.mark.parametrize("sequence, above", [(4096, 0.0), (256, 1.0)])
def test_gathered_weights_are_gone_when_activations_come(sequence, above):
    """At ZeRO-1 on 64 devices 8.03e9 parameters are gathered in 2 B (1 + 1/64): 16.3 GB. A
    micro-batch of 4,096 tokens takes more, one of 256 less."""
    layout = Strategy(dp=64, sharding=Sharding.OPTIMIZER)
    common = {"sequence": sequence, "batch": 64, "rule": "even"}
    found, _ = priced("llama3-8b", "h100-80gb-sxm", layout, constants=NANOTRON, **common)
    without = replace(NANOTRON, partition=0.0)
    bare, _ = priced("llama3-8b", "h100-80gb-sxm", layout, constants=without, **common)
    gather = float(np.max(found.gather))
    assert gather == pytest.approx(8.03e9 * 2.0 * (1 + 1 / 64), rel=0.001)
    assert float(found.static_first_stage - bare.static_first_stage) == pytest.approx(gather)
    more = float(found.peak - bare.peak)
    assert more == pytest.approx(above * (gather - float(np.max(bare.moving))), abs=1.0)


def test_llama_405b_does_not_fit_without_pipeline_stages():
    layout = Strategy(tp=8, dp=2, sequence_parallel=True)
    found, cluster = priced("llama3.1-405b", "h100-80gb-sxm", layout, sequence=8192, batch=16)
    assert not bool(found.fits(cluster))


@pytest.mark.parametrize("schedule", [ONE_F_ONE_B, DUALPIPE])
def test_the_published_layout_of_deepseek_v3_fits_its_h800s(schedule):
    layout = Strategy(
        pp=16,
        dp=128,
        ep=64,
        schedule=schedule,
        recompute=Recompute.SELECTIVE,
        recompute_modules=frozenset({"layernorm", "mla_up_proj", "moe_act"}),
    )
    # Master weights in fp32, both moments in bf16.
    recipe = replace(presets.precision("fp8-block"), optimizer=8.0)
    found, cluster = priced(
        "deepseek-v3", "h800-80gb-sxm", layout, sequence=4096, batch=15360, precision=recipe
    )
    assert bool(found.fits(cluster))


def test_dualpipe_holds_the_parameters_of_two_directions():
    one, _ = priced(
        "deepseek-v3", "h800-80gb-sxm", Strategy(pp=16, dp=128, ep=64), sequence=4096, batch=15360
    )
    layout = Strategy(pp=16, dp=128, ep=64, schedule=DUALPIPE)
    two, _ = priced("deepseek-v3", "h800-80gb-sxm", layout, sequence=4096, batch=15360)
    middle = 1  # the kind without embedding or head
    assert two.weights[middle] == 2 * one.weights[middle]


def test_host_optimizer_and_offloaded_activations_move_to_the_host():
    layout = Strategy(tp=8, pp=8, sequence_parallel=True)
    plain, _ = priced("llama3.1-405b", "h100-80gb-sxm", layout, sequence=8192, batch=16)
    moved, cluster = priced(
        "llama3.1-405b",
        "h100-80gb-sxm",
        replace(layout, optimizer=Placement.HOST, offload=frozenset({"activations"})),
        sequence=8192,
        batch=16,
    )
    assert float(plain.host) == 0
    assert np.all(moved.optimizer == 0)
    assert np.all(moved.activations < 0.2 * plain.activations)
    # 6.7e9 parameters of 16 bytes on 8 devices are 0.86 TB; the activations make it 1.28 TB. A DGX
    # H100 has 2 TiB, of which a fifth stays free; a host of 1 TiB has too little.
    assert float(moved.host) == pytest.approx(1.28e12, rel=0.01)
    assert bool(moved.fits(cluster))
    small = replace(cluster, host=replace(cluster.host, memory=1024 * GIB, stated=True))
    assert not bool(moved.fits(small))


LAYOUT = Strategy(tp=8, sequence_parallel=True, dp=16)
INPUTS = frozenset({"attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm"})


def stored(name, strategy, sequence=8192, **constants):
    training = Training(sequence=sequence, global_batch=16, precision=presets.precision("bf16"))
    workload = Workload(model=presets.model(name), training=training)
    return stored_layers(workload, MemoryConstants(**constants), strategy)


def test_offloaded_inputs_leave_the_feed_forward_block_on_the_device():
    """405B: of 31.75 sbh/t a layer's input, its norm, Q, K, V and the attention's output go, 8.25;
    23.5 stay.
    """
    unit = 8192 * 16384 / 8
    (layer,) = stored("llama3.1-405b", replace(LAYOUT, offload=INPUTS))
    scores = 8192 * 128 / 8 * 4
    assert float(layer.stored) == pytest.approx(31.75 * unit + scores)
    assert float(layer.offloaded) == 8.25 * unit


def test_offload_moves_what_each_module_takes():
    """Mixtral: experts take sorted tokens and the input of their activation function; its output
    and the router stay.
    """
    tokens, h, f = 4096, 4096, 14336
    one = Strategy(ep=8, dp=8)
    experts = frozenset({"expert_fc1", "moe_act"})
    (mixture,) = stored("mixtral-8x7b", replace(one, offload=experts), 4096)
    routed = tokens * 2 * presets.model("mixtral-8x7b").experts.imbalance
    plain = stored("deepseek-v3", replace(one, offload=experts), 4096)[0]
    assert float(plain.offloaded) == 0
    assert float(mixture.offloaded) == pytest.approx(2 * routed * (h + 2 * f))
    again = replace(
        one, offload=experts, recompute=Recompute.SELECTIVE, recompute_modules=frozenset({"moe"})
    )
    assert float(stored("mixtral-8x7b", again, 4096)[0].offloaded) == 0
    # The norm before attention is fused with its projection, that before experts is not.
    for name, left in (
        ("attn_norm", 0),
        ("mlp_norm", 2 * tokens * h),
        ("qkv_linear", 4 * tokens * h),
    ):
        (mixture,) = stored("mixtral-8x7b", replace(one, offload=frozenset({name})), 4096)
        assert float(mixture.offloaded) == left


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["llama3.1-8b", "mixtral-8x7b", "deepseek-v3"]),
    names=st.frozensets(st.sampled_from(OFFLOADED[2:])),
    more=st.sampled_from(OFFLOADED[2:]),
    recompute=st.sampled_from([Recompute.NONE, Recompute.SELECTIVE]),
    modules=st.frozensets(st.sampled_from(MODULES), min_size=1, max_size=3),
)
def test_no_offload_moves_more_than_is_kept_and_a_further_input_never_moves_less(
    name, names, more, recompute, modules
):
    base = Strategy(ep=8, dp=8, recompute=recompute, recompute_modules=modules)
    few = stored(name, replace(base, offload=names))
    many = stored(name, replace(base, offload=names | {more}))
    for one, other in zip(few, many, strict=True):
        assert (
            float(one.offloaded)
            <= float(other.offloaded) * (1 + 1e-12)
            <= float(other.stored) * (1 + 1e-9)
        )


def test_inputs_of_layers_are_offloaded_where_layers_are_recomputed():
    # Two micro-batches wait on the first of two stages, beside no loss.
    layout = Strategy(dp=4, pp=2, recompute=Recompute.FULL)
    kept, _ = priced("llama3-8b", "h100-80gb-sxm", layout, sequence=8192, batch=8)
    named = replace(layout, offload=frozenset({"layer_input"}))
    moved, _ = priced("llama3-8b", "h100-80gb-sxm", named, sequence=8192, batch=8)
    inputs = 32 * 2 * 8192 * 4096
    assert float(moved.host) == 8 * inputs
    # One of 32 comes back for its backward pass.
    left = [float(np.max(one.activations + one.backward)) for one in (kept, moved)]
    assert left[0] - left[1] == pytest.approx(inputs * 31 / 32, rel=1e-9)
    without = replace(layout, recompute=Recompute.NONE)
    one, _ = priced("llama3-8b", "h100-80gb-sxm", without, sequence=8192, batch=8)
    other, _ = priced(
        "llama3-8b",
        "h100-80gb-sxm",
        replace(without, offload=named.offload),
        sequence=8192,
        batch=8,
    )
    assert float(one.peak) == float(other.peak)


def test_a_fifth_of_a_node_s_memory_is_left_free():
    layout = Strategy(tp=8, pp=8, sequence_parallel=True, optimizer=Placement.HOST)
    found, cluster = priced("llama3.1-405b", "h100-80gb-sxm", layout, sequence=8192, batch=16)
    for share, fits in ((0.79, True), (0.81, False)):
        host = replace(cluster.host, memory=float(found.host) / share, stated=True)
        large = replace(cluster, host=host, device=replace(cluster.device, memory=1e13))
        assert bool(found.fits(large)) is fits


def test_chunked_experts_halve_the_peak_of_a_fully_recomputed_layer():
    layout = Strategy(pp=16, dp=128, ep=64, recompute=Recompute.FULL)
    shape = presets.model("deepseek-v3")
    crowded = changed(shape, Experts, imbalance=8.0)
    training = Training(sequence=4096, global_batch=15360, precision=presets.precision("bf16"))
    cluster = cluster_of("h800-80gb-sxm", 2048)

    def dynamic(strategy):
        found = footprint(
            Workload(model=crowded, training=training),
            cluster,
            strategy,
            stages_of(shape, strategy, "slots"),
        )
        return float(np.max(found.activations + found.backward))

    # MemFine reports 48 % less activation memory than full recomputation under imbalance.
    assert dynamic(replace(layout, chunks=4)) < 0.55 * dynamic(layout)


def test_the_peak_is_the_sum_of_the_terms_on_the_fullest_stage():
    found, _ = priced(
        "mixtral-8x7b", "h100-80gb-sxm", Strategy(pp=4, dp=8, ep=8), sequence=4096, batch=64
    )
    total = sum(getattr(found, term.name) for term in terms_of(Footprint))
    assert float(found.peak) == pytest.approx(float(np.max(total)), rel=1e-12)


def test_tied_embeddings_are_held_once_on_one_stage_and_twice_on_two():
    shape = presets.model("llama3.1-8b")
    tied = ends(shape, tied=True)
    training = Training(sequence=4096, global_batch=64, precision=presets.precision("bf16"))
    cluster = cluster_of("h100-80gb-sxm", 8)
    table = 2.0 * shape.embedding.vocabulary * shape.hidden

    def weights(model, layout):
        stages = stages_of(model, layout, "even")
        return footprint(Workload(model=model, training=training), cluster, layout, stages).weights

    alone, split = Strategy(dp=8), Strategy(pp=2, dp=4)
    assert float(weights(shape, alone)[0] - weights(tied, alone)[0]) == table
    assert weights(shape, split).tolist() == weights(tied, split).tolist()


degrees = st.sampled_from([1, 2, 4, 8])
layouts = st.builds(
    dict,
    tp=degrees,
    pp=degrees,
    dp=degrees,
    cp=st.sampled_from([1, 2]),
    mbs=st.sampled_from([1, 2]),
    sharding=st.sampled_from(Sharding),
    sequence_parallel=st.booleans(),
    recompute=st.sampled_from(Recompute),
    recompute_modules=st.frozensets(st.sampled_from(MODULES), min_size=1),
)
MODELS = ("llama3.1-8b", "mixtral-8x7b", "deepseek-v3")


def peak(model, layout, rule="even"):
    found, _ = priced(model, "h100-80gb-sxm", layout, sequence=4096, batch=256, rule=rule)
    return float(found.peak)


@settings(deadline=None)
@given(st.sampled_from(MODELS), layouts)
def test_memory_falls_with_every_way_of_sharding_and_recomputing(model, layout):
    here = Strategy(**layout)
    before = peak(model, here)
    assert peak(model, replace(here, sequence_parallel=True)) <= before
    assert peak(model, replace(here, cp=2 * here.cp)) <= before
    if here.tp > 1:
        assert peak(model, replace(here, tp=2 * here.tp, sequence_parallel=True)) <= before
    if here.sharding is Sharding.NONE:
        assert peak(model, replace(here, sharding=Sharding.OPTIMIZER)) <= before
    if here.sharding is Sharding.OPTIMIZER:
        assert peak(model, replace(here, sharding=Sharding.GRADIENTS)) <= before
    if here.sharding is not Sharding.NONE and here.dp * here.cp > 2:
        assert peak(model, replace(here, shard=0)) <= peak(model, replace(here, shard=2))
    if here.recompute is Recompute.NONE:
        selective = peak(model, replace(here, recompute=Recompute.SELECTIVE))
        assert selective <= before * (1 + 1e-12)
        assert peak(model, replace(here, recompute=Recompute.FULL)) <= before * (1 + 1e-12)


@settings(deadline=None)
@given(st.sampled_from(MODELS), layouts, st.sampled_from([0.25, 4.0, 1024.0]))
def test_rescaling_bytes_by_a_power_of_two_rescales_every_term_exactly(model, layout, unit):
    strategy, shape = Strategy(**layout), presets.model(model)
    recipe = presets.precision("bf16")
    wide = replace(
        recipe,
        **{
            f.name: unit * getattr(recipe, f.name)
            for f in fields(recipe)
            if f.name not in {"name", "gemm"}
        },
    )
    bytes_of_stack = ("score", "mask", "bucket", "partition", "update", "sharded_weight", "buffer")
    scaled = replace(NANOTRON, **{name: unit * getattr(NANOTRON, name) for name in bytes_of_stack})
    stages = stages_of(shape, strategy, "even")

    def found(precision, constants):
        training = Training(sequence=4096, global_batch=256, precision=precision)
        return footprint(
            Workload(model=shape, training=training),
            cluster_of("h100-80gb-sxm", 8, constants),
            strategy,
            stages,
        )

    before, after = found(recipe, NANOTRON), found(wide, scaled)
    for name in (term.name for term in terms_of(Footprint)):
        assert np.array_equal(
            unit * np.asarray(getattr(before, name)), np.asarray(getattr(after, name))
        )


def test_a_row_has_the_same_bits_alone_and_in_an_array():
    rng = np.random.default_rng(7)
    power = lambda top: 2.0 ** rng.integers(0, top, 64)  # noqa: E731
    family = Strategy(
        tp=power(4), pp=power(4), cp=power(2), dp=power(4), ep=power(3), vpp=power(2), mbs=power(2),
        sequence_parallel=True, schedule=INTERLEAVED, chunks=power(2), offload=frozenset({"activations"}),
    )  # fmt: skip
    together, _ = priced("deepseek-v3", "h100-80gb-sxm", family, sequence=4096, batch=1024)
    for index in range(64):
        alone, _ = priced(
            "deepseek-v3", "h100-80gb-sxm", family.row(index), sequence=4096, batch=1024
        )
        assert float(alone.peak) == together.peak[index]
        assert float(alone.host) == together.host[index]


def test_the_loss_and_the_backward_pass_of_a_layer_hold_theirs_in_turn():
    """Without the head a stage's backward pass counts whole; beside it only what it takes above the
    loss, here nothing.
    """
    two, _ = priced("llama3-8b", "h100-80gb-sxm", Strategy(pp=2, dp=4), sequence=8192, batch=8)
    assert two.backward[0] > 0
    assert two.backward[1] == max(two.backward[0] - two.logits[1], 0) == 0
    assert two.logits[1] > two.backward[0] > two.logits[0] == 0


def test_the_allocator_of_the_last_rank_counts_neither_reserve_nor_what_lies_between_tensors():
    constants = MemoryConstants(buffer=1e9, fragmentation=0.1, workspace=1e8, gather_copies=0.0)
    found, _ = priced(
        "llama3-8b",
        "h100-80gb-sxm",
        Strategy(pp=2, dp=4),
        sequence=8192,
        batch=8,
        constants=constants,
    )
    assert float(found.allocated) == pytest.approx(
        found.total[1] - 1e9 - found.fragmentation[1], rel=1e-12
    )
    assert float(found.static_allocated) == pytest.approx(found.static[1] - 1e9, rel=1e-12)
    bare = replace(constants, workspace=0.0)
    without, _ = priced(
        "llama3-8b", "h100-80gb-sxm", Strategy(pp=2, dp=4), sequence=8192, batch=8, constants=bare
    )
    assert float(found.static_allocated - without.static_allocated) == pytest.approx(1e8)


def test_tensor_parallel_ranks_hold_routers_and_latents_whole():
    """DeepSeek-V3 at t = 2 without stages: 61 layers of 7168 (1536 + 576) latents and 58 routers of
    7168 x 256, half of them more.
    """
    one = {}
    for t in (1, 2):
        layout = Strategy(tp=t, dp=8 // t, ep=8, sharding=Sharding.NONE, sequence_parallel=t > 1)
        one[t], _ = priced("deepseek-v3", "h800-80gb-sxm", layout, sequence=4096, batch=8)
    model = presets.model("deepseek-v3")
    latents = 62 * 7168 * (1536 + 576) + 59 * 7168 * 256  # the prediction module is a layer more
    experts = 59 * 256 / 8 * 3 * 7168 * 2048
    rest = float(one[1].weights[0]) / 2.0 - experts
    assert float(one[2].weights[0]) / 2.0 - experts == pytest.approx(
        rest / 2 + latents / 2, rel=1e-9
    )
    assert model.prediction_modules == 1


def test_several_shard_groups_share_out_experts_as_often_as_the_rest():
    """Eight ranks in two groups of four hold an expert twice each at ep = 4: each group has
    one, whole.
    """
    found = {}
    for shard in (0, 4):
        layout = Strategy(dp=8, ep=4, shard=shard)
        found[shard], _ = priced("mixtral-8x7b", "h100-80gb-sxm", layout, sequence=4096, batch=8)
    model = presets.model("mixtral-8x7b")
    experts = 32 * 8 / 4 * 3 * 4096 * 14336
    rest = float(found[0].weights[0]) / 2.0 - experts
    assert float(found[0].optimizer[0]) == pytest.approx(12 * (experts / 2 + rest / 8), rel=1e-9)
    assert float(found[4].optimizer[0]) == pytest.approx(12 * (experts + rest / 4), rel=1e-9)
    assert model.experts.count == 8
