"""Which launch arguments the running pods of a job have; only those that say the layout count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mofa_model.identity import identify, launch_in_pod
from mofa_model.kinds.reads import readers
from mofa_model.kinds.shape import Body, ReferencedObjects, at, items, text_of
from mofa_model.launch import layout_words
from mofa_operator.objects import LiveObject
from mofa_operator.snapshot import SeenLaunch

_MOST: Final = 16
"""Most different forms of a job's pods that are read. [1]"""
_RUNS: Final = "Running"


def running(pods: Iterable[Body]) -> list[Body]:
    """Pods whose processes run, by name."""
    running_pods = [
        pod
        for pod in pods
        if at(pod, "status", "phase") == _RUNS and at(pod, "metadata", "deletionTimestamp") is None
    ]
    return sorted(running_pods, key=_name)


def seen_launch(job: LiveObject, pods: Iterable[Body], beside: Iterable[Body]) -> SeenLaunch | None:
    """The launch arguments of a job's running pods; None where none runs a known trainer."""
    pods_by_words: dict[tuple[str, ...], str] = {}
    forms: set[str] = set()
    for pod in running(pods):
        form = repr([at(pod, "metadata", "annotations"), _commands(pod)])
        if form in forms or len(forms) >= _MOST:
            continue
        forms.add(form)
        for reader in readers(pod, ""):
            if reader.trouble:
                return SeenLaunch(where=f"pod {_name(pod)}", trouble=reader.trouble)
        launch = launch_in_pod(pod)
        if launch is not None and (words := layout_words(launch.words)):
            pods_by_words.setdefault(words, f"pod {_name(pod)}")
    if not pods_by_words:
        return None
    if len(pods_by_words) > 1:
        names = " and ".join(list(pods_by_words.values())[:2])
        return SeenLaunch(where=names, trouble="they are told different layouts")
    ((words, where),) = pods_by_words.items()
    return SeenLaunch(where=where, words=words, stated=words == _stated(job, beside))


def _stated(job: LiveObject, beside: Iterable[Body]) -> tuple[str, ...]:
    """Words of the launch command in the job's manifest; empty where it has none."""
    body = {**job.body, "metadata": {}}  # annotations may hold what was seen before
    launch = identify(body, ReferencedObjects(beside)).launch_found
    return () if launch is None else layout_words(launch.words)


def _commands(pod: Body) -> list[object]:
    containers = items(at(pod, "spec", "containers"))
    return [
        [container.get("command"), container.get("args"), container.get("env")]
        for container in containers
    ]


def _name(pod: Body) -> str:
    return text_of(at(pod, "metadata", "name"))
