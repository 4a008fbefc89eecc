"""Models by the names that people give them: on a hub, of a folder, of a recipe or of a script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from mofa_model import presets
from mofa_model.errors import InputError
from mofa_model.identity.classes import LANGUAGE_MODELS
from mofa_model.identity.recipes import preset_of
from mofa_model.identity.secret_words import LOOKS_SECRET

_RECIPES: Final = frozenset({"recipe", "config", "factory", "model_variant", "model_recipe_name"})
"""Options whose value names a recipe, with a model's name inside."""
_HUB: Final = frozenset(
    {"model_name_or_path", "pretrained_model_name_or_path", "base_model", "hf_model_name_or_path"}
)
"""Options whose value is a name of the hub or a folder: a bare one is one of its oldest models."""
_FILE: Final = re.compile(
    r"\.(py|sh|ya?ml|json|jsonl|toml|model|txt|safetensors|pt|bin|nemo|parquet)$"
)
PLACEHOLDER: Final = re.compile(r"[$<>{}\s]|REPLACE|YOUR[_-]")
SIZED: Final = re.compile(r"(?<![a-z0-9.])(\d+x)?\d+(\.\d+|[_p]\d)?[bm](?![a-z0-9])", re.IGNORECASE)
_IN_A_NAME: Final = re.compile(
    r"(?<![a-z])(?P<family>tinyllama|codellama|llama|gemma|qwen|mistral|mixtral|deepseek|gpt"
    r"|falcon|nemotron|phi|olmo|bloom|mpt|granite)"
    r"[-_]?v?(?P<version>\d(?!\d)(?:[._-]\d(?=[-_/]))?)?[-_/]?"
    r"(?P<size>(?:\d+x)?\d+(?:[._]\d+)?b)(?![a-z0-9])",
    re.IGNORECASE,
)
_RUN_TOGETHER: Final = (
    (re.compile(r"(?<![a-z])(llama|qwen|glm)(\d)(\d)(?=[-_/])"), r"\1\2.\3"),
    (re.compile(r"(?<=[-_/]\d)p(?=\db)"), "."),
    (re.compile(r"(?<=[-_/])(\d)00m(?![a-z0-9])"), r"0.\1b"),
)
"""How recipes write what a name may not hold: `llama31_8b`, `qwen25_1p5b`, `qwen25_500m`."""
_MADE_UP: Final = re.compile(r"(?<![a-z])(debug|dummy|toy|proxy|smoke|test)", re.IGNORECASE)
"""Names of models that exist only in tests."""
_TOKENS: Final = re.compile(r"vocab|merges|tokeni[sz]er|bpe", re.IGNORECASE)
"""Names of files of a tokenizer, which many models share."""
_TUNED: Final = re.compile(
    r"([-_](instruct|chat|it|pt|base|hf|deduped|dpo|sft|bnb|4bit|8bit|awq|gptq|fp8)"
    r"(-v?\d[\w.]*)?)+$",
    re.IGNORECASE,
)
"""How a model's name ends where somebody trained the model further, or stored it in another form.
Its architecture is still that of the name without the ending."""
_WORDS: Final = 12
"""Words at the end of a name in which a model is looked for. [1]"""


def name_of(value: str, key: str = "") -> str:
    """A model as people name it, from a name or a place of its weights; empty where it is none.

    >>> name_of("s3://bucket/models/Llama-3.1-8B/"), name_of("google/gemma-2-2b")
    ('Llama-3.1-8B', 'google/gemma-2-2b')
    >>> name_of("/data/run-7"), name_of("${MODEL}"), name_of("pretrain_gpt.py")
    ('', '', '')
    """
    plain = value.strip().rstrip("/")
    for mark in ("hf://", "huggingface://"):
        plain = plain.removeprefix(mark)
    if not plain or len(plain) > 200 or PLACEHOLDER.search(plain) or LOOKS_SECRET.search(plain):
        return ""
    parts = [part for part in plain.split("/") if part]
    is_hub = len(parts) == 2 and not value.startswith(("/", ".")) and "://" not in plain
    name = parts[-1]
    if (
        re.search(r"\.(py|sh|ya?ml|json|toml|model|jsonl|txt|safetensors|pt|nemo)$", name)
        and key not in _RECIPES
    ):
        return ""
    if re.search(r"\.(py|sh|json|jsonl|txt)$", name):
        return ""
    if key in _RECIPES:
        model = in_a_name(plain)
        return model if is_known(model) else ""
    if key in _HUB and len(parts) == 1 and LANGUAGE_MODELS.match(plain):
        return plain
    if is_known(plain) or is_known(name):
        return plain if is_hub else name
    for part in reversed(parts):
        if LANGUAGE_MODELS.search(part) and SIZED.search(part):
            return plain if is_hub else part
    if is_hub and LANGUAGE_MODELS.search(plain):
        return plain
    return ""


def in_a_name(text: str) -> str:
    """The model that the name of a script or of a file of settings has; empty where it has none.

    >>> named = ("/opt/run_llama3_8b.sh", "llama3_2/1B_full", "gpt2-vocab")
    >>> tuple(map(in_a_name, named))
    ('llama3-8b', 'llama3.2-1b', '')
    >>> in_a_name("llama3-1-70b-a3mega.yaml"), in_a_name("llama31_8b_pretrain_config")
    ('llama3.1-70b', 'llama3.1-8b')
    >>> in_a_name("deepseek_v3_pretrain_config"), in_a_name("deepseek_v3_debugmodel.toml")
    ('deepseek-v3', '')
    """
    text = text.replace("Meta-Llama", "llama").lower()
    for form, plain in _RUN_TOGETHER:
        text = form.sub(plain, text)
    named = ""
    if (match := _IN_A_NAME.search(text)) is not None:
        version = re.sub("[-_]", ".", match["version"] or "")
        named = f"{match['family']}{version}-{match['size'].replace('_', '.')}"
    return named if is_known(named) else _spelt_out(text) or named


def _spelt_out(text: str) -> str:
    """The longest name of a known model that stands in a text as its own words.

    >>> _spelt_out("configs/gpt_oss_20b_pretrain_config"), _spelt_out("train_mistral_nemo_12b.sh")
    ('gpt-oss-20b', 'mistral-nemo-12b')
    """
    if _MADE_UP.search(text) or _TOKENS.search(text):
        return ""
    names = _runs(_words_of(text))
    return next((name for name in names if LANGUAGE_MODELS.match(name) and _of_name(name)), "")


def _words_of(text: str) -> list[str]:
    """The last words of a name."""
    return [word for word in re.split(r"[-_/\s]|\.(?=\D)", text)[-_WORDS:] if word]


def _runs(words: Sequence[str]) -> Iterator[str]:
    """Every run of neighbouring words as a name, the longest first."""
    for size in range(len(words), 0, -1):
        for first in range(len(words) - size + 1):
            yield "-".join(words[first : first + size])


def on_the_way(path: str) -> str:
    """The model whose folder is in the path of a file; empty where there is none.

    >>> on_the_way("minio/models/meta-llama/Llama-3.1-8B/tokenizer.json")
    'Llama-3.1-8B'
    """
    if PLACEHOLDER.search(path) or LOOKS_SECRET.search(path) or path.count("/") < 2:
        return ""
    parts = [part for part in path.split("/") if part]
    for part in parts[1:]:
        if is_known(part) or (LANGUAGE_MODELS.search(part) and SIZED.search(part)):
            return "" if _FILE.search(part) else part
    return ""


@cache
def model_preset(name: str) -> str:
    """The preset of a model by its name, or by the place of its weights; empty where unknown.

    >>> model_preset("meta-llama/Llama-2-7b-hf"), model_preset("meta-llama/Llama-3.1-8B-Instruct")
    ('llama2-7b', 'llama3-8b')
    >>> model_preset("deepseek3-671b")  # as MaxText calls it
    'deepseek-v3'
    >>> model_preset("someone/Hermes-3-Llama-3.1-8B")  # whose base its name spells out
    'llama3-8b'
    """
    return _of_name(name) or _base_of(_bare(name))


def _bare(name: str) -> str:
    """The last part of a name or an address, without what says how its model was tuned
    or stored.
    """
    return _TUNED.sub("", name.rstrip("/").rpartition("/")[2])


def _of_name(name: str) -> str:
    """The preset whose own name this is; empty where there is none."""
    plain = name.partition("://")[2] or name
    tail, bare = plain.rstrip("/").rpartition("/")[2], _bare(plain)
    unnamed = re.sub("^(meta|nvidia)-", "", bare, flags=re.IGNORECASE)
    for candidate in (plain, tail, _TUNED.sub("", plain), bare, unnamed):
        try:
            return presets.resolve("models", candidate) if candidate else ""
        except InputError:
            continue
    return preset_of(bare) or _tails().get(bare.lower().replace("_", "-"), "")


def _base_of(name: str) -> str:
    """The preset of the model whose name and size a longer name spells out, as tunes have it.

    >>> _base_of("Llama-3.1-Minitron-4B"), _base_of("Qwen2-VL-7B"), _base_of("gpt2-chinese")
    ('', '', '')
    """
    words = _words_of(name) if not _MADE_UP.search(name) else []
    for run in _runs(words):
        if SIZED.search(run) and LANGUAGE_MODELS.match(run) and (preset := _of_name(run)):
            return preset
    return ""


@cache
def _tails() -> Mapping[str, str]:
    """Presets by the names of their repositories alone, as folders of weights are called."""
    every = presets.canonical_names("models").items()
    return {_TUNED.sub("", alias.rpartition("/")[2]): name for alias, name in every if "/" in alias}


def is_known(name: str) -> bool:
    """Whether a name finds a preset."""
    return bool(model_preset(name))
