"""Weights that wait in the host: what leaves the device, what the host holds, and what each gather
of them costs.
"""

from dataclasses import replace

import pytest
from questions import case

from mofa_model import presets
from mofa_model.equations.parameters import total_parameters
from mofa_model.estimate.gradient_exchange import gradient_exchange
from mofa_model.estimate.step import footprint
from mofa_model.launch.trainers import launch, read
from mofa_model.placement import stages_of
from mofa_model.spec import Training, Workload
from mofa_model.strategy import Placement, Recompute, Sharding, Strategy

MODEL = presets.model("llama3-8b")
CLUSTER = presets.cluster("h100", 8, stack="deepspeed")
HOST = Strategy(dp=8, sharding=Sharding.WEIGHTS, optimizer=Placement.HOST, recompute=Recompute.FULL)
AWAY = replace(HOST, host_weights=True)


def asked(batch=8):
    return Workload(
        model=MODEL,
        training=Training(sequence=4096, global_batch=batch, precision=presets.precision("bf16")),
    )


def of(strategy, batch=8):
    workload, stages = asked(batch), stages_of(MODEL, strategy, "even")
    sent = gradient_exchange(workload, CLUSTER, strategy, stages, batch // 8)
    return footprint(workload, CLUSTER, strategy, stages), sent


def test_a_share_of_the_weights_leaves_the_device_and_lies_in_the_host():
    """8.03e9 parameters of two bytes on eight devices are 2 GB of each; the host of all eight holds
    16 GB more.
    """
    (here, _), (away, _) = of(HOST), of(AWAY)
    share = 2.0 * total_parameters(MODEL) / 8
    assert float(here.peak - away.peak) == pytest.approx(share, rel=1e-3)
    assert float(away.host - here.host) == pytest.approx(8 * share, rel=1e-3)


def test_a_share_comes_from_the_host_before_each_gather_and_goes_back_with_no_update():
    """Two gathers a micro-batch: with four micro-batches eight times two GB over the
    host's link.
    """
    link = CLUSTER.host.link.bandwidth * CLUSTER.calibration.links.host_link_efficiency
    share = 2.0 * total_parameters(MODEL) / 8
    for rounds in (1, 4):
        (_, here), (_, away) = of(HOST, 8 * rounds), of(AWAY, 8 * rounds)
        assert float(away.collective - here.collective) == pytest.approx(
            2 * rounds * share / link, rel=1e-3
        )
        assert float(here.optimizer - away.optimizer) == pytest.approx(share / link, rel=1e-3)


def test_beside_whole_weights_it_says_nothing():
    for level in (Sharding.NONE, Sharding.OPTIMIZER, Sharding.GRADIENTS):
        (here, sent), (away, others) = (
            of(replace(HOST, sharding=level)),
            of(replace(AWAY, sharding=level)),
        )
        assert (float(here.peak), float(here.host)) == (float(away.peak), float(away.host))
        assert float(sent.collective) == float(others.collective)


def test_deepspeed_is_told_and_read_back():
    made = launch(
        AWAY, "deepspeed", case("llama3-8b", gpus=8, sequence=4096, batch=8, stack="deepspeed")
    )
    found = read(["--deepspeed", "c.json"], lambda _: made.files["ds_config.json"])
    assert (found.layout["host_weights"], found.layout["optimizer"]) == (True, Placement.HOST)
