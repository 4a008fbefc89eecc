"""Jobs: what was predicted, what is seen, and why the advice says what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

from mofa_model import units
from mofa_model.annotations import PREFIX
from mofa_model.answers.what_if import form_fields
from mofa_model.page import AdviceView, advice_sections, in_short
from mofa_model.page.figures import LineDrawing, band, lines
from mofa_model.page.markup import (
    FormField,
    Node,
    el,
    form,
    form_errors,
    page,
    table,
    text,
)
from mofa_model.spec.account import NodeTime, capacity, node_days_lost, summed
from mofa_model.units import GIB, HOUR, Range
from mofa_operator.objects import JobStatus, LiveObject, LiveTrainingJob
from mofa_operator.snapshot import Curves, Refusal
from mofa_operator.words import Aspect

LINKS: Final = (("Jobs", "/"), ("Profiles", "/profiles"), ("Metrics", "/metrics"))
"""Navigation of every page."""
_ACCOUNT: Final = ("state", "cause", "node-days", "share")
_NOTHING: Final[Mapping[str, str]] = {}
BAD: Final = (
    "NoRecommendation",
    "InvalidInput",
    "FactsMissing",
    "FactsDisagree",
    "NoFeasibleLayout",
    "ProfileMissing",
    "InternalError",
)
"""States in which a job has no advice, though it wants some."""
_ACCURATE: Final = (Aspect.PREDICTION_ACCURATE, Aspect.MEMORY_ACCURATE)
"""Conditions of what is seen."""
_HEALTH: Final = {"Healthy": "good", "Drifting": "warn", "Stuck": "bad", "NotSeen": "warn"}
"""How a running job does, and how that looks."""
_ROWS: Final = 24
"""Rows of the table of the last day. [1]"""
LONGEST: Final = 200
"""Characters of a field. [1]"""
_NODES: Final = FormField(name="nodes", label="Nodes", hint="of the job's pool")
_ASKED: Final = (
    "sequence_length",
    "global_batch_size",
    "tokens",
    "framework",
    "precision",
    "objective",
    "current",
    "planned",
)
_AS_IT_IS: Final = "as the job says"


@dataclass(frozen=True, slots=True)
class ShownJob:
    """A job, and how it does."""

    job: LiveObject
    """The job as it stands."""
    judged: str = ""
    """A `Health`, as the operator judged last; empty where it does not run, or was not judged."""
    account: tuple[NodeTime, ...] = ()
    """What the ledger of its pool says of it."""

    @property
    def name(self) -> str:
        """Namespace and name."""
        return self.job.key.full_name

    @property
    def status(self) -> JobStatus:
        """The status of a TrainingJob; empty for other kinds, whose status is not ours."""
        return self.job.status if isinstance(self.job, LiveTrainingJob) else JobStatus()

    @property
    def predicted(self) -> Mapping[str, Range]:
        """What its status predicts of the advised layout."""
        return self.job.predicted if isinstance(self.job, LiveTrainingJob) else {}

    @property
    def health(self) -> str:
        """Its health from its status; of other kinds as the operator judged last."""
        return self.status.health if isinstance(self.job, LiveTrainingJob) else self.judged

    @property
    def state(self) -> str:
        """Its state in one word: the reason of Ready, or the status annotation."""
        reason = reason_of(self.job, "Ready") if isinstance(self.job, LiveTrainingJob) else ""
        return reason or self.annotation("status") or "Pending"

    @property
    def is_well(self) -> bool:
        """Whether it needs no attention."""
        return self.state == "Recommended" and self.health in {"", "Healthy"}

    def annotation(self, name: str) -> str:
        """The text of an annotation of ours; empty where it is missing."""
        return self.job.annotations.get(PREFIX + name, "")


def job_page(
    shown: ShownJob,
    view: AdviceView | Refusal | str | None,
    curves: Curves | str | None = None,
    changes: Mapping[str, str] = _NOTHING,
) -> str:
    """One job: predicted and observed, its last day, the form, the advice, the conditions."""
    sections: list[Node] = [el("h1", shown.name)]
    does = (", ", el("strong", health(shown))) if shown.health else ()
    said = shown.annotation("explanation")
    told = in_short(f"{said}." if said and not said.endswith(".") else said)
    kind = f"{shown.job.key.kind.kind}, "
    sections.append(el("p", kind, el("strong", mood(shown)), *does, f". {told}"))
    sections += [*_amiss(shown), *_observed(shown), *account_sections(shown.account)]
    sections += history_sections(curves)
    refused = view.why if isinstance(view, Refusal) else {}
    if view is not None:
        sections += what_if_sections(changes, refused, address(shown))
    if isinstance(view, AdviceView):
        heading = "Advice, if it were so" if changes else "Advice"
        sections += [el("h2", heading), *advice_sections(view, told=not changes)]
    else:
        sections += [el("p", view)] if isinstance(view, str) else []
        if strategy := shown.annotation("strategy"):
            sections += [el("h2", "Strategy"), el("p", el("code", strategy))]
    if isinstance(shown.job, LiveTrainingJob):
        sections += conditions(shown.job)
    return text(page(shown.name, *sections, links=LINKS, foot=_foot(shown)))


def account_sections(account: Sequence[NodeTime]) -> list[ET.Element]:
    """Where the node-time of a pool or of a job went, as the FailureLedger has it."""
    if not account:
        return []
    whole = capacity(account) or 1.0
    rows: list[tuple[Node, ...]] = [
        (one.state.value, one.cause or "-", f"{one.node_days:.6g}", f"{one.node_days / whole:.1%}")
        for one in summed(account, "cause")
    ]
    first, last = min(one.date for one in account), max(one.date for one in account)
    away = sum(node_days_lost(account).values())
    note = f"{whole:.6g} node-days from {first} to {last}, {away:.6g} of them lost."
    return [
        el("h2", "Where the node-time went"),
        table(_ACCOUNT, rows, numbers=(2, 3)),
        el("p", note),
    ]


def _amiss(shown: ShownJob) -> list[ET.Element]:
    """The conditions of a running job that do not hold, as sentences."""
    if not isinstance(shown.job, LiveTrainingJob) or shown.health in {"", "Healthy"}:
        return []
    return [
        el("p", f"{in_short(one.message)}.")
        for one in shown.job.conditions
        if one.type in _ACCURATE and one.status == "False"
    ]


def address(shown: ShownJob) -> str:
    """Where a job's page is."""
    key = shown.job.key
    pieces = (key.kind.resource, key.namespace, key.name)
    return "/jobs/" + "/".join(quote(piece, safe="") for piece in pieces)


def _observed(shown: ShownJob) -> list[ET.Element]:
    """Predicted bands of the layout that runs, with the observed values on them."""
    today, seen = shown.status.current, shown.status.observed
    predicted = shown.predicted if today is None else today.predicted
    rows = []
    for title, name, now, unit, show in (
        ("Tokens a second", "tokens_per_second", seen.tokens_per_second, 1.0, "{:,.0f}"),
        ("Effective training time", "ettr", seen.ettr, 1.0, "{:.3f}"),
        ("Device memory, GiB", "memory_bytes", seen.memory_bytes, GIB, "{:.1f}"),
    ):
        if name in predicted:
            expected = predicted[name].times(1 / unit)
            at = None if now is None else now / unit
            seen_at = "-" if at is None else show.format(at)
            drawn = band(title, expected, at, show)
            rows.append((title, show.format(expected.target), seen_at, drawn))
    if not rows:
        return []
    found = [
        el("h2", "Predicted and observed"),
        table(("", "predicted", "observed", "band"), rows, numbers=(1, 2)),
    ]
    if today is not None:
        layout = in_short(today.strategy)
        found.append(el("p", f"Predicted of the layout that the job is said to run: {layout}."))
    if (odds := shown.status.odds).fits is not None:
        beats = "" if odds.beats is None else f", and beats today's layout with {odds.beats:.0%}"
        fits = f"By measured runs the advice fits with a probability of {odds.fits:.0%}"
        found.append(el("p", f"{fits}{beats}."))
    if seen.interruptions is not None:
        since = seen.since or "the start"
        is_told = seen.lost and not shown.account
        cost = f"; they cost {units.format(seen.lost, 's')}" if is_told else ""
        found.append(el("p", f"Interruptions since {since}: {seen.interruptions:.0f}{cost}."))
    return found


def reason_of(stands: LiveObject, type_: str) -> str:
    """Reason of a condition of an object; empty where it does not stand."""
    return next((one.reason for one in stands.conditions if one.type == type_), "")


def conditions(stands: LiveObject) -> list[ET.Element]:
    """The conditions of an object, each with its reason."""
    rows = [(one.type, one.status, one.reason, in_short(one.message)) for one in stands.conditions]
    headings = ("condition", "holds", "reason", "message")
    return [el("h2", "Conditions"), table(headings, rows)] if rows else []


def _foot(shown: ShownJob) -> str:
    at, inputs, model = (
        shown.annotation(name) or "-" for name in ("computed-at", "inputs-hash", "model-version")
    )
    return f"Computed at {at} for inputs {inputs} by model {model}."


def mood(shown: ShownJob) -> ET.Element:
    """The job's state as a coloured word."""
    state = shown.state
    look = "bad" if state in BAD else "warn"
    return el("span", state, class_="good" if state == "Recommended" else look)


def health(shown: ShownJob) -> Node:
    """The job's health as a coloured word; a hyphen where it does not run."""
    word = shown.health
    return el("span", word, class_=_HEALTH.get(word, "warn")) if word else "-"


def history_sections(curves: Curves | str | None) -> list[ET.Element]:
    """The history of a job, or why there is none."""
    if curves is None:
        return []
    heading = el("h2", "The last day")
    if isinstance(curves, str):
        return [heading, el("p", curves)]
    if not (curves.predicted or curves.observed):
        return [heading, el("p", "Prometheus holds nothing of this job yet.")]
    now = max(moment for points in (curves.predicted, curves.observed) for moment, _ in points)

    def before(points: tuple[tuple[float, float], ...]) -> list[tuple[Any, float]]:
        return [(round((moment - now) / HOUR, 2), value) for moment, value in points]

    told = {"predicted": before(curves.predicted), "observed": before(curves.observed)}
    drawn = LineDrawing(
        lines={name: points for name, points in told.items() if points},
        across="hours from now",
        up="tokens a second",
    )
    by_hour = {name: dict(points) for name, points in told.items()}
    places = sorted({at for points in by_hour.values() for at in points})
    rows = [
        (
            f"{at:g}",
            *(f"{by_hour[name][at]:,.0f}" if at in by_hour[name] else "-" for name in by_hour),
        )
        for at in places[:: max(1, len(places) // _ROWS)]
    ]
    numbers = table(("hours from now", *by_hour), rows, numbers=(0, 1, 2))
    return [
        heading,
        lines("Tokens a second, predicted and observed", drawn),
        el("details", el("summary", "The lines as a table"), numbers),
    ]


@cache
def fields() -> tuple[FormField, ...]:
    """The fields of the form; an empty one stays as the job says."""
    known = {field.name: field for field in form_fields()}
    return (_NODES, *(_optional(known[name]) for name in _ASKED))


def _optional(field: FormField) -> FormField:
    """A field that may stay empty."""
    choices = ("", *filter(None, field.choices)) if field.only else field.choices
    return replace(field, choices=choices, empty=_AS_IT_IS)


def changes_in(query: Mapping[str, str]) -> dict[str, str]:
    """The values that the query of a page's address changes, by field."""
    texts = {field.name: query.get(field.name, "").strip()[:LONGEST] for field in fields()}
    return {name: text for name, text in texts.items() if text}


def what_if_sections(
    changes: Mapping[str, str], errors: Mapping[str, str], address: str
) -> list[Node]:
    """The form to ask the same job with other values, with the errors of the values so far."""
    how = f"Ask the same for other values; what is empty stays {_AS_IT_IS}. Nothing is written."
    return [
        el("h2", "What if", id="what-if"),
        el("p", how),
        *form_errors(errors, fields()),
        form(fields(), changes, errors, action=address, button="Answer"),
    ]
