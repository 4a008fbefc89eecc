"""Orders are complete, run without a deadlock, and hold as many activations as Eq. (5) says."""

from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timelines import timeline

from mofa_model.errors import BadValue
from mofa_model.schedules import (
    DUALPIPE,
    DUALPIPE_V,
    INTERLEAVED,
    ONE_F_ONE_B,
    SCHEDULES,
    V_HALF,
    ZBV,
    ZERO_BUBBLE,
)
from mofa_model.schedules.schedule import OperationKind
from mofa_model.strategy import Strategy


def peak_in_flight(order, *, until=OperationKind.WEIGHT_GRADIENT):
    """Most activations that each device holds at one time, counted from the order, Eq. (5).
    [chunks]

    One is held from its forward until its backward; where the backward is split, until the weight
    gradient, which still reads the inputs of the matrix products, or with
    `until=Kind.INPUT_GRADIENT` until the input gradient only.
    """
    change = {OperationKind.FORWARD: 1, OperationKind.BACKWARD: -1, until: -1}
    return tuple(
        max(
            accumulate(change.get(operation.kind, 0) for step in steps for operation in step),
            default=0,
        )
        for steps in order
    )


def as_text(steps):
    return " ".join("".join(f"{o.kind.value}{o.microbatch}" for o in step) for step in steps)


def test_second_of_three_stages_of_1f1b_runs_one_forward_ahead():
    assert as_text(ONE_F_ONE_B.order(3, 4)[1]) == "F0 F1 B0 F2 B1 F3 B2 B3"


def test_second_of_three_stages_of_zb_h1_puts_off_one_weight_gradient():
    assert as_text(ZERO_BUBBLE.order(3, 3)[1]) == "F0 F1 I0 F2 I1 W0 I2 W1 W2"


def test_dualpipe_on_two_stages_splits_the_last_backward_and_pairs_the_middle_ones():
    assert as_text(DUALPIPE.order(2, 4)[0]) == "F0 F2 F1 B2 F3B0 B3 I1 W1"


@pytest.mark.parametrize(
    "p, m, v", [(1, 3, 1), (4, 8, 1), (2, 4, 2), (4, 4, 3), (4, 16, 2), (8, 16, 12)]
)
def test_gradients_of_a_chunk_leave_beside_the_backward_passes_that_come_after_it(p, m, v):
    """From the last backward pass of the chunk that is finished first to the end, in micro-batches;
    the first stage is the last to end.
    """
    schedule = INTERLEAVED if v > 1 else ONE_F_ONE_B
    steps = schedule.order(p, m, v)[0]
    passes = [o.virtual_stage for step in steps for o in step if o.kind is OperationKind.BACKWARD]
    last = {chunk: at for at, chunk in enumerate(passes)}
    counted = (len(passes) - min(last.values())) / v
    window = schedule.overlap_window(microbatches=m, stages=p, virtual=v)
    assert float(window) == pytest.approx(counted)
    assert 1 <= counted <= m


def v_text(steps, p):
    """Capitals on the way down, small letters on the way back."""
    letters = [
        ["".join(letter(o.kind.value, o.virtual_stage >= p) + str(o.microbatch) for o in step)]
        for step in steps
    ]
    return " ".join(word for (word,) in letters)


def letter(kind, back):
    return kind.lower() if back else kind


def test_zbv_is_the_order_that_pytorch_runs():
    """ScheduleZBVZeroBubble on two ranks with three micro-batches, rank 0 and rank 1."""
    first, second = ZBV.order(2, 3)
    assert v_text(first, 2) == "F0 F1 F2 f0 i0 w0 f1 i1 w1 I0 W0 f2 i2 w2 I1 W1 I2 W2"
    assert v_text(second, 2) == "F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 I1 i2 I2 W1 w2 W2"


def test_dualpipev_is_the_order_that_pytorch_runs():
    """ScheduleDualPipeV on two ranks with four micro-batches, rank 1."""
    assert v_text(DUALPIPE_V.order(2, 4)[1], 2) == (
        "F0 f0 F1 f1 F2 b0 f2B0 F3b1 f3B1 b2 B2 i3 I3 w3 W3"
    )


def test_v_half_follows_its_building_block():
    """First of four devices: F at 0, f at 10, i at 14 and I at 25, repeated every six; weight
    gradients between.
    """
    assert v_text(V_HALF.order(4, 5)[0], 4).startswith("F0 F1 f0 F2 i0 w0 f1 F3 i1 w1 f2 F4 I0")


def test_zbv_leaves_no_bubble_where_all_passes_take_the_same_time():
    """Published: from its first pass to its last, no device waits where F = I = W."""
    order = ZBV.order(4, 8)
    found = timeline(order, forward=1.0, input_gradient=1.0, weight_gradient=1.0)
    for starts, busy in zip(found.starts, found.busy, strict=True):
        assert starts[-1] + 1.0 - starts[0] == busy


def test_v_half_holds_half_and_zbv_as_much_as_the_first_device_of_1f1b():
    """Published, in micro-batches of p stages: V-half (p + 2) // 2, ZBV p."""
    for p in (4, 8, 16):
        assert max(peak_in_flight(V_HALF.order(p, 2 * p))) == 2 * ((p + 2) // 2)
        assert (
            max(peak_in_flight(ZBV.order(p, 2 * p)))
            == 2 * p
            == 2 * max(peak_in_flight(ONE_F_ONE_B.order(p, 2 * p)))
        )


def test_interleaved_first_device_passes_a_group_through_both_chunks_before_the_first_backward():
    steps = INTERLEAVED.order(2, 4, 2)[0]
    first = [(o.kind.value, o.virtual_stage, o.microbatch) for (o,) in steps[:6]]
    assert first == [("F", 0, 0), ("F", 0, 1), ("F", 2, 0), ("F", 2, 1), ("F", 0, 2), ("B", 2, 0)]


@st.composite
def any_order(draw):
    schedule = draw(st.sampled_from(SCHEDULES))
    p, m, v = draw(st.integers(1, 8)), draw(st.integers(1, 24)), 1
    if schedule == INTERLEAVED:
        v = draw(st.integers(1, 4))
        m = p * -(-m // p) if v > 1 else m
    if schedule == DUALPIPE:
        p, m = 2 * -(-p // 2), 2 * m
        m += 2 * p
    if schedule.folded:
        m, v = m + 2 * p, 2
    return schedule, p, m, v


@given(any_order())
def test_every_micro_batch_passes_every_virtual_stage_once_each_way(case):
    schedule, p, m, v = case
    order = schedule.order(p, m, v)
    seen = Counter(o for steps in order for step in steps for o in step)
    assert set(seen.values()) == {1}
    count = Counter(o.kind for o in seen)
    work = p * v * m
    assert count[OperationKind.FORWARD] == work
    assert count[OperationKind.BACKWARD] + count[OperationKind.INPUT_GRADIENT] == work
    assert count[OperationKind.WEIGHT_GRADIENT] == count[OperationKind.INPUT_GRADIENT]


@given(any_order())
def test_in_flight_of_eq_5_is_what_the_order_holds(case):
    schedule, p, m, v = case
    held = peak_in_flight(schedule.order(p, m, v))
    formula = [
        schedule.in_flight(position=i, microbatches=m, stages=p, virtual=v) for i in range(p)
    ]
    assert [float(n) for n in formula] == list(held)


def test_zero_bubble_holds_as_1f1b_if_the_input_gradient_released_it_all():
    assert peak_in_flight(ZERO_BUBBLE.order(4, 8), until=OperationKind.INPUT_GRADIENT) == (
        4,
        3,
        2,
        1,
    )
    assert peak_in_flight(ZERO_BUBBLE.order(4, 8)) == (4, 4, 4, 4)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: INTERLEAVED.order(4, 6, 2), "microbatches: 6 .* multiple of the 4 stages"),
        (lambda: DUALPIPE.order(3, 8), "stages: 3 .* even"),
        (lambda: DUALPIPE.order(4, 6), "microbatches: 6 .* at least 8"),
        (lambda: ZBV.order(4, 6), "microbatches: 6 .* at least 7"),
        (lambda: V_HALF.order(4, 4), "microbatches: 4 .* more than the 4"),
        (lambda: DUALPIPE_V.order(4, 7), "microbatches: 7 .* at least 8"),
        (lambda: Strategy(schedule=ZBV), "virtual_stages: 1 .* zbv takes 2"),
        (lambda: ONE_F_ONE_B.order(0, 6), "stages: 0 .* at least 1"),
        (
            lambda: DUALPIPE.order(2, 8, 2),
            "virtual_stages: 2 .* takes 1",
        ),
    ],
)
def test_a_layout_that_a_schedule_cannot_run_is_refused_by_name(make, says):
    with pytest.raises(BadValue, match=says):
        make()
