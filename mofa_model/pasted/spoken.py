"""What people type before they know the options: `llama3-70b 512xH100`, `recommend … --gpu-type h100`.

    read_words(words)    the same words as options of `mofa paste`, and files; and what nobody understands

Words of other programs for an option are that option, a number beside a GPU's name is how many there
are, and of what is left the longest run that names a model is the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from mofa_model.pasted.model_names import is_size
from mofa_model.pasted.sentence import (
    RANK,
    Sentence,
    counted_gpus,
    is_command,
    is_file,
    is_gpu,
    vocabulary,
)

_OPTIONS: Final = {
    f"--{ours}" if ours != "files" else "": others for ours, others in vocabulary("options").items()
}
_MEANT: Final = {other: ours for ours, others in _OPTIONS.items() for other in others}
"""Options of other programs, and ours; those of files are none, the file alone is."""
OPTIONS: Final = frozenset(
    {*_OPTIONS, *_MEANT, "--tokens", "--size", "-o", "--output", "--save-dir"} - {""}
)
"""Options with which a command needs no verb."""
DEGREES: Final = {name: ours for ours, names in vocabulary("degrees").items() for name in names}
"""Degrees as options of their own: today's layout."""
ASKED: Final = frozenset(vocabulary("words")["asks"])
"""Words that people put where a verb is; all of them ask for what `mofa paste` answers."""
_ENDING: Final = re.compile(r"\.(sh|ya?ml|json|toml|py|sbatch|slurm|txt|cfg|conf|md)$")


class SpokenWords(NamedTuple):
    """What somebody typed, as options."""

    options: tuple[str, ...]
    unread: tuple[str, ...] = ()
    """Words that nobody understands, where all the others make a question."""


def as_options(given: Sequence[str]) -> list[str]:
    """Words as options of `mofa paste`; files, options of ours and what nobody knows stay.

    >>> as_options(["llama3-70b", "512xH100"])
    ['--gpus', '512', '--gpu', 'H100', '--model', 'llama3-70b']
    >>> as_options(["llama3-70b", "--num-gpus", "8"])
    ['llama3-70b', '--gpus', '8']
    >>> as_options(["x.sh", "--gpu-type=h100", "--tp", "8"])
    ['x.sh', '--gpu=h100', '--current', 'tp=8']
    """
    return list(read_words(given).options)


def read_words(given: Sequence[str]) -> SpokenWords:
    """Words as options, and those of them that nobody understands.

    >>> read_words("will tp8 pp4 do for llama3 70b on 16 nodes of 8 h100 bananas".split())
    SpokenWords(options=('--nodes', '16', '--gpus-per-node', '8', '--gpu', 'h100', '--current', 'tp=8,pp=4', '--model', 'llama3-70b'), unread=('bananas',))
    """
    return _loose(list(_renamed(given)))


def _renamed(given: Sequence[str]) -> Iterator[str]:
    degrees, at = list[str](), 0
    while at < len(given):
        word = given[at]
        name, equals, value = word.partition("=")
        plain = name if not name.startswith("--") else name.lower().replace("_", "-")
        following = given[at + 1] if at + 1 < len(given) else ""
        at += 1
        if plain in DEGREES and (value or following).isdigit():
            degrees.append(f"{DEGREES[plain]}={value or following}")
            at += not equals
            continue
        if plain in {"--size", "--model-size"} and is_size(value or following):
            yield value or following
            at += not equals
            continue
        ours = _MEANT.get(plain, plain if plain.startswith("--") else word)
        if ours == "--lora" and not equals and (not following or following.startswith("-")):
            yield from (ours, RANK)
            continue
        if ours in {"--gpus", "--gpu"}:
            counted = counted_gpus(value if equals else following)
            if counted:
                yield from ("--gpus", counted[0], "--gpu", counted[1])
                at += not equals
                continue
        if ours == "--gpu" and (value or following).isdigit() and not is_gpu(value or following):
            yield from ("--gpus", value or following)
            at += not equals
            continue
        if ours == "--gpu" and plain in _MEANT and is_file(value if equals else following):
            continue  # a machine's own output
        if plain in _MEANT or (word.startswith("--") and ours != name):
            yield from (
                [f"{ours}={value}"] if equals and ours else [one for one in (ours, value) if one]
            )
            continue
        yield word
    if degrees:
        yield from ("--current", ",".join(degrees))


def _loose(words: Sequence[str]) -> SpokenWords:
    """Words that belong to no option, as options: machines, numbers, and a model."""
    kept, inputs, loose, at = list[str](), list[str](), list[str](), 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("-") and word != "-":
            kept.append(word)
            if "=" not in word and at < len(words) and not words[at].startswith("--"):
                kept.append(words[at])
                at += 1
        elif word == "-" or is_file(word) or is_command(word) or _ENDING.search(word):
            inputs.append(word)
        else:
            loose += word.split()
    kept = [*inputs, *kept]  # a parser takes them in one place alone
    if not loose:
        return SpokenWords(tuple(kept))
    sentence = Sentence(loose, kept)
    named = sentence.read()
    if len(loose) == 1 and named[:1] == ["--model"]:  # a model alone needs no option
        return SpokenWords((*loose, *kept))
    return SpokenWords((*sentence.kept, *named), tuple(sentence.unread))
