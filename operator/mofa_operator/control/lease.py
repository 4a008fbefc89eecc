"""Election by a Lease: of several operators, one acts. Off by default: one replica needs none.

Clocks of different machines are never compared: a Lease has run out when its record has not changed
for its duration by the clock of the operator that waits. A holder that cannot renew stops acting
before any other may think the Lease free.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import socket
from datetime import UTC, datetime
from typing import Final

from mofa_model.kinds import Kind
from mofa_model.kinds.shape import Body, Shape, Tally, Text, glance, part
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError, Conflict
from mofa_operator.objects import WrittenPart
from mofa_operator.settings import LeaseSettings

LEASE: Final = Kind("coordination.k8s.io", "v1", "Lease", "leases")
_RENEWALS: Final = 3
"""Renewals in the duration of a Lease. [1]"""
_RETRIES: Final = 15
"""Attempts in the duration of a Lease when one has failed. [1]"""
_PULSE: Final = 0.2
"""Time between two checks that this process gets a processor. [s]"""
_MARGIN: Final = 2 / 3
"""Share of the duration after which a Lease that was not renewed counts as lost. [1]"""

_log = logging.getLogger(__name__)


class _Record(Shape):
    """Spec of a Lease."""

    holder_identity: Text = ""
    renew_time: Text = ""
    lease_transitions: Tally = 0
    lease_duration_seconds: Tally = 0


class Lease:
    """Our part in the election."""

    def __init__(self, api: Api, settings: LeaseSettings, identity: str) -> None:
        """`identity` names this process among its rivals."""
        self._api = api
        self._settings = settings
        self._identity = identity
        self._seen: tuple[str | None, str, int] | None = None
        self._seen_at = -math.inf
        self._standstill = 0.0
        self._why = ""
        self.holder: str | None = None
        """Who holds it, as last seen."""

    @property
    def holder_text(self) -> str:
        """Who holds the Lease, in words."""
        lease = f"the Lease {self._settings.namespace}/{self._settings.name}"
        return (
            f"{self.holder} holds {lease}" if self.holder else f"nobody is seen to hold {lease} yet"
        )

    @property
    def _pause(self) -> float:
        return self._settings.duration / _RENEWALS

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        while True:
            if await self._try():
                break
            await asyncio.sleep(self._pause)
        _log.info(
            "this operator leads: it holds the Lease %s/%s",
            self._settings.namespace,
            self._settings.name,
        )

    async def hold(self) -> str:
        """Renew the Lease again and again; returns the reason when it is lost."""
        watching = asyncio.create_task(self._watch_standstill())
        try:
            await self._renew()
        finally:
            watching.cancel()
        return f"it is lost, {self._why_lost()}"

    async def _renew(self) -> None:
        """Renew the Lease again and again; returns once that did not succeed in time."""
        loop = asyncio.get_running_loop()
        renewed_at, pause = loop.time(), self._pause
        while loop.time() - renewed_at < self._settings.duration * _MARGIN:
            await asyncio.sleep(pause)
            asked = loop.time()
            left = renewed_at + self._settings.duration * _MARGIN - asked
            if left <= 0.0:
                break
            try:
                async with asyncio.timeout(left):
                    renewed = await self._try()
            except TimeoutError:
                self._why = self._why or "the API server did not answer in time"
                break
            if renewed:
                renewed_at, pause, self._standstill, self._why = asked, self._pause, 0.0, ""
            elif self.holder not in {None, self._identity}:
                break
            else:
                pause = self._settings.duration / _RETRIES

    async def _watch_standstill(self) -> None:
        """Note the longest standstill of this process since the last renewal."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(_PULSE)
            self._standstill = max(self._standstill, loop.time() - before - _PULSE)

    def _why_lost(self) -> str:
        """Why the Lease was not renewed, as a phrase for a log."""
        has_rival = self.holder not in {None, self._identity}
        reasons = [f"{self.holder} holds it now"] if has_rival else []
        if self._standstill > self._settings.duration / _RETRIES:
            reasons.append(
                f"this process stood still for {self._standstill:.1f} s of the "
                f"{self._settings.duration:g} s for which a Lease holds: it got "
                "no processor; give it more of one, or a longer --lease-duration"
            )
        elif not has_rival:
            reasons.append(self._why or "nobody holds it")
        return "; ".join(reasons)

    async def release(self, within: float = math.inf) -> None:
        """Give the Lease back within a time [s], so that the next holder need not wait."""
        try:
            async with asyncio.timeout(None if math.isinf(within) else within):
                await self._give_back()
        except (ApiError, TimeoutError) as error:
            _log.warning("the Lease was not released: %s", str(error) or "no answer in time")

    async def _give_back(self) -> None:
        """Write the Lease without a holder, again where our own last renewal came between."""
        no_holder = {"holderIdentity": "", "leaseDurationSeconds": 1}
        while (lease := await self._read()) is not None and self.holder == self._identity:
            with contextlib.suppress(Conflict):
                await self._write(lease, {**no_holder, "renewTime": _now()})
                return

    async def _try(self) -> bool:
        """Try once to get or renew the Lease; whether it is ours now."""
        try:
            lease = await self._read()
            if lease is None:
                await self._api.create(LEASE, self._settings.namespace, self._new())
            elif not self._is_free(record := glance(_Record, lease.get("spec"))):
                return False
            else:
                await self._write(lease, self._taken(record))
        except ApiError as error:
            _log.warning("the Lease could not be taken and is tried again: %s", error)
            self._why = str(error)
            return False
        self.holder = self._identity
        return True

    async def _read(self) -> Body | None:
        lease = await self._api.get(LEASE, self._settings.namespace, self._settings.name)
        if lease is not None:
            self.holder = glance(_Record, lease.get("spec")).holder_identity or None
        return lease

    async def _write(self, lease: Body, fields: WrittenPart) -> None:
        """Write fields of the Lease; raises `Conflict` where somebody wrote since it was read."""
        body = {**lease, "spec": {**part(lease, "spec"), **fields}}
        await self._api.replace(LEASE, self._settings.namespace, self._settings.name, body)

    def _is_free(self, record: _Record) -> bool:
        """Whether a Lease is ours, has no holder, or has run out."""
        now = asyncio.get_running_loop().time()
        seen = (self.holder, record.renew_time, record.lease_transitions)
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        duration = record.lease_duration_seconds or self._settings.duration
        return self.holder in {None, self._identity} or now - self._seen_at > duration

    def _taken(self, record: _Record) -> WrittenPart:
        """The spec of the Lease with us as its holder."""
        fields: WrittenPart = {"holderIdentity": self._identity, "renewTime": _now()}
        fields["leaseDurationSeconds"] = max(1, math.ceil(self._settings.duration))
        if record.holder_identity != self._identity:
            fields |= {"leaseTransitions": record.lease_transitions + 1, "acquireTime": _now()}
        return fields

    def _new(self) -> WrittenPart:
        meta = {"name": self._settings.name, "namespace": self._settings.namespace}
        spec = self._taken(_Record()) | {"leaseTransitions": 0}
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": meta, "spec": spec}


def _now() -> str:
    """The moment as a MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def identity() -> str:
    """Who we are among several operators: the pod's name, and this process."""
    return f"{os.environ.get('HOSTNAME') or socket.gethostname()}-{os.getpid()}"
