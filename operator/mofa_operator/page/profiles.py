"""The pages of ClusterProfiles: failures as assumed and as counted, and the verdict on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

from mofa_model.answers.what_would_help import effective_line
from mofa_model.page.figures import band
from mofa_model.page.markup import Node, el, page, table, text
from mofa_operator.objects import LiveProfile
from mofa_operator.page.job import LINKS, account_sections, conditions, reason_of

_HEADINGS: Final = ("profile", "nodes", "assumed", "observed", "coverage", "verdict")
_CLASSES: Final = (
    "recovery class", "failures", "node-days", "assumed",
    "posterior", "band", "recovery", "verdict",
)  # fmt: skip


def profiles_page(profiles: Iterable[LiveProfile]) -> str:
    """The list of profiles."""
    rows: list[tuple[Node, ...]] = []
    for profile in sorted(profiles, key=lambda profile: profile.key.name):
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
                el("span", verdict, class_=_style(verdict)),
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
    """The page of one profile: its assumptions beside the counted history."""
    name = profile.key.name
    sections: list[Node] = [
        el("h1", name),
        *_classes(profile),
        *account_sections(profile.account),
        *_helps(profile),
        *_learned(profile),
        *conditions(profile),
    ]
    return text(page(name, *sections, links=LINKS))


def _classes(profile: LiveProfile) -> list[ET.Element]:
    """Failure rates by recovery class, assumed and observed."""
    rows: list[tuple[Node, ...]] = []
    for row in profile.status.rows:
        rate, verdict = row.rate, row.verdict or "-"
        drawing: Node = "-"
        if rate is not None:
            drawing = band(row.name, rate, row.assumed, "{:.3g}", ("posterior", "assumed"))
        rows.append(
            (
                row.name,
                _number(row.failures),
                _number(row.exposure_node_days),
                _number(row.assumed),
                _number(None if rate is None else rate.target),
                drawing,
                "-" if row.recovery_seconds is None else f"{row.recovery_seconds:.0f} s",
                el("span", verdict, class_=_style(verdict)),
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


def _helps(profile: LiveProfile) -> list[ET.Element]:
    """Changes that would have helped, by the last replay of the pool's account."""
    helps = profile.status.what_would_help
    if helps.time is None or not helps.paid or helps.effective is None:
        return []
    rows: list[tuple[Node, ...]] = [
        (
            change.says,
            "-"
            if change.gained is None
            else band(change.change, change.gained, None, "{:,.3g}", ("gained", "")),
        )
        for change in helps.changes
    ]
    sections = [
        el("h2", "What would have helped"),
        el("p", effective_line(helps.paid, helps.effective, helps.days or 0.0)),
    ]
    if helps.doubt:
        sections.append(el("p", helps.doubt))
    if rows:
        sections.append(
            table(("change", "GPU-hours"), rows, caption="each alone: gains of two do not add up")
        )
    return sections


def _learned(profile: LiveProfile) -> list[ET.Element]:
    """The calibration that running jobs of the pool taught."""
    learned = profile.status.calibration
    if not learned.step_time_ratio:
        return []
    text = (
        f"{learned.jobs or 0:.0f} jobs ran {learned.step_time_ratio} times as long a step "
        "as the model says; advice counts with it."
    )
    if learned.memory_ratio is not None:
        text += (
            f" Their devices held {learned.memory_ratio:g} times what it says, "
            "which counts as well."
        )
    return [el("h2", "What running jobs taught"), el("p", text)]


def _number(value: float | None) -> str:
    """A number as people read it; a hyphen where there is none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _style(verdict: str) -> str:
    return {"Consistent": "good", "HigherThanAssumed": "bad"}.get(verdict, "warn")
