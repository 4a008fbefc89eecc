"""A model's preset by what people call it: other spellings, a family and a size, a size alone."""

from __future__ import annotations

import re
from typing import Final

from mofa_model import presets
from mofa_model.identity.named_models import model_preset

_SIZE: Final = re.compile(r"(?:\d+x)?\d+(?:\.\d+)?[bt]")
_USUAL: Final = ("llama", "qwen", "gpt", "mistral", "gemma")
"""Families that people mean by a size alone, the most usual first."""


def preset_named(name: str) -> str:
    """The preset of a name in any spelling; empty where there is none.

    >>> preset_named("llama_3 70b"), preset_named("Llama 3.1 8b"), preset_named("x")
    ('llama3-70b', 'llama3-8b', '')
    >>> preset_named("llama31_70b")  # as NeMo's recipes have it
    'llama3-70b'
    """
    dashed = name.replace("_", "-").replace(" ", "-")
    for spelling in (
        name,
        dashed,
        re.sub(r"(\d)-(\d)(?=-)", r"\1.\2", dashed),
        re.sub(r"^([a-z]+)-(\d)", r"\1\2", dashed),
        re.sub(r"^([a-z]+)(\d)(\d)-(?=\d)", r"\1\2.\3-", dashed),
        dashed.replace("-", ""),
    ):
        if preset := model_preset(spelling):
            return preset
        if len(presets.meanings("models", spelling)) == 1:
            return spelling
    return ""


def newest(name: str) -> str:
    """The newest preset of a family and a size, where a name has both and no version.

    >>> newest("llama-70b"), newest("llama-9b")
    ('llama3-70b', '')
    """
    family_and_size = re.fullmatch(r"([a-z]+)-?(\d+(?:\.\d+)?b)", name)
    if family_and_size is None:
        return ""
    form = re.compile(rf"{family_and_size[1]}(\d+(?:\.\d+)?)-{re.escape(family_and_size[2])}")
    versions = {
        float(version[1]): preset
        for preset in presets.names("models")
        if (version := form.fullmatch(preset))
    }
    return versions[max(versions)] if versions else ""


def alike(name: str) -> str:
    """The preset with the family and size in a tuned model's name, or with that size alone; empty
    where there is none.

    >>> alike("open-r1/Qwen2.5-Math-7B-RoPE-300k"), alike("DeepSeek-V3-config-verl"), alike("x/y")
    ('qwen2.5-7b', 'deepseek-v3', '')
    """
    tail = name.rstrip("/").rpartition("/")[2].replace("_", "-").lower()
    words = tail.split("-")
    for until in range(len(words), 0, -1):
        if preset := preset_named("-".join(words[:until])):
            return preset
    family = re.match(r"(?:meta-)?([a-z]+)-?v?(\d+(?:\.\d+)?)?(?![a-z0-9]*b\b)", tail)
    size = re.search(r"(?<![a-z0-9.])(\d+(?:\.\d+)?b)(?![a-z0-9])", tail)
    if family and size:
        for candidate in (f"{family[1]}{family[2] or ''}-{size[1]}", f"{family[1]}-{size[1]}"):
            if preset := preset_named(candidate):
                return preset
    if preset := newest(tail) or of_size(tail):
        return preset
    plain = re.sub(r"[^a-z0-9]", "", tail)
    starting = [
        preset
        for preset in presets.names("models")
        if re.sub(r"[^a-z0-9]", "", preset).startswith(plain)
    ]
    return starting[0] if len(starting) == 1 and len(plain) > 5 else ""


def is_size(word: str) -> bool:
    """Whether a word is a number of parameters."""
    return _SIZE.fullmatch(word.lower()) is not None


def of_size(word: str) -> str:
    """The preset that people have in mind with a size alone; empty where none has the size.

    >>> of_size("70b"), of_size("7B"), of_size("32b"), of_size("71b"), of_size("8x7b")
    ('llama3-70b', 'llama2-7b', 'qwen3-32b', '', 'mixtral-8x7b')
    """
    if not is_size(word):
        return ""
    same = [preset for preset in presets.names("models") if preset.endswith(f"-{word.lower()}")]

    def rank(name: str) -> tuple[int, float]:
        match = re.match(r"([a-z]+)(\d+(?:\.\d+)?)?-", name)
        family = match[1] if match else ""
        usual = _USUAL.index(family) if family in _USUAL else len(_USUAL)
        return usual, -float(match[2] or 0) if match else 0.0

    return min(same, key=rank, default="")


def sizes_of(family: str) -> list[str]:
    """Presets of a family that is named without a size.

    >>> sizes_of("llama-2"), sizes_of("llama3")[:2], sizes_of("llama3-8b"), sizes_of("x")
    (['llama2-7b', 'llama2-13b', 'llama2-70b', 'llama2-34b'], ['llama3-8b', 'llama3-70b'], [], [])
    """
    plain = re.sub(r"[^a-z0-9.]", "", family.lower().rpartition("/")[2])
    return [
        preset
        for preset in presets.names("models")
        if plain
        and re.sub(r"[^a-z0-9.]", "", preset).startswith(plain)
        and preset.partition("-")[0].startswith(plain)
    ]
