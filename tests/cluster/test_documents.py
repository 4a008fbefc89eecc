"""What documents have people type at a cluster: on the stack of `make up`, and from an empty
cluster to a removed operator.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request

import foreign
import pytest
from desk import GIVEN
from documents import PAGES, ROOT, asks_a_cluster, commands, elsewhere
from helm import monitoring
from mofa_local import nodes, stack, up
from mofa_local.cluster import Cluster
from mofa_local.control_plane import ControlPlane
from mofa_local.processes import Processes

from mofa_model.kinds import JOB_SET

UP = (
    "README.md",
    *(
        f"docs/{one}.md"
        for one in (
            "tutorial",
            "install",
            "for-platform-teams",
            "for-sres",
            "for-capacity",
            "kubectl",
            "versions",
        )
    ),
)
"""Pages whose commands are typed on the stack, in the order in which one would read them."""
EMPTY = ("docs/install.md", "docs/for-platform-teams.md", "docs/upgrade.md")
"""Pages that begin with a cluster that has nothing of ours."""
INSTALLS = re.compile(r"helm |.*--server-side|kubectl delete |mofa profile --from-cluster")
RIGHT = {
    "kubectl mofa doctor": (0, 4), "kubectl mofa doctor --all": (0, 4), "grep ^mofa_job_interruptions_total": (0, 1),
    """grep -oE '"(alertname|description|runbook_url|state)":"[^"]*"'""": (0, 1),
}  # fmt: skip
"""Ends that are right beside 0, by the end of a line: the local operator has no Deployment; a
restart or an alert is minutes away.
"""
LONGEST = 90.0
"""How long something may take that a reader waits for. [s]"""


def typed(name):
    """Commands of a page that ask a cluster."""
    return [one for one in commands(ROOT / name) if asks_a_cluster(one) and not elsewhere(one)]


class Reader:
    """Somebody at a terminal, in a folder that looks like a clone of ours."""

    def __init__(self, folder, binaries, instead, **variables):
        for name in ("examples", "charts", "crds", "deploy"):
            shutil.copytree(ROOT / name, folder / name)  # kubectl reads no folder behind a link
        (folder / ".venv").symlink_to(ROOT / ".venv")
        for name in ("job.yaml", "pool.yaml"):
            (folder / name).write_text(GIVEN[name])
        self._folder = folder
        self._instead = instead
        tools = [str(binaries.path(name).parent) for name in ("kubectl", "helm")]
        path = os.pathsep.join([os.path.dirname(sys.executable), *tools, os.environ["PATH"]])  # noqa: PTH120 - text
        home = {"HOME": str(folder), "HELM_CACHE_HOME": str(folder / "helm")}
        self._variables = os.environ | home | {"PATH": path} | variables

    def types(self, line):
        """Exit code and everything that is said."""
        for told, here in self._instead.items():
            line = line.replace(told, here)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], cwd=self._folder, env=self._variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=LONGEST,
        )  # fmt: skip
        return done.returncode, done.stdout

    def waits(self, line, right=(0,)):
        """Type a line until it ends well: what it asks for may be on its way."""
        end = time.monotonic() + LONGEST
        code, said = self.types(line)
        while code not in right and time.monotonic() < end:
            time.sleep(0.5)
            code, said = self.types(line)
        assert code in right, f"{line}\n{said}"
        return said


@pytest.fixture(scope="module")
def stack_up(tmp_path_factory):
    """`make up`, and what stands in its folder."""
    folder = tmp_path_factory.mktemp("up") / "up"

    def run(verb, *more):
        return subprocess.run(
            [sys.executable, "-m", "mofa_local", verb, f"--folder={folder}", *more],
            env=os.environ | {"PYTHONPATH": str(stack.ROOT / "deploy" / "local")},
            capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip

    try:
        first = run("up", "--nodes=24", "--days=5")
        assert first.returncode == 0, first.stderr
        yield folder, run, first.stdout
    finally:
        last = run("down")
    assert last.stdout.startswith("down: stopped operator")
    assert up.running_recorded(folder / "run") == {}
    assert run("down").stdout == "down: nothing was up\n"


@pytest.fixture(scope="module")
def where(stack_up):
    """The addresses that `up` leaves for a person."""
    lines = (stack_up[0] / "env").read_text().splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)


@pytest.fixture(scope="module")
def reader(stack_up, where, binaries, tmp_path_factory):
    """One who has `make up` before them, and the JobSet that a page asks about."""
    cluster = Cluster(stack_up[0] / "kubeconfig", tmp_path_factory.mktemp("asked"))
    foreign.install(cluster, JOB_SET)
    asked = foreign.example(JOB_SET, "team-a")
    asked["metadata"]["name"] = "llama3-70b"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}, asked)
    instead = {
        "http://localhost:9090": where["PROMETHEUS_URL"],
        "/tmp/pool.yaml": "learned.yaml",
    }
    return Reader(tmp_path_factory.mktemp("clone") / "clone", binaries, instead, **where)


@pytest.mark.slow
def test_up_is_ready_says_so(stack_up, where):
    folder, run, _ = stack_up
    assert up.is_up(folder)
    assert "is up already" in run("up").stdout
    with urllib.request.urlopen(f"{where['ADVISOR_URL']}/metrics") as answer:
        assert b'mofa_pool_nodes{pool="h100-east"} 24.0' in answer.read()
    processes = set(up.running_recorded(folder / "run"))
    assert {
        "etcd",
        "kube-apiserver",
        "kube-scheduler",
        "kwok",
        "prometheus",
        "operator",
    } < processes
    assert "kube-state-metrics" not in processes, (
        "626 packages are built only where somebody asks for them"
    )


@pytest.mark.slow
def test_up_is_ready_when_the_history_is_read(stack_up):
    lines = [
        line.partition(" s  ")[2] for line in stack_up[2].splitlines() if line.startswith("up: ")
    ]
    assert lines[-2:] == ["the operator has read the history", "ready"]
    assert "the operator still reads the history" not in lines


@pytest.mark.slow
def test_the_runbook_url_of_every_alert_opens(where):
    with urllib.request.urlopen(f"{where['PROMETHEUS_URL']}/api/v1/rules?type=alert") as answer:
        groups = json.load(answer)["data"]["groups"]
    alerts = {
        rule["name"]: rule["annotations"]["runbook_url"]
        for each in groups
        for rule in each["rules"]
    }
    assert len(alerts) >= 15
    for name, address in alerts.items():
        with urllib.request.urlopen(address) as answer:
            assert f"<h1>{name}</h1>" in answer.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.soak] * ("/for-" in one)) for one in UP]
)
def test_what_a_page_has_people_type_runs_on_the_stack(reader, name):
    lines = [one for one in typed(name) if not INSTALLS.match(one)]
    assert lines
    for line in lines:
        reader.waits(line, RIGHT.get(line.split(" | ")[-1], (0,)))


@pytest.fixture(scope="module")
def newcomer(binaries, tmp_path_factory):
    """One whose cluster has two nodes, the Prometheus operator's kinds, and nothing of ours."""
    folder = tmp_path_factory.mktemp("empty")
    with Processes(folder / "run") as processes, ControlPlane(folder / "plane", processes) as plane:
        nodes.create(plane, [nodes.node(f"gpu-{number}") for number in range(2)], kwok=False)
        kinds = monitoring()
        plane.apply(*kinds)
        plane.await_served(*kinds)
        instead = {"image.repository=IMAGE": "image.repository=registry.example/mofa-advisor"}
        yield Reader(folder / "clone", binaries, instead, KUBECONFIG=str(plane.kubeconfig))


@pytest.mark.soak
def test_what_the_pages_have_people_install_upgrade_and_remove_is(newcomer):
    first, other, last = ([one for one in typed(name) if INSTALLS.match(one)] for name in EMPTY)
    server = [one for one in first if "--server-side" in one]
    helm = [one for one in first if one not in server]
    assert [one.split()[:2] for one in helm] == [
        ["helm", "install"], ["mofa", "profile"], ["helm", "uninstall"], ["kubectl", "delete"],
    ]  # fmt: skip
    removal = helm[2:]  # the manifests begin with an empty cluster again
    for line in (*helm, *other, *last, *removal, *server):
        code, said = newcomer.types(line)
        assert code == 0, f"{line}\n{said}"


def test_every_command_that_asks_a_cluster_is_typed_here():
    pages = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {page for page in pages if typed(page)} == {*UP, *EMPTY}
