"""Who waits for whom beyond the order of threads and streams: read where the trace says it,
inferred where not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

import numpy as np

from mofa_lab.traces.events import Array, EventKind, Events, Trace
from mofa_lab.traces.graph import EdgeList, Why
from mofa_lab.traces.host import LAUNCH, matching

COINCIDENT: Final = 25e-6
"""A kernel that starts this close to another's end, and for no other reason, waited for it. [s]"""
PAUSE: Final = 300e-6
"""A shorter pause of the host is taken as its own work. [s]"""
RESUMED: Final = 60e-6
"""The host goes on within this after the kernel that it waited for. [s]"""
_SLACK: Final = 3e-6


class Waits:
    """Waits of one rank; kernels by stream and start, calls by thread and start."""

    def __init__(self, trace: Trace, calls: Events, kernels: Events, launch: Array) -> None:
        self._trace, self._calls, self._kernels, self._launch = trace, calls, kernels, launch
        self.resumed: set[int] = set()
        """Calls whose thread waited for a kernel."""
        order = np.argsort(kernels.end, kind="stable")
        self._by_end, self._ends = order.tolist(), kernels.end[order].tolist()
        self._lane, self._start = kernels.lane.tolist(), kernels.start.tolist()
        # When the host launched each kernel; minus infinity where no call of the trace did.
        has_call = launch >= 0
        launched_at = np.full(len(kernels), -np.inf)
        launched_at[has_call] = calls.start[launch[has_call]]
        self._launched_at = launched_at.tolist()
        self._launched = self._by_launch()
        self._recorded = self._read()

    def _by_launch(self) -> dict[int, tuple[list[float], list[int]]]:
        """For each stream its kernels in the order of their launches, behind their moments."""
        launched: dict[int, tuple[list[float], list[int]]] = {}
        moments = np.array(self._launched_at)
        for lane in np.unique(self._kernels.lane).tolist():
            kernels = np.flatnonzero(self._kernels.lane == lane)
            kernels = kernels[np.argsort(moments[kernels], kind="stable")]
            launched[lane] = (moments[kernels].tolist(), kernels.tolist())
        return launched

    def _read(self) -> dict[int, list[int]]:
        """Waits between streams that the trace records: for each kernel those it waits for."""
        syncs = self._trace.of(EventKind.SYNC)
        if not len(syncs):
            return {}
        calls = self._trace.of(EventKind.CALL)
        by_id = dict(zip(calls.correlation.tolist(), calls.start.tolist(), strict=True))
        streams = {lane.name: i for i, lane in enumerate(self._trace.lanes) if lane.device}
        waits: dict[int, list[int]] = {}
        for correlation, detail in zip(
            syncs.correlation.tolist(), syncs.detail.tolist(), strict=True
        ):
            fields = self._trace.details[detail]
            stream = streams.get(str(fields.get("stream")))
            other_stream = streams.get(str(fields.get("wait_on_stream")))
            waited = by_id.get(correlation)
            recorded = by_id.get(fields.get("wait_on_cuda_event_record_corr_id", 0), waited)
            if stream is None or other_stream is None or waited is None or recorded is None:
                continue
            source = self._last_before(other_stream, recorded)
            target = self._first_after(stream, waited)
            if source >= 0 and target >= 0 and self._start[source] < self._start[target]:
                waits.setdefault(target, []).append(source)
        return waits

    def _last_before(self, lane: int, moment: float) -> int:
        moments, kernels = self._launched.get(lane, ([], []))
        position = bisect_right(moments, moment) - 1
        return kernels[position] if position >= 0 else -1

    def _first_after(self, lane: int, moment: float) -> int:
        moments, kernels = self._launched.get(lane, ([], []))
        position = bisect_left(moments, moment)
        return kernels[position] if position < len(kernels) else -1

    def recorded(self, kernel: int) -> list[int]:
        """Kernels that this one waits for, as the trace records."""
        return self._recorded.get(kernel, [])

    def inferred(self, kernel: int) -> int:
        """The kernel of another stream whose end is nearest to this one's start; -1 = none
        is near.
        """
        start, lane = self._start[kernel], self._lane[kernel]
        low, high = (
            bisect_left(self._ends, start - COINCIDENT),
            bisect_right(self._ends, start + COINCIDENT),
        )
        fitting = (
            (abs(self._ends[position] - start), other)
            for position in range(low, high)
            if (other := self._by_end[position]) != kernel
            and self._lane[other] != lane
            and self._start[other] < start
            and self._launched_at[other] <= self._launched_at[kernel]
        )
        return min(fitting, default=(0.0, -1))[1]

    def host(self, edges: EdgeList, duration: Array, n: int, waiting: Array, whole: Array) -> None:
        """Add edges for waits of the host: in a synchronising call, a blocking copy, or
        by polling.
        """
        calls = self._calls
        waits, wholly = waiting[calls.name], whole[calls.name]
        launches = matching(self._trace, LAUNCH)[calls.name]
        last = self._last_of_call()
        for i in range(len(calls)):
            start, end = float(calls.start[i]), float(calls.end[i])
            if waits[i]:
                sources = self._done_by(start, end, every=bool(wholly[i]))
                for source in sources:
                    edges.add(n + source, i, 0.0, Why.SYNC)
                reach = max([start, *(float(self._kernels.end[s]) for s in sources)])
                duration[i] = max(end - reach, 0.0)
                continue
            if launches[i] and i in last and end >= self._kernels.end[last[i]] - _SLACK:
                duration[i] = max(min(end, self._start[last[i]]) - start, 0.0)
                self._resume(edges, i, last[i], n)
        self._looking_on(edges, n)

    def _last_of_call(self) -> dict[int, int]:
        launched = np.flatnonzero(self._launch >= 0)
        return dict(zip(self._launch[launched].tolist(), launched.tolist(), strict=True))

    def _done_by(self, start: float, end: float, *, every: bool) -> list[int]:
        """Kernels that a waiting host call waited for: the last of every stream, or the last
        of all.
        """
        sources = []
        for lane in self._launched:
            source = self._last_before(lane, start)
            if source >= 0 and self._kernels.end[source] <= end + _SLACK:
                sources.append(source)
        if every or not sources:
            return sources
        latest = max(sources, key=lambda k: float(self._kernels.end[k]))
        return [latest] if self._kernels.end[latest] > start else []

    def _resume(self, edges: EdgeList, call: int, kernel: int, n: int) -> None:
        """Add an edge: the next call on the thread starts when a kernel ends."""
        after = call + 1
        if after < len(self._calls) and self._calls.lane[after] == self._calls.lane[call]:
            lag = float(self._calls.start[after] - self._kernels.end[kernel])
            edges.add(n + kernel, after, lag, Why.SYNC)
            edges.add(call, after, 0.0, Why.THREAD)
            self.resumed.add(after)

    def _other_thread(self, lane: int, until: float) -> bool:
        """True where another thread stopped just then: it is the likelier one to have been
        waited for.
        """
        calls = self._calls
        there = (calls.lane != lane) & (calls.end <= until) & (calls.end > until - PAUSE)
        return bool(np.any(there))

    def _looking_on(self, edges: EdgeList, n: int) -> None:
        """A pause that ends with, or while, the last kernel runs that was launched before it on
        some stream.

        The host read its result; a kernel that writes to host memory may be read before it ends.
        """
        calls = self._calls
        for i in range(1, len(calls)):
            if calls.lane[i] != calls.lane[i - 1] or i in self.resumed:
                continue
            since, until = float(calls.end[i - 1]), float(calls.start[i])
            if until - since < PAUSE:
                continue
            sources = [self._last_before(lane, since) for lane in self._launched]
            ends = [(float(self._kernels.end[k]), k) for k in sources if k >= 0]
            near = [
                (end, k)
                for end, k in ends
                if since < end < until + float(self._kernels.duration[k]) and until - end < RESUMED
            ]
            if near and not self._other_thread(int(calls.lane[i]), until):
                end, kernel = max(near)
                edges.add(n + kernel, i, until - end, Why.INFERRED_SYNC)
                edges.add(i - 1, i, 0.0, Why.THREAD)
                self.resumed.add(i)
