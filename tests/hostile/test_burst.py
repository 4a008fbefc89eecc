"""A burst of giant questions of one namespace: another one waits for at most one of them, and no
process takes all memory.
"""

import asyncio
from contextlib import asynccontextmanager

import control_fakes
import pytest
from control_fakes import question
from virtual_time import run

from mofa_operator.control.answers import ModelPool
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.control.worker_process import LEAST, SHARE, Outgrown, memory_of
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key

BURST = 500


@asynccontextmanager
async def model_pool(**settings):
    fakes = {"work": control_fakes.work, "draw": control_fakes.work, "warm": control_fakes.warm}
    made = ModelPool(bytes_of=control_fakes.bytes_of, **fakes, **settings)
    try:
        yield made
    finally:
        await made.stop()


@pytest.mark.parametrize("urgent", [True, False], ids=["people", "routine"])
def test_a_burst_of_one_namespace_delays_another_by_at_most_one_question(urgent):
    async def main():
        async with model_pool() as ask:
            await ask.start()
            searches = []
            ask.count = lambda: searches.append(1)
            burst = [
                asyncio.create_task(
                    ask.answer(question(str(n), sleep=0.02), namespace="evil", urgent=urgent)
                )
                for n in range(BURST)
            ]
            await asyncio.sleep(0.1)
            before = len(searches)
            await ask.answer(question("mine"), namespace="research", urgent=urgent)
            assert len(searches) - before <= 2, "the one in work, and its own"
            assert len(searches) < BURST
            for one in burst:
                one.cancel()
            await asyncio.gather(*burst, return_exceptions=True)

    asyncio.run(main())


def test_a_burst_of_one_namespace_leaves_hands_for_the_others():
    async def main():
        queue, taken = WorkQueue(backoff=1.0, longest=1.0, most=lambda _: 4), []

        async def hand():
            while (key := await queue.take()) is not None:
                taken.append(key)
                await asyncio.sleep(60.0)  # it waits for the model
                queue.done(key)

        hands = [asyncio.create_task(hand()) for _ in range(8)]
        for n in range(BURST):
            queue.add(Key(TRAINING_JOB, "evil", str(n)))
        await asyncio.sleep(1.0)
        assert len(taken) == 4
        mine, pool = Key(TRAINING_JOB, "research", "mine"), Key(CLUSTER_PROFILE, "", "east")
        queue.add(mine)
        queue.add(pool, urgent=False)
        await asyncio.sleep(1.0)
        assert set(taken[4:]) == {mine, pool}
        await asyncio.sleep(60.0)
        assert [key.namespace for key in taken[6:]] == ["evil"] * 4, (
            "and a hand that is free goes on"
        )
        queue.close()
        for one in hands:
            one.cancel()
        await asyncio.gather(*hands, return_exceptions=True)

    run(main())


def test_a_question_that_wants_more_memory_than_it_may_have_fails_alone():
    async def main():
        async with model_pool(memory=LEAST) as ask:
            with pytest.raises(Outgrown, match="memory"):
                await ask.answer(question("giant", "evil", bytes=4 << 30))
            assert (
                await ask.answer(question("mine", "research", bytes=1 << 20))
            ).outcome == "Recommended"

    asyncio.run(main())


def test_the_limit_of_a_container_is_that_of_its_processes(tmp_path):
    limit, none, absent = tmp_path / "limit", tmp_path / "none", tmp_path / "absent"
    limit.write_text(f"{2**30}\n")
    none.write_text("max\n")
    assert memory_of(1, [absent, limit]) == SHARE * 2**30
    assert memory_of(8, [limit]) == LEAST
    assert memory_of(1, [none]) is None
    assert memory_of(1, [absent]) is None
