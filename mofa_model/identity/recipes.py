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
def _known() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))


def preset_of(name: str) -> str:
    """The preset of a model by a trainer's own name; empty where unknown.

    >>> preset_of("deepseek3-671b"), preset_of("DeepSeek_V3_16B"), preset_of("own")
    ('deepseek-v3', 'deepseek-v2-lite', '')
    """
    found = _known()["names"].get(name.lower().replace("_", "-"), "")
    return str(found)


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
        rows = _known()[trainer]
        if not any(re.search(rows["program"], one) for one in (command.program, line)):
            continue
        for value in _named(command, variables, rows["named"]):
            found = re.fullmatch(rows["recipe"], value.text)
            name = "" if found is None else next(filter(None, found.groupdict().values()), "")
            if name in rows["recipes"]:
                place = f"{value.where}: recipe {name}"
                words = shlex.split(rows["recipes"][name])
                return tuple(PlacedWord(one, place) for one in words)
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
    for one in names:
        if one in variables:
            yield PlacedWord(variables[one].value, variables[one].where)
