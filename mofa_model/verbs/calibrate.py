"""`mofa calibrate`: from your own runs to a layer of constants over the shipped ones."""

from __future__ import annotations

from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, Final

from mofa_model import output, units
from mofa_model.errors import BadValue, Missing
from mofa_model.tables import Column, Table

if TYPE_CHECKING:
    from mofa_model.calibrate.runs import Refinement

EXAMPLES: Final = """\
examples:
  your own runs: a layer over the shipped constants, with its band
    mofa calibrate --from-runs runs.csv --to mine.toml
    MOFA_CONSTANTS=mine.toml mofa advise ...
  one run from a trainer's log
    mofa calibrate --from-runs train.log --model llama3.1-8b --gpu h100 --gpus 64 \\
        --stack torchtitan --strategy tp=1,dp=64,mbs=1,optimizer=zero3 \\
        --global-batch 128 --seq 8192 --to mine.toml"""


_MOVED: Final = "`mofa fit` takes case files, `mofa trace calibrate` takes traces"
"""The verbs for files that this verb took in earlier releases."""
_OF_A_LOG: Final = {
    "model": "llama3-8b",
    "gpu": "h100",
    "gpus": "64",
    "strategy": "tp=2",
    "global_batch": "512",
    "seq": "8192",
}
"""Facts that no log has, and an example of each."""


def configure(parser: ArgumentParser) -> None:
    """Add the options for a person's own runs, and where to write the result."""
    parser.add_argument("--to", metavar="FILE", help="file to write")
    parser.add_argument(
        "--from-runs",
        metavar="FILE",
        help="runs (.json, .csv; see docs/calibration.md) or a trainer's log",
    )
    parser.add_argument("moved", nargs="*", action=_Moved, help=SUPPRESS)
    parser.add_argument("--from-trace", nargs="+", action=_Moved, help=SUPPRESS)
    log_options = parser.add_argument_group("what a log does not say")
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
        log_options.add_argument(f"--{name}", metavar=name.upper(), help=f"of a log: {what}")
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Fit factors to the runs, print what they change, write them."""
    if not arguments.from_runs:
        raise Missing({"--from-runs": "runs.csv"}, also=_MOVED)
    _own_runs(arguments)
    return 0


class _Moved(Action):
    """Arguments for files that other verbs take: refused with the names of those verbs."""

    def __call__(
        self, parser: ArgumentParser, _space: Namespace, values: Any, _option: str | None = None
    ) -> None:
        """Refuse the first value."""
        if values:
            parser.error(f"{values[0]!r}: --from-runs takes your own runs; {_MOVED}")


def _own_runs(arguments: Namespace) -> None:
    from mofa_model.calibrate import runs
    from mofa_model.files import write_text

    rows = (
        runs.read_runs(arguments.from_runs)
        if _is_table(arguments.from_runs)
        else [_logged(arguments)]
    )
    refinements = runs.refine(
        [runs.case_of(row, position) for position, row in enumerate(rows, start=1)]
    )
    if arguments.to:
        write_text(arguments.to, runs.as_toml(refinements))
    tables = [_refined(item) for item in refinements]
    columns = (Column("section"), *tables[0].columns)
    cells = tuple((table.title, *row) for table in tables for row in table.rows)
    document = {"tables": [output.as_document([table]) for table in tables]}
    output.emit(arguments.output, tables, document, records=Table(columns=columns, rows=cells))


def _is_table(name: str) -> bool:
    return name.lower().endswith((".json", ".csv"))


def _logged(arguments: Namespace) -> dict[str, Any]:
    """The run that a log and the options beside it describe."""
    from mofa_model.calibrate.runs import step_seconds
    from mofa_model.files import read_text

    absent = {
        f"--{name.replace('_', '-')}": example
        for name, example in _OF_A_LOG.items()
        if getattr(arguments, name) is None
    }
    if absent:
        raise Missing(absent, also="a log does not hold it")
    numbers: dict[str, int] = {}
    for name in ("gpus", "global_batch", "seq"):
        field = f"--{name.replace('_', '-')}"
        numbers[name] = units.count(getattr(arguments, name), field=field)
        if numbers[name] < 1:
            raise BadValue(field, getattr(arguments, name), "give a whole number above zero")
    text = read_text(arguments.from_runs, largest=2**28)
    seconds = step_seconds(
        text.splitlines(),
        global_batch=numbers["global_batch"],
        sequence=numbers["seq"],
        gpus=numbers["gpus"],
        path=arguments.from_runs,
    )
    row = {
        "model": arguments.model,
        "gpu": arguments.gpu,
        "gpus": numbers["gpus"],
        "strategy": arguments.strategy,
        "global_batch": numbers["global_batch"],
        "sequence": numbers["seq"],
        "step_seconds": seconds,
    }
    optional = {"precision": arguments.precision, "stack": arguments.stack}
    return row | {name: value for name, value in optional.items() if value}


def _refined(item: Refinement) -> Table:
    """A table of one section that was fitted to runs: the errors of its runs before and after."""
    rows = tuple(
        (case.id, case.measured[0].value, before, after)
        for case, before, after in zip(item.cases, item.before, item.after, strict=True)
    )
    errors = (Column("before", unit="%"), Column("after", unit="%"))
    factors = ", ".join(f"{part.entry.path} x {part.value:g}" for part in item.written)
    ratio, band = item.factor, item.band
    slower = f"{ratio.target:.3g} times as long as before ({ratio.lower:.3g} to {ratio.upper:.3g})"
    notes = (
        f"factors: {factors or 'nothing moved'}",
        f"steps of this system take {slower}; no other chip moves",
        f"80 % band of such a step time now: {band.lower:.3g} to {band.upper:.3g} of the estimate",
    )
    columns = (Column("run"), Column("step", unit="s"), *errors)
    return Table(title=f"[{item.section}]", columns=columns, rows=rows, notes=notes)
