"""Witnesses of what happens to a node: which series each reads, which part of a node it speaks of, and when it is worth a look.

A look at every sample of a fleet is dear, so each witness says by an aggregate on which nodes something happened at all:

    low       a sample was 0, where all is well at 1
    high      a sample was not 0, where all is well at 0
    moved     samples differ
    fresh     a moment that lies in the stretch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from mofa_operator.incidents.runs import APART


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """One kind of series about nodes."""

    metric: str
    """Its metric."""
    conditions: tuple[tuple[str, str, str], ...] = ()
    """Label, operator and value that its series meet."""
    parts: tuple[str, ...] = ()
    """Labels that tell the parts of a node apart."""
    worth: Literal["low", "high", "moved", "fresh"]
    """When it is worth a look."""
    on_host: bool = False
    """Whether an exporter on the node itself says it, which is silent while the host is down."""
    alone: str = ""
    """What nobody else tells of nodes without its series; empty where others do, or few clusters have them."""

    @property
    def apart(self) -> float:
        """Times the spacing of its samples from which on it was silent: of a host one missing sample may tell. [1]"""
        return 1.6 if self.on_host else APART


READY: Final = Witness(
    metric="kube_node_status_condition",
    conditions=(("condition", "=", "Ready"), ("status", "=", "true")),
    worth="low",
)
CORDON: Final = Witness(metric="kube_node_spec_unschedulable", worth="high")
TAINT: Final = Witness(
    metric="kube_node_spec_taint",
    conditions=(
        ("effect", "=~", "NoSchedule|NoExecute"),
        ("key", "!~", "(node|node-role)[.]kubernetes[.]io/.*|nvidia.com/gpu|amd.com/gpu"),
    ),
    parts=("key",),
    worth="high",
)
ALLOCATABLE: Final = Witness(
    metric="kube_node_status_allocatable",
    conditions=(("resource", "=~", "(nvidia|amd|intel|habana)_com_.*"),),
    parts=("resource",),
    worth="moved",
)
PROBLEM: Final = Witness(
    metric="kube_node_status_condition",
    conditions=(
        ("condition", "!~", "Ready|MemoryPressure|DiskPressure|PIDPressure|NetworkUnavailable|"),
        ("status", "=", "true"),
    ),
    parts=("condition",),
    worth="high",
)
BOOT: Final = Witness(
    metric="node_boot_time_seconds",
    worth="fresh",
    on_host=True,
    alone="reboots that are shorter than the time between two samples",
)
XID: Final = Witness(
    metric="DCGM_FI_DEV_XID_ERRORS",
    parts=("gpu", "UUID"),
    worth="moved",
    on_host=True,
    alone="XIDs of GPUs",
)
REMAP: Final = Witness(
    metric="DCGM_FI_DEV_ROW_REMAP_FAILURE", parts=("gpu", "UUID"), worth="moved", on_host=True
)
DETECTED: Final = Witness(
    metric="problem_gauge", parts=("type", "reason"), worth="high", on_host=True
)
COUNTED: Final = Witness(metric="problem_counter", parts=("reason",), worth="moved", on_host=True)

HEARTBEATS: Final = (XID, COUNTED, DETECTED)
"""Witnesses on the host whose silence tells that it was down, where nobody tells boot times."""
WITNESSES: Final = (READY, CORDON, TAINT, ALLOCATABLE, PROBLEM, BOOT, XID, REMAP, DETECTED, COUNTED)
"""All of them."""
