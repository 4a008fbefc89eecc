"""What people type before they know the options: `llama3-70b 512xH100`, `recommend … --gpu-type h100`.

    as_options(words)    the same words as options of `mofa paste`, and files

Words of other programs for an option are that option, a number beside a GPU's name is how many there
are, and what is left is the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mofa_model import presets

_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "--model": ("--model-name", "--model-name-or-path", "--model-path", "--model-id", "--base-model", "-m"),
    "--gpu": ("--gpu-type", "--gpu-model", "--gpu-name", "--device", "--device-type", "--hardware", "--accelerator", "--accelerator-type", "--cluster", "--machine"),
    "--gpus": ("--num-gpus", "--n-gpus", "--ngpus", "--num", "--num-devices", "--devices", "--world-size", "--gpu-count", "-n"),
    "--nodes": ("--nnodes", "--num-nodes", "-N"),
    "--gpus-per-node": ("--nproc-per-node", "--num-gpus-per-node", "--ntasks-per-node"),
    "--seq": ("--seq-len", "--seq-length", "--sequence-length", "--max-seq-length", "--max-seq-len", "--context", "--context-length"),
    "--global-batch": ("--batch-size", "--global-batch-size", "--batch", "--gbs", "-b"),
    "--framework": ("--trainer", "--backend", "--engine"),
    "--lora": ("--lora-rank", "--lora-r"),
    "": ("--file", "--config", "--script", "--input", "-f"),
}  # fmt: skip
"""Options, and what other programs call them; the last are files."""
_MEANT: Final = {other: ours for ours, others in _ALIASES.items() for other in others}
_DEGREES: Final = ("--tp", "--pp", "--cp", "--ep", "--mbs")
"""Degrees as options of their own: today's layout."""
ASKED: Final = frozenset(
    {"plan", "recommend", "run", "train", "finetune", "fine-tune", "apply", "search", "parallelism", "checkpoint", "suggest",
     "optimize", "layout", "strategy", "launch", "best", "predict", "tune", "estimate", "solve", "find", "read", "analyze", "show"}
)  # fmt: skip
"""Words that people put where a verb is; all of them ask for what `mofa paste` answers."""
_FILLERS: Final = frozenset({"on", "with", "for", "using", "gpu", "gpus", "a", "x", "of", "the", "model", "training", "node", "nodes"})  # fmt: skip
_TIMES: Final = re.compile(r"(\d+)\s*[x×*]\s*(.+)", re.IGNORECASE)
_COLON: Final = re.compile(r"([A-Za-z][\w.-]*):(\d+)")
_ENDING: Final = re.compile(r"\.(sh|ya?ml|json|toml|py|sbatch|slurm|txt|cfg|conf|md)$")
RANK: Final = "16"
"""Rank of adapters where `--lora` stands alone."""


def as_options(given: Sequence[str]) -> list[str]:
    """Words as options of `mofa paste`; files, options of ours and what nobody knows stay.

    >>> as_options(["llama3-70b", "512xH100"])
    ['--gpus', '512', '--gpu', 'H100', '--model', 'llama3-70b']
    >>> as_options(["llama3-70b", "--num-gpus", "8"])
    ['llama3-70b', '--gpus', '8']
    >>> as_options(["x.sh", "--gpu-type=h100", "--tp", "8"])
    ['x.sh', '--gpu=h100', '--current', 'tp=8']
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
        if plain in _DEGREES and (value or following.isdigit()):
            degrees.append(f"{plain[2:]}={value or following}")
            at += not equals
            continue
        ours = _MEANT.get(plain, plain if plain.startswith("--") else word)
        if ours == "--lora" and not equals and (not following or following.startswith("-")):
            yield from (ours, RANK)
            continue
        if ours in {"--gpus", "--gpu"}:
            counted = _counted(value if equals else following)
            if counted:
                yield from ("--gpus", counted[0], "--gpu", counted[1])
                at += not equals
                continue
        if ours == "--gpu" and plain in _MEANT and _is_file(value if equals else following):
            continue  # a machine's own output
        if plain in _MEANT or (word.startswith("--") and ours != name):
            yield from (
                [f"{ours}={value}"] if equals and ours else [one for one in (ours, value) if one]
            )
            continue
        yield word
    if degrees:
        yield from ("--current", ",".join(degrees))


def _is_file(word: str) -> bool:
    from mofa_model import files

    return bool(word) and bool(files.path_kind(word))


def _counted(word: str) -> tuple[str, str] | None:
    """How many of which GPU a word says: `64xH100`, `H100:64`.

    >>> _counted("64xH100"), _counted("h100:8"), _counted("64")
    (('64', 'H100'), ('8', 'h100'), None)
    """
    if (found := _TIMES.fullmatch(word)) and _is_gpu(found[2]):
        return found[1], found[2]
    if (found := _COLON.fullmatch(word)) and _is_gpu(found[1]):
        return found[2], found[1]
    return None


def _is_gpu(word: str) -> bool:
    return bool(presets.meanings("devices", word))


def _loose(words: Sequence[str]) -> list[str]:
    """Words that belong to no option, as options: a GPU, numbers of GPUs or nodes, and a model."""
    kept, loose, at = list[str](), list[str](), 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("-") and word != "-":
            kept.append(word)
            if "=" not in word and at < len(words) and not words[at].startswith("--"):
                kept.append(words[at])
                at += 1
        elif word == "-" or _is_file(word) or _is_command(word) or _ENDING.search(word):
            kept.append(word)
        else:
            loose += word.split()
    named = list(_said(loose, bool(kept)))
    if len(loose) == 1 and named[:1] == ["--model"]:  # a model alone needs no option
        return [*loose, *kept]
    return [*kept, *named]


def _is_command(word: str) -> bool:
    """Whether a word is a whole command line, and not a few words on a model."""
    return " " in word and bool(re.search(r"(^|\s)--?\w|\.(py|sh)\b|\n|=", word))


def _said(loose: Sequence[str], beside: bool) -> Iterator[str]:
    """Loose words as options; a number alone counts GPUs where a file or an option stands beside it."""
    model, at = list[str](), 0
    while at < len(loose):
        word, following = loose[at], loose[at + 1] if at + 1 < len(loose) else ""
        at += 1
        number = re.fullmatch(r"(\d+)x?", word.lower())
        if counted := _counted(word):
            yield from ("--gpus", counted[0], "--gpu", counted[1])
        elif number and _is_gpu(following):
            yield from ("--gpus", number[1], "--gpu", following)
            at += 1
        elif number and following.lower().rstrip("s") in {"gpu", "node"}:
            yield from (f"--{following.lower().rstrip('s')}s", number[1])
            at += 1
        elif _is_gpu(word) and model:
            yield from ("--gpu", word)
        elif number and (model or beside) and int(number[1]) > 4 and not re.match(r"\d", following):
            yield from ("--gpus", number[1])
        elif word.lower() not in _FILLERS:
            model.append(word)
    if model:
        yield from ("--model", _model(model))


def _model(words: Sequence[str]) -> str:
    """The name that words make: a preset's where they are one in any spelling."""
    for joint in ("-", ""):
        joined = joint.join(words)
        if presets.meanings("models", joined):
            return joined
        if found := newest(joined.lower()):
            return found
    return " ".join(words) if len(words) == 1 else "-".join(words)


def newest(name: str) -> str:
    """The newest preset of a family and a size, where a name has both and no version.

    >>> newest("llama-70b"), newest("llama-9b")
    ('llama3-70b', '')
    """
    said = re.fullmatch(r"([a-z]+)-?(\d+(?:\.\d+)?b)", name)
    if said is None:
        return ""
    form = re.compile(rf"{said[1]}(\d+(?:\.\d+)?)-{re.escape(said[2])}")
    versions = {
        float(found[1]): one for one in presets.names("models") if (found := form.fullmatch(one))
    }
    return versions[max(versions)] if versions else ""
