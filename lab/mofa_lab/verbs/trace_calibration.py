"""`mofa trace calibrate`: constants of a stack from profiler traces. Not a verb."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mofa_model import output, presets, units
from mofa_model.errors import BadFile, BadValue, InputError, UnknownName
from mofa_model.files import from_toml, read_text, write_text
from mofa_model.spec import Training, Workload
from mofa_model.strategy import parse_strategy
from mofa_model.tables import Column, Table

if TYPE_CHECKING:
    from mofa_lab.traces.predict import TracedRun
    from mofa_lab.traces.prices import Layout

NEEDED: Final = ("model", "gpu", "strategy", "global_batch", "seq")
POSSIBLE: Final = ("precision", "stack", "gpus")


def add_action(actions: _SubParsersAction[ArgumentParser]) -> None:
    """The action's files and options."""
    summary = "a layer of constants from the traces of one stack"
    action = actions.add_parser("calibrate", help=summary, description=summary)
    action.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="profiler traces of one run, or a .toml of several runs",
    )
    action.add_argument("--to", metavar="FILE", help="file to write")
    for name, what in (
        ("model", "model preset or config.json"),
        ("gpu", "device preset"),
        ("gpus", "devices"),
        ("strategy", "layout, for example tp=8,pp=4,mbs=1"),
        ("global-batch", "sequences of a step"),
        ("seq", "tokens of a sequence"),
        ("precision", "recipe (default: bf16)"),
        ("stack", "software stack (default: one that nobody measured)"),
    ):
        action.add_argument(f"--{name}", metavar=name.upper(), help=f"what was traced: {what}")
    output.add_options(action)


def run(arguments: Namespace) -> int:
    """Learn constants from traces, print them, and write them where `--to` says."""
    from mofa_lab.traces.constants import constants_of

    runs = _runs(arguments)
    sources = [_source(files, given) for files, given in runs]
    stacks = {source.layout.cluster.calibration.stack for source in sources}
    devices = {source.layout.cluster.device.name for source in sources}
    if len(stacks) > 1 or len(devices) > 1:
        raise InputError("FILE: runs of one stack on one device at a time")
    constants, text = constants_of(sources, stacks.pop())
    if arguments.to:
        write_text(arguments.to, text)
    columns = (
        Column("constant"),
        Column("value"),
        Column("scatter", unit="%"),
        Column("samples"),
        Column("how"),
    )
    notes = (
        (f"written: {arguments.to}; let it hold with MOFA_CONSTANTS={arguments.to}",)
        if arguments.to
        else ()
    )
    table = Table(
        title=f"Constants from {len(sources)} traced runs on {devices.pop()}",
        columns=columns,
        rows=tuple((f.path, f.value, f.scatter, f.samples, f.what) for f in constants),
        notes=notes,
    )
    output.emit(
        arguments.output,
        [table],
        {"constants": constants, "written": [arguments.to] if arguments.to else []},
    )
    return 0


def _runs(arguments: Namespace) -> list[tuple[list[Path], Mapping[str, Any]]]:
    """Files and description of each run: by flags, or by the tables [[run]] of a .toml."""
    names: list[str] = arguments.files
    if len(names) > 1 or not names[0].lower().endswith(".toml"):
        given = {
            key: getattr(arguments, key)
            for key in (*NEEDED, *POSSIBLE)
            if getattr(arguments, key) is not None
        }
        return [([Path(name) for name in names], given)]
    table = from_toml(read_text(names[0]), names[0])
    runs = table.get("run")
    if not isinstance(runs, list) or not runs or not all(isinstance(run, dict) for run in runs):
        raise BadFile(names[0], "must hold tables [[run]]; docs/traces.md shows one")
    folder = Path(names[0]).parent
    sources = []
    for run in runs:
        for key in run:
            if key not in ("files", *NEEDED, *POSSIBLE):
                raise UnknownName("run", key, ("files", *NEEDED, *POSSIBLE))
        files = run.get("files")
        if (
            not isinstance(files, list)
            or not files
            or not all(isinstance(name, str) for name in files)
        ):
            raise BadFile(names[0], "each [[run]] must have files: a list of names")
        sources.append(([folder / name for name in files], run))
    return sources


def _source(files: list[Path], given: Mapping[str, Any]) -> TracedRun:
    from mofa_lab.traces.columns import load
    from mofa_lab.traces.predict import source_of

    layout = _layout(given)
    return source_of(sorted((load(file) for file in files), key=lambda trace: trace.rank), layout)


def _layout(given: Mapping[str, Any]) -> Layout:
    from mofa_lab.traces.prices import Layout

    for key in NEEDED:
        if key not in given:
            raise BadValue(
                f"--{key.replace('_', '-')}", None, "a trace does not say it, so it must be given"
            )
    model = presets.model_named(str(given["model"]))
    stack = presets.resolve("stacks", str(given.get("stack") or "default"), field="--stack")
    precision = presets.precision(str(given.get("precision") or "bf16"), stack=stack)
    gpus = units.count(given["gpus"], field="--gpus") if given.get("gpus") else None
    strategy = parse_strategy(given["strategy"], gpus=gpus, field="--strategy")
    batch = units.count(given["global_batch"], field="--global-batch")
    if batch % int(strategy.global_micro_batch):
        raise BadValue(
            "--global-batch", batch, f"give a multiple of dp x mbs = {strategy.global_micro_batch}"
        )
    training = Training(
        sequence=units.count(given["seq"], field="--seq"), global_batch=batch, precision=precision
    )
    cluster = presets.cluster(str(given["gpu"]), 1, stack=stack, precision=precision)
    return Layout(
        workload=Workload(model=model, training=training),
        cluster=replace(cluster, gpus=strategy.gpus),
        strategy=strategy,
    )
