"""What the operator's account may do by the roles that are bound to it, against what it does. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mofa_model.kinds import Kind
from mofa_model.kinds.shape import Body, at, items, text_of
from mofa_operator.fleet.site import Deployed, named
from mofa_operator.keys import (
    ADVISOR_POLICY,
    CLUSTER_PROFILE,
    CONFIG_MAP,
    FAILURE_LEDGER,
    NODE,
    OURS,
    TRAINING_JOB,
)

_READ: Final = ("get", "list", "watch")
_EVENT: Final = Kind("", "v1", "Event", "events")


def needed(kinds: Iterable[Kind]) -> Iterator[tuple[str, str, str]]:
    """What the operator does, as (verb, group, resource); `kinds` are the existing kinds that it looks at."""
    kinds = tuple(kinds)
    for kind in (NODE, CLUSTER_PROFILE, FAILURE_LEDGER, ADVISOR_POLICY, TRAINING_JOB, *kinds):
        yield from ((verb, kind.group, kind.plural) for verb in _READ)
    yield from (("patch", kind.group, kind.plural) for kind in (TRAINING_JOB, *kinds))
    yield from (("patch", kind.group, f"{kind.plural}/status") for kind in OURS)
    yield from ((verb, FAILURE_LEDGER.group, FAILURE_LEDGER.plural) for verb in ("create", "patch"))
    yield "get", CONFIG_MAP.group, CONFIG_MAP.plural
    yield "create", _EVENT.group, _EVENT.plural


def lacking(
    roles: Sequence[Body], bindings: Sequence[Body], one: Deployed, kinds: Iterable[Kind]
) -> list[str]:
    """What it does and may not; Roles in a namespace that it watches count as much as ClusterRoles."""
    held = {
        (text_of(role.get("kind")), text_of(at(role, "metadata", "namespace")), named(role)): role
        for role in roles
    }
    rules = [
        rule
        for binding in bindings
        if _binds(binding, one)
        for role in [held.get(_role_of(binding))]
        if role is not None
        for rule in items(role.get("rules"))
    ]
    return [
        f"{verb} {resource}{'.' if group else ''}{group}"
        for verb, group, resource in needed(kinds)
        if not any(_allows(rule, verb, group, resource) for rule in rules)
    ]


def _binds(binding: Body, one: Deployed) -> bool:
    return any(
        (who.get("kind"), who.get("name"), who.get("namespace"))
        == ("ServiceAccount", one.account, one.namespace)
        for who in items(binding.get("subjects"))
    )


def _role_of(binding: Body) -> tuple[str, str, str]:
    kind = text_of(at(binding, "roleRef", "kind"))
    place = text_of(at(binding, "metadata", "namespace")) if kind == "Role" else ""
    return kind, place, text_of(at(binding, "roleRef", "name"))


def _allows(rule: Body, verb: str, group: str, resource: str) -> bool:
    wanted = (("verbs", verb), ("apiGroups", group), ("resources", resource))
    return not rule.get("resourceNames") and all(
        isinstance(given := rule.get(name), list) and ("*" in given or value in given)
        for name, value in wanted
    )
