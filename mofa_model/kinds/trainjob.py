"""TrainJob, of Kubeflow Trainer: a job without pods of its own, which its runtime makes as a JobSet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mofa_model.errors import InputError
from mofa_model.kinds.beside import NOTHING, Beside
from mofa_model.kinds.demand import Demand, PodSet
from mofa_model.kinds.kind import JobKind
from mofa_model.kinds.new_job import NewJob
from mofa_model.kinds.observation import Conditioned, Observation
from mofa_model.kinds.patches import NAME, Operation, pod_annotations, test
from mofa_model.kinds.runtime import TRAINER, TrainSpec, of_train_job
from mofa_model.kinds.shape import (
    Body,
    Many,
    Moment,
    Number,
    Shape,
    Tally,
    Text,
    glance,
    read,
    under,
)
from mofa_model.spec.recovery_classes import RecoveryClass

_TOKENS: Final = (
    "tokens_per_second",
    "tokens_per_sec",
    "train_tokens_per_second",
    "mofa_train_tokens_per_second",
)
_STEP: Final = ("step", "global_step", "train_step", "mofa_train_step")
_STEP_SECONDS: Final = ("step_seconds", "step_time_seconds", "mofa_train_step_seconds")


class _Child(Shape):
    ready: Tally = 0
    succeeded: Tally = 0
    failed: Tally = 0
    active: Tally = 0


class _Metric(Shape):
    name: Text = ""
    value: Number = 0.0


class _Status(Conditioned):
    jobs_status: Many[_Child] = ()
    metrics: Many[_Metric] = under((), "trainerStatus", "metrics")
    last_updated_time: Moment = under(None, "trainerStatus", "lastUpdatedTime")


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainJob(JobKind):
    """Its trainer section says it all, its patches say where, and the rest stands in its runtime."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """None of its own."""
        del spec
        return []

    def demand(self, spec: Body, beside: Beside = NOTHING) -> Demand:
        """What its trainer's section and its runtime say together."""
        return of_train_job(spec, beside)

    def observed(self, body: Body, now: float) -> Observation:
        """Its conditions, and how many pods run."""
        del now
        status = glance(_Status, body.get("status"))
        every = status.jobs_status
        whole = all(
            one.ready + one.succeeded >= max(1, one.active + one.succeeded + one.failed)
            for one in every
        )
        return status.observation(
            done="Complete", ready=whole if every else None, drop=RecoveryClass.POD
        )

    def reported(self, body: Body) -> tuple[float | None, Observation]:
        """By the names that trainers use."""
        status = glance(_Status, body.get("status"))
        values = {one.name: one.value for one in status.metrics if 0 < one.value < 1e15}

        def first(names: tuple[str, ...]) -> float | None:
            return next((values[name] for name in names if name in values), None)

        step, at = first(_STEP), status.last_updated_time
        return first(_TOKENS), Observation(
            step=None if step is None or at is None else int(step),
            step_at=at,
            step_seconds=first(_STEP_SECONDS),
        )

    def made(self, job: NewJob) -> list[dict[str, Any]]:
        """Its trainer section; nodes meet as the runtime for torchrun says it."""
        if job.files:
            raise InputError(
                f"a TrainJob has no place for the file {next(iter(job.files))}; make a JobSet or a PyTorchJob"
            )
        trainer = {
            "image": job.image,
            "numNodes": job.nodes,
            "numProcPerNode": job.gpus,
            "resourcesPerNode": job.limits(),
            "command": ["torchrun"],
            "args": list(job.words),
            "env": job.variables(),
        }
        spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
        return [{**job.head(self.api_version, self.kind), "spec": spec}]

    def written(self, body: Body, arguments: Sequence[str], steps: str) -> list[Operation]:
        """The entry of its runtime patches that is ours: annotations of the trainer's pods."""
        pods = {"metadata": {"annotations": pod_annotations(arguments, steps)}}
        trainer = {"name": TRAINER, "template": {"spec": {"template": pods}}}
        runtime = {"template": {"spec": {"replicatedJobs": [trainer]}}}
        wanted = {"manager": NAME, "trainingRuntimeSpec": runtime}
        path, stands = "/spec/runtimePatches", read(TrainSpec, body.get("spec")).runtime_patches
        if stands is None:
            return [test(path, None), {"op": "add", "path": path, "value": [wanted]}]
        number = next((number for number, one in enumerate(stands) if one.manager == NAME), None)
        if number is None:
            return [{"op": "add", "path": path + "/-", "value": wanted}]
        if stands[number].training_runtime_spec == runtime:
            return []
        here = f"{path}/{number}"
        return [test(here + "/manager", NAME), {"op": "replace", "path": here, "value": wanted}]


def _patches(which: str, by: str) -> str:
    return f'variables.{which}.?runtimePatches.orValue([]).filter(p, p.manager {by} "{NAME}")'


TRAIN_JOB = TrainJob(
    "trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs",
    word="trainjob",
    setting="TrainJob",
    title="TrainJob",
    names=("runtimeRef",),
    holds="spec.trainer.resourcesPerNode",
    place="the annotations of a JobSet, on the pods of `node`, in the entry of its `runtimePatches` whose manager is `mofa.dev/advisor`",
    changes="runtimePatches",
    admits=f"""\
{_patches("old", "!=")}
  == {_patches("new", "!=")}
&& {_patches("new", "==")}.all(p,
  p.all(k, k in ["manager", "time", "trainingRuntimeSpec"])
  && p.trainingRuntimeSpec.all(k, k == "template") && p.trainingRuntimeSpec.template.all(k, k == "spec")
  && p.trainingRuntimeSpec.template.spec.all(k, k == "replicatedJobs")
  && p.trainingRuntimeSpec.template.spec.replicatedJobs.all(j, j.all(k, k in ["name", "template"])
    && j.template.all(k, k == "spec") && j.template.spec.all(k, k == "template")
    && j.template.spec.template.all(k, k == "metadata") && j.template.spec.template.metadata.all(k, k == "annotations")
    && j.template.spec.template.metadata.annotations.all(k, k in variables.told)))""",
)  # fmt: skip
