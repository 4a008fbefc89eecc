"""An answer as the status of a TrainingJob: whole units, and decimals as text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from mofa_model.advice import (
    Advice,
    Current,
    FailureInput,
    Odds,
    Predicted,
)
from mofa_model.bands import in_a_line
from mofa_model.launch import Launch
from mofa_model.strategy import Strategy
from mofa_model.strategy_text import format_strategy
from mofa_model.units import Range

_SUMMARY: Final = ("tp", "pp", "cp", "ep", "dp", "vpp")
_DEGREES: Final = ("tp", "pp", "cp", "ep", "dp", "vpp", "mbs")
_LONGEST: Final = 1000
_ALTERNATIVES: Final = 5
_REASONS: Final = 16
_MOST_STEPS: Final = 10_000_000
"""Where nothing ever fails, the best interval has no end; the schema has. [1]"""
_LONGEST_TIME: Final = 315_360_000
"""The same as time: ten years. [s]"""
_MOST: Final = 999_999_999_999.0
"""Largest number of a decimal; what people assume may lead beyond it, and one such figure would cost the whole status. [1]"""
_LARGEST: Final = 9e18
"""The same of a whole number. [1]"""


_TAUGHT: Final = {"step": "learned", "memory": "learnedMemory", "spread": "learnedSpread"}
"""What running jobs taught, as `status.inputs` calls it."""


def status_of(
    advice: Advice, digest: str, now: str, launch: Launch | None = None
) -> dict[str, Any]:
    """The parts of `status` that an answer decides; conditions and observations are the operator's."""
    status: dict[str, Any] = {
        "inputsHash": digest,
        "modelVersion": advice.model_version,
        "computedTime": now,
        "rejected": [
            {"reason": reason, "count": min(count, int(_LARGEST))}
            for reason, count in sorted(advice.rejected.items(), key=lambda item: -item[1])[
                :_REASONS
            ]
        ],
        "inputs": {
            "nodes": advice.nodes,
            "failure": failure_rows(advice.failures),
            **_known(advice),
        },
    }
    if advice.current is not None:
        status["current"] = _current(advice.current)
    if advice.strategy is None or advice.predicted is None:
        return status
    predicted = advice.predicted
    status["recommendation"] = {
        "strategy": {name: int(getattr(advice.strategy, name)) for name in _DEGREES}
        | {"text": format_strategy(advice.strategy)},
        "summary": summary(advice.strategy),
        "checkpointIntervalSteps": min(advice.checkpoint_interval_steps or 0, _MOST_STEPS),
        "checkpointIntervalSeconds": min(
            round(float(advice.checkpoint_interval_seconds or 0)), _LONGEST_TIME
        ),
        "predicted": _predicted(predicted),
        **_chances(advice.odds),
    }
    if advice.basis is not None:
        status["recommendation"]["evidence"] = in_a_line(advice.basis)[:_LONGEST]
    if launch is not None:
        status["recommendation"]["launch"] = {
            "trainer": launch.trainer,
            "args": list(launch.arguments),
        }
    status["alternatives"] = [
        {
            "name": other.name,
            "strategy": format_strategy(other.strategy),
            **_chances(other.odds),
            "relativeTime": _decimal(_pace(other.predicted) / _pace(predicted), 3),
            "reason": other.reason[:_LONGEST],
        }
        for other in advice.alternatives[:_ALTERNATIVES]
    ]
    return status


def failure_rows(failures: Iterable[FailureInput]) -> list[dict[str, Any]]:
    """Failure rates that an answer uses, as `status.inputs.failure`."""
    return [
        {
            "name": given.name,
            "failuresPerThousandNodeDays": _decimal(1000 * given.per_node_day, 4),
            "recoverySeconds": min(round(float(given.recovery_seconds)), _LONGEST_TIME),
        }
        for given in failures
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
    for letter, scale in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.0f}{letter}"
    return f"{seconds:.0f}s"


def _known(advice: Advice) -> dict[str, str]:
    """What of the job's and its neighbours' present went in: only what there is."""
    told = {_TAUGHT[name]: _decimal(one, 2) for name, one in advice.taught.items()}
    return told | ({} if advice.current is None else {"current": advice.current.text})


def _current(given: Current) -> dict[str, Any]:
    told: dict[str, Any] = {
        "strategy": given.text,
        "gain": f"{min(float(given.gain), _MOST) if math.isfinite(float(given.gain)) else 0.0:.3f}",
        "reason": given.reason[:_LONGEST],
    }
    told |= _chances(given.odds)
    return told if given.predicted is None else told | {"predicted": _predicted(given.predicted)}


def _chances(odds: Odds | None) -> dict[str, dict[str, str]]:
    """Its chances to three places, those that are known."""
    given = {} if odds is None else {"fits": odds.fits, "beats": odds.beats}
    told = {name: _decimal(float(one), 3) for name, one in given.items() if one is not None}
    return {"odds": told} if told else {}


def _predicted(given: Predicted) -> dict[str, Any]:
    told: dict[str, Any] = {
        "stepMilliseconds": _whole(given.step_seconds, 1000),
        "tokensPerSecond": _whole(given.tokens_per_second),
        "mfu": _shares(given.mfu),
        "ettr": _shares(given.ettr),
        "memoryBytes": _whole(given.memory_bytes),
    }
    if given.duration_seconds.target > 0:
        told["durationSeconds"] = _whole(given.duration_seconds)
    return told


def _whole(band: Range, scale: float = 1) -> dict[str, int]:
    return {name: round(min(scale * value, _LARGEST)) for name, value in _ends(band)}


def _shares(band: Range) -> dict[str, str]:
    return {name: _decimal(value, 4) for name, value in _ends(band)}


def _ends(band: Range) -> Iterable[tuple[str, float]]:
    return (
        ("lower", float(band.lower)),
        ("target", float(band.target)),
        ("upper", float(band.upper)),
    )


def _decimal(value: float, places: int) -> str:
    """A number as text, zero or more, without an exponent."""
    return f"{min(max(0.0, value), _MOST) if math.isfinite(value) else 0.0:.{places}f}"


def _pace(given: Predicted) -> float:
    """Time for the same work, failures included. [s]"""
    return given.step_seconds.target / max(given.ettr.target, 1e-9)
