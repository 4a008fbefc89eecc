"""What would have helped, against reruns: a generator of histories makes the same past once more
with one thing changed.

The replay sees what a perfect watcher would have seen of the first run (incidents with their
phases, and an account), and says what each change gains. The rerun has the same lives of nodes and
the same faults of programs, and knows what was kept. Both are beside each other, and what the rerun
scatters by is known from the same scenario with other seeds.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from mofa_lab.validate.account import load_generator
from mofa_model.answers.what_would_help import past_of
from mofa_model.records import dataclass
from mofa_model.reliability.remedies import Remedy, RemedySettings, what_would_help
from mofa_model.spec.incident_causes import CAUSES
from mofa_model.spec.recovery_plans import plan_of
from mofa_model.units import DAY, HOUR, MINUTE

WATCHDOG: Final = 10 * MINUTE
"""Timeout that is rerun. [s]"""
INTERVAL: Final = 10 * MINUTE
"""Interval between saves that is rerun. [s]"""
_PLANS: Final = (plan_of("in-place"), plan_of(f"classes:watchdog={WATCHDOG:g}s"))
"""Recovery plans that are replayed."""
_DRAIN: Final = ("maintenance", "planned-drain")


def _policy(settings: dict[str, Any]) -> None:
    for job in settings["job"]:
        job["policy"] = "inplace"


def _interval(settings: dict[str, Any]) -> None:
    for job in settings["job"]:
        job["checkpoint_minutes"] = INTERVAL / MINUTE


def _watchdog(settings: dict[str, Any]) -> None:
    for job in settings["job"]:
        low, high = job["hang_hours"]
        job["hang_hours"] = [min(low, WATCHDOG / HOUR), min(high, WATCHDOG / HOUR)]
        job["nccl_timeout_s"] = min(job["nccl_timeout_s"], WATCHDOG)


def _lemons(settings: dict[str, Any]) -> None:
    settings["lemon"]["factor"] = 1.0


def _spares(settings: dict[str, Any]) -> None:
    settings["fleet"]["nodes"] += 2


CHANGES: Final[Mapping[str, Callable[[dict[str, Any]], None]]] = {
    "policy": _policy,
    "interval": _interval,
    "watchdog": _watchdog,
    "lemons": _lemons,
    "spares": _spares,
}
"""What is changed in a scenario, by name."""


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """What one change was said to gain in a history, and what it gained."""

    scenario: str
    seed: int
    """Seed of the history. [1]"""
    change: str
    """A name of `CHANGES`."""
    predicted: Remedy | None
    """The predicted gain; None = the change is not advised, because no lemon is sure."""
    gained: float
    """GPU-hours that the rerun kept more. [h]"""

    @property
    def held(self) -> bool | None:
        """Whether the band holds what the rerun gained."""
        if self.predicted is None:
            return None
        return self.predicted.gain.lower <= self.gained <= self.predicted.gain.upper


def reruns(
    generator: Path,
    scenario: Path,
    seeds: Sequence[int],
    *,
    days: float | None = None,
    advance: Callable[[float], None] = lambda _: None,
) -> Iterator[Rerun]:
    """Every change of a scenario, for each seed."""
    generated = load_generator(generator, scenario)
    for seed in seeds:
        base = generated.settings(str(scenario))
        base["seed"] = seed
        base["days"] = base["days"] if days is None else days
        history = _made(generated, base)
        document = watched_document(*history)
        kept = kept_hours(generated, *history)
        for name, change in CHANGES.items():
            if name == "lemons" and not base["lemon"]["nodes"]:
                continue
            if name == "spares" and base["lemon"]["nodes"]:
                continue  # other nodes would be the lemons of a larger fleet
            changed = copy.deepcopy(base)
            change(changed)
            gained = kept_hours(generated, *_made(generated, changed)) - kept
            yield Rerun(
                scenario=scenario.stem,
                seed=seed,
                change=name,
                predicted=_predicted(name, document, base),
                gained=gained,
            )
        advance(1.0)


def _predicted(name: str, document: dict[str, Any], settings: dict[str, Any]) -> Remedy | None:
    """The gain of one change, as the replay predicts it."""
    past = past_of(document, "a rerun")
    gpus = settings["fleet"]["gpus"]
    remedy_settings = RemedySettings(gpus_per_node=gpus, intervals=(INTERVAL,), plans=_PLANS)
    remedies = what_would_help(past, remedy_settings).remedies
    beginnings = {
        "policy": "restart in place",
        "interval": "a save every",
        "watchdog": "a watchdog of",
        "lemons": "out: ",
    }
    if name in beginnings:
        return next(
            (remedy for remedy in remedies if remedy.name.startswith(beginnings[name])), None
        )
    spares = next(
        int(remedy.name.rpartition(" ")[2].rstrip(")"))
        for remedy in remedies
        if "(now as with" in remedy.name
    )
    with_spares = what_would_help(past, replace(remedy_settings, spares=(spares + 2,))).remedies
    return next(remedy for remedy in with_spares if "(now as with" in remedy.name)


def _made(generated: SimpleNamespace, settings: dict[str, Any]) -> tuple[Any, Any, Any]:
    history = generated.History(settings, datetime.fromisoformat(settings["end"]).timestamp())
    fleet = generated.Fleet(history)
    return history, fleet, generated.Jobs(history, fleet)


def kept_hours(generated: SimpleNamespace, history: Any, fleet: Any, jobs: Any) -> float:
    """GPU-hours that the jobs of a history kept. [h]"""
    del fleet
    accounts = (generated.ettr(job, history) for job in jobs.every)
    node_seconds = sum(account["kept_seconds"] * account["nodes"] for account in accounts)
    return float(node_seconds / HOUR * history.s["fleet"]["gpus"])


def watched_document(history: Any, fleet: Any, jobs: Any) -> dict[str, Any]:
    """What `mofa incidents --account -o json` would say of a history, were all of it seen."""
    by_id = {incident["id"]: incident for incident in history.incidents}
    by_key = {job.key: job for job in jobs.every}
    cordoned = {
        id(incident_of_node): until - begin
        for node in fleet.pool
        for begin, until, incident_of_node in node.bad
    }
    incidents = []
    for incident in sorted(history.incidents, key=lambda incident: float(incident["start"])):
        if not history.T0 <= incident["start"] < history.T1 or incident["cause"] == "other-pool":
            continue
        if incident["kind"] == "node":
            incidents.append(
                {
                    "kind": "node",
                    "node": incident["node"],
                    "start": incident["start"],
                    "end": incident["end"],
                    "cause": _word(incident["cause"]),
                    "in_use_seconds": cordoned.get(id(incident), 0.0),
                }
            )
        elif incident["kind"] == "job" and incident["job"] in by_key:
            incidents.append(_stopped(by_key[incident["job"]], incident, by_id))
    return {
        "start": history.T0,
        "end": history.T1,
        "incidents": incidents,
        "exposure": {
            "by_node": {
                node.name: (min(node.gone, history.T1) - max(node.born, history.T0)) / DAY
                for node in fleet.pool
            }
        },
        "account": {"rows": list(_rows(history, fleet, jobs, incidents))},
    }


def _word(cause: str) -> str:
    return "planned-drain" if cause in _DRAIN else cause


def _stopped(job: Any, incident: Mapping[str, Any], by_id: Mapping[str, Any]) -> dict[str, Any]:
    """An incident of a job with its phases, from the lives of its pods."""
    start, end = incident["start"], incident["end"]
    faults = [by_id[name] for name in incident.get("caused_by", ()) if by_id[name]["counts"]]
    cause = faults[0]["cause"] if faults else incident["cause"]
    return {
        "kind": "job",
        "job": job.key,
        "start": start,
        "end": end,
        "cause": _word(cause),
        "nodes": sorted({fault["node"] for fault in faults}),
        "infrastructure_share": float(cause in CAUSES and CAUSES[_word(cause)].counts),
        "stood": job.c["size"],
        "phases": _phases(job, incident),
    }


def _phases(job: Any, incident: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of an incident from its first exit to training again, by phase; none without a
    restart.
    """
    start, end = incident["start"], incident["end"]
    if "restart_seconds" not in incident:
        return {}
    running = min(end, start + incident["restart_seconds"])
    before = [pod for pod in job.every if pod.running <= start + 1 and _gone(pod) > start]
    after = [pod for pod in job.every if start < pod.created <= running]
    exits = [stop[0] for pod in before for stop in pod.restarts if start <= stop[0] <= end]
    exits += [_gone(pod) for pod in before if _gone(pod) <= end]
    first = min(exits, default=start)
    phases = {"detect": first - start, "load": end - running}
    if not after:
        return {**phases, "start": max(0.0, running - first)}
    made = max(pod.created for pod in after)
    places = {pod.slot for pod in after}
    left = min(made, max((_gone(pod) for pod in before if pod.slot in places), default=made))
    left = max(left, first)
    made = max(left, made)
    return {
        **phases,
        "drain": left - first,
        "queue": made - left,
        "start": max(0.0, running - made),
    }


def _gone(pod: Any) -> float:
    """When a pod ended or was deleted, whichever came first; infinite for a pod that stays. [s]"""
    ended = pod.ended[0] if pod.ended else math.inf
    return float(min(ended, pod.deleted or math.inf))


def _rows(
    history: Any, fleet: Any, jobs: Any, incidents: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The account by job, state and cause."""
    capacity = sum(min(n.gone, history.T1) - max(n.born, history.T0) for n in fleet.pool) / DAY
    held = 0.0
    for job in jobs.every:
        nodes, save = job.c["size"], job.c["checkpoint_minutes"] * MINUTE
        stops = [incident for incident in incidents if incident.get("job") == job.key]
        starts = [incident["start"] for incident in stops]
        sums: defaultdict[tuple[str, str], float] = defaultdict(float)
        for begin, end in job.up:
            a, b = max(begin, history.T0), min(end, history.T1)
            if b <= a:
                continue
            number = bisect_right(starts, end + 1.0) - 1
            cut = end < history.T1 and number >= 0
            kept = math.floor((b - a) / save) * save if cut else b - a
            sums["kept", ""] += kept * nodes / DAY
            sums["redone", stops[number]["cause"] if cut else ""] += (b - a - kept) * nodes / DAY
        active = min(job.end, history.T1) - max(job.start, history.T0)
        stood = active * nodes / DAY - sum(sums.values())
        sums["restarting", "several"] += max(0.0, stood)
        held += active * nodes / DAY
        for (state, cause), days in sums.items():
            yield _row(state, cause, days, job.key)
    yield _row("idle", "no-job", max(0.0, capacity - held), "")


def _row(state: str, cause: str, node_days: float, job: str) -> dict[str, Any]:
    return {
        "date": "",
        "job": job,
        "state": state,
        "cause": cause,
        "node_days": node_days,
        "machines_node_days": 0.0,
        "estimated_node_days": 0.0,
    }


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How a change's gains, said and rerun, agree over histories."""

    change: str
    histories: int
    """Histories in which the change was advised. [1]"""
    told: float
    """Mean predicted gain. [h]"""
    gained: float
    """Mean gain of the reruns. [h]"""
    noise: float
    """Standard deviation of the reruns' gains around the predicted ones. [h]"""
    held: float
    """Share of the bands of 80 % that held. [1]"""
    not_advised: int
    """Histories in which nothing was advised. [1]"""

    @property
    def is_within_noise(self) -> bool:
        """Whether the means differ by at most two standard errors, or a twentieth."""
        error = self.noise / math.sqrt(max(1, self.histories))
        return abs(self.told - self.gained) <= max(2 * error, 0.05 * abs(self.gained))


def agreements(reruns_made: Sequence[Rerun]) -> list[Agreement]:
    """Rows that compare predicted gains with those of reruns, one for each change of a pool."""
    rows = []
    for name in dict.fromkeys(rerun.change for rerun in reruns_made):
        of_change = [rerun for rerun in reruns_made if rerun.change == name]
        gains = [
            (rerun.predicted.gain.target, rerun.gained, rerun.held)
            for rerun in of_change
            if rerun.predicted
        ]
        predicted, gained, held = (
            (np.array(column) for column in zip(*gains, strict=True))
            if gains
            else 3 * (np.zeros(0),)
        )
        rows.append(
            Agreement(
                change=name,
                histories=len(gains),
                told=float(predicted.mean()) if gains else 0.0,
                gained=float(gained.mean())
                if gains
                else float(np.mean([rerun.gained for rerun in of_change])),
                noise=float((predicted - gained).std(ddof=1)) if len(gains) > 1 else 0.0,
                held=float(held.mean()) if gains else 0.0,
                not_advised=len(of_change) - len(gains),
            )
        )
    return rows
