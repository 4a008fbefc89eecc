"""Device memory that pods use, as NVIDIA's DCGM exporter says it: of every device, in MiB, all that is not free on it.

Whose a series is, its scrape says. Where it keeps the exporter's labels (honorLabels), `namespace` and `pod` are the training pod's,
and a series counts for the namespace that it names, as those of trainers do. Where it does not, these are the exporter's own, and
the training pod's are `exported_namespace` and `exported_pod`. Those anybody may publish, so they count only from namespaces in
which the profile says that exporters run.
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
    matchers: Mapping[str, str],
    namespaces: Collection[str],
    exporters: Collection[str],
    span: float,
) -> str:
    """Most memory in use on a device of each pod; `exporters` are namespaces of exporters whose labels a scrape may not keep."""
    known = (*_KEPT, *_RENAMED)
    picked = [matcher(name, value) for name, value in sorted(matchers.items()) if name not in known]
    spaces = any_of(sorted(namespaces))
    own = [*picked, matcher("exported_namespace", ""), matcher("namespace", spaces, "=~")]
    told = [
        *picked,
        matcher("namespace", any_of(exporters), "=~"),
        matcher("exported_namespace", spaces, "=~"),
    ]
    return " or ".join(
        f"max by ({', '.join(names)}) (max_over_time({selector(SERIES, some)}[{duration(span)}]))"
        for names, some in ((_KEPT, own), (_RENAMED, told))
    )


def by_pod(answer: QueryResult) -> dict[str, float]:
    """What that answers, by namespace and name of the pod; of two that say something the one whose labels were kept. [B]"""
    found: dict[str, float] = {}
    for names in (_RENAMED, _KEPT):
        told = {
            "/".join(map(one.label, names)): one.value * _MIB
            for one in answer.samples
            if one.label(names[0])
        }
        found |= told
    return found


_KEPT: Final = ("namespace", "pod")
_RENAMED: Final = ("exported_namespace", "exported_pod")
