"""What a job names: its ConfigMap, its runtime, what its pods claim. Nobody watches these, they are read when they are needed."""

from __future__ import annotations

from mofa_model.errors import InputError
from mofa_model.kinds import Beside, JobKind, Kind, demand_of
from mofa_model.kinds.shape import Body
from mofa_operator.keys import CONFIG_MAP, Key
from mofa_operator.observe.relations import Uses
from mofa_operator.snapshot import Named


def names_others(kind: Kind, uses: Uses, raw: bytes) -> bool:
    """Whether a job that asks may name others, by the fields in which its kind does so; `raw` is its body."""
    if not uses.asks or uses.config_maps:
        return uses.asks
    return isinstance(kind, JobKind) and any(f'"{name}"'.encode() in raw for name in kind.names)


def wanted(key: Key, uses: Uses, body: Body, named: Named) -> list[Key]:
    """What a job names, but for what was read already: what that names in turn is told once it was."""
    maps = {name for name, _ in uses.config_maps} - named.config_maps.keys()
    found = [Key(CONFIG_MAP, key.namespace, name) for name in sorted(maps)]
    if isinstance(key.kind, JobKind):
        try:
            missing = demand_of(body, Beside(named.beside)).missing
        except InputError:
            return found
        found += [Key(one.kind, key.namespace if one.kind.namespaced else "", one.name) for one in missing]
    return found
