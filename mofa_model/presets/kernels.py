"""The surfaces of a device: its own, a relative's below them, and files of the user's above.

Shipped surfaces are `mofa_model/kernels/measured/DEVICE.json`. `kernels` of a device's entry names
the relative whose surfaces hold, scaled by both data sheets, where the device was not measured
itself. The environment variable MOFA_KERNELS names folders, the way PATH names them, whose files of
the same names stand above.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final

import numpy as np

from mofa_model import parsed
from mofa_model.errors import BadFile, UnknownName
from mofa_model.files import read_text
from mofa_model.kernels import (
    OPERATORS,
    MeasuredAttention,
    MeasuredGather,
    MeasuredKernels,
    MeasuredProducts,
    Sheet,
    Surface,
    Timer,
    operators,
)
from mofa_model.kernels.operators import LATENT
from mofa_model.kernels.surface import Law
from mofa_model.presets import catalogue, entries
from mofa_model.records import dataclass

Surfaces = Mapping[tuple[str, str], Surface]
"""Surfaces by operator and form."""

UNIT: Final = 1000.0
"""Steps of a correction in an octave: 0.07 %."""
VARIABLE: Final = "MOFA_KERNELS"
"""The environment variable."""
_NCCL: Final = r"nccl \d+(\.\d+)*"
_HEADS: Final = frozenset({"bf16 64", "bf16 128", "bf16 256"})
"""Forms of attention that trainers have too: keys as wide as values, in bf16."""


@dataclass(frozen=True, kw_only=True)
class DeviceKernels:
    """What was measured of a device's kernels, or of its relative's."""

    device: str
    """Preset id."""
    surfaces: Surfaces
    """Surfaces by operator and form."""
    measured: Mapping[tuple[str, str], str]
    """Device that each was measured on."""

    def timer(self, operator: str, form: str) -> Timer:
        """Times of an operator in a form.

        >>> timer = kernels("h200").timer("gemm", "bf16")
        >>> 0.1e-3 < float(timer.seconds(m=4096, n=4096, k=4096)) < 0.3e-3
        True
        """
        if operator not in OPERATORS:
            raise UnknownName("operator", operator, tuple(OPERATORS))
        forms = tuple(name for kind, name in self.surfaces if kind == operator)
        if form not in forms:
            raise UnknownName(f"{self.device}: form of {operator}", form, forms)
        surface = self.surfaces[operator, form]
        return Timer(
            work=OPERATORS[operator].work, surface=surface, sheet=sheet(self.device, surface.format)
        )


def kernels(device: str) -> DeviceKernels:
    """The surfaces that hold for a device."""
    return _kernels(entries.resolve("devices", device), _folders())


_CAST: Final = {"bf16": 0.0, "fp8-tensorwise": 5.0}
"""Bytes that bringing an element of the rows into a form moves: read and written, with a look for
the largest where scales are of the tensor itself; other narrow forms 3. [B]"""


def measured(
    device: str, recipe: str, laws: frozenset[str] = frozenset()
) -> MeasuredKernels | None:
    """What an estimate asks of a device's kernels in a recipe, `laws` naming operators that are
    priced otherwise.

    None where they were not measured.

    >>> measured("mi300x", "bf16") is None, measured("h200", "bf16") is measured("h200", "bf16")
    (True, True)
    """
    chip, form = entries.resolve("devices", device), entries.resolve("precisions", recipe)
    return _measured(chip, form, laws, _folders())


@entries.rereads_devices
@cache
def _measured(
    device: str, recipe: str, laws: frozenset[str], folders: tuple[str, ...]
) -> MeasuredKernels | None:
    held = _kernels(device, folders)
    wanted = entries.entry("precisions", recipe).get("kernels", ())
    form = next((form for form in wanted if ("gemm", form) in held.surfaces), None)
    if form is None or ("gemm", "bf16") not in held.surfaces:
        return None
    attention, windows = (
        {
            2.0 * held.surfaces[operator, name].fixed_sizes["head_dim"]: held.timer(operator, name)
            for operator, name in held.surfaces
            if operator == kind and name in _HEADS
        }
        for kind in ("causal-attention", "window-attention")
    )
    if ("latent-attention", "bf16") in held.surfaces:
        attention[sum(LATENT)] = held.timer("latent-attention", "bf16")
    product = MeasuredProducts(
        held.timer("gemm", form), held.timer("gemm", "bf16"), cast=_CAST.get(form, 3.0)
    )
    return MeasuredKernels(
        product=None if "product" in laws else product,
        attention=None
        if "attention" in laws or not attention
        else MeasuredAttention(attention, windows),
        gather=None if "gather" in laws else _gather(held),
    )


def _gather(held: DeviceKernels) -> MeasuredGather | None:
    """Measured all-gathers of a device, by the newest NCCL that was measured; None without any."""
    forms = [
        name
        for operator, name in held.surfaces
        if operator == "all-gather" and re.fullmatch(_NCCL, name)
    ]
    newest = max(
        forms, key=lambda form: [int(part) for part in re.findall(r"\d+", form)], default=None
    )
    return None if newest is None else MeasuredGather(held.timer("all-gather", newest))


def relative(device: str) -> str | None:
    """The device whose measured kernels hold for one where its own were not measured; None without
    any.

    >>> relative("h200"), relative("a100")
    ('h100-80gb-sxm', None)
    """
    return entries.entry("devices", device).get("kernels")


@entries.rereads_devices
@cache
def sheet(device: str, format: str) -> Sheet:
    """What a device's data sheet promises in a format."""
    data_sheet = catalogue.device(device)
    peak = {"fp8": data_sheet.peak_fp8, "fp4": data_sheet.peak_fp4}.get(
        format
    ) or data_sheet.peak_bf16
    link = catalogue.fabric(entries.entry("devices", device)["scale_up"])
    return Sheet(
        peak=float(peak), memory=float(data_sheet.memory_bandwidth), link=float(link.bandwidth)
    )


def _folders() -> tuple[str, ...]:
    return tuple(name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name)


@entries.rereads_devices
@cache
def _kernels(device: str, folders: tuple[str, ...]) -> DeviceKernels:
    surfaces: dict[tuple[str, str], Any] = {}
    measured: dict[tuple[str, str], str] = {}
    for source in filter(None, (relative(device), device)):
        for layer in (_shipped(source), *(_own(folder, source) for folder in folders)):
            surfaces |= layer
            measured |= dict.fromkeys(layer, source)
    return DeviceKernels(device=device, surfaces=_Surfaces(surfaces), measured=measured)


@cache
def _shipped(device: str) -> Mapping[tuple[str, str], Callable[[], Surface]]:
    """What makes the surfaces that are shipped; nothing of a device that was not measured."""
    path = parsed.beside(operators.__file__, "measured", f"{device}.json")
    try:
        document = parsed.parsed(path, json.loads)
    except FileNotFoundError:
        return {}
    return {
        (surface["operator"], surface["form"]): cache(partial(_surface, surface))
        for surface in document["surfaces"]
    }


class _Surfaces(Mapping[tuple[str, str], Surface]):
    """Surfaces by operator and form. Those that are shipped are made at their first use: an answer
    needs ten of eighty.
    """

    def __init__(self, surfaces: Mapping[tuple[str, str], Surface | Callable[[], Surface]]) -> None:
        self._surfaces = surfaces

    def __getitem__(self, key: tuple[str, str]) -> Surface:
        surface = self._surfaces[key]
        return surface if isinstance(surface, Surface) else surface()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._surfaces)

    def __len__(self) -> int:
        return len(self._surfaces)


def _own(name: str, device: str) -> Surfaces:
    from pathlib import Path

    folder = Path(name)
    if not folder.is_dir():
        raise BadFile(
            folder,
            f"is not a folder; {VARIABLE} names folders that `mofa calibrate kernels --to` wrote",
        )
    file = folder / f"{device}.json"
    if not file.exists():
        return {}
    return from_text(read_text(file, largest=2**26), str(file), device)


def from_text(text: str, file: str, device: str) -> Surfaces:
    """Surfaces of a device's document; `file` is what an error calls it."""
    try:
        document = json.loads(text)
        surfaces = {
            (surface["operator"], surface["form"]): _surface(surface)
            for surface in document["surfaces"]
        }
        named = str(document["device"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadFile(
            file, f"is not a file that `mofa calibrate kernels` wrote: {error!r}"
        ) from None
    for operator, _ in surfaces:
        if operator not in OPERATORS:
            raise BadFile(file, f"has an operator {operator!r}: one of {', '.join(OPERATORS)}")
    if named != device:
        raise BadFile(file, f"holds surfaces of {named}; give {named}.json that name")
    return surfaces


def _surface(plain: Mapping[str, Any]) -> Surface:
    knots = tuple(tuple(float(place) for place in axis) for axis in plain["knots"])
    law: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else float(value)
        for name, value in plain["law"].items()
    }
    if any(len(axis) < 2 or min(axis) <= 0.0 or sorted(set(axis)) != list(axis) for axis in knots):
        raise ValueError("knots must be two or more ascending numbers above zero")
    corrections = np.asarray(plain["corrections"], dtype=float) / UNIT
    if not np.all(np.isfinite(corrections)):
        raise ValueError("corrections must be finite")
    return Surface(
        law=Law(**law),
        knots=knots,
        corrections=corrections.reshape([len(axis) for axis in knots]),
        format=str(plain["format"]),
        fixed_sizes={str(name): float(value) for name, value in plain["given"].items()},
        rows=int(plain["rows"]),
        source=str(plain["source"]),
    )
