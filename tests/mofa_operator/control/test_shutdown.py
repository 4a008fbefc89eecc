"""The end of the process: with 0, in time, and by force where something in it cannot be
ended otherwise.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from mofa_operator.control.shutdown import LIMIT

BEGIN = "import asyncio, sys, time; from mofa_operator.control.shutdown import Shutdown; stop = Shutdown(); "
SAY = "print('there', flush=True); "
LONG = "[time.sleep(0.1) for _ in range(600)]"
"""Not one sleep: a signal just before it would only be seen at its end."""
WAIT = """
async def main():
    stop.take_signals()
    {work}
    print('there', flush=True)
    await stop.requested.wait()
    {then}
asyncio.run(main())
"""


def ended(program, number=signal.SIGTERM, times=1):
    """Exit code, seconds from the signal, and what was said on standard error."""
    started = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with started:
        assert started.stdout.readline() == "there\n"
        since = time.monotonic()
        for _ in range(times):
            os.kill(started.pid, number)
            time.sleep(0.1)
        _, said = started.communicate(timeout=60)
    return started.returncode, time.monotonic() - since, said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_before_there_is_a_loop_it_ends_at_once(number):
    code, seconds, said = ended(BEGIN + SAY + LONG, number)
    assert (code, said) == (0, "")
    assert seconds < LIMIT


@pytest.mark.parametrize("times", [1, 3])
def test_in_the_loop_the_wish_is_told_however_often_it_comes(times):
    code, seconds, said = ended(
        BEGIN + WAIT.format(work="", then="await asyncio.sleep(0.5)"), times=times
    )
    assert (code, said) == (0, "")
    assert seconds < LIMIT


@pytest.mark.parametrize(
    "work, then, left",
    [
        ("asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)", "", "asyncio_0"),
        ("", "await asyncio.Event().wait()", "Task-1"),
        ("", "time.sleep(60)", "Task-1"),
    ],
    ids=["a thread", "a task", "the loop itself"],
)
def test_what_hangs_is_named_and_left(work, then, left):
    code, seconds, said = ended(BEGIN + WAIT.format(work=work, then=then))
    assert code == 0
    assert LIMIT - 0.5 < seconds < LIMIT + 2
    assert f"did not stop within {LIMIT:g} s" in said
    assert left in said
