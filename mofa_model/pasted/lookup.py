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
from mofa_model.identity.fact import Fact
from mofa_model.identity.facts import ACCUMULATION
from mofa_model.identity.settings import Setting
from mofa_model.pasted.recognise import PastedKind, program_at
from mofa_model.records import dataclass

OFF: Final = frozenset({"false", "0", "none", "no", "null", "off", ""})
"""Values that switch nothing on."""
_ASIDE: Final = (
    "eval|evaluation|val|valid|validation|test|infer|inference|generation|vllm|sglang|teacher|draft"
    "|reward|critic|embedding|tokenizer_config|monitoring|dataloader_val|dataset_val|profiler"
    "|benchmark|sampling"
)
"""Sections of what is not trained."""
_OTHERS: Final = {
    "verl": r"actor_rollout_ref\.(ref|rollout)(?=\.)",
    "nemo-automodel": "rollout|ref",
}
"""Further ones of trainers whose trained model stands in a section that others have for another."""


@cache
def _tables() -> Mapping[str, Mapping[str, Sequence[str]]]:
    return tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


@cache
def keys_of(trainer: str) -> Mapping[str, Sequence[str]]:
    """Keys of each fact, in a trainer's words."""
    tables = _tables()
    return {"accumulation": ACCUMULATION, **tables["any"], **tables.get(trainer, {})}


def number(text: str) -> int | None:
    """A whole number as files and commands write it; None where it is none.

    >>> number("8_192"), number("1e3"), number("auto"), number("4096.0"), number("16 * 2")
    (8192, 1000, None, 4096, None)
    """
    plain = text.strip().strip("\"'").replace("_", "").replace(",", "")
    if re.fullmatch(r"[+-]?\d{1,18}", plain):
        return int(plain)
    if re.fullmatch(r"[+-]?\d{1,18}(\.\d*)?([eE][+]?\d{1,2})?", plain):
        value = float(plain)
        return int(value) if value.is_integer() else None
    return None


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """Settings of one input, with what they belong to."""

    settings: tuple[Setting, ...]
    trainer: str
    kind: PastedKind
    text: str
    name: str
    """What places in the text are called."""
    call: ProgramCall | None = None
    """The command that trains; None of a file."""

    @property
    def place(self) -> str:
        """Where the command is written; else the name of the file."""
        return self.name if self.call is None else self.call.where

    @property
    def program(self) -> str:
        """The command up to its program and the two words behind it; empty of a file."""
        if self.call is None:
            return ""
        return " ".join(self.call.texts[: program_at(self.call)[0] + 3])

    def keys(self, fact: str) -> Sequence[str]:
        """The keys by which the trainer's files and options say a fact."""
        return keys_of(self.trainer)[fact]

    def each(self, keys: Sequence[str]) -> Iterator[Setting]:
        """Settings of some keys, the first key first. Of one key's options the last counts first,
        and of a file's keys the one that is least deep.
        """
        for key in keys:
            same = [setting for setting in self.settings if _has(setting.path, key)]
            yield from (setting for setting in reversed(same) if setting.origin == "option")
            rest = [setting for setting in same if setting.origin != "option"]
            yield from sorted(
                rest, key=lambda setting: setting.path.count(".") * (setting.origin == "file")
            )

    def first(self, *keys: str) -> Setting | None:
        """The setting that counts, among several keys for one thing; None without any."""
        return next(self.each(keys), None)

    def whole(self, keys: Sequence[str]) -> Fact | None:
        """The first whole number above zero of some keys."""
        for setting in self.each(keys):
            value = number(setting.value)
            if value is not None and value > 0:
                return Fact(value, setting.where)
        return None

    def on(self, *keys: str) -> Setting | None:
        """The first of some switches that is on."""
        switches = filter(None, map(self.first, keys))
        return next((switch for switch in switches if switch.value.lower() not in OFF), None)

    def at(self, pattern: str) -> Setting | None:
        """The first setting whose path has a pattern in it."""
        return next(
            (setting for setting in self.settings if re.search(pattern, setting.path)), None
        )

    def has(self, *keys: str) -> bool:
        """Whether one of some keys is there."""
        return any(setting.key in keys for setting in self.settings)

    def of_training(self) -> Lookup:
        """The settings without those of evaluation, of other models, and of parts that do
        not train.
        """
        others = _OTHERS.get(self.trainer, "rollout|ref|ci")
        aside = re.compile(rf"(^|[._])({_ASIDE}|{others})([._]|$)")
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
"""What one way of saying a fact says."""
Meaning = str | Callable[[str], str]
"""What a setting means, whatever its value, or by its value; empty = it says nothing."""


def first_of(rules: Sequence[Rule], lookup: Lookup) -> Fact | None:
    """The answer of the first rule that has one; None where none has."""
    return next((fact for rule in rules if (fact := rule(lookup)) is not None), None)


def first_fact(settings: Iterable[Setting], meaning: Meaning) -> Fact | None:
    """The fact of the first setting that means anything; None where none does."""
    return next(filter(None, (fact_at(setting, meaning) for setting in settings)), None)


def fact_at(setting: Setting | None, meaning: Meaning) -> Fact | None:
    """What a setting means, with its place; None without the setting, or where it means nothing."""
    if setting is None:
        return None
    value = meaning if isinstance(meaning, str) else meaning(setting.value)
    return Fact(value, setting.where) if value else None
