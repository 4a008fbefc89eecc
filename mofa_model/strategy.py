"""What is chosen: the parallel layout and the features that trade time for memory; its axes; and
its text.

Degrees (tp, pp, …) are numbers or arrays; categories (schedule, sharding, …) are Python values.
So one `Strategy` is either a single layout or a *family* of layouts that differ in degrees alone,
and every equation takes both. A field that people choose belongs to one row of `AXES`; `dp` follows
from the others.

A strategy is also one line of text (`format_strategy`, `parse_strategy`), which annotations and
tables show and `--strategy` and `--current` take. Full and short form:

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
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Final

import numpy as np

from mofa_model.axes import rules, tried
from mofa_model.axes.axis import (
    SWITCHED_OFF,
    Axis,
    Choice,
    Number,
    Offloaded,
    Optimizer,
    Recomputed,
    Scope,
    Sharded,
    Word,
    degree,
    switch,
)
from mofa_model.axes.choices import (
    ACTIVATIONS,
    EXPERT_INPUTS,
    LAYER_INPUT,
    MODULES,
    NO_MODULES,
    OFFLOADED,
    Context,
    ContextMode,
    Graphs,
    Pipeline,
    Placement,
    Recomputation,
    Recompute,
    Shard,
    Sharding,
)
from mofa_model.axes.frameworks import Framework
from mofa_model.checks import field_names, not_negative, whole
from mofa_model.equations.memory import expert_data_ranks
from mofa_model.errors import BadValue, DoesNotFit, UnknownName
from mofa_model.records import dataclass, varied
from mofa_model.schedules import INTERLEAVED, ONE_F_ONE_B, SCHEDULES, V_HALF, Schedule
from mofa_model.units import Numeric

__all__ = [
    "ACTIVATIONS",
    "AXES",
    "DEGREES",
    "LAYER_INPUT",
    "MODULES",
    "OFFLOADED",
    "ContextMode",
    "Graphs",
    "Placement",
    "Recompute",
    "Sharding",
    "Strategy",
]


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One parallel layout, or a family of them."""

    tp: Numeric = 1
    """Tensor-parallel size."""
    pp: Numeric = 1
    """Pipeline stages."""
    cp: Numeric = 1
    """Context-parallel size."""
    dp: Numeric = 1
    """Data-parallel size of the dense part."""
    ep: Numeric = 1
    """Expert-parallel size."""
    etp: Numeric = 1
    """Tensor-parallel size inside an expert."""
    vpp: Numeric = 1
    """Virtual stages per device."""
    mbs: Numeric = 1
    """Sequences in a micro-batch."""
    shard: Numeric = 0
    """Data-parallel ranks that share one copy of what is sharded; 0 = all of them."""
    schedule: Schedule = ONE_F_ONE_B
    """Order of passes; interleaved where vpp > 1."""
    sharding: Sharding = Sharding.OPTIMIZER
    """ZeRO level."""
    sequence_parallel: bool = False
    """Norms and residuals sharded over tp as well."""
    recompute: Recompute = Recompute.NONE
    """Activation recomputation."""
    recompute_modules: frozenset[str] = NO_MODULES
    """What selective recomputation names."""
    recompute_layers: Numeric = 0
    """Layers per stage under full recomputation; 0 = all."""
    context_mode: ContextMode = ContextMode.RING
    """How context parallelism communicates."""
    chunks: Numeric = 1
    """MemFine: chunks in which experts run and are recomputed; 1 = whole."""
    chunk_layers: Numeric = 0
    """Layers with experts of a stage that run in chunks; 0 = all."""
    optimizer: Placement = Placement.DEVICE
    """Home of the optimizer states."""
    host_weights: bool = False
    """Shares of weights wait in host memory until they are gathered, under full sharding."""
    offload: frozenset[str] = frozenset()
    """Activations that wait in host memory between forward and backward, of `OFFLOADED`."""
    tensor_overlap: bool = False
    """Tensor-parallel collectives overlap GEMMs, Eq. (20)."""
    data_overlap: bool = True
    """Gradient and parameter collectives overlap compute, Eq. (24), where the stack can."""
    pipeline_overlap: bool = True
    """Pipeline hops overlap compute, Eq. (23)."""
    expert_overlap: bool = False
    """All-to-all overlaps compute, Eq. (22)."""
    graphs: Graphs = Graphs.NONE
    """CUDA graphs."""

    def __post_init__(self) -> None:
        whole(**{name: getattr(self, name) for name in DEGREES if name not in _FROM_ZERO})
        not_negative(**{name: getattr(self, name) for name in _FROM_ZERO})
        if self.schedule.folded:
            self.schedule.own_virtual_stages(self.vpp)
        unknown = self.recompute_modules - set(MODULES)
        if unknown:
            raise BadValue(
                "recompute", ", ".join(sorted(unknown)), f"modules: {', '.join(MODULES)}"
            )
        unknown = self.offload - set(OFFLOADED)
        if unknown:
            raise BadValue("offload", ", ".join(sorted(unknown)), f"of: {', '.join(OFFLOADED)}")

    @property
    def gpus(self) -> Numeric:
        """Devices of the layout. [1]"""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def data_ranks(self) -> Numeric:
        """Ranks that hold the same dense weights and share gradients: those of dp and cp. [1]"""
        return self.dp * self.cp

    @property
    def expert_data_ranks(self) -> Numeric:
        """Ranks that hold the same experts and share their gradients. [1]"""
        return expert_data_ranks(self.data_ranks, self.tp, self.ep, self.etp)

    @property
    def global_micro_batch(self) -> Numeric:
        """Sequences in a micro-batch of all data-parallel ranks; divides the global batch. [1]"""
        return self.dp * self.mbs

    def __len__(self) -> int:
        """Rows of a family; 1 for a single layout."""
        return int(np.broadcast(*(getattr(self, name) for name in DEGREES)).size)

    def row(self, index: int) -> Strategy:
        """One layout of a family, as plain numbers."""
        shape = np.broadcast_shapes(*(np.shape(getattr(self, name)) for name in DEGREES))
        degrees = {
            n: np.broadcast_to(getattr(self, n), shape).reshape(-1)[index].item() for n in DEGREES
        }
        return replace(self, **degrees)

    def rows(self, index: Any) -> Strategy:
        """The layouts of a family that an index or a mask selects."""
        shape = np.broadcast_shapes(*(np.shape(getattr(self, name)) for name in DEGREES))
        picked: dict[str, Any] = {
            n: v if np.ndim(v := getattr(self, n)) == 0 else np.broadcast_to(v, shape)[index]
            for n in DEGREES
        }
        return replace(self, **picked)


DEGREES: Final = tuple(field.name for field in fields(Strategy) if field.type == "Numeric")
"""Fields that may be arrays."""
_FROM_ZERO: Final = tuple(
    field.name for field in fields(Strategy) if field.name in DEGREES and field.default == 0
)

AXES: Final = (
    degree(
        "tp", tried.of_all(*tried.TENSOR), 2, about="Tensor-parallel size.", example="tp=4,8",
        feature="tp", local=True, shape_rules=rules.TENSOR, stuck="no tensor-parallel size is left",
    ),
    Axis(
        name="context", fields=("context_mode", "cp"), parts=Context, scope=Scope.SHAPE,
        tried=tried.contexts, complexity=6, listed=tried.context_sizes,
        only_named=lambda value: value.mode in {ContextMode.ALL_GATHER, ContextMode.HIERARCHICAL},
        off=Context(ContextMode.RING, 1),
        words=(
            Number(key="cp", field="cp", about="Context-parallel size."),
            Choice(
                key="cp-mode", field="context_mode", about="How context parallelism communicates.",
                choices=ContextMode,
            ),
        ),
        values="none; ring and all-to-all (all-gather and USP where they are asked for) of "
        f"{', '.join(map(str, tried.CONTEXT))}",
        example="cp<=4`, `cp-mode=ring", supported=Framework.splits, local=True,
        shape_rules=rules.CONTEXT, columns=rules.context_columns,
        stuck="no context-parallel size is left",
    ),
    degree(
        "pp", tried.stage_counts, 3, about="Pipeline stages.", example="pp=8..32", feature="pp",
        shape_rules=rules.STAGES, values="every number up to layers + 2 that divides the devices",
        stuck="no number of pipeline stages goes with the devices",
    ),
    degree(
        "mbs", tried.micro_batches, 4, about="Sequences in a micro-batch.",
        values=f"{', '.join(map(str, tried.BATCH))}; three times those where they divide the batch",
        example="mbs=3", local=True, shape_rules=rules.BATCH,
        stuck="the global batch goes with no number of data-parallel ranks and micro-batches",
    ),
    Axis(
        name="pipeline", fields=("schedule", "vpp"), parts=Pipeline, scope=Scope.SHAPE,
        tried=tried.pipelines, complexity=8, listed=tried.virtual_stages,
        only_named=lambda value: value.schedule is V_HALF,  # no trainer runs it
        words=(
            Number(key="vpp", field="vpp", about="Virtual stages per device."),
            Choice(
                key="schedule", field="schedule", about="Pipeline schedules.", choices=SCHEDULES
            ),
        ),
        values="1F1B; interleaved with 2, 4, 8 virtual stages and whatever up to 16 divides layers"
        " or layers + 2; zero-bubble (ZB-H1); ZBV and DualPipeV, which are V-shaped, with 2;"
        " DualPipe; V-half with 2 where it is asked for",
        example="schedule=1f1b`, `vpp=2,4", supported=Framework.runs, shape_rules=rules.PIPELINE,
        columns=rules.pipeline_columns,
        stuck="no pipeline schedule goes with layers, stages and micro-batches",
    ),
    degree(
        "ep", tried.expert_groups, 5, about="Expert-parallel size.", example="ep=64",
        feature="ep", local=True, values="divisors of the experts; 1 in a dense model",
        stuck="no expert-parallel size is left",
    ),
    degree(
        "etp", tried.of_experts(*tried.EXPERT_TENSOR), 7,
        about="Tensor-parallel size inside an expert.", example="etp=1", feature="etp",
        local=True, shape_rules=rules.EXPERTS,
        stuck="no expert- and tensor-parallel size of the experts fits the devices",
    ),
    degree(
        "chunks", tried.of_experts(*tried.CHUNKS), 15, example="chunks=1", feature="chunks",
        assumed=False, local=True, stuck="no number of chunks is left",
    ),
    Axis(
        name="chunk_layers", fields=("chunk_layers",), scope=Scope.SHAPE, tried=tried.of_all(0),
        complexity=21, off=0, words=(Number(key="chunk-layers", field="chunk_layers", least=0),),
        feature="chunks", assumed=False,
        values="all layers; where it is asked for, a number of those of a stage",
        example="chunk-layers=0,2,4", shape_rules=rules.CHUNKS,
        stuck="whole experts leave no layer to run in chunks",
    ),
    switch(
        "sp", "sp", Scope.WORK, tried.of_all(False, True), 9, field="sequence_parallel",
        example="sp=true", feature="sp", about="Whether norms and residuals are sharded over tp.",
        apart={"no sequence parallelism": lambda value: not value},
        value_rules=rules.sequence_parallel_rules, idle=rules.ones("tp"),
    ),
    Axis(
        name="sharding", fields=("sharding", "shard"), parts=Shard, scope=Scope.STATE,
        tried=tried.shards, complexity=10, listed=tried.shard_groups,
        words=(
            Optimizer(key="optimizer", field="sharding"),
            Number(key="shard", field="shard", least=0),
        ),
        limits=(
            Sharded(
                key="sharding", field="sharding", about="What data-parallel ranks share out."
            ),
            Number(key="shard", field="shard", least=0),
        ),
        values="replicated; ZeRO-1, -2, -3, each over all data-parallel ranks or over those of a"
        " scale-up domain",
        example="sharding=distributed,zero3@node", supported=Framework.shards,
        apart={
            "replicated states": lambda value: value.level is Sharding.NONE,
            "full sharding": lambda value: value.level in rules.GRADIENTS_SHARED,
            "whole weights": lambda value: value.level is not Sharding.WEIGHTS,
            "grouped states": lambda value: value.group != 0,
        },
        value_rules=rules.sharding_rules, idle=rules.alone,
    ),
    Axis(
        name="recompute", fields=("recompute", "recompute_modules", "recompute_layers"),
        parts=Recomputation, scope=Scope.WORK, tried=tried.recomputations, complexity=16,
        words=(Recomputed(key="recompute", field="recompute", about="Activation recomputation."),),
        values="none; sets of modules; whole layers: "
        f"{', '.join(map(str, tried.RECOMPUTED))} of a stage, or all",
        example="recompute=none,full:2", supported=Framework.recomputes,
        apart={
            "full recomputation": lambda value: value.mode is Recompute.FULL,
            "no full recomputation": lambda value: value.mode is not Recompute.FULL,
            "recomputed experts": lambda value: (
                value.mode is Recompute.SELECTIVE and "moe" in value.modules
            ),
        },
        value_rules=rules.recompute_rules,
    ),
    Axis(
        name="offload", fields=("offload",), scope=Scope.WORK, tried=tried.offloads, complexity=18,
        words=(
            Offloaded(
                key="offload", field="offload",
                about="What may wait in host memory between forward and backward.",
            ),
        ),
        values="none, and what the trainer can offload: by default all activations but the inputs"
        " of layers",
        example="offload=activations`, `offload=core_attn+moe_act", supported=Framework.moves,
        apart={"offload": bool, "offloaded experts": lambda value: bool(value & EXPERT_INPUTS)},
        value_rules=rules.offload_rules,
    ),
    Axis(
        name="optimizer", fields=("optimizer",), scope=Scope.STATE,
        tried=tried.of_all(*Placement), complexity=17,
        limits=(
            Choice(
                key="optimizer", field="optimizer", about="Where optimizer states live.",
                choices=Placement,
            ),
        ),
        values="states on the device, on the host", example="optimizer=device",
        off=Placement.DEVICE, feature="optimizer_host",
        apart={"host optimizer": lambda value: value is Placement.HOST},
        value_rules=rules.placement_rules,
    ),
    switch(
        "host_weights", "host-weights", Scope.STATE, tried.of_all(False, True), 22,
        example="host-weights=true", only_named=bool, feature="host_weights", assumed=False,
        apart={"host weights": bool},
    ),
    Axis(
        name="graphs", fields=("graphs",), scope=Scope.WORK, tried=tried.of_all(*Graphs),
        complexity=19, words=(Choice(key="graphs", field="graphs", choices=Graphs),),
        values="none; partial and full where launches are half of what the products take,"
        " full without experts",
        example="graphs=none,partial,full", off=Graphs.NONE, feature="graphs",
        apart={
            "graphs": lambda value: value is not Graphs.NONE,
            "partial graphs": lambda value: value is Graphs.PARTIAL,
        },
        value_rules=rules.graphs_rules,
    ),
    switch(
        "tensor_overlap", "tp-overlap", Scope.LAYER, tried.of_all(False, True), 13,
        example="tp-overlap=false", feature="tensor_overlap", apart={"tensor overlap": bool},
        idle=rules.ones("tp"), never_slower=rules.tensor_overlap_wins,
    ),
    switch(
        "data_overlap", "dp-overlap", Scope.STEP, tried.of_all(True, False), 12,
        example="dp-overlap=true", feature="data_overlap", apart={"data overlap": bool},
        idle=rules.alone, never_slower=rules.data_overlap_wins,
    ),
    switch(
        "pipeline_overlap", "pp-overlap", Scope.PIPELINE, tried.of_all(True, False), 11,
        example="pp-overlap=false", value_rules=rules.pipeline_overlap_rules,
        idle=rules.ones("pp"), never_slower=lambda _: True,
    ),
    switch(
        "expert_overlap", "ep-overlap", Scope.LAYER, tried.of_experts(False, True), 14,
        example="ep-overlap=true", feature="expert_overlap", apart={"expert overlap": bool},
        value_rules=rules.expert_overlap_rules, idle=rules.ones("ep"),
        never_slower=rules.expert_overlap_wins,
    ),
)  # fmt: skip
"""One row an axis, in the order of the search: degrees and schedule first, then the features."""


_PLAINEST: Final = Strategy()


def acting(strategy: Strategy) -> tuple[Axis, ...]:
    """The axes that have something to act on in a layout."""
    acts = acting_in((strategy,))
    return tuple(axis for axis in AXES if axis.name not in acts or acts[axis.name][0])


_degrees: Final = attrgetter(*DEGREES)


def acting_in(many: Sequence[Strategy]) -> dict[str, list[bool]]:
    """In which of some layouts an axis has something to act on, by its name; axes that always have
    are left out.
    """
    table = np.array([_degrees(layout) for layout in many], dtype=float)
    columns = table.reshape(len(many), len(DEGREES)).T
    layouts = varied(_PLAINEST, **dict(zip(DEGREES, columns, strict=True)))
    names = (*DEGREES, "data_ranks", "expert_data_ranks")
    rows = {name: getattr(layouts, name) for name in names}
    return {axis.name: (~axis.idle(rows)).tolist() for axis in AXES if axis.idle is not None}


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
    """A layout from its text; `gpus` [1] gives dp where the text does not, else checks it. `alone`
    is the level of one data-parallel rank where the text has none.

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
    """Data-parallel degree: devices over tp x pp x cp; raises where that is no whole number. [1]"""
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
