"""Stretches of a window, and what is remembered of them."""

import math
from itertools import pairwise

import pytest

from mofa_operator.incidents.timelines import Stall
from mofa_operator.lru_cache import LruCache
from mofa_operator.observe.history.pool_samples import window_days
from mofa_operator.observe.history.stalls import StepEdges, stalls

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


def test_what_is_unused_longest_is_forgotten():
    recent = LruCache(most=2)
    recent["a"], recent["b"] = 1, 2
    assert recent["a"] == 1
    recent["c"] = 3
    assert ("a" in recent, "b" in recent, "c" in recent) == (True, False, True)
