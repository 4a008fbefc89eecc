"""The section of docs/validation.md on odds, from the record that `mofa validate odds
--record` wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mofa_lab.validate.paper_runs import untitled
from mofa_model.files import from_json, read_text, write_text
from mofa_model.tables import Cell, Column, Table, as_markdown

ADVISED: Final = ("steps", "plan")
"""Ways of choosing short runs that are ours."""
PROBED: Final = 0.007
"""Mean regret that is aimed at after three short runs. [1]"""
UNSURE: Final = 0.2
"""Most of the runs that trained that may be given less than 90 %. [1]"""
REFUSED: Final = 0.97
"""Least of the runs that were out of memory that have to be. [1]"""
BRIER: Final = 0.25
"""By how much the Brier score has to be better than that of a constant edge. [1]"""
RECORD: Final = Path("lab/data/odds.json")
"""Where the figures are kept."""

HEAD: Final = """\
## Odds

What the rule ([search.md](search.md#what-is-chosen)) picks, and how true its odds are; evidence is that without the publisher who is
judged, errors of steps are those without the group. Published jobs are asked for with their layouts hidden, and with the fastest layout
that was published for the question as today's; *gain* is what the model says that the first choice gains over that layout, both priced
alike. Constants are the shipped ones. Pairs are two runs of one question of a sweep that fit; *said* is the chance that the one with the
smaller estimate is faster, *was* how often it was. *Regret* is the throughput that the pick among the runs of a question loses.
"""  # noqa: E501

NOTES: Final = """\
**What these figures can tell.**

- *Gain above 20 %.* Publishers do not agree within 20 % themselves: of {pairs} pairs of layouts that were published for one and the
  same question {pairs_above_20} are further apart as measured, and in {slowest_above_20} of the {questions} questions with several
  layouts the slowest is that far behind the fastest. So such a gain is doubted only where pairs of the same kind were apart by less than
  half of what was said of them (table below).
- *Slower with the layout hidden.* What is left is nearly all memory: the published layout is said to fit with less than 90 %, so the
  search takes a smaller one. Who says that it runs is not told to leave it.
- *Brier score.* The constant edge is wrong {wrong} times of {runs}. Of the {beyond} runs that
  trained though they were estimated too large, {slowed} took {least} to {most} times as long as estimated: they did want more than there
  is, and their allocators asked for the same memory again and again. Counted as what does not fit, they leave the edge wrong
  {wrong_at_speed} times. A chance made from the space alone cannot tell which run
  survives that: no monotone function of it scores below {bound}, chosen with hindsight. What a run would have
  without its gathered and cached blocks tells no more (left out by model, a logistic law of both scores 4 % worse than of their sum).
  A short run that says its memory can. Below what a stack can reserve no run was slower: at 93 to 100 % of it 20 runs took 1.05 times
  their estimate in the median, others 0.99 to 1.07; above it 8 of 9 took 4 to 11 times.
- *Short runs.* In {odd} of {asked} questions of the sweep of Megatron-DeepSpeed the best run is composed from a layer time that is shorter
  than the one that was profiled for half as many sequences. No law of work says that. Without these {odd} the regret after three runs, one
  after another, is {without_odd}. Nanotron's runs that are planned all at once lose {planned}, most of it by one question of
  {worst_gpus} GPUs, where equal neighbours differ by factors of 2 to 10; without it {without_worst}.
- *Single bins.* Runs of a model err alike, so a bin of chances is no surer than its models are alike: the standard error beside
  each bin (table at the end) is that of its models. A bin is judged by its error beyond that.
"""  # noqa: E501


def section(file: Path) -> str:
    """The section as markdown."""
    document = from_json(read_text(file), file)
    picture = "![What was, by what was said](validation/odds.svg)\n"
    parts = (f"**{table.title}**\n\n{as_markdown(untitled(table))}" for table in tables(document))
    return "\n".join([HEAD, picture, _notes(document), *parts])


def aims(file: Path) -> Iterator[tuple[Cell, ...]]:
    """Every figure of the record that has an aim, for the top of the page: figure, value,
    aim, met.
    """
    for table in tables(from_json(read_text(file), file)):
        if tuple(column.name for column in table.columns) == ("figure", "value", "aim", "met"):
            yield from (row for row in table.rows if row[2] is not None)


def _notes(document: Mapping[str, Any]) -> str:
    """Why some aims are missed, with today's figures."""
    apart, fits = document["published"], document["fits"]["nanotron"]
    probed, other = (document["probes"][name] for name in ("megatron-deepspeed", "nanotron"))
    return NOTES.format(
        questions=apart["questions"],
        pairs=apart["pairs"],
        pairs_above_20=_percent(apart["pairs_above_20"]),
        slowest_above_20=_percent(apart["slowest_above_20"]),
        wrong=round(fits["edge"] * fits["runs"]),
        runs=fits["runs"],
        beyond=fits["beyond"],
        slowed=len(fits["slowed"]),
        least=f"{fits['slowed'][0]:.1f}",
        most=f"{fits['slowed'][-1]:.1f}",
        wrong_at_speed=round(fits["at_speed"]["edge"] * fits["runs"]),
        bound=f"{fits['bound']:.4f}",
        odd=probed["odd"],
        asked=probed["questions"],
        without_odd=_percent(probed["without_odd"]),
        planned=_percent(other["plan"][-1]),
        worst_gpus=other["worst_gpus"],
        without_worst=_percent(other["plan_without_worst"]),
    )


def record(path: str, document: Mapping[str, Any]) -> None:
    """Keep the figures, without the jobs one by one."""
    kept = {name: value for name, value in document.items() if name != "jobs"}
    write_text(path, json.dumps(_rounded(kept), indent=1) + "\n")


def tables(document: Mapping[str, Any]) -> list[Table]:
    """The figures in tables."""
    heads = (Column("figure"), Column("value", align="right"), Column("aim"), Column("met"))
    odds: list[tuple[Any, ...]] = []
    for stack, figures in document["pairs"].items():
        error = figures["calibration_error"]
        odds.append(
            (
                f"{stack}: calibration error of {figures['pairs']} pairs",
                _percent(error),
                "5 %",
                error <= 0.05,
            )
        )
        off = max((_beyond(row) for row in figures["bins"]), default=0.0)
        bins = len(figures["bins"])
        what = f"{stack}: the farthest of {bins} bins of these, beyond its standard error"
        odds.append((what, _percent(off), "5 %", off <= 0.05))
        if "brier" in figures:
            better, most = (1.0 - figures[name] / figures["edge"] for name in ("brier", "bound"))
            what = (
                f"{stack}: Brier score of these chances, against {figures['edge']:.4f} where the "
                "estimate decides alone; chances that say of each bin what was are "
                f"{_percent(most)} better"
            )
            value = f"{figures['brier']:.4f}, {_percent(better)} better"
            odds.append((what, value, "25 % better", better >= 0.25))
    run = document["trained"]
    for stack, figures in document["fits"].items():
        refused = figures["refused"]
        what = f"{stack}: runs out of memory, given less than 90 % to fit"
        odds.append((what, _percent(refused), "97 %", refused >= REFUSED))
        error = figures["calibration_error"]
        what = f"{stack}: calibration error of {figures['runs']} chances to fit"
        odds.append((what, _percent(error), "5 %", error <= 0.05))
        better = figures["better"]
        what = (
            f"{stack}: Brier score of {figures['runs']} chances to fit, against "
            f"{figures['edge']:.4f} of a constant edge"
        )
        odds.append(
            (
                what,
                (
                    f"{figures['brier']:.4f}, {_percent(better)} better; the bound is "
                    f"{figures['bound']:.4f}"
                ),
                "25 % better",
                better >= BRIER,
            )
        )
    for stack, figures in document["regret"].items():
        rule, least = figures["rule"], figures["estimate"]
        what = (
            f"{stack}: regret of {rule['questions']} picks, against {_percent(least['mean'])} of "
            "the least estimate"
        )
        value = (
            f"{_percent(rule['mean'])}, {rule['failed']} failed (of the least estimate "
            f"{least['failed']})"
        )
        odds.append((what, value, "1.1 times", rule["mean"] <= 1.1 * least["mean"]))
    for stack, figures in document["kept"].items():
        what = (
            f"{stack}: of {figures['gains']} gains above 10 % over a run as today's another layout "
            "is advised"
        )
        share = figures["advised"] / max(1, figures["gains"])
        odds.append((what, _percent(share), "90 %", share >= 0.9))
        share = figures["recommended"] / max(1, figures["gains"])
        odds.append((f"{stack}: of these it is Recommended", _percent(share), "90 %", share >= 0.9))
    reliability = tuple(
        (stack, row["said"], row["was"], row["standard_error"], row["pairs"])
        for stack, figures in document["pairs"].items()
        for row in figures["bins"]
    )
    fitted = tuple(
        (name, row["said"], row["was"], row["runs"])
        for name, figures in (("published", run), *document["fits"].items())
        for row in figures.get("bins", ())
    )
    return [
        *(
            [
                Table(
                    title="First choices for published jobs",
                    columns=heads,
                    rows=(*_picked(document["picks"]), *_trained(run)),
                )
            ]
            if "picks" in document
            else []
        ),
        Table(title="Odds and regret on sweeps", columns=heads, rows=tuple(odds)),
        _probed(document["probes"]),
        _promise_table(
            "Gains of the least estimate over other runs that fit, below 512 GPUs",
            "sweep",
            "pairs",
            tuple(
                (stack, row["said"], row["was"], row["pairs"])
                for stack, figures in document["gains"].items()
                for row in figures
            ),
        ),
        _promise_table(
            "Runs by the chance to fit that is said",
            "runs",
            "number",
            fitted,
        ),
        _promise_table(
            "Gains above 20 % by what the two layouts differ in, of published pairs and sweeps",
            "differ in",
            "pairs",
            tuple(
                (kind, row["said"], row["was"], row["pairs"])
                for kind, row in document["kinds"].items()
            ),
        ),
        Table(
            title="Pairs by their predicted chance",
            columns=(
                Column("sweep"),
                *(Column(name, unit="%") for name in ("said", "was", "standard error")),
                Column("pairs"),
            ),
            rows=reliability,
        ),
    ]


def _promise_table(title: str, first: str, last: str, rows: tuple[tuple[Any, ...], ...]) -> Table:
    """A table of predicted against observed, with the number of cases."""
    predicted, observed = Column("said", unit="%"), Column("was", unit="%")
    return Table(title=title, columns=(Column(first), predicted, observed, Column(last)), rows=rows)


def _picked(p: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
    def none(words: str, count: int) -> tuple[Any, ...]:
        return (words, count, "0", count == 0)

    def share(words: str, value: float, most: float | None) -> tuple[Any, ...]:
        aim = None if most is None else _percent(most)
        return (words, _percent(value), aim, None if most is None else value <= most)

    return (
        ("jobs", p["jobs"], None, None),
        none("published layout as today's: slower than it by more than 2 %", p["given_slower_2"]),
        none("as today's: Recommended with a chance below one half", p["given_unlikely"]),
        ("as today's: Recommended", p["given_recommended"], None, None),
        share("hidden: slower than it by more than 10 %, share of jobs", p["slower_10"], 0.05),
        share("hidden: gain above 20 % of a kind that is overstated, share", p["overstated"], 0.05),
        share("hidden: gain above 20 %, share of jobs", p["above_20"], None),
        share("hidden: gain, median", p["median_gain"], None),
        none("hidden: an alternative that is likely better has twice the MFU", p["half"]),
        ("hidden: Recommended", p["recommended"], None, None),
        ("hidden: with what no run has", p["unmeasured"], None, None),
        share("hidden: P(out of memory), mean", p["mean_out_of_memory"], None),
        share("hidden: P(out of memory) above 10 %, share of jobs", p["risky"], None),
    )


def _trained(figures: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
    """A row on how many runs that trained had been given less than 90 % to fit; none
    without runs.
    """
    if not figures["runs"]:
        return ()
    what = f"of {figures['runs']} runs that trained, those given less than 90 % to fit"
    return ((what, _percent(figures["unsure"]), "20 %", figures["unsure"] <= UNSURE),)


def _probed(document: Mapping[str, Any]) -> Table:
    """A table of the throughput lost after short runs, by how these were chosen."""
    ways = {
        "steps": "as advised, one after another",
        "plan": "as advised, all at once",
        "top": "those of the least estimate",
        "random": "any that fit surely",
    }
    aim = PROBED
    rows = tuple(
        (
            f"{stack}, {figures['questions']} questions",
            words,
            *figures[way],
            figures["failed"] if way == "plan" else None,
            figures[way][-1] <= aim if way in ADVISED else None,
        )
        for stack, figures in document.items()
        for way, words in ways.items()
    )
    heads = ("before", "after 1", "after 2", "after 3")
    return Table(
        title=f"Regret after short runs (aim: {_percent(aim)} after three)",
        columns=(
            Column("sweep"),
            Column("runs"),
            *(Column(head, unit="%") for head in heads),
            Column("without room", align="right"),
            Column("met"),
        ),
        rows=rows,
    )


def _beyond(row: Mapping[str, Any]) -> float:
    """How far the observed share is from the predicted one, beyond one standard error. [1]"""
    return max(0.0, abs(float(row["was"]) - float(row["said"])) - float(row["standard_error"]))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
