"""An object as what it is: its class with the reason, and its facts, each with its source."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

from mofa_model.annotations import RUNS
from mofa_model.axes.frameworks import framework, trainer_called
from mofa_model.errors import BadFile, InputError
from mofa_model.identity.classes import (
    ONLY_OF,
    ClassVerdict,
    Clue,
    JobClass,
    class_of,
    clues_of,
    clues_of_runtime,
)
from mofa_model.identity.commands import (
    PlacedVariable,
    ProgramCall,
    Said,
    TextFile,
    merged,
    programs,
    read_container,
    read_text,
)
from mofa_model.identity.devices import DeviceRequest, asks, devices_of, elsewhere
from mofa_model.identity.fact import OFF, Fact
from mofa_model.identity.facts import HUGGING_FACE, FactSheet, FactSources, read_facts
from mofa_model.identity.named_models import in_a_name, is_known
from mofa_model.identity.pods import (
    PodForm,
    WrittenContainer,
    initializes_model,
    number,
    pods_of,
    trains,
    with_parameters,
)
from mofa_model.identity.recipes import own_arguments
from mofa_model.identity.secret_words import is_secret
from mofa_model.identity.settings import Setting, settings_of
from mofa_model.kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME, demand_of, job_kind
from mofa_model.kinds.shape import NOTHING, Beside, Reference, part, text_of
from mofa_model.launch import Reading, read
from mofa_model.launch.tuning import ALL_LINEAR
from mofa_model.records import dataclass

ConfigMaps = Mapping[str, Mapping[str, Any]]
"""Data of the namespace's ConfigMaps that may be read, by name."""
_SERVER_PORTS: Final = frozenset({80, 443, 3000, 7860, 8000, 8001, 8080, 8443, 8888, 9000, 30000})
"""Ports on which model servers and web servers listen by default."""
_SERVED: Final = frozenset(
    {
        "Deployment",
        "StatefulSet",
        "LeaderWorkerSet",
        "DaemonSet",
        "ReplicaSet",
        "CronJob",
        "Workflow",
    }
)
"""Kinds that serve, wait or start others."""
_SERVING: Final = frozenset({"RayService", "InferenceService", "ServingRuntime"})
"""Kinds that serve models, whatever they run."""
_RUNTIMES: Final = frozenset({TRAINING_RUNTIME.kind, CLUSTER_TRAINING_RUNTIME.kind})
_ASKS_MODEL: Final = frozenset(
    {"model_name_or_path", "base_model", "student_model", "pretrained_model_name_or_path"}
)
_NETWORKS: Final = frozenset(
    {"arch", "architecture", "backbone", "network", "net", "model_arch", "config_name"}
)
"""Options by which trainers of images, speech and graphs name a network."""
_NO_DEVICES: Final = frozenset({"no_cuda", "use_cpu"})
"""Options by which a trainer leaves GPUs alone."""
_SEES: Final = frozenset({"vision_tower", "vision_model", "vision_encoder"})
"""Options that only a model of images and language has."""
_LEARNS: Final = re.compile(
    r"(learning_rate|lr|min_lr|epochs|num_(train_)?epochs|train_(steps|iters|samples)|warmup\w*"
    r"|weight_decay|optimi[sz]er|optim|adam\w*|gradient_accumulation\w*|grad_accum\w*|save_steps"
    r"|lora_\w+|grad_clip|\w*train_(micro_)?batch_size\w*|micro_batch_size|training_args)$"
)
"""Options that only training has: without one a program that is not known does not learn."""
_EPOCHS: Final = frozenset(
    {"num_train_epochs", "num_epochs", "epochs", "max_epochs", "max_duration"}
)
_SPEAKS: Final = frozenset(
    {"sequence_length", "accumulation", "micro_batch", "global_batch", "shape", "parallel"}
)
"""Facts that the training of language models has; three of them tell it apart."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What an object is, and what it says."""

    job_class: JobClass
    reason: str
    """Why, in one line: where what it runs stands, and what that is."""
    sure: bool = True
    """Whether a known program or image says it; False = it is the best guess."""
    may_train: bool = True
    """Whether a policy may say what it trains: not where its program shows nothing of training."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    hugging_face: bool = False
    """Whether its settings are those of Hugging Face's Trainer, whatever its script is called."""
    device_request: DeviceRequest = field(default_factory=DeviceRequest)
    disagree: tuple[str, ...] = ()
    """Contradictions within the object, each in one sentence."""
    launch_found: LaunchFound | None = None
    """What a known trainer is told; None where there is none."""
    program_calls: tuple[ProgramCall, ...] = ()
    """Every command that its containers run."""

    def as_person_says(self, job_class: JobClass, where: str) -> Identity:
        """The same with the class that a person gives it."""
        return replace(self, job_class=job_class, reason=f"{where} says {job_class}", sure=True)


def identify(
    body: Mapping[str, Any], beside: Beside = NOTHING, config_maps: ConfigMaps | None = None
) -> Identity:
    """The class and the facts of an object; what it names is in `beside` and `config_maps`.

    >>> pod = {"containers": [{"image": "nginx", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
    >>> job = {"kind": "Job", "metadata": {"name": "web"}, "spec": {"template": {"spec": pod}}}
    >>> identify(job).job_class.value
    'web-or-other'
    """
    spec, is_workflow = part(body, "spec"), text_of(body.get("kind")) in _WORKFLOWS
    spec = with_parameters(spec) if is_workflow else spec
    reader = _Reader(config_maps or {})
    pods = _pods(body, spec, beside)
    pods = _training_step(pods, reader) if is_workflow else pods
    speaking = _speaking(pods)
    entry = reader.entrypoint(spec) if text_of(body.get("kind")) == "RayJob" else []
    if not pods and not entry:
        entry = _of_kind(body, beside)
    said = merged([*entry, *(reader.pod(pod) for pod in speaking)])
    rest = merged([reader.pod(pod) for pod in pods if pod not in speaking])
    prepared = merged([reader.prepares(pod) for pod in pods])
    containers = [one for pod in speaking for one in pod.containers]
    evidence = clues_of(said, containers)
    if not any(one.weight > 30 and one.job_class for one in evidence):
        evidence = sorted([*evidence, *clues_of(rest, [])], key=lambda one: -one.weight)
    if _lacks_runtime(spec, beside):
        named = clues_of_runtime(_runtime_of(spec).name, "spec.runtimeRef.name")
        evidence = sorted([*evidence, *named], key=lambda one: -one.weight)
    seen = _seen(spec, pods, beside, evidence, said, merged([rest, prepared]))
    reading = read_facts(seen)
    facts = dict(reading.facts)
    launch = _of_trainer(launch_of(said), facts.get("trainer"))
    if launch is not None:
        facts = {**facts_of_launch(launch, facts), **facts}
    ran = _seen_to_run(body)
    if ran is not None:
        told = launch_of(ran)
        launch = told if told is not None and _DEGREES & told.reading.layout.keys() else launch
        learned = read_facts(seen._replace(settings=settings_of(ran), words=[], fetched=[])).facts
        own = {} if launch is None else facts_of_launch(launch, facts)
        facts = {**_stated(learned), **own, **facts}
    reading = replace(reading, facts=facts)
    verdict = _verdict(
        body, evidence, reading, seen, speaking, containers, makes=bool(pods or entry)
    )
    return Identity(
        launch_found=launch,
        program_calls=tuple(said.program_calls),
        job_class=verdict.job_class,
        reason=verdict.reason,
        sure=verdict.sure,
        may_train=verdict.may_train,
        facts=reading.facts,
        hugging_face=any(one.key in HUGGING_FACE for one in seen.settings),
        device_request=seen.device_request,
        disagree=reading.disagree,
    )


_WORKFLOWS: Final = frozenset({"Workflow", "WorkflowTemplate", "CronWorkflow"})


def _training_step(pods: list[PodForm], reader: _Reader) -> list[PodForm]:
    """The one step of a workflow that trains; all where none does, or several do."""

    def trains_model(pod: PodForm) -> bool:
        best = next(
            (one for one in clues_of(reader.pod(pod), pod.containers) if one.job_class), None
        )
        return best is not None and JobClass(best.job_class).trains

    found = [pod for pod in pods if asks(pod) and trains_model(pod)]
    return found if len(found) == 1 else pods


def _of_trainer(found: LaunchFound | None, trainer: Fact | None) -> LaunchFound | None:
    """What a trainer is told, unless another one is known to run: trainers share some options."""
    runs = "" if trainer is None else trainer_called(str(trainer.value))
    if found is None or not runs:
        return found
    family = {framework(one).engine for one in (runs, found.reading.trainer)}
    return found if len(family) == 1 else None


def _of_kind(body: Mapping[str, Any], beside: Beside) -> list[Said]:
    """The command of a known kind whose pods have a form of their own, as that kind reads it."""
    if job_kind(text_of(body.get("apiVersion")), text_of(body.get("kind"))) is None:
        return []
    try:
        demand = demand_of(body, beside)
    except InputError:  # who needs the demand is told why
        return []
    return [read_container(list(demand.words), None, demand.said, {}, {})] if demand.words else []


_LEARNED: Final = frozenset(
    {
        "model",
        "shape",
        "sequence_length",
        "global_batch",
        "micro_batch",
        "accumulation",
        "precision",
    }
)
"""Facts that are learned from what a job's processes are told."""


_DEGREES: Final = frozenset({"tp", "pp", "cp", "ep", "mbs"})
"""Fields of a layout of which one at least is said where a layout is."""


def _stated(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    return {name: fact for name, fact in facts.items() if name in _LEARNED}


def _seen_to_run(body: Mapping[str, Any]) -> Said | None:
    """What the processes of an object were seen to be told, as its annotation has it."""
    line = part(body, "metadata", "annotations").get(RUNS)
    if not isinstance(line, str):
        return None
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    return read_container(words, None, f"annotation {RUNS}", {}, {}) if words else None


class LaunchFound(NamedTuple):
    """What a known trainer is told, by its command or by its files."""

    reading: Reading
    words: tuple[str, ...]
    """The words of the command; empty where a file says a part."""
    where: str


def launch_of(said: Said) -> LaunchFound | None:
    """What the command or the file of a known trainer says, and where it stands.

    >>> said = read_text("torchrun pretrain_gpt.py --tensor-model-parallel-size 8", "x", {}, {})
    >>> launch_of(said).reading.layout["tp"]
    8
    """
    files = {source.name.rpartition("/")[2]: source for source in said.files}
    for command in programs(said):
        opened = list[TextFile]()
        own = tuple(one.text for one in own_arguments(command, said.variables))
        texts = (command.texts[0], *own, *command.texts[1:])  # the job's own words are the last
        for open_file in (partial(_opened, files, opened), None):
            try:
                reading = read(texts, open_file)
            except InputError:  # it is no command of a trainer that is known, or its file is not
                opened.clear()
                continue
            words = () if opened else texts
            named = (
                one.where
                for one in command.words
                if reading.recipe and one.text.endswith(reading.recipe)
            )
            where = opened[0].where if opened else next(named, command.where)
            return LaunchFound(reading, words, where)
    for source in said.files:
        try:
            found = read((source.name,), partial(_opened, files, []))
        except InputError:
            continue
        return LaunchFound(found, (), source.where)
    return None


def launch_in_pod(pod: Mapping[str, Any]) -> LaunchFound | None:
    """What a known trainer is told in a pod as it runs: its variables have their values."""
    template = {"metadata": part(pod, "metadata"), "spec": part(pod, "spec")}
    reader = _Reader({})
    return launch_of(merged([reader.pod(one) for one in pods_of(template, "")]))


def _opened(files: Mapping[str, TextFile], opened: list[TextFile], name: str) -> str:
    """The text of a file that is here; it is remembered that it was read."""
    source = files.get(name.rpartition("/")[2])
    if source is None:
        raise BadFile(name, "it is not in a ConfigMap of the job")
    opened.append(source)
    return source.text


def facts_of_launch(launch_found: LaunchFound, facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Facts that the settings by their names do not say."""
    reading, devices = launch_found.reading, facts.get("devices")
    given: dict[str, object] = {
        "sequence_length": reading.sequence,
        "global_batch": reading.global_batch,
    }
    if reading.tuning is not None:
        given["adapter_rank"] = reading.tuning.rank or None
        given["base"] = reading.tuning.base or None
        targets = reading.tuning.targets
        given["adapter_targets"] = (
            "all" if targets == ALL_LINEAR else ",".join(sorted(targets)) or None
        )
    size = reading.layout.get("mbs")
    if reading.rounds and size and devices is not None:
        taken = reading.layout.get("tp", 1) * reading.layout.get("cp", 1)
        given["global_batch"] = size * reading.rounds * (devices.value // taken)
    return {
        name: Fact(value, launch_found.where) for name, value in given.items() if value is not None
    }


def _seen(
    spec: Mapping[str, Any], pods: Sequence[PodForm], beside: Beside, evidence: Sequence[Clue],
    said: Said, others: Said,
) -> FactSources:  # fmt: skip
    """What the facts of an object are read from."""
    settings = settings_of(said)
    devices = devices_of(pods, beside, _processes(settings))
    if not devices.vendor and "clusterSelector" in spec:
        devices = elsewhere(pods, said.variables)
    trainers = [one for one in evidence if one.trainer]
    by = next((one for one in trainers if one.trainer != "composer"), next(iter(trainers), None))
    sft = any(re.match(r"sft(_args|_config)?\.", one.path) for one in settings)
    sft = sft or any(one.trainer == "trl" for one in trainers)
    if by is not None and by.trainer == "accelerate" and sft:
        by = by._replace(trainer="trl")  # what is called SFT under Accelerate is TRL's
    if by is not None and by.trainer == "custom" and by.where.endswith(".image"):
        by = None  # an image for tuning does not say with what
    launchers = {word for command in said.program_calls for word in command.texts[:2]}
    starts = [word for command in said.program_calls for word in command.texts[:8]]
    whole = [*programs(said), *programs(others)]
    first = said.program_calls[0].where if said.program_calls else "the image"
    return FactSources(
        settings=settings,
        others=[*settings_of(others), *_of_object(spec), *_initialized(pods)],
        words=[pair for command in whole for pair in started(command)] + _configured(said),
        fetched=[pair for command in whole for pair in _fetched(command)],
        device_request=devices,
        trainer=by.trainer if by else _own_trainer(settings, launchers, said),
        torch=any(_PROCESS_LAUNCHER.search(word) for word in starts),
        image=(by.found, by.where) if by else ("", first),
        elsewhere="clusterSelector" in spec or devices.unread or _lacks_runtime(spec, beside),
    )


def _configured(said: Said) -> list[tuple[str, str]]:
    """Files of settings that variables name, as `CONFIG_FILE` does, and where that stands."""
    return [
        (one.value, one.where)
        for one in said.variables.values()
        if _SETTINGS_FILE.search(one.value)
        and _CONFIGURES.search(f"{one.name}/{one.value}")
        and is_known(in_a_name(one.value))
    ]


_SETTINGS_FILE: Final = re.compile(r"\.(ya?ml|toml|json)$")
_CONFIGURES: Final = re.compile(r"(^|[/_])(config|conf|recipe|experiment|exp)", re.IGNORECASE)
"""Names of variables and folders whose files say how a trainer is set."""


def _lacks_runtime(spec: Mapping[str, Any], beside: Beside) -> bool:
    """Whether a TrainJob's runtime, which may ask for its devices, is not here."""
    reference = _runtime_of(spec)
    return bool(reference.name) and beside.spec(reference) is None


def _runtime_of(spec: Mapping[str, Any]) -> Reference:
    ref = part(spec, "runtimeRef")
    of = TRAINING_RUNTIME if ref.get("kind") == TRAINING_RUNTIME.kind else CLUSTER_TRAINING_RUNTIME
    return Reference(of, text_of(ref.get("name")))


_PROCESS_LAUNCHER: Final = re.compile(
    r"torchrun|accelerate|deepspeed|torch\.distributed|mpirun|colossalai"
)
"""What starts a process of PyTorch for each device: a batch is that of one process."""
_FETCHES: Final = frozenset({"cp", "mirror", "sync", "download", "copy", "mv"})
"""What a command does whose arguments are what is copied, and last where to."""


def _fetches(command: ProgramCall) -> bool:
    first = command.texts[0].rpartition("/")[2]
    return first in _FETCHES or any(word in _FETCHES for word in command.texts[1:3])


def _fetched(command: ProgramCall) -> list[tuple[str, str]]:
    """What a command copies, and where that stands: not where it is copied to."""
    if not _fetches(command):
        return []
    words = [(one.text, one.where) for one in command.words[1:] if not one.text.startswith("-")]
    return words if "download" in command.texts[1:3] else words[:-1]


def started(command: ProgramCall) -> list[tuple[str, str]]:
    """The scripts and files of settings that a command starts, and where they stand."""
    if _fetches(command):
        return []
    return [
        (one.text, one.where)
        for one in command.words
        if re.search(r"\.(py|sh|ya?ml|toml|json)$", one.text)
        or re.match(r"(--?)?(config|recipe)[\w-]*=", one.text)
    ] + [
        (after.text, after.where)
        for one, after in pairwise(command.words)
        if re.fullmatch(r"--?(config|recipe)[\w-]*", one.text)
    ]


def _verdict(
    body: Mapping[str, Any], evidence: Sequence[Clue], reading: FactSheet, seen: FactSources,
    pods: Sequence[PodForm], containers: Sequence[WrittenContainer], *, makes: bool,
) -> ClassVerdict:  # fmt: skip
    """The class of an object: by what it runs, and by its kind where it runs nothing of its own."""
    kind, spec = text_of(body.get("kind")), part(body, "spec")
    listens = any(one.probed or bool(_SERVER_PORTS & {*one.ports}) for one in containers)
    serves = listens and "rayClusterSpec" not in spec and kind != "RayCluster"
    said = _SPEAKS & reading.facts.keys()
    batch = {"accumulation", "micro_batch", "global_batch"} & said
    named = "model" in reading.facts and not reading.by_shape
    models = [text_of(reading.facts["model"].value)] if named else []
    models += [one.value for one in seen.settings if one.key in _ASKS_MODEL]
    models += [one.key for one in seen.settings if one.key in _SEES]
    verdict = class_of(
        list(evidence),
        seen.device_request,
        _names(pods, containers),
        models=models,
        architectures=[
            one.value for one in seen.settings if one.key in _NETWORKS and " " not in one.value
        ],
        speaks=len(said) >= 2 and bool(batch),
        learns=any(_LEARNS.match(one.key) for one in seen.settings),
        serves=serves,
        makes=makes,
        elsewhere=seen.elsewhere,
        asks_model=any(one.key in _ASKS_MODEL for one in seen.settings),
        repeats=any(one.key in _EPOCHS and _twice(one.value) for one in seen.settings),
    )
    best = evidence[0].weight if evidence else 0
    avoids = any(one.key in _NO_DEVICES and one.value.lower() not in OFF for one in seen.settings)
    if verdict.job_class.trains and avoids and not seen.device_request.vendor:
        return ClassVerdict(JobClass.CPU, "it is told to train without a GPU", "none", True)
    if kind in _SERVING:
        return ClassVerdict(JobClass.INFERENCE, f"a {kind} serves models", "none", True)
    if kind in _RUNTIMES and not verdict.job_class.trains and best <= 36 and not models:
        return ClassVerdict(JobClass.OTHER, "a runtime without a job of its own", "none", True)
    if kind == "RayCluster" and best <= 30 and seen.device_request.vendor:
        return ClassVerdict(JobClass.OTHER, "a cluster without a job of its own", "none", True)
    empty = not evidence and verdict.job_class is JobClass.OTHER
    asks_devices = bool(seen.device_request.vendor) or seen.device_request.unread
    if empty and asks_devices and kind not in _SERVED | {"RayCluster"}:
        return ClassVerdict(JobClass.OTHER_TRAINING, verdict.reason, "none", False)
    waits = verdict.job_class is JobClass.OTHER and not seen.device_request.vendor
    if kind in {"RayCluster", "RayJob"} and waits:
        return ClassVerdict(JobClass.CPU, "no container asks for an accelerator", "none", True)
    if kind in _SERVED and verdict.job_class is JobClass.CPU:
        return ClassVerdict(JobClass.OTHER, verdict.reason, "none", verdict.sure)
    if kind in _SERVED and serves and not verdict.sure and seen.device_request.vendor:
        why = f"{verdict.reason}; it listens as a server"
        return ClassVerdict(JobClass.INFERENCE, why, "none", False)
    return verdict


def _twice(value: str) -> bool:
    """Whether a text says two epochs or more.

    >>> _twice("3.0"), _twice("2ep"), _twice("1"), _twice("10000ba")
    (True, True, False, False)
    """
    found = re.fullmatch(r"(\d{1,3})(\.\d+)?(ep)?", value)
    return found is not None and int(found[1]) >= 2


def _pods(body: Mapping[str, Any], spec: Mapping[str, Any], beside: Beside) -> list[PodForm]:
    """The pods of an object; of a TrainJob those of its runtime, with its own section on top."""
    kind, count = text_of(body.get("kind")), "spec.trainer.numNodes"
    if kind in _RUNTIMES:
        nodes = part(spec, "mlPolicy").get("numNodes")
        return _counted(pods_of(spec), nodes, "spec.mlPolicy.numNodes")
    if kind != "TrainJob":
        return pods_of(spec)
    reference = _runtime_of(spec)
    runtime = beside.spec(reference) if reference.name else None
    trainer = part(spec, "trainer")
    own = {key: trainer[key] for key in ("image", "command", "args", "env") if trainer.get(key)}
    if trainer.get("resourcesPerNode"):
        own["resources"] = trainer["resourcesPerNode"]
    base = [] if runtime is None else pods_of(runtime, f"{reference}: spec")
    nodes = trainer.get("numNodes")
    nodes = part(runtime, "mlPolicy").get("numNodes") if nodes is None else nodes
    pods = _counted(base, nodes, count)
    at = next((at for at, pod in enumerate(pods) if trains(pod)), None)
    if at is None:
        whole = number(1 if nodes is None else nodes)
        pods.append(PodForm(where="spec", spec={"containers": []}, count=whole, counted=count))
        at = len(pods) - 1
    if own or not pods[at].containers:
        pods[at] = _laid(pods[at], own)
    return pods


def _laid(pod: PodForm, own: Mapping[str, Any]) -> PodForm:
    """A pod with a TrainJob's own section as its container."""
    rows = pod.spec.get("containers") or [{}]
    at = next((at for at, one in enumerate(rows) if one.get("name") == "node"), 0)
    env = [*(rows[at].get("env") or []), *(own.get("env") or [])]
    changed = {**rows[at], **own, **({"env": env} if env else {})}
    others = [row for number_, row in enumerate(rows) if number_ != at]
    return replace(pod, spec={**pod.spec, "containers": [changed, *others]})


def _counted(pods: Sequence[PodForm], nodes: object, where: str) -> list[PodForm]:
    """Pods of a runtime; those of the trainer's nodes are as many as its policy says."""
    if nodes is None:
        return list(pods)
    return [
        replace(pod, count=number(nodes), counted=where) if trains(pod) else pod for pod in pods
    ]


def _speaking(pods: Sequence[PodForm]) -> list[PodForm]:
    """Pods whose containers say what the object does: those with devices, and launchers.

    A launcher of MPI has no devices of its own, and starts the program on those that have.
    """
    computing = [pod for pod in pods if asks(pod) or pod.spec.get("resourceClaims")]
    launchers = [
        pod
        for pod in pods
        if re.search(r"[Ll]auncher|[Mm]aster", pod.where) and pod not in computing
    ]
    return [*launchers, *computing] if computing else list(pods)


class _Reader:
    """Reads containers, with the ConfigMaps that their pods name."""

    def __init__(self, config_maps: ConfigMaps) -> None:
        self._maps = config_maps

    def pod(self, pod: PodForm) -> Said:
        """What its containers say."""
        return merged([self._container(pod, one) for one in pod.containers])

    def prepares(self, pod: PodForm) -> Said:
        """What the containers say that run before."""
        return merged([self._container(pod, one) for one in pod.prepares])

    def entrypoint(self, spec: Mapping[str, Any]) -> list[Said]:
        """What the entrypoint of a RayJob says, with its runtime environment."""
        line = spec.get("entrypoint")
        if not isinstance(line, str):
            return []
        text = text_of(spec.get("runtimeEnvYAML"))
        files: dict[str, TextFile] = {}
        if text:
            files["runtimeEnvYAML"] = TextFile("runtimeEnvYAML", text, "spec.runtimeEnvYAML")
        pods = pods_of(spec)
        for pod in pods:
            for container in pod.containers:
                files |= self._files(pod, container)
        variables = {
            one.name: one
            for pod in pods
            for container in pod.containers
            for one in _variables(pod, container)
        }
        return [read_text(line, "spec.entrypoint", variables, files)]

    def _container(self, pod: PodForm, container: WrittenContainer) -> Said:
        body = container.body
        variables = {one.name: one for one in _variables(pod, container)}
        for name, key, value in self._from_maps(body):
            variables.setdefault(key, PlacedVariable(key, value, f"ConfigMap/{name}: data.{key}"))
        return read_container(
            body.get("command"),
            body.get("args"),
            container.where,
            variables,
            self._files(pod, container),
        )

    def _from_maps(self, body: Mapping[str, Any]) -> list[tuple[str, str, str]]:
        """Variables of a container that stand in ConfigMaps: the map's name, key, value."""
        found: list[tuple[str, str, str]] = []
        rows = body.get("envFrom")
        for row in rows if isinstance(rows, list) else []:
            name = text_of(part(row, "configMapRef").get("name")) if isinstance(row, dict) else ""
            found += [
                (name, str(key), value)
                for key, value in self._maps.get(name, {}).items()
                if isinstance(value, str)
            ]
        return found

    def _files(self, pod: PodForm, container: WrittenContainer) -> dict[str, TextFile]:
        files: dict[str, TextFile] = {}
        for path, name, only in pod.mounts(container):
            for key, value in self._maps.get(name, {}).items():
                if isinstance(value, str) and (not only or only == key):
                    where = f"ConfigMap/{name}: data.{key}"
                    files[path if only else f"{path}/{key}"] = TextFile(str(key), value, where)
        return files


def _variables(pod: PodForm, container: WrittenContainer) -> list[PlacedVariable]:
    return [
        PlacedVariable(name, value, where)
        for name, value, where in container.variables(pod.annotations)
        if not is_secret(name, value)
    ]


def _of_object(spec: Mapping[str, Any]) -> list[Setting]:
    """What the object says outside of any container: the model that a TrainJob initializes."""
    uri = part(spec, "initializer", "model").get("storageUri")
    if not isinstance(uri, str):
        return []
    return [Setting("storage_uri", uri, "spec.initializer.model.storageUri", "option")]


def _initialized(pods: Sequence[PodForm]) -> list[Setting]:
    """The model that a pod of a training runtime loads for the trainer."""
    return [
        Setting("storage_uri", value, where, "option")
        for pod in pods
        if initializes_model(pod)
        for container in pod.containers
        for name, value, where in container.variables(pod.annotations)
        if name == "STORAGE_URI"
    ]


def _processes(settings: Sequence[Setting]) -> int:
    """Processes of a node, as torchrun or another launcher is told; 0 = not said. [1]"""
    for one in settings:
        if one.key in {"nproc_per_node", "nproc", "num_gpus"} and one.origin == "option":
            return number(one.value) or 0
    return 0


def _own_trainer(settings: Sequence[Setting], launchers: set[str], said: Said) -> str:
    """The trainer of a script that is not known: by its launcher, or by its options."""
    keys = {one.key for one in settings if one.value.lower() not in OFF}
    if only := ONLY_OF.keys() & keys:
        return ONLY_OF[only.pop()]
    if {"sharding_strategy", "enable_fsdp", "fsdp", "fsdp_config"} & keys:
        return "fsdp-script"
    if "tensor_model_parallel_size" in keys and {"num_layers", "hidden_size"} <= keys:
        return "megatron-lm"
    if any(word.rpartition("/")[2] == "deepspeed" for word in launchers):
        return "deepspeed"
    return "custom" if said.program_calls or said.variables else "none"


_NAMING: Final = ("name", "app", "app.kubernetes.io/name", "component", "job-name", "role")
"""Labels of pods by which people name what they do."""


def _names(pods: Sequence[PodForm], containers: Sequence[WrittenContainer]) -> list[str]:
    """Names of containers and pods.

    The object's own name is not among them: equal jobs of other names share one answer.
    """
    of_pods = (text_of(pod.labels.get(label)) for pod in pods for label in _NAMING)
    of_containers = (text_of(one.body.get("name")) for one in containers)
    return [name for name in (*of_pods, *of_containers) if name]
