"""The past that `make up` begins with: 120 days of 256 nodes, as `examples/h100-east.yaml` has it.

Two jobs trained on 248 of the nodes, with 44 process, 85 pod and 15 job recoveries; a node was the
cause of every second one or so, and was repaired within hours.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mofa_local.blocks import write_block
from mofa_local.recorded import recorded
from mofa_local.series import sampled
from mofa_local.synthetic import Job, Past, RecoveryClass, draw

FAILURES: Final[Mapping[RecoveryClass, int]] = {"process": 44, "pod": 85, "job": 15}
"""Recoveries in 256 x 120 node-days; a smaller past has its share of them."""

POOL: Final = "h100-east"
"""The profile whose nodes they are."""


def install(data: Path, *, nodes: int = 256, days: int = 120) -> Past:
    """Write the sample history until now into a server's data folder; the server must not have
    scraped before.
    """
    end = int(time.time())
    past = sample_past(end, nodes=nodes, days=days)
    # The statuses "false" and "unknown" of a node's condition only say again what "true" says, in
    # half the samples.
    exported = sampled(past, lambda series: series.labels.get("status", "true") == "true")
    write_block([*exported, *recorded(past, POOL)], data)
    return past


def sample_past(end: int, *, nodes: int = 256, days: int = 120) -> Past:
    """The sample history until `end`; one node in 32 is spare.

    >>> from mofa_local.synthetic import truth
    >>> truth(sample_past(1_700_000_000, nodes=64, days=60)).failures
    {'process': 6, 'pod': 11, 'job': 2}
    """
    share = nodes * days / (256 * 120)
    half = max(1, (nodes - nodes // 32) // 2)
    return draw(
        end=end,
        nodes=nodes,
        days=days,
        jobs=(Job(name="pretrain-a", nodes=half), Job(name="pretrain-b", nodes=half)),
        failures={level: round(count * share) for level, count in FAILURES.items()},
    )
