"""From JSON events to columns: the one loop that runs once an event."""

from __future__ import annotations

import gc
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from mofa_lab.traces.events import EventKind, Events, Lane, Trace
from mofa_lab.traces.reader import Document, batches
from mofa_model.errors import BadFile

_LARGEST: Final = 0x7FFFFFFFFFFFFFFF
"""What a column of ids holds."""
_LATEST: Final = 1e18
"""No clock is beyond this. [us]"""
_KINDS: Final[Mapping[str, int]] = {
    "kernel": EventKind.KERNEL,
    "gpu_memcpy": EventKind.COPY,
    "gpu_memset": EventKind.COPY,
    "cuda_runtime": EventKind.CALL,
    "cuda_driver": EventKind.CALL,
    "hip_runtime": EventKind.CALL,
    "hip_driver": EventKind.CALL,
    "privateuse1_runtime": EventKind.CALL,
    "privateuse1_driver": EventKind.CALL,
    "cpu_op": EventKind.OPERATOR,
    "Operator": EventKind.OPERATOR,
    "user_annotation": EventKind.MARK,
    "cuda_sync": EventKind.SYNC,
    "Kernel": EventKind.KERNEL,
    "Memcpy": EventKind.COPY,
    "Memset": EventKind.COPY,
    "Runtime": EventKind.CALL,
}
_DETAILS: Final = (
    "Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype",
    "Process Group Name", "Process Group Ranks", "Seq", "Src Rank", "Dst Rank", "bytes",
    "Input Dims", "Input type", "grid",
    "wait_on_stream", "wait_on_cuda_event_record_corr_id", "stream", "device",
)  # fmt: skip
_COMMUNICATION: Final = ("Collective name", "bytes")
"""A kernel or copy with one of these keeps what it says of itself; any other needs only
its name.
"""


def load(path: Path | str) -> Trace:
    """Read one file."""
    document = Document(str(path))
    columns = _Columns()
    collecting = gc.isenabled()
    gc.disable()  # a batch is a tree without cycles: looking for some takes longer than reading it
    try:
        for batch in batches(document):
            columns.take(batch)
    finally:
        if collecting:
            gc.enable()
    return columns.trace(document)


@dataclass(slots=True)
class _Columns:
    """Rows while they come in; clocks in microseconds, as the files have them."""

    kind: array[int] = field(default_factory=lambda: array("b"))
    name: array[int] = field(default_factory=lambda: array("i"))
    lane: array[int] = field(default_factory=lambda: array("i"))
    start: array[float] = field(default_factory=lambda: array("d"))
    duration: array[float] = field(default_factory=lambda: array("d"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    operator: array[int] = field(default_factory=lambda: array("q"))
    detail: array[int] = field(default_factory=lambda: array("i"))
    names: dict[str, int] = field(default_factory=dict)
    lanes: dict[tuple[bool, str, str], int] = field(default_factory=dict)
    details: list[Mapping[str, Any]] = field(default_factory=lambda: [{}])
    shared: dict[str, int] = field(default_factory=dict)
    dropped: int = 0
    correlated: bool = False

    def take(self, batch: list[Any]) -> None:
        """Rows of one batch; every look-up is a local one, because this runs once an event."""
        kinds, names, keep = _KINDS, self.names, self._keep
        places: dict[tuple[Any, Any, bool], int] = {}
        for event in batch:
            try:
                phase = event["ph"]
                if phase == "X":
                    kind = kinds.get(event["cat"], -1)
                    if kind < 0:
                        continue
                    duration = event["dur"]
                elif phase == "s" or phase == "f":  # noqa: PLR1714 (twice as fast as a set)
                    if event["cat"] != "fwdbwd" and (self.correlated or event["cat"] != "ac2g"):
                        continue
                    kind, duration = (6 if phase == "s" else 7), 0.0
                else:
                    continue
                start, name = event["ts"], event["name"]
                fields = event.get("args") or {}
                place = names.get(name)
                if place is None:
                    place = names[str(name)] = len(names)
                lane = (event["pid"], event["tid"], kind <= 1)
                where = places.get(lane)
                if where is None:
                    where = places[lane] = self._lane(lane, fields)
                row = (float(start), float(duration))
                if kind == 3:
                    correlation = _sequence(fields)
                else:
                    correlation = int(event["id"] if kind >= 6 else fields.get("correlation") or 0)
                operator = int(fields.get("External id") or fields.get("external id") or 0)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                self.dropped += 1
                continue
            self.start.append(row[0])
            self.duration.append(row[1])
            self.kind.append(kind)
            self.name.append(place)
            self.lane.append(where)
            if kind == 0 and correlation:
                self.correlated = True
            self.correlation.append(correlation if kind == 3 else correlation & _LARGEST)
            self.operator.append(operator & _LARGEST)
            self.detail.append(keep(kind, fields) if kind != 2 else 0)

    def _lane(self, lane: tuple[Any, Any, bool], fields: Mapping[str, Any]) -> int:
        process, thread, device = lane
        stream = fields.get("stream", thread) if device else thread
        key = (device, str(fields.get("device", process)) if device else str(process), str(stream))
        return self.lanes.setdefault(key, len(self.lanes))

    def _keep(self, kind: int, fields: Mapping[str, Any]) -> int:
        """The number under which details of an event are kept, equal ones once; 0 where nothing
        is kept.
        """
        if not fields or (kind <= 1 and not any(key in fields for key in _COMMUNICATION)):
            return 0
        kept = {key: fields[key] for key in _DETAILS if key in fields}
        if not kept:
            return 0
        text = repr(kept)
        place = self.shared.get(text)
        if place is None:
            place = self.shared[text] = len(self.details)
            self.details.append(kept)
        return place

    def trace(self, document: Document) -> Trace:
        """All rows by start, clocks in seconds since the first of them."""
        start, duration = np.frombuffer(self.start or b""), np.frombuffer(self.duration or b"")
        sound = (np.abs(start) < _LATEST) & (duration >= 0) & (duration < _LATEST)
        if not np.any(sound):
            raise BadFile(document.path, _nothing(document))
        first = float(start[sound].min())
        order = np.flatnonzero(sound)[np.argsort(start[sound], kind="stable")]
        distributed = document.head.get("distributedInfo")
        about: Mapping[str, Any] = distributed if isinstance(distributed, dict) else {}
        return Trace(
            path=document.path,
            rank=_whole(about.get("rank")),
            world=_whole(about.get("world_size")),
            gpu=_gpu(document.head),
            epoch=(first + _base(document.head)) * 1e-6,
            names=tuple(self.names),
            lanes=tuple(Lane(device=d, process=p, name=n) for d, p, n in self.lanes),
            details=tuple(self.details),
            events=Events(
                np.asarray(self.kind)[order],
                np.asarray(self.name)[order],
                np.asarray(self.lane)[order],
                (start[order] - first) * 1e-6,
                duration[order] * 1e-6,
                np.asarray(self.correlation)[order],
                np.asarray(self.operator)[order],
                np.asarray(self.detail)[order],
            ),
            dropped=self.dropped + int(np.count_nonzero(~sound)),
            bytes=document.bytes,
        )


def _sequence(fields: Mapping[str, Any]) -> int:
    number = fields.get("Sequence number")
    if number is None:
        return 0
    place = (int(number) + 1) & 0x7FFFFFFF
    return -place if fields.get("Fwd thread id") else place


def _nothing(document: Document) -> str:
    if document.events == 0:
        return "holds no event: the profiler was stopped before it recorded anything"
    return (
        f"is not a profiler trace: none of its {document.events} events is a kernel, an operator "
        "or a call"
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _base(head: Mapping[str, Any]) -> float:
    """The moment that newer profilers subtract from all times of a file. [us]"""
    value = head.get("baseTimeNanoseconds")
    return float(value) / 1e3 if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _gpu(head: Mapping[str, Any]) -> str:
    devices = head.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else None
    return str(first.get("name", "")) if isinstance(first, dict) else ""
