"""Whether the machines or the program stopped a job, where no fault of a node and no decision did.

An exit code alone says little: torchrun ends with 1 whatever killed its workers. The runs before
and after say more: a program that fails at one step fails there again when it resumes, and a fault
of the machines rarely comes back after the same time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mofa_model.units import HOUR

REPLAY: Final = 3 * HOUR
"""A run that lasts for longer passes the step at which the job had stopped: jobs save more often
than that. Ours. [s]"""
SOON: Final = 600.0
"""A run that ends sooner has hardly trained: start-up, imports, first batches. Ours. [s]"""
REPEATED: Final = 1.5 * HOUR
"""Longest time from a checkpoint to a step at which a program fails again and again. Ours. [s]"""
ALIKE: Final = 0.015
"""Share by which the lengths of runs that end at one step differ, beside a minute. [1]"""
PRIOR: Final = 0.5
"""Logarithm of the odds that the machines did it, without any sign: fitted with the weights. [1]"""
SIGNS: Final[Mapping[str, tuple[float, str]]] = {
    "by_signal": (1.7, "the first container was killed"),
    "own_code": (-2.0, "the first container exited by itself"),
    "waited": (4.0, "all processes hung before they ended"),
    "together": (0.0, "all ended at once"),
    "alike": (-2.9, "runs beside it were as long"),
    "looping": (-2.6, "again and again"),
    "timed": (-6.1, "runs beside it ended after the same hours"),
    "again": (-0.3, "it stopped again soon"),
    "survived": (0.8, "it went on unchanged"),
    "elsewhere": (7.0, "it lasted once a pod went to another node"),
    "lasted": (0.4, "it had trained for hours"),
    "sooner": (-2.0, "it had hardly trained"),
    "program_xid": (-2.0, "a GPU reported an error that programs make"),
    "neighbours": (1.8, "another job stopped too"),
    "node_record": (0.5, "its nodes had shown trouble before"),
}
"""What each sign adds to the logarithm of the odds that the machines did it, and the sign in words.

tools/blame.py fits the weights on 51,000 stops of 3,000 made histories of three kinds of launchers,
to a digit. Ours: that waiting is worth 4 (fitted 5.6, where no program ever waits), a node's record
0.5 and another node 7 (neither is made: a program that fails again and again does so on every
node)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Signs:
    """What speaks for the machines or for the program."""

    by_signal: bool = False
    """The first container to end was killed by a signal."""
    own_code: bool = False
    """It chose its exit code, and others of the job ended with other codes, so that codes say
    something.
    """
    waited: bool = False
    """Work had stopped minutes before, or all containers aborted at once."""
    together: bool = False
    """Several containers ended within seconds with one code."""
    alike: bool = False
    """A run before or after ended after the same short time."""
    looping: bool = False
    """Two or more runs near it ended after the same short time."""
    timed: bool = False
    """Two or more runs near it ended after the same hours: a program has a clock, or a leak."""
    again: bool = False
    """The next run ended within an hour, with no fault of a node."""
    survived: bool = False
    """It went on unchanged, and trained past the step at which it had stopped."""
    elsewhere: bool = False
    """It stopped again and again on the same nodes, and lasted unchanged once one was replaced."""
    lasted: bool = False
    """It had trained for hours, while errors of programs show early."""
    sooner: bool = False
    """It had hardly trained."""
    program_xid: bool = False
    """A GPU of its nodes reported an error that programs make."""
    neighbours: bool = False
    """Another job stopped at the same moment, and neither does so again and again."""
    node_record: bool = False
    """Its nodes had a fault, a notice or a flap close to it."""

    def words(self) -> str:
        """Names of the signs that were seen."""
        return ", ".join(words for name, (_, words) in SIGNS.items() if getattr(self, name))


def infrastructure_share(signs: Signs) -> float:
    """The chance that the machines, and not the program, made a job stop.

    >>> round(infrastructure_share(Signs(survived=True)), 2)
    0.79
    >>> round(infrastructure_share(Signs(alike=True, again=True)), 2)
    0.06
    """
    odds = PRIOR + sum(weight for name, (weight, _) in SIGNS.items() if getattr(signs, name))
    return 1 / (1 + math.exp(-odds))


def alike(ran: float, before: float) -> bool:
    """Whether two runs ended after the same time, within what a job repeats. [s]

    >>> alike(1500, 1540), alike(1500, 1800), alike(43000, 43000)
    (True, False, False)
    """
    return max(ran, before) <= REPEATED and _same(ran, before)


def timed(ran: float, before: float) -> bool:
    """Whether two long runs ended after the same time: one such pair is chance, two are a program's
    clock. [s]

    >>> timed(43000, 43300), timed(43000, 44000), timed(1500, 1540)
    (True, False, False)
    """
    return min(ran, before) > REPEATED and _same(ran, before)


def _same(ran: float, before: float) -> bool:
    """Whether two runs ended after the same time. [s]"""
    return abs(ran - before) <= 60.0 + ALIKE * max(ran, before)
