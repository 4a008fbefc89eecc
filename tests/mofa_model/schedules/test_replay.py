"""The replay and a walk by plain loops agree: times add up, hops delay, deadlocks are found."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timelines import timeline

from mofa_model.errors import BadValue
from mofa_model.schedules import DUALPIPE, INTERLEAVED, ONE_F_ONE_B, ZERO_BUBBLE
from mofa_model.schedules.replay import makespan
from mofa_model.schedules.schedule import Operation, OperationKind, Operations

ORDERS = [
    ONE_F_ONE_B.order(4, 6),
    INTERLEAVED.order(4, 8, 2),
    ZERO_BUBBLE.order(4, 6),
    DUALPIPE.order(4, 10),
]


def times(forward, input_gradient, weight_gradient=0.0, **others):
    return dict(
        forward=forward, input_gradient=input_gradient, weight_gradient=weight_gradient, **others
    )


def test_two_stages_two_micro_batches_by_hand():
    found = timeline(ONE_F_ONE_B.order(2, 2), **times(1.0, 2.0))
    assert found.makespan == 9.0  # (m + p - 1) (F + B) = 3 x 3
    assert found.idle == [3.0, 3.0]
    assert found.starts == [[0.0, 1.0, 4.0, 7.0], [1.0, 2.0, 4.0, 5.0]]


def test_a_blocking_hop_also_holds_its_sender():
    free = timeline(ONE_F_ONE_B.order(2, 1), **times(1.0, 1.0, hop=0.5))
    held = timeline(ONE_F_ONE_B.order(2, 2), **times(1.0, 1.0, hop=0.5), blocking=True)
    assert free.starts == [[0.0, 4.0], [1.5, 2.5]]
    assert held.starts[0] == [0.0, 1.5, 4.0, 6.5]


def test_uneven_stages_wait_for_the_slowest():
    found = timeline(ONE_F_ONE_B.order(3, 4), **times([1.0, 1.0, 3.0], [1.0, 1.0, 3.0]))
    assert found.makespan == 4 * 6.0 + 2 * 2.0
    assert found.busy == [8.0, 8.0, 24.0]


def test_virtual_stages_of_one_device_have_no_hop_between_them():
    assert makespan(INTERLEAVED.order(1, 2, 3), **times(1.0, 1.0, hop=7.0)) == 12.0


def test_each_boundary_may_have_its_own_hop():
    assert makespan(ONE_F_ONE_B.order(3, 1), **times(1.0, 1.0, hop=[0.5, 2.0])) == 6 + 2 * 2.5


def test_an_order_that_waits_for_itself_is_refused():
    forward, backward = (
        Operation(kind, 0, 0) for kind in (OperationKind.FORWARD, OperationKind.BACKWARD)
    )
    order = (((backward,), (forward,)),)
    with pytest.raises(
        BadValue, match=r"B of micro-batch 0 at virtual stage 0 on device 0.*deadlock"
    ):
        makespan(order, **times(1.0, 1.0))


@pytest.mark.parametrize("bad", [float("nan"), -1.0, float("inf")])
def test_times_that_cannot_be_are_refused(bad):
    with pytest.raises(BadValue, match="forward"):
        makespan(ONE_F_ONE_B.order(2, 2), **times(bad, 1.0))


def test_a_list_of_the_wrong_length_is_refused():
    with pytest.raises(BadValue, match="first axis of 4"):
        makespan(ONE_F_ONE_B.order(4, 4), **times([1.0, 1.0], 1.0))


seconds = st.floats(1e-6, 1e3)


@given(st.sampled_from(ORDERS), st.integers(0, 2**32 - 1), st.booleans())
def test_thousands_together_are_bit_identical_to_each_walked_by_itself(order, seed, blocking):
    draw = np.random.default_rng(seed)
    depth = 1 + max(o.virtual_stage for steps in order for step in steps for o in step)
    f, i, w = draw.uniform(0.1, 2.0, (3, depth, 3))
    hop, pair = draw.uniform(0.0, 0.5, (1, 3)), draw.uniform(0.7, 1.0, 3)
    together = makespan(order, **times(f, i, w, hop=hop, pair=pair), blocking=blocking)
    for n in range(3):
        one = times(f[:, n], i[:, n], w[:, n], hop=hop[0, n], pair=pair[n])
        assert makespan(order, **one, blocking=blocking) == together[n]
        assert timeline(order, **one, blocking=blocking).makespan == together[n]


@given(st.sampled_from(ORDERS), seconds, seconds, seconds, seconds, st.booleans())
def test_another_unit_of_time_rescales_the_replay_exactly(order, f, i, w, hop, blocking):
    one = makespan(order, **times(f, i, w, hop=hop), blocking=blocking)
    four = makespan(order, **times(4 * f, 4 * i, 4 * w, hop=4 * hop), blocking=blocking)
    assert four == 4 * one


@given(st.sampled_from(ORDERS), seconds, seconds, seconds, seconds)
def test_blocking_never_helps(order, f, i, w, hop):
    given_times = times(f, i, w, hop=hop)
    assert makespan(order, **given_times, blocking=True) >= makespan(order, **given_times)


SIZES = [(1, 1, 1), (1, 5, 1), (2, 2, 1), (4, 2, 1), (5, 13, 1), (8, 8, 1), (3, 64, 1)]
LOOPED = [
    (1, 3, 4),
    (2, 2, 2),
    (3, 3, 5),
    (4, 4, 2),
    (4, 16, 3),
    (8, 8, 8),
    (16, 32, 2),
    (5, 40, 7),
]


@pytest.mark.parametrize(("p", "m", "v"), SIZES + LOOPED)
def test_waves_that_1f1b_states_give_the_bits_of_waves_that_are_found(p, m, v):
    stated = (INTERLEAVED if v > 1 else ONE_F_ONE_B).operations(p, m, v)
    read = Operations.of(INTERLEAVED.order(p, m, v))
    assert read.wave is None
    for name in ("kind", "virtual_stage", "microbatch", "occupied"):
        assert (getattr(stated, name) == getattr(read, name)).all()
    wave = {stated.operation(at): int(number) for at, number in enumerate(stated.wave)}
    for (kind, stage, j), number in wave.items():
        before = -1 if kind is OperationKind.FORWARD else 1
        assert number > wave.get(Operation(kind, stage + before, j), -1)
        assert number >= wave[Operation(OperationKind.FORWARD, stage, j)]
    assert (np.diff(stated.wave.reshape(p, -1)) > 0).all()
    f, b, hop = np.random.default_rng(p * m).uniform(0.1, 2.0, (3, p * v, 4))
    given_times = times(f, b, hop=hop[: max(1, p * v - 1)])
    for blocking in (False, True):
        found = [makespan(one, **given_times, blocking=blocking) for one in (stated, read)]
        assert found[0].tolist() == found[1].tolist()
