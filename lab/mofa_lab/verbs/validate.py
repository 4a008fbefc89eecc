"""Predicted against measured.

    mofa validate steps CASES.json        step time and memory of measured runs
    mofa validate ettr CASES.json         effective training time, intervals and rates
    mofa validate paper                   the MoFa paper's six measured runs, priced by the estimate
    mofa validate paper TABLE.json …      its tables against its own equations
    mofa validate kernels TABLE.csv …     measured kernels and collectives
    mofa validate fleets FOLDER           forecasts of failures on real fleets
    mofa validate account ANSWER.json …   accounts of pools, against the generator of their
                                          histories
    mofa validate changes SCENARIO.toml … what would have helped, against reruns of made histories
    mofa validate forecast QUESTIONS.json predictions written before their results, and their score
    mofa validate tuning RUNS.json        fine-tuning runs, with their submitter left out
    mofa validate odds CASES.json …       what the rule picks, and how true its odds are
    mofa validate sizes CASES.json …      sizes that are picked, against what was measured to fit
    mofa validate assumptions             what the check of assumed failure rates promises,
                                          simulated

The figures decide nothing here: the exit code is 0 whatever they are, and 2 where a file cannot be
read.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Mapping
from textwrap import shorten
from typing import Any, Final

from mofa_lab.verbs import (
    validate_account,
    validate_changes,
    validate_forecast,
    validate_odds,
    validate_sizes,
)
from mofa_model import output
from mofa_model.errors import BadValue
from mofa_model.tables import Column, Table

_SPREAD: Final = (
    Column("n"),
    Column("mean", unit="%"),
    Column("median", unit="%"),
    Column("p90", unit="%"),
)

_WIDEST: Final = 30
"""Characters that a list or an object may take in a table."""

_MOST_WANDER: Final = 2.0
"""Largest standard deviation of a week's rate that is simulated. [1]"""

_STEPS: Final = """\
Each case is priced by the estimate with the constants of its device, precision and software stack. Throughput, TFLOPS
and MFU become step times by the case's own convention. What an allocator counted is held against the last stage without reserve
and fragmentation. `error` is predicted / measured - 1, `fits` whether the model says that the run fits."""  # noqa: E501

_ETTR: Final = """\
Published and simulated facts on ETTR, intervals, rates, exposure and spares, each against the reliability model within
the case's own tolerance. A case that the source contradicts itself on is unsupported, with its reason.

examples:
  every case, beside its prediction            mofa validate ettr lab/data/ettr_cases.json
  the contract for scripts                     mofa validate ettr lab/data/ettr_cases.json --json"""  # noqa: E501

_PAPER: Final = """\
Without a file: the six runs that the paper measured, priced by the estimate as they stand and after one run of each device, and what
the devices that it does not name are taken for.

TABLE.json holds rows of Table 5, 6, 7, 8 or 9 of the MoFa paper: {"rows": [{"id": 1, "n_gpus": 64, …}]} with the columns
of lab/data/paper_table*.json; the table is told by its columns, and other rows of the same shape can be given. Each row
is checked in every quantity that it prints:
  tflops          from the step time, Eq. (15)                       Tables 6, 9    0.03 %
  memory_gib      peak of the first stage, Eq. (6)                   Tables 6, 7    0.006 GiB
  step_s          compatibility mode, Eq. (14)                       Table 6        1.5 %, mean 0.5 %
  step_physical_s our schedule, rows with v >= 2                     Table 6        4 %
  step_s          compatibility mode                                 Table 8        0.3 %, 5 % where gradients overflow
  ep_s            all-to-all, Eqs. (3), (22)                         Table 8        0.01 s
  opt_s           optimizer, Eqs. (26), (28)                         Tables 6, 8    0.02 s
  total_s         Eq. (43)                                           Table 5        1e-6
  ettr_pct        Eq. (40)                                           Table 5        0.01 points
Constants come from validate/paper.toml, which says from which rows they were fitted; --calibrate-on fits them anew from
rows of the given files."""  # noqa: E501


_KERNELS: Final = """\
Each row of a table of measured kernels beside what the surfaces of its device say, or those of the relative that the device's
preset names. Tables are told by their columns (docs/calibration.md). --left-out family fits anew without a fifth of the
families of shapes, and compares those with it; --left-out device compares with the relative's surfaces alone."""  # noqa: E501


_FLEETS: Final = """\
Forecasts of the failures of the next 7, 14 and 28 days on real fleets, from rolling origins: how many bands of 90 % held, how wide
they are, and the mean logarithm of the chance that was given to what came; beside them what the better of two plain negative binomials
reaches, one with a discounted rate, where the folder has it in plain.csv. Then years of these fleets, each judged day by day at its own
mean rate: how many are called wrong, which is false, and how many are said to drift, which is true."""  # noqa: E501

_TUNING: Final = """\
Each run is priced with its own layout, adapters and format of frozen weights: by the shipped constants (`step`), and by constants of
adapters that saw neither its submitter nor one of its systems (`left out`). Memory is held against what an allocator counted where
that was published. Bands promise four of five of the left-out steps. Every run trained, so one that is said not to fit is an error.
Of each memory that was published the device with the least memory is chosen that surely holds the run (P(fits) of 99 %): how many of these
would run out of memory."""  # noqa: E501

_ASSUMPTIONS: Final = """\
Pools whose nodes fail as assumed, and pools whose rate doubles or halves after two months, looked at every hour: the share whose
assumption is called wrong within a year, the share that is said to drift, and the days until a changed rate gets its first verdict and
until the assumption is called wrong (median, and nine pools of ten). --wander lets the rate move from week to week around the assumed."""  # noqa: E501

EXAMPLES: Final = """\
examples:
  mofa validate kernels tables/gemm.csv --left-out device
  mofa validate steps lab/data/cases/throughput.json
  mofa validate ettr lab/data/ettr_cases.json --json
  mofa validate fleets lab/data/fleets
  mofa validate account d01.json d02.json --generator histories.py --scenarios scenarios
  mofa validate changes lab/data/changes/steady.toml --generator histories.py
  mofa validate tuning lab/data/finetune.json
  mofa validate odds lab/data/cases/sweep.json
  mofa validate sizes lab/data/cases/sweep.json
  mofa validate forecast lab/data/forecasts/2026-11.forecast.json
  mofa validate assumptions --nodes 64 --pools 20
  mofa validate paper lab/data/paper_table6.json --calibrate-on 1,5,6,7,9,12,16,18"""


def configure(parser: ArgumentParser) -> None:
    """Add each kind of cases with its options."""
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    steps = kinds.add_parser(
        "steps", help="step time and memory of measured runs", description=_STEPS
    )
    steps.add_argument(
        "files", metavar="CASES.json", nargs="+", help="cases: a list, or an object with `cases`"
    )
    steps.add_argument(
        "--cases", action="store_true", help="list every figure in tables, not only the summary"
    )
    output.add_options(steps)
    ettr = kinds.add_parser(
        "ettr",
        help="effective training time, intervals and rates",
        description=_ETTR,
        formatter_class=RawDescriptionHelpFormatter,
    )
    ettr.add_argument("file", metavar="CASES.json", help="cases: a list, or an object with `cases`")
    output.add_options(ettr)
    paper = kinds.add_parser(
        "paper",
        help="the MoFa paper's tables",
        description=_PAPER,
        formatter_class=RawDescriptionHelpFormatter,
    )
    paper.add_argument(
        "files", metavar="TABLE.json", nargs="*", help="rows of a table of the paper"
    )
    paper.add_argument(
        "--calibrate-on",
        metavar="IDS",
        default="",
        help="fit the constants anew from these row ids, for example 1,5,6,7,9,12,16,18",
    )
    output.add_options(paper)
    measured = kinds.add_parser(
        "kernels", help="measured kernels and collectives", description=_KERNELS
    )
    measured.add_argument(
        "files", metavar="TABLE.csv", nargs="+", help="tables of kernels, .csv or .csv.xz"
    )
    measured.add_argument(
        "--left-out",
        choices=("family", "device"),
        help="compare with a fit that did not see the row",
    )
    fleets = kinds.add_parser(
        "fleets", help="forecasts of failures on real fleets", description=_FLEETS
    )
    fleets.add_argument(
        "folder", metavar="FOLDER", help="a folder with fleets.toml and failures.csv"
    )
    output.add_options(fleets)
    tuning = kinds.add_parser(
        "tuning",
        help="measured fine-tuning runs, with their submitter left out",
        description=_TUNING,
    )
    tuning.add_argument("file", metavar="RUNS.json", help="rows as of lab/data/finetune.json")
    output.add_options(tuning)
    validate_odds.configure(kinds)
    validate_sizes.configure(kinds)
    validate_account.configure(kinds)
    validate_changes.configure(kinds)
    validate_forecast.configure(kinds)
    promised = kinds.add_parser(
        "assumptions",
        help="what the check of assumed failure rates promises",
        description=_ASSUMPTIONS,
    )
    promised.add_argument("--nodes", metavar="N[,…]", default="64,256,1024", help="nodes of a pool")
    promised.add_argument(
        "--batch", metavar="B[,…]", default="1", help="failures of one event (default: 1)"
    )
    promised.add_argument(
        "--wander",
        type=float,
        default=0.0,
        metavar="CV",
        help="standard deviation of a week's rate over its mean (default: 0)",
    )
    promised.add_argument(
        "--pools", type=int, default=200, help="pools of each kind (default: 200)"
    )
    output.add_options(promised)
    measured.add_argument(
        "--record", metavar="FILE.json", help="keep the summary for docs/validation.md"
    )
    output.add_options(measured)


def run(arguments: Namespace) -> int:
    """Price the cases and print the comparison."""
    verbs = {
        "steps": _steps, "ettr": _ettr, "paper": _paper, "kernels": _kernels,
        "assumptions": _assumptions, "fleets": _fleets, "tuning": _tuning,
        "odds": validate_odds.run, "sizes": validate_sizes.run, "account": validate_account.run,
        "changes": validate_changes.run, "forecast": validate_forecast.run,
    }  # fmt: skip
    verbs[arguments.kind](arguments)
    return 0


def _steps(arguments: Namespace) -> None:
    from mofa_lab.validate.steps import validate_steps

    document = validate_steps(arguments.files)
    summary = document["summary"]
    tables = [
        _spreads("Errors", "quantity", {"all": summary, **summary["by_quantity"]}),
        _spreads("By source", "source", summary["by_source"]),
        _spreads("By GPU", "gpu", summary["by_gpu"]),
    ]
    if "pick_regret" in summary:
        tables += [_regrets(summary["pick_regret"]), _memory(summary["oom"])]
    if document["unsupported"]:
        tables.append(_rows("Unsupported", ("id", "reason"), document["unsupported"]))
    if arguments.cases:
        tables.append(
            _rows(
                "Cases",
                ("id", "quantity", "measured", "predicted", "error", "fits"),
                document["cases"],
            )
        )
    output.emit(arguments.output, tables, document, records=tables[-1 if arguments.cases else 0])


def _ettr(arguments: Namespace) -> None:
    from mofa_lab.validate.ettr_cases import validate_ettr

    document = validate_ettr(arguments.file)
    columns = ("id", "kind", "expected", "predicted", "tolerance", "ok")
    shown = [{**row, **{name: _brief(row[name]) for name in columns}} for row in document["cases"]]
    tables = [
        _rows(f"{document['summary']['ok']} of {document['summary']['n']} hold", columns, shown)
    ]
    if document["unsupported"]:
        tables.append(_rows("Unsupported", ("id", "reason"), document["unsupported"]))
    exact = [{name: _exact(row[name]) for name in columns} for row in document["cases"]]
    output.emit(arguments.output, tables, document, records=_rows("Cases", columns, exact))


def _paper(arguments: Namespace) -> None:
    from mofa_lab.validate.paper import validate_paper

    if not arguments.files:
        _paper_runs(arguments)
        return
    ids = [word.strip() for word in arguments.calibrate_on.split(",") if word.strip()]
    document = validate_paper(arguments.files, calibrate_on=ids)
    columns = ("table", "id", "quantity", "printed", "predicted", "tolerance", "measure", "ok")
    summary = document["summary"]
    tables = [_rows(f"{summary['ok']} of {summary['n']} hold", columns, document["rows"])]
    if document["means"]:
        tables.append(
            _rows(
                "Mean errors", ("table", "quantity", "mean", "tolerance", "ok"), document["means"]
            )
        )
    if document["unsupported"]:
        tables.append(_rows("Unsupported", ("id", "reason"), document["unsupported"]))
    output.emit(arguments.output, tables, document)


def _paper_runs(arguments: Namespace) -> None:
    from mofa_lab.validate import paper_runs

    runs = paper_runs.paper_runs()
    tables = [paper_runs.run_table(runs), paper_runs.other_table()]
    document = {"runs": [output.as_data(run) for run in runs]}
    output.emit(arguments.output, tables, document, records=tables[0])


def _assumptions(arguments: Namespace) -> None:
    from mofa_lab.validate.promises import promise

    sizes = {name: _whole(getattr(arguments, name), f"--{name}") for name in ("nodes", "batch")}
    (pools,) = _whole(str(arguments.pools), "--pools")
    if not 0 <= arguments.wander <= _MOST_WANDER:
        raise BadValue("--wander", arguments.wander, f"give a number from 0 to {_MOST_WANDER:g}")
    promises = [
        output.as_data(promise(nodes, batch, arguments.wander, pools=pools))
        for batch in sizes["batch"]
        for nodes in sizes["nodes"]
    ]
    output.emit(
        arguments.output,
        [_rows("Looked at every hour", tuple(promises[0]), promises)],
        {"pools": promises},
    )


def _fleets(arguments: Namespace) -> None:
    from mofa_lab.validate.fleets import fleet_scores
    from mofa_lab.validate.promises import fleet_years

    fleets = [output.as_data(row) for row in fleet_scores(arguments.folder)]
    years = [output.as_data(row) for row in fleet_years(arguments.folder)]
    tables = [_rows("Rolling origins", tuple(fleets[0]), fleets)]
    if years:
        tables.append(_rows("Years at their own mean", tuple(years[0]), years))
    output.emit(arguments.output, tables, {"fleets": fleets, "years": years})


def _tuning(arguments: Namespace) -> None:
    from mofa_lab.validate.tuning import tuning_scores

    document = tuning_scores(arguments.file)
    percent = [
        Column(f"{name} {figure}", unit="%")
        for name in ("step", "left out", "memory")
        for figure in ("median", "p90")
    ]
    columns = (
        Column("runs"),
        Column("n"),
        *percent,
        Column("in band", unit="%"),
        Column("P(fits) below 0.9"),
        Column("said not to fit"),
        Column("devices"),
        Column("out of memory"),
    )
    rows = tuple(tuple(row.values()) for row in document["groups"])
    tables = [Table(title="Fine-tuning runs", columns=columns, rows=rows)]
    kinds = (Column("question"), Column("layouts"), Column("runs"), Column("regret", unit="%"))
    several = tuple(tuple(row.values()) for row in document["regret"])
    tables.append(Table(title="Measured in several layouts", columns=kinds, rows=several))
    if document["unsupported"]:
        tables.append(_rows("Unsupported", ("id", "reason"), document["unsupported"]))
    cases = ("id", "step", "left_out", "memory", "fits")
    output.emit(
        arguments.output, tables, document, records=_rows("Cases", cases, document["cases"])
    )


def _whole(text: str, field: str) -> list[int]:
    """Whole numbers above zero, separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise BadValue(field, text, "give whole numbers above zero, separated by commas")
    return [int(part) for part in parts]


def _kernels(arguments: Namespace) -> None:
    from mofa_lab.kernels import score

    with output.progress("comparing") as advance:
        comparisons = score.compared(arguments.files, arguments.left_out, lambda _: advance(1.0))
    document = score.document(comparisons)
    summary = document["summary"]
    if arguments.record:
        score.record(arguments.record, arguments.left_out or "fitted", summary["groups"])
    tables = [
        _spreads("Errors", "kernels", {"all": summary}),
        _spreads(
            "By device",
            "kernels",
            {f"{row['device']} {row['op']}": row for row in summary["groups"]},
        ),
    ]
    if document["unsupported"]:
        reasons = Counter(
            (row["device"], row["op"], row["reason"]) for row in document["unsupported"]
        )
        rows = [
            {"device": d, "op": op, "reason": why, "rows": n} for (d, op, why), n in reasons.items()
        ]
        tables.append(_rows("Unsupported", ("device", "op", "reason", "rows"), rows))
    names = ("id", "device", "op", "predicted_s", "measured_s")
    output.emit(
        arguments.output, tables, document, records=_rows("Cases", names, document["cases"])
    )


def _spreads(title: str, name: str, groups: Mapping[str, Any]) -> Table:
    rows = tuple(
        (key, figures["n"], figures["mape"], figures["median_ape"], figures["p90_ape"])
        for key, figures in groups.items()
    )
    return Table(title=title, columns=(Column(name), *_SPREAD), rows=rows)


def _regrets(regret: Mapping[str, Any]) -> Table:
    rows = tuple(
        (f"of {least} and more{words}", part["groups"], part["mean"], part["p90"])
        for least, figures in (("five", regret), ("two", regret["every_choice"]))
        for words, part in (("", figures), (", below 512 GPUs", figures["below_512_gpus"]))
    )
    columns = (
        Column("groups of runs"),
        Column("n"),
        Column("mean", unit="%"),
        Column("p90", unit="%"),
    )
    return Table(title="Throughput lost by the pick", columns=columns, rows=rows)


def _memory(counts: Mapping[str, int]) -> Table:
    rows = tuple((name.replace("_", " "), count) for name, count in counts.items())
    return Table(
        title="Out of memory: predicted not to fit",
        columns=(Column("outcome"), Column("runs")),
        rows=rows,
    )


def _rows(title: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> Table:
    named = tuple(Column(name, unit="%" if name == "error" else "") for name in columns)
    return Table(
        title=title, columns=named, rows=tuple(tuple(row[name] for name in columns) for row in rows)
    )


def _exact(value: Any) -> Any:
    """A cell for programs: lists and objects as JSON."""
    return json.dumps(value) if isinstance(value, Mapping | list) else value


def _brief(value: Any) -> Any:
    """A cell of a table: lists and objects as short text; JSON has them whole."""
    if isinstance(value, Mapping):
        return shorten(
            ", ".join(f"{name} {_brief(part)}" for name, part in value.items()),
            _WIDEST,
            placeholder=" …",
        )
    if isinstance(value, list):
        return shorten(", ".join(str(_brief(part)) for part in value), _WIDEST, placeholder=" …")
    return f"{value:.6g}" if isinstance(value, float) else value
