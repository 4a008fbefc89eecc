"""Validating all 1,938 runs of the sweeps, in units of `python -c "import numpy"` on the same
machine, which take turns.

Ratios of processor time in one run are compared, never times of the clock; ranges.toml says how
much it may be.
"""

from __future__ import annotations

import statistics
import sys
import tomllib
from pathlib import Path

from search import timed  # the benchmark beside this one

HERE = Path(__file__).resolve().parent
CASES = HERE.parent / "lab" / "data" / "cases" / "sweep.json"
TURNS = 5


def main() -> int:
    from cluster import judged  # the benchmark beside this one

    numpy = [sys.executable, "-c", "import numpy"]
    steps = [sys.executable, "-m", "mofa_model", "validate", "steps", str(CASES), "--json"]
    timed(steps)  # fills the caches
    turns = [(timed(numpy)[0], timed(steps)[0]) for _ in range(TURNS)]
    unit, whole = (statistics.median(column) for column in zip(*turns, strict=True))
    print(f"import numpy {unit:.3f} s of a core, mofa validate steps {whole:.3f} s")
    ranges = tomllib.loads((HERE / "ranges.toml").read_text(encoding="utf-8"))["validate"]
    return judged({"sweeps_over_numpy": whole / unit}, ranges)


if __name__ == "__main__":
    sys.exit(main())
