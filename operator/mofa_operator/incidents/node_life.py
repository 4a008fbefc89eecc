"""One node's past, as the witnesses tell it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from mofa_operator.incidents.runs import Span, ValueRun, joined, spans, without
from mofa_operator.incidents.witnesses import CORDON, READY, TAINT, Witness

NodePart: TypeAlias = tuple[str, ...]
"""Which part of a node a series speaks of: the values of its witness' labels."""


@dataclass(frozen=True, kw_only=True)
class NodeLife:
    """What is known of a node."""

    name: str
    """The node."""
    told: Mapping[Witness, Mapping[NodePart, tuple[ValueRun, ...]]]
    """What each witness says of each part; only stretches of time in which something happened."""
    spacing: Mapping[Witness, float]
    """Usual time between samples of a witness. [s]"""
    labels: Mapping[str, str]
    """Its labels, as far as the series tell them."""
    seen: tuple[Span, ...]
    """When it was there and looked at. [s]"""
    known: tuple[Span, ...]
    """When anything of the pool was looked at. [s]"""

    def parts(self, witness: Witness) -> Iterator[tuple[NodePart, tuple[ValueRun, ...]]]:
        """What a witness says, part by part."""
        yield from sorted(self.told.get(witness, {}).items())

    def on(self, witness: Witness, value: float = 1.0) -> list[Span]:
        """When any part had a value. [s]"""
        gap = self.spacing.get(witness, 0.0)
        return joined(span for _, many in self.parts(witness) for span in spans(many, value, gap))

    @cached_property
    def step(self) -> float:
        """Time between two samples of its conditions. [s]"""
        return self.spacing.get(READY, 60.0) or 60.0

    @cached_property
    def ready(self) -> tuple[ValueRun, ...]:
        """What is said of its readiness."""
        return self.told.get(READY, {}).get((), ())

    @cached_property
    def cordons(self) -> list[Span]:
        """When it took no new pods. [s]"""
        taints = [
            span
            for (key,), many in self.parts(TAINT)
            for span in spans(many, 1.0, self.spacing.get(TAINT, 0.0))
            if not key.startswith(("ToBeDeleted", "DeletionCandidate"))
        ]
        return joined([*self.on(CORDON), *taints], 2 * self.step)

    @cached_property
    def not_ready(self) -> list[Span]:
        """When it was not ready. [s]"""
        return spans(self.ready, 0.0, self.step)

    @property
    def gone(self) -> float | None:
        """When it was deleted; None = it is still there. [s]"""
        last, whole = self.seen[-1][1], self.known[-1][1]
        return last if whole - last > max(600.0, 3 * self.step) else None

    def exposed(self, failing: list[Span], away: float) -> list[Span]:
        """When its failure would have been seen as one: there, ready but for `away`, not cordoned, not failing. [s]"""
        down = [span for span in self.not_ready if span[1] - span[0] >= away]
        return without(self.seen, [*self.cordons, *down, *failing])
