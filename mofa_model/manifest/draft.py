"""The spec that a job of another kind amounts to: a TrainingJob's, put together from several
places.

A draft remembers where each of its fields stands, so an error names that place. A job's own facts,
its namespace's AdvisorPolicy and the layout in its command are brought into a spec's form here;
`jobs` says which counts before which.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mofa_model.annotations import PREFIX
from mofa_model.axes.frameworks import trainer_called
from mofa_model.errors import FactsMissing, InputError, shown
from mofa_model.identity import Fact, Facts, Identity, LaunchFound, masked, model_preset
from mofa_model.kinds import Demand
from mofa_model.kinds.shape import part as part_of
from mofa_model.launch import Reading
from mofa_model.manifest.advisor_policy import AdvisorPolicySpec
from mofa_model.search import framework as framework_of
from mofa_model.strategy import format_strategy

_FACTS: Final = {"sequenceLength": "sequence length", "globalBatchSize": "global batch size"}
"""Fields of the training that every question needs, and what messages call them."""
_MODEL_ANNOTATION: Final = f"the annotation {PREFIX}model"
ELSEWHERE: Final = (
    f"an AdvisorPolicy of the namespace, or in the spec behind the annotation {PREFIX}config-ref"
)
_LARGEST_BATCH: Final = 16 * 2**20
"""Tokens of the largest batch of a published run. Source: Llama 3, arXiv 2407.21783, 3.4. [1]"""
_SIZES: Final = {
    "layers": "layers", "hidden": "hiddenSize", "heads": "heads", "kv_heads": "kvHeads",
    "ffn": "ffnSize", "vocabulary": "vocabularySize", "gated": "gated", "tied": "tiedEmbeddings",
}  # fmt: skip
"""Fields of an architecture by the names of sizes."""
_TRAINING: Final = {
    "sequence_length": "sequenceLength",
    "global_batch": "globalBatchSize",
    "precision": "precision",
    "adapter_rank": "adapterRank",
}
"""Fields of the training that are facts of a job."""
_UNDER_HUGGING_FACE: Final = "accelerate"
"""What Hugging Face's Trainer stands on, in a script of any name."""
WORD: Final = 4096
"""Characters of a word of a command that are kept."""


class BatchMissing(FactsMissing):
    """A job that says all but its batch; `batches` are worth a row of a table. [1]"""

    def __init__(self, message: str, batches: tuple[int, ...]) -> None:
        """The error, with the batches that a job may have."""
        super().__init__(message)
        self.batches = batches


def batches_of(gpus: int, sequence: int) -> tuple[int, ...]:
    """Batches in sequences, from one on each device on, each four times the one before. [1]

    >>> batches_of(8, 4096)
    (8, 32, 128, 512)
    """
    batches = [gpus * 4**step for step in range(4 if gpus else 0)]
    return tuple(batch for batch in batches if batch == gpus or batch * sequence <= _LARGEST_BATCH)


class SpecDraft:
    """The spec that a job amounts to, put together from several places.

    It remembers where each field stands, so that an error names that place and not the draft.
    """

    PATH: Final = "job"
    """What the parser calls the spec, until `errors` names the place."""

    def __init__(self, kind: str, demand: Demand, facts: Facts) -> None:
        """An empty spec of a job that asks for `demand` and says some `facts`."""
        self.spec: dict[str, Any] = {}
        self._kind = kind
        self._demand = demand
        self._facts = facts
        self._places: dict[str, str] = {}

    def add(self, part: Mapping[str, Any], place: str, *, model: str = "") -> None:
        """Lay a part of a spec over the others; `model` is the place of its model, if another."""
        # The spec of an object goes on with a dot; any other place holds a whole spec.
        start = f"{place}{'.' if place.endswith('spec') else ': '}"
        for key, value in part.items():
            if isinstance(value, Mapping) and key != "model":
                fields = self.spec.get(key)
                self.spec[key] = {**(fields if isinstance(fields, dict) else {}), **value}
                for name in value:
                    self._places[f"{self.PATH}.{key}.{name}"] = f"{start}{key}.{name}"
                continue
            self.spec[key] = value
            self._places[f"{self.PATH}.{key}"] = f"{start}{key}"
            if key == "model":
                for name in ("model", "model.preset"):
                    self._places[f"{self.PATH}.{name}"] = model or place

    def check(self) -> None:
        """Refuse a draft without the model, or without the size of a step."""
        source, training = self._demand.words_path, part_of(self.spec, "training")
        missing = [field for field in _FACTS if field not in training]
        command = "its command says" if self._demand.words else "says"
        if "model" not in self.spec:
            if (model := self._facts.get("model")) is not None:
                source = model.source
                why = f"names {shown(str(model.value))}, which is no model that is known"
            elif (shape := self._facts.get("shape")) is not None:
                sizes = ", ".join(f"{name} {size}" for name, size in shape.value.items())
                source, why = shape.source, f"{sizes} is the shape of no one model that is known"
            else:
                why = f"{command} no model"
            raise FactsMissing(
                f"{source}: {why}; give the {self._kind} {_MODEL_ANNOTATION}, for example "
                f"llama3-8b, or training.model in {ELSEWHERE}"
            )
        if missing:
            nouns = " and no ".join(_FACTS[field] for field in missing)
            fields = " and ".join(f"training.{field}" for field in missing)
            message = f"{source}: {command} no {nouns}; give {fields} in {ELSEWHERE}"
            sequence = training.get("sequenceLength")
            if missing != ["globalBatchSize"] or not isinstance(sequence, int):
                raise FactsMissing(message)
            raise BatchMissing(message, batches_of(self._demand.gpus, sequence))

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Errors within name the place where a field stands."""
        try:
            yield
        except InputError as error:
            text = str(error)
            if not text.startswith(self.PATH):
                raise
            for field in sorted(self._places, key=len, reverse=True):
                if text.startswith(field):
                    raise InputError(self._places[field] + text.removeprefix(field)) from None
            raise InputError(f"{self._kind}{text.removeprefix(self.PATH)}") from None


def add_model(draft: SpecDraft, facts: Facts) -> None:
    """The model that a job names, or else spells out: it beats a policy's, known or not."""
    if (named := facts.get("model")) is not None:
        draft.spec.pop("model", None)
        if preset := model_preset(named.value):
            draft.add({"model": {"preset": preset}}, named.source)
    elif (shape := facts.get("shape")) is not None and (architecture := _architecture(shape.value)):
        draft.add({"model": {"architecture": architecture}}, shape.source)


def _architecture(shape: Mapping[str, Any]) -> dict[str, Any]:
    """The model of a shape that says all of it; empty where it does not.

    >>> _architecture({"layers": 2, "hidden": 64})
    {}
    """
    if not _SIZES.keys() <= shape.keys():
        return {}
    fields: dict[str, Any] = {field: shape[name] for name, field in _SIZES.items()}
    if shape.get("experts", 1) > 1:
        fields["experts"] = {
            "count": shape["experts"],
            "topK": shape["top_k"],
            "ffnSize": shape["expert_ffn"],
        }
    return fields


def of_facts(identity: Identity) -> dict[str, Any]:
    """A job's own facts in the form of a TrainingJob's training."""
    reading = None if identity.launch_found is None else identity.launch_found.reading
    framework = trainer_called(str(identity.facts.get("trainer", Fact("", "")).value))
    if not framework and identity.hugging_face:
        framework = _UNDER_HUGGING_FACE
    training: dict[str, Any] = {"framework": framework} if framework else {}
    training |= {} if reading is None else _of_reading(reading)
    if framework == _UNDER_HUGGING_FACE and reading is not None and reading.trainer == "deepspeed":
        training["framework"] = framework  # whose engine DeepSpeed is there
    for name, field in _TRAINING.items():
        if name in identity.facts:
            training[field] = identity.facts[name].value
    if "steps" in identity.facts and {"sequenceLength", "globalBatchSize"} <= training.keys():
        tokens = int(training["sequenceLength"]) * int(training["globalBatchSize"])
        training["tokens"] = str(tokens * identity.facts["steps"].value)
    if reading is not None and reading.precision is not None:
        training["precision"] = reading.precision  # the recipe, where the fact has its width alone
    elif "precision" in training and framework:
        training["precision"] = framework_of(framework).recipe(training["precision"])
    for name, field in (("base", "base"), ("adapter_targets", "adapterTargets")):
        if name in identity.facts and "adapter_rank" in identity.facts:
            training[field] = identity.facts[name].value
    if "adapters" in identity.facts and "adapter_rank" not in identity.facts:
        raise FactsMissing(
            f"{identity.facts['adapters'].source}: it tunes adapters, and nothing says their rank; "
            f"give training.adapterRank in {ELSEWHERE}"
            f"{', and training.base: nf4' if identity.facts['adapters'].value == 'qlora' else ''}"
        )
    return training


def _of_reading(reading: Reading) -> dict[str, Any]:
    facts = {
        "sequenceLength": reading.sequence,
        "globalBatchSize": reading.global_batch,
        "precision": reading.precision,
        "framework": reading.trainer,
        "optimizer": None if reading.tuning is None else reading.tuning.optimizer,
    }
    return {key: value for key, value in facts.items() if value is not None}


def of_policy(policy: AdvisorPolicySpec) -> dict[str, Any]:
    """A policy's defaults in the form of a TrainingJob's spec."""
    dump = policy.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
    training = dump.get("training", {})
    spec: dict[str, Any] = {
        key: dump[key]
        for key in ("objective", "constraints", "checkpoint", "failureAssumptions")
        if key in dump
    }
    if "model" in training:
        spec["model"] = {"preset": training.pop("model")}
    spec["training"] = training
    if policy.profile is not None:
        spec["cluster"] = {"profile": policy.profile}
    return spec


def current_layout(launch_found: LaunchFound, gpus: int) -> dict[str, Any]:
    """The layout in use in the form of a TrainingJob's: a command's words, or what a file says."""
    if launch_found.words:
        return {"arguments": [word[:WORD] for word in masked(launch_found.words)[:256]]}
    try:
        return {"strategy": format_strategy(launch_found.reading.strategy(gpus))}
    except InputError:  # it says no whole layout of so many devices
        sizes = {name: launch_found.reading.layout.get(name, 1) for name in ("tp", "pp", "cp")}
        return {"strategy": ",".join(f"{name}={size}" for name, size in sizes.items())}
