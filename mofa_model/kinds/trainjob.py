"""TrainJob, of Kubeflow Trainer: its section of the trainer, laid over the runtime that it names.

The runtime is a JobSet with holes. Its job for training is `node`, or the one with the label of the
trainer's step. The number of that job's pods is `numNodes`; resources, image and command of its
container `node` are the trainer's where it states any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from mofa_model.annotations import SIZE
from mofa_model.errors import InputError
from mofa_model.kinds.demand import ELSEWHERE, Demand, PodSet, total, unresolved
from mofa_model.kinds.jobset import JOB_SET, JOB_SET_NAME, ReplicatedJob, replicated_pods
from mofa_model.kinds.kind import ConditionedStatus, JobKind, NewJob, Observation
from mofa_model.kinds.patches import NAME, Operation, pod_annotations, same, test, texts_of
from mofa_model.kinds.pods import Container, Devices, Others, PodSpec, PodTemplate, torchrun
from mofa_model.kinds.reads import read_by
from mofa_model.kinds.shape import (
    NO_OBJECTS,
    Body,
    Count,
    Kind,
    Labels,
    Line,
    Many,
    Moment,
    Number,
    Reference,
    ReferencedObjects,
    Shape,
    Tally,
    Text,
    Whole,
    at,
    glance,
    items,
    mapping,
    part,
    read,
    text_of,
    under,
)
from mofa_model.launch import rewritten
from mofa_model.spec.recovery_classes import RecoveryClass

TRAINING_RUNTIME: Final = Kind(
    "trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes"
)
CLUSTER_TRAINING_RUNTIME: Final = Kind(
    "trainer.kubeflow.org",
    "v1alpha1",
    "ClusterTrainingRuntime",
    "clustertrainingruntimes",
    namespaced=False,
)
TRAINER: Final = "node"
"""The trainer's job, and its container, in the runtimes of Kubeflow."""
_ANCESTOR: Final = "trainer.kubeflow.org/trainjob-ancestor-step"


class _Override(Shape):
    """How pods of the runtime differ, as older releases have it."""

    spec: PodSpec = PodSpec()


class Patch(Shape):
    """How the runtime differs, as newer releases have it."""

    manager: Text = ""
    training_runtime_spec: object = None
    jobs: Many[ReplicatedJob] = under(
        (), "trainingRuntimeSpec", "template", "spec", "replicatedJobs"
    )


class TrainSpec(Shape):
    """The spec of a TrainJob."""

    runtime: Text = under("", "runtimeRef", "name")
    runtime_kind: Text = under(CLUSTER_TRAINING_RUNTIME.kind, "runtimeRef", "kind")
    nodes: Count | None = under(None, "trainer", "numNodes")
    processes: Whole = under(0, "trainer", "numProcPerNode")
    resources: object = under(None, "trainer", "resourcesPerNode")
    gpus: Devices = under(0, "trainer", "resourcesPerNode")
    others: Others = under({}, "trainer", "resourcesPerNode")
    image: Text = under("", "trainer", "image")
    command: Line = under(None, "trainer", "command")
    model: Text = under("", "initializer", "model", "storageUri")
    args: Line = under(None, "trainer", "args")
    pod_template_overrides: Many[_Override] = ()
    runtime_patches: Many[Patch] | None = None

    @property
    def reference(self) -> Reference:
        """The runtime that it names."""
        namespaced = self.runtime_kind == TRAINING_RUNTIME.kind
        kind = TRAINING_RUNTIME if namespaced else CLUSTER_TRAINING_RUNTIME
        return Reference(kind, self.runtime)


class _Job(ReplicatedJob):
    step: Labels = under({}, "template", "metadata", "labels")


class _Runtime(Shape):
    nodes: Count | None = under(None, "mlPolicy", "numNodes")
    processes: Whole = under(0, "mlPolicy", "torch", "numProcPerNode")
    least: Count | None = under(None, "mlPolicy", "torch", "elasticPolicy", "minNodes")
    most: Count | None = under(None, "mlPolicy", "torch", "elasticPolicy", "maxNodes")
    jobs: Many[_Job] = under((), "template", "spec", "replicatedJobs")


def of_train_job(spec: Body, referenced: ReferencedObjects) -> Demand:
    """What the trainer's section asks for; its runtime says what that leaves open."""
    job = read(TrainSpec, spec)
    reference = job.reference
    runtime_spec = referenced.spec(reference) if job.runtime else None
    path = f"{reference}: spec"
    runtime = _Runtime() if runtime_spec is None else read(_Runtime, runtime_spec, path)
    demand = _total(job, runtime, path, referenced)
    if runtime_spec is not None or demand.missing:
        return demand
    if demand.gpus and (job.nodes is not None or torchrun(demand.words) is not None):
        # enough for an answer; whether a container reads launch arguments, the runtime says
        return replace(demand, missing=(reference,)) if job.runtime else demand
    if job.runtime:
        return unresolved(
            replace(demand, gpus=0, gpus_per_pod=0), reference, "spec.runtimeRef.name"
        )
    unread = "spec.trainer.numNodes: is missing"
    if job.nodes is not None:
        unread = demand.unread.partition(";")[0]
    return replace(demand, gpus=0, gpus_per_pod=0, unread=f"{unread}; give it, or {ELSEWHERE}")


def _total(job: TrainSpec, runtime: _Runtime, path: str, referenced: ReferencedObjects) -> Demand:
    """The trainer's pods and those of the runtime's other jobs."""
    number = _trainer_index(runtime.jobs)
    base = None if number is None else runtime.jobs[number].pods
    # An elastic runtime has no other number than its least.
    node_counts = (job.nodes, runtime.nodes, runtime.least)
    nodes = next((count for count in node_counts if count is not None), None)
    sets = replicated_pods(runtime.jobs, f"{path}.template.spec")
    where = sets[number].where if number is not None and job.resources is None else "spec.trainer"
    trainer = PodSet(
        where=where,
        template=PodTemplate(spec=_trainer_pod(job, (base or PodTemplate()).spec)),
        counted="spec.trainer.numNodes",
        asks="spec.trainer.resourcesPerNode",
        count=1 if nodes is None else nodes,
        least=runtime.least,
        most=runtime.most,
    )
    others = [pods for pods, other in zip(sets, runtime.jobs, strict=True) if not _trains(other)]
    each = job.processes or runtime.processes
    demand = total([trainer, *others], referenced, pods_path=where, nodes=nodes or 0, each=each)
    selector = dict(demand.selector)
    for pods in _changed_pods(job):
        selector |= pods.selector
    words_path = demand.words_path
    if job.args or job.command:
        words_path = "spec.trainer.args" if job.args else "spec.trainer.command"
    return replace(demand, selector=selector, words_path=words_path, model=job.model)


def _trainer_pod(job: TrainSpec, pods: PodSpec) -> PodSpec:
    """The trainer's section laid over a pod of the runtime."""
    number = next(
        (index for index, container in enumerate(pods.containers) if container.name == TRAINER), 0
    )
    containers = list(pods.containers) or [Container(name=TRAINER)]
    section = {"image": job.image, "command": job.command, "args": job.args}
    changed: dict[str, object] = {name: value for name, value in section.items() if value}
    if job.resources is not None:
        changed |= {"gpus": job.gpus, "others": job.others}
    containers[number] = containers[number].model_copy(update=changed)
    return pods.model_copy(update={"containers": tuple(containers)})


def _trains(job: _Job) -> bool:
    """Whether a job of a runtime is the trainer's nodes, or the launcher, which counts as one."""
    return job.name in {TRAINER, "launcher"} or job.step.get(_ANCESTOR) == "trainer"


def _trainer_index(jobs: Sequence[_Job]) -> int | None:
    """The job of a runtime whose pods are the trainer's nodes."""
    by_name = (number for number, job in enumerate(jobs) if job.name == TRAINER)
    return next(by_name, next((number for number, job in enumerate(jobs) if _trains(job)), None))


def _changed_pods(job: TrainSpec) -> list[PodSpec]:
    """How pods of the runtime differ."""
    patches = [
        patched.pods.spec
        for patch in job.runtime_patches or ()
        for patched in patch.jobs
        if patched.pods
    ]
    return [*(override.spec for override in job.pod_template_overrides), *patches]


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


class _Status(ConditionedStatus):
    jobs_status: Many[_Child] = ()
    metrics: Many[_Metric] = under((), "trainerStatus", "metrics")
    last_updated_time: Moment = under(None, "trainerStatus", "lastUpdatedTime")


class TrainJob(JobKind):
    """It has no pods of its own: its runtime makes them as a JobSet."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """No pods: those of a TrainJob are of its runtime and its trainer's section."""
        del spec
        return []

    def demand(self, spec: Body, referenced: ReferencedObjects = NO_OBJECTS) -> Demand:
        """What its trainer's section and its runtime say together."""
        return of_train_job(spec, referenced)

    def observed(self, body: Body, now: float) -> Observation:
        """Its conditions, and how many pods run."""
        del now
        status = glance(_Status, body.get("status"))
        children = status.jobs_status
        is_whole = all(
            child.ready + child.succeeded >= max(1, child.active + child.succeeded + child.failed)
            for child in children
        )
        return status.observation(ready=is_whole if children else None, drop=RecoveryClass.POD)

    def reported(self, body: Body) -> tuple[float | None, Observation]:
        """Tokens per second and steps from the status, by the names that trainers use. [1/s]"""
        status = glance(_Status, body.get("status"))
        values = {metric.name: metric.value for metric in status.metrics if 0 < metric.value < 1e15}

        def first(names: tuple[str, ...]) -> float | None:
            return next((values[name] for name in names if name in values), None)

        step, updated = first(_STEP), status.last_updated_time
        return first(_TOKENS), Observation(
            step=None if step is None or updated is None else int(step),
            step_at=updated,
            step_seconds=first(_STEP_SECONDS),
        )

    def manifests(self, job: NewJob) -> list[dict[str, Any]]:
        """Its trainer section; nodes meet as the runtime for torchrun says it."""
        if job.files:
            raise InputError(
                f"a TrainJob has no place for the file {next(iter(job.files))}; "
                "make a JobSet or a PyTorchJob"
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

    def states_size(self, spec: Body) -> bool:
        """Whether its own section has nodes or devices; a runtime's are defaults."""
        job = read(TrainSpec, spec)
        return job.nodes is not None or bool(job.gpus) or bool(job.processes)

    def size_patch(
        self, body: Body, nodes: int, gpus: int, resource: str, arguments: Sequence[str]
    ) -> list[Operation]:
        """Nodes, resources, processes and arguments of its section.

        Trainer has made a JobSet of the runtime's size by then, whose pods cannot change; it makes
        it anew once that one is deleted.
        """
        trainer = at(body, "spec", "trainer")
        section = mapping(trainer)
        command, args = (texts_of(section.get(key)) for key in ("command", "args"))
        if not args:
            raise InputError(
                "spec.trainer.args: is missing, so there is nothing to write the layout's "
                "arguments into; give the program and its arguments there"
            )
        after = rewritten((*command, *args), arguments)
        if after[: len(command)] != tuple(command):
            raise InputError(
                "the layout's arguments are in spec.trainer.command; write them into args"
            )
        resources = part(section, "resourcesPerNode")
        limits = {**part(resources, "limits"), resource: str(gpus)}
        section |= {
            "numNodes": nodes,
            "numProcPerNode": gpus,
            "resourcesPerNode": {**resources, "limits": limits},
            "args": list(after[len(command) :]),
        }
        path = "/spec/trainer"
        return [test(path, trainer), {"op": "add", "path": path, "value": section}]

    def outdated(self, body: Body, child: Body) -> bool:
        """Whether its JobSet has other nodes, devices or arguments for the trainer."""
        job = read(TrainSpec, body.get("spec"))
        jobset = glance(_Runtime, {"template": {"spec": child.get("spec")}})
        number = _trainer_index(jobset.jobs)
        if number is None or job.nodes is None:
            return False
        trainer_job = jobset.jobs[number]
        pods = trainer_job.pods.spec if trainer_job.pods is not None else PodSpec()
        gpus = max((container.gpus for container in pods.containers), default=0)
        args = next(
            (container.args for container in pods.containers if container.name == TRAINER), None
        )
        return (trainer_job.parallelism, gpus, args) != (job.nodes, job.gpus, job.args)

    def pod_selector(self, body: Body) -> str:
        """The pods of its JobSet, which has its name."""
        return f"{JOB_SET_NAME}={text_of(at(body, 'metadata', 'name'))}"

    def launch_patch(
        self,
        body: Body,
        arguments: Sequence[str],
        steps: str,
        referenced: ReferencedObjects = NO_OBJECTS,
    ) -> list[Operation]:
        """The patch that sets our entry of `runtimePatches`, which annotates the trainer's pods.

        Its args are left alone: Trainer makes the JobSet at once, suspended, and that one's
        containers never change; with other args here it would not be resumed any more.
        """
        job, template = _trainer_pods(body, referenced)
        read_by([("spec.trainer", template)])
        pods = {"metadata": {"annotations": pod_annotations(arguments, steps)}}
        trainer = {"name": job, "template": {"spec": {"template": pods}}}
        runtime = {"template": {"spec": {"replicatedJobs": [trainer]}}}
        entry = {"manager": NAME, "trainingRuntimeSpec": runtime}
        path, patches = "/spec/runtimePatches", read(TrainSpec, body.get("spec")).runtime_patches
        if patches is None:
            return [test(path, None), {"op": "add", "path": path, "value": [entry]}]
        number = next(
            (number for number, patch in enumerate(patches) if patch.manager == NAME), None
        )
        if number is None:
            return [{"op": "add", "path": path + "/-", "value": entry}]
        if patches[number].training_runtime_spec == runtime:
            return []
        entry_path = f"{path}/{number}"
        return [
            test(entry_path + "/manager", NAME),
            {"op": "replace", "path": entry_path, "value": entry},
        ]


def _trainer_pods(body: Body, referenced: ReferencedObjects) -> tuple[str, object]:
    """The job of a TrainJob's runtime that trains, and its pods with the trainer's section."""
    reference = read(TrainSpec, body.get("spec")).reference
    runtime_spec = referenced.spec(reference) if reference.name else None
    if runtime_spec is None:
        raise InputError(
            f"spec.runtimeRef.name: {reference} is not here, so nobody can tell whether its "
            "container reads the launch arguments; create it, and let the operator read it"
        )
    number = _trainer_index(glance(_Runtime, runtime_spec).jobs)
    if number is None:
        raise InputError(f"{reference}: it has no job for the trainer's nodes")
    job = items(at(runtime_spec, "template", "spec", "replicatedJobs"))[number]
    pods = part(job, "template", "spec", "template", "spec")
    containers = items(pods.get("containers")) or [{"name": TRAINER}]
    names = [text_of(container.get("name")) for container in containers]
    position = names.index(TRAINER) if TRAINER in names else 0
    section = part(body, "spec", "trainer")
    env = [*items(containers[position].get("env")), *items(section.get("env"))]
    lines = {key: section[key] for key in ("command", "args") if section.get(key)}
    containers[position] = {**containers[position], **lines, "env": env}
    return text_of(job.get("name")), {"spec": {**pods, "containers": containers}}


def _patches(which: str, by: str) -> str:
    return f'variables.{which}.?runtimePatches.orValue([]).filter(p, p.manager {by} "{NAME}")'


TRAIN_JOB = TrainJob(
    "trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs",
    word="trainjob",
    setting="TrainJob",
    title="TrainJob",
    names=("runtimeRef",),
    pods_path="spec.trainer.resourcesPerNode",
    arguments_note="the annotations of a JobSet, on the pods of `node` where their container reads "
    "them, in the entry of its `runtimePatches` whose manager is `mofa.dev/advisor`",
    changed_field="runtimePatches",
    child=JOB_SET,
    size_rule=f"""\
variables.before[?"{SIZE}"].hasValue()
&& {same("variables.old", "variables.new", "trainer")}
&& !variables.old.?trainer.?numNodes.hasValue()
&& {same(
    "variables.old.?trainer.orValue({})", "variables.new.?trainer.orValue({})",
    "numNodes", "numProcPerNode", "resourcesPerNode", "args",
)}""",
    change_rule=f"""\
{_patches("old", "!=")}
  == {_patches("new", "!=")}
&& {_patches("new", "==")}.all(p,
  p.all(k, k in ["manager", "time", "trainingRuntimeSpec"])
  && p.trainingRuntimeSpec.all(k, k == "template")
  && p.trainingRuntimeSpec.template.all(k, k == "spec")
  && p.trainingRuntimeSpec.template.spec.all(k, k == "replicatedJobs")
  && p.trainingRuntimeSpec.template.spec.replicatedJobs.all(j, j.all(k, k in ["name", "template"])
    && j.template.all(k, k == "spec") && j.template.spec.all(k, k == "template")
    && j.template.spec.template.all(k, k == "metadata")
    && j.template.spec.template.metadata.all(k, k == "annotations")
    && j.template.spec.template.metadata.annotations.all(k, k in variables.told)))""",
)  # fmt: skip
