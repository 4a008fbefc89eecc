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
"""

KERNELS: Final = Path("lab/data/kernels.json")
"""Figures of `mofa validate kernels`, in a clone."""

FIGURE: Final = (Column("value", align="right"), Column("aim"), Column("met"))
"""What stands beside a figure that has an aim."""

REGIMES: Final = 6
"""One in so many regimes of the reliability grid is simulated: the whole takes minutes."""


def write(found: CampaignResult, folder: Path, *, progress: Progress = lambda _: None) -> list[str]:
    """The pages and plots, into a folder; the result is what was written."""
    from mofa_lab.fitting import plots

    names = [
        str(folder / "validation" / name) for name in plots.write(found, folder / "validation")
    ]
    progress("plots")
    from mofa_lab.validate import paper_runs

    pages = {
        folder / "validation.md": page_of(found, progress),
        folder / "validation" / "paper.md": paper_runs.page(),
        folder / "evidence.md": report_evidence.page(),
    }
    for page, text in pages.items():
        write_text(page, text)
    return [*map(str, pages), *names]


def page_of(found: CampaignResult, progress: Progress = lambda _: None) -> str:
    """The page as markdown: what is quoted, then its details."""
    parts = [
        HEAD,
        *_short(found),
        *_paper(),
        *_forecasts(),
        *published(found),
        *large(found),
        *_bands(found),
        *unseen(found, progress),
        *_odds(),
        sizes.section(found),
        *sweeps(found),
        *_kernels(),
        *_reliability(progress),
        *_ways(found),
        *ablation(found, progress),
        *odd(found),
        *constants(found),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _short(found: CampaignResult) -> Iterator[str]:
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
        (_quoted(line) for line in lines(found) if line.quoted and line.errors["n"]),
    )
    yield table((Column("figure"), *FIGURE), _figures(found))
    same = abs(shipped_loss(found) / found.loss - 1.0) < 1e-3
    yield (
        "The constants that are shipped are those of this fit."
        if same
        else "The constants that are shipped are *not* those of this fit: run `mofa fit … --write`."
    )
    yield "![Median errors, left out and fitted](validation/validated.svg)"


def _quoted(line: ErrorRow) -> tuple[Cell, ...]:
    told = line.errors
    aim = ", ".join(
        f"{name} {100 * wanted:g} %"
        for name, wanted in zip(("median", "mean", "p90"), line.subject.aim, strict=True)
        if wanted is not None
    )
    return (
        line.subject.name,
        line.left_out,
        line.groups,
        told["n"],
        told["median_ape"],
        told["mape"],
        told["p90_ape"],
        aim,
        line.met,
    )


def _figures(found: CampaignResult) -> Iterator[tuple[Cell, ...]]:
    """Bands, chances and picks, and the paper's runs, as far as they have aims."""
    if "system" in found.time.validated:
        yield from _held_of_systems(found)
    from mofa_lab.validate import odds_report, paper_runs

    if odds_report.RECORD.exists():
        yield from odds_report.aims(odds_report.RECORD)
    if paper_runs.ROWS.exists():
        yield from paper_runs.aims()


def _held_of_systems(found: CampaignResult) -> Iterator[tuple[Cell, ...]]:
    """Two rows on systems that were left out: runs inside their bands, and error of
    the confidence.
    """
    told = {one.name: one for by, one in coverage_without(found) if by == "system"}
    every = told.pop(ALL)
    refused = [name for name, one in told.items() if not one.stands]
    yield (
        f"bands of {100 * SHARE:.0f} % of systems that were left out, {every.runs} steps of {every.groups} groups: held",
        f"{100 * every.share:.1f} %, of groups {100 * every.share_of_groups:.1f} %",
        f"{100 * WITHIN[0]:.0f} to {100 * WITHIN[1]:.0f} %",
        WITHIN[0] <= every.share <= WITHIN[1],
    )
    yield (
        f"the same: of {len(told)} systems refused at {CHANCE:.0%}, counted in groups",
        ", ".join(refused) or "none",
        "none",
        not refused,
    )
    systems, off = confidence_error(found)
    yield (
        f"printed confidence against the mean share held of {systems} systems",
        f"{100 * off:.1f} points",
        f"{100 * TOLD:.0f} points",
        off <= TOLD,
    )


def _ways(found: CampaignResult) -> Iterator[str]:
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
            for line in lines(found)
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
        _calls(found),
    )


def _calls(found: CampaignResult) -> Iterator[tuple[Cell, ...]]:
    part = found.memory
    if "group" in part.validated:
        told = figures.memory_calls_out_of_fold(part, "group", "nanotron")
        yield ("nanotron", "group", *rates_of(told))
    told = memory_calls(part, part.values, part.logs, "nanotron")
    yield ("nanotron", "nothing", *rates_of(told))


def _paper() -> Iterator[str]:
    """The section on the paper's runs, which links to their own page."""
    yield "## The paper's own runs"
    yield (
        "The six runs that the MoFa paper measured, before and after one calibrating run of each device, and what its unnamed "
        "devices are taken for: [a page of their own](validation/paper.md), printed by `mofa validate paper`."
    )


def _forecasts() -> Iterator[str]:
    """Forecasts that were written before their results, and how they came out."""
    from mofa_lab.validate import forecast

    if forecast.FOLDER.exists():
        yield from forecast.section(forecast.FOLDER)


def _bands(found: CampaignResult) -> Iterator[str]:
    if not {"group", "system"} <= set(found.time.validated):
        return
    yield "## Bands"
    yield (
        f"Every estimate carries a band that is made to hold {100 * SHARE:.0f} % of runs. Here each band is made without the runs that "
        "it is judged on. Runs of a group err alike, so a set is judged by its groups, each by the share of its runs that is "
        f"held. A set passes where chance alone would hold so few, or so many, at least once in {1 / CHANCE:.0f} times. All runs "
        f"together pass where {100 * WITHIN[0]:.0f} to {100 * WITHIN[1]:.0f} % are held. Intervals are of 95 %, over groups."
    )
    yield "### Without a system, a publisher, a stack, a class of devices, or all large runs"
    systems, off = confidence_error(found)
    groups, others = spreads.held_by_others(list(spreads.groups_left_out(found)))
    yield (
        "Users mostly ask about a system that nobody measured: somebody else's machines, model and trainer. Quote the bands of this "
        "table for it. A system is what a publisher ran of a stack on a class of devices. The printed confidence "
        f"is {100 * SHARE:.0f} %; of {systems} systems that were left out the mean share held is off by {100 * off:.1f} points "
        f"(aim: {100 * TOLD:.0f}). The numbers that make the bands were found with these errors in view. Found anew "
        f"without a publisher's errors, they make bands that hold {100 * others:.1f} % of the {groups} groups of systems left out."
    )
    yield _without_runs(found)
    yield from _first_sight(found)
    yield table(
        (Column("left out"), Column("runs"), *HELD),
        ((by, one.name, *_held(one, one.name == ALL)) for by, one in coverage_without(found)),
    )
    told = list(coverage(found))
    for way in dict.fromkeys(way for _, way, _ in told):
        yield f"### Without a group, by {way}"
        yield table(
            (Column("left-out runs"), *HELD),
            (
                (f"{one.name}, {quantity}", *_held(one, way == "runs"))
                for quantity, which, one in told
                if which == way
            ),
        )


def _without_runs(found: CampaignResult) -> str:
    """Stacks that can be asked for and have no run to leave out."""
    known = {"default"} | {one.cluster.calibration.stack for one in found.cases}
    return (
        f"No system of {', '.join(name for name in sorted(presets.names('stacks')) if name not in known)} can be left out: no "
        "pre-training run of theirs stands here. MaxText's published runs are on TPUs, and none on GPUs was found, so its answers "
        "rest on constants from memory."
    )


def _first_sight(found: CampaignResult) -> Iterator[str]:
    """What bands hold of runs that nobody here knew when they were predicted."""
    told = at_first_sight(found)
    if not told.runs:
        return
    yield (
        "**At first sight.** A fit without a system has not seen it, but laws were chosen by people who had. So where a release had "
        f"predicted a run before anybody here knew it ({told.runs} runs of {told.systems} systems, `lab/data/first_predictions.json`), its "
        f"system is judged by that prediction. By it today's bands hold {100 * told.first:.0f} % in the mean of these systems; by today's "
        f"laws, chosen with these runs in view, {100 * told.in_view:.0f} % (of all systems {100 * told.every:.0f} %). Runs that are new to "
        "us should come out between the two. This is why bands are not narrowed to what a fit of runs in view would allow."
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


def _held(one: Held, together: bool) -> tuple[Cell, ...]:
    """A row on one set of runs: the share inside bands, and whether that share is as it
    should be.
    """
    stands = one.stands and (not together or WITHIN[0] <= one.share <= WITHIN[1])
    shares = (one.share, one.share_of_groups, *one.interval)
    return (one.groups, one.runs, *shares, round(one.width, 3), stands)


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
        f"One in {REGIMES} regimes of the grid; `python -m mofa_lab.validate.ettr_grid` prints each of them. The simulator shares "
        "no formula with the model."
    )
    yield ettr_grid.told([ettr_grid.compare(regime) for regime in ettr_grid.regimes()[::REGIMES]])
    progress("effective training time")
