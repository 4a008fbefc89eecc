"""A periodic queue: every object again and again, a few at a time, and none waits for a
slow one.
"""

from __future__ import annotations

import asyncio
import itertools

from virtual_time import run

from mofa_operator.control.observers import WORKERS, PeriodicQueue
from mofa_operator.keys import CLUSTER_PROFILE, Key


def profile(name: str) -> Key:
    return Key(CLUSTER_PROFILE, "", name)


def now() -> float:
    return asyncio.get_running_loop().time()


async def watch(rounds: PeriodicQueue, seconds: float) -> None:
    task = asyncio.create_task(rounds.run())
    await asyncio.sleep(seconds)
    task.cancel()


def test_each_profile_is_looked_at_at_once_and_then_about_every_minute():
    async def main():
        looks: dict[str, list[float]] = {}

        async def look(key):
            looks.setdefault(key.name, []).append(now())
            return True

        rounds = PeriodicQueue(look, 60.0)
        for name in "abcdefgh":
            rounds.include(profile(name))
            rounds.include(profile(name))
        await watch(rounds, 3600.0)
        for times in looks.values():
            assert times[0] == 0.0
            assert 54 <= len(times) <= 67
            assert all(
                54.0 <= later - earlier <= 66.0 for earlier, later in itertools.pairwise(times)
            )
        assert len({times[20] for times in looks.values()}) == 8  # spread, not bunched

    run(main())


def test_slow_looks_delay_themselves_and_can_be_seen():
    async def main():
        looked = []

        async def look(key):
            looked.append(key.name)
            if key.name.startswith("slow"):
                await asyncio.sleep(1000.0)
            return True

        rounds = PeriodicQueue(look, 60.0)
        for number in range(WORKERS - 1):
            rounds.include(profile(f"slow-{number}"))
        rounds.include(profile("quick"))
        await watch(rounds, 600.0)
        assert looked.count("quick") >= 9
        assert rounds.behind >= 599.0

    run(main())


def test_one_that_is_gone_is_not_looked_at_again_unless_it_comes_back():
    async def main():
        looked = []

        async def look(key):
            looked.append(now())
            return False

        rounds = PeriodicQueue(look, 60.0)
        rounds.include(profile("a"))
        await watch(rounds, 600.0)
        assert len(looked) == 1
        rounds.include(profile("a"))
        await watch(rounds, 600.0)
        assert len(looked) == 2

    run(main())


def test_a_look_that_fails_is_logged_and_repeated(caplog):
    async def main():
        looked = []

        async def look(key):
            looked.append(now())
            raise ValueError("garbage")

        rounds = PeriodicQueue(look, 60.0)
        rounds.include(profile("a"))
        await watch(rounds, 600.0)
        assert len(looked) >= 9
        assert "ClusterProfile a: the look at it failed" in caplog.text

    run(main())
