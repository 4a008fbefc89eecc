"""The launch of an answer: its strategy and checkpoint interval in the words of the trainer that was asked for."""

from __future__ import annotations

from typing import Final

from mofa_model import presets
from mofa_model.advice import Advice, Request
from mofa_model.errors import BadValue, InputError, UnknownName
from mofa_model.launch import TRAINERS, Launch, launch

_ONE_FAMILY: Final = {"megatron", "nemo"}
"""Forms that run one and the same trainer, Megatron Core."""


def trainer_of(framework: str) -> str:
    """The form in which a framework is launched; empty where there is none.

    >>> trainer_of("megatron"), trainer_of("any")
    ('megatron', '')
    """
    try:
        return presets.stack(framework).launch
    except InputError:
        return ""


def framework_for(trainer: str, framework: str) -> str:
    """What is searched for a launch: the framework that was named, where it is launched so, else the trainer itself.

    >>> framework_for("nemo", "any"), framework_for("nemo", "megatron")
    ('nemo', 'megatron')
    """
    if trainer not in TRAINERS:
        raise UnknownName("--launch", trainer, TRAINERS)
    if framework == "any":
        return trainer
    form = trainer_of(framework)
    if trainer != form and {trainer, form} != _ONE_FAMILY:
        right = f"framework {framework} is launched {f'with --launch {form}' if form else 'in no form that is known here'}"
        raise BadValue("--launch", trainer, right)
    return framework


def launch_of(request: Request, advice: Advice, trainer: str) -> Launch:
    """The launch of an answer; a layout that the trainer cannot be told is an error with its field."""
    if advice.strategy is None:
        raise InputError(f"launch: there is no recommendation to launch; {advice.explanation}")
    recipe, request = advice.precision, request.of(advice.trainer)
    named = (one for one in request.problems if one.workload.training.precision.name == recipe)
    return launch(
        advice.strategy,
        trainer,
        next(named, request.problems[0]),
        interval_steps=advice.checkpoint_interval_steps,
        asynchronous=all(tier.asynchronous for tier in request.reliability.tiers),
    )


def launch_words(request: Request, advice: Advice) -> tuple[str, ...]:
    """Launch arguments for the annotations; none where there is no recommendation or no form for it."""
    trainer = trainer_of(request.framework)
    if advice.strategy is None or not trainer:
        return ()
    try:
        return launch_of(request, advice, trainer).arguments
    except InputError:
        return ()
