"""Step times from a trainer's log: the line formats of Megatron, NeMo, torchtitan, nanotron and DeepSpeed.

    Megatron-LM      iteration 100/ 500 | … | elapsed time per iteration (ms): 8343.1 | …
    Megatron-Bridge  Step Time : 8.34s …
    NeMo             … | train_step_timing in s: 8.34 | …
    nanotron         iteration: 10 / 15 | … | elapsed_time_per_iteration_ms: 8.34K | …
    torchtitan       step: 10  loss: …  tps: 6,512  …         tokens per second and device
    DeepSpeed        … CurrSamplesPerSec=35.5, …              samples per second

Whatever else a line holds does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from mofa_model import units
from mofa_model.errors import BadFile
from mofa_model.units import Seconds

_NUMBER: Final = r"([0-9][0-9,_]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
"""What a terminal is told between the words of a line."""

_MILLISECOND: Final = units.parse("1 ms", "s")
_THOUSAND: Final = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9}


@dataclass(frozen=True, slots=True)
class _Form:
    """One kind of line: what its number means."""

    pattern: re.Pattern[str]
    meaning: str  # seconds, milliseconds, tokens or samples


FORMS: Final = (
    _Form(re.compile(rf"elapsed time per iteration \(ms\):\s*{_NUMBER}()"), "milliseconds"),
    _Form(re.compile(rf"elapsed_time_per_iteration_ms:\s*{_NUMBER}([KMB]?)"), "milliseconds"),
    _Form(re.compile(rf"train_step_timing in s['\"]?\s*[:=]\s*{_NUMBER}()"), "seconds"),
    _Form(re.compile(rf"Step Time\s*:\s*{_NUMBER}()\s*s\b"), "seconds"),
    _Form(re.compile(rf"\bstep:\s*[0-9,]+\b.*\btps:\s*{_NUMBER}()"), "tokens"),
    _Form(re.compile(rf"CurrSamplesPerSec=\s*{_NUMBER}()"), "samples"),
)
"""Line formats, in the order in which they are tried."""

FEWEST: Final = 3
"""Steps that a log must hold after its warm-up."""

WARM_UP: Final = 0.2
"""Share of the steps at the start that is left out: compilation, allocation, first touches. [1]"""


def step_seconds(
    lines: Iterable[str], *, global_batch: int, sequence: int, gpus: int, path: object = "log"
) -> Seconds:
    """Median step time of a log, its warm-up left out. [s]

    >>> lines = [f"iteration {i}/9 | elapsed time per iteration (ms): {ms} |" for i, ms in enumerate((9000, 500, 500, 502))]
    >>> step_seconds(lines, global_batch=8, sequence=4096, gpus=8)
    0.5
    """
    found = [
        value for line in lines if (value := _read(line, global_batch, sequence, gpus)) is not None
    ]
    steady = found[max(1, round(WARM_UP * len(found))) :]
    if len(steady) < FEWEST:
        raise BadFile(
            path,
            f"holds {len(found)} lines with a step time; {FEWEST + 1} or more are needed, in the format of Megatron, NeMo,"
            " torchtitan, nanotron or DeepSpeed",
        )
    return float(np.median(np.array(steady, dtype=float)))


def _read(line: str, global_batch: int, sequence: int, gpus: int) -> Seconds | None:
    plain = _COLOUR.sub("", line)
    for form in FORMS:
        match = form.pattern.search(plain)
        if match is None:
            continue
        number = float(match.group(1).replace(",", "").replace("_", "")) * _THOUSAND[match.group(2)]
        if number <= 0:
            return None
        if form.meaning == "tokens":
            return global_batch * sequence / (gpus * number)
        if form.meaning == "samples":
            return global_batch / number
        return number * (_MILLISECOND if form.meaning == "milliseconds" else 1.0)
    return None
