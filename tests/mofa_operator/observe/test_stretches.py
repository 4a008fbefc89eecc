"""Stretches of a window, and what is remembered of them."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_operator.incidents.timelines import Stall
from mofa_operator.lru_cache import LruCache
from mofa_operator.observe.history.pool_samples import window_days
from mofa_operator.observe.history.stalls import StepEdges, lagging, stalls
from mofa_operator.observe.prometheus.trainers import JobName

DAY, START = 86400.0, 1_000_000.0
JOB = ("research", "llama")


@pytest.mark.parametrize("window", [3600, 86400, 30 * 86400, 120 * 86400])
def test_stretches_cover_the_window_once_and_their_seams_stand_still(window):
    now = 1_795_000_123.0
    found = window_days(now, window)
    assert now - 300 < found[-1].end <= now
    assert window <= found[-1].end - found[0].start + 300 <= 1.03 * window + 900
    assert all(a.end == b.start for a, b in pairwise(found))
    assert all(one.seconds <= DAY for one in found)
    later = window_days(now + 60, window)
    assert set(found[1:-1]) <= set(later)


def test_a_stall_is_one_even_over_a_seam():
    edges = [
        StepEdges(
            job_name=JOB,
            stopped=((START + 1000, 50), (START + 5000, 220)),
            resumed=((START + 1400, 40),),
            step_seconds=20.0,
        ),
        StepEdges(
            job_name=JOB,
            stopped=((START + 9000, 300),),
            resumed=((START + 5300, 220),),
            step_seconds=20.0,
        ),
    ]
    assert stalls(edges) == {
        "research/llama": [
            Stall(START + 1010, START + 1400, 10 * 20.0),
            Stall(START + 5010, START + 5300),
            Stall(START + 9010, math.inf),
        ]
    }


@given(
    runs=st.lists(
        st.tuples(st.integers(3600, 30_000), st.integers(120, 20_000), st.integers(0, 1400)),
        min_size=1,
        max_size=6,
    ),
    seam=st.integers(1, 60_000),
    silent=st.booleans(),
)
def test_coarse_samples_tell_what_standstills_cost_to_a_fifth_of_the_time_between_them(
    runs, seam, silent
):
    """Steps of 12 s, sampled every five minutes; each run ends with a standstill and work that was
    lost. It is told, wherever the seam between two pieces of time lies, and whether or not the
    exporter speaks meanwhile.
    """
    step, gap = 12.0, 300.0
    at, done, spans, cost = START, 1000.0, [], []
    for length, stands, most_lost in runs:
        lost = min(most_lost, length // 2)
        spans.append((at, at + length, done))
        done += (length - lost) // step
        at += length + stands
        cost.append(stands + length - (length - lost) // step * step)
    spans.append((at, at + 7200, done))

    def steps(moment):
        since, until, number = next(one for one in reversed(spans) if one[0] <= moment)
        return number + (min(moment, until) - since) // step

    moments = [START + gap * k for k in range(int((at + 7200 - START) // gap))]
    points = [
        (one, steps(one)) for one in moments if not silent or any(a <= one < b for a, b, _ in spans)
    ]
    cut = START + seam
    before, after = (
        [one for one in points if one[0] <= cut],
        [one for one in points if one[0] > cut - gap],
    )
    pieces = [
        lagging(JobName(*JOB), some, since, step, gap)
        for some, since in ((before, START - 1), (after, cut))
        if some
    ]
    found = stalls(pieces)["research/llama"]
    told = sum(one.lost_seconds for one in found)
    assert told == pytest.approx(sum(cost), abs=len(runs) * 2 * (0.1 * gap + step))
    assert all(one.stopped_at <= one.resumed_at for one in found)
    assert len(found) <= 2 * len(runs)


def test_what_is_unused_longest_is_forgotten():
    recent = LruCache(most=2)
    recent["a"], recent["b"] = 1, 2
    assert recent["a"] == 1
    recent["c"] = 3
    assert ("a" in recent, "b" in recent, "c" in recent) == (True, False, True)
