"""Where layers, embedding and head really go on the pipeline stages.

Stages that hold the same are one *kind*; a kind has a count and the position of its first member. So a layout of 64
stages is three or four kinds, and everything per stage is an array of kinds [K, ...] instead of [stages, ...].

Rules, by what trainers do:
    even   layers / stages each, the remainder to the first stages; embedding on the first stage, head on the last (Megatron)
    slots  as `even`, but where layers do not divide, embedding and head count as one layer each (Megatron's
           account-for-embedding options; BLOOM, Llama 3.1)
    cost   blocks are dealt by parameter cost: a stage closes when the running cost reaches its share (nanotron)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.errors import BadValue
from mofa_model.spec import Transformer
from mofa_model.spec.checks import field_names
from mofa_model.strategy import Strategy
from mofa_model.units import Numeric

RULES = ("even", "slots", "cost")

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Stages:
    """The kinds of stages of one or many layouts; each field has shape [K, ...]."""

    count: Array
    """Stages of this kind; 0 pads rows with fewer kinds."""
    position: Array
    """Index of the kind's first stage, where most micro-batches are in flight."""
    dense_layers: Array
    """Layers with a plain FFN on a stage."""
    expert_layers: Array
    """Layers with experts on a stage."""
    embedding: Array
    """1 where the stage holds the embedding."""
    head: Array
    """1 where the stage holds the head, the loss and the prediction modules."""

    @property
    def layers(self) -> Array:
        """Transformer layers on a stage."""
        return self.dense_layers + self.expert_layers


def stages_of(model: Transformer, strategy: Strategy, rule: str, axes: int = 0) -> Stages:
    """The kinds of stages of every layout of a family; `axes` is 1 where anything else of the question is an array."""
    if rule not in RULES:
        raise BadValue("placement", rule, f"one of {', '.join(RULES)}")
    dense = 0 if model.experts is None else model.experts.dense_layers
    all_dense = model.experts is None
    layer, head = _block_costs(model)
    columns = np.broadcast_arrays(*np.atleast_1d(model.layers, dense, strategy.pp, strategy.vpp, layer, head))
    shape = np.broadcast_shapes(
        *(np.shape(x) for x in (model.layers, dense, strategy.pp, strategy.vpp, layer, head))
    )
    flat = [c.reshape(-1) for c in columns]
    first, inverse = distinct(flat)
    keys = np.stack([column[first] for column in flat], axis=1)
    tables = [_kinds(rule, all_dense, *key) for key in keys.tolist()]
    width = max(len(table) for table in tables)
    padded = np.zeros((6, width, len(tables)))
    for index, table in enumerate(tables):
        padded[:, : len(table), index] = np.array(table, dtype=float).T
    shape = shape if len(shape) >= axes else (1,) * axes
    # take() keeps the rows side by side; plain indexing leaves kinds innermost, at twice the time of every equation.
    columns_of_kinds = np.take(padded, inverse, axis=2).reshape((6, width, *shape))
    return Stages(*columns_of_kinds)


def distinct(columns: Sequence[Array]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A row of each distinct combination of columns, and the position of every row among these.

    >>> [x.tolist() for x in distinct([np.array([8.0, 1.0, 8.0]), np.array([2.0, 2.0, 2.0])])]
    [[1, 2], [1, 0, 1]]
    """
    key = np.zeros(columns[0].shape, dtype=np.int64)
    for column in columns:
        # One number in all rows is the rule. Small whole numbers need no sorting: they are their own place.
        if np.all(column == column[0]):
            continue
        small = column.max() < 1024 and np.all(column == np.floor(column)) and column.min() >= 0
        place = column.astype(np.int64) if small else np.unique(column, return_inverse=True)[1]
        key = key * (int(place.max()) + 1) + place
        if key.max() > 2**20:
            key = np.unique(key, return_inverse=True)[1]
    there = np.zeros(int(key.max()) + 1, dtype=bool)
    there[key] = True
    rank = np.cumsum(there) - 1
    first = np.zeros(int(rank[-1]) + 1, dtype=np.int64)
    first[rank[key]] = np.arange(len(key))
    return first, rank[key]


def axes_of(*described: Any) -> int:
    """1 where a description holds an array, 0 where all its numbers are scalars."""
    for item in described:
        kind = type(item)
        if kind in _PLAIN:
            continue
        if isinstance(item, np.ndarray) and item.ndim:
            return 1
        if is_dataclass(item) and axes_of(*(getattr(item, name) for name in field_names(item.__class__))):
            return 1
    return 0


_PLAIN = frozenset({float, int, bool, str, type(None), frozenset})
"""Types that are no arrays and hold none: most fields by far."""


def _block_costs(model: Transformer) -> tuple[Numeric, Numeric]:
    """Relative parameter cost of a block and of the head, as the `cost` rule deals them. [1]"""
    # The rule counts h x h projections and three h x f matrices whatever the attention kind: that is what it does.
    layer = 4 * model.hidden * model.hidden + 3 * model.hidden * model.ffn
    return layer, model.vocabulary * model.hidden


@lru_cache(maxsize=65536)
def _kinds(
    rule: str, all_dense: bool, layers: float, dense: float, pp: float, vpp: float, layer: float, head: float
) -> tuple[tuple[float, ...], ...]:
    """Distinct stages as (count, position, dense, expert, embedding, head), in order of position."""
    kinds: dict[tuple[float, ...], list[float]] = {}
    for position, kind in enumerate(_every(rule, all_dense, layers, dense, pp, vpp, layer, head)):
        kinds.setdefault(kind, [0, position])[0] += 1
    return tuple((n, position, *kind) for kind, (n, position) in kinds.items())


def kind_of_stages(model: Transformer, strategy: Strategy, rule: str) -> list[int]:
    """The kind of every stage of one layout, as a position in `stages_of`.

    >>> from mofa_model.presets import model
    >>> kind_of_stages(model("llama3-8b"), Strategy(pp=4), "even")
    [0, 1, 1, 2]
    """
    dense = 0 if model.experts is None else model.experts.dense_layers
    numbers = (model.layers, dense, strategy.pp, strategy.vpp, *_block_costs(model))
    every = _every(rule, model.experts is None, *(float(number) for number in numbers))
    first = {kind: at for at, kind in enumerate(dict.fromkeys(every))}
    return [first[kind] for kind in every]


def _every(
    rule: str, all_dense: bool, layers: float, dense: float, pp: float, vpp: float, layer: float, head: float
) -> list[tuple[float, ...]]:
    """Every stage as (dense, expert, embedding, head), in order."""
    stages, total = int(pp), int(layers)
    if rule == "cost":
        dealt = _dealt_by_cost(total, stages, layer, head)
    else:
        dealt = [
            (n, int(i == 0), int(i == stages - 1))
            for i, n in enumerate(_dealt(rule, total, stages, int(vpp)))
        ]
    left = total if all_dense else int(dense)
    every: list[tuple[float, ...]] = []
    for n, embedding, has_head in dealt:
        plain = min(left, n)
        left -= plain
        every.append((plain, n - plain, embedding, has_head))
    return every


def _dealt(rule: str, layers: int, stages: int, virtual: int) -> list[int]:
    """Layers of each stage under `even` and `slots`."""
    chunks = stages * virtual
    if stages == 1 or layers % chunks == 0:
        return [layers // stages] * stages
    # With fewer layers than stages no stage can give one up for the embedding or the head.
    extra = 2 if rule == "slots" and layers + 2 >= stages else 0
    base, more = divmod(layers + extra, stages)
    dealt = [base + (i < more) for i in range(stages)]
    if extra:
        dealt[0] -= 1
        dealt[-1] -= 1
    return dealt


def _dealt_by_cost(layers: int, stages: int, layer: float, head: float) -> list[tuple[int, int, int]]:
    """(layers, embedding, head) of each stage when blocks are dealt by cost, in order of the network."""
    costs = [("embedding", 0.0), *[("layer", layer)] * layers, ("norm", 0.0), ("head", head)]
    total = layers * layer + head
    dealt = [{"layer": 0, "embedding": 0, "head": 0, "norm": 0} for _ in range(stages)]
    stage, running = 0, 0.0
    for block, cost in costs:
        dealt[stage][block] += 1
        running += cost
        if running >= total * ((stage + 1) / stages) and stage < stages - 1:
            stage += 1
    return [(held["layer"], held["embedding"], held["head"]) for held in dealt]
