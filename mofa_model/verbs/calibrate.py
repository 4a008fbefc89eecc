"""`mofa calibrate`: from your own runs to a layer of constants over the shipped ones."""

from __future__ import annotations

from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, Final

from mofa_model import output
from mofa_model.answers.options import (
    UserQuestion,
    add_options,
    as_in,
    option,
    question_of,
    text,
    whole,
)
from mofa_model.answers.questions import ExplainQuestion, ReliabilityQuestion, TrainingQuestion
from mofa_model.errors import Missing
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
_EXAMPLES_OF: Final = {
    "model": "llama3-8b",
    "gpu": "h100",
    "gpus": "64",
    "strategy": "tp=2",
    "global_batch_size": "512",
    "sequence_length": "8192",
}
"""Facts that no log has, and an example of each."""
_COUNT: Final = (1, 1e15)


class CalibrateQuestion(UserQuestion):
    """Which constants a person's own runs change."""

    to: str | None = option(text, "--to FILE", "file to write")
    from_runs: str | None = option(
        text, "--from-runs FILE", "runs (.json, .csv; see docs/calibration.md) or a trainer's log"
    )
    model: str | None = as_in(
        TrainingQuestion, "model", "model preset or config.json", group="what a log does not say"
    )
    gpu: str | None = as_in(TrainingQuestion, "gpu", "device preset")
    gpus: int | None = as_in(TrainingQuestion, "gpus", "devices", reader=whole, bounds=_COUNT)
    strategy: str | None = as_in(ExplainQuestion, "strategy", "layout, for example tp=8,pp=4,mbs=1")
    global_batch_size: int | None = as_in(
        TrainingQuestion, "global_batch_size", "sequences of a step", reader=whole, bounds=_COUNT
    )
    sequence_length: int | None = as_in(
        TrainingQuestion, "sequence_length", "tokens of a sequence", reader=whole, bounds=_COUNT
    )
    precision: str | None = as_in(
        ReliabilityQuestion, "precision", "recipe (default: bf16)", default=None
    )
    stack: str | None = as_in(
        TrainingQuestion, "stack", "software stack (default: one that nobody measured)"
    )


def configure(parser: ArgumentParser) -> None:
    """Add the options for a person's own runs, and refuse those of other verbs."""
    add_options(parser, CalibrateQuestion)
    parser.add_argument("moved", nargs="*", action=_Moved, help=SUPPRESS)
    parser.add_argument("--from-trace", nargs="+", action=_Moved, help=SUPPRESS)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Fit factors to the runs, print what they change, write them."""
    from mofa_model.calibrate import runs
    from mofa_model.files import write_text

    question = question_of(CalibrateQuestion, arguments)
    if not question.from_runs:
        raise Missing({"--from-runs": "runs.csv"}, also=_MOVED)
    rows = (
        runs.read_runs(question.from_runs)
        if _is_table(question.from_runs)
        else [_logged(question, question.from_runs)]
    )
    refinements = runs.refine(
        [runs.case_of(row, position) for position, row in enumerate(rows, start=1)]
    )
    if question.to:
        write_text(question.to, runs.as_toml(refinements))
    tables = [_refined(item) for item in refinements]
    columns = (Column("section"), *tables[0].columns)
    cells = tuple((table.title, *row) for table in tables for row in table.rows)
    document = {"tables": [output.as_document([table]) for table in tables]}
    output.emit(arguments.output, tables, document, records=Table(columns=columns, rows=cells))
    return 0


class _Moved(Action):
    """Arguments that this verb took in earlier releases; the error names the verbs of today."""

    def __call__(
        self, parser: ArgumentParser, _space: Namespace, values: Any, _option: str | None = None
    ) -> None:
        """Refuse the first value."""
        if values:
            parser.error(f"{values[0]!r}: --from-runs takes your own runs; {_MOVED}")


def _is_table(name: str) -> bool:
    return name.lower().endswith((".json", ".csv"))


def _logged(question: CalibrateQuestion, path: str) -> dict[str, Any]:
    """The run that a log and the options beside it describe."""
    from mofa_model.calibrate.runs import step_seconds
    from mofa_model.files import read_text

    absent = {
        question.options[name].flag: example
        for name, example in _EXAMPLES_OF.items()
        if getattr(question, name) is None
    }
    if absent:
        raise Missing(absent, also="a log does not hold it")
    gpus, batch, sequence = (
        int(getattr(question, name)) for name in ("gpus", "global_batch_size", "sequence_length")
    )
    seconds = step_seconds(
        read_text(path, largest=2**28).splitlines(),
        global_batch=batch,
        sequence=sequence,
        gpus=gpus,
        path=path,
    )
    row = {
        "model": question.model,
        "gpu": question.gpu,
        "gpus": gpus,
        "strategy": question.strategy,
        "global_batch": batch,
        "sequence": sequence,
        "step_seconds": seconds,
    }
    optional = {"precision": question.precision, "stack": question.stack}
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
