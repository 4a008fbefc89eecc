"""What all tests share: calm Hypothesis settings for a machine whose speed is not ours to know."""

import gc
import os
from functools import cache
from pathlib import Path

import pytest
import workers
from hypothesis import HealthCheck, settings

from mofa_model.cli import SELDOM, THREADS, prefer_large_pages

HERE = Path(__file__).resolve().parent

for variable in THREADS:  # before numpy is imported, as the command line does
    os.environ.setdefault(variable, "1")
gc.set_threshold(SELDOM)  # as there, too
prefer_large_pages()

settings.register_profile(
    "calm", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60
)
settings.register_profile("thorough", parent=settings.get_profile("calm"), max_examples=2000)
settings.register_profile(
    "nightly", parent=settings.get_profile("calm"), max_examples=600, print_blob=True
)
settings.register_profile("same", parent=settings.get_profile("calm"), derandomize=True)

# `make test` answers for a change, so it draws the same examples everywhere and every time; `make
# nightly` draws anew.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_addoption(parser):
    parser.addoption(
        "--one-a-room", action="store_true", help="the first test of each folder, once: a glance"
    )


def pytest_configure(config):
    """Workers that compute give way to processes that are held to deadlines."""
    if getattr(config, "workerinput", {}).get(
        "workercount", 0
    ) > workers.CORES and not workers.beside(config):
        os.nice(5)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """As many as cores, and more for what waits where that is asked for."""
    return workers.CORES + (
        0 if "not cluster" in (config.option.markexpr or "") else workers.BESIDE
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Each sort of test has workers of its own; what takes long starts first, and not what has
    many tests.
    """
    config.option.loadscopereorder = False
    return workers.Sorts(config, log)


def pytest_ignore_collect(collection_path, config):
    """A worker beside those of the cores reads nothing that it will not run."""
    if not workers.beside(config) or not collection_path.is_file():
        return None
    return not workers.waits(collection_path.relative_to(config.rootpath).as_posix()) or None


def pytest_collection_finish():
    """Thousands of tests stay to the end: no look for garbage goes through them."""
    gc.freeze()


AGAIN = 2
"""How often a test against real processes is tried again: it holds them to deadlines that a busy
machine may miss. A test that fails each time has failed; one that needed another try is counted as
rerun in the last line.
"""


LAST = 40
"""How many lines are shown of a failure after which the test ran again."""


OF_CLUSTERS = frozenset({HERE / "cluster", HERE / "faults"})
"""Folders whose tests all start servers of a cluster."""


def pytest_collection_modifyitems(config, items):
    """Mark the tests of clusters; leave out those that soak where nobody asks for their mark."""
    patient = config.pluginmanager.hasplugin(
        "rerunfailures"
    )  # `-p no:rerunfailures` shows a first failure
    for item in items:
        if OF_CLUSTERS & set(item.path.parents):
            item.add_marker(pytest.mark.cluster)
        if patient and item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.flaky(reruns=AGAIN, reruns_delay=2))
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.timeout(0))
    if "soak" not in (config.option.markexpr or ""):
        soaking = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=soaking)
        gone = set(soaking)
        items[:] = [item for item in items if item not in gone]
    if config.option.one_a_room:
        firsts = {item.path.parent: item for item in reversed(items)}
        items[:] = [item for item in items if firsts[item.path.parent] is item]
    if hasattr(config, "workerinput"):
        items.sort(key=workers.turn)


def pytest_terminal_summary(terminalreporter):
    """Show why each earlier try failed. What it left behind may be why the last one fails."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"an earlier try failed: {report.nodeid}", "_")
        terminalreporter.line("\n".join(str(report.longrepr).splitlines()[-LAST:]))


@pytest.fixture
def asked_once(monkeypatch):
    """An advice depends on its request and on nothing else, so what was asked before, by whatever
    verb, is not searched again.
    """
    # A request with runs of its own holds dicts, so it is no key.
    monkeypatch.setattr(
        "mofa_model.advice.advise",
        lambda request, _=None: (_advise if request.tried else _advised)(request),
    )


def _advise(request):
    from mofa_model.advice.compose import advise

    return advise(request)


_advised = cache(_advise)
