"""A second generator of small histories. Hosts, controllers and trainers act by their own rules;
exporters show what can be seen of that.

`small_histories.py` writes down what was scraped. Here a trap says what happened, and what follows
is made by who would do it: the node controller evicts after 300 s, a JobSet makes all its pods
anew, a pod with `OnFailure` starts its container again after 10, 20, 40 s up to five minutes, NCCL
gives up after ten minutes, and the scheduler takes a free node that is ready. Names, offsets, times
of reaction and times between scrapes are drawn by the history's own seed.
"""

from __future__ import annotations

import random
from collections import defaultdict

HOUR, DAY = 3600, 86400
BEGIN, SPAN = 1_801_008_000, 50 * HOUR
END = BEGIN + SPAN
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
GONE = None
NCCL = 600
"""Time after which a collective gives up. [s]"""
TOLERATED = 300
"""Time after which pods of a node that is away are evicted. [s]"""


class Site:
    """A small cluster: its hosts, what truly happened to them, and the samples that Prometheus has
    of it.
    """

    def __init__(
        self, name, note, nodes=11, scrape=None, pool="gpu", activity=False, racks=4, stem=None
    ):
        r = self.r = random.Random(f"site {name}")
        self.name, self.note = name, note
        self.scrape = scrape or r.choice((15, 30, 30, 60, 120))
        stems = ("gpu-node-", "dgx-", "ml-a100-", "vm-", "h100-pool-", "ip-172-31-")
        stem = r.choice(stems) if stem is None else stem
        self.hosts = [f"{stem}{name}{n:02d}" for n in range(nodes)]
        self.lines = defaultdict(list)
        self.silent = defaultdict(list)
        self.truth, self.taken, self.jobs = [], {}, []
        self.activity = activity
        for n, host in enumerate(self.hosts):
            self.stands(n, host, f"{name}-row{n // racks}", pool)

    def at(self, hours):
        """A moment, in hours from the begin."""
        return int(BEGIN + hours * HOUR)

    def soon(self, least, most):
        """A time of reaction. [s]"""
        return self.r.randint(least, most)

    # ------------------------------------------------------------------------------------- what is told

    def tell(self, t, value, metric, target="ksm", /, **labels):
        """From a moment on a series has a value; `GONE`: it is no more."""
        self.lines[metric, target, tuple(sorted(labels.items()))].append((int(t), value))

    def stands(self, n, host, row, pool):
        node = dict(node=host)
        first = BEGIN - HOUR
        self.tell(first, 1, "kube_node_info", internal_ip=self.ip(n), **node)
        self.tell(first, 1, "kube_node_labels", label_pool=pool, label_topology_row=row, **node)
        self.tell(first, 1, "kube_node_status_condition", **self.ready_of(n, "true"))
        self.tell(first, 0, "kube_node_status_condition", **self.ready_of(n, "false"))
        self.tell(first, 0, "kube_node_status_condition", **self.ready_of(n, "unknown"))
        self.tell(first, 0, "kube_node_spec_unschedulable", **node)
        self.offers(n, first, 8)
        self.boots(n, BEGIN - self.r.randint(3, 40) * DAY, first)
        for gpu in range(2):
            self.xid(n, gpu, first, 0)

    def ip(self, n):
        return f"10.{40 + len(self.name)}.{n // 100}.{n % 100 + 10}"

    def ready_of(self, n, status):
        return dict(node=self.hosts[n], condition="Ready", status=status)

    def boots(self, n, value, t):
        """The boot time that the exporter of a host tells from a moment on."""
        self.tell(t, value, "node_boot_time_seconds", ("host", n), nodename=self.hosts[n])

    def offers(self, n, t, gpus):
        of = dict(node=self.hosts[n], resource="nvidia_com_gpu", unit="integer")
        self.tell(t, gpus, "kube_node_status_allocatable", **of)

    def xid(self, n, gpu, t, code):
        of = dict(gpu=str(gpu), UUID=f"GPU-{self.name}-{n}-{gpu}", Hostname=self.hosts[n])
        self.tell(t, code, "DCGM_FI_DEV_XID_ERRORS", ("dcgm", n), **of)

    def condition(self, n, t, value, name):
        """A condition of a node by an agent."""
        of = dict(node=self.hosts[n], condition=name)
        self.tell(t, value, "kube_node_status_condition", status="true", **of)

    # ------------------------------------------------------------------------------------- what happens

    def away(self, n, a, b):
        """The control plane does not hear from a kubelet."""
        for status, before, after in (("true", 1, 0), ("unknown", 0, 1)):
            self.tell(a, after, "kube_node_status_condition", **self.ready_of(n, status))
            self.tell(b, before, "kube_node_status_condition", **self.ready_of(n, status))

    def dies(self, n, t, back):
        """A host is down until its kubelet is ready again."""
        self.away(n, t + self.soon(40, 52), back)
        for what in ("host", "dcgm"):
            self.silent[what, n].append((t, back - self.soon(15, 45)))
        boot = back - self.soon(50, 80)
        self.boots(n, boot, boot)
        for gpu in range(2):  # the exporter starts anew, and with it its gauge
            self.xid(n, gpu, boot, 0)

    def cordon(self, n, a, b):
        self.tell(a, 1, "kube_node_spec_unschedulable", node=self.hosts[n])
        self.tell(b, 0, "kube_node_spec_unschedulable", node=self.hosts[n])

    def taint(self, n, a, b, key, effect="NoSchedule"):
        of = dict(node=self.hosts[n], key=key, value="", effect=effect)
        self.tell(a, 1, "kube_node_spec_taint", **of)
        self.tell(b, GONE, "kube_node_spec_taint", **of)

    def deleted(self, n, a, b=None, boot=None):
        """The object of a node is gone, and made again under its name."""
        of_node = [key for key in self.lines if ("node", self.hosts[n]) in key[2]]
        of_node = [key for key in of_node if key[0].startswith("kube_node_")]
        if b is None:
            for what in ("host", "dcgm"):
                self.silent[what, n].append((a, END))
        for key in of_node:
            last = [value for at, value in sorted(self.lines[key]) if at <= a]
            self.lines[key].append((a, GONE))
            if b is not None and key[0] != "kube_node_spec_taint":
                first = 0 if key[0].endswith("unschedulable") else last[-1] if last else GONE
                if key[0].endswith("condition"):
                    first = int(("status", "true") in key[2])
                self.lines[key].append((b, first))
        if boot is not None:
            self.boots(n, boot, boot)

    def nothing_scraped(self, a, b, what=None):
        """Prometheus, or one target, is away."""
        targets = [what] if what else ["ksm"]
        if what is None:
            targets += [(kind, n) for kind in ("host", "dcgm") for n in range(len(self.hosts))]
        for target in targets:
            self.silent[target].append((a, b))

    # ------------------------------------------------------------------------------------- what is true

    def says(self, kind, who, start, end, cause, counts=True, contested="", **more):
        self.truth.append(
            dict(
                kind=kind, name=who, start=int(start), end=int(end), cause=cause, counts=counts,
                contested=contested, **more,
            )
        )  # fmt: skip

    def node(self, n, start, end, cause, counts=True, contested=""):
        self.says("node", self.hosts[n], start, end, cause, counts, contested)

    def job(self, name, nodes, kind="jobset", start=None, namespace=None):
        made = Job(
            self, name, list(nodes), kind, BEGIN - 5 * HOUR if start is None else start, namespace
        )
        self.jobs.append(made)
        return made

    # ------------------------------------------------------------------------------------- what was scraped

    def series(self):
        """Metric, labels, and runs of equal samples: first time, samples, seconds apart, value."""
        of_target = {
            "ksm": 'job="kube-state-metrics",instance="10.9.0.4:8080"',
            "host": 'job="node-exporter",namespace="monitoring",instance="{}:9100"',
            "dcgm": 'job="nvidia-dcgm-exporter",namespace="gpu-operator",instance="{}:9400"',
        }
        offsets, made = {}, []
        for (metric, target, labels), changes in sorted(self.lines.items(), key=str):
            offset = offsets.setdefault(target, BEGIN + self.r.randrange(self.scrape))
            runs, ordered = [], sorted(changes, key=lambda change: change[0])
            for number, (a, value) in enumerate(ordered):
                b = ordered[number + 1][0] if number + 1 < len(ordered) else END
                if value is not GONE and b > a:
                    runs += self.scraped(max(a, BEGIN), min(b, END), value, offset, target)
            if runs:
                kind = target if isinstance(target, str) else target[0]
                own = of_target[kind].format("" if kind == "ksm" else self.ip(target[1]))
                if kind == "ksm" and not metric.startswith("kube_pod"):
                    own += ',namespace="monitoring"'
                pairs = ",".join(f'{label}="{value}"' for label, value in labels)
                made.append((metric, f'{own},{pairs},cluster="{self.name}"', runs))
        return made

    def scraped(self, a, b, value, offset, target):
        pieces = [(a, b)]
        for g, h in self.silent[target]:
            pieces = [p for l, u in pieces for p in ((l, min(u, g)), (max(l, h), u)) if p[1] > p[0]]
        for l, u in pieces:
            first = offset + -(-(l - offset) // self.scrape) * self.scrape
            count = -(-(u - first) // self.scrape)
            if count > 0:
                yield [first, count, self.scrape, value]

    def written(self):
        """Its truth."""
        return dict(
            window=[BEGIN, END],
            match=f'cluster="{self.name}"',
            node_hours=sum(self.there(n) for n in range(len(self.hosts))) / HOUR,
            note=self.note,
            incidents=self.truth,
        )

    def there(self, n):
        """How long a node had an object. [s]"""
        of = (("node", self.hosts[n]),)
        changes = sorted(
            self.lines["kube_node_spec_unschedulable", "ksm", of], key=lambda change: change[0]
        )
        ends = [*(at for at, _ in changes[1:]), END]
        return sum(
            max(0, min(b, END) - max(a, BEGIN))
            for (a, value), b in zip(changes, ends, strict=True)
            if value is not GONE
        )


class Pod:
    """A pod, as kube-state-metrics tells of it until it is deleted."""

    def __init__(self, job, slot, n, t, pulls=None):
        s = self.s = job.s
        self.job, self.slot, self.n, self.created = job, slot, n, int(t)
        self.attempt, self.restarts, self.started, self.gone = job.attempt, 0, None, None
        tail = "".join(s.r.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        name = f"{job.name}-{'worker' if job.kind == 'pytorch' else 'w'}-{slot}"
        if job.kind == "jobset":
            name = f"{job.name}-w-0-{slot}-{tail}"
        uid = f"{s.r.getrandbits(64):016x}-{slot}"
        self.of = dict(namespace=job.namespace, pod=name, uid=uid)
        self.box = dict(container="trainer", **self.of)
        t = self.created
        s.tell(t, t, "kube_pod_created", **self.of)
        s.tell(t, 1, "kube_pod_labels", **self.of, **self.labels())
        owner = dict(jobset="Job", pytorch="PyTorchJob", volcano="Job", lws="StatefulSet")[job.kind]
        above = f"{job.name}-w-0" if job.kind == "jobset" else job.name
        s.tell(t, 1, "kube_pod_owner", owner_kind=owner, owner_name=above, **self.of)
        if job.kind == "jobset":
            labels = dict(namespace=job.namespace, job_name=above, owner_kind="JobSet")
            s.tell(t, 1, "kube_job_owner", owner_name=job.name, **labels)
        asked = dict(resource="nvidia_com_gpu", unit="integer", **self.box)
        s.tell(t, 8, "kube_pod_container_resource_requests", **asked)
        self.phase("Pending", t)
        placed = t + s.soon(0, 3)
        s.tell(placed, 1, "kube_pod_info", node=s.hosts[n], **self.of)
        s.tell(placed, 0, "kube_pod_container_status_restarts_total", **self.box)
        self.runs(placed + (s.soon(3, 14) if pulls is None else pulls))

    def labels(self):
        job, slot = self.job, str(self.slot)
        if job.kind == "jobset":
            return dict(
                label_jobset_sigs_k8s_io_jobset_name=job.name,
                label_jobset_sigs_k8s_io_restart_attempt=str(job.attempt),
                label_jobset_sigs_k8s_io_job_index="0",
                label_batch_kubernetes_io_job_completion_index=slot,
            )
        if job.kind == "pytorch":
            return dict(
                label_training_kubeflow_org_job_name=job.name,
                label_training_kubeflow_org_replica_type="worker",
                label_training_kubeflow_org_replica_index=slot,
            )
        if job.kind == "lws":
            return dict(
                label_leaderworkerset_sigs_k8s_io_name=job.name,
                label_leaderworkerset_sigs_k8s_io_group_index="0",
                label_leaderworkerset_sigs_k8s_io_worker_index=slot,
            )
        return dict(
            label_volcano_sh_job_name=job.name,
            label_volcano_sh_task_spec="w",
            label_volcano_sh_task_index=slot,
        )

    def phase(self, now, t):
        for phase in PHASES:
            self.s.tell(t, int(phase == now), "kube_pod_status_phase", phase=phase, **self.of)

    def runs(self, t):
        self.started = int(t)
        self.phase("Running", t)
        self.s.tell(t, int(t), "kube_pod_container_state_started", **self.box)

    def never_runs(self):
        """Its container never starts. The samples that say it started are taken back."""
        started = ("kube_pod_container_state_started", "ksm", tuple(sorted(self.box.items())))
        self.s.lines.pop(started, None)
        for phase in PHASES:
            key = (
                "kube_pod_status_phase",
                "ksm",
                tuple(sorted((self.of | dict(phase=phase)).items())),
            )
            self.s.lines[key] = self.s.lines[key][:1]
        self.started = None

    def again(self, t, code, reason="Error", wait=None):
        """Its container ends and is started again in place, later each time."""
        if wait is None:
            wait = min(300, 10 * 2 ** self.backoff(t))
        back, s = int(t + wait + self.s.soon(1, 4)), self.s
        s.tell(t, GONE, "kube_pod_container_state_started", **self.box)
        s.tell(back, back, "kube_pod_container_state_started", **self.box)
        self.restarts += 1
        s.tell(back, self.restarts, "kube_pod_container_status_restarts_total", **self.box)
        last = "kube_pod_container_status_last_terminated"
        s.tell(t, int(t), f"{last}_timestamp", **self.box)
        s.tell(t, code, f"{last}_exitcode", **self.box)
        for exit_reason in ("Error", "OOMKilled", "Completed"):
            s.tell(
                t,
                1 if exit_reason == reason else GONE,
                f"{last}_reason",
                reason=exit_reason,
                **self.box,
            )
        self.ended, self.started = int(t), back
        return back

    def backoff(self, t):
        """How many restarts count for the next wait. After ten minutes without one the count
        begins anew.
        """
        self.lately = 0 if self.started is None or t - self.started > 600 else self.lately + 1
        return self.lately

    lately = 0

    def fails(self, t, reason=""):
        """It is over and stays: its container is not started again."""
        self.phase("Failed", t)
        self.s.tell(t, GONE, "kube_pod_container_state_started", **self.box)
        exit_reason = "Error" if reason != "OOMKilled" else reason
        self.s.tell(
            t, 1, "kube_pod_container_status_terminated_reason", reason=exit_reason, **self.box
        )
        if reason and reason != "OOMKilled":
            self.s.tell(t, 1, "kube_pod_status_reason", reason=reason, **self.of)

    def succeeds(self, t):
        self.phase("Succeeded", t)
        self.s.tell(t, GONE, "kube_pod_container_state_started", **self.box)

    def disrupted(self, t, reason):
        self.s.tell(t, 1, "kube_pod_status_disruption_reason", reason=reason, **self.of)

    def vanishes(self, t):
        """Its object is deleted."""
        self.gone = int(t)
        uid_label = ("uid", self.of["uid"])
        for key in [key for key in self.s.lines if uid_label in key[2]]:
            self.s.lines[key] = [sample for sample in self.s.lines[key] if sample[0] < t]
            self.s.lines[key].append((int(t), GONE))


class Job:
    """A training job with a pod on each of its nodes, and the controller that looks after it."""

    def __init__(self, site, name, nodes, kind, start, namespace=None):
        self.s, self.name, self.kind, self.attempt = site, name, kind, 0
        self.namespace = namespace or site.r.choice(("research", "ml", "team-nlp"))
        self.pods = {}
        self.place(dict(enumerate(nodes)), start)

    @property
    def who(self):
        return f"{self.namespace}/{self.name}"

    @property
    def nodes(self):
        return [pod.n for pod in self.pods.values()]

    def place(self, nodes, t, pulls=None):
        for slot, n in nodes.items():
            self.pods[slot] = Pod(self, slot, n, t + self.s.soon(0, 2), pulls)

    def collapse(self, t, first=None, code=1, others=1, spread=12, reason="Error"):
        """One rank ends, and the others with it; in place each is started again."""
        first = first if first is not None else self.s.r.choice(sorted(self.pods))
        for slot, pod in self.pods.items():
            own = slot == first
            late = 0 if own else self.s.soon(1, spread)
            pod.again(t + late, code if own else others, reason if own else "Error")

    def anew(self, t, moved=None, first=None, wait=None, pulls=None, reason="", counted=True):
        """One pod fails, and the controller makes all anew; nodes that are `moved` are
        others then.
        """
        first = first if first is not None else self.s.r.choice(sorted(self.pods))
        self.pods[first].fails(t, reason)
        gone = t + self.s.soon(1, 4)
        nodes = {slot: (moved or {}).get(pod.n, pod.n) for slot, pod in self.pods.items()}
        for slot, pod in self.pods.items():
            pod.vanishes(gone + (0 if slot == first else self.s.soon(1, 30)))
        self.attempt += counted
        self.place(nodes, gone + (self.s.soon(31, 38) if wait is None else wait), pulls)

    def deleted(self, t, grace=30):
        """Somebody deletes it."""
        for pod in self.pods.values():
            pod.vanishes(t + self.s.soon(1, grace))
        self.pods = {}

    def done(self, t, kept=HOUR):
        for pod in self.pods.values():
            at = t + self.s.soon(0, 5)
            pod.succeeds(at)
            pod.vanishes(at + kept)
        self.pods = {}

    def moves(self, slot, n, gone, made=None, pulls=None):
        """One pod is deleted and made again on another node."""
        self.pods[slot].vanishes(gone)
        made = gone + self.s.soon(1, 5) if made is None else made
        self.place({slot: n}, made, pulls)

    def says(self, start, end, cause, counts=True, contested=""):
        self.s.says("job", self.who, start, end, cause, counts, contested)
