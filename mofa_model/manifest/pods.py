"""Pods as jobs write them: plain readers of objects that somebody else wrote, and the nodes that pods select.

What is not as it should be counts as nothing, but for numbers: those are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mofa_model.errors import InputError

MOST: Final = 10_000_000
"""No job has as many pods or GPUs."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pods:
    """Pods of one template."""

    count: int
    """How many. [1]"""
    spec: Mapping[str, Any]
    """The pod spec."""


def pod_of(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod spec of something that has a template."""
    return mapping(mapping(owner.get("template")).get("spec"))


def selector_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """Labels that the nodes of a pod must have: its node selector, and what its affinity requires without a choice.

    >>> rule = {"key": "pool", "operator": "In", "values": ["east"]}
    >>> terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    >>> affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    >>> selector_of({"nodeSelector": {"zone": "a"}, "affinity": affinity})
    {'pool': 'east', 'zone': 'a'}
    """
    node = mapping(mapping(pod.get("affinity")).get("nodeAffinity"))
    terms = mappings(mapping(node.get(_REQUIRED)).get("nodeSelectorTerms"))
    rules = mappings(terms[0].get("matchExpressions")) if len(terms) == 1 else []
    required = {
        text_of(rule.get("key")): str(values[0])
        for rule in rules
        if rule.get("operator") == "In"
        and isinstance(values := rule.get("values"), list)
        and len(values) == 1
    }
    return required | {str(key): str(label) for key, label in mapping(pod.get("nodeSelector")).items()}


def count_of(value: Any) -> int:
    """A number of replicas or GPUs; anything else is refused."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise InputError(f"a number of replicas or GPUs cannot be {value!r}; give a whole number")
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping; empty where there is none."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The mappings of a list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Text; empty where there is none."""
    return value if isinstance(value, str) else ""
