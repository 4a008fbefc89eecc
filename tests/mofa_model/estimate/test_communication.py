"""Collectives of a layout, one at a time, on machines where nothing else takes time."""

from dataclasses import replace

import pytest
from machines import ideal, workload
from shapes import ends

from mofa_model import presets
from mofa_model.estimate import estimate
from mofa_model.schedules import DUALPIPE, INTERLEAVED, ONE_F_ONE_B
from mofa_model.strategy import ContextMode, Recompute, Sharding, Strategy

SLOW = 1e9
"""A link so slow that compute beside it does not matter. [B/s]"""
LLAMA = presets.model("llama3-8b")
HEADLESS = ends(LLAMA, vocabulary=1)
TOKENS, HIDDEN = 8192, 4096


def held(layers=32):
    """Weights of a device that holds layers alone. [1]"""
    return layers * LLAMA.kinds[0].matrices(HIDDEN)


def test_tensor_parallelism_sends_four_messages_a_layer_forward_and_four_backward():
    """A message is 7/8 of 8192 x 4096 x 2 B at 1 GB/s: 58.7 ms."""
    found = estimate(workload(), ideal(8, scale_up=SLOW), Strategy(tp=8))
    message = 7 / 8 * TOKENS * HIDDEN * 2 / SLOW
    assert float(found.layer_times[0].tensor) == pytest.approx(4 * message)
    assert float(found.layer_times[0].communication) == pytest.approx(8 * message)


def test_sequence_parallelism_gathers_the_inputs_of_weight_gradients_again():
    """Two more messages: half of the forward ones."""
    found = estimate(workload(), ideal(8, scale_up=SLOW), Strategy(tp=8, sequence_parallel=True))
    assert float(found.layer_times[0].communication) == pytest.approx(
        10 * 7 / 8 * TOKENS * HIDDEN * 2 / SLOW
    )


@pytest.mark.parametrize(
    "recipe, width", [("fp8-current", 1), ("nvfp4", 0.5625), ("mxfp8", 1.03125), ("fp8-rowwise", 2)]
)
def test_inputs_are_gathered_as_narrow_as_products_read_them_and_sums_are_not(recipe, width):
    """Six gathers at a byte and four scatters at two, of 7/8 x 8192 x 4096 at 1 GB/s: 411 ms in
    fp8, 587 in bf16.
    """
    asked = workload(precision=recipe)
    found = estimate(asked, ideal(8, scale_up=SLOW), Strategy(tp=8, sequence_parallel=True))
    each = 7 / 8 * TOKENS * HIDDEN / SLOW
    assert float(found.layer_times[0].communication) == pytest.approx((6 * width + 4 * 2) * each)
    # An all-reduce of sums stays wide.
    alone = estimate(asked, ideal(8, scale_up=SLOW), Strategy(tp=8))
    assert float(alone.layer_times[0].communication) == pytest.approx(8 * 2 * each)


def test_a_stack_that_gathers_along_the_sequence_copies_every_message():
    """Read and written once more at 2 TB/s: 67.1 us of 8192 x 4096 x 2 B, ten times a layer."""
    cluster = ideal(8, scale_up=SLOW, memory=2e12, links={"message_copies": 1.0})
    found = estimate(workload(), cluster, Strategy(tp=8, sequence_parallel=True)).layer_times[0]
    size = TOKENS * HIDDEN * 2
    assert float(found.communication) == pytest.approx(10 * (7 / 8 * size / SLOW + 2 * size / 2e12))
    alone = estimate(workload(), replace(cluster, gpus=1), Strategy()).layer_times[0]
    assert float(alone.communication) == 0.0


def test_weights_of_a_narrow_recipe_are_cast_once_a_step():
    """3 B a pass and half as much again: 4.5 B of 8.0e9 weights at 2 TB/s, 18.1 ms whatever
    the batch.
    """
    for batch in (8, 64):
        wide, narrow = (
            estimate(
                workload(batch=batch, precision=recipe),
                ideal(8, memory=2e12, compute={"cast_traffic": 3.0}),
                Strategy(dp=8, sharding=Sharding.NONE),
            )
            for recipe in ("bf16", "fp8-delayed")
        )
        cast = float(narrow.step_terms.optimizer) - float(wide.step_terms.optimizer)
        assert cast == pytest.approx(4.5 * 8.03e9 / 2e12, rel=1e-3)


def test_a_ring_of_context_ranks_passes_keys_and_values_of_the_others():
    """Four ranks of 2048 tokens: 3 x 2048 x 2 x 1024 x 2 B; with all-to-all 3/4 of 2048 tokens'
    queries and outputs too.
    """
    ring = estimate(workload(), ideal(4, scale_up=SLOW), Strategy(cp=4))
    assert float(ring.layer_times[0].communication) == pytest.approx(3 * 3 * 2048 * 2048 * 2 / SLOW)
    layout = Strategy(cp=4, context_mode=ContextMode.ALL_TO_ALL)
    both_ways = estimate(workload(), ideal(4, scale_up=SLOW), layout)
    assert float(both_ways.layer_times[0].communication) == pytest.approx(
        3 * 3 / 4 * 2048 * (2048 + 8192) * 2 / SLOW
    )


def test_an_all_gather_sends_what_a_ring_sends_and_hides_none_of_it():
    ring, gathered = (
        estimate(workload(), ideal(4, scale_up=SLOW * 1e3), Strategy(cp=4, context_mode=mode))
        for mode in (ContextMode.RING, ContextMode.ALL_GATHER)
    )
    assert float(gathered.layer_times[0].communication) == float(ring.layer_times[0].communication)
    assert float(gathered.layer_times[0].context) == pytest.approx(
        3 * 2048 * 2048 * 2 / (SLOW * 1e3)
    )
    assert float(ring.layer_times[0].context) < float(gathered.layer_times[0].context)


def test_an_all_gather_holds_keys_and_values_of_all_ranks_for_one_layer():
    """Three other ranks' 2048 tokens of 2 x 1024 numbers, and their gradients, 2 B each: 50.3 MB;
    no fragmentation here.
    """
    ring, gathered = (
        estimate(workload(), ideal(8), Strategy(cp=4, pp=2, context_mode=mode)).footprint.backward
        for mode in (ContextMode.RING, ContextMode.ALL_GATHER)
    )
    assert float((gathered - ring).max()) == 2 * 3 * 2048 * 2048 * 2


def test_usp_is_all_to_all_inside_a_domain_and_a_ring_where_no_domain_is_shared():
    """Eight key heads: all eight ranks of a domain exchange heads; alone in their domains they pass
    a ring.
    """
    for cluster, like in (
        (ideal(8, scale_up=SLOW), ContextMode.ALL_TO_ALL),
        (apart(8), ContextMode.RING),
    ):
        usp, other = (
            estimate(workload(), cluster, Strategy(cp=8, context_mode=mode))
            for mode in (ContextMode.HIERARCHICAL, like)
        )
        assert float(usp.layer_times[0].communication) == pytest.approx(
            float(other.layer_times[0].communication)
        )


def test_usp_over_two_domains_sends_less_between_them_than_a_ring():
    """Sixteen ranks of two domains: 8 exchange heads inside, and a ring of two passes what 8 of
    them hold.
    """
    cluster = replace(ideal(16, scale_up=SLOW * 1e6, scale_out=SLOW), domain=8)
    usp, ring = (
        estimate(workload(), cluster, Strategy(cp=16, context_mode=mode))
        for mode in (ContextMode.HIERARCHICAL, ContextMode.RING)
    )
    assert float(usp.layer_times[0].communication) == pytest.approx(
        3 * 512 * 2048 * 2 / SLOW, rel=1e-3
    )
    assert float(usp.layer_times[0].communication) < float(ring.layer_times[0].communication)


def apart(devices):
    """Machines of one device each."""
    return replace(ideal(devices, scale_out=SLOW), domain=1, gpus_per_node=1)


def test_experts_get_their_tokens_and_send_them_back():
    """Mixtral, 8 ranks: each of 4096 tokens goes to 2 experts, 7/8 of them elsewhere, in 2 B and
    back in 2 B; twice, backward.
    """
    work = workload("mixtral-8x7b", sequence=4096)
    found = estimate(work, ideal(8, scale_up=SLOW), Strategy(dp=8, ep=8))
    dispatch = 2 * 7 / 8 * 4096 * 4096 * 2 / SLOW
    assert float(found.layer_times[-1].expert) == pytest.approx(2 * dispatch)
    assert float(found.layer_times[-1].communication) == pytest.approx(4 * dispatch)


def test_zero_1_reduces_in_four_bytes_and_gathers_in_two():
    """7/8 of 6.98e9 weights x (4 + 2) B at 1 GB/s; a ring over two nodes goes out through all 8
    NICs of each.
    """
    work = workload(HEADLESS)
    found = estimate(work, ideal(8, scale_up=SLOW), Strategy(dp=8, data_overlap=False))
    assert float(found.step_terms.data) == pytest.approx(7 / 8 * held() * 6 / SLOW, rel=1e-5)
    wide = estimate(work, ideal(16, scale_out=SLOW), Strategy(dp=16, data_overlap=False))
    assert float(wide.step_terms.data) == pytest.approx(15 / 16 * held() * 6 / (8 * SLOW), rel=1e-5)


def test_replicated_gradients_go_around_twice_and_switches_halve_that():
    work, layout = workload(HEADLESS), Strategy(dp=8, sharding=Sharding.NONE, data_overlap=False)
    cluster = ideal(8, scale_up=SLOW)
    found = estimate(work, cluster, layout).step_terms.data
    assert float(found) == pytest.approx(2 * 7 / 8 * held() * 4 / SLOW, rel=1e-5)
    halved = estimate(work, replace(cluster, in_network_reduction=True), layout).step_terms.data
    assert float(halved) == pytest.approx(float(found) / 2)


def test_fully_sharded_weights_are_gathered_twice_and_reduced_once_a_micro_batch():
    """Eight micro-batches: 8 x (2 x 2 + 4) B a weight."""
    work = workload(HEADLESS)
    layout = Strategy(dp=8, sharding=Sharding.WEIGHTS, data_overlap=False)
    found = estimate(work, ideal(8, scale_up=SLOW), layout).step_terms.data
    assert float(found) == pytest.approx(7 / 8 * held() * 8 * 8 / SLOW, rel=1e-5)


def test_hybrid_sharding_keeps_gathers_inside_its_group():
    """Groups of 8 in a node and 2 nodes: gathers over the fast link are free, gradients cross the
    fabric: (15/16 - 7/8) x 2.
    """
    work = workload(HEADLESS)
    layout = Strategy(dp=16, shard=8, sharding=Sharding.WEIGHTS, data_overlap=False)
    found = estimate(work, ideal(16, scale_out=SLOW), layout).step_terms.data
    assert float(found) == pytest.approx(2 * (15 / 16 - 7 / 8) * held() * 4 / (8 * SLOW), rel=1e-5)


def test_a_device_of_dualpipe_exchanges_both_stages_that_it_holds():
    """What memory holds is what is reduced and gathered: 32 layers on 4 stages are 8 a device, and
    16 from both ends.
    """
    work, cluster = workload(HEADLESS), ideal(32, scale_up=SLOW)
    for schedule, layers in ((ONE_F_ONE_B, 8), (DUALPIPE, 16)):
        layout = Strategy(pp=4, dp=8, schedule=schedule, data_overlap=False)
        found = estimate(work, cluster, layout)
        assert float(found.step_terms.data) == pytest.approx(
            7 / 8 * held(layers) * 6 / SLOW, rel=1e-5
        ), schedule
        assert float(found.footprint.weights.max()) == pytest.approx(2 * held(layers), rel=1e-5), (
            schedule
        )


def test_interleaved_stages_hide_the_exchange_behind_the_micro_batches_of_their_other_chunks():
    """With 4 stages of 2 chunks 1 + 3 x 1/2 micro-batches of compute cover it, where one covers it
    with 1 chunk.
    """
    work, cluster = workload(HEADLESS), ideal(32, scale_up=SLOW, overlap=dict(data=0.5))
    for chunks, window in ((1, 1.0), (2, 2.5)):
        layout = Strategy(pp=4, dp=8, vpp=chunks, schedule=INTERLEAVED)
        hidden = estimate(work, cluster, layout)
        shown = estimate(work, cluster, replace(layout, data_overlap=False))
        covered = float(shown.step_terms.data - hidden.step_terms.data)
        assert covered == pytest.approx(0.5 * window * float(hidden.stage_time.slowest))


def test_compute_hides_the_exchange_as_far_as_the_stack_reaches():
    """The last micro-batch's compute covers half of itself."""
    work = workload(HEADLESS)
    cluster = ideal(8, scale_up=SLOW, overlap=dict(data=0.5))
    hidden = estimate(work, cluster, Strategy(dp=8))
    shown = estimate(work, cluster, Strategy(dp=8, data_overlap=False))
    window = float(hidden.stage_time.slowest)
    assert float(shown.step_terms.data - hidden.step_terms.data) == pytest.approx(0.5 * window)


def test_a_tied_embedding_is_reduced_between_the_ends_of_the_pipeline():
    """128256 x 4096 x 4 B at 1 GB/s over the NIC of each; on one stage there is nothing
    to reduce.
    """
    work = workload(ends(LLAMA, tied=True))
    found = estimate(work, ideal(16, scale_out=SLOW), Strategy(pp=2, dp=8))
    assert float(found.step_terms.embedding) == pytest.approx(128256 * 4096 * 4 / SLOW, rel=1e-6)
    assert float(estimate(work, ideal(8, scale_out=SLOW), Strategy(dp=8)).step_terms.embedding) == 0


def test_hops_of_1f1b_pass_the_activations_of_a_micro_batch():
    """Two stages, 8 micro-batches: 2 (1 + 7 - 4) = 8 hops show, of 8192 x 4096 x 2 B; sequence
    parallelism sends an eighth.
    """
    work = workload(HEADLESS, batch=8)
    hop = TOKENS * HIDDEN * 2 / SLOW
    found = estimate(work, ideal(16, scale_out=SLOW), Strategy(tp=8, pp=2))
    assert float(found.step_terms.hops) == pytest.approx(8 * hop)
    sharded = estimate(
        work, ideal(16, scale_out=SLOW), Strategy(tp=8, pp=2, sequence_parallel=True)
    )
    assert float(sharded.step_terms.hops) == pytest.approx(hop)


@pytest.mark.parametrize("stack", ["megatron-lm", "megatron-deepspeed"])
def test_two_stacks_send_an_eighth_a_rank_without_sequence_parallelism_too(stack):
    """All hops of these 8 are 8 x 1/8 = 1 then; Megatron Core sends the whole from each of
    the eight.
    """
    work, shared = (
        workload(HEADLESS, batch=8),
        presets.calibration("h100", stack=stack).links.point_shared,
    )
    assert (shared, presets.calibration("h100", stack="megatron-core").links.point_shared) == (
        1.0,
        0.0,
    )
    ours = ideal(16, scale_out=SLOW)
    links = replace(ours.calibration.links, point_shared=shared)
    cluster = replace(ours, calibration=replace(ours.calibration, links=links))
    found = estimate(work, cluster, Strategy(tp=8, pp=2))
    assert float(found.step_terms.hops) == pytest.approx(TOKENS * HIDDEN * 2 / SLOW)
    split = estimate(work, cluster, Strategy(tp=8, pp=2, sequence_parallel=True))
    assert float(split.step_terms.hops) == pytest.approx(float(found.step_terms.hops))


def test_recomputing_a_layer_pays_its_collectives_again():
    layout = Strategy(tp=8, recompute=Recompute.FULL)
    found = estimate(workload(), ideal(8, scale_up=SLOW), layout)
    assert float(found.layer_times[0].recompute) == pytest.approx(
        float(found.layer_times[0].forward)
    )


def test_offloaded_activations_are_exposed_where_the_bus_is_slower_than_a_layer():
    layout = Strategy(offload=frozenset({"activations"}))
    quick, slow = (estimate(workload(), ideal(1, host_link=bus), layout) for bus in (1e30, SLOW))
    assert float(quick.layer_times[0].offload) == 0
    moved = float(slow.layer_times[0].offload) + float(quick.layer_times[0].forward)
    assert float(slow.layer_backward - quick.layer_backward) == pytest.approx(
        moved - float(quick.layer_backward)
    )
    assert moved * SLOW == pytest.approx(32 * TOKENS * HIDDEN, rel=0.15)  # about 32 sbh of them


def test_dualpipe_hides_what_interleaving_shows():
    """16 stages of equal work, 64 micro-batches: 15 are lost by 1F1B, 15/2 with two virtual stages,
    fewer by DualPipe.
    """
    work = workload(HEADLESS, batch=64)
    times = [
        float(estimate(work, ideal(16), Strategy(pp=16, vpp=v, schedule=schedule)).step_time)
        for schedule, v in ((ONE_F_ONE_B, 1), (INTERLEAVED, 2), (DUALPIPE, 1))
    ]
    assert times == sorted(times, reverse=True)
