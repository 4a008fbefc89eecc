"""Adapters beside frozen weights: parameters as published, and what a step and a device save."""

from dataclasses import replace

import numpy as np
import pytest

from mofa_model import presets
from mofa_model.answers.questions import ExplainQuestion
from mofa_model.answers.training import problems_of
from mofa_model.blocks import Layer
from mofa_model.equations.parameters import adapter_parameters, adapter_traffic, trained_parameters
from mofa_model.errors import InputError
from mofa_model.estimate import estimate
from mofa_model.estimate.activation_memory import stored_layers
from mofa_model.spec import Adapters, Training, Workload
from mofa_model.spec.tuning import Loss, Task
from mofa_model.strategy import Recompute, Sharding, Strategy

EVERY = frozenset({"attention", "mlp"})
CLUSTER = presets.cluster("h100", 64)


def adapters(rank, targets=EVERY):
    return Adapters(rank=rank, targets=targets) if rank else None


def found(rank, name="llama3-8b", targets=EVERY, **layout):
    training = Training(
        sequence=8192,
        global_batch=512,
        precision=presets.precision("bf16"),
        adapters=adapters(rank, targets),
    )
    chosen = Strategy(**(dict(tp=2, pp=2, dp=16, sequence_parallel=True) | layout))
    return estimate(Workload(model=presets.model(name), training=training), CLUSTER, chosen)


def trained(name, rank, targets=EVERY):
    return trained_parameters(presets.model(name), adapters(rank, targets))


def test_llama_8b_trains_41_943_040_parameters_at_rank_16():
    """What peft prints for all linear layers."""
    assert trained("llama3-8b", 16) == 41_943_040


def test_gpt3_trains_37_7_million_at_rank_8_on_queries_and_values():
    """Hu et al. 2021, Table 15: two of the four square matrices of 12288 in each of 96 layers,
    without the FFN.
    """
    assert trained("gpt3-175b", 8, frozenset({"q", "v"})) == pytest.approx(37.7e6, rel=0.01)


@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v3", "mixtral-8x7b", "gpt3-175b"])
def test_adapters_are_linear_in_their_rank_and_routed_experts_have_none(name):
    model = presets.model(name)
    assert trained(name, 64) == 64 * trained(name, 1) > 0
    for kind in model.kinds:
        assert adapter_traffic(kind, model.hidden, adapters(1)) > adapter_parameters(
            kind, model.hidden, adapters(1)
        )
        if kind.routed and not any(
            block.shared_width for block in kind.blocks if hasattr(block, "shared_width")
        ):
            rest = Layer(tuple(block for block in kind.blocks if block.exchange() is None))
            assert adapter_parameters(kind, model.hidden, adapters(1)) == adapter_parameters(
                rest, model.hidden, adapters(1)
            )


@pytest.mark.parametrize("sharding", Sharding)
def test_frozen_weights_have_no_gradients_and_no_states(sharding):
    whole, some = found(0, sharding=sharding).footprint, found(16, sharding=sharding).footprint
    share = 41_943_040 / 8_030_261_248
    for term in ("gradients", "optimizer"):
        ratio = np.max(getattr(some, term)) / np.max(getattr(whole, term))
        assert ratio == pytest.approx(share, rel=0.35)  # neither embedding nor head have adapters
    assert np.max(some.total) < np.max(whole.total)


def test_a_step_saves_the_gradients_of_weights_and_their_exchange():
    whole, some = found(0), found(16)
    assert some.layer_times[0].weight == 0.0
    assert some.layer_times[0].backward < whole.layer_times[0].backward
    assert (
        some.layer_times[0].forward > whole.layer_times[0].forward
    )  # adapters are passed through as well
    assert some.step_inputs.exchange.collective < 0.2 * whole.step_inputs.exchange.collective
    # Adapters beside all seven linear layers take back most of what frozen weights save; those of
    # attention alone do not: 0.86 on A100 with LoRA on q, k, v and o (fms-acceleration).
    assert some.step_time < whole.step_time
    assert 0.6 < found(16, targets=frozenset({"attention"})).step_time / whole.step_time < 0.95


def test_more_rank_costs_memory_and_no_rank_is_training_of_all_weights():
    small, large = found(8), found(512)
    assert small.footprint.peak < large.footprint.peak < found(0).footprint.peak


def test_full_sharding_still_gathers_frozen_weights():
    sharded = found(16, sharding=Sharding.WEIGHTS).step_inputs.exchange.collective
    assert sharded > found(16).step_inputs.exchange.collective
    assert sharded < found(0, sharding=Sharding.WEIGHTS).step_inputs.exchange.collective


def kept(targets, recompute=Recompute.NONE, name="llama3-8b", **more):
    """Bytes of one layer of one micro-batch on one device, by the linear layers with adapters."""
    training = Training(
        sequence=8192,
        global_batch=8,
        precision=presets.precision("bf16"),
        adapters=adapters(16, frozenset(targets)) if targets else None,
        **more,
    )
    workload = Workload(model=presets.model(name), training=training)
    layout = Strategy(tp=1, pp=1, dp=8, recompute=recompute)
    return stored_layers(workload, CLUSTER.calibration.memory, layout)[0].stored / 8192


def test_inputs_of_frozen_layers_are_not_kept_unless_an_adapter_reads_them():
    """Llama 3 8B, bytes a token and layer in bf16: both norm outputs (2 x 2 x 4096) and the input
    of the last matrix (2 x 14336) go; an adapter keeps its own input and 16 numbers."""
    whole = kept(())
    assert kept({"o"}) == whole - 2 * 2 * 4096 - 2 * 14336 + 2 * 16
    assert kept({"q", "v"}) == kept({"o"}) + 2 * 4096 + 2 * 16
    assert kept({"down"}) == kept({"o"}) + 2 * 14336
    assert kept({"attention", "mlp"}) == whole + 7 * 2 * 16


def test_the_adapters_of_experts_read_what_the_experts_were_sent():
    """Mixtral: two experts a token, each with its input of 4096 and what 14336 neurons say."""
    some = kept({"attention"}, name="mixtral-8x7b")
    both = kept({"attention", "experts"}, name="mixtral-8x7b")
    assert both - some == 2 * 2 * (4096 + 14336 + 3 * 16)


def memory(base="bf16", **more):
    training = Training(
        sequence=4096,
        global_batch=1,
        precision=presets.precision("bf16"),
        adapters=Adapters(rank=16, base=presets.base(base)),
        **more,
    )
    workload = Workload(model=presets.model("llama3-8b"), training=training)
    return estimate(workload, presets.cluster("h100", 1), Strategy(recompute=Recompute.FULL))


@pytest.mark.parametrize(
    ("base", "width"), [("fp8", 1.0), ("nf4", 0.5625), ("nf4-double", 0.515869140625)]
)
def test_frozen_matrices_of_layers_have_the_width_of_their_format(base, width):
    """6.98 billion weights of layers; embedding and head, 1.05 billion, stay in bf16."""
    saved = np.max(memory().footprint.weights) - np.max(memory(base).footprint.weights)
    assert saved == pytest.approx(32 * 218_103_808 * (2 - width))


def test_four_bits_are_unpacked_for_every_product():
    """The widest matrix of Llama 3 8B takes 112 MiB in bf16, and each pass writes every matrix."""
    assert np.max(memory("nf4").footprint.buffers - memory("fp8").footprint.buffers) == (
        2 * 4096 * 14336
    )
    assert memory("nf4").step_time > memory("fp8").step_time == memory().step_time


def full(**more):
    more = {"precision": presets.precision("bf16-pure")} | more
    training = Training(sequence=4096, global_batch=1, **more)
    workload = Workload(model=presets.model("llama3-8b"), training=training)
    return estimate(workload, presets.cluster("h100", 1), Strategy(recompute=Recompute.FULL))


def test_pure_bf16_has_no_master_weight():
    """8.03 billion weights: 16 B each with a master weight and fp32 gradients, 8 with
    bf16 alone.
    """
    pure = full(optimizer=presets.optimizer("adamw-bf16")).footprint
    assert np.max(pure.states) == pytest.approx(8 * 8.03e9, rel=0.001)
    mixed = full(precision=presets.precision("bf16")).footprint
    assert np.max(mixed.states) == pytest.approx(18 * 8.03e9, rel=0.001)


def test_a_released_gradient_is_not_held_unless_gradients_are_accumulated():
    assert np.max(full(released=True).footprint.gradients) == 0
    several = replace(full(released=True).step_inputs.workload.training, global_batch=2)
    workload = Workload(model=presets.model("llama3-8b"), training=several)
    accumulated = estimate(workload, presets.cluster("h100", 1), Strategy())
    assert np.max(accumulated.footprint.gradients) == pytest.approx(2 * 8.03e9, rel=0.001)


def test_paged_states_wait_in_the_host_and_take_its_link():
    plain, paged = (
        full(optimizer=presets.optimizer(f"{name}adamw-8bit")) for name in ("", "paged-")
    )
    assert np.max(paged.footprint.optimizer) == 0 < np.max(paged.footprint.host)
    assert paged.step_inputs.exchange.optimizer > plain.step_inputs.exchange.optimizer


def test_a_loss_in_chunks_holds_fewer_logits_and_a_fused_one_hardly_any():
    whole, chunked, fused = (
        np.max(memory(loss=one).footprint.logits) for one in (Loss.WHOLE, Loss.CHUNKED, Loss.FUSED)
    )
    assert whole > 2.5 * chunked > 10 * fused > 0


def test_a_preference_needs_a_second_forward_pass_and_where_all_is_trained_a_second_model():
    sft, dpo = (full(task=one) for one in (Task.SFT, Task.DPO))
    assert np.max(dpo.footprint.weights) == pytest.approx(2 * np.max(sft.footprint.weights))
    assert 1.15 < dpo.step_time / sft.step_time < 1.35  # one forward of four passes
    beside = (memory(task=one) for one in (Task.SFT, Task.DPO))
    first, second = (np.max(one.footprint.weights) for one in beside)
    assert first == second


def test_a_teacher_is_in_memory_and_takes_its_forward_pass():
    teacher = presets.model("llama3-70b")
    alone, taught = full(), full(task=Task.DISTILL, teacher=teacher)
    more = np.max(taught.footprint.weights) - np.max(alone.footprint.weights)
    assert more == pytest.approx(2 * 70.55e9, rel=0.001)
    assert 2.5 < taught.step_time / alone.step_time < 4.0  # 8.8 times a forward pass


def test_a_reward_has_one_number_in_the_place_of_the_vocabulary():
    reward, whole = full(task=Task.REWARD).footprint, full().footprint
    assert np.max(reward.logits) < 0.02 * np.max(whole.logits)
    saved = np.max(whole.weights) - np.max(reward.weights)
    assert saved == pytest.approx(2 * 128256 * 4096)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"adapter_targets": "wq"}, "--lora-targets: unknown name 'wq'"),
        (
            {"adapter_rank": 0, "base": "nf4"},
            "--base: 'nf4' cannot be right; give the rank of adapters",
        ),
        ({"task": "distill"}, "--teacher"),
        ({"base": "nf5"}, "--base: unknown name 'nf5'"),
    ],
)
def test_what_has_no_meaning_is_refused_in_one_sentence(words, said):
    asked = dict(model="llama3-8b", gpu="h100", gpus=8, sequence_length=4096, global_batch_size=8)
    question = ExplainQuestion(**asked, **{"adapter_rank": 16} | words)
    with pytest.raises(InputError) as error:
        problems_of(question)
    assert said in str(error.value)


def test_the_gradient_of_an_input_that_is_not_kept_is_made_all_the_same():
    """Llama 3 8B: the last matrix hands on a gradient of 14336 numbers, frozen or not; measured on
    one A100 by fms-acceleration, 31.3 GiB of eight sequences of 4096 with a fused loss
    (31.2 here).
    """
    training = Training(
        sequence=4096,
        global_batch=8,
        precision=presets.precision("bf16"),
        adapters=adapters(16, frozenset({"attention"})),
        loss=Loss.FUSED,
    )
    workload = Workload(model=presets.model("llama3-8b"), training=training)
    cluster = presets.cluster("a100", 1, stack="accelerate")
    found = estimate(workload, cluster, Strategy(mbs=8, recompute=Recompute.FULL))
    assert float(found.footprint.allocated) / 2**30 == pytest.approx(31.3, rel=0.02)
