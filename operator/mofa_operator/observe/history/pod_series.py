"""What Prometheus says of the pods of training jobs in a stretch: whose they are, when they lived, how they ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from mofa_model.kinds import PodLabels
from mofa_operator.incidents.timelines import Exit, PodLife
from mofa_operator.observe.history.node_names import Naming
from mofa_operator.observe.prometheus.client import Asking, Sample, together
from mofa_operator.observe.prometheus.promql import POD_LABELS, Pool, any_of, duration, matcher

_SERVICES: Final = matcher("owner_kind", "DaemonSet|ReplicaSet|StatefulSet|Node|<none>|", "!~")
_NAMES: Final = "uid, namespace, exported_namespace, pod, exported_pod"
_WHERE: Final = "uid, node, exported_node, kubernetes_node, node_name, nodename, instance, host_ip, priority_class"
_IN: Final = "uid, container, exported_container"
_ENDED: Final = matcher("phase", "Failed|Succeeded", "=~")
_FEW: Final = 50
"""Pods that a query names at most. [1]"""
_LATE: Final = 20.0
"""Time from the end of a container to its next start, where nobody says when it ended. [s]"""


async def read_pods(
    ask: Asking, pool: Pool, named: Naming, span: float, step: float
) -> dict[str, PodLife]:
    """Pods of training jobs by uid. `span` is the length of the stretch, `step` the time between samples. [s]"""
    within = f"[{duration(span)}]"
    grid = f"[{duration(span - 1)}:{duration(step)}]"
    labelled, owned, jobs = await together(
        ask(_labelled(pool, within)),
        ask(
            f"max by ({_NAMES}, owner_kind, owner_name) (last_over_time({pool.series('kube_pod_owner', _SERVICES)}{within}))"
        ),
        ask(
            f"max by (namespace, exported_namespace, job_name, owner_name) (last_over_time({pool.series('kube_job_owner')}{within}))"
        ),
    )
    parents = {(_space(s), s.label("job_name")): s.label("owner_name") for s in jobs.samples}
    whose: dict[str, tuple[str, str, str]] = {}
    for s in owned.samples:
        name = parents.get((_space(s), s.label("owner_name")), s.label("owner_name"))
        whose[s.label("uid")] = f"{_space(s)}/{name}", "", _stem(s)
    for s in labelled.samples:
        labels = next((one for one in POD_LABELS if s.label(one.job)), POD_LABELS[0])
        whose[s.label("uid")] = (
            f"{_space(s)}/{s.label(labels.job)}",
            s.label(labels.attempt),
            _slot(s, labels),
        )
    if not whose:
        return {}
    facts = await _facts(ask, pool, within, grid)
    exits = await _exits(ask, pool, span, grid, step)
    there = await ask(f"max by ({_WHERE}) (last_over_time({pool.series('kube_pod_info')}{within}))")
    places: dict[str, tuple[str, str]] = {}
    for s in there.samples:
        if node := named.host(s.labels):
            places[s.label("uid")] = node, s.label("priority_class")
    found = {}
    for uid, (job, attempt, slot) in whose.items():
        known = facts.get(uid, {})
        node, priority = places.get(uid, ("", ""))
        many = exits.get(uid, ())
        found[uid] = PodLife(
            job=job,
            attempt=attempt,
            slot=slot,
            node=node,
            priority=priority,
            created=known.get("created", 0.0),
            started=known.get("started"),
            last=known.get("last", 0.0),
            over=known.get("over"),
            failed="failed" in known,
            succeeded="succeeded" in known,
            evicted="evicted" in known,
            preempted="preempted" in known,
            drained="drained" in known,
            out_of_memory="memory" in known,
            exits=many,
            containers=round(known.get("containers", 0.0)),
        )
    return found


async def _facts(ask: Asking, pool: Pool, within: str, grid: str) -> dict[str, dict[str, float]]:
    """What is asked of pods, by uid."""
    created, phases = pool.series("kube_pod_created"), "kube_pod_status_phase"
    containers = pool.series("kube_pod_container_status_restarts_total")
    answers = await together(
        ask(f"max by (uid) (last_over_time({created}{within}))"),
        ask(
            f"min by (uid) (min_over_time({pool.series('kube_pod_container_state_started')}{within}))"
        ),
        ask(f"max by (uid) (timestamp({created}))"),
        ask(f"count by (uid) (max by ({_IN}) (last_over_time({containers}{within})))"),
        ask(_flags(pool, within)),
    )
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for name, answer in zip(("created", "started", "last", "containers"), answers, strict=False):
        for (uid,), value in answer.by("uid").items():
            found[uid][name] = value
    for s in answers[-1].samples:
        found[s.label("uid")][s.label("fact")] = s.value
    gone = [uid for uid, known in found.items() if "created" in known and "last" not in known]
    over = [uid for uid, known in found.items() if {"failed", "succeeded"} & known.keys()]
    for some in _by_few(gone):
        last = f"max by (uid) (max_over_time(timestamp({pool.series('kube_pod_created', some)}){grid}))"
        for (uid,), value in (await ask(last)).by("uid").items():
            found[uid]["last"] = value
    for some in _by_few(over):
        ended = pool.series(phases, _ENDED, some)
        first = f"min by (uid) (min_over_time((timestamp({ended}) and {ended} == 1){grid}))"
        for (uid,), value in (await ask(first)).by("uid").items():
            found[uid]["over"] = value
    return found


def _flags(pool: Pool, within: str) -> str:
    """What is true of some pods, each by its name in the label `fact`."""

    def true(metric: str, label: str, which: str) -> str:
        return f"max by (uid) (max_over_time({pool.series(metric, matcher(label, which, '=~'))}{within})) == 1"

    disrupted = "kube_pod_status_disruption_reason"
    flags = {
        "failed": true("kube_pod_status_phase", "phase", "Failed"),
        "succeeded": true("kube_pod_status_phase", "phase", "Succeeded"),
        "evicted": true(
            "kube_pod_status_reason", "reason", "Evicted|Shutdown|Terminated|Preempting"
        ),
        "preempted": true(disrupted, "reason", "PreemptionBy.*"),
        "drained": true(disrupted, "reason", "EvictionByEvictionAPI"),
        "memory": true("kube_pod_container_status_terminated_reason", "reason", "OOMKilled"),
    }
    return " or ".join(
        f'label_replace({query}, "fact", "{name}", "", "")' for name, query in flags.items()
    )


async def _exits(
    ask: Asking, pool: Pool, span: float, grid: str, step: float
) -> dict[str, tuple[Exit, ...]]:
    """Containers that ended and were started again, by uid of their pod: each where its time of start changes."""
    at: dict[tuple[tuple[str, str], float], float] = {}
    said: dict[tuple[tuple[str, str], float], int] = {}
    why: dict[tuple[tuple[str, str], float], str] = {}
    found: defaultdict[str, list[Exit]] = defaultdict(list)
    again = await ask(_started_again(pool, span, step))
    for some in _by_few({s.label("uid") for s in again.samples}):
        starts, ends, code, reason = await together(
            *(ask(query) for query in _ends(pool, some, grid, step))
        )
        at |= {(_container(s), t): value for s in ends.samples for t, value in s.points}
        said |= {(_container(s), t): round(value) for s in code.samples for t, value in s.points}
        latest = sorted(
            (value, _container(s), t, s.label("reason"))
            for s in reason.samples
            for t, value in s.points
        )
        why |= {
            (key, t): text for _, key, t, text in latest
        }  # one that is over may be told for a while
        for s in starts.samples:
            key = _container(s)
            for t, value in s.points:
                end = at.get((key, t), value - _LATE)
                if end <= value + 1:
                    found[key[0]].append(
                        Exit(
                            at=end,
                            again=value,
                            container=key[1],
                            code=said.get((key, t)),
                            reason=why.get((key, t), ""),
                        )
                    )
    return {
        uid: tuple(sorted(set(many), key=lambda one: (one.at, one.container)))
        for uid, many in found.items()
    }


def _started_again(pool: Pool, span: float, step: float) -> str:
    """Pods with a container that was started again, and that may have happened within the stretch.

    Its time of start changed, or was not known when the stretch began.
    """
    started = pool.series("kube_pod_container_state_started")
    wide = f"[{duration(span + step)}]"
    moved = f"{_in(f'max_over_time({started}{wide})')} != {_in(f'min_over_time({started}{wide})')}"
    fresh = f"{_in(f'last_over_time({started}[{duration(span)}])')} unless {_in(f'{started} offset {duration(span)}')}"
    restarts = pool.series("kube_pod_container_status_restarts_total")
    again = f"{_in(f'max_over_time({restarts}[{duration(span)}])')} > 0"
    return f"max by (uid) ((({moved}) or ({fresh})) and on ({_IN}) ({again}))"


def _ends(pool: Pool, some: str, grid: str, step: float) -> list[str]:
    """New times of start of these pods' containers, and what was said of their last end at each. [s]"""
    back = f"offset {duration(step)}"
    started = _in(pool.series("kube_pod_container_state_started", some))
    before = _in(pool.series("kube_pod_container_state_started", some) + f" {back}")
    again = f"({_in(pool.series('kube_pod_container_status_restarts_total', some))} > 0)"
    new = f"(({started} unless ({started} == {before})) and on ({_IN}) {again})"
    ended = _in(pool.series("kube_pod_container_status_last_terminated_timestamp", some))
    codes = _in(pool.series("kube_pod_container_status_last_terminated_exitcode", some))
    told = pool.series("kube_pod_container_status_last_terminated_reason", some)
    reasons = f"max by ({_IN}, reason) (timestamp({told}) and {told} == 1)"
    return [
        f"{new}{grid}",
        *(f"({one} and on ({_IN}) {new}){grid}" for one in (ended, codes, reasons)),
    ]


def _by_few(uids: Iterable[str]) -> list[str]:
    """Conditions that name these pods, some of them at a time."""
    every = sorted(uids)
    return [
        matcher("uid", any_of(every[at : at + _FEW]), "=~") for at in range(0, len(every), _FEW)
    ]


def _in(series: str) -> str:
    return f"max by ({_IN}) ({series})"


def _container(sample: Sample) -> tuple[str, str]:
    return sample.label("uid"), sample.label("exported_container") or sample.label("container")


def _labelled(pool: Pool, within: str) -> str:
    attempts = [one.attempt for one in POD_LABELS if one.attempt]
    slots = [label for one in POD_LABELS for label in one.slot]
    kept = ", ".join([_NAMES, *(one.job for one in POD_LABELS), *attempts, *slots])
    each = (
        f"count_over_time({pool.series('kube_pod_labels', matcher(one.job, '', '!='))}{within})"
        for one in POD_LABELS
    )
    return f"sum by ({kept}) ({' or '.join(each)})"


def _space(sample: Sample) -> str:
    return sample.label("exported_namespace") or sample.label("namespace")


def _stem(sample: Sample) -> str:
    """A pod's name without the five letters that are drawn for it."""
    name = sample.label("exported_pod") or sample.label("pod")
    stem, _, last = name.rpartition("-")
    return stem if len(last) == 5 and not last.isdigit() else name


def _slot(sample: Sample, labels: PodLabels) -> str:
    """The place that a pod fills: a JobSet's indices; else its name."""
    indices = [sample.label(label) for label in labels.slot]
    return "/".join(indices) if indices and all(indices) else _stem(sample)
