"""What is asked of a Workload that waits: what its job asks, of the size that there is room for."""

from __future__ import annotations

from dataclasses import replace

from mofa_model.kinds.shape import Body, at, mapping
from mofa_operator.keys import TRAINING_JOB, Key
from mofa_operator.observe.store import Store
from mofa_operator.snapshot import CheckSnapshot, JobSnapshot, Named, Question
from mofa_operator.workloads import LiveWorkload


def speaker(store: Store, workload: LiveWorkload) -> Key:
    """Who speaks for a Workload: the TrainingJob about its job, its job, or itself where nobody knows that."""
    job = workload.job
    if job is None:
        return workload.key
    name = store.owner(job)
    return job if name is None else Key(TRAINING_JOB, job.namespace, name)


def check_snapshot(
    store: Store,
    workload: LiveWorkload,
    checks: tuple[str, ...],
    now: float,
    named: Named,
) -> CheckSnapshot:
    """All that the answer of our checks needs; `now` in seconds of the epoch [s], `named` is what the speaker names."""
    found = store.snapshot(speaker(store, workload), now, named)
    job = found if isinstance(found, JobSnapshot) else None
    existing = store.snapshot(workload.job or workload.key, now, named)
    policies = existing.question.policies if isinstance(existing, JobSnapshot) else ()
    return CheckSnapshot(
        workload=workload,
        checks=checks,
        job=job,
        question=None if job is None else _sized(job, workload),
        policy=policies[0] if policies else None,
        selectors={one.key.name: one.asked.node_selector for one in store.profiles()},
        now=now,
    )


def _sized(job: JobSnapshot, workload: LiveWorkload) -> Question | None:
    """What a job asks, of the size that there is room for."""
    question, (room, asked) = job.question, workload.share
    if room == asked:
        return question
    if job.job.key.kind != TRAINING_JOB:
        policies = tuple(_of_any_kind(one) for one in question.policies)
        return replace(question, job={**question.job, **workload.admitted}, policies=policies)
    nodes = at(question.job, "spec", "cluster", "nodes")
    if not isinstance(nodes, int) or not asked or nodes * room % asked:
        return None
    spec = mapping(question.job.get("spec"))
    cluster = mapping(spec.get("cluster")) | {"nodes": nodes * room // asked}
    return replace(question, job={**question.job, "spec": spec | {"cluster": cluster}})


def _of_any_kind(policy: Body) -> Body:
    """A policy without the kinds that it lists: it was found by the job's, and a Workload is of another."""
    spec = {key: value for key, value in mapping(policy.get("spec")).items() if key != "kinds"}
    return {**policy, "spec": spec}
