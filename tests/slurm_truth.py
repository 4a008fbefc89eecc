"""What was done to a real Slurm, against what is read of its records."""

import json
from collections import Counter
from dataclasses import dataclass, replace

from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_model.slurm import read
from mofa_operator.observe.slurm import slurm_past

DOWN = "node-down"
TOGETHER = {"rack-outage": DOWN}
"""What several nodes that went at once are called, as what each of them had."""
CAUSES = {
    "node-fail": DOWN,
    "preempt": "preemption",
    "timeout": "time-limit",
    "cancel": "cancelled",
    "requeue": "resubmission",
    "exit": "user-crash",
    "signal": "process-crash",
    "memory": "oom-killed",
}
NODE_CAUSES = {"node-fail": DOWN, "drain": "planned-drain"}
TEXT = ("nodes.txt", "runs.txt", "events.txt", "config.txt")
JSON = ("sinfo-json.json", "sacct-json.json", "events.txt", "config.txt")


@dataclass
class Score:
    """How well the incidents and the hours were found."""

    truth: int
    counted: int
    hits: int
    counted_hours: float
    true_hours: float

    @property
    def recall(self):
        return self.hits / self.truth

    @property
    def precision(self):
        return self.hits / self.counted

    @property
    def error(self):
        return abs(self.counted_hours / self.true_hours - 1)


def records_in(folder, names=TEXT):
    return read([((folder / name).read_text(), name) for name in names])


def first_of(records):
    """The moment that stays where it is when a history is slowed."""
    return min(run.begun or run.submitted for run in records.runs)


def slowed(records, factor):
    """The same history, so many times as slow: one second of the experiment stands for many."""
    first = first_of(records)

    def late(at):
        return first + (at - first) * factor if at else 0.0

    return replace(
        records,
        silent_seconds=records.silent_seconds * factor,
        runs=tuple(
            replace(
                run, submitted=late(run.submitted), begun=late(run.begun), ended=late(run.ended)
            )
            for run in records.runs
        ),
        node_events=tuple(
            replace(node_event, begun=late(node_event.begun), ended=late(node_event.ended))
            for node_event in records.node_events
        ),
    )


def cause_of(incident):
    """The word of its cause, whether one node had it or several at once."""
    return TOGETHER.get(incident.cause.word, incident.cause.word)


def of_nodes(incidents):
    """Each node of each incident, with it: several that went at once are one incident."""
    return [
        (name, incident)
        for incident in incidents
        if incident.kind != "job"
        for name in incident.nodes or (incident.name,)
    ]


def scored(folder, names=TEXT, factor=100.0):
    """What was counted, compared with the log of the program that did the harm: incidents of jobs
    and nodes, and hours of jobs.

    Time on the test site runs many times faster than on a real one. So all times are stretched by
    `factor` first: three nodes that fail within one minute count as one failure.
    """
    truth = json.loads((folder / "truth.json").read_text())
    records = records_in(folder, names)
    past = slurm_past(slowed(records, factor), IncidentRules())
    wanted = Counter(
        (str(fault["job"]), CAUSES[fault["kind"]])
        for fault in truth["log"]
        if fault["kind"] in CAUSES
    )
    seen = Counter(
        (incident.evidence[0].split()[1], cause_of(incident))
        for incident in past.incidents
        if incident.kind == "job"
    )
    hits = sum((wanted & seen).values())
    nodes = of_nodes(past.incidents)
    first = first_of(records)

    def early(at):
        return first + (at - first) / factor

    incidents_found = seen.total() + len(nodes)
    done = [fault for fault in truth["log"] if fault["kind"] in NODE_CAUSES]
    for fault in done:
        near = [
            other
            for other in nodes
            if other[0] == fault["nodes"][0]
            and cause_of(other[1]) == NODE_CAUSES[fault["kind"]]
            and early(other[1].start) < fault["until"] + 5
            and early(other[1].end) > fault["at"]
        ]
        if near:
            nodes.remove(near[0])
            hits += 1
    worked = sum((beat["end"] - beat["start"]) * beat["nodes"] for beat in truth["beats"])
    trained = sum(
        row.node_days for row in past.account if row.state.value in {"kept", "redone", "rendezvous"}
    )
    return Score(
        truth=wanted.total() + len(done),
        counted=incidents_found,
        hits=hits,
        counted_hours=24 * trained / factor,
        true_hours=worked / 3600,
    )
