"""A ten-minute microbenchmark of a GPU with PyTorch, as tables of kernels: `python -m
mofa_lab.kernels.measure --device h100 --to mine`.

GEMM in BF16 and causal attention: each call a few times in a CUDA graph over copies that leave the
cache, the median of the rounds. Collectives where it is started by torchrun. What it writes, `mofa
calibrate kernels` reads. It needs PyTorch, which nothing else here does, so it is a program and
no verb.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from mofa_model import presets
from mofa_model.files import write_text

TOKENS: Final = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
WIDTHS: Final = (256, 512, 1024, 2048, 4096, 8192, 16384)
SEQUENCES: Final = (256, 512, 1024, 2048, 4096, 8192, 16384)
HEADS: Final = ((4, 1), (8, 1), (8, 8), (16, 2), (32, 4), (32, 32), (64, 8))
BATCHES: Final = (1, 4, 16)
SIZES: Final = tuple(2**power for power in range(12, 30))
ROUNDS: Final = 7
"""Timed rounds, of which the median counts."""
COPIES: Final = 6
"""Copies of the operands, which together leave the cache."""
LARGEST: Final = 6e13
"""Operations of a call beyond which it is left out: the whole shall take ten minutes."""


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and write a table a kind of operator."""
    parser = argparse.ArgumentParser(
        prog="python -m mofa_lab.kernels.measure", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--device", required=True, help="preset id or alias of the GPU")
    parser.add_argument(
        "--to",
        required=True,
        metavar="FOLDER",
        help="folder for gemm.csv, attention.csv, collectives.csv",
    )
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="time for each table (default: 300)"
    )
    arguments = parser.parse_args(words)
    device = presets.resolve("devices", arguments.device, field="--device")
    import torch  # type: ignore[import-not-found,unused-ignore]  # the extra `torch` is in no lock

    if not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU here")
    folder = Path(arguments.to)
    folder.mkdir(parents=True, exist_ok=True)
    tables = (
        {"collectives": collectives}
        if "WORLD_SIZE" in os.environ
        else {"gemm": gemm, "attention": attention}
    )
    for name, measured in tables.items():
        rows = list(_until(time.monotonic() + arguments.seconds, measured(torch)))
        if rows and os.environ.get("RANK", "0") == "0":
            write_text(folder / f"{name}.csv", _table([{"device": device, **row} for row in rows]))
    return 0


def gemm(torch: Any) -> Iterator[dict[str, Any]]:
    """BF16 products, large and small in turn, so that a short run covers all."""
    shapes = [
        (m, n, k) for m in TOKENS for n in WIDTHS for k in WIDTHS if 2.0 * m * n * k < LARGEST
    ]
    for m, n, k in _spread(shapes):
        weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(COPIES)]
        rows = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        seconds = _seconds(
            torch, [partial(torch.nn.functional.linear, rows, weight) for weight in weights]
        )
        yield {"recipe": "bf16", "m": m, "n": n, "k": k, "seconds_best": seconds}


def attention(torch: Any) -> Iterator[dict[str, Any]]:
    """Causal attention in BF16, heads of 128."""
    shapes = [
        (b, s, h, g)
        for b in BATCHES
        for s in SEQUENCES
        for h, g in HEADS
        if 256.0 * b * h * s * s < LARGEST
    ]
    for batch, sequence, heads, groups in _spread(shapes):
        made = [
            torch.randn(batch, count, sequence, 128, device="cuda", dtype=torch.bfloat16)
            for count in (heads, groups, groups)
        ]
        call = torch.nn.functional.scaled_dot_product_attention
        seconds = _seconds(torch, [partial(call, *made, is_causal=True, enable_gqa=True)] * 2)
        yield {
            "causal": 1, "dtype": "bf16", "batch": batch, "sequence": sequence, "heads": heads,
            "kv_heads": groups,
            "head_dim": 128, "window": 0, "seconds_best": seconds,
        }  # fmt: skip


def collectives(torch: Any) -> Iterator[dict[str, Any]]:
    """All-reduce, gather, scatter and all-to-all among the processes that torchrun started, one
    a GPU.
    """
    there = torch.distributed
    there.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    ranks, version = there.get_world_size(), ".".join(map(str, torch.cuda.nccl.version()))
    for size in SIZES:
        whole, other = (
            torch.zeros(size // 2, device="cuda", dtype=torch.float16) for _ in range(2)
        )
        part = whole[: size // 2 // ranks]
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": partial(there.all_reduce, whole),
            "all_gather": partial(there.all_gather_into_tensor, whole, part),
            "reduce_scatter": partial(there.reduce_scatter_tensor, part, whole),
            "all_to_all": partial(there.all_to_all_single, other, whole),
        }
        for name, call in calls.items():
            seconds = _seconds(torch, [call] * 20)
            yield {
                "op": name,
                "nccl": version,
                "ranks": ranks,
                "dtype": "fp16",
                "bytes": size,
                "seconds_best": seconds,
            }


def _seconds(torch: Any, calls: Sequence[Callable[[], Any]]) -> float:
    """Time of one of the calls, launched together from a graph. [s]"""
    for call in calls[:3]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    took = []
    for _ in range(ROUNDS):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        took.append(first.elapsed_time(last) / 1e3 / len(calls))
    return float(sorted(took)[ROUNDS // 2])


def _spread(shapes: Sequence[Any]) -> list[Any]:
    """The shapes in an order such that the first ones already cover the whole range."""
    return (
        [shapes[(i * 617) % len(shapes)] for i in range(len(shapes))]
        if len(shapes) % 617
        else list(shapes)
    )


def _until(deadline: float, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield row
        if time.monotonic() > deadline:
            return


def _table(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


if __name__ == "__main__":
    sys.exit(main())
