"""What an object of a cluster is and says: its class with the reason, and its facts, each with
its source.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any, Final

from mofa_model.annotations import RUNS
from mofa_model.errors import InputError
from mofa_model.identity.classes import (
    ONLY_OF,
    UNKNOWN,
    Clue,
    JobClass,
    clues_of,
    clues_of_runtime,
    trainer_clue,
)
from mofa_model.identity.commands import (
    Contents,
    ProgramCall,
    merged,
    programs,
    read_container,
)
from mofa_model.identity.devices import DeviceRequest, asks, devices_of, elsewhere
from mofa_model.identity.fact import OFF, Fact, number
from mofa_model.identity.facts import HUGGING_FACE, FactSources, read_facts
from mofa_model.identity.launch_found import (
    LaunchFound,
    facts_of_launch,
    launch_of,
    launch_of_trainer,
)
from mofa_model.identity.named_models import in_a_name, is_known
from mofa_model.identity.object_class import verdict_of
from mofa_model.identity.object_pods import (
    ConfigMaps,
    ContainerReader,
    lacks_runtime,
    pods_of_object,
    runtime_of,
    speaking_pods,
)
from mofa_model.identity.pods import (
    PodForm,
    initializes_model,
    with_parameters,
)
from mofa_model.identity.settings import Setting, settings_of
from mofa_model.kinds import demand_of, job_kind
from mofa_model.kinds.shape import NO_OBJECTS, ReferencedObjects, part, text_of
from mofa_model.records import dataclass


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
        """This identity with the class that a person gives the object; `where` is what says it."""
        return replace(self, job_class=job_class, reason=f"{where} says {job_class}", sure=True)


def identify(
    body: Mapping[str, Any],
    referenced: ReferencedObjects = NO_OBJECTS,
    config_maps: ConfigMaps | None = None,
) -> Identity:
    """The class and the facts of an object; what it names is in `referenced` and `config_maps`.

    >>> pod = {"containers": [{"image": "nginx", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
    >>> job = {"kind": "Job", "metadata": {"name": "web"}, "spec": {"template": {"spec": pod}}}
    >>> identify(job).job_class.value
    'web-or-other'
    """
    spec, is_workflow = part(body, "spec"), text_of(body.get("kind")) in _WORKFLOWS
    spec = with_parameters(spec) if is_workflow else spec
    reader = ContainerReader(config_maps or {})
    pods = pods_of_object(body, spec, referenced)
    pods = _training_step(pods, reader) if is_workflow else pods
    speaking = speaking_pods(pods)
    entry = reader.entrypoint(spec) if text_of(body.get("kind")) == "RayJob" else []
    if not pods and not entry:
        entry = _of_kind(body, referenced)
    contents = merged([*entry, *(reader.pod(pod) for pod in speaking)])
    rest = merged([reader.pod(pod) for pod in pods if pod not in speaking])
    prepared = merged([reader.prepares(pod) for pod in pods])
    containers = [container for pod in speaking for container in pod.containers]
    evidence = clues_of(contents, containers)
    if not any(clue.weight > UNKNOWN and clue.job_class for clue in evidence):
        evidence = sorted([*evidence, *clues_of(rest, [])], key=lambda clue: -clue.weight)
    if lacks_runtime(spec, referenced):
        named = clues_of_runtime(runtime_of(spec).name, "spec.runtimeRef.name")
        evidence = sorted([*evidence, *named], key=lambda clue: -clue.weight)
    sources = _seen(spec, pods, referenced, evidence, contents, merged([rest, prepared]))
    reading = read_facts(sources)
    facts = dict(reading.facts)
    launch = launch_of_trainer(launch_of(contents), facts.get("trainer"))
    if launch is not None:
        facts = {**facts_of_launch(launch, facts), **facts}
    ran = _seen_to_run(body)
    if ran is not None:
        launch_seen = launch_of(ran)
        if launch_seen is not None and _DEGREES & launch_seen.reading.layout.keys():
            launch = launch_seen
        seen = read_facts(sources._replace(settings=settings_of(ran), words=[], fetched=[])).facts
        learned = {name: fact for name, fact in seen.items() if name in _LEARNED}
        own = {} if launch is None else facts_of_launch(launch, facts)
        facts = {**learned, **own, **facts}
    reading = replace(reading, facts=facts)
    verdict = verdict_of(
        body, evidence, reading, sources, speaking, containers, makes=bool(pods or entry)
    )
    return Identity(
        launch_found=launch,
        program_calls=tuple(contents.program_calls),
        job_class=verdict.job_class,
        reason=verdict.reason,
        sure=verdict.sure,
        may_train=verdict.may_train,
        facts=reading.facts,
        hugging_face=any(setting.key in HUGGING_FACE for setting in sources.settings),
        device_request=sources.device_request,
        disagree=reading.disagree,
    )


_WORKFLOWS: Final = frozenset({"Workflow", "WorkflowTemplate", "CronWorkflow"})


def _training_step(pods: list[PodForm], reader: ContainerReader) -> list[PodForm]:
    """The one step of a workflow that trains; all where none does, or several do."""

    def trains_model(pod: PodForm) -> bool:
        clues = clues_of(reader.pod(pod), pod.containers)
        best = next((clue.job_class for clue in clues if clue.job_class), JobClass.OTHER)
        return JobClass(best).trains

    training = [pod for pod in pods if asks(pod) and trains_model(pod)]
    return training if len(training) == 1 else pods


def _of_kind(body: Mapping[str, Any], referenced: ReferencedObjects) -> list[Contents]:
    """The command of a known kind whose pods have a form of their own, as that kind reads it."""
    if job_kind(text_of(body.get("apiVersion")), text_of(body.get("kind"))) is None:
        return []
    try:
        demand = demand_of(body, referenced)
    except InputError:  # who needs the demand is told why
        return []
    words = list(demand.words)
    return [read_container(words, None, demand.words_path, {}, {})] if words else []


_LEARNED: Final = frozenset(
    {"model", "shape", "sequence_length", "global_batch", "micro_batch", "accumulation"}
    | {"precision"}
)
"""Facts that are learned from what a job's processes are told."""


_DEGREES: Final = frozenset({"tp", "pp", "cp", "ep", "mbs"})
"""Fields of a layout of which one at least is said where a layout is."""


def _seen_to_run(body: Mapping[str, Any]) -> Contents | None:
    """The command of an object's processes as it was seen in the cluster, from its annotation."""
    line = part(body, "metadata", "annotations").get(RUNS)
    if not isinstance(line, str):
        return None
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    return read_container(words, None, f"annotation {RUNS}", {}, {}) if words else None


def _seen(
    spec: Mapping[str, Any], pods: Sequence[PodForm], referenced: ReferencedObjects,
    evidence: Sequence[Clue], contents: Contents, others: Contents,
) -> FactSources:  # fmt: skip
    """What the facts of an object are read from."""
    settings = settings_of(contents)
    devices = devices_of(pods, referenced, _processes(settings))
    if not devices.vendor and "clusterSelector" in spec:
        devices = elsewhere(pods, contents.variables)
    best = trainer_clue(evidence)
    sft = any(re.match(r"sft(_args|_config)?\.", setting.path) for setting in settings)
    sft = sft or any(clue.trainer == "trl" for clue in evidence)
    if best is not None and best.trainer == "accelerate" and sft:
        best = best._replace(trainer="trl")  # what is called SFT under Accelerate is TRL's
    if best is not None and best.trainer == "custom" and best.where.endswith(".image"):
        best = None  # an image for tuning does not say with what
    launchers = {word for command in contents.program_calls for word in command.texts[:2]}
    starts = [word for command in contents.program_calls for word in command.texts[:8]]
    whole = [*programs(contents), *programs(others)]
    first = contents.program_calls[0].where if contents.program_calls else "the image"
    return FactSources(
        settings=settings,
        others=[*settings_of(others), *_of_object(spec), *_initialized(pods)],
        words=[pair for command in whole for pair in started(command)] + _configured(contents),
        fetched=[pair for command in whole for pair in _fetched(command)],
        device_request=devices,
        trainer=best.trainer if best else _own_trainer(settings, launchers, contents),
        torch=any(_PROCESS_LAUNCHER.search(word) for word in starts),
        image=(best.found, best.where) if best else ("", first),
        elsewhere="clusterSelector" in spec or devices.unread or lacks_runtime(spec, referenced),
    )


def _configured(contents: Contents) -> list[tuple[str, str]]:
    """Files of settings that variables name, as `CONFIG_FILE` does, and where that stands."""
    return [
        (variable.value, variable.where)
        for variable in contents.variables.values()
        if _SETTINGS_FILE.search(variable.value)
        and _CONFIGURES.search(f"{variable.name}/{variable.value}")
        and is_known(in_a_name(variable.value))
    ]


_SETTINGS_FILE: Final = re.compile(r"\.(ya?ml|toml|json)$")
_CONFIGURES: Final = re.compile(r"(^|[/_])(config|conf|recipe|experiment|exp)", re.IGNORECASE)
"""Names of variables and folders whose files configure a trainer."""


_PROCESS_LAUNCHER: Final = re.compile(
    r"torchrun|accelerate|deepspeed|torch\.distributed|mpirun|colossalai"
)
"""What starts a process of PyTorch for each device: a batch is that of one process."""
_FETCHES: Final = frozenset({"cp", "mirror", "sync", "download", "copy", "mv"})
"""Words of commands that copy: their arguments are sources, and the target last."""


def _fetches(command: ProgramCall) -> bool:
    first = command.texts[0].rpartition("/")[2]
    return first in _FETCHES or any(word in _FETCHES for word in command.texts[1:3])


def _fetched(command: ProgramCall) -> list[tuple[str, str]]:
    """Sources that a command copies, each with its place; targets are left out."""
    if not _fetches(command):
        return []
    words = [(word.text, word.where) for word in command.words[1:] if not word.text.startswith("-")]
    return words if "download" in command.texts[1:3] else words[:-1]


def started(command: ProgramCall) -> list[tuple[str, str]]:
    """The scripts and files of settings that a command starts, and where they stand."""
    if _fetches(command):
        return []
    return [
        (word.text, word.where)
        for word in command.words
        if re.search(r"\.(py|sh|ya?ml|toml|json)$", word.text)
        or re.match(r"(--?)?(config|recipe)[\w-]*=", word.text)
    ] + [
        (following.text, following.where)
        for word, following in pairwise(command.words)
        if re.fullmatch(r"--?(config|recipe)[\w-]*", word.text)
    ]


def _of_object(spec: Mapping[str, Any]) -> list[Setting]:
    """Settings of the object outside of containers: the model that a TrainJob initializes."""
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
    for setting in settings:
        if setting.key in {"nproc_per_node", "nproc", "num_gpus"} and setting.origin == "option":
            return max(0, number(setting.value) or 0)
    return 0


def _own_trainer(settings: Sequence[Setting], launchers: set[str], contents: Contents) -> str:
    """The trainer of a script that is not known: by its launcher, or by its options."""
    keys = {setting.key for setting in settings if setting.value.lower() not in OFF}
    if only := ONLY_OF.keys() & keys:
        return ONLY_OF[only.pop()]
    if {"sharding_strategy", "enable_fsdp", "fsdp", "fsdp_config"} & keys:
        return "fsdp-script"
    if "tensor_model_parallel_size" in keys and {"num_layers", "hidden_size"} <= keys:
        return "megatron-lm"
    if any(word.rpartition("/")[2] == "deepspeed" for word in launchers):
        return "deepspeed"
    return "custom" if contents.program_calls or contents.variables else "none"
