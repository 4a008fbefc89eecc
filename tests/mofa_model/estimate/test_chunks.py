"""MemFine: experts in chunks cost time and save memory; uneven routing costs time by its mean and
memory by its tail.
"""

from dataclasses import replace

import numpy as np
import pytest
from shapes import changed

from mofa_model import presets
from mofa_model.blocks import Experts
from mofa_model.estimate import estimate
from mofa_model.estimate.expert_load import RISK, exchanges, expert_load
from mofa_model.estimate.step import overflow
from mofa_model.estimate.terms import device_memory_limit
from mofa_model.spec import Training, Workload
from mofa_model.spec.transformer import read_imbalance, with_imbalance
from mofa_model.strategy import Recompute, Strategy

CHUNKS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
CLUSTER = presets.cluster("h800-80gb-sxm", 2048)
LAYOUT = Strategy(pp=16.0, dp=128.0, ep=64.0)


def workload(
    name="deepseek-v3", mean=1.0, spread=0.0, *, precision="bf16", tokens=0, sequence=4096
):
    training = Training(
        sequence=sequence, global_batch=15360, precision=presets.precision(precision), tokens=tokens
    )
    return Workload(model=with_imbalance(presets.model(name), mean, spread), training=training)


@pytest.mark.parametrize("again", [Recompute.NONE, Recompute.FULL])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name, ep", [("deepseek-v3", 64.0), ("mixtral-8x7b", 8.0)])
def test_time_rises_with_chunks_and_memory_falls(again, overlap, name, ep):
    layout = replace(LAYOUT, chunks=CHUNKS, recompute=again, expert_overlap=overlap, ep=ep)
    found = estimate(workload(name, 1.5, 0.2), CLUSTER, layout)
    assert np.all(np.diff(found.step_time) > 0)
    peak = np.max(
        found.footprint.total[:-1], axis=0
    )  # the loss of the last stage may be more than any layer
    saved = -np.diff(peak)
    assert np.all(saved[:3] > 0)
    assert np.all(saved >= 0)  # until a plain layer takes more
    assert np.all(np.diff(found.footprint.peak) <= 0)
    fits = peak <= np.median(peak)
    assert (
        np.argmin(np.where(fits, found.step_time, np.inf)) == np.argmax(fits) > 0
    )  # the fewest that fit are best


def test_memory_falls_by_the_experts_part_alone():
    """Twice the chunks halve what the working layer's experts take; the rest stays."""
    layout = replace(LAYOUT, ep=8.0, chunks=CHUNKS[1:])
    found = estimate(workload("mixtral-8x7b"), CLUSTER, layout).footprint
    saved = -np.diff(np.max(found.activations + found.backward, axis=0))
    assert saved[1:] / saved[:-1] == pytest.approx(0.5, rel=1e-9)


def test_each_further_layer_in_chunks_costs_time_and_saves_memory():
    """Stages of DeepSeek-V3 in 16 hold four layers at most, so a fifth changes nothing."""
    layers = replace(LAYOUT, chunks=4.0, chunk_layers=np.array([1.0, 2.0, 3.0, 4.0, 5.0, 0.0]))
    found, whole = (estimate(workload(mean=1.5, spread=0.1), CLUSTER, s) for s in (layers, LAYOUT))
    assert np.all(np.diff([whole.step_time, *found.step_time[:4]]) > 0)
    assert np.all(np.diff([whole.footprint.peak, *found.footprint.peak[:4]]) <= 0)
    assert found.footprint.peak[1] < found.footprint.peak[0] < whole.footprint.peak
    assert len(set(found.step_time[3:])) == len(set(found.footprint.peak[3:])) == 1


def test_a_chunk_costs_launches_starts_smaller_products_and_gradients_added_up_again():
    few, many = (estimate(workload(), CLUSTER, replace(LAYOUT, chunks=float(n))) for n in (2, 8))
    small, large = few.layer_times[-1], many.layer_times[-1]
    assert large.linear > small.linear
    assert large.backward - small.backward > large.forward - small.forward
    # Of six chunks more, beside layers whose latents and shared experts have launches of their own.
    assert np.max(many.stage_time.launch_time) > 2 * np.max(few.stage_time.launch_time)
    links, path = CLUSTER.calibration.links, CLUSTER.scale_out
    start = links.collective + links.scale_out_hop + path.latency
    assert large.expert - small.expert == pytest.approx(6 * 2 * start, rel=1e-9)


@pytest.mark.parametrize(
    "recompute",
    [
        dict(chunks=2.0),
        dict(recompute=Recompute.FULL),
        dict(recompute=Recompute.SELECTIVE, recompute_modules=frozenset({"moe"})),
    ],
)
def test_an_exchange_in_three_passes_hides_behind_all_work_of_the_three(recompute):
    """Half of forward and backward beside each of three passes made a GB200 with four times the
    peak 1.3 % slower.
    """
    layout = Strategy(dp=64.0, ep=64.0, expert_overlap=True, **recompute)
    training = Training(sequence=4096, global_batch=1024, precision=presets.precision("bf16"))
    w = Workload(model=presets.model("gpt-oss-20b"), training=training)
    cluster = presets.cluster("gb200", 2048, gpus_per_node=4, domain=4)
    peaks = [
        replace(cluster.device, peak_bf16=x * cluster.device.peak_bf16) for x in (1.0, 1.5, 4.0)
    ]
    steps = [float(estimate(w, replace(cluster, device=one), layout).step_time) for one in peaks]
    assert steps == sorted(steps, reverse=True)


def test_what_chunks_are_computed_again_from_stays_wide():
    """In FP8 a layer that keeps half of its experts' input would keep less than one that keeps its
    own input alone.
    """
    inputs = frozenset({"attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm"})
    layout = Strategy(pp=16.0, dp=8.0, chunks=2.0, offload=inputs)
    w = workload("mixtral-8x7b", precision="fp8-block", sequence=2048)
    none, full = (
        estimate(w, CLUSTER, replace(layout, recompute=again)).footprint.peak
        for again in (Recompute.NONE, Recompute.FULL)
    )
    assert full <= none


def test_time_follows_the_mean_of_the_load_and_memory_its_tail():
    plain, uneven, spread = (
        estimate(workload(mean=m, spread=s), CLUSTER, LAYOUT)
        for m, s in ((1.0, 0.0), (1.4, 0.0), (1.4, 0.1))
    )
    assert plain.step_time < uneven.step_time == spread.step_time
    assert plain.footprint.peak < uneven.footprint.peak < spread.footprint.peak
    longer = estimate(workload(mean=1.4, spread=0.1, tokens=15e12), CLUSTER, LAYOUT)
    assert longer.footprint.peak > spread.footprint.peak  # the worst of more exchanges is worse
    alone = estimate(workload(mean=1.4, spread=0.1), CLUSTER, replace(LAYOUT, ep=1.0))
    assert (
        alone.footprint.peak
        == estimate(workload(), CLUSTER, replace(LAYOUT, ep=1.0)).footprint.peak
    )


def test_the_risk_of_a_run_is_that_of_the_tail_where_memory_just_fits():
    w = workload(mean=1.4, spread=0.1, tokens=15e12)
    peak = float(estimate(w, CLUSTER, LAYOUT).footprint.peak)
    exact = replace(
        CLUSTER,
        device=replace(
            CLUSTER.device,
            memory=CLUSTER.device.memory * peak / float(device_memory_limit(CLUSTER)),
        ),
    )
    assert overflow(w, exact, LAYOUT) == pytest.approx(RISK, rel=1e-3)
    roomy = replace(exact, device=replace(exact.device, memory=1.1 * exact.device.memory))
    assert 0 < overflow(w, roomy, LAYOUT) < RISK / 10
    assert overflow(workload(), roomy, LAYOUT) == 0
    assert overflow(workload(mean=8.0), CLUSTER, LAYOUT) == 1


def test_exchanges_of_a_run_do_not_depend_on_how_many_pipelines_share_the_batch():
    """58 layers with experts, 15360 sequences and 64 ranks an exchange: 13,920 in a step."""
    w = workload(mean=1.4, spread=0.1)
    assert exchanges(w, LAYOUT) == exchanges(w, replace(LAYOUT, dp=256.0)) == 58 * 15360 / 64


def test_a_load_that_most_layers_do_not_have_costs_them_no_chunks():
    w = workload(mean=1.4, spread=0.3, tokens=15e12)
    sent = w.model.experts.exchange()
    layout = replace(LAYOUT, chunks=8.0)
    assert 1 <= expert_load(w, layout, sent).chunks(layout) < 3
    assert expert_load(workload(), layout, workload().model.experts.exchange()).chunks(layout) == 8
    assert expert_load(w, layout, sent).tail > 5


@pytest.mark.parametrize(
    "text", ["x", "0.9", "1.4:", "1.4:-1", "1:0.2", "nan", "inf", "1.4:0.1:2", ""]
)
def test_an_imbalance_that_cannot_be_is_refused_in_one_line(text):
    with pytest.raises(
        ValueError, match=r"^--imbalance: .* cannot be right; write MEAN or MEAN:SPREAD"
    ):
        read_imbalance(presets.model("mixtral-8x7b"), text, field="--imbalance")


def test_a_dense_model_has_no_imbalance():
    with pytest.raises(ValueError, match="llama3-8b has no experts"):
        read_imbalance(presets.model("llama3.1-8b"), "1.4", field="--imbalance")
    assert read_imbalance(presets.model("llama3.1-8b"), "1", field="--imbalance").experts is None


def test_the_imbalance_of_a_preset_is_that_of_its_experts():
    model = presets.model("deepseek-v3")
    assert read_imbalance(model, "1.4:0.3", field="") == changed(
        model, Experts, imbalance=1.4, imbalance_spread=0.3
    )
    assert read_imbalance(model, "1", field="") == model


@pytest.mark.parametrize("chunks", [1.0, 2.0])
def test_a_module_within_another_is_computed_again_once(chunks):
    layout = replace(LAYOUT, chunks=chunks, recompute=Recompute.SELECTIVE)
    one, both = (
        estimate(workload(), CLUSTER, replace(layout, recompute_modules=frozenset(names)))
        .layer_times[-1]
        .recompute
        for names in (["per_op"], ["per_op", "mlp_act", "layernorm"])
    )
    assert one == both


def test_experts_are_computed_again_from_as_wide_an_input_whole_as_in_chunks():
    """Chunks of narrow experts took 13 % more than experts that are computed again whole, though
    they keep the same.
    """
    again = dict(recompute=Recompute.SELECTIVE, recompute_modules=frozenset({"moe"}))
    w = workload("mixtral-8x7b", precision="fp8-block")
    whole, chunked = (
        estimate(w, CLUSTER, replace(LAYOUT, ep=8.0, chunks=n, **again)).footprint
        for n in (1.0, 2.0)
    )
    assert np.all(chunked.activations == whole.activations)
    assert chunked.peak <= whole.peak


def test_the_exchange_of_experts_hides_behind_no_work_that_hides_other_messages():
    """Beside tp = 8, whose messages take all of the products' time, less is left for the exchange
    than without them.
    """
    slow = replace(
        CLUSTER, scale_up=replace(CLUSTER.scale_up, bandwidth=CLUSTER.scale_up.bandwidth / 8)
    )
    layout = Strategy(tp=8.0, pp=16.0, dp=16.0, ep=64.0, expert_overlap=True)
    plain, hidden = (
        estimate(workload(), slow, replace(layout, tensor_overlap=one)).layer_times[-1]
        for one in (False, True)
    )
    assert hidden.tensor < plain.tensor
    assert hidden.expert > plain.expert


def test_a_layer_that_does_everything_again_does_not_lose_chunks_that_hid_the_way_from_the_host():
    """Behind a link so slow that the backward pass waits for it, a recomputed layer adds its whole
    forward work.
    """
    slow = replace(
        CLUSTER, host=replace(CLUSTER.host, link=replace(CLUSTER.host.link, bandwidth=1e9))
    )
    layout = replace(
        LAYOUT, recompute=Recompute.FULL, recompute_layers=1.0, offload=frozenset({"qkv_linear"})
    )
    whole, chunked = (
        estimate(workload(), slow, replace(layout, chunks=n)).layer_times[-1] for n in (1.0, 2.0)
    )
    assert chunked.backward == pytest.approx(whole.backward, rel=1e-9)
    assert chunked.recompute >= whole.recompute
