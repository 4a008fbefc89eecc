"""What failed in a pool, why, and what did not: incidents and exposure as the operator counts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Final

from mofa_model import output, units
from mofa_model.answers.options import (
    Names,
    UserQuestion,
    add_options,
    as_in,
    names,
    option,
    question_of,
    switch,
    text,
)
from mofa_model.answers.questions import RatesQuestion, ReliabilityQuestion
from mofa_model.errors import BadValue, Missing, SourceUnreachable, UnknownName
from mofa_model.spec.incident_causes import CAUSES
from mofa_model.tables import Column, Table
from mofa_operator.incidents.incident import PHASES, Incident
from mofa_operator.incidents.timelines import Span

if TYPE_CHECKING:
    from mofa_model.manifest.cluster_profile import IncidentRules
    from mofa_operator.incidents.past import Past
    from mofa_operator.observe.prometheus.promql import Pool

_WINDOW: Final = 30 * units.DAY
"""How far back the command looks by default. [s]"""
_SHOWN: Final = 3
"""Most pieces of evidence in the table. [1]"""

EXAMPLES: Final = """\
examples:
  what failed in the last thirty days
    mofa incidents --prometheus http://prometheus:9090
  one cluster of several, one pool of it, two weeks, for a script
    mofa incidents --prometheus http://prometheus:9090 --match 'cluster="east"' \\
        --nodes pool=h100 --start 2026-11-01 --end 2026-11-15 -o json
  drains, resubmissions and user errors too
    mofa incidents --prometheus http://prometheus:9090 --all
  where the node-time went, by cause and by job; a report of the last week, for a page
    mofa incidents --prometheus http://prometheus:9090 --account
    mofa incidents --prometheus http://prometheus:9090 --account week -o html > week.html
  of a Slurm site: by its commands on the PATH, or by what they printed
    mofa incidents --slurm --account
    mofa incidents --slurm nodes.txt sacct.json events.txt --nodes partition=batch
  as the operator counts a profile's pool; this one was no failure, and the operator's line for it
    mofa incidents --prometheus http://prometheus:9090 --profile pool.yaml \\
        --overrule node/gpu-17@2026-11-02T09:30:00Z=planned-drain

A pool is the nodes with GPUs, or those that --nodes or the profile names. The flavour and
credentials of the server come from the operator's environment variables
(MOFA_PROMETHEUS_FLAVOUR, MOFA_PROMETHEUS_BEARER_TOKEN_FILE, …).

exit codes: 0 read, 2 bad input, 4 the server does not answer or its series say too little"""


class IncidentsQuestion(UserQuestion):
    """What failed in which pool, and when."""

    prometheus: str | None = as_in(
        ReliabilityQuestion, "prometheus", "address of the Prometheus server"
    )
    slurm: Names | None = as_in(
        RatesQuestion,
        "slurm",
        "in place of --prometheus, a Slurm site: what scontrol show node, sacct and sacctmgr show"
        " event printed, as text or JSON; without a file they are asked here",
    )
    matchers: Names = option(names, "--match LABEL=VALUE", "what every series carries", default=())
    node_selector: Names = option(
        names,
        "--nodes LABEL=VALUE",
        "node labels of the pool (default: nodes with GPUs)",
        default=(),
    )
    node_label: str | None = option(
        text, "--node-label LABEL", "label of the series that names the node (default: found)"
    )
    profile: str | None = as_in(
        ReliabilityQuestion,
        "profile",
        "ClusterProfile whose pool, matchers and rules of incidents hold; a file or the name of a"
        " bundled one",
    )
    overruled: Names = option(
        names,
        "--overrule ID=CAUSE",
        "count an incident as of this cause, or as none, and print the line that tells the"
        " operator",
        default=(),
    )
    start: str | None = option(
        text,
        "--start TIME",
        "from when: date, ISO time or epoch seconds (default: 30 days before the end)",
    )
    end: str | None = option(text, "--end TIME", "until when (default: now)")
    all: bool = option(switch, "--all", "also show what does not count as a failure", default=False)


def configure(parser: ArgumentParser) -> None:
    """Add the question, and which account of the node-time is shown."""
    add_options(parser, IncidentsQuestion)
    parser.add_argument(
        "--account",
        nargs="?",
        const="window",
        choices=("window", "week"),
        help="show where the node-time went, by cause and by job: of the whole time, or of the "
        "last whole week beside the week before",
    )
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Read the past of a pool, deduce its incidents, print them."""
    from mofa_model.manifest.cluster_profile import IncidentRules, PrometheusSpec
    from mofa_model.manifest.surroundings import named_profile
    from mofa_operator.evidence import date_of
    from mofa_operator.incidents.document import past_document
    from mofa_operator.incidents.incident import time_apart
    from mofa_operator.observe.prometheus.promql import Pool
    from mofa_operator.verbs.account_tables import tables_of

    question = question_of(IncidentsQuestion, arguments)
    end = time.time() if question.end is None else _moment("--end", question.end)
    default = (end // units.DAY - 14) * units.DAY if arguments.account == "week" else end - _WINDOW
    start = default if question.start is None else _moment("--start", question.start)
    if not 0 < end - start <= 366 * units.DAY:
        raise BadValue(
            "--start", question.start, "give a time before --end, and at most a year before it"
        )
    profile = None if question.profile is None else named_profile(question.profile)
    spec = None if profile is None else profile.spec
    series = PrometheusSpec() if spec is None else spec.prometheus
    pool = Pool.of(
        series.matchers | _pairs("--match", question.matchers),
        ({} if spec is None else spec.node_selector) | _pairs("--nodes", question.node_selector),
        question.node_label or series.node_label or "",
        series.exporter_namespaces,
    )
    rules = IncidentRules() if spec is None else spec.incidents
    overruled = _overruled(question.overruled)
    rules = rules.model_copy(update={"overruled": rules.overruled | overruled})

    if (question.prometheus is None) is (question.slurm is None):
        raise Missing({"--prometheus": "http://prometheus:9090"}, also="or --slurm, one of the two")
    if question.prometheus is not None:
        past = _prometheus_past(question.prometheus, pool, rules, start, end)
    else:
        past = _slurm_past(question, rules, start, end)
        start, end = past.sampled[0].start, past.sampled[-1].end
    for incident_id in overruled:
        if all(time_apart(incident, incident_id) is None for incident in past.incidents):
            raise BadValue(
                "--overrule",
                incident_id,
                "give the id of an incident of this pool between --start and --end",
            )
    document = past_document(past, start, end)
    node_days = document["exposure"]["node_days"]
    notes = [*_recovery_lines(past.phases), *(f"{text}." for text in past.warnings)]
    if overruled:
        patch = json.dumps({"spec": {"incidents": {"overruled": overruled}}})
        name = "NAME" if profile is None else profile.name
        notes.append(f"kubectl patch clusterprofile {name} --type=merge -p '{patch}'")
        document["overruling"] = notes[-1]
    shown = [row for row in past.incidents if row.cause.counts or question.all]
    tables = (
        tables_of(past.account, arguments.account, date_of(end))
        if arguments.account
        else [_table(shown, node_days, notes)]
    )
    output.emit(arguments.output, tables, document)
    return 0


def _prometheus_past(url: str, pool: Pool, rules: IncidentRules, start: float, end: float) -> Past:
    """The past of a pool by the series of a server, between two moments. [s]"""
    from mofa_operator.observe.history.history import pool_past
    from mofa_operator.observe.history.pool_samples import window_days
    from mofa_operator.observe.prometheus.client import Prometheus
    from mofa_operator.observe.source import environment
    from mofa_operator.snapshot import NoHistory

    async def read(tell: Callable[[float], None]) -> Past | NoHistory:
        async with Prometheus(environment(url)) as prometheus:
            first = window_days(end, end - start)[0].start
            return await pool_past(prometheus, pool, Span(first, end), rules, progress=tell)

    with output.progress("reading Prometheus", 1.0) as tell:
        past = asyncio.run(read(tell))
    if isinstance(past, NoHistory):
        address = url.rpartition("@")[2]  # without credentials
        raise SourceUnreachable(f"Prometheus at {address}: {past.message}")
    return past


def _slurm_past(
    question: IncidentsQuestion, rules: IncidentRules, start: float, end: float
) -> Past:
    """The past of a pool by records of Slurm; files are read whole where no time is given. [s]"""
    from mofa_operator.observe.slurm import slurm_past, slurm_records

    labels = _pairs("--nodes", question.node_selector)
    partition = labels.pop("partition", "")
    if labels:
        hint = "under --slurm give partition=NAME"
        raise BadValue("--nodes", ",".join(question.node_selector), hint)
    outputs = question.slurm or ()
    is_bounded = not outputs or question.start is not None or question.end is not None
    records = slurm_records(outputs, start, end)
    return slurm_past(records, rules, (start, end) if is_bounded else None, partition=partition)


def _recovery_lines(phases: Mapping[str, tuple[float, ...]]) -> Iterator[str]:
    """A sentence for each phase of recovery, with the median of its times."""
    for name, times in phases.items():
        median_time = units.format(median(times), "s")
        yield f"Recovery, {name}: {median_time} in the median of {len(times)}; {PHASES[name]}."


def _table(shown: list[Incident], node_days: float, notes: Sequence[str]) -> Table:
    return Table(
        title="Incidents",
        columns=(
            Column("incident", align="left", copied=True),
            Column("cause", align="left"),
            Column("lasted", unit="s"),
            Column("evidence", align="left"),
        ),
        rows=tuple(
            (row.id, row.cause.word, row.seconds, "; ".join(row.evidence[:_SHOWN])) for row in shown
        ),
        notes=(
            f"{sum(row.cause.counts for row in shown)} failures in {node_days:.4g} node-days.",
            *(
                f"{cause.word}: {cause.meaning}."
                for cause in CAUSES.values()
                if any(row.cause is cause for row in shown)
            ),
            *notes,
        ),
    )


def _pairs(flag: str, texts: Names) -> dict[str, str]:
    """Values by label, of texts as people and as PromQL write them."""
    values = {}
    for written in texts:
        for part in re.split(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', written):
            label, equals, value = part.partition("=")
            value = value.strip()
            if not equals or not label.strip() or value.startswith("~"):
                raise BadValue(flag, written, "give LABEL=VALUE, for example cluster=east")
            values[label.strip()] = value.strip('"')
    return values


def _overruled(texts: Names) -> dict[str, str]:
    """Causes by the id of an incident, as --overrule states them."""
    causes = {}
    for written in texts:
        incident_id, equals, word = written.rpartition("=")
        if not equals:
            raise BadValue(
                "--overrule",
                written,
                "give ID=CAUSE, for example node/gpu-17@2026-01-31T09:30:00Z=none",
            )
        if word not in CAUSES:
            raise UnknownName("--overrule: cause", word, CAUSES)
        causes[incident_id] = word
    return causes


def _moment(option: str, text: str) -> float:
    """A moment in seconds of the epoch. [s]"""
    with contextlib.suppress(ValueError):
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadValue(
            option, text, "give a date as 2026-11-15, an ISO time, or seconds of the epoch"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
