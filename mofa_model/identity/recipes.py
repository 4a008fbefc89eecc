"""Trainers' own names of models, and what their own recipes say, where a job names one of them."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from mofa_model.identity.commands import PlacedVariable, PlacedWord, ProgramCall

_TRAINERS: Final = ("torchtitan", "nemo")
"""Trainers whose own recipes are known."""


@cache
def _recipes() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))


def preset_of(name: str) -> str:
    """The preset of a model by a trainer's own name; empty where unknown.

    >>> preset_of("deepseek3-671b"), preset_of("DeepSeek_V3_16B"), preset_of("own")
    ('deepseek-v3', 'deepseek-v2-lite', '')
    """
    preset = _recipes()["names"].get(name.lower().replace("_", "-"), "")
    return str(preset)


def own_arguments(
    command: ProgramCall, variables: Mapping[str, PlacedVariable]
) -> tuple[PlacedWord, ...]:
    """What a trainer's own recipe says that a command names, in the trainer's words; else nothing.

    A file of the same name in a folder of the user's is no such recipe.

    >>> words = "torchrun -m torchtitan.train --module llama3 --config llama3_70b".split()
    >>> call = ProgramCall(words=tuple(PlacedWord(one, "args") for one in words), where="args")
    >>> own_arguments(call, {})[0]
    PlacedWord(text='--training.local_batch_size=8', where='args: recipe llama3_70b')
    """
    line = " ".join(command.texts[:3])
    for trainer in _TRAINERS:
        rows = _recipes()[trainer]
        if not any(re.search(rows["program"], text) for text in (command.program, line)):
            continue
        for value in _named(command, variables, rows["named"]):
            match = re.fullmatch(rows["recipe"], value.text)
            name = "" if match is None else next(filter(None, match.groupdict().values()), "")
            if name in rows["recipes"]:
                place = f"{value.where}: recipe {name}"
                words = shlex.split(rows["recipes"][name])
                return tuple(PlacedWord(word, place) for word in words)
    return ()


def _named(
    command: ProgramCall, variables: Mapping[str, PlacedVariable], names: list[str]
) -> Iterator[PlacedWord]:
    """Values of a command's options, and of variables, of some names."""
    words = command.words
    for at, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if name in names and equals:
            yield PlacedWord(value, word.where)
        elif name in names and at + 1 < len(words):
            yield words[at + 1]
    for name in names:
        if name in variables:
            yield PlacedWord(variables[name].value, variables[name].where)
