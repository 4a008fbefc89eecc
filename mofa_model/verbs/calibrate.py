"""Measured runs in, constants out: the shipped presets from case files, or a layer over them from your own runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mofa_model import output
from mofa_model.errors import BadValue
from mofa_model.tables import Column, Table

if TYPE_CHECKING:
    from mofa_model.calibrate.campaign import Calibration
    from mofa_model.calibrate.runs import Refinement
    from mofa_model.validate.cases import Case

_EXAMPLES: Final = """\
examples:
  fit all constants anew and see how well they hold; nothing is written
    mofa calibrate tests/data/cases/throughput.json tests/data/cases/sweep.json
  the same, and write presets/constants.toml and presets/bands.toml; refused where the loss would get worse
    mofa calibrate tests/data/cases/*.json --write
  without one publisher, into a folder of your own, then validate with it
    mofa calibrate tests/data/cases/*.json --without publisher=mosaicml --to out
    MOFA_CONSTANTS=out/constants.toml mofa validate steps tests/data/cases/throughput.json
  your own runs: a layer over the shipped constants, with its band
    mofa calibrate --from-runs runs.csv --to mine.toml
    MOFA_CONSTANTS=mine.toml mofa advise ...
  one run from a trainer's log
    mofa calibrate --from-runs train.log --model llama3.1-8b --gpu h100 --gpus 64 --stack torchtitan \\
        --strategy tp=1,dp=64,mbs=1,optimizer=zero3 --global-batch 128 --seq 8192 --to mine.toml"""


def configure(parser: ArgumentParser) -> None:
    """Case files or own runs, and where to write."""
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "files", nargs="*", metavar="CASES.json", help="case files, as for `mofa validate steps`"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fit only, without cross-validation (no scatter, no bands)"
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="KEY=NAME",
        help="leave runs out of the fit: publisher, source, stack, device or model; may be repeated",
    )  # fmt: skip
    parser.add_argument("--priors", metavar="FILE", help="priors in the form of calibrate/priors.toml")
    parser.add_argument("--to", metavar="PATH", help="folder (case files) or file (own runs) to write")
    parser.add_argument("--write", action="store_true", help="write the presets of this installation")
    parser.add_argument("--force", action="store_true", help="write even where the loss gets worse")
    parser.add_argument("--report", metavar="DIR", help="write validation.md and its plots to this folder")
    own = parser.add_argument_group("your own runs")
    own.add_argument(
        "--from-runs", metavar="FILE", help="runs (.json, .csv; see docs/calibration.md) or a trainer's log"
    )
    own.add_argument(
        "--from-trace",
        nargs="+",
        metavar="FILE",
        help="profiler traces of one run, or a .toml of several runs",
    )
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
        own.add_argument(f"--{name}", metavar=name.upper(), help=f"of a log or trace: {what}")
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Calibrate, print how well the constants hold, write what was asked for."""
    if arguments.from_trace:
        from mofa_model.verbs import trace_calibration

        trace_calibration.run(arguments)
    elif arguments.from_runs:
        _own_runs(arguments)
    elif not arguments.files:
        raise BadValue("CASES.json", None, "give case files, or your own runs with --from-runs")
    else:
        _cases(arguments)
    return 0


def _cases(arguments: Namespace) -> None:
    from mofa_model.calibrate import campaign
    from mofa_model.calibrate.free import priors
    from mofa_model.files import read_text

    text = read_text(arguments.priors) if arguments.priors else None
    cases = _without(_read(arguments.files), arguments.without)
    asked = () if arguments.quick else tuple(campaign.JUDGED)
    with _told("calibrating") as progress:
        found = campaign.calibrate(cases, priors(text), leave_out=asked, progress=progress)
        shipped = campaign.shipped_loss(found)
    written: list[str] = []
    if arguments.to:
        written += _write(Path(arguments.to), found)
    if arguments.write:
        if found.loss > shipped * (1.0 + campaign.WORSE) and not arguments.force:
            raise BadValue(
                "--write", found.loss, f"the shipped constants have a loss of {shipped:.6g}; --force writes"
            )
        written += _write(_presets(), found)
    if arguments.report:
        from mofa_model.calibrate import report

        with _told("reporting") as progress:
            written += report.write(found, Path(arguments.report), progress=progress)
    tables = _summary(found, written)
    document = {"loss": found.loss, "shipped_loss": shipped, "written": written, **_document(tables)}
    output.emit(arguments.output, tables, document)


def _read(files: Iterable[str]) -> list[Case]:
    from mofa_model.validate.cases import load

    cases: list[Case] = []
    for file in files:
        found, refused = load(file)
        if refused:
            raise BadValue(
                f"{file}: {refused[0].id}", refused[0].reason, "every case of a fit must be readable"
            )
        cases += found
    return cases


def _without(cases: list[Case], given: Iterable[str]) -> list[Case]:
    """Cases whose key is none of those that are named."""
    from mofa_model.calibrate.evidence import Row
    from mofa_model.calibrate.folds import KEYS

    for text in given:
        key, _, name = text.partition("=")
        if key not in KEYS or not name:
            raise BadValue("--without", text, f"give KEY=NAME with KEY one of {', '.join(KEYS)}")
        kept = [case for case in cases if KEYS[key](Row(case, None, 1.0)) != name]
        if len(kept) == len(cases):
            names = dict.fromkeys(KEYS[key](Row(case, None, 1.0)) for case in cases)
            raise BadValue("--without", text, f"one of {', '.join(name for name in names if name)}")
        cases = kept
    return cases


def _write(folder: Path, found: Calibration) -> list[str]:
    """constants.toml, and bands.toml where there was a cross-validation, whole or not at all."""
    from mofa_model.calibrate import widths, writer
    from mofa_model.files import write_text
    from mofa_model.presets import entries

    folder.mkdir(parents=True, exist_ok=True)
    texts = {"constants.toml": writer.as_toml(found.constants)}
    if "source" in found.time.validated:
        texts["bands.toml"] = widths.as_toml(widths.all_widths(found.time, found.memory))
    for name, text in texts.items():
        write_text(folder / name, text)
    entries.table.cache_clear()  # what is shipped may be what was just written
    return [str(folder / name) for name in texts]


def _presets() -> Path:
    from mofa_model import presets

    return Path(presets.__file__).parent


def _summary(found: Calibration, written: Sequence[str]) -> list[Table]:
    from mofa_model.calibrate import figures

    spread = (Column("n"), Column("median", unit="%"), Column("mean", unit="%"), Column("p90", unit="%"))
    rows = tuple(
        (
            line.subject.name,
            f"{line.left_out} left out" if line.left_out else "all runs fitted",
            line.errors["n"],
            line.errors["median_ape"],
            line.errors["mape"],
            line.errors["p90_ape"],
        )
        for line in figures.lines(found)
        if line.errors["n"]
    )
    notes = tuple(f"written: {name}" for name in written)
    return [Table(title="Errors", columns=(Column("runs"), Column("how"), *spread), rows=rows, notes=notes)]


def _own_runs(arguments: Namespace) -> None:
    from mofa_model.calibrate import runs
    from mofa_model.files import write_text

    rows = runs.read_runs(arguments.from_runs) if _is_table(arguments.from_runs) else [_logged(arguments)]
    found = runs.refine([runs.case_of(row, position) for position, row in enumerate(rows, start=1)])
    if arguments.to:
        write_text(arguments.to, runs.as_toml(found))
    tables = [_refined(item) for item in found]
    columns = (Column("section"), *tables[0].columns)
    cells = tuple((table.title, *row) for table in tables for row in table.rows)
    output.emit(arguments.output, tables, _document(tables), records=Table(columns=columns, rows=cells))


def _is_table(name: str) -> bool:
    return name.lower().endswith((".json", ".csv"))


def _logged(arguments: Namespace) -> dict[str, Any]:
    """The run that a log and the options beside it describe."""
    from mofa_model.calibrate.logs import step_seconds
    from mofa_model.files import read_text

    numbers: dict[str, int] = {}
    for name in ("gpus", "global_batch", "seq"):
        given = getattr(arguments, name)
        if given is None or not given.isdigit() or int(given) < 1:
            raise BadValue(f"--{name.replace('_', '-')}", given, "a log needs it: a whole number above zero")
        numbers[name] = int(given)
    for name in ("model", "gpu", "strategy"):
        if getattr(arguments, name) is None:
            raise BadValue(f"--{name}", None, "a log needs it beside what it says itself")
    text = read_text(arguments.from_runs, largest=2**28)
    seconds = step_seconds(
        text.splitlines(),
        global_batch=numbers["global_batch"],
        sequence=numbers["seq"],
        gpus=numbers["gpus"],
        path=arguments.from_runs,
    )
    further = {name: getattr(arguments, name) for name in ("precision", "stack") if getattr(arguments, name)}
    return {
        "model": arguments.model,
        "gpu": arguments.gpu,
        "gpus": numbers["gpus"],
        "strategy": arguments.strategy,
        "global_batch": numbers["global_batch"],
        "sequence": numbers["seq"],
        "step_seconds": seconds,
        **further,
    }


def _refined(item: Refinement) -> Table:
    rows = tuple(
        (case.id, case.measured[0].value, before, after)
        for case, before, after in zip(item.cases, item.before, item.after, strict=True)
    )
    moved = ", ".join(f"{part.entry.path} x {part.value:g}" for part in item.constants) or "nothing moved"
    low, high = item.step
    return Table(
        title=f"[{item.section}]",
        columns=(
            Column("run"),
            Column("step", unit="s"),
            Column("before", unit="%"),
            Column("after", unit="%"),
        ),
        rows=rows,
        notes=(f"factors: {moved}", f"80 % band of step times now: {low:.3g} to {high:.3g} of the estimate"),
    )


def _document(tables: Sequence[Table]) -> Mapping[str, Any]:
    return {"tables": [output.as_document([table]) for table in tables]}


@contextmanager
def _told(what: str) -> Iterator[Callable[[str], None]]:
    """Progress that names what is left out."""
    with output.progress(what) as advance:
        yield lambda _: advance(1.0)
