"""Whole steps on machines where a step is a sum that a reader can do."""

from dataclasses import replace

import numpy as np
import pytest
from machines import PEAK, ideal, workload
from shapes import ends

from mofa_model import presets
from mofa_model.equations.host import RELAUNCHED
from mofa_model.equations.parameters import training_flops_per_token
from mofa_model.estimate import estimate
from mofa_model.estimate.stage_time import FeatureEffects, layer_launches
from mofa_model.estimate.step import micro_batches, tokens_per_second, utilisation
from mofa_model.schedules import INTERLEAVED
from mofa_model.spec import Training, Workload
from mofa_model.strategy import MODULES, Graphs, Recompute, Sharding, Strategy

CLOSE = 1e-9


def flops(work, **counting):
    """Model FLOPs of a step, causal attention."""
    t = work.training
    each = training_flops_per_token(work.model, t.sequence, convention="causal", **counting)
    return t.global_batch * t.sequence * each


@pytest.mark.parametrize("model", ["llama3-8b", "gpt3-175b", "mixtral-8x7b", "gpt-oss-20b"])
def test_a_perfect_device_takes_the_model_s_flops_over_its_peak(model):
    work = workload(model)
    found = estimate(work, ideal(1), Strategy())
    assert float(found.step_time) == pytest.approx(flops(work) / PEAK, rel=CLOSE)


def test_fp32_halves_the_rate_of_products_and_doubles_what_is_stored():
    """TF32 peak over bf16 peak is a half; activations are 4 B, and weights are their own master."""
    plain, wide = (
        estimate(
            Workload(
                model=presets.model("llama3-8b"),
                training=Training(
                    sequence=8192, global_batch=64, precision=presets.precision(name)
                ),
            ),
            presets.cluster("h100", 8, precision="fp32"),  # nobody measured TF32, so laws hold
            Strategy(dp=8, sharding=Sharding.NONE),
        )
        for name in ("bf16", "fp32")
    )
    assert float(wide.layer_times[0].linear) == pytest.approx(
        2 * float(plain.layer_times[0].linear), rel=1e-9
    )
    assert float(wide.layer_times[0].attention) == pytest.approx(
        2 * float(plain.layer_times[0].attention), rel=1e-9
    )
    assert (wide.footprint.activations / plain.footprint.activations).max() == pytest.approx(
        2.0, rel=0.01
    )
    states = (wide.footprint.weights + wide.footprint.optimizer) / (
        plain.footprint.weights + plain.footprint.optimizer
    )
    assert states.max() == pytest.approx(12 / 14)


def test_a_prediction_module_costs_a_layer_and_a_head_more():
    """What is left out is its projection of two streams onto one, 12 h^2 = 0.6 of 263 GFLOP
    a token.
    """
    work = workload("deepseek-v3", sequence=4096)
    found = estimate(work, ideal(1), Strategy())
    counted = flops(work, prediction=True) / PEAK
    assert float(found.step_time) == pytest.approx(counted, rel=2.5e-3)
    assert float(found.step_time) < counted


def test_perfect_links_share_the_work_among_all_devices():
    work = workload()
    alone = float(estimate(work, ideal(1), Strategy()).step_time)
    for layout in (dict(tp=8), dict(dp=8), dict(tp=2, dp=4), dict(cp=8), dict(tp=2, cp=2, dp=2)):
        found = estimate(work, ideal(8), Strategy(**layout, sequence_parallel=True))
        assert float(found.step_time) == pytest.approx(alone / 8, rel=CLOSE), layout


def test_a_pipeline_of_equal_stages_loses_p_minus_one_micro_batches():
    """Without head or loss 4 stages and 16 micro-batches take 19/16 of the time, with 2 virtual
    stages 17.5/16.
    """
    work = workload(ends(presets.model("llama3-8b"), vocabulary=1))
    alone = float(estimate(work, ideal(1), Strategy()).step_time)
    work = replace(work, training=replace(work.training, global_batch=16))
    for virtual, lost in ((1, 3), (2, 1.5)):
        found = estimate(work, ideal(4), Strategy(pp=4, vpp=virtual, schedule=INTERLEAVED))
        assert float(found.step_time) == pytest.approx(alone / 4 / 4 * (16 + lost) / 16, rel=1e-5)
        assert float(found.step_terms.bubble / found.step_terms.stages) == pytest.approx(
            lost / 16, rel=1e-5
        )


def test_full_recomputation_adds_a_third_of_the_layers():
    work = workload(ends(presets.model("llama3-8b"), vocabulary=1))
    none = float(estimate(work, ideal(1), Strategy()).step_time)
    full = Strategy(recompute=Recompute.FULL)
    assert float(estimate(work, ideal(1), full).step_time) == pytest.approx(none * 4 / 3, rel=1e-6)
    # Eight of 32 layers are a quarter of that.
    some = replace(full, recompute_layers=8)
    assert float(estimate(work, ideal(1), some).step_time) == pytest.approx(
        none * 13 / 12, rel=1e-6
    )


def test_selective_recomputation_of_the_core_adds_one_forward_of_attention():
    """Llama 3 8B: 32 layers x 4 x 4096 keys x 4096 wide, for each of 64 x 8192 tokens."""
    work = workload()
    none, core = (
        float(estimate(work, ideal(1), Strategy(recompute=kind)).step_time)
        for kind in (Recompute.NONE, Recompute.SELECTIVE)
    )
    assert core - none == pytest.approx(64 * 8192 * 32 * 4 * 4096 * 4096 / PEAK, rel=1e-6)


def test_a_host_that_is_slower_than_the_device_decides():
    """32 layers of 1 s of launches and 8 micro-batches: 256 s, and a device of some milliseconds
    adds nothing.
    """
    work = workload(batch=8)
    launches = dict(layer_unsharded=1.0, graph_partial=0.6, graph_full=0.15, recompute=0.25)
    slow = ideal(1, host=launches)
    for graphs, share in ((Graphs.NONE, 1.0), (Graphs.PARTIAL, 0.6), (Graphs.FULL, 0.15)):
        found = estimate(work, slow, Strategy(graphs=graphs))
        assert float(found.step_time) == pytest.approx(256 * share, rel=1e-3)
    found = estimate(work, slow, Strategy(recompute=Recompute.FULL))
    assert float(found.step_time) == pytest.approx(256 * 1.25, rel=1e-3)


def test_overlap_of_experts_costs_launches_that_graphs_spare():
    """32 layers of 1 s and 8 micro-batches: 256 s, half as much again beside another micro-batch,
    30 % under partial graphs.
    """
    work = replace(workload(batch=8), model=presets.model("mixtral-8x7b"))
    slow = ideal(2, host=dict(layer_experts=1.0, graph_partial=0.6, expert_overlap=0.5))
    for graphs, seconds in ((Graphs.NONE, 384), (Graphs.PARTIAL, 0.6 * 256 * 1.3)):
        beside = Strategy(dp=2, ep=2, graphs=graphs, expert_overlap=True)
        assert float(estimate(work, slow, beside).step_time) == pytest.approx(seconds / 2, rel=1e-2)
    for layout in (Strategy(dp=2, ep=2), Strategy(dp=2, expert_overlap=True)):
        assert float(estimate(work, slow, layout).step_time) == pytest.approx(128, rel=1e-2)


def test_what_is_paid_once_a_step_is_paid_once():
    work = workload(batch=8)
    bare = float(estimate(work, ideal(1), Strategy()).step_time)
    more = float(estimate(work, ideal(1, host=dict(step=2.0)), Strategy()).step_time)
    assert more - bare == pytest.approx(2.0)
    each = float(estimate(work, ideal(1, host=dict(micro_batch=1.0)), Strategy()).step_time)
    assert each - bare == pytest.approx(8.0)


def test_stragglers_add_a_share_with_each_doubling_of_the_nodes():
    """64 nodes are six doublings: 6 x 0.5 %."""
    work = workload(batch=512)
    bare, late = (
        float(estimate(work, ideal(512, overlap=dict(straggler=s)), Strategy(dp=512)).step_time)
        for s in (0.0, 0.005)
    )
    assert late / bare == pytest.approx(1.03)


def test_the_optimizer_reads_and_writes_30_bytes_a_parameter():
    """8.03e9 - 0.5e6 of norms, 30 B each at 2 TB/s: 0.1205 s alone, an eighth on eight ranks
    of ZeRO-1.
    """
    work = workload()
    slow = dict(memory=2e12)
    alone = estimate(work, ideal(1, **slow), Strategy()).step_terms.optimizer
    assert float(alone) == pytest.approx(8.03e9 * 30 / 2e12, rel=0.07)
    shared = estimate(work, ideal(8, **slow), Strategy(dp=8)).step_terms.optimizer
    assert float(shared) == pytest.approx(float(alone) / 8)
    apart = estimate(
        work, ideal(8, **slow), Strategy(dp=8, sharding=Sharding.NONE)
    ).step_terms.optimizer
    assert float(apart) == float(alone)


def test_micro_batches_are_sequences_over_ranks_and_micro_batch_size():
    assert micro_batches(workload(batch=256), Strategy(dp=8, mbs=4)) == 8
    assert micro_batches(workload(batch=256), Strategy(dp=np.array([8.0, 16.0]))).tolist() == [
        32,
        16,
    ]


def test_throughput_and_utilisation_of_a_known_step():
    """64 x 8192 tokens in 4 s are 131072 a second; all of a device's peak is an MFU of 1, with full
    attention counted.
    """
    work = workload()
    assert tokens_per_second(work, 4.0) == 131072
    full = 64 * 8192 * training_flops_per_token(work.model, 8192)
    assert float(utilisation(work, ideal(1), full / PEAK)) == pytest.approx(1.0)
    assert float(utilisation(work, ideal(8), full / PEAK)) == pytest.approx(0.125)


def test_forward_and_backward_of_a_layer_are_those_of_its_matrices():
    """2 FLOPs a weight and token forward, 4 backward; the core of attention beside them."""
    work = workload()
    found = estimate(work, ideal(1), Strategy())
    weights = work.model.kinds[0].matrices(work.model.hidden)
    assert float(found.layer_times[0].linear) == pytest.approx(2 * 8192 * weights / PEAK)
    assert float(found.layer_forward) == pytest.approx(
        float(found.layer_times[0].linear + found.layer_times[0].attention)
    )
    assert float(found.layer_backward) == pytest.approx(2 * float(found.layer_forward))


def test_recomputing_every_module_costs_one_forward_at_most():
    """Modules contain each other: `all_but_attention_output` is nearly the whole layer already."""
    work = workload("deepseek-v3", sequence=4096)
    cluster = ideal(8, scale_up=1e10, memory=1e12)
    every = Strategy(
        dp=8, ep=8, recompute=Recompute.SELECTIVE, recompute_modules=frozenset(MODULES)
    )
    found = estimate(work, cluster, every).layer_times[-1]
    assert float(found.recompute) == pytest.approx(float(found.forward))


@pytest.mark.parametrize("module", MODULES)
def test_a_release_that_is_slower_recomputes_slower_as_well(module):
    work, layout = (
        workload("deepseek-v3", sequence=4096),
        Strategy(recompute=Recompute.SELECTIVE, recompute_modules=frozenset({module})),
    )
    sound, slow = (
        estimate(work, ideal(1, memory=1e12, compute=dict(layer_scale=x)), layout).layer_times[-1]
        for x in (1.0, 1.25)
    )
    assert float(slow.recompute) == pytest.approx(1.25 * float(sound.recompute))


def test_modules_that_are_computed_again_are_launched_again_where_the_host_is_the_limit():
    """A norm and an activation are a quarter of the forward's launches, which are a third of a
    layer's: measured +2 to +11 %.
    """
    assert set(RELAUNCHED) == set(MODULES)
    work, cluster = workload("llama3-8b", sequence=256), presets.cluster("h100", 8)
    slow = replace(
        cluster.calibration, host=replace(cluster.calibration.host, layer_unsharded=0.02)
    )
    cluster = replace(cluster, calibration=slow)
    plain = Strategy(dp=8)
    again = replace(
        plain, recompute=Recompute.SELECTIVE, recompute_modules=frozenset({"layernorm", "mlp_act"})
    )
    times = [float(estimate(work, cluster, layout).step_time) for layout in (plain, again)]
    assert 1.02 < times[1] / times[0] < 1.11


@pytest.mark.parametrize(
    "model, launches",
    [
        ("llama3-8b", [4e-3]),  # a dozen kernels
        ("mixtral-8x7b", [9e-3]),  # two dozen
        ("qwen3-30b-a3b", [9e-3]),
        ("deepseek-v3", [4e-3 * 20 / 12, 9e-3 * 36 / 24]),  # 8 of latents, 4 of shared experts
    ],
)
def test_latents_and_shared_experts_are_launched_beside_a_plain_layers_kernels(model, launches):
    cluster = ideal(8, host={"layer": 4e-3, "layer_unsharded": 4e-3, "layer_experts": 9e-3})
    plain = FeatureEffects(launches_left=1.0, relaunched=0.0, overlapped=0.0, recomputed_layers=1.0)
    found = layer_launches(workload(model), cluster, Strategy(dp=8), plain)
    assert [float(time) for time in found] == pytest.approx(launches)
