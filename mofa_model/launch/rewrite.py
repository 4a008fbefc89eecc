"""A launch command with another layout: its words are replaced, and all else is kept.

    rewritten(words, arguments)        arguments as a list; a shell line in it stays one
    rewritten_line(line, arguments)    a shell line; other quotes and blanks stay as they are

The new arguments stand at the end of the trainer's command, before a `--` that ends its flags.
Doing it twice is doing it once.
A command in which the shell's own words do not tell what is meant is refused, with the reason.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from mofa_model.errors import BadValue, InputError, shown
from mofa_model.launch import megatron, nemo, torchtitan
from mofa_model.launch.edits import Edit, applied
from mofa_model.launch.over_file import KEYS
from mofa_model.launch.shell import (
    BUILTINS,
    Command,
    Script,
    ShellWord,
    append_obstacle,
    is_run,
    line_of,
    parse,
)
from mofa_model.launch.table import is_flag_of, table

_STATED: Final = frozenset(
    {"num-layers", "seq-length", "save-interval", "async-save", "async-strategy"}
    | {"fp8-param-gather"}
    | {"training.mixed_precision_param"}
    | {"hybrid-layer-pattern", "model.hybrid_layer_pattern"}
    | {"use-persistent-ckpt-worker", "no-check-for-nan-in-loss-and-grad"}
    | {"moe-grouped-gemm", "model.moe_grouped_gemm"}
    | {"training.seq_len", "checkpoint.enable", "checkpoint.interval", "checkpoint.async_mode"}
    | {"model.num_layers", "model.seq_length", "dataset.seq_length"}
    | {"checkpoint.save_interval", "checkpoint.async_save"}
)  # fmt: skip
"""Names that decide no layout: they go only where the new arguments say them too."""
_DISPATCHERS: Final = frozenset({"moe-token-dispatcher-type", "model.moe_token_dispatcher_type"})
"""What sends tokens to experts."""
_CHOSEN: Final = dict.fromkeys(_DISPATCHERS, "flex") | {"async-strategy": "nvrx"}
"""Values that a command keeps where it chose them: they have flags or a package of their own."""
KEPT_BY_THEMSELVES: Final = (
    _STATED
    | _DISPATCHERS
    | {"ckpt-format", "use-precision-aware-optimizer"}
    | {"--save_steps", "--save_strategy", "--deepspeed"}
)
"""Names that stay in a script where the new arguments do not say them."""
_SHAPE: Final = frozenset(
    {"hidden-size", "ffn-hidden-size", "num-attention-heads", "num-query-groups", "vocab-size"}
    | {"global-batch-size", "num-experts", "moe-ffn-hidden-size", "moe-router-topk", "bf16", "fp16"}
)
"""Arguments of Megatron that say what is trained, and not how; those without a value at the end."""
_REDIRECTS: Final = re.compile(r"(?:\\\n)*[<>]")


def _refused(why: str) -> InputError:
    return InputError(f"launch command: {why}")


def rewritten(words: Sequence[str], arguments: Sequence[str]) -> tuple[str, ...]:
    """A list of arguments with another layout.

    >>> words = ["t.py", "--tensor-model-parallel-size=4", "--lr", "1e-4"]
    >>> rewritten(words, ["--tensor-model-parallel-size", "8"])
    ('t.py', '--lr', '1e-4', '--tensor-model-parallel-size', '8')
    """
    trainer = _trainer_of(arguments)
    line_index = _line_in(words, trainer, arguments)
    if line_index is not None:
        return (
            *words[:line_index],
            rewritten_line(words[line_index], arguments),
            *words[line_index + 1 :],
        )
    arguments = _without_chosen(words, trainer, arguments)
    replaced = _layout_indexes(words, trainer, arguments)
    for word in () if replaced else words:
        if any(blank in word for blank in " \t\n") and _mentions(word, trainer, arguments):
            if len(words) == 1:
                return (rewritten_line(word, arguments),)
            raise _refused(
                f"the layout's arguments are in {shown(word)}; write them into the command"
            )
    insertion = _insertion_index(words, replaced)
    rest = [index for index in range(len(words)) if index not in replaced]
    return (
        *(words[index] for index in rest if index < insertion),
        *arguments,
        *(words[index] for index in rest if index >= insertion),
    )


def layout_words(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command that say layout, batch, sequence and shape of its model; none where a
    trainer reads them from a file.

    No other word is among them, so paths, names and tokens are not.

    >>> layout_words(["t.py", "--api-key", "x", "--tensor-model-parallel-size=4", "--bf16"])
    ('--tensor-model-parallel-size=4', '--bf16')
    """
    try:
        trainer = _trainer_of(words)
        places = _layout_indexes(words, trainer, [f"--{name}" for name in sorted(_STATED)])
    except InputError:
        return ()
    for index, word in enumerate(words):
        if word.startswith("--") and word[2:].partition("=")[0].replace("_", "-") in _SHAPE:
            following = words[index + 1 : index + 2]
            valued = "=" not in word and following and not following[0].startswith("-")
            places |= {index, index + 1} if valued and following[0].isdigit() else {index}
    return tuple(words[index] for index in sorted(places))


def rewritten_line(line: str, arguments: Sequence[str]) -> str:
    """A shell line with another layout.

    >>> line = "torchrun t.py --tensor-model-parallel-size $TP && sync"
    >>> rewritten_line(line, ["--tensor-model-parallel-size", "8"])
    'torchrun t.py --tensor-model-parallel-size 8 && sync'
    """
    return applied(line, sorted(_edits(line, _trainer_of(arguments), arguments)))


def _edits(line: str, trainer: str, arguments: Sequence[str]) -> list[Edit]:
    """What changes in a line, or in the line that its trainer's shell is told to run."""
    words = _trainer_command(parse(line), trainer, arguments).words
    texts = [word.text for word in words]
    line_index = _line_in(texts, trainer, arguments)
    if line_index is not None:
        return _edits_inside(words[line_index], trainer, arguments)
    arguments = _without_chosen(texts, trainer, arguments)
    replaced = _layout_indexes(texts, trainer, arguments)
    _check_values(words, replaced, trainer)
    insertion = _insertion_index(texts, replaced)
    words_before = [
        word for index, word in enumerate(words) if index not in replaced and index < insertion
    ]
    if not words_before:
        raise _refused(
            "it holds only the arguments of the layout; add the trainer's script before them"
        )
    is_read_twice = texts[0] in {"eval", "ssh"}  # words that a shell reads a second time
    new = shlex.join([shlex.quote(word) for word in arguments] if is_read_twice else arguments)
    # A number that touches < or > would say which file it is.
    last = words_before[-1].end
    added = Edit(last, last, f" {new} " if _REDIRECTS.match(line, last) else f" {new}")
    return [added] + [
        Edit(word.start if _REDIRECTS.match(line, word.end) else word.before, word.end, "")
        for word in (words[index] for index in replaced)
    ]


def _edits_inside(word: ShellWord, trainer: str, arguments: Sequence[str]) -> list[Edit]:
    """Edits inside a word that a shell runs as a command line.

    In double quotes each piece is edited; any other word is quoted anew.
    """
    if word.quoted is not None:
        inner = word.quoted
        return [
            Edit(inner.at[edit.start], inner.at[edit.end], inner.escaped(edit.text))
            for edit in _edits(inner.text, trainer, arguments)
        ]
    if word.expands:
        raise _refused(
            f"{shown(word.raw)} is run as a shell line; put all of it into one pair of quotes"
        )
    text = rewritten_line(word.text, arguments).replace("'", "'\\''")
    return [Edit(word.start, word.end, f"'{text}'")]


def _trainer_command(script: Script, trainer: str, arguments: Sequence[str]) -> Command:
    """The trainer's command: the one with a layout, or the only one that could be."""
    for value in script.values:
        name, _, text = value.partition("=")
        if _mentions(text, trainer, arguments):
            raise _refused(
                f"the layout's arguments are in the variable {name}; write them into the command"
            )
    if any(_mentions(text, trainer, arguments) for text in script.documents):
        raise _refused("the layout's arguments are in a here-document; write them into the command")
    words = [word for command in script.commands for word in command.words]
    _check_words(script.commands)
    candidates = [command for command in script.commands if _decides(command, trainer, arguments)]
    for word in () if candidates else words:
        if _mentions(word.text, trainer, arguments):
            raise _refused(
                f"the layout's arguments are in {shown(word.text)}; write them into the command"
            )
    outer = [
        (command, command.words[0].text) for command in script.commands if not command.substituted
    ]
    candidates = candidates or [command for command, name in outer if name not in BUILTINS]
    candidates = candidates or [command for command, name in outer if name in {".", "source"}]
    if not candidates:
        raise _refused("it holds no command; add the one that runs the trainer's script")
    if len(candidates) > 1:
        raise _refused(
            "several of its commands could be the trainer's; "
            "write the layout's arguments in one, or put that command on a line of its own"
        )
    if candidates[0].substituted:
        raise _refused(
            "the layout's arguments are in a substitution, $( ); write them into the command"
        )
    return candidates[0]


def _check_words(commands: Iterable[Command]) -> None:
    """Refuse what is no command but the rest of one, and blanks that are part of a word."""
    for command in commands:
        first = command.words[0].raw
        if first.startswith("-"):
            raise _refused(
                f"{shown(first)} would run as a separate command;"
                " end the line before it with a backslash, and put no comment between"
            )
        for word in command.words:
            ends = (len(word.raw) - len(word.raw.rstrip("\\"))) % 2
            if ends or word.raw.startswith(("\\ ", "\\\t")):
                raise _refused(
                    f"a backslash that ends no line makes {shown(word.text)} one word; take it out"
                )


def _check_values(words: Sequence[ShellWord], replaced: Iterable[int], trainer: str) -> None:
    """Refuse a variable that may be one more value of the layout, or something else."""
    for index in replaced:
        if (
            words[index].expands
            and not argument_of(words[index].text, trainer)
            and not argument_of(words[index - 1].text, trainer)
        ):
            raise _refused(
                f"{shown(words[index].raw)} may or may not be the value of a layout's argument; "
                "write it before those arguments"
            )


def _line_in(words: Sequence[str], trainer: str, arguments: Sequence[str]) -> int | None:
    """Index of the word that is a shell's script (`bash -c WORD`) and holds the trainer's
    arguments; None where they are words of the command itself.
    """
    line_index = line_of(words)
    if line_index is None:
        return None
    if line_index == len(words):
        raise _refused("its shell has nothing to run; name the trainer's script")
    is_in_line = _mentions(words[line_index], trainer, arguments)
    is_beside = bool(
        _layout_indexes([*words[:line_index], *words[line_index + 1 :]], trainer, arguments)
    )
    if is_in_line and is_beside:
        raise _refused(
            "the layout's arguments are both in the line that a shell runs and beside it; "
            "write them in one place"
        )
    if not is_beside and not is_run(words[:line_index]):
        raise _refused(
            f"it is not known whether {shown(words[0])} runs the shell after it; "
            "begin the command with that shell"
        )
    passed = len(words) > line_index + 1 and (
        "$@" in words[line_index] or "$*" in words[line_index]
    )
    if is_beside and not passed and is_run(words[:line_index]):
        raise _refused(
            "the layout's arguments are beside the line that a shell runs; write them in that line"
        )
    return None if is_beside or (passed and not is_in_line) else line_index


def _insertion_index(words: Sequence[str], replaced: Iterable[int]) -> int:
    """The index at which new arguments go: that of a `--` after the old ones, else the end. [1]"""
    if why := append_obstacle(words):
        raise _refused(why)
    places = sorted(replaced)
    end = next(
        (
            index
            for index, word in enumerate(words)
            if word == "--" and places and index > places[0]
        ),
        len(words),
    )
    if places and places[-1] > end:
        raise _refused("the layout's arguments are on both sides of --; write them on one side")
    return end


def _decides(command: Command, trainer: str, arguments: Sequence[str]) -> bool:
    """Whether a layout is in a command, or in the line that it runs."""
    words = [word.text for word in command.words]
    line_index = line_of(words)
    ran = (
        line_index is not None
        and line_index < len(words)
        and _mentions(words[line_index], trainer, arguments)
    )
    return ran or bool(_layout_indexes(words, trainer, arguments))


def _mentions(text: str, trainer: str, arguments: Sequence[str]) -> bool:
    """Whether a layout is in a text, once it is taken apart at its quotes or without them."""
    ends = r"[;&|<>()]"
    texts = (
        re.sub(r"""['"\\]|""" + ends, " ", text),
        re.sub(ends, " ", re.sub(r"""\\\n|['"\\]""", "", text)),
    )
    return any(_layout_indexes(variant.split(), trainer, arguments) for variant in texts)


def _without_chosen(words: Sequence[str], trainer: str, arguments: Sequence[str]) -> list[str]:
    """The new arguments, without those for which the command has a value of its own that
    it keeps.
    """

    def named(line: Sequence[str], name: str) -> list[int]:
        return [i for i, word in enumerate(line) if argument_of(word, trainer) == name]

    dropped: set[int] = set()
    for name, value in _CHOSEN.items():
        values = [
            words[i].partition("=")[2] or "".join(words[i + 1 : i + 2]) for i in named(words, name)
        ]
        if value in values:
            for i in named(arguments, name):
                dropped |= {i} if "=" in arguments[i] else {i, i + 1}
    return [word for i, word in enumerate(arguments) if i not in dropped]


def _trainer_of(arguments: Sequence[str]) -> str:
    """The trainer that arguments are for."""
    for trainer in (megatron.TRAINER, torchtitan.TRAINER):
        if any(is_flag_of(trainer, word) for word in arguments):
            return trainer
    if any(nemo.is_override(word) for word in arguments):
        return nemo.TRAINER
    raise _refused(
        "this trainer reads its layout from a file, which is not changed here; "
        "write the file yourself"
    )


def _layout_indexes(words: Sequence[str], trainer: str, arguments: Sequence[str]) -> set[int]:
    """Places of the words that decide the layout."""
    others = {megatron.TRAINER, torchtitan.TRAINER} - {trainer}
    for index, word in enumerate(words):
        if why := _refused_in(words[index : index + 2], trainer):
            raise _refused(why)
        if any(is_flag_of(other, word) for other in others) and not is_flag_of(trainer, word):
            raise _refused(
                f"{word.partition('=')[0]} is no argument of {trainer}, which the advice is for"
            )
    new = {argument_of(word, trainer) for word in arguments}
    replaced: set[int] = set()
    values = 0
    for index, word in enumerate(words):
        name = argument_of(word, trainer)
        if not name:
            if values and not word.startswith("--"):
                replaced.add(index)
                values -= 1
            else:
                values = 0
            continue
        today = table(trainer).today(name, None)[0]
        values = 0
        if today in table(trainer).kinds and (today not in _STATED | _DISPATCHERS or today in new):
            replaced.add(index)
            values = 0 if "=" in word or trainer == nemo.TRAINER else values_of(name, trainer)
    return replaced


def _refused_in(words: Sequence[str], trainer: str) -> str:
    """Why a layout cannot be written beside one of the arguments; empty where it can."""
    name, equals, value = words[0].lstrip("-+").partition("=")
    flags = trainer != nemo.TRAINER
    if name in table(trainer).kinds or flags != words[0].startswith("--"):
        return ""
    name = name.replace("_", "-") if trainer == megatron.TRAINER else name.replace("-", "_")
    try:
        table(trainer).not_priced({name: value if equals else "".join(words[1:])})
    except BadValue as error:
        return f"{error}; take it out"
    return ""


def argument_of(word: str, trainer: str) -> str:
    """Name of the trainer's argument that a word is; empty where it is none."""
    if trainer == nemo.TRAINER:
        return word.lstrip("+").partition("=")[0] if nemo.is_override(word) else ""
    if trainer in KEYS:
        name = word.removeprefix("--").partition("=")[0]
        return name if name in KEYS[trainer] and (word.startswith("--") or "=" in word) else ""
    if word.startswith(("activation-checkpoint:", "activation_checkpoint:")):
        return "activation-checkpoint" if trainer == torchtitan.TRAINER else ""
    if not word.startswith("--"):
        return ""
    arguments = table(trainer)
    name = word.partition("=")[0]
    # Tables of Hugging Face's trainers have the hyphens in the names.
    if f"--{trainer}" not in arguments.kinds and "--bf16" not in arguments.kinds:
        name = name[2:]
        name = name.replace("-", "_") if trainer == torchtitan.TRAINER else name.replace("_", "-")
    return name if name in arguments.kinds or name in arguments.older else ""


def values_of(name: str, trainer: str) -> int:
    """How many of the words that follow an argument are its values, at most. [1]"""
    today, fixed = table(trainer).today(name, None)
    kind = table(trainer).kinds.get(today, "flag")
    if kind in {"flag", "word"} or kind.startswith("word:") or fixed is not None:
        return 0
    return 64 if kind.startswith("words:") else 1
