"""The trainers' argument names, from the files of `arguments/`, and what is checked against them.

Every argument that we print is looked up here first, so that no flag is printed that a trainer does
not have. Names of earlier releases are translated when they are read. `verified.json`, which
`make oracle` writes, says what the trainers' own checks took.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

from mofa_model.errors import BadValue, NotRead, shown
from mofa_model.launch.answer import TORCHRUN, Launch
from mofa_model.records import dataclass

_LIKE: Final = 0.84
"""Likeness of two names above which one is meant by the other: the trainers' own names beside those
of the tables are less alike. [1]"""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """One trainer's arguments."""

    trainer: str
    """Its id, as `--launch` takes it."""
    release: str
    """Release in which they were read."""
    kinds: Mapping[str, str]
    """Kind by name: flag, int, text, a|b|c, words:a|b or word:a|b."""
    older: Mapping[str, str]
    """Names of earlier releases, with today's; `name=value` where a flag became a choice."""
    refused: Mapping[str, str]
    """Arguments whose cost is not modelled, each with what to give instead."""
    priced_values: Mapping[str, Sequence[str]]
    """Values that are priced, by argument, where the trainer takes others too."""
    unpriced: Sequence[str]
    """Patterns of arguments that change memory or time and that no field of a strategy holds."""

    def not_priced(self, options: Mapping[str, object]) -> tuple[str, ...]:
        """Arguments beside the strategy that change memory or time; refused ones are an error.

        >>> table("megatron").not_priced({"attention-backend": "fused", "lr": "1e-4"})
        ('attention-backend',)
        """
        for name, value in options.items():
            text = str(value).lower()
            if name in self.refused and text not in {"false", "null"}:
                raise BadValue(name, value, f"its cost is not modelled: {self.refused[name]}")
            allowed = self.priced_values.get(name)
            if allowed is not None and text not in {word.lower() for word in allowed}:
                raise BadValue(name, value, f"only {' or '.join(allowed)} has a modelled cost")
        return tuple(name for name in options if self.is_unpriced(name))

    def is_unpriced(self, name: str) -> bool:
        """Whether an argument changes memory or time and is not read."""
        is_read = name in self.kinds or name in self.priced_values or name in self.refused
        return not is_read and any(fnmatchcase(name, pattern) for pattern in self.unpriced)

    def meant_by(self, name: str) -> str:
        """The argument that is meant by a name which is almost one; empty = it is one, or is
        another.

        A name that begins another, or has all of its words and more, is no slip: trainers take the
        beginnings of names, and forks add words.

        >>> table("megatron").meant_by("tensor-parallel-sizes"), table("megatron").meant_by("lr")
        ('tensor-model-parallel-size', '')
        """
        names = {*self.kinds, *self.older, *self.refused, *self.priced_values}
        if (
            name in names
            or self.is_unpriced(name)
            or any(candidate.startswith(name) for candidate in names)
        ):
            return ""
        near = get_close_matches(name, names, n=1, cutoff=_LIKE)
        return near[0] if near and f"-{near[0]}-" not in f"-{name}-" else ""

    def choices(self, name: str) -> tuple[str, ...]:
        """The words that an argument takes; empty = it takes numbers, any text, or nothing."""
        kind = self.kinds[name]
        return tuple(kind.rpartition(":")[2].split("|")) if "|" in kind or ":" in kind else ()

    def check(self, name: str, *values: object) -> None:
        """Refuse to print what the trainer would not take. That is our fault, not the caller's."""
        kind = self.kinds.get(name)
        if kind is None:
            raise LookupError(f"{self.trainer} has no argument {name}")
        allowed = self.choices(name)
        if allowed:
            fits = all(str(value) in allowed for value in values)
        else:
            fits = kind != "int" or all(isinstance(value, int) for value in values)
        if not fits:
            raise LookupError(f"{self.trainer} does not take {name} {values}")

    def today(self, name: str, value: str | None) -> tuple[str, str | None]:
        """An argument of any release by its name of today, with its value."""
        new = self.older.get(name, name)
        new, equals, fixed = new.partition("=")
        return new, fixed if equals else value

    def number(self, name: str, value: str | None) -> int:
        """A whole number that a command gives."""
        if value is None or not re.fullmatch("0*[1-9][0-9]*", value) or len(value) > 9:
            refusal = NotRead if value is not None and "$" in value else BadValue
            right = "give a whole number of one or more (shell variables cannot be read)"
            raise refusal(name, value, right)
        return int(value)

    def choice(self, name: str, value: str | None) -> str:
        """One of the words that an argument takes."""
        allowed = self.choices(name)
        if value not in allowed:
            raise BadValue(name, value, f"one of {', '.join(allowed)}")
        return str(value)


class Words:
    """Collects the arguments of a launch; each is looked up in the trainer's table first.

    `form` makes words of a name and its values.
    """

    def __init__(self, trainer: str, form: Callable[[str, tuple[object, ...]], list[str]]) -> None:
        self.words: list[str] = []
        self._known = table(trainer)
        self._form = form

    def add(self, name: str, *values: object, when: object = True) -> None:
        """Add one argument where a condition holds."""
        if when:
            self._known.check(name, *values)
            self.words += self._form(name, values)

    def launch(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        notes: Iterable[str] = (),
        starter: Iterable[str] = TORCHRUN,
        before: Iterable[str] = (),
    ) -> Launch:
        """The launch with these arguments, and with words `before` them."""
        return Launch(
            trainer=self._known.trainer,
            release=self._known.release,
            arguments=(*before, *self.words),
            environment=environment or {},
            files=files or {},
            notes=tuple(notes),
            starter=tuple(starter),
        )


@cache
def table(trainer: str) -> Arguments:
    """The arguments of a trainer.

    >>> table("megatron").kinds["tensor-model-parallel-size"]
    'int'
    """
    text = Path(__file__).with_name("arguments").joinpath(f"{trainer}.toml").read_text("utf-8")
    content = tomllib.loads(text)
    return Arguments(
        trainer=trainer,
        release=content["release"],
        kinds=content["arguments"],
        older=content.get("older", {}),
        refused=content["refused"],
        priced_values=content["only"],
        unpriced=content["unpriced"]["names"],
    )


def unsupported(trainer: str, field: str, value: object) -> BadValue:
    """The error for a layout that a trainer cannot be told to run."""
    right = f"{trainer} has no argument for it; choose another {field}"
    return BadValue(f"strategy.{field}", value, right)


def setting(name: str, values: tuple[object, ...]) -> list[str]:
    """A setting as one word, `name=value` with the value in JSON: a form for `Words`."""
    (value,) = values
    return [f"{name}={json.dumps(value)}"]


def nested(settings: Sequence[str]) -> dict[str, Any]:
    """Settings as the file holds them.

    >>> nested(["bf16.enabled=true", "zero_optimization.stage=1"])
    {'bf16': {'enabled': True}, 'zero_optimization': {'stage': 1}}
    """
    tree: dict[str, Any] = {}
    for assignment in settings:
        path, _, value = assignment.partition("=")
        *above, last = path.split(".")
        place = tree
        for key in above:
            place = place.setdefault(key, {})
        place[last] = json.loads(value)
    return tree


_DEGREE: Final = re.compile(
    r"(?:^|[_-])(?:[tpcesd]p|etp|vpp|mp)(?:[_-](?:size|degree|shard|replicate))*$"
    r"|parallel(?:ism)?(?:[_-](?:size|degree))?$"
)
"""Names of degrees of parallelism, in any trainer's file."""


def refuse_degrees(arguments: Arguments, settings: Settings) -> None:
    """Refuse a degree of parallelism in a file that is not read: without it the layout is another.

    The model's own part of a file is left alone: `pretraining_tp` of a config.json says nothing
    about the training.
    """
    read = {
        name.rpartition(".")[2]
        for name in (*arguments.kinds, *arguments.older, *arguments.priced_values)
    }
    for path, value in settings.leaves().items():
        name = path.rpartition(".")[2]
        is_read = (
            path.startswith("model.model_config.")
            or name in read
            or arguments.is_unpriced(path)
            or arguments.is_unpriced(name)
        )
        is_degree = not isinstance(value, bool) and isinstance(value, int) and value > 1
        if is_degree and not is_read and _DEGREE.search(name):
            raise BadValue(path, value, "this degree is not read; write the layout as tp=8,pp=4,…")


@dataclass(frozen=True)
class Settings:
    """A file of settings as it was read; what is missing, or left to others by "auto", is None."""

    document: Mapping[str, Any]
    """The file."""

    def value(self, path: str) -> Any:
        """The value at a dotted path of the settings; None where there is none."""
        place: Any = self.document
        for key in path.split("."):
            place = place.get(key) if isinstance(place, Mapping) else None
        return None if place == "auto" else place

    def number(self, path: str, least: int = 1) -> int | None:
        """A whole number."""
        value = self.value(path)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or value < least
        ):
            raise BadValue(path, value, f"give a whole number of {least} or more")
        return None if value is None else int(value)

    def truth(self, path: str, *, default: bool = False) -> bool:
        """A switch, also where it is written as a word."""
        value = self.value(path)
        return default if value is None else str(value).lower() in {"true", "yes", "on", "1"}

    def leaves(self) -> dict[str, Any]:
        """All values of nested settings, by dotted path.

        >>> Settings({"bf16": {"enabled": True}, "x": "auto"}).leaves()
        {'bf16.enabled': True}
        """
        values, pending = dict[str, Any](), list(self.document.items())
        while pending:
            path, value = pending.pop()
            if isinstance(value, Mapping):
                pending += [(f"{path}.{key}", child) for key, child in value.items()]
            elif value != "auto":
                values[str(path)] = value
        return values


@cache
def _verified() -> dict[str, Any]:
    return dict(json.loads(Path(__file__).with_name("verified.json").read_text(encoding="utf-8")))


def argument_names(arguments: Sequence[str]) -> list[str]:
    """Names of arguments, flags and overrides alike.

    >>> argument_names(["--micro-batch-size", "2", "train.micro_batch_size=2"])
    ['--micro-batch-size', 'train.micro_batch_size']
    """
    parts = [word.partition("=") for word in arguments]
    return sorted({name for name, equals, _ in parts if equals or name.startswith("--")})


def unverified(trainer: str, arguments: Sequence[str], version: str) -> str:
    """Why the trainer's own checks say nothing of a launch; empty where they took its like.

    >>> unverified("megatron", ["--tensor-model-parallel-size", "8"], "core_v0.19.2-cuda13")
    ''
    >>> unverified("megatron", ["--tensor-model-parallel-size", "8"], "26.04")
    "'26.04' of megatron is not verified, 0.19.2 is"
    """
    record = _verified().get(trainer)
    if record is None:
        return f"{trainer} itself was asked about no launch of ours"
    releases = " or ".join(record["releases"])
    if not version:
        return (
            f"the job names no version of {trainer}, verified is {releases}: write it into the "
            "annotation advisor.mofa.dev/framework-version, or into the tag of an image with the "
            "trainer's name"
        )
    if not any(
        re.search(rf"(?<![\d.]){re.escape(release)}(?![A-Za-z0-9.])", version)
        for release in record["releases"]
    ):
        return f"{shown(version)} of {trainer} is not verified, {releases} is"
    foreign = sorted({*argument_names(arguments)} - {*record["names"]})
    return (
        f"{foreign[0]} is in no launch that {trainer} {releases} was asked about" if foreign else ""
    )


def is_flag_of(trainer: str, word: str) -> bool:
    """Whether a word is one of a trainer's flags, written with hyphens or underscores."""
    arguments = table(trainer)
    checkpointing = ("activation-checkpoint:", "activation_checkpoint:")
    if trainer == "torchtitan" and word.startswith(checkpointing):
        return True
    if not word.startswith("--"):
        return False
    name = word[2:].partition("=")[0]
    spelled = name.replace("-", "_") if trainer == "torchtitan" else name.replace("_", "-")
    return (spelled in arguments.kinds and not _shared(spelled)) or spelled in arguments.older


def _shared(name: str) -> bool:
    """Flags that are not Megatron's alone: they do not tell whose command it is."""
    return name in {"bf16", "fp16", "seq-length", "num-layers"}
