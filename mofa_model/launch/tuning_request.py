"""The fine-tuning that a launch is given, in the words of fine-tuners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mofa_model.axes.frameworks import framework
from mofa_model.errors import BadValue
from mofa_model.launch.answer import LaunchSettings
from mofa_model.launch.tuning import (
    ALL_LINEAR,
    BITS,
    GROUPS,
    PACKED,
    PADDED,
    PAIRED,
    PURE,
    UNNAMED,
    FineTuning,
)
from mofa_model.spec import Training
from mofa_model.spec.tuning import Adapters
from mofa_model.strategy import Strategy


def tuning_of(trainer: str, settings: LaunchSettings, **worded: Sequence[object]) -> FineTuning:
    """The fine-tuning of a launch; refused where a field has a value that the trainer has no word
    for. `worded` are, by field, the values that it has words for.
    """
    training = settings.training
    if training is None:
        raise BadValue("training", None, f"a file of {trainer} says the whole of it")
    adapters = training.adapters or Adapters(rank=1)
    rank = 0 if training.adapters is None else int(adapters.rank)
    base = "" if adapters.base is None else adapters.base.name
    named = adapters.targets if rank else ()
    tuning = FineTuning(
        model=settings.model or UNNAMED,
        rank=rank,
        targets=frozenset(layer for name in named for layer in GROUPS.get(name, (name,))),
        base="" if base == training.precision.name else base,
        magnitudes=adapters.magnitudes,
        alpha=int(adapters.alpha or 2 * rank),
        dropout=float(adapters.dropout),
        optimizer=settings.optimizer,
        pure=settings.precision == PURE,
        documents=_kind(training),
        task=training.task.value,
        loss=training.loss.value,
        released=training.released,
    )
    usual: dict[str, Sequence[object]] = {"base": ("", *BITS), "released": (False,)}
    if settings.optimizer == ("adamw" if tuning.pure else "adamw-bf16"):
        right = f"moments are as wide as what is trained: give adamw-bf16 with {PURE}, else adamw"
        raise BadValue("training.optimizer", settings.optimizer, right)
    if tuning.documents == PACKED and tuning.task in PAIRED:
        raise BadValue("training.documents", PACKED, f"{trainer} packs documents for sft alone")
    if not tuning.targets <= ALL_LINEAR:
        odd = min(tuning.targets - ALL_LINEAR)
        raise BadValue("training.adapterTargets", odd, f"{trainer} has no words for it here")
    if tuning.pure and rank and "precisions" not in framework(trainer).entry:
        right = f"adapters have a wide copy under {trainer}: give bf16"
        raise BadValue("training.precision", settings.precision, right)
    for field, values in {**usual, **worded}.items():
        if getattr(tuning, field) not in values:
            right = f"{trainer} has no words for it here; it has {', '.join(map(str, values))}"
            raise BadValue(f"training.{field}", getattr(tuning, field), right)
    return tuning


def _kind(training: Training) -> str:
    if training.documents is None:
        return ""
    return PADDED if training.documents.padded else PACKED


def in_samples(
    tuning: FineTuning, strategy: Strategy, settings: LaunchSettings
) -> tuple[Strategy, LaunchSettings]:
    """A layout and its batch, counted as trainers count: a pair of answers is one sample."""
    if tuning.task not in PAIRED:
        return strategy, settings
    if int(strategy.mbs) % 2:
        raise BadValue(
            "strategy.mbs", int(strategy.mbs), "give an even one: a pair is two sequences"
        )
    half = replace(settings, global_batch=settings.global_batch // 2)
    return replace(strategy, mbs=int(strategy.mbs) // 2), half
