"""The whole `mofa advise` command against `python -c "import numpy"`, in interleaved runs, in time
of a processor.

A model of 8B on 64 H100s, llama3.1-405b on 16,384 H100s and deepseek-v3 on 2,048 H800s, any trainer
and Megatron; full space, one process. ranges.toml says how many times as long each may take, and
how much memory. Of each command the median of several turns counts.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
TURNS = 9
SMALL = "--model llama3-8b --gpu h100 --gpus 64 --seq 8192"
LLAMA = "--model llama3.1-405b --gpu h100-sxm --gpus 16384 --seq 8192 --tokens 15T"
DEEPSEEK = "--model deepseek-v3 --gpu h800 --gpus 2048 --seq 4096 --tokens 14.8T"
COMMANDS = {
    "8B, any trainer, batch 512": ("small", f"{SMALL} --global-batch 512"),
    "llama, any trainer, batch 2048": ("llama", f"{LLAMA} --global-batch 2048"),
    "llama, any trainer, batch 4096": ("llama", f"{LLAMA} --global-batch 4096"),
    "llama, megatron, batch 2048": ("llama", f"{LLAMA} --global-batch 2048 --framework megatron"),
    "deepseek, any trainer, batch 15360": ("deepseek", f"{DEEPSEEK} --global-batch 15360"),
    "deepseek, any trainer, batch 7680": ("deepseek", f"{DEEPSEEK} --global-batch 7680"),
    "deepseek, megatron, batch 15360": (
        "deepseek",
        f"{DEEPSEEK} --global-batch 15360 --framework megatron",
    ),
}
"""Name, range and options of each question."""


def spent() -> float:
    """Processor time of all processes that ended. [s]"""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(command: list[str]) -> tuple[float, str]:
    """Processor time of a command, and what it printed. [s]"""
    start = spent()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: {done.stderr}")
    return spent() - start, done.stdout


def main() -> int:
    ranges = tomllib.loads((HERE / "ranges.toml").read_text(encoding="utf-8"))["search"]
    python = sys.executable
    numpy = [python, "-c", "import numpy"]
    mofa = [python, "-m", "mofa_model", "advise", "--json"]
    base: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    counts: dict[str, dict[str, int]] = {}
    for _ in range(TURNS):
        for name, (_, flags) in COMMANDS.items():
            base.append(timed(numpy)[0])
            took, text = timed([*mofa, *flags.split()])
            times[name].append(took)
            counts[name] = json.loads(text)["counts"]
    unit = statistics.median(base)
    print(f"import numpy: median {unit:.3f} s, best {min(base):.3f} s")
    good = True
    for name, seconds in times.items():
        ratio = statistics.median(seconds) / unit
        c = counts[name]
        most = ranges[f"{COMMANDS[name][0]}_over_numpy"]["most"]
        good &= ratio <= most
        print(
            f"{name:36s} median {statistics.median(seconds):6.2f} s  {ratio:5.1f} x  "
            f"(at most {most:g})  searched {c['searched']:>10,} of {c['raw']:,}"
        )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
    good &= peak <= ranges["peak_megabytes"]["most"]
    print(f"peak memory {peak:.0f} MB")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
