"""`mofa presets [KIND [NAME]]`: models, devices and other presets, with their sources."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from mofa_model import output, presets
from mofa_model.answers.options import (
    Names,
    UserQuestion,
    add_options,
    argument,
    as_in,
    names,
    option,
    question_of,
    text,
)
from mofa_model.answers.questions import ReliabilityQuestion, TrainingQuestion
from mofa_model.equations import parameters
from mofa_model.errors import BadValue, UnknownName
from mofa_model.presets import entries
from mofa_model.presets.kernels import kernels as kernels_of
from mofa_model.presets.kernels import sheet
from mofa_model.tables import Cell, Column, Table, table_of

_CALLED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("gpu", "accelerator", "hardware", "instance", "machine"), "devices"),
    **dict.fromkeys(("network", "link", "interconnect", "nic"), "fabrics"),
    **dict.fromkeys(("framework", "trainer", "software"), "stacks"),
    **dict.fromkeys(("format", "dtype", "recipe"), "precisions"),
    "kernel": "kernels",
}
"""Other words for kinds, each in the singular."""

CONSTANTS: Final = "constants"
"""The kind of measured constants, which depend on a device and a stack."""

KERNELS: Final = "kernels"
"""The kind of surfaces that were fitted to measured kernels of a device."""

EXAMPLES: Final = """\
examples:
  mofa presets                          every kind, with its names
  mofa presets devices                  one kind
  mofa presets models llama3.1-405b     one preset, with its source
  mofa presets constants h100 --stack megatron-core --precision fp8-current
  mofa presets kernels h100 --call 'gemm bf16 m=8192 n=8192 k=4096'"""


class PresetsQuestion(UserQuestion):
    """Which presets are shown, and for which stack."""

    kind: str | None = argument(
        text,
        "KIND",
        f"one of {', '.join((*presets.KINDS, CONSTANTS, KERNELS))}",
        default=None,
        kw_only=False,
    )
    name: str | None = argument(
        text,
        "NAME",
        "id or alias of an entry; for constants and kernels, that of a device",
        default=None,
        kw_only=False,
    )
    stack: str | None = as_in(
        TrainingQuestion,
        "stack",
        "software stack (default: general constants that no run has measured)",
        group=CONSTANTS,
    )
    precision: str = as_in(ReliabilityQuestion, "precision", "training recipe")
    framework_version: str | None = as_in(TrainingQuestion, "framework_version")
    defects: Names = option(
        names, "--defect NAME", "a known defect of the stack, which slows it", default=()
    )
    call: str | None = option(
        text,
        "--call TEXT",
        "print the time of one call: its operator, form and sizes",
        group=KERNELS,
    )


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    add_options(parser, PresetsQuestion)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """List the kinds, list one kind, or show one preset."""
    question = question_of(PresetsQuestion, arguments)
    kind, name = _meant(question.kind, question.name)
    if kind is None:
        table = _kinds()
    elif kind == CONSTANTS:
        table = _constants(question)
    elif kind == KERNELS:
        table = _kernels(name, question.call)
    else:
        table = _list(kind) if name is None else _entry(kind, name)
    output.emit(arguments.output, [table])
    return 0


def _meant(kind: str | None, name: str | None) -> tuple[str | None, str | None]:
    """The kind and name that people mean: they may use another word for a kind, or a name alone."""
    kinds = (*presets.KINDS, CONSTANTS, KERNELS)
    if kind is None or kind in kinds:
        return kind, name
    if kind in {"all", "list", "ls"} and name is None:
        return None, None
    word = kind.lower().removesuffix("s")
    called = [candidate for candidate in kinds if candidate.removesuffix("s") == word] or [
        _CALLED.get(word, "")
    ]
    if called[0]:
        return called[0], name
    homes = [home for home in presets.KINDS if name is None and presets.meanings(home, kind)]
    if "precisions" in homes:  # formats of frozen matrices have the names of recipes
        return "precisions", kind
    if len(homes) > 1:
        commands = " or ".join(f"{home} {kind}" for home in homes)
        raise BadValue("presets", kind, f"it is a name of several kinds: give {commands}")
    if homes:
        return homes[0], kind
    names = {
        word: canonical
        for kind in presets.KINDS
        for word, canonical in presets.canonical_names(kind).items()
    }
    raise UnknownName("presets", kind, kinds, aliases={**names, **_CALLED})


def _kinds() -> Table:
    rows = tuple(
        (kind, len(presets.names(kind)), ", ".join(presets.names(kind))) for kind in presets.KINDS
    )
    note = (
        "`mofa presets KIND` lists one kind, `mofa presets KIND NAME` one preset and its sources."
    )
    columns = (Column("kind"), Column("count"), Column("names"))
    return Table(title="Presets", columns=columns, rows=rows, notes=(note,))


def _list(kind: str) -> Table:
    read, cells = _KINDS[kind]
    rows = []
    for name in presets.names(kind):
        preset, source = read(name), presets.sources(kind, name)["source"]
        rows.append((name, *(show(preset) for _, show in cells), source))
    columns = (Column("name"), *(column for column, _ in cells), Column("source", wide=True))
    return Table(title=kind.capitalize(), columns=columns, rows=tuple(rows))


def _entry(kind: str, name: str) -> Table:
    """Every field of one preset, as its file has it."""
    canonical = presets.resolve(kind, name)
    rows = tuple(_flat(presets.entry(kind, canonical)))
    notes: tuple[str, ...] = ()
    if node := presets.instance(name) if kind == "devices" else {}:
        shown = {key: value for key, value in node.items() if key not in {"aliases", "source"}}
        facts = ", ".join(f"{key} {value}" for key, value in shown.items()) or "the usual machine"
        notes = (f"{name} is a node with it: {facts}; the rest is the usual machine above.",)
    columns = (Column("field"), Column("value", align="left"))
    return Table(title=canonical, columns=columns, rows=rows, notes=notes)


def _constants(question: PresetsQuestion) -> Table:
    if question.name is None:
        right = "name a device: mofa presets constants h100 --stack megatron-core"
        raise BadValue("NAME", None, right)
    key = (question.name, question.precision, question.stack or "default")
    constants = presets.constants_of(
        *key, release=question.framework_version, defects=tuple(question.defects)
    )
    values = (Column("value"), Column("scatter", unit="%"))
    return Table(
        title=f"Constants: {', '.join(key)}",
        columns=(Column("constant"), *values, Column("source")),
        rows=tuple((c.path, c.value, c.scatter or None, c.source) for c in constants.values()),
        notes=("Every other constant has its default.",),
    )


def _kernels(device: str | None, call: str | None) -> Table:
    if device is None and call is None:
        return _kernel_devices()
    if device is None:
        raise BadValue("NAME", None, "name a device: mofa presets kernels h100 --call ...")
    return _call(device, call) if call else _surfaces(device)


def _kernel_devices() -> Table:
    """Devices that have surfaces, their own or those of a similar device."""
    kernels = {name: kernels_of(name) for name in presets.names("devices")}

    def measured_on(name: str) -> str:
        devices = {*kernels[name].measured.values()}
        return ", ".join(sorted(devices, key=lambda device: device != name))

    return table_of(
        "Kernels",
        [name for name in kernels if kernels[name].surfaces],
        (
            (Column("device"), str),
            (Column("surfaces"), lambda name: len(kernels[name].surfaces)),
            (Column("calls"), lambda name: sum(s.rows for s in kernels[name].surfaces.values())),
            (Column("measured on"), measured_on),
        ),
        ("`mofa presets kernels DEVICE` lists its surfaces; --call prices one call.",),
    )


def _surfaces(device: str) -> Table:
    """Every surface of a device."""
    kernels = kernels_of(device)
    surfaces = kernels.surfaces
    if not surfaces:
        right = "nobody measured its kernels, nor a relative's: `mofa presets kernels`"
        raise BadValue("NAME", kernels.device, right)
    return table_of(
        f"Kernels: {kernels.device}",
        sorted(surfaces),
        (
            (Column("operator"), lambda call: call[0]),
            (Column("form"), lambda call: call[1]),
            (Column("calls"), lambda call: surfaces[call].rows),
            (Column("numbers", wide=True), lambda call: surfaces[call].corrections.size),
            (Column("start", unit="s"), lambda call: float(surfaces[call].law.start)),
            (Column("of the peak", unit="%", wide=True), lambda call: surfaces[call].law.matrix),
            (Column("measured on"), lambda call: kernels.measured[call]),
            (Column("source", wide=True), lambda call: surfaces[call].source),
        ),
    )


def _call(device: str, text: str) -> Table:
    """One call by its text, for example `gemm bf16 m=4096 n=4096 k=4096`."""
    example = "write for example 'gemm bf16 m=4096 n=8192 k=8192'"
    operator, *words = text.split() or [""]
    form = " ".join(word for word in words if "=" not in word)
    sizes: dict[str, float] = {}
    for word in words:
        name, equals, value = word.partition("=")
        try:
            sizes |= {name: float(value)} if equals else {}
        except ValueError:
            raise BadValue(f"--call {name}", value, "give a number") from None
    for name, size in sizes.items():
        if not (math.isfinite(size) and size > 0.0):
            raise BadValue(f"--call {name}", size, "give a finite number above zero")
    kernels = kernels_of(device)
    timer = kernels.timer(operator, form)
    try:
        work = timer.work(**timer.surface.fixed_sizes, **sizes)
    except TypeError as error:
        raise BadValue("--call", text, f"{str(error).partition('() ')[2]}; {example}") from None
    seconds = float(timer.seconds(**sizes))
    rate, data_sheet = float(work.flops) / seconds, sheet(kernels.device, timer.surface.format)
    rows = (
        ("time [s]", seconds),
        ("rate of the matrix units [FLOP/s]", rate or None),
        ("share of their peak", rate / float(data_sheet.peak) or None),
        ("measured on", kernels.measured[operator, form]),
    )
    columns = (Column("figure"), Column("value", align="left"))
    return Table(title=f"{kernels.device}: {text}", columns=columns, rows=rows)


def _billions(count: Callable[[Any], Any]) -> Callable[[Any], Cell]:
    return lambda model: float(count(model)) / 1e9


def _layers(model: Any) -> int:
    """Layers of the network itself, without encoders beside it."""
    kinds = (kind for kind in model.kinds if kind.blocks[0].own_tokens is None)
    return int(sum(model.number(kind) for kind in kinds))


_KINDS: Final[
    Mapping[str, tuple[Callable[[str], Any], Sequence[tuple[Column, Callable[[Any], Cell]]]]]
] = {
    "models": (
        presets.model,
        (
            (Column("total", unit="1e9"), _billions(parameters.total_parameters)),
            (Column("active", unit="1e9"), _billions(parameters.active_parameters)),
            (Column("layers"), _layers),
            (Column("hidden", wide=True), lambda m: int(m.hidden)),
            (Column("heads"), lambda m: next(filter(None, (b.heads_text for b in m.blocks)), "")),
            (
                Column("experts"),
                lambda m: (m.experts and f"{m.experts.top_k} of {m.experts.count}") or "",
            ),
        ),
    ),
    "devices": (
        lambda name: presets.cluster(name, 1),
        (
            (Column("bf16", unit="FLOP/s"), lambda c: float(c.device.peak_bf16)),
            (Column("fp8", unit="FLOP/s", wide=True), lambda c: float(c.device.peak_fp8) or None),
            (Column("memory", unit="B"), lambda c: float(c.device.memory)),
            (
                Column("memory bandwidth", unit="B/s", wide=True),
                lambda c: float(c.device.memory_bandwidth),
            ),
            (Column("scale up", unit="B/s"), lambda c: float(c.scale_up.bandwidth)),
            (Column("scale out", unit="B/s"), lambda c: float(c.scale_out.bandwidth)),
            (Column("node"), lambda c: int(c.gpus_per_node)),
        ),
    ),
    "fabrics": (
        lambda name: name,
        (
            (Column("kind"), lambda name: entries.entry("fabrics", name)["kind"]),
            (Column("bandwidth", unit="B/s"), lambda name: float(presets.fabric(name).bandwidth)),
            (Column("latency", unit="s"), lambda name: float(presets.fabric(name).latency)),
        ),
    ),
    "precisions": (
        presets.precision,
        (
            (Column("gemm"), lambda p: p.gemm),
            (Column("weight"), lambda p: float(p.weight)),
            (Column("gradient"), lambda p: float(p.gradient)),
            (Column("optimizer"), lambda p: float(p.optimizer)),
        ),
    ),
    "optimizers": (
        presets.optimizer,
        (
            (Column("states", unit="B"), lambda o: float(o.states)),
            (Column("outside layers", unit="B"), lambda o: float(o.outside)),
            (Column("iterations"), lambda o: int(o.iterations)),
            (Column("gathered", unit="B"), lambda o: float(o.gather)),
            (Column("paged"), lambda o: o.paged),
        ),
    ),
    "bases": (
        presets.base,
        (
            (Column("width", unit="B"), lambda b: float(b.width)),
            (Column("unpacked"), lambda b: b.unpacked),
        ),
    ),
    "stacks": (
        presets.stack,
        (
            (Column("placement"), lambda s: s.placement),
            (Column("tensor overlap"), lambda s: s.tensor_overlap),
            (Column("releases", wide=True), lambda s: ", ".join(s.releases)),
            (Column("defects"), lambda s: ", ".join(s.defects)),
        ),
    ),
}
"""The reader of presets of each kind, and the columns of their list."""


def _flat(fields: Mapping[str, Any], within: str = "") -> Iterator[tuple[Cell, ...]]:
    """Fields with their values as people write them, nested ones by dotted names."""
    for key, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{within}{key}.")
        elif isinstance(value, list):
            yield f"{within}{key}", ", ".join(map(str, value))
        else:
            yield f"{within}{key}", str(value).lower() if isinstance(value, bool) else str(value)
