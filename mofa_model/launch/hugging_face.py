"""Arguments of the Hugging Face trainer, which trains under DeepSpeed and under Accelerate: batch, recomputation, checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mofa_model.errors import BadValue
from mofa_model.launch.answer import LaunchSettings
from mofa_model.launch.table import Arguments, Words
from mofa_model.strategy import LAYER_INPUT, Recompute, Strategy

_KEYWORDS: Final = "--activation_checkpointing_kwargs"
_KNOWN: Final = frozenset(
    {
        "offload",
        "every_n_layers",
        "use_reentrant",
        "preserve_rng_state",
        "determinism_check",
        "debug",
    }
)
"""Keywords of checkpointing: the first two say what is kept, the others how it is done."""


def add(words: Words, strategy: Strategy, run: LaunchSettings, *, recomputes: bool) -> None:
    """The arguments of a layout; `recomputes`, whether it is they that say what is computed again."""
    words.add("--per_device_train_batch_size", int(strategy.mbs))
    words.add("--gradient_accumulation_steps", run.micro_batches(strategy))
    words.add(f"--{run.precision}")
    if recomputes and strategy.recompute is Recompute.FULL:
        words.add("--activation_checkpointing")
        if (
            strategy.offload
        ):  # DeepSpeed's own `cpu_checkpointing` acts inside its own checkpointing only
            words.add(_KEYWORDS, json.dumps({"offload": True}))
    if run.interval_steps is not None:
        words.add("--save_strategy", "steps")
        words.add("--save_steps", run.interval_steps)


def option(name: str, values: tuple[object, ...]) -> list[str]:
    """An argument as words: the form in which `Words` collects them."""
    return [name, *(str(value) for value in values)]


def given(known: Arguments, words: Sequence[str]) -> dict[str, str | None]:
    """Options of a command with their values, by today's names; None where an option stands alone."""
    found: dict[str, str | None] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            name, fixed = known.today(name, value if equals else None)
            found[name] = fixed
        elif name and found[name] is None:
            found[name] = word
    return found


def layout_of(known: Arguments, options: Mapping[str, str | None]) -> dict[str, Any]:
    """What these say of a layout: only what is said."""
    layout: dict[str, Any] = {}
    if (options.get("--activation_checkpointing", "false") or "true").lower() == "true":
        layout["recompute"] = Recompute.FULL
    if _checkpointing(options).get("offload") is True:
        layout["offload"] = frozenset({LAYER_INPUT})
    if "--per_device_train_batch_size" in options:
        size = options["--per_device_train_batch_size"]
        layout["mbs"] = known.number("--per_device_train_batch_size", size)
    return layout


def precision_of(options: Mapping[str, str | None]) -> str | None:
    """The precision that they name."""
    return next((word for word in ("bf16", "fp16") if f"--{word}" in options), None)


def interval_of(known: Arguments, options: Mapping[str, str | None]) -> int | None:
    """Steps between checkpoints. [1]"""
    saves = options.get("--save_steps")
    return known.number("--save_steps", saves) if saves is not None else None


def recomputes_every(options: Mapping[str, str | None]) -> int:
    """Of so many layers one is computed again, where any is. [1]"""
    if "--activation_checkpointing" not in options:
        return 1
    said = _checkpointing(options).get("every_n_layers", 1)
    if isinstance(said, bool) or not isinstance(said, int) or said < 1:
        raise BadValue(f"{_KEYWORDS}: every_n_layers", said, "give a whole number of one or more")
    return said


def _checkpointing(options: Mapping[str, str | None]) -> Mapping[str, Any]:
    """Keywords of checkpointing, of which all are known that decide what is kept."""
    text = options.get(_KEYWORDS)
    try:
        told = json.loads(text or "{}")
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise BadValue(_KEYWORDS, text, "give a JSON object")
    odd = next((name for name in told if name not in _KNOWN), None)
    if odd is not None:
        raise BadValue(_KEYWORDS, odd, f"it is not priced; known are {', '.join(sorted(_KNOWN))}")
    return told
