"""What Megatron itself holds on a GPU, as `make oracle` recorded it: parameters and static bytes
are ours, less norms.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mofa_model.estimate.model_states import model_states
from mofa_model.placement import kind_of_stages, stages_of
from mofa_model.strategy import Placement, Sharding, parse_strategy

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import launches
import layouts

LAYOUTS = json.loads(launches.RECORD.read_text(encoding="utf-8"))["megatron"]["counted"]["layouts"]
VECTORS = 3e-4
"""Norms and biases of routers, which we leave out, of all parameters; at most, as every rank of tp
= 8 has them whole.
"""
STATES = 12
"""Bytes of master weights and two moments. [B]"""


def held(one):
    """What we say of a recorded layout: for each stage parameters, weights, gradients and
    optimizer states.
    """
    strategy = parse_strategy(one["strategy"], one["gpus"])
    problem = layouts.problem_of(one["model"], "megatron", one["gpus"], **one["run"])
    workload, rule = problem.workload, problem.cluster.calibration.placement
    stages = stages_of(workload.model, strategy, rule)
    kinds = kind_of_stages(workload.model, strategy, rule)

    def by_stage(terms):
        every = np.broadcast_to(np.asarray(terms, dtype=float).reshape(-1), (max(kinds) + 1,))
        return [float(every[kind]) for kind in kinds]

    plain = replace(strategy, sharding=Sharding.NONE, optimizer=Placement.DEVICE)
    whole = model_states(workload, problem.cluster, plain, stages).weights
    own = model_states(workload, problem.cluster, strategy, stages)
    parameters = [size / workload.training.precision.weight for size in by_stage(whole)]
    return zip(parameters, *map(by_stage, (own.weights, own.gradients, own.optimizer)), strict=True)


@pytest.mark.parametrize("kind", layouts.MODELS)
def test_a_rank_holds_what_megatron_itself_holds(kind):
    mine = [one for one in LAYOUTS if one["model"] in layouts.MODELS[kind]]
    assert len(mine) == layouts.COUNTED
    for one in mine:
        ours = list(held(one))
        for stage, (dense, experts, *rest) in one["held"].items():
            parameters, *said = ours[int(stage)]
            assert parameters == pytest.approx(dense + experts, rel=VECTORS)
            if rest:
                weights, gradients, states = rest
                assert said == pytest.approx([weights, gradients, STATES * states], rel=VECTORS)


def test_bytes_are_among_what_is_held_to():
    assert sum(len(stage) > 2 for one in LAYOUTS for stage in one["held"].values()) >= 40
