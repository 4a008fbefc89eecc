"""All surfaces of the devices that tables hold, made and written: one file a device."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from mofa_lab.kernels import fit
from mofa_lab.kernels.tables import Calls, read
from mofa_model.errors import BadFile, UnknownName
from mofa_model.files import write_text
from mofa_model.kernels import Surface
from mofa_model.kernels.surface import Law
from mofa_model.presets import names
from mofa_model.presets.kernels import UNIT, Surfaces, sheet

FEWEST: Final = 8
"""Calls below which no surface is made of them."""


def calls_of(files: Iterable[str]) -> list[Calls]:
    """Calls of all tables, those of one operator in one form on one device together."""
    by_surface: dict[tuple[str, str, str], list[Calls]] = {}
    for file in files:
        for calls in read(file):
            if calls.device not in names("devices"):
                raise UnknownName(f"{file}: device", calls.device, names("devices"))
            by_surface.setdefault((calls.device, calls.operator, calls.form), []).append(calls)
    return [_together(parts) for parts in by_surface.values()]


def surfaces_of(
    calls: Sequence[Calls], source: str, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Surfaces]:
    """By device: for each operator and form, a fitted surface that gives its time by its sizes.
    `progress` is called with what was done.
    """
    devices: dict[str, dict[tuple[str, str], Surface]] = {}
    for group in calls:
        if len(group.seconds) >= FEWEST:
            surface = fit.surface(group, sheet(group.device, group.format), source)
            devices.setdefault(group.device, {})[group.operator, group.form] = surface
        progress(f"{group.device} {group.operator} {group.form}")
    return dict(devices)


def write(devices: dict[str, Surfaces], folder: str) -> list[str]:
    """Write a file a device; the result is their names."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(folder, f"cannot be a folder: {error.strerror}") from None
    written = []
    for device, surfaces in devices.items():
        written.append(str(Path(folder) / f"{device}.json"))
        write_text(written[-1], as_text(device, surfaces))
    return written


def as_text(device: str, surfaces: Surfaces) -> str:
    """The document of a device."""
    lines = [
        json.dumps(_plain(*name, surface), separators=(",", ":"))
        for name, surface in sorted(surfaces.items())
    ]
    return f'{{"device":{json.dumps(device)},"surfaces":[\n' + ",\n".join(lines) + "\n]}\n"


def _plain(operator: str, form: str, surface: Surface) -> dict[str, Any]:
    law = {
        name: value
        for name, value in asdict(surface.law).items()
        if value != getattr(Law(start=0.0), name)
    }
    return {
        "operator": operator,
        "form": form,
        "format": surface.format,
        "given": dict(surface.fixed_sizes),
        "rows": surface.rows,
        "source": surface.source,
        "law": law,
        "knots": surface.knots,
        "corrections": np.rint(np.ravel(surface.corrections) * UNIT).astype(int).tolist(),
    }


def _together(parts: Sequence[Calls]) -> Calls:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Calls(
        device=first.device, operator=first.operator, form=first.form, format=first.format,
        given=first.given,
        sizes={name: np.concatenate([part.sizes[name] for part in parts]) for name in first.sizes},
        seconds=np.concatenate([part.seconds for part in parts]),
        families=np.concatenate([part.families for part in parts]),
        ids=np.concatenate([part.ids for part in parts]),
    )  # fmt: skip
