"""Presets as objects: the description that a name stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from typing import Any, Final

from mofa_model import units
from mofa_model.errors import BadValue, UnknownName
from mofa_model.presets import entries
from mofa_model.records import dataclass
from mofa_model.spec import Device, FrozenFormat, Link, Precision, UpdateRule

_WIDTHS: Final = tuple(item.name for item in fields(Precision) if item.name not in {"name", "gemm"})


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Habits of a trainer that do not depend on the layout."""

    name: str
    """Preset id."""
    placement: str
    """How layers go to stages: `even`, `slots` or `cost`."""
    tensor_overlap: bool
    """True where tensor-parallel collectives run beside GEMMs by default."""
    launch: str = ""
    """The form in which a launch command is printed for it; empty = none."""
    precision: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Widths that differ from the recipe's, by recipe; `all` for every one."""
    like: str = ""
    """Stack whose constants hold where it has none of its own; empty for none."""
    releases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Defects by release."""
    defects: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Known states by name: `about`, and the device `classes` where it was seen (absent = all)."""

    def defects_of(self, release: str | None, device_class: str) -> tuple[str, ...]:
        """Defects of a release on a class of devices: those that are listed for it, or for the
        newest release before it. None stands for the newest of all.
        """
        wanted = _version(release) if release is not None else None
        fitting = [
            number for number in self.releases if wanted is None or _version(number) <= wanted
        ]
        newest = max(fitting, key=_version, default=None)
        return tuple(
            defect
            for defect in self.releases.get(newest or "", ())
            if self._seen_on(defect, device_class)
        )

    def _seen_on(self, defect: str, device_class: str) -> bool:
        classes = self.defects[defect].get("classes", (device_class,))
        return any(device_class == name or device_class.startswith(f"{name}-") for name in classes)


def device(name: str) -> Device:
    """A device by its data sheet.

    >>> device("NVIDIA-H100-80GB-HBM3").peak_bf16
    989000000000000.0
    """
    return _device(entries.resolve("devices", name))


def device_class(name: str) -> str:
    """The class of devices whose constants hold for a device.

    >>> device_class("h200")
    'h100'
    """
    class_name: str = entries.entry("devices", name)["class"]
    return class_name


def fabric(name: str) -> Link:
    """A link by its data sheet: one device's own share of it.

    >>> fabric("ndr").bandwidth
    50000000000.0
    """
    return _fabric(entries.resolve("fabrics", name))


def precision(name: str, *, stack: str = "default", fp8_params: bool = False) -> Precision:
    """A training recipe, with the widths that a stack changes; `fp8_params` keeps the weights in 8
    bits.

    >>> precision("bf16").optimizer, precision("fp8-current", fp8_params=True).weight
    (12.0, 1.0)
    """
    return _precision(
        entries.resolve("precisions", name), entries.resolve("stacks", stack), fp8_params
    )


def optimizer(name: str) -> UpdateRule:
    """The optimizer of a name: its states, traffic and products.

    >>> optimizer("muon").states, optimizer("Adam").name
    (4.0, 'adamw')
    """
    preset = entries.resolve("optimizers", name)
    return UpdateRule(name=preset, **entries.facts(entries.entry("optimizers", preset)))


def base(name: str) -> FrozenFormat:
    """A format of frozen matrices.

    >>> base("qlora").width
    0.5625
    """
    preset = entries.resolve("bases", name)
    return FrozenFormat(name=preset, **entries.facts(entries.entry("bases", preset)))


def stack(name: str) -> Stack:
    """A software stack's habits.

    >>> stack("nanotron").placement
    'cost'
    """
    return _stack(entries.resolve("stacks", name))


def stack_of(trainer: str) -> str:
    """The id of a trainer's own stack, or `default`, which was not measured.

    >>> stack_of("megatron"), stack_of("any")
    ('megatron-core', 'default')
    """
    try:
        return entries.resolve("stacks", trainer)
    except UnknownName:
        return "default"


@cache
def family(name: str) -> frozenset[str]:
    """A stack and all that stand on the same one: they share what is not the stack's own.

    >>> sorted(family("nemo"))
    ['megatron-bridge', 'megatron-core', 'nemo']
    """
    roots = {other: _root(other) for other in entries.names("stacks")}
    return frozenset(other for other, root in roots.items() if root == roots[name])


def _root(name: str) -> str:
    while above := entries.entry("stacks", name).get("like"):
        name = above
    return name


@entries.rereads_devices
@cache
def _device(name: str) -> Device:
    sheet = entries.entry("devices", name)
    peaks = {
        peak: units.parse(sheet.get(peak, "0 FLOP/s"), "FLOP/s", field=f"{name}.{peak}")
        for peak in ("peak_bf16", "peak_fp8", "peak_fp4")
    }
    return Device(
        name=name,
        memory=units.parse(sheet["memory"], "B", field=f"{name}.memory"),
        memory_bandwidth=units.parse(
            sheet["memory_bandwidth"], "B/s", field=f"{name}.memory_bandwidth"
        ),
        **peaks,
    )


@cache
def _fabric(name: str) -> Link:
    sheet = entries.entry("fabrics", name)
    return Link(
        bandwidth=units.parse(sheet["bandwidth"], "B/s", field=f"{name}.bandwidth"),
        latency=units.parse(sheet["latency"], "s", field=f"{name}.latency"),
    )


@cache
def _precision(name: str, stack_id: str, fp8_params: bool) -> Precision:
    facts = entries.facts(entries.entry("precisions", name))
    stored = facts.pop("fp8_params", None)
    if fp8_params and stored is None:
        raise BadValue(
            "fp8_params",
            fp8_params,
            f"{name} has no weights in 8 bits; give a precision whose name begins with fp8",
        )
    habits = _stack(stack_id).precision
    widths = {**habits.get("all", {}), **habits.get(name, {}), **(stored if fp8_params else {})}
    return Precision(name=name, **facts | widths)


@cache
def _stack(name: str) -> Stack:
    facts = entries.facts(entries.entry("stacks", name))
    releases = {release: tuple(defects) for release, defects in facts.pop("releases", {}).items()}
    return Stack(name=name, releases=releases, **facts)


def _version(text: str) -> tuple[int, ...]:
    """A release's numbers, so that 26.10 stands above 26.9."""
    parts = str(text).split(".")
    if not all(part.isdecimal() and len(part) <= 8 for part in parts):
        raise BadValue("release", text, "write numbers with dots, for example 26.04")
    return tuple(int(part) for part in parts)
