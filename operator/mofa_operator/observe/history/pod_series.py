"""Pods of training jobs in a piece of time: whose they are, when they ran, and how they ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from sys import intern
from typing import Final, NamedTuple

from mofa_operator.incidents.timelines import ContainerExit, PodTimeline
from mofa_operator.observe.history.node_names import NodeNaming
from mofa_operator.observe.prometheus.client import Asking, Sample, together
from mofa_operator.observe.prometheus.promql import (
    JOB_LABELS,
    WHOLE_GPUS,
    Pool,
    any_of,
    duration,
    job_of,
    labels_of,
    matcher,
    pod_slot,
)

_NO_JOB: Final = matcher("owner_kind", "DaemonSet|ReplicaSet|StatefulSet|Node|<none>|", "!~")
_NAMES: Final = "uid, namespace, exported_namespace, pod, exported_pod"
_PLACE: Final = "uid, node, exported_node, kubernetes_node, node_name, nodename, instance, host_ip"
_CONTAINER: Final = "uid, container, exported_container"
_ENDED: Final = matcher("phase", "Failed|Succeeded", "=~")
_NAMED: Final = 50
"""Pods that a query names at most. [1]"""
_RESTART: Final = 20.0
"""Assumed time from a container's end to its next start where the end is not published. [s]"""
_FLAGS: Final = {
    "failed": ("kube_pod_status_phase", "phase", "Failed"),
    "succeeded": ("kube_pod_status_phase", "phase", "Succeeded"),
    "evicted": ("kube_pod_status_reason", "reason", "Evicted|Shutdown|Terminated|Preempting"),
    "shut_down": ("kube_pod_status_reason", "reason", "Shutdown|Terminated"),
    "preempted": ("kube_pod_status_disruption_reason", "reason", "PreemptionBy.*"),
    "drained": ("kube_pod_status_disruption_reason", "reason", "EvictionByEvictionAPI"),
    "out_of_memory": ("kube_pod_container_status_terminated_reason", "reason", "OOMKilled"),
}
"""Flags of a pod, and the series that sets each: metric, label, values of the label."""


class _Container(NamedTuple):
    """A container of a pod."""

    uid: str
    name: str


async def read_pods(
    ask: Asking, pool: Pool, naming: NodeNaming, span: float, sample_spacing: float
) -> dict[str, PodTimeline]:
    """Pods of training jobs by uid, in a time of `span`, sampled every `sample_spacing`. [s]"""
    within = f"[{duration(span)}]"
    grid = f"[{duration(span - 1)}:{duration(sample_spacing)}]"
    owners = await _owners(ask, pool, within)
    if not owners:
        return {}
    facts = await _facts(ask, pool, within, grid)
    exits = await _exits(ask, pool, span, grid, sample_spacing)
    infos = await ask(f"max by ({_PLACE}) (last_over_time({pool.series('kube_pod_info')}{within}))")
    placed = {  # a pod that waited for its node has two series, one of them without
        s.label("uid"): intern(node) for s in infos.samples if (node := naming.host(s.labels))
    }
    del infos
    for uid, owner in owners.items():
        pod_facts = facts.pop(uid, {})
        owners[uid] = replace(
            owner,
            node=placed.get(uid, ""),
            created=pod_facts.get("created", 0.0),
            started=pod_facts.get("started"),
            last=pod_facts.get("last", 0.0),
            over=pod_facts.get("over"),
            exits=exits.get(uid, ()),
            containers=round(pod_facts.get("containers", 0.0)),
            gpus=pod_facts.get("gpus", 0.0),
            failed="failed" in pod_facts,
            succeeded="succeeded" in pod_facts,
            evicted="evicted" in pod_facts,
            shut_down="shut_down" in pod_facts,
            preempted="preempted" in pod_facts,
            drained="drained" in pod_facts,
            out_of_memory="out_of_memory" in pod_facts,
        )
    return owners


async def _owners(ask: Asking, pool: Pool, within: str) -> dict[str, PodTimeline]:
    """Pods with their job, attempt and slot, by the labels of their kind of job or by owner."""
    pod_counts = " or ".join(f"count_over_time({series}{within})" for series in pool.job_pods)
    owner = pool.series("kube_pod_owner", _NO_JOB)
    jobs = "namespace, exported_namespace, job_name, owner_name"
    labelled, owned, parents = await together(
        ask(f"sum by ({', '.join([_NAMES, *JOB_LABELS])}) ({pod_counts})"),
        ask(f"max by ({_NAMES}, owner_kind, owner_name) (last_over_time({owner}{within}))"),
        ask(f"max by ({jobs}) (last_over_time({pool.series('kube_job_owner')}{within}))"),
    )
    parent = {(_namespace(s), s.label("job_name")): s.label("owner_name") for s in parents.samples}
    pods: dict[str, PodTimeline] = {}
    for s in owned.samples:
        maker = job_of(s)
        name = parent.get((_namespace(s), maker), maker)
        job = intern(f"{_namespace(s)}/{name}")
        pods[intern(s.label("uid"))] = PodTimeline(job=job, slot=intern(pod_slot(s)))
    for s in labelled.samples:
        labels = labels_of(s)
        pods[intern(s.label("uid"))] = PodTimeline(
            job=intern(f"{_namespace(s)}/{job_of(s)}"),
            attempt=intern(s.label(labels.attempt)),
            slot=intern(pod_slot(s)),
        )
    return pods


async def _facts(ask: Asking, pool: Pool, within: str, grid: str) -> dict[str, dict[str, float]]:
    """Facts of pods by uid: moments, the number of containers, and the flags that are true."""
    created = pool.series("kube_pod_created")
    started = pool.series("kube_pod_container_state_started")
    restarts = pool.series("kube_pod_container_status_restarts_total")
    asked = pool.series("kube_pod_container_resource_requests", WHOLE_GPUS)
    flags = (
        "label_replace(max by (uid) "
        f"(max_over_time({pool.series(metric, matcher(label, values, '=~'))}{within})) == 1, "
        f'"fact", "{flag}", "", "")'
        for flag, (metric, label, values) in _FLAGS.items()
    )
    numbers = {
        "created": f"max by (uid) (last_over_time({created}{within}))",
        "started": f"min by (uid) (min_over_time({started}{within}))",
        "last": f"max by (uid) (timestamp({created}))",
        "containers": f"count by (uid) ({_by_container(f'last_over_time({restarts}{within})')})",
        "gpus": f"sum by (uid) (max by ({_CONTAINER}, resource) (last_over_time({asked}{within})))",
    }
    facts: defaultdict[str, dict[str, float]] = defaultdict(dict)

    async def read(name: str, query: str) -> None:  # one answer at a time: each has all pods
        for sample in (await ask(query)).samples:
            facts[sample.label("uid")][name or sample.label("fact")] = sample.value

    await together(*(read(*query) for query in numbers.items()), read("", " or ".join(flags)))
    gone = [uid for uid, names in facts.items() if "created" in names and "last" not in names]
    ended = [uid for uid, names in facts.items() if {"failed", "succeeded"} & names.keys()]
    for selection in _by_few(gone):
        series = pool.series("kube_pod_created", selection)
        last = f"max by (uid) (max_over_time(timestamp({series}){grid}))"
        for (uid,), value in (await ask(last)).by("uid").items():
            facts[uid]["last"] = value
    for selection in _by_few(ended):
        phases = pool.series("kube_pod_status_phase", _ENDED, selection)
        first = f"min by (uid) (min_over_time((timestamp({phases}) and {phases} == 1){grid}))"
        for (uid,), value in (await ask(first)).by("uid").items():
            facts[uid]["over"] = value
    return facts


async def _exits(
    ask: Asking, pool: Pool, span: float, grid: str, step: float
) -> dict[str, tuple[ContainerExit, ...]]:
    """Ends of containers that were started again, as their changed start shows, by uid of pod."""
    exits: defaultdict[str, set[ContainerExit]] = defaultdict(set)
    restarted = await ask(_restarted(pool, span, step))
    for selection in _by_few({s.label("uid") for s in restarted.samples}):
        queries = _restarts(pool, selection, grid, step)
        starts, ends, codes, reasons = await together(*(ask(query) for query in queries))
        end_times = {
            (_container(s), moment): value for s in ends.samples for moment, value in s.points
        }
        codes_at = {
            (_container(s), moment): round(value)
            for s in codes.samples
            for moment, value in s.points
        }
        # kube-state-metrics may publish an old reason for a while: the latest counts
        reasons_at = {
            (container, moment): text
            for _, container, moment, text in sorted(
                (value, _container(s), moment, s.label("reason"))
                for s in reasons.samples
                for moment, value in s.points
            )
        }
        for s in starts.samples:
            container = _container(s)
            for moment, start in s.points:
                end = end_times.get((container, moment), start - _RESTART)
                if end <= start + 1:
                    stop = ContainerExit(
                        at=end,
                        restarted_at=start,
                        container=container.name,
                        code=codes_at.get((container, moment)),
                        reason=reasons_at.get((container, moment), ""),
                    )
                    exits[container.uid].add(stop)
    return {
        uid: tuple(sorted(stops, key=lambda stop: (stop.at, stop.container)))
        for uid, stops in exits.items()
    }


def _restarted(pool: Pool, span: float, step: float) -> str:
    """A query for pods of which a container may have started again: its start changed or is new."""
    started = pool.series("kube_pod_container_state_started")
    restarts = pool.series("kube_pod_container_status_restarts_total")
    wide, within = f"[{duration(span + step)}]", f"[{duration(span)}]"
    most, least = (f"{end}_over_time({started}{wide})" for end in ("max", "min"))
    changed = f"{_by_container(most)} != {_by_container(least)}"
    last = _by_container(f"last_over_time({started}{within})")
    new = f"{last} unless {_by_container(f'{started} offset {duration(span)}')}"
    again = f"{_by_container(f'max_over_time({restarts}{within})')} > 0"
    return f"max by (uid) ((({changed}) or ({new})) and on ({_CONTAINER}) ({again}))"


def _restarts(pool: Pool, selection: str, grid: str, step: float) -> list[str]:
    """Queries for new starts of containers, and for time, code and reason of the end before."""

    def series_of(metric: str, offset: str = "") -> str:
        return _by_container(pool.series(f"kube_pod_container_{metric}", selection) + offset)

    started, before = (
        series_of("state_started"),
        series_of("state_started", f" offset {duration(step)}"),
    )
    again = f"({series_of('status_restarts_total')} > 0)"
    new = f"(({started} unless ({started} == {before})) and on ({_CONTAINER}) {again})"
    reason_series = pool.series("kube_pod_container_status_last_terminated_reason", selection)
    ends = (
        series_of("status_last_terminated_timestamp"),
        series_of("status_last_terminated_exitcode"),
        f"max by ({_CONTAINER}, reason) (timestamp({reason_series}) and {reason_series} == 1)",
    )
    return [f"{new}{grid}", *(f"({end} and on ({_CONTAINER}) {new}){grid}" for end in ends)]


def _by_few(uids: Iterable[str]) -> list[str]:
    """PromQL matchers that together name these pods by uid, each at most `_NAMED` of them."""
    all_uids = sorted(uids)
    return [
        matcher("uid", any_of(all_uids[first : first + _NAMED]), "=~")
        for first in range(0, len(all_uids), _NAMED)
    ]


def _by_container(series: str) -> str:
    return f"max by ({_CONTAINER}) ({series})"


def _container(sample: Sample) -> _Container:
    name = sample.label("exported_container") or sample.label("container")
    return _Container(sample.label("uid"), name)


def _namespace(sample: Sample) -> str:
    return sample.label("exported_namespace") or sample.label("namespace")
