"""What the trace generator is told: the job, the hidden truth of its stack, what the profiler
leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is trained, and how it is laid out."""

    layers: int = 8
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    ffn: int = 14336
    vocabulary: int = 32000
    experts: int = 0
    top_k: int = 2
    expert_ffn: int = 0
    sequence: int = 4096
    micro_batches: int = 8
    mbs: int = 1
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    dp: int = 1
    ep: int = 1

    @property
    def world(self):
        return self.tp * self.pp * self.dp


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Hidden truth: what the machine and its software reach."""

    peak: float = 989.4e12
    memory: float = 3.35e12
    nvlink: float = 450e9
    nic: float = 50e9
    gemm: float = 0.78
    half: float = 220.0
    attention: float = 0.52
    attention_half: float = 5.0
    traffic: float = 0.81
    update: float = 0.7
    up: float = 0.74
    out: float = 0.83
    hop: float = 4e-6
    far_hop: float = 9e-6
    start: float = 12e-6
    point: float = 0.6
    point_start: float = 40e-6
    call: float = 6e-6
    work: float = 9e-6
    jitter: float = 0.0
    seed: int = 1
    straggler: int = -1
    slower: float = 1.15
    floor: float = 1.5e-6


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What the profiler did not write."""

    correlation: bool = False
    waits: bool = False
    metadata: bool = False
    annotations: bool = False
    shapes: bool = False


@dataclass
class Work:
    """One kernel."""

    name: str
    op: str
    seconds: float
    dims: list | None = None
    group: tuple = ()
    collective: str = ""
    elements: int = 0
    key: tuple = ()
    peer: int = -1


def schedule(p, m, v):
    """(kind, chunk, micro-batch) of each stage: 1F1B, or interleaved in groups of p."""
    orders = []
    for i in range(p):
        total = m * v
        forwards = [
            ("F", n // p % v if v > 1 else 0, n % p + n // (p * v) * p if v > 1 else n)
            for n in range(total)
        ]
        backwards = [
            ("B", v - 1 - n // p % v if v > 1 else 0, n % p + n // (p * v) * p if v > 1 else n)
            for n in range(total)
        ]
        warm = min(total, (v - 1) * p + 2 * (p - i - 1) if v > 1 else p - i - 1)
        steady = [x for pair in zip(forwards[warm:], backwards, strict=False) for x in pair]
        orders.append([*forwards[:warm], *steady, *backwards[total - warm :]])
    return orders
