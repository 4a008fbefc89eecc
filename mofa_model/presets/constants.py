"""Measured constants of one device, precision and stack: layers of constants.toml over the
defaults.

The environment variable MOFA_CONSTANTS names further files, the way PATH names folders, so that
every verb, the operator and its worker processes agree. A file with `whole = true` (constants.toml
as `mofa fit` writes it) takes the place of the shipped one. The sections of any other (as `mofa
calibrate --from-runs` writes it) stand above the shipped sections of the same layers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from mofa_model.errors import BadFile, UnknownName
from mofa_model.files import from_toml
from mofa_model.kernels import MeasuredKernels
from mofa_model.presets import catalogue, entries, kernels
from mofa_model.records import dataclass
from mofa_model.spec import Calibration
from mofa_model.spec.calibration import LAWS

GROUPS: Final = ("compute", "host", "links", "overlap", "memory")
"""Fields of `Calibration` that hold constants; a path is one of these, a dot and the constant's
name."""

Section = Mapping[str, Mapping[str, Any]]
Paths = tuple[tuple[str, ...], ...]
"""Keys of sections of constants.toml."""


@dataclass(frozen=True, kw_only=True)
class Constant:
    """One constant that a preset sets, with where it comes from."""

    path: str
    """For example compute.gemm_efficiency."""
    value: float
    """What it is after every layer."""
    scatter: float
    """Standard deviation of its logarithm when a source is left out, of the last layer that states
    it; 0 = not stated."""
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
    paths, files = _paths(device, precision, stack, release, defects), constant_files()
    measured = kernels.measured(device, precision, _overridden_laws(paths, files))
    return _calibration(entries.resolve("stacks", stack), paths, files, measured)


def constants_of(
    device: str,
    precision: str = "bf16",
    stack: str = "default",
    *,
    release: str | None = None,
    defects: Iterable[str] = (),
) -> Mapping[str, Constant]:
    """The constants that presets set, by path, with scatter and source; every other one has its
    default.

    >>> "compute.gemm_efficiency" in constants_of("h100", "fp8-rowwise")
    True
    """
    return _constants(_paths(device, precision, stack, release, defects), constant_files())


@cache
def _calibration(
    stack: str, paths: Paths, files: tuple[str, ...], measured: MeasuredKernels | None
) -> Calibration:
    """The constants of the sections that apply, as a `Calibration`."""
    defaults = catalogue.stack(stack)
    default_calibration = Calibration(
        stack=stack,
        placement=defaults.placement,
        tensor_overlap=defaults.tensor_overlap,
        kernels=measured,
    )
    changes: dict[str, dict[str, float]] = {}
    for path, constant in _constants(paths, files).items():
        group, name = path.split(".")
        changes.setdefault(group, {})[name] = constant.value
    groups: dict[str, Any] = {
        group: replace(getattr(default_calibration, group), **values)
        for group, values in changes.items()
    }
    return replace(default_calibration, **groups)


@cache
def _constants(paths: Paths, files: tuple[str, ...]) -> Mapping[str, Constant]:
    """What some sections set, one over the other: a later value replaces, a factor multiplies."""
    default_values = defaults()
    constants: dict[str, Constant] = {}
    for where, section in _layers(paths, files):
        for path, setting in section.items():
            if path not in default_values:
                files_named = " or ".join(files) or "constants.toml"
                raise BadFile(files_named, f"[{where}] {path} is not a constant of Calibration")
            below = constants.get(path)
            value_below = default_values[path] if below is None else below.value
            value = setting["value"] if "value" in setting else value_below * setting["factor"]
            files_named = below.source + "; " if below is not None and "factor" in setting else ""
            scatter = setting.get("scatter", 0.0)
            constants[path] = Constant(
                path=path,
                value=float(value),
                scatter=scatter,
                source=f"{files_named}{where}: {setting['source']}",
            )
    return MappingProxyType(constants)


@cache
def _overridden_laws(paths: Paths, files: tuple[str, ...]) -> frozenset[str]:
    """Operators whose law a stack, defect or user's file states, instead of measured kernels."""
    operators = set()
    for where, section in _layers(paths, files):
        if where.partition(".")[0] in {"stack", "defect"}:
            operators |= {
                LAWS[path] for path, entry in section.items() if path in LAWS and "value" in entry
            }
    return frozenset(operators)


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


def _layers(paths: Paths, files: tuple[str, ...]) -> Iterator[tuple[str, Section]]:
    """The sections that apply, of constants.toml and then of each file that was chosen, innermost
    first.
    """
    for root in constant_tables(files):
        for path in paths:
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
    return tuple(".".join(path) for path in _paths(device, precision, stack, release, defects))


def _paths(
    device: str, precision: str, stack: str, release: str | None, defects: Iterable[str]
) -> Paths:
    """The sections of constants.toml that apply, innermost first. All constants depend on these."""
    chip, habits = entries.resolve("devices", device), catalogue.stack(stack)
    named = tuple(defects)
    for defect in named:
        if defect not in habits.defects:
            raise UnknownName("defects", defect, habits.defects)
    applied = (*habits.defects_of(release, catalogue.device_class(chip)), *named)
    recipe = entries.resolve("precisions", precision)
    gemm = entries.entry("precisions", recipe)["gemm"]
    words = catalogue.device_class(chip).split("-")
    lineage = ["-".join(words[: n + 1]) for n in range(len(words))]  # h100-500w is an h100 first
    family = [habits.name]
    while above := catalogue.stack(family[0]).like:
        family.insert(0, above)
    return (
        ("any",),
        ("any", recipe),
        *(("device", name) for name in lineage),
        *(("device", name, format) for name in lineage for format in dict.fromkeys((gemm, recipe))),
        *(path for name in family for path in _of_stack(name, lineage)),
        ("stack", habits.name, "chip", chip),
        *(("defect", defect) for defect in dict.fromkeys(applied)),
    )


def _of_stack(name: str, lineage: list[str]) -> list[tuple[str, ...]]:
    return [("stack", name), *(("stack", name, "device", device) for device in lineage)]


VARIABLE: Final = "MOFA_CONSTANTS"
"""The environment variable."""

LARGEST: Final = 2**20
"""A file of constants beyond this is refused unread. [B]"""


def constant_files() -> tuple[str, ...]:
    """The files that hold beside the shipped constants, lowest first."""
    return tuple(name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name)


def constant_tables(names: tuple[str, ...]) -> tuple[Mapping[str, Any], ...]:
    """The constants that hold, lowest first: the shipped ones, and what the files say."""
    tables: list[Mapping[str, Any]] = [entries.table("constants")]
    for name in names:
        own = read_constants(name)
        tables = [own] if own.get("whole") else [*tables, own]
    return tuple(tables)


@cache
def read_constants(name: str) -> Mapping[str, Any]:
    """The constants in one file that MOFA_CONSTANTS names, checked."""
    from pathlib import Path

    try:
        with Path(name).open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise BadFile(name, f"cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise BadFile(name, f"larger than {LARGEST} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadFile(name, f"is not a file of constants: {error}") from None
    table = from_toml(text, name)
    _check(name, table, "")
    return MappingProxyType(table)


def _check(name: str, table: Mapping[str, Any], where: str) -> None:
    """Refuse a constant that is not `{value = 1.0, source = "…"}` or `{factor = 1.0, source =
    "…"}`.
    """
    for key, constant in table.items():
        inside = f"{where}.{key}" if where else key
        if "." not in key or where == "defect":
            if isinstance(constant, Mapping):
                _check(name, constant, inside)
            continue
        kinds = {"value", "factor"} & set(constant) if isinstance(constant, Mapping) else set()
        number = constant[kinds.pop()] if len(kinds) == 1 else None
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not 0 <= number < math.inf
        ):
            raise BadFile(
                name, f'[{where}] "{key}" must have a value or a factor: a number of zero or more'
            )
        if not isinstance(constant.get("source"), str):
            raise BadFile(
                name, f'[{where}] "{key}" must have a source: text that says where it is from'
            )
