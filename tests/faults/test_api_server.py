"""Whatever the network and the API server do: the objects come to what a clean run makes of them,
and no storm of writes.
"""

import contextlib
import os
import signal
import time
from random import Random

import pytest
from faults import proxy
from faults.campaign import play
from faults.store import full_at_times

PAUSE = 5.0
"""How long the store of the API server stands still. [s]"""


def held_against(clean, run):
    """The states were compared on the way; here is what a run may cost, and what it may say."""
    for name, count in clean.writes.items():
        assert run.writes[name] <= 3 * count + 3, (
            f"{name} was written {run.writes[name]} times, clean {count}"
        )
    assert run.writes.keys() == clean.writes.keys()
    for what, count in clean.attempts.items():
        assert run.attempts[what] <= 4 * count + 8, f"{what} was tried {run.attempts[what]} times"
    assert run.rss < 1.3 * clean.rss + 20e6
    assert run.events == clean.events, "no Event is invented, and none is lost"


@pytest.mark.soak
def test_a_clean_run_repeats_itself(cluster, processes, clean):
    run = play("clean, again", cluster, processes, clean=clean)
    held_against(clean, run)


@pytest.mark.soak
def test_requests_that_fail_in_every_way(cluster, processes, clean, seed):
    run = play(
        "requests fail",
        cluster,
        processes,
        clean=clean,
        fault=lambda _: proxy.bad_day(Random(seed)),
    )
    held_against(clean, run)


def test_watches_that_fail_in_every_way(cluster, processes, clean, seed):
    run = play(
        "watches fail",
        cluster,
        processes,
        clean=clean,
        fault=lambda _: proxy.bad_watches(Random(seed)),
    )
    held_against(clean, run)


@pytest.mark.soak
def test_outages_of_the_store_and_of_the_server(cluster, processes, clean):
    def during(phase, _):
        if phase == 0:
            etcd = processes["etcd"].pid
            os.kill(etcd, signal.SIGSTOP)
            time.sleep(PAUSE)
            os.kill(etcd, signal.SIGCONT)
        elif phase == 1:
            cluster.kill_api_server()
            time.sleep(1.0)
            cluster.start_api_server()
        else:
            cluster.restart_api_server()

    run = play("outages", cluster, processes, clean=clean, during=during)
    held_against(clean, run)


@pytest.mark.soak
def test_killed_twice_and_terminated_once(cluster, processes, clean, seed):
    def fault(operator):
        return proxy.Killing(Random(seed), lambda: operator.signal(signal.SIGKILL), times=2)

    def during(phase, operator):
        if phase == 2:
            operator.signal(signal.SIGTERM)

    run = play("killed twice", cluster, processes, clean=clean, fault=fault, during=during)
    assert run.lives >= 3
    held_against(clean, run)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(5))
def test_killed_ten_times(cluster, processes, clean, seed, number):
    def fault(operator):
        kill = lambda: operator.signal(signal.SIGKILL)  # noqa: E731
        return proxy.Killing(Random(seed + number), kill, times=10, every=(3, 25))

    run = play(
        f"killed 10 times, {number}", cluster, processes, clean=clean, fault=fault, bound=240
    )
    held_against(clean, run)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(2))
def test_workers_killed_ten_times(cluster, processes, clean, seed, number):
    """As a kernel kills the process that holds most; what it was asked is asked again, and the
    operator lives on.
    """

    def fault(operator):
        def kill():
            for pid in operator.advisor.workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        return proxy.Killing(Random(seed + number), kill, times=10, every=(3, 25), breaks=False)

    run = play(f"workers killed, {number}", cluster, processes, clean=clean, fault=fault, bound=240)
    assert run.lives == 1
    held_against(clean, run)


@pytest.mark.soak
def test_a_store_that_is_full(cluster, processes, clean, seed):
    """etcd refuses every write whenever its quota is used up; people try again, and so does
    the operator.
    """
    random, times = Random(seed), 0

    def during(*_):
        nonlocal times
        with full_at_times(cluster, random) as store:
            time.sleep(30.0)
        times += store.times

    for number in range(2):
        run = play(f"store full, {number}", cluster, processes, clean=clean, during=during)
        held_against(clean, run)
        assert run.attempts.total() > run.writes.total(), "some of its writes were refused"
    assert times >= 20


@pytest.mark.soak
@pytest.mark.parametrize("hours", [1.0, -1.0])
def test_a_clock_that_is_an_hour_off(cluster, processes, clean, hours):
    run = play(
        f"{hours:+g} h", cluster, processes, clean=clean, fault=lambda _: proxy.Skewed(hours)
    )
    held_against(clean, run)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize(
    "make",
    [
        proxy.conflict,
        proxy.full,
        proxy.error,
        proxy.Breaking,
        proxy.Garbling,
        proxy.Slow,
        proxy.Expired,
        proxy.Dropped,
        proxy.Twice,
        proxy.Reordered,
        lambda _: proxy.Silent(),
        proxy.bad_day,
        proxy.bad_watches,
    ],
    ids=["409", "429", "500", "resets", "garbage", "slow", "410", "dropped", "twice", "reordered", "silent", "day", "watches"],
)  # fmt: skip
def test_each_fault_alone(cluster, processes, clean, seed, make, number, request):
    name = request.node.callspec.id
    run = play(name, cluster, processes, clean=clean, fault=lambda _: make(Random(seed + number)))
    held_against(clean, run)
