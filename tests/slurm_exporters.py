"""The history of a real Slurm as the exporters of a Kubernetes cluster would tell it, and as
Prometheus then has it.
"""

import json
from collections import defaultdict

from mofa_local.blocks import write_block
from mofa_local.prometheus import Prometheus as Server
from mofa_local.series import EXPORTER, Run, Series, Span
from slurm_truth import first_of, of_nodes, records_in, slowed

from mofa_model.cli import main
from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_operator.observe.slurm import slurm_past

FACTOR = 100.0
"""One second of the experiment stands for so many."""
STEP = 15
"""Time between samples. [s]"""
STARTED = 2
"""From a pod's creation to its start: Slurm has no such time. [s]"""


class Exporters:
    """What kube-state-metrics would have shown of nodes and of runs as pods."""

    def __init__(self, start, end):
        self.start, self.end = int(start), int(end)
        self.made = []

    def add(self, metric, labels, parts):
        """A series of values, each from when to when."""
        runs = []
        for begin, until, value in parts:
            first = self.start + -(-(max(begin, self.start) - self.start) // STEP) * STEP
            times = range(int(first), int(min(until, self.end)), STEP)
            if times:
                runs.append(Run(times, Span(begin, until, value)))
        spans = tuple(run.span for run in runs)
        self.made.append((Series(metric, {**labels, **EXPORTER}, STEP, spans), runs))

    def node(self, name, down, closed):
        """A node with the times in which it was away, and in which it took no jobs."""
        own = {"node": name}
        self.add("kube_node_info", own, [(self.start, self.end, 1)])
        self.add(
            "kube_node_status_allocatable",
            {**own, "resource": "nvidia_com_gpu", "unit": "integer"},
            [(self.start, self.end, 8)],
        )
        ready = {**own, "condition": "Ready", "status": "true"}
        self.add("kube_node_status_condition", ready, self.switched(down, 1, 0))
        self.add("kube_node_spec_unschedulable", own, self.switched(closed, 0, 1))

    def switched(self, inside, usual, other):
        """`usual` but in some times."""
        at = self.start
        for begin, until in sorted(inside):
            yield at, begin, usual
            yield begin, until, other
            at = until
        yield at, self.end, usual

    def pod(self, job, attempt, slot, node, begin, until, phase):
        """A run on a node."""
        uid = f"{job}-{attempt}-{slot}"
        pod = {"namespace": "lab", "pod": f"{job}-w-0-{slot}-{attempt:05d}", "uid": uid}
        labels = {
            "label_jobset_sigs_k8s_io_jobset_name": job,
            "label_jobset_sigs_k8s_io_restart_attempt": str(attempt),
            "label_jobset_sigs_k8s_io_job_index": "0",
            "label_batch_kubernetes_io_job_completion_index": str(slot),
        }
        lived = [(begin, until, 1)]
        over = until + 2 * STEP
        info = {"node": node, "created_by_kind": "Job", "created_by_name": f"{job}-w-0"}
        self.add("kube_pod_info", {**pod, **info}, lived)
        self.add("kube_pod_labels", {**pod, **labels}, lived)
        self.add("kube_pod_owner", {**pod, "owner_kind": "Job", "owner_name": f"{job}-w-0"}, lived)
        self.add("kube_pod_created", pod, [(begin, until, begin)])
        box = {**pod, "container": "main"}
        self.add(
            "kube_pod_container_state_started", box, [(begin + STARTED, until, begin + STARTED)]
        )
        self.add(
            "kube_pod_status_phase",
            {**pod, "phase": "Running"},
            [(begin, until, 1), (until, over, 0)],
        )
        self.add(
            "kube_pod_status_phase", {**pod, "phase": phase}, [(begin, until, 0), (until, over, 1)]
        )


def told_by_exporters(truth, records):
    """The truth as exporters tell it, slowed."""
    first = first_of(records)

    def late(at):
        return round(first + (at - first) * FACTOR)

    exporters = Exporters(late(truth["start"]), late(truth["end"]))
    away = defaultdict(lambda: {"node-fail": [], "drain": []})
    for fault in truth["log"]:
        if fault["kind"] in {"node-fail", "drain"}:
            away[fault["nodes"][0]][fault["kind"]].append((late(fault["at"]), late(fault["until"])))
    for name in truth["nodes"]:
        exporters.node(name, away[name]["node-fail"], away[name]["drain"])
    runs = defaultdict(list)
    for run in sorted(records.runs, key=lambda run: run.begun):
        if run.begun:
            runs[run.job_id].append(run)
    for beat in truth["beats"]:
        job, _, number = beat["run"].partition(".")
        run = runs[job][int(number)]
        phase = "Succeeded" if run.state == "COMPLETED" else "Failed"
        for slot, host in enumerate(run.hosts):
            begin, until = late(beat["start"]), late(beat["end"])
            gone = [at for at, _ in away[host]["node-fail"] if begin <= at < until]
            until = min([until, *gone])  # the job's first node alone tells when it worked
            exporters.pod(f"job{job}", int(number), slot, host, begin, until, phase)
    return exporters


def hours(rows):
    """Node-hours by state."""
    hours_by_state = defaultdict(float)
    for state, days in rows:
        hours_by_state["ran" if state in {"kept", "redone", "rendezvous"} else state] += 24 * days
    return hours_by_state


def both_tellings(seen, names, processes, folder, capsys):
    """Node-hours by state and nodes' incidents that count: by Slurm's records, and by a Prometheus
    of the same truth.
    """
    truth = json.loads((seen / "truth.json").read_text())
    records = records_in(seen, names)
    exporters = told_by_exporters(truth, records)
    window = exporters.start, exporters.end
    past = slurm_past(slowed(records, FACTOR), IncidentRules(), window)
    server = Server(processes, folder)
    write_block([series for series in exporters.made if series[1]], server.data)
    server.start()
    asked = ["--prometheus", server.url, "--start", str(window[0]), "--end", str(window[1])]
    assert main(["incidents", *asked, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    return (
        (
            hours((row.state.value, row.node_days) for row in past.account),
            sum(incident.cause.counts for _, incident in of_nodes(past.incidents)),
        ),
        (
            hours((row["state"], row["node_days"]) for row in document["account"]["rows"]),
            sum(
                len(incident.get("nodes", "1"))
                for incident in document["incidents"]
                if incident["kind"] != "job" and incident["counts"]
            ),
        ),
    )
