"""The annotations of an answer, and the hash of its question.

    inputs_hash(request, model_version)      the same for equal questions, however they were written
    of_advice(advice, digest, …, launch)     annotations of an answer
    of_bad_input(message, digest, …)         annotations of a question that cannot be answered
    settled(previous, fresh)                 what to write; nothing while the hash is equal
    removal(previous)                        what to write when the mode is Disabled

The hash covers what the answer depends on (failure rates to two significant digits), the numbers of
the rule and the model's version. It leaves out the clock, how long anything was watched, and
metadata of objects. Command and operator call these functions, so that they cannot disagree.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any, Final

from mofa_model.advice import Advice, Predicted, Request
from mofa_model.advice.compose import deciding_numbers
from mofa_model.bands.table import MeasuredRuns
from mofa_model.errors import FactsDisagree, FactsMissing, InputError, NotApplicable, NotTraining
from mofa_model.kernels import MeasuredAttention, MeasuredGather, MeasuredProducts
from mofa_model.schedules import Schedule
from mofa_model.spec.reliability import FailureRate
from mofa_model.strategy import Strategy, format_strategy
from mofa_model.units import DAY, GIB, Range

PREFIX: Final = "advisor.mofa.dev/"
"""Prefix of every annotation of ours."""
GATE: Final = PREFIX + "gate"
"""A job that was made suspended waits for us by this key; it is the only input that we remove."""
FRAMEWORK_VERSION: Final = PREFIX + "framework-version"
"""The version of a job's trainer: in mode Apply only arguments verified for it are written."""
CLASS: Final = PREFIX + "class"
"""What an object is, by a person who knows better than its manifest tells."""
SIZE: Final = PREFIX + "size"
"""What the size of a job that states none is to be best at: a key of `advice.sizes.OBJECTIVES`."""
RESTARTS: Final = PREFIX + "restarts"
"""Restarts that are enough for the run of an answer."""
ADVISE: Final = PREFIX + "advise"
"""The label of a namespace whose jobs are all advised; its value is "true"."""
ASKED: Final = tuple(
    PREFIX + key for key in ("mode", "model", "config-ref", "class", "size", "paused")
)
"""Inputs that an answer depends on."""
INPUTS: Final = (*ASKED, GATE, FRAMEWORK_VERSION)
"""Keys that people write on existing kinds of jobs; but for the gate we never touch them."""

_OF_LAYOUT: Final[Mapping[str, Callable[[Advice, Strategy, Predicted], str]]] = {
    "strategy": lambda _, layout, __: format_strategy(layout),
    "checkpoint-interval-steps": lambda advice, *_: str(advice.checkpoint_interval_steps),
    "checkpoint-interval-seconds": lambda advice, *_: f"{advice.checkpoint_interval_seconds:.0f}",
    "restarts": lambda advice, *_: "" if advice.restarts is None else str(advice.restarts),
    "hang-timeout-seconds": lambda advice, *_: (
        "" if advice.hang_timeout is None else f"{advice.hang_timeout:.0f}"
    ),
    "predicted-step-seconds": lambda _, __, run: _digits(run.step_seconds.target, 4),
    "predicted-tokens-per-second": lambda _, __, run: f"{run.tokens_per_second.target:.0f}",
    "predicted-mfu": lambda _, __, run: f"{run.mfu.target:.3f}",
    "predicted-memory-bytes": lambda _, __, run: f"{run.memory_bytes.target:.0f}",
    "probability-of-fitting": lambda advice, *_: f"{advice.odds.fits:.3f}" if advice.odds else "",
    "predicted-ettr": lambda _, __, run: f"{run.ettr.target:.3f}",
    "predicted-ettr-range": lambda _, __, run: f"{run.ettr.lower:.3f}-{run.ettr.upper:.3f}",
}
"""Keys of an answer that has a layout, each with its text; an empty text is left out."""
OUTPUTS: Final = tuple(
    PREFIX + key
    for key in (
        *("status", *_OF_LAYOUT, "explanation", "recommendation"),
        *("inputs-hash", "model-version", "computed-at"),
    )
)
"""Keys that we write, in the order in which they stand in a manifest."""
ODDS: Final = PREFIX + "probability-of-fitting"
WITHOUT_LAYOUT: Final = tuple(key for key in OUTPUTS if key.removeprefix(PREFIX) not in _OF_LAYOUT)
"""Keys of an answer without a layout; what is `UNANSWERED` has no recommendation either."""
RECORD: Final = PREFIX + "run-record"
"""The operator's notes on a TrainingJob that runs, for its own restart. Its form may change."""
RUNS: Final = PREFIX + "runs"
"""What the processes of a job were seen to be told, where its manifest does not say it: options
that decide layout, batch, sequence and shape of the model, and nothing else."""
MEASURED: Final = PREFIX + "measured-step-seconds"
"""The time of a step of a running job's own layout, as its trainer's series say it. [s]"""
SEEN: Final = (RUNS, MEASURED)
"""What was seen of a running job, and its next answer depends on."""
FINISH: Final = PREFIX + "finish"
"""When a TrainingJob that runs has trained its tokens, with P10 and P90; on it and on
its target.
"""

UNANSWERED: Final = tuple(
    error.status for error in (InputError, FactsMissing, FactsDisagree, NotApplicable, NotTraining)
)
"""Statuses of an object that gets no answer: bad input, what is missing or contradicts itself, what
runs on other devices, and what trains no language model."""
QUIET: Final = frozenset({NotTraining.status, NotApplicable.status})
"""Statuses of objects that are as they should be, and no business of ours."""
LARGEST: Final = 4096
"""Bytes of the `recommendation` annotation."""
_LONGEST_SENTENCE: Final = 512
"""Bytes of the explanation."""


def hash_of(question: Any, model_version: str) -> str:
    """Hash of all that an answer depends on: dataclasses, mappings, sequences and plain values.

    >>> hash_of({"nodes": 256}, "1") == hash_of({"nodes": 256.0}, "1")
    True
    """
    text = json.dumps([model_version, _canonical(question)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def inputs_hash(request: Request, model_version: str) -> str:
    """Hash of a request, and of the measured runs and numbers behind its odds; not of `top`."""
    return hash_of((replace(request, top=0), deciding_numbers()), model_version)


def of_advice(
    advice: Advice, digest: str, stamp: str, launch: Iterable[str] = (), sizes: Sequence[Any] = ()
) -> dict[str, str]:
    """Annotations of an answer, with the time in UTC at which it was computed.

    `launch` are the arguments of its trainer, `sizes` the answers at other sizes of an elastic job.
    """
    written = of_bad_input(advice.explanation, digest, advice.model_version, stamp)
    written[PREFIX + "status"] = advice.status.value
    written[PREFIX + "recommendation"] = recommendation(advice, launch, sizes)
    if advice.strategy is not None and advice.predicted is not None:
        for key, encode in _OF_LAYOUT.items():
            if text := encode(advice, advice.strategy, advice.predicted):
                written[PREFIX + key] = text
    return {key: written[key] for key in OUTPUTS if key in written}


def of_bad_input(
    message: str, digest: str, model_version: str, stamp: str, status: str = InputError.status
) -> dict[str, str]:
    """Annotations of a question that cannot be answered; `status` is one of `UNANSWERED`."""
    return {
        PREFIX + "status": status,
        PREFIX + "explanation": _one_line(message),
        PREFIX + "inputs-hash": digest,
        PREFIX + "model-version": model_version,
        PREFIX + "computed-at": stamp,
    }


def of_batches(
    message: str, digest: str, model_version: str, stamp: str, rows: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Annotations of a job that says all but its batch: a row for each batch that was tried."""
    short = ", ".join(
        f"{row['global_batch']} sequences {_digits(row['step_seconds'], 3)} s "
        f"{row['memory_bytes'] / GIB:.0f} GiB"
        for row in rows
        if "strategy" in row
    )
    explanation = f"{message}; a step and its memory by batch: {short}" if short else message
    written = of_bad_input(explanation, digest, model_version, stamp, FactsMissing.status)
    table = {"version": 1, "status": FactsMissing.status, "batches": list(rows)}
    written[PREFIX + "recommendation"] = _json(table)
    return {key: written[key] for key in OUTPUTS if key in written}


def settled(previous: Mapping[str, str], fresh: Mapping[str, str]) -> dict[str, str | None]:
    """The change to write: none while the hash is equal, else fresh keys, and None for stale ones.

    >>> settled({PREFIX + "inputs-hash": "a", PREFIX + "old": "x"}, {PREFIX + "inputs-hash": "b"})
    {'advisor.mofa.dev/inputs-hash': 'b', 'advisor.mofa.dev/old': None}
    """
    key = PREFIX + "inputs-hash"
    if previous.get(key) == fresh.get(key) and is_whole(previous):
        return {}
    staying = {*fresh, *SEEN}  # what was seen to run is an input of the next answer
    stale: dict[str, str | None] = {key: None for key in removal(previous) if key not in staying}
    return {**fresh, **stale}


def removal(previous: Mapping[str, str]) -> dict[str, None]:
    """The change that removes every output of ours, those of other versions too; inputs stay."""
    return {key: None for key in previous if key.startswith(PREFIX) and key not in INPUTS}


def is_whole(previous: Mapping[str, str]) -> bool:
    """Whether annotations hold a whole outcome, so that an equal hash leaves nothing to do."""
    return {*WITHOUT_LAYOUT} - {PREFIX + "recommendation"} <= previous.keys()


def recommendation(advice: Advice, launch: Iterable[str] = (), sizes: Sequence[Any] = ()) -> str:
    """The answer as JSON of at most `LARGEST` bytes: what is least needed is left out first."""
    whole: dict[str, Any] = {
        "version": 1,
        "status": advice.status.value,
        "model": advice.model,
        "gpu": advice.device,
        "objective": advice.objective,
        "nodes": advice.nodes,
        "gpus": advice.gpus,
        "confidence": _number(advice.confidence),
        "rejected": dict(advice.rejected),
        "searched": advice.searched,
    }
    if advice.strategy is not None:
        whole["strategy"] = format_strategy(advice.strategy)
        whole["precision"] = advice.precision
        seconds = round(float(advice.checkpoint_interval_seconds or 0))
        whole["checkpoint"] = {"steps": advice.checkpoint_interval_steps, "seconds": seconds}
    if advice.predicted is not None:
        whole["predicted"] = {
            item.name: _range(getattr(advice.predicted, item.name))
            for item in fields(advice.predicted)
        }
    if advice.odds is not None:
        chances = (("fits", advice.odds.fits), ("beats", advice.odds.beats))
        whole["odds"] = {name: _number(chance) for name, chance in chances if chance is not None}
    if advice.basis is not None:
        nearest = [
            {"name": run.name, "distance": _number(run.distance), "error": _number(run.error)}
            for run in advice.basis.nearest
        ]
        whole["evidence"] = {"runs": advice.basis.runs, "nearest": nearest}
    if (current := advice.current) is not None:
        whole["current"] = {"strategy": current.text, "gain": _number(current.gain)} | (
            {"reason": _one_line(current.reason)}
            if current.predicted is None or current.reason
            else {"step_seconds": _number(current.predicted.step_seconds.target)}
        )
        whole["current"] |= {"planned": True} if current.is_planned else {}
    more = {"launch": list(launch), "sizes": list(sizes), "learned": dict(advice.taught)}
    whole |= {key: value for key, value in more.items() if value}
    if advice.caveats:
        whole["caveats"] = [_one_line(text) for text in advice.caveats]
    alternatives = whole["alternatives"] = [
        {
            "name": other.name,
            "strategy": format_strategy(other.strategy),
            "reason": _one_line(other.reason),
        }
        for other in advice.alternatives
    ]
    while alternatives and len(_json(whole)) > LARGEST:
        alternatives.pop()
    for key in ("evidence", "caveats", "launch", "rejected", "current", "sizes"):
        if len(_json(whole)) > LARGEST:
            whole.pop(key, None)
    return _json(whole)


def predicted_in(recommendation: Mapping[str, Any]) -> dict[str, Range]:
    """The readable predictions of a `recommendation`, by the fields of `Predicted`."""
    written = recommendation.get("predicted")
    ranges: dict[str, Range] = {}
    for item in fields(Predicted):
        bounds = written.get(item.name) if isinstance(written, Mapping) else None
        try:
            lower, target, upper = map(float, bounds if isinstance(bounds, list) else ())
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(lower + target + upper):
            ranges[item.name] = Range(lower=lower, target=target, upper=upper)
    return ranges


def _json(value: Any) -> str:
    """Compact JSON. It is ASCII, so that a character is a byte."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _range(bounds: Range) -> list[float]:
    return [_number(bounds.lower), _number(bounds.target), _number(bounds.upper)]


def _number(value: Any) -> float:
    """A number with four significant digits; whole where that loses nothing."""
    rounded = float(f"{float(value):.4g}") if math.isfinite(value) else 0.0
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


def _one_line(text: str) -> str:
    """A sentence on one line, printable, of at most 512 bytes."""
    line = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    if len(line.encode()) <= _LONGEST_SENTENCE:
        return line
    return line.encode()[: _LONGEST_SENTENCE - 3].decode(errors="ignore") + "…"


def _canonical(value: Any) -> Any:
    """Any part of a question as values of JSON, so that equal questions have equal text."""
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
        return {item.name: _canonical(getattr(value, item.name)) for item in _hashed_fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_canonical(item) for item in value), key=repr)
    if isinstance(value, Iterable):
        return [_canonical(item) for item in value]
    raise TypeError(f"a question cannot hold {type(value).__name__}")


def _hashed_fields(value: Any) -> list[Field[Any]]:
    """Fields that are hashed. A later field at its default is not: hashes of old questions stay."""
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
