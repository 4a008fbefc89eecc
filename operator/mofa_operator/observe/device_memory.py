"""Device memory that pods use, as NVIDIA's DCGM exporter says it: of every device, in MiB, all that is not free on it.

Whose a series is, its scrape says. Where it keeps the exporter's labels (honorLabels), `namespace` and `pod` are the training pod's,
and a series counts for the namespace that it names, as those of trainers do. Where it does not, these are the exporter's own, and
the training pod's are `exported_namespace` and `exported_pod`. Those anybody may publish, so they count only from the namespace in
which the profile says that its exporter runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from mofa_operator.observe.answers import QueryResult
from mofa_operator.observe.promql import any_of, duration, matcher, selector

SERIES: Final = "DCGM_FI_DEV_FB_USED"
"""Memory in use on a device. [MiB]"""
_MIB: Final = 2**20


def device_memory(
    matchers: Mapping[str, str], namespaces: Collection[str], exporter: str, span: float
) -> str:
    """Most memory in use on a device of each pod; `exporter` is the namespace of an exporter whose labels its scrape does not keep."""
    names = _names(exporter)
    picked = {name: value for name, value in matchers.items() if name not in ("namespace", *names)}
    conditions = [matcher(name, value) for name, value in sorted(picked.items())]
    if exporter:
        conditions = [*conditions, matcher("namespace", exporter)]
    series = selector(SERIES, [*conditions, matcher(names[0], any_of(sorted(namespaces)), "=~")])
    return f"max by ({', '.join(names)}) (max_over_time({series}[{duration(span)}]))"


def by_pod(answer: QueryResult, exporter: str) -> dict[str, float]:
    """What that answers, by namespace and name of the pod. [B]"""
    names = _names(exporter)
    return {"/".join(one.label(name) for name in names): one.value * _MIB for one in answer.samples}


def _names(exporter: str) -> tuple[str, str]:
    return ("exported_namespace", "exported_pod") if exporter else ("namespace", "pod")
