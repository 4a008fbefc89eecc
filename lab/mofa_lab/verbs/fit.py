"""Case files in, the shipped constants out: a fit of all of them, and how well they hold for runs
that it did not see.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mofa_model import output
from mofa_model.bands.table import FILE, VARIANCE
from mofa_model.errors import BadValue
from mofa_model.tables import Column, Table

if TYPE_CHECKING:
    from mofa_lab.fitting.campaign import CampaignResult
    from mofa_model.calibrate.cases import Case

EXAMPLES: Final = """\
examples:
  fit all constants anew and see how well they hold; nothing is written
    mofa fit lab/data/cases/*.json
  the same, and write presets/constants.toml, bands/runs.tsv.gz and bands/variance.toml; refused where the loss would get worse
    mofa fit lab/data/cases/*.json --write
  without one publisher, into a folder of your own, then validate with it
    mofa fit lab/data/cases/*.json --without publisher=mosaicml --to out
    MOFA_CONSTANTS=out/constants.toml mofa validate steps lab/data/cases/throughput.json"""  # noqa: E501


def configure(parser: ArgumentParser) -> None:
    """Add the files of cases, and where to write."""
    parser.add_argument(
        "files", nargs="+", metavar="CASES.json", help="case files, as for `mofa validate steps`"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fit only, without cross-validation (no scatter, no bands)",
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="KEY=NAME",
        help="leave runs out of the fit: publisher, group, stack, device, model or scale; may "
        "be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--priors", metavar="FILE", help="priors in the form of fitting/priors.toml"
    )
    parser.add_argument(
        "--to",
        metavar="PATH",
        help="folder to write constants.toml, runs.tsv.gz and variance.toml to",
    )
    parser.add_argument(
        "--write", action="store_true", help="write the presets of this installation"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="write even where the loss gets worse or bands get narrower",
    )
    parser.add_argument(
        "--report", metavar="DIR", help="write validation.md and its plots to this folder"
    )
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Fit, print how well the constants hold, write what was asked for."""
    from mofa_lab.fitting import campaign
    from mofa_lab.fitting.priors import priors
    from mofa_model.files import read_text

    text = read_text(arguments.priors) if arguments.priors else None
    cases = _without(_read(arguments.files), arguments.without)
    asked = () if arguments.quick else tuple(campaign.JUDGED)
    with _progress("calibrating") as progress:
        result = campaign.calibrate(cases, priors(text), leave_out=asked, progress=progress)
        shipped = campaign.shipped_loss(result)
    written: list[str] = []
    if arguments.to:
        written += _write(Path(arguments.to), Path(arguments.to), result, narrower=True)
    if arguments.write:
        if result.loss > shipped * (1.0 + campaign.WORSE) and not arguments.force:
            raise BadValue(
                "--write",
                result.loss,
                f"the shipped constants have a loss of {shipped:.6g}; --force writes",
            )
        written += _write(_presets(), _bands(), result, narrower=arguments.force)
    if arguments.report:
        from mofa_lab.fitting import report

        with _progress("reporting") as progress:
            written += report.write(result, Path(arguments.report), progress=progress)
    tables = _summary(result, written)
    document = {
        "loss": result.loss,
        "shipped_loss": shipped,
        "written": written,
        **_document(tables),
    }
    output.emit(arguments.output, tables, document)
    return 0


def _read(files: Iterable[str]) -> list[Case]:
    from mofa_lab.validate.cases import load
    from mofa_lab.validate.forecast import refuse_unscored
    from mofa_lab.validate.record import read

    cases: list[Case] = []
    for file in files:
        refuse_unscored(file, read(file)[0])
        readable, refused = load(file)
        if refused:
            raise BadValue(
                f"{file}: {refused[0].id}",
                refused[0].reason,
                "every case of a fit must be readable",
            )
        cases += readable
    return cases


def _without(cases: list[Case], given: Iterable[str]) -> list[Case]:
    """Cases whose key is none of those that are named."""
    from mofa_lab.fitting.folds import KEYS
    from mofa_model.calibrate.fit import FitRow

    for text in given:
        key, _, name = text.partition("=")
        if key not in KEYS or not name:
            raise BadValue("--without", text, f"give KEY=NAME with KEY one of {', '.join(KEYS)}")
        kept = [case for case in cases if KEYS[key](FitRow(case, None, 1.0)) != name]
        if len(kept) == len(cases):
            names = dict.fromkeys(KEYS[key](FitRow(case, None, 1.0)) for case in cases)
            raise BadValue("--without", text, f"one of {', '.join(name for name in names if name)}")
        cases = kept
    return cases


def _write(constants: Path, runs: Path, result: CampaignResult, *, narrower: bool) -> list[str]:
    """constants.toml; where there was a cross-validation the measured runs, and how far steps vary.

    Bands get narrower only where `narrower` says so.
    """
    from mofa_lab.fitting import coverage, spreads, tuned, writer
    from mofa_model.bands import variance
    from mofa_model.files import write_text
    from mofa_model.presets import entries

    constants.mkdir(parents=True, exist_ok=True)
    texts = [constants / "constants.toml"]
    write_text(texts[0], writer.as_toml(result.constants))
    if "group" in result.time.validated:
        texts.append(runs / FILE)
        rows = tuned.with_tuned(coverage.bare_rows(result))
        texts[1].write_bytes(coverage.as_bytes(rows))
    if spreads.BY in result.time.validated:
        numbers = spreads.variance_of(result)
        # Laws are chosen with these same runs in view, so errors that a better law leaves are
        # smaller than those of runs that nobody has seen.
        if narrower or spreads.unseen_scale(numbers) >= spreads.unseen_scale(variance.shipped()):
            texts.append(runs / VARIANCE)
            write_text(texts[-1], spreads.as_toml(numbers, result))
    entries.table.cache_clear()  # what is shipped may be what was just written
    variance.shipped.cache_clear()
    return [str(name) for name in texts]


def _presets() -> Path:
    from mofa_model import presets

    return Path(presets.__file__).parent


def _bands() -> Path:
    from mofa_model import bands

    return Path(bands.__file__).parent


def _summary(result: CampaignResult, written: Sequence[str]) -> list[Table]:
    from mofa_lab.fitting import figures, memory_spread
    from mofa_model.bands.variance import ESTIMATED

    spread = (
        Column("n"),
        Column("median", unit="%"),
        Column("mean", unit="%"),
        Column("p90", unit="%"),
    )
    rows = tuple(
        (
            line.subject.name,
            f"{line.left_out} left out" if line.left_out else "all runs fitted",
            line.errors["n"],
            line.errors["median_ape"],
            line.errors["mape"],
            line.errors["p90_ape"],
        )
        for line in figures.lines(result)
        if line.errors["n"]
    )
    notes = tuple(f"written: {name}" for name in written)
    if "publisher" in result.memory.validated:
        likeliest = memory_spread.likeliest(memory_spread.errors_of(result))
        notes += (f"variance.ESTIMATED is {ESTIMATED}; the likeliest is {likeliest:.3f}",)
    return [
        Table(
            title="Errors", columns=(Column("runs"), Column("how"), *spread), rows=rows, notes=notes
        )
    ]


def _document(tables: Sequence[Table]) -> Mapping[str, Any]:
    return {"tables": [output.as_document([table]) for table in tables]}


@contextmanager
def _progress(what: str) -> Iterator[Callable[[str], None]]:
    """Print which group is left out now."""
    with output.progress(what) as advance:
        yield lambda _: advance(1.0)
