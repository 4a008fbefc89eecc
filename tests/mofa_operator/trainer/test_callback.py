"""The callback of the examples: short, light, and with the series that `mofa observe` serves."""

import ast
import importlib.util
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from mofa_operator.trainer import serve

PATH = Path(__file__).resolve().parents[3] / "examples" / "callback.py"


@pytest.fixture
def trained():
    spec = importlib.util.spec_from_file_location("callback", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    series = module.TrainSeries(
        4096 * 8, job="tiny", namespace="research", port=0, address="127.0.0.1"
    )
    yield series
    series.server.shutdown()
    series.server.server_close()


def scraped(series):
    url = f"http://127.0.0.1:{series.server.server_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs if "_created" not in name}


def test_a_loop_serves_its_steps(trained):
    for step in (1, 2, 3):
        time.sleep(0.01)
        trained.step(step)
    trained.saved(3)
    labels = '{training_job="tiny",training_namespace="research"}'
    found = scraped(trained)
    assert found[f"mofa_train_step{labels}"] == 3
    assert found[f"mofa_train_checkpoint_total{labels}"] == 1
    assert found[f"mofa_train_step_seconds{labels}"] >= 0.01
    assert found[f"mofa_train_tokens_per_second{labels}"] == pytest.approx(
        4096 * 8 / found[f"mofa_train_step_seconds{labels}"]
    )


def test_a_trainer_may_call_every_event_that_it_has(trained):
    state = SimpleNamespace(global_step=7)
    for event in (
        "on_init_end",
        "on_train_begin",
        "on_step_begin",
        "on_step_end",
        "on_save",
        "on_log",
        "on_train_end",
    ):
        getattr(trained, event)(None, state, None, model=None)
    assert {
        v
        for name, v in scraped(trained).items()
        if name.startswith(("mofa_train_step{", "mofa_train_checkpoint_step"))
    } == {7.0}
    with pytest.raises(AttributeError):
        _ = trained.nothing


def test_its_series_are_those_of_the_sidecar(trained):
    ours = {name.partition("{")[0].removesuffix("_total") for name in scraped(trained)}
    assert ours <= {*serve._SPEEDS, *serve._GAUGES, *serve._COUNTERS}


def test_it_is_at_most_sixty_lines_and_needs_one_library():
    text = PATH.read_text()
    assert len(text.splitlines()) <= 60
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).partition(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported == {"os", "time", "prometheus_client"}
