"""The closed forms of the pipeline are proved against the replay of their orders."""

from dataclasses import replace

import numpy as np
import pytest
from bounds import pipeline_lower_bound
from hypothesis import assume, given
from hypothesis import strategies as st
from timelines import timeline

from mofa_model.schedules import (
    DUALPIPE,
    DUALPIPE_V,
    INTERLEAVED,
    ONE_F_ONE_B,
    SCHEDULES,
    V_HALF,
    ZBV,
    ZERO_BUBBLE,
    Flow,
)
from mofa_model.schedules.one_f_one_b import (
    cooldown_time,
    exposed_hops,
    steady_time,
    warmup_time,
)
from mofa_model.schedules.replay import makespan
from mofa_model.schedules.schedule import bubble_time

CLOSE = 1e-12


@st.composite
def layouts(draw, schedules=SCHEDULES):
    """Schedule, stages, micro-batches and virtual stages that the schedule can run."""
    schedule = draw(st.sampled_from(schedules))
    p, m, v = draw(st.integers(1, 8)), draw(st.integers(1, 24)), 1
    if schedule == INTERLEAVED:
        v = draw(st.integers(2, 4))
        m = p * -(-m // p)
    if schedule == DUALPIPE:
        p = 2 * -(-p // 2)
        m = 2 * (m + p)
    if schedule.folded:
        m, v = m + 2 * p, 2
    return schedule, p, m, v


work = st.floats(0.1, 3.0)
share = st.floats(0.0, 1.0)


def both(layout, f, i, w, hop, pair, *, blocking=False):
    """Closed form and replay for equal stages; f, i, w are times of a device, all its
    chunks together.
    """
    schedule, p, m, v = layout
    C = f + i + w
    closed = schedule.time(
        Flow(
            slowest=C,
            total=p * C,
            microbatches=m,
            stages=p,
            virtual=v,
            hop=hop,
            blocking=blocking,
            forward=f / C,
            weight=w / C,
            pair=pair,
        )
    )
    times = dict(forward=f / v, input_gradient=i / v, weight_gradient=w / v, hop=hop, pair=pair)
    order = schedule.order(p, m, v)
    return float(closed), float(makespan(order, **times, blocking=blocking))


def overlap(f, i, w, saved):
    """Share that a pair takes: between the longer half alone and the sum."""
    C = f + i + w
    least = max(f, i + w) / C
    return least + (1 - least) * (1 - saved)


@given(layouts(), work, work, work, share, share)
def test_closed_form_is_the_replay_for_equal_stages_with_overlapped_hops(
    layout, f, i, w, part, saved
):
    schedule, v = layout[0], layout[3]
    if schedule == V_HALF:  # beyond it every micro-batch waits
        i = f + (i - 1.5) / 3 * w
        assume(i > 0)
    longest = {DUALPIPE: min(f, i, w) / 2, ZERO_BUBBLE: min(f, i + w, w / 2)}
    longest |= dict.fromkeys((ZBV, DUALPIPE_V), min(f, i, w) / 2 / v)
    longest[V_HALF] = min(f, i, w, w - 2 * abs(f - i)) / 2 / v
    hop = part * max(
        0.0, longest.get(schedule, min(f, i + w) / v)
    )  # V-half's may round to below nothing
    pair = overlap(f, i, w, saved)
    if schedule == DUALPIPE_V:
        pair = max(pair, (i + w + v * hop / 2) / (f + i + w))
    closed, found = both(layout, f, i, w, hop, pair)
    assert closed == pytest.approx(found, rel=CLOSE)


@given(layouts([ONE_F_ONE_B, INTERLEAVED]), work, work, work, share)
def test_closed_form_is_the_replay_for_equal_stages_with_blocking_hops(layout, f, i, w, part):
    closed, found = both(layout, f, i, w, part * min(f, i + w) / layout[3], 1.0, blocking=True)
    assert closed == pytest.approx(found, rel=CLOSE)


@given(layouts([ZERO_BUBBLE, DUALPIPE, ZBV, V_HALF, DUALPIPE_V]), work, work, work, share)
def test_with_blocking_hops_the_split_schedules_are_bounded_from_above(layout, f, i, w, part):
    assume(layout[0] != V_HALF or 2 * abs(f - i) <= w)
    closed, found = both(layout, f, i, w, part * min(f, i, w), 1.0, blocking=True)
    assert closed >= found * (1 - CLOSE)


@given(layouts(), work, work, work, st.floats(0.0, 10.0), st.booleans(), share)
def test_the_pipeline_never_beats_its_lower_bound(layout, f, i, w, hop, blocking, saved):
    _, p, m, v = layout
    C, pair = f + i + w, overlap(f, i, w, saved)
    found = both(layout, f, i, w, hop, pair, blocking=blocking)
    if layout[0].folded:  # whose halves meet without a hop
        hop = hop * (2 * p - 2) / (2 * p - 1)
    bound = pipeline_lower_bound(
        slowest=C,
        total=p * C,
        microbatches=m,
        stages=p,
        virtual=v,
        hop=hop,
        weight=w / C,
        pair=pair,
    )
    assert min(found) >= float(bound) * (1 - CLOSE)


@given(layouts(), work, work, work, st.floats(0.0, 10.0), st.booleans())
def test_what_a_schedule_fills_is_never_more_than_its_bubble(layout, f, i, w, hop, blocking):
    """Of what a search leaves out by it nothing could have been the best; 1 s each, 4 stages: ZBV
    fills 0.5 of 1.5 s.
    """
    schedule, p, m, v = layout
    C = f + i + w
    flow = Flow(
        slowest=C, total=p * C, microbatches=m, stages=p, virtual=v, forward=f / C, weight=w / C
    )
    whole = schedule.time(replace(flow, hop=hop, blocking=blocking))
    assert m * C + schedule.fill(flow) <= whole * (1 + CLOSE)


@given(st.integers(1, 6), st.integers(1, 16), st.data(), st.floats(0.05, 0.95), st.floats(0.0, 1.0))
def test_1f1b_on_unequal_stages_is_never_above_its_closed_form(p, m, data, f, hop):
    """It lies below by at most what follows the slowest stage, sum of C_j for j > b, when hops
    are free.
    """
    C = np.array(data.draw(st.lists(st.floats(0.1, 3.0), min_size=p, max_size=p)))
    closed, found = uneven(C, m, f, hop)
    assert found <= closed * (1 + CLOSE)
    closed, found = uneven(C, m, f, 0.0)
    slowest = int(np.argmax(C))
    assert found >= closed * (1 - CLOSE) - C[slowest + 1 :].sum()


@given(st.integers(1, 6), st.integers(1, 16), st.data(), st.floats(0.05, 0.95))
def test_1f1b_is_exact_when_the_last_stage_is_a_slowest_one(p, m, data, f):
    C = np.array(data.draw(st.lists(st.floats(0.1, 3.0), min_size=p, max_size=p)))
    C[-1] = C.max()
    closed, found = uneven(C, m, f, 0.0)
    assert closed == pytest.approx(found, rel=CLOSE)


def uneven(C, m, f, hop):
    closed = ONE_F_ONE_B.time(
        Flow(
            slowest=C.max(),
            total=C.sum(),
            microbatches=m,
            stages=len(C),
            hop=hop,
            forward=f,
        )
    )
    times = dict(forward=f * C, input_gradient=(1 - f) * C, weight_gradient=0.0, hop=hop)
    return float(closed), float(makespan(ONE_F_ONE_B.order(len(C), m), **times))


def test_a_forward_share_that_differs_between_stages_can_exceed_the_closed_form():
    """Stage 0 only forwards, stage 1 only backwards: 1F1B takes m + 3, sum C + (m - 1) max C is m
    + 1.
    """
    times = dict(
        forward=[1.0, 0.0, 0.0, 0.0], input_gradient=[0.0, 1.0, 0.0, 0.0], weight_gradient=0.0
    )
    assert makespan(ONE_F_ONE_B.order(4, 9), **times) == 9 + 3


def test_warmup_steady_and_cooldown_add_up_to_sum_c_and_m_minus_one_times_max_c():
    parts = [
        warmup_time(slowest=5.0, total=14.0, virtual=1.0, forward=0.25),
        steady_time(slowest=5.0, microbatches=8.0),
        cooldown_time(slowest=5.0, total=14.0, virtual=1.0, forward=0.25),
    ]
    assert sum(parts) == 14.0 + 7 * 5.0


def test_zero_bubble_leaves_a_third_of_the_1f1b_bubble():
    """p = 8, F = I = W = 1: 7 x (F + I - W) = 7 instead of 7 x 3 = 21."""
    common = {"slowest": 3.0, "total": 24.0, "microbatches": 32.0, "stages": 8.0}
    bubbles = [
        float(bubble_time(s.time(Flow(**common)), slowest=3.0, microbatches=32.0))
        for s in (ONE_F_ONE_B, ZERO_BUBBLE)
    ]
    assert bubbles == pytest.approx([21.0, 7.0], rel=CLOSE)


@given(st.integers(1, 5), st.integers(0, 8), work, share, share)
def test_dualpipe_has_the_published_bubble_when_forward_is_as_long_as_input_gradient(
    half, more, f, less, saved
):
    """Middle devices run p + 1 unpaired micro-batches and m - p - 1 pairs; the rest is (p/2 -
    1)(F&B + B - 3 W).
    """
    p, w = 2 * half, less * f
    m = 2 * p + 2 * more
    C, pair = 2 * f + w, overlap(f, f, w, saved)
    times = dict(forward=f, input_gradient=f, weight_gradient=w, pair=pair)
    middle = float(timeline(DUALPIPE.order(p, m), **times).idle[half - 1])
    assert middle == pytest.approx((half - 1) * (pair * C + f + w - 3 * w), abs=1e-9)


@given(st.integers(1, 5), st.integers(0, 8), work, share, share)
def test_dualpipev_has_the_published_bubble_when_forward_is_as_long_as_input_gradient(
    p, more, f, less, saved
):
    """DeepSeek's README: (PP/2 - 1)(F&B + B - 3 W) for PP = 2 p virtual stages, on the device at
    the bottom of the V.
    """
    w = less * f
    C, pair = 2 * f + w, overlap(f, f, w, saved)
    times = dict(forward=f, input_gradient=f, weight_gradient=w, pair=pair)
    bottom = float(timeline(DUALPIPE_V.order(p, 2 * p + more), **times).idle[p - 1])
    assert bottom == pytest.approx((p - 1) * (pair * C + f + w - 3 * w), abs=1e-9)


def test_zbv_waits_a_sixth_of_1f1b_and_v_half_two_thirds():
    """p = 8, F = I = W = 1: 21 of 1F1B; (p - 1) / 2 for ZBV; 3.5 p - 2 passes of half a device
    for V-half.
    """
    common = {"slowest": 3.0, "total": 24.0, "microbatches": 32.0, "stages": 8.0, "virtual": 2.0}
    bubbles = [
        float(bubble_time(s.time(Flow(**common)), slowest=3.0, microbatches=32.0))
        for s in (ZBV, V_HALF)
    ]
    assert bubbles == pytest.approx([3.5, 13.0], rel=CLOSE)


def test_time_falls_with_virtual_stages_when_hops_are_free():
    v = np.array([1.0, 2.0, 4.0, 8.0])
    t = INTERLEAVED.time(Flow(slowest=3.0, total=24.0, microbatches=16.0, stages=8.0, virtual=v))
    assert t.tolist() == pytest.approx([69.0, 58.5, 53.25, 50.625])


def test_overlap_does_not_hide_the_hops_of_1f1b():
    """p micro-batches in the air leave a round trip no slack: 32 of them on 8 stages pay 68 hops,
    with v = 2 only 30.
    """
    layout = {"slowest": 3.0, "microbatches": 32.0, "stages": 8.0, "hop": 0.25}
    assert float(exposed_hops(**layout, virtual=1.0)) == 68 * 0.25
    assert float(exposed_hops(**layout, virtual=2.0)) == 30 * 0.25


def families(draw):
    p = draw.integers(1, 5, 40) * 2.0
    m = p * draw.integers(2, 5, 40)
    return {
        "slowest": draw.uniform(1.0, 2.0, 40),
        "total": p * draw.uniform(0.5, 1.0, 40),
        "microbatches": m,
        "stages": p,
        "hop": draw.uniform(0.0, 0.2, 40),
        "forward": draw.uniform(0.2, 0.4, 40),
        "weight": draw.uniform(0.2, 0.4, 40),
        "pair": draw.uniform(0.7, 1.0, 40),
    }


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES)
@given(st.integers(0, 2**32 - 1))
def test_an_array_gives_bit_for_bit_what_its_rows_give(schedule, blocking, seed):
    family = families(np.random.default_rng(seed))
    together = schedule.time(Flow(**family, blocking=blocking))
    for n in range(0, 40, 13):
        row = {name: float(value[n]) for name, value in family.items()}
        assert schedule.time(Flow(**row, blocking=blocking)) == together[n]


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES)
@given(st.integers(0, 2**32 - 1))
def test_another_unit_of_time_rescales_the_pipeline_exactly(schedule, blocking, seed):
    family = families(np.random.default_rng(seed))
    other = family | {name: family[name] / 1024 for name in ("slowest", "total", "hop")}
    ours, theirs = (schedule.time(Flow(**f, blocking=blocking)) for f in (family, other))
    assert (ours == 1024 * theirs).all()


@given(layouts([ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE]), st.booleans(), share, share)
def test_a_longer_hop_never_helps(layout, blocking, a, b):
    short, long = sorted((a, b))
    schedule, p, m, v = layout
    given_times = {"slowest": 3.0, "total": 3.0 * p, "microbatches": m, "stages": p, "virtual": v}
    times = [schedule.time(Flow(**given_times, hop=h, blocking=blocking)) for h in (short, long)]
    assert times[0] <= times[1]
