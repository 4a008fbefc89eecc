"""A strategy as one line of text, and back: what annotations and tables say, and what `--strategy` and `--current` take.

    tp=8,pp=8,cp=1,ep=1,dp=32,vpp=2,mbs=1,sp=true,recompute=selective,offload=none,optimizer=distributed
    tp8 pp8 dp32 vpp2 mbs1 sp recompute(selective) distributed 1f1b

The full form always writes these eleven keys, in this order; further ones only where they differ from the default:

    etp=2  shard=8  schedule=1f1b|interleaved|zero-bubble|dualpipe  cp-mode=ring|a2a  chunks=4  graphs=none|partial|full
    tp-overlap=true  dp-overlap=false  pp-overlap=false  ep-overlap=true

    recompute=none | selective | selective:core_attn+mlp | full | full:4 (layers of a stage)
    optimizer=replicated | distributed | zero2 | zero3, with -cpu where its states live in host memory
    offload=none | activations (all but inputs of layers) | layer_input | core_attn+attn_proj (inputs of modules)

The short form, for tables, leaves out what is off or follows: degrees of one, and the schedule where it is the one that
people mean, interleaved with vpp > 1 and 1f1b without. A degree is its key and number, a choice its word, a switch its name,
or `no-` and its name.

Reading takes both forms, mixed too, with commas or spaces between; keys come in any order, each at most once.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from mofa_model.errors import BadValue, DoesNotFit, UnknownName
from mofa_model.schedules import INTERLEAVED, ONE_F_ONE_B, SCHEDULES, Schedule
from mofa_model.strategy import (
    ACTIVATIONS,
    MODULES,
    OFFLOADED,
    ContextMode,
    Graphs,
    Placement,
    Recompute,
    Sharding,
    Strategy,
)
from mofa_model.units import Numeric

_LONGEST: Final = 1000
CPU: Final = "-cpu"
"""Ending of an optimizer's word where its states live in host memory."""
_PART: Final = re.compile(r"[^\s,()]+(?:\([^()]*\))?|[()]")
_SWITCHED_OFF: Final = "no-"
_PLAIN: Final = Strategy()
_Choice = TypeVar("_Choice", bound=enum.Enum | Schedule)

_DEGREES: Final = ("tp", "pp", "cp", "ep", "dp", "vpp", "mbs")
_FLAGS: Final = {
    "tp-overlap": "tensor_overlap",
    "dp-overlap": "data_overlap",
    "pp-overlap": "pipeline_overlap",
    "ep-overlap": "expert_overlap",
}
_CHOICES: Final[dict[str, tuple[str, Iterable[enum.Enum | Schedule]]]] = {
    "schedule": ("schedule", SCHEDULES),
    "cp-mode": ("context_mode", ContextMode),
    "graphs": ("graphs", Graphs),
}
_FURTHER: Final = {"etp": 1, "shard": 0, "chunks": 1}


def parse_strategy(text: object, gpus: Numeric | None = None, *, field: str = "strategy") -> Strategy:
    """A layout from its text; `gpus` [1] gives dp where the text does not, and is checked where it does.

    >>> parse_strategy("tp=8,pp=4", gpus=64).dp
    2
    >>> parse_strategy("tp8 pp4 vpp2 mbs1 sp zero2").schedule.value
    'interleaved'
    """
    values: dict[str, Any] = {}
    for key, word in pairs_of(text, field).items():
        values |= _READERS[key](f"{field}.{key}", word)
    if gpus is not None:
        values["dp"] = _data_parallel(values, gpus, field)
    return Strategy(**values)


def format_strategy(strategy: Strategy) -> str:
    """The text of one layout: the form of the annotation.

    >>> format_strategy(Strategy(tp=8, pp=4, dp=2, sequence_parallel=True))
    'tp=8,pp=4,cp=1,ep=1,dp=2,vpp=1,mbs=1,sp=true,recompute=none,offload=none,optimizer=distributed'
    """
    words = {key: str(int(getattr(strategy, key))) for key in _DEGREES}
    words["sp"] = _flag(given=strategy.sequence_parallel)
    words["recompute"] = _recompute_text(strategy)
    words["offload"] = "+".join(sorted(strategy.offload)) or "none"
    words["optimizer"] = strategy.sharding.value + (CPU if strategy.optimizer is Placement.HOST else "")
    for key in _FURTHER:
        if getattr(strategy, key) != getattr(_PLAIN, key):
            words[key] = str(int(getattr(strategy, key)))
    for key, (name, _) in _CHOICES.items():
        if getattr(strategy, name) != getattr(_PLAIN, name):
            words[key] = getattr(strategy, name).value
    for key, name in _FLAGS.items():
        if getattr(strategy, name) is not getattr(_PLAIN, name):
            words[key] = _flag(given=getattr(strategy, name))
    return ",".join(f"{key}={word}" for key, word in words.items())


def pair_of(part: str) -> tuple[str, str] | None:
    """Key and word of the full form that one part of either form says; None where it says neither.

    >>> pair_of("tp=8"), pair_of("tp8"), pair_of("zero3-cpu"), pair_of("recompute(mlp_act layernorm)")
    (('tp', '8'), ('tp', '8'), ('optimizer', 'zero3-cpu'), ('recompute', 'selective:mlp_act+layernorm'))
    """
    key, equals, word = part.lower().partition("=")
    if equals:
        return key.replace("_", "-"), word
    if key in _WORDS:
        return _WORDS[key]
    if numbered := re.fullmatch(r"([a-z]+)(\d+)", key):
        name, number = numbered.groups()
        return (name, number) if name in _DEGREES or name in _FURTHER else None
    if key.startswith("recompute:"):
        return "recompute", key.removeprefix("recompute:")
    if listed := re.fullmatch(r"(recompute|offload)\((.*)\)", key, re.DOTALL):
        name, modules = listed[1], "+".join(listed[2].split()).replace("selective", "core_attn")
        return name, modules if name == "offload" else f"selective:{modules}"
    return None


def pairs_of(text: object, field: str = "strategy") -> dict[str, str]:
    """Keys and words of the full form that a text of either says; an unknown, repeated or empty one is refused by name.

    >>> pairs_of("tp8, sp")
    {'tp': '8', 'sp': 'true'}
    """
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
        raise BadValue(field, text, "write it like tp=8,pp=4,dp=2,sp=true")
    found: dict[str, str] = {}
    scheduled = True
    for part in _PART.findall(re.sub(r"\s*=\s*", "=", text)):
        pair = pair_of(part)
        key, word = pair or (part.lower(), "")
        if key not in _READERS:
            raise UnknownName(field, key, [*_READERS, *_WORDS])
        if not word:
            raise BadValue(field, part, "write each part like tp=8, or as a table does: tp8, sp, zero2")
        if key in found:
            raise BadValue(f"{field}.{key}", word, "it is given twice; give it once")
        found[key] = word
        scheduled = scheduled and not (key == "vpp" and "=" not in part and word != "1")
    if not found:
        raise BadValue(field, text, "write it like tp=8,pp=4,dp=2,sp=true")
    return found if scheduled else {"schedule": INTERLEAVED.value} | found


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


def _number(field: str, word: str, least: int = 1) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 9) or int(word) < least:
        raise BadValue(field, word, f"give a whole number of {least} or more")
    return int(word)


def _choice(field: str, word: str, choices: Iterable[_Choice]) -> _Choice:
    for choice in choices:
        if word == choice.value:
            return choice
    raise BadValue(field, word, f"one of {', '.join(choice.value for choice in choices)}")


def _truth(field: str, word: str) -> bool:
    if word not in {"true", "false"}:
        raise BadValue(field, word, "true or false")
    return word == "true"


def _flag(*, given: bool) -> str:
    return "true" if given else "false"


def _read_recompute(field: str, word: str) -> dict[str, Any]:
    mode_word, colon, detail = word.partition(":")
    mode = _choice(field, mode_word, Recompute)
    if not colon:
        return {"recompute": mode}
    if mode is Recompute.SELECTIVE:
        modules = frozenset(detail.split("+"))
        unknown = modules - set(MODULES)
        if unknown:
            raise BadValue(field, "+".join(sorted(unknown)), f"modules: {', '.join(MODULES)}")
        return {"recompute": mode, "recompute_modules": modules}
    if mode is Recompute.FULL:
        return {"recompute": mode, "recompute_layers": _number(field, detail)}
    raise BadValue(field, word, "none takes nothing after it")


def _recompute_text(strategy: Strategy) -> str:
    mode = strategy.recompute.value
    if strategy.recompute is Recompute.SELECTIVE and strategy.recompute_modules != _PLAIN.recompute_modules:
        return f"{mode}:{'+'.join(sorted(strategy.recompute_modules))}"
    if strategy.recompute is Recompute.FULL and strategy.recompute_layers:
        return f"{mode}:{int(strategy.recompute_layers)}"
    return mode


def _read_offload(field: str, word: str) -> dict[str, Any]:
    names = frozenset() if word == "none" else frozenset(word.split("+"))
    if names - set(OFFLOADED):
        raise BadValue(field, word, f"none, or of {', '.join(OFFLOADED)} with + between them")
    return {"offload": names}


def _read_optimizer(field: str, word: str) -> dict[str, Any]:
    host = word.endswith(CPU)
    return {
        "sharding": _choice(field, word.removesuffix(CPU), Sharding),
        "optimizer": Placement.HOST if host else Placement.DEVICE,
    }


def _read_number(name: str, least: int, field: str, word: str) -> dict[str, Any]:
    return {name: _number(field, word, least)}


def _read_choice(name: str, choices: Iterable[enum.Enum | Schedule], field: str, word: str) -> dict[str, Any]:
    return {name: _choice(field, word, choices)}


def _read_flag(name: str, field: str, word: str) -> dict[str, Any]:
    return {name: _truth(field, word)}


_READERS: Final[dict[str, Callable[[str, str], dict[str, Any]]]] = {
    **{key: partial(_read_number, key, 1) for key in _DEGREES},
    "sp": partial(_read_flag, "sequence_parallel"),
    "recompute": _read_recompute,
    "offload": _read_offload,
    "optimizer": _read_optimizer,
    **{key: partial(_read_number, key, least) for key, least in _FURTHER.items()},
    **{key: partial(_read_choice, name, choices) for key, (name, choices) in _CHOICES.items()},
    **{key: partial(_read_flag, name) for key, name in _FLAGS.items()},
}
"""What reads each key's word, in the order of the text."""


_WORDS: Final[dict[str, tuple[str, str]]] = {
    **{level.value + place: ("optimizer", level.value + place) for level in Sharding for place in ("", CPU)},
    **{
        choice.value: (key, choice.value)
        for key, (_, choices) in _CHOICES.items()
        for choice in choices
        if choice is not Graphs.NONE
    },
    **{name: (name, "true") for name in ("sp", *_FLAGS)},
    **{_SWITCHED_OFF + name: (name, "false") for name in ("sp", *_FLAGS)},
    "offload": ("offload", ACTIVATIONS),
}
"""Words of the short form that stand alone, with key and word of the full one."""


def short_strategy(strategy: Strategy) -> str:
    """A strategy in as few words as a table has room for: what is off or follows is left out.

    >>> short_strategy(Strategy(tp=8, pp=4, dp=2, sequence_parallel=True))
    'tp8 pp4 dp2 mbs1 sp distributed'
    """
    pairs = dict(part.split("=") for part in format_strategy(strategy).split(","))
    pairs["schedule"] = strategy.schedule.value
    if strategy.schedule == (INTERLEAVED if strategy.vpp > 1 else ONE_F_ONE_B):
        del pairs["schedule"]
    return " ".join(word for key in _READERS if key in pairs for word in _short(key, pairs[key]))


def _short(key: str, value: str) -> Iterator[str]:
    """The word of the short form, where there is one."""
    if value == "none" or (key in _DEGREES and value == "1" and key != "mbs"):
        return
    if value.isdigit():
        yield key + value
    elif value in {"true", "false"}:
        if value == "true" or key != "sp":
            yield key if value == "true" else _SWITCHED_OFF + key
    elif key == "recompute":
        mode, _, modules = value.partition(":")
        selective = mode == Recompute.SELECTIVE.value
        yield f"recompute({modules.replace('+', ' ') or mode})" if selective else f"recompute:{value}"
    elif key == "offload":
        yield key if value == ACTIVATIONS else f"{key}({value.replace('+', ' ')})"
    else:
        yield value
