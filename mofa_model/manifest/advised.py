"""An answer as the status of a TrainingJob, and its layout as launch arguments of a trainer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from mofa_model import presets
from mofa_model.advice import Advice, Odds, Predicted, Request
from mofa_model.errors import BadValue, InputError, UnknownName
from mofa_model.launch import TRAINERS, Launch, launch
from mofa_model.spec.reliability import FailureMode
from mofa_model.strategy import Strategy, format_strategy
from mofa_model.units import DAY, HOUR, Range

_SUMMARY: Final = ("tp", "pp", "cp", "ep", "dp", "vpp")
_DEGREES: Final = (*_SUMMARY, "mbs")
_TAUGHT: Final = {"step": "learned", "memory": "learnedMemory", "spread": "learnedSpread"}
"""What running jobs taught: key of an answer, and of `status.inputs`."""

# The schema bounds lists and numbers. One value beyond its bound would cost the whole status, and
# where nothing ever fails the best interval has no end.
_LONGEST: Final = 1000
_ALTERNATIVES: Final = 5
_REASONS: Final = 16
_MOST_STEPS: Final = 10_000_000
_LONGEST_TIME: Final = 315_360_000  # ten years [s]
_LARGEST_DECIMAL: Final = 999_999_999_999.0
_LARGEST: Final = 9e18


class _Figure(NamedTuple):
    """A figure of `status.recommendation.predicted`."""

    key: str
    field: str
    """Field of `Predicted`."""
    scale: float = 1
    """Written over predicted. [1]"""
    places: int | None = None
    """Places behind the point, as text; None = a whole number."""

    def encode(self, value: float) -> int | str:
        """A number of a figure in the units and digits of the status."""
        if self.places is not None:
            return _decimal(float(value), self.places)
        return round(min(self.scale * float(value), _LARGEST))


FIGURES: Final = (
    _Figure("stepMilliseconds", "step_seconds", scale=1000),
    _Figure("tokensPerSecond", "tokens_per_second"),
    _Figure("mfu", "mfu", places=4),
    _Figure("ettr", "ettr", places=4),
    _Figure("memoryBytes", "memory_bytes"),
    _Figure("durationSeconds", "duration_seconds"),
)


def status_of(
    advice: Advice, digest: str, now: str, launch: Launch | None = None
) -> dict[str, Any]:
    """What an answer writes into `status`; conditions and observations are the operator's."""
    rejected = sorted(advice.rejected.items(), key=lambda item: -item[1])[:_REASONS]
    taught = {_TAUGHT[name]: _decimal(factor, 2) for name, factor in advice.taught.items()}
    status: dict[str, Any] = {
        "inputsHash": digest,
        "modelVersion": advice.model_version,
        "computedTime": now,
        "rejected": [
            {"reason": reason, "count": min(count, int(_LARGEST))} for reason, count in rejected
        ],
        "inputs": {"nodes": advice.nodes, "failure": failure_rows(advice.failures), **taught},
    }
    if (current := advice.current) is not None:
        status["inputs"]["current"] = current.text
        gain = float(current.gain) if math.isfinite(current.gain) else 0.0
        status["current"] = {
            "strategy": current.text,
            "gain": f"{min(gain, _LARGEST_DECIMAL):.3f}",
            "reason": current.reason[:_LONGEST],
            **_odds(current.odds),
        }
        if current.predicted is not None:
            status["current"]["predicted"] = _predicted(current.predicted)
    if advice.strategy is None or advice.predicted is None:
        return status
    seconds = round(float(advice.checkpoint_interval_seconds or 0))
    recommendation = status["recommendation"] = {
        "strategy": {name: int(getattr(advice.strategy, name)) for name in _DEGREES}
        | {"text": format_strategy(advice.strategy)},
        "summary": summary(advice.strategy),
        "checkpointIntervalSteps": min(advice.checkpoint_interval_steps or 0, _MOST_STEPS),
        "checkpointIntervalSeconds": min(seconds, _LONGEST_TIME),
        "predicted": _predicted(advice.predicted),
        **_odds(advice.odds),
    }
    if advice.basis is not None:
        recommendation["evidence"] = advice.basis.evidence[:_LONGEST]
    if launch is not None:
        recommendation["launch"] = {"trainer": launch.trainer, "args": list(launch.arguments)}
    pace = _pace(advice.predicted)
    status["alternatives"] = [
        {
            "name": alternative.name,
            "strategy": format_strategy(alternative.strategy),
            **_odds(alternative.odds),
            "relativeTime": _decimal(_pace(alternative.predicted) / pace, 3),
            "reason": alternative.reason[:_LONGEST],
        }
        for alternative in advice.alternatives[:_ALTERNATIVES]
    ]
    return status


def failure_rows(failure_modes: Iterable[FailureMode]) -> list[dict[str, Any]]:
    """Failure rates that an answer uses, as `status.inputs.failure`."""
    return [
        {
            "name": mode.name,
            "failuresPerThousandNodeDays": _decimal(1000 * (mode.rate.mean * DAY), 4),
            "recoverySeconds": min(round(float(mode.recovery.mean)), _LONGEST_TIME),
        }
        for mode in failure_modes
    ]


def summary(strategy: Strategy) -> str:
    """A layout in a few letters; degrees of one are left out.

    >>> summary(Strategy(tp=8, pp=4, dp=16))
    'tp8 pp4 dp16'
    """
    words = [
        f"{name}{int(getattr(strategy, name))}" for name in _SUMMARY if getattr(strategy, name) > 1
    ]
    return " ".join(words) or "dp1"


def quantity(value: float) -> str:
    """A number with three digits and a letter, as columns have room for.

    >>> quantity(412345.0), quantity(97.2)
    ('412k', '97.2')
    """
    for letter, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """A time with its largest unit, as columns have room for.

    >>> duration(1260.0), duration(45.0)
    ('21m', '45s')
    """
    for letter, scale in (("d", DAY), ("h", HOUR), ("m", 60.0)):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.0f}{letter}"
    return f"{seconds:.0f}s"


def _odds(odds: Odds | None) -> dict[str, dict[str, str]]:
    chances = {} if odds is None else {"fits": odds.fits, "beats": odds.beats}
    texts = {
        name: _decimal(float(chance), 3) for name, chance in chances.items() if chance is not None
    }
    return {"odds": texts} if texts else {}


def _predicted(prediction: Predicted) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for figure in FIGURES:
        predicted: Range = getattr(prediction, figure.field)
        # Without a number of tokens there is no time to finish them.
        if predicted.target > 0 or figure.field != "duration_seconds":
            ends = ("lower", "target", "upper")
            written[figure.key] = {end: figure.encode(getattr(predicted, end)) for end in ends}
    return written


def _decimal(value: float, places: int) -> str:
    """A number as text, zero or more, without an exponent."""
    bounded = min(max(0.0, value), _LARGEST_DECIMAL) if math.isfinite(value) else 0.0
    return f"{bounded:.{places}f}"


def _pace(prediction: Predicted) -> float:
    """Time for the same work, failures included. [s]"""
    return prediction.step_seconds.target / max(prediction.ettr.target, 1e-9)


_ONE_FAMILY: Final = {"megatron", "nemo"}
"""Forms that run one and the same trainer, Megatron Core."""


def trainer_of(framework: str) -> str:
    """The form in which a framework is launched; empty where there is none.

    >>> trainer_of("megatron"), trainer_of("any")
    ('megatron', '')
    """
    if framework in TRAINERS:
        return framework
    try:
        return presets.stack(framework).launch
    except InputError:  # nobody described its software stack
        return ""


def framework_for(trainer: str, framework: str) -> str:
    """The framework to search for a launch: the named one if it is launched so, else the trainer.

    >>> framework_for("nemo", "any"), framework_for("nemo", "megatron")
    ('nemo', 'megatron')
    """
    if trainer not in TRAINERS:
        raise UnknownName("--launch", trainer, TRAINERS)
    if framework == "any":
        return trainer
    form = trainer_of(framework)
    if trainer != form and {trainer, form} != _ONE_FAMILY:
        how = f"with --launch {form}" if form else "in no form that is known here"
        raise BadValue("--launch", trainer, f"framework {framework} is launched {how}")
    return framework


def launch_of(request: Request, advice: Advice, trainer: str) -> Launch:
    """The launch of an answer; a layout that the trainer has no words for is an error."""
    if advice.strategy is None:
        raise InputError(f"launch: there is no recommendation to launch; {advice.explanation}")
    request = request.for_trainer(advice.trainer)
    return launch(
        advice.strategy,
        trainer,
        request.problem_in(advice.precision),
        interval_steps=advice.checkpoint_interval_steps,
        asynchronous=all(tier.asynchronous for tier in request.reliability.tiers),
    )


def launch_words(request: Request, advice: Advice) -> tuple[str, ...]:
    """Launch arguments for the annotations; none without a recommendation or a form for it."""
    trainer = trainer_of(request.framework)
    if advice.strategy is None or not trainer:
        return ()
    try:
        return launch_of(request, advice, trainer).arguments
    except InputError:
        return ()
