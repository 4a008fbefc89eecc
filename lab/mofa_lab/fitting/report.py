"""docs/validation.md: how well the constants hold, written from the runs and never by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from mofa_lab.fitting import figures, report_evidence, sizes, spreads
from mofa_lab.fitting.campaign import CampaignResult, shipped_loss
from mofa_lab.fitting.coverage import (
    ALL,
    CHANCE,
    TOLD,
    WITHIN,
    Held,
    at_first_sight,
    confidence_error,
    coverage,
    coverage_without,
)
from mofa_lab.fitting.figures import ErrorRow, lines, memory_calls, rates_of
from mofa_lab.fitting.report_constants import ablation, constants, unseen
from mofa_lab.fitting.report_runs import SPREAD, large, odd, published, sweeps, table
from mofa_model import presets
from mofa_model.bands.odds import SHARE
from mofa_model.files import write_text
from mofa_model.tables import Cell, Column

Progress = Callable[[str], None]

HEAD: Final = """\
# How well the predictions hold

Written by `make validate` from the runs in `lab/data/cases`; do not edit. An error is predicted / measured - 1; every figure counts all
runs, those that look wrong included. What is quoted has something *left out*: the constants are fitted without it, and a stack of which no run
is left has the defaults of an unseen stack. Published runs are judged without everything that their *publisher* ran, sweeps without
their *group*: one model of the sweep. Groups say how many independent things a line is about: what one publisher ran of one family of
models on one GPU is one group, however many runs it has.
"""  # noqa: E501

KERNELS: Final = Path("lab/data/kernels.json")
"""Figures of `mofa validate kernels`, in a clone."""

FIGURE: Final = (Column("value", align="right"), Column("aim"), Column("met"))
"""What stands beside a figure that has an aim."""

REGIMES: Final = 6
"""One in so many regimes of the reliability grid is simulated: the whole takes minutes."""


def write(
    result: CampaignResult, folder: Path, *, progress: Progress = lambda _: None
) -> list[str]:
    """The pages and plots, into a folder; the result is what was written."""
    from mofa_lab.fitting import plots

    names = [
        str(folder / "validation" / name) for name in plots.write(result, folder / "validation")
    ]
    progress("plots")
    from mofa_lab.validate import paper_runs

    pages = {
        folder / "validation.md": page_of(result, progress),
        folder / "validation" / "paper.md": paper_runs.page(),
        folder / "evidence.md": report_evidence.page(),
    }
    for page, text in pages.items():
        write_text(page, text)
    return [*map(str, pages), *names]


def page_of(result: CampaignResult, progress: Progress = lambda _: None) -> str:
    """The page as markdown: what is quoted, then its details."""
    parts = [
        HEAD,
        *_short(result),
        *_paper(),
        *_forecasts(),
        *published(result),
        *large(result),
        *_bands(result),
        *unseen(result, progress),
        *_odds(),
        sizes.section(result),
        *sweeps(result),
        *_kernels(),
        *_reliability(progress),
        *_ways(result),
        *ablation(result, progress),
        *odd(result),
        *constants(result),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _short(result: CampaignResult) -> Iterator[str]:
    """A table of the figures that are quoted, each with its aim and whether it is met."""
    yield "## In short"
    yield table(
        (
            Column("runs"),
            Column("left out"),
            Column("groups"),
            *SPREAD,
            Column("aim"),
            Column("met"),
        ),
        (_quoted(line) for line in lines(result) if line.quoted and line.errors["n"]),
    )
    yield table((Column("figure"), *FIGURE), _figures(result))
    same = abs(shipped_loss(result) / result.loss - 1.0) < 1e-3
    yield (
        "The constants that are shipped are those of this fit."
        if same
        else "The constants that are shipped are *not* those of this fit: run `mofa fit … --write`."
    )
    yield "![Median errors, left out and fitted](validation/validated.svg)"


def _quoted(line: ErrorRow) -> tuple[Cell, ...]:
    errors = line.errors
    aim = ", ".join(
        f"{name} {100 * wanted:g} %"
        for name, wanted in zip(("median", "mean", "p90"), line.subject.aim, strict=True)
        if wanted is not None
    )
    return (
        line.subject.name,
        line.left_out,
        line.groups,
        errors["n"],
        errors["median_ape"],
        errors["mape"],
        errors["p90_ape"],
        aim,
        line.met,
    )


def _figures(result: CampaignResult) -> Iterator[tuple[Cell, ...]]:
    """Bands, chances and picks, and the paper's runs, as far as they have aims."""
    if "system" in result.time.validated:
        yield from _held_of_systems(result)
    from mofa_lab.validate import odds_report, paper_runs

    if odds_report.RECORD.exists():
        yield from odds_report.aims(odds_report.RECORD)
    if paper_runs.ROWS.exists():
        yield from paper_runs.aims()


def _held_of_systems(result: CampaignResult) -> Iterator[tuple[Cell, ...]]:
    """Two rows on systems that were left out: runs inside their bands, and error of
    the confidence.
    """
    by_system = {held.name: held for by, held in coverage_without(result) if by == "system"}
    whole = by_system.pop(ALL)
    refused = [name for name, held in by_system.items() if not held.stands]
    yield (
        (
            f"bands of {100 * SHARE:.0f} % of systems that were left out, {whole.runs} steps of "
            f"{whole.groups} groups: held"
        ),
        f"{100 * whole.share:.1f} %, of groups {100 * whole.share_of_groups:.1f} %",
        f"{100 * WITHIN[0]:.0f} to {100 * WITHIN[1]:.0f} %",
        WITHIN[0] <= whole.share <= WITHIN[1],
    )
    yield (
        f"the same: of {len(by_system)} systems refused at {CHANCE:.0%}, counted in groups",
        ", ".join(refused) or "none",
        "none",
        not refused,
    )
    systems, off = confidence_error(result)
    yield (
        f"printed confidence against the mean share held of {systems} systems",
        f"{100 * off:.1f} points",
        f"{100 * TOLD:.0f} points",
        off <= TOLD,
    )


def _ways(result: CampaignResult) -> Iterator[str]:
    """Every way of leaving out, and in-sample."""
    yield "## Errors by what is left out"
    yield "*Nothing* is in-sample: it says what the model can follow, not what it predicts."
    yield table(
        (Column("runs"), Column("left out"), Column("groups"), *SPREAD),
        (
            (
                line.subject.name,
                line.left_out or "nothing",
                line.groups,
                line.errors["n"],
                line.errors["median_ape"],
                line.errors["mape"],
                line.errors["p90_ape"],
            )
            for line in lines(result)
            if line.errors["n"]
        ),
    )
    yield table(
        (
            Column("runs that did not fit"),
            Column("left out"),
            Column("found", unit="%"),
            Column("false alarms", unit="%"),
        ),
        _calls(result),
    )


def _calls(result: CampaignResult) -> Iterator[tuple[Cell, ...]]:
    part = result.memory
    if "group" in part.validated:
        calls = figures.memory_calls_out_of_fold(part, "group", "nanotron")
        yield ("nanotron", "group", *rates_of(calls))
    calls = memory_calls(part, part.values, part.logs, "nanotron")
    yield ("nanotron", "nothing", *rates_of(calls))


def _paper() -> Iterator[str]:
    """The section on the paper's runs, which links to their own page."""
    yield "## The paper's own runs"
    yield (
        "The six runs that the MoFa paper measured, before and after one calibrating run of each "
        "device, and what its unnamed devices are taken for: [a page of their "
        "own](validation/paper.md), printed by `mofa validate paper`."
    )


def _forecasts() -> Iterator[str]:
    """Forecasts that were written before their results, and how they came out."""
    from mofa_lab.validate import forecast

    if forecast.FOLDER.exists():
        yield from forecast.section(forecast.FOLDER)


def _bands(result: CampaignResult) -> Iterator[str]:
    if not {"group", "system"} <= set(result.time.validated):
        return
    yield "## Bands"
    yield (
        f"Every estimate carries a band that is made to hold {100 * SHARE:.0f} % of runs. Here "
        "each band is made without the runs that it is judged on. Runs of a group err alike, so a "
        "set is judged by its groups, each by the share of its runs that is held. A set passes "
        f"where chance alone would hold so few, or so many, at least once in {1 / CHANCE:.0f} "
        f"times. All runs together pass where {100 * WITHIN[0]:.0f} to {100 * WITHIN[1]:.0f} % are "
        "held. Intervals are of 95 %, over groups."
    )
    yield "### Without a system, a publisher, a stack, a class of devices, or all large runs"
    systems, off = confidence_error(result)
    groups, others = spreads.held_by_others(list(spreads.groups_left_out(result)))
    yield (
        "Users mostly ask about a system that nobody measured: somebody else's machines, model and "
        "trainer. Quote the bands of this table for it. A system is what a publisher ran of a "
        f"stack on a class of devices. The printed confidence is {100 * SHARE:.0f} %; of {systems} "
        f"systems that were left out the mean share held is off by {100 * off:.1f} points (aim: "
        f"{100 * TOLD:.0f}). The numbers that make the bands were found with these errors in view. "
        f"Found anew without a publisher's errors, they make bands that hold {100 * others:.1f} % "
        f"of the {groups} groups of systems left out."
    )
    yield _without_runs(result)
    yield from _first_sight(result)
    yield table(
        (Column("left out"), Column("runs"), *HELD),
        ((by, held.name, *_held(held, held.name == ALL)) for by, held in coverage_without(result)),
    )
    rows = list(coverage(result))
    for way in dict.fromkeys(way for _, way, _ in rows):
        yield f"### Without a group, by {way}"
        yield table(
            (Column("left-out runs"), *HELD),
            (
                (f"{held.name}, {quantity}", *_held(held, way == "runs"))
                for quantity, which, held in rows
                if which == way
            ),
        )


def _without_runs(result: CampaignResult) -> str:
    """Stacks that can be asked for and have no run to leave out."""
    has_runs = {"default"} | {case.cluster.calibration.stack for case in result.cases}
    return (
        "No system of "
        f"{', '.join(name for name in sorted(presets.names('stacks')) if name not in has_runs)} "
        "can be left out: no pre-training run of theirs stands here. MaxText's published runs are "
        "on TPUs, and none on GPUs was found, so its answers rest on constants from memory."
    )


def _first_sight(result: CampaignResult) -> Iterator[str]:
    """What bands hold of runs that nobody here knew when they were predicted."""
    sight = at_first_sight(result)
    if not sight.runs:
        return
    yield (
        "**At first sight.** A fit without a system has not seen it, but laws were chosen by "
        "people who had. So where a release had predicted a run before anybody here knew it "
        f"({sight.runs} runs of {sight.systems} systems, `lab/data/first_predictions.json`), its "
        f"system is judged by that prediction. By it today's bands hold {100 * sight.first:.0f} % "
        "in the mean of these systems; by today's laws, chosen with these runs in view, "
        f"{100 * sight.in_view:.0f} % (of all systems {100 * sight.every:.0f} %). Runs that are "
        "new to us should come out between the two. This is why bands are not narrowed to what a "
        "fit of runs in view would allow."
    )


HELD: Final = (
    Column("groups"),
    Column("n"),
    Column("held", unit="%"),
    Column("of groups", unit="%"),
    Column("from", unit="%"),
    Column("to", unit="%"),
    Column("high / low"),
    Column("stands"),
)
"""What is said of a set of left-out runs."""


def _held(held: Held, together: bool) -> tuple[Cell, ...]:
    """A row on one set of runs: the share inside bands, and whether that share is as it
    should be.
    """
    stands = held.stands and (not together or WITHIN[0] <= held.share <= WITHIN[1])
    shares = (held.share, held.share_of_groups, *held.interval)
    return (held.groups, held.runs, *shares, round(held.width, 3), stands)


def _odds() -> Iterator[str]:
    """The section on odds, from the figures that `mofa validate odds` left in a file."""
    from mofa_lab.validate import odds_report

    if odds_report.RECORD.exists():
        yield odds_report.section(odds_report.RECORD)


def _kernels() -> Iterator[str]:
    """The section on kernels, from the figures that `mofa validate kernels` left in a file."""
    from mofa_lab.kernels import report

    if KERNELS.exists():
        yield report.section(KERNELS)


def _reliability(progress: Progress) -> Iterator[str]:
    from mofa_lab.validate import ettr_grid

    yield "## Effective training time"
    yield (
        f"One in {REGIMES} regimes of the grid; `python -m mofa_lab.validate.ettr_grid` prints "
        "each of them. The simulator shares no formula with the model."
    )
    yield ettr_grid.summary(
        [ettr_grid.compare(regime) for regime in ettr_grid.regimes()[::REGIMES]]
    )
    progress("effective training time")
