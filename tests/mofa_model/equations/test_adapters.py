"""Adapters beside frozen weights: parameters as published, and what a step and a device save."""

import numpy as np
import pytest

from mofa_model import presets
from mofa_model.blocks import Layer, SoftmaxAttention
from mofa_model.equations.parameters import adapter_parameters, adapter_traffic
from mofa_model.estimate import estimate
from mofa_model.spec import Training, Workload
from mofa_model.strategy import Sharding, Strategy

CLUSTER = presets.cluster("h100", 64)


def found(rank, name="llama3-8b", **layout):
    training = Training(
        sequence=8192, global_batch=512, precision=presets.precision("bf16"), adapter_rank=rank
    )
    chosen = Strategy(**(dict(tp=2, pp=2, dp=16, sequence_parallel=True) | layout))
    return estimate(Workload(model=presets.model(name), training=training), CLUSTER, chosen)


def trained(name, rank):
    model = presets.model(name)
    return sum(
        model.number(kind) * adapter_parameters(kind, model.hidden, rank) for kind in model.kinds
    )


def test_llama_8b_trains_41_943_040_parameters_at_rank_16():
    """What peft prints for all linear layers."""
    assert trained("llama3-8b", 16) == 41_943_040


def test_gpt3_trains_37_7_million_at_rank_8_on_queries_and_values():
    """Hu et al. 2021, Table 15: two of the four square matrices of 12288 in each of 96 layers, without the FFN."""
    model = presets.model("gpt3-175b")
    attention = Layer(tuple(b for b in model.kinds[0].blocks if isinstance(b, SoftmaxAttention)))
    assert 96 * adapter_parameters(attention, model.hidden, 8) / 2 == pytest.approx(
        37.7e6, rel=0.01
    )


@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v3", "mixtral-8x7b", "gpt3-175b"])
def test_adapters_are_linear_in_their_rank_and_routed_experts_have_none(name):
    model = presets.model(name)
    assert trained(name, 64) == 64 * trained(name, 1) > 0
    for kind in model.kinds:
        assert adapter_traffic(kind, model.hidden) > adapter_parameters(kind, model.hidden, 1)
        if kind.routed and not any(
            block.shared_width for block in kind.blocks if hasattr(block, "shared_width")
        ):
            rest = Layer(tuple(block for block in kind.blocks if block.exchange() is None))
            assert adapter_parameters(kind, model.hidden, 1) == adapter_parameters(
                rest, model.hidden, 1
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
    assert 0.6 < some.step_time / whole.step_time < 0.95


def test_more_rank_costs_memory_and_no_rank_is_training_of_all_weights():
    small, large = found(8), found(512)
    assert small.footprint.peak < large.footprint.peak < found(0).footprint.peak


def test_full_sharding_still_gathers_frozen_weights():
    sharded = found(16, sharding=Sharding.WEIGHTS).step_inputs.exchange.collective
    assert sharded > found(16).step_inputs.exchange.collective
    assert sharded < found(0, sharding=Sharding.WEIGHTS).step_inputs.exchange.collective
