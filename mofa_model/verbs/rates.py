"""`mofa rates`: do observed failures contradict the assumed rates? What would help a pool?"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from mofa_model import output, units
from mofa_model.answers.given import live_profile, live_source
from mofa_model.errors import BadFile, BadValue, Missing
from mofa_model.files import from_csv, from_headed_csv, read_text
from mofa_model.spec.evidence import DatedEvidence, FailureEvidence
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.spec.reliability import PAPER_RATE, RecoveryTime
from mofa_model.tables import Column, Table, table_of
from mofa_model.units import DAY, Range

if TYPE_CHECKING:
    from mofa_model.reliability.observed import Assessment, ObservedFailures

CONTRADICTED: Final = 5
"""Exit code of --check when an assumption does not stand."""

_CHANCE: Final = 0.05
"""Least probability with which chance alone may explain the counts. [1]"""
EXAMPLES: Final = """\
examples:
  counts of a cluster against the paper's assumption of 0.005 per node-day
    mofa rates --failures 419 --node-days 110592 --assumed 0.005
  by class, with the coverage, the assumption worth two failures of prior
    mofa rates --count process=30,pod=60,job=10 --node-days 20000 \\
        --possible-node-days 21000 --prior-weight 2
  from files: failure events, and node-days by node; the worst nodes, the trend, recovery times
    mofa rates --events failures.csv --exposure nodes.csv
  live, for the profile of a pool
    mofa rates --prometheus http://prometheus:9090 --profile h100-east
  what would have helped a pool, by its own account; the number of a fleet
    mofa incidents --prometheus http://prometheus:9090 --account -o json > past.json
    mofa rates --what-would-help past.json --gpus-per-node 8 --save 20s
  of a Slurm site: by its commands on the PATH, or by what they printed
    mofa rates --slurm
    mofa rates --slurm nodes.txt sacct.json events.txt --assumed 0.005
  in CI: exit 5 when an assumption is contradicted
    mofa rates --failures 40 --node-days 7000 --assumed 0.005 --check

failures.csv has the columns time, node, class, recovery_seconds, open. Only
node and class are needed. time is in seconds or ISO 8601; open is yes for a
recovery that had not ended, whose recovery_seconds is the time so far. With
the time of every failure the check goes by days, and says since when a rate is
another one; counts without times are a single look.
nodes.csv has the columns node, node_days, and possible_node_days where known."""


def configure(parser: ArgumentParser) -> None:
    """Add options for three sources of observed failures, and for the assumption."""
    observed = parser.add_argument_group("observed")
    observed.add_argument("--failures", type=int, metavar="K", help="failures in all")
    observed.add_argument(
        "--count", metavar="CLASS=K[,…]", help="failures by class, in place of --failures"
    )
    observed.add_argument(
        "--node-days",
        type=units.number,
        metavar="D",
        help="node-days in which the failures were counted",
    )
    observed.add_argument(
        "--possible-node-days",
        type=units.number,
        metavar="D",
        help="node-days of the whole window; --node-days divided by them is the coverage",
    )
    observed.add_argument(
        "--events", metavar="FILE", help="failure events, CSV; - is standard input"
    )
    observed.add_argument(
        "--exposure", metavar="FILE", help="node-days by node, CSV, with --events"
    )
    observed.add_argument("--prometheus", metavar="URL", help="a live server")
    observed.add_argument(
        "--slurm",
        nargs="*",
        metavar="FILE",
        help="a Slurm site: what scontrol show node, sacct and sacctmgr show event printed; "
        "without a file they are asked here",
    )
    observed.add_argument(
        "--profile",
        metavar="NAME|FILE",
        help="with --prometheus or --slurm: the pool to ask about, a bundled profile or a manifest",
    )
    assumed = parser.add_argument_group("assumed")
    assumed.add_argument(
        "--assumed",
        type=units.number,
        metavar="R",
        help=f"failures per node-day (default: as --profile assumes, else {PAPER_RATE:g})",
    )
    assumed.add_argument(
        "--shares",
        metavar="CLASS=P[,…]",
        help="class shares (default: the paper's "
        f"{','.join(f'{c}={c.share:g}' for c in RecoveryClass if c.share)})",
    )
    assumed.add_argument(
        "--prior-weight",
        type=units.number,
        metavar="W",
        help="weight of the assumed rate, as a number of failures (default: "
        "as --profile says, else 0)",
    )
    answer = parser.add_argument_group("answer")
    answer.add_argument(
        "--level",
        type=units.number,
        default=0.9,
        metavar="P",
        help="level of intervals (default: 0.9)",
    )
    answer.add_argument(
        "--alarm",
        type=units.number,
        default=0.05,
        metavar="P",
        help="chance of a false verdict within a year of constant checking (default: 0.05)",
    )
    answer.add_argument(
        "--check",
        action="store_true",
        help=f"exit {CONTRADICTED} when an assumption is contradicted",
    )
    helps = parser.add_argument_group("what would help")
    helps.add_argument(
        "--what-would-help",
        metavar="FILE",
        help="in place of the rates: the past that mofa incidents --account -o json wrote, replayed"
        " through other time-outs, spares, intervals and ways to recover; - is standard input",
    )
    helps.add_argument(
        "--gpus-per-node",
        type=int,
        metavar="N",
        default=8,
        help="GPUs of a node, for GPU-hours (default: 8)",
    )
    helps.add_argument(
        "--replicas",
        type=int,
        metavar="N",
        default=2,
        help="replicas of a job that each hold all of its state (default: 2)",
    )
    helps.add_argument(
        "--recovery",
        metavar="PLAN[,…]",
        action="append",
        default=[],
        help="recovery plans to replay, as mofa ettr --recovery takes them (default: watchdogs of 2"
        " to 30 min, in-place, peer, stand-in, replica, shrink)",
    )
    helps.add_argument(
        "--save",
        metavar="TIME",
        help="what a save stops training for (default: nothing is taken off for more saves)",
    )
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Compare observed rates with assumed ones, or print changes that would have helped a pool."""
    from mofa_model.reliability.observed import assess

    if arguments.what_would_help is not None:
        return _what_would_help(arguments)
    _check(arguments)
    observed = _observed(arguments)
    if arguments.node_days == 0 and (
        failures := sum(evidence.failures for evidence in observed.classes.values())
    ):
        raise BadValue(
            "--node-days",
            0,
            f"{failures} failures were counted; give the node-days in which they came, above 0",
        )
    assumed, recovery, weight = _assumptions(arguments, observed)
    if arguments.prometheus is None and arguments.slurm is None:
        # Files and counts name each class that failed: the other classes did not fail.
        none = FailureEvidence(node_days=observed.node_days)
        observed = replace(observed, classes=dict.fromkeys(assumed, none) | dict(observed.classes))
    assessment = assess(
        observed,
        assumed,
        prior_weight=weight,
        level=arguments.level,
        alarm=arguments.alarm,
        recovery_law=recovery,
    )
    output.emit(arguments.output, _tables(assessment), _document(assessment))
    return CONTRADICTED if arguments.check and assessment.contradicted else 0


def _what_would_help(arguments: Namespace) -> int:
    """Replay a pool's past, and print the changes that would have helped."""
    from mofa_model.answers.job import time_of
    from mofa_model.answers.what_would_help import document_of, read_past, table_of_remedies
    from mofa_model.reliability.remedies import RemedySettings, what_would_help
    from mofa_model.spec.recovery_plans import plans_of

    others = (arguments.prometheus, arguments.events, arguments.count, arguments.failures)
    if any(other is not None for other in others):
        raise BadValue(
            "--what-would-help",
            arguments.what_would_help,
            "give it alone: the file has failures and exposure",
        )
    for name in ("gpus_per_node", "replicas"):
        if getattr(arguments, name) < 1:
            option = f"--{name.replace('_', '-')}"
            raise BadValue(option, getattr(arguments, name), "give a whole number of one or more")
    save = None if arguments.save is None else time_of(arguments.save, "--save", least=0.0)
    settings = RemedySettings(
        gpus_per_node=arguments.gpus_per_node, replicas=arguments.replicas, save=save
    )
    if arguments.recovery:
        settings = replace(settings, plans=plans_of(tuple(arguments.recovery)))
    answer = what_would_help(read_past(arguments.what_would_help), settings)
    output.emit(arguments.output, [table_of_remedies(answer)], document_of(answer))
    return 0


def _check(arguments: Namespace) -> None:
    for name in ("level", "alarm"):
        value = getattr(arguments, name)
        if not 0 < value < 1:
            raise BadValue(f"--{name}", value, "give a number between 0 and 1")
    for name in ("assumed", "prior_weight", "node_days", "possible_node_days", "failures"):
        value = getattr(arguments, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise BadValue(
                f"--{name.replace('_', '-')}", value, "give a finite number that is zero or more"
            )


def _observed(arguments: Namespace) -> ObservedFailures:
    """Observed failures, read from the one source that the options name."""
    from mofa_model.reliability.observed import ObservedFailures

    ways = [
        arguments.prometheus,
        arguments.slurm,
        arguments.events,
        arguments.count,
        arguments.failures,
    ]
    if all(way is None for way in ways):
        also = "or --events and --exposure with files, --prometheus with --profile, or --slurm"
        raise Missing({"--failures": "419", "--node-days": "110592"}, also=also)
    if sum(way is not None for way in ways) != 1:
        raise BadValue(
            "observed", None, "give one of --failures, --count, --events, --prometheus, --slurm"
        )
    if arguments.prometheus is not None:
        return _live(arguments.prometheus, arguments.profile)
    if arguments.slurm is not None:
        of_site: ObservedFailures = live_source("slurm")(arguments.slurm, arguments.profile)
        return of_site
    if arguments.events is not None:
        return _from_files(
            arguments.events, arguments.exposure, arguments.node_days, arguments.possible_node_days
        )
    if arguments.node_days is None:
        raise Missing(
            {"--node-days": "110592"}, also="the node-days in which the failures were counted"
        )
    counts = (
        _pairs(arguments.count, "--count")
        if arguments.count
        else {"all": float(arguments.failures)}
    )
    for name, value in counts.items():
        if value != round(value):
            raise BadValue("--count", f"{name}={value}", "give whole numbers of failures")
    return ObservedFailures(
        classes={
            name: FailureEvidence(failures=round(value), node_days=arguments.node_days)
            for name, value in counts.items()
        },
        possible=arguments.possible_node_days,
    )


def _live(url: str, profile: str | None) -> ObservedFailures:
    if profile is None:
        raise BadValue("--profile", None, "name the pool's profile with --prometheus")
    observed: ObservedFailures = live_source("prometheus")(url, profile)
    return observed


def _assumptions(
    arguments: Namespace, observed: ObservedFailures
) -> tuple[dict[str, float], dict[str, RecoveryTime], float]:
    """Assumed failures per node-day by class, recovery times, and the assumption's weight.

    They come from the command line, the profile, or the paper. Classes that were not counted keep
    their share, by rate, of a profile's weight.
    """
    paper_times = {
        failure_class.value: RecoveryTime(mean=failure_class.seconds, cv=1.0)
        for failure_class in RecoveryClass
    }
    given_weight = arguments.prior_weight
    if arguments.profile is None or arguments.assumed is not None or arguments.shares is not None:
        return _assumed(arguments, observed), paper_times, given_weight or 0.0
    from mofa_model.manifest.failures import assumed_rates, classes_of

    profile = live_profile(arguments.profile)
    rates = assumed_rates(profile.spec.failures)
    times = {
        str(failure_class.name): RecoveryTime(
            mean=float(failure_class.recovery_seconds),
            cv=max(float(failure_class.recovery_spread), 0.1),
        )
        for failure_class in classes_of(profile.spec.failures)
        if failure_class.recovery_seconds
    }
    weight = float(profile.spec.failures.prior_weight) if given_weight is None else given_weight
    if set(observed.classes) == {"all"}:
        return {"all": sum(rates.values())}, paper_times, weight
    counted = {name: rate for name, rate in rates.items() if name in observed.classes}
    share = sum(counted.values()) / sum(rates.values()) if any(rates.values()) else 1.0
    return counted, paper_times | times, weight if given_weight is not None else weight * share


def _assumed(arguments: Namespace, observed: ObservedFailures) -> dict[str, float]:
    assumed = PAPER_RATE if arguments.assumed is None else arguments.assumed
    if set(observed.classes) == {"all"}:
        return {"all": assumed}
    shares = (
        _pairs(arguments.shares, "--shares")
        if arguments.shares
        else {
            failure_class.value: failure_class.share
            for failure_class in RecoveryClass
            if failure_class.share
        }
    )
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise BadValue("--shares", arguments.shares, "shares of the classes must add to one")
    return {name: part * assumed for name, part in shares.items()}


def _pairs(text: str, field: str) -> dict[str, float]:
    """Numbers by class from text: `pod=0.1,job=0.02`."""
    pairs: dict[str, float] = {}
    for part in text.split(","):
        name, sign, number = part.strip().partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not (sign and name and math.isfinite(value) and value >= 0) or name in pairs:
            raise BadValue(field, text, "write CLASS=NUMBER, each class once, separated by commas")
        pairs[name] = value
    return pairs


def _tables(assessment: Assessment) -> list[Table]:
    """Rates with their verdicts, recovery times, the worst nodes."""
    covered = "unknown" if assessment.coverage is None else f"{100 * assessment.coverage:.1f} %"
    notes = [f"Exposure {assessment.node_days:g} node-days, coverage {covered}.", *assessment.notes]
    notes += [
        f"Since {r.since} {r.name} fails {r.ratio:.2g} times as often as assumed."
        for r in assessment.rates
        if r.since is not None and r.ratio is not None
    ]
    if assessment.trend is not None:
        score, p = assessment.trend
        word = "no trend" if p >= _CHANCE else "more frequent" if score > 0 else "less frequent"
        notes.append(f"Trend: {word} (Laplace {score:.2f}, p = {p:.3g}).")
    tables = [
        table_of(
            "Failures per node-day",
            assessment.rates,
            (
                (Column("class"), lambda rate: rate.name),
                (Column("failures"), lambda rate: rate.failures),
                (Column("expected", wide=True), lambda rate: rate.expected),
                (Column("assumed"), lambda rate: rate.assumed),
                (Column("observed"), lambda rate: rate.mean),
                (Column("lower"), lambda rate: rate.lower),
                (Column("upper"), lambda rate: rate.upper),
                (Column("exact lower", wide=True), lambda rate: rate.exact_lower),
                (Column("exact upper", wide=True), lambda rate: rate.exact_upper),
                (Column("prior", unit="%", wide=True), lambda rate: rate.prior_weight),
                (Column("evidence", wide=True), lambda rate: rate.evidence),
                (Column("verdict"), lambda rate: rate.verdict.value),
                (Column("since", wide=True), lambda rate: rate.since),
            ),
            notes,
        )
    ]
    if assessment.outlooks:
        ahead = (
            (Column("days"), lambda outlook: outlook.days),
            (Column("lower"), lambda outlook: outlook.lower),
            (Column("expected"), lambda outlook: outlook.mean),
            (Column("upper"), lambda outlook: outlook.upper),
        )
        title = "Failures of all classes in the next days"
        note = "With the exposure of the last week."
        tables.append(table_of(title, assessment.outlooks, ahead, (note,)))
    if assessment.recoveries:
        means = {name: seen.mean for name, seen in assessment.recoveries.items()}
        times = (
            (Column("class"), str),
            (Column("lower", unit="s"), lambda name: means[name].lower),
            (Column("mean", unit="s"), lambda name: means[name].target),
            (Column("upper", unit="s"), lambda name: means[name].upper),
        )
        tables.append(table_of("Mean recovery time", means, times))
    if (spread := assessment.dispersion) is not None:
        is_chance = spread.p_value >= _CHANCE
        word = "nodes fail alike" if is_chance else "some nodes fail more than chance allows"
        tables.append(
            Table(
                title="Worst nodes",
                columns=(Column("node"), Column("failures"), Column("chance")),
                rows=tuple((name, count, float(chance)) for name, count, chance in spread.worst),
                notes=(f"Dispersion {spread.index:.2f}, p = {spread.p_value:.3g}: {word}.",),
            )
        )
    return tables


def _document(assessment: Assessment) -> dict[str, Any]:
    """The answer for machines."""
    return {
        **output.as_data(assessment),
        "shares": {name: _bounds(share) for name, share in assessment.shares.items()},
        "recoveries": {
            name: _bounds(seen.mean) | {"law": output.as_data(seen.recovery_law)}
            for name, seen in assessment.recoveries.items()
        },
        "contradicted": assessment.contradicted,
    }


def _bounds(posterior: Range) -> dict[str, Any]:
    return {"mean": posterior.target, "low": posterior.lower, "high": posterior.upper}


def _from_files(
    events: str, exposure: str | None, node_days: float | None, possible: float | None
) -> ObservedFailures:
    """Observed failures from a file of events and a file of node-days."""
    from mofa_model.reliability.observed import ObservedFailures

    if (exposure is None) == (node_days is None):
        raise BadValue(
            "--exposure",
            exposure,
            "give node-days by node with --exposure, or in all with --node-days",
        )
    by_node, whole = ({}, possible) if exposure is None else _exposure(exposure, possible)
    failed: dict[str, list[float | None]] = {}
    nodes: dict[str, int] = {}
    done: dict[str, tuple[float, ...]] = {}
    still: dict[str, tuple[float, ...]] = {}
    for line, row in _rows(events, ("node", "class")):
        name, node = row["class"], row["node"]
        nodes[node] = nodes.get(node, 0) + 1
        if by_node and node not in by_node:
            raise BadFile(events, f"line {line}: node {node[:60]!r} has no node-days in {exposure}")
        failed.setdefault(name, []).append(
            _moment(row["time"], events, line) if row.get("time") else None
        )
        if row.get("recovery_seconds"):
            lasted = _number(row["recovery_seconds"], events, line)
            kind = still if row.get("open", "").lower() in {"yes", "true", "1"} else done
            kind[name] = (*kind.get(name, ()), lasted)
    times = [moment for moments in failed.values() for moment in moments if moment is not None]
    start, window = _window(times, by_node)
    if start + window > _LAST:
        raise BadFile(
            events, f"the node-days of {exposure} end after the year 9999; give real times"
        )
    exposed = sum(by_node.values()) if node_days is None else node_days
    classes = {
        name: FailureEvidence(failures=len(every), node_days=exposed)
        for name, every in failed.items()
    }
    dated = window > 0 and len(times) == sum(nodes.values())
    return ObservedFailures(
        classes=classes,
        past=_days(failed, exposed, start, window) if dated else (),
        possible=whole,
        by_node=nodes if by_node else {},
        node_days_by_node=by_node,
        times=tuple(min(time - start, window) for time in times) if window else (),
        window=window,
        recoveries=done,
        open_recoveries=still,
    )


_MOST_DAYS: Final = 36_525.0
"""Most node-days of one node that are believed: a hundred years. [d]"""
_LAST: Final = 253_402_300_799.0
"""The end of the year 9999, in seconds of the epoch. [s]"""


def _exposure(path: str, possible: float | None) -> tuple[dict[str, float], float | None]:
    by_node: dict[str, float] = {}
    whole = 0.0
    for line, row in _rows(path, ("node", "node_days")):
        days = _number(row["node_days"], path, line)
        if days > _MOST_DAYS:
            raise BadFile(
                path, f"line {line}: node_days {days:g} are more than a hundred years of one node"
            )
        whole += (
            _number(row["possible_node_days"], path, line)
            if row.get("possible_node_days")
            else math.nan
        )
        if days > 0:
            by_node[row["node"]] = by_node.get(row["node"], 0.0) + days
    if not by_node:
        raise BadFile(path, "has no node with node-days above zero; give at least one")
    return by_node, whole if possible is None and math.isfinite(whole) else possible


def _rows(path: str, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    text = read_text(path)
    _, names = next(from_csv(text, path), (1, list[str]()))
    missing = [name for name in needed if name not in names]
    if missing:
        raise BadFile(
            path, f"has no column {', '.join(missing)}; its first line must name the columns"
        )
    for line, row in from_headed_csv(text, path):
        cells = {name: cell.strip() for name, cell in row.items()}
        for name in needed:
            if not cells.get(name):
                raise BadFile(path, f"line {line}: {name} is empty")
        yield line, cells


def _window(times: list[float], by_node: dict[str, float]) -> tuple[float, float]:
    """Start and length of the trend's window, which is as long as the longest watched node. [s]"""
    if len(times) < 2 or not by_node:
        return 0.0, 0.0
    longest = max(by_node.values()) * DAY
    start = min(times) if max(times) - min(times) > longest or min(times) > longest else 0.0
    return start, max(longest, max(times) - start)


def _days(
    failed: dict[str, list[float | None]], exposed: float, start: float, window: float
) -> tuple[DatedEvidence, ...]:
    """Failures by day since the start of the window, over which the exposure is spread evenly."""
    count = math.ceil(window / DAY)
    counts = {name: [0] * count for name in failed}
    for name, moments in failed.items():
        for moment in moments:
            counts[name][min(int(((moment or start) - start) / DAY), count - 1)] += 1
    return tuple(
        DatedEvidence(
            date=datetime.fromtimestamp(start + day * DAY, UTC).date().isoformat(),
            days=1.0,
            classes={
                name: FailureEvidence(failures=by_day[day], node_days=exposed / count)
                for name, by_day in counts.items()
            },
        )
        for day in range(count)
    )


def _moment(text: str, path: str, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadFile(
            path, f"line {line}: {text[:60]!r} is no time; write seconds or ISO 8601"
        ) from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _number(text: str, path: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise BadFile(path, f"line {line}: {text[:60]!r} is not a number that is zero or more")
    return value
