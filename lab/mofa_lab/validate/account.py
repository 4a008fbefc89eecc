"""Our account of a pool against the true one: where each node-second of a made history went.

The truth comes from the generator's own record of lives of nodes and of steps of jobs, read here
second by second and not from its incidents alone; the account comes from `mofa incidents
--account`, which sees only what exporters publish.
"""

from __future__ import annotations

import io
import json
import math
import runpy
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from mofa_model.errors import BadFile
from mofa_model.records import dataclass
from mofa_model.units import DAY

GRID: Final = 20.0
"""Time between the moments at which the truth is asked. [s]"""
LARGE: Final = 0.05
"""Share of what is lost from which on a cause is scored. [1]"""
STATES: Final = ("kept", "redone", "waiting", "repair", "idle")
"""States that are compared; the generator knows what a job waits for as one sum."""
_SAME: Final = {"maintenance": "planned-drain"}
"""Causes of the generator that nobody can tell apart."""
_FIRST_STEP: Final = 60.0
"""Time until a short job of the generator trains. [s]"""

Claim: TypeAlias = tuple[str, float, float, str, str]
"""A time in which a job holds a node, and what for: node, start, end, state and cause."""
By: TypeAlias = Mapping[tuple[str, str], float]
"""Node-days by state and cause; a cause in brackets was nobody's to see, by the generator."""


def true_account(generator: Path, scenario: Path) -> dict[tuple[str, str], float]:
    """Node-days by state and cause of a scenario, from the generator's record. [node d]"""
    made = load_generator(generator, scenario)
    settings = made.settings(str(scenario))
    end = datetime.fromisoformat(settings["end"]).timestamp()
    history = made.History(settings, end)
    fleet = made.Fleet(history)
    jobs = made.Jobs(history, fleet)
    made.evidence(history, fleet, jobs)
    return _Record(history, fleet, jobs).account()


def load_generator(generator: Path, scenario: Path) -> SimpleNamespace:
    """The names that the generator's program defines; its command is run once, and prints
    one line.
    """
    for file in (generator, scenario):
        if not file.is_file():
            raise BadFile(str(file), "is no file")
    words, sys.argv = sys.argv, [str(generator), str(scenario)]
    try:
        with redirect_stderr(io.StringIO()):
            return SimpleNamespace(**runpy.run_path(str(generator)))
    finally:
        sys.argv = words


class _Record:
    """What the generator wrote down, asked at moments."""

    def __init__(self, history: Any, fleet: Any, jobs: Any) -> None:
        self._from, self._until = history.T0, history.T1
        self._nodes = fleet.pool
        self._jobs = [*jobs.every, *jobs.extras]
        self._short = {id(job) for job in jobs.extras}
        self._node_incidents: defaultdict[str, list[Any]] = defaultdict(list)
        self._job_incidents: defaultdict[str, list[Any]] = defaultdict(list)
        self._by_id = {incident["id"]: incident for incident in history.incidents}
        for incident in history.incidents:
            if incident["kind"] == "node":
                self._node_incidents[incident["node"]].append(incident)
            elif incident["kind"] == "job" and incident["cause"] not in ("completed", "sidecar"):
                self._job_incidents[incident["job"]].append(incident)

    def account(self) -> dict[tuple[str, str], float]:
        """Node-days by state and cause."""
        node_days: defaultdict[tuple[str, str], float] = defaultdict(float)
        claims = self._claims()
        for node in self._nodes:
            begin, end = max(node.born, self._from), min(node.gone, self._until)
            moment = begin + GRID / 2
            of_node = claims[node.name]
            unfit = [(a, b) for a, b in node.unfit if a < end]
            if getattr(node, "elastic", False):  # kept free before it goes: nobody cordons it
                unfit = [(a, b) for a, b in unfit if b < self._until + DAY]
            unfit += [(a, b) for a, b, _ in node.bad]  # broken, and not cordoned yet
            while moment < end:
                node_days[self._at(node, moment, of_node, unfit)] += GRID / DAY
                moment += GRID
        return dict(node_days)

    def _at(
        self,
        node: Any,
        moment: float,
        claims: Sequence[tuple[float, float, str, str]],
        unfit: Sequence[tuple[float, float]],
    ) -> tuple[str, str]:
        """State and cause of a node at a moment."""
        present = [claim for claim in claims if claim[0] <= moment < claim[1]]
        is_dark = any(a <= moment < b + 60.0 for a, b in node.dark)
        if not is_dark:
            for _, _, state, cause in present:
                if state in ("kept", "redone"):
                    return state, cause
        if is_dark or any(a <= moment < b for a, b in unfit):
            incidents = [
                incident
                for incident in self._node_incidents[node.name]
                if incident["start"] - 5.0 <= moment <= incident["end"] + 600.0
                and incident["cause"] != "flap"
            ]
            return "repair", self._cause(incidents[-1]) if incidents else "planned-drain"
        for _, _, state, cause in present:
            return state, cause
        return "idle", ""

    def _claims(self) -> dict[str, list[tuple[float, float, str, str]]]:
        """The time of each node that jobs hold, as (from, to, state, cause)."""
        claims: defaultdict[str, list[tuple[float, float, str, str]]] = defaultdict(list)
        for job in self._jobs:
            for node, start, end, state, cause in self._of(job):
                if end > start:
                    claims[node].append((start, end, state, cause))
        return claims

    def _of(self, job: Any) -> Iterator[Claim]:
        """What one job makes of its nodes."""
        if id(job) in self._short:
            for pod in job.every:
                trains = pod.running + _FIRST_STEP
                yield pod.node.name, pod.created, trains, "waiting", "start"
                yield pod.node.name, trains, self._end(job, pod), "kept", ""
            return
        stops = sorted(self._job_incidents[job.key], key=lambda stop: float(stop["start"]))
        yield from self._trained(job, stops)
        for stop in stops:
            yield from self._stopped(job, stop)
        first = job.up[0][0] if job.up else self._until
        for pod in job.every:
            if pod.created < first:
                yield pod.node.name, pod.created, first, "waiting", "start"

    def _trained(self, job: Any, stops: Sequence[Any]) -> Iterator[Claim]:
        """Stretches of a job's work: kept up to the last save before each stop, and lost
        after it.
        """
        save = job.c["checkpoint_minutes"] * 60.0
        starts = [stop["start"] for stop in stops]
        for begin, end in job.up:
            number = bisect_right(starts, end + 1.0) - 1
            cut = number >= 0 and abs(starts[number] - end) < 30.0
            saved = begin + math.floor((end - begin) / save) * save if cut else end
            cause = self._cause(stops[number]) if cut else ""
            for pod in job.every:
                a, b = max(begin, pod.running), min(end, self._end(job, pod))
                yield pod.node.name, a, min(b, saved), "kept", ""
                yield pod.node.name, max(a, saved), b, "redone", cause

    def _stopped(self, job: Any, stop: Mapping[str, Any]) -> Iterator[Claim]:
        """Its nodes in one standstill."""
        start, end, cause = stop["start"], stop["end"], self._cause(stop)
        for pod in job.every:
            until = self._end(job, pod)
            if pod.running <= end < until + 1.0:  # its place stays its own while it waits
                begin = pod.created if stop["cause"] == "resubmission" else start
                yield pod.node.name, max(start, begin), end, "waiting", cause
            yield pod.node.name, max(start, pod.created), min(end, until), "waiting", cause

    def _cause(self, incident: Mapping[str, Any]) -> str:
        """The cause; a job that is moved off a node for its repair was stopped by the fault."""
        faults = [self._by_id[name] for name in incident.get("caused_by", ())]
        word = str(next((fault["cause"] for fault in faults if fault["counts"]), incident["cause"]))
        unseen = incident.get("visible") is False or (incident.get("ambiguous") and not faults)
        return f"({word})" if unseen else _SAME.get(word, word)

    def _end(self, job: Any, pod: Any) -> float:
        """When a pod ended, or the next of its place was made."""
        ends = [float(pod.deleted or math.inf), float(pod.ended[0] if pod.ended else math.inf)]
        if id(job) not in self._short:
            later = [other.created for other in job.every if other.slot == pod.slot]
            ends += [created for created in later if created > pod.created]
        return min(ends)


# ------------------------------------------------------------------------------------------ scoring


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure of the account beside its truth."""

    scenario: str
    what: str
    """A state, or `lost to` a cause."""
    true: float
    """What the generator of the history recorded. [node d]"""
    told: float
    """What the operator's account says. [node d]"""

    @property
    def off(self) -> float:
        """How far the account is off, of the truth. [1]"""
        return self.told / self.true - 1.0 if self.true else math.inf


def reported_days(document: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Node-days by state and cause in a document of `mofa incidents --account`."""
    node_days: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in document["account"]["rows"]:
        state = row["state"]
        state = state if state in STATES else "waiting"
        node_days[state, row["cause"] if state not in ("kept", "idle") else ""] += row["node_days"]
    return dict(node_days)


def scored(scenario: str, true: By, ours: By) -> list[Row]:
    """States, and causes above `LARGE` of what was lost."""
    rows = [Row(scenario=scenario, what="capacity", true=_sum(true), told=_sum(ours))]
    rows += [
        Row(scenario=scenario, what=state, true=_sum(true, state), told=_sum(ours, state))
        for state in STATES
    ]
    losses, seen = _losses(true), _losses(ours)
    whole = sum(losses.values())
    rows += [
        Row(scenario=scenario, what=f"lost to {cause}", true=time, told=seen.get(cause, 0.0))
        for cause, time in sorted(losses.items(), key=lambda loss: -loss[1])
        if time > LARGE * whole and not cause.startswith("(")
    ]
    return rows


def _sum(by: By, state: str = "") -> float:
    return sum(time for (name, _), time in by.items() if not state or name == state)


def _losses(by: By) -> dict[str, float]:
    """Lost node-days by cause."""
    lost: defaultdict[str, float] = defaultdict(float)
    for (state, cause), time in by.items():
        if state not in ("kept", "idle"):
            lost[cause] += time
    return dict(lost)


def read(answers: Iterable[Path]) -> dict[str, Mapping[str, Any]]:
    """Answers by the name of their file."""
    documents = {}
    for path in answers:
        document = json.loads(path.read_text(encoding="utf-8"))
        if "account" not in document:
            raise BadFile(str(path), "has no account; write it by mofa incidents --account -o json")
        documents[path.stem] = document
    return documents
