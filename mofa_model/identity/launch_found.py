"""What a known trainer is told: by its command, by its files, or by a pod that runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from mofa_model.axes.frameworks import framework, trainer_called
from mofa_model.errors import BadFile, InputError
from mofa_model.identity.commands import Contents, TextFile, merged, programs
from mofa_model.identity.fact import Fact
from mofa_model.identity.object_pods import ContainerReader
from mofa_model.identity.pods import pods_of
from mofa_model.identity.recipes import own_arguments
from mofa_model.kinds.shape import part
from mofa_model.launch import Reading, read
from mofa_model.launch.tuning import ALL_LINEAR


class LaunchFound(NamedTuple):
    """What a known trainer is told, by its command or by its files."""

    reading: Reading
    words: tuple[str, ...]
    """The words of the command; empty where a file says a part."""
    where: str


def launch_of(contents: Contents) -> LaunchFound | None:
    """What the command or the file of a known trainer says, and where it stands.

    >>> from mofa_model.identity.commands import read_text
    >>> said = read_text("torchrun pretrain_gpt.py --tensor-model-parallel-size 8", "x", {}, {})
    >>> launch_of(said).reading.layout["tp"]
    8
    """
    files = {source.name.rpartition("/")[2]: source for source in contents.files}
    for command in programs(contents):
        opened = list[TextFile]()
        own = tuple(word.text for word in own_arguments(command, contents.variables))
        texts = (command.texts[0], *own, *command.texts[1:])  # the job's own words are the last
        for open_file in (partial(_opened, files, opened), None):
            try:
                reading = read(texts, open_file)
            except InputError:  # it is no command of a trainer that is known, or its file is not
                opened.clear()
                continue
            words = () if opened else texts
            named = (
                word.where
                for word in command.words
                if reading.recipe and word.text.endswith(reading.recipe)
            )
            where = opened[0].where if opened else next(named, command.where)
            return LaunchFound(reading, words, where)
    for source in contents.files:
        try:
            reading = read((source.name,), partial(_opened, files, []))
        except InputError:
            continue
        return LaunchFound(reading, (), source.where)
    return None


def _opened(files: Mapping[str, TextFile], opened: list[TextFile], name: str) -> str:
    """The text of a given file, which is added to `opened`."""
    source = files.get(name.rpartition("/")[2])
    if source is None:
        raise BadFile(name, "it is not in a ConfigMap of the job")
    opened.append(source)
    return source.text


def launch_in_pod(pod: Mapping[str, Any]) -> LaunchFound | None:
    """What a known trainer is told in a pod as it runs: its variables have their values."""
    template = {"metadata": part(pod, "metadata"), "spec": part(pod, "spec")}
    reader = ContainerReader({})
    return launch_of(merged([reader.pod(form) for form in pods_of(template, "")]))


def launch_of_trainer(
    launch_found: LaunchFound | None, trainer_fact: Fact | None
) -> LaunchFound | None:
    """What a trainer is told, unless another one is known to run: trainers share some options."""
    runs = "" if trainer_fact is None else trainer_called(str(trainer_fact.value))
    if launch_found is None or not runs:
        return launch_found
    family = {framework(trainer).engine for trainer in (runs, launch_found.reading.trainer)}
    return launch_found if len(family) == 1 else None


def facts_of_launch(launch_found: LaunchFound, facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Facts of a launch that the names of its settings do not say."""
    reading, devices = launch_found.reading, facts.get("devices")
    values: dict[str, object] = {
        "sequence_length": reading.sequence,
        "global_batch": reading.global_batch,
    }
    if reading.tuning is not None:
        values["adapter_rank"] = reading.tuning.rank or None
        values["base"] = reading.tuning.base or None
        targets = reading.tuning.targets
        values["adapter_targets"] = (
            "all" if targets == ALL_LINEAR else ",".join(sorted(targets)) or None
        )
    size = reading.layout.get("mbs")
    if reading.rounds and size and devices is not None:
        taken = reading.layout.get("tp", 1) * reading.layout.get("cp", 1)
        values["global_batch"] = size * reading.rounds * (devices.value // taken)
    return {
        name: Fact(value, launch_found.where) for name, value in values.items() if value is not None
    }
