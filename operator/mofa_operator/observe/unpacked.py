"""ClusterProfiles as they stand, unpacked once and not for every job that asks."""

from __future__ import annotations

from mofa_operator.keys import FAILURE_LEDGER, Key
from mofa_operator.objects import LiveObject, LiveProfile
from mofa_operator.observe.bodies import StoredBody, unpacked


class Unpacked:
    """The last one of each name."""

    def __init__(self) -> None:
        """None was asked for yet."""
        self._held: dict[Key, tuple[bytes, bytes, LiveProfile]] = {}

    def profile(
        self, key: Key, stands: StoredBody | None, ledger: StoredBody | None
    ) -> LiveProfile | None:
        """A profile and its ledger, as they are kept; None where there is no profile."""
        if stands is None:
            return None
        beside = b"" if ledger is None else ledger.raw
        held = self._held.get(key)
        if held is None or held[0] is not stands.raw or held[1] is not beside:
            named = Key(FAILURE_LEDGER, "", key.name)
            counted = None if ledger is None else LiveObject(named, unpacked(beside))
            found = LiveProfile(key, unpacked(stands.raw), counted)
            self._held[key] = held = stands.raw, beside, found
        return held[2]

    def forget(self, key: Key) -> None:
        """It is no more."""
        self._held.pop(key, None)
