"""Launches that the trainers themselves accept: random layouts are searched, written, and handed to each trainer's own checks.

    python tools/launches.py                 every trainer; the record is tests/data/launches_verified.json
    python tools/launches.py megatron -n 50  one trainer, fewer layouts: printed, not recorded

The trainers live in an environment of their own, which `make oracle` builds outside the lock; `tools/validators/` runs there.
Asked are layouts that a search can reach (`drawn`), layouts that it leaves out as NotInFramework (`left_out`: how many of them the
trainer would take), and what examples and documents show (`SHOWN`).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

from mofa_model import cli, presets
from mofa_model.blocks import Experts, FeedForward, LatentAttention, SoftmaxAttention
from mofa_model.errors import MofaError
from mofa_model.launch import launch, read, trainers
from mofa_model.launch.refusals import refuse
from mofa_model.placement import kind_of_stages, stages_of
from mofa_model.search import SearchCase, SearchQuestion, framework, parse_constraint, search
from mofa_model.spec import Training, Transformer, Workload
from mofa_model.strategy import ContextMode, Placement, Recompute, Sharding, Strategy
from mofa_model.strategy_text import format_strategy, parse_strategy

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "tests" / "data" / "launches_verified.json"
VERIFIED: Final = ROOT / "mofa_model" / "launch" / "verified.json"
"""What of the record the product knows: releases that were asked, and names of arguments that they took."""
PACKAGES: Final = {
    "megatron": "megatron-core",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "nemo": "megatron-bridge",
}
"""The distribution whose version is a trainer's."""
PYTHON: Final = Path.home() / ".cache" / "mofa-oracle-trainers" / "bin" / "python"
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
PER_QUESTION: Final = 80
"""Layouts that are taken of one search, from the best to the worst."""
KEPT: Final = 48
"""Launches that the record keeps whole, so that a test sees when the launcher says something else."""
SHOWN: Final = {
    "torchtitan": {},
    "deepspeed": {},
    "nemo": {},
    "megatron": {
        "examples/llama3-405b.yaml": "examples/llama3-405b.yaml",
        "examples/deepseek-v3.yaml": "examples/deepseek-v3.yaml",
        "README.md": "--model llama3-8b --gpu h100 --gpus 64 --global-batch 512 --seq 8192 --framework megatron",
        "mofa advise --help": "--model llama3-70b --gpu h100 --gpus 512 --global-batch 512 --seq 8192 --framework megatron",
    },
}
"""Launches that examples and documents show, as arguments of `mofa advise`."""

_FAMILIES: Final = (
    ("llama3.2-1b", "a100", 1, 64, 2048), ("qwen2.5-7b", "h100", 2, 128, 4096), ("mistral-7b", "a100", 4, 128, 8192),
    ("llama3-8b", "h100", 8, 128, 8192), ("phi4", "h100", 16, 256, 4096), ("olmo2-32b", "h100", 64, 512, 4096),
    ("qwen3-32b", "b200", 128, 1024, 4096), ("llama3-70b", "h100", 512, 1024, 8192), ("gpt3-175b", "a100", 1024, 1536, 2048),
    ("llama3.1-405b", "h100", 16384, 4096, 8192), ("mixtral-8x7b", "h100", 64, 1024, 4096), ("qwen3-30b-a3b", "h800", 256, 1024, 4096),
    ("qwen3-235b-a22b", "b200", 512, 2048, 4096), ("deepseek-v2-lite", "a100", 32, 512, 4096), ("deepseek-v3", "h800", 2048, 15360, 4096),
    ("kimi-k2", "h100", 4096, 8192, 4096), ("olmoe-1b-7b", "h100", 128, 1024, 4096), ("glm4.5-air", "h100", 8192, 8192, 4096),
)  # fmt: skip
"""Ordinary questions over the families of models, from 1 device to 16,384: model, device, devices, batch, sequence."""


def ordinary(trainer: str) -> dict[str, str]:
    """The ordinary questions that a trainer is asked, as arguments of `mofa advise`."""
    return {
        f"{model} on {gpus} {device}": (
            f"--model {model} --gpu {device} --gpus {gpus} --global-batch {batch} --seq {sequence} --framework {trainer}"
        )
        for model, device, gpus, batch, sequence in _FAMILIES
        if trainer != "torchtitan" or model in TORCHTITAN
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
        recipes = [
            one for one in PRECISIONS if trainer != "deepspeed" or "fp8" not in one
        ]  # it has no word for fp8
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


def torchtitan_model(model: Transformer) -> list[str]:
    """The recipe of torchtitan that trains a model."""
    module, recipe = TORCHTITAN[model.name]
    return ["--module", module, "--config", recipe]


MODEL_WORDS: Final[Mapping[str, Callable[[Transformer], list[str]]]] = {
    "megatron": megatron_model,
    "nemo": megatron_model,  # the model of a recipe
    "torchtitan": torchtitan_model,
    "deepspeed": lambda _: [],  # its model is code
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
    return {
        "arguments": list(found.arguments),
        "environment": dict(found.environment),
        "files": dict(found.files),
    }


def digest(launches: list[Mapping[str, Any]]) -> str:
    """One short hash of what launches say."""
    return hashlib.sha256(json.dumps(launches, sort_keys=True).encode()).hexdigest()[:16]


def names(launches: list[Mapping[str, Any]]) -> list[str]:
    """Names of the arguments of launches."""
    words = {word.partition("=")[0] for one in launches for word in one["arguments"]}
    return sorted(word for word in words if word.startswith("--"))


def verified(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the product knows of a record."""
    return {
        trainer: {"releases": [said["versions"][PACKAGES[trainer]]], "names": said["names"]}
        for trainer, said in record.items()
        if not said["refused"]
    }


def shown(options: str, trainer: str) -> dict[str, Any]:
    """What `mofa advise` answers, with its launch."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        cli.main(["advise", *options.split(), "--launch", trainer, "-o", "json", "--top", "0"])
    answer: dict[str, Any] = json.loads(said.getvalue())
    if answer.get("launch"):
        answer["words"] = {name: answer["launch"][name] for name in ("arguments", "environment", "files")}
    return answer


def verdicts(trainer: str, cases: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str | None]]:
    """What was asked, by version and hash, and what the trainer says against each launch."""
    shares = [cases[at :: cpus()] for at in range(cpus())]
    with ThreadPoolExecutor(len(shares)) as pool:
        said = list(pool.map(partial(_validated, trainer), shares))
    found: list[str | None] = [""] * len(cases)
    for at, (_, share) in enumerate(said):
        found[at :: len(shares)] = share
    return said[0][0], found


def _validated(trainer: str, cases: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str | None]]:
    script = ROOT / "tools" / "validators" / f"check_{trainer}.py"
    said = subprocess.run(
        [str(PYTHON), str(script)],
        input="".join(json.dumps(one) + "\n" for one in cases),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    ).stdout  # fmt: skip
    head, *rest = map(json.loads, said.splitlines())
    if len(rest) != len(cases):
        raise RuntimeError(f"{len(cases)} launches, {len(rest)} verdicts")
    return head, rest


def cpus() -> int:
    """Processes that run at once. [1]"""
    return os.cpu_count() or 1


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


def answered(trainer: str, asked: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """What `mofa advise` answers, for a validator; questions without a recommendation are left out."""
    found = []
    for name, options in asked.items():
        answer = shown(options, trainer)
        if answer.get("launch") is None:
            continue
        problem = problem_of(answer["model"], trainer, answer["gpus"], answer["gpu"])
        strategy = parse_strategy(answer["strategy"], answer["gpus"])
        found.append((name, case(problem, strategy, trainer, answer["words"])))
    return found


def _words(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in ("arguments", "environment", "files")}


def asked(trainer: str, number: int, seed: int) -> dict[str, Any]:
    """Everything that is asked of one trainer, and its answers."""
    reached, lines, unwritten = of_all_kinds(drawn, trainer, number, seed), [], Counter[str]()
    cases, kinds = [], Counter[str]()
    for kind, problem, strategy in reached:
        try:
            words = words_of(strategy, trainer, problem)
        except MofaError as error:
            unwritten[str(error)] += 1
            continue
        kinds[kind] += 1
        lines.append((problem, strategy, words))
        cases.append(case(problem, strategy, trainer, words))
    examples = answered(trainer, SHOWN[trainer])
    cases += [one for _, one in examples]
    outside, speechless = [], Counter[str]()
    for field, problem, strategy in of_all_kinds(left_out, trainer, number // 4, seed):
        try:
            with mock.patch.object(trainers, "refuse"):
                words = words_of(strategy, trainer, problem)
                again = read(words["arguments"], words["files"].get).strategy(
                    int(strategy.gpus), layers=int(problem.workload.model.layers)
                )
        except (MofaError, LookupError, ZeroDivisionError):
            again = Strategy()
        if _acts(again) != _acts(strategy):  # the words say something else
            speechless[field] += 1
            continue
        outside.append(field)
        cases.append(case(problem, strategy, trainer, words))
    head, said = verdicts(trainer, cases)
    inside = len(cases) - len(outside)
    taken = Counter(field for field, text in zip(outside, said[inside:], strict=True) if text is None)
    step = max(1, len(lines) // KEPT)
    kept = [
        {
            "gpus": int(one.gpus),
            "strategy": format_strategy(one),
            "model": problem.workload.model.name,
            "run": _run(problem.workload.training),
        }
        for problem, one, _ in lines[::step]
    ]
    return {
        **head,
        "seed": seed,
        "names": names([words for _, _, words in lines]),
        "reached": dict(kinds),
        "unwritten": dict(unwritten),
        "refused": dict(Counter(text for text in said[:inside] if text is not None)),
        "shown": {name: digest([_words(one)]) for name, one in examples},
        "left out": {
            "asked": len(outside) + speechless.total(),
            "without words": dict(speechless),
            "refused": dict(Counter(outside) - taken),
            "taken": dict(taken),
        },
        "kept": kept,
        "words": digest([words for _, _, words in lines[::step]]),
    }


def _acts(strategy: Strategy) -> str:
    """A layout without what says nothing beside the rest."""
    alone = (
        {"sharding": Sharding.NONE, "optimizer": Placement.DEVICE} if strategy.dp * strategy.cp == 1 else {}
    )
    mode = {"context_mode": ContextMode.RING} if strategy.cp == 1 else {}
    again = (
        {}
        if strategy.recompute is Recompute.SELECTIVE
        else {"recompute_modules": Strategy().recompute_modules}
    )
    return repr(replace(strategy, **alone, **mode, **again))


def _run(training: Training) -> dict[str, Any]:
    return {
        "sequence": training.sequence,
        "batch": training.global_batch,
        "precision": training.precision.name,
    }


def main() -> None:
    """Draw, write, ask, record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trainer", nargs="*", default=list(MODEL_WORDS))
    parser.add_argument(
        "-n",
        type=int,
        default=2000,
        help="layouts of each; the record needs 2,000; 0: only what examples and documents show and the ordinary questions, for the record",
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    for trainer in arguments.trainer:
        if arguments.n == 0:
            examples, usual = (answered(trainer, some) for some in (SHOWN[trainer], ordinary(trainer)))
            said = verdicts(trainer, [one for _, one in (*examples, *usual)])[1]
            if any(said):
                raise SystemExit(f"{trainer} refuses what is shown: {said}")
            record[trainer]["shown"] = {name: digest([_words(one)]) for name, one in examples}
            record[trainer]["ordinary"] = {name: digest([_words(one)]) for name, one in usual}
            _write(record)
            continue
        found = asked(trainer, arguments.n, arguments.seed)
        print(json.dumps({trainer: found | {"kept": len(found["kept"])}}, indent=1))
        if arguments.n >= 2000:
            record[trainer] = {"ordinary": record.get(trainer, {}).get("ordinary", {})} | found
            _write(record)


def _write(record: Mapping[str, Any]) -> None:
    for path, told in ((RECORD, record), (VERIFIED, verified(record))):
        path.write_text(f"{json.dumps(told, indent=1, sort_keys=True)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
