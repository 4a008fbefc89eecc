"""A killer on fake nodes: what it did is the truth, and what kube-state-metrics showed is all that
is known.

API server, kwok and kube-state-metrics are real, and so is the Prometheus that is asked. A second
of theirs is written down as half a minute, so that two hours of a cluster take four minutes:
moments in the samples are stretched with the samples.
"""

import json
import random
import re
import secrets
import time
from collections import defaultdict
from datetime import UTC, datetime

import pytest
from mofa_local import neighbourhood, nodes
from mofa_local.blocks import write_block
from mofa_local.ports import HOST
from mofa_local.prometheus import Prometheus as Server
from mofa_local.series import Run, Series, Span
from urllib3 import PoolManager

from mofa_model.cli import main

PLACE, POOL = "chaos", {"example.com/pool": "chaos"}
SLOWER = 30
"""Seconds of the cluster in one of the clock's. [1]"""
JOBS, OF_A_JOB, SPARE = 3, 4, 6
LINE = re.compile(r"(kube_(?:node|pod)_\w+)\{(.*)\} (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
MOMENTS = re.compile(r"_(created|started|timestamp|time|scheduled_time)$")


def stamp(at):
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Cluster:
    """Nodes and pods, what befalls them, and what of it counts."""

    def __init__(self, cluster, seed):
        self.cluster, self.random = cluster, random.Random(seed)
        self.pods_api = cluster.admin.resources.get(api_version="v1", kind="Pod")
        run = secrets.token_hex(2)  # a test that is run again finds no node of before
        self.names = [f"chaos-{run}-{number:02d}" for number in range(JOBS * OF_A_JOB + SPARE)]
        nodes.create(cluster, [nodes.node(name, labels=POOL) for name in self.names])
        self.free = self.names[JOBS * OF_A_JOB :]
        self.places, self.restarts = {}, defaultdict(int)
        self.truth, self.later = [], []
        for number in range(JOBS * OF_A_JOB):
            self.place(f"job-{number // OF_A_JOB}", number % OF_A_JOB, self.names[number])

    def place(self, job, slot, node):
        """A pod of a job on a node."""
        end = "".join(self.random.choices("bcdfghjklmnpqrstvwxz", k=5))
        name = f"{job}-w-0-{slot}-{end}"
        labels = {
            "jobset.sigs.k8s.io/jobset-name": job,
            "jobset.sigs.k8s.io/restart-attempt": "0",
            "jobset.sigs.k8s.io/replicatedjob-name": "w",
            "jobset.sigs.k8s.io/job-index": "0",
            "jobset.sigs.k8s.io/job-global-index": "0",
            "batch.kubernetes.io/job-completion-index": str(slot),
        }
        spec = {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "trainer", "image": "example.com/train:1"}],
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        }
        self.pods_api.create(body=body, namespace=PLACE)
        self.places[job, slot] = (name, node)

    def remove(self, job, slot):
        name, _ = self.places[job, slot]
        self.pods_api.delete(name=name, namespace=PLACE, body={"gracePeriodSeconds": 0})

    def move(self, job, slot):
        """A pod is made anew on a spare node."""
        self.remove(job, slot)
        self.place(job, slot, self.free.pop(0))

    def exit(self, job, codes):
        """All containers of a job end with these codes, the first one first, and start again
        in place.
        """
        now = time.time()
        for slot in range(OF_A_JOB):
            name, _ = self.places[job, slot]
            self.restarts[name] += 1
            ended = {"exitCode": codes[slot > 0], "reason": "Error"}
            ended |= {"startedAt": stamp(now - 30), "finishedAt": stamp(now)}
            status = {
                "name": "trainer",
                "restartCount": self.restarts[name],
                "lastState": {"terminated": ended},
                "state": {"running": {"startedAt": stamp(now + 1)}},
            }
            self.pods_api.status.patch(
                name=name,
                namespace=PLACE,
                body={"status": {"containerStatuses": [status]}},
                content_type="application/strategic-merge-patch+json",
            )

    def says(self, kind, name, seconds):
        self.truth.append((kind, name, time.time(), time.time() + seconds))

    def after(self, seconds, work):
        self.later.append((time.time() + seconds, work))

    def back(self, node):
        nodes.recover(self.cluster, node)
        self.free.append(node)

    # ---- what befalls

    def dies(self, job):
        """A node is lost for a quarter of an hour; the pod on it moves, the others start again."""
        slot = self.random.randrange(OF_A_JOB)
        _, node = self.places[job, slot]
        self.says("node", node, 30)
        self.says("job", f"{PLACE}/{job}", 30)
        nodes.fail(self.cluster, node, status="Unknown", reason="NodeStatusUnknown")
        self.after(3, lambda: self.move(job, slot))
        self.after(30 + self.random.randrange(8), lambda: self.back(node))

    def crashes(self, job):
        """A process is killed, the others abort: the machines did it."""
        self.says("job", f"{PLACE}/{job}", 10)
        self.exit(job, (137, 134))

    def flaps(self, job):
        """A kubelet is late for two minutes: nothing stops."""
        _, node = self.places[job, 0]
        nodes.fail(self.cluster, node)
        self.after(4, lambda: nodes.recover(self.cluster, node))

    def drained(self, job):
        """A node is cordoned, emptied, booted anew and given back."""
        slot = self.random.randrange(OF_A_JOB)
        _, node = self.places[job, slot]
        nodes.cordon(self.cluster, node)
        self.after(5, lambda: self.move(job, slot))
        self.after(9, lambda: nodes.fail(self.cluster, node))
        self.after(32, lambda: nodes.recover(self.cluster, node))
        self.after(36, lambda: nodes.cordon(self.cluster, node, on=False))
        self.after(37, lambda: self.free.append(node))

    def resubmitted(self, job):
        """Somebody deletes the job and makes it again."""
        for slot in range(OF_A_JOB):
            self.remove(job, slot)
        again = [(slot, self.places[job, slot][1]) for slot in range(OF_A_JOB)]
        self.after(2, lambda: [self.place(job, slot, node) for slot, node in again])


def chaos(cluster, port, seconds, seed):
    """Let the killer work; its victims' truth, and the samples by series, in ticks since
    the start.
    """
    world, http = Cluster(cluster, seed), PoolManager()
    while len(nodes.ready_nodes(cluster) & set(world.names)) < len(world.names):
        time.sleep(0.5)
    time.sleep(6)
    kinds = [world.dies, world.crashes, world.flaps, world.drained, world.resubmitted]
    acts = [kinds[number % 5] for number in range(100)]
    world.random.shuffle(acts[5:])
    begin, samples, acted = time.time(), defaultdict(dict), 0
    while (since := time.time() - begin) < seconds:
        if since >= 12 + 13 * acted and since < seconds - 45:
            acts[acted](f"job-{acted % JOBS}")
            acted += 1
        due = [one for one in world.later if one[0] <= time.time()]
        world.later = [one for one in world.later if one not in due]
        for _, work in due:
            work()
        tick = round(time.time() - begin)
        text = http.request("GET", f"http://{HOST}:{port}/metrics").data.decode()
        for metric, labels, value in LINE.findall(text):
            if 'pool="chaos"' in labels or PLACE in labels:
                samples[metric, labels][tick] = float(value)
        time.sleep(max(0.0, begin + round(time.time() - begin + 0.5) - time.time()))
    return world, begin, samples, acted


def stretched(samples, begin, first):
    """The samples as series, with one second of `begin` on as `SLOWER` of `first` on."""
    for (metric, labels), ticks in samples.items():
        runs, times = [], sorted(ticks)
        for tick in times:
            value, at = ticks[tick], first + tick * SLOWER
            if MOMENTS.search(metric):
                value = first + (value - begin) * SLOWER
            last = runs[-1] if runs else None
            if last and last[1] == value and last[0].stop == at:
                runs[-1] = (range(last[0].start, at + SLOWER, SLOWER), value)
            else:
                runs.append((range(at, at + SLOWER, SLOWER), value))
        told = dict(LABEL.findall(labels)) | {"job": "kube-state-metrics", "instance": "ksm:8080"}
        many = [Run(r, Span(r.start, r.stop, v)) for r, v in runs]
        yield Series(metric, told, SLOWER, tuple(run.span for run in many)), many


def scored(truth, told):
    """Recall and precision of nodes and of jobs."""
    found = {}
    for kind in ("node", "job"):
        real = [one for one in truth if one[0] == kind]
        said = [one for one in told if one["counts"] and (one["kind"] == "job") == (kind == "job")]
        hits = 0
        left = list(said)
        for _, name, start, end in real:
            hit = next(
                (
                    one
                    for one in left
                    if name in (one.get("job"), one.get("node"), *one.get("nodes", ()))
                    and start - 900 <= one["start"] <= end + 1800
                ),
                None,
            )
            if hit is not None:
                left.remove(hit)
                hits += 1
        found[kind] = (hits / max(1, len(real)), hits / max(1, len(said)))
    return found


@pytest.mark.soak
@pytest.mark.parametrize("seconds", [125, 300])
def test_what_a_killer_does_is_found_and_nothing_else(
    cluster, binaries, processes, tmp_path, capsys, seconds
):
    """At least .95 of what counts, and at least .95 of what is told; flaps, drains and
    resubmissions do not count.
    """
    binaries.path("kwok")
    if why := neighbourhood.missing("kube-state-metrics"):
        pytest.skip(why)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}})
    account = {"name": "default", "namespace": PLACE}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    nodes.start_kwok(processes, cluster.kubeconfig, name="kwok-chaos")
    states = neighbourhood.start(cluster, processes, "kube-state-metrics")["kube-state-metrics"]
    world = None
    try:
        world, begin, samples, acted = chaos(cluster, states.port, seconds, seed=seconds)
    finally:
        states.stop()
        for name in [] if world is None else world.names:
            nodes.delete(cluster, name)
        processes.stop("kwok-chaos")
    first = (int(begin) // 3600 - 4) * 3600
    server = Server(processes, tmp_path / "chaos", name="prometheus-chaos")
    write_block(list(stretched(samples, begin, first)), server.data)
    server.start()
    capsys.readouterr()
    window = ["--start", str(first), "--end", str(first + seconds * SLOWER)]
    asked = ["--nodes", "example.com/pool=chaos", *window, "--all", "-o", "json"]
    try:
        assert main(["incidents", "--prometheus", server.url, *asked]) == 0
    finally:
        server.stop()
    told = json.loads(capsys.readouterr().out)["incidents"]
    truth = [
        (kind, name, *(first + (at - begin) * SLOWER for at in moments))
        for kind, name, *moments in world.truth
    ]
    assert acted >= 5
    for kind, (recall, precision) in scored(truth, told).items():
        shown = "\n".join(
            f"{one['id']} {one['cause']} {one['counts']} {one['evidence']}" for one in told
        )
        right = recall >= 0.95 and precision >= 0.95
        assert right, f"{kind}: {recall:.2f}, {precision:.2f} of {truth}; told:\n{shown}"
