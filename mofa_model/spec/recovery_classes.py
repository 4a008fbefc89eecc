"""The recovery classes: what has to start again after a failure. This is their one home.

Assumptions, manifests, the simulator, observation, metrics and dashboards all loop over
`RecoveryClass`. The classes partition the recoveries, as in section 3.4 of the paper. They are in
order of cost: an incident with signs of several classes counts as the last of them. A new class
needs a member here; each kind of jobs in `mofa_model.kinds` says which field of its objects shows
it, and the help of `mofa rates` and `mofa profile` names the classes (`answers/questions.py`).
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

    sentence: str
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
        sentence: str = "",
        share: float = 0.0,
        seconds: float = 0.0,
        keeps_pods: bool = False,
    ) -> Self:
        """Make a recovery class from its word, sentence, share, time, and whether pods stay."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.sentence, member.share = sentence, share
        member.seconds, member.keeps_pods = seconds, keeps_pods
        return member


def costlier(first_class: RecoveryClass, second_class: RecoveryClass) -> RecoveryClass:
    """The class of two whose recovery costs more.

    >>> costlier(RecoveryClass.JOB, RecoveryClass.POD).value
    'job'
    """
    return max(first_class, second_class, key=list(RecoveryClass).index)
