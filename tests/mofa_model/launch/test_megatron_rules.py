"""Ordinary Megatron launches start: megatron-core's own rules hold for what is printed, and flags
say what was priced.
"""

from dataclasses import replace

import megatron_rules as rules
import pytest
from questions import case

from mofa_model.estimate import estimate
from mofa_model.launch import launch, read_layout
from mofa_model.search import SearchQuestion, framework, parse_constraint, search

LAUNCHES = [
    # model, device, devices, tokens, batch, constraints, precision
    ("deepseek-v3", "h800", 2048, 4096, 15360, (), "bf16"),
    ("deepseek-v3", "h800", 2048, 4096, 15360, (), "fp8-block"),
    ("mixtral-8x7b", "h100", 64, 4096, 1024, (), "bf16"),
    ("mixtral-8x22b", "h100", 128, 4096, 1024, (), "bf16"),
    ("qwen3-235b-a22b", "h100", 256, 4096, 2048, (), "bf16"),
    ("qwen3-30b-a3b", "h100", 64, 4096, 1024, ("recompute=selective:moe_act",), "bf16"),
    ("qwen3-30b-a3b", "a100", 16, 4096, 512, (), "bf16"),
    ("kimi-k2", "h100", 512, 4096, 8192, ("pp=8", "vpp=4"), "bf16"),
    ("mixtral-8x7b", "h100", 128, 4096, 1024, ("ep=8", "pp=4", "ep-overlap=true"), "bf16"),
    ("mixtral-8x7b", "h100", 128, 4096, 1024, ("ep=8", "recompute=full,selective:moe"), "bf16"),
    ("llama3.1-405b", "h100", 2048, 8192, 2048, (), "bf16"),
    ("llama3.1-405b", "h100", 2048, 8192, 2048, ("recompute=selective",), "fp8-delayed"),
    ("llama3.1-405b", "h100", 2048, 8192, 2048, ("offload=activations",), "bf16"),
    ("llama3-8b", "h100", 64, 8192, 512, (), "bf16"),
    ("llama3-8b", "a100", 8, 8192, 128, ("tp=2",), "bf16"),
    ("llama3-8b", "h100", 64, 32768, 512, ("cp=4", "cp-mode=a2a"), "bf16"),
    ("qwen3-32b", "a100", 128, 8192, 1024, (), "bf16"),
    ("llama3-70b", "a100", 256, 8192, 1024, (), "bf16"),
    ("llama3-70b", "h100", 512, 8192, 2048, (), "bf16"),
    ("llama3-8b", "a100", 64, 8192, 512, ("sharding=zero3", "tp=2"), "bf16"),
    ("llama3-8b", "a100", 64, 8192, 512, ("sharding=zero3@node",), "bf16"),
    ("qwen3-32b", "a100", 128, 8192, 1024, ("sharding=zero3",), "bf16"),
    ("qwen3-235b-a22b", "h100", 256, 4096, 2048, ("sharding=zero3",), "bf16"),
    ("deepseek-v3", "h800", 2048, 4096, 15360, ("sharding=zero3",), "bf16"),
    (
        "deepseek-v3",
        "h100",
        512,
        4096,
        8192,
        ("offload=activations", "recompute=selective"),
        "bf16",
    ),
]
"""What people ask for: eleven mixtures, five fully sharded, and the flagship with and
without offload.
"""


def found_by_search(problem, constraints, trainer="megatron", keep=3):
    question = SearchQuestion(
        problems=(problem,),
        nodes=(int(problem.cluster.gpus) // 8,),
        framework=framework(trainer),
        constraints=tuple(map(parse_constraint, constraints)),
        keep=keep,
    )
    ((best),) = search(question).best.values()
    return [one.strategy for one in best]


def as_started(problem, strategy):
    model, words = problem.workload.model, launch(strategy, "megatron", problem)
    return rules.started(
        words.arguments,
        words.environment,
        gpus=int(problem.cluster.gpus),
        layers=model.layers,
        experts=0 if model.experts is None else model.experts.count,
        predictions=model.prediction_modules,
        latent=not hasattr(next(iter(model.blocks)), "kv_heads"),
    )


@pytest.mark.parametrize("name, device, gpus, tokens, batch, constraints, precision", LAUNCHES)
def test_an_ordinary_launch_holds_the_rules_of_megatron_core_and_says_what_was_priced(
    name, device, gpus, tokens, batch, constraints, precision
):
    problem = case(
        name, device=device, gpus=gpus, sequence=tokens, batch=batch, precision=precision
    )
    for strategy in found_by_search(problem, constraints):
        assert rules.broken(as_started(problem, strategy)) == []
        words = launch(strategy, "megatron", problem).arguments
        again = read_layout(words, gpus, layers=problem.workload.model.layers)
        assert again == strategy
        priced, back = (
            estimate(problem.workload, problem.cluster, one) for one in (strategy, again)
        )
        assert float(back.step_time) == float(priced.step_time)
        assert (float(back.footprint.peak), float(back.footprint.host)) == (
            float(priced.footprint.peak),
            float(priced.footprint.host),
        )
        assert float(priced.footprint.host) <= 0.8 * float(problem.cluster.host.memory)


PRINTED_BY_0_1_0 = [
    (
        "8B on 64 A100",
        (
            "--tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer --use-megatron-fsdp"
            " --ckpt-format fsdp_dtensor --micro-batch-size 4 --global-batch-size 512 --bf16"
        ),
        {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        {"fsdp_runs_with_more_than_one_connection"},
    ),
    (
        "Mixtral 8x7B on 64 H100, layers as the flags had them",
        (
            "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 16 --expert-model-parallel-size 8"
            " --expert-tensor-parallel-size 1 --micro-batch-size 2 --global-batch-size 1024 --use-distributed-optimizer"
            " --overlap-moe-expert-parallel-comm --recompute-granularity selective --recompute-modules layernorm moe_act"
            " --bf16"
        ),
        {},
        {
            "expert_overlap_names_a_dispatcher",
            "the_activation_of_experts_is_recomputed_in_grouped_products",
        },
    ),
    (
        "Qwen3 235B on 256 H100, on 64",
        (
            "--expert-model-parallel-size 16 --expert-tensor-parallel-size 1 --micro-batch-size 8 --global-batch-size 2048"
            " --recompute-granularity selective --recompute-modules layernorm moe --fine-grained-activation-offloading"
            " --offload-modules attn_norm qkv_linear core_attn attn_proj mlp_norm expert_fc1 moe_act --bf16"
            " --overlap-moe-expert-parallel-comm"
        ),
        {},
        {
            "expert_overlap_names_a_dispatcher",
            "expert_overlap_recomputes_neither_layers_nor_experts",
            "offload_leaves_recomputed_experts_alone",
            "offload_keeps_weights_where_they_are",
        },
    ),
    (
        "copies that the ranks of experts do not divide into",
        (
            "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --micro-batch-size 1 --global-batch-size 64"
            " --use-distributed-optimizer --num-distributed-optimizer-instances 16 --bf16"
        ),
        {},
        {"instances_divide_the_data_parallel_ranks_of_experts"},
    ),
    (
        "405B in fp8, with a save that waits",
        (
            "--tensor-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 64 --fp8-format hybrid"
            " --fp8-recipe delayed --recompute-granularity selective --recompute-modules layernorm --tp-comm-overlap"
            " --async-save"
        ),
        {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        {
            "delayed_scaling_recomputes_no_norms_and_no_activation",
            "tensor_overlap_needs_sequence_parallelism",
            "experts_beside_tensor_parallelism_need_sequence_parallelism",
            "a_save_in_the_background_has_a_worker",
        },
    ),
]
"""A guard of the rules: words that were printed once, and what they break."""


@pytest.mark.parametrize(
    "_, words, variables, expected", PRINTED_BY_0_1_0, ids=[c[0] for c in PRINTED_BY_0_1_0]
)
def test_launches_that_were_printed_before_break_the_rules(_, words, variables, expected):
    model = {"gpus": 64, "layers": 32, "experts": 64, "predictions": 0, "latent": False}
    found = rules.broken(rules.started(words.split(), variables, **model))
    assert {one.partition(" ")[0] for one in found} == expected


def test_the_flagship_costs_what_its_flags_read_back_cost():
    """405B on 2,048 H100s, as the manifest asks for it, with and without offload."""
    from mofa_model.advice import advise
    from mofa_model.answers.advise import asked_in
    from mofa_model.manifest.advised import launch_of
    from mofa_model.manifest.jobs import request_of

    request = request_of(asked_in("examples/llama3-405b.yaml", []))
    for constraints in ((), ("offload=activations",)):
        asked = replace(request, constraints=(*request.constraints, *constraints), top=0)
        advice = advise(asked)
        words = launch_of(asked, advice, "megatron").arguments
        problem = asked.problems[0]
        cluster = replace(problem.cluster, gpus=advice.gpus)
        again = read_layout(words, advice.gpus, layers=126)
        assert again == advice.strategy
        assert bool(again.offload) == bool(constraints)
        priced, back = (
            estimate(problem.workload, cluster, one) for one in (advice.strategy, again)
        )
        assert float(priced.step_time) == float(back.step_time)
        assert float(priced.footprint.peak) == float(back.footprint.peak)
