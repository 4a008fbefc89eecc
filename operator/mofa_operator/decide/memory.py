"""What is seen of the device memory of a running job, beside what was predicted of the layout that it runs.

    limits          above which it is worth a look: the upper end of the band, and where allocators begin to retry
    memory_found    the condition: within the band or not, short of memory, or running though it cannot fit

What an allocator reserved is less than all that is in use, so it is held against upper ends alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mofa_model.advice.weighed import PRESSED
from mofa_model.units import GIB, Range
from mofa_operator.decide.conditions import Found, State
from mofa_operator.decision import Answer
from mofa_operator.shapes import ShownFigures, figure
from mofa_operator.snapshot import Running
from mofa_operator.words import Aspect, Reason

DEVICE, ALLOCATOR = "Device", "Allocator"
"""Who tells the memory: the exporter of the device, or the trainer's allocator, beside which there is more in use."""
_NONE: Final[Mapping[str, float]] = {}


def limits(running: Running | None, answer: Answer) -> Mapping[str, float]:
    """Device memory above which what runs is worth a look; none where nothing is seen that can be. [B]"""
    seen = None if running is None else figure(running.memory_bytes)
    if seen is None or implausible(seen, answer):
        return _NONE
    band = predicted_memory(answer)
    told = {} if band is None else {"prediction": band.upper}
    return told | {"device": PRESSED * answer.room_bytes}


def predicted_memory(answer: Answer) -> Range | None:
    """Peak device memory of the layout that the job is said to run, else of the advised one, with its band. [B]"""
    today = answer.says.current
    return (
        answer.figures.get("memory_bytes") if today is None else today.predicted.memory_bytes.band
    )


def implausible(seen: float, answer: Answer) -> str:
    """Why so much memory in use cannot be; empty where it can. [B]"""
    if seen <= 0:
        return "a device that trains holds something"
    if seen > answer.device_bytes:
        return f"a device has {_gib(answer.device_bytes)}"
    return ""


def memory_found(shown: ShownFigures, answer: Answer) -> Found:
    """Whether the device memory of a job that runs is what was predicted of it."""
    seen, band = shown.memory_bytes, predicted_memory(answer)
    is_part = shown.memory_source == ALLOCATOR
    is_too_large = band is not None and band.target > answer.room_bytes
    if band is None or (seen is None and not is_too_large):
        word = (
            "there is no prediction"
            if band is None
            else "no series tells the device memory of its pods"
        )
        return _found("Unknown", Reason.NO_OBSERVATION if seen is None else Reason.OBSERVED, word)
    word = "reserved by its allocator" if is_part else "in use"
    told = "" if seen is None else f"{_gib(seen)} are {word}, "
    told += f"{_gib(band.target)} predicted ({_gib(band.lower)} to {_gib(band.upper)})"
    if seen is not None and (why := implausible(seen, answer)):
        return _found(
            "False", Reason.IMPLAUSIBLE, f"{told}; that cannot be: {why}; it teaches nothing"
        )
    is_short = seen is not None and seen >= PRESSED * answer.room_bytes
    if is_short:
        told += f"; from {_gib(PRESSED * answer.room_bytes)} on allocators retry, which slows a run before it fails"
    if is_too_large:
        told += f"; by the model it cannot fit in {_gib(answer.room_bytes)}, and it runs: the model is wrong here"
        return _found("False", Reason.RUNS_ANYWAY, told)
    if is_short:
        return _found("False", Reason.SHORT_OF_MEMORY, told)
    if (seen is not None and not (is_part or band.lower <= seen)) or (seen or 0.0) > band.upper:
        return _found("False", Reason.OUTSIDE_BAND, told)
    return _found("True", Reason.WITHIN_BAND, told)


def _found(state: State, reason: Reason, message: str) -> Found:
    return Found(Aspect.MEMORY_ACCURATE, state, reason, message)


def _gib(value: float) -> str:
    return f"{value / GIB:.1f} GiB"
