"""What a trace holds, as columns: one row an event, forty bytes each, names said once.

Kineto's categories are kept as `EventKind`; ROCm writes the same ones, with hip names. An event
that says nothing about time (process names, counters, Python frames) is dropped while reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class EventKind(IntEnum):
    """What an event of a profiler's trace records."""

    KERNEL = 0
    COPY = 1
    CALL = 2  # of the runtime or driver, on a host thread
    OPERATOR = 3
    MARK = 4  # an annotation on a host thread
    SYNC = 5  # a wait between streams, or of the host, as newer profilers write it
    LINK_FROM = 6  # one end of an arrow from forward to backward, or from a call to its kernel
    LINK_TO = 7


DEVICE: Final = (EventKind.KERNEL, EventKind.COPY)
"""What runs on a stream."""


@dataclass(frozen=True, slots=True)
class Events:
    """Rows in the order of the file; arrays of equal length."""

    kind: Array
    """`EventKind`."""
    name: Array
    """Place in `Trace.names`."""
    lane: Array
    """Place in `Trace.lanes`: a stream or a host thread."""
    start: Array
    """Since the first event of the trace. [s]"""
    duration: Array
    """From start to end. [s]"""
    correlation: Array
    """Joins a call and what it launched; 0 = not said. Of an operator: its sequence number and one,
    negative in backward.
    """
    operator: Array
    """External id: joins an operator and its kernels; 0 = not said."""
    detail: Array
    """Place in `Trace.details`; 0 = nothing more is known."""

    def __len__(self) -> int:
        """Rows."""
        return len(self.kind)

    @property
    def end(self) -> Array:
        """When each event ends. [s]"""
        ends: Array = self.start + self.duration
        return ends

    def rows(self, index: Any) -> Events:
        """The rows that an index or a mask selects."""
        return Events(*(getattr(self, name)[index] for name in self.__slots__))


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """Where events follow each other: a stream of a device or a thread of the host."""

    device: bool
    """True for a stream."""
    process: str
    """Process or device id."""
    name: str
    """Thread id or stream number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """One file: one rank."""

    path: str
    """The file."""
    rank: int
    """Rank that it says it is from; 0 where it says nothing."""
    world: int
    """Ranks of the job; 0 = not said."""
    gpu: str
    """Name of the device; empty = not said."""
    epoch: float
    """Clock at the first event. [s]"""
    names: tuple[str, ...]
    """Names of events."""
    lanes: tuple[Lane, ...]
    """Streams and threads."""
    details: tuple[Mapping[str, Any], ...]
    """What else some events say."""
    events: Events
    """All events, by start."""
    dropped: int = 0
    """Events without a usable time. [1]"""
    bytes: int = 0
    """JSON text that was read. [B]"""

    def of(self, *kinds: EventKind) -> Events:
        """The events of some kinds."""
        return self.events.rows(np.isin(self.events.kind, kinds))

    @property
    def on_device(self) -> Events:
        """Kernels and copies."""
        return self.of(*DEVICE)

    @property
    def host_only(self) -> bool:
        """True where no device did anything: a trace of the CPU alone."""
        return not bool(np.any(self.events.kind <= EventKind.COPY))
