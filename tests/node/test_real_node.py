"""A pod that really runs: registered by a kubelet, started by containerd, its command line read
from outside, and no trace left.
"""

import json
import subprocess
from pathlib import Path

import pytest
from advisor import until
from mofa_local.control_plane import ControlPlane
from mofa_local.processes import Processes
from mofa_local.real.containers import PAUSE
from mofa_local.real.machine import missing
from mofa_local.real.node import NAME, RealNode
from started import no_real_node

ARGUMENTS = "--tensor-model-parallel-size 2 --micro-batch-size 8"
ADVISED = {"advisor.mofa.dev/launch-args": ARGUMENTS}
LIMIT = 64 * 2**20


def pod():
    """A pod that is given its arguments as mode Apply gives them: an annotation, read by the
    downward API.
    """
    argument = {"fieldRef": {"fieldPath": "metadata.annotations['advisor.mofa.dev/launch-args']"}}
    container = {
        "name": "trainer",
        "image": PAUSE,
        "imagePullPolicy": "Never",
        "args": ["$(LAUNCH_ARGS)"],
        "env": [{"name": "LAUNCH_ARGS", "valueFrom": argument}],
        "resources": {"limits": {"memory": str(LIMIT), "cpu": "100m", "nvidia.com/gpu": "2"}},
    }
    metadata = {"name": "one", "namespace": "default", "annotations": ADVISED}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container]},
    }


def traces(folder, cgroup):
    """What a node could leave on this machine: cgroups, mounts, rules of the firewall, its
    bridge, processes.
    """
    mounts = [
        line
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if str(folder) in line
    ]
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout
    return {
        "cgroups": [str(one) for one in Path("/sys/fs/cgroup").glob(f"**/{cgroup}")],
        "mounts": mounts,
        "rules": [one for one in rules.splitlines() if "10.65.0." in one or "10.66.0." in one],
        "links": [one.name for one in Path("/sys/class/net").iterdir() if "mofa" in one.name],
        "processes": [
            line
            for at, line in running()
            if cgroup in at or any(str(folder) in word for word in line)
        ],
    }


def test_a_pod_runs_under_its_limits_with_the_advised_arguments_and_nothing_is_left_of_its_node(
    tmp_path,
):
    if why := no_real_node():
        pytest.skip(why)
    with Processes(tmp_path / "run") as processes, ControlPlane(tmp_path / "plane", processes, real_nodes=True) as cluster:  # fmt: skip
        node = RealNode(cluster, tmp_path / "node", processes)
        try:
            node.start()
            cluster.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
            cluster.apply(pod())
            cluster.kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=60s")
            seen = json.loads(cluster.kubectl("get", "pods", "one", "-o", "json"))
            assert seen["spec"]["nodeName"] == NAME
            container = seen["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
            assert ["/pause", ARGUMENTS] in [line for at, line in running() if container in at]
            (limit,) = limits(container)
            assert limit == LIMIT
            node.kill_kubelet()
            assert any(container in at for at, _ in running()), "a pod outlives its kubelet"
            node.start_kubelet()
            cluster.delete("pods", "one")
            until(lambda: not any(container in at for at, _ in running()), 60.0, "the pod is gone")
        finally:
            node.stop()
    assert not any(found := traces(tmp_path, node.machine.cgroup).values()), found


def running():
    """The cgroup and the command line of every process."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            yield (
                (path / "cgroup").read_text(),
                (path / "cmdline").read_bytes().decode().split("\0")[:-1],
            )
        except OSError:
            continue


def limits(container):
    """The memory that the kernel lets a container have. [B]"""
    return [
        int(found.read_text())
        for name in ("memory.limit_in_bytes", "memory.max")
        for found in Path("/sys/fs/cgroup").glob(f"**/{container}/{name}")
    ]


def test_a_machine_that_cannot_have_a_real_node_says_in_one_line_what_is_missing(monkeypatch):
    monkeypatch.setattr("mofa_local.real.machine.os.geteuid", lambda: 1000)
    assert missing() == "a real node needs root, for namespaces, mounts and cgroups; run it as root"
    monkeypatch.setattr("mofa_local.real.machine.os.geteuid", lambda: 0)
    monkeypatch.setattr("mofa_local.real.machine.sys.platform", "linux")
    monkeypatch.setattr(
        "mofa_local.real.machine.shutil.which",
        lambda name: None if name in {"runc", "ip"} else name,
    )
    monkeypatch.setattr("mofa_local.real.machine.PLUGINS", Path("/nowhere"))
    told = "a real node needs iproute2, runc, containernetworking-plugins; `apt-get install --no-install-recommends iproute2 runc containernetworking-plugins` installs them"
    assert missing() == told
