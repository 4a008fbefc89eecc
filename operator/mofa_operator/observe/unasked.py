"""Jobs that were not looked at since what running jobs teach their profile has moved: the profile says when none is left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from mofa_operator.keys import CLUSTER_PROFILE, Key
from mofa_operator.objects import LiveProfile
from mofa_operator.observe.relations import Uses

Since: TypeAlias = tuple[tuple[str, int], ...]
"""Profiles for which a job was to be looked at, and for which of their moves."""


@dataclass(slots=True)
class _Round:
    """One move of a profile, and the jobs that were not looked at since."""

    number: int
    factors: tuple[str, ...]
    left: set[Key]


class Unasked:
    """What is left to be looked at, by profile."""

    def __init__(self) -> None:
        """Nothing has moved."""
        self._rounds: dict[str, _Round] = {}
        self._number = 0

    def take(self, profile: LiveProfile, jobs: frozenset[Key]) -> None:
        """A profile as it stands, and the jobs that mean it: all are left where it has moved, none where it says so."""
        name, factors = profile.key.name, tuple(profile.factors.values())
        found = self._rounds.get(name)
        if profile.is_asked:
            self.settled(name)
        elif found is None or found.factors != factors:
            self._number += 1
            self._rounds[name] = _Round(self._number, factors, set(jobs))

    def settled(self, profile: str) -> None:
        """Every job was asked, or the profile is gone."""
        self._rounds.pop(profile, None)

    def came(self, key: Key, uses: Uses) -> None:
        """A job is seen for the first time; it may mean any profile where it names none."""
        for name, one in self._rounds.items():
            if uses.asks and uses.profile in {None, name}:
                one.left.add(key)

    def left(self, profile: str) -> int:
        """How many jobs are left. [1]"""
        return len(self._rounds[profile].left) if profile in self._rounds else 0

    def holding(self, key: Key) -> Since:
        """Of which moves a job is left."""
        return tuple((name, one.number) for name, one in self._rounds.items() if key in one.left)

    def gone(self, key: Key) -> frozenset[Key]:
        """A job is no more; the result is the profiles of which it was the last."""
        return self.asked(key, self.holding(key))

    def asked(self, key: Key, since: Since) -> frozenset[Key]:
        """A job was looked at, as things stood then; the result is the profiles of which it was the last."""
        done = list[str]()
        for name, number in since:
            found = self._rounds.get(name)
            if found is not None and found.number == number and key in found.left:
                found.left.discard(key)
                if not found.left:
                    done.append(name)
        return profile_keys(done)


def profile_keys(names: Iterable[str]) -> frozenset[Key]:
    """Keys of ClusterProfiles."""
    return frozenset(Key(CLUSTER_PROFILE, "", name) for name in names)
