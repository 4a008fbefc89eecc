"""Times of kernels and collectives on the generator's machine: the hidden truth that tests
look for.
"""

from __future__ import annotations

import itertools

from trace_setup import Work


class Kernels:
    """Launches of one rank in one step."""

    COMPUTE, TENSOR, POINT_IN, POINT_OUT, DATA, EXPERT = 7, 20, 24, 25, 28, 32

    def __init__(self, world, rank, step):
        self.w, self.s, self.k, self.rank, self.step = world, world.s, world.k, rank, step
        self.t, self.d, self.p = world._place(rank)
        self.tokens = self.s.mbs * self.s.sequence
        self.count = itertools.count()
        self.messages = {}

    def gemm(self, m, n, k):
        t = self.k
        seconds = 2.0 * m * n * k / (t.peak * t.gemm) * (1 + t.half / m + t.half / n + t.half / k)
        seconds = max(seconds, 2.0 * (m * n + k * (n + m)) / (t.memory * t.traffic)) + t.floor
        return (
            "launch",
            self.COMPUTE,
            Work("sm90_xmma_gemm_bf16_cublas", "aten::mm", seconds, [[m, k], [k, n]]),
        )

    def grouped(self, count, m, n, k):
        t = self.k
        half = 2.0 * t.half
        seconds = (
            count * 2.0 * m * n * k / (t.peak * t.gemm) * (1 + half / m + half / n + half / k)
            + t.floor
        )
        return (
            "launch",
            self.COMPUTE,
            Work("cutlass_m_grouped_gemm", "grouped_mm", seconds, [[count, m, k], [count, k, n]]),
        )

    def flash(self, factor):
        s, t = self.s, self.k
        fill = 1 + t.attention_half * 4096 / (s.heads / s.tp * self.tokens)
        seconds = (
            2.0
            * self.tokens
            * s.sequence
            / 2
            * s.heads
            / s.tp
            * 2
            * s.head_dim
            / (t.peak * t.attention)
            * fill
            * factor
        )
        name = "flash_fwd_kernel" if factor == 1 else "flash_bwd_kernel"
        dims = [[s.mbs, s.sequence, s.heads // s.tp, s.head_dim]]
        return ("launch", self.COMPUTE, Work(name, "flash_attn", seconds, dims))

    def norm(self, passes):
        return self.moved(
            "rms_norm_kernel", "rms_norm", self.tokens * self.s.hidden * 2 * passes / self.s.tp
        )

    def moved(self, name, op, size):
        seconds = size / (self.k.memory * self.k.traffic) + self.k.floor
        return ("launch", self.COMPUTE, Work(name, op, seconds))

    # communication

    def ring(self, size, group, stride):
        """Ring over a group whose members lie `stride` apart: inside a node of 8, or through
        its NICs.
        """
        t, g = self.k, group
        if g * stride <= 8:
            rate, hop = t.nvlink * t.up, t.hop
        else:
            members = min(g, max(1, 8 // stride))
            nodes = g * stride / 8
            rate, hop = min(t.nvlink * t.up, members * t.nic * t.out / nodes**0.1), t.far_hop
        return rate, hop

    def collective(self, stream, what, group, size, seconds, axis):
        key = (axis, group or self.rank, self.step, next(self.count_of(axis)))
        names = {
            "all_gather": "AllGather_RING_LL",
            "reduce_scatter": "ReduceScatter_Sum_bf16",
            "all_to_all": "AllToAll",
        }
        details = {
            "all_gather": "_allgather_base",
            "reduce_scatter": "_reduce_scatter_base",
            "all_to_all": "all_to_allv",
        }
        return ("launch", stream, Work(
            f"ncclDevKernel_{names[what]}", f"c10d::{what}", seconds, None, group, details[what], int(size // 2), key
        ))  # fmt: skip

    def count_of(self, axis):
        return self.messages.setdefault(axis, itertools.count())

    def tensor(self, what, wait=True):
        s = self.s
        if s.tp == 1:
            return
        group = tuple(self.w._rank(t, self.d, self.p) for t in range(s.tp))
        size = self.tokens * s.hidden * 2
        rate, hop = self.ring(size, s.tp, 1)
        seconds = self.k.start + (s.tp - 1) * hop + (s.tp - 1) / s.tp * size / rate
        yield from self.follow(self.TENSOR)
        yield self.collective(self.TENSOR, what, group, size, seconds, "tensor")
        if wait:
            yield from self.join(self.TENSOR)

    def exchange(self):
        s, k = self.s, self.k
        if s.ep == 1:
            return
        first = self.d // s.ep * s.ep
        group = tuple(self.w._rank(self.t, d, self.p) for d in range(first, first + s.ep))
        size = self.tokens // s.tp * s.hidden * 2 * s.top_k
        seconds = k.start + size * (s.ep - 1) / s.ep / (k.nvlink * k.up * 0.8)
        yield from self.follow(self.EXPERT)
        yield self.collective(self.EXPERT, "all_to_all", group, size, seconds, "expert")
        yield from self.join(self.EXPERT)

    def reduce(self, what, parameters):
        yield from self.data("reduce_scatter", what, parameters)

    def data(self, what, key, parameters, *, copies=False):
        s = self.s
        step = s.ep if copies else 1
        members = range(self.d % step, s.dp, step)
        group = tuple(self.w._rank(self.t, d, self.p) for d in members)
        rate, hop = self.ring(0, len(members), s.tp * step)
        size = parameters * (4.0 if what == "reduce_scatter" else 2.0)
        g = len(members)
        seconds = self.k.start + (g - 1) * hop + (g - 1) / g * size / rate
        yield from self.follow(self.DATA)
        yield self.collective(self.DATA, what, group, size, seconds, "copies" if copies else "data")

    def send(self, kind, source, target, mb):
        yield from self.follow(self.POINT_OUT)
        yield self.point(self.POINT_OUT, kind, source, target, mb, target)

    def receive(self, kind, source, target, mb):
        if source % self.s.pp == target % self.s.pp:
            return
        yield self.point(self.POINT_IN, kind, source, target, mb, source)
        yield from self.join(self.POINT_IN)

    def point(self, stream, kind, source, target, mb, other):
        s, k = self.s, self.k
        ranks = [self.w._rank(self.t, self.d, stage % s.pp) for stage in (source, target)]
        size = self.tokens * s.hidden * 2 / s.tp
        inside = s.pp * s.tp * s.dp <= 8
        seconds = k.point_start + size / ((k.nvlink if inside else k.nic) * k.point)
        pair = (tuple(ranks), self.step, kind, source, mb)
        work = Work(
            "ncclDevKernel_SendRecv", "c10d::send" if other == target else "c10d::recv", seconds, None,
            tuple(sorted(ranks)), "send" if other == target else "recv", int(size // 2), ("pipeline", pair),
            self.w._rank(self.t, self.d, other % s.pp),
        )  # fmt: skip
        return ("launch", stream, work)

    def follow(self, stream):
        event = (self.step, next(self.count))
        yield ("record", self.COMPUTE, event)
        yield ("wait", stream, event, self.COMPUTE)

    def join(self, stream):
        if stream == self.TENSOR and self.s.tp == 1:
            return
        event = (self.step, next(self.count))
        yield ("record", stream, event)
        yield ("wait", self.COMPUTE, event, stream)
