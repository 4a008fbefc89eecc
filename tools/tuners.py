"""Fine-tunings that the fine-tuners themselves accept: random questions are searched, written, and
handed to each one's own checks.

    python tools/tuners.py                200 questions of each fine-tuner; the record is
                                          tests/data/tuners_verified.json
    python tools/tuners.py trl -n 20      one of them, fewer questions: printed, not recorded

They live in the environment that `make oracle` builds; `tools/validators/` runs there.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from layouts import words_of
from model_words import transformers_model
from verdicts import verdicts

from mofa_model import presets
from mofa_model.errors import MofaError
from mofa_model.estimate import estimate
from mofa_model.launch import Reading, program_of, read
from mofa_model.launch.formats import document_of
from mofa_model.launch.hugging_face import OPTIMIZERS
from mofa_model.launch.table import Settings
from mofa_model.launch.trainers import settings_of
from mofa_model.launch.tuning import PAIRED, FineTuning
from mofa_model.launch.tuning_request import tuning_of
from mofa_model.search import SearchCase, SearchQuestion, framework, parse_constraint, search
from mofa_model.spec import Training, Workload
from mofa_model.spec.training import parse_documents
from mofa_model.spec.tuning import Adapters, Loss, Task, read_targets
from mofa_model.strategy import Strategy, format_strategy

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "tests" / "data" / "tuners_verified.json"
TUNERS: Final = {
    "trl": "check_trl", "axolotl": "check_axolotl", "llama-factory": "check_llama_factory",
    "torchtune": "check_torchtune",
    "accelerate": "check_peft",
}  # fmt: skip
"""Fine-tuners and what asks them; under Accelerate alone the script is people's own, and PEFT's
file says the adapters.
"""
QUESTIONS: Final = 200
MODELS: Final = (
    "llama3.2-1b", "llama3.2-3b", "llama3-8b", "llama3-70b", "llama2-7b", "llama2-70b",
    "qwen2.5-0.5b", "qwen2.5-7b", "qwen2.5-14b",
    "qwen2.5-32b", "mistral-7b", "qwen3-8b", "qwen3-32b", "mixtral-8x7b", "gemma2-9b", "phi3-mini",
    "olmo2-7b", "smollm3-3b",
)  # fmt: skip
DEVICES: Final = ("a100", "h100", "h200")
TARGETS: Final = (
    ("attention",), ("attention", "mlp"), ("q", "v"), ("q", "k", "v", "o"), ("mlp",),
    ("q", "v", "gate", "up", "down"),
)  # fmt: skip
CONSTRAINTS: Final = (
    "mbs=1", "mbs=2,4", "recompute=full", "recompute=none", "sharding=zero2,zero3",
    "sharding=replicated", "sharding=distributed",
    "optimizer=cpu", "cp=1", "cp=2",
)  # fmt: skip


def question(rng: random.Random, trainer: str) -> tuple[SearchCase, tuple[str, ...]]:
    """A random fine-tuning, and what is asked of its layout."""
    own, script = trainer == "torchtune", trainer == "accelerate"
    pure = own or (rng.random() < 0.2 and not script)
    name, optimizers = rng.choice(MODELS), framework(trainer).entry["optimizers"]
    usable = [
        optimizer
        for optimizer in optimizers
        if optimizer in OPTIMIZERS and optimizer != ("adamw" if pure else "adamw-bf16")
    ]
    rank = rng.choice((8, 16, 64) if script else (0, 8, 16, 64))
    base = rng.choice((None, None, "int8", "nf4", "nf4-double")) if rank else None
    documents = None if script else rng.choice((None, "512:3,2k", "300", "padded,200:3,900"))
    model, targets = presets.model(name), rng.choice(TARGETS)
    linears = [linear for block in model.blocks for linear in block.linears(model.hidden)]
    adapters = Adapters(
        rank=max(rank, 1),
        targets=read_targets(targets, linears, field="targets"),
        alpha=rng.choice((0, 16, 32)),
        dropout=rng.choice((0.0, 0.05)),
        magnitudes=rng.random() < 0.15,
        base=presets.base(base) if base else None,
    )
    training = Training(
        sequence=rng.choice((1024, 2048, 4096, 8192)),
        global_batch=rng.choice((16, 32, 64, 128)),
        precision=presets.precision(
            "bf16-pure" if pure else rng.choice(("bf16", "bf16", "fp16")), stack=trainer
        ),
        optimizer=presets.optimizer(usable[0] if rng.random() < 0.5 else rng.choice(usable)),
        adapters=adapters if rank else None,
        documents=None if documents is None else parse_documents(documents, field="documents"),
        task=Task("sft" if script else rng.choice(("sft", "sft", "sft", "dpo", "reward"))),
        loss=Loss("whole" if script else rng.choice(("whole", "chunked", "fused"))),
        released=not script and rng.random() < 0.1,
    )
    gpus = rng.choice((1, 1, 2, 4, 8, 8, 16, 32))
    cluster = presets.cluster(
        rng.choice(DEVICES), gpus, stack=trainer, precision=training.precision.name
    )
    workload = Workload(model=model, training=training)
    return SearchCase(workload=workload, cluster=cluster), tuple(
        rng.sample(CONSTRAINTS, rng.randrange(3))
    )


def drawn(
    trainer: str, number: int, seed: int
) -> Iterator[tuple[SearchCase, Strategy, dict[str, Any]]]:
    """So many questions that the trainer has words for, each with a layout that its search reaches,
    and the words.
    """
    rng, left = random.Random(f"{trainer} {seed}"), number
    while left:
        try:
            problem, constraints = question(rng, trainer)
            framework(trainer).require(problem.workload)
            asked = SearchQuestion(
                problems=(problem,),
                nodes=(max(1, int(problem.cluster.gpus) // 8),),
                framework=framework(trainer),
                constraints=tuple(map(parse_constraint, constraints)),
                keep=200,
            )
            (best,) = search(asked).best.values()
            strategy = rng.choice(best).strategy
            words = words_of(strategy, trainer, problem)
        except (MofaError, ValueError, IndexError):
            continue
        left -= 1
        yield problem, strategy, words


def case(problem: SearchCase, strategy: Strategy, words: dict[str, Any]) -> dict[str, Any]:
    """A launch for a validator, with a small model like the one that it is for."""
    model = transformers_model(problem.workload.model)
    return {
        **words,
        "gpus": int(strategy.gpus),
        "model": model,
        "starter": list(words.get("starter", ())),
    }


def lost_in_words(
    trainer: str, problem: SearchCase, strategy: Strategy, words: dict[str, Any]
) -> str:
    """What a launch's words lose of a question or of its price; empty where they lose nothing."""
    reading = read(
        [*words.get("starter", ()), *program_of(trainer), *words["arguments"]], words["files"].get
    )
    layout, tuning = (
        reading.strategy(int(strategy.gpus), layers=int(problem.workload.model.layers)),
        reading.tuning,
    )
    if tuning is None:
        return "the fine-tuning"
    wanted = tuning_of(trainer, settings_of(strategy, problem), released=(False, True))
    lost = [
        f"{name}: {getattr(wanted, name)} as {getattr(tuning, name)}"
        for name in FineTuning.__dataclass_fields__
        if getattr(wanted, name) != getattr(tuning, name)
        # torchtune has full sequences of packed documents alone, and pairs are padded everywhere.
        and not (
            name == "documents"
            and not wanted.documents
            and (trainer == "torchtune" or wanted.task in PAIRED)
        )
    ]
    if price(problem, strategy) != price(read_case(problem, reading, layout), layout):
        lost.append(f"price of {format_strategy(strategy)} as {format_strategy(layout)}")
    return "; ".join(lost)


def read_case(problem: SearchCase, reading: Reading, layout: Strategy) -> SearchCase:
    """The question as a launch says it; of lengths of documents a launch says only that there
    are some.
    """
    tuning, given = reading.tuning, problem.workload.training
    assert tuning is not None
    adapters = Adapters(
        rank=max(tuning.rank, 1), targets=tuning.targets, alpha=tuning.alpha,
        dropout=tuning.dropout,
        magnitudes=tuning.magnitudes, base=presets.base(tuning.base) if tuning.base else None,
    )  # fmt: skip
    training = replace(
        given,
        sequence=reading.sequence or given.sequence,  # a script of people's own says none
        global_batch=(reading.rounds or 0) * int(layout.mbs * layout.dp),
        precision=presets.precision(str(reading.precision), stack=reading.trainer),
        optimizer=presets.optimizer(tuning.optimizer),
        adapters=adapters if tuning.rank else None,
        documents=given.documents if tuning.documents else None,  # also where it is none
        task=Task(tuning.task),
        loss=Loss(tuning.loss),
        released=tuning.released,
    )
    return replace(problem, workload=replace(problem.workload, training=training))


def price(problem: SearchCase, strategy: Strategy) -> tuple[float, float, float]:
    """Time and memory of a question, without rounding."""
    estimated = estimate(problem.workload, replace(problem.cluster, gpus=strategy.gpus), strategy)
    return (
        float(estimated.step_time),
        float(estimated.footprint.peak),
        float(estimated.footprint.host),
    )


def ask_trainer(trainer: str, number: int, seed: int) -> dict[str, Any]:
    """Random questions of one fine-tuner, and its answers."""
    cases = [
        (problem, strategy, words) for problem, strategy, words in drawn(trainer, number, seed)
    ]
    head, texts = verdicts(TUNERS[trainer], [case(*case_drawn) for case_drawn in cases])
    return {
        **head,
        "asked": number,
        "refused": dict(Counter(text for text in texts if text is not None)),
        "lost": dict(
            Counter(text for case_drawn in cases if (text := lost_in_words(trainer, *case_drawn)))
        ),
        "methods": dict(Counter(method_of(case_drawn[0]) for case_drawn in cases)),
        "keys": sorted({key for _, _, words in cases for key in keys_of(words)}),
    }


def keys_of(words: dict[str, Any]) -> set[str]:
    """The keys of the files that are written, each with those above it."""
    return {
        key
        for name, text in words["files"].items()
        for key in Settings(document_of(text, name)).leaves()
    }


def method_of(problem: SearchCase) -> str:
    """The method of fine-tuning, in a word."""
    adapters = problem.workload.training.adapters
    if adapters is None:
        return "full"
    return "LoRA" if adapters.base is None else f"LoRA beside {adapters.base.name}"


def main() -> None:
    """Draw questions, write launches, ask the fine-tuners, record the answers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trainer", nargs="*", default=list(TUNERS))
    parser.add_argument(
        "-n", type=int, default=QUESTIONS, help="questions of each; the record needs 200"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for trainer in arguments.trainer:
        answers = ask_trainer(trainer, arguments.n, arguments.seed)
        print(json.dumps({trainer: answers}, indent=1), flush=True)
        if arguments.n >= QUESTIONS:
            record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
            record[trainer] = answers
            RECORD.write_text(f"{json.dumps(record, indent=1, sort_keys=True)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
