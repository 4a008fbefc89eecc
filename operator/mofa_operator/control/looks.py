"""A look that is taken again and again, whatever becomes of a single one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

_log = logging.getLogger(__name__)


async def again_and_again(
    look: Callable[[], Awaitable[None]], interval: float, at: str
) -> NoReturn:
    """Look until cancelled, with so much time between two looks [s]; a log says what failed."""
    while True:
        try:
            await look()
        except Exception:  # noqa: BLE001 - one look that fails must not end the others
            _log.exception("the look at %s failed", at)
        await asyncio.sleep(interval)
