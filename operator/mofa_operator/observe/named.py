"""What a job names: its ConfigMap, its runtime, what its pods claim. Nobody watches these, they are read when they are needed."""

from __future__ import annotations

import contextlib

from mofa_model.errors import InputError
from mofa_model.kinds import Beside, Demand, JobKind, Kind, demand_of
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
    demand = _demand(key, body, named)
    maps = {
        name for name, _ in (*uses.config_maps, *demand.files.values())
    } - named.config_maps.keys()
    return [
        *(Key(CONFIG_MAP, key.namespace, name) for name in sorted(maps)),
        *(
            Key(one.kind, key.namespace if one.kind.namespaced else "", one.name)
            for one in demand.missing
        ),
    ]


def texts_of(key: Key, uses: Uses, body: Body, named: Named) -> dict[str, dict[str, str]]:
    """The texts that a job reads out of ConfigMaps, where they are there: those that it refers to, and files that it names."""
    asked = [*uses.config_maps]
    if named.config_maps.keys() - {name for name, _ in asked}:
        asked += _demand(key, body, named).files.values()
    found: dict[str, dict[str, str]] = {}
    for name, one in asked:
        if one in named.config_maps.get(name, {}):
            found.setdefault(name, {})[one] = named.config_maps[name][one]
    return found


def _demand(key: Key, body: Body, named: Named) -> Demand:
    """What a job asks for, as far as it can be read."""
    if isinstance(key.kind, JobKind):
        with contextlib.suppress(InputError):
            return demand_of(body, Beside(named.beside))
    return Demand(gpus=0)
