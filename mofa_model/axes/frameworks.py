"""What a trainer can run, from frameworks.toml: it shortens axes and rules out combinations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from mofa_model import parsed
from mofa_model.axes.choices import (
    ACTIVATIONS,
    OFFLOADED,
    Context,
    Pipeline,
    Recomputation,
    Recompute,
    Shard,
)
from mofa_model.errors import BadValue, UnknownName
from mofa_model.records import dataclass
from mofa_model.spec import Transformer, Workload

ANY: Final = "any"
USUAL: Final = "adamw"
"""The optimizer that every trainer has, and that launch arguments leave as it is."""
_SERVES: Final = "serves models"
_REINFORCES: Final = "trains by reinforcement"
_ELSEWHERE: Final = {
    **dict.fromkeys(("vllm", "sglang", "tensorrt-llm", "trt-llm", "tgi", "lmdeploy"), _SERVES),
    **dict.fromkeys(("verl", "openrlhf", "nemo-rl", "nemo-aligner", "slime", "areal"), _REINFORCES),
}
"""Well-known names that are no trainers of this kind, and what they do."""


@dataclass(frozen=True)
class Framework:
    """The capabilities of one trainer."""

    name: str
    given: Mapping[str, Any]
    """Its entry of frameworks.toml."""

    @property
    def uneven(self) -> str:
        """How layers may be dealt to stages: none, slots, rounded or any."""
        return str(self.given.get("uneven", "any"))

    @property
    def module_sets(self) -> tuple[frozenset[str], ...]:
        """Sets of modules that it can recompute, where they are not the usual ones."""
        return tuple(frozenset(some) for some in self.given.get("module_sets", ()))

    def offloads(self, *, experts: bool) -> tuple[frozenset[str], ...]:
        """What it can offload: all activations but inputs of layers, or the inputs that it names.

        With experts there is also the set with their inputs.
        """
        named = self.given.get("offload", True)
        if isinstance(named, bool):
            return (frozenset({ACTIVATIONS}),)
        plain = frozenset(named)
        inside = frozenset(self.given.get("offload_experts", ())) if experts else frozenset[str]()
        return tuple(dict.fromkeys((plain, plain | inside)))

    @property
    def apart(self) -> tuple[tuple[str, str], ...]:
        """Pairs of features that it refuses together, in the words of `bundles`."""
        return tuple((first, second) for first, second in self.given.get("apart", ()))

    @property
    def engine(self) -> str:
        """The trainer that runs it: its own id, or that of another on which it stands."""
        return str(self.given.get("engine", self.name))

    def require(self, workload: Workload) -> None:
        """Refuse a workload that it cannot train, with what it lacks and which trainers have it."""
        if (missing := self.missing(workload)) is None:
            return
        key, what = missing
        release, place = (
            str(self.given["source"]).partition(",")[0],
            self.given.get("read", {}).get(key),
        )
        others = [name for name in trainers() if framework(name).missing(workload) is None]
        right = f"it has no {what}{f' ({release}, {place})' if place else ''}"
        raise BadValue("framework", self.name, f"{right}; {have(others)}")

    def missing(self, workload: Workload) -> tuple[str, str] | None:
        """Key and description of the first part of a workload that it does not support, or None."""
        if self.name == ANY:
            return None
        model, training, has = workload.model, workload.training, self.given.get("blocks")
        for block in model.blocks:
            if has is not None and block.variant not in has:
                known = ", ".join(has).replace("_", " ")
                return "blocks", f"{block.name}, but {known}"
            if (
                block.variant == "dense"
                and not getattr(block, "gated", True)
                and self.lacks("ungated")
            ):
                return "ungated", "feed-forward block without a gate"
        if side_by_side(model) and self.lacks("side_by_side"):
            return "side_by_side", "layer with attention beside a state space"
        recipe = training.precision.name
        if recipe not in (had := self.given.get("precisions", (recipe,))):
            return "precisions", f"precision {recipe}, but {', '.join(had)}"
        if training.optimizer.name not in self.given.get("optimizers", (USUAL,)):
            return "optimizers", f"optimizer {training.optimizer.name}"
        loss = training.loss.value
        if loss not in (had := self.given.get("losses", (loss,))):
            return "losses", f"{loss} loss, but {', '.join(had)}"
        if training.adapters is not None and not self.keeps("adapters"):
            return "adapters", "low-rank adapters beside frozen weights"
        if training.documents is not None and not self.keeps("documents"):
            return "documents", "attention that stops where packed documents end"
        return None

    def usual(self, name: str, value: str) -> str:
        """A usual value where it has that one; else the first of those that it has."""
        had = self.given.get(name, (value,))
        return value if value in had else str(had[0])

    def recipe(self, width: str) -> str:
        """A precision by its width, in the one form in which the trainer has that width.

        >>> framework("torchtune").recipe("bf16"), framework("torchtune").recipe("fp8")
        ('bf16-pure', 'fp8')
        """
        had = self.given.get("precisions", (width,))
        return next((one for one in had if one.partition("-")[0] == width), width)

    def lacks(self, name: str) -> bool:
        """Whether it is said to be without something."""
        return self.given.get(name, True) is False

    def keeps(self, name: str) -> bool:
        """Whether a restriction of this name holds for it."""
        return bool(self.given.get(name, False))

    def shards_in_pipeline(self, level: str) -> bool:
        """Whether a ZeRO level runs with more than one pipeline stage."""
        return level in self.given.get("sharding_pipeline", (level,))

    def overlaps_hops(self, schedule: str) -> bool:
        """Whether pipeline hops overlap compute under a schedule."""
        return schedule in self.given.get("overlap_hops", (schedule,))

    def runs(self, value: Pipeline) -> bool:
        """Whether it has a schedule."""
        return value.schedule.value in self.given.get("schedules", (value.schedule.value,))

    def splits(self, value: Context) -> bool:
        """Whether it has a mode of context parallelism."""
        mode = value.mode.value
        return value.size == 1 or bool(
            self.given.get("cp", True) and mode in self.given.get("context", (mode,))
        )

    def shards(self, value: Shard) -> bool:
        """Whether it has a ZeRO level, and its groups."""
        level, groups = value.level.value, self.given.get("shard_groups", True)
        grouped = value.group == 0 or (groups if isinstance(groups, bool) else level in groups)
        return grouped and level in self.given.get("sharding", (level,))

    def recomputes(self, value: Recomputation) -> bool:
        """Whether it has a mode of recomputation, for these modules or layers."""
        g = self.given
        sets = self.module_sets or (frozenset(g.get("modules", value.modules)),)
        named = value.modules in sets if self.module_sets else value.modules <= sets[0]
        known = value.mode is not Recompute.SELECTIVE or named
        whole = value.layers == 0 or g.get("recompute_layers", True)
        return value.mode.value in g.get("recompute", (value.mode.value,)) and known and whole

    def moves(self, value: frozenset[str]) -> bool:
        """Whether it can offload all of these."""
        named = self.given.get("offload", True)
        known = (
            OFFLOADED if named is True else (*(named or ()), *self.given.get("offload_experts", ()))
        )
        beside = self.given.get("offload_beside", {})
        return value <= set(known) and all(beside.get(name, name) in value for name in value)


def side_by_side(model: Transformer) -> bool:
    """Whether a layer of a model has attention beside a state space, both of the same input."""
    return any(
        {"attention", "state_space"} <= {block.variant for block in kind.blocks}
        for kind in model.kinds
    )


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    """Every trainer's entry, on top of the entry that it is `like`."""
    given = parsed.tables_of(parsed.beside(__file__, "frameworks.toml"))
    for entry in given.values():
        like = given.get(entry.get("like", ""), {})
        read = {**like.get("read", {}), **entry.get("read", {})}
        own = {"aliases": entry.get("aliases", ()), "read": read}
        entry |= {**like, **entry, **own}
    return given


def frameworks() -> tuple[str, ...]:
    """The ids of all trainers, and `any`.

    >>> frameworks()[1]
    'megatron'
    """
    return tuple(_table())


def trainers() -> tuple[str, ...]:
    """The ids of those that are asked where nobody names one, in their order.

    >>> trainers()[:2]
    ('megatron', 'megatron-bridge')
    """
    return tuple(name for name, entry in _table().items() if name != ANY and "engine" not in entry)


def have(names: Sequence[str]) -> str:
    """The names of trainers that have a feature, as the end of a sentence.

    >>> have(["torchtitan"]), have([])
    ('torchtitan has', 'no trainer has')
    """
    return (
        f"{', '.join(names)} {'has' if len(names) == 1 else 'have'}" if names else "no trainer has"
    )


def framework(name: str = ANY, *, field: str = "framework") -> Framework:
    """A trainer by id or alias, whatever the case; `field` is what an error calls it.

    >>> framework("Megatron-LM").name
    'megatron'
    """
    wanted = name.strip().lower()
    if wanted in _ELSEWHERE:
        right = (
            f"it {_ELSEWHERE[wanted]}; here are pretraining and fine-tuning, "
            "and no reinforcement learning or inference"
        )
        raise BadValue(field, name, right)
    names = _names()
    if wanted not in names:
        raise UnknownName(field, name, frameworks(), aliases=names)
    return Framework(names[wanted], _table()[names[wanted]])


@cache
def _names() -> Mapping[str, str]:
    """Ids by ids and aliases."""
    return {
        alias: key for key, entry in _table().items() for alias in (key, *entry.get("aliases", ()))
    }


def trainer_called(name: str) -> str:
    """The id of the trainer that a job, a file or a person calls so; empty where none is.

    >>> trainer_called("NeMo"), trainer_called("transformers"), trainer_called("verl")
    ('megatron-bridge', 'accelerate', '')
    """
    found = _names().get(name.strip().lower(), "")
    return "" if found == ANY else found
