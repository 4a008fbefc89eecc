"""Jobs: what was predicted, what is seen, and why the advice says what it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

from mofa_model.annotations import PREFIX
from mofa_model.page import AdviceView, advice_sections
from mofa_model.page.figures import band
from mofa_model.page.markup import Node, el, page, table, text

LINKS: Final = (("Jobs", "/"), ("Profiles", "/profiles"), ("Metrics", "/metrics"))
"""Navigation of every page."""
_HEADINGS: Final = ("job", "strategy", "nodes", "checkpoint", "predicted", "observed", "ETTR", "state")
REFRESH: Final = 60
"""Time after which a list is loaded anew. [s]"""


def jobs_page(bodies: Iterable[Mapping[str, Any]]) -> str:
    """The list of jobs, those that need attention first."""
    listed = sorted(bodies, key=lambda body: (_is_well(body), *_name(body)))
    rows = [_row(body) for body in listed]
    content: Node = (
        table(
            _HEADINGS, rows, numbers=(2, 4, 5, 6), caption=f"{len(rows)} jobs; throughput in tokens a second"
        )
        if rows
        else el(
            "p", "No job is advised yet. Try ", el("code", "kubectl apply -f examples/llama3-405b.yaml"), "."
        )
    )
    return text(page("Jobs", el("h1", "Jobs"), content, links=LINKS, refresh=REFRESH))


def job_page(body: Mapping[str, Any], view: AdviceView | None) -> str:
    """One job: conditions, predicted against observed, then the advice in full."""
    namespace, name = _name(body)
    kind = str(body.get("kind", ""))
    status = mapping(body.get("status"))
    sections: list[Node] = [el("h1", f"{namespace}/{name}"), el("p", f"{kind}. {_explanation(body)}")]
    sections += _observed(status)
    if view is not None:
        sections += advice_sections(view)
    sections += conditions(status)
    return text(page(f"{namespace}/{name}", *sections, links=LINKS, foot=_foot(body)))


def _row(body: Mapping[str, Any]) -> Sequence[Node]:
    namespace, name = _name(body)
    display = mapping(mapping(body.get("status")).get("display"))
    own = _annotations(body)
    address = "/jobs/" + "/".join(
        quote(part, safe="") for part in (str(body.get("kind", "")), namespace, name)
    )
    strategy = display.get("strategy") or own.get("strategy", "")
    return (
        el("a", f"{namespace}/{name}", href=address),
        el("code", str(strategy)) if strategy else "-",
        str(display.get("nodes") or "-"),
        str(display.get("checkpoint") or "-"),
        str(display.get("tokens") or own.get("predicted-tokens-per-second") or "-"),
        str(display.get("observed") or "-"),
        str(display.get("ettr") or own.get("predicted-ettr") or "-"),
        el("span", _state(body), class_="good" if _is_well(body) else "warn"),
    )


def _observed(status: Mapping[str, Any]) -> list[ET.Element]:
    """Predicted bands with what was seen on them."""
    predicted = mapping(mapping(status.get("recommendation")).get("predicted"))
    seen = mapping(status.get("observed"))
    rows = []
    for title, key, show in (
        ("Tokens a second", "tokensPerSecond", "{:,.0f}"),
        ("Effective training time", "ettr", "{:.3f}"),
    ):
        ends = mapping(predicted.get(key))
        if {"lower", "target", "upper"} <= ends.keys():
            low, middle, high = (float(ends[name]) for name in ("lower", "target", "upper"))
            now = float(seen[key]) if seen.get(key) is not None else None
            drawn = band(title, low, middle, high, now, show)
            rows.append(
                (title, show.format(middle), "-" if now is None else show.format(now), drawn)
            )  # fmt: skip
    if not rows:
        return []
    found = [
        el("h2", "Predicted and observed"),
        table(("", "predicted", "observed", "band"), rows, numbers=(1, 2)),
    ]
    if seen.get("interruptions") is not None:
        found.append(
            el("p", f"Interruptions since {seen.get('since', 'the start')}: {seen['interruptions']}.")
        )
    return found


def conditions(status: Mapping[str, Any]) -> list[ET.Element]:
    """The conditions of an object, each with its reason."""
    given = status.get("conditions")
    rows = [
        tuple(str(one.get(key, "")) for key in ("type", "status", "reason", "message"))
        for one in (given if isinstance(given, list) else [])
        if isinstance(one, Mapping)
    ]
    headings = ("condition", "holds", "reason", "message")
    return [el("h2", "Conditions"), table(headings, rows)] if rows else []


def _explanation(body: Mapping[str, Any]) -> str:
    said = _annotations(body).get("explanation", "")
    return f"{said}." if said and not said.endswith(".") else said


def _foot(body: Mapping[str, Any]) -> str:
    own = _annotations(body)
    return f"Computed at {own.get('computed-at', '-')} for inputs {own.get('inputs-hash', '-')} by model {own.get('model-version', '-')}."


def _state(body: Mapping[str, Any]) -> str:
    reason = mapping(body.get("status")).get("readyReason") if body.get("kind") == "TrainingJob" else None
    return str(reason or _annotations(body).get("status") or "Pending")


def _is_well(body: Mapping[str, Any]) -> bool:
    return _state(body) == "Recommended"


def _annotations(body: Mapping[str, Any]) -> dict[str, str]:
    given = mapping(mapping(body.get("metadata")).get("annotations"))
    return {key.removeprefix(PREFIX): str(value) for key, value in given.items() if key.startswith(PREFIX)}


def _name(body: Mapping[str, Any]) -> tuple[str, str]:
    metadata = mapping(body.get("metadata"))
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping, or an empty one."""
    return value if isinstance(value, Mapping) else {}
