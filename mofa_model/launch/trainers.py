"""Launches written and read: whose a command is, and which layouts a trainer refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final, Protocol

from mofa_model.axes.axis import Axis
from mofa_model.axes.frameworks import USUAL, Framework, framework
from mofa_model.axes.rules import AxisContext
from mofa_model.errors import BadValue, UnknownName
from mofa_model.launch import (
    accelerate,
    axolotl,
    deepspeed,
    formats,
    llama_factory,
    megatron,
    nemo,
    peft,
    torchtitan,
    torchtune,
    trl,
)
from mofa_model.launch.answer import Launch, LaunchSettings, OpenFile, Reading
from mofa_model.launch.megatron import STATE_SPACE, counted_layers
from mofa_model.launch.shell import words_of
from mofa_model.launch.starts import start_of
from mofa_model.placement import stages_in_order
from mofa_model.presets import hub_id
from mofa_model.search import LIFTABLE, Rejection, SearchCase
from mofa_model.search.axes import FEATURES, SHAPE, Axes
from mofa_model.search.space import bundles_of, idle_rows, shapes_of, violations_of
from mofa_model.strategy import AXES, Sharding, Strategy, parse_strategy

_OURS: Final = frozenset({*LIFTABLE, Rejection.DUPLICATE})
"""Reasons that are no trainer's."""
_AXES: Final = {axis.name: axis for axis in AXES}


def refuse(strategy: Strategy, problem: SearchCase, trainer: str) -> None:
    """Refuse what a trainer has no words for or does not start; the error names a field."""
    abilities, gpus = framework(trainer), int(strategy.gpus)
    # No rule of a trainer asks where devices stand: they are one node.
    cluster = replace(problem.cluster, gpus=gpus, gpus_per_node=gpus)
    context = AxisContext(
        workload=problem.workload, cluster=cluster, framework=abilities, lifted=_OURS
    )
    recipe = problem.workload.training.precision.name
    axes = Axes(
        {"precision": (recipe,), "nodes": (1,)}
        | {axis.name: (axis.value_of(strategy),) for axis in AXES}
    )
    _require_supported(strategy, abilities, SHAPE, trainer)
    shapes = shapes_of(axes, context, 1, Counter())
    if shapes.stuck is not None:
        name, reason = shapes.stuck
        raise _refused(strategy, _AXES[name], _reason_text(reason, trainer))
    idle = idle_rows(shapes.rows)
    violations = violations_of(axes, context, shapes.rows)
    acting = {axis.name: axis for axis in FEATURES if not idle[axis.name][0]}
    _require_supported(strategy, abilities, acting.values(), trainer)
    (bundle,) = bundles_of(axes, abilities, idle, violations)
    for axis in acting.values():  # what acts on nothing is not said
        for reason, bad in violations[axis.name][0]:
            if bad[0]:
                raise _refused(strategy, axis, _reason_text(reason, trainer))
        barring = bundle.barred.get(axis.name, {}).get(0, frozenset()) & set(acting)
        if barring:
            others = " and ".join(_axis_text(strategy, acting[name]) for name in sorted(barring))
            raise _refused(strategy, axis, f"{trainer} cannot run it together with {others}")


def _require_supported(
    strategy: Strategy, abilities: Framework, axes: Iterable[Axis], trainer: str
) -> None:
    for axis in axes:
        if not axis.supported_by(abilities, axis.value_of(strategy)):
            raise _refused(strategy, axis, f"{trainer} has no argument for it")


def _reason_text(reason: Rejection, trainer: str) -> str:
    if reason is Rejection.NOT_IN_FRAMEWORK:
        return f"{trainer} cannot run it with the rest of the layout"
    return f"{trainer}: {reason.meaning}"


def _refused(strategy: Strategy, axis: Axis, why: str) -> BadValue:
    key, _, value = _axis_text(strategy, axis).partition("=")
    return BadValue(
        f"strategy.{key}",
        value,
        f"{why}; constrain {' or '.join(word.key for word in axis.keys)} to another value",
    )


def _axis_text(strategy: Strategy, axis: Axis) -> str:
    """A strategy's value on an axis, as text for an error."""
    changed = [word for word in axis.keys if word.write(strategy) != word.write(Strategy())]
    word = changed[-1] if changed else axis.keys[0]
    return f"{word.key}={word.write(strategy)}"


class TrainerModule(Protocol):
    """A module of this folder that writes and reads a trainer's launches."""

    @property
    def TRAINER(self) -> str:
        """The trainer's id, in `axes/frameworks.toml` and as `--launch` takes it."""

    def write(self, strategy: Strategy, settings: LaunchSettings, /) -> Launch:
        """The launch that makes the trainer run a layout."""

    def matches(self, words: Sequence[str], /) -> bool:
        """Whether a command starts this trainer."""

    def read(self, words: Sequence[str], open_file: OpenFile | None = None, /) -> Reading:
        """The layout in a command of this trainer."""


def _unlisted_modules() -> Iterator[Any]:
    """Modules of this folder that define `TRAINER`."""
    for module in iter_modules([str(Path(__file__).parent)]):
        if module.name != "trainers":
            loaded = import_module(f"{__package__}.{module.name}")
            if hasattr(loaded, "TRAINER"):
                yield loaded


_LISTED: Final[tuple[TrainerModule, ...]] = (
    trl,
    axolotl,
    llama_factory,
    torchtune,
    megatron,
    torchtitan,
    nemo,
    deepspeed,
    accelerate,
)
_TRAINERS: Final[Mapping[str, TrainerModule]] = {
    trainer.TRAINER: trainer for trainer in (*_LISTED, *_unlisted_modules())
}
"""By their ids; they are asked in this order whether a command is theirs."""
TRAINERS: Final = tuple(_TRAINERS)
"""What `--launch` takes."""
_FILES: Final[Mapping[str, Callable[[Mapping[str, Any], OpenFile | None], Reading]]] = {
    torchtitan.TRAINER: torchtitan.read_document,
    deepspeed.TRAINER: deepspeed.read_document,
    accelerate.TRAINER: accelerate.read_document,
    nemo.TRAINER: nemo.read_document,
    trl.TRAINER: trl.read_document,
    axolotl.TRAINER: axolotl.read_document,
    llama_factory.TRAINER: llama_factory.read_document,
    torchtune.TRAINER: torchtune.read_document,
    "nanotron": formats.nanotron,
    "llm-foundry": formats.llm_foundry,
}
"""What reads a configuration file that is a trainer's."""

_LONGEST: Final = 20_000
"""Characters of a launch command that are read."""


def launch(
    strategy: Strategy,
    trainer: str,
    problem: SearchCase,
    *,
    interval_steps: int | None = None,
    asynchronous: bool = True,
) -> Launch:
    """A layout in a trainer's own words; without `interval_steps` [1] saves are the trainer's."""
    if trainer not in _TRAINERS:
        raise UnknownName("launch", trainer, TRAINERS)
    if len(strategy) > 1:
        raise BadValue("strategy", f"{len(strategy)} layouts", "give one")
    framework(trainer).require(problem.workload)
    settings = settings_of(strategy, problem, interval_steps, asynchronous)
    settings.micro_batches(strategy)  # refuses a batch that does not divide
    refuse(strategy, problem, trainer)
    # A fine-tuner's file says the whole of a training.
    written = _TRAINERS[trainer].write(strategy, settings)
    open_settings = (
        []
        if framework(trainer).engine != framework(trainer).name
        else _open_settings(settings, written)
    )
    return replace(
        written,
        notes=(*written.notes, *open_settings),
        beside=start_of(problem.workload.model, settings, written),
    )


def settings_of(
    strategy: Strategy,
    problem: SearchCase,
    interval_steps: int | None = None,
    asynchronous: bool = True,
) -> LaunchSettings:
    """What a launch command needs besides the layout: batch, layers by stage, precision, saves."""
    model, training = problem.workload.model, problem.workload.training
    stages = stages_in_order(model, strategy, problem.cluster.calibration.placement)
    if not stages and any(block.variant == STATE_SPACE for block in model.blocks):
        layers = iter([layer for run in model.runs for layer in run.layers * int(run.repeats)])
        stages = tuple(
            tuple(islice(layers, n)) for n in counted_layers(strategy, int(model.layers))
        )
    return LaunchSettings(
        sequence=int(training.sequence),
        global_batch=int(training.global_batch),
        layers=int(model.layers),
        model=hub_id(model.name),
        experts=model.experts is not None,
        stages=tuple(
            tuple(tuple(block.variant for block in layer.blocks) for layer in stage)
            for stage in stages
        ),
        prediction_modules=int(model.prediction_modules),
        precision=training.precision.name,
        optimizer=training.optimizer.name,
        adapters=training.adapters is not None,
        documents=training.documents is not None,
        interval_steps=interval_steps,
        asynchronous=asynchronous,
        training=training,
    )


def _open_settings(settings: LaunchSettings, written: Launch) -> list[str]:
    """Notes on options that the user has to set in the trainer's own words."""
    notes: list[str] = []
    if settings.optimizer != USUAL and "--optim" not in written.arguments:
        notes.append(f"choose the optimizer {settings.optimizer} in the trainer's own words")
    if settings.adapters and peft.FILE not in written.files:
        notes.append(
            "say the adapters and the weights they stand beside in the trainer's own words"
        )
    if settings.documents:
        notes.append(
            "say where documents end in the trainer's own words: "
            "without it all tokens see each other"
        )
    return notes


def matching(words: Sequence[str]) -> str:
    """The trainer whose command it is; empty where none knows it.

    >>> matching(["torchrun", "pretrain_gpt.py", "--tensor-model-parallel-size", "2"])
    'megatron'
    """
    return next((name for name, trainer in _TRAINERS.items() if trainer.matches(words)), "")


def read(words: Sequence[str], open_file: OpenFile | None = None) -> Reading:
    """What a launch command says; `open_file` reads files that it names, None = it reads none.

    >>> read(["--tensor-model-parallel-size", "8", "--micro-batch-size", "2"]).layout["mbs"]
    2
    """
    for trainer in _TRAINERS.values():
        if trainer.matches(words):
            return trainer.read(words, open_file)
    path = next((word for word in words if word.endswith(formats.ENDINGS)), None)
    if path is not None and open_file is not None:
        document = formats.document_of(open_file(path), path)
        return _FILES[formats.format_of(document, path).reader](document, open_file)
    raise BadValue(
        "current", " ".join(words), f"write tp=8,pp=4,… or the arguments of {', '.join(TRAINERS)}"
    )


def read_layout(
    text: str | Sequence[str],
    gpus: int,
    *,
    layers: int | None = None,
    open_file: OpenFile | None = None,
    field: str = "current",
    unpriced: Callable[[str], object] = str,
    alone: Sharding = Sharding.OPTIMIZER,
) -> Strategy:
    """A layout on `gpus` devices [1], from strategy text or a trainer's arguments.

    `unpriced` is called with each argument that changes memory or time beside the layout; `alone`
    is the level of one data-parallel rank where a text has none.

    >>> read_layout("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4", 64).dp
    2
    """
    if isinstance(text, str):
        if len(text) > _LONGEST:
            raise BadValue(field, text, f"at most {_LONGEST} characters")
        try:
            words = words_of(text)
        except ValueError as error:
            raise BadValue(field, text, f"the quotes must match: {error}") from None
        if not any(word.startswith("-") for word in words) and not _is_launch(words):
            return parse_strategy(text, gpus, field=field, alone=alone)
    else:
        words = list(text)
    reading = read(words, open_file)
    for name in reading.unpriced:
        unpriced(name)
    return reading.strategy(gpus, layers=layers, field=field)


def _is_launch(words: Sequence[str]) -> bool:
    return nemo.matches(words) or any(word.endswith(formats.ENDINGS) for word in words)
