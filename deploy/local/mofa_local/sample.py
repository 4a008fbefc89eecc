"""The past that `make up` begins with: 120 days of 256 nodes, as `examples/h100-east.yaml` has it.

Two jobs trained on 248 of the nodes, with 44 process, 85 pod and 15 job recoveries; a node was the cause of every second one
or so, and was repaired within hours.
"""

from __future__ import annotations

import time
from pathlib import Path

from mofa_local.blocks import write_block
from mofa_local.series import sampled
from mofa_local.synthetic import Past, draw


def install(data: Path, *, nodes: int = 256, days: int = 120) -> Past:
    """Write the sample history until now into a server's data folder; the server must not have scraped before."""
    past = draw(end=int(time.time()), nodes=nodes, days=days)
    # The statuses "false" and "unknown" of a node's condition only say again what "true" says, in half the samples.
    write_block(sampled(past, lambda series: series.labels.get("status", "true") == "true"), data)
    return past
