"""Validating all 1,938 runs of the sweeps, in units of `python -c "import numpy"` on the same machine; the aim is 60.

Ratios in one run are compared, never times.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

CASES = Path(__file__).resolve().parent.parent / "lab" / "data" / "cases" / "sweep.json"
REPEATS = 5
AIM = 60.0


def seconds(*command: str) -> float:
    """Median wall time of a command, as a user sees it, after one run that fills the caches."""
    times = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


unit = seconds(sys.executable, "-c", "import numpy")
whole = seconds(sys.executable, "-m", "mofa_model", "validate", "steps", str(CASES), "--json")
print(f"import numpy              {unit:8.3f} s")
print(f"mofa validate steps       {whole:8.3f} s")
print(f"ratio                     {whole / unit:8.1f}   (aim: at most {AIM:g})")
sys.exit(whole > AIM * unit)
