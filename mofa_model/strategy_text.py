"""A strategy as one line of text, and back: what annotations, `--strategy` and `--current` say.

    tp=8,pp=8,cp=1,ep=1,dp=32,vpp=2,mbs=1,sp=true,recompute=selective,offload=none,optimizer=distributed

These eleven keys are always written, in this order; further ones only where they differ from the default:

    etp=2  shard=8  schedule=1f1b|interleaved|zero-bubble|dualpipe  cp-mode=ring|a2a  chunks=4  graphs=none|partial|full
    tp-overlap=true  dp-overlap=false  pp-overlap=false  ep-overlap=true

    recompute=none | selective | selective:core_attn+mlp | full | full:4 (layers of a stage)
    optimizer=replicated | distributed | zero2 | zero3, with -cpu where its states live in host memory
    offload=none | activations (all but inputs of layers) | layer_input | core_attn+attn_proj (inputs of modules)

Reading takes the keys in any order, each at most once, and leaves out those that are missing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from mofa_model.errors import BadValue, UnknownName
from mofa_model.schedules import SCHEDULES, Schedule
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
_CPU: Final = "-cpu"
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
    """
    given = _pairs(text, field)
    values: dict[str, Any] = {}
    for key, word in given.items():
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
    words["optimizer"] = strategy.sharding.value + (_CPU if strategy.optimizer is Placement.HOST else "")
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


def _pairs(text: object, field: str) -> dict[str, str]:
    """Keys and words of the text, in lower case; an unknown, repeated or empty one is refused by name."""
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
        raise BadValue(field, text, "write it like tp=8,pp=4,dp=2,sp=true")
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, word = (piece.strip().lower() for piece in part.partition("="))
        key = key.replace("_", "-")
        if not equals or not word:
            raise BadValue(field, part.strip(), "each part is a key, an equals sign and a value, like tp=8")
        if key not in _READERS:
            raise UnknownName(field, key, _READERS)
        if key in found:
            raise BadValue(f"{field}.{key}", word, "it is given twice; give it once")
        found[key] = word
    return found


def _data_parallel(values: dict[str, Any], gpus: Numeric, field: str) -> int:
    """What is left of the devices for data parallelism. [1]"""
    devices, used = int(gpus), int(values.get("tp", 1) * values.get("pp", 1) * values.get("cp", 1))
    if devices % used:
        raise BadValue(field, f"tp x pp x cp = {used}", f"it must divide the {devices} devices")
    left = devices // used
    if values.get("dp", left) != left:
        right = f"{devices} devices over tp x pp x cp = {used} make {left}"
        raise BadValue(f"{field}.dp", values["dp"], right)
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
    host = word.endswith(_CPU)
    return {
        "sharding": _choice(field, word.removesuffix(_CPU), Sharding),
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


def short_strategy(strategy: Strategy) -> str:
    """A strategy in as few words as a table has room for: what is off or follows is left out.

    >>> short_strategy(Strategy(tp=8, pp=4, dp=2, sequence_parallel=True))
    'tp8 pp4 dp2 mbs1 sp distributed'
    """
    words = []
    for part in format_strategy(strategy).split(","):
        key, _, value = part.partition("=")
        if value.isdigit():
            words += [] if value == "1" and key != "mbs" else [key + value]
        elif value in {"true", "false"}:
            words += [key] if value == "true" else [] if key == "sp" else [f"no-{key}"]
        elif key == "recompute" and value != "none":
            mode, _, modules = value.partition(":")
            words.append(
                f"recompute({modules.replace('+', ' ') or mode})"
                if mode == "selective"
                else f"recompute:{value}"
            )
        elif key == "offload" and value != "none":
            words.append(key if value == ACTIVATIONS else f"{key}({value.replace('+', ' ')})")
        elif value != "none" and not (key == "schedule" and value == "interleaved"):
            words.append(value)
    return " ".join(words)
