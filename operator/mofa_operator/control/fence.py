"""The fence is proved before anything is written, and every hour; where it does not hold, nothing is written until it does."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from mofa_operator.act.fence import why_open
from mofa_operator.api import Api
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.refusals import Busy, Refused
from mofa_operator.settings import ApiSettings

HOURLY: Final = 3600.0
"""Time between two proofs. [s]"""
AGAIN: Final = 5.0
"""Time until the next try where it does not hold, or nobody could say. [s]"""

_log = logging.getLogger(__name__)


class Fence:
    """Whether writing is safe, as last proved; where no fence was asked for, it is taken to be."""

    def __init__(self, api: Api, exporter: Exporter, settings: ApiSettings) -> None:
        """Nothing is proved yet."""
        self._api = api
        self._exporter = exporter
        self._asked = settings.fence
        self.open: str | None = "it was not asked yet" if settings.fence else None
        """Why it does not hold; None where it does."""

    async def stands(self) -> None:
        """Wait until it holds; raises `Busy` where nobody can say."""
        known = self.open
        while self.open is not None:
            await self._look()
            if self.open not in {None, known}:
                _log.error("nothing is written: the fence does not hold: %s", self.open)
            known = self.open
            if known is not None:
                await asyncio.sleep(AGAIN)

    async def run(self) -> None:
        """Prove it again and again; ends where it does not hold any more, and with it the operator, which starts anew."""
        wait = HOURLY
        while self.open is None:
            await asyncio.sleep(wait)
            wait = HOURLY
            try:
                await self._look()
            except Busy as error:
                wait = AGAIN
                _log.info("the fence was not proved: %s", error)
        raise Refused(self.open)

    async def _look(self) -> None:
        if self._asked:
            self.open = await why_open(self._api) or None
            self._exporter.fence(self.open is None)
