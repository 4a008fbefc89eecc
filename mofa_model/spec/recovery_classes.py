"""The recovery classes: what has to start again after a failure. This is their one home.

Assumptions, manifests, simulator, observation, metrics and dashboards go over `RecoveryClass`. The
classes partition the recoveries, as in section 3.4 of the paper, and stand in order of cost: an
incident that shows in several is of the last. A new class is a member here; a kind of jobs in
`mofa_model.kinds` says by which field of its objects it is seen.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class RecoveryClass(StrEnum):
    """What has to start again; the value is its name in manifests, statuses, metrics and on the
    command line.
    """

    PROCESS = "process", "Processes restart in their pods.", 0.3, 141.0, True
    POD = "pod", "Pods are replaced.", 0.6, 262.0, False
    JOB = "job", "The whole job is started again.", 0.1, 307.0, False

    told: str
    """What happens, as a sentence for generated documents."""
    share: float
    """Default share of all failures; 0 = it has to be stated or counted. [1]"""
    seconds: float
    """Default recovery time. [s]"""
    keeps_pods: bool
    """Whether the pods stay: then the nearest checkpoint survives, and nothing waits in the
    scheduler's queue."""

    def __new__(
        cls,
        name: str,
        told: str = "",
        share: float = 0.0,
        seconds: float = 0.0,
        keeps_pods: bool = False,
    ) -> Self:
        """Make a class of recovery from its word, sentence, share, time, and whether pods stay."""
        made = str.__new__(cls, name)
        made._value_ = name
        made.told, made.share, made.seconds, made.keeps_pods = told, share, seconds, keeps_pods
        return made


def costlier(first_class: RecoveryClass, second_class: RecoveryClass) -> RecoveryClass:
    """The one of two classes that restores more.

    >>> costlier(RecoveryClass.JOB, RecoveryClass.POD).value
    'job'
    """
    return max(first_class, second_class, key=list(RecoveryClass).index)


def listed(end: str = " or ") -> str:
    """The names of the classes, for people.

    >>> listed()
    'process, pod or job'
    """
    *first, last = RecoveryClass
    return f"{', '.join(first)}{end}{last}"
