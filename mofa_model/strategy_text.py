"""A strategy as one line of text, and back.

Annotations and tables show it; `--strategy` and `--current` take it. Full and short form:

    tp=8,pp=8,cp=1,ep=1,dp=32,vpp=2,mbs=1,sp=true,recompute=selective,offload=none,
    optimizer=distributed
    tp8 pp8 dp32 vpp2 mbs1 sp recompute(selective) distributed 1f1b

The full form always writes these eleven keys, in this order; further ones only where they differ
from the default:

    etp=2  shard=8  schedule=1f1b|interleaved|zero-bubble|zbv|v-half|dualpipe|dualpipev  chunks=4
    cp-mode=ring|a2a|allgather|usp
    graphs=none|partial|full  tp-overlap=true  dp-overlap=false  pp-overlap=false  ep-overlap=true

    recompute=none | selective | selective:core_attn+mlp | full | full:4 (layers of a stage)
    optimizer=replicated | distributed | zero2 | zero3, with -cpu where states live in host memory
    offload=none | activations (all but inputs of layers) | layer_input | core_attn+attn_proj

The short form, for tables, leaves out what is off or follows: degrees of one, and the schedule
where it is the one that people mean, interleaved with vpp > 1 and 1f1b without. A degree is its key
and number, a choice its word, a switch its name, or `no-` and its name.

Reading takes both forms, mixed too, with commas or spaces between; keys come in any order, each at
most once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from mofa_model.axes.axis import SWITCHED_OFF, Number, Word
from mofa_model.axes.choices import ACTIVATIONS, Recompute
from mofa_model.checks import field_names
from mofa_model.errors import BadValue, DoesNotFit, UnknownName
from mofa_model.schedules import INTERLEAVED, ONE_F_ONE_B
from mofa_model.strategy import AXES, Sharding, Strategy
from mofa_model.units import Numeric

CALLED: Final = {
    f"{word}-{parallel}": axis
    for axis, word in (
        ("tp", "tensor"),
        ("pp", "pipeline"),
        ("cp", "context"),
        ("ep", "expert"),
        ("dp", "data"),
    )
    for parallel in ("parallel", "parallelism", "parallel-size", "model-parallel-size")
} | {
    **dict.fromkeys(("micro-batch", "micro-batch-size"), "mbs"),
    **dict.fromkeys(("zero", "fsdp", "zero-stage"), "optimizer=zero3"),
    **dict.fromkeys(("checkpointing", "activation-checkpointing", "recomputation"), "recompute"),
}
"""What parts of a strategy are called elsewhere, with what to suggest."""
_LONGEST: Final = 1000
_PART: Final = r"[^\s,()]+(?:\([^()]*\))?|[()]"
_ALWAYS: Final = (
    "tp",
    "pp",
    "cp",
    "ep",
    "dp",
    "vpp",
    "mbs",
    "sp",
    "recompute",
    "offload",
    "optimizer",
)
"""Keys that the full form writes even where they say the default."""


def _place(word: Word) -> tuple[int, int, int]:
    """Where a key stands: first those that are always written, then numbers, choices, switches."""
    always = _ALWAYS.index(word.key) if word.key in _ALWAYS else len(_ALWAYS)
    return always, word.place, field_names(Strategy).index(word.field)


_WORDS: Final[dict[str, Word]] = {
    word.key: word
    for word in sorted(
        [Number(key="dp", field="dp"), *(word for axis in AXES for word in axis.words)], key=_place
    )
}
"""Every key, in the order of the text."""
_DEFAULT: Final = {key: word.write(Strategy()) for key, word in _WORDS.items()}
"""What the default says under each key."""
_ALONE: Final = {
    short: (key, full) for key, word in _WORDS.items() for short, full in word.alone().items()
}
"""Words of the short form that stand alone, with key and word of the full one."""


def parse_strategy(
    text: object,
    gpus: Numeric | None = None,
    *,
    field: str = "strategy",
    alone: Sharding = Sharding.OPTIMIZER,
) -> Strategy:
    """A layout from its text; `gpus` [1] gives dp where the text does not, else checks it. `alone` is
    the level of one data-parallel rank where the text has none.

    >>> parse_strategy("tp=8,pp=4", gpus=64).dp
    2
    >>> parse_strategy("tp8 pp4 vpp2 mbs1 sp zero2").schedule.value
    'interleaved'
    """
    values: dict[str, Any] = {}
    for key, word in pairs_of(text, field).items():
        values |= _WORDS[key].read(f"{field}.{key}", word)
    if values.get("schedule", ONE_F_ONE_B).folded:
        values.setdefault("vpp", 2)
    if gpus is not None:
        values["dp"] = _data_parallel(values, gpus, field)
        if values["dp"] * values.get("cp", 1) == 1:
            values.setdefault("sharding", alone)
    return Strategy(**values)


def format_strategy(strategy: Strategy) -> str:
    """The text of one layout: the form of the annotation.

    >>> format_strategy(Strategy(tp=8, pp=4, dp=2, sequence_parallel=True))
    'tp=8,pp=4,cp=1,ep=1,dp=2,vpp=1,mbs=1,sp=true,recompute=none,offload=none,optimizer=distributed'
    """
    texts = {key: word.write(strategy) for key, word in _WORDS.items()}
    return ",".join(
        f"{key}={text}" for key, text in texts.items() if key in _ALWAYS or text != _DEFAULT[key]
    )


def differences(strategy: Strategy, other: Strategy) -> Iterator[str]:
    """Keys whose words differ in another layout; dp follows from the others.

    >>> list(differences(Strategy(tp=4), Strategy(tp=2, sequence_parallel=True)))
    ['tp 4→2', 'sp off→on']
    """
    switched = {"true": "on", "false": "off"}
    for key, word in _WORDS.items():
        left, right = (switched.get(text, text) for text in map(word.write, (strategy, other)))
        if left != right and key != "dp":
            yield f"{key} {left}→{right}"


def pair_of(part: str) -> tuple[str, str] | None:
    """Key and word of the full form that one part of either form says; None where it says neither.

    >>> pair_of("tp=8"), pair_of("tp8"), pair_of("zero3-cpu")
    (('tp', '8'), ('tp', '8'), ('optimizer', 'zero3-cpu'))
    >>> pair_of("recompute(mlp_act layernorm)")
    ('recompute', 'selective:mlp_act+layernorm')
    """
    key, equals, word = part.lower().partition("=")
    if equals:
        return key.replace("_", "-"), word
    if key in _ALONE:
        return _ALONE[key]
    if numbered := re.fullmatch(r"([a-z]+)(\d+)", key):
        name, number = numbered.groups()
        return (name, number) if isinstance(_WORDS.get(name), Number) else None
    if key.startswith("recompute:"):
        return "recompute", key.removeprefix("recompute:")
    if listed := re.fullmatch(r"(recompute|offload)\((.*)\)", key, re.DOTALL):
        name, modules = listed[1], "+".join(listed[2].split()).replace("selective", "core_attn")
        return name, modules if name == "offload" else f"selective:{modules}"
    return None


def pairs_of(text: object, field: str = "strategy") -> dict[str, str]:
    """Keys and words of a text, as the full form has them; an unknown or repeated key is refused.

    >>> pairs_of("tp8, sp")
    {'tp': '8', 'sp': 'true'}
    """
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
        raise BadValue(field, text, "write it like tp=8,pp=4,dp=2,sp=true")
    pairs: dict[str, str] = {}
    scheduled = True
    for part in re.findall(_PART, re.sub(r"\s*=\s*", "=", text)):
        pair = pair_of(part)
        key, word = pair or (part.lower(), "")
        if key not in _WORDS:
            raise UnknownName(field, key, [*_WORDS, *_ALONE], aliases=CALLED)
        if not word:
            raise BadValue(
                field, part, "write each part like tp=8, or as a table does: tp8, sp, zero2"
            )
        if key in pairs:
            raise BadValue(f"{field}.{key}", word, "it is given twice; give it once")
        pairs[key] = word
        scheduled = scheduled and not (key == "vpp" and "=" not in part and word != "1")
    if not pairs:
        raise BadValue(field, text, "write it like tp=8,pp=4,dp=2,sp=true")
    return pairs if scheduled else {"schedule": INTERLEAVED.value} | pairs


def _data_parallel(values: dict[str, Any], gpus: Numeric, field: str) -> int:
    """What is left of the devices for data parallelism. [1]"""
    devices, used = int(gpus), int(values.get("tp", 1) * values.get("pp", 1) * values.get("cp", 1))
    if devices % used:
        raise DoesNotFit(field, f"tp x pp x cp = {used}", f"it must divide the {devices} devices")
    left = devices // used
    if values.get("dp", left) != left:
        right = f"{devices} devices over tp x pp x cp = {used} make {left}"
        raise DoesNotFit(f"{field}.dp", f"dp = {values['dp']}", right)
    return left


def short_strategy(strategy: Strategy) -> str:
    """A strategy in as few words as a table has room for: what is off or follows is left out.

    >>> short_strategy(Strategy(tp=8, pp=4, dp=2, sequence_parallel=True))
    'tp8 pp4 dp2 mbs1 sp distributed'
    """
    pairs = dict(part.split("=") for part in format_strategy(strategy).split(","))
    pairs["schedule"] = strategy.schedule.value
    if strategy.schedule == (INTERLEAVED if strategy.vpp > 1 else ONE_F_ONE_B):
        del pairs["schedule"]
    return " ".join(word for key in _WORDS if key in pairs for word in _short(key, pairs[key]))


def _short(key: str, value: str) -> Iterator[str]:
    """The word of the short form, where there is one."""
    if value == "none" or (key in _ALWAYS and value == "1" and key != "mbs"):
        return
    if value.isdigit():
        yield key + value
    elif value in {"true", "false"}:
        if value == "true" or key != "sp":
            yield key if value == "true" else SWITCHED_OFF + key
    elif key == "recompute":
        mode, _, modules = value.partition(":")
        selective = mode == Recompute.SELECTIVE.value
        yield (
            f"recompute({modules.replace('+', ' ') or mode})" if selective else f"recompute:{value}"
        )
    elif key == "offload":
        yield key if value == ACTIVATIONS else f"{key}({value.replace('+', ' ')})"
    else:
        yield value
