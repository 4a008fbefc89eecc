"""Answers from worker processes: computed once, and no crash or hang is anyone else's trouble."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import asynccontextmanager
from pathlib import Path

import control_fakes
import pytest
from advisor import until
from control_fakes import question

from mofa_operator.control.answers import VIEWS, ModelPool, Outdated
from mofa_operator.control.worker_process import NoAnswer, WorkerProcess


@asynccontextmanager
async def model_pool(**settings):
    made = ModelPool(
        bytes_of=control_fakes.bytes_of,
        work=control_fakes.work,
        know=control_fakes.work,
        draw=control_fakes.work,
        warm=control_fakes.warm,
        **settings,
    )
    try:
        yield made
    finally:
        await made.stop()


def searches_of(ask) -> list[int]:
    """A list that grows by one with each answer that is searched for."""
    searches = []
    ask.count = lambda: searches.append(1)
    return searches


def lines(path) -> list[str]:
    return path.read_text().splitlines()


def test_two_hundred_who_ask_at_once_cost_one_computation(tmp_path):
    log = tmp_path / "log"

    async def main():
        async with model_pool() as ask:
            same = question(log=str(log), sleep=0.05)
            answers = await asyncio.gather(*(ask.answer(same) for _ in range(200)))
            again = await ask.answer(question(log=str(log), sleep=0.05))
            assert all(answer is again for answer in answers)

    asyncio.run(main())
    assert len(lines(log)) == 1


def test_the_oldest_answers_are_forgotten_first(tmp_path):
    log = tmp_path / "log"

    async def main():
        async with model_pool(kept=2) as ask:
            for name in (
                "a",
                "b",
                "a",
                "c",
                "a",
                "b",
            ):  # b is the one not used for longest when c comes
                await ask.answer(question(name, log=str(log)))

    asyncio.run(main())
    assert len(lines(log)) == 4


def test_answers_come_from_another_process_with_one_thread_that_steps_back(tmp_path):
    async def main():
        async with model_pool() as ask:
            assert not ask.is_warm
            await ask.start()
            assert ask.is_warm
            answer = await ask.answer(question())
            assert answer.digest != str(os.getpid())
            assert answer.annotations == {"OPENBLAS_NUM_THREADS": "1", "nice": str(os.nice(0) + 2)}

    asyncio.run(main())


def test_a_process_that_nobody_asks_rests_and_the_next_question_starts_it_again():
    async def main():
        async with model_pool(rest=0.2) as ask:
            await ask.start()
            (first,) = multiprocessing.active_children()
            for _ in range(3000):
                if not multiprocessing.active_children():
                    break
                await asyncio.sleep(0.02)
            assert (first.exitcode, ask.is_warm) == (-signal.SIGKILL, True)
            assert (await ask.answer(question())).outcome == "Recommended"

    asyncio.run(main())


def test_a_crashed_process_is_replaced_and_the_question_asked_once_more(tmp_path):
    log = tmp_path / "log"

    async def main():
        async with model_pool() as ask:
            assert (await ask.answer(question(log=str(log), crash="once"))).outcome == "Recommended"

    asyncio.run(main())
    first, second = lines(log)
    assert first != second


def test_a_question_that_always_crashes_fails_and_the_next_is_answered(tmp_path):
    log = tmp_path / "log"

    async def main():
        async with model_pool() as ask:
            with pytest.raises(NoAnswer, match="died twice"):
                await ask.answer(question(log=str(log), crash="always"))
            assert (await ask.answer(question("b"))).outcome == "Recommended"

    asyncio.run(main())
    assert len(lines(log)) == 2


def test_a_crash_with_two_workers_concerns_only_its_own_question(tmp_path):
    log = tmp_path / "log"

    async def main():
        async with model_pool(workers=2) as ask:
            bad, good = await asyncio.gather(
                ask.answer(question(log=str(tmp_path / "bad"), crash="always")),
                ask.answer(question(log=str(log), sleep=0.8)),
                return_exceptions=True,
            )
            assert isinstance(bad, NoAnswer)
            assert good.outcome == "Recommended"

    asyncio.run(main())
    assert len(lines(log)) == 1


def test_a_hung_process_is_killed_at_its_deadline_and_replaced(tmp_path):
    log = tmp_path / "log"

    async def main():
        async with model_pool(deadline=5.0) as ask:  # long enough to start on a busy machine
            await ask.start()
            with pytest.raises(NoAnswer, match="no answer within 5 s"):
                await ask.answer(question(log=str(log), sleep=3600))
            [pid] = lines(log)
            assert (await ask.answer(question("b"))).outcome == "Recommended"
            await asyncio.to_thread(_gone, int(pid))

    asyncio.run(main())


def test_a_model_that_fails_says_how_and_is_asked_again_next_time(tmp_path):
    log = tmp_path / "log"

    async def main():
        async with model_pool() as ask:
            for _ in range(2):
                with pytest.raises(NoAnswer, match="ValueError: no such axis"):
                    await ask.answer(question(log=str(log), fail="no such axis"))

    asyncio.run(main())
    assert len(lines(log)) == 2


def test_one_who_gives_up_does_not_take_the_answer_from_another(tmp_path):
    async def main():
        async with model_pool() as ask:
            same = question(sleep=0.2)
            impatient, patient = (asyncio.create_task(ask.answer(same)) for _ in range(2))
            await asyncio.sleep(0)
            impatient.cancel()
            assert (await patient).outcome == "Recommended"
            assert impatient.cancelled()

    asyncio.run(main())


def test_what_people_wait_for_comes_before_the_routine(tmp_path):
    async def main():
        async with model_pool() as ask:
            done, searches = [], searches_of(ask)

            async def one(name, *, urgent, **spec):
                await ask.answer(question(name, **spec), urgent=urgent)
                done.append(name)

            first = asyncio.create_task(one("first", urgent=False, sleep=0.3))
            await asyncio.sleep(0)
            routine = [
                asyncio.create_task(one(f"routine-{number}", urgent=False)) for number in range(5)
            ]
            await asyncio.sleep(0)
            people = asyncio.create_task(one("mine", urgent=True))
            raised = asyncio.create_task(
                one("routine-4", urgent=True)
            )  # somebody waits for that one now
            await asyncio.gather(first, *routine, people, raised)
            assert done[0] == "first"
            assert set(done[1:4]) == {"mine", "routine-4"}
            assert done[4:] == ["routine-0", "routine-1", "routine-2", "routine-3"]
            assert len(searches) == 7

    asyncio.run(main())


def test_namespaces_take_turns_with_a_search_and_without_one():
    async def main():
        async with model_pool() as ask:
            done, searches = [], searches_of(ask)

            async def one(name, how, place):
                await how(question(name), namespace=place)
                done.append(name)

            first = asyncio.create_task(ask.answer(question("first", sleep=0.3)))
            await asyncio.sleep(0)
            many = [asyncio.create_task(one(f"many-{n}", ask.unsearched, "many")) for n in range(4)]
            await asyncio.sleep(0)
            few = [
                asyncio.create_task(one("few-0", ask.unsearched, "few")),
                asyncio.create_task(one("few-1", ask.answer, "few")),
            ]
            await asyncio.gather(first, *many, *few)
            assert max(done.index("few-0"), done.index("few-1")) <= 3, done
            assert len(searches) == 2, "what needs no search is no answer that was computed"

    asyncio.run(main())


def test_a_question_that_nobody_wants_any_more_is_not_computed(tmp_path):
    log = tmp_path / "log"

    async def main():
        async with model_pool() as ask:
            busy = asyncio.create_task(ask.answer(question("busy", sleep=0.3)))
            await asyncio.sleep(0)
            with pytest.raises(Outdated):
                await ask.answer(question("old", log=str(log)), wanted=lambda: False)
            assert not ask.is_busy
            await busy
            one, other = await asyncio.gather(
                ask.answer(question("new", log=str(log)), wanted=lambda: False),
                ask.answer(question("new", log=str(log))),
            )
            assert one is other  # one of the two still wanted it

    asyncio.run(main())
    assert len(lines(log)) == 1


def test_a_page_comes_behind_every_answer_and_is_computed_once(tmp_path):
    log = tmp_path / "log"

    async def main():
        async with model_pool() as ask:
            done, searches = [], searches_of(ask)

            async def one(name, work):
                await work(question(name, log=str(log)))
                done.append(name)

            busy = asyncio.create_task(ask.answer(question("busy", sleep=0.3)))
            await asyncio.sleep(0)
            pages = [asyncio.create_task(one("page", ask.view)) for _ in range(3)]
            await asyncio.sleep(0)
            routine = asyncio.create_task(
                ask.answer(question("routine", log=str(log)), urgent=False)
            )
            routine.add_done_callback(lambda _: done.append("routine"))
            await asyncio.gather(busy, routine, *pages)
            await one("page", ask.view)
            assert done == ["routine", "page", "page", "page", "page"]
            assert len(searches) == 2  # pages are not counted as advice

    asyncio.run(main())
    assert len(lines(log)) == 2


def test_when_many_pages_wait_another_is_told_to_come_again(tmp_path):
    async def main():
        async with model_pool() as ask:
            busy = asyncio.create_task(ask.answer(question("busy", sleep=0.3)))
            await asyncio.sleep(0)
            waiting = [asyncio.create_task(ask.view(question(str(n)))) for n in range(VIEWS)]
            await asyncio.sleep(0)
            with pytest.raises(Outdated):
                await ask.view(question("one too many"))
            await asyncio.gather(busy, *waiting)

    asyncio.run(main())


def test_the_process_ends_with_the_operator_even_when_that_is_killed(tmp_path):
    """Kill -9 of the parent: its worker is gone soon after."""
    script = textwrap.dedent("""
        import asyncio, sys
        sys.path[:0] = PATHS
        import control_fakes
        from mofa_operator.control.answers import ModelPool
        async def main():
            ask = ModelPool(bytes_of=control_fakes.bytes_of, work=control_fakes.work, warm=control_fakes.warm)
            print((await ask.answer(control_fakes.question())).digest, flush=True)
            await asyncio.sleep(3600)
        if __name__ == "__main__":
            asyncio.run(main())
    """).replace("PATHS", repr([path for path in sys.path if path]))
    (tmp_path / "parent.py").write_text(script)
    with subprocess.Popen(
        [sys.executable, tmp_path / "parent.py"], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.send_signal(signal.SIGKILL)
    _gone(pid)


def _gone(pid: int) -> None:
    for _ in range(500):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (ProcessLookupError, FileNotFoundError):
            return
        if stat.rpartition(")")[2].split()[0] == "Z":  # a zombie is gone as well
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there")


def test_an_end_at_the_very_moment_of_an_answer_is_an_end(monkeypatch):
    async def main(ticks):
        answered = asyncio.Event()

        async def call(self, work, question):
            await answered.wait()

        monkeypatch.setattr(WorkerProcess, "_call", call)
        async with model_pool() as ask:
            await ask.start()
            asking = asyncio.create_task(ask.answer(question()))
            await asyncio.sleep(0.01)
            answered.set()
            for _ in range(ticks):
                await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await ask.stop()
            await asyncio.gather(asking, return_exceptions=True)

    for ticks in range(5):
        asyncio.run(main(ticks))


def test_a_process_that_still_starts_is_ended_at_once(tmp_path):
    async def main():
        model_pool = ModelPool(
            bytes_of=control_fakes.bytes_of, work=control_fakes.work, warm=control_fakes.hang
        )
        starting = asyncio.create_task(model_pool.start())
        await asyncio.sleep(0.05)
        (child,) = multiprocessing.active_children()
        await model_pool.stop()
        # To join it may lose a race: the pool waits for it as well.
        until(lambda: child.exitcode is not None, 5)
        assert child.exitcode == -signal.SIGKILL
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)

    asyncio.run(main())
