"""Faults of a node's parts while it stays ready: GPUs by XID, by their series and by what the kubelet offers, links, problems.

A fault under a cordon that stood before it is part of a repair; a cordon that comes after it is the repair.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from mofa_model.manifest.incident_rules import IncidentRules
from mofa_model.spec import incident_causes as causes
from mofa_model.spec.xids import OFF_THE_BUS, XidMeaning, meaning
from mofa_operator.incidents.incident import Incident, of_node
from mofa_operator.incidents.node_life import NodeLife
from mofa_operator.incidents.runs import ValueRun, joined, length, overlap
from mofa_operator.incidents.witnesses import ALLOCATABLE, COUNTED, DETECTED, PROBLEM, REMAP, XID

TO_CORDON: Final = 8 * 3600.0
"""Longest time after a fault in which the cordon for its repair comes. [s]"""
BRIEF: Final = 360.0
"""How long a fault takes that nobody repairs: what ran there starts again. [s]"""
_LINK: Final = re.compile(r"(?<![a-z])nic|link|infiniband|\bib|rdma|roce|ethernet", re.IGNORECASE)
_GPU: Final = re.compile(r"gpu|xid|nvlink|nvswitch|nvidia", re.IGNORECASE)
_GONE: Final = re.compile(r"fallen.?off", re.IGNORECASE)
_WARNING: Final = re.compile(r"non.?fatal", re.IGNORECASE)
"""Conditions of nodes that tell no failure. NVSentinel sets GpuMemWatch, SysLogsXIDError, SysLogsGPUFallenOff, NVSwitchDown and
their like where something is fatal; DCGMError speaks of the exporter's own daemon, CSPMaintenance of a plan.
Source: NVSentinel, "Integration Guide", node conditions.
"""


def faults(life: NodeLife, rules: IncidentRules) -> Iterator[Incident]:
    """Faults of a node's parts, those that are no failures too."""
    yield from _xids(life, rules.xids)
    yield from _lost_gpus(life)
    for witness in (DETECTED, PROBLEM, REMAP):
        gap = life.spacing.get(witness, 0.0)
        for part, many in life.parts(witness):
            name = "/".join(part)
            said = "row remapping failed" if witness is REMAP else f"problem {name}"
            is_gpu = witness is REMAP or _GPU.search(name)
            if (is_gpu or _LINK.search(name)) and not _WARNING.search(name):
                gpu = causes.GPU_LOST if _GONE.search(name) else causes.GPU_FATAL
                for at, _ in _events(many, gap):
                    yield _fault(life, at, gpu if is_gpu else causes.NIC, said)


def _events(many: tuple[ValueRun, ...], gap: float) -> Iterator[tuple[float, float]]:
    """New values that are not 0, and when: what a gauge holds on to is told once. [s, 1]"""
    for before, run in pairwise(many):
        if run.value and run.value != before.value:
            silent = run.start - before.end > 3 * gap
            yield (run.start - gap / 2 if silent else (before.end + run.start) / 2), run.value


def _xids(life: NodeLife, stated: Mapping[str, str]) -> Iterator[Incident]:
    gap = life.spacing.get(XID, life.step)
    told = sorted((at, int(code)) for _, many in life.parts(XID) for at, code in _events(many, gap))
    counted = [
        at
        for (reason,), many in life.parts(COUNTED)
        if re.search("xid", reason, re.IGNORECASE)
        and not re.search("user|app", reason, re.IGNORECASE)
        for at, _ in _events(many, life.spacing.get(COUNTED, gap))
    ]
    explained: list[float] = []
    for at, code in told:
        kind = meaning(code, stated)
        if kind is XidMeaning.HARDWARE:
            cause = causes.GPU_LOST if code == OFF_THE_BUS else causes.GPU_FATAL
            yield _fault(life, at, cause, f"XID {code}")
        elif kind is XidMeaning.NOTE:
            yield of_node(life.name, at, at, causes.XID_WARNING, f"XID {code}")
        elif kind is XidMeaning.PROGRAM:
            yield of_node(life.name, at, at, causes.USER_XID, f"XID {code}")
        if kind is not XidMeaning.CLEAN_UP:
            explained.append(at)
    near = 2 * gap + 60
    for at in counted:  # the gauge says nothing new where the same GPU says the same again
        held = [
            int(run.value)
            for _, many in life.parts(XID)
            for run in many
            if run.value and run.start <= at <= run.end + gap
        ]
        if any(abs(at - one) <= near for one, _ in told) or all(
            meaning(code, stated) is not XidMeaning.HARDWARE for code in held
        ):
            continue
        yield _fault(
            life,
            at,
            causes.GPU_FATAL,
            "node-problem-detector counts an XID of hardware",
            "a GPU holds one of before",
        )
    for at, code in told:
        if meaning(code, stated) is not XidMeaning.CLEAN_UP or any(
            abs(at - one) <= near for one in explained
        ):
            continue
        if any(abs(at - one) <= near for one in counted):
            yield _fault(
                life,
                at,
                causes.GPU_FATAL,
                f"XID {code} over another",
                "node-problem-detector counts an XID of hardware",
            )
        elif any(0 < a - at <= 1200 + gap for a, _ in life.cordons):
            yield _fault(life, at, causes.GPU_FATAL, f"XID {code}", "cordoned soon after")
        else:
            yield of_node(life.name, at, at, causes.USER_XID, f"XID {code}")


def _lost_gpus(life: NodeLife) -> Iterator[Incident]:
    """GPUs whose series end while others of the node go on, or that the kubelet offers no more."""
    gap = life.spacing.get(XID, life.step)
    gpus = dict(life.parts(XID))
    for part, many in gpus.items():
        ends = [*(run.start for run in many[1:]), life.known[-1][1]]
        for run, end in zip(many, ends, strict=True):
            silent = (run.end + gap, end)
            others = joined(
                (r.start, r.end) for other, every in gpus.items() if other != part for r in every
            )
            if end - run.end > 3 * gap and length(overlap([silent], others)) > max(240.0, 2 * gap):
                said = f"the series of GPU {part[0]} ended while others went on"
                yield _fault(life, run.end + gap / 2, causes.GPU_LOST, said)
    step = life.spacing.get(ALLOCATABLE, life.step)
    for _, many in life.parts(ALLOCATABLE):
        most = max(run.value for run in many)
        for before, run in pairwise(many):
            if 0 < run.value < before.value == most and run.end - run.start >= step:
                said = f"the node offers {run.value:g} of {most:g} GPUs"
                yield _fault(life, (before.end + run.start) / 2, causes.GPU_LOST, said)


def _fault(life: NodeLife, at: float, cause: causes.IncidentCause, *said: str) -> Incident:
    """A fault of a part: until the cordon for its repair ends, or, where there is none, briefly."""
    under = next(((a, b) for a, b in life.cordons if a < at - life.step and at < b), None)
    if under is not None:
        return of_node(life.name, at, under[1], causes.DRAIN, *said, "under a cordon")
    repair = next(((a, b) for a, b in life.cordons if at - life.step <= a <= at + TO_CORDON), None)
    if repair is None:
        return of_node(life.name, at, at + BRIEF, cause, *said)
    return of_node(
        life.name,
        at,
        repair[1],
        cause,
        *said,
        f"cordoned {max(0.0, repair[0] - at) / 60:.0f} min later",
    )
