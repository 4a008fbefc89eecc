"""Whole launches that the trainers accept: drawn layouts are written as scripts, the scripts are
started with what starts the trainer replaced, and the words that come out are handed to the
trainer's own parser.

    python tools/starts.py            100 launches of each trainer; the record is
                                      tests/data/starts_verified.json
    python tools/starts.py nemo -n 8  one trainer, fewer launches: printed, not recorded
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from layouts import case, drawn, of_all_kinds
from verdicts import digest, verdicts

from mofa_model.equations.parameters import total_parameters
from mofa_model.errors import MofaError
from mofa_model.launch import Launch, launch, launch_script
from mofa_model.search import SearchCase
from mofa_model.strategy import Strategy, format_strategy

RECORD: Final = Path(__file__).parents[1] / "tests" / "data" / "starts_verified.json"
TRAINERS: Final = ("megatron", "nemo", "torchtitan", "accelerate", "deepspeed")
KEPT: Final = 6
"""Launches of each trainer that the record keeps, so that a test sees when they change."""


def words_of_script(start: Launch, nodes: int, gpus: int) -> list[str]:
    """The arguments that the smoke script hands to the trainer's program; its folder is written as
    $HERE.
    """
    with tempfile.TemporaryDirectory() as folder:
        assert start.beside is not None
        texts = {
            "launch.sh": launch_script(start, nodes, gpus),
            "launch-smoke.sh": start.beside.smoke_script("launch.sh"),
            **start.all_files,
        }
        for name, text in texts.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        for name in ("torchrun", "accelerate"):
            Path(folder, name).write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n', encoding="utf-8")
            Path(folder, name).chmod(0o755)
        given = {"PATH": f"{folder}:{os.environ['PATH']}", "NODE_RANK": "0", "MASTER_ADDR": "first"}
        run = subprocess.run(
            ["bash", f"{folder}/launch-smoke.sh"],
            env=given,
            capture_output=True,
            text=True,
            check=True,
        )
        words = run.stdout.replace(folder, "$HERE").split("\0")[:-1]
    program = next(
        at for at, word in enumerate(words) if word.endswith(".py") or word == "torchtitan.train"
    )
    last = words[program + 1 :]
    if "--use_cpu" in last:  # no GPU is here
        at = last.index("--use_cpu")
        del last[at : at + 2]
    return last


def launch_of(problem: SearchCase, strategy: Strategy, trainer: str) -> dict[str, Any] | None:
    """A launch as its validator takes it; None where people's own words are needed."""
    start = launch(strategy, trainer, problem, interval_steps=100)
    if start.beside is None or (
        trainer in {"accelerate", "deepspeed"} and "config.json" not in start.all_files
    ):
        return None
    gpus = int(strategy.gpus)
    each = min(gpus, 8)
    words = words_of_script(start, gpus // each, each)
    words_given = {
        "arguments": words,
        "environment": dict(start.environment),
        "files": start.all_files,
    }
    more = {"trainer": trainer, "parameters": int(total_parameters(problem.workload.model))}
    return case(problem, strategy, trainer, words_given) | words_given | more


def ask_trainer(trainer: str, number: int, seed: int) -> dict[str, Any]:
    """Launches of one trainer and what it says of them."""
    cases, kept, own = [], [], 0
    for _, problem, strategy in of_all_kinds(drawn, trainer, number, seed):
        try:
            made = launch_of(problem, strategy, trainer)
        except MofaError:
            continue
        if made is None:
            own += 1
            continue
        cases.append(made)
        training = problem.workload.training
        kept.append({
            "model": problem.workload.model.name, "gpus": int(strategy.gpus),
            "strategy": format_strategy(strategy),
            "sequence": int(training.sequence), "batch": int(training.global_batch),
            "precision": training.precision.name,
            "words": digest([{"words": made["arguments"]}]),
        })  # fmt: skip
    head, texts = verdicts("check_starts", cases)
    step = max(1, len(kept) // KEPT)
    return {
        "versions": head["versions"],
        "accepted": texts.count(None),
        "refused": dict(Counter(text for text in texts if text)),
        "words of people's own": own,
        "kept": kept[::step],
    }


def main() -> None:
    """Draw launches, write scripts, ask the trainers, record the answers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trainer", nargs="*", default=list(TRAINERS))
    parser.add_argument("-n", type=int, default=100, help="launches of each; the record needs 100")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for trainer in arguments.trainer:
        answers = ask_trainer(trainer, arguments.n, arguments.seed)
        print(json.dumps({trainer: answers | {"kept": len(answers["kept"])}}, indent=1), flush=True)
        if arguments.n >= 100:
            record: Mapping[str, Any] = (
                json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
            )
            text = json.dumps({**record, trainer: answers}, indent=1, sort_keys=True)
            RECORD.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
