"""The error for options that a verb lacks: it names the option that people meant. Not a verb."""

from __future__ import annotations

import re
from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NoReturn

from mofa_model.errors import UnknownName

_AXES: Final = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert", "dp": "data"}
_CALLED: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("gpu", "gpus"), ("nodes",)),
    **dict.fromkeys(("accelerator", "hardware", "instance"), ("gpu",)),
    **dict.fromkeys(("num-gpus", "n-gpus", "ngpus", "devices", "world-size"), ("gpus", "nodes")),
    **dict.fromkeys(("gbs", "global-batch-size"), ("global-batch",)),
    **dict.fromkeys(("context", "context-length", "seqlen", "max-seq-len", "max-length"), ("seq",)),
    **dict.fromkeys(("dtype", "mixed-precision"), ("precision",)),
    **dict.fromkeys(("mtbf", "failures-per-day"), ("rate", "failure-rate")),
    **dict.fromkeys(("checkpoint-interval", "save-interval"), ("interval",)),
    **dict.fromkeys(("days", "time"), ("duration", "window")),
    **dict.fromkeys(("bandwidth", "storage-bandwidth"), ("checkpoint-bandwidth", "storage")),
    **dict.fromkeys(("network", "interconnect", "fabric"), ("scale-out",)),
    **dict.fromkeys(("format", "out"), ("output",)),
    **dict.fromkeys(("zero", "fsdp", "zero-stage"), ("constraint optimizer=…", "strategy")),
    **dict.fromkeys(
        ("recompute", "activation-checkpointing"), ("constraint recompute=…", "strategy")
    ),
    **dict.fromkeys(("mbs", "micro-batch", "micro-batch-size"), ("constraint mbs=…", "strategy")),
    **{
        name: (f"constraint {axis}=…", "strategy")
        for axis, word in _AXES.items()
        for name in (
            axis,
            f"{word}-parallel",
            f"{word}-parallel-size",
            f"{word}-model-parallel-size",
        )
    },
}
"""Our options for options of other programs: the first one that the verb has is meant."""


def refuse(parser: ArgumentParser, words: Sequence[str]) -> NoReturn:
    """Refuse an unknown option, and name the option that was meant.

    That option has this name in other programs, has the same word in its name or its help, or is
    spelled like it.
    """
    flag = words[0].partition("=")[0]
    if not re.match(r"--?[a-zA-Z]", flag):
        it = "them" if words[1:] else "it"
        hint = _hint(parser, words[0])
        parser.error(f"{' '.join(words)}: no option stands before {it}{hint}")
    options = {action.option_strings[-1]: action.help or "" for action in _actions(parser)}
    name = flag.lstrip("-").replace("_", "-")
    meant = [
        f"--{option}"
        for option in _CALLED.get(name, ())
        if f"--{option.partition(' ')[0]}" in options
    ]
    meant += [
        option
        for word in (name, *name.split("-"))
        for option in options
        if _means(word, option, options[option])
    ]
    aliases = {flag: meant[0]} if meant else {}
    raise UnknownName(
        "option", flag, options, aliases=aliases, also=f"`{parser.prog} --help` lists them all"
    )


def _hint(parser: ArgumentParser, word: str) -> str:
    """A hint for a word without an option: the option that it seems to be a value of."""
    from mofa_model import presets

    options: list[str] = []
    if re.match(r"[a-z_-]+=", word):
        options += ["--strategy", "--constraint"]
    if word.endswith(".json"):
        options.append("--model")
    options += [option for option, kind in _KINDS.items() if presets.meanings(kind, word)]
    for option in options:
        if option in _options(parser):
            return f"; did you mean {option} {word}?"
    return f"; `{parser.prog} --help` shows how words stand together"


_KINDS: Final = {
    "--gpu": "devices",
    "--model": "models",
    "--precision": "precisions",
    "--framework": "stacks",
}
"""Options whose values are names of presets."""


def among(parser: ArgumentParser, words: Sequence[str]) -> list[str]:
    """The words that are options, but not of this verb."""
    options = {*_options(parser), "--"}
    return [
        word
        for word in words
        if word.startswith("--") and " " not in word and word.partition("=")[0] not in options
    ]


def _options(parser: ArgumentParser) -> set[str]:
    return {name for action in _actions(parser) for name in action.option_strings}


def _means(word: str, option: str, help_text: str) -> bool:
    return (
        word in {*option[2:].split("-"), help_text.partition(" ")[0].strip(",;:")}
        or (word.isalpha() and word.startswith(option[2:]))
        or (len(word) == 1 and option[2:].startswith(word))
    )


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    """Every option of a verb and of the verbs below it."""
    for action in parser._actions:  # noqa: SLF001, argparse has no other list of them
        if isinstance(action.choices, Mapping):
            for below in action.choices.values():
                yield from _actions(below)
        elif action.option_strings and action.help is not SUPPRESS:
            yield action
