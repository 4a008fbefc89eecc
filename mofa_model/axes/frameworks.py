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
    entry: Mapping[str, Any]
    """Its entry of frameworks.toml."""

    @property
    def uneven(self) -> str:
        """How layers may be dealt to stages: none, slots, rounded or any."""
        return str(self.entry.get("uneven", "any"))

    @property
    def module_sets(self) -> tuple[frozenset[str], ...]:
        """Sets of modules that it can recompute, where they are not the usual ones."""
        return tuple(frozenset(names) for names in self.entry.get("module_sets", ()))

    def offloads(self, *, experts: bool) -> tuple[frozenset[str], ...]:
        """What it can offload: all activations but inputs of layers, or the inputs that it names.

        With experts there is also the set with their inputs.
        """
        named = self.entry.get("offload", True)
        if isinstance(named, bool):
            return (frozenset({ACTIVATIONS}),)
        plain = frozenset(named)
        inside = frozenset(self.entry.get("offload_experts", ())) if experts else frozenset[str]()
        return tuple(dict.fromkeys((plain, plain | inside)))

    @property
    def apart(self) -> tuple[tuple[str, str], ...]:
        """Pairs of features that it refuses together, in the words of `bundles`."""
        return tuple((first, second) for first, second in self.entry.get("apart", ()))

    @property
    def engine(self) -> str:
        """The trainer that runs it: its own id, or that of another on which it stands."""
        return str(self.entry.get("engine", self.name))

    def require(self, workload: Workload) -> None:
        """Refuse a workload that it cannot train, with what it lacks and which trainers have it."""
        if (missing := self.missing(workload)) is None:
            return
        key, what = missing
        release, place = self.entry["source"].partition(",")[0], self.entry.get("read", {}).get(key)
        others = [name for name in trainers() if framework(name).missing(workload) is None]
        right = f"it has no {what}{f' ({release}, {place})' if place else ''}"
        raise BadValue("framework", self.name, f"{right}; {have(others)}")

    def missing(self, workload: Workload) -> tuple[str, str] | None:
        """Key and description of the first part of a workload that it does not support, or None."""
        if self.name == ANY:
            return None
        model, training, variants = workload.model, workload.training, self.entry.get("blocks")
        for block in model.blocks:
            if variants is not None and block.variant not in variants:
                names = ", ".join(variants).replace("_", " ")
                return "blocks", f"{block.name}, but {names}"
            if (
                block.variant == "dense"
                and not getattr(block, "gated", True)
                and self.lacks("ungated")
            ):
                return "ungated", "feed-forward block without a gate"
        if side_by_side(model) and self.lacks("side_by_side"):
            return "side_by_side", "layer with attention beside a state space"
        recipe = training.precision.name
        if recipe not in (recipes := self.entry.get("precisions", (recipe,))):
            return "precisions", f"precision {recipe}, but {', '.join(recipes)}"
        if training.optimizer.name not in self.entry.get("optimizers", (USUAL,)):
            return "optimizers", f"optimizer {training.optimizer.name}"
        loss = training.loss.value
        if loss not in (losses := self.entry.get("losses", (loss,))):
            return "losses", f"{loss} loss, but {', '.join(losses)}"
        if training.adapters is not None and not self.keeps("adapters"):
            return "adapters", "low-rank adapters beside frozen weights"
        if training.documents is not None and not self.keeps("documents"):
            return "documents", "attention that stops where packed documents end"
        return None

    def usual(self, name: str, value: str) -> str:
        """A usual value where it has that one; else the first of those that it has."""
        values = self.entry.get(name, (value,))
        return value if value in values else str(values[0])

    def recipe(self, width: str) -> str:
        """A precision by its width, in the one form in which the trainer has that width.

        >>> framework("torchtune").recipe("bf16"), framework("torchtune").recipe("fp8")
        ('bf16-pure', 'fp8')
        """
        recipes = self.entry.get("precisions", (width,))
        return next((recipe for recipe in recipes if recipe.partition("-")[0] == width), width)

    def lacks(self, name: str) -> bool:
        """Whether its entry says that it has no such thing."""
        return self.entry.get(name, True) is False

    def keeps(self, name: str) -> bool:
        """Whether a restriction of this name holds for it."""
        return bool(self.entry.get(name, False))

    def shards_in_pipeline(self, level: str) -> bool:
        """Whether a ZeRO level runs with more than one pipeline stage."""
        return level in self.entry.get("sharding_pipeline", (level,))

    def overlaps_hops(self, schedule: str) -> bool:
        """Whether pipeline hops overlap compute under a schedule."""
        return schedule in self.entry.get("overlap_hops", (schedule,))

    def runs(self, value: Pipeline) -> bool:
        """Whether it has a schedule."""
        return value.schedule.value in self.entry.get("schedules", (value.schedule.value,))

    def splits(self, value: Context) -> bool:
        """Whether it has a mode of context parallelism."""
        mode = value.mode.value
        return value.size == 1 or bool(
            self.entry.get("cp", True) and mode in self.entry.get("context", (mode,))
        )

    def shards(self, value: Shard) -> bool:
        """Whether it has a ZeRO level, and its groups."""
        level, groups = value.level.value, self.entry.get("shard_groups", True)
        grouped = value.group == 0 or (groups if isinstance(groups, bool) else level in groups)
        return grouped and level in self.entry.get("sharding", (level,))

    def recomputes(self, value: Recomputation) -> bool:
        """Whether it has a mode of recomputation, for these modules or layers."""
        g = self.entry
        sets = self.module_sets or (frozenset(g.get("modules", value.modules)),)
        named = value.modules in sets if self.module_sets else value.modules <= sets[0]
        has_modules = value.mode is not Recompute.SELECTIVE or named
        has_layers = value.layers == 0 or g.get("recompute_layers", True)
        modes = g.get("recompute", (value.mode.value,))
        return value.mode.value in modes and has_modules and has_layers

    def moves(self, value: frozenset[str]) -> bool:
        """Whether it can offload all of these."""
        named = self.entry.get("offload", True)
        if named is True:
            named = OFFLOADED
        inputs = {*(named or ()), *self.entry.get("offload_experts", ())}
        partner = self.entry.get("offload_beside", {})
        return value <= inputs and all(partner.get(name, name) in value for name in value)


def side_by_side(model: Transformer) -> bool:
    """Whether a layer of a model has attention beside a state space, both of the same input."""
    return any(
        {"attention", "state_space"} <= {block.variant for block in kind.blocks}
        for kind in model.kinds
    )


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    """Every trainer's entry, on top of the entry that it is `like`."""
    entries = parsed.tables_of(parsed.beside(__file__, "frameworks.toml"))
    for entry in entries.values():
        like = entries.get(entry.get("like", ""), {})
        read = {**like.get("read", {}), **entry.get("read", {})}
        own = {"aliases": entry.get("aliases", ()), "read": read}
        entry |= {**like, **entry, **own}
    return entries


def frameworks() -> tuple[str, ...]:
    """The ids of all trainers, and `any`.

    >>> frameworks()[1]
    'megatron'
    """
    return tuple(_table())


def trainers() -> tuple[str, ...]:
    """The ids of the trainers that are tried where nobody names one, in their order.

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
    alias = name.strip().lower()
    if alias in _ELSEWHERE:
        right = (
            f"it {_ELSEWHERE[alias]}; here are pretraining and fine-tuning, "
            "and no reinforcement learning or inference"
        )
        raise BadValue(field, name, right)
    names = _names()
    if alias not in names:
        raise UnknownName(field, name, frameworks(), aliases=names)
    return Framework(names[alias], _table()[names[alias]])


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
    trainer = _names().get(name.strip().lower(), "")
    return "" if trainer == ANY else trainer
