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
"""Time from the end of a container to its next start, where its end is not published. [s]"""
_FLAGS: Final = {
    "failed": ("kube_pod_status_phase", "phase", "Failed"),
    "succeeded": ("kube_pod_status_phase", "phase", "Succeeded"),
    "evicted": ("kube_pod_status_reason", "reason", "Evicted|Shutdown|Terminated|Preempting"),
    "shut_down": ("kube_pod_status_reason", "reason", "Shutdown|Terminated"),
    "preempted": ("kube_pod_status_disruption_reason", "reason", "PreemptionBy.*"),
    "drained": ("kube_pod_status_disruption_reason", "reason", "EvictionByEvictionAPI"),
    "out_of_memory": ("kube_pod_container_status_terminated_reason", "reason", "OOMKilled"),
}
"""Fields of a pod that are true, and the series that shows it: metric, label, values."""


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
        known = facts.pop(uid, {})
        owners[uid] = replace(
            owner,
            node=placed.get(uid, ""),
            created=known.get("created", 0.0),
            started=known.get("started"),
            last=known.get("last", 0.0),
            over=known.get("over"),
            exits=exits.get(uid, ()),
            containers=round(known.get("containers", 0.0)),
            gpus=known.get("gpus", 0.0),
            failed="failed" in known,
            succeeded="succeeded" in known,
            evicted="evicted" in known,
            shut_down="shut_down" in known,
            preempted="preempted" in known,
            drained="drained" in known,
            out_of_memory="out_of_memory" in known,
        )
    return owners


async def _owners(ask: Asking, pool: Pool, within: str) -> dict[str, PodTimeline]:
    """Pods with their job, attempt and slot: by labels of a kind of jobs, else by their owner."""
    each = " or ".join(f"count_over_time({series}{within})" for series in pool.job_pods)
    owner = pool.series("kube_pod_owner", _NO_JOB)
    jobs = "namespace, exported_namespace, job_name, owner_name"
    labelled, owned, parents = await together(
        ask(f"sum by ({', '.join([_NAMES, *JOB_LABELS])}) ({each})"),
        ask(f"max by ({_NAMES}, owner_kind, owner_name) (last_over_time({owner}{within}))"),
        ask(f"max by ({jobs}) (last_over_time({pool.series('kube_job_owner')}{within}))"),
    )
    parent = {(_namespace(s), s.label("job_name")): s.label("owner_name") for s in parents.samples}
    found: dict[str, PodTimeline] = {}
    for s in owned.samples:
        maker = job_of(s)
        name = parent.get((_namespace(s), maker), maker)
        job = intern(f"{_namespace(s)}/{name}")
        found[intern(s.label("uid"))] = PodTimeline(job=job, slot=intern(pod_slot(s)))
    for s in labelled.samples:
        labels = labels_of(s)
        found[intern(s.label("uid"))] = PodTimeline(
            job=intern(f"{_namespace(s)}/{job_of(s)}"),
            attempt=intern(s.label(labels.attempt)),
            slot=intern(pod_slot(s)),
        )
    return found


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
        "containers": f"count by (uid) (max by ({_CONTAINER}) (last_over_time({restarts}{within})))",
        "gpus": f"sum by (uid) (max by ({_CONTAINER}, resource) (last_over_time({asked}{within})))",
    }
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)

    async def tell(name: str, query: str) -> None:  # one answer at a time: each has all pods
        for s in (await ask(query)).samples:
            found[s.label("uid")][name or s.label("fact")] = s.value

    await together(*(tell(*one) for one in numbers.items()), tell("", " or ".join(flags)))
    gone = [uid for uid, known in found.items() if "created" in known and "last" not in known]
    over = [uid for uid, known in found.items() if {"failed", "succeeded"} & known.keys()]
    for some in _by_few(gone):
        series = pool.series("kube_pod_created", some)
        last = f"max by (uid) (max_over_time(timestamp({series}){grid}))"
        for (uid,), value in (await ask(last)).by("uid").items():
            found[uid]["last"] = value
    for some in _by_few(over):
        ended = pool.series("kube_pod_status_phase", _ENDED, some)
        first = f"min by (uid) (min_over_time((timestamp({ended}) and {ended} == 1){grid}))"
        for (uid,), value in (await ask(first)).by("uid").items():
            found[uid]["over"] = value
    return found


async def _exits(
    ask: Asking, pool: Pool, span: float, grid: str, step: float
) -> dict[str, tuple[ContainerExit, ...]]:
    """Containers that were started again, by uid of their pod: their time of start changes."""
    found: defaultdict[str, set[ContainerExit]] = defaultdict(set)
    restarted = await ask(_restarted(pool, span, step))
    for some in _by_few({s.label("uid") for s in restarted.samples}):
        queries = _restarts(pool, some, grid, step)
        starts, ends, codes, reasons = await together(*(ask(query) for query in queries))
        ended = {(_container(s), at): value for s in ends.samples for at, value in s.points}
        code = {(_container(s), at): round(value) for s in codes.samples for at, value in s.points}
        reason = {  # kube-state-metrics may publish an old reason for a while: the latest counts
            (container, at): text
            for _, container, at, text in sorted(
                (value, _container(s), at, s.label("reason"))
                for s in reasons.samples
                for at, value in s.points
            )
        }
        for s in starts.samples:
            container = _container(s)
            for at, start in s.points:
                end = ended.get((container, at), start - _RESTART)
                if end <= start + 1:
                    stop = ContainerExit(
                        at=end,
                        restarted_at=start,
                        container=container.name,
                        code=code.get((container, at)),
                        reason=reason.get((container, at), ""),
                    )
                    found[container.uid].add(stop)
    return {
        uid: tuple(sorted(stops, key=lambda stop: (stop.at, stop.container)))
        for uid, stops in found.items()
    }


def _restarted(pool: Pool, span: float, step: float) -> str:
    """Pods whose container may have started again: its start changed, or was unknown at first."""
    started = pool.series("kube_pod_container_state_started")
    restarts = pool.series("kube_pod_container_status_restarts_total")
    wide, within = f"[{duration(span + step)}]", f"[{duration(span)}]"
    most, least = (f"{end}_over_time({started}{wide})" for end in ("max", "min"))
    changed = f"{_by_container(most)} != {_by_container(least)}"
    last = _by_container(f"last_over_time({started}{within})")
    new = f"{last} unless {_by_container(f'{started} offset {duration(span)}')}"
    again = f"{_by_container(f'max_over_time({restarts}{within})')} > 0"
    return f"max by (uid) ((({changed}) or ({new})) and on ({_CONTAINER}) ({again}))"


def _restarts(pool: Pool, some: str, grid: str, step: float) -> list[str]:
    """New starts of some pods' containers, each with time, code and reason of the last end."""

    def of(metric: str, offset: str = "") -> str:
        return _by_container(pool.series(f"kube_pod_container_{metric}", some) + offset)

    started, before = of("state_started"), of("state_started", f" offset {duration(step)}")
    again = f"({of('status_restarts_total')} > 0)"
    new = f"(({started} unless ({started} == {before})) and on ({_CONTAINER}) {again})"
    told = pool.series("kube_pod_container_status_last_terminated_reason", some)
    ends = (
        of("status_last_terminated_timestamp"),
        of("status_last_terminated_exitcode"),
        f"max by ({_CONTAINER}, reason) (timestamp({told}) and {told} == 1)",
    )
    return [f"{new}{grid}", *(f"({end} and on ({_CONTAINER}) {new}){grid}" for end in ends)]


def _by_few(uids: Iterable[str]) -> list[str]:
    """PromQL matchers that each name a few of these pods by uid."""
    every = sorted(uids)
    return [
        matcher("uid", any_of(every[at : at + _NAMED]), "=~") for at in range(0, len(every), _NAMED)
    ]


def _by_container(series: str) -> str:
    return f"max by ({_CONTAINER}) ({series})"


def _container(sample: Sample) -> _Container:
    name = sample.label("exported_container") or sample.label("container")
    return _Container(sample.label("uid"), name)


def _namespace(sample: Sample) -> str:
    return sample.label("exported_namespace") or sample.label("namespace")
