"""A fact with the place where it stands, and numbers as settings say them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from mofa_model.identity.settings import Setting


class Fact(NamedTuple):
    """A value and where it stands."""

    value: Any
    source: str


Facts = Mapping[str, Fact]
"""Facts by their names."""
ORIGINS: Final = ["option", "variable", "file", "source"]
"""Origins of settings, in the order in which they count."""
TOKENIZER_WORDS: Final = (
    "tokenizer", "tokenizer_model", "tokenizer_name", "tokenizer_name_or_path",
    "tokenizer_path",
)  # fmt: skip
"""Keys under which trainers have the name of a tokenizer."""
DEGREE_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "tp": (
        "tensor_model_parallel_size", "tensor_parallel_size", "tensor_parallel_degree", "tp_size",
        "tp", "tp_degree", "tensor_model_parallel", "tensor_parallel", "ici_tensor_parallelism",
        "model_parallel_size",
    ),
    "pp": (
        "pipeline_model_parallel_size", "pipeline_parallel_size", "pipeline_parallel_degree",
        "pp_size", "pp", "pp_degree", "pipeline_parallel", "ici_pipeline_parallelism",
        "pipe_parallel_size",
    ),
    "cp": (
        "context_parallel_size", "context_parallel_degree", "cp_size", "cp", "context_parallel",
        "ici_context_parallelism",
    ),
    "ep": (
        "expert_model_parallel_size", "expert_parallel_degree", "expert_parallel_size", "ep_size",
        "ep", "ici_expert_parallelism",
    ),
}  # fmt: skip
"""Keys under which trainers have degrees of parallelism."""
PRECISION_SWITCHES: Final = (
    "bf16", "pure_bf16", "use_bf16", "enable_bf16", "fp16", "use_fp16",
)  # fmt: skip
"""Switches under which trainers have a precision."""
DTYPE_WORDS: Final = (
    "mixed_precision", "precision", "plugins", "mp", "mixed_precision_param", "param_dtype",
    "compute_dtype", "dtype", "torch_dtype", "model_dtype", "mixed_precision_dtype", "data_type",
    "torch_dtype_str", "trainer_precision", "weight_dtype", "mx", "bnb_4bit_compute_dtype",
)  # fmt: skip
"""Keys under which trainers have the type of their products."""
OFF: Final = frozenset({"false", "0", "none", "no", "null", "off", "", "auto"})
"""Values of a switch that is off."""


def precision_of(value: str) -> str:
    """The precision that a word for a type means; empty where it means none.

    >>> precision_of("amp_bf16"), precision_of("torch.float16"), precision_of("p=f32,c=bfloat16")
    ('bf16', 'fp16', 'bf16')
    """
    forms = {
        "fp8": "fp8|float8",
        "bf16": "bf16|bfloat16",
        "fp16": "fp16|float16|half|^16(-mixed)?$",
        "fp32": "fp32|float32|^32",
    }
    return next((name for name, form in forms.items() if re.search(form, value.lower())), "")


def number(text: str) -> int | None:
    """A whole number as settings say it; None where it is none.

    >>> number("8_192"), number("1e3"), number("auto"), number("4096.0"), number("16 * 2")
    (8192, 1000, None, 4096, None)
    """
    plain = text.strip().strip("\"'").replace("_", "").replace(",", "")
    if re.fullmatch(r"[+-]?\d{1,18}", plain):
        return int(plain)
    if re.fullmatch(r"[+-]?\d{1,18}(\.\d*)?([eE][+]?\d{1,2})?", plain):
        value = float(plain)
        return int(value) if value.is_integer() else None
    return None


def whole_number(
    settings: Sequence[Setting],
    keys: Sequence[str],
    disagree: list[str] | None = None,
    called: str = "",
) -> Fact | None:
    """The whole number that stands under one of these keys.

    Options count before variables, and those before files; then an earlier key before a later one.
    Where two options give one key different numbers, a sentence in `disagree` says so.
    """
    having = [
        (setting, value)
        for setting in settings
        if setting.key in keys and (value := number(setting.value) or 0) > 0
    ]
    if not having:
        return None
    best = min((setting.origin for setting, _ in having), key=ORIGINS.index)
    same = [(setting, value) for setting, value in having if setting.origin == best]
    same.sort(key=lambda pair: keys.index(pair[0].key))
    first, value = same[0]
    for other, other_value in same[1:]:
        if (
            disagree is not None
            and best == "option"
            and other.key == first.key
            and other_value != value
        ):
            disagree.append(
                f"{called} is {value} by {first.where} and {other_value} by {other.where}"
            )
    return Fact(value, first.where)


def number_at(settings: Sequence[Setting], path: str) -> Fact | None:
    """The first whole number at a path."""
    having = (
        (number(setting.value), setting.where) for setting in settings if setting.path == path
    )
    return next((Fact(value, where) for value, where in having if value and value > 0), None)
