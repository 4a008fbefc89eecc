"""Whether a job is there to train, whatever its steps do: its object, its pods or its trainer says so, and none that it is over.

    object    all of it is ready                 its kind, from the watch
    pods      every one that lives has a node    kube-state-metrics, `Pool.started`
    trainer   its series are there               `Trainer.there`

A step that is missing would be seen where the trainer's series are there, where steps were seen before, and where pods have
nodes and do not run: then nobody trains. A job whose pods wait for nodes waits in a queue.

A job that starts again and again without ever a step is still the same start: only the end or the suspension of its object, or
`AWAY` without any of the three, makes the next one a new start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from mofa_model.kinds.observation import Observation
from mofa_operator.observe.trainers import RECENT
from mofa_operator.snapshot import Alive

AWAY: Final = RECENT
"""Time for which a job may be gone and still be in the same start: pods that crash come back within five minutes. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """What is known of a job's steps."""

    step: int | None = None
    """Last finished one, where it is counted. [1]"""
    at: float | None = None
    """When it was finished. [s]"""
    seconds: float | None = None
    """Time of one. [s]"""


class Presences:
    """What is remembered of every job that was there lately."""

    def __init__(self) -> None:
        """Nothing was looked at yet."""
        self._known: dict[tuple[str, str, str], Alive] = {}
        self._moved: dict[tuple[str, str, str], Steps] = {}

    def after(
        self,
        key: tuple[str, str, str],
        told: Iterable[Observation],
        steps: Steps,
        *,
        pods: float | None,
        placed: bool,
        trainer: float | None,
        now: float,
    ) -> Alive | None:
        """What holds after one more look; `pods` and `trainer` are since when they are there, None where they are not [s],
        `placed` is whether all pods have nodes.
        """
        observations = list(told)
        if any(one.ended is not None or one.suspended is not None for one in observations):
            self._known.pop(key, None)
            return None
        whole = any(one.ready for one in observations)
        if not whole and not placed and pods is None and trainer is None:
            return None
        before = self._known.get(key)
        if before is not None and now - before.at > AWAY:
            before = None
        said = [at for at in (pods, trainer) if at]
        stepped = self._step_at(key, steps, now)
        found = Alive(
            at=now,
            since=before.since if before is not None else min(now, max(said, default=now)),
            watched=trainer is not None or stepped is not None or not (whole or pods is not None),
            step_at=stepped,
            step_seconds=steps.seconds,
        )
        self._known[key] = found
        return found

    def keep(self, there: Iterable[tuple[str, str, str]]) -> None:
        """Forget all others."""
        kept = set(there)
        self._known = {key: one for key, one in self._known.items() if key in kept}
        self._moved = {key: one for key, one in self._moved.items() if key in kept}

    def _step_at(self, key: tuple[str, str, str], steps: Steps, now: float) -> float | None:
        """When the last step was finished: where nobody dates it, when it was first seen."""
        if (
            steps.at is None
            and steps.step is not None
            and steps.step != self._moved.get(key, Steps()).step
        ):
            self._moved[key] = replace(steps, at=now)
        return steps.at if steps.at is not None else self._moved.get(key, Steps()).at
