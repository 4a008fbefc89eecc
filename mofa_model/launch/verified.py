"""What the trainers' own checks took (`verified.json`, which `make oracle` writes): their releases, and names of arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mofa_model.errors import shown


@cache
def _verified() -> dict[str, Any]:
    return dict(json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")))


def argument_names(arguments: Sequence[str]) -> list[str]:
    """Names of arguments, flags and overrides alike.

    >>> argument_names(["--micro-batch-size", "2", "train.micro_batch_size=2"])
    ['--micro-batch-size', 'train.micro_batch_size']
    """
    parts = [word.partition("=") for word in arguments]
    return sorted({name for name, equals, _ in parts if equals or name.startswith("--")})


def unverified(trainer: str, arguments: Sequence[str], version: str) -> str:
    """Why the trainer's own checks say nothing of a launch in the version that a job names; empty where they took its like.

    >>> unverified("megatron", ["--tensor-model-parallel-size", "8"], "core_v0.19.2-cuda13")
    ''
    >>> unverified("megatron", ["--tensor-model-parallel-size", "8"], "26.04")
    "'26.04' of megatron is not verified, 0.19.2 is"
    """
    known = _verified().get(trainer)
    if known is None:
        return f"{trainer} itself was asked about no launch of ours"
    releases = " or ".join(known["releases"])
    if not version:
        return (
            f"the job names no version of {trainer}, verified is {releases}: write it into the annotation"
            " advisor.mofa.dev/framework-version, or into the tag of an image with the trainer's name"
        )
    if not any(
        re.search(rf"(?<![\d.]){re.escape(one)}(?![A-Za-z0-9.])", version)
        for one in known["releases"]
    ):
        return f"{shown(version)} of {trainer} is not verified, {releases} is"
    foreign = sorted({*argument_names(arguments)} - {*known["names"]})
    return (
        f"{foreign[0]} is in no launch that {trainer} {releases} was asked about" if foreign else ""
    )
