"""Which layers really lie on which pipeline stage, with embedding and head.

Stages that hold the same are one *kind*; a kind has a count and the position of its first member.
So a layout of 64 stages is three or four kinds, and everything per stage is an array of kinds [K,
...] instead of [stages, ...].

Rules, by what trainers do:
    even   layers / stages each, the remainder to the first stages; embedding on the first stage,
           head on the last (Megatron)
    slots  as `even`, but where layers do not divide, embedding and head count as one layer each
           (Megatron's account-for-embedding options; BLOOM, Llama 3.1)
    cost   blocks are dealt by parameter cost: a stage closes when the running cost reaches its
           share (nanotron)
    a layout in Megatron's words, as Et*3|(tt|)*6L, where a run states one
Where layers begin with different blocks, as attention and a state space, `slots` deals virtual
stages by that cost too: such trainers have an argument for which layers lie where.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mofa_model.blocks import Layer
from mofa_model.checks import field_names
from mofa_model.errors import BadValue
from mofa_model.records import dataclass, varied
from mofa_model.spec import Transformer
from mofa_model.strategy import Strategy
from mofa_model.units import Numeric

RULES = ("even", "slots", "cost")
UNLIKE: Final = "unlike"
"""What `slots` is where layers do not cost the same."""

Array = NDArray[np.floating[Any]]
_Terms = TypeVar("_Terms")


@dataclass(frozen=True)
class Stages:
    """The kinds of stages of one or many layouts; each field has shape [K, ...]."""

    count: Array
    """Stages of this kind; 0 pads rows with fewer kinds."""
    position: Array
    """Index of the kind's first stage, where most micro-batches are in flight."""
    embedding: Array
    """1 where the stage holds the embedding."""
    head: Array
    """1 where the stage holds the head, the loss and the prediction modules."""
    held: Array
    """Layers of each kind on a stage, [kinds of layers, K, ...]."""

    @property
    def layers(self) -> Array:
        """All layers on a stage."""
        whole: Array = self.held[0] if len(self.held) == 1 else np.sum(self.held, axis=0)
        return whole

    def of(self, rows: NDArray[np.int64]) -> Stages:
        """The stages of some of the layouts."""
        # take() keeps the rows side by side. Plain indexing leaves kinds innermost, and every
        # equation then takes twice as long.
        return Stages(*(getattr(self, name).take(rows, axis=-1) for name in field_names(Stages)))


def stages_of(model: Transformer, strategy: Strategy, rule: str, dimensions: int = 0) -> Stages:
    """The kinds of stages of a family's layouts; `dimensions` is 1 where others are arrays."""
    rule = _rule(model, rule)
    patterns = _patterns(model)
    inputs = (strategy.pp, strategy.vpp, *_repeats_and_costs(model))
    shape = np.broadcast_shapes(*map(np.shape, inputs))
    # What all layouts share has no column: numpy is slow at many of them.
    columns = {
        place: np.broadcast_to(number, shape).reshape(-1)
        for place, number in enumerate(inputs)
        if np.ndim(number)
    }
    inverse = groups([*columns.values()]) if columns else np.zeros(1, dtype=np.int64)
    first = row_of_each(inverse)
    keys = zip(
        *(
            columns[place][first].tolist() if place in columns else [float(number)] * len(first)
            for place, number in enumerate(inputs)
        ),
        strict=True,
    )
    tables = [_kinds(rule, strategy.schedule.folded, patterns, *key) for key in keys]
    width = max(len(table) for table in tables)
    padded = np.zeros((4 + len(model.kinds), width, len(tables)))
    for index, table in enumerate(tables):
        padded[:, : len(table), index] = np.array(table, dtype=float).T
    shape = shape if len(shape) >= dimensions else (1,) * dimensions
    columns_of_kinds = np.take(padded, inverse, axis=2).reshape((len(padded), width, *shape))
    return Stages(
        count=columns_of_kinds[0],
        position=columns_of_kinds[1],
        embedding=columns_of_kinds[2],
        head=columns_of_kinds[3],
        held=columns_of_kinds[4:],
    )


def groups(keys: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """The group of every row: rows with equal values in all columns are of one, numbered from 0.

    >>> groups([np.array([8.0, 1.0, 8.0]), np.array([2.0, 2.0, 2.0])]).tolist()
    [1, 0, 1]
    """
    key, table_size = np.zeros(keys[0].shape, dtype=np.int64), 1
    for column in keys:
        low, high = column.min(), column.max()
        if low == high:  # as in most columns
            continue
        digits = column.astype(np.int64)
        # Small whole numbers are their own place.
        if low < 0 or high >= 1024 or not np.array_equal(digits, column):
            digits = np.unique(column, return_inverse=True)[1]
            high = digits.max()
        key = key * (int(high) + 1) + digits
        table_size *= int(high) + 1
        if table_size > 2**20:  # the table below has a place for each
            key = np.unique(key, return_inverse=True)[1]
            table_size = int(key.max()) + 1
    occupied = np.zeros(int(key.max()) + 1, dtype=bool)
    occupied[key] = True
    rank: NDArray[np.int64] = np.cumsum(occupied) - 1
    return rank[key]


def row_of_each(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """A row of each of the `groups`.

    >>> row_of_each(np.array([1, 0, 1])).tolist()
    [1, 2]
    """
    rows = np.zeros(int(group.max()) + 1, dtype=np.int64)
    rows[group] = np.arange(len(group))
    return rows


def spread(terms: _Terms, position: NDArray[np.int64] | None) -> _Terms:
    """Values of each of the `groups` for every row, by its `position` in them; a number stays one.
    Without a position each row is a group.

    >>> spread((np.array([5.0, 7.0]), 3.0), np.array([1, 0, 1]))
    (array([7., 5., 7.]), 3.0)
    """
    record: Any = terms
    if position is None or isinstance(record, float | int | np.generic):
        return terms
    if isinstance(record, np.ndarray):
        values: Any = record.take(position, axis=0) if record.ndim else record
    elif isinstance(record, tuple):
        values = tuple(spread(part, position) for part in record)
    elif isinstance(record, Mapping):
        values = {name: spread(part, position) for name, part in record.items()}
    else:
        columns = {
            name: spread(part, position)
            for name, part in vars(record).items()
            if type(part) is not float
        }
        values = varied(record, **columns)
    return cast("_Terms", values)


def picked(value: Any, places: NDArray[Any]) -> Any:
    """The entries of an array at some places. A single number is the same at all places, and
    stays one.
    """
    return value[places] if np.ndim(value) else value


def joined(parts: Sequence[_Terms], sizes: Sequence[int]) -> _Terms:
    """Values of several families of such sizes, one after the other; what all share stays one.

    >>> joined([(np.array([5.0, 7.0]), 3.0), (2.0, 3.0)], [2, 1])
    (array([5., 7., 2.]), 3.0)
    """
    families: Any = parts
    first = families[0]
    if len(families) == 1 or (
        not isinstance(first, np.ndarray) and all(part is first for part in families)
    ):
        values: Any = first
    elif isinstance(first, float | int | np.generic | np.ndarray):
        shapes = [np.shape(part) for part in families]
        if not any(shapes):
            if all(part == first for part in families):
                return cast("_Terms", first)
            values = np.repeat(families, sizes)
        else:
            wide = max((shape[:-1] for shape in shapes), key=len)
            # Most parts have their shape already, and numpy is slow at giving it to them again.
            values = np.concatenate(
                [
                    part if shape == (*wide, size) else np.broadcast_to(part, (*wide, size))
                    for part, shape, size in zip(families, shapes, sizes, strict=True)
                ],
                axis=-1,
            )
    elif isinstance(first, tuple):
        values = tuple(joined(group, sizes) for group in zip(*families, strict=True))
    elif isinstance(first, Mapping):
        values = {name: joined([part[name] for part in families], sizes) for name in first}
    else:
        names = field_names(first.__class__)
        terms = {name: joined([getattr(part, name) for part in families], sizes) for name in names}
        values = first.__class__(**terms)
    return cast("_Terms", values)


_Patterns = tuple[tuple[int, ...], ...]
"""Kinds of the layers of every run."""


def _patterns(model: Transformer) -> _Patterns:
    """Kinds of the layers of every run."""
    kind_number = {id(kind): index for index, kind in enumerate(model.kinds)}
    return tuple(tuple(kind_number[id(layer)] for layer in run.layers) for run in model.runs)


def _repeats_and_costs(model: Transformer) -> list[Numeric]:
    """How often every run comes, cost of the head, and cost of every kind of layer. [1]"""
    h = model.hidden
    costs = [sum(block.placement_cost(h) for block in kind.blocks) for kind in model.kinds]
    return [*(run.repeats for run in model.runs), model.embedding.vocabulary * h, *costs]


@lru_cache(maxsize=65536)
def _kinds(
    rule: str, folded: bool, patterns: _Patterns, pp: float, vpp: float, *numbers: float
) -> tuple[tuple[float, ...], ...]:
    """Distinct stages as (count, position, embedding, head, layers of each kind), in order."""
    kinds: dict[tuple[float, ...], list[float]] = {}
    for position, kind in enumerate(_stages(rule, folded, patterns, pp, vpp, *numbers)):
        kinds.setdefault(kind, [0, position])[0] += 1
    return tuple((n, position, *kind) for kind, (n, position) in kinds.items())


def kind_of_stages(model: Transformer, strategy: Strategy, rule: str) -> list[int]:
    """The kind of every stage of one layout, as a position in `stages_of`.

    >>> from mofa_model.presets import model
    >>> kind_of_stages(model("llama3-8b"), Strategy(pp=4), "even")
    [0, 1, 1, 2]
    """
    numbers = map(float, (strategy.pp, strategy.vpp, *_repeats_and_costs(model)))
    stages = _stages(_rule(model, rule), strategy.schedule.folded, _patterns(model), *numbers)
    kind_numbers = {kind: number for number, kind in enumerate(dict.fromkeys(stages))}
    return [kind_numbers[kind] for kind in stages]


def _stages(
    rule: str, folded: bool, patterns: _Patterns, pp: float, vpp: float, *numbers: float
) -> list[tuple[float, ...]]:
    """Every stage as (embedding, head, layers of each kind), in order.

    In a V both virtual stages of a device count together.
    """
    if folded:
        line = _stages(rule, False, patterns, 2.0 * pp, 1.0, *numbers)
        return [
            tuple(a + b for a, b in zip(down, up, strict=True))
            for down, up in zip(line[: int(pp)], reversed(line), strict=False)
        ]
    repeats, (head, *costs) = numbers[: len(patterns)], numbers[len(patterns) :]
    order = _layer_kinds(patterns, repeats)
    # Layers of each kind before every layer of the network.
    layers_before = [
        list(accumulate((layer == kind for layer in order), initial=0))
        for kind in range(len(costs))
    ]

    def layers_on(stage: Iterable[tuple[int, int]]) -> list[int]:
        return [sum(count[last] - count[first] for first, last in stage) for count in layers_before]

    stages = int(pp)
    if rule == "cost":
        dealt = _stages_by_cost([costs[kind] for kind in order], stages, head)
        ranges = _ranges([layers for layers, _, _ in dealt])
        return [
            (embedding, has_head, *layers_on((layer_range,)))
            for layer_range, (_, embedding, has_head) in zip(ranges, dealt, strict=True)
        ]
    chunks = _chunks(rule, [costs[kind] for kind in order], head, stages, int(vpp))
    return [
        (int(i == 0), int(i == stages - 1), *layers_on(chunks[i::stages])) for i in range(stages)
    ]


def _layer_kinds(patterns: _Patterns, repeats: Sequence[float]) -> list[int]:
    """Kinds of all layers in order of the network."""
    return [kind for run, n in zip(patterns, repeats, strict=True) for kind in run * int(n)]


def _chunks(
    rule: str, layers: list[float], head: float, stages: int, virtual: int
) -> list[tuple[int, int]]:
    """First and last layer of what a stage holds as one piece, by the costs of all layers.

    It is one piece for each virtual stage where layers are unlike or a layout is given.
    """
    if rule == UNLIKE:
        return _ranges([n for n, _, _ in _stages_by_cost(layers, stages * virtual, head)])
    if rule in RULES:
        return _ranges(_layers_by_stage(rule, len(layers), stages, virtual))
    sizes = [stage.count("t") for stage in layout_stages(rule)]
    if len(sizes) != stages * virtual or sum(sizes) != len(layers):
        right = f"{stages * virtual} virtual stages, {len(layers)} layers"
        raise BadValue("layout", rule, right)
    return _ranges(sizes)


def layout_stages(layout: str, field: str = "layout") -> list[str]:
    """What each virtual stage holds by a layout in Megatron's words, in order of the network.

        layout    stages with | between them; a stage may be empty, and commas say nothing
        E t m L   embedding, a layer, a prediction module, the loss: E comes first, L last
        x*n       x so often, x being one of these signs or |
        (...)*n   what stands in the brackets so often, its own repeats and its | with it

    Brackets inside of brackets, which Megatron itself does not read, are written out first. Source:
    megatron-core, transformer/pipeline_parallel_layer_layout.py, parse_str_to_list and
    validate_layer_layout.

    >>> layout_stages("Et*2|(t*3|)*2,tmL")
    ['Ett', 'ttt', 'ttt', 'tmL']
    """
    text = layout.replace(",", "")
    while len(text) <= _LONGEST and (repeat := re.search(_REPEAT, text)):
        times = min(int(repeat[3]), _LONGEST)
        text = (
            text[: repeat.start()] + (repeat[1] or repeat[2] or "") * times + text[repeat.end() :]
        )
    if len(text) > _LONGEST or not re.fullmatch(_WHOLE, text):
        raise BadValue(field, layout, "write it as Megatron does, for example Et*2|(t*3|)*2tL")
    return text.split("|")


_LONGEST: Final = 2**14
"""Signs of a layout, repeats written out; no model has nearly so many layers."""
_REPEAT: Final = r"(?:\(([EtmL|]*)\)|([EtmL|]))\*(\d{1,9})"
"""A repeat with none inside of it."""
_WHOLE: Final = r"E[tm|]*L"
"""A layout whose repeats are written out."""


def _ranges(sizes: Iterable[int]) -> list[tuple[int, int]]:
    """Pieces of these sizes, one after the other."""
    return list(pairwise(accumulate(sizes, initial=0)))


def stages_in_order(
    model: Transformer, strategy: Strategy, rule: str
) -> tuple[tuple[Layer, ...], ...]:
    """Layers of every virtual stage in order, where they are dealt by cost; else nothing.

    >>> from mofa_model.presets import model
    >>> stages_in_order(model("llama3-8b"), Strategy(pp=4), "slots")
    ()
    """
    if _rule(model, rule) != UNLIKE:
        return ()
    patterns, numbers = _patterns(model), [float(number) for number in _repeats_and_costs(model)]
    repeats, (head, *costs) = numbers[: len(patterns)], numbers[len(patterns) :]
    order = _layer_kinds(patterns, repeats)
    layers = [costs[kind] for kind in order]
    chunks = _chunks(UNLIKE, layers, head, int(strategy.pp), int(strategy.vpp))
    return tuple(tuple(model.kinds[kind] for kind in order[first:last]) for first, last in chunks)


def _rule(model: Transformer, rule: str) -> str:
    """The rule, or `unlike` where it is `slots` and layers do not cost the same."""
    if rule not in RULES:
        try:
            layout_stages(rule)
        except BadValue:
            right = f"one of {', '.join(RULES)}, or a layout such as Et*3|(tt|)*6L"
            raise BadValue("placement", rule, right) from None
    return UNLIKE if rule == "slots" and model.unlike else rule


def _layers_by_stage(rule: str, layers: int, stages: int, virtual: int) -> list[int]:
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


def _stages_by_cost(layers: list[float], stages: int, head: float) -> list[tuple[int, int, int]]:
    """(layers, embedding, head) of each stage in order, when blocks are dealt by cost."""
    costs = [
        ("embedding", 0.0),
        *(("layer", layer) for layer in layers),
        ("norm", 0.0),
        ("head", head),
    ]
    total = sum(layers) + head
    dealt = [{"layer": 0, "embedding": 0, "head": 0, "norm": 0} for _ in range(stages)]
    stage, running = 0, 0.0
    for block, cost in costs:
        dealt[stage][block] += 1
        running += cost
        if running >= total * ((stage + 1) / stages) and stage < stages - 1:
            stage += 1
    return [(contents["layer"], contents["embedding"], contents["head"]) for contents in dealt]
