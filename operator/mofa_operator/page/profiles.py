"""Profiles: what was assumed of failures, what was counted, and what that says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

from mofa_model.kinds.shape import Body, items, part
from mofa_model.page.figures import band
from mofa_model.page.markup import Node, el, page, table, text
from mofa_operator.page.jobs import LINKS, REFRESH, conditions, reason_of

_HEADINGS: Final = ("profile", "nodes", "assumed", "observed", "coverage", "verdict")
_CLASSES: Final = (
    "recovery class", "failures", "node-days", "assumed", "posterior", "band", "recovery", "verdict",
)  # fmt: skip


def profiles_page(bodies: Iterable[Body]) -> str:
    """The list of profiles."""
    rows: list[tuple[Node, ...]] = []
    for body in sorted(bodies, key=_name):
        nodes, total = part(body, "status", "nodes"), part(body, "status", "total")
        coverage = total.get("coveragePercent")
        verdict = reason_of(body, "AssumptionsHold") or "-"
        rows.append(
            (
                el("a", _name(body), href=f"/profiles/{quote(_name(body), safe='')}"),
                f"{nodes['ready']}/{nodes['total']}" if {"ready", "total"} <= nodes.keys() else "-",
                *(str(total.get(key) or "-") for key in ("assumed", "observed")),
                "-" if coverage is None else f"{coverage} %",
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
    return text(page("Profiles", el("h1", "Profiles"), content, links=LINKS, refresh=REFRESH))


def profile_page(body: Body) -> str:
    """One profile: assumptions with the counted history on them."""
    status = part(body, "status")
    sections: list[Node] = [el("h1", _name(body)), *_classes(status), *_learned(status), *conditions(status)]
    return text(page(_name(body), *sections, links=LINKS))


def _classes(status: Body) -> list[ET.Element]:
    rows: list[tuple[Node, ...]] = []
    for one in items(status.get("failures")):
        rate = part(one, "rate")
        verdict = str(one.get("verdict") or "-")
        assumed = one.get("assumed")
        drawn: Node = "-"
        if {"lower", "mean", "upper"} <= rate.keys():
            low, mean, high = (float(rate[key]) for key in ("lower", "mean", "upper"))
            seen = None if assumed is None else float(assumed)
            drawn = band(str(one.get("name")), low, mean, high, seen, "{:.3g}", ("posterior", "assumed"))
        recovery = one.get("recoverySeconds")
        rows.append(
            (
                str(one.get("name", "")),
                _number(one.get("failures")),
                _number(one.get("exposureNodeDays")),
                _number(assumed),
                _number(rate.get("mean")),
                drawn,
                "-" if recovery is None else f"{recovery} s",
                el("span", verdict, class_=_mood(verdict)),
            )
        )
    if not rows:
        return [el("p", "No history was read yet.")]
    note = "Rates in failures of a thousand node-days. The bar is the posterior, the diamond the assumption."
    return [el("h2", "Assumed and observed"), table(_CLASSES, rows, numbers=(1, 2, 3, 4, 6)), el("p", note)]


def _learned(status: Body) -> list[ET.Element]:
    given = part(status, "calibration")
    if not given:
        return []
    said = f"{given.get('jobs')} jobs ran {given.get('stepTimeRatio')} times as long a step as the model says; advice counts with it."
    return [el("h2", "What running jobs taught"), el("p", said)]


def _number(value: Any) -> str:
    """A number as people read it; a hyphen where there is none."""
    if value is None:
        return "-"
    number = float(value)
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _mood(verdict: str) -> str:
    return {"Consistent": "good", "HigherThanAssumed": "bad"}.get(verdict, "warn")


def _name(body: Body) -> str:
    return str(part(body, "metadata").get("name", ""))
