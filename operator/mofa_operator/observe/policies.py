"""AdvisorPolicies as the jobs of their namespace look them up, and what they leave these of what all namespaces share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mofa_model.kinds.shape import Body, glance
from mofa_model.manifest.advisor_policy import MOST_HANDS, MOST_INFLUENCE
from mofa_operator.keys import ADVISOR_POLICY, Key
from mofa_operator.observe.relations import ListedPolicy

_PERCENT: Final = 100.0


class Policies:
    """Policies by namespace and name."""

    def __init__(self) -> None:
        """There are none."""
        self._found: dict[str, dict[str, ListedPolicy]] = {}

    def put(self, key: Key, body: Body | None) -> None:
        """Take in a policy as it is now; None = it is no more."""
        here = self._found.setdefault(key.namespace, {})
        here.pop(key.name, None)
        if body is not None:
            here[key.name] = glance(ListedPolicy, body)
        if not here:
            del self._found[key.namespace]

    def of(self, namespace: str) -> list[ListedPolicy]:
        """Policies of a namespace, in the order of their names."""
        return [policy for _, policy in sorted(self._found.get(namespace, {}).items())]

    def profile(self, key: Key) -> str:
        """The ClusterProfile that a policy names; empty where it names none."""
        return self._found[key.namespace][key.name].profile

    def naming(self, profile: str) -> frozenset[Key]:
        """Policies that name a ClusterProfile."""
        return frozenset(
            Key(ADVISOR_POLICY, place, name)
            for place, here in self._found.items()
            for name, one in here.items()
            if one.profile == profile
        )

    def hands(self, namespace: str) -> float:
        """Share of the operator's concurrent work that a namespace may have. [1]"""
        return min((one.hands for one in self.of(namespace)), default=MOST_HANDS) / _PERCENT

    def most(self, hands: int, namespace: str) -> int:
        """How many of the operator's hands that is, one at least. [1]"""
        return max(1, int(hands * self.hands(namespace)))

    def influence(self) -> Mapping[str, float]:
        """By how much a day namespaces move what a pool has learned, where it is less than usual. [1]"""
        least = {
            place: min(one.influence for one in here.values())
            for place, here in self._found.items()
        }
        return {place: one / _PERCENT for place, one in least.items() if one < MOST_INFLUENCE}
