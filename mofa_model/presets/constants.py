"""Measured constants: layers of constants.toml put over the defaults, for one device, precision and stack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from mofa_model.errors import BadFile, UnknownName
from mofa_model.kernels import MeasuredKernels
from mofa_model.presets import catalogue, chosen, entries, kernels
from mofa_model.presets.catalogue import Stack
from mofa_model.spec import Calibration
from mofa_model.spec.calibration import LAWS

GROUPS: Final = ("compute", "host", "links", "overlap", "memory")
"""Fields of `Calibration` that hold constants; a path is one of these, a dot and the constant's name."""

Section = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant:
    """One constant that a preset sets, with where it comes from."""

    path: str
    """For example compute.gemm_efficiency."""
    value: float
    """What it is after every layer."""
    scatter: float
    """Standard deviation of its logarithm when a source is left out, of the last layer that states it; 0 = not stated."""
    source: str
    """What it was fitted to, outermost layer last."""


def calibration(
    device: str,
    precision: str = "bf16",
    stack: str = "default",
    *,
    release: str | None = None,
    defects: Iterable[str] = (),
) -> Calibration:
    """All constants of a device, a precision and a software stack.

    A release brings its known defects (None: the newest one's); `defects` names further ones.

    >>> calibration("h100", "bf16", "nanotron").placement
    'cost'
    """
    key, files = _key(device, precision, stack, release, defects), chosen.files()
    measured = kernels.measured(device, key[1], _laws(*key, files))
    return _calibration(*key, files, measured)


def constants_of(
    device: str,
    precision: str = "bf16",
    stack: str = "default",
    *,
    release: str | None = None,
    defects: Iterable[str] = (),
) -> Mapping[str, Constant]:
    """The constants that presets set, by path, with scatter and source; every other one has its default.

    >>> "compute.gemm_efficiency" in constants_of("h100", "fp8-rowwise")
    True
    """
    return _constants(*_key(device, precision, stack, release, defects), chosen.files())


def _key(
    device: str, precision: str, stack: str, release: str | None, defects: Iterable[str]
) -> tuple[str, str, str, tuple[str, ...]]:
    """What the constants depend on, in a form that can be cached: chip, recipe, stack, defects."""
    chip = entries.resolve("devices", device)
    device_class = catalogue.device_class(chip)
    habits = catalogue.stack(stack)
    named = tuple(defects)
    for defect in named:
        if defect not in habits.defects:
            raise UnknownName("defects", defect, habits.defects)
    applied = (*habits.defects_of(release, device_class), *named)
    return (
        chip,
        entries.resolve("precisions", precision),
        habits.name,
        tuple(dict.fromkeys(applied)),
    )


@cache
def _calibration(
    chip: str,
    recipe: str,
    stack: str,
    defects: tuple[str, ...],
    files: tuple[str, ...],
    measured: MeasuredKernels | None,
) -> Calibration:
    habits = catalogue.stack(stack)
    bare = Calibration(
        stack=stack,
        placement=habits.placement,
        tensor_overlap=habits.tensor_overlap,
        kernels=measured,
    )
    changes: dict[str, dict[str, float]] = {}
    for path, constant in _constants(chip, recipe, stack, defects, files).items():
        group, name = path.split(".")
        changes.setdefault(group, {})[name] = constant.value
    groups: dict[str, Any] = {
        group: replace(getattr(bare, group), **values) for group, values in changes.items()
    }
    return replace(bare, **groups)


@cache
def _constants(
    chip: str, recipe: str, stack: str, defects: tuple[str, ...], files: tuple[str, ...]
) -> Mapping[str, Constant]:
    known = defaults()
    found: dict[str, Constant] = {}
    for where, section in _layers(chip, recipe, catalogue.stack(stack), defects, files):
        for path, given in section.items():
            if path not in known:
                told = " or ".join(files) or "constants.toml"
                raise BadFile(told, f"[{where}] {path} is not a constant of Calibration")
            below = found.get(path)
            now = known[path] if below is None else below.value
            value = given["value"] if "value" in given else now * given["factor"]
            told = below.source + "; " if below is not None and "factor" in given else ""
            scatter = given.get("scatter", 0.0)
            found[path] = Constant(
                path=path,
                value=float(value),
                scatter=scatter,
                source=f"{told}{where}: {given['source']}",
            )
    return MappingProxyType(found)


@cache
def _laws(
    chip: str, recipe: str, stack: str, defects: tuple[str, ...], files: tuple[str, ...]
) -> frozenset[str]:
    """Operators whose law a stack or a file of the user's states: it stands over kernels as over all that lies below."""
    found = set()
    for where, section in _layers(chip, recipe, catalogue.stack(stack), defects, files):
        if where.partition(".")[0] in {"stack", "defect"}:
            found |= {
                LAWS[path] for path, given in section.items() if path in LAWS and "value" in given
            }
    return frozenset(found)


@cache
def defaults() -> Mapping[str, float]:
    """Every constant by path, with the value that it has where no preset says otherwise."""
    bare = Calibration()
    return MappingProxyType(
        {
            f"{group}.{item.name}": getattr(getattr(bare, group), item.name)
            for group in GROUPS
            for item in fields(getattr(bare, group))
        }
    )


def _layers(
    chip: str, recipe: str, stack: Stack, defects: tuple[str, ...], files: tuple[str, ...]
) -> Iterator[tuple[str, Section]]:
    """The sections that apply, of constants.toml and then of each file that was chosen, innermost first."""
    for root in chosen.tables(files):
        for path in _paths(chip, recipe, stack, defects):
            section: Any = root
            for name in path:
                section = section.get(name, {})
            yield ".".join(path), {key: value for key, value in section.items() if "." in key}


def sections_of(
    device: str,
    precision: str = "bf16",
    stack: str = "default",
    *,
    release: str | None = None,
    defects: Iterable[str] = (),
) -> tuple[str, ...]:
    """Names of the sections of constants.toml that apply, innermost first.

    >>> sections_of("h100", "fp8-rowwise", "nanotron")[:4]
    ('any', 'any.fp8-rowwise', 'device.h100', 'device.h100.fp8')
    """
    chip, recipe, name, applied = _key(device, precision, stack, release, defects)
    return tuple(".".join(path) for path in _paths(chip, recipe, catalogue.stack(name), applied))


def _paths(
    chip: str, recipe: str, stack: Stack, defects: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    gemm = entries.entry("precisions", recipe)["gemm"]
    words = catalogue.device_class(chip).split("-")
    lineage = ["-".join(words[: n + 1]) for n in range(len(words))]  # h100-500w is an h100 first
    family = [stack.name]
    while above := catalogue.stack(family[0]).like:
        family.insert(0, above)
    return (
        ("any",),
        ("any", recipe),
        *(("device", name) for name in lineage),
        *(("device", name, format) for name in lineage for format in dict.fromkeys((gemm, recipe))),
        *(path for name in family for path in _of_stack(name, lineage)),
        ("stack", stack.name, "chip", chip),
        *(("defect", defect) for defect in defects),
    )


def _of_stack(name: str, lineage: list[str]) -> list[tuple[str, ...]]:
    return [("stack", name), *(("stack", name, "device", device) for device in lineage)]
