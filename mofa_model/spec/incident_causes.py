"""Causes of incidents, and the XIDs of NVIDIA's driver by what they mean for the node.

An act of a user, a scheduler or an administrator is no failure, however often it interrupts a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from mofa_model.records import dataclass

SHORTEST_OUTAGE: Final = 300
"""Time for which pods tolerate a node that is not ready, by default; a shorter outage is a flap.
[s]"""


class InterruptionClass(StrEnum):
    """Who or what made training stop."""

    FAULT = "fault"
    """Something broke."""
    PREEMPTION = "preemption"
    """Somebody else got the machines: another job, or the provider who lent them."""
    DRAIN = "drain"
    """Whoever runs the cluster asked it to stop."""
    USER = "user"
    """The program or its user."""
    NOTHING = "nothing"
    """Nothing stopped."""


@dataclass(frozen=True)
class IncidentCause:
    """Why something stopped."""

    word: str
    """Its name in outputs."""
    counts: bool
    """Whether the machines failed the job: something broke, or a machine was taken away."""
    meaning: str
    """Its meaning, in one sentence."""
    by: InterruptionClass = InterruptionClass.FAULT
    """Who made training stop; only faults are in the check of the hardware."""

    @property
    def interrupts(self) -> bool:
        """Whether it counts for ETTR and for the interval between checkpoints, whoever did it."""
        return self.by in (
            InterruptionClass.FAULT,
            InterruptionClass.PREEMPTION,
            InterruptionClass.DRAIN,
        )


NODE_DOWN: Final = IncidentCause(
    "node-down", True, "the host went down and came back with another boot time"
)
KUBELET_DOWN: Final = IncidentCause(
    "kubelet-down", True, "the node was not ready for longer than pods tolerate, on the same boot"
)
REBOOT: Final = IncidentCause("reboot", True, "the host rebooted by itself")
NODE_LOST: Final = IncidentCause(
    "node-lost", True, "the node was not ready, and its object was deleted"
)
RACK_OUTAGE: Final = IncidentCause(
    "rack-outage", True, "nodes of one domain went down at the same moment"
)
GPU_FATAL: Final = IncidentCause(
    "gpu-fatal", True, "a GPU reported an error that only hardware or driver make"
)
GPU_LOST: Final = IncidentCause("gpu-lost", True, "a GPU is gone while its node stays ready")
NIC: Final = IncidentCause("nic", True, "a network link of the node is down")
NODE_UNHEALTHY: Final = IncidentCause(
    "node-unhealthy", True, "the scheduler or a health check closed the node by itself"
)
PROCESS_CRASH: Final = IncidentCause(
    "process-crash", True, "a process was killed from outside or from below"
)
NCCL_TIMEOUT: Final = IncidentCause(
    "nccl-timeout", True, "all processes gave up at once on a collective"
)
HANG: Final = IncidentCause("hang", True, "no progress and no exit, until the pods were replaced")

_NOTHING, _USER = InterruptionClass.NOTHING, InterruptionClass.USER
_DRAIN, _PREEMPTION = InterruptionClass.DRAIN, InterruptionClass.PREEMPTION
RECLAIMED: Final = IncidentCause(
    "reclaimed",
    True,
    "the machine was taken away while it trained, with a short notice",
    _PREEMPTION,
)
FLAP: Final = IncidentCause("flap", False, "not ready for a moment, on the same boot", _NOTHING)
OBSERVER: Final = IncidentCause(
    "observer-failed",
    False,
    "whoever watches the nodes lost them; their exporters and pods went on",
    _NOTHING,
)
DRAIN: Final = IncidentCause("planned-drain", False, "somebody cordoned the node first", _DRAIN)
SCALE_DOWN: Final = IncidentCause(
    "scale-down", False, "the node was taken away while it was well and idle", _DRAIN
)
USER_XID: Final = IncidentCause(
    "user-xid", False, "a GPU reported an error that programs make", _USER
)
XID_WARNING: Final = IncidentCause(
    "xid-warning", False, "a GPU reported something that needs no repair at once", _NOTHING
)
OOM_KILLED: Final = IncidentCause(
    "oom-killed", False, "the program took more memory than it asked for", _USER
)
USER_CRASH: Final = IncidentCause(
    "user-crash", False, "the program ended with an error of its own", _USER
)
CRASH_LOOP: Final = IncidentCause(
    "user-crash-loop", False, "the program fails again and again at the same place", _USER
)
PREEMPTION: Final = IncidentCause(
    "preemption", False, "it made room for a job of higher priority", _PREEMPTION
)
EVICTION: Final = IncidentCause(
    "eviction", False, "the kubelet or an administrator evicted a pod", _DRAIN
)
RESUBMISSION: Final = IncidentCause(
    "resubmission", False, "it was deleted and made again under the same name", _USER
)
CANCELLED: Final = IncidentCause(
    "cancelled", False, "its user or an administrator cancelled it", _USER
)
TIME_LIMIT: Final = IncidentCause("time-limit", False, "it reached its time limit", _USER)
COMPLETED: Final = IncidentCause("completed", False, "it was done", _NOTHING)
SIDECAR: Final = IncidentCause(
    "sidecar", False, "a helper container restarted; training went on", _NOTHING
)

NONE: Final = IncidentCause("none", False, "somebody said that it was no failure", _NOTHING)

CAUSES: Final = {
    cause.word: cause for cause in list(globals().values()) if isinstance(cause, IncidentCause)
}
"""All causes, by word."""


class XidMeaning(StrEnum):
    """What an XID means for the GPU."""

    HARDWARE = "hardware"
    """The GPU, its memory, its links or its firmware: it wants a reset or a repair."""
    PROGRAM = "program"
    """Programs make it; the GPU goes on."""
    NOTE = "note"
    """A notice: work goes on."""
    CLEAN_UP = "clean-up"
    """Reported when a program ends, for any reason."""


_PROGRAM: Final = frozenset(
    {1, 2, 3, 4, 5, 6, 7, 8, 13, 24, 31, 32, 37, 43, 68, 69, 80, 107, 126, 127, 128}
)
_NOTE: Final = frozenset({14, 15, 63, 66, 92, 96, 97, 99, 106, 108, 141, 154, 156, 157, 160})
_CLEAN_UP: Final = frozenset({45})
OFF_THE_BUS: Final = 79
"""The GPU does not answer any more."""


def meaning(code: int, stated: Mapping[str, str]) -> XidMeaning:
    """Meaning of an XID: as `stated` has it by its number, or else as NVIDIA does. An unknown one
    counts as hardware, because new ones are.

    >>> meaning(63, {}).value, meaning(63, {"63": "hardware"}).value
    ('note', 'hardware')
    """
    if (stated_meaning := stated.get(str(code))) is not None:
        return XidMeaning(stated_meaning)
    if code in _PROGRAM:
        return XidMeaning.PROGRAM
    if code in _NOTE:
        return XidMeaning.NOTE
    return XidMeaning.CLEAN_UP if code in _CLEAN_UP else XidMeaning.HARDWARE
