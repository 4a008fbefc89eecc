"""A family is priced by its distinct rows, and every row has the figures of that layout alone, bit
for bit.
"""

from dataclasses import replace

import numpy as np
import pytest

from mofa_model import presets
from mofa_model.estimate import estimate
from mofa_model.estimate.activation_memory import stored_layers
from mofa_model.estimate.layer_time import layer_times
from mofa_model.schedules import INTERLEAVED
from mofa_model.spec import Training, Workload
from mofa_model.strategy import Graphs, Recompute, Sharding, Strategy

ROWS = 600
"""More than the rows from which equal ones are looked for."""


def workload(name):
    training = Training(sequence=4096, global_batch=1536, precision=presets.precision("bf16"))
    return Workload(model=presets.model(name), training=training)


def family(experts):
    draw = np.random.default_rng(5).choice
    tp, pp = draw([1.0, 2.0, 4.0], ROWS), draw([2.0, 4.0, 8.0], ROWS)
    return Strategy(
        tp=tp,
        pp=pp,
        cp=draw([1.0, 2.0], ROWS),
        dp=64.0 / (tp * pp),
        ep=draw([1.0, 4.0], ROWS) if experts else 1.0,
        chunks=draw([1.0, 2.0], ROWS) if experts else 1.0,
        vpp=draw([1.0, 2.0], ROWS),
        mbs=draw([1.0, 2.0], ROWS),
        recompute_layers=draw([0.0, 1.0, 2.0], ROWS),
        schedule=INTERLEAVED,
        sharding=Sharding.GRADIENTS,
        sequence_parallel=True,
        recompute=Recompute.FULL,
        offload=frozenset({"activations"}),
    )


@pytest.mark.parametrize("name", ["gpt3-175b", "mixtral-8x7b"])
def test_each_of_twelve_rows_of_600_has_the_figures_of_its_layout_alone(name):
    asked, cluster = workload(name), presets.cluster("h100", 64)
    many = family(name == "mixtral-8x7b")
    whole = estimate(asked, cluster, many)
    for row in range(0, ROWS, 50):
        alone = estimate(asked, cluster, many.row(row))
        for found, own in (
            (whole.step_time, alone.step_time),
            (whole.footprint.peak, alone.footprint.peak),
            (sum(whole.head_time.values()), sum(alone.head_time.values())),
            (whole.layer_times[-1].backward, alone.layer_times[-1].backward),
        ):
            assert np.asarray(found)[row] == float(own)


def test_graphs_change_no_work_of_a_layer():
    asked, cluster = workload("mixtral-8x7b"), presets.cluster("h100", 64)
    plain = Strategy(tp=2, pp=4, dp=8, ep=4)
    for graphs in Graphs:
        captured = replace(plain, graphs=graphs)
        assert layer_times(asked, cluster, captured) == layer_times(asked, cluster, plain)
        memory = cluster.calibration.memory
        assert stored_layers(asked, memory, captured) == stored_layers(asked, memory, plain)
