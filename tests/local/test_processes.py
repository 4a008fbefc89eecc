"""Children become ready or say why not, stop in reverse, and never outlive their owner
by accident.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from advisor import until
from mofa_local import LocalStackError, processes
from mofa_local.processes import Processes, answers, running_recorded, stop_recorded
from signals import BACKGROUND, HEED

LOCAL = Path(processes.__file__).resolve().parent.parent
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


def runs(pid):
    return processes._start_of(pid) is not None


def test_a_server_is_ready_when_it_answers(tmp_path):
    from mofa_local.ports import free_port

    port = free_port()
    with Processes(tmp_path) as started:
        server = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
        url = f"http://127.0.0.1:{port}/"
        assert not answers(url)()
        process = started.start("server", server, folder=tmp_path, ready=answers(url))
        assert answers(url)()
        assert "GET /" in process.tail()
    assert not answers(url)()


def test_a_child_that_ends_too_early_is_an_error_with_its_last_words(tmp_path):
    talk = [sys.executable, "-c", "print('no such flag: --x'); raise SystemExit(3)"]
    with Processes(tmp_path) as started:
        with pytest.raises(
            LocalStackError, match=r"talker: ended with code 3 .*talker.log:\nno such flag: --x"
        ):
            started.start("talker", talk, ready=lambda: False)
        assert started.names == []


def test_a_child_that_is_late_is_stopped(tmp_path):
    with Processes(tmp_path) as started:
        with pytest.raises(LocalStackError, match=r"late: not ready after \d+ s"):
            started.start("late", SLEEP, ready=lambda: False, deadline=0.2)
        assert "late" not in started


def test_children_stop_in_reverse(tmp_path):
    order = tmp_path / "order"
    script = (
        "import pathlib, signal, sys, time\n"
        "def end(*_):\n"
        "    with open(sys.argv[1], 'a') as file: file.write(sys.argv[2])\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); pathlib.Path(sys.argv[1] + sys.argv[2]).touch(); time.sleep(600)"
    )
    with Processes(tmp_path / "run") as started:
        for name in "abc":
            child = [sys.executable, "-c", script, str(order), name]
            started.start(name, child, ready=(tmp_path / f"order{name}").exists)
    assert order.read_text() == "cba"


def test_a_child_that_does_not_listen_is_killed_after_the_grace(tmp_path):
    with Processes(tmp_path) as started:
        up = tmp_path / "up"
        pid = started.start("mule", [sys.executable, "-c", STUBBORN, str(up)], ready=up.exists).pid
        started.stop("mule", grace=0.1)
        assert not runs(pid)


def test_what_a_child_started_goes_with_it(tmp_path):
    parent = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "pathlib.Path(sys.argv[1]).write_text(str(child.pid)); time.sleep(600)"
    )
    there = tmp_path / "pid"
    with Processes(tmp_path / "run") as started:
        command = [sys.executable, "-c", parent, str(there)]
        started.start("parent", command, ready=lambda: there.exists() and there.read_text() != "")
        grandchild = int(there.read_text())
        started.kill("parent")
    until(lambda: not runs(grandchild))


def owner(folder, *, outlive, before=()):
    """A process that starts two children and tells their pids; it waits when it should
    be killed.
    """
    script = f"""{HEED}
import pathlib, sys, time
sys.path.insert(0, {str(LOCAL)!r})
from mofa_local.processes import Processes
with Processes(pathlib.Path({str(folder)!r}), outlive={outlive}) as started:
    print(*(started.start(name, {SLEEP!r}).pid for name in "ab"), flush=True)
    time.sleep({0 if outlive else 600})
"""
    child = subprocess.Popen(
        [*before, sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    return child, [int(pid) for pid in child.stdout.readline().split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "before", [(), BACKGROUND], ids=["in front", "in the background of a script"]
)
def test_children_end_with_their_owner_however_it_ends(tmp_path, number, before):
    child, pids = owner(tmp_path, outlive=False, before=before)
    with child:
        assert len(pids) == 2
        assert all(runs(pid) for pid in pids)
        child.send_signal(number)
    until(lambda: not any(runs(pid) for pid in pids))


def test_children_that_outlive_their_owner_are_stopped_by_their_pid_files(tmp_path):
    child, pids = owner(tmp_path, outlive=True)
    with child:
        pass
    assert running_recorded(tmp_path) == dict(zip("ab", pids, strict=True))
    assert stop_recorded(tmp_path) == ["b", "a"]
    assert not any(runs(pid) for pid in pids)
    assert list(tmp_path.glob("*.pid")) == []
    assert stop_recorded(tmp_path) == []


def test_a_failure_on_the_way_up_leaves_nothing_even_of_children_that_should_stay(tmp_path):
    def bring_up():
        with Processes(tmp_path, outlive=True) as started:
            pids.append(started.start("first", SLEEP).pid)
            started.start("second", SLEEP, ready=lambda: False, deadline=0.1)

    pids = []
    with pytest.raises(LocalStackError):
        bring_up()
    assert not runs(pids[0])


def test_a_pid_that_now_belongs_to_another_process_is_left_alone(tmp_path):
    with Processes(tmp_path / "ours") as started:
        pid = started.start("innocent", SLEEP).pid
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        (theirs / "old.pid").write_text(json.dumps({"pid": pid, "started": "long ago", "order": 1}))
        (theirs / "broken.pid").write_text("not JSON")
        assert stop_recorded(theirs) == []
        assert runs(pid)
        assert list(theirs.iterdir()) == []


def test_a_name_is_used_once_at_a_time(tmp_path):
    with Processes(tmp_path) as started:
        started.start("one", SLEEP)
        with pytest.raises(LocalStackError, match="already started"):
            started.start("one", SLEEP)
        started.stop("one")
        started.stop("one")
        assert started.start("one", SLEEP).running


def test_a_child_gets_our_environment_and_what_is_added(tmp_path):
    show = [sys.executable, "-c", "import os; print(os.environ['PATH'], os.environ['ADDED'])"]
    with Processes(tmp_path) as started:
        child = started.start("show", show, environment={"ADDED": "here"})
        child.child.wait()
        assert child.tail() == f"{os.environ['PATH']} here"
