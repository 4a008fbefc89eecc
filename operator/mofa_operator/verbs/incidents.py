"""What failed in a pool, why, and what did not: incidents and exposure from Prometheus, as the operator counts them."""

from __future__ import annotations

import asyncio
import re
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from mofa_model import output, units
from mofa_model.errors import BadValue, SourceUnreachable
from mofa_model.tables import Column, Table
from mofa_operator.incidents.causes import CAUSES
from mofa_operator.incidents.incident import Incident
from mofa_operator.snapshot import NoHistory

_SHOWN: Final = 3
"""Pieces of evidence that people see. [1]"""

EXAMPLES: Final = """\
examples:
  what failed in the last thirty days
    mofa incidents --prometheus http://prometheus:9090
  one cluster of several, one pool of it, two weeks, for a script
    mofa incidents --prometheus http://prometheus:9090 --match 'cluster="east"' --nodes pool=h100 --start 2026-11-01 --end 2026-11-15 -o json
  drains, resubmissions and user errors too
    mofa incidents --prometheus http://prometheus:9090 --all

A pool is the nodes with GPUs, or those that --nodes names. The flavour and credentials of the server come from the operator's
environment variables (MOFA_PROMETHEUS_FLAVOUR, MOFA_PROMETHEUS_BEARER_TOKEN_FILE, …).

exit codes: 0 read, 2 bad input, 4 the server does not answer or its series say too little"""


def configure(parser: ArgumentParser) -> None:
    """Add the server, what of it, and when."""
    parser.add_argument("--prometheus", required=True, metavar="URL", help="address of the Prometheus server")
    parser.add_argument(
        "--match",
        action="append",
        default=[],
        metavar="LABEL=VALUE",
        help="what every series carries; may be repeated",
    )
    parser.add_argument(
        "--nodes",
        action="append",
        default=[],
        metavar="LABEL=VALUE",
        help="node labels of the pool; may be repeated (default: nodes with GPUs)",
    )
    parser.add_argument(
        "--node-label",
        default="",
        metavar="LABEL",
        help="label of the series that names the node (default: found)",
    )
    parser.add_argument(
        "--start",
        metavar="TIME",
        help="from when: date, ISO time or epoch seconds (default: 30 days before the end)",
    )
    parser.add_argument("--end", metavar="TIME", help="until when (default: now)")
    parser.add_argument("--all", action="store_true", help="show people what is no failure, too")
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Read, deduce, print."""
    from mofa_operator.observe.history import PoolPast, pool_past
    from mofa_operator.observe.prometheus import Prometheus
    from mofa_operator.observe.queries import Pool
    from mofa_operator.observe.source import environment

    end = time.time() if arguments.end is None else _moment("--end", arguments.end)
    start = end - 30 * units.DAY if arguments.start is None else _moment("--start", arguments.start)
    if not 0 < end - start <= 366 * units.DAY:
        raise BadValue("--start", arguments.start, "give a time before --end, and at most a year before it")
    pool = Pool.of(
        _pairs("--match", arguments.match), _pairs("--nodes", arguments.nodes), arguments.node_label
    )

    async def read(tell: Callable[[float], None]) -> PoolPast | NoHistory:
        async with Prometheus(environment(arguments.prometheus)) as prometheus:
            return await pool_past(prometheus, pool, (start, end), progress=tell)

    with output.progress("reading Prometheus", 1.0) as tell:
        found = asyncio.run(read(tell))
    if isinstance(found, NoHistory):
        raise SourceUnreachable(f"Prometheus at {arguments.prometheus.rpartition('@')[2]}: {found.message}")
    told = found.past
    by_node = {node: sum(b - a for a, b in spans) / units.DAY for node, spans in sorted(told.exposed.items())}
    document = {
        "start": start,
        "end": end,
        "incidents": [_written(one) for one in told.incidents],
        "exposure": {
            "node_days": sum(by_node.values()),
            "by_node": by_node,
            "job_node_days": {job: seconds / units.DAY for job, seconds in sorted(told.job_seconds.items())},
        },
        "notes": list(found.warnings),
    }
    shown = [one for one in told.incidents if one.cause.counts or arguments.all]
    output.emit(arguments.output, [_table(shown, sum(by_node.values()), found.warnings)], document)
    return 0


def _written(one: Incident) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": one.kind,
        one.kind: one.name,
        "start": one.start,
        "end": one.end,
        "cause": one.cause.word,
        "counts": one.cause.counts,
        "evidence": list(one.evidence),
    }
    if one.cause.counts:
        found["recovery_seconds"] = one.seconds
    if one.kind != "node":
        found["nodes"] = list(one.nodes)
    if one.level is not None:
        found |= {"level": one.level.value, "recovery_seen": one.timed}
    return found


def _table(shown: list[Incident], node_days: float, notes: tuple[str, ...]) -> Table:
    return Table(
        title="Incidents",
        columns=(
            Column("start"),
            Column("what", align="left"),
            Column("name", align="left", copied=True),
            Column("cause", align="left"),
            Column("lasted", unit="s"),
            Column("evidence", align="left"),
        ),
        rows=tuple(
            (
                datetime.fromtimestamp(one.start, UTC).strftime("%Y-%m-%d %H:%M"),
                one.kind,
                one.name,
                one.cause.word,
                one.seconds,
                "; ".join(one.evidence[:_SHOWN]),
            )
            for one in shown
        ),
        notes=(
            f"{sum(one.cause.counts for one in shown)} failures in {node_days:.4g} node-days.",
            *(
                f"{cause.word}: {cause.meaning}."
                for cause in CAUSES.values()
                if any(one.cause is cause for one in shown)
            ),
            *(f"{text}." for text in notes),
        ),
    )


def _pairs(option: str, given: list[str]) -> dict[str, str]:
    """Labels and values, as people and as PromQL write them."""
    found = {}
    for text in given:
        for part in re.split(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', text):
            label, equals, value = part.partition("=")
            value = value.strip()
            if not equals or not label.strip() or value.startswith("~"):
                raise BadValue(option, text, "give LABEL=VALUE, for example cluster=east")
            found[label.strip()] = value.strip('"')
    return found


def _moment(option: str, text: str) -> float:
    """A moment in seconds of the epoch. [s]"""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadValue(
            option, text, "give a date as 2026-11-15, an ISO time, or seconds of the epoch"
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
