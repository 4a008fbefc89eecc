"""What all tests share: calm Hypothesis settings for a machine whose speed is not ours to know."""

import os

import pytest
from hypothesis import HealthCheck, settings

from mofa_model.cli import THREADS

for variable in THREADS:  # before numpy is imported, as the command line does
    os.environ.setdefault(variable, "1")

settings.register_profile(
    "calm", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60
)
settings.register_profile("thorough", parent=settings.get_profile("calm"), max_examples=2000)
settings.register_profile("same", parent=settings.get_profile("calm"), derandomize=True)

# Continuous integration answers for a change, so it draws the same examples every time; people's machines search on.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same" if os.environ.get("CI") else "calm"))

WHOLE = {"tests/dashboards/test_live_panels.py", "tests/test_packaging.py"}
"""Files whose tests one worker gets."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """One worker gets all of tests/cluster, so that one cluster starts, one all of tests/faults, which have a cluster of
    their own, and one each of the files that share something big: a whole stack, an environment without the extra. Every
    other test goes to whoever is free.

    xdist's own groups (`--dist loadgroup`) would say the same, but 3.8 does nothing of the kind under pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneCluster(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            room, file = "/".join(nodeid.split("/")[:2]), nodeid.partition("::")[0]
            if room in {"tests/cluster", "tests/faults"}:
                return room
            return file if file in WHOLE else nodeid

    return OneCluster(config, log)


AGAIN = 2
"""How often a test against real processes is tried again: it holds them to deadlines that a busy machine may miss. A test
that fails each time has failed; one that needed another try is counted as rerun in the last line."""


def pytest_collection_modifyitems(config, items):
    """Tests that soak run when they are asked for by name of their mark, and not otherwise."""
    patient = config.pluginmanager.hasplugin("rerunfailures")  # `-p no:rerunfailures` shows a first failure
    for item in items:
        if patient and item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.flaky(reruns=AGAIN, reruns_delay=2))
    if "soak" not in (config.option.markexpr or ""):
        soaking = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=soaking)
        items[:] = [item for item in items if item not in soaking]
