"""A size is the best question of several, and surely fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mofa_model import presets
from mofa_model.advice import Request, Status, advise, assumed_reliability, best_size, sizes_of
from mofa_model.errors import BadValue
from mofa_model.search import SearchCase
from mofa_model.spec import Training, Workload
from mofa_model.spec.tuning import Adapters

GPUS = ((1, 2), (1, 4), (1, 8), (4, 8))
"""Nodes, and GPUs on each of them."""


def asked(nodes, per_node, *, model="llama3.1-8b", batch=64, stack="megatron", **more):
    cluster = presets.cluster("h100", nodes * per_node, stack=stack, gpus_per_node=per_node)
    precision = presets.precision("bf16", stack=stack)
    training = Training(
        sequence=4096, global_batch=batch, precision=precision, tokens=10**10, **more
    )
    workload = Workload(model=presets.model(model), training=training)
    return Request(
        problems=(SearchCase(workload=workload, cluster=cluster),),
        reliability=assumed_reliability(4e11),
        nodes=nodes,
        framework=stack,
    )


@pytest.fixture(scope="module")
def sizes():
    return {
        objective: sizes_of([asked(*one) for one in GPUS], objective)
        for objective in ("least-gpu-hours", "soonest", "least-gpus")
    }


def test_every_size_that_is_offered_fits_with_99_percent(sizes):
    for some in sizes.values():
        assert all(one.advice.odds.fits >= 0.99 for one in some if one.fits)


def test_each_objective_picks_its_best_and_of_equals_the_fewest_gpus(sizes):
    picked = {name: best_size(some, name) for name, some in sizes.items()}
    assert picked["soonest"].advice.gpus == 32
    two = sizes["least-gpus"][0]
    assert (two.fits, two.advice.status) == (True, Status.RECOMMENDED)
    assert picked["least-gpus"] is two
    cheap = picked["least-gpu-hours"]
    least = min(one.device_seconds_per_token for one in sizes["least-gpu-hours"])
    assert cheap.device_seconds_per_token <= 1.01 * least
    assert not any(
        one.device_seconds_per_token <= 1.01 * least and one.advice.gpus < cheap.advice.gpus
        for one in sizes["least-gpu-hours"]
    )


def test_a_size_whose_layout_nobody_ran_is_passed_over_for_one_that_stands_alone():
    """14B on two and four GPUs fits where the optimizer lies on the host, which no run has."""
    some = sizes_of([asked(*one, model="qwen2.5-14b") for one in GPUS], "least-gpus")
    two, four, eight, _ = some
    assert [one.advice.status for one in (two, four)] == [Status.LOW_CONFIDENCE] * 2
    assert (two.fits, four.fits, best_size(some, "least-gpus")) == (True, True, eight)


def test_what_fits_no_size_has_no_size_and_says_why():
    small = sizes_of([asked(1, 1, model="llama3.1-70b")], "least-gpus")
    assert best_size(small, "least-gpus") is None
    assert "nothing fits on 1 node" in small[0].advice.explanation


def test_what_fits_but_not_surely_is_no_size():
    """The best layout with eight sequences a micro-batch fits four GPUs with 56 %."""
    tight = replace(asked(1, 4), constraints=("recompute=none", "mbs=8", "optimizer=distributed"))
    assert advise(tight).odds.fits == pytest.approx(0.56, abs=0.05)
    (size,) = sizes_of([tight], "least-gpus")
    assert size.advice.explanation == "no layout on 1 node fits with a probability of 99 %"


def test_adapters_need_fewer_gpus_than_all_weights():
    common = {"model": "llama3.1-70b", "batch": 16, "stack": "megatron-bridge"}
    found = {
        name: best_size(
            sizes_of([asked(*one, adapters=method, **common) for one in GPUS], "least-gpus"),
            "least-gpus",
        )
        for name, method in {"all": None, "adapters": Adapters(rank=16)}.items()
    }
    assert found["adapters"].advice.gpus < found["all"].advice.gpus


def test_an_objective_that_is_none_is_refused_with_those_that_are():
    with pytest.raises(BadValue, match="one of least-gpu-hours, soonest, least-gpus"):
        sizes_of([asked(1, 2)], "cheapest")
