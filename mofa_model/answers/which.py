"""`mofa which`: the GPUs that a fine-tune needs, whether it fits, its time and its cost.

For each device and each recipe, the best layout is searched, from one GPU of a machine up to all. A
recipe is a method with settings that save memory; a method's recipes are tried plainest first.
Price, main memory and network are those of the cheapest cloud machine with so many GPUs; a device
without one has no price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from mofa_model import presets, units
from mofa_model.advice.sizes import SURE, Size, ranked, size_of
from mofa_model.answers import training
from mofa_model.answers.answer import UserAnswer, asked_by
from mofa_model.answers.questions import AdviceQuestion, WhichQuestion
from mofa_model.bands.odds import in_percent
from mofa_model.equations.parameters import total_parameters
from mofa_model.errors import BadValue, InputError, Missing, NoFeasibleStrategy, UnknownName
from mofa_model.records import dataclass
from mofa_model.strategy import format_strategy, short_strategy
from mofa_model.tables import Cell, Column, Table
from mofa_model.units import GIB, HOUR, Bytes, Range, Ratio

if TYPE_CHECKING:
    from mofa_model.advice import Advice, Request
    from mofa_model.search import SearchCase

EVEN: Final = 0.5
"""Least chance of fitting of a choice that is shown. [1]"""
COUNTS: Final = (1, 2, 4, 8, 16)
"""Numbers of GPUs of one machine that are tried."""
_OF_PAPER: Final = ("mofa-a", "mofa-b")
"""Devices of the paper, which nobody can rent or buy by that name."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A method of fine-tuning with settings that save memory."""

    method: str
    words: str
    fields: Mapping[str, Any]
    """Its fields of a question about a training."""
    least_memory: Bytes
    """Bytes on the devices for each parameter: with less memory the recipe is not tried. [B]"""
    constraints: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name in few words."""
        return self.words.partition(":")[0]

    @property
    def plain(self) -> Recipe:
        """The recipe without settings, against which the settings are compared."""
        return RECIPES["lora" if self.method != "full" else "full"][0]


_ADAPTED: Final = {"adapter_targets": ("all",)}
RECIPES: Final[Mapping[str, tuple[Recipe, ...]]] = {
    "lora": (Recipe(method="lora", words="LoRA", fields=_ADAPTED, least_memory=1.9),),
    "qlora": (
        Recipe(
            method="qlora",
            words="QLoRA: frozen weights in NF4",
            fields={**_ADAPTED, "base": "nf4"},
            least_memory=0.5,
        ),
        Recipe(
            method="qlora",
            words="QLoRA: frozen weights in NF4, which wait in main memory (DeepSpeed)",
            fields={**_ADAPTED, "base": "nf4", "framework": "deepspeed"},
            constraints=("host-weights=true",),
            least_memory=0.02,
        ),
    ),
    "full": (
        Recipe(method="full", words="full", fields={}, least_memory=15.0),
        Recipe(
            method="full",
            words="full: weights in bf16 alone, 8-bit AdamW, loss in chunks",
            fields={
                "precision": ("bf16-pure",),
                "optimizer": "adamw-8bit",
                "loss": "chunked",
            },
            least_memory=5.9,
        ),
        Recipe(
            method="full",
            words="full: weights in bf16 alone, paged 8-bit AdamW in the backward pass, loss in"
            " chunks (torchtune)",
            fields={
                "precision": ("bf16-pure",),
                "optimizer": "paged-adamw-8bit",
                "gradient_release": True,
                "loss": "chunked",
                "framework": "torchtune",
            },
            least_memory=1.9,
        ),
    ),
}
"""Recipes of each method, the plainest first. Sources: peft and bitsandbytes (adapters on all
linear layers, NF4), torchtune's single-device configs (bf16 alone, 8-bit AdamW in the
backward pass).
"""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """GPUs of one machine, with what they cost."""

    name: str
    """The cloud's machine, or the device where none is known."""
    device: str
    gpus: int
    """GPUs of the machine that the layout uses. [1]"""
    price: float | None
    """Price of the whole machine. [USD/s]"""
    as_of: str
    """When the price was read; empty for a price that a user states, or without a price."""


@dataclass(frozen=True, kw_only=True)
class MemorySaving:
    """A setting that saves memory, and what it costs compared with the same layout without it."""

    words: str
    costs: Ratio
    """Share by which it makes a step longer; negative where the step gets shorter. [1]"""
    saved_memory: Bytes
    """Memory that it saves on the fullest device. [B]"""


@dataclass(frozen=True, kw_only=True)
class MachineChoice:
    """A machine and a recipe with their best layout."""

    machine: Machine
    recipe: Recipe
    sized: Size
    question: WhichQuestion

    @property
    def advice(self) -> Advice:
        """The best layout that surely fits; where there is none, the layout most likely to fit."""
        return self.sized.advice

    @property
    def request(self) -> Request:
        """The request that its advice answers."""
        return self.sized.request

    @property
    def fits(self) -> Ratio:
        """Chance that it fits. [1]"""
        return 0.0 if self.advice.odds is None else float(self.advice.odds.fits)

    @property
    def duration(self) -> Range:
        """Time of the run, failures included. [s]"""
        if self.advice.predicted is None:
            return Range(lower=inf, target=inf, upper=inf)
        return self.advice.predicted.duration_seconds

    @property
    def cost(self) -> Range | None:
        """What the run costs. [USD]"""
        return None if self.machine.price is None else self.duration.times(self.machine.price)

    @property
    def settings(self) -> tuple[MemorySaving, ...]:
        """The settings that make it fit, the cheapest first."""
        return _settings(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class WhichAnswer(UserAnswer):
    """Choices that fit, best first."""

    question: WhichQuestion
    run_tokens: int
    """Tokens of the whole run. [1]"""
    model: str
    machine_choices: tuple[MachineChoice, ...]
    """Choices that surely fit, best first; behind them those that may fit."""
    nearest: str
    """The lack of the smallest layout, where nothing fits."""

    @property
    def document(self) -> dict[str, Any]:
        """The answer for machines."""
        shown = self.machine_choices[: self.question.top]
        return {
            "model": self.model,
            "tokens": self.run_tokens,
            "by": self.question.by,
            "choices": [_document(choice) for choice in shown],
            "found": len(self.machine_choices),
            "nearest": self.nearest,
        }

    @property
    def tables(self) -> Sequence[Table]:
        """What a person reads on one screen."""
        if not self.machine_choices:
            rows = ((self.nearest or "no layout is legal",),)
            return [Table(title=self._title, columns=(Column("why not"),), rows=rows)]
        return [self._table, self._first]

    @property
    def records(self) -> Table:
        """A row for each choice, in SI and dollars."""
        rows = [_document(choice) for choice in self.machine_choices]
        keys = [key for key in rows[0] if key != "settings"] if rows else ["machine"]
        return Table(
            columns=tuple(Column(key) for key in keys),
            rows=tuple(tuple(_flat(row[key]) for key in keys) for row in rows),
        )

    @property
    def _title(self) -> str:
        return f"{self.model}, {self.run_tokens / 1e6:.4g}M tokens, least {self.question.by}"

    @property
    def _table(self) -> Table:
        """The choices, best first, with memory, time and cost of each."""
        shown = self.machine_choices[: self.question.top]
        rows: list[tuple[Cell, ...]] = []
        for choice in shown:
            machine, predicted = choice.machine, choice.advice.predicted
            rows.append(
                (
                    f"{machine.gpus} x {machine.device}",
                    "-" if machine.name == machine.device else machine.name,
                    choice.recipe.title,
                    in_percent(choice.fits),
                    "-" if predicted is None else f"{predicted.memory_bytes.target / GIB:.1f} GiB",
                    _hours(choice.duration),
                    "-" if choice.cost is None else f"{choice.cost.target:,.2f} USD",
                )
            )
        notes = []
        if dates := sorted({choice.machine.as_of for choice in shown if choice.machine.as_of}):
            notes.append(f"prices: on demand, read in {' and '.join(dates)}; --price says yours")
        if any(choice.cost is None for choice in shown):
            notes.append("-: no price of a machine with it was read; --price says yours")
        if hidden := self.machine_choices[len(shown) :]:
            bare = sum(choice.cost is None for choice in hidden)
            top = len(self.machine_choices)
            notes.append(f"{len(hidden)} more, {bare} of them without a price: --top {top}")
        figures = (Column(name, align="right") for name in ("fits", "memory", "time", "cost"))
        columns = (Column("GPUs", align="left"), Column("machine"), Column("method"), *figures)
        return Table(title=self._title, columns=columns, rows=tuple(rows), notes=tuple(notes))

    @property
    def _first(self) -> Table:
        first = self.machine_choices[0]
        strategy = first.advice.strategy
        rows: list[tuple[Cell, ...]] = [
            ("recipe", first.recipe.words),
            ("layout", "" if strategy is None else short_strategy(strategy)),
        ]
        for saving in first.settings:
            effect = f"{saving.saved_memory / GIB:.1f} GiB less; a step takes {saving.costs:+.0%}"
            rows.append((saving.words, effect))
        doubts, caveats = first.advice.doubts, first.advice.caveats
        rows += [("doubt", doubt) for doubt in doubts]
        rows += [("condition", caveat) for caveat in caveats if caveat not in doubts]
        return Table(
            title=f"With what: {first.machine.gpus} x {first.machine.device}",
            columns=(Column("setting"), Column("what it does", align="left")),
            rows=tuple(rows),
            notes=(f"the same in full: {_command(first, self.question)}",),
        )

    def raise_for_status(self) -> None:
        """Raise where nothing fits."""
        if not self.machine_choices:
            raise NoFeasibleStrategy(self.nearest or "no layout is legal")


@asked_by(WhichQuestion)
def which(
    question: WhichQuestion, advance: Callable[[float], None] = lambda _: None
) -> WhichAnswer:
    """The machines on which a fine-tune fits, with time and cost, best first."""
    tokens = _tokens(question)
    methods = _methods(question)
    model = presets.model_named(str(question.model))
    parameters = float(total_parameters(model))
    devices = list(_devices(question))
    choices: list[MachineChoice] = []
    lacks: list[tuple[float, str]] = []
    for device in devices:
        for method in methods:
            for result in _choices(question, device, RECIPES[method], tokens, parameters):
                if isinstance(result, MachineChoice):
                    choices.append(result)
                else:
                    lacks.append(result)
        advance(1.0 / len(devices))
    sure = [choice for choice in choices if choice.fits >= SURE]
    unsure = [choice for choice in choices if choice.fits < SURE]
    choices = [*_in_order(sure, question.by), *_in_order(unsure, question.by)]
    return WhichAnswer(
        question=question,
        run_tokens=tokens,
        model=model.name,
        machine_choices=tuple(_best_of_each(choices, len(devices))),
        nearest="" if choices or not lacks else min(lacks)[1],
    )


def _choices(
    question: WhichQuestion,
    device: str,
    recipes: Sequence[Recipe],
    tokens: int,
    parameters: float,
) -> Iterator[MachineChoice | tuple[float, str]]:
    """The choices of a method on a device, up to the first that surely fits; for recipes that do
    not fit, the share of the memory that they need and the reason in words.

    The plainest recipe that surely fits ends the search: more GPUs cost as much or more, and where
    time counts they were tried first.
    """
    for machine in _machines(question, device):
        room = float(presets.device(machine.device).memory) * int(machine.gpus)
        for recipe in recipes:
            where = f"{recipe.title} on {machine.gpus} x {machine.device}"
            if (least := float(parameters * recipe.least_memory)) > room:
                yield least / room, f"{where} needs {least / GIB:.0f} GiB of {room / GIB:.0f} GiB"
                continue
            try:
                choice = _choice(question, machine, recipe, tokens)
            except InputError as error:
                if recipe is recipes[0]:
                    raise
                yield inf, f"{where}: {error}"  # the trainer has no such setting
                continue
            if choice.fits >= EVEN:
                yield choice
            else:
                chance = f"fits with a probability of {in_percent(choice.fits)} only"
                yield 1.0, f"{where}: {chance if choice.fits else choice.advice.explanation}"
            if choice.fits >= SURE:
                if question.by == "hardware" or not recipe.constraints:
                    return
                break  # more GPUs may need no such constraint, and cost less


_OBJECTIVES: Final = {"money": "least-gpu-hours", "time": "soonest", "hardware": "least-gpus"}
"""The objective of the search of sizes, by --by."""


def _in_order(choices: Sequence[MachineChoice], by: str) -> list[MachineChoice]:
    """Choices, best first, as `advice.sizes` ranks sizes; those without a price stand behind."""
    if by == "hardware":
        return sorted(choices, key=_hardware)
    if by == "time":
        return _ranked(choices, [choice.duration.target for choice in choices])
    costs = {id(choice): choice.cost.target for choice in choices if choice.cost is not None}
    priced = [choice for choice in choices if id(choice) in costs]
    others = [choice for choice in choices if id(choice) not in costs]
    return [
        *_ranked(priced, [costs[id(choice)] for choice in priced]),
        *_ranked(others, [choice.duration.target * choice.machine.gpus for choice in others]),
    ]


def _ranked(choices: Sequence[MachineChoice], costs: Sequence[float]) -> list[MachineChoice]:
    return [choices[index] for index in ranked(costs, [choice.machine.gpus for choice in choices])]


def _hardware(choice: MachineChoice) -> tuple[float, float, float]:
    """The order of --by hardware: GPUs, the memory of each, the time."""
    memory = float(presets.device(choice.machine.device).memory)
    return float(choice.machine.gpus), memory, choice.duration.target


def _best_of_each(choices: Sequence[MachineChoice], devices: int) -> Iterator[MachineChoice]:
    """The best choice of each device. If only one device is asked for: the best of each method."""
    seen: set[tuple[str, str]] = set()
    for choice in choices:
        key = (choice.machine.device, choice.recipe.method if devices == 1 else "")
        if key not in seen:
            seen.add(key)
            yield choice


def _tokens(question: WhichQuestion) -> int:
    """Tokens of the whole run. [1]"""
    lacking = {}
    if question.model is None:
        lacking["--model"] = "llama3-8b"
    if question.tokens is None and question.examples is None:
        lacking["--tokens"] = "10M"
    if lacking:
        raise Missing(lacking, also="or --examples N --length L in place of --tokens")
    if question.tokens is not None and question.examples is not None:
        raise BadValue("--examples", question.examples, "give --tokens, or --examples")
    if question.tokens is not None:
        of_epoch = units.count(question.tokens, field="--tokens")
    else:
        of_epoch = units.count(question.examples, field="--examples")
        of_epoch *= units.count(question.length, field="--length")
    tokens = round(of_epoch * question.epochs)
    if tokens < 1:
        flag = "--examples" if question.tokens is None else "--tokens"
        raise BadValue(flag, question.tokens or question.examples, "give one or more")
    return tokens


def _methods(question: WhichQuestion) -> list[str]:
    words = [word.strip().lower() for text in question.method for word in text.split(",")]
    for word in words:
        if word not in RECIPES:
            raise UnknownName("--method", word, RECIPES)
    return [name for name in RECIPES if name in words]


def _devices(question: WhichQuestion) -> Iterator[str]:
    """Names of devices or machines that may be used."""
    if question.device_file:
        yield presets.device_of_file(question.device_file)
        return
    words = [word.strip() for text in question.gpu for word in text.split(",")]
    for word in words:
        presets.resolve("devices", word, field="--gpu", also=training.DEVICE_HINT)
    yield from words or (name for name in presets.names("devices") if name not in _OF_PAPER)


def _machines(question: WhichQuestion, named: str) -> Iterator[Machine]:
    """Machines with that device in the order in which they are tried."""
    device = presets.resolve("devices", named)
    node = int(presets.cluster(named, 1).gpus_per_node)
    counts = [count for count in COUNTS if count <= min(node, question.most_gpus)]
    if question.by == "time":
        counts.reverse()
    for count in counts:
        name = named if presets.instance(named) else _cheapest(device, count) or device
        facts = presets.instance(name)
        whole = int(facts.get("gpus_per_node", presets.entry("devices", device)["gpus_per_node"]))
        if facts and question.by != "hardware" and count < whole <= question.most_gpus:
            continue  # all of it costs the same
        price = units.parse(facts["price"], "USD/s") if "price" in facts else None
        as_of = str(facts.get("priced", ""))
        if question.price is not None:
            price, as_of = count * units.parse(question.price, "USD/s", field="--price"), ""
        yield Machine(name=name, device=device, gpus=count, price=price, as_of=as_of)


def _cheapest(device: str, count: int) -> str:
    """The cheapest cloud machine with so many of a device; empty where none has a price."""
    entry = presets.entry("devices", device)
    priced = [
        (units.parse(facts["price"], "USD/s"), name)
        for name, facts in entry.get("instances", {}).items()
        if "price" in facts and facts.get("gpus_per_node", entry["gpus_per_node"]) >= count
    ]
    return min(priced, default=(0.0, ""))[1]


def _training(
    question: WhichQuestion, machine: Machine, recipe: Recipe, tokens: int
) -> AdviceQuestion:
    """The question about one machine and recipe."""
    fields = dict(recipe.fields)
    if "adapter_targets" in fields:
        fields["adapter_rank"] = question.adapter_rank
    if not presets.entry("devices", machine.device).get("bf16", True):
        fields["precision"] = ("fp16",)
    fields.setdefault("framework", question.framework)
    return AdviceQuestion(
        model=question.model,
        gpu=machine.name,
        gpus=machine.gpus,
        sequence_length=question.sequence_length,
        global_batch_size=question.global_batch_size,
        tokens=tokens,
        top=0,
        constraints=recipe.constraints,
        **fields,
    )


def _choice(
    question: WhichQuestion, machine: Machine, recipe: Recipe, tokens: int
) -> MachineChoice:
    from mofa_model.advice import advise

    request = training.request_of(_training(question, machine, recipe, tokens))
    size = size_of(replace(request, top=0), _OBJECTIVES[question.by])
    if not size.fits:  # a layout that may fit is shown as well, with its chance
        size = replace(size, advice=advise(replace(size.request, least_fits=0.0)))
    return MachineChoice(machine=machine, recipe=recipe, sized=size, question=question)


_SETTINGS: Final = {
    "recompute": "activations of layers are recomputed",
    "offload": "activations wait in main memory",
    "sharding": "states are sharded over the GPUs",
    "optimizer": "optimizer states stay in main memory",
    "host_weights": "weights wait in main memory",
}
"""Axes of a strategy that make it smaller, and what they do."""


def _settings(choice: MachineChoice) -> tuple[MemorySaving, ...]:
    """Each setting of the layout and of the recipe, compared with the same layout without it."""
    from mofa_model.advice.predictions import priced
    from mofa_model.strategy import AXES, Strategy

    strategy = choice.advice.strategy
    if strategy is None:
        return ()
    problem = choice.request.problems[0]
    base = priced(problem, strategy)

    def against(words: str, other: SearchCase, layout: Strategy) -> MemorySaving:
        without = priced(other, layout)
        return MemorySaving(
            words=words,
            costs=base.step_time / without.step_time - 1.0,
            saved_memory=float(without.footprint.peak) - float(base.footprint.peak),
        )

    savings = []
    bare = Strategy()
    for axis in AXES:
        off = {name: getattr(bare, name) for name in axis.fields}
        if axis.name in _SETTINGS and any(getattr(strategy, name) != off[name] for name in off):
            savings.append(against(_SETTINGS[axis.name], problem, replace(strategy, **off)))
    if choice.recipe is not choice.recipe.plain:
        shared = {
            name: choice.recipe.fields[name]
            for name in ("framework",)
            if name in choice.recipe.fields
        }
        plain = replace(choice.recipe.plain, fields={**choice.recipe.plain.fields, **shared})
        other = training.request_of(_training(choice.question, choice.machine, plain, 1))
        savings.append(against(choice.recipe.words, other.problems[0], strategy))
    return tuple(
        sorted(
            (saving for saving in savings if saving.saved_memory > 0),
            key=lambda saving: saving.costs,
        )
    )


def _document(choice: MachineChoice) -> dict[str, Any]:
    figures, strategy = choice.advice.predicted, choice.advice.strategy
    return {
        "machine": choice.machine.name,
        "device": choice.machine.device,
        "gpus": choice.machine.gpus,
        "method": choice.recipe.method,
        "recipe": choice.recipe.words,
        "fits": choice.fits,
        "memory_bytes": None if figures is None else figures.memory_bytes.target,
        "step_seconds": None if figures is None else figures.step_seconds.target,
        "duration_seconds": choice.duration,
        "cost_dollars": choice.cost,
        "price_as_of": choice.machine.as_of,
        "strategy": None if strategy is None else format_strategy(strategy),
        "status": choice.advice.status.value,
        "doubts": list(choice.advice.doubts),
        "settings": [
            {"setting": saving.words, "costs": saving.costs, "saves_bytes": saving.saved_memory}
            for saving in choice.settings
        ],
    }


def _flat(value: Any) -> Cell:
    if isinstance(value, Range):
        return value.target
    return "; ".join(value) if isinstance(value, list) else value


def _hours(time: Range) -> str:
    unit, size = ("d", 24 * HOUR) if time.target >= 48 * HOUR else ("h", HOUR)
    if time.target < HOUR:
        unit, size = "min", 60.0
    return f"{time.target / size:.3g} ({time.lower / size:.2g}-{time.upper / size:.2g}) {unit}"


def _command(first: MachineChoice, question: WhichQuestion) -> str:
    advice_question = _training(question, first.machine, first.recipe, 1)
    return replace(advice_question, tokens=None, top=5).command("advise")
