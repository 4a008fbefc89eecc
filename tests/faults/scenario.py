"""The same actions of the same people on the same objects, so that two runs can be held against
each other.

Each phase is something that people do and what then stands. A clean run records what stands at the
end of each phase; a run under a fault must come to the same, whichever way it takes. Names are
fixed, so that everything in the objects that a name gets into is equal; what remains different
between two runs is the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from advisor import read
from mofa_local import LocalStackError, nodes
from mofa_local.processes import is_late
from operator_objects import QUICK, small_job
from ruamel.yaml import YAML

from mofa_model.annotations import PREFIX

EXAMPLE: Final = Path(__file__).resolve().parents[2] / "examples" / "h100-east.yaml"
PLACE: Final = "faults"
"""The namespace."""
POOL: Final = "faults"
"""The ClusterProfile, and the first part of its nodes' names."""
LABELS: Final = {"example.org/pool": POOL}
SIZE: Final = 4
KINDS: Final = "trainingjobs,jobsets.jobset.x-k8s.io,clusterprofiles"
"""What is compared; how many jobs a policy applies to is counted only now and then."""
EARLY: Final = frozenset({("aimed", "Recommended"), ("aimed", "LowConfidence")})
"""Events that are right where a JobSet is seen before the TrainingJob that is about it; which watch
is first, chance says.
"""
TIMES: Final = frozenset({"computedTime", "lastTransitionTime", "historyTime", "earlier", "lately"})
State = dict[str, Any]


def job(name: str, *, batch: int = 64, model: str = "llama3.1-8b", **spec: Any) -> dict[str, Any]:
    """A TrainingJob on two nodes; next to nothing is left to search."""
    made: dict[str, Any] = small_job(
        PLACE, name, POOL, batch=batch, **{"model": {"preset": model}, **spec}
    )
    return made


def job_set(name: str, **metadata: Any) -> dict[str, Any]:
    """A JobSet of two pods with eight GPUs each."""
    container = {"name": "c", "command": ["train"], "resources": {"limits": {"nvidia.com/gpu": 8}}}
    pods = {"spec": {"nodeSelector": LABELS, "containers": [container]}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": PLACE, **metadata},
        "spec": {
            "replicatedJobs": [
                {"name": "w", "template": {"spec": {"parallelism": 2, "template": pods}}}
            ]
        },
    }


def policy() -> dict[str, Any]:
    """JobSets are opted in, and what their commands do not say is said."""
    listed = [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}]
    training = {"model": "llama3.1-8b", "sequenceLength": 4096, "globalBatchSize": 64}
    return {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "AdvisorPolicy",
        "metadata": {"name": "policy", "namespace": PLACE},
        "spec": {"kinds": listed, "profile": POOL, "training": training, "constraints": QUICK},
    }


def profile() -> dict[str, Any]:
    """The pool of the examples, without its past."""
    body: dict[str, Any] = YAML(typ="safe").load(EXAMPLE.read_text())
    body.pop("status", None)
    body["metadata"] = {"name": POOL}
    body["spec"] |= {"nodeSelector": LABELS}
    return body


# ----------------------------------------------------------------------------------------------- people


def target(name: str) -> dict[str, Any]:
    return {"targetRef": {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": name}}


def arrive(cluster: Any) -> None:
    """Jobs of every outcome come."""
    cluster.apply(
        policy(),
        job_set("mine"),
        job_set("aimed"),
        job("good"),
        job("wide", cluster={"profile": POOL}),
        job("invalid", model="llama9-1t"),
        job("too-large", model="llama3.1-405b"),
        job("orphan", cluster={"profile": "nobody-has-it", "nodes": 2}),
        job("off", mode="Disabled"),
        job("aims", **target("aimed")),
    )


def change(cluster: Any) -> None:
    """People correct themselves, and a node fails."""
    cluster.apply(job("good", batch=128), job("invalid", batch=32), job("late", batch=256))
    nodes.fail(cluster, f"{POOL}-0")
    cluster.kubectl(
        "annotate", "--overwrite", "trainingjob", "too-large", "-n", PLACE, "example.org/owner=eddy"
    )


def leave(cluster: Any) -> None:
    """Jobs end, advice is not wanted any more, and the node comes back."""
    cluster.delete("trainingjobs", "late", namespace=PLACE)
    cluster.apply(job("aims", mode="Disabled", **target("aimed")), job("off"))
    nodes.recover(cluster, f"{POOL}-0")


PHASES: Final[tuple[Callable[[Any], None], ...]] = (arrive, change, leave)


def set_up(cluster: Any) -> None:
    """Namespace, nodes, profile: what is there before the jobs."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}})
    nodes.create(
        cluster, [nodes.node(f"{POOL}-{i}", labels=LABELS) for i in range(SIZE)], kwok=False
    )
    cluster.apply(profile())


def tear_down(cluster: Any) -> None:
    """Everything away, so that the next run begins where this one began; nothing holds it up."""
    for kind in ("trainingjobs", "jobsets.jobset.x-k8s.io", "advisorpolicies", "events"):
        cluster.delete(kind, namespace=PLACE)
    cluster.delete("clusterprofiles", POOL)
    cluster.delete("events", fields=f"involvedObject.name={POOL}")
    cluster.delete("nodes", labels=f"example.org/pool={POOL}")


# ---------------------------------------------------------------------------------------- what stands


def persist(act: Callable[[], Any], seconds: float = 60.0) -> Any:
    """People try again while the API server is away."""
    start = time.monotonic()
    while True:
        try:
            return act()
        except Exception as error:
            if is_late(start, seconds) or not _is_outage(error):
                raise
            time.sleep(0.3)


def _is_outage(error: Exception) -> bool:
    return isinstance(error, LocalStackError | OSError) or type(error).__module__.startswith(
        ("urllib3", "kubernetes")
    )


def state(cluster: Any) -> State:
    """What stands: of every object our annotations and the status, without times."""
    bodies = read(cluster, KINDS, PLACE)
    return {
        f"{body['kind']}/{body['metadata']['name']}": _shown(body)
        for body in bodies
        if _is_here(body)
    }


def is_answered(cluster: Any) -> bool:
    """Whether every TrainingJob has an outcome for the spec that it has now."""
    jobs = read(cluster, "trainingjobs", PLACE)
    return all(
        (body.get("status") or {}).get("observedGeneration") == body["metadata"]["generation"]
        for body in jobs
    )


def events(cluster: Any) -> set[tuple[str, str]]:
    """Which Events there are, as (object, reason)."""
    listed = read(cluster, "events", PLACE)
    elsewhere = read(cluster, "events", "default")
    listed += (event for event in elsewhere if event["involvedObject"].get("name") == POOL)
    return {(event["involvedObject"].get("name"), event["reason"]) for event in listed} - EARLY


def difference(state: State, wanted: State) -> str:
    """Where two states differ, in short lines."""
    lines = [
        f"{where}: {str(ours)[:120]} where {str(there)[:120]} should stand"
        for where, ours, there in _differences("", state, wanted)
    ]
    return "\n".join(
        [*lines[:12], *([f"... and {len(lines) - 12} more"] if len(lines) > 12 else [])]
    )


def _is_here(body: Mapping[str, Any]) -> bool:
    return bool(body["kind"] != "ClusterProfile" or body["metadata"]["name"] == POOL)


def _shown(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    return {
        "annotations": {
            key: value
            for key, value in annotations.items()
            if key.startswith(PREFIX) and key != PREFIX + "computed-at"
        },
        "status": _timeless(body.get("status") or {}),
        "finalizers": metadata.get("finalizers", []),
        "of this generation": (body.get("status") or {}).get("observedGeneration", 0)
        in {0, metadata["generation"]},
    }


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(member) for key, member in value.items() if key not in TIMES}
    return [_timeless(member) for member in value] if isinstance(value, list) else value


def _differences(where: str, state: Any, wanted: Any) -> Iterable[tuple[str, Any, Any]]:
    if isinstance(state, dict) and isinstance(wanted, dict):
        for key in sorted(state.keys() | wanted.keys()):
            yield from _differences(f"{where}.{key}", state.get(key), wanted.get(key))
    elif isinstance(state, list) and isinstance(wanted, list) and len(state) == len(wanted):
        for number, (ours, there) in enumerate(zip(state, wanted, strict=True)):
            yield from _differences(f"{where}[{number}]", ours, there)
    elif state != wanted:
        yield where, state, wanted
