"""What usual exporters tell of a small cluster over two days, while something happens to it;
written down from their documentation.

Every second history is `tuned` (the rules
were looked at with it), the others are `kept` aside: both figures are told apart. Names of nodes,
labels and taints, hours, sizes and times between scrapes are drawn by the history's own seed, so
that nothing can be read from them.
"""

import random
import re
from collections import defaultdict
from itertools import pairwise

from mofa_local.series import Run, Series, Span

HOUR, DAY = 3600, 86400
BEGIN, SPAN = 1_794_000_000, 48 * HOUR
END = BEGIN + SPAN
LABEL = re.compile(r'(\w+)="([^"]*)"')
KSM = 'job="kube-state-metrics",instance="10.0.0.1:8080",namespace="monitoring"'


KINDS = {
    "pytorch": (
        (
            'label_training_kubeflow_org_job_name="{job}",label_training_kubeflow_org_replica_type="worker",'
            'label_training_kubeflow_org_replica_index="{slot}"'
        ),
        'owner_kind="PyTorchJob",owner_name="{job}"',
    ),
    "jobset": (
        (
            'label_jobset_sigs_k8s_io_jobset_name="{job}",label_jobset_sigs_k8s_io_restart_attempt="{attempt}",'
            'label_jobset_sigs_k8s_io_job_index="0",label_batch_kubernetes_io_job_completion_index="{slot}"'
        ),
        'owner_kind="Job",owner_name="{job}-w-0"',
    ),
    "volcano": (
        'label_volcano_sh_job_name="{job}",label_volcano_sh_task_spec="worker",label_volcano_sh_task_index="{slot}"',
        'owner_kind="Job",owner_name="{job}"',
    ),
    "lws": (
        (
            'label_leaderworkerset_sigs_k8s_io_name="{job}",label_leaderworkerset_sigs_k8s_io_group_index="0",'
            'label_leaderworkerset_sigs_k8s_io_worker_index="{slot}"'
        ),
        'owner_kind="StatefulSet",owner_name="{job}"',
    ),
}
"""Labels of a pod, and its owner, by the kind of its job."""
NAMED = ("pytorch", "volcano", "lws")
"""Kinds whose pods keep their names."""


def ip_of(k):
    return f"10.1.{k // 200}.{k % 200 + 1}"


class Cluster:
    """Nodes and pods over two days, and what was scraped of them."""

    def __init__(
        self,
        name,
        note,
        tuned,
        nodes=10,
        scrape=None,
        gpus=8,
        rack=None,
        exporters=True,
        dcgm=True,
        labels=True,
    ):
        r = self.r = random.Random(name)
        self.name, self.note, self.tuned = name, note, tuned
        self.scrape = scrape or r.choice((15, 30, 60, 60))
        self.prefix = r.choice(("ip-10-4-", "worker-", "h200-", "a3mega-", "gke-tr-", "n"))
        self.nodes = [f"{self.prefix}{name}-{n}" for n in range(nodes)]
        self.gpus, self.rack, self.exporters, self.dcgm = gpus, rack or 5, exporters, dcgm
        self.rack_label = (
            r.choice(("rack", "topology_example_com_block", "nvidia_com_gpu_clique", "zone_leaf"))
            if labels
            else ""
        )
        self.lives = {n: [(BEGIN, END)] for n in self.nodes}
        self.not_ready, self.dark, self.cordons, self.taints = (
            {n: [] for n in self.nodes} for _ in range(4)
        )
        self.boots = {n: [(BEGIN - r.randint(2, 30) * DAY)] for n in self.nodes}
        self.xids = {n: {} for n in self.nodes}
        self.counters, self.conditions, self.offered, self.extra = [], [], {}, []
        self.gaps, self.pods, self.truth, self.shifted = [], [], [], {}

    def at(self, hours):
        return int(BEGIN + hours * HOUR)

    # ---- what happens

    def dies(self, n, t, back, grace=40):
        n = self.nodes[n]
        self.not_ready[n].append((t + grace, back))
        self.dark[n].append((t, back - 45))
        self.boots[n].append(back - 60)

    def cordon(self, n, a, b, taint=""):
        n = self.nodes[n]
        (self.taints[n].append((a, b, taint)) if taint else self.cordons[n].append((a, b)))

    def xid(self, n, t, code, gpu=0, until=END):
        self.xids[self.nodes[n]].setdefault(gpu, []).append((t, until, code))

    def says(self, kind, who, start, end, cause, counts, **more):
        self.truth.append(
            dict(kind=kind, name=who, start=start, end=end, cause=cause, counts=counts, **more)
        )

    def node(self, n, start, end, cause, counts=True):
        self.says("node", self.nodes[n], start, end, cause, counts)

    def job(self, name="big", nodes=range(8), kind="pytorch", start=None):
        return Job(self, name, list(nodes), kind, start or BEGIN - 6 * HOUR)

    # ---- what was scraped

    def seen(self, parts, offset, lives=None, dark=()):
        """Runs of samples of a value; `parts` are (from, to, value)."""
        runs = []
        lives = lives or [(BEGIN, END)]
        gaps = [*self.gaps, *dark]
        for a, b, value in parts:
            for x, y in lives:
                lo, hi = max(a, x), min(b, y)
                pieces = [(lo, hi)]
                for g, h in gaps:
                    pieces = [
                        p
                        for l, u in pieces
                        for p in ((l, min(u, g)), (max(l, h), u))
                        if p[1] > p[0]
                    ]
                for l, u in pieces:
                    first = offset + -(-(l - offset) // self.scrape) * self.scrape
                    count = -(-(u - first) // self.scrape)
                    if count > 0:
                        runs.append([first, count, self.scrape, value])
        return sorted(runs)

    def bools(self, spans, a=BEGIN, b=END, off=0, on=1):
        parts, at = [], a
        for x, y in sorted(spans):
            parts += [(at, x, off), (x, y, on)]
            at = y
        return [*parts, (at, b, off)]

    def series(self):
        made = []

        def add(metric, labels, runs):
            if runs:
                made.append((metric, f'{labels},cluster="{self.name}"', runs))

        off = BEGIN + self.r.randrange(self.scrape)
        for k, n in enumerate(self.nodes):
            self.of_node(add, k, n, off)
            self.of_host(add, k, n, BEGIN + self.r.randrange(self.scrape))
        for pod in self.pods:
            pod.series(add, off)
        return made

    def of_node(self, add, k, n, off):
        """What kube-state-metrics tells of a node."""
        lives, node, ones = self.lives[n], f'{KSM},node="{n}"', [(BEGIN, END, 1)]

        def add_of_node(metric, labels, parts):
            add(metric, f"{node}{labels}", self.seen(parts, off, lives))

        rack = f',label_{self.rack_label}="{self.name}r{k // self.rack}"' if self.rack_label else ""
        add_of_node("kube_node_info", f',internal_ip="{ip_of(k)}"', ones)
        add_of_node("kube_node_labels", f',label_pool="gpu"{rack}', ones)
        ready = self.bools(self.not_ready[n], off=1, on=0)
        add_of_node("kube_node_status_condition", ',condition="Ready",status="true"', ready)
        add_of_node("kube_node_spec_unschedulable", "", self.bools(self.cordons[n]))
        for key in {key for *_, key in self.taints[n]}:
            parts = [(a, b, 1) for a, b, key_there in self.taints[n] if key_there == key]
            add_of_node("kube_node_spec_taint", f',key="{key}",value="",effect="NoSchedule"', parts)
        offered = self.offered.get(n, {"nvidia_com_gpu": [(BEGIN, END, self.gpus)]})
        for resource, parts in offered.items():
            add_of_node(
                "kube_node_status_allocatable", f',resource="{resource}",unit="integer"', parts
            )
        for who, condition, parts in self.conditions:
            if who == n:
                labels = f',condition="{condition}",status="true"'
                add_of_node("kube_node_status_condition", labels, parts)

    def of_host(self, add, k, n, host):
        """What exporters on a host tell."""
        ip = ip_of(k)

        def add_of_host(metric, labels, parts, off=host):
            add(metric, labels, self.seen(parts, off, self.lives[n], self.dark[n]))

        if self.exporters:
            turns = [max(BEGIN, a) for a in self.boots[n]]
            if n in self.shifted:  # a clock that is set moves the boot time later than it says
                turns[-1] = self.shifted[n]
            parts = [
                (a, b, boot)
                for boot, (a, b) in zip(self.boots[n], pairwise([*turns, END]), strict=True)
            ]
            labels = f'job="node-exporter",instance="{ip}:9100",namespace="monitoring"'
            add_of_host("node_boot_time_seconds", f'{labels},nodename="{n}"', parts)
        gpu_exporter = f'job="dcgm",instance="{ip}:9400",namespace="gpu-operator",Hostname="{n}"'
        for gpu in range(min(2, self.gpus)) if self.dcgm else ():
            parts, at = [], BEGIN
            for a, b, code in self.xids[n].get(gpu, []):
                parts += [(at, a, 0), (a, b, code)]
                at = b
            labels = f'{gpu_exporter},gpu="{gpu}",UUID="GPU-{n}-{gpu}"'
            add_of_host("DCGM_FI_DEV_XID_ERRORS", labels, [*parts, (at, END, 0)], host + 7)
        for who, reason, times in self.counters:
            if who == n:
                parts = [(a, b, k) for k, (a, b) in enumerate(pairwise([BEGIN, *times, END]))]
                labels = f'job="npd",instance="{ip}:20257",namespace="kube-system"'
                add_of_host("problem_counter", f'{labels},nodename="{n}",reason="{reason}"', parts)
        for who, metric, labels, parts in self.extra:
            if who == n:
                add_of_host(metric, f"{gpu_exporter},{labels}", parts)

    def written(self):
        up = (
            sum(min(b, END) - max(a, BEGIN) for spans in self.lives.values() for a, b in spans)
            / HOUR
        )
        return dict(
            window=[BEGIN, END],
            match=f'cluster="{self.name}"',
            node_hours=up,
            note=self.note,
            tuned=self.tuned,
            incidents=self.truth,
        )


class Pod:
    def __init__(self, cluster, job, slot, attempt, node, created, kind):
        self.c, self.job, self.slot, self.attempt, self.node, self.kind = (
            cluster,
            job,
            slot,
            attempt,
            node,
            kind,
        )
        self.created, self.started, self.end, self.phase = created, created + 30, END, ""
        self.exits, self.reason, self.disruption, self.side = [], "", "", []

    def series(self, add, off):
        c = self.c
        tail = "".join(
            random.Random(f"{c.name}{self.job}{self.slot}{self.created}").choices(
                "bcdfghjkl24567", k=5
            )
        )
        fixed = self.kind in NAMED
        name = f"{self.job}-worker-{self.slot}" if fixed else f"{self.job}-w-0-{self.slot}-{tail}"
        uid = f"{c.name}-{self.job}-{self.slot}-{self.created}"
        pod = f'{KSM.replace("monitoring", "ml")},pod="{name}",uid="{uid}"'
        lives = [(self.created, self.end + (20 * c.scrape // 10 if self.phase else 0))]
        ones = [(self.created, END, 1)]

        def add_of_pod(metric, labels, parts):
            add(metric, f"{pod}{labels}", c.seen(parts, off, lives))

        add_of_pod("kube_pod_created", "", [(self.created, END, self.created)])
        add_of_pod(
            "kube_pod_info",
            f',node="{self.node}",created_by_kind="Job",created_by_name="{self.job}"',
            ones,
        )
        labels, owner = KINDS[self.kind]
        identity = dict(job=self.job, slot=self.slot, attempt=self.attempt)
        add_of_pod("kube_pod_labels", f",{labels.format(**identity)}", ones)
        add_of_pod("kube_pod_owner", f",{owner.format(**identity)}", ones)
        for phase, spans in {
            "Running": [(self.started, self.end)],
            "Failed": [(self.end, END)] if self.phase == "Failed" else [],
            "Succeeded": [(self.end, END)] if self.phase == "Succeeded" else [],
        }.items():
            add_of_pod("kube_pod_status_phase", f',phase="{phase}"', c.bools(spans, a=self.created))
        if self.reason:
            add_of_pod("kube_pod_status_reason", f',reason="{self.reason}"', [(self.end, END, 1)])
        if self.disruption:
            add_of_pod(
                "kube_pod_status_disruption_reason",
                f',reason="{self.disruption}"',
                [(self.end, END, 1)],
            )
        if self.side:
            helper = ',container="logs"'
            begins = [self.started, *(at + 10 for at in self.side)]
            add_of_pod(
                "kube_pod_container_state_started",
                helper,
                [(a, b, a) for a, b in pairwise([*begins, self.end])],
            )
            add_of_pod(
                "kube_pod_container_status_restarts_total",
                helper,
                [
                    (a, b, k)
                    for k, (a, b) in enumerate(pairwise([self.created, *begins[1:], self.end]))
                ],
            )
        starts = [self.started, *(again for _, again, *_ in self.exits)]
        box = ',container="main"'
        add_of_pod(
            "kube_pod_container_state_started",
            box,
            [(a, b, a) for a, b in pairwise([*starts, self.end])],
        )
        add_of_pod(
            "kube_pod_container_status_restarts_total",
            box,
            [(a, b, k) for k, (a, b) in enumerate(pairwise([self.created, *starts[1:], self.end]))],
        )
        for k, (at, again, code, why) in enumerate(self.exits):
            until = self.exits[k + 1][1] if k + 1 < len(self.exits) else self.end
            add_of_pod(
                "kube_pod_container_status_last_terminated_timestamp", box, [(again, until, at)]
            )
            add_of_pod(
                "kube_pod_container_status_last_terminated_exitcode", box, [(again, until, code)]
            )
            add_of_pod(
                "kube_pod_container_status_last_terminated_reason",
                f'{box},reason="{why}"',
                [(again, until, 1)],
            )


class Job:
    """A training job with a pod on each node."""

    def __init__(self, cluster, name, nodes, kind, start):
        self.c, self.name, self.kind, self.attempt = cluster, name, kind, 0
        self.places = {}
        self.make(dict(enumerate(nodes)), start)

    @property
    def who(self):
        return f"ml/{self.name}"

    def make(self, slots, t):
        for slot, node in slots.items():
            pod = Pod(self.c, self.name, slot, self.attempt, self.c.nodes[node], t, self.kind)
            pod.place = node
            self.places[slot] = pod
            self.c.pods.append(pod)

    def exit(self, t, codes=1, spread=15, why="Error", back=12, first=None):
        """All containers end and start again in place."""
        r = self.c.r
        for slot, pod in self.places.items():
            code = codes if isinstance(codes, int) else codes[0 if slot == (first or 0) else 1]
            late = 0 if slot == (first or 0) else r.randint(1, max(1, spread))
            pod.exits.append((t + late, t + late + back, code, why))

    def again(self, t, wait=20, moved=None, phase="Failed", reason="", new_attempt=True):
        """All pods are made anew."""
        slots = {slot: (moved or {}).get(pod.place, pod.place) for slot, pod in self.places.items()}
        for pod in self.places.values():
            pod.end, pod.phase = min(pod.end, t), phase
            pod.reason = reason
        self.attempt += new_attempt
        self.make(slots, t + wait)

    def move(self, slot, node, gone, made):
        """One pod is made anew elsewhere."""
        self.places[slot].end = gone
        self.make({slot: node}, made)

    def stops(self, t, phase="Succeeded"):
        for pod in self.places.values():
            pod.end, pod.phase = t, phase
        self.places = {}

    def says(self, start, end, cause, counts=True):
        self.c.says("job", self.who, start, end, cause, counts)


def sampled(histories):
    """What was scraped, as `write_block` takes it."""
    every = defaultdict(list)
    for metric, labels, runs in (line for c in histories for line in c.series()):
        every[metric, labels] += runs
    for (metric, labels), runs in every.items():
        step = runs[0][2]
        runs_kept = []
        for first, count, _, value in sorted(runs):
            end = first + count * step
            last = runs_kept[-1] if runs_kept else None
            if last and last.span.value == value and last.times.stop == first:
                runs_kept[-1] = Run(
                    range(last.times.start, end, step), Span(last.span.start, end, value)
                )
            else:
                runs_kept.append(Run(range(first, end, step), Span(first, end, value)))
        pairs = dict(LABEL.findall(labels))
        yield Series(metric, pairs, step, tuple(run.span for run in runs_kept)), runs_kept


def right_and_wrong(truth, incidents):
    """Found, missed and false ones of nodes and of jobs; an incident of a domain is one of a node.

    What is `contested` is neither: an incident that is told beside it is no false one.
    """
    counted = {"node": [0, 0, 0], "job": [0, 0, 0]}
    used = set()

    def found_by(incident):
        """The numbers of what was told of an incident."""
        names = set(incident.get("nodes", [incident["name"]]))
        return [
            number
            for number, other in enumerate(incidents)
            if number not in used
            and other["counts"]
            and (other["kind"] == "job") == (incident["kind"] == "job")
            and incident["start"] - 900 <= other["start"] <= incident["end"] + 1800
            and names & _named(other)
        ]

    sure = [
        incident
        for incident in truth["incidents"]
        if incident["counts"] and not incident.get("contested")
    ]
    for incident in sure:
        hit = next(iter(found_by(incident)), None)
        used.add(hit)
        counted["job" if incident["kind"] == "job" else "node"][hit is None] += 1
    for incident in truth["incidents"]:
        if incident.get("contested"):
            used.update(found_by(incident))
    for number, other in enumerate(incidents):
        if other["counts"] and number not in used:
            counted["job" if other["kind"] == "job" else "node"][2] += 1
    return counted


def _named(incident):
    """The job that an incident is of, or its nodes."""
    return (
        {incident["job"]}
        if incident["kind"] == "job"
        else set(incident.get("nodes") or [incident["node"]])
    )
