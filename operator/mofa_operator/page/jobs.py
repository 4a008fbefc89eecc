"""Jobs: what was predicted, what is seen, and why the advice says what it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

from mofa_model.annotations import PREFIX
from mofa_model.kinds.shape import Body, at, items, part
from mofa_model.manifest.advised import duration, quantity
from mofa_model.page import AdviceView, advice_sections
from mofa_model.page.figures import band
from mofa_model.page.markup import Node, el, page, table, text
from mofa_operator.keys import TRAINING_JOB, kind_of

LINKS: Final = (("Jobs", "/"), ("Profiles", "/profiles"), ("Metrics", "/metrics"))
"""Navigation of every page."""
_HEADINGS: Final = (
    "job",
    "health",
    "strategy",
    "nodes",
    "checkpoint",
    "predicted",
    "observed",
    "ETTR",
    "state",
)
REFRESH: Final = 60
"""Time after which a list is loaded anew. [s]"""
MOST: Final = 500
"""Jobs of one list. [1]"""
_BAD: Final = ("NoRecommendation", "InvalidInput", "NoFeasibleLayout", "ProfileMissing", "InternalError")
"""States in which a job has no advice, though it wants some."""
_HEALTH: Final = {"Healthy": "good", "Drifting": "warn", "Stuck": "bad", "NotSeen": "warn"}
"""How a running job does, and how that looks."""
TRY: Final = "kubectl apply -f examples/llama3-405b.yaml"
"""What an empty list proposes."""


def jobs_page(bodies: Iterable[Body], namespace: str | None = None) -> str:
    """The list of jobs, those that need attention first; `namespace` is the one whose jobs they are."""
    listed = sorted(bodies, key=lambda body: (_health(body) != "Stuck", _is_well(body), *_name(body)))
    rows = [_row(body) for body in listed[:MOST]]
    where = "" if namespace is None else f" in {namespace}"
    title = f"Jobs{where}"
    content: list[Node] = [el("p", "No job is advised", where, " yet. Try ", el("code", TRY), ".")]
    if rows:
        shown = f"{len(rows):,}" if len(rows) == len(listed) else f"{len(rows):,} of {len(listed):,}"
        said = f"{shown} job{'s' if len(listed) != 1 else ''}; throughput in tokens a second"
        content = [table(_HEADINGS, rows, numbers=(3, 5, 6, 7), caption=said)]
    if len(listed) > MOST:
        content.append(el("p", "Those that need attention come first; ", el("code", "/?namespace=NAME"), " lists one namespace."))  # fmt: skip
    return text(page(title, el("h1", title), *content, links=LINKS, refresh=REFRESH))


def job_page(body: Body, view: AdviceView | str | None) -> str:
    """One job: predicted against observed, then the advice in full, or why it is not there, then the conditions."""
    namespace, name = _name(body)
    kind = str(body.get("kind", ""))
    status = part(body, "status") if kind == TRAINING_JOB.kind else {}
    sections: list[Node] = [el("h1", f"{namespace}/{name}")]
    does = (", ", el("strong", _health_shown(body))) if _health(body) else ()
    sections.append(el("p", f"{kind}, ", el("strong", _mood(body)), *does, f". {_explanation(body)}"))
    sections += _observed(status)
    if isinstance(view, AdviceView):
        sections += [el("h2", "Advice"), *advice_sections(view, told=True)]
    elif view is not None:
        sections.append(el("p", view))
    sections += conditions(status)
    return text(page(f"{namespace}/{name}", *sections, links=LINKS, foot=_foot(body)))


def _row(body: Body) -> Sequence[Node]:
    namespace, name = _name(body)
    own = _annotations(body)
    status = part(body, "status") if body.get("kind") == TRAINING_JOB.kind else {}
    advised = part(status, "recommendation")
    tokens, ettr = (part(advised, "predicted", name).get("target") for name in ("tokensPerSecond", "ettr"))
    seen, interval = part(status, "observed").get("tokensPerSecond"), advised.get("checkpointIntervalSeconds")
    kind = kind_of(str(body.get("apiVersion", "")), str(body.get("kind", "")))
    resource = kind.resource if kind is not None else "unknown"
    address = "/jobs/" + "/".join(quote(piece, safe="") for piece in (resource, namespace, name))
    strategy = advised.get("summary") or own.get("strategy", "")
    return (
        el("a", f"{namespace}/{name}", href=address),
        _health_shown(body),
        el("code", str(strategy)) if strategy else "-",
        str(at(status, "inputs", "nodes") or "-"),
        "-" if interval is None else duration(float(interval)),
        str(own.get("predicted-tokens-per-second") or "-") if tokens is None else quantity(float(tokens)),
        "-" if seen is None else quantity(float(seen)),
        str(own.get("predicted-ettr") or "-") if ettr is None else f"{float(ettr):.3f}",
        _mood(body),
    )


def _observed(status: Body) -> list[ET.Element]:
    """Predicted bands, of the layout that runs where that is said, with what was seen on them."""
    today, seen = part(status, "current"), part(status, "observed")
    predicted = part(today or part(status, "recommendation"), "predicted")
    rows = []
    for title, key, show in (
        ("Tokens a second", "tokensPerSecond", "{:,.0f}"),
        ("Effective training time", "ettr", "{:.3f}"),
    ):
        ends = part(predicted, key)
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
    if today:
        found.append(
            el("p", f"Predicted of the layout that the job is said to run: {today.get('strategy')}.")
        )
    if seen.get("interruptions") is not None:
        found.append(
            el("p", f"Interruptions since {seen.get('since', 'the start')}: {seen['interruptions']}.")
        )
    return found


def reason_of(body: Body, type_: str) -> str:
    """Reason of a condition of an object; empty where it does not stand."""
    stand = items(at(body, "status", "conditions"))
    return next((str(one.get("reason") or "") for one in stand if one.get("type") == type_), "")


def conditions(status: Body) -> list[ET.Element]:
    """The conditions of an object, each with its reason."""
    rows = [
        tuple(str(one.get(key, "")) for key in ("type", "status", "reason", "message"))
        for one in items(status.get("conditions"))
    ]
    headings = ("condition", "holds", "reason", "message")
    return [el("h2", "Conditions"), table(headings, rows)] if rows else []


def _explanation(body: Body) -> str:
    said = _annotations(body).get("explanation", "")
    return f"{said}." if said and not said.endswith(".") else said


def _foot(body: Body) -> str:
    own = _annotations(body)
    return f"Computed at {own.get('computed-at', '-')} for inputs {own.get('inputs-hash', '-')} by model {own.get('model-version', '-')}."


def _state(body: Body) -> str:
    ours = body.get("kind") == TRAINING_JOB.kind
    reason = reason_of(body, "Ready") if ours else ""
    return str(reason or _annotations(body).get("status") or "Pending")


def _mood(body: Body) -> ET.Element:
    state = _state(body)
    return el("span", state, class_="good" if state == "Recommended" else "bad" if state in _BAD else "warn")


def _is_well(body: Body) -> bool:
    return _state(body) == "Recommended" and _health(body) in {"", "Healthy"}


def _health(body: Body) -> str:
    """How it does: as its status says, which outlives the operator; of other kinds as the operator judged last."""
    ours = body.get("kind") == TRAINING_JOB.kind
    return str(at(body, *(("status", "health") if ours else ("health",))) or "")


def _health_shown(body: Body) -> Node:
    word = _health(body)
    return el("span", word, class_=_HEALTH.get(word, "warn")) if word else "-"


def _annotations(body: Body) -> dict[str, str]:
    given = part(body, "metadata", "annotations")
    return {key.removeprefix(PREFIX): str(value) for key, value in given.items() if key.startswith(PREFIX)}


def _name(body: Body) -> tuple[str, str]:
    metadata = part(body, "metadata")
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))
