"""One measured run: what was trained, where and how, what was measured, and which constants it asks for.

Constants do not belong to a case: it only names, by a `CalibrationKey`, which ones it asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mofa_model import presets
from mofa_model.spec import Calibration, Cluster, Workload
from mofa_model.strategy import Strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationKey:
    """Which constants a case asks for; nothing here names a model, degrees of a layout or a cluster."""

    device: str
    """Device preset id."""
    precision: str
    """Precision recipe id."""
    stack: str
    """Software stack id."""
    release: str = ""
    """Container release, or the year."""
    defects: frozenset[str] = frozenset()
    """Known defects and variants of the stack that apply."""
    placement: str = ""
    """Where layers lie, where the run says so; empty = as the stack does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredFigure:
    """One measured figure."""

    quantity: str
    """step_time_s, memory_gib, memory_static_gib, layer_forward_s, layer_backward_s or activation_ratio."""
    value: float
    """SI: seconds, bytes or a ratio, whatever the quantity is called."""
    basis: str = ""
    """What it was made from: the field it was converted from, the rank of a memory figure, the variant of a ratio."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One run: what was trained, where, how, and what was measured."""

    id: str
    """Name of the case in its file."""
    kind: str
    """What kind of run: pretrain, sweep, layer, activation-memory-ratio."""
    source: str
    """Where the figures are from."""
    publisher: str
    """Who ran it."""
    gpu: str
    """Accelerator, in the words of the file."""
    group: str
    """Runs that compete with each other; empty where there is no such group."""
    workload: Workload
    """Model and training."""
    cluster: Cluster
    """Machines, with default constants: see `key`."""
    strategy: Strategy
    """Layout and features."""
    key: CalibrationKey
    """Constants that it asks for."""
    measured: tuple[MeasuredFigure, ...]
    """Measured figures, in SI units."""
    out_of_memory: bool = False
    """True where the run did not fit."""
    composed: bool = False
    """True where a step time was composed from profiled layer times, so that neighbours are not independent."""


def shipped(key: CalibrationKey) -> Calibration:
    """The constants of the presets."""
    found = presets.calibration(
        key.device, key.precision, key.stack, release=key.release or None, defects=key.defects
    )
    return replace(found, placement=key.placement) if key.placement else found
