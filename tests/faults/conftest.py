"""A control plane of its own for the faults: here the API server is killed and its store
is stopped.
"""

import contextlib
import os
from pathlib import Path

import foreign
import pytest
from faults.campaign import play
from mofa_local import LocalStackError
from mofa_local.control_plane import ControlPlane
from mofa_local.processes import Processes

from mofa_model.kinds import JOB_SET

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


@pytest.fixture(scope="session")
def processes(tmp_path_factory):
    """The children of this session, stopped at its end."""
    with Processes(tmp_path_factory.mktemp("processes")) as started:
        yield started


@pytest.fixture(scope="session")
def cluster(processes, tmp_path_factory):
    """The local stack's control plane, with our CRDs, JobSet and the operator's manifests."""
    with contextlib.ExitStack() as stack:
        try:
            plane = stack.enter_context(ControlPlane(tmp_path_factory.mktemp("cluster"), processes))
        except LocalStackError as problem:
            pytest.fail(str(problem), pytrace=False)
        plane.install(ROOT / "crds", ROOT / "deploy" / "manifests")
        foreign.install(plane, JOB_SET)
        yield plane


@pytest.fixture(scope="session")
def clean(cluster, processes):
    """The run that every other one is held against."""
    return play("clean", cluster, processes)


@pytest.fixture
def seed(request):
    """What a test draws from; it is printed, and `MOFA_FAULT_SEED` replays it."""
    drawn = int(os.environ.get("MOFA_FAULT_SEED") or 20261)
    print(f"seed {drawn}: MOFA_FAULT_SEED={drawn} pytest {request.node.nodeid!r}")  # noqa: T201
    return drawn
