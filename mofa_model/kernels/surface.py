"""A surface: seconds of one operator in one form on a device, as a law and a small table of
corrections over it.

The law has a start, and shares of the peak, of the memory bandwidth and of the link. The table has
the factor by which kernels depart from the law, at knots. Between knots its logarithm is linear in
the logarithms of the sizes; beyond the outer knots it stays constant. No time is below that of the
peak.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mofa_model.records import dataclass
from mofa_model.units import Bytes, BytesPerSecond, Flop, FlopPerSecond, Numeric, Seconds

Floats = NDArray[np.float64]
Places = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class CallWork:
    """Work of calls of an operator; numbers or arrays of one shape."""

    axis_values: tuple[Numeric, ...]
    """Place in the table, one positive number an axis; time grows with each."""
    flops: Flop = 0.0
    """Floating-point operations of the matrix units. [FLOP]"""
    memory_bytes: Bytes = 0.0
    """Read from and written to device memory. [B]"""
    link_bytes: Bytes = 0.0
    """The least that a device sends over its link. [B]"""
    steps: Numeric = 0.0
    """Messages that wait for each other, as around a ring."""
    output_elements: Numeric = 1.0
    """Elements of the output, which run side by side: too few leave units idle."""
    padding: Numeric = 1.0
    """Rows of whole tiles over rows, at least 1."""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Rates of a data sheet. A law reaches shares of them."""

    peak: FlopPerSecond
    """Of the matrix units in the operator's format. [FLOP/s]"""
    memory: BytesPerSecond
    """Bandwidth of device memory. [B/s]"""
    link: BytesPerSecond
    """Bandwidth of the scale-up link, one direction. [B/s]"""


@dataclass(frozen=True, kw_only=True)
class Law:
    """A start, and the larger of three times, rounded where two are alike."""

    start: Seconds
    """Of a call that does nothing. [s]"""
    step: Seconds = 0.0
    """Of a message that waits for the one before it. [s]"""
    matrix: float = 1.0
    """Share of the peak that a large call reaches."""
    memory: float = 1.0
    """Share of the memory bandwidth; above 1 where operands lie in the cache."""
    link: float = 1.0
    """Share of the link."""
    halves: tuple[float, ...] = ()
    """For the first axes, with which operations grow in step, where half of the speed is lost."""
    width: float = 1.0
    """Elements of the output that fill the device once."""
    edge: float = 0.0
    """Share of the logarithm of the padding that is paid."""
    sharpness: float = 2.0
    """Exponent of the rounding: 1 adds, many take the larger."""

    def seconds(self, calls: CallWork, sheet: Sheet) -> Seconds:
        """Time of the calls without corrections. [s]

        >>> sheet = Sheet(peak=1e15, memory=3e12, link=4e11)
        >>> work = CallWork(axis_values=(), flops=1e12, output_elements=1e9)
        >>> round(float(Law(start=1e-6, matrix=0.5).seconds(work, sheet)), 6)
        0.002001
        """
        p = self.sharpness
        paid = np.power(calls.padding, self.edge)
        lost: Numeric = paid
        scale: Numeric = paid  # padding is of the first axis
        for axis, half in zip(calls.axis_values, self.halves, strict=False):
            lost, scale = lost * (1.0 + half / (scale * axis)), 1.0
        full = np.power(1.0 + np.power(self.width / (lost * calls.output_elements), p), 1.0 / p)
        times = (
            calls.flops * lost * full / (sheet.peak * self.matrix),
            calls.memory_bytes / (sheet.memory * self.memory),
            calls.link_bytes / (sheet.link * self.link),
        )
        waited = self.start + self.step * calls.steps
        return waited + np.power(sum(np.power(time, p) for time in times), 1.0 / p)


@dataclass(frozen=True, kw_only=True)
class Surface:
    """A law, the table over it, and where both come from."""

    law: Law
    """Time without corrections."""
    knots: tuple[tuple[float, ...], ...]
    """Places of the table along each axis of `CallWork.axis_values`, ascending, two or more."""
    corrections: Floats
    """Binary logarithm of measured over law at the knots."""
    format: str
    """Format of the matrix units: bf16, fp8 or fp4."""
    fixed_sizes: Mapping[str, float]
    """Sizes that all its calls share."""
    rows: int
    """Measured calls that it was fitted to."""
    source: str
    """Where they were measured."""

    def seconds(self, calls: CallWork, sheet: Sheet) -> Seconds:
        """Time of the calls. [s]"""
        places = self.places(calls)
        lowest = self.lowest_corner(places)
        base = np.ravel_multi_index(lowest, self.corrections.shape)
        near = self._flat[np.add.outer(self.offsets, base)]
        for place, low in zip(reversed(places), reversed(lowest), strict=True):
            below = near[::2]
            near = (near[1::2] - below) * (place - low) + below
        least = np.maximum(
            np.divide(calls.flops, sheet.peak), np.divide(calls.link_bytes, sheet.link)
        )
        time: Seconds = np.maximum(self.law.seconds(calls, sheet) * np.exp2(near[0]), least)
        return time

    def places(self, calls: CallWork) -> list[Floats]:
        """Place of each call along every axis of the table, counted in knots from the first."""
        return [
            np.asarray(np.interp(np.log2(np.asarray(axis, dtype=float)), logs, steps))
            for axis, logs, steps in zip(calls.axis_values, self._logs, self._steps, strict=True)
        ]

    def lowest_corner(self, places: list[Floats]) -> tuple[Places, ...]:
        """The knots below each place, of the cell of the table in which it lies."""
        return tuple(
            np.minimum(place.astype(np.intp), len(axis) - 2)
            for place, axis in zip(places, self.knots, strict=True)
        )

    @cached_property
    def _logs(self) -> tuple[Floats, ...]:
        return tuple(np.log2(np.asarray(axis)) for axis in self.knots)

    @cached_property
    def _steps(self) -> tuple[Floats, ...]:
        return tuple(np.arange(float(len(axis))) for axis in self.knots)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Places of the corners of a cell, after its lowest; the last axis turns first."""
        places: tuple[int, ...] = (0,)
        for axis in self.knots:
            places = tuple(place * len(axis) + step for place in places for step in (0, 1))
        return places

    @cached_property
    def _flat(self) -> Floats:
        return np.ravel(self.corrections)


@dataclass(frozen=True, kw_only=True)
class Timer:
    """An operator in one form on a device: found once, then asked for many sizes."""

    work: Callable[..., CallWork]
    """Work of calls of given sizes."""
    surface: Surface
    sheet: Sheet

    def seconds(self, **sizes: Numeric) -> Seconds:
        """Time of calls of these sizes, numbers or arrays of one shape. [s]"""
        return self.surface.seconds(self.work(**self.surface.fixed_sizes, **sizes), self.sheet)

    @property
    def digest(self) -> str:
        """Checksum of all that its times depend on. It is part of the inputs hash."""
        text = repr((self.surface.law, self.surface.knots, self.sheet)).encode()
        return f"{zlib.crc32(self.surface.corrections.tobytes(), zlib.crc32(text)):08x}"
