"""The admission fence: nothing is written unless it holds, which is proved first and every hour.

The proof is a dry run of a write that our roles allow and the fence forbids: a ledger that no
profile owns. A refusal that names the admission policy proves that it holds; any other answer, also
a refusal by somebody else, proves nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from mofa_operator.api import Api
from mofa_operator.api_errors import Busy, Gone, Invalid, Refused
from mofa_operator.keys import FAILURE_LEDGER
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.settings import ApiSettings

HOURLY: Final = 3600.0
"""Time between two proofs. [s]"""
AGAIN: Final = 5.0
"""Time until the next proof where the fence does not hold, or could not be asked. [s]"""
PROBE: Final = "mofa-fence-proof"
"""Name of the ledger that is never made."""
_POLICY: Final = "ValidatingAdmissionPolicy"
"""How the API server names the admission policy in a refusal."""

_log = logging.getLogger(__name__)


class Fence:
    """Whether writing is safe, as last proved; where no fence was asked for, it is taken to be."""

    def __init__(self, api: Api, exporter: Exporter, settings: ApiSettings) -> None:
        """Check the admission policy through `api`, and publish the result by `exporter`."""
        self._api = api
        self._exporter = exporter
        self._is_wanted = settings.fence
        self.failure: str | None = "the API server was not asked yet" if settings.fence else None
        """Why the fence does not hold; None where it does."""

    async def wait_until_proven(self) -> None:
        """Wait until the fence holds; raises `Busy` where that cannot be found out."""
        logged = self.failure
        while self.failure is not None:
            await self._prove()
            if self.failure not in {None, logged}:
                _log.error(
                    "the operator writes nothing: its admission policy (the fence) does not "
                    "hold: %s",
                    self.failure,
                )
            logged = self.failure
            if logged is not None:
                await asyncio.sleep(AGAIN)

    async def run(self) -> None:
        """Prove the fence every hour; raises `Refused`, which ends the operator, where it fails."""
        wait = HOURLY
        while self.failure is None:
            await asyncio.sleep(wait)
            wait = HOURLY
            try:
                await self._prove()
            except Busy as error:
                wait = AGAIN
                _log.info(
                    "the admission policy (the fence) could not be checked and is tried again: %s",
                    error,
                )
        raise Refused(self.failure)

    async def _prove(self) -> None:
        if self._is_wanted:
            self.failure = await fence_failure(self._api) or None
            self._exporter.fence(self.failure is None)


async def fence_failure(api: Api) -> str:
    """Why the admission policy does not hold the operator back; empty where it does.

    Raises `Busy` where the API server does not say.
    """
    kind = FAILURE_LEDGER
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": PROBE}}
    try:
        await api.apply(kind, "", PROBE, body, rehearsal=True)
    except Refused as error:
        if _POLICY in str(error):
            return ""
        return f"what it must refuse was refused before it was asked: {error}"
    except (Gone, Invalid) as error:
        return f"it cannot be asked: {error}"
    return "a write that it must refuse was allowed"
