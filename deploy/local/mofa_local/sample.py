"""The past that `make up` begins with: four months of 256 nodes, as blocks that are made once and kept for half a day.

Two jobs trained on 248 of the nodes; 44 process, 85 pod and 15 job recoveries, as `examples/h100-east.yaml` has it. To keep
the volume sane, nodes are sampled every five minutes (their readiness and cordons only), pods and labels every hour.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mofa_local import binaries
from mofa_local.prometheus import backfill
from mofa_local.series import Series, openmetrics
from mofa_local.synthetic import HOUR, Past, draw

SLICE: Final = 162 * HOUR
"""Width of a block; the store's own grid of 2 h times powers of three. [s]"""
KEPT: Final = 12 * HOUR
"""How old the end of a kept history may be; until then it is a gap before the first live sample. [s]"""
SOURCES: Final = ("synthetic.py", "lives.py", "series.py", "sample.py")
"""Modules that a kept history depends on."""


def past(end: int, *, nodes: int = 256, days: int = 120) -> Past:
    """The past of the sample cluster until `end`."""
    return draw(end=end, nodes=nodes, days=days, pod_step=HOUR)


def keep(series: Series) -> bool:
    """Leave out what only repeats the status "true" of node conditions."""
    return series.labels.get("status", "true") == "true"


def install(data: Path) -> Past:
    """Put the sample history into a server's data folder; it is made where no recent one is kept."""
    folder = binaries.cache() / "history"
    folder.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(
        b"".join((Path(__file__).parent / name).read_bytes() for name in SOURCES)
    ).hexdigest()[:12]
    now = int(time.time())
    kept = [
        (int(found.name.rpartition("-")[2]), found)
        for found in folder.glob(f"{key}-*")
        if now - int(found.name.rpartition("-")[2]) < KEPT
    ]
    if kept:
        end, blocks = max(kept)
    else:
        end = now - now % HOUR
        blocks = folder / f"{key}-{end}"
        for old in folder.iterdir():
            shutil.rmtree(old, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            make(past(end), Path(unfinished) / "data")
            (Path(unfinished) / "data").replace(blocks)
    shutil.copytree(blocks, data, dirs_exist_ok=True)
    return past(end)


def make(whole: Past, data: Path) -> None:
    """Make the blocks, two at a time: promtool works while the next text is written."""
    begins = range(whole.start - whole.start % SLICE, whole.end, SLICE)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(_one, whole, begin, data) for begin in begins]:
            done.result()


def _one(whole: Past, begin: int, data: Path) -> None:
    handle, name = tempfile.mkstemp(dir=data.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", buffering=1 << 20) as text:
            text.writelines(openmetrics(whole, keep, (begin, begin + SLICE)))
        backfill(Path(name), data)
    finally:
        Path(name).unlink()
