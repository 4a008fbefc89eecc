"""Failure rates: are the assumed ones contradicted by what was observed?"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mofa_model import output, units
from mofa_model.errors import BadValue, Missing
from mofa_model.spec.evidence import FailureEvidence
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.spec.reliability import PAPER_RATE, RecoveryTime

if TYPE_CHECKING:
    from mofa_model.manifest.parsing import Profile
    from mofa_model.reliability.observed import ObservedFailures

CONTRADICTED: Final = 5
"""Exit code of --check when an assumption does not stand."""
GROUP: Final = "mofa.sources"
"""Entry-point group of live sources: `prometheus` is a function (url, profile) -> ObservedFailures, `profile` one from a name to the
manifest of a ClusterProfile."""

EXAMPLES: Final = """\
examples:
  counts of a cluster against the paper's assumption of 0.005 per node-day
    mofa rates --failures 419 --node-days 110592 --assumed 0.005
  by class, with the coverage, the assumption worth two failures of prior
    mofa rates --count process=30,pod=60,job=10 --node-days 20000 --possible-node-days 21000 --prior-weight 2
  from files: failure events, and node-days by node; the worst nodes, the trend, recovery times
    mofa rates --events failures.csv --exposure nodes.csv
  live, for the profile of a pool
    mofa rates --prometheus http://prometheus:9090 --profile h100-east
  in CI: exit 5 when an assumption is contradicted
    mofa rates --failures 40 --node-days 7000 --assumed 0.005 --check

failures.csv has the columns time, node, class, recovery_seconds, open. Only
node and class are needed. time is in seconds or ISO 8601; open is yes for a
recovery that had not ended, whose recovery_seconds is the time so far. With
the time of every failure the check goes by days, and says since when a rate is
another one; counts without times are a single look.
nodes.csv has the columns node, node_days, and possible_node_days where known."""


def configure(parser: ArgumentParser) -> None:
    """Three ways to say what was observed, and what was assumed."""
    seen = parser.add_argument_group("observed")
    seen.add_argument("--failures", type=int, metavar="K", help="failures in all")
    seen.add_argument(
        "--count", metavar="CLASS=K[,…]", help="failures by class, in place of --failures"
    )
    seen.add_argument(
        "--node-days",
        type=units.number,
        metavar="D",
        help="node-days in which they would have been seen",
    )
    seen.add_argument(
        "--possible-node-days",
        type=units.number,
        metavar="D",
        help="node-days of the window, for the coverage",
    )
    seen.add_argument("--events", metavar="FILE", help="failure events, CSV; - is standard input")
    seen.add_argument("--exposure", metavar="FILE", help="node-days by node, CSV, with --events")
    seen.add_argument("--prometheus", metavar="URL", help="a live server")
    seen.add_argument(
        "--profile",
        metavar="NAME|FILE",
        help="the pool, with --prometheus: a bundled profile or a manifest",
    )
    held = parser.add_argument_group("assumed")
    held.add_argument(
        "--assumed",
        type=units.number,
        metavar="R",
        help=f"failures per node-day (default: as --profile assumes, else {PAPER_RATE:g})",
    )
    held.add_argument(
        "--shares",
        metavar="CLASS=P[,…]",
        help=f"class shares (default: the paper's {','.join(f'{c}={c.share:g}' for c in RecoveryClass if c.share)})",
    )
    held.add_argument(
        "--prior-weight",
        type=units.number,
        metavar="W",
        help="failures that it is worth (default: as --profile says, else 0)",
    )
    ask = parser.add_argument_group("answer")
    ask.add_argument(
        "--level",
        type=units.number,
        default=0.9,
        metavar="P",
        help="level of intervals (default: 0.9)",
    )
    ask.add_argument(
        "--alarm",
        type=units.number,
        default=0.05,
        metavar="P",
        help="chance of any false verdict in a year of looking all the time (default: 0.05)",
    )
    ask.add_argument(
        "--check",
        action="store_true",
        help=f"exit {CONTRADICTED} when an assumption is contradicted",
    )
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Check the assumptions."""
    from mofa_model.reliability.observed import assess
    from mofa_model.verbs import rates_answer

    _check(arguments)
    observed = _observed(arguments)
    if arguments.node_days == 0 and (
        seen := sum(one.failures for one in observed.classes.values())
    ):
        raise BadValue("--node-days", 0, f"{seen} failures were seen in some node-days: give these")
    assumed, recovery, weight = _held(arguments, observed)
    if arguments.prometheus is None:  # files and counts name what failed; nothing else did
        none = FailureEvidence(node_days=observed.node_days)
        observed = replace(observed, classes=dict.fromkeys(assumed, none) | dict(observed.classes))
    found = assess(
        observed,
        assumed,
        prior_weight=weight,
        level=arguments.level,
        alarm=arguments.alarm,
        recovery=recovery,
    )
    output.emit(arguments.output, rates_answer.tables(found), rates_answer.document(found))
    return CONTRADICTED if arguments.check and found.contradicted else 0


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
    from mofa_model.reliability.observed import ObservedFailures
    from mofa_model.verbs import rates_files

    ways = [arguments.prometheus, arguments.events, arguments.count, arguments.failures]
    if all(way is None for way in ways):
        also = "or --events and --exposure with files, or --prometheus with --profile"
        raise Missing({"--failures": "419", "--node-days": "110592"}, also=also)
    if sum(way is not None for way in ways) != 1:
        raise BadValue("observed", None, "give one of --failures, --count, --events, --prometheus")
    if arguments.prometheus is not None:
        return _live(arguments.prometheus, arguments.profile)
    if arguments.events is not None:
        return rates_files.read(
            arguments.events, arguments.exposure, arguments.node_days, arguments.possible_node_days
        )
    if arguments.node_days is None:
        raise Missing(
            {"--node-days": "110592"}, also="the node-days in which failures would have been seen"
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
    found: ObservedFailures = _source("prometheus")(url, profile)
    return found


def _source(name: str) -> Callable[..., Any]:
    """A live source by its name; what it needs may not be installed."""
    from importlib.metadata import entry_points

    (point,) = entry_points(group=GROUP, name=name)
    source: Callable[..., Any] = point.load()
    return source


def _profile(name: str) -> Profile:
    """A profile of the cluster, or, without what reads one, of a file or of the package."""
    from mofa_model.manifest.parsing import cluster_profile
    from mofa_model.manifest.surroundings import named_profile

    try:
        source = _source("profile")
    except ModuleNotFoundError:
        return named_profile(name)
    return cluster_profile(source(name))


def _held(
    arguments: Namespace, observed: ObservedFailures
) -> tuple[dict[str, float], dict[str, RecoveryTime], float]:
    """Assumed failures per node-day and recovery times by class, and the failures that they are worth: of the command line,
    the profile, or the paper. A profile's weight is shared out by rate, so that classes not counted keep theirs.
    """
    paper = {one.value: RecoveryTime(mean=one.seconds, cv=1.0) for one in RecoveryClass}
    given = arguments.prior_weight
    if arguments.profile is None or arguments.assumed is not None or arguments.shares is not None:
        return _assumed(arguments, observed), paper, given or 0.0
    from mofa_model.manifest.failures import classes_of

    profile = _profile(arguments.profile)
    whole = classes_of(profile.spec.failures)
    rates = {str(one.name): float(one.failures_per_thousand_node_days) / 1000 for one in whole}
    times = {
        str(one.name): RecoveryTime(
            mean=float(one.recovery_seconds), cv=max(float(one.recovery_spread), 0.1)
        )
        for one in whole
        if one.recovery_seconds
    }
    weight = float(profile.spec.failures.prior_weight) if given is None else given
    if set(observed.classes) == {"all"}:
        return {"all": sum(rates.values())}, paper, weight
    counted = {name: rate for name, rate in rates.items() if name in observed.classes}
    share = sum(counted.values()) / sum(rates.values()) if any(rates.values()) else 1.0
    return counted, paper | times, weight if given is not None else weight * share


def _assumed(arguments: Namespace, observed: ObservedFailures) -> dict[str, float]:
    assumed = PAPER_RATE if arguments.assumed is None else arguments.assumed
    if set(observed.classes) == {"all"}:
        return {"all": assumed}
    shares = (
        _pairs(arguments.shares, "--shares")
        if arguments.shares
        else {one.value: one.share for one in RecoveryClass if one.share}
    )
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise BadValue("--shares", arguments.shares, "shares of the classes must add to one")
    return {name: part * assumed for name, part in shares.items()}


def _pairs(text: str, field: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        name, sign, number = part.strip().partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not (sign and name and math.isfinite(value) and value >= 0) or name in found:
            raise BadValue(field, text, "write CLASS=NUMBER, each class once, separated by commas")
        found[name] = value
    return found
