"""Layouts that a trainer is asked about, and what it has to be told of each: random ones that a
search reaches (`drawn`) or leaves out (`left_out`), and ordinary questions over the families
of models.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Final

from model_words import MODEL_WORDS
from verdicts import cpus

from mofa_model import presets
from mofa_model.axes.frameworks import side_by_side
from mofa_model.blocks import StateSpace
from mofa_model.equations.parameters import total_parameters
from mofa_model.errors import MofaError
from mofa_model.launch import TORCHRUN, launch, read
from mofa_model.launch.model_words import TORCHTITAN, lists_layers
from mofa_model.launch.trainers import refuse
from mofa_model.placement import kind_of_stages, stages_of
from mofa_model.presets import entries
from mofa_model.search import SearchCase, SearchQuestion, framework, parse_constraint, search
from mofa_model.spec import Training, Workload
from mofa_model.strategy import Strategy

MODELS: Final = {
    "dense": ("llama3-8b", "llama3-70b", "llama3.1-405b", "qwen3-14b", "qwen3-32b", "megatron-39b"),
    "experts": ("mixtral-8x7b", "mixtral-8x22b", "qwen3-30b-a3b", "qwen3-235b-a22b"),
    "latent": ("deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "kimi-k2"),
}
DEVICES: Final = {"a100": 8, "h100": 9, "h800": 9, "b200": 10}
"""Devices, with their generation."""
ASKED: Final = (
    "tp-overlap=false", "dp-overlap=false", "pp-overlap=false", "ep-overlap=false",
    "ep-overlap=true", "tp-overlap=true",
    "graphs=partial", "graphs=full", "offload=activations", "cp-mode=allgather", "cp-mode=a2a",
    "cp=2,4", "cp=8",
    "recompute=full", "recompute=full:2,full:4", "recompute=selective", "recompute=none", "sp=true",
    "sp=false",
    "sharding=distributed", "sharding=zero2,zero3", "sharding=zero3@node",
    "sharding=distributed@node", "sharding=replicated",
    "optimizer=cpu", "optimizer=device", "vpp=1", "vpp=2..16", "pp=1", "pp=2..64", "tp=1",
    "tp=2..8", "ep=1", "ep=2..64",
    "etp=1", "etp=2..8", "mbs=1", "schedule=interleaved",
)  # fmt: skip
"""Constraints that people may set: up to three of them at a time."""
PRECISIONS: Final = ("bf16", "bf16", "bf16", "fp8-current", "fp8-delayed", "fp8-block", "fp16")
WITHOUT_FP8: Final = ("deepspeed", "accelerate")
"""Trainers that have no word for it."""
COUNTED: Final = 12
"""Layouts of each kind of models whose parameters are counted."""
PER_QUESTION: Final = 80
"""Layouts that are taken of one search, from the best to the worst."""
_FAMILIES: Final = (
    ("llama3.2-1b", "a100", 1, 64, 2048), ("qwen2.5-7b", "h100", 2, 128, 4096),
    ("mistral-7b", "a100", 4, 128, 8192),
    ("llama3-8b", "h100", 8, 128, 8192), ("phi4", "h100", 16, 256, 4096),
    ("olmo2-32b", "h100", 64, 512, 4096),
    ("qwen3-32b", "b200", 128, 1024, 4096), ("llama3-70b", "h100", 512, 1024, 8192),
    ("gpt3-175b", "a100", 1024, 1536, 2048),
    ("llama3.1-405b", "h100", 16384, 4096, 8192), ("mixtral-8x7b", "h100", 64, 1024, 4096),
    ("qwen3-30b-a3b", "h800", 256, 1024, 4096),
    ("qwen3-235b-a22b", "b200", 512, 2048, 4096), ("deepseek-v2-lite", "a100", 32, 512, 4096),
    ("deepseek-v3", "h800", 2048, 15360, 4096),
    ("kimi-k2", "h100", 4096, 8192, 4096), ("olmoe-1b-7b", "h100", 128, 1024, 4096),
    ("glm4.5-air", "h100", 8192, 8192, 4096),
    ("gemma2-9b", "h100", 32, 256, 4096), ("gpt-oss-20b", "h100", 64, 512, 4096),
    ("hunyuan-a13b", "b200", 256, 1024, 4096),
    ("nemotron4-15b", "h100", 128, 1024, 4096), ("command-a", "h100", 1024, 1024, 8192),
    ("starcoder2-15b", "a100", 64, 512, 4096),
    ("minimax-m2", "h100", 2048, 4096, 4096), ("ernie4.5-21b-a3b", "h800", 128, 1024, 4096),
    ("smollm3-3b", "h100", 16, 256, 4096),
)  # fmt: skip
"""Ordinary questions over the families of models, from 1 device to 16,384: model, device, devices,
batch, sequence.
"""


BYTES_OF_A_PARAMETER: Final = 32
"""Of weights, gradients, optimizer states and what a step needs beside them, so that something
fits. [B]
"""
DEVICE_MEMORY: Final = 80e9
"""Memory of the devices above, about. [B]"""
SPREAD: Final = 5
"""Presets one after the other are asked about with 1, 4, 16, 64 and 256 times the devices that
they need.
"""
MOST: Final = 16384
"""Devices of the largest question."""


def ordinary(trainer: str) -> dict[str, str]:
    """The ordinary questions that a trainer is asked, as arguments of `mofa advise`: those above,
    and every other preset.
    """
    asked = {model: more for model, *more in _FAMILIES}
    for at, model in enumerate(name for name in entries.names("models") if name not in asked):
        size = float(total_parameters(presets.model(model)))
        gpus = 2 ** max(0, math.ceil(math.log2(size * BYTES_OF_A_PARAMETER / DEVICE_MEMORY)))
        gpus = min(gpus * 4 ** (at % SPREAD), MOST)
        asked[model] = [list(DEVICES)[at % len(DEVICES)], gpus, max(64, gpus), 4096]
    return {
        f"{model} on {gpus} {device}": (
            f"--model {model} --gpu {device} --gpus {gpus} --global-batch {batch} --seq {sequence} "
            f"--framework {trainer}"
        )
        for model, (device, gpus, batch, sequence) in asked.items()
    }


def questions(
    rng: random.Random, trainer: str, kind: str, searched: str, sample: int = PER_QUESTION
) -> Iterator[tuple[SearchCase, list[Strategy]]]:
    """Random questions, each with a random sample of all that their search finds."""
    names = [name for name in MODELS[kind] if trainer != "torchtitan" or name in TORCHTITAN]
    while True:
        name, device = rng.choice(names), rng.choice(list(DEVICES))
        gpus = 8 * 2 ** rng.randrange(0 if kind == "dense" else 2, 6)
        tokens, batch = rng.choice((2048, 4096, 8192)), rng.choice((64, 256, 480, 1024))
        recipes = [
            recipe for recipe in PRECISIONS if trainer not in WITHOUT_FP8 or "fp8" not in recipe
        ]
        precision = "bf16" if device == "a100" else rng.choice(recipes)
        problem = problem_of(
            name, trainer, gpus, device, sequence=tokens, batch=batch, precision=precision
        )
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
        strategies = [candidate.strategy for candidate in best]
        yield problem, rng.sample(strategies, min(sample, len(strategies)))


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
    return SearchCase(
        workload=Workload(model=presets.model(model), training=training), cluster=cluster
    )


def case(
    problem: SearchCase, strategy: Strategy, trainer: str, words: Mapping[str, Any]
) -> dict[str, Any]:
    """A launch for a validator, with the model and the machines that it is for, and the layers of
    each stage as priced.
    """
    model, cluster = problem.workload.model, problem.cluster
    rule, mixed = (
        cluster.calibration.placement,
        any(isinstance(block, StateSpace) for block in model.blocks),
    )
    dealt = stages_of(model, strategy, rule)
    # Patterns count blocks, all else layers.
    blocks = (
        mixed or trainer == "megatron" if lists_layers(model) and not side_by_side(model) else False
    )
    sizes = [len(kind.blocks) if blocks else 1 for kind in model.kinds]
    layers = sum(size * held for size, held in zip(sizes, dealt.held, strict=True)).reshape(-1)
    return {
        **words,
        "gpus": int(strategy.gpus),
        "generation": next(
            number for name, number in DEVICES.items() if name in cluster.device.name.lower()
        ),
        "model": MODEL_WORDS[trainer](model),
        "stages": [int(layers[kind]) for kind in kind_of_stages(model, strategy, rule)],
    }


def words_of(strategy: Strategy, trainer: str, problem: SearchCase) -> dict[str, Any]:
    """The words of a launch, as our launcher prints them."""
    written = launch(strategy, trainer, problem, interval_steps=100)
    started = {} if written.starter == TORCHRUN else {"starter": list(written.starter)}
    return {
        "arguments": list(written.arguments),
        "environment": dict(written.environment),
        "files": dict(written.files),
        **started,
    }


def said_by(words: Mapping[str, Any], problem: SearchCase, strategy: Strategy) -> Strategy:
    """The layout that is read from a launch."""
    command = [*words.get("starter", ()), *words["arguments"]]
    return read(command, words["files"].get).strategy(
        int(strategy.gpus), layers=int(problem.workload.model.layers)
    )


_Drawn = list[tuple[str, SearchCase, Strategy]]


def drawn(trainer: str, number: int, seed: int, kind: str) -> _Drawn:
    """So many random layouts of one kind of models that a search for a trainer reaches."""
    layouts: _Drawn = []
    for problem, strategies in questions(
        random.Random(f"{trainer} {kind} {seed}"), trainer, kind, trainer
    ):
        layouts += [(kind, problem, strategy) for strategy in strategies]
        if len(layouts) >= number:
            break
    return layouts[:number]


def left_out(trainer: str, number: int, seed: int, kind: str) -> _Drawn:
    """So many random layouts that other trainers run and ours refuse for this one, each with the
    field of the refusal.
    """
    layouts: _Drawn = []
    for problem, strategies in questions(
        random.Random(f"{trainer} {kind} {seed} all"), trainer, kind, "any"
    ):
        for strategy in strategies:
            try:
                refuse(strategy, problem, trainer)
            except MofaError as error:
                layouts.append(
                    (str(error).partition(":")[0].removeprefix("strategy."), problem, strategy)
                )
        if len(layouts) >= number:
            break
    return layouts[:number]


def of_all_kinds(
    draw: Callable[[str, int, int, str], _Drawn], trainer: str, number: int, seed: int
) -> _Drawn:
    """Layouts over all kinds of models, drawn side by side."""
    share = -(-number // len(MODELS))
    with ProcessPoolExecutor(cpus()) as pool:
        return [
            layout
            for layouts in pool.map(partial(draw, trainer, share, seed), MODELS)
            for layout in layouts
        ]


def to_count(trainer: str) -> _Drawn:
    """A few layouts of each kind of models in bf16, of many questions, whose parameters
    are counted.
    """
    layouts: _Drawn = []
    for kind in MODELS:
        few = questions(random.Random(f"{trainer} {kind} count"), trainer, kind, trainer, sample=2)
        plain = (ones for ones in few if ones[0].workload.training.precision.name == "bf16")
        drawn_layouts = [
            (kind, problem, strategy)
            for problem, strategies in islice(plain, COUNTED // 2)
            for strategy in strategies
        ]
        layouts += drawn_layouts
    return layouts
