"""What runs in the process that computes advice; it imports neither kopf nor anything that talks to a network.

One process, one question at a time: a question that takes long keeps others waiting there, and never the event loop.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mofa_model.cli import SELDOM
from mofa_operator.decision import Answer, Unsearched
from mofa_operator.snapshot import Question, Refusal

if TYPE_CHECKING:
    from mofa_model.page import AdviceView  # imports numpy, which `prepare` must come before

_POLITENESS: Final = 2
"""How much the process steps back behind the event loop, as `nice` counts."""
_CGROUPS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where a container's limit of memory stands, by the version of its control groups."""
SHARE: Final = 0.75
"""Share of the container's memory that the processes which compute may have; the rest is the loop's. [1]"""
LEAST: Final = 512 * 2**20
"""Address space without which a process cannot even import what it needs, with some to work. [B]"""
_THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def memory_of(processes: int, limits: Sequence[Path] = _CGROUPS) -> int | None:
    """Address space that each of these processes may have, by the container's limit; None where there is none. [B]"""
    for file in limits:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            return max(LEAST, int(SHARE * int(file.read_text()) / processes))
    return None


def prepare(memory: int | None = None) -> None:
    """Set the process up, before anything heavy is imported; a question that wants more `memory` fails, and not the container. [B]"""
    if memory is not None:
        allowed = resource.getrlimit(resource.RLIMIT_AS)[
            1
        ]  # whoever started us may have bounded us already
        memory = memory if allowed == resource.RLIM_INFINITY else min(memory, allowed)
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    for variable in _THREADS:
        os.environ[variable] = "1"
    gc.set_threshold(SELDOM)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent says when to stop
    os.nice(_POLITENESS)
    threading.Thread(target=_follow_the_parent, daemon=True).start()


def _follow_the_parent() -> None:
    """Without this, a worker would outlive a parent that was killed: it waits on a pipe that it holds open itself."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def warm() -> None:
    """Import and read what every answer needs."""
    from mofa_operator.decide.answer import warm as heat

    heat()
    gc.freeze()  # what was imported and read is no garbage


def answer(question: Question) -> Answer:
    """The model's answer."""
    from mofa_operator.decide.answer import answer as find

    return find(question)


def unsearched(question: Question) -> Unsearched | Answer:
    """What is known of it without a search."""
    from mofa_operator.decide.answer import unsearched as know

    return know(question)


def view(question: Question) -> AdviceView | Refusal | None:
    """The same answer in full, for the page."""
    from mofa_operator.decide.answer import view as draw

    return draw(question)
