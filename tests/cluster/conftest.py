"""One real cluster for every test in this folder, with our CRDs and the operator's manifests in it.

By default it is the local stack's control plane; `MOFA_CLUSTER=kind` takes a kind cluster instead.
tests/conftest.py gives all tests here the mark `cluster`, and to one worker, so that one cluster
starts.
"""

import contextlib
import os
import secrets
from pathlib import Path

import pytest
from mofa_local import LocalStackError, kind
from mofa_local import binaries as tools
from mofa_local.control_plane import ControlPlane
from mofa_local.processes import Processes

STARTED = pytest.StashKey()
"""The cluster of this session, once it was asked for."""
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Binaries:
    """The local stack's tools; a build shows its progress although pytest keeps what
    tests print.
    """

    def __init__(self, config):
        self._capture = config.pluginmanager.getplugin("capturemanager")

    def path(self, name):
        path = tools.find(name)
        if path is not None:
            return path
        with (
            self._capture.global_and_fixture_disabled()
            if self._capture
            else contextlib.nullcontext()
        ):
            return tools.path(name)


class Kind(kind.Kind):
    """A kind cluster, whose API server is not ours to stop, and whose audit log is not ours
    to read.
    """

    controllers = True

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        pytest.skip(f"kind: `cluster.{name}` is only there in the local stack's control plane")


@pytest.fixture(scope="session")
def binaries(request):
    return Binaries(request.config)


@pytest.fixture(scope="session")
def processes(tmp_path_factory):
    """The children of this session: what a test starts here is stopped at the end, however the
    session ends.
    """
    with Processes(tmp_path_factory.mktemp("processes")) as started:
        yield started


@pytest.fixture(scope="session")
def cluster(request, binaries, processes, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        try:
            provided = stack.enter_context(
                _provider(binaries, processes, tmp_path_factory.mktemp("cluster"))
            )
            provided.install(ROOT / "crds", ROOT / "deploy" / "manifests")
        except LocalStackError as error:
            problem = error
        else:
            request.session.stash[STARTED] = provided
            yield provided
            return
    if isinstance(problem, kind.NoKind):
        pytest.skip(str(problem))
    pytest.fail(str(problem), pytrace=False)


@pytest.fixture(scope="module", autouse=True)
def _left_to_nobody(request):
    """The next file finds no job and no policy of this one; which file is next nobody knows."""
    yield
    if started := request.session.stash.get(STARTED, None):
        started.empty_all()


@pytest.fixture
def namespace(cluster):
    """The name of a fresh namespace; the objects in it go afterwards, the empty namespace stays
    (nothing deletes it).
    """
    name = f"test-{secrets.token_hex(4)}"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    cluster.empty(name)


def _provider(binaries, processes, folder):
    asked = os.environ.get("MOFA_CLUSTER", "local")
    if asked == "local":
        for name in ("etcd", "kube-apiserver", "kubectl"):
            binaries.path(name)
        return ControlPlane(folder, processes)
    if asked == "kind":
        return Kind(folder)
    raise LocalStackError(f"MOFA_CLUSTER={asked}: local or kind would be right")
