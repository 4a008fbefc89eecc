"""A machine that trains a transformer and writes what a profiler would: events on a clock, no code
of `mofa_model`.

Hosts, streams and collectives are processes on one heap of events. A host launches kernels one by
one; a stream runs them in order; a collective ends on all members once the last has come. The step
time is what the clock says.

    world = World(Setup(tp=2, pp=2, dp=2), Stack())
    world.run()
    world.step_seconds, world.write(folder, ranks=[0, 4])
"""

from __future__ import annotations

import gzip
import heapq
import itertools
import json
import random
from dataclasses import dataclass, field

from trace_program import Pass
from trace_setup import Missing, Setup, Stack

__all__ = ["Missing", "Setup", "Stack", "World"]


@dataclass
class Stream:
    """A queue of kernels, records and waits."""

    queue: list = field(default_factory=list)
    at: int = 0
    free: float = 0.0
    busy: bool = False


class World:
    """All ranks; rank = tensor + tp (data + dp stage)."""

    GAP = 1.2e-6
    LATENCY = 6e-6

    def __init__(self, setup, stack, steps=1, clock=()):
        self.s, self.k, self.steps = setup, stack, steps
        self.chance = random.Random(stack.seed)
        self.clock = clock
        self.heap, self.order = [], itertools.count()
        self.streams, self.streams_of = {}, {r: [] for r in range(setup.world)}
        self.done, self.blocked = {}, {}
        self.met = {}
        self.ids = itertools.count(1)
        self.rows = {r: [] for r in range(setup.world)}
        self.drained = {}
        self.ends = {}

    # ------------------------------------------------------------------------------------- machine

    def at(self, when, what):
        heapq.heappush(self.heap, (when, next(self.order), what))

    def run(self):
        begun = {}
        for rank in self.rows:
            self.at(0.0, self._host(rank, 0.0, begun))
        while self.heap:
            when, _, what = heapq.heappop(self.heap)
            what(when)
        assert all(stream.at == len(stream.queue) for stream in self.streams.values()), "deadlock"
        self.step_seconds = max(self.ends.values()) / self.steps
        return self

    def _host(self, rank, now, begun):
        program = self._program(rank)
        state = {"now": now, "thread": 1}

        def go(when):
            state["now"] = max(state["now"], when)
            for what, *rest in program:
                if what == "work":
                    state["now"] += rest[0] * self._noise()
                elif what == "thread":
                    state["thread"] = rest[0]
                    state["now"] += 30e-6
                elif what == "mark":
                    begun[rank, rest[0]] = (state["now"], state["thread"])
                elif what == "end":
                    since, thread = begun.pop((rank, rest[0]))
                    self.rows[rank].append(
                        ("mark", rest[0], thread, since, state["now"] - since, 0, {})
                    )
                elif what == "launch":
                    self._launch(rank, state, *rest)
                elif what in {"record", "wait"}:
                    self._event(rank, state, what, *rest)
                elif what == "sync":
                    call = next(self.ids)
                    since = state["now"]

                    def resume(end, since=since, call=call):
                        state["now"] = max(end, since + 3e-6) + 4e-6
                        took = state["now"] - since
                        row = (
                            "call",
                            "cudaDeviceSynchronize",
                            state["thread"],
                            since,
                            took,
                            call,
                            {},
                        )
                        self.rows[rank].append(row)
                        self.ends[rank] = state["now"]
                        go(state["now"])

                    self._when_idle(rank, resume)
                    return
            self.ends[rank] = max(self.ends.get(rank, 0.0), state["now"])

        return go

    def _noise(self):
        return self.chance.lognormvariate(0.0, self.k.jitter) if self.k.jitter else 1.0

    def _launch(self, rank, state, stream, work):
        k, call = self.k, next(self.ids)
        state["now"] += k.work * self._noise()
        begin = state["now"]
        state["now"] += k.call
        self.rows[rank].append(
            (
                "op",
                work.op,
                state["thread"],
                begin - k.work / 2,
                k.work / 2 + k.call,
                call,
                work.dims,
            )
        )
        name = "cudaMemcpyAsync" if work.op == "aten::copy_" else "cudaLaunchKernel"
        self.rows[rank].append(("call", name, state["thread"], begin, k.call, call, {}))
        self._put(rank, stream, ("kernel", begin, work, call))

    def _event(self, rank, state, what, stream, event, other=None):
        call, begin = next(self.ids), state["now"] + 1e-6
        state["now"] += 2.5e-6
        name = "cudaEventRecord" if what == "record" else "cudaStreamWaitEvent"
        self.rows[rank].append(("call", name, state["thread"], begin, 1.5e-6, call, {}))
        if what == "record":
            self.done[rank, event] = None
            self.met[rank, event] = call
        else:
            details = {
                "stream": stream,
                "wait_on_stream": other,
                "wait_on_cuda_event_record_corr_id": self.met[rank, event],
            }
            self.rows[rank].append(("sync", "Stream Wait Event", stream, begin, 0.0, call, details))
        self._put(rank, stream, (what, begin, event, call))

    def _put(self, rank, number, item):
        stream = self.streams.get((rank, number))
        if stream is None:
            stream = self.streams[rank, number] = Stream()
            self.streams_of[rank].append(stream)
        stream.queue.append(item)
        if stream.at < len(stream.queue) - 1:
            return  # its turn comes when what stands before it is done
        self.at(item[1] + self.LATENCY, lambda when, key=(rank, number): self._advance(key, when))

    def _advance(self, key, when):
        stream, rank = self.streams[key], key[0]
        while not stream.busy and stream.at < len(stream.queue):
            what, issued, item, call = stream.queue[stream.at]
            if what == "kernel":
                start = max(issued + self.LATENCY, stream.free)
                if start > when + 1e-12:
                    self.at(start, lambda later, key=key: self._advance(key, later))
                    return
                stream.busy = True
                self._start(key, item, call, start)
                return
            if issued > when + 1e-12:
                self.at(issued, lambda later, key=key: self._advance(key, later))
                return
            if what == "record":
                self.done[rank, item] = max(stream.free - self.GAP, issued)
                for waiting in self.blocked.pop((rank, item), []):
                    self.at(when, lambda later, key=waiting: self._advance(key, later))
            else:
                ready = self.done.get((rank, item))
                if ready is None:
                    self.blocked.setdefault((rank, item), []).append(key)
                    return
                stream.free = max(stream.free, ready + self.GAP)
            stream.at += 1
            if stream.at == len(stream.queue):
                self._check_idle(rank, stream.free)

    def _start(self, key, work, call, start):
        rank = key[0]
        seconds = work.seconds * self._noise()
        if rank == self.k.straggler and not work.group:
            seconds *= self.k.slower
        if not work.group or len(work.group) < 2:
            self._finish(key, work, call, start, start + seconds)
            return
        arrived = self.met.setdefault(work.key, [])
        arrived.append((key, work, call, start, seconds))
        if len(arrived) == len(work.group):
            end = max(s for *_, s, _ in arrived) + arrived[0][4]
            for member, key_there, its_call, since, _ in arrived:
                self._finish(member, key_there, its_call, since, end)
            del self.met[work.key]

    def _finish(self, key, work, call, start, end):
        rank, number = key
        self.rows[rank].append(("kernel", work, number, start, end - start, call, {}))

        def over(when):
            stream = self.streams[key]
            stream.free, stream.busy = end + self.GAP, False
            stream.at += 1
            self._advance(key, when)
            self._check_idle(rank, end)

        self.at(end, over)

    def _when_idle(self, rank, resume):
        self.drained[rank] = resume
        self._check_idle(rank, 0.0)

    def _check_idle(self, rank, when):
        if rank not in self.drained:
            return
        streams = self.streams_of[rank]
        if all(stream.at == len(stream.queue) for stream in streams):
            last = max([when, *(stream.free - self.GAP for stream in streams)])
            self.at(last, self.drained.pop(rank))

    # ------------------------------------------------------------------------------------- program

    def _place(self, rank):
        s = self.s
        return rank % s.tp, rank // s.tp % s.dp, rank // (s.tp * s.dp)

    def _rank(self, t, d, p):
        return t + self.s.tp * (d + self.s.dp * p)

    def _program(self, rank):
        """What the host of a rank does in all steps."""
        for step in range(self.steps):
            yield ("mark", f"ProfilerStep#{step}")
            yield ("work", 200e-6)
            yield from Pass(self, rank, step).program()
            yield ("sync",)
            yield ("end", f"ProfilerStep#{step}")

    # -------------------------------------------------------------------------------------- output

    def write(self, folder, ranks, missing=None, compress=False):
        """Kineto files of some ranks."""
        missing = missing or Missing()
        return [self._file(folder, rank, missing, compress) for rank in ranks]

    def _file(self, folder, rank, missing, compress):
        base = 1_700_000_000_000_000.0 + (self.clock[rank] if rank < len(self.clock) else 0.0)
        events = [self._event_of(row, rank, base, missing) for row in self.rows[rank]]
        document = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": self.s.world},
            "traceEvents": [event for event in events if event],
        }
        text = json.dumps(document).encode()
        path = folder / f"rank{rank}.json{'.gz' if compress else ''}"
        path.write_bytes(gzip.compress(text, 1) if compress else text)
        return path

    def _event_of(self, row, rank, base, missing):
        what, name, lane, start, took, call, details = row
        event = {
            "ph": "X",
            "ts": base + start * 1e6,
            "dur": took * 1e6,
            "pid": 100 + rank,
            "tid": lane,
        }
        if what == "mark":
            hidden = missing.annotations and not name.startswith("Profiler")
            return None if hidden else event | {"cat": "user_annotation", "name": name, "args": {}}
        if what == "op":
            dims = {"Input Dims": details} if details and not missing.shapes else {}
            sequence = {"Sequence number": call, "Fwd thread id": 1 if lane == 2 else 0}
            return event | {
                "cat": "cpu_op",
                "name": name,
                "args": {"External id": call, **sequence, **dims},
            }
        if what == "sync":
            stream = {
                "cat": "cuda_sync",
                "name": name,
                "pid": 0,
                "args": {"correlation": call, **details},
            }
            return None if missing.waits else event | stream
        joined = {} if missing.correlation else {"correlation": call, "External id": call}
        if what == "call":
            gone = missing.waits and "Event" in name
            return None if gone else event | {"cat": "cuda_runtime", "name": name, "args": joined}
        work, args = name, {"device": 0, "stream": lane, **joined}
        if work.collective and not missing.metadata:
            args |= {
                "Collective name": work.collective, "In msg nelems": work.elements, "Out msg nelems": work.elements,
                "Group size": len(work.group), "dtype": "BFloat16", "Process Group Name": work.key[0],
                "Process Group Ranks": list(work.group),
            }  # fmt: skip
            if work.peer >= 0:
                args |= {"Dst Rank" if work.collective == "send" else "Src Rank": work.peer}
        kind = "gpu_memcpy" if work.op == "aten::copy_" else "kernel"
        return event | {"cat": kind, "name": work.name, "pid": 0, "args": args}
