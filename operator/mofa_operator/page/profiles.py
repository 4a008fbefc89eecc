"""Profiles: what was assumed of failures, what was counted, and what that says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

from mofa_model.page.figures import band
from mofa_model.page.markup import Node, el, page, table, text
from mofa_model.spec.account import capacity, node_days_lost, summed
from mofa_operator.objects import LiveProfile
from mofa_operator.page.job import LINKS, conditions, reason_of

_HEADINGS: Final = ("profile", "nodes", "assumed", "observed", "coverage", "verdict")
_ACCOUNT: Final = ("state", "cause", "node-days", "share")
_CLASSES: Final = (
    "recovery class", "failures", "node-days", "assumed",
    "posterior", "band", "recovery", "verdict",
)  # fmt: skip


def profiles_page(profiles: Iterable[LiveProfile]) -> str:
    """The list of profiles."""
    rows: list[tuple[Node, ...]] = []
    for profile in sorted(profiles, key=lambda one: one.key.name):
        name, status = profile.key.name, profile.status
        verdict = reason_of(profile, "AssumptionsHold") or "-"
        is_counted = status.ready is not None and status.total is not None
        rows.append(
            (
                el("a", name, href=f"/profiles/{quote(name, safe='')}"),
                f"{status.ready:.0f}/{status.total:.0f}" if is_counted else "-",
                status.assumed or "-",
                status.observed or "-",
                "-" if status.coverage_percent is None else f"{status.coverage_percent:.0f} %",
                el("span", verdict, class_=_mood(verdict)),
            )
        )
    content: Node = (
        table(_HEADINGS, rows, numbers=(1, 2, 3, 4), caption="failures of a thousand node-days")
        if rows
        else el(
            "p",
            "There is no ClusterProfile yet. ",
            el("code", "mofa profile --from-cluster"),
            " proposes one.",
        )
    )
    return text(page("Profiles", el("h1", "Profiles"), content, links=LINKS))


def profile_page(profile: LiveProfile) -> str:
    """One profile: assumptions with the counted history on them."""
    name = profile.key.name
    sections: list[Node] = [
        el("h1", name),
        *_classes(profile),
        *_account(profile),
        *_learned(profile),
        *conditions(profile),
    ]
    return text(page(name, *sections, links=LINKS))


def _classes(profile: LiveProfile) -> list[ET.Element]:
    rows: list[tuple[Node, ...]] = []
    for one in profile.status.rows:
        rate, verdict = one.rate, one.verdict or "-"
        drawn: Node = "-"
        if rate is not None:
            drawn = band(one.name, rate, one.assumed, "{:.3g}", ("posterior", "assumed"))
        rows.append(
            (
                one.name,
                _number(one.failures),
                _number(one.exposure_node_days),
                _number(one.assumed),
                _number(None if rate is None else rate.target),
                drawn,
                "-" if one.recovery_seconds is None else f"{one.recovery_seconds:.0f} s",
                el("span", verdict, class_=_mood(verdict)),
            )
        )
    if not rows:
        return [el("p", "No history was read yet.")]
    note = (
        "Rates in failures of a thousand node-days. "
        "The bar is the posterior, the diamond the assumption."
    )
    return [
        el("h2", "Assumed and observed"),
        table(_CLASSES, rows, numbers=(1, 2, 3, 4, 6)),
        el("p", note),
    ]


def _account(profile: LiveProfile) -> list[ET.Element]:
    """Where the node-time of the pool went, as its FailureLedger has it."""
    account = profile.account
    if not account:
        return []
    whole = capacity(account) or 1.0
    rows: list[tuple[Node, ...]] = [
        (
            one.state.value,
            one.cause or "-",
            f"{one.node_days:.6g}",
            f"{one.node_days / whole:.1%}",
        )
        for one in summed(account, "cause")
    ]
    first, last = min(one.date for one in account), max(one.date for one in account)
    note = (
        f"{whole:.6g} node-days from {first} to {last}, "
        f"{sum(node_days_lost(account).values()):.6g} of them lost."
    )
    return [
        el("h2", "Where the node-time went"),
        table(_ACCOUNT, rows, numbers=(2, 3)),
        el("p", note),
    ]


def _learned(profile: LiveProfile) -> list[ET.Element]:
    given = profile.status.calibration
    if not given.step_time_ratio:
        return []
    said = (
        f"{given.jobs or 0:.0f} jobs ran {given.step_time_ratio} times as long a step "
        "as the model says; advice counts with it."
    )
    if given.memory_ratio is not None:
        said += (
            f" Their devices held {given.memory_ratio:g} times what it says, which counts as well."
        )
    return [el("h2", "What running jobs taught"), el("p", said)]


def _number(value: float | None) -> str:
    """A number as people read it; a hyphen where there is none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _mood(verdict: str) -> str:
    return {"Consistent": "good", "HigherThanAssumed": "bad"}.get(verdict, "warn")
