"""Lines of trainers' logs, and what they say: a table of patterns, one family for each trainer.

    megatron     iteration 100/ 500 | … | elapsed time per iteration (ms): 8343.1 | …
                 | global batch size: 2048 | …
                 Step Time : 8.34s …       Megatron-Bridge, before the former
    nemo         … iteration 45/99 | … | global_batch_size: 128 | global_step: 45 | …
                 | train_step_timing in s: 6.08 | …
    torchtitan   … step: 10  loss: …  tps: 6,512  …
    deepspeed    … global_step=10, RunningAvgSamplesPerSec=35.2, CurrSamplesPerSec=35.5, …
                 … step=10, skipped=0, …
                 steps: 10 loss: 8.1 iter time (s): 1.234 samples/sec: 51.8
    nanotron     … iteration: 10 / 15 | … | elapsed_time_per_iteration_ms: 8.34K | …
                 | tokens_per_sec: 7.86K | …

The name of a pattern's group says what its number means, with its unit; the rest of a line does not
matter. Beside steps, trainers log when they saved, where they resumed, and how they were started.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from mofa_model.errors import UnknownName
from mofa_operator.trainer.facts import Facts

_NUMBER: Final = r"[0-9][0-9,_]{0,20}(?:\.[0-9]{1,20})?(?:[eE][-+]?[0-9]{1,2})?[KMBT]?"
_THOUSANDS: Final = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
_LARGEST: Final = 1e15


@dataclass(frozen=True, kw_only=True, slots=True)
class Line(Facts):
    """What one line says, of progress and of the job; None = nothing."""

    family: str
    """The trainer that writes such lines."""
    step: int | None = None
    """Last finished step. [1]"""
    since_start: int | None = None
    """Steps since the process started: the step only where no line says the step. [1]"""
    seconds: float | None = None
    """Time of a step. [s]"""
    tokens: float | None = None
    """Tokens of the whole job. [1/s]"""
    tokens_per_gpu: float | None = None
    """Tokens of one GPU. [1/s]"""
    samples_per_second: float | None = None
    """Sequences of the whole job. [1/s]"""
    memory_bytes: float | None = None
    """Most device memory that the trainer's allocator has reserved. [B]"""
    checkpoint_step: int | None = None
    """Step of a checkpoint that is complete. [1]"""
    saves: bool = False
    """A checkpoint is complete, of the last finished step."""
    resumed_step: int | None = None
    """Step from which training goes on. [1]"""
    starts: bool = False
    """The trainer starts, or starts again."""

    @property
    def has_speed(self) -> bool:
        """Whether it has a speed."""
        return not (
            self.seconds is self.tokens is self.tokens_per_gpu is self.samples_per_second is None
        )


@dataclass(frozen=True, slots=True)
class _Form:
    """A kind of line: a text that it contains, and patterns that are searched in it."""

    mark: str
    patterns: tuple[re.Pattern[str], ...]


def _form(mark: str, *patterns: str) -> _Form:
    """A form; in patterns, `<name>` is a number of that name."""
    named = (re.sub(r"(?<!P)<(\w+)>", rf"(?P<\1>{_NUMBER})", pattern) for pattern in patterns)
    return _Form(mark, tuple(re.compile(pattern) for pattern in named))


_FAMILIES: Final[dict[str, tuple[_Form, ...]]] = {
    "megatron": (
        _form(
            "elapsed time per iteration (ms):",
            r"\biteration\s+<step>\s*/",
            r"elapsed time per iteration \(ms\):\s*<milliseconds>",
            r"\bgl\w{4} batch size:\s*<batch>",
            r"\bactual seqlen:\s*<sequence>",
        ),
        _form("Step Time :", r"Step Time :\s*<seconds>\s*s\b"),
        _form("memory (MB)", r"\bmax reserved:\s*<mebibytes>"),
        _form(
            "saved checkpoint from iteration",
            r"successfully saved checkpoint from iteration\s+<checkpoint_step>",
        ),
        _form(
            "successfully loaded checkpoint",
            r"successfully loaded checkpoint from .{0,4096} at iteration\s+<resumed_step>",
        ),
        _form(
            " ...",
            r"\bseq_length \.{3,}\s*<sequence>\s*$",
            r"\bglobal_batch_size \.{3,}\s*<batch>\s*$",
            r"\bworld_size \.{3,}\s*<gpus>\s*$",
            r"\bnum_layers \.{3,}\s*<layers>\s*$",
            r"\bhidden_size \.{3,}\s*<hidden>\s*$",
            r"\bffn_hidden_size \.{3,}\s*<ffn>\s*$",
            r"\bnum_attention_heads \.{3,}\s*<heads>\s*$",
            r"\bgroup_query_attention \.{3,}\s*(?P<grouped>True)\s*$",
            r"\bnum_query_groups \.{3,}\s*<groups>\s*$",
        ),
        _form("padded vocab (size:", r"padded vocab \(size:\s*<vocabulary>\)"),
        _form("using world size:", r"using world size:\s*<gpus>", "(?P<starts>using world size)"),
        _form("seq_length: ", r"\bseq_length:\s*<sequence>\s*$"),
    ),
    "nemo": (
        _form(
            "train_step_timing in s",
            r"train_step_timing in s['\"]?\s*[:=]\s*<seconds>",
            r"\biteration\s+<index>\s*/",
            r"\bglobal_step\s*[:=]\s*<index>",
            r"\bglobal_batch_size\s*[:=]\s*<batch>",
            r"\btokens_per_sec_per_gpu\s*[:=]\s*<tokens_per_gpu>",
            r"\bmax_memory_reserved\s*[:=]\s*<memory_bytes>",
        ),
        _form(
            "finalized successfully",
            r"checkpoint save for step <checkpoint_step> .{0,4096}finalized successfully",
        ),
        _form(
            "uccessfully saved checkpoint",
            r"[Ss]uccessfully saved checkpoint from iteration\s+<checkpoint_step>",
        ),
        _form("Restoring states from", r"(?P<starts>Restoring states from the checkpoint)"),
    ),
    "torchtitan": (
        _form(
            "tps:",
            r"\bstep:\s*<step>.{0,4096}\btps:\s*<tokens_per_gpu>",
            r"\bmemory:\s*<gibibytes>\s*GiB",
        ),
        _form("inished saving the checkpoint", "(?P<saves>Finished saving the checkpoint)"),
        _form("raining starts at step", r"Training starts at step\s+<first>"),
        _form(
            "Trainer is initialized with",
            "(?P<starts>Trainer is initialized with)",
            "global batch size <batch>",
            "sequence length <sequence>",
        ),
        _form(
            "parallelism: pp=",
            "parallelism: pp=<pp>, dp_replicate=<dp_replicate>, dp_shard=<dp_shard>, cp=<cp>, "
            "tp=<tp>",
        ),
    ),
    "deepspeed": (
        _form(
            "CurrSamplesPerSec=",
            r"\bglobal_step=<since_start>,",
            "CurrSamplesPerSec=<samples_per_second>",
        ),
        _form(
            "iter time (s):",
            r"\bsteps: <step>",
            r"iter time \(s\): <seconds>",
            r"samples/sec: <samples_per_second>",
        ),
        _form(", skipped=", r"\bstep=<step>, skipped="),
        _form("is ready now", r"Checkpoint global_step<checkpoint_step> is ready now"),
        _form(
            "Loaded checkpoint from", r"Loaded checkpoint from \S{0,4096}global_step<resumed_step>"
        ),
        _form(
            " ...", r"\btrain_batch_size \.{3,}\s*<batch>\s*$", r"\bworld_size \.{3,}\s*<gpus>\s*$"
        ),
    ),
    "nanotron": (
        _form(
            "time_per_iteration_ms:",
            r"\biteration:\s*<step>\s*/",
            r"time_per_iteration_ms:\s*<milliseconds>",
            r"\btokens_per_sec:\s*<tokens>",
            r"\btokens_per_sec_per_gpu:\s*<tokens_per_gpu>",
        ),
        _form("Peak reserved", r"Peak reserved:?\s*<mebibytes>\s*MiB"),
        _form("Saving checkpoint at", r"Saving checkpoint at \S{0,4096}/<checkpoint_step>\s*$"),
        _form(
            "[Start training]",
            r"global_batch_size: <batch>",
            r"sequence_length: <sequence>",
            r"start_iteration_step: <resumed_step>",
            r"(?P<starts>\[Start training\])",
        ),
    ),
}

FAMILIES: Final = tuple(_FAMILIES)
"""Trainers whose lines are known, in the order in which they are tried."""

_SIZES: Final = tuple(fact.name for fact in fields(Facts) if fact.name != "grouped")
_WHOLE: Final = (*_SIZES, "step", "since_start", "checkpoint_step", "resumed_step")
_SPEEDS: Final = ("seconds", "tokens", "tokens_per_gpu", "samples_per_second")
_POSITIVE: Final = (*_SIZES, *_SPEEDS, "memory_bytes")
_BYTES: Final = {"mebibytes": 2**20, "gibibytes": 2**30}
_SAID: Final = ("starts", "saves", "grouped")
"""Groups that hold no number."""
_MESH: Final = ("pp", "dp_replicate", "dp_shard", "cp", "tp")


class Reader:
    """Reads lines; after the first line with a speed, those of one family only.

    >>> text = b" iteration 7/ 9 | elapsed time per iteration (ms): 500.0 | global batch size: 8 |"
    >>> line = Reader().read(text)
    >>> line.step, line.seconds, line.batch
    (7, 0.5, 8)
    """

    def __init__(self, family: str | None = None) -> None:
        if family is not None and family not in _FAMILIES:
            raise UnknownName("--format", family, FAMILIES)
        self.family = family
        self._choose(FAMILIES if family is None else (family,))

    def read(self, raw: bytes) -> Line | None:
        """What a line says; None where it says nothing of interest."""
        if not any(mark in raw for mark in self._marks):  # nearly every line ends here
            return None
        text = _COLOUR.sub("", raw.decode("utf-8", "replace"))
        for family in self._families:
            for form in _FAMILIES[family]:
                if form.mark in text and (line := _line(family, form, text)) is not None:
                    if self.family is None and line.has_speed:
                        self.family = family
                        self._choose((family,))
                    return line
        return None

    def _choose(self, families: Sequence[str]) -> None:
        self._families = tuple(families)
        self._marks = tuple(
            {form.mark.encode() for family in families for form in _FAMILIES[family]}
        )


def _line(family: str, form: _Form, text: str) -> Line | None:
    texts: dict[str, str] = {}
    for pattern in form.patterns:
        if (match := pattern.search(text)) is not None:
            texts.update(match.groupdict())
    numbers = {name: _number(digits) for name, digits in texts.items() if name not in _SAID}
    if not texts or any(number is None for number in numbers.values()):
        return None
    values = {name: number for name, number in numbers.items() if number is not None}
    if "milliseconds" in values:
        values["seconds"] = values.pop("milliseconds") / 1e3
    for unit, size in _BYTES.items():
        if unit in values:
            values["memory_bytes"] = values.pop(unit) * size
    if "index" in values:  # counted from 0
        values["step"] = values.pop("index") + 1
    if "first" in values:
        values["resumed_step"] = max(0.0, values.pop("first") - 1)
    if all(axis in values for axis in _MESH):
        product = 1.0
        for axis in _MESH:
            product *= values.pop(axis)
        values["gpus"] = product
    fields: dict[str, Any] = {
        name: round(value) if name in _WHOLE else value for name, value in values.items()
    }
    if any(fields.get(name, 1) <= 0 for name in _POSITIVE):
        return None
    fields |= {name: True for name in texts if name not in numbers}
    return Line(family=family, **fields)


def _number(text: str) -> float | None:
    """A number as trainers write it: 8343.1, 6,512, 8.34K, 1.2e+03; None where it is none."""
    scale = _THOUSANDS.get(text[-1:], 1.0)
    value = float(text.rstrip("KMBT").replace(",", "").replace("_", "")) * scale
    return value if value <= _LARGEST else None
