"""Bytes, products and traffic of other optimizers than AdamW, against what their papers say."""

from dataclasses import replace

import numpy as np
import pytest

from mofa_model import presets
from mofa_model.equations.compute import update_bytes
from mofa_model.equations.memory import state_bytes
from mofa_model.equations.optimizers import newton_schulz_flops
from mofa_model.estimate import estimate
from mofa_model.spec import Training, Workload
from mofa_model.strategy import Placement, Sharding, Strategy

WORK = Workload(
    model=presets.model("llama3-70b"),
    training=Training(sequence=8192, global_batch=512, precision=presets.precision("bf16")),
)
CLUSTER = presets.cluster("h100", 64)
LAYOUT = Strategy(tp=4, pp=2, dp=8, sequence_parallel=True)


def under(name, layout=LAYOUT, work=WORK):
    training = replace(work.training, optimizer=presets.optimizer(name))
    return estimate(replace(work, training=training), CLUSTER, layout)


def test_newton_schulz_costs_half_a_percent_of_llama_405b_with_16_million_tokens():
    """Jordan et al., Muon: T m / B of a step's FLOPs, 5 x 16384 / 16e6."""
    assert newton_schulz_flops(1.0, 16384, 5) / (6.0 * 16e6) == pytest.approx(0.005, rel=0.03)


def test_a_gather_in_bf16_adds_a_quarter_to_what_a_sharded_adamw_sends():
    """Liu et al., Moonlight: between 1 and 1.25 of it, with fp32 gradients and weights, 8 bytes
    a parameter.
    """
    assert 1 + presets.optimizer("muon").gather / 8.0 == 1.25


@pytest.mark.parametrize(
    "name, width",
    [
        ("adamw", 12.0),
        ("muon", 8.0),
        ("lion", 8.0),
        ("sgd", 4.0),
        ("adafactor", 4.0),
        ("adamw-8bit", 6.03125),
    ],
)
def test_a_device_keeps_master_weights_and_states(name, width):
    """Bytes of the published states over those of AdamW, where nothing is sharded; embedding and
    head may differ.
    """
    plain, other = (
        under(one, replace(LAYOUT, sharding=Sharding.NONE)).footprint for one in ("adamw", name)
    )
    rule = presets.optimizer(name)
    middle = np.asarray(other.optimizer / plain.optimizer)
    mixed = 1.0 if rule.outside == rule.states else 0.1
    assert float(middle.min()) == pytest.approx(
        width / 12.0, abs=mixed * 1e-9 if mixed == 1.0 else mixed
    )


def test_muon_holds_less_and_takes_longer_and_the_host_cannot_hide_it():
    adam, muon, sgd = (under(name) for name in ("adamw", "muon", "sgd"))
    assert sgd.footprint.peak < muon.footprint.peak < adam.footprint.peak
    assert adam.step_terms.optimizer < muon.step_terms.optimizer
    assert sgd.step_terms.optimizer < adam.step_terms.optimizer
    assert adam.stage_time.slowest == muon.stage_time.slowest


def test_sharding_divides_the_products_of_muon():
    whole = under("muon", replace(LAYOUT, sharding=Sharding.NONE)).step_terms.optimizer
    assert under("muon").step_terms.optimizer < whole / 4


def test_states_on_the_host_are_parked_there_for_every_optimizer():
    parked = [
        under(n, replace(LAYOUT, optimizer=Placement.HOST)).footprint.host for n in ("adamw", "sgd")
    ]
    assert 0 < parked[1] < parked[0]


def test_adamw_is_to_the_bit_what_it_was():
    assert state_bytes(12.0, 8.0, 8.0) == 12.0
    assert update_bytes(30.0, 8.0, 8.0) == 30.0
