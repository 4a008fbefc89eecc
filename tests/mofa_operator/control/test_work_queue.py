"""The queue: each object once, never by two at a time, later again after a failure."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import run

from mofa_operator.control.work_queue import ROUTINE_TURN, WorkQueue
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key


def job(name: str, namespace: str = "team") -> Key:
    return Key(TRAINING_JOB, namespace, name)


A, B, C = (job(name) for name in "abc")


def queue(backoff: float = 1.0, longest: float = 300.0) -> WorkQueue:
    return WorkQueue(backoff=backoff, longest=longest, random=Random(1))


def now() -> float:
    return asyncio.get_running_loop().time()


async def drain(work: WorkQueue) -> list[Key]:
    taken = []
    while len(work):
        key = await work.take()
        assert key is not None
        taken.append(key)
        work.done(key)
    return taken


def test_a_thousand_events_of_one_object_are_one_look():
    async def main():
        work = queue()
        for _ in range(1000):
            work.add(A)
        assert len(work) == 1
        assert await drain(work) == [A]

    run(main())


def test_a_key_that_is_added_while_in_work_runs_exactly_once_more():
    async def main():
        work = queue()
        work.add(A)
        assert await work.take() == A
        work.add(A)
        work.add(A)
        assert (len(work), work.longest_in_work[0]) == (0, A)  # nobody else may take it meanwhile
        work.done(A)
        assert await drain(work) == [A]

    run(main())


def test_keys_come_in_the_order_in_which_they_were_added():
    async def main():
        work = queue()
        for key in (B, A, C, A):
            work.add(key)
        assert await drain(work) == [B, A, C]

    run(main())


def test_a_person_waits_for_one_job_of_a_full_namespace_not_for_five_thousand():
    async def main():
        work = queue()
        for number in range(5000):
            work.add(job(f"job-{number}", "busy"))
        work.add(job("mine", "quiet"))
        work.add(Key(CLUSTER_PROFILE, "", "h100-east"))
        first = [await work.take() for _ in range(3)]
        assert [key.namespace for key in first if key] == ["busy", "quiet", ""]

    run(main())


def test_a_change_goes_before_the_routine_which_still_gets_every_eighth_turn():
    async def main():
        work = queue()
        routine = {job(f"old-{number}", "r") for number in range(10)}
        for key in sorted(routine):
            work.add(key, urgent=False)
        for number in range(70):
            work.add(job(f"new-{number:02}", "p"))
        first = (await drain(work))[:72]
        assert first[0].name == "new-00"
        assert sum(key in routine for key in first) == 72 // ROUTINE_TURN == 9

    run(main())


def test_a_change_of_an_object_that_waits_in_the_routine_moves_it_forward():
    async def main():
        work = queue()
        for key in (A, B):
            work.add(key, urgent=False)
        work.add(B)
        assert len(work) == 2
        assert await drain(work) == [B, A]

    run(main())


def test_of_two_delays_the_earlier_counts():
    async def main():
        work = queue()
        work.add_after(A, 10.0)
        work.add_after(A, 3.0)
        work.add_after(A, 7.0)
        assert len(work) == 0
        assert await work.take() == A
        assert now() == pytest.approx(3.0)
        work.done(A)
        await asyncio.sleep(20.0)
        assert len(work) == 0

    run(main())


def test_whoever_looks_now_need_not_look_again_for_an_older_timer():
    async def main():
        work = queue()
        work.add_after(A, 5.0)
        work.add(A)
        assert await work.take() == A
        work.add_after(A, 9.0)  # set while it is in work: this one is meant
        work.done(A)
        assert await work.take() == A
        assert now() == pytest.approx(9.0)

    run(main())


def test_the_wait_after_failures_doubles_from_one_second_to_its_ceiling_and_is_spread():
    async def main():
        work = queue(backoff=1.0, longest=60.0)
        work.add(A)
        waits = []
        for _ in range(9):
            assert await work.take() == A
            waits.append(work.failed(A))
        for wait, full in zip(waits, (1, 2, 4, 8, 16, 32, 60, 60, 60), strict=True):
            assert 0.75 * full <= wait <= full
        assert len({wait / full for wait, full in zip(waits[6:], (60, 60, 60), strict=True)}) == 3

    run(main())


def test_a_change_of_a_persons_stays_one_after_a_failure():
    async def main():
        work = queue()
        work.add(A)
        await work.take()
        work.failed(A)
        for key in (B, C):
            work.add(key, urgent=False)
        await asyncio.sleep(1.0)
        assert await drain(work) == [A, B, C]

    run(main())


def test_success_forgets_the_failures():
    async def main():
        work = queue(backoff=1.0)
        work.add(A)
        for _ in range(6):
            await work.take()
            work.failed(A)
        await work.take()
        work.done(A)
        work.add(A)
        await work.take()
        assert work.failed(A) <= 1.0

    run(main())


def test_a_wait_that_the_server_asks_for_is_kept():
    async def main():
        work = queue(backoff=1.0)
        work.add(A)
        await work.take()
        assert work.failed(A, least=17.0) == 17.0
        await work.take()
        assert now() == pytest.approx(17.0)

    run(main())


def test_ten_thousand_failures_do_not_overflow():
    async def main():
        work = queue(backoff=1e-3, longest=5.0)
        work.add(A)
        for _ in range(10_000):
            await work.take()
            assert work.failed(A) <= 5.0

    run(main())


def test_a_change_after_a_failure_does_not_wait_for_the_backoff():
    async def main():
        work = queue(backoff=300.0)
        work.add(A)
        await work.take()
        work.failed(A)
        work.add(A)  # the person has corrected it
        assert await work.take() == A
        assert now() == 0.0

    run(main())


def test_a_closed_queue_hands_out_nothing_and_lets_everyone_who_waits_go():
    async def main():
        work = queue()
        takers = [asyncio.create_task(work.take()) for _ in range(5)]
        await asyncio.sleep(0)
        work.close()
        work.add(A)
        assert await asyncio.gather(*takers) == [None] * 5
        assert await work.take() is None

    run(main())


def test_what_waits_and_what_is_in_work_can_be_seen_with_its_age():
    async def main():
        work = queue()
        assert (work.oldest_age, work.longest_in_work, work.idle_for) == (
            0.0,
            (None, 0.0),
            float("inf"),
        )
        work.add(A)
        await asyncio.sleep(2.0)
        work.add(B)
        await asyncio.sleep(3.0)
        assert work.oldest_age == pytest.approx(5.0)
        await work.take()
        await asyncio.sleep(4.0)
        assert work.longest_in_work == (A, pytest.approx(4.0))
        assert work.oldest_age == pytest.approx(7.0)
        work.done(A)
        await asyncio.sleep(1.0)
        assert work.idle_for == pytest.approx(1.0)

    run(main())


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([A, B, C]), st.booleans(), st.floats(0.0, 5.0)), max_size=40
    ),
    st.integers(1, 4),
)
def test_no_key_is_in_two_hands_and_every_addition_is_seen_by_a_later_look(steps, hands):
    """Whatever is added when: each key is looked at after its last addition, and by one hand at
    a time.
    """

    async def main():
        work = queue()
        held: Counter[Key] = Counter()
        added: dict[Key, float] = {}
        looked: dict[Key, float] = {}

        async def hand():
            while (key := await work.take()) is not None:
                held[key] += 1
                assert held[key] == 1
                looked[key] = now()
                await asyncio.sleep(1.5)
                held[key] -= 1
                work.done(key)

        tasks = [asyncio.create_task(hand()) for _ in range(hands)]
        for key, urgent, pause in steps:
            work.add(key, urgent=urgent)
            added[key] = now()
            await asyncio.sleep(pause)
        await asyncio.sleep(1000.0)
        work.close()
        await asyncio.gather(*tasks)
        assert all(looked[key] >= moment for key, moment in added.items())
        assert (len(work), work.longest_in_work[0]) == (0, None)

    run(main())
