"""docs/evidence.md: which features of a layout were measured where, and what `mofa explain
--evidence` says to ten questions.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.fitting.report_runs import table
from mofa_model.bands.coordinates import PLAIN, family_of
from mofa_model.bands.evidence import METHODS
from mofa_model.bands.table import MeasuredRuns, measured_runs
from mofa_model.presets.constants import VARIABLE
from mofa_model.tables import Cell, Column

Mask = NDArray[np.bool_]

HEAD: Final = """\
# What the predictions rest on

Written by `make validate` from the measured runs that are shipped (`mofa_model/bands/runs.tsv.gz`); do not edit. How bands are made
of them is in [calibration.md](calibration.md), how many runs the bands hold in [validation.md](validation.md). `mofa explain
--evidence` tells the same of one layout, and every answer names the runs next to it.
"""  # noqa: E501

MAP: Final = """\
Runs of each stack on each family of devices that have a feature, with the median error of their steps by fits that did not see
their groups. A dash is a feature that nobody measured there: bands are wider for it."""  # noqa: E501

SIZES: Final = ((1, 8), (9, 64), (65, 512), (513, 4096), (4097, 10**9))
"""Numbers of devices that are told together."""

QUESTIONS: Final = (
    "a known stack on known devices: --model llama3-70b --gpu b200 --gpus 64 --global-batch 256 --seq 4096 --stack megatron-core --strategy tp=8,pp=2",  # noqa: E501
    "the same stack where nobody ran it: --model llama3-70b --gpu h100 --gpus 64 --global-batch 256 --seq 4096 --stack megatron-core --strategy tp=8,pp=2",  # noqa: E501
    "a stack without any run: --model llama3-8b --gpu h100 --gpus 64 --global-batch 256 --seq 8192 --stack maxtext --strategy optimizer=zero3",  # noqa: E501
    "a device without any run: --model llama3-8b --gpu l40s --gpus 64 --global-batch 256 --seq 4096 --stack torchtitan --strategy optimizer=zero3",  # noqa: E501
    "far beyond the largest run: --model llama3-405b --gpu h100 --gpus 16384 --global-batch 2048 --seq 8192 --stack nemo --strategy tp=8,pp=16,vpp=8,sp=true",  # noqa: E501
    "experts: --model qwen3-30b-a3b --gpu gb200 --gpus 64 --global-batch 512 --seq 4096 --stack megatron-bridge --precision mxfp8 --strategy ep=8",  # noqa: E501
    "latent attention and a schedule that nobody measured: --model deepseek-v3 --gpu h800 --gpus 2048 --global-batch 15360 --seq 4096 --precision fp8-block --stack hai-llm --strategy pp=16,ep=64,schedule=dualpipe",  # noqa: E501
    "a sweep's own ground: --model llama3-8b --gpu h100 --gpus 64 --global-batch 256 --seq 4096 --stack nanotron --strategy tp=4,pp=4",  # noqa: E501
    "a long sequence: --model llama3-8b --gpu h100 --gpus 64 --global-batch 64 --seq 131072 --stack nemo --strategy cp=8,tp=2,sp=true",  # noqa: E501
    "a relative of a measured device: --model llama3-8b --gpu mi300x --gpus 64 --global-batch 256 --seq 8192 --stack megatron-core --strategy optimizer=zero3",  # noqa: E501
)
"""What is asked, each with why."""


def page() -> str:
    """The page as markdown."""
    runs = measured_runs()
    parts = [
        HEAD,
        "## Stacks and devices",
        *_places(runs),
        "## Features",
        MAP,
        *_map(runs),
        "## Ten questions",
    ]
    for question in QUESTIONS:
        why, _, options = question.partition(": ")
        parts += [f"### {why[0].upper()}{why[1:]}", _answer(options)]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _combinations(runs: MeasuredRuns) -> dict[str, Mask]:
    """Runs with a step by stack, method and family of devices."""
    measured = np.isfinite(runs.errors["step"])
    count = range(len(runs.names))
    names = np.array([_system(runs, at) for at in count])
    return {name: (names == name) & measured for name in sorted(set(names[measured]))}


def _system(runs: MeasuredRuns, at: int) -> str:
    """Stack and devices of a run; one that trained adapters says so."""
    adapters = METHODS.get(runs.word("method", at), "")
    stack = f"{runs.word('stack', at)}{' with ' * bool(adapters)}{adapters}"
    return f"{stack}, {family_of(runs.word('device', at))}"


def _places(runs: MeasuredRuns) -> Iterator[str]:
    groups, sizes = np.array(runs.groups), _sizes(runs)
    rows: list[tuple[Cell, ...]] = [
        (name, len(set(groups[mask])), int(mask.sum()), int(sizes[mask].max()), _median(runs, mask))
        for name, mask in _combinations(runs).items()
    ]
    columns = ("stack, devices", "groups", "runs", "most devices")
    yield table((*map(Column, columns), Column("median error", unit="%")), rows)


def _map(runs: MeasuredRuns) -> Iterator[str]:
    masks = _combinations(runs)
    rows = [
        (name, *(_cell(runs, where & mask) for where in masks.values()))
        for name, mask in _features(runs)
        if (mask & np.isfinite(runs.errors["step"])).any()
    ]
    heads = (name.replace(", ", " on ") for name in masks)
    yield table((Column("feature"), *(Column(name, align="right") for name in heads)), rows)


def _features(runs: MeasuredRuns) -> Iterator[tuple[str, Mask]]:
    """Names of features (formats, blocks, sizes, values of axes), each with a mask of the runs that
    have it.
    """
    for name in ("format", "blocks"):
        for word in sorted(runs.words[name]):
            yield f"{name} {word.replace('+', ' ')}", runs.have(name, word)
    sizes = _sizes(runs)
    for least, most in SIZES:
        mask: Mask = (sizes >= least) & (sizes <= most)
        if mask.any():
            yield (
                f"{least} to {most} devices"
                if most < SIZES[-1][1]
                else f"more than {least - 1} devices",
                mask,
            )
    for key in PLAIN:
        words = runs.words.get(key, ())
        for word in sorted(words, key=lambda text: (len(text), text)):
            yield f"{key}={word}", runs.have(key, word)


def _sizes(runs: MeasuredRuns) -> NDArray[np.floating[Any]]:
    return np.array([float(word) for word in runs.words["gpus"]])[runs.which["gpus"]]


def _cell(runs: MeasuredRuns, mask: Mask) -> str:
    return f"{int(mask.sum())} · {100 * _median(runs, mask):.0f} %" if mask.any() else "-"


def _median(runs: MeasuredRuns, mask: Mask) -> float:
    return float(np.median(np.abs(np.expm1(-runs.errors["step"][mask]))))


def _answer(options: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-m", "mofa_model", "explain", "--evidence", *shlex.split(options)],
        env={**os.environ, VARIABLE: "", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=True,
    )
    return f"```console\n$ mofa explain --evidence {options}\n{answer.stdout.rstrip()}\n```"
