"""What a command and its files say, looked up by the keys of `words.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from mofa_model.identity.commands import ProgramCall
from mofa_model.identity.fact import OFF, Fact, number
from mofa_model.identity.facts import WORDS
from mofa_model.identity.settings import OTHER_PARTS, Setting
from mofa_model.pasted.recognise import PastedKind, program_at
from mofa_model.records import dataclass

_OTHERS: Final = {
    "verl": r"actor_rollout_ref\.(ref|rollout)(?=\.)",
    "nemo-automodel": "rollout|ref",
}
"""Sections of other models by trainer, where they differ from those of most trainers."""


@cache
def _tables() -> Mapping[str, Mapping[str, Sequence[str]]]:
    return tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


@cache
def keys_of(trainer: str) -> Mapping[str, Sequence[str]]:
    """Keys of each fact, in a trainer's words."""
    tables = _tables()
    behind = tables["any"]
    every = {fact: (*WORDS.get(fact, ()), *behind.get(fact, ())) for fact in {**WORDS, **behind}}
    return {**every, **tables.get(trainer, {})}


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """The settings of one pasted text, looked up by key."""

    settings: tuple[Setting, ...]
    trainer: str
    kind: PastedKind
    text: str
    name: str
    """The name under which places in the text are reported."""
    call: ProgramCall | None = None
    """The command that trains; None where the text is a file of settings."""

    @property
    def place(self) -> str:
        """Where the command is written; else the name of the file."""
        return self.name if self.call is None else self.call.where

    @property
    def program(self) -> str:
        """The command up to its program and the two words behind it; empty where there is no
        command.
        """
        if self.call is None:
            return ""
        return " ".join(self.call.texts[: program_at(self.call)[0] + 3])

    def keys(self, fact: str) -> Sequence[str]:
        """The keys under which the trainer's files and options state a fact."""
        return keys_of(self.trainer)[fact]

    def each(self, keys: Sequence[str]) -> Iterator[Setting]:
        """All settings with these keys, in the order of the keys. Of one key, the last option comes
        first; then a file's settings, the least nested one first.
        """
        for key in keys:
            same = [setting for setting in self.settings if _has(setting.path, key)]
            yield from (setting for setting in reversed(same) if setting.origin == "option")
            rest = [setting for setting in same if setting.origin != "option"]
            yield from sorted(
                rest, key=lambda setting: setting.path.count(".") * (setting.origin == "file")
            )

    def first(self, *keys: str) -> Setting | None:
        """The first setting with one of these keys; None where there is none."""
        return next(self.each(keys), None)

    def whole(self, keys: Sequence[str]) -> Fact | None:
        """The first whole number above zero under one of these keys."""
        for setting in self.each(keys):
            value = number(setting.value)
            if value is not None and value > 0:
                return Fact(value, setting.where)
        return None

    def on(self, *keys: str) -> Setting | None:
        """The first of these switches that is on; None where all are off."""
        switches = filter(None, map(self.first, keys))
        return next((switch for switch in switches if switch.value.lower() not in OFF), None)

    def at(self, pattern: str) -> Setting | None:
        """The first setting whose path matches a pattern; None where none does."""
        return next(
            (setting for setting in self.settings if re.search(pattern, setting.path)), None
        )

    def has(self, *keys: str) -> bool:
        """Whether a setting has one of these keys."""
        return any(setting.key in keys for setting in self.settings)

    def of_training(self) -> Lookup:
        """The settings without those of evaluation, of other models, and of parts that do
        not train.
        """
        others = _OTHERS.get(self.trainer, "rollout|ref|ci")
        aside = re.compile(rf"(^|[._])({OTHER_PARTS}|{others})([._]|$)")
        kept = [setting for setting in self.settings if not aside.search(setting.path)]
        if self.kind is PastedKind.MODEL:
            kept = _of_text(kept)
        return replace(self, settings=tuple(kept))


def _has(path: str, key: str) -> bool:
    if "." in key:
        return path == key or path.endswith(f".{key}")
    return path.rpartition(".")[2] == key


def _of_text(settings: Sequence[Setting]) -> list[Setting]:
    """Settings of the text part of a model of text and images."""
    inside = [
        setting._replace(path=setting.path.removeprefix("text_config."))
        for setting in settings
        if setting.path.startswith("text_config.")
    ]
    if any(setting.path in {"num_hidden_layers", "hidden_size"} for setting in inside):
        return inside
    return [
        setting
        for setting in settings
        if "vision" not in setting.path and "audio" not in setting.path
    ]


Rule = Callable[[Lookup], Fact | None]
"""One way to find a fact."""
Meaning = str | Callable[[str], str]
"""The meaning of a setting: a fixed word, or a function of its value; empty = none."""


def first_of(rules: Sequence[Rule], lookup: Lookup) -> Fact | None:
    """The fact that the first rule finds; None where no rule finds any."""
    return next((fact for rule in rules if (fact := rule(lookup)) is not None), None)


def first_fact(settings: Iterable[Setting], meaning: Meaning) -> Fact | None:
    """The meaning of the first setting that has one; None where none has."""
    return next(filter(None, (fact_at(setting, meaning) for setting in settings)), None)


def fact_at(setting: Setting | None, meaning: Meaning) -> Fact | None:
    """The meaning of a setting with its place; None without a setting or a meaning."""
    if setting is None:
        return None
    value = meaning if isinstance(meaning, str) else meaning(setting.value)
    return Fact(value, setting.where) if value else None
