"""What a search finds for a trainer its launch can say, and the words say the same again: strategy,
flags, strategy, price.
"""

import random
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import megatron_rules as rules
import numpy as np
import pytest
from shapes import decoder

from mofa_model.blocks import Experts, LatentAttention, SoftmaxAttention
from mofa_model.estimate import estimate
from mofa_model.launch import TRAINERS, launch, read
from mofa_model.schedules import INTERLEAVED, ONE_F_ONE_B
from mofa_model.search import SearchCase, SearchQuestion, framework, parse_constraint, search
from mofa_model.spec import (
    Cluster,
    Device,
    Link,
    Precision,
    Training,
    Workload,
)
from mofa_model.strategy import AXES, Recompute

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import layouts

ATTENTION = SoftmaxAttention(heads=16, kv_heads=8, head_dim=128)
SMALL = dict(hidden=2048, ffn=8192, vocabulary=32000)
DENSE = decoder("dense", layers=10, attention=ATTENTION, **SMALL)
EXPERTS = dict(layers=7, experts=Experts(count=8, top_k=2, width=2048), dense_layers=1)
MIXTURE = decoder("mixture", attention=ATTENTION, **EXPERTS, **SMALL)
LATENT = decoder(
    "latent",
    attention=LatentAttention(
        heads=16, query_rank=512, kv_rank=256, nope_dim=64, rope_dim=32, value_dim=64
    ),
    prediction_modules=1,
    **EXPERTS,
    **SMALL,
)
MODELS = {"dense": DENSE, "mixture": MIXTURE, "latent": LATENT}
LIMITS = {
    "torchtitan": ("mbs<=2", "cp<=2"),
    "megatron": (
        "offload=none,activations",
        "mbs<=2",
        "cp<=2",
        "recompute=none,selective,full:2,full",
    ),
    "nemo": ("offload=none,activations", "mbs<=2", "cp<=2", "recompute=none,selective,full:2,full"),
    "deepspeed": ("offload=none,activations", "mbs<=2", "cp<=2"),
    "accelerate": ("offload=none,activations", "cp-mode=ring,a2a,allgather"),
}
SOAKED = {("nemo", "mixture"), ("nemo", "latent"), ("megatron", "mixture")}
"""Megatron's attention is asked with a dense model, its experts with a latent one."""
ASKED = 250
"""Strategies that are asked of each search, drawn from all that it finds."""


def problem_of(model):
    device = Device(name="test", peak_bf16=400e12, memory=40e9, memory_bandwidth=2e12)
    cluster = Cluster(
        device=device, gpus=16, scale_up=Link(bandwidth=300e9), scale_out=Link(bandwidth=25e9)
    )
    training = Training(sequence=4096, global_batch=32, precision=Precision(name="bf16"))
    return SearchCase(workload=Workload(model=model, training=training), cluster=cluster)


@cache
def reached(trainer, name):
    """The strategies that are asked: of all that a search finds for a trainer, those that a lot
    makes the best.
    """
    lot = np.random.default_rng(0)
    question = SearchQuestion(
        problems=(problem_of(MODELS[name]),),
        nodes=(2,),
        framework=framework(trainer),
        constraints=tuple(map(parse_constraint, LIMITS.get(trainer, ()))),
        keep=ASKED,
        score=lambda *_: lambda step, *_: lot.random(step.shape),
        least_score=lambda *_: 1e-300,
    )
    ranking = search(question)
    assert ranking.searched > ASKED or trainer not in LIMITS
    return [one.strategy for one in ranking.best[2]]


def acting(strategy, experts):
    """What a strategy says, axis by axis, where the axis has something to act on."""
    s = strategy
    copies = s.expert_data_ranks if experts else s.data_ranks
    rows = {name: np.array([float(getattr(s, name))]) for name in ("tp", "pp", "ep", "data_ranks")}
    rows["expert_data_ranks"] = np.array([float(copies)])
    return {
        axis.name: axis.value_of(s) for axis in AXES if axis.idle is None or not axis.idle(rows)[0]
    }


def price(problem, strategy):
    """Time and memory, to the bit."""
    cluster = replace(problem.cluster, gpus=strategy.gpus)
    found = estimate(problem.workload, cluster, strategy)
    return float(found.step_time), float(found.footprint.peak), float(found.footprint.host)


def said_again(problem, strategy, trainer):
    """The launch of a strategy, which is read as the same strategy at the same price."""
    words = launch(strategy, trainer, problem, interval_steps=10)
    model = problem.workload.model
    again = read([*words.starter, *words.arguments], words.files.get).strategy(
        int(strategy.gpus), layers=model.layers
    )
    experts = model.experts is not None
    assert acting(again, experts) == acting(strategy, experts)
    if again != strategy:
        assert price(problem, again) == price(problem, strategy)
    return words


@pytest.mark.parametrize(
    "trainer, name",
    [
        # NeMo reaches what Megatron does: one model shows its words, `make soak` the others
        pytest.param(trainer, name, marks=[pytest.mark.soak] * ((trainer, name) in SOAKED))
        for trainer in TRAINERS
        for name, model in MODELS.items()
        if framework(trainer).missing(problem_of(model).workload) is None
    ],
)
def test_what_a_search_finds_for_a_trainer_its_launch_says_and_reads_again(trainer, name):
    problem = problem_of(MODELS[name])
    model = problem.workload.model
    experts = model.experts is not None
    for strategy in reached(trainer, name):
        words = said_again(problem, strategy, trainer)
        if trainer == "megatron":
            brought = {
                "layers": model.layers,
                "experts": 8 * experts,
                "predictions": model.prediction_modules,
            }
            latent = isinstance(next(iter(model.blocks)), LatentAttention)
            given = rules.started(
                words.arguments, words.environment, gpus=16, latent=latent, **brought
            )
            assert rules.broken(given) == []


def test_megatron_reaches_what_the_law_is_about():
    """A guard: interleaving, uneven stages, copies, offload and overlap of experts are all among
    what is asked.
    """
    found = reached("megatron", "latent")
    assert {s.schedule for s in found} == {ONE_F_ONE_B, INTERLEAVED}
    assert {bool(s.offload) for s in found} == {True, False}
    assert {s.expert_overlap for s in found} == {True, False}
    assert {s.recompute for s in found} == set(Recompute)
    assert any(7 % (s.pp * s.vpp) and 9 % (s.pp * s.vpp) for s in found)


@pytest.mark.soak
@pytest.mark.parametrize("trainer", TRAINERS)
def test_ten_thousand_random_strategies_are_their_own_launch_read_back(trainer):
    for kind in layouts.MODELS:
        left = 3400
        asked = layouts.questions(
            random.Random(f"{trainer} {kind}"), trainer, kind, trainer, sample=400
        )
        while left > 0:
            problem, found = next(asked)
            for strategy in found:
                said_again(problem, strategy, trainer)
            left -= len(found)
