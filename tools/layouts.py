"""Layouts that a trainer is asked about, and what it has to be told of each: random ones that a search reaches (`drawn`) or leaves
out (`left_out`), and ordinary questions over the families of models.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Final

from verdicts import cpus

from mofa_model import presets
from mofa_model.blocks import Experts, FeedForward, LatentAttention, SoftmaxAttention
from mofa_model.errors import MofaError
from mofa_model.launch import TORCHRUN, launch, read
from mofa_model.launch.refusals import refuse
from mofa_model.placement import kind_of_stages, stages_of
from mofa_model.search import SearchCase, SearchQuestion, framework, parse_constraint, search
from mofa_model.spec import Training, Transformer, Workload
from mofa_model.strategy import Strategy

MODELS: Final = {
    "dense": ("llama3-8b", "llama3-70b", "llama3.1-405b", "qwen3-14b", "qwen3-32b", "megatron-39b"),
    "experts": ("mixtral-8x7b", "mixtral-8x22b", "qwen3-30b-a3b", "qwen3-235b-a22b"),
    "latent": ("deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "kimi-k2"),
}
DEVICES: Final = {"a100": 8, "h100": 9, "h800": 9, "b200": 10}
"""Devices and their generation."""
ASKED: Final = (
    "tp-overlap=false", "dp-overlap=false", "pp-overlap=false", "ep-overlap=false", "ep-overlap=true", "tp-overlap=true",
    "graphs=partial", "graphs=full", "offload=activations", "cp-mode=allgather", "cp-mode=a2a", "cp=2,4", "cp=8",
    "recompute=full", "recompute=full:2,full:4", "recompute=selective", "recompute=none", "sp=true", "sp=false",
    "sharding=distributed", "sharding=zero2,zero3", "sharding=zero3@node", "sharding=distributed@node", "sharding=replicated",
    "optimizer=cpu", "optimizer=device", "vpp=1", "vpp=2..16", "pp=1", "pp=2..64", "tp=1", "tp=2..8", "ep=1", "ep=2..64",
    "etp=1", "etp=2..8", "mbs=1", "schedule=interleaved",
)  # fmt: skip
"""What people ask for besides: up to three of them at a time."""
PRECISIONS: Final = ("bf16", "bf16", "bf16", "fp8-current", "fp8-delayed", "fp8-block", "fp16")
WITHOUT_FP8: Final = ("deepspeed", "accelerate")
"""Trainers that have no word for it."""
COUNTED: Final = 12
"""Layouts of each kind of models whose parameters are counted."""
PER_QUESTION: Final = 80
"""Layouts that are taken of one search, from the best to the worst."""
_FAMILIES: Final = (
    ("llama3.2-1b", "a100", 1, 64, 2048), ("qwen2.5-7b", "h100", 2, 128, 4096), ("mistral-7b", "a100", 4, 128, 8192),
    ("llama3-8b", "h100", 8, 128, 8192), ("phi4", "h100", 16, 256, 4096), ("olmo2-32b", "h100", 64, 512, 4096),
    ("qwen3-32b", "b200", 128, 1024, 4096), ("llama3-70b", "h100", 512, 1024, 8192), ("gpt3-175b", "a100", 1024, 1536, 2048),
    ("llama3.1-405b", "h100", 16384, 4096, 8192), ("mixtral-8x7b", "h100", 64, 1024, 4096), ("qwen3-30b-a3b", "h800", 256, 1024, 4096),
    ("qwen3-235b-a22b", "b200", 512, 2048, 4096), ("deepseek-v2-lite", "a100", 32, 512, 4096), ("deepseek-v3", "h800", 2048, 15360, 4096),
    ("kimi-k2", "h100", 4096, 8192, 4096), ("olmoe-1b-7b", "h100", 128, 1024, 4096), ("glm4.5-air", "h100", 8192, 8192, 4096),
    ("gemma2-9b", "h100", 32, 256, 4096), ("gpt-oss-20b", "h100", 64, 512, 4096), ("hunyuan-a13b", "b200", 256, 1024, 4096),
    ("nemotron4-15b", "h100", 128, 1024, 4096), ("command-a", "h100", 1024, 1024, 8192), ("starcoder2-15b", "a100", 64, 512, 4096),
    ("minimax-m2", "h100", 2048, 4096, 4096), ("ernie4.5-21b-a3b", "h800", 128, 1024, 4096), ("smollm3-3b", "h100", 16, 256, 4096),
)  # fmt: skip
"""Ordinary questions over the families of models, from 1 device to 16,384: model, device, devices, batch, sequence."""


def ordinary(trainer: str) -> dict[str, str]:
    """The ordinary questions that a trainer is asked, as arguments of `mofa advise`."""
    return {
        f"{model} on {gpus} {device}": (
            f"--model {model} --gpu {device} --gpus {gpus} --global-batch {batch} --seq {sequence} --framework {trainer}"
        )
        for model, device, gpus, batch, sequence in _FAMILIES
        if trainer != "torchtitan" or model in TORCHTITAN.keys() - CONVERTED
    }


def questions(
    rng: random.Random, trainer: str, kind: str, searched: str, sample: int = PER_QUESTION
) -> Iterator[tuple[SearchCase, list[Strategy]]]:
    """Random questions, each with a random sample of all that their search finds."""
    names = [one for one in MODELS[kind] if trainer != "torchtitan" or one in TORCHTITAN]
    while True:
        name, device = rng.choice(names), rng.choice(list(DEVICES))
        gpus = 8 * 2 ** rng.randrange(0 if kind == "dense" else 2, 6)
        tokens, batch = rng.choice((2048, 4096, 8192)), rng.choice((64, 256, 480, 1024))
        recipes = [one for one in PRECISIONS if trainer not in WITHOUT_FP8 or "fp8" not in one]
        precision = "bf16" if device == "a100" else rng.choice(recipes)
        problem = problem_of(name, trainer, gpus, device, sequence=tokens, batch=batch, precision=precision)
        question = SearchQuestion(
            problems=(problem,),
            nodes=(gpus // 8,),
            framework=framework(searched),
            constraints=tuple(map(parse_constraint, rng.sample(ASKED, rng.randrange(4)))),
            keep=20_000,
        )
        try:
            (best,) = search(question).best.values()
        except (MofaError, ValueError):
            continue
        found = [one.strategy for one in best]
        yield problem, rng.sample(found, min(sample, len(found)))


def problem_of(
    model: str,
    trainer: str,
    gpus: int,
    device: str = "h100",
    *,
    sequence: int = 1,
    batch: int = 1,
    precision: str = "bf16",
) -> SearchCase:
    """A model, its training and its machines, from presets."""
    recipe = presets.precision(precision, stack=trainer)
    training = Training(sequence=sequence, global_batch=batch, precision=recipe)
    cluster = presets.cluster(device, gpus, stack=trainer, precision=precision)
    return SearchCase(workload=Workload(model=presets.model(model), training=training), cluster=cluster)


def megatron_model(model: Transformer) -> list[str]:
    """What a script of Megatron-LM says of a model."""
    words: dict[str, Any] = {
        "num-layers": model.layers,
        "hidden-size": model.hidden,
        "vocab-size": model.embedding.vocabulary,
        "max-position-embeddings": 131072,
        "normalization": "RMSNorm",
        "position-embedding-type": "rope",
    }
    flags = ["disable-bias-linear"] + ["untie-embeddings-and-output-weights"] * (not model.embedding.tied)
    for block in model.blocks:
        if isinstance(block, SoftmaxAttention):
            words |= {"num-attention-heads": block.heads, "kv-channels": block.head_dim}
            if block.kv_heads != block.heads:
                flags.append("group-query-attention")
                words["num-query-groups"] = block.kv_heads
        elif isinstance(block, LatentAttention):
            flags.append("multi-latent-attention")
            words |= {"num-attention-heads": block.heads, "kv-lora-rank": block.kv_rank}
            words |= {"qk-head-dim": block.nope_dim, "qk-pos-emb-head-dim": block.rope_dim}
            words |= {"v-head-dim": block.value_dim}
            words |= {} if block.query_rank is None else {"q-lora-rank": block.query_rank}
        elif isinstance(block, FeedForward):
            words["ffn-hidden-size"] = block.width
            flags += ["swiglu"] * block.gated
        elif isinstance(block, Experts):
            first = sum(run.repeats for run in model.runs if block not in run.layers[-1].blocks)
            words |= {"num-experts": block.count, "moe-router-topk": block.top_k}
            words |= {"moe-ffn-hidden-size": block.width}
            words["moe-layer-freq"] = f"([0]*{int(first)}+[1]*{int(model.layers - first)})"
            if block.shared_width:
                words["moe-shared-expert-intermediate-size"] = block.shared_width
            words.setdefault("ffn-hidden-size", block.width)
            flags += ["swiglu"] * block.gated
    if model.prediction_modules:
        words["mtp-num-layers"] = model.prediction_modules
    shown = {name: str(int(value) if isinstance(value, float) else value) for name, value in words.items()}
    return [f"--{name}" for name in dict.fromkeys(flags)] + [
        word for name, value in shown.items() for word in (f"--{name}", value)
    ]


TORCHTITAN: Final = {
    "llama3-8b": ("llama3", "llama3_8b"),
    "llama3-70b": ("llama3", "llama3_70b"),
    "llama3.1-405b": ("llama3", "llama3_405b"),
    "qwen3-14b": ("qwen3", "qwen3_14b"),
    "qwen3-32b": ("qwen3", "qwen3_32b"),
    "qwen3-30b-a3b": ("qwen3", "qwen3_30b_a3b"),
    "deepseek-v2-lite": ("deepseek_v3", "deepseek_v3_16b"),
    "deepseek-v3": ("deepseek_v3", "deepseek_v3_671b"),
}
"""Recipes of torchtitan, by the model that they train."""
CONVERTED: Final = {"llama3.1-405b"}
"""Those whose recipe converts layers to float8 as it begins, which asks for the GPU and for kernels that are not here."""


def torchtitan_model(model: Transformer) -> list[str]:
    """The recipe of torchtitan that trains a model."""
    module, recipe = TORCHTITAN[model.name]
    return ["--module", module, "--config", recipe]


def transformers_model(model: Transformer) -> dict[str, Any]:
    """A small model of transformers with the same kinds of blocks, heads and experts."""
    told: dict[str, Any] = {"model_type": "llama", "intermediate_size": 64, "vocab_size": 64}
    told |= {"num_hidden_layers": 2, "tie_word_embeddings": bool(model.embedding.tied)}
    for block in model.blocks:
        if isinstance(block, SoftmaxAttention):
            told |= {
                "num_attention_heads": int(block.heads),
                "num_key_value_heads": int(block.kv_heads),
                "head_dim": 8,
            }
        elif isinstance(block, LatentAttention):
            told |= {"num_attention_heads": int(block.heads), "num_key_value_heads": int(block.heads)}
            told |= {
                "kv_lora_rank": 8,
                "q_lora_rank": 8,
                "qk_nope_head_dim": 8,
                "qk_rope_head_dim": 8,
                "v_head_dim": 8,
            }
            told["model_type"] = "deepseek_v3"
    told["hidden_size"] = 8 * told["num_attention_heads"]
    if model.experts is not None:
        latent = told["model_type"] == "deepseek_v3"
        several = {"n_routed_experts" if latent else "num_local_experts": int(model.experts.count)}
        told |= several | {"num_experts_per_tok": int(model.experts.top_k)}
        told |= (
            {"first_k_dense_replace": 1, "moe_intermediate_size": 8, "n_group": 1, "topk_group": 1}
            if latent
            else {}
        )
        told["model_type"] = "deepseek_v3" if latent else "mixtral"
    return told


MODEL_WORDS: Final[Mapping[str, Callable[[Transformer], Any]]] = {
    "megatron": megatron_model,
    "nemo": megatron_model,  # the model of a recipe
    "torchtitan": torchtitan_model,
    "deepspeed": lambda _: [],  # its model is code
    "accelerate": transformers_model,
}
"""The trainers that are asked, and how they are told a model."""


def case(problem: SearchCase, strategy: Strategy, trainer: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """A launch for a validator, with the model and the machines that it is for, and the layers of each stage as priced."""
    model, cluster = problem.workload.model, problem.cluster
    rule = cluster.calibration.placement
    layers = stages_of(model, strategy, rule).layers.reshape(-1)
    return {
        **said,
        "gpus": int(strategy.gpus),
        "generation": next(number for name, number in DEVICES.items() if name in cluster.device.name.lower()),
        "model": MODEL_WORDS[trainer](model),
        "stages": [int(layers[kind]) for kind in kind_of_stages(model, strategy, rule)],
    }


def words_of(strategy: Strategy, trainer: str, problem: SearchCase) -> dict[str, Any]:
    """What our launcher prints."""
    found = launch(strategy, trainer, problem, interval_steps=100)
    started = {} if found.starter == TORCHRUN else {"starter": list(found.starter)}
    return {
        "arguments": list(found.arguments),
        "environment": dict(found.environment),
        "files": dict(found.files),
        **started,
    }


def said_by(words: Mapping[str, Any], problem: SearchCase, strategy: Strategy) -> Strategy:
    """What a launch is read as."""
    command = [*words.get("starter", ()), *words["arguments"]]
    return read(command, words["files"].get).strategy(
        int(strategy.gpus), layers=int(problem.workload.model.layers)
    )


_Drawn = list[tuple[str, SearchCase, Strategy]]


def drawn(trainer: str, number: int, seed: int, kind: str) -> _Drawn:
    """So many random layouts of one kind of models that a search for a trainer reaches."""
    mine: _Drawn = []
    for problem, found in questions(random.Random(f"{trainer} {kind} {seed}"), trainer, kind, trainer):
        mine += [(kind, problem, strategy) for strategy in found]
        if len(mine) >= number:
            break
    return mine[:number]


def left_out(trainer: str, number: int, seed: int, kind: str) -> _Drawn:
    """So many random layouts that other trainers run and ours refuse for this one, each with the field of the refusal."""
    mine: _Drawn = []
    for problem, found in questions(random.Random(f"{trainer} {kind} {seed} all"), trainer, kind, "any"):
        for strategy in found:
            try:
                refuse(strategy, problem, trainer)
            except MofaError as error:
                mine.append((str(error).partition(":")[0].removeprefix("strategy."), problem, strategy))
        if len(mine) >= number:
            break
    return mine[:number]


def of_all_kinds(
    draw: Callable[[str, int, int, str], _Drawn], trainer: str, number: int, seed: int
) -> _Drawn:
    """Layouts over all kinds of models, drawn side by side."""
    share = -(-number // len(MODELS))
    with ProcessPoolExecutor(cpus()) as pool:
        return [one for mine in pool.map(partial(draw, trainer, share, seed), MODELS) for one in mine]


def to_count(trainer: str) -> _Drawn:
    """A few layouts of each kind of models in bf16, of many questions, whose parameters are counted."""
    mine: _Drawn = []
    for kind in MODELS:
        few = questions(random.Random(f"{trainer} {kind} count"), trainer, kind, trainer, sample=2)
        plain = (ones for ones in few if ones[0].workload.training.precision.name == "bf16")
        found = [(kind, problem, one) for problem, some in islice(plain, COUNTED // 2) for one in some]
        mine += found
    return mine
