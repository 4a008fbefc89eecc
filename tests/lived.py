"""Pools whose past is made up and held by a real Prometheus, an operator that looks at it, and a
job for each pool.

Every pool here has 40 nodes, trains on 38 of them and assumes five failures in a thousand node-days
(0.5 % a day), over a window of 30 days.
"""

import dataclasses
import itertools
import json
import re
import secrets
import time
from bisect import bisect_left
from contextlib import ExitStack, contextmanager

from advisor import Advisor, condition, ours, read, until
from mofa_local.blocks import write_block
from mofa_local.ports import free_port
from mofa_local.prometheus import Prometheus
from mofa_local.series import sampled
from mofa_local.synthetic import DAY, Job, draw, node_names
from operator_objects import small_job
from pools import pool

from mofa_model.cli import main

DAYS, NODES, BUSY = 30, 40, 38
WATCHED = BUSY * DAYS
"""Node-days in which a job ran on a node."""
ASSUMED = 0.005
"""Failures per node-day, of all classes."""
FOUR_PERCENT = {"process": 4, "pod": 39, "job": 3}
"""46 failures in 1140 node-days: 4.04 % per node-day, eight times as many as assumed."""
AS_ASSUMED = {"process": 2, "pod": 3, "job": 1}
"""Six failures, where 5.7 are assumed."""
QUICK = ("--settle=1", "--resync=5", "--backoff=0.2")
PATIENCE = 150.0
"""Longest wait for a first look at thirty days on a busy machine. [s]"""
_numbers = itertools.count()


class World:
    """Pools, their pasts in one Prometheus, one operator, and a job for each pool."""

    def __init__(self, cluster, processes, folder):
        self.cluster = cluster
        self.namespace = f"assumed-{secrets.token_hex(3)}"
        cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        )
        name = f"assumed-{next(_numbers)}"
        self.server = Prometheus(
            processes, folder / "prometheus", port=free_port(), name=f"{name}-prometheus"
        )
        self.advisor = Advisor(cluster, processes, name)
        self.folder = folder

    def ask_for_advice(self, name):
        self.cluster.apply(job(self.namespace, name))

    def profile(self, name):
        return read(self.cluster, "clusterprofile", name=name)

    def days(self, name):
        """The days of a pool's ledger."""
        return read(self.cluster, "failureledger", name=name)["status"]["days"]

    def job(self, name):
        return read(self.cluster, "trainingjob", self.namespace, name)

    def learned(self, name, reason, words=""):
        """A pool's profile and job once both say this of its history, in these words, and the job
        is advised.
        """

        def look():
            profile, asked = self.profile(name), self.job(name)
            conditions = [condition(body, "HistoryComplete") for body in (profile, asked)]
            is_said = all(
                condition_seen.get("reason") == reason
                and words in condition_seen.get("message", "")
                for condition_seen in conditions
            )
            return (profile, asked) if is_said and "strategy" in ours(asked) else None

        return until(look, PATIENCE, what=f"{name}: {reason}")

    def events(self, name, kind="ClusterProfile"):
        """Reasons and messages of the Events on an object."""
        events = read(self.cluster, "events")
        events_of_kind = [
            event
            for event in events
            if (event["involvedObject"].get("kind"), event["involvedObject"].get("name"))
            == (kind, name)
        ]
        return [(event["reason"], event["message"]) for event in events_of_kind]

    def metric(self, name, **labels):
        """A series of the operator's own /metrics."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        for line in self.advisor.metrics().splitlines():
            match = re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line)
            if match and wanted <= set(match[1].split(",")):
                return float(match[2])
        return None

    def rates(self, name, capsys, *more):
        """What `mofa rates --prometheus` says of the live profile: exit code, document,
        standard error.
        """
        file = self.folder / f"{name}.yaml"
        file.write_text(self.cluster.kubectl("get", "clusterprofile", name, "-o", "yaml"))
        capsys.readouterr()
        code = main(
            ["rates", "--prometheus", self.server.url, "--profile", str(file), "--json", *more]
        )
        output = capsys.readouterr()
        return code, json.loads(output.out) if output.out else None, output.err


def job(namespace, profile):
    """A TrainingJob for a pool, named as the pool."""
    return small_job(namespace, profile, profile)


def past_of(name, failures=AS_ASSUMED, *, days=DAYS, jobs=2, **changes):
    """What a pool lived through until now, seen by Prometheus as the pool's own cluster."""
    past = draw(
        end=int(time.time()),
        nodes=NODES,
        days=days,
        jobs=tuple(Job(name=f"{name}-{number}", nodes=BUSY // jobs) for number in range(jobs)),
        failures=failures,
        labels={"example.org/pool": name},
    )
    return dataclasses.replace(past, nodes=node_names(NODES, name), **changes)


def samples(past, name, since=0.0, before=float("inf")):
    """The samples of a past between two moments, with the label `cluster`."""
    for series, runs in sampled(past, lambda _: True):
        cut = [
            run._replace(
                times=run.times[bisect_left(run.times, since) : bisect_left(run.times, before)]
            )
            for run in runs
        ]
        kept = [run for run in cut if run.times]
        if kept:
            yield series._replace(labels={**series.labels, "cluster": name}), kept


def own(name):
    """The part of a profile's spec that finds its own past."""
    return {"prometheus": {"windowSeconds": DAYS * DAY, "matchers": {"cluster": name}}}


@contextmanager
def world_of(cluster, processes, folder, pasts, *flags, serving=True, before=float("inf")):
    """A world of pools: for each, a function from its name to its past, of which Prometheus holds
    what lies before a moment.
    """
    made = World(cluster, processes, folder)
    with ExitStack() as stack:
        names = {
            key: stack.enter_context(pool(cluster, NODES, spec=own, form="{}-{:03d}"))
            for key in pasts
        }
        series = [
            sample
            for key, name in names.items()
            for sample in samples(pasts[key](name), name, before=before)
        ]
        if series:
            write_block(series, made.server.data)
        if serving:
            made.server.start()
        for name in names.values():
            made.ask_for_advice(name)
        made.advisor.start(*QUICK, f"--prometheus-url={made.server.url}", *flags)
        try:
            yield made, names
        finally:
            made.advisor.stop()
            made.server.stop()
            cluster.delete("trainingjobs", namespace=made.namespace)


def rows(profile):
    return {row["name"]: row for row in profile["status"]["failures"]}


def whole(profile):
    """All failures of a status, and its exposure."""
    counted = rows(profile).values()
    return sum(row["failures"] for row in counted), float(next(iter(counted))["exposureNodeDays"])


def rates_used(asked):
    """Failures in a thousand node-days that a job's advice rests on, by class."""
    used = asked["status"]["inputs"]["failure"]
    return {row["name"]: float(row["failuresPerThousandNodeDays"]) for row in used}
