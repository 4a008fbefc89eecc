"""What people type before they know the options: `llama3-70b 512xH100`, `recommend … --gpu-type
h100`.

    read_words(words)    the same words as options of `mofa paste`, and files; and what nobody
                         understands

Words of other programs for an option are that option, a number beside a GPU's name is how many
there are, and of what is left the longest run that names a model is the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from mofa_model import presets
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
"""Options of other programs with ours; empty where only the file behind the option counts."""
OPTIONS: Final = frozenset(
    {*_OPTIONS, *_MEANT, "--tokens", "--size", "-o", "--output", "--save-dir"} - {""}
)
"""Options by which a command without a verb is read as `mofa paste`."""
DEGREES: Final = {name: ours for ours, names in vocabulary("degrees").items() for name in names}
"""Degrees as options of their own: a planned layout."""
_SHARDING: Final = vocabulary("sharding")
ASKED: Final = frozenset(vocabulary("words")["asks"])
"""Words in the place of a verb that ask for what `mofa paste` answers."""
_ENDING: Final = re.compile(r"\.(sh|ya?ml|json|toml|py|sbatch|slurm|txt|cfg|conf|md|ipynb|log)$")


class SpokenWords(NamedTuple):
    """What somebody typed, as options."""

    options: tuple[str, ...]
    unread: tuple[str, ...] = ()
    """Words that nobody understands, where all the others make a question."""
    devices: tuple[str, ...] = ()
    """All devices, where several are named; the first is answered."""


def as_options(words: Sequence[str]) -> list[str]:
    """Words as options of `mofa paste`; files, options of ours and what nobody knows stay.

    >>> as_options(["llama3-70b", "512xH100"])
    ['--gpus', '512', '--gpu', 'H100', '--model', 'llama3-70b']
    >>> as_options(["llama3-70b", "--num-gpus", "8"])
    ['llama3-70b', '--gpus', '8']
    >>> as_options(["x.sh", "--gpu-type=h100", "--tp", "8"])
    ['x.sh', '--gpu=h100', '--planned', 'tp=8']
    """
    return list(read_words(words).options)


def read_words(words: Sequence[str]) -> SpokenWords:
    """Words as options, and those of them that nobody understands.

    >>> spoken_words = read_words("will tp8 pp4 do for llama3 70b on 64 h100 bananas".split())
    >>> spoken_words.options[4:], spoken_words.unread
    (('--planned', 'tp=8,pp=4', '--model', 'llama3-70b'), ('bananas',))
    """
    return _loose(list(_renamed(words)))


def _renamed(words: Sequence[str]) -> Iterator[str]:
    """Words of a command as options of ours, where they go by other names."""
    degrees, at = list[str](), 0
    while at < len(words):
        word = words[at]
        name, equals, value = word.partition("=")
        plain = name if not name.startswith("--") else name.lower().replace("_", "-")
        following = words[at + 1] if at + 1 < len(words) else ""
        at += 1
        if plain in DEGREES and (value or following).isdigit():
            degrees.append(f"{DEGREES[plain]}={value or following}")
            at += not equals
            continue
        if loose := _as_loose(plain, value if equals else following):
            yield loose
            at += not equals and loose != "fsdp"
            continue
        ours = _MEANT.get(plain, plain if plain.startswith("--") else word)
        if ours == "--lora" and not equals and (not following or following.startswith("-")):
            yield from (ours, RANK)
            continue
        if machines := _machines(ours, value if equals else following):
            yield from machines
            at += not equals
            continue
        if ours == "--gpu" and plain in _MEANT and is_file(value if equals else following):
            continue  # a machine's own output
        if plain in _MEANT or (word.startswith("--") and ours != name):
            yield from (
                [f"{ours}={value}"] if equals and ours else [word for word in (ours, value) if word]
            )
            continue
        yield word
    if degrees:
        yield from ("--planned", ",".join(degrees))


def _as_loose(plain: str, value: str) -> str:
    """The loose word that says the same as an option: a way of sharding, or a model's size; empty
    of others.
    """
    if plain in _SHARDING["zero"] and re.fullmatch("[123]", value):
        return f"zero{value}"
    if plain in _SHARDING["fsdp"]:
        return "fsdp"
    return value if plain in {"--size", "--model-size"} and is_size(value) else ""


def _machines(ours: str, value: str) -> tuple[str, ...]:
    """All options that a value of --gpus or --gpu states: `--gpu 8xA100` states a number too. Empty
    where it states one alone.

    >>> _machines("--gpus", "64gpus"), _machines("--gpu", "8xA100"), _machines("--gpu", "h100")
    (('--gpus', '64'), ('--gpus', '8', '--gpu', 'A100'), ())
    """
    if ours == "--gpus" and (count := re.fullmatch(r"(\d+) *x?(?:gpus?|cards?)", value)):
        return ("--gpus", count[1])
    if ours in {"--gpus", "--gpu"} and (counted := counted_gpus(value)):
        return ("--gpus", counted[0], "--gpu", counted[1])
    return ("--gpus", value) if ours == "--gpu" and value.isdigit() and not is_gpu(value) else ()


def _local_path(path: str) -> str:
    r"""A Windows path as this machine mounts it, if that file exists; else the path as it is.

    >>> _local_path(r"C:\none\x.json"), _local_path("x.json")
    ('C:\\none\\x.json', 'x.json')
    """
    if "\\" not in path:
        return path
    plain = path.replace("\\", "/")
    drive = re.fullmatch(r"([A-Za-z]):/(.*)", plain)
    place = f"/mnt/{drive[1].lower()}/{drive[2]}" if drive else plain
    return place if is_file(place) else path


def _loose(words: Sequence[str]) -> SpokenWords:
    """Words that belong to no option, as options: machines, numbers, and a model."""
    kept, inputs, loose, at = list[str](), list[str](), list[str](), 0
    while at < len(words):
        word = words[at]
        at += 1
        if re.fullmatch(r"-\d+", word):
            loose.append(word)  # a number that cannot be right is refused as one
        elif word.startswith("-") and word != "-":
            kept.append(word)
            if "=" not in word and at < len(words) and not words[at].startswith("--"):
                kept.append(words[at])
                at += 1
        elif word == "-" or is_file(word) or is_command(word):
            inputs.append(word)
        elif _ENDING.search(word) and not presets.is_address(word):
            inputs.append(_local_path(word))
        else:
            loose += word.split()
    kept = [*inputs, *kept]  # a parser takes them in one place alone
    if not loose:
        return SpokenWords(tuple(kept))
    sentence = Sentence(loose, kept)
    named = sentence.read()
    if len(loose) == 1 and named[:1] == ["--model"]:  # a model alone needs no option
        return SpokenWords((*loose, *kept))
    options = (*sentence.kept, *named)
    devices = tuple(sentence.devices)
    if devices and "--gpu" in options:
        devices = (options[options.index("--gpu") + 1], *devices)
    return SpokenWords(options, tuple(sentence.unread), devices)
