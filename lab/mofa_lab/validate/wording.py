"""How sources word what a stack does: rules in `wording.toml`, so that no case is special
in code.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from mofa_lab.validate.record import Record

_RELEASE: Final = re.compile(r"(?:container |ngc)(\d+\.\d+(?:\.\d+)?)")

STATED: Final = (
    "overlap",
    "async_tp",
    "torch_compile",
    "cp_comm",
    "cuda_graph",
    "cuda_graph_scope",
    "ep_a2a_overlap",
    "attention_backend",
    "attention_dropout",
    "hidden_dropout",
    "cross_entropy_fusion",
    "grouped_gemm",
    "deterministic",
    "gradient_accumulation_fusion",
)
"""Features of a strategy that rules look at."""

_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "stated": lambda fact, wanted: (fact is not None) == wanted,
    "in": lambda fact, wanted: fact in wanted,
    "beside": lambda fact, wanted: fact is not None and fact not in wanted,
    "has": lambda fact, wanted: isinstance(fact, str | list) and wanted in fact,
    "least": lambda fact, wanted: fact is not None and fact >= wanted,
    "most": lambda fact, wanted: fact is not None and fact <= wanted,
}


def release_of(record: Record) -> str:
    """The container release that a source names, else the year of the measurement."""
    release = _RELEASE.search(record.text("source", " "))
    return release.group(1) if release else str(record.get("year") or "")


def facts_of(record: Record) -> dict[str, Any]:
    """What the rules may ask about a case; a fact that is not stated is left out."""
    normalized, strategy, system = (
        record.inner(name) for name in ("normalized", "strategy", "system")
    )
    gpus = system.count("gpus", 1)
    facts = {
        **{name: strategy.get(name) for name in STATED},
        "software": normalized.get("software"),
        "precision": normalized.get("precision"),
        "publisher": normalized.get("publisher"),
        "sharding": normalized.inner("sharding").get("level"),
        "variant": record.get("variant"),
        "assumed": record.get("assumed"),
        "release": release_of(record),
        "gpus": gpus,
        "nodes": gpus / max(1, system.count("gpus_per_node", 8)),
        "tp": strategy.count("tp", 1),
    }
    return {name: value for name, value in facts.items() if value is not None}


def features_of(record: Record) -> dict[str, Any]:
    """What the rules say about a case; `defects` is the set of all that hold."""
    facts = facts_of(record)
    features: dict[str, Any] = {}
    defects: set[str] = set()
    for rule in _rules():
        if all(_holds(condition, facts.get(name)) for name, condition in rule["when"].items()):
            then = rule["then"]
            defects.update(then.get("defects", ()))
            features.update({name: value for name, value in then.items() if name != "defects"})
    return {**features, "defects": frozenset(defects)}


def _holds(condition: Any, fact: Any) -> bool:
    """True where a fact meets a condition of `wording.toml`."""
    if not isinstance(condition, Mapping):
        return bool(fact == condition)
    return all(_TESTS[name](fact, wanted) for name, wanted in condition.items())


@lru_cache(maxsize=1)
def _rules() -> tuple[Mapping[str, Any], ...]:
    text = resources.files("mofa_lab.validate").joinpath("wording.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["rule"])
