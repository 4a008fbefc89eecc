"""The class of an object: by what it runs, and by its kind where it runs nothing of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mofa_model.identity.classes import (
    TRAINER_IMAGE,
    UNKNOWN,
    ClassVerdict,
    Clue,
    JobClass,
    class_of,
)
from mofa_model.identity.fact import OFF
from mofa_model.identity.facts import FactSheet, FactSources
from mofa_model.identity.object_pods import RUNTIMES
from mofa_model.identity.pods import PodForm, WrittenContainer
from mofa_model.kinds.shape import part, text_of

_SERVER_PORTS: Final = frozenset({80, 443, 3000, 7860, 8000, 8001, 8080, 8443, 8888, 9000, 30000})
"""Ports on which model servers and web servers listen by default."""
_SERVED: Final = frozenset(
    {"Deployment", "StatefulSet", "LeaderWorkerSet", "DaemonSet", "ReplicaSet", "CronJob"}
    | {"Workflow"}
)
"""Kinds that serve, wait or start others."""
_SERVING: Final = frozenset({"RayService", "InferenceService", "ServingRuntime"})
"""Kinds that serve models, whatever they run."""
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
"""Options that only training has: an unknown program without any of them does not train."""
_EPOCHS: Final = frozenset(
    {"num_train_epochs", "num_epochs", "epochs", "max_epochs", "max_duration"}
)
_SPEAKS: Final = frozenset(
    {"sequence_length", "accumulation", "micro_batch", "global_batch", "shape", "parallel"}
)
"""Facts that only the training of language models has; two of them, one about the batch, tell it
apart.
"""


def verdict_of(
    body: Mapping[str, Any],
    clues: Sequence[Clue],
    fact_sheet: FactSheet,
    fact_sources: FactSources,
    pod_forms: Sequence[PodForm],
    written_containers: Sequence[WrittenContainer],
    *,
    makes: bool,
) -> ClassVerdict:
    """The class of an object: by what it runs, and by its kind where it runs nothing of its own."""
    settings, devices = fact_sources.settings, fact_sources.device_request
    kind, spec = text_of(body.get("kind")), part(body, "spec")
    ports = {port for container in written_containers for port in container.ports}
    probed = any(container.probed for container in written_containers)
    listens = probed or bool(_SERVER_PORTS & ports)
    serves = listens and "rayClusterSpec" not in spec and kind != "RayCluster"
    language_facts = _SPEAKS & fact_sheet.facts.keys()
    batch = {"accumulation", "micro_batch", "global_batch"} & language_facts
    named = "model" in fact_sheet.facts and not fact_sheet.by_shape
    models = [text_of(fact_sheet.facts["model"].value)] if named else []
    keys = {setting.key for setting in settings}
    models += [setting.value for setting in settings if setting.key in _ASKS_MODEL]
    models += [setting.key for setting in settings if setting.key in _SEES]
    networks = (setting.value for setting in settings if setting.key in _NETWORKS)
    verdict = class_of(
        list(clues),
        devices,
        _names(pod_forms, written_containers),
        models=models,
        architectures=[network for network in networks if " " not in network],
        speaks=len(language_facts) >= 2 and bool(batch),
        learns=any(map(_LEARNS.match, keys)),
        serves=serves,
        makes=makes,
        elsewhere=fact_sources.elsewhere,
        asks_model=bool(_ASKS_MODEL & keys),
        repeats=any(setting.key in _EPOCHS and _twice(setting.value) for setting in settings),
    )
    best = clues[0].weight if clues else 0
    switches = (setting.value for setting in settings if setting.key in _NO_DEVICES)
    avoids = any(switch.lower() not in OFF for switch in switches)
    if verdict.job_class.trains and avoids and not devices.vendor:
        return ClassVerdict(JobClass.CPU, "it is told to train without a GPU")
    if kind in _SERVING:
        return ClassVerdict(JobClass.INFERENCE, f"a {kind} serves models")
    if kind in RUNTIMES and not verdict.job_class.trains and best <= TRAINER_IMAGE and not models:
        return ClassVerdict(JobClass.OTHER, "a runtime without a job of its own")
    if kind == "RayCluster" and best <= UNKNOWN and devices.vendor:
        return ClassVerdict(JobClass.OTHER, "a cluster without a job of its own")
    empty = not clues and verdict.job_class is JobClass.OTHER
    asks_devices = bool(devices.vendor) or devices.unread
    if empty and asks_devices and kind not in _SERVED | {"RayCluster"}:
        return ClassVerdict(JobClass.OTHER_TRAINING, verdict.reason, sure=False)
    waits = verdict.job_class is JobClass.OTHER and not devices.vendor
    if kind in {"RayCluster", "RayJob"} and waits:
        return ClassVerdict(JobClass.CPU, "no container asks for an accelerator")
    if kind in _SERVED and verdict.job_class is JobClass.CPU:
        return ClassVerdict(JobClass.OTHER, verdict.reason, sure=verdict.sure)
    if kind in _SERVED and serves and not verdict.sure and devices.vendor:
        why = f"{verdict.reason}; it listens as a server"
        return ClassVerdict(JobClass.INFERENCE, why, sure=False)
    return verdict


def _twice(value: str) -> bool:
    """Whether a text says two epochs or more.

    >>> _twice("3.0"), _twice("2ep"), _twice("1"), _twice("10000ba")
    (True, True, False, False)
    """
    epochs = re.fullmatch(r"(\d{1,3})(\.\d+)?(ep)?", value)
    return epochs is not None and int(epochs[1]) >= 2


_NAMING: Final = ("name", "app", "app.kubernetes.io/name", "component", "job-name", "role")
"""Labels of pods by which people name what they do."""


def _names(pods: Sequence[PodForm], containers: Sequence[WrittenContainer]) -> list[str]:
    """Names of containers and pods.

    The object's own name is not among them: equal jobs of other names share one answer.
    """
    of_pods = (text_of(pod.labels.get(label)) for pod in pods for label in _NAMING)
    of_containers = (text_of(container.body.get("name")) for container in containers)
    return [name for name in (*of_pods, *of_containers) if name]
