"""Launch arguments in a job that waits: the JSON patch, and the CEL of the admission policy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from mofa_model.annotations import PREFIX
from mofa_model.errors import InputError
from mofa_model.kinds.pods import Container, PodTemplate
from mofa_model.launch import rewritten


def same(old: str, new: str, *but: str) -> str:
    """CEL: two mappings are the same but for some keys.

    >>> print(same("o", "n", "args"))
    n.all(k, k == "args" || (k in o && o[k] == n[k]))
    && o.all(k, k == "args" || k in n)
    """
    names = ", ".join(f'"{key}"' for key in but)
    others = f"k in [{names}]" if len(but) > 1 else f"k == {names}"
    return (
        f"{new}.all(k, {others} || (k in {old} && {old}[k] == {new}[k]))\n"
        f"&& {old}.all(k, {others} || k in {new})"
    )


def same_pods(old: str, new: str) -> str:
    """CEL: two pod templates are the same but for the annotations with launch arguments."""
    before, after = (f"{template}.?metadata.orValue({{}})" for template in (old, new))
    annotations = ".?metadata.?annotations"
    return f"""\
{same(old, new, "metadata")}
&& {same(before, after, "annotations")}
&& {new}{annotations}.orValue({{}}).all(k, k in variables.told
  || {old}{annotations}[?k] == {new}{annotations}[?k])
&& {old}{annotations}.orValue({{}}).all(k, k in variables.told
  || {new}{annotations}[?k].hasValue())"""


Operation: TypeAlias = Mapping[str, Any]
"""One step of a JSON patch."""
NAME: Final = "mofa.dev/advisor"
"""Our name in Kueue's AdmissionChecks, and as the manager of a TrainJob's patch."""
ARGUMENTS: Final = PREFIX + "launch-args"
"""Annotation of a pod template: the trainer's arguments, as a shell would read them."""
INTERVAL: Final = PREFIX + "checkpoint-interval-steps"
"""Annotation of a pod template, the same as on the job."""


def pod_annotations(arguments: Sequence[str], steps: str) -> dict[str, str]:
    """The annotations of pods with launch arguments; arguments that name a file are refused."""
    return {ARGUMENTS: shlex.join(rewritten((), arguments))} | ({INTERVAL: steps} if steps else {})


def annotated(path: str, template: PodTemplate, annotations: Mapping[str, str]) -> list[Operation]:
    """The patch that puts annotations on a pod template, with the metadata that is missing."""
    path += "/metadata"
    if template.metadata is None:
        return [
            test(path, None),
            {"op": "add", "path": path, "value": {"annotations": dict(annotations)}},
        ]
    present, path = template.metadata.annotations, path + "/annotations"
    if present is None:
        return [test(path, None), {"op": "add", "path": path, "value": dict(annotations)}]
    return [
        {"op": "add", "path": path + pointer(name), "value": value}
        for name, value in annotations.items()
        if present.get(name) != value
    ]


def replaced(path: str, container: Container, arguments: Sequence[str]) -> list[Operation]:
    """The patch that replaces the layout in the args of a container, whose command stays."""
    command, args = texts_of(container.command), texts_of(container.args)
    after = rewritten((*command, *args), arguments)
    if after[: len(command)] != tuple(command):
        raise InputError(
            "the layout's arguments are in the container's command; write them into args, "
            "where they can be replaced"
        )
    new_args = list(after[len(command) :])
    if new_args == container.args:
        return []
    change: Operation = {"op": "add", "path": path + "/args", "value": new_args}
    return [test(path + "/name", container.name), test(path + "/args", container.args), change]


def test(path: str, value: object) -> Operation:
    """A test of a JSON patch: the value at a path is as it was seen; None where it was missing."""
    return {"op": "test", "path": path, "value": value}


def pointer(*steps: object) -> str:
    """A JSON pointer.

    >>> pointer("metadata", "annotations", "a/b~c")
    '/metadata/annotations/a~1b~0c'
    """
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def place_of(path: str) -> str:
    """A JSON pointer as people write a field.

    >>> place_of("/spec/template/metadata/annotations/advisor.mofa.dev~1launch-args")
    'spec.template.metadata.annotations.advisor.mofa.dev/launch-args'
    """
    return path.lstrip("/").replace("/", ".").replace("~1", "/").replace("~0", "~")


def texts_of(line: Any) -> list[str]:
    """The words of a command or its arguments; anything but text is refused."""
    words = [word for word in line or () if isinstance(word, str)]
    if len(words) != len(line or ()):
        raise InputError("command and args must be lists of text")
    return words
