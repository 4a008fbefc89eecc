"""What was done to a real Slurm, against what is read of its records."""

import json
from collections import Counter
from dataclasses import dataclass, replace

from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_model.slurm import read
from mofa_operator.observe.slurm import slurm_past

CAUSES = {
    "node-fail": "node-down",
    "preempt": "preemption",
    "timeout": "time-limit",
    "cancel": "cancelled",
    "requeue": "resubmission",
    "exit": "user-crash",
    "signal": "process-crash",
    "memory": "oom-killed",
}
NODE_CAUSES = {"node-fail": "node-down", "drain": "planned-drain"}
TEXT = ("nodes.txt", "runs.txt", "events.txt", "config.txt")
JSON = ("sinfo-json.json", "sacct-json.json", "events.txt", "config.txt")


@dataclass
class Score:
    """How well the incidents and the hours were found."""

    truth: int
    found: int
    hits: int
    told_hours: float
    true_hours: float

    @property
    def recall(self):
        return self.hits / self.truth

    @property
    def precision(self):
        return self.hits / self.found

    @property
    def error(self):
        return abs(self.told_hours / self.true_hours - 1)


def records_in(folder, names=TEXT):
    return read([((folder / name).read_text(), name) for name in names])


def slowed(records, factor):
    """The same history, so many times as slow: one second of the experiment stands for many."""
    moments = [one.begun or one.submitted for one in records.runs]
    first = min(moments)

    def late(at):
        return first + (at - first) * factor if at else 0.0

    return replace(
        records,
        silent_seconds=records.silent_seconds * factor,
        runs=tuple(
            replace(
                one, submitted=late(one.submitted), begun=late(one.begun), ended=late(one.ended)
            )
            for one in records.runs
        ),
        node_events=tuple(
            replace(one, begun=late(one.begun), ended=late(one.ended))
            for one in records.node_events
        ),
    )


def scored(folder, names=TEXT, factor=100.0):
    """Incidents of jobs and nodes, and hours in which jobs ran, against the log of who did it."""
    truth = json.loads((folder / "truth.json").read_text())
    records = records_in(folder, names)
    past = slurm_past(records, IncidentRules())
    wanted = Counter(
        (str(one["job"]), CAUSES[one["kind"]]) for one in truth["log"] if one["kind"] in CAUSES
    )
    seen = Counter(
        (one.evidence[0].split()[1], one.cause.word) for one in past.incidents if one.kind == "job"
    )
    hits = sum((wanted & seen).values())
    nodes = [one for one in past.incidents if one.kind == "node"]
    done = [one for one in truth["log"] if one["kind"] in NODE_CAUSES]
    for one in done:
        near = [
            other
            for other in nodes
            if (other.name, other.cause.word) == (one["nodes"][0], NODE_CAUSES[one["kind"]])
            and other.start < one["until"] + 5
            and other.end > one["at"]
        ]
        if near:
            nodes.remove(near[0])
            hits += 1
    worked = sum((one["end"] - one["start"]) * one["nodes"] for one in truth["beats"])
    slow = slurm_past(slowed(records, factor), IncidentRules())
    told = sum(
        one.node_days for one in slow.account if one.state.value in {"kept", "redone", "rendezvous"}
    )
    return Score(
        truth=wanted.total() + len(done),
        found=seen.total() + sum(one.kind == "node" for one in past.incidents),
        hits=hits,
        told_hours=24 * told / factor,
        true_hours=worked / 3600,
    )
