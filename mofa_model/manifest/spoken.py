"""What a launch command says of the training in words that no trainer owns: the flags that scripts of their own have in common.

The trainers that are known are read by `launch`, layout and all. A script of one's own has no layout that could be read, but it
is often told its model, its sequence and its batch by the names that Hugging Face's trainer made common.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from mofa_model import presets
from mofa_model.errors import InputError
from mofa_model.kinds.shape import whole

_MODEL: Final = (
    "model-name-or-path",
    "pretrained-model-name-or-path",
    "model-name",
    "model-id",
    "base-model",
    "model",
)
_SEQUENCE: Final = (
    "seq-length", "max-seq-length", "max-sequence-length", "sequence-length", "model-max-length", "seq-len", "max-length",
    "block-size", "context-length", "cutoff-len",
)  # fmt: skip
_BATCH: Final = ("global-batch-size", "total-batch-size", "global-train-batch-size")
_EACH: Final = ("per-device-train-batch-size", "per-gpu-train-batch-size")
_AGAIN: Final = ("gradient-accumulation-steps",)

_TUNED: Final = re.compile("-(instruct|chat|it|base)$", re.IGNORECASE)
"""Endings of models that were trained on: their weights are others, their architecture is not."""


def facts_of(words: Sequence[str], gpus: int) -> dict[str, int]:
    """Sequence and batch as a TrainingJob's spec has them; a batch of each device counts for all `gpus` [1] of the job.

    >>> facts_of(["train.py", "--max_seq_length=2048", "--per_device_train_batch_size", "4"], 8)
    {'sequenceLength': 2048, 'globalBatchSize': 32}
    """
    sequence = whole(_said(words, _SEQUENCE))
    batch = whole(_said(words, _BATCH))
    if not batch:
        batch = whole(_said(words, _EACH)) * (whole(_said(words, _AGAIN)) or 1) * gpus
    told = {"sequenceLength": sequence, "globalBatchSize": batch}
    return {name: value for name, value in told.items() if value}


def model_of(words: Sequence[str], named: str = "") -> str:
    """The preset of the model that a command, or the object itself, names; empty where they name none that is known.

    >>> model_of(["train.py", "--model_name_or_path", "meta-llama/Llama-2-7b-hf"])
    'llama2-7b'
    """
    return next((found for one in (_said(words, _MODEL), named) if (found := _preset(one))), "")


def model_said(words: Sequence[str], named: str = "") -> str:
    """The same, as it is written; empty where nothing names one."""
    return _said(words, _MODEL) or named


def _preset(name: str) -> str:
    """A preset by a name, by where its weights are kept, or by the last part of that; empty where there is none."""
    plain = name.partition("://")[2] or name
    bare = _TUNED.sub("", plain)
    for one in (plain, bare, bare.rpartition("/")[2]):
        try:
            return presets.resolve("models", one) if one else ""
        except InputError:
            continue
    return ""


def _said(words: Sequence[str], names: Sequence[str]) -> str:
    """The value of the first of some flags that stands there, with hyphens or underscores, behind `=` or as the next word."""
    told: dict[str, str] = {}
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            told.setdefault(name.replace("_", "-"), value if equals else after)
    return next((told[name] for name in names if told.get(name)), "")
