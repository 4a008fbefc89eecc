"""A job that pretends to train, and the server that lets it be disturbed."""

import urllib.request

import pytest
from mofa_local import LocalStackError
from mofa_local.ports import free_port
from mofa_local.trainer import Trainer
from mofa_local.workload import Workload, ask, main, serve

from mofa_model.errors import BadValue, UnknownName


def job(**changes):
    return Trainer(
        namespace="a", name="b", tokens_per_second=1e6, step_seconds=2.0, since=100.0, **changes
    )


def test_steps_climb_by_the_clock():
    assert [job().step(at) for at in (100.0, 101.9, 102.0, 300.0)] == [0, 0, 1, 100]


def test_at_half_the_rate_a_step_takes_twice_as_long():
    slow = job(fraction=0.5)
    assert slow.step(300.0) == 50
    assert slow.real_step_seconds == 4.0
    assert slow.real_tokens_per_second == 5e5


def test_a_stall_loses_time_but_no_step():
    one = job()
    one.interrupt(200.0, "stall", 60.0)
    assert [one.step(at) for at in (200.0, 259.0, 260.0, 262.0)] == [50, 50, 50, 51]
    assert one.restarts == 0


def test_a_restart_goes_on_from_the_last_checkpoint():
    one = job(checkpoint_steps=40)
    one.interrupt(200.0, "restart", 60.0)
    assert [one.step(at) for at in (259.0, 260.0, 280.0)] == [50, 40, 50]
    assert one.restarts == 1


def test_another_pace_takes_no_step_away():
    one = job()
    one.pace(200.0, 0.5)
    assert [one.step(at) for at in (200.0, 204.0)] == [50, 51]


def test_what_cannot_be_is_refused():
    with pytest.raises(BadValue, match="0 s or longer"):
        job().interrupt(200.0, "stall", -1.0)
    with pytest.raises(BadValue, match="more than 0"):
        job().pace(200.0, 0.0)


def advised(name, tokens=1000):
    predicted = {"tokensPerSecond": {"target": tokens}, "stepMilliseconds": {"target": 500}}
    return {
        "metadata": {"namespace": "n", "name": name},
        "status": {"recommendation": {"predicted": predicted}},
    }


def shown(workload):
    return {
        (sample.name, sample.labels["training_job"]): sample.value
        for metric in workload.collect()
        for sample in metric.samples
        if "training_job" in sample.labels
    }


def test_training_jobs_are_trained_once_they_have_advice_and_until_they_are_gone():
    workload = Workload(fraction=0.9)
    workload.add("n/own", 10.0, 1.0)
    workload.follow([advised("x"), {"metadata": {"namespace": "n", "name": "waiting"}}])
    assert shown(workload)["mofa_train_tokens_per_second", "x"] == 900.0
    assert {name for _, name in shown(workload)} == {"x", "own"}
    workload.follow([])
    assert {name for _, name in shown(workload)} == {"own"}


def test_no_device_holds_more_than_it_has():
    """Five percent more than 81.2 GiB were shown on a device of 79.6 GiB."""
    job = advised("x")
    job["status"]["recommendation"]["predicted"]["memoryBytes"] = {"target": 81.2 * 2**30}
    workload = Workload()
    workload.follow([job], lambda _: ["gpu-0"])
    held = {
        sample.value
        for metric in workload.collect()
        for sample in metric.samples
        if sample.name == "DCGM_FI_DEV_FB_USED"
    }
    assert list(held) == [pytest.approx(0.98 * 81559)]


def test_more_speed_makes_steps_shorter_and_leaves_tokens_alone():
    workload = Workload(speed=10.0)
    workload.follow([advised("x")])
    assert shown(workload)["mofa_train_step_seconds", "x"] == 0.05
    assert shown(workload)["mofa_train_tokens_per_second", "x"] == 1000.0


def test_a_job_that_stands_still_has_a_step_but_no_speed():
    workload = Workload(clock=lambda: 50.0)
    workload.add("n/x", 10.0, 1.0)
    workload.interrupt("n/x", "restart", 60.0)
    assert ("mofa_train_step", "x") in shown(workload)
    assert ("mofa_train_tokens_per_second", "x") not in shown(workload)


def test_a_job_that_loads_for_ever_is_there_and_has_no_step():
    workload = Workload(clock=lambda: 50.0)
    workload.loading.add("n/x")
    workload.add("n/x", 10.0, 1.0)
    assert shown(workload)["mofa_train_start_timestamp_seconds", "x"] == 50.0
    assert ("mofa_train_step", "x") not in shown(workload)


@pytest.fixture
def url():
    workload = Workload()
    workload.add("n/x", 10.0, 1.0)
    port = free_port()
    server = serve(workload, port)
    yield f"http://127.0.0.1:{port}"
    server.shutdown()
    server.server_close()


def metrics(url):
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        return answer.read().decode()


def test_the_command_line_disturbs_a_served_job(url):
    speed = 'mofa_train_tokens_per_second{namespace="n",training_job="x",training_namespace="n"}'
    assert f"{speed} 10.0" in metrics(url)
    assert main(["pace", "n/x", "--fraction", "0.5", "--url", url]) == 0
    assert f"{speed} 5.0" in metrics(url)
    assert main(["interrupt", "n/x", "--seconds", "60", "--url", url]) == 0
    assert speed not in metrics(url)


def test_a_job_that_is_not_there_is_named_in_the_answer(url):
    with pytest.raises(LocalStackError, match="unknown name 'n/y'"):
        ask(url, "interrupt", job="n/y", kind="restart", seconds=1.0)
    with pytest.raises(UnknownName, match="known: restart, stall"):
        Workload().interrupt("n/x", "explode", 1.0)


def test_without_a_server_the_command_says_what_starts_one(capsys):
    assert main(["pace", "n/x", "--fraction", "1", "--url", f"http://127.0.0.1:{free_port()}"]) == 1
    assert "`make up` starts one" in capsys.readouterr().err
