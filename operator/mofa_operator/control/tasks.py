"""Tasks of the event loop: found by name, waited for, and ended for good."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias

from mofa_model.errors import SourceUnreachable
from mofa_operator.refusals import ApiError

PATIENCE: Final = 30.0
"""How long the API server may be silent at the start. [s]"""
Task: TypeAlias = asyncio.Task[Any]


def named(name: str) -> set[Task]:
    """Tasks of this loop of a name."""
    return {task for task in asyncio.all_tasks() if task.get_name() == name}


async def end(tasks: Iterable[Task], within: float) -> None:
    """Cancel tasks until they have ended, or for so long: kopf swallows a cancellation now and then. [s]"""
    loop, left = asyncio.get_running_loop(), {task for task in tasks if not task.done()}
    until = loop.time() + within
    while left and loop.time() < until:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=within / 4)


async def first(stopped: Task, work: Coroutine[Any, Any, None]) -> Task:
    """Whichever ends first; work that is not done by then is given up, and its error is raised."""
    task = asyncio.create_task(work)
    await asyncio.wait({stopped, task}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return stopped


async def reached(work: Callable[[], Awaitable[None]], server: str) -> None:
    """What comes before all else; raises `SourceUnreachable` where the API server stays silent."""
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    while True:
        try:
            return await work()
        except ApiError as error:
            if loop.time() > until:
                raise SourceUnreachable(f"Kubernetes at {server}: {error}") from None
            await asyncio.sleep(1.0)
