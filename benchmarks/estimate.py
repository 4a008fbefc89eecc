"""Strategies that the cost model prices in a second, beside the llm-analysis package, in one run.

block      families of 16,384 rows with every feature on, through the same `estimate` that prices
           one strategy
scalar     one strategy alone
search     the search, which asks once for what families share

llm-analysis runs in an environment of its own, outside the lock: `.cache/bench`, made here where it
is missing. Both take turns of a tenth of a second, so that each works with warm caches; of each the
best of several turns counts, in time of a processor, so that neighbours change little. ranges.toml
holds the ratios that we promise.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np

from mofa_model import presets
from mofa_model.cli import prefer_large_pages
from mofa_model.estimate import estimate
from mofa_model.schedules import INTERLEAVED
from mofa_model.search import Ranking, SearchCase, SearchQuestion, search
from mofa_model.spec import Cluster, Training, Workload
from mofa_model.strategy import ContextMode, Recompute, Sharding, Strategy

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parent / ".cache" / "bench"
ROWS = 16_384
TURNS = 15


def block(seed: int = 0) -> Strategy:
    """A family of layouts on 1,024 devices with every feature on."""
    rng = np.random.default_rng(seed)
    tp, pp = rng.choice([1.0, 2.0, 4.0, 8.0], ROWS), rng.choice([2.0, 4.0, 8.0, 16.0], ROWS)
    cp = rng.choice([1.0, 2.0, 4.0], ROWS)
    return Strategy(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=1024.0 / (tp * pp * cp),
        vpp=rng.choice([1.0, 2.0, 4.0, 8.0], ROWS),
        mbs=rng.choice([1.0, 2.0, 4.0], ROWS),
        shard=rng.choice([0.0, 8.0], ROWS),
        recompute_layers=rng.choice([0.0, 1.0, 2.0], ROWS),
        schedule=INTERLEAVED,
        sharding=Sharding.OPTIMIZER,
        sequence_parallel=True,
        context_mode=ContextMode.RING,
        recompute=Recompute.FULL,
        offload=frozenset({"activations"}),
        tensor_overlap=True,
    )


def priced(workload: Workload, cluster: Cluster, strategy: Strategy) -> None:
    """Time and memory of a layout, or of a family."""
    price = estimate(workload, cluster, strategy)
    _ = price.step_time, price.footprint.peak


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """Time of a processor for it, the mean of so many times. [s]"""
    start = process_time()
    for _ in range(times):
        work()
    return (process_time() - start) / times


class Peer:
    """llm-analysis in its own environment; None of its figures where it cannot be installed."""

    def __init__(self) -> None:
        python = ENVIRONMENT / "bin" / "python"
        if not python.exists():
            venv.create(ENVIRONMENT, with_pip=True)
        there = [python, "-c", "import llm_analysis"]
        if subprocess.run(there, capture_output=True, check=False).returncode:
            subprocess.run([python, "-m", "pip", "install", "--quiet", "llm-analysis"], check=False)
        self.there = subprocess.run(there, capture_output=True, check=False).returncode == 0
        self._process = None
        if self.there:
            self._process = subprocess.Popen(
                [python, HERE / "peers" / "llm_analysis_rate.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def seconds(self, count: int) -> float:
        """Time of so many evaluations. [s]"""
        pipe = self._process
        if pipe is None or pipe.stdin is None or pipe.stdout is None:
            return float("nan")
        pipe.stdin.write(f"{count}\n")
        pipe.stdin.flush()
        return float(pipe.stdout.readline())

    def stop(self) -> None:
        """Let it end."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


def main() -> int:
    ranges = tomllib.loads((HERE / "ranges.toml").read_text(encoding="utf-8"))["estimate"]
    prefer_large_pages()  # as the command line does
    model = presets.model("gpt3-175b")
    training = Training(sequence=2048, global_batch=1536, precision=presets.precision("bf16"))
    workload, cluster = Workload(model=model, training=training), presets.cluster("h100", 1024)
    family = block()
    layout = family.row(0)
    case = SearchCase(workload=workload, cluster=cluster)

    def searched() -> Ranking:  # a question has one effort, so each search is asked anew
        return search(SearchQuestion(problems=(case,), nodes=(128,), apart=True))

    legal = _legal(searched())
    peer = Peer()
    times: dict[str, list[float]] = {"block": [], "scalar": [], "search": [], "llm-analysis": []}
    for _ in range(TURNS):
        times["block"].append(seconds(lambda: priced(workload, cluster, family), 6) / ROWS)
        times["scalar"].append(seconds(lambda: priced(workload, cluster, layout), 50))
        times["search"].append(seconds(searched) / legal)
        times["llm-analysis"].append(peer.seconds(500) / 500)
    peer.stop()
    best = {name: min(runs) for name, runs in times.items()}
    for name, shortest in best.items():
        print(f"{name:14s} {1 / shortest:12,.0f} a second")
    if not peer.there:
        print("llm-analysis is not to be had here: no ratio is checked")
        return 0
    ratios = {
        "block_over_peer": best["llm-analysis"] / best["block"],
        "search_over_peer": best["llm-analysis"] / best["search"],
        "scalar_in_peer_evaluations": best["scalar"] / best["llm-analysis"],
    }
    good = True
    for name, ratio in ratios.items():
        least, most = ranges[name].get("least", 0.0), ranges[name].get("most", float("inf"))
        good &= least <= ratio <= most
        print(f"{name:28s} {ratio:8.1f}   ({ranges[name]['reason']})")
    return 0 if good else 1


def _legal(ranking: Ranking) -> int:
    """Strategies whose memory is asked for. [1]"""
    return ranking.searched + sum(
        n for r, n in ranking.rejected.items() if r.value.startswith("OutOf")
    )


if __name__ == "__main__":
    sys.exit(main())
