"""Launches that the trainers themselves accept: random layouts are searched, written, and handed to
each trainer's own checks.

    python tools/launches.py                 every trainer; the record is
                                             tests/data/launches_verified.json
    python tools/launches.py megatron -n 50  one trainer, fewer layouts: printed, not recorded

The trainers live in an environment of their own, which `make oracle` builds outside the lock;
`tools/validators/` runs there. Asked are layouts that a search can reach (`drawn`), layouts that it
leaves out as NotInFramework (`left_out`: how many of them the trainer would take), and what
examples and documents show (`SHOWN`).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

from layouts import (
    case,
    drawn,
    left_out,
    of_all_kinds,
    ordinary,
    problem_of,
    said_by,
    to_count,
    words_of,
)
from model_words import MODEL_WORDS
from verdicts import digest, verdicts

from mofa_model import cli
from mofa_model.errors import MofaError
from mofa_model.launch import TORCHRUN, trainers
from mofa_model.launch.table import argument_names
from mofa_model.search import SearchCase
from mofa_model.strategy import (
    ContextMode,
    Placement,
    Recompute,
    Sharding,
    Strategy,
    format_strategy,
    parse_strategy,
)

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "tests" / "data" / "launches_verified.json"
VERIFIED: Final = ROOT / "mofa_model" / "launch" / "verified.json"
"""What of the record the product knows: releases that were asked, and names of arguments that
they took.
"""
PACKAGES: Final = {
    "megatron": "megatron-core",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "nemo": "megatron-bridge",
    "accelerate": "accelerate",
}
"""The distribution whose version is a trainer's."""
WORDS: Final = ("arguments", "environment", "files")
KEPT: Final = 48
"""Launches that the record keeps whole, so that a test sees when the launcher says
something else.
"""
SHOWN: Final = {
    "torchtitan": {},
    "deepspeed": {},
    "nemo": {},
    "accelerate": {},
    "megatron": {
        "examples/llama3-405b.yaml": "examples/llama3-405b.yaml",
        "examples/deepseek-v3.yaml": "examples/deepseek-v3.yaml",
        "README.md": "--model llama3-8b --gpu h100 --gpus 64 --global-batch 512 --seq 8192 "
        "--framework megatron",
        "mofa advise "
        "--help": "--model llama3-70b --gpu h100 --gpus 512 --global-batch 512 --seq 8192 "
        "--framework megatron",
    },
}
"""Launches that examples and documents show, as arguments of `mofa advise`."""


def verified(record: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a record that the product reads."""
    return {
        trainer: {"releases": [answers["versions"][PACKAGES[trainer]]], "names": answers["names"]}
        for trainer, answers in record.items()
        if not answers["refused"]
    }


def advice_of(options: str, trainer: str) -> dict[str, Any]:
    """What `mofa advise` answers, with its launch; `refused` where it has no such model or
    nothing fits.
    """
    output, why = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(why):
        cli.main(["advise", *options.split(), "--launch", trainer, "-o", "json", "--top", "0"])
    answer: dict[str, Any] = json.loads(output.getvalue() or "{}")
    if answer.get("launch"):
        answer["words"] = {name: answer["launch"][name] for name in WORDS}
        if answer["launch"]["starter"] != [*TORCHRUN]:
            answer["words"]["starter"] = answer["launch"]["starter"]
    elif answer.get("strategy"):
        raise SystemExit(f"{trainer}: {options} has an answer and no launch: {why.getvalue()}")
    else:
        answer["refused"] = why.getvalue().strip().partition("\n")[0] or "nothing fits"
    return answer


def examples_of(trainer: str, names: list[str]) -> dict[str, Any]:
    """Hashes of the launches that examples and documents show and that ordinary questions give, and
    the questions that are refused before the search. A launch that the trainer refuses ends the
    program. `names`: arguments that the trainer took before.
    """
    answers = {
        part: {name: advice_of(options, trainer) for name, options in asked.items()}
        for part, asked in (("shown", SHOWN[trainer]), ("ordinary", ordinary(trainer)))
    }
    launched = {
        part: {n: a for n, a in ones.items() if a.get("launch")} for part, ones in answers.items()
    }
    cases = {
        name: case(
            problem_of(answer["model"], trainer, answer["gpus"], answer["gpu"]),
            parse_strategy(answer["strategy"], answer["gpus"]),
            trainer,
            answer["words"],
        )
        for ones in launched.values()
        for name, answer in ones.items()
    }
    texts = verdicts(f"check_{trainer}", [*cases.values()])[1]
    against = {name: text for name, text in zip(cases, texts, strict=True) if text}
    if against:
        raise SystemExit(f"{trainer} refuses what is shown: {json.dumps(against, indent=1)}")
    words = {
        part: {
            name: digest([{word: answer["words"][word] for word in WORDS}])
            for name, answer in ones.items()
        }
        for part, ones in launched.items()
    }
    before = {name: a["refused"] for name, a in answers["ordinary"].items() if "refused" in a}
    more = [word for case in cases.values() for word in case["arguments"]]
    return words | {"not had": before, "names": sorted({*names, *argument_names(more)})}


def ask_trainer(trainer: str, number: int, seed: int) -> dict[str, Any]:
    """Random layouts of one trainer, and its answers."""
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
    outside, speechless = [], Counter[str]()
    for field, problem, strategy in of_all_kinds(left_out, trainer, number // 4, seed):
        try:
            with mock.patch.object(trainers, "refuse"):
                words = words_of(strategy, trainer, problem)
                again = said_by(words, problem, strategy)
        except (MofaError, LookupError, ZeroDivisionError):
            again = Strategy()
        if _acts(again) != _acts(strategy):  # the words say something else
            speechless[field] += 1
            continue
        outside.append(field)
        cases.append(case(problem, strategy, trainer, words))
    head, texts = verdicts(f"check_{trainer}", cases)
    inside = len(lines)
    taken = Counter(
        field for field, text in zip(outside, texts[inside:], strict=True) if text is None
    )
    step = max(1, len(lines) // KEPT)
    kept = [_asked_of(problem, strategy) for problem, strategy, _ in lines[::step]]
    return {
        **head,
        "seed": seed,
        "names": argument_names([word for _, _, words in lines for word in words["arguments"]]),
        "reached": dict(kinds),
        "unwritten": dict(unwritten),
        "refused": dict(Counter(text for text in texts[:inside] if text is not None)),
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
    """The layout as text, without settings that change nothing beside its others."""
    alone = (
        {"sharding": Sharding.NONE, "optimizer": Placement.DEVICE}
        if strategy.data_ranks == 1
        else {}
    )
    mode = {"context_mode": ContextMode.RING} if strategy.cp == 1 else {}
    again = (
        {}
        if strategy.recompute is Recompute.SELECTIVE
        else {"recompute_modules": Strategy().recompute_modules}
    )
    return repr(replace(strategy, **alone, **mode, **again))


def _asked_of(problem: SearchCase, strategy: Strategy) -> dict[str, Any]:
    """A question and a layout, as the record keeps them."""
    training = problem.workload.training
    return {
        "gpus": int(strategy.gpus),
        "strategy": format_strategy(strategy),
        "model": problem.workload.model.name,
        "run": {
            "sequence": training.sequence,
            "batch": training.global_batch,
            "precision": training.precision.name,
        },
    }


def memory_held() -> dict[str, Any]:
    """What Megatron holds on a GPU of each stage, for a few layouts."""
    drawn = [(problem, strategy) for _, problem, strategy in to_count("megatron")]
    cases = [
        case(problem, strategy, "megatron", words_of(strategy, "megatron", problem))
        for problem, strategy in drawn
    ]
    head, held = verdicts("count_megatron", cases)
    layouts = [
        _asked_of(*question) | {"held": stages}
        for question, stages in zip(drawn, held, strict=True)
    ]
    return {**head, "layouts": layouts}


def main() -> None:
    """Draw layouts, write launches, ask the trainers, record the answers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trainer", nargs="*", default=list(MODEL_WORDS))
    parser.add_argument(
        "-n",
        type=int,
        default=2000,
        help="layouts of each; the record needs 2,000; 0: only what examples and documents show "
        "and the ordinary questions, for the record",
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for trainer in arguments.trainer:
        answers = (
            ask_trainer(trainer, arguments.n, arguments.seed) if arguments.n else _record()[trainer]
        )
        print(json.dumps({trainer: answers | {"kept": len(answers["kept"])}}, indent=1), flush=True)
        if arguments.n == 0 or arguments.n >= 2000:
            more = {"counted": memory_held()} if trainer == "megatron" else {}
            _write(trainer, answers | examples_of(trainer, answers["names"]) | more)


def _record() -> dict[str, Any]:
    return dict(json.loads(RECORD.read_text(encoding="utf-8"))) if RECORD.exists() else {}


def _write(trainer: str, answers: Mapping[str, Any]) -> None:
    """Write a trainer's answers into the record. Names of arguments that the same checks took
    before stay, because this draw may not have met them; names that other checks took go.
    """
    record = _record()  # as it is now: others may have written meanwhile
    before = record.get(trainer, {})
    if all(before.get(key) == answers[key] for key in ("versions", "sources", "validator")):
        answers = {**answers, "names": sorted({*before["names"], *answers["names"]})}
    record[trainer] = answers
    for path, content in ((RECORD, record), (VERIFIED, verified(record))):
        path.write_text(f"{json.dumps(content, indent=1, sort_keys=True)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
