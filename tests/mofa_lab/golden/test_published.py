"""Published trainings, layers and activations.

The two trainings are met without any run of theirs: priced `bare`, with the defaults of
`Calibration` alone, and `shipped`, with the constants that presets hold for the device and the
trainer: DeepSeek's own, and for Meta's, which nobody else has, a stack that nobody has measured.
Where layers lie is published for both, so both take `slots`.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from mofa_lab.validate.cases import load
from mofa_lab.validate.steps import predict, scored, shipped
from mofa_model import presets
from mofa_model.equations.parameters import training_flops_per_token
from mofa_model.estimate import estimate
from mofa_model.estimate.step import utilisation
from mofa_model.schedules import DUALPIPE, INTERLEAVED
from mofa_model.spec import Calibration, Training, Workload
from mofa_model.strategy import Graphs, Recompute, Sharding, Strategy
from mofa_model.units import HOUR

DATA = Path(__file__).parents[3] / "lab" / "data" / "cases" / "throughput.json"
WITHIN = 0.15
"""What the project promises of a training before calibration, and of a layer."""
CONSTANTS = pytest.mark.parametrize("constants", ["bare", "shipped"])


@cache
def korthikanti():
    """Layer times and activation ratios of the 22B, 175B and 1T models, with the constants of
    their stack.
    """
    cases = [
        case
        for case in load(DATA)[0]
        if case.id.startswith("korthikanti") and case.kind != "pretrain"
    ]
    return scored(cases, predict(cases))


def measured(*quantities):
    return [
        pytest.param(row, id=f"{row.case.id}-{row.figure.quantity}-{row.figure.basis}")
        for row in korthikanti()
        if row.figure.quantity in quantities
    ]


def cluster_of(device, gpus, precision, constants, stack="default"):
    cluster = presets.cluster(device, gpus, precision=precision, stack=stack)
    known = Calibration() if constants == "bare" else cluster.calibration
    return replace(cluster, calibration=replace(known, placement="slots"))


def llama(gpus, cp, dp, sequence, batch, constants):
    """Llama 3.1 405B on H100s (The Llama 3 Herd of Models, Table 4): TP 8, PP 16, 16.8 M tokens a
    step.

    The first chunk of the first stage holds the embedding alone and the last one the head alone, so
    a chunk is one layer: 8 virtual stages. Fully sharded, but parameters stay gathered after the
    forward pass.
    """
    workload = Workload(
        model=presets.model("llama3.1-405b"),
        training=Training(
            sequence=sequence, global_batch=batch, precision=presets.precision("bf16")
        ),
    )
    strategy = Strategy(
        tp=8, pp=16, cp=cp, dp=dp, vpp=8,
        schedule=INTERLEAVED, sequence_parallel=True, sharding=Sharding.GRADIENTS,
    )  # fmt: skip
    cluster = cluster_of("h100-80gb-sxm", gpus, "bf16", constants)
    return workload, cluster, strategy


def deepseek(constants):
    """DeepSeek-V3 on 2,048 H800s (technical report, sections 2.1, 3 and 4.2): PP 16 by DualPipe, EP
    64, ZeRO-1, FP8.

    Norms, MLA's up-projections and SwiGLU are computed again; both moments are bf16 beside an fp32
    master weight; all-to-all runs beside the compute of another micro-batch.
    """
    recipe = replace(presets.precision("fp8-block"), optimizer=8.0)
    workload = Workload(
        model=presets.model("deepseek-v3"),
        training=Training(sequence=4096, global_batch=15360, precision=recipe),
    )
    strategy = Strategy(
        pp=16, dp=128, ep=64,
        schedule=DUALPIPE, sharding=Sharding.OPTIMIZER, expert_overlap=True, recompute=Recompute.SELECTIVE,
        recompute_modules=frozenset({"layernorm", "mla_up_proj", "moe_act"}),
    )  # fmt: skip
    return workload, cluster_of("h800-80gb-sxm", 2048, "fp8-block", constants, "hai-llm"), strategy


@CONSTANTS
@pytest.mark.parametrize("gpus, dp, published", [(8192, 64, 0.43), (16384, 128, 0.41)])
def test_llama_405b_reaches_its_published_mfu_at_sequence_8192(constants, gpus, dp, published):
    workload, cluster, strategy = llama(gpus, 1, dp, 8192, 2048, constants)
    found = utilisation(workload, cluster, estimate(workload, cluster, strategy).step_time)
    assert float(found) == pytest.approx(published, rel=WITHIN)


def test_llama_405b_at_sequence_131072_lies_between_the_two_ways_of_counting_attention():
    """CP 16, DP 8, 38 %. Scores are 40 % of the FLOPs if all are counted, and the publication does
    not say whether they are.
    """
    workload, cluster, strategy = llama(16384, 16, 8, 131072, 128, "bare")
    full = float(utilisation(workload, cluster, estimate(workload, cluster, strategy).step_time))
    counted = [
        training_flops_per_token(workload.model, 131072, convention=convention)
        for convention in ("causal", "full")
    ]
    assert full * counted[0] / counted[1] < 0.38 < full


def test_gpt3_on_4096_h100s_hides_its_gradients_beside_the_chunks_of_a_stage():
    """MLPerf Training v3.1 on 4,096 GPUs: 12 virtual stages on 8, 16 micro-batches. With a window
    of one it was 31 % slower than measured.
    """
    cases = [case for case in load(DATA)[0] if case.id == "mlperf-v31-gpt3-eos-4096"]
    (row,) = scored(cases, predict(cases))
    assert row.error == pytest.approx(0.0, abs=WITHIN)


def test_runs_that_captured_graphs_fit_their_devices_with_what_graphs_hold():
    """49 runs, the fullest with 8 x 4,096 tokens of Qwen3 30B on a B300; graphs of whole iterations
    hold most.
    """
    cases = [
        case
        for name in ("throughput", "mlperf", "bridge", "cloud")
        for case in load(DATA.with_stem(name))[0]
    ]
    captured = [case for case in cases if case.strategy.graphs is not Graphs.NONE]
    assert len(captured) >= 49
    found = predict(captured)
    assert not found.oversized().any()
    plain = predict(
        [replace(case, strategy=replace(case.strategy, graphs=Graphs.NONE)) for case in captured]
    )
    more = found.columns["peak"] / plain.columns["peak"] - 1
    assert 0.01 < more.min() < more.max() < 0.5


@CONSTANTS
def test_llama_405b_fits_its_h100s_without_recomputation(constants):
    workload, cluster, strategy = llama(16384, 1, 128, 8192, 2048, constants)
    memory = estimate(workload, cluster, strategy).footprint
    assert bool(memory.fits(cluster)), memory


@CONSTANTS
def test_deepseek_v3_takes_its_published_time(constants):
    """180 K GPU-hours a trillion tokens: 15360 x 4096 tokens a step on 2048 GPUs are 19.9 s."""
    published = 180e3 * HOUR / 1e12 * 15360 * 4096 / 2048
    assert published == pytest.approx(19.9, abs=0.01)
    workload, cluster, strategy = deepseek(constants)
    found = estimate(workload, cluster, strategy).step_time
    # The MFU is the published time over the found one, times the published MFU.
    assert published / float(found) == pytest.approx(1.0, abs=WITHIN)


@CONSTANTS
def test_deepseek_v3_fits_its_h800s(constants):
    workload, cluster, strategy = deepseek(constants)
    memory = estimate(workload, cluster, strategy).footprint
    assert bool(memory.fits(cluster)), memory


@pytest.mark.parametrize("row", measured("layer_forward_s", "layer_backward_s"))
def test_a_layer_of_the_22b_model_takes_its_measured_time(row):
    """Korthikanti et al. 2022, Table 4: one layer on eight A100s, tensor parallel, attention
    not fused.
    """
    assert row.predicted / row.figure.value == pytest.approx(1.0, abs=WITHIN)


@pytest.mark.parametrize("row", measured("activation_ratio"))
def test_activations_of_a_layer_have_their_published_ratio(row):
    """Korthikanti et al. 2022, Figure 7. What a stack stores beside the bare tensors is not counted
    with an input alone.
    """
    scale = shipped(row.case.key).memory.activation_scale if row.figure.basis == "full" else 1.0
    assert scale * row.predicted / row.figure.value == pytest.approx(1.0, abs=0.012)
