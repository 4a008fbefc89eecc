"""A launch command with another layout: what decides one is taken out, the new arguments are put in, all else is kept.

    rewritten(words, arguments)        arguments as a list; a shell line in it stays one
    rewritten_line(line, arguments)    a shell line, to the last quote and blank of what is not the layout's

The new arguments stand at the end of the trainer's command. Doing it twice is doing it once.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mofa_model.errors import InputError
from mofa_model.launch import megatron, nemo, torchtitan
from mofa_model.launch.table import table
from mofa_model.launch.trainers import is_flag_of

_STATED: Final = frozenset(
    {"num-layers", "seq-length", "save-interval", "async-save", "fp8-param-gather", "training.mixed_precision_param"}
    | {"training.seq_len", "checkpoint.enable", "checkpoint.interval", "checkpoint.async_mode"}
    | {"model.num_layers", "model.seq_length", "dataset.seq_length", "checkpoint.save_interval", "checkpoint.async_save"}
)  # fmt: skip
"""Names that decide no layout: they go only where the new arguments say them too."""
_ENDS: Final = "\n;&|<>()"
"""What ends a command in a shell line."""


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of a shell line."""

    text: str
    """Without its quotes."""
    start: int
    """Where it begins."""
    end: int
    """Where the next character stands."""
    command: int
    """Number of the command that it is in."""


def rewritten(words: Sequence[str], arguments: Sequence[str]) -> tuple[str, ...]:
    """A list of arguments with another layout.

    >>> rewritten(["t.py", "--tensor-model-parallel-size=4", "--lr", "1e-4"], ["--tensor-model-parallel-size", "8"])
    ('t.py', '--lr', '1e-4', '--tensor-model-parallel-size', '8')
    """
    trainer = _trainer_of(arguments)
    lines = [at for at, word in enumerate(words) if _is_line(word, trainer)]
    shells = [at for at in range(1, len(words)) if words[at - 1] in {"-c", "-lc", "-ec", "-exc"}]
    for at in (lines or shells)[:1]:
        return (*words[:at], rewritten_line(words[at], arguments), *words[at + 1 :])
    gone = _layout(words, trainer, arguments)
    return (*(word for at, word in enumerate(words) if at not in gone), *arguments)


def rewritten_line(line: str, arguments: Sequence[str]) -> str:
    """A shell line with another layout.

    >>> rewritten_line("torchrun t.py --tensor-model-parallel-size $TP && sync", ["--tensor-model-parallel-size", "8"])
    'torchrun t.py --tensor-model-parallel-size 8 && sync'
    """
    trainer, found = _trainer_of(arguments), _scan(line)
    gone = _layout([word.text for word in found], trainer, arguments)
    commands = {found[at].command for at in gone} or {word.command for word in found}
    if len(commands) != 1:
        raise InputError("launch command: several commands could be the trainer's; give it a line of its own")
    (command,) = commands
    left = [at for at, word in enumerate(found) if word.command == command and at not in gone]
    if not left:
        raise InputError("launch command: nothing but the layout is in it; name the trainer's script")
    text, last = [line[: found[0].start]], found[0].start
    for at, word in enumerate(found):
        if at not in gone:
            text.append(line[last : word.end])
        last = word.end
        if at == left[-1]:
            text.append(f" {shlex.join(arguments)}")
    return "".join([*text, line[last:]])


def _trainer_of(arguments: Sequence[str]) -> str:
    """The trainer that arguments are for."""
    for trainer in (megatron.TRAINER, torchtitan.TRAINER):
        if any(is_flag_of(trainer, word) for word in arguments):
            return trainer
    if any(nemo.matches(word) for word in arguments):
        return nemo.TRAINER
    raise InputError("launch command: this trainer's layout is in a file, which cannot be written from here")


def _layout(words: Sequence[str], trainer: str, arguments: Sequence[str]) -> set[int]:
    """Places of the words that decide the layout."""
    others = {megatron.TRAINER, torchtitan.TRAINER} - {trainer}
    for word in words:
        if any(is_flag_of(other, word) for other in others) and not is_flag_of(trainer, word):
            raise InputError(
                f"launch command: {word.partition('=')[0]} is not {trainer}'s, for which the advice is"
            )
    new = {_name(word, trainer) for word in arguments}
    gone: set[int] = set()
    values = 0
    for at, word in enumerate(words):
        name = _name(word, trainer)
        if not name:
            if values and not word.startswith("--"):
                gone.add(at)
                values -= 1
            else:
                values = 0
            continue
        known = table(trainer).today(name, None)[0] in table(trainer).kinds
        values = 0
        if known and (name not in _STATED or name in new):
            gone.add(at)
            values = 0 if "=" in word or trainer == nemo.TRAINER else _values(name, trainer)
    return gone


def _name(word: str, trainer: str) -> str:
    """Name of the argument that a word is, as the tables have it; empty where it is none of the trainer's."""
    if trainer == nemo.TRAINER:
        return word.lstrip("+").partition("=")[0] if nemo.matches(word) else ""
    if word.startswith(("activation-checkpoint:", "activation_checkpoint:")):
        return "activation-checkpoint" if trainer == torchtitan.TRAINER else ""
    if not word.startswith("--"):
        return ""
    name = word[2:].partition("=")[0]
    name = name.replace("-", "_") if trainer == torchtitan.TRAINER else name.replace("_", "-")
    known = table(trainer)
    return name if name in known.kinds or name in known.older else ""


def _values(name: str, trainer: str) -> int:
    """How many of the words that follow an argument are its values, at most. [1]"""
    today, fixed = table(trainer).today(name, None)
    kind = table(trainer).kinds.get(today, "flag")
    if kind in {"flag", "word"} or kind.startswith("word:") or fixed is not None:
        return 0
    return 64 if kind.startswith("words:") else 1


def _is_line(word: str, trainer: str) -> bool:
    """Whether a word is a shell line with a layout in it."""
    return any(blank in word for blank in " \t\n") and any(_name(one.text, trainer) for one in _scan(word))


def _scan(line: str) -> list[_Word]:
    """The words of a shell line, and which command each is in; quotes that do not match are an error."""
    found: list[_Word] = []
    at = command = 0
    while at < len(line):
        if line[at] in " \t" or line.startswith("\\\n", at):
            at += 1 if line[at] in " \t" else 2
        elif line[at] == "#":
            at = (line + "\n").index("\n", at)
        elif line[at] in _ENDS:
            if line[at] in "<>" and found and found[-1].end == at and found[-1].text.isdecimal():
                found.pop()  # the 2 of 2>&1
            command, at = command + 1, at + 1
        else:
            end = _end(line, at)
            found.append(_Word(_unquoted(line[at:end]), at, end, command))
            at = end
    return found


def _end(line: str, at: int) -> int:
    """Where the word that begins at a place ends."""
    while at < len(line) and line[at] not in " \t" + _ENDS:
        pair = {"'": "'", '"': '"', "`": "`"}.get(line[at]) or (")" if line.startswith("$(", at) else "")
        if pair:
            at = _closing(line, at + (2 if pair == ")" else 1), pair)
        else:
            at += 2 if line[at] == "\\" else 1
    return min(at, len(line))


def _closing(line: str, at: int, mark: str) -> int:
    """Where what a mark closes has ended."""
    depth = 1
    while at < len(line):
        if line[at] == "\\" and mark != "'":
            at += 1
        elif line[at] == mark:
            depth -= 1
            if not depth:
                return at + 1
        elif mark == ")" and line[at] == "(":
            depth += 1
        at += 1
    raise InputError(f"launch command: a {mark} is missing")


def _unquoted(word: str) -> str:
    try:
        return "".join(shlex.split(word, posix=True)) if any(c in word for c in "'\"\\") else word
    except ValueError:
        return word
