"""Made histories of jobs that stop by themselves or by the machines; the weights of
`incidents/blame.py` are fitted on them.

    python tools/blame.py            weights that fit 3,000 histories (a minute), and how well
                                     shares hold on others

A house is drawn with a launcher (torchrun, where all end with 1; programs' own codes; gangs whose
codes nobody sees), with rates of its machines and of its programs' errors, and with how these look:
one at a time, again from the same checkpoint, at start-up, in several jobs at once. `strange=True`
draws other rates, other times and other habits, for what was left out of the fit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_operator.incidents import blame, job_causes
from mofa_operator.incidents.past import past
from mofa_operator.incidents.timelines import (
    READY,
    XID,
    ContainerExit,
    NodeTimeline,
    PodTimeline,
    PoolTimelines,
    SignalTimeline,
    Span,
    ValueRun,
)

START, DAY, HOUR, STEP = 1_000_000.0, 86400.0, 3600.0, 60.0
NAMES = tuple(field.name for field in fields(blame.Signs))


@dataclass(frozen=True)
class House:
    """How jobs of one site stop, as rates and shares."""

    launcher: str
    machines: float
    """Stops by the machines. [1/d]"""
    errors: float
    """Stops by programs. [1/d]"""
    single: float
    """Share of errors that come once, and not again and again. [1]"""
    early: float
    """Share of errors at start-up. [1]"""
    returns: float
    """Share of stops by the machines that come back within two hours. [1]"""
    shared: float
    """Share of stops by the machines that hit all jobs. [1]"""
    tells: float
    """Share of errors at which a GPU reports an XID of programs. [1]"""
    replay: float
    """Median time after which an error comes again. [s]"""
    clocks: float
    """Share of programs that end after the same hours each time: a token that expires, a
    leak. [1]
    """


def house(r: random.Random, *, strange: bool = False) -> House:
    """A site at random."""
    spread = 1.4 if strange else 0.9
    return House(
        launcher=r.choice(("torchrun", "codes", "gang")),
        machines=0.35 * math.exp(r.gauss(0, spread)),
        errors=0.2 * math.exp(r.gauss(0, spread)),
        single=r.uniform(0.1, 0.6 if strange else 0.4),
        early=r.uniform(0.0, 0.4),
        returns=r.uniform(0.0, 0.35 if strange else 0.2),
        shared=r.uniform(0.0, 0.2),
        tells=r.uniform(0.0, 0.5),
        replay=r.uniform(300, 4000) if strange else r.uniform(400, 2500),
        clocks=r.uniform(0.0, 0.08 if strange else 0.05),
    )


class Jobs:
    """Two jobs of a site over some days."""

    def __init__(self, r: random.Random, h: House) -> None:
        self.r, self.h = r, h
        self.days = r.uniform(2, 8)
        self.end = START + self.days * DAY
        self.pods: list[PodTimeline] = []
        self.truth: list[tuple[str, float, bool]] = []
        self.xids: dict[str, list[float]] = {}
        size = r.randint(3, 10)
        shared = [self.at() for _ in range(self.poisson(h.machines * h.shared))]
        for job in ("a/one", "b/two"):
            self.live(job, size, shared)

    def at(self) -> float:
        """A moment at random. [s]"""
        return START + self.r.uniform(0.02, 0.98) * self.days * DAY

    def poisson(self, per_day: float) -> int:
        """A count at random, by its mean. [1]"""
        count, t = 0, 0.0
        while per_day > 0 and (t := t + self.r.expovariate(per_day)) < self.days:
            count += 1
        return count

    def live(self, job: str, size: int, shared: list[float]) -> None:
        """Draw when one job stops, and how each stop looks."""
        r, h = self.r, self.h
        stops = [(at + r.uniform(0, 60), True) for at in shared]
        for _ in range(self.poisson(h.machines * (1 - h.shared))):
            at = self.at()
            stops.append((at, True))
            if r.random() < h.returns:
                stops.append((at + r.uniform(600, 7200), True))
        loops: dict[float, tuple[int, float]] = {}
        for _ in range(self.poisson(h.errors)):
            at = self.at()
            stops.append((at, False))
            if r.random() >= h.single:
                early = r.random() < h.early
                wait = r.uniform(30, 300) if early else h.replay * math.exp(r.gauss(0, 0.6))
                loops[at] = (r.randint(1, 8), wait)
        places = [
            PodTimeline(
                job=job,
                attempt="0",
                slot=str(slot),
                node=f"{job[0]}{slot}",
                created=START - r.uniform(0, 2) * DAY,
                containers=1,
            )
            for slot in range(size)
        ]
        places = [replace(pod, started=pod.created + 30) for pod in places]
        free = START
        hours = math.exp(r.uniform(math.log(2 * HOUR), math.log(20 * HOUR)))
        clock, leaks = hours if r.random() < h.clocks else math.inf, r.random() < 0.5
        due = START + clock * r.random()
        stops.sort(reverse=True)
        while stops or due < self.end:
            by_clock = not stops or due < stops[-1][0]
            at, by_machines = (due, False) if by_clock else stops.pop()
            if at > self.end - 1800:
                break
            if at < free + 1500:
                due = free + clock if by_clock else due
                continue
            again, wait = (0, 0.0) if by_clock else loops.get(at, (0, 0.0))
            for k in range(again + 1):
                when = at + k * (wait * r.uniform(0.985, 1.015) + 60)
                if when > self.end - 1800:
                    break
                mends = not by_machines and again > 0 and k == again and r.random() < 0.6
                killed = leaks if by_clock else r.random() < (0.8 if by_machines else 0.1)
                places = self.stop(
                    places, when, by_machines=by_machines, mends=mends, killed=killed
                )
                self.truth.append((job, when, by_machines))
                free = when + 60
            due = free + clock * r.uniform(0.995, 1.005)
        self.pods += [replace(pod, last=self.end) for pod in places]

    def stop(
        self,
        places: list[PodTimeline],
        at: float,
        *,
        by_machines: bool,
        mends: bool,
        killed: bool,
    ) -> list[PodTimeline]:
        """Let all places of a job end and begin again."""
        r, launcher = self.r, self.h.launcher
        victim = r.randrange(len(places))
        if r.random() < (0.03 if by_machines else self.h.tells):
            self.xids.setdefault(places[victim].node, []).append(at - 5)
        if launcher == "gang" or mends:
            new = []
            for pod in places:
                failed = launcher == "gang" and not mends
                ended = replace(pod, last=at, over=at if failed else None, failed=failed)
                self.pods.append(ended)
                attempt = "0" if mends else str(int(pod.attempt) + 1)
                made = at + (r.uniform(600, 7200) if mends else 25)
                new.append(replace(pod, attempt=attempt, created=made, started=made + 30, exits=()))
            return new
        # a failed collective may raise, and a program may die of a signal
        first = r.choice((137, 139, 134)) if launcher == "codes" and killed else 1
        together = by_machines and launcher == "codes" and r.random() < 0.4
        pods = []
        for number, pod in enumerate(places):
            code = 1 if launcher == "torchrun" else r.choice((134, 143, 1))
            late = 0.0 if number == victim else r.uniform(1, 25)
            code = 134 if together else first if number == victim else code
            stop = ContainerExit(
                at=at + late, restarted_at=at + late + 12, container="main", code=code
            )
            pods.append(replace(pod, exits=(*pod.exits, stop)))
        return pods

    def timelines(self) -> PoolTimelines:
        """Timelines of the jobs, as the operator would see them."""
        whole = (Span(START, self.end),)
        nodes = {}
        for name in {pod.node for pod in self.pods}:
            lines = [SignalTimeline(name, READY, (), (ValueRun(START, self.end, 1.0),))]
            for at in self.xids.get(name, [])[:1]:
                runs = (ValueRun(START, at - 30, 0.0), ValueRun(at + 30, self.end, 31.0))
                lines.append(SignalTimeline(name, XID, ("0", "u"), runs))
            nodes[name] = NodeTimeline(
                name=name,
                timelines=tuple(lines),
                signals=frozenset({READY, XID}),
                spacing={READY: STEP, XID: STEP},
                labels={},
                presence=whole,
                sampled=whole,
            )
        return PoolTimelines(
            node_timelines=nodes,
            pod_timelines={str(n): pod for n, pod in enumerate(self.pods)},
            gpu_busy={},
            stalls={},
            sampled=whole,
            sample_spacing=STEP,
        )


def judged(
    seed: int, count: int, *, strange: bool = False
) -> Iterator[tuple[blame.Signs, float, bool]]:
    """For every stop that is weighed: its signs, the share that they give, and whether the machines
    caused it.
    """
    r = random.Random(seed)
    given: list[blame.Signs] = []
    real = blame.infrastructure_share

    def remembered(signs: blame.Signs) -> float:
        given.append(signs)
        return real(signs)

    job_causes.infrastructure_share = remembered
    try:
        for _ in range(count):
            jobs = Jobs(r, house(r, strange=strange))
            timelines = jobs.timelines()
            given.clear()
            incidents = past(timelines, IncidentRules()).incidents
            by_share = {round(real(signs), 9): signs for signs in given}
            for incident in incidents:
                if incident.kind != "job" or "infrastructure" not in " ".join(incident.evidence):
                    continue
                near = [
                    (abs(at - incident.start), true)
                    for job, at, true in jobs.truth
                    if job == incident.name and abs(at - incident.start) < 700
                ]
                if near:
                    yield by_share[round(incident.share, 9)], incident.share, min(near)[1]
    finally:
        job_causes.infrastructure_share = real


def table(judgements: list[tuple[blame.Signs, float, bool]]) -> list[tuple[float, float, int]]:
    """By fifths of the predicted share: predicted and true share, and number of stops."""
    rows = []
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        judgements_in_bin = [
            (share, was) for _, share, was in judgements if low <= share < low + 0.2 + (low == 0.8)
        ]
        if judgements_in_bin:
            mean_share, was = (
                sum(column) / len(judgements_in_bin)
                for column in zip(*judgements_in_bin, strict=True)
            )
            rows.append((mean_share, was, len(judgements_in_bin)))
    return rows


def fitted(judgements: list[tuple[blame.Signs, float, bool]]) -> dict[str, float]:
    """Weights of the greatest likelihood, held near zero by a ridge of 1."""
    x = np.array(
        [[1.0, *(float(getattr(signs, name)) for name in NAMES)] for signs, _, _ in judgements]
    )
    y = np.array([float(was) for *_, was in judgements])
    w = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ w))
        curve = (x.T * (p * (1 - p))) @ x + np.eye(len(w))
        w += np.linalg.solve(curve, x.T @ (y - p) - w)
    return dict(zip(("prior", *NAMES), (round(float(weight), 1) for weight in w), strict=True))


if __name__ == "__main__":
    seen = [*judged(1, 1500), *judged(4, 1500, strange=True)]
    print(len(seen), "stops;", fitted(seen))
    for title, others in (
        ("left out", list(judged(2, 600))),
        ("left out, by other assumptions", list(judged(3, 600, strange=True))),
    ):
        print(title, [f"{a:.2f} was {b:.2f} ({n})" for a, b, n in table(others)])
