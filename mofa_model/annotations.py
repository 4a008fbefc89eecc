"""The one pure function behind every door: what is asked becomes a hash, and an answer becomes annotations.

    inputs_hash(request, model_version)              the same question, however it was written, has the same hash
    of_advice(advice, digest, now, launch)           annotations of an answer
    of_bad_input(message, digest, …)                 annotations of a question that cannot be answered
    settled(previous, fresh)                         what to write: while the hash is equal, what is there already
    removal(previous)                                what to write when the mode is Disabled

The hash covers what the answer depends on (of failure rates two significant digits), the numbers of the rule and the model's version;
never the clock, how long anything was watched, or an object's metadata. Command and operator call these functions and nothing else.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any, Final

from mofa_model.advice import Advice, Current, Request
from mofa_model.advice.numbers import deciding_numbers
from mofa_model.bands import MeasuredRuns, NearRun
from mofa_model.kernels import MeasuredAttention, MeasuredGather, MeasuredProducts
from mofa_model.schedules import Schedule
from mofa_model.spec.reliability import FailureRate
from mofa_model.strategy_text import format_strategy
from mofa_model.units import DAY, Range

PREFIX: Final = "advisor.mofa.dev/"
"""Prefix of every annotation of ours."""
GATE: Final = PREFIX + "gate"
"""Key by which a job that was made suspended waits for us; the one key of people's that we take away."""
FRAMEWORK_VERSION: Final = PREFIX + "framework-version"
"""Key by which a job says which version of its trainer runs: in mode Apply it gets what was verified for that one."""
INPUTS: Final = (
    *(PREFIX + key for key in ("mode", "model", "config-ref", "paused")),
    GATE,
    FRAMEWORK_VERSION,
)
"""Keys that people write on existing kinds of jobs; but for the gate we never touch them."""
ASKED: Final = tuple(key for key in INPUTS if key not in {GATE, FRAMEWORK_VERSION})
"""Those of them that an answer depends on."""
OUTPUTS: Final = tuple(
    PREFIX + key
    for key in (
        "status",
        "strategy",
        "checkpoint-interval-steps",
        "checkpoint-interval-seconds",
        "predicted-step-seconds",
        "predicted-tokens-per-second",
        "predicted-mfu",
        "predicted-memory-bytes",
        "probability-of-fitting",
        "predicted-ettr",
        "predicted-ettr-range",
        "explanation",
        "recommendation",
        "inputs-hash",
        "model-version",
        "computed-at",
    )
)
"""Keys that we write, in the order in which they stand in a manifest."""
RECORD: Final = PREFIX + "run-record"
"""The operator's own notes on a TrainingJob that runs, for itself after a restart: no interface, and its form may change."""

INVALID: Final = "InvalidInput"
"""Status of a question that cannot be answered."""
LARGEST: Final = 4096
"""Bytes of the `recommendation` annotation."""
_SENTENCE: Final = 512
"""Bytes of the explanation."""
_ALWAYS: Final = ("status", "explanation", "inputs-hash", "model-version", "computed-at")


def hash_of(question: Any, model_version: str) -> str:
    """Hash of all that an answer depends on, for frozen dataclasses, mappings, sequences and plain values.

    >>> hash_of({"nodes": 256}, "1") == hash_of({"nodes": 256.0}, "1")
    True
    """
    text = json.dumps([model_version, _canonical(question)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def inputs_hash(request: Request, model_version: str) -> str:
    """Hash of a request, with the measured runs and the numbers that its odds rest on; alternatives to show are no part of it."""
    return hash_of((replace(request, top=0), deciding_numbers()), model_version)


def of_advice(
    advice: Advice, digest: str, now: str, launch: Iterable[str] = (), sizes: Sequence[Any] = ()
) -> dict[str, str]:
    """Annotations of an answer; `now` is the moment in UTC, `launch` the arguments of its trainer, `sizes` what else the job may be."""
    told = {
        "status": advice.status.value,
        "explanation": _short(advice.explanation),
        "inputs-hash": digest,
        "model-version": advice.model_version,
        "computed-at": now,
    }
    predicted = advice.predicted
    if advice.strategy is not None and predicted is not None:
        told |= {
            "strategy": format_strategy(advice.strategy),
            "checkpoint-interval-steps": str(advice.checkpoint_interval_steps),
            "checkpoint-interval-seconds": f"{advice.checkpoint_interval_seconds:.0f}",
            "predicted-step-seconds": _digits(predicted.step_seconds.target, 4),
            "predicted-tokens-per-second": f"{predicted.tokens_per_second.target:.0f}",
            "predicted-mfu": f"{predicted.mfu.target:.3f}",
            "predicted-memory-bytes": f"{predicted.memory_bytes.target:.0f}",
            "predicted-ettr": f"{predicted.ettr.target:.3f}",
            "predicted-ettr-range": f"{predicted.ettr.lower:.3f}-{predicted.ettr.upper:.3f}",
        } | ({} if advice.odds is None else {"probability-of-fitting": f"{advice.odds.fits:.3f}"})
    told["recommendation"] = recommendation(advice, launch, sizes)
    return _ordered(told)


def of_bad_input(message: str, digest: str, model_version: str, now: str) -> dict[str, str]:
    """Annotations of a question that cannot be answered."""
    return _ordered(
        {
            "status": INVALID,
            "explanation": _short(message),
            "inputs-hash": digest,
            "model-version": model_version,
            "computed-at": now,
        }
    )


def settled(previous: Mapping[str, str], fresh: Mapping[str, str]) -> dict[str, str | None]:
    """The change to write: nothing while the hash is equal, else the fresh keys with the stale ones removed (None).

    >>> settled({PREFIX + "inputs-hash": "a", PREFIX + "old": "x"}, {PREFIX + "inputs-hash": "b"})
    {'advisor.mofa.dev/inputs-hash': 'b', 'advisor.mofa.dev/old': None}
    """
    key = PREFIX + "inputs-hash"
    if previous.get(key) == fresh.get(key) and is_whole(previous):
        return {}
    stale: dict[str, str | None] = {key: None for key in removal(previous) if key not in fresh}
    return {**fresh, **stale}


def removal(previous: Mapping[str, str]) -> dict[str, None]:
    """The change that removes every output of ours, unknown ones of other versions included; inputs stay."""
    return {key: None for key in previous if key.startswith(PREFIX) and key not in INPUTS}


def is_whole(previous: Mapping[str, str]) -> bool:
    """Whether annotations hold a whole outcome, so that an equal hash means that nothing is left to do."""
    return all(PREFIX + key in previous for key in _ALWAYS)


def recommendation(advice: Advice, launch: Iterable[str] = (), sizes: Sequence[Any] = ()) -> str:
    """The answer as compact JSON of at most 4 KiB: what is least needed goes first where it does not fit."""
    whole: dict[str, Any] = {
        "version": 1,
        "status": advice.status.value,
        "model": advice.model,
        "gpu": advice.device,
        "objective": advice.objective,
        "nodes": advice.nodes,
        "gpus": advice.gpus,
        "confidence": _number(float(advice.confidence)),
        "rejected": dict(advice.rejected),
        "searched": advice.counts.searched,
    }
    if advice.strategy is not None:
        whole["strategy"] = format_strategy(advice.strategy)
        whole["precision"] = advice.precision
        whole["checkpoint"] = {
            "steps": advice.checkpoint_interval_steps,
            "seconds": round(float(advice.checkpoint_interval_seconds or 0)),
        }
    if advice.predicted is not None:
        whole["predicted"] = {
            item.name: _band(getattr(advice.predicted, item.name))
            for item in fields(advice.predicted)
        }
    if advice.odds is not None:
        chances = (("fits", advice.odds.fits), ("beats", advice.odds.beats))
        whole["odds"] = {name: _number(float(one)) for name, one in chances if one is not None}
    if advice.basis is not None:
        whole["evidence"] = {
            "runs": advice.basis.runs,
            "nearest": [*map(_run, advice.basis.nearest)],
        }
    if advice.current is not None:
        whole["current"] = {
            "strategy": advice.current.text,
            "gain": _number(float(advice.current.gain)),
            **_price(advice.current),
        }
    more = {"launch": list(launch), "sizes": list(sizes), "learned": dict(advice.taught)}
    whole |= {key: told for key, told in more.items() if told}
    if advice.caveats:
        whole["caveats"] = [_short(text) for text in advice.caveats]
    whole["alternatives"] = [
        {
            "name": other.name,
            "strategy": format_strategy(other.strategy),
            "reason": _short(other.reason),
        }
        for other in advice.alternatives
    ]
    return _fitted(whole)


def _run(one: NearRun) -> dict[str, Any]:
    """A measured run: how far it is, and how far off its prediction was."""
    return {"name": one.name, "distance": _number(one.distance), "error": _number(one.error)}


def _price(current: Current) -> dict[str, Any]:
    """Time of a step of today's layout [s], or why there is none."""
    if current.predicted is None or current.reason:
        return {"reason": _short(current.reason)}
    return {"step_seconds": _number(float(current.predicted.step_seconds.target))}


def _fitted(whole: dict[str, Any]) -> str:
    """JSON of at most `LARGEST` bytes; all of it is ASCII, so a character is a byte."""
    others = whole["alternatives"]
    while others and len(_json(whole)) > LARGEST:
        others.pop()
    for key in ("evidence", "caveats", "launch", "rejected", "current", "sizes"):
        if len(_json(whole)) > LARGEST:
            whole.pop(key, None)
    return _json(whole)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _band(band: Range) -> list[float]:
    return [_number(band.lower), _number(band.target), _number(band.upper)]


def _number(value: float) -> float:
    """A number with four significant digits; whole where that loses nothing."""
    rounded = float(f"{value:.4g}") if math.isfinite(value) else 0.0
    return int(rounded) if rounded == int(rounded) else rounded


def _digits(value: float, digits: int) -> str:
    """A number with some significant digits and no exponent.

    >>> _digits(27.98913, 4), _digits(0.0123456, 4)
    ('27.99', '0.01235')
    """
    if not math.isfinite(value) or value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}"


def _short(text: str) -> str:
    """A sentence on one line, printable, of at most 512 bytes."""
    line = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    if len(line.encode()) <= _SENTENCE:
        return line
    return line.encode()[: _SENTENCE - 3].decode(errors="ignore") + "…"


def _ordered(told: Mapping[str, str]) -> dict[str, str]:
    return {
        key: told[key.removeprefix(PREFIX)] for key in OUTPUTS if key.removeprefix(PREFIX) in told
    }


def _canonical(value: Any) -> Any:
    """Anything that a question is made of as what JSON knows, one way only."""
    if isinstance(value, FailureRate):
        return f"{float(value.mean) * DAY:.1e}"
    if isinstance(value, enum.Enum | Schedule):
        return value.value
    if isinstance(value, MeasuredProducts | MeasuredAttention | MeasuredGather | MeasuredRuns):
        return value.digest
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float) or hasattr(value, "tolist"):
        return _canonical_number(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _canonical(getattr(value, item.name)) for item in _asked(value)}
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_canonical(item) for item in value), key=repr)
    if isinstance(value, Iterable):
        return [_canonical(item) for item in value]
    raise TypeError(f"a question cannot hold {type(value).__name__}")


def _asked(value: Any) -> list[Field[Any]]:
    """Fields of a part of a question; one that came later and says its default asks nothing new."""
    return [
        item
        for item in fields(value)
        if not item.metadata or getattr(value, item.name) != item.default
    ]


def _canonical_number(value: Any) -> Any:
    """A number as text, so that 256 and 256.0 are one."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(plain, list):
        return [_canonical_number(item) for item in plain]
    return repr(float(plain))
