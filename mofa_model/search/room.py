"""Memory of a block of strategies: what has no room whatever it does, and what fits of every state beside a kind of work."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.rejection import Rejection
from mofa_model.axes.rules import AxisContext
from mofa_model.estimate.footprint import host_room, room
from mofa_model.estimate.live import waiting, with_loss
from mofa_model.placement import spread
from mofa_model.search.axes import Axes
from mofa_model.search.blocks import Company, ShapeBlock
from mofa_model.search.local import Locals, varied
from mofa_model.search.rank import Leaders
from mofa_model.search.states import ZeroLevel
from mofa_model.search.works import Work, works_of
from mofa_model.strategy import Sharding

NEAR: Final = 1.15
"""Strategies that would fit with 15 % more memory are priced as well, to say what more memory would give."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class FitsBeside:
    """What fits of a state beside a kind of work."""

    state: ZeroLevel
    fits: Array
    """[states, rows]"""
    near: Array | None
    """Bytes where it almost fits, else zero, [states, rows]; None where nothing does."""
    peak: Array
    """Bytes on the fullest device, infinite where it is not legal, [states, rows]. [B]"""


def without_room(
    axes: Axes, given: AxisContext, block: ShapeBlock, states: list[ZeroLevel], leaders: Leaders
) -> tuple[Counter[Rejection], Array]:
    """Strategies of the rows that have no room for what stays, whatever a micro-batch does; and the other rows."""
    least = np.full(len(block.index), np.inf)
    for state in states:
        legal = reduce(or_, state.ok)
        least = np.minimum(
            least, np.min(np.where(legal, np.max(state.held, axis=1), np.inf), axis=0)
        )
    full = least > room(given.cluster) * given.memory_share * NEAR
    if not leaders.searched:  # where nothing fits somebody asks for the leanest
        full &= least >= leaders.leanest[0]
    if not full.any():
        return Counter(), np.arange(len(least))
    works = list(works_of(axes, block))
    legal_rows = 0
    for company in block.companies:
        for at in company.bundles:
            beside = sum(np.count_nonzero(state.ok[at][:, full], axis=0) for state in states)
            done = sum(
                (work.ok[at][full] for work in works if at in work.ok), np.zeros(int(full.sum()))
            )
            repeated = (
                company.repeated if isinstance(company.repeated, int) else company.repeated[full]
            )
            legal_rows += int(np.sum(beside * done * repeated))
    return Counter({Rejection.OUT_OF_MEMORY: legal_rows}), np.flatnonzero(~full)


@dataclass(frozen=True, slots=True)
class StateMemory:
    """What a state needs beside a kind of work."""

    state: ZeroLevel
    peak: Array
    """Bytes on the fullest device, [states, rows]. [B]"""
    host: Array | None
    """Host memory of a node, [states, rows] or [rows]; None where all have room. [B]"""


def memory_beside(
    given: AxisContext,
    block: ShapeBlock,
    states: list[ZeroLevel],
    work: Work,
    local: Locals,
    position: Array,
) -> list[StateMemory]:
    """Memory of one kind of work beside every state."""
    w, c = given.workload, given.cluster
    stored = waiting(w, work.strategy, block.stages, spread(local.stored(work.strategy), position))
    # A node's host holds what its devices park, states and activations: `host_bytes`, kind by kind.
    parked = np.broadcast_to(stored.parked * c.gpus_per_node, block.stages.count.shape)
    moving: dict[bool, Array] = {}
    found = []
    for state in states:
        whole = state.level.sharding is Sharding.WEIGHTS  # the one level that the loss depends on
        if whole not in moving:
            s = varied(work.strategy, sharding=state.level.sharding)
            moving[whole] = np.asarray(with_loss(w, c, s, block.stages, stored).total)
        found.append(
            StateMemory(state, _largest_sum(state.held, moving[whole]), _host(given, state, parked))
        )
    return found


def fitting(
    given: AxisContext,
    memory: list[StateMemory],
    work: Work,
    company: Company,
    rejected: Counter[Rejection],
) -> list[FitsBeside]:
    """What fits of one kind of work beside every state, in some bundles."""
    bundles = [at for at in company.bundles if at in work.ok]
    limit = room(given.cluster) * given.memory_share
    found = []
    for one in memory if bundles else ():
        legal = work.legal(one.state, bundles)
        fits = legal & (one.peak <= limit)
        near = (one.peak <= limit * NEAR) & legal
        near ^= fits  # what fits is near as well
        rejected[Rejection.OUT_OF_MEMORY] += strategies_behind(legal, company) - strategies_behind(
            fits, company
        )
        if one.host is not None:
            roomy = one.host <= host_room(given.cluster)
            inside = fits & roomy
            rejected[Rejection.OUT_OF_HOST_MEMORY] += strategies_behind(
                fits, company
            ) - strategies_behind(inside, company)
            fits, near = inside, near & roomy
        # Where something fits nobody asks for the leanest.
        bare = one.peak if fits.any() else np.where(legal, one.peak, np.inf)
        found.append(
            FitsBeside(one.state, fits, np.where(near, one.peak, 0.0) if near.any() else None, bare)
        )
    return found


def strategies_behind(mask: Array, company: Company) -> int:
    """Strategies behind a mask over rows. [1]"""
    if isinstance(company.repeated, int):
        return int(np.count_nonzero(mask)) * company.repeated
    return int(np.count_nonzero(mask, axis=0) @ company.repeated)


def _host(given: AxisContext, state: ZeroLevel, parked: Array) -> Array | None:
    """Host memory of a node, [states, rows] or [rows]; None where all have room. [B]"""
    memory = host_room(given.cluster)
    if not parked.any():
        return state.host
    alone: Array = np.max(parked, axis=0)
    if state.parked is None or state.host is None:
        return alone
    if float(alone.max()) + float(state.host.max()) <= 0.999 * memory:
        return None
    return _largest_sum(state.parked, parked)


def _largest_sum(held: Array, moving: Array) -> Array:
    """The fullest kind of stage, from [states, kinds, rows] and [kinds, rows]: max over kinds of their sum. [B]"""
    kinds = held.shape[1]
    peak: Array = held[:, 0] + moving[0]
    room_for_sum = np.empty_like(peak)
    for k in range(1, kinds):
        np.add(held[:, k], moving[k], out=room_for_sum)
        np.maximum(peak, room_for_sum, out=peak)
    return peak
