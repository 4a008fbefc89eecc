"""Hands that take keys from a queue of their own and try each until it is done; whatever befalls one holds up no other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from mofa_operator.control.decider import Outdated
from mofa_operator.control.process import NoAnswer
from mofa_operator.control.queue import WorkQueue
from mofa_operator.keys import Key
from mofa_operator.refusals import ApiError, Gone

HANDS: Final = 4
"""Keys that are looked at at the same time. [1]"""
LONGEST: Final = 30.0
"""Longest wait between two tries. [s]"""

_log = logging.getLogger(__name__)


async def hands(queue: WorkQueue, look: Callable[[Key], Awaitable[None]], unfinished: str) -> None:
    """Look at every key that is due, until cancelled; `unfinished` says of one that is tried again what is still so."""

    async def hand() -> None:
        while (key := await queue.take()) is not None:
            try:
                await look(key)
            except Gone:
                queue.done(key)
            except (ApiError, NoAnswer, Outdated) as error:
                wait = queue.failed(key)
                _log.warning("%s: %s: %s; again in %.3g s", key, unfinished, error, wait)
            except Exception:  # noqa: BLE001 - one object must not keep the others waiting
                _log.exception("%s: our fault", key)
                queue.failed(key)
            else:
                queue.done(key)

    async with asyncio.TaskGroup() as group:
        for _ in range(HANDS):
            group.create_task(hand())
