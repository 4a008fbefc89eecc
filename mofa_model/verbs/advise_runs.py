"""Short runs of an answer: which are worth making, and what they measured. Not a verb."""

from __future__ import annotations

import csv
import io
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mofa_model import files

if TYPE_CHECKING:
    from mofa_model.advice import Advice, Request
    from mofa_model.launch import Launch


def add_options(parser: ArgumentParser) -> None:
    """Which runs to make, and what they said."""
    ask = parser.add_argument_group("short runs")
    ask.add_argument(
        "--probe",
        type=int,
        default=0,
        metavar="N",
        help="say which N runs of 10 to 20 steps would make the choice surest; --save-dir writes their launches and runs.csv",
    )
    ask.add_argument(
        "--runs",
        metavar="FILE",
        help="what such runs measured: runs.csv with step_seconds filled in (docs/search.md)",
    )


def launches(request: Request, advice: Advice, trainer: str) -> list[Launch]:
    """The launches of the runs to make."""
    from mofa_model.manifest.advised import launch_of

    return [
        launch_of(request, replace(advice, strategy=one.strategy, precision=one.precision), trainer)
        for one in advice.probes
    ]


def save(folder: str, request: Request, advice: Advice, made: Sequence[Launch]) -> list[str]:
    """Write each launch into a folder of its own, and the table to fill in; their names."""
    from mofa_model.launch import launch_script
    from mofa_model.verbs.advise_folder import SCRIPT

    names = []
    for one, launch in zip(advice.probes, made, strict=True):
        name = one.name.replace(" ", "-")
        text = launch_script(launch, one.nodes, int(one.strategy.gpus) // one.nodes)
        files.write_folder(f"{folder}/{name}", {SCRIPT: text, **launch.files}, programs=[SCRIPT])
        names.append(name)
    files.write_text(f"{folder}/runs.csv", _sheet(request, advice))
    return [*names, "runs.csv"]


def _sheet(request: Request, advice: Advice) -> str:
    """The runs as a table without what they will measure."""
    from mofa_model.calibrate.short_runs import COLUMNS
    from mofa_model.strategy_text import format_strategy

    first = request.problems[0]
    said: dict[str, Any] = {
        "model": first.workload.model.name,
        "gpu": first.cluster.device.name,
        "global_batch": int(first.workload.training.global_batch),
        "sequence": int(first.workload.training.sequence),
    }
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for one in advice.probes:
        own = {"id": one.name, "gpus": int(one.strategy.gpus), "precision": one.precision}
        writer.writerow({**said, **own, "strategy": format_strategy(one.strategy)})
    return text.getvalue()
